"""Measuring layers and attention: contestants compute the same, times are interleaved, memory includes backward."""

import pytest
import torch
from torch.testing import assert_close

import bench_attention
import machine
import report
import steerformer as sf
from bench_layers import LAYERS, SETTINGS, Setting, _relative_to_relu, all_cases, measure
from core import BASELINE, contestants, extrapolated_peak, flat, inputs, naive_attention, solid
from measure import MIN_ROUNDS, Contestant, in_ms, interleave, median_ratio, peak_memory
from steerformer.nn.attention_core import attend

pytestmark = pytest.mark.slow


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
    forward, both = (peak_memory(Contestant("", lambda: (x * 2).exp(), backward).run) for backward in (False, True))
    assert 8e6 <= forward < 9e6
    assert both >= 16e6


def test_implementations_that_form_all_pairs_are_skipped_on_large_grids(monkeypatch):
    (dense,) = contestants(flat(16, 16), ["dense"], backward=True)
    assert extrapolated_peak(flat(16, 16), "dense") == pytest.approx(peak_memory(dense.run), rel=0.5)
    monkeypatch.setattr(bench_attention, "extrapolated_peak", lambda grid, name: 1e10)
    names = (BASELINE, "auto", "dense", "naive")
    assert [name for name in names if bench_attention.fits(flat(8, 8), name)] == [BASELINE, "auto"]


def test_every_layer_has_a_named_case_for_both_groups():
    names = [name for name, _ in all_cases()]
    assert len(set(names)) == len(names)
    assert {setting.dim for setting in SETTINGS} == {2, 3}
    assert all(key.format(f"{dim}D") in names for key in LAYERS for dim in (2, 3))


def test_measured_layers_have_times_limits_and_a_convolution_share():
    case = _relative_to_relu(sf.nn.LayerNorm)(Setting(sf.FieldType(sf.SO2, (2, 1)), batch=1, size=6))
    row = measure("LayerNorm 2D", case, seconds=0)
    assert row["share"] > 0 and row["share_limit"] == 0.1
    assert row["memory_share"] > 1  # output, and gradients of input and output
    assert all(len(times) >= MIN_ROUNDS for pair in row["rounds_ms"].values() for times in pair.values())
    cells = report.layer_cells(row)
    assert cells[:2] == ["LayerNorm 2D", "relu"] and cells[4] == "6"
    assert len(report.layer_table([row]).splitlines()) == 3


def test_machine_is_described_outside_a_repository(tmp_path):
    found = machine.describe(tmp_path)
    assert "commit" not in found and found["cores"] >= 1 and found["processor"]
    assert found["processor"] in machine.sentence(found)


def test_contestants_are_interleaved_and_all_rounds_but_the_warmup_are_kept():
    calls = []

    def timer(name):
        return lambda: calls.append(name) or float(len(calls))

    times = interleave({"a": timer("a"), "b": timer("b")}, rounds=6, warmup=2)
    assert "".join(calls) == "ab" * 8
    assert times == {"a": [5.0, 7.0, 9.0, 11.0, 13.0, 15.0], "b": [6.0, 8.0, 10.0, 12.0, 14.0, 16.0]}
    times = interleave({"a": timer("a"), "b": timer("b")}, rounds=30, seconds=0)
    assert len(times["a"]) == len(times["b"]) == MIN_ROUNDS == 5


def test_ratios_are_medians_over_rounds():
    slow_round = 100.0
    assert median_ratio([2, 2, slow_round, 3, 2], [1, 1, slow_round, 1, 1]) == 2
    assert in_ms({"a": [0.0123456, 1.0]}) == {"a": [12.35, 1000.0]}


def test_load_of_the_machine_is_stored_with_a_row(monkeypatch):
    assert 0 <= machine.with_load(lambda: {"name": "a"})["others_share"] <= 1
    times = iter([(100.0, 50.0, 10.0), (110.0, 58.0, 15.0)])  # of 10 seconds, 8 were busy, 5 with this process
    monkeypatch.setattr(machine, "_cpu_times", lambda: next(times))
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (1.234, 0, 0))
    row = machine.with_load(lambda: {"name": "a"})
    assert row == {"name": "a", "load_average": 1.23, "others_share": 0.3}
    sentence = report.load([row, row | {"load_average": 2.0, "others_share": 0.01}, {"name": "older"}])
    assert "1.2 to 2.0" in sentence and "up to 30 % of the CPU time" in sentence
