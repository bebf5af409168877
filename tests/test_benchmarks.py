"""Benchmarks: all implementations give the same results, limits hold, tables are rendered from rows."""

import argparse
import json
import math
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import bench_attention
import growth
import machine
import report
import run
import steerformer as sf
import step
from bench_layers import LAYERS, SETTINGS, Setting, _relative_to_relu, all_cases, measure
from core import BASELINE, contestants, extrapolated_peak, flat, inputs, naive_attention, solid
from measure import Contestant, peak_memory
from steerformer.nn.attention_core import attend

pytestmark = pytest.mark.slow

ROW = {"forward_ms": 1.0, "forward_ratio": 2.5, "training_ms": 3.0, "training_ratio": 2.9, "peak_mb": 54.2}


@pytest.mark.parametrize("grid", [flat(4, 6), solid(3)], ids=lambda grid: grid.label)
def test_naive_implementation_agrees_with_attention(grid):
    given = inputs(grid)
    ours, naive = attend(*given), naive_attention(*given)
    assert_close(naive, ours, rtol=1e-4, atol=1e-4)
    mine, theirs = (torch.autograd.grad(out.square().sum(), given[:5]) for out in (ours, naive))
    assert_close(theirs, mine, rtol=1e-4, atol=1e-4 * max(g.abs().max().item() for g in mine))


def test_all_implementations_take_the_same_tokens_and_heads():
    for contestant in contestants(solid(3), [BASELINE, "naive", "dense", "blockwise", "auto"], backward=False):
        assert contestant.call().numel() == 4 * 27 * 120


def test_peak_memory_includes_the_backward_pass():
    x = torch.randn(1000, 1000, requires_grad=True)
    forward, both = (peak_memory(Contestant("", lambda: (x * 2).exp(), backward)) for backward in (False, True))
    assert 8e6 <= forward < 9e6
    assert both >= 16e6


def test_implementations_that_form_all_pairs_are_skipped_on_large_grids(monkeypatch):
    (dense,) = contestants(flat(16, 16), ["dense"], backward=True)
    assert extrapolated_peak(flat(16, 16), "dense") == pytest.approx(peak_memory(dense), rel=0.3)
    monkeypatch.setattr(bench_attention, "extrapolated_peak", lambda grid, name: 1e10)
    names = (BASELINE, "auto", "dense", "naive")
    assert [name for name in names if bench_attention.fits(flat(8, 8), name)] == [BASELINE, "auto"]


def test_limits_of_the_design():
    ratios = {grid.tokens: grid.ratio_limit for grid in bench_attention.GRIDS}
    assert (ratios[256], ratios[1024], ratios[1000]) == (5, 3, 3)
    assert [grid.megabyte_limit for grid in bench_attention.GRIDS if grid.tokens == 4096] == [400, 400]
    case = LAYERS["NormReLU {}"](Setting(sf.FieldType(sf.SO2, (2, 1)), batch=1, size=6))
    assert case.limit_eval == 6 and case.conv is not None


def test_measured_attention_is_within_its_limits():
    rows = json.loads((Path(bench_attention.__file__).parent / "results.json").read_text())["attention"]
    assert {row["tokens"] for row in rows} == {grid.tokens for grid in bench_attention.GRIDS}
    for row in rows:
        for key, limit in row["limits"].items():
            assert limit is None or row["implementations"]["auto"][key] <= limit, (row["name"], key)


def test_every_layer_has_a_named_case_for_both_groups():
    names = [name for name, _ in all_cases()]
    assert len(set(names)) == len(names)
    assert {setting.dim for setting in SETTINGS} == {2, 3}
    assert all(key.format(f"{dim}D") in names for key in LAYERS for dim in (2, 3))


def test_measured_layers_have_times_limits_and_a_convolution_share():
    case = _relative_to_relu(sf.nn.LayerNorm)(Setting(sf.FieldType(sf.SO2, (2, 1)), batch=1, size=6))
    row = measure("LayerNorm 2D", case, seconds=0)
    assert row["share"] > 0 and row["share_limit"] == 0.1
    cells = report.layer_cells(row)
    assert cells[:2] == ["LayerNorm 2D", "relu"] and cells[4] == "6"
    assert len(report.layer_table([row]).splitlines()) == 3


