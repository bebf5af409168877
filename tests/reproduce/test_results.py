"""The page of results is rendered from run folders."""

import json

import pytest
from typer.testing import CliRunner

from reproduce.run_folders import evaluation, sweep, write_check, write_run, write_segmentation
from steerformer import models
from steerformer.cli import app
from steerformer.plots.equivariance import dice_sweep_figure
from steerformer.reproduce import results
from steerformer.reproduce.results_page import presets_table, write_page
from steerformer.reproduce.results_segmentation import dice_sweeps

pytestmark = pytest.mark.slow


UNET = {"kind": "unet", "group": "SO3", "degrees": 3, "depth": 1}
TUMOR = ["background", "edema", "non-enhancing tumor", "enhancing tumour"]


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """The page of four segmentation runs, written once: it builds every preset to count its parameters."""
    runs, out = tmp_path_factory.mktemp("segmentations"), tmp_path_factory.mktemp("docs")
    ph2 = {"kind": "unet", "group": "SO2", "degrees": 4, "depth": 0}
    moles = ["background", "lesion"]
    write_segmentation(runs / "moles", model=ph2, data={"name": "ph2", "size": [144, 192]}, classes=moles, rotated=0.87)
    smaller = json.loads((runs / "moles" / "evaluation-any.json").read_text()) | {"dice": 0.12}
    smaller["data"]["size"] = [9, 9]
    (runs / "moles" / "evaluation-small.json").write_text(json.dumps(smaller))
    parts = ["background", "Anterior", "Posterior"]
    write_segmentation(
        runs / "hippo", model=UNET, data={"name": "decathlon"}, classes=parts, rotated=0.88, missed=["p7"]
    )
    write_check(runs / "hippo")
    control = {"kind": "monai", "group": "SO3"}
    write_segmentation(runs / "control", model=control, data={"name": "decathlon"}, classes=parts, rotated=0.4)
    regions = ("enhancing", "core", "whole")
    write_segmentation(runs / "brain", model=UNET, data={"name": "decathlon"}, classes=TUMOR, regions=regions)
    result = CliRunner().invoke(app, ["reproduce", "results", "--runs", str(runs), "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


def test_segmentation_runs_have_dice_and_hd95_upright_and_rotated(docs):
    page = (docs / "results.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("## ")][:3] == [
        "## BraTS",
        "## Hippocampus",
        "## PH2",
    ]
    assert "| 20 | 90.00 ± 1.00 | 2.00 ± 0.50 | 0 / 1 | 89.31 |" in row_of(page, "moles", "upright")
    assert "| 87.00 ± 1.00 | 2.00 ± 0.50 | 0 / 1 |  |" in row_of(page, "moles", "rotated in 2D")
    assert not any("12.00 ± 1.00" in line for line in page.splitlines() if line.startswith("|"))  # other data
    upright, rotated = row_of(page, "hippo", "upright"), row_of(page, "hippo", "rotated in 3D")
    assert "| 90.00 ± 1.00 | 90.00 ± 1.00 | 90.00 ± 1.00 | 2.00 ± 0.50 | 1 / 1 |  |" in upright
    assert "| 88.00 ± 1.00 |" in rotated and "| 40.00 ± 1.00 |" in row_of(page, "control", "rotated in 3D")
    assert "HD95 [pixels]" in page and "| Anterior [%] | Posterior [%] | HD95 [mm] |" in page
    assert "| 75.01 / 54.89 / 76.37 |" in row_of(page, "brain") and "| enhancing [%] | core [%] | whole [%] |" in page
    assert "Anterior missed in p7. Posterior missed in p7." in page
    assert "`steerformer evaluate runs/hippo data.test_rotation=any`: Dice 88.00 ± 1.00 %, HD95 2.00 ± 0.50 mm" in page


def test_check_of_a_segmentation_run_includes_its_control(docs):
    page = (docs / "results.md").read_text()
    (line,) = (
        line for line in page.splitlines() if line.startswith("`steerformer check runs/hippo --control runs/control`")
    )
    assert (
        "rotations of the grid at most 3.0e-06, on smooth scenes at three random rotations 5.1 %" in line
        and "on 3 cases" in line
    )
    ours, control = line.split(" control: ")
    assert "91.0 % upright and 88.0 to 90.0 % at 3 rotations" in ours and "at least 79.2 %" in ours
    assert "25.0 to 90.0 % at 3 rotations" in control and "at least 22.5 %" in control


def test_figures_of_segmentation_runs_are_on_the_page(docs):
    page = (docs / "results.md").read_text()
    images = {file.name for file in (docs / "images").iterdir()}
    curves = {f"results-{run}-curves.png": "Dice after each epoch" for run in ("hippo", "control", "moles", "brain")}
    word = "Best, median and worst case"
    cases = {f"results-{run}-evaluation-any.png": word for run in ("hippo", "control", "moles")}
    check = {"results-hippo-check.png": "Dice against rotation angle; thin lines: single axes"}
    assert images == {*curves, *cases, *check}
    for name, text in {**curves, **cases, **check}.items():
        assert f"![{text}](images/{name})" in page
    assert "/home/me" not in page and "/home/me" not in (docs / "results.json").read_text()


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs" / "digits", data={"name": "rotmnist", "test_rotation": "any"})
    furniture = {"name": "modelnet10", "test_rotation": "z"}
    rotated = evaluation({**furniture, "root": "/home/me/data", "test_rotation": "so3"}, 0.5)
    averaged = evaluation({**furniture, "root": "/home/me/data"}, 0.9, rotations=12)
    tilted = evaluation({**furniture, "root": "/home/me/data", "grid": "tilted"}, 0.8)
    evaluations = {"so3": rotated, "twelve": averaged, "tilted": tilted}
    write_run(tmp_path / "runs" / "chairs", data=furniture, evaluations=evaluations)
    write_run(tmp_path / "runs" / "unfinished", data={"name": "rotmnist"}, finished=False)
    return tmp_path / "runs"


def row_of(page, *words):
    return next(line for line in page.splitlines() if line.startswith("|") and all(word in line for word in words))


def test_results_are_shown_with_those_of_the_paper(runs, tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "results", "--runs", str(runs), "--out", str(tmp_path / "docs")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "75.00 ± 4.33 | 98.82 |" in row_of(page, "digits", "rotated in 2D")
    assert "75.00 ± 4.33 | 90.40 |" in row_of(page, "chairs", "rotated about z", "| 100 |")
    assert "50.00 ± 2.50 | 86.80 |" in row_of(page, "chairs", "rotated in 3D")
    assert "90.00 ± 1.50 |  |" in row_of(page, "mean of 12 rotations")
    assert "80.00 ± 2.00 |  |" in row_of(page, "chairs", "rotated about z, tilted grid")
    assert "Single run, seed 0: 2 epochs" in page and "unfinished" not in page
    assert "62,000 distinct digits" in page.replace("\n", " ")
    assert "`rotmnist-transformer-k4-paper`" in page
    images = {file.name for file in (tmp_path / "docs" / "images").iterdir()}
    assert images == {f"results-{run}-{kind}.png" for run in ("digits", "chairs") for kind in ("curves", "confusion")}
    assert all(f"images/{name}" in page for name in images)


def test_paths_are_removed(runs, tmp_path):
    results.save_records(results.collect(runs), tmp_path / "results.json")
    page = write_page(tmp_path).read_text()
    for text in (page, (tmp_path / "results.json").read_text()):
        assert "/home/me" not in text and "/usr/bin" not in text
    assert "steerformer train x data.root=data" in page


def test_page_is_rendered_without_the_runs(runs, tmp_path):
    results.save_records(results.collect(runs), tmp_path / "results.json")
    first = write_page(tmp_path).read_text()
    result = CliRunner().invoke(app, ["reproduce", "results", "--out", str(tmp_path)])
    assert result.exit_code == 0 and (tmp_path / "results.md").read_text() == first


def test_records_of_other_runs_are_kept(runs, tmp_path):
    file = tmp_path / "results.json"
    found = results.collect(runs)
    results.save_records({"digits": found["digits"]}, file)
    results.save_records({"chairs": found["chairs"]}, file)
    assert list(json.loads(file.read_text())) == ["chairs", "digits"]


def test_every_preset_is_in_the_table_and_matches_the_paper():
    table = presets_table()
    for name in models.presets():
        assert f"`{name}`" in table
        if name.endswith("-paper"):
            difference = float(row_of(table, name).split("|")[-2].strip().removesuffix("%"))
            assert abs(difference) < 5, name


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [("model", {"profiles": "sampled"}, "kernel_family"), ("data", {"rotate_test": True}, "test_rotation")],
)
def test_runs_of_earlier_versions_are_rejected(runs, tmp_path, part, old, new):
    path = runs / "digits" / "config.yaml"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, part: {**values[part], **old}}))
    result = CliRunner().invoke(app, ["reproduce", "results", "--runs", str(runs), "--out", str(tmp_path / "docs")])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert str(path) in result.stderr and f"it is now called {new}" in result.stderr
    assert not (tmp_path / "docs" / "results.json").exists()


