"""Two processes give the same training curve as one, and an error in one process ends all of them."""

import subprocess
import sys

import pytest
import torch
import yaml
from torch.testing import assert_close

from steerformer.runs import read_run_folder
from steerformer.training import train_run
from steerformer.training.sampler import BatchSampler
from training import spots, tiny
from training.tiny import read_metrics

pytestmark = pytest.mark.slow
CHANGES = {"model": {"dropout": 0.0, "depth": 1, "num_heads": 2}, "precision": "64", "epochs": 2, "threads": 1}
SPOTS = {
    **{"model": {"attention_dropout": 0.0, "norm": "layer"}, "data": {"train_rotation": "none", "test": 0.3}},
    **{"precision": "64", "ema": None, "epochs": 1},
}
TRAIN = ["steerformer", "train", "tiny.yaml", "--out", "run"]
SCRIPT = """
import sys
from lightning_fabric import Fabric
from steerformer.cli import app
from steerformer.training.distributed import first_then_others, on_first

class UnpicklableError(Exception):
    def __init__(self, one, two):
        super().__init__("it broke\\nand more")

def fail(process, error):
    if fabric.global_rank == process:
        raise error
    return fabric.global_rank

def attempt(function, process, error):
    try:
        outcome = function(fabric, lambda: fail(process, error))
    except Exception as problem:
        outcome = f"{type(problem).__name__} {problem!s}".splitlines()[0]
    sys.stdout.write(f"{fabric.global_rank}: {outcome}\\n")
    sys.stdout.flush()
    fabric.barrier()

for name in ("tiny", "spots"):
    app(["train", f"{name}.yaml", "--out", name, "training.devices=2"], standalone_mode=False)
fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
attempt(on_first, None, None)
attempt(on_first, 0, ValueError("a mistake"))
attempt(on_first, 0, UnpicklableError(1, 2))
attempt(first_then_others, None, None)
attempt(first_then_others, 0, UnpicklableError(1, 2))
attempt(first_then_others, 1, FileNotFoundError(2, "No such file", "x.npz"))
attempt(first_then_others, 1, UnpicklableError(1, 2))
"""


def run(folder, *command, timeout=300):
    words = [sys.executable, "-W", "error", *command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return spots.write_spots(tmp_path_factory.mktemp("spots"))


@pytest.fixture(scope="module")
def folder(root, tmp_path_factory):
    """Two runs by two processes that Fabric started, and the printed lines: one start for several tests."""
    folder = tmp_path_factory.mktemp("two_processes")
    for name, values in {"tiny": tiny.values(**CHANGES, accumulate=2), "spots": spots.values(root, **SPOTS)}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(values))
    (folder / "script.py").write_text(SCRIPT)
    done = run(folder, "script.py")
    assert done.returncode == 0, done.stderr
    (folder / "printed").write_text(done.stdout)
    return folder


class InterleavedSampler(BatchSampler):
    """Parts of one process, each with the samples that two processes take at the same time.

    Batch norm normalizes over these.
    """

    def __iter__(self):
        parts = list(super().__iter__())
        for one, two in zip(parts[::2], parts[1::2], strict=True):
            half = len(one) // 2
            yield from (one[:half] + two[:half], one[half:] + two[half:])


def test_two_processes_of_torchrun_have_the_curve_of_one(tmp_path):
    alone = train_run(tiny.experiment(**CHANGES), tmp_path / "alone")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny.values(**CHANGES)))
    done = run(tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", *TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1  # one process prints for both
    assert_same_curve(alone, tmp_path / "run")


def test_accumulated_parts_of_two_processes_have_the_curve_of_one(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("steerformer.training.loop.BatchSampler", InterleavedSampler)
    alone = train_run(tiny.experiment(**CHANGES, accumulate=2), tmp_path / "alone")
    assert (folder / "printed").read_text().count("test accuracy") == 1
    assert_same_curve(alone, folder / "tiny")


def assert_same_curve(alone, both):
    one, two = (read_metrics(folder) for folder in (alone, both))
    for a, b in zip(one["history"], two["history"], strict=True):
        for key in ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate"):
            assert b[key] == pytest.approx(a[key], rel=1e-6), key  # Fabric returns logits in float32
    assert two["confusion"] == one["confusion"]
    weights = (dict(read_run_folder(folder).model.state_dict()) for folder in (alone, both))
    assert_close(*weights, rtol=1e-4, atol=1e-5)


def test_two_processes_segment_as_one(root, folder, tmp_path):
    """Each process evaluates every other case, here of an odd number of cases."""
    alone = read_metrics(train_run(spots.experiment(root, **SPOTS), tmp_path / "alone"))
    both = read_metrics(folder / "spots")
    for key in ("train_loss", "train_dice", "validation_loss", "validation_dice"):
        assert both["history"][0][key] == pytest.approx(alone["history"][0][key], rel=1e-5), key
    assert both["test_cases"] == 3 and both["test_dice"] == pytest.approx(alone["test_dice"], rel=1e-5)
    assert (folder / "spots" / "cases-test.csv").read_text() == (tmp_path / "alone" / "cases-test.csv").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="would use GPUs")
def test_error_is_reported_once_and_ends_all_processes(tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny.values(data={"root": "nowhere"})))
    done = run(tmp_path, "-m", *TRAIN, "training.devices=2", timeout=120)
    assert done.returncode == 2
    assert done.stderr.count("there is no folder nowhere") == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_error_in_one_process_ends_the_action_in_all(folder):
    """Errors of any kind, in any process, even if they cannot be pickled; no process hangs."""
    lines = (folder / "printed").read_text().splitlines()
    printed = {n: [line[3:] for line in lines if line.startswith(f"{n}: ")] for n in (0, 1)}
    assert printed[0] == [
        "0",
        "ValueError a mistake",
        "UnpicklableError it broke",
        "0",
        "UnpicklableError it broke",
        "ProcessError process 1 failed: [Errno 2] No such file: 'x.npz'",
        "ProcessError process 1 failed: UnpicklableError: it broke",
    ]
    assert printed[1] == [
        "0",
        "ProcessError the first process failed: a mistake",
        "ProcessError the first process failed: UnpicklableError: it broke",
        "1",
        "ProcessError process 0 failed: UnpicklableError: it broke",
        "FileNotFoundError [Errno 2] No such file: 'x.npz'",
        "UnpicklableError it broke",
    ]
