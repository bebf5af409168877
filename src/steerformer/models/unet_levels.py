"""Levels of a U-Net on grids of any size, with fine and coarse grids centered on each other.

``n`` voxels are pooled to ``ceil(n / pool)``. Where ``pool`` does not divide ``n``, both sides are padded equally with
the outermost voxels; where this adds one voxel too many, both grids shift by half a voxel.
"""

from collections.abc import Iterable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.nn import AvgPool, Resample
from steerformer.nn.exported import centered_voxels, is_symbolic
from steerformer.nn.ops import mean_of_neighbors, pad


class Down(nn.Module):
    """Level of the contracting path: an optional pooling and a block."""

    def __init__(self, pool: AvgPool | None, block: Iterable[nn.Module]) -> None:
        super().__init__()
        self.pool, self.block = pool, nn.Sequential(*block)

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *coarse"]:
        """Pool, padded to a multiple of the pooling factor, and apply the block."""
        if self.pool is not None:
            x = self.pool(self._padded(x, self.pool))
        out: Tensor = self.block(x)
        return out

    @staticmethod
    def _padded(x: Tensor, pool: AvgPool) -> Tensor:
        if is_symbolic(*x.shape[2:]) and not pool.antialiased:  # the pooling would do the same, with longer expressions
            for axis, size in enumerate(pool.kernel_size, start=2):
                x = centered_voxels(x, axis, (x.shape[axis] + size - 1) // size * size)
            return x
        sizes = zip(x.shape[2:], pool.kernel_size, strict=True)
        return pad(x, [(-n % size + 1) // 2 for n, size in sizes], mode="replicate")


class Up(nn.Module):
    """Level of the expanding path: interpolation by ``factor``, addition of the skip connection, and a block.

    Without a factor, the block only.
    """

    def __init__(self, in_type: FieldType, factor: int | None, block: Iterable[nn.Module]) -> None:
        super().__init__()
        self.factor, self.block = factor, nn.Sequential(*block)
        self.resample = None if factor is None else Resample(in_type)

    def forward(
        self, x: Float[Tensor, "batch in *coarse"], skip: Float[Tensor, "batch in *space"] | None = None
    ) -> Float[Tensor, "batch out *space"]:
        """Interpolate to the grid of ``skip``, add it, and apply the block."""
        if self.resample is not None and self.factor is not None and skip is not None:
            finer = self.resample(x, [self.factor * n for n in x.shape[2:]])
            x = crop(finer, skip.shape[2:]) + skip
        out: Tensor = self.block(x)
        return out


def crop(x: Float[Tensor, "batch channels *large"], space: Sequence[int]) -> Float[Tensor, "batch channels *space"]:
    """Center crop; where whole voxels would not be centered, by the mean of neighbors."""
    if is_symbolic(*x.shape[2:], *space):
        for axis, n in enumerate(space, start=2):
            x = centered_voxels(x, axis, n)
        return x
    for axis, n in enumerate(space, start=2):
        if (x.shape[axis] - n) % 2:
            x = mean_of_neighbors(x, axis)
    return pad(x, [-((large - n) // 2) for large, n in zip(x.shape[2:], space, strict=True)])
