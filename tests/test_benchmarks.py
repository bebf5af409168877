"""Benchmarks: all implementations give the same results, limits hold, tables are rendered from rows."""

import argparse
import subprocess
from statistics import median

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import bench_attention
import bench_presets
import growth
import machine
import report
import results
import run
import steerformer as sf
import step
from bench_layers import CONV_RATIO_LIMIT, LAYERS, SETTINGS, Setting, _relative_to_relu, all_cases, measure
from bench_presets import BEFORE, CONTROL, NOW, SAME
from core import BASELINE, contestants, extrapolated_peak, flat, inputs, naive_attention, solid
from measure import MIN_ROUNDS, Contestant, in_ms, interleave, median_ratio, peak_memory
from steerformer.nn.attention_core import attend
from worker import Worker

pytestmark = pytest.mark.slow
needs_history = pytest.mark.skipif(
    not bench_presets.has_commit(run.ROOT), reason=f"commit {bench_presets.COMMIT} is not in the git history"
)
TINY = {
    "model": {"kind": "classifier", "group": "SO2", "size": 12, "widths": [[2], [4]], "classes": 3, "dropout": 0},
    "data": {"name": "rotmnist"},
    "training": {"batch_size": 4, "ema": 0.9},
}
SHAPE = {"batch": 4, "space": (12, 12), "threads": 1}

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
    forward, both = (peak_memory(Contestant("", lambda: (x * 2).exp(), backward).run) for backward in (False, True))
    assert 8e6 <= forward < 9e6
    assert both >= 16e6


def test_implementations_that_form_all_pairs_are_skipped_on_large_grids(monkeypatch):
    (dense,) = contestants(flat(16, 16), ["dense"], backward=True)
    assert extrapolated_peak(flat(16, 16), "dense") == pytest.approx(peak_memory(dense.run), rel=0.3)
    monkeypatch.setattr(bench_attention, "extrapolated_peak", lambda grid, name: 1e10)
    names = (BASELINE, "auto", "dense", "naive")
    assert [name for name in names if bench_attention.fits(flat(8, 8), name)] == [BASELINE, "auto"]


def test_limits_of_the_design():
    limits = {grid.tokens: (grid.forward_limit, grid.ratio_limit) for grid in bench_attention.GRIDS}
    assert limits[1024] == limits[1000] == (3, 2.5) and limits[4096] == (3, 2.8)
    assert [grid.megabyte_limit for grid in bench_attention.GRIDS if grid.tokens == 4096] == [400, 400]
    faster = {case.preset.split("-")[0]: case.faster_limit for case in bench_presets.CASES}
    assert faster == {"hippocampus": 3, "modelnet10": 3, "ph2": 2, "rotmnist": 1.5}
    assert {(case.seconds_limit, case.gigabyte_limit) for case in step.CASES} >= {(120, None), (600, 16)}
    case = LAYERS["NormReLU {}"](Setting(sf.FieldType(sf.SO2, (2, 1)), batch=1, size=6))
    assert case.limit_eval == 6 and case.conv is not None


def stored(section):
    found = results.read()
    if not found["steps"]:
        pytest.skip("make bench has not been run since it measures training steps")
    return found[section]


def test_measured_attention_is_within_its_limits():
    rows = stored("attention")
    assert {row["tokens"] for row in rows} == {grid.tokens for grid in bench_attention.GRIDS}
    for row in rows:
        for key, limit in row["limits"].items():
            assert limit is None or row["implementations"]["auto"][key] <= limit, (row["name"], key)


def test_measured_convolutions_and_memory_of_layers_are_within_their_limits():
    rows = {row["name"]: row for row in stored("layers")}
    for row in (row for name, row in rows.items() if name.startswith("Conv")):
        assert max(row["forward_ratio"], row["training_ratio"]) <= CONV_RATIO_LIMIT, row["name"]
    assert rows["FourierReLU 3D"]["memory_share"] <= rows["FourierReLU 3D"]["memory_share_limit"] == 3


