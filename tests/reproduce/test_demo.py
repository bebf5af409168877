"""The demonstration, with hardly any digits: that it runs, goes on, and shows what it says; not what comes out."""

import json
import re

import pytest
from typer.testing import CliRunner

from steerformer import models
from steerformer.cli import app
from steerformer.reproduce import demo, demo_page

FEW = ("training.epochs=1", "training.batch_size=20", "data.train=60", "data.validation=20", "data.test=20")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder of a demonstration, and what it said, the first time and the second."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(demo, "_QUICK", FEW)
        for name in ("demo-convolution", "demo-cnn-upright"):  # as their likes, and time is short
            patch.delitem(demo.NAMES, name)
        for module in (demo, demo_page):
            patch.setattr(module, "ANGLES", (0, 45, 90))
        first = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder)])
        before = {file: file.stat().st_mtime_ns for file in folder.glob("runs-quick/*/metrics.json")}
        broken = folder / "runs-quick" / "demo-cnn" / "metrics.json"
        broken.write_text(json.dumps({**json.loads(broken.read_text()), "finished": False}))
        second = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder)])
    return folder, first, second, before


def test_networks_are_compared(shown):
    _, first, _, before = shown
    assert first.exit_code == 0, first.output
    assert len(before) == 2
    assert all(re.search(rf"{name}\s+\d", first.output) for name in ("steerable transformer", "plain CNN")), (
        first.output
    )


def test_a_second_run_trains_only_what_was_not_finished(shown):
    folder, _, second, before = shown
    assert second.exit_code == 0, second.output
    again = {file for file, time in before.items() if file.stat().st_mtime_ns != time}
    assert {file.parent.name for file in again} == {"demo-cnn"}
    assert json.loads((folder / "runs-quick" / "demo-cnn" / "metrics.json").read_text())["finished"]


def test_the_report_holds_all_it_shows(shown):
    folder, *_ = shown
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 3 and page.count("data:image/png;base64,") == 2
    assert not re.search(r"(?:src|href)=[\"'](?!data:|#)", page)
    assert "@import" not in page and "url(http" not in page
    assert "A quick run" in page and not re.search(r"\$\{?[a-z]", page)
    identifiers = re.findall(r' id="([^"]+)"', page)
    shared = {name for name in identifiers if identifiers.count(name) > 1}
    assert not {name for name in shared if f"#{name}" in page}, "pictures would use each other's parts"


def test_steerable_networks_stay_and_plain_ones_do_not(shown):
    """Even untrained; the plain ones are the negative control."""
    folder, *_ = shown
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "ANGLES", (0, 90))
        for name in ("demo-transformer", "demo-cnn"):
            found = demo.measure(name, folder / "runs-quick" / name)
            steerable = "cnn" not in name
            assert (found.quarter_turns < 1e-4) is steerable, name
            assert len(found.accuracy) == 2
            assert found.layers[-1].name == "logits"
            if steerable:
                assert found.accuracy[0] == found.accuracy[1]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 2
    assert "cannot read or write" in result.stderr


@pytest.mark.parametrize("name", demo.NAMES)
def test_networks_of_the_demonstration_are_of_comparable_size(name):
    assert 15_000 < sum(weights.numel() for weights in models.build(name).parameters()) < 40_000