def test_attention_table_leaves_skipped_cells_empty():
    row = attention_row(implementations={BASELINE: ROW, "blockwise": ROW, "auto": ROW})
    header, _, line = report.attention_table([row]).splitlines()
    cells = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert cells["blockwise"] == cells["auto"] == "2.5 / 2.9"
    assert cells["limit"] == "- / 3" and cells["blockwise [MB]"] == "54.2"
    assert cells["dense"] == cells["naive"] == ""


def attention_row(implementations):
    limits = {"training_ratio": 3, "peak_mb": None}
    return {"grid": "2D, 32x32", "tokens": 1024, "implementations": implementations, "limits": limits}


def test_tables_are_written_between_their_markers():
    text = "a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n<!-- bench-attention -->\n<!-- /bench-attention -->\n"
    replaced = report.replace_between(text, "bench", "new")
    assert replaced == text.replace("old", "new")
    assert report.replace_between(replaced, "bench-attention", r"\1").count(r"\1") == 1


def test_pages_without_markers_are_rejected(tmp_path):
    with pytest.raises(SystemExit, match=r"no <!-- bench --> ... <!-- /bench --> for the table"):
        report.replace_between("nothing here", "bench", "table")
    page = tmp_path / "benchmarks.md"
    page.write_text("<!-- bench -->\n<!-- /bench -->\n")
    with pytest.raises(SystemExit, match=r"no <!-- bench-attention -->"):
        run.require_markers(page)


def test_page_is_rendered_from_the_measured_rows(tmp_path):
    """docs/benchmarks.md has its markers, and rendering it again changes nothing."""
    run.require_markers(run.PAGE)
    page = tmp_path / "benchmarks.md"
    page.write_text(run.PAGE.read_text())
    run.write_tables(page, json.loads(run.RESULTS.read_text()))
    assert page.read_text() == run.PAGE.read_text()
    assert (run.PAGE.parent / run.FIGURE).exists()


def test_slopes_are_exponents_on_large_grids(tmp_path):
    rows = [
        {
            "dim": dim,
            "tokens": n,
            "auto": {"peak_mb": n**1.5},
            BASELINE: {"peak_mb": n},
            "naive": {"peak_mb": n**2.0} if n < 2000 else {"extrapolated_mb": n**2.0},
        }
        for dim in (2, 3)
        for n in (10, 1000, 2000, 4000)
    ]
    assert growth.slopes(rows) == {"2D": 1.5, "3D": 1.5}
    assert "1.5 in 2D" in report.growth_note(growth.slopes(rows), "plot.png")
    growth.draw(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_machine_is_described_outside_a_repository(tmp_path):
    found = machine.describe(tmp_path)
    assert "commit" not in found and found["cores"] >= 1 and found["processor"]
    assert found["processor"] in machine.sentence(found)


def test_guide_has_the_table_of_the_measured_steps():
    text = step.GUIDE.read_text()
    assert report.replace_between(text, step.MARKER, step.table(json.loads(step.STEPS.read_text()))) == text


def test_training_steps_are_measured_and_saved(tmp_path):
    row = step.measure("brats-transformer-l2-cpu", (24, 16, 16)) | {"machine": machine.describe(tmp_path)}
    least = 4 * 4 * math.prod(row["size"])  # one layer with four channels
    assert least < row["taken"] < row["peak"] < 8e9
    path = tmp_path / "steps.json"
    for kept in (row, row | {"size": [8, 8, 8]}, row | {"peak": 3 * 10**9}):
        step.keep(kept, path)
    rows = json.loads(path.read_text())
    assert [kept["size"] for kept in rows] == [[8, 8, 8], [24, 16, 16]] and rows[1]["peak"] == 3 * 10**9
    assert "| `brats-transformer-l2-cpu` | 24 x 16 x 16 | 0.01 | 3.00 |" in step.table(rows)
    with pytest.raises(argparse.ArgumentTypeError, match="expected a size such as 64x64x48, got 'large'"):
        step.size("large")