def test_measured_training_steps_are_within_their_limits():
    rows = stored("steps")
    assert {row["preset"] for row in rows} == {case.preset for case in bench_presets.CASES}
    for row in rows:
        assert report.steps_ratio(row, BEFORE, NOW) >= row["faster_limit"], row["preset"]
        assert row["peak_mb"][NOW] <= row["peak_mb"][BEFORE], row["preset"]


def test_measured_losses_agree_with_those_before():
    rows = stored("losses")
    assert len(rows) == sum(case.compares_losses for case in bench_presets.CASES)
    for row in rows:
        compared = row["comparisons"]["NormReLU, float64"]
        assert len(compared[BEFORE]) == len(compared[NOW]) == bench_presets.LOSS_STEPS
        assert compared["difference"] < 1e-9, row["preset"]


def test_measured_full_size_steps_are_within_their_limits():
    rows = [row for row in stored("full_size") if row["seconds_limit"]]
    assert len(rows) == 2
    for row in rows:
        assert row["seconds"] <= row["seconds_limit"], row["name"]
        assert row["gigabyte_limit"] is None or row["peak"] <= 1e9 * row["gigabyte_limit"], row["name"]


def round_lists(rounds):
    """All lists of rounds in nested groups; that of the naive implementation has one round only."""
    if isinstance(rounds, list) and isinstance(rounds[0], float):
        return [rounds]
    groups = rounds.values() if isinstance(rounds, dict) else rounds
    return [] if "naive" in rounds else [times for group in groups for times in round_lists(group)]


@pytest.mark.parametrize("section", ["steps", "layers", "attention"])
def test_all_rounds_are_stored_with_the_load_of_the_machine(section):
    assert stored(section)
    for row in stored(section):
        lengths = [len(times) for times in round_lists(row["rounds_ms"])]
        assert lengths and min(lengths) >= MIN_ROUNDS, row["name"]
        assert row["load_average"] >= 0 and 0 <= row["others_share"] <= 1, row["name"]


def test_stored_medians_are_those_of_the_stored_rounds():
    for row in stored("layers"):
        for mode in ("forward", "training"):
            times = row["rounds_ms"][mode]
            assert row[f"{mode}_ms"] == pytest.approx(median(times["ours"]), rel=1e-3, abs=0.01), row["name"]
            ratio = median_ratio(times["ours"], times["baseline"])
            assert row[f"{mode}_ratio"] == pytest.approx(ratio, rel=2e-3, abs=0.01), row["name"]


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


def test_attention_table_leaves_skipped_cells_empty():
    row = attention_row(implementations={BASELINE: ROW, "blockwise": ROW, "auto": ROW})
    header, _, line = report.attention_table([row]).splitlines()
    cells = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert cells["blockwise"] == cells["auto"] == "2.5 / 2.9"
    assert cells["limit"] == "3 / 2.5" and cells["blockwise [MB]"] == "54.2"
    assert cells["dense"] == cells["naive"] == ""


def attention_row(implementations):
    limits = {"forward_ratio": 3, "training_ratio": 2.5, "peak_mb": None}
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
    page.write_text("<!-- bench-steps -->\n<!-- /bench-steps -->\n")
    with pytest.raises(SystemExit, match=r"no <!-- bench-losses -->"):
        run.require_markers(page)


def test_page_is_rendered_from_the_measured_rows(tmp_path):
    """docs/benchmarks.md and docs/guide.md have their markers, and rendering them again changes nothing."""
    run.require_markers(run.PAGE)
    found, page = results.read(), tmp_path / "page.md"
    page.write_text(run.PAGE.read_text())
    run.write_tables(page, found)
    assert page.read_text() == run.PAGE.read_text()
    assert (run.PAGE.parent / run.FIGURE).exists()
    page.write_text(step.GUIDE.read_text())
    step.write_guide(page, found["full_size"])
    assert page.read_text() == step.GUIDE.read_text()


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
    assert "1.2 to 2.0" in sentence and "1 to 30 % of the CPU time" in sentence


