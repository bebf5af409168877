"""Two processes give the losses of one."""

import json
import subprocess
import sys

import pytest
import torch
import yaml
from torch.testing import assert_close

from steerformer.train import open_run, run
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
