"""The page of results: rendered from what run folders hold."""

import json

import pytest
from typer.testing import CliRunner

from steerformer import models
from steerformer.cli import app
from steerformer.reproduce import results
from steerformer.reproduce.results_page import presets_table, write_page


def write_run(folder, *, data, finished=True, accuracy=0.75, evaluations=None):
    """A run folder without its weights."""
    folder.mkdir(parents=True)
    model = {"kind": "classifier", "group": "SO2", "size": 28, "degrees": 4, "depth": 1}
    values = {"model": model, "data": {"root": "/home/me/data", **data}, "training": {"batch_size": 50}, "seed": 0}
    (folder / "config.yaml").write_text(json.dumps(values))
    right = round(100 * accuracy)
    history = [{"epoch": i + 1, "train_accuracy": 0.5, "validation_accuracy": None} for i in range(2)]
    metrics = {
        **{"finished": finished, "epochs": 2, "best_epoch": 2, "seconds": 120.0, "history": history},
        **{"parameters": 1000, "complex_parameters": 600, "classes": ["a", "b"]},
        **{"test_accuracy": accuracy, "confusion": [[right, 100 - right], [0, 0]]},
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))
    command = ["/usr/bin/steerformer", "train", "x", "data.root=/home/me/data"]
    (folder / "environment.json").write_text(json.dumps({"command": command, "processor": "a CPU", "threads": 2}))
    for name, values in (evaluations or {}).items():
        (folder / f"evaluation-{name}.json").write_text(json.dumps(values))


def evaluation(data, accuracy, rotations=1):
    return {
        **{"split": "test", "rotations": rotations, "changes": ["data.root=/home/me/data"], "data": data},
        **{"samples": 400, "accuracy": accuracy, "standard_error": 0.01},
    }


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs" / "digits", data={"name": "rotmnist", "rotate_test": True})
    furniture = {"name": "modelnet10", "test_rotation": "z"}
    turned = evaluation({**furniture, "root": "/home/me/data", "test_rotation": "so3"}, 0.5)
    averaged = evaluation({**furniture, "root": "/home/me/data"}, 0.9, rotations=12)
    write_run(tmp_path / "runs" / "chairs", data=furniture, evaluations={"so3": turned, "twelve": averaged})
    write_run(tmp_path / "runs" / "unfinished", data={"name": "rotmnist"}, finished=False)
    return tmp_path / "runs"


def row_of(page, *words):
    return next(line for line in page.splitlines() if line.startswith("|") and all(word in line for word in words))


def test_figures_stand_beside_the_papers(runs, tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "results", "--runs", str(runs), "--out", str(tmp_path / "docs")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "75.00 ± 4.33 | 98.82 |" in row_of(page, "digits", "turned in the plane")
    assert "75.00 ± 4.33 | 90.40 |" in row_of(page, "chairs", "turned about z", "| 100 |")
    assert "50.00 ± 2.50 | 86.80 |" in row_of(page, "chairs", "turned in space")
    assert "90.00 ± 1.50 |  |" in row_of(page, "mean of 12 rotations")
    assert "A single run, seed 0: 2 epochs" in page and "unfinished" not in page
    assert "62,000 distinct digits" in page.replace("\n", " ")
    assert "`rotmnist-transformer-k4-paper`" in page
    images = {file.name for file in (tmp_path / "docs" / "images").iterdir()}
    assert images == {f"results-{run}-{kind}.png" for run in ("digits", "chairs") for kind in ("curves", "confusion")}
    assert all(f"images/{name}" in page for name in images)


def test_nothing_of_the_machine_gets_into_the_page(runs, tmp_path):
    results.keep(results.collect(runs), tmp_path / "results.json")
    page = write_page(tmp_path).read_text()
    for text in (page, (tmp_path / "results.json").read_text()):
        assert "/home/me" not in text and "/usr/bin" not in text
    assert "steerformer train x data.root=data" in page


def test_the_page_can_be_rendered_again_without_the_runs(runs, tmp_path):
    results.keep(results.collect(runs), tmp_path / "results.json")
    first = write_page(tmp_path).read_text()
    result = CliRunner().invoke(app, ["reproduce", "results", "--out", str(tmp_path)])
    assert result.exit_code == 0 and (tmp_path / "results.md").read_text() == first


def test_records_of_other_runs_are_kept(runs, tmp_path):
    file = tmp_path / "results.json"
    found = results.collect(runs)
    results.keep({"digits": found["digits"]}, file)
    results.keep({"chairs": found["chairs"]}, file)
    assert list(json.loads(file.read_text())) == ["chairs", "digits"]


def test_every_preset_is_in_the_table_and_the_papers_sizes_are_met():
    table = presets_table()
    for name in models.presets():
        assert f"`{name}`" in table
        if name.endswith("-paper"):
            difference = float(row_of(table, name).split("|")[-2].strip().removesuffix("%"))
            assert abs(difference) < 5, name


@pytest.mark.parametrize("runs", ["nowhere", "."])
def test_folders_without_runs_are_named(runs, tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "results", "--runs", str(tmp_path / runs), "--out", str(tmp_path)])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert str(tmp_path) in result.stderr


def test_a_page_without_records_says_what_is_missing(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "results", "--out", str(tmp_path)])
    assert result.exit_code == 2 and "results.json" in result.stderr