def test_process_trains_as_by_hand():
    """Oracle: the first loss and, after a step of AdamW by hand, the second one."""
    torch.manual_seed(0)
    model = sf.models.build(TINY["model"])
    decayed = {name: p.ndim > 1 and not name.endswith("bias") for name, p in model.named_parameters()}
    groups = [{"params": [p], "weight_decay": 1e-2 * decayed[name]} for name, p in model.named_parameters()]
    optimizer = torch.optim.AdamW(groups, lr=3e-3 / 100)  # first step of a warm-up of 100
    expected = []
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(4, 1, 12, 12, generator=generator)
        loss = F.cross_entropy(model(x), torch.randint(3, (4,), generator=generator))
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    with Worker(run.ROOT / "src", TINY, **SHAPE) as worker:
        steps = [worker.step() for _ in range(2)]
        assert [found["loss"] for found in steps] == pytest.approx(expected, rel=1e-4)
        assert all(0 < found["seconds"] < 60 for found in steps)
        assert 4 * 4 * 4 * 144 < worker.allocated_peak()["bytes"] < 1e8  # more than the first layer, less than torch
        found = worker.process_peak()
        assert found["taken"] < found["peak"] < 8e9 and found["peak"] > 1e8
    assert worker.process.returncode == 0


def test_process_of_another_version_or_without_a_network_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="instead of the package in"), Worker(tmp_path, TINY, **SHAPE):
        pass
    with pytest.raises(RuntimeError, match="the process that trains nonsense ended"):
        Worker(run.ROOT / "src", "nonsense", **SHAPE).__enter__()


def test_history_is_missing_in_an_export(tmp_path):
    assert not bench_presets.has_commit(tmp_path)


@needs_history
def test_earlier_version_is_taken_from_the_history():
    with bench_presets.source_before(run.ROOT) as source:
        config = "src/steerformer/models/config.py"
        command = ["git", "-C", run.ROOT, "show", f"{bench_presets.COMMIT}:{config}"]
        text = subprocess.run(command, capture_output=True, check=True).stdout
        assert (source.parent / config).read_bytes() == text
        with Worker(source, bench_presets.preset_before(source, "demo-cnn"), **SHAPE | {"space": (28, 28)}) as worker:
            assert 1 < worker.step()["loss"] < 5
    assert not source.exists()


class FakeWorker:
    """Takes 3 seconds for a step of the earlier version and 1 second for others."""

    started = ()

    def __init__(self, source, experiment, *, batch, space, threads, overrides=()):
        self.is_now, self.experiment, self.overrides, self.steps = source == run.ROOT / "src", experiment, overrides, 0

    def __enter__(self):
        FakeWorker.started += (self,)
        return self

    def __exit__(self, *error):
        pass

    def step(self):
        self.steps += 1
        differs = self.is_now and not self.overrides and self.steps == 3
        return {"seconds": 1.0 if self.is_now else 3.0, "loss": 1.5 if differs else 2.0}

    def allocated_peak(self):
        return {"bytes": 2e6}


@pytest.fixture
def fake_workers(monkeypatch):
    monkeypatch.setattr(FakeWorker, "started", ())
    monkeypatch.setattr(bench_presets, "Worker", FakeWorker)


CASE = bench_presets.PresetCase("demo-convolution", "demo-cnn", 2, (28, 28), faster_limit=2)


@needs_history
def test_steps_of_four_contestants_are_measured(fake_workers):
    row = bench_presets.measure_steps(CASE, threads=1)
    before, same, now, control = FakeWorker.started
    assert [worker.is_now for worker in (before, same, now, control)] == [False, True, True, True]
    assert before.experiment == now.experiment == "demo-convolution" and control.experiment == "demo-cnn"
    assert same.experiment["model"]["kind"] == "classifier"  # what the earlier version has under that name
    assert list(row["rounds_ms"]) == list(row["peak_mb"]) == [BEFORE, SAME, NOW, CONTROL]
    assert [len(times) for times in row["rounds_ms"].values()] == [7] * 4
    assert report.steps_ratio(row, BEFORE, NOW) == 3 and row["peak_mb"][NOW] == 2