@pytest.mark.parametrize("with_control", [True, False])
def test_dice_sweep_figure_shows_the_sweeps(with_control):
    check = {"sweep": sweep(0.9, 0.88), "control": sweep(0.9, 0.25) if with_control else None, "control_run": "plain"}
    figure = dice_sweep_figure(dice_sweeps("ours", check))
    left, right = figure.axes
    expected = {"ours": [0.9, 0.88], "plain": [0.9, 0.25]} if with_control else {"ours": [0.9, 0.88]}
    assert {line.get_label(): line.get_ydata().tolist() for line in right.lines} == expected
    assert {line.get_label() for line in left.lines} == {*expected, "interpolation only"}
    assert left.lines[0].get_ydata().tolist() == pytest.approx([0.81, 0.792])
    assert left.get_xlabel() == right.get_xlabel() == "rotation angle [degrees]"
    assert (left.get_ylabel(), right.get_ylabel()) == ("Dice with the upright prediction", "Dice with the true labels")


@pytest.mark.parametrize("runs", ["nowhere", "."])
def test_folders_without_runs_are_rejected(runs, tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "results", "--runs", str(tmp_path / runs), "--out", str(tmp_path)])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert str(tmp_path) in result.stderr


def test_missing_records_are_reported(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "results", "--out", str(tmp_path)])
    assert result.exit_code == 2 and "results.json" in result.stderr


def test_classes_and_regions_of_the_same_name_are_distinguished():
    from steerformer.reproduce.results_segmentation import _parts

    found = {"structures": {"core": {"dice": 0.1}}, "regions": {"core": {"dice": 0.2}, "whole": {"dice": 0.3}}}
    assert {name: part["dice"] for name, part in _parts(found).items()} == {
        "core": 0.1,
        "region core": 0.2,
        "whole": 0.3,
    }


def test_resumed_run_is_shown_with_the_command_that_started_it(tmp_path):
    write_run(tmp_path / "runs" / "resumed", data={"name": "rotmnist"})
    path = tmp_path / "runs" / "resumed" / "environment.json"
    first = json.loads(path.read_text())
    last = {**first, "command": ["steerformer", "train", "runs/resumed", "--resume"], "earlier": [first]}
    path.write_text(json.dumps(last))
    (record,) = results.collect(tmp_path / "runs").values()
    assert record["environment"]["command"] == ["steerformer", "train", "x", "data.root=data"]
