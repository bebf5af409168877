"""Script of one distributed process: save statistics, outputs and gradients of its part of a batch."""

import os
import sys

import torch
from torch import distributed as dist

import steerformer as sf

SIZES = (4, 2)


def batch(field_type):
    """Samples with a mean far from 0, and weights for a sum of outputs; identical in every process."""
    generator = torch.Generator().manual_seed(0)
    shape = (sum(SIZES), field_type.channels, 3, 3)
    x = 5 * torch.randn(shape, generator=generator) + 20
    x[:, -1] = 0  # a channel of zeros
    return x, torch.randn(shape, generator=generator)


def outcome(layer, x, weights):
    x = x.requires_grad_()
    y = layer(x)
    (y * weights).sum().backward()
    return {"y": y.detach(), "grad": x.grad, "mean": layer.running_mean, "rms": layer.running_rms}


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    rank, address, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.environ["USE_LIBUV"] = "0"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=len(SIZES))
    layer = sf.nn.BatchNorm(sf.FieldType(sf.SO2, (3, 2, 1))).train()
    x, weights = (part.split(SIZES)[rank].clone() for part in batch(layer.in_type))
    torch.save(outcome(layer, x, weights), out)
    dist.destroy_process_group()