@needs_history
def test_losses_are_compared_with_the_earlier_version(fake_workers):
    compared = bench_presets.compare_losses(CASE, threads=1)["comparisons"]
    assert [found["difference"] for found in compared.values()] == [0, 0, 0.25]
    assert [worker.is_now for worker in FakeWorker.started] == [False, True] * 3
    assert all(worker.experiment == FakeWorker.started[0].experiment for worker in FakeWorker.started)
    assert all(len(found[name]) == 20 for found in compared.values() for name in (BEFORE, NOW))


def test_largest_difference_is_relative():
    assert bench_presets.largest_difference([1.0, 2.0, 4.0], [1.0, 2.2, 4.1]) == 0.1


def test_table_of_steps_has_medians_and_ratios():
    rounds = {BEFORE: [900.0, 1000.0, 5000.0], SAME: [400.0, 500.0, 2500.0], NOW: [300.0, 250.0, 1250.0]}
    row = {
        "preset": "p",
        "rounds_ms": rounds | {CONTROL: [50.0, 50.0, 50.0]},
        "peak_mb": {BEFORE: 300.0, SAME: 200.4, NOW: 100.0, CONTROL: 10.0},
        "faster_limit": 3,
    }
    header, _, line = report.steps_table([row]).splitlines()
    assert line == "| `p` | 1 | 0.5 | 2.00 | 0.3 | 4.00 | 3 | 0.05 | 6.0 | 300 / 200 / 100 / 10 |"
    assert header.count("|") == line.count("|")


def test_table_of_losses_has_the_largest_differences():
    labels = bench_presets.LOSS_OVERRIDES
    compared = dict(zip(labels, ({"difference": d} for d in (2.3e-14, 1e-6, 0.0)), strict=True))
    lines = report.losses_table([{"preset": "p", "comparisons": compared}]).splitlines()
    assert lines[-1] == "| `p` | 2e-14 | 1e-06 | 0 |"


def test_table_of_full_size_steps_has_limits():
    row = {"preset": "p", "size": [8, 8, 8], "batch": 5, "seconds": 71.4, "peak": 3.21e9}
    lines = report.full_size_table([row | {"seconds_limit": 120, "gigabyte_limit": None}]).splitlines()
    assert lines[-1] == "| `p` | 8 x 8 x 8 | 5 | 71 | 120 | 3.21 |  |"


def test_steps_by_size_are_measured_and_written(tmp_path, monkeypatch):
    case = step.SizedStep("brats-transformer-l2-cpu", (24, 16, 16))
    row = step.measure(case, threads=1)
    least = 4 * 4 * 24 * 16 * 16  # one layer with four channels
    assert least < row["taken"] < row["peak"] < 8e9 and row["machine"]["threads"] == 1
    monkeypatch.setattr(results, "FILE", tmp_path / "results.json")
    found = results.read()
    for kept in (row, row | {"name": "other", "size": [8, 8, 8]}, row | {"peak": 3 * 10**9}):
        results.put(found["full_size"], kept)
    results.save(found)
    assert results.read() == found and '"size": [24, 16, 16]' in results.FILE.read_text()
    assert [kept["name"] for kept in found["full_size"]] == [case.name, "other"]
    assert "| `brats-transformer-l2-cpu` | 24 x 16 x 16 | 0.01 | 3.00 |" in step.table(found["full_size"])
    with pytest.raises(argparse.ArgumentTypeError, match="expected a size such as 64x64x48, got 'large'"):
        step.size("large")


def test_single_rows_are_measured_without_writing(monkeypatch, capsys):
    monkeypatch.setattr(run, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(results, "save", lambda found: pytest.fail("must not write"))
    options = {"--only": "layers invariants 2D", "--seconds": "0", "--threads": str(torch.get_num_threads())}
    monkeypatch.setattr("sys.argv", ["run.py", *(word for pair in options.items() for word in pair)])
    run.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("| Invariants 2D | relu |")


def test_jobs_have_unique_names_in_known_sections():
    jobs = [(section, name) for section, name, _ in run.all_jobs(seconds=0, threads=1)]
    assert len(set(jobs)) == len(jobs)
    sections = {section for section, _ in jobs}
    assert sections >= {"full_size", "layers", "attention", "memory"} and sections <= set(results.SECTIONS)
