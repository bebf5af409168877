"""What layers do differently while torch.export or torch.jit.trace records them: plain operators, symbolic sizes."""

import torch
from torch import Tensor


def is_exported() -> bool:
    """Whether torch.export or torch.jit.trace records operations, so that only torch's own operators may be used."""
    return torch.compiler.is_exporting() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined]


def is_symbolic(*sizes: object) -> bool:
    """Whether a size is not known while operations are recorded: an expression of the sizes of the input."""
    return any(not isinstance(size, int) for size in sizes)


def is_surely_zero(size: object) -> bool:
    """Whether a size is 0 for all inputs."""
    if isinstance(size, torch.SymInt):
        from torch.fx.experimental.symbolic_shapes import statically_known_true

        return statically_known_true(size == 0)
    return isinstance(size, int) and size == 0


def take_voxels(x: Tensor, axis: int, first: int, count: int) -> Tensor:
    """``count`` voxels of an axis from number ``first`` on; beyond both ends the outermost voxel is repeated.

    All arguments may be symbolic. Slices would make torch.export ask whether they are the whole axis, and fix the
    answer.
    """
    places = torch.arange(count, device=x.device) + first
    return x.index_select(axis, places.clamp(0, x.shape[axis] - 1))


def centered_voxels(x: Tensor, axis: int, count: int) -> Tensor:
    """``count`` voxels around the center of an axis, as :func:`take_voxels`; half a voxel off, means of neighbors.

    Without a branch on whether the axis is odd or even, so that one graph has both.
    """
    rest = x.shape[axis] - count
    between = rest % 2
    first = (rest - between) // 2  # exact: quotients of negative numbers are rounded to zero in ONNX, and down here
    return (take_voxels(x, axis, first, count) + take_voxels(x, axis, first + between, count)) / 2
