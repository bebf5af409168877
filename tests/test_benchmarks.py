"""The benchmarks measure what they say: same results from every way, limits in place, tables from rows."""

import argparse
import json
import math
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import attention
import growth
import machine
import report
import steerformer as sf
import step
from core import PEER, contestants, flat, foreseen_peak, inputs, naive_attention, solid
from layers import LAYERS, SETTINGS, Setting, _beside_relu, all_cases, measure
from measure import Contestant, peak_memory
from steerformer.nn.attend import attend

ROW = {"forward_ms": 1.0, "forward_ratio": 2.5, "training_ms": 3.0, "training_ratio": 2.9, "peak_mb": 54.2}


@pytest.mark.parametrize("grid", [flat(4, 6), solid(3)], ids=lambda grid: grid.label)
def test_the_naive_way_agrees_with_attention(grid):
    given = inputs(grid)
    ours, naive = attend(*given), naive_attention(*given)
    assert_close(naive, ours, rtol=1e-4, atol=1e-4)
    mine, theirs = (torch.autograd.grad(out.square().sum(), given[:5]) for out in (ours, naive))
    assert_close(theirs, mine, rtol=1e-4, atol=1e-4 * max(g.abs().max().item() for g in mine))


def test_all_ways_take_the_same_tokens_and_heads():
    for way in contestants(solid(3), [PEER, "naive", "dense", "blockwise", "auto"], backward=False):
        assert way.call().numel() == 4 * 27 * 120


def test_peak_memory_sees_the_backward():
    x = torch.randn(1000, 1000, requires_grad=True)
    forward, both = (peak_memory(Contestant("", lambda: (x * 2).exp(), backward)) for backward in (False, True))
    assert 8e6 <= forward < 9e6
    assert both >= 16e6


def test_ways_that_form_all_pairs_are_foreseen_and_left_out(monkeypatch):
    (dense,) = contestants(flat(16, 16), ["dense"], backward=True)
    assert foreseen_peak(flat(16, 16), "dense") == pytest.approx(peak_memory(dense), rel=0.3)
    monkeypatch.setattr(attention, "foreseen_peak", lambda grid, way: 1e10)
    assert [way for way in (PEER, "auto", "dense", "naive") if attention.fits(flat(8, 8), way)] == [PEER, "auto"]


def test_the_limits_of_the_design_are_in_the_cases():
    ratios = {grid.tokens: grid.most_ratio for grid in attention.GRIDS}
    assert (ratios[256], ratios[1024], ratios[1000]) == (5, 3, 3)
    assert [grid.most_megabytes for grid in attention.GRIDS if grid.tokens == 4096] == [400, 400]
    case = LAYERS["NormReLU {}"](Setting(sf.FieldType(sf.SO2, (2, 1)), batch=1, size=6))
    assert case.limit_eval == 6 and case.conv is not None


def test_what_was_measured_keeps_to_the_limits_of_attention():
    rows = json.loads((Path(attention.__file__).parent / "results.json").read_text())["attention"]
    assert {row["tokens"] for row in rows} == {grid.tokens for grid in attention.GRIDS}
    for row in rows:
        for key, most in row["allowed"].items():
            assert most is None or row["ways"]["auto"][key] <= most, (row["name"], key)


def test_every_layer_is_measured_for_both_groups_under_its_own_name():
    names = [name for name, _ in all_cases()]
    assert len(set(names)) == len(names)
    assert {setting.dim for setting in SETTINGS} == {2, 3}
    assert all(key.format(f"{dim}D") in names for key in LAYERS for dim in (2, 3))


def test_a_measured_layer_has_times_limits_and_its_share_of_a_convolution():
    case = _beside_relu(sf.nn.LayerNorm)(Setting(sf.FieldType(sf.SO2, (2, 1)), batch=1, size=6))
    row = measure("LayerNorm 2D", case, seconds=0)
    assert row["share"] > 0 and row["share_allowed"] == 0.1
    cells = report.layer_cells(row)
    assert cells[:2] == ["LayerNorm 2D", "relu"] and cells[4] == "6"
    assert len(report.layer_table([row]).splitlines()) == 3


def test_the_table_of_attention_leaves_cells_empty_for_what_was_not_run():
    row = attention_row(ways={PEER: ROW, "blockwise": ROW, "auto": ROW})
    header, _, line = report.attention_table([row]).splitlines()
    cells = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert cells["blockwise"] == cells["auto"] == "2.5 / 2.9"
    assert cells["allowed"] == "- / 3" and cells["blockwise, MB"] == "54.2"
    assert cells["dense"] == cells["naive"] == ""


def attention_row(ways):
    allowed = {"training_ratio": 3, "peak_mb": None}
    return {"grid": "2D, 32x32", "tokens": 1024, "ways": ways, "allowed": allowed}


def test_a_table_goes_between_its_markers_and_nowhere_else():
    text = "a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n<!-- bench-attention -->\n<!-- /bench-attention -->\n"
    replaced = report.replace_between(text, "bench", "new")
    assert replaced == text.replace("old", "new")
    assert report.replace_between(replaced, "bench-attention", r"\1").count(r"\1") == 1


def test_a_readme_without_markers_is_refused():
    with pytest.raises(SystemExit, match=r"no <!-- bench --> ... <!-- /bench --> to write"):
        report.replace_between("nothing here", "bench", "table")


def test_slopes_are_exponents_of_large_grids(tmp_path):
    rows = [
        {
            "dim": dim,
            "tokens": n,
            "auto": {"peak_mb": n**1.5},
            PEER: {"peak_mb": n},
            "naive": {"peak_mb": n**2.0} if n < 2000 else {"foreseen_mb": n**2.0},
        }
        for dim in (2, 3)
        for n in (10, 1000, 2000, 4000)
    ]
    assert growth.slopes(rows) == {"2D": 1.5, "3D": 1.5}
    assert "1.5 in 2D" in report.growth_note(growth.slopes(rows), "plot.png")
    growth.draw(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_the_machine_is_described_outside_a_repository_too(tmp_path):
    found = machine.describe(tmp_path)
    assert "commit" not in found and found["cores"] >= 1 and found["processor"]
    assert found["processor"] in machine.sentence(found)


def test_steps_of_training_are_measured_and_kept(tmp_path):
    row = step.measure("brats-transformer-l2-cpu", (24, 16, 16)) | {"machine": machine.describe(tmp_path)}
    least = 4 * 4 * math.prod(row["size"])  # of one layer with four channels
    assert least < row["taken"] < row["peak"] < 8e9
    path = tmp_path / "steps.json"
    for kept in (row, row | {"size": [8, 8, 8]}, row | {"peak": 3 * 10**9}):
        step.keep(kept, path)
    rows = json.loads(path.read_text())
    assert [kept["size"] for kept in rows] == [[8, 8, 8], [24, 16, 16]] and rows[1]["peak"] == 3 * 10**9
    assert "| `brats-transformer-l2-cpu` | 24 x 16 x 16 | 0.01 | 3.00 |" in step.table(rows)
    with pytest.raises(argparse.ArgumentTypeError, match="such as 64x64x48, got 'large'"):
        step.size("large")
