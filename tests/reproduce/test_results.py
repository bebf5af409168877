"""The page of results: rendered from what run folders hold."""

import json
from importlib.util import find_spec

import pytest
from PIL import Image
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


def structure(dice, missed=()):
    return {
        **{"cases": 20, "dice": dice, "dice_error": 0.01, "hd95": 2.5, "hd95_error": 0.25},
        **{"missed": list(missed), "invented": []},
    }


def write_segmentation(folder, *, model, data, classes, regions=(), dice=0.9, turned=None, missed=()):
    """A run folder of a segmentation without its weights, and one evaluation with a picture."""
    write_run(folder, data=data)
    values = json.loads((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(json.dumps({**values, "model": model}))
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["confusion"], metrics["test_accuracy"]
    found = {
        **{"cases": 20, "dice": dice, "dice_error": 0.01, "hd95": 2.0, "hd95_error": 0.5},
        **{"missed": len(missed), "invented": 1, "structures": {name: structure(dice, missed) for name in classes[1:]}},
        "regions": {name: structure(0.5) for name in regions},
    }
    metrics |= {f"test_{key}": value for key, value in found.items()} | {"classes": classes}
    metrics["history"] = [{"epoch": i, "train_dice": 0.5, "validation_dice": 0.25 * i} for i in (1, 2)]
    (folder / "metrics.json").write_text(json.dumps(metrics))
    if turned is not None:
        values = {**found, "dice": turned, "unit": "mm", "split": "test", "rotations": 1}
        values |= {"changes": ["data.test_rotation=any"], "data": {**data, "root": "/home/me", "test_rotation": "any"}}
        (folder / "evaluation-any.json").write_text(json.dumps(values))
        Image.new("RGB", (4, 4)).save(folder / "evaluation-any.png")


def sweep(*dice):
    scores = [{"agreement": 0.9 * value, "dice": value, "ceiling": 0.97} for value in dice]
    return {"upright": 0.91, "angles": [0.0, 45.0], "axes": {"z": scores[:2]}, "random": scores[2:]}


def write_check(folder):
    """What ``steerformer check --control`` leaves in the folder of a segmentation."""
    values = {
        "cases": ["p1", "p2", "p3"],
        "grid": {"worst": 3e-6},
        "layers_grid": [],
        "layers_arbitrary": [{"total": 0.5}, {"total": 0.051}],
    }
    values |= {"sweep": sweep(0.9, 0.88, 0.89), "control": sweep(0.9, 0.25, 0.5), "control_run": "control"}
    (folder / "check.json").write_text(json.dumps(values))
    Image.new("RGB", (4, 4)).save(folder / "check.png")


UNET = {"kind": "unet", "group": "SO3", "degrees": 3, "depth": 1}
TUMOUR = ["background", "edema", "non-enhancing tumor", "enhancing tumour"]


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """The page of four segmentations, written once: it builds every preset to count its parameters."""
    runs, out = tmp_path_factory.mktemp("segmentations"), tmp_path_factory.mktemp("docs")
    ph2 = {"kind": "unet", "group": "SO2", "degrees": 4, "depth": 0}
    moles = ["background", "lesion"]
    write_segmentation(runs / "moles", model=ph2, data={"name": "ph2", "size": [144, 192]}, classes=moles, turned=0.87)
    smaller = json.loads((runs / "moles" / "evaluation-any.json").read_text()) | {"dice": 0.12}
    smaller["data"]["size"] = [9, 9]
    (runs / "moles" / "evaluation-small.json").write_text(json.dumps(smaller))
    parts = ["background", "Anterior", "Posterior"]
    write_segmentation(
        runs / "hippo", model=UNET, data={"name": "decathlon"}, classes=parts, turned=0.88, missed=["p7"]
    )
    write_check(runs / "hippo")
    control = {"kind": "monai", "group": "SO3"}
    write_segmentation(runs / "control", model=control, data={"name": "decathlon"}, classes=parts, turned=0.4)
    regions = ("enhancing", "core", "whole")
    write_segmentation(runs / "brain", model=UNET, data={"name": "decathlon"}, classes=TUMOUR, regions=regions)
    result = CliRunner().invoke(app, ["reproduce", "results", "--runs", str(runs), "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


def test_segmentations_have_dice_and_distances_upright_and_turned(docs):
    page = (docs / "results.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("## ")][:3] == [
        "## BraTS",
        "## Hippocampus",
        "## PH2",
    ]
    assert "| 20 | 90.00 ± 1.00 | 2.00 ± 0.50 | 0 / 1 | 89.31 |" in row_of(page, "moles", "upright")
    assert "| 87.00 ± 1.00 | 2.00 ± 0.50 | 0 / 1 |  |" in row_of(page, "moles", "turned in the plane")
    assert not any("12.00 ± 1.00" in line for line in page.splitlines() if line.startswith("|"))  # other data
    upright, turned = row_of(page, "hippo", "upright"), row_of(page, "hippo", "turned in space")
    assert "| 90.00 ± 1.00 | 90.00 ± 1.00 | 90.00 ± 1.00 | 2.00 ± 0.50 | 1 / 1 |  |" in upright
    assert "| 88.00 ± 1.00 |" in turned and "| 40.00 ± 1.00 |" in row_of(page, "control", "turned in space")
    assert "HD95, pixels" in page and "| Anterior, % | Posterior, % | HD95, mm |" in page
    assert "| 75.01 / 54.89 / 76.37 |" in row_of(page, "brain") and "| enhancing, % | core, % | whole, % |" in page
    assert "Anterior missed altogether in p7. Posterior missed altogether in p7." in page
    assert "`steerformer evaluate runs/hippo data.test_rotation=any`: Dice 88.00 ± 1.00 %, HD95 2.00 ± 0.50 mm" in page


def test_the_check_of_a_segmentation_stands_beside_its_control(docs):
    page = (docs / "results.md").read_text()
    (line,) = (
        line for line in page.splitlines() if line.startswith("`steerformer check runs/hippo --control runs/control`")
    )
    assert (
        "change the logits by 3.0e-06 at worst, three random ones those of smooth scenes by 5.1 %" in line
        and "on 3 cases" in line
    )
    ours, control = line.split("Of control:")
    assert "91.0 % upright and 88.0 to 90.0 % at 3 rotations" in ours and "at least 79.2 %" in ours
    assert "25.0 to 90.0 % at 3 rotations" in control and "at least 22.5 %" in control


def test_curves_and_pictures_of_segmentations_are_on_the_page(docs):
    page = (docs / "results.md").read_text()
    images = {file.name for file in (docs / "images").iterdir()}
    curves = {f"results-{run}-curves.png": "Dice after each epoch" for run in ("hippo", "control", "moles", "brain")}
    word = "the best, the median and the worst case"
    cases = {f"results-{run}-evaluation-any.png": word for run in ("hippo", "control", "moles")}
    check = {"results-hippo-check.png": "Dice against angle"}
    assert images == {*curves, *cases, *check}
    for name, text in {**curves, **cases, **check}.items():
        assert f"![{text}](images/{name})" in page
    assert "/home/me" not in page and "/home/me" not in (docs / "results.json").read_text()


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs" / "digits", data={"name": "rotmnist", "rotate_test": True})
    furniture = {"name": "modelnet10", "test_rotation": "z"}
    turned = evaluation({**furniture, "root": "/home/me/data", "test_rotation": "so3"}, 0.5)
    averaged = evaluation({**furniture, "root": "/home/me/data"}, 0.9, rotations=12)
    tilted = evaluation({**furniture, "root": "/home/me/data", "grid": "tilted"}, 0.8)
    evaluations = {"so3": turned, "twelve": averaged, "tilted": tilted}
    write_run(tmp_path / "runs" / "chairs", data=furniture, evaluations=evaluations)
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
    assert "80.00 ± 2.00 |  |" in row_of(page, "chairs", "turned about z, tilted grid")
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
        assert ("needs MONAI" in row_of(table, name)) == ("monai" in name and find_spec("monai") is None)
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


def test_a_class_and_a_region_of_one_name_are_told_apart():
    from steerformer.reproduce.results_cases import _parts

    found = {"structures": {"core": {"dice": 0.1}}, "regions": {"core": {"dice": 0.2}, "whole": {"dice": 0.3}}}
    assert {name: part["dice"] for name, part in _parts(found).items()} == {
        "core": 0.1,
        "region core": 0.2,
        "whole": 0.3,
    }
