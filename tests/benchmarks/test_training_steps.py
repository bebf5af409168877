"""Training steps in other processes: as by hand, beside an earlier version, by size."""

import argparse
import subprocess

import pytest
import torch
import torch.nn.functional as F

import bench_presets
import report
import results
import run
import steerformer as sf
import step
from bench_presets import BEFORE, CONTROL, NOW, SAME
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
CASE = bench_presets.PresetCase("demo-convolution", "demo-cnn", 2, (28, 28), faster_limit=2)
SHAPE = {"batch": 4, "space": (12, 12), "threads": 1}


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


@needs_history
def test_steps_of_four_contestants_are_measured(fake_workers):
    row = bench_presets.measure_steps(CASE, threads=1)
    before, same, now, control = FakeWorker.started
    assert [worker.is_now for worker in (before, same, now, control)] == [False, True, True, True]
    assert before.experiment == now.experiment == "demo-convolution" and control.experiment == "demo-cnn"
    assert same.experiment["model"]["kind"] == "classifier"  # what the earlier version has under that name
    assert list(row["rounds_ms"]) == list(row["peak_mb"]) == [BEFORE, SAME, NOW, CONTROL]
    assert [len(times) for times in row["rounds_ms"].values()] == [25] * 4
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
