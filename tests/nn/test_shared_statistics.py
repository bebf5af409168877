"""Batch norm synchronized over processes against batch norm in a single process."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn import shared_batch_norm

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.slow]


def run_processes(tmp_path):
    """Results of two processes that share a batch in unequal parts."""
    script = Path(shared_batch_norm.__file__)
    files = [tmp_path / f"{rank}.pt" for rank in range(len(shared_batch_norm.SIZES))]
    processes = [
        subprocess.Popen([sys.executable, "-W", "error", script, str(rank), f"file://{tmp_path}/meet", file])
        for rank, file in enumerate(files)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    return [torch.load(file, weights_only=True) for file in files]


def test_distributed_batch_norm_matches_single_process(tmp_path):
    shares = run_processes(tmp_path)
    layer = sf.nn.BatchNorm(sf.FieldType(sf.SO2, (3, 2, 1))).train()
    x, weights = shared_batch_norm.batch(layer.in_type)
    expected = shared_batch_norm.outcome(layer, x, weights)
    for key in ("y", "grad"):  # each process gets the gradient of both sums of outputs
        assert_close(torch.cat([share[key] for share in shares]), expected[key], rtol=0, atol=1e-10)
    for share in shares:
        assert_close(share["mean"], expected["mean"], rtol=0, atol=1e-12)
        assert_close(share["rms"], expected["rms"], rtol=0, atol=1e-12)
    # negative control: without synchronization, statistics of the parts differ
    layer = sf.nn.BatchNorm(sf.FieldType(sf.SO2, (3, 2, 1))).train()
    x, weights = (part[:4] for part in shared_batch_norm.batch(layer.in_type))
    alone = shared_batch_norm.outcome(layer, x.clone(), weights)
    assert (alone["y"] - shares[0]["y"]).abs().max() > 1e-2
