"""Batch norm over processes against batch norm of one."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn import shared_batch_norm

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(scope="module")
def shares(tmp_path_factory):
    """What two processes find who share a batch, in unequal parts."""
    tmp_path = tmp_path_factory.mktemp("shares")
    script = Path(shared_batch_norm.__file__)
    files = [tmp_path / f"{rank}.pt" for rank in range(len(shared_batch_norm.SIZES))]
    processes = [
        subprocess.Popen([sys.executable, "-W", "error", script, str(rank), f"file://{tmp_path}/meet", file])
        for rank, file in enumerate(files)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    return [torch.load(file, weights_only=True) for file in files]


def test_processes_that_share_a_batch_normalize_as_one(shares):
    layer = sf.nn.BatchNorm(sf.FieldType(sf.SO2, (3, 2, 1))).train()
    x, weights = shared_batch_norm.batch(layer.in_type)
    expected = shared_batch_norm.outcome(layer, x, weights)
    for key in ("y", "grad"):  # the gradient of both sums of outputs comes back to each process
        assert_close(torch.cat([share[key] for share in shares]), expected[key], rtol=0, atol=1e-10)
    for share in shares:
        assert_close(share["mean"], expected["mean"], rtol=0, atol=1e-12)
        assert_close(share["rms"], expected["rms"], rtol=0, atol=1e-12)


def test_a_process_alone_would_find_something_else(shares):
    """A negative control: the parts differ."""
    layer = sf.nn.BatchNorm(sf.FieldType(sf.SO2, (3, 2, 1))).train()
    x, weights = (part[:4] for part in shared_batch_norm.batch(layer.in_type))
    alone = shared_batch_norm.outcome(layer, x.clone(), weights)
    assert (alone["y"] - shares[0]["y"]).abs().max() > 1e-2
