"""The programs that write the pages of docs/."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import any_angle
import attention
import escnn_page
import kernel_families
import kernel_training
import kernels
import layers
import local_attention
import real_field_times
import real_fields
from steerformer import SO2, SO3, FieldType
from steerformer.api import resolve_config
from steerformer.nn import Conv
from steerformer.plots.kernels import draw_encodings, draw_kernels, draw_purity
from steerformer.reproduce import results_page

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"


def test_purest_kernels_have_five_times_smaller_errors_than_sampled_rings(monkeypatch, unchecked):
    monkeypatch.setattr(kernels, "DEGREES", (1, 2, 3))
    table = kernels.single_kernels().splitlines()[2:]
    ratios = {
        (cells[1], int(cells[2])): float(cells[6]) for cells in ([c.strip() for c in row.split("|")] for row in table)
    }
    assert all(ratios[grid, degree] >= 5 for grid in ("5x5", "5x5x5") for degree in (1, 2, 3)), ratios


@pytest.mark.parametrize(
    "program", [kernels, layers, attention, local_attention, kernel_families, real_fields, results_page]
)
def test_pages_match_their_programs(program):
    name = program.__name__.split(".")[-1].removesuffix("_page")
    written = (DOCS / f"{name}.md").read_text()
    for line in program._PAGE.splitlines():
        assert "{" in line or line in written, line
    if program is not results_page:
        assert f"Written by `python docs/programs/{name}.py" in written.splitlines()[0]


def test_kernel_families_page_is_rendered_from_its_results(tmp_path):
    page = kernel_families.write_page(DOCS / "kernel_families.jsonl", tmp_path / "page.md")
    assert page.read_text() == (DOCS / "kernel_families.md").read_text()


def test_real_fields_page_is_rendered_from_its_results(tmp_path):
    (tmp_path / "real_fields.json").write_text((DOCS / "real_fields.json").read_text())
    assert real_fields.write_page(tmp_path).read_text() == (DOCS / "real_fields.md").read_text()


def test_real_fields_are_timed_trained_and_rendered(tmp_path, monkeypatch):
    """Every part updates its own results; the page says which parts have not been run."""
    file = tmp_path / "real_fields.json"
    page = real_fields.write_page(tmp_path).read_text()
    assert "Not measured yet" in page and "**Not run yet**" in page
    subject = real_field_times.Subject(lambda kind: Conv(*[real_field_times.field_type(kind)] * 2, kernel_size=1), 1, 2)
    monkeypatch.setattr(real_fields, "SUBJECTS", {"a convolution": subject})
    real_fields.update(file, "times", real_fields.measure_all(rounds=2))
    trained = []

    def fake_train(preset, overrides, *, out, resume):
        trained.append((preset, *overrides))
        out.mkdir(parents=True)
        (out / "metrics.json").write_text('{"finished": true, "test_accuracy": 0.75, "seconds": 9.0}')

    monkeypatch.setattr(real_fields.sf, "train", fake_train)
    monkeypatch.setattr(real_fields.sf, "open_run", lambda folder: SimpleNamespace(model=torch.nn.Linear(2, 3)))
    options = {"data": Path("clouds"), "epochs": 1, "runs": tmp_path / "runs"}
    for _ in range(2):  # finished runs are read
        rows = [real_fields.train(kind, 0, **options) for kind in real_field_times.KINDS]
    assert len(trained) == 3
    assert all(resolve_config(preset, overrides).training.epochs == 1 for preset, *overrides in trained)
    real_fields.update(file, "trainings", rows)
    page = real_fields.write_page(tmp_path).read_text()
    assert "Not " not in page and "| a convolution |" in page and "| complex | 75.00 | 9 | 9 | 1 | 1 |" in page


def test_page_of_other_angles_is_rendered_from_its_results(tmp_path):
    (tmp_path / "any_angle.json").write_text((DOCS / "any_angle.json").read_text())
    assert any_angle.write_any_angle_page(tmp_path).read_text() == (DOCS / "any_angle.md").read_text()


def test_page_of_escnn_is_rendered_from_its_results(tmp_path):
    (tmp_path / "escnn.json").write_text((DOCS / "escnn.json").read_text())
    assert escnn_page.write_page(tmp_path).read_text() == (DOCS / "escnn.md").read_text()


def test_results_beside_escnn_are_complete():
    """Both dimensions, all modes, enough rounds, as many rounds of each library."""
    found = json.loads((DOCS / "escnn.json").read_text())
    assert {(row["dim"], row["depth"]) for row in found["errors"]} == {(2, 1), (2, 2), (3, 1), (3, 2)}
    assert {(row["dim"], row["input"]) for row in found["speed"]} == {
        (dim, entry) for dim in (2, 3) for entry in ("image", "features")
    }
    for row in found["speed"]:
        assert len(row["rounds_ms"]) == 3
        for rounds in row["rounds_ms"].values():
            counts = {len(times) for times in rounds.values()}
            assert len(counts) == 1 and min(counts) >= 15 and "escnn" in rounds
    assert found["machine"]["threads"] == 1
    assert found["grid_errors"]["steerformer"] < 1e-12 and found["grid_errors"]["escnn"] < 1e-5


@pytest.mark.parametrize("program", [kernels, layers, attention, local_attention, kernel_families, real_fields])
def test_programs_have_a_command_line(program, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [program.__file__, "--help"])
    with pytest.raises(SystemExit) as stopped:
        program.main()
    assert stopped.value.code == 0 and "--out" in capsys.readouterr().out


def test_library_does_not_import_the_programs():
    names = "|".join(file.stem for file in (DOCS / "programs").glob("*.py"))
    for file in (DOCS.parent / "src").rglob("*.py"):
        assert not re.search(rf"^\s*(?:from|import) (?:{names})\b", file.read_text(), re.MULTILINE), file


def test_programs_run_as_scripts(tmp_path):
    """From any folder, with their siblings; without results, one line says what to do."""
    script = DOCS / "programs" / "kernel_families.py"
    done = subprocess.run([sys.executable, script, "--out", tmp_path], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "train the networks with --data mnist.npz" in done.stderr.splitlines()[-1]


def test_figures_are_drawn(tmp_path):
    for group in (SO2, SO3):
        draw_kernels(group, tmp_path / "kernels.png", degrees=2)
    draw_purity(tmp_path / "purity.png", degrees=2)
    draw_encodings(tmp_path / "encodings.png", degrees=2)
    drawn = ("kernels.png", "purity.png", "encodings.png")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in drawn)


def test_kernel_families_train_resume_and_are_rendered(tmp_path, monkeypatch):
    """A smoke test on a few images of noise."""
    generator = np.random.default_rng(0)
    images = {f"{part}_images": generator.integers(0, 255, (60, 28, 28), dtype=np.uint8) for part in ("train", "test")}
    labels = {f"{part}_labels": generator.integers(0, 10, 60) for part in ("train", "test")}
    np.savez(tmp_path / "mnist.npz", **images, **labels)
    few = {"TRAIN": 20, "TEST": 20, "EPOCHS": 1, "BATCH": 10, "CHOICES": kernel_training.CHOICES[2:5:2]}
    for name, value in few.items():
        monkeypatch.setattr(kernel_training, name, value)
    results, lines = tmp_path / "kernel_families.jsonl", []
    kernel_training.run_all(tmp_path / "mnist.npz", results, seeds=1, progress=lines.append)
    kernel_training.run_all(tmp_path / "mnist.npz", results, seeds=1, progress=lines.append)
    assert len(lines) == len(kernel_training.read_results(results)) == 2
    table = kernel_families.write_page(results, tmp_path / "kernel_families.md").read_text()
    assert "| fitted |" in table and "| purest |" in table


def test_every_layer_is_on_the_page_of_layers_or_attention():
    from steerformer import nn

    examples = [*layers.example_layers(SO2).values(), *attention.modules(FieldType(SO2, (2,))).values()]
    shown = {type(layer).__name__ for layer in examples}
    maps_of_fields = set(nn.__all__) - {"PositionalEncoding", "DecoderBlock", "Decoder"}
    assert shown == {name for name in maps_of_fields if issubclass(getattr(nn, name), torch.nn.Module)}


def test_attention_errors_on_its_page_are_below_one_percent():
    """Errors of the default positional encoding."""
    rows = [
        line.split("|")
        for line in (DOCS / "attention.md").read_text().splitlines()
        if line.startswith(("| Att", "| Tra"))
    ]
    errors = [float(cells[4]) for cells in rows if "x1" in cells[3]]
    assert len(errors) == 8
    assert max(errors) < 1e-2
