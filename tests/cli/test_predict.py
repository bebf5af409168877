"""``steerformer predict`` with classifiers."""

import csv
import io

import numpy as np
import torch
from typer.testing import CliRunner

from steerformer import open_run
from steerformer.cli import app
from steerformer.data import read_sample


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_table_has_the_probabilities_of_each_file(runs, images):
    files = [images / "bar" / "0.png", images / "spot" / "1.png"]
    result = run("predict", runs / "steerable", *files)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["file"] for row in rows] == list(map(str, files))
    x = torch.stack([read_sample(file, size=12, channels=1) for file in files])
    with torch.no_grad():
        expected = open_run(runs / "steerable").model(x).softmax(1)
    found = torch.tensor([[float(row["bar"]), float(row["spot"])] for row in rows])
    assert torch.allclose(found, expected, atol=1e-5)
    assert [row["class"] for row in rows] == [("bar", "spot")[i] for i in expected.argmax(1)]


def test_unreadable_files_are_listed_and_others_predicted(runs, images, tmp_path):
    cut, volume = tmp_path / "cut.png", tmp_path / "volume.npy"
    cut.write_bytes((images / "bar" / "0.png").read_bytes()[:60])
    np.save(volume, np.zeros((4, 4, 4), dtype=np.float32))
    out = tmp_path / "classes.csv"
    files = [cut, images / "spot" / "0.png", tmp_path / "none.png", volume]
    result = run("predict", runs / "plain", *files, "--out", out)
    assert result.exit_code == 2
    assert len(out.read_text().splitlines()) == 2
    assert "3 of 4 files could not be read" in result.stderr and result.stderr.count("\n") == 1
    assert all(word in result.stderr for word in ("cut.png", "none.png", "is a volume, but the model takes an image"))


def test_existing_file_is_overwritten_only_by_force(runs, images, tmp_path):
    out = tmp_path / "classes.csv"
    out.write_text("mine")
    arguments = ("predict", runs / "plain", images / "bar" / "0.png", "--out", out)
    result = run(*arguments)
    assert result.exit_code == 2 and "--force" in result.stderr and out.read_text() == "mine"
    assert run(*arguments, "--force").exit_code == 0 and out.read_text().startswith("file,class,bar,spot\n")


def test_file_that_cannot_be_written_is_named(runs, images, tmp_path):
    result = run(
        "predict", runs / "plain", images / "bar" / "0.png", "--out", tmp_path / "no" / "folder" / "classes.csv"
    )
    assert result.exit_code == 2 and "cannot read or write" in result.stderr
