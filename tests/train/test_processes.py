"""Two processes give the losses of one."""

import json
import subprocess
import sys

import pytest
import torch
import yaml
from torch.testing import assert_close

from steerformer.train import open_run, run
from steerformer.train.batches import Batches
from train.tiny import experiment, values

pytestmark = pytest.mark.slow
CHANGES = {"model": {"dropout": 0.0, "depth": 1, "num_heads": 2}, "precision": "64", "epochs": 2, "threads": 1}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(experiment(**CHANGES), tmp_path_factory.mktemp("runs") / "alone")


def steerformer(*words):
    return [sys.executable, "-W", "error", "-m", *words, "train", "tiny.yaml", "--out", "run"]


LAUNCHERS = {
    "itself": [*steerformer("steerformer"), "training.devices=2"],
    "torchrun": steerformer("torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "steerformer"),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_have_the_curve_of_one(alone, tmp_path, launcher):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values(**CHANGES)))
    done = subprocess.run(LAUNCHERS[launcher], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1  # one process speaks for both
    assert_same_curve(alone, tmp_path)


class Woven(Batches):
    """Parts of one process, each with the samples that two processes take at the same time: batch norm tells."""

    def __iter__(self):
        parts = list(super().__iter__())
        for one, two in zip(parts[::2], parts[1::2], strict=True):
            half = len(one) // 2
            yield from (one[:half] + two[:half], one[half:] + two[half:])


def test_parts_of_two_processes_have_the_curve_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr("steerformer.train.loop.Batches", Woven)
    alone = run(experiment(**CHANGES, accumulate=2), tmp_path / "alone")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values(**CHANGES, accumulate=2)))
    done = subprocess.run(LAUNCHERS["itself"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_same_curve(alone, tmp_path)


def assert_same_curve(alone, tmp_path):
    one, two = (json.loads((folder / "metrics.json").read_text()) for folder in (alone, tmp_path / "run"))
    for a, b in zip(one["history"], two["history"], strict=True):
        for key in ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate"):
            assert b[key] == pytest.approx(a[key], rel=1e-6), key  # Fabric hands logits on in float32
    assert two["confusion"] == one["confusion"]
    weights = (dict(open_run(folder).model.state_dict()) for folder in (alone, tmp_path / "run"))
    assert_close(*weights, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="GPUs would be taken")
def test_a_mistake_is_told_once_and_ends_all_processes(tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values(data={"root": "nowhere"})))
    done = subprocess.run(LAUNCHERS["itself"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.count("there is no folder nowhere") == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


SCRIPT = """
import sys
from lightning_fabric import Fabric
from steerformer.train.devices import first_then_others, on_first

class Odd(Exception):
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

fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
attempt(on_first, None, None)
attempt(on_first, 0, ValueError("a mistake"))
attempt(on_first, 0, Odd(1, 2))
attempt(first_then_others, None, None)
attempt(first_then_others, 0, Odd(1, 2))
attempt(first_then_others, 1, FileNotFoundError(2, "No such file", "x.npz"))
attempt(first_then_others, 1, Odd(1, 2))
"""


def test_an_error_in_one_process_ends_the_action_in_all(tmp_path):
    """Errors of any kind, in any process, also such as cannot be pickled; nobody waits for ever."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    heard = {n: [line[3:] for line in done.stdout.splitlines() if line.startswith(f"{n}: ")] for n in (0, 1)}
    assert heard[0] == [
        "0",
        "ValueError a mistake",
        "Odd it broke",
        "0",
        "Odd it broke",
        "ProcessError process 1 failed: [Errno 2] No such file: 'x.npz'",
        "ProcessError process 1 failed: Odd: it broke",
    ]
    assert heard[1] == [
        "0",
        "ProcessError the first process failed: a mistake",
        "ProcessError the first process failed: Odd: it broke",
        "1",
        "ProcessError process 0 failed: Odd: it broke",
        "FileNotFoundError [Errno 2] No such file: 'x.npz'",
        "Odd it broke",
    ]
