"""The demonstration on a few digits: it runs, resumes and writes its report."""

import json
import re

import pytest
from typer.testing import CliRunner

from steerformer import models
from steerformer.cli import app
from steerformer.reproduce import demo, demo_report

FEW = ("training.epochs=1", "training.batch_size=20", "data.train=60", "data.validation=20", "data.test=20")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder of a demonstration, and the output of a first and a second run."""
    folder, measured = tmp_path_factory.mktemp("demo"), {}
    measure = demo.measure

    def remembered(name, run):
        """Measure each network once: the second run need not repeat it."""
        return measured[name] if name in measured else measured.setdefault(name, measure(name, run))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(demo, "_QUICK", FEW)
        for name in ("demo-convolution", "demo-cnn-upright"):  # the two others suffice, and are quicker
            patch.delitem(demo.NAMES, name)
        for module in (demo, demo_report):
            patch.setattr(module, "ANGLES", (0, 45, 90))
        patch.setattr(demo, "measure", remembered)
        first = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder)])
        before = {file: file.stat().st_mtime_ns for file in folder.glob("runs-quick/*/metrics.json")}
        broken = folder / "runs-quick" / "demo-cnn" / "metrics.json"
        broken.write_text(json.dumps({**json.loads(broken.read_text()), "finished": False}))
        patch.setattr(demo_report, "write_report", lambda found, path, *, quick: path)
        second = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder)])
    return folder, first, second, before, measured


@pytest.mark.slow
def test_networks_are_compared(shown):
    _, first, _, before, _ = shown
    assert first.exit_code == 0, first.output
    assert len(before) == 2
    assert all(re.search(rf"{name}\s+\d", first.output) for name in ("steerable transformer", "plain CNN")), (
        first.output
    )


@pytest.mark.slow
def test_second_run_trains_unfinished_networks_only(shown):
    folder, _, second, before, _ = shown
    assert second.exit_code == 0, second.output
    again = {file for file, time in before.items() if file.stat().st_mtime_ns != time}
    assert {file.parent.name for file in again} == {"demo-cnn"}
    assert json.loads((folder / "runs-quick" / "demo-cnn" / "metrics.json").read_text())["finished"]


@pytest.mark.slow
def test_report_is_self_contained(shown):
    folder, *_ = shown
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 3 and page.count("data:image/png;base64,") == 2
    assert not re.search(r"(?:src|href)=[\"'](?!data:|#)", page)
    assert "@import" not in page and "url(http" not in page
    assert "A quick run" in page and not re.search(r"\$\{?[a-z]", page)
    identifiers = re.findall(r' id="([^"]+)"', page)
    shared = {name for name in identifiers if identifiers.count(name) > 1}
    assert not {name for name in shared if f"#{name}" in page}, "ids of figures must be unique"


@pytest.mark.slow
def test_steerable_networks_are_invariant_and_plain_ones_are_not(shown):
    """Even untrained; the plain CNN is the negative control."""
    *_, measured = shown
    assert set(measured) == {"demo-transformer", "demo-cnn"}
    for name, found in measured.items():
        steerable = "cnn" not in name
        assert (found.grid_rotations < 1e-4) is steerable, name
        assert len(found.accuracy) == 3
        assert found.layers[-1].name == "logits"
        if steerable:
            assert found.accuracy[0] == found.accuracy[2]  # at 0 and 90 degrees


def test_invalid_output_folder_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 2
    assert "cannot read or write" in result.stderr


@pytest.mark.parametrize("name", demo.NAMES)
def test_networks_have_similar_size(name):
    assert 15_000 < sum(weights.numel() for weights in models.build(name).parameters()) < 40_000
