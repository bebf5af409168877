"""Synchronized batch statistics of distributed training: equal to those of a single process with the whole batch."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch import distributed as dist


def is_shared() -> bool:
    """Whether training is distributed over several processes."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def shared_mean(mean: Float[Tensor, "*shape"], count: int) -> Float[Tensor, "*shape"]:
    """Mean over the samples of all processes, given the mean of this process's ``count`` samples."""
    wide = mean.float() if mean.dtype == torch.bfloat16 else mean  # bfloat16 has no odd integers beyond 256
    sums = _SumOfProcesses.apply(torch.cat([wide.flatten() * count, wide.new_tensor([count])]))
    return (sums[:-1] / sums[-1]).view_as(mean).to(mean)


def shared_rms(rms: Float[Tensor, "channel"], count: int) -> Float[Tensor, "channel"]:
    """Root mean square over the samples of all processes, given that of this process's ``count`` samples.

    Each process fills one row. The norm over rows, unlike the root of a sum of squares, has a finite gradient at 0.
    """
    own = torch.cat([rms, torch.ones_like(rms[:1])]) * count**0.5
    rows = [own if process == dist.get_rank() else torch.zeros_like(own) for process in range(dist.get_world_size())]
    lengths = torch.linalg.vector_norm(_SumOfProcesses.apply(torch.stack(rows)), dim=0)
    return lengths[:-1] / lengths[-1]


class _SumOfProcesses(torch.autograd.Function):
    """All-reduce sum over processes whose backward all-reduces gradients; torch's own is deprecated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total
