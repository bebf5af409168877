"""Scans and labels on another grid: rotated and scaled, interpolated well."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

_EDGE = 12  # voxels added around a scan; the boundary effect of a cubic spline has decayed after that many
_ROUNDING = 1e-6


@dataclass(frozen=True)
class AffineMap:
    """Where the voxels of a grid lie in a scan: voxel ``i`` at ``matrix (i - (shape - 1) / 2) + center``.

    Args:
        matrix: from voxels of the grid to voxels of the scan.
        center: voxel coordinates, in the scan, of the grid's center.
        shape: of the grid.
    """

    matrix: Float[Tensor, "dim dim"]
    center: Float[Tensor, "dim"]
    shape: tuple[int, ...]

    @classmethod
    def of_rotation(
        cls,
        R: Float[Tensor, "dim dim"],
        spacing: Sequence[float],
        center: Float[Tensor, "dim"],
        shape: Sequence[int],
        *,
        scale: float = 1.0,
    ) -> "AffineMap":
        """The grid that shows a scan rotated by ``R`` and enlarged by ``scale``, both of this voxel spacing."""
        steps = torch.tensor(spacing, dtype=torch.float64)
        return cls(R.double().mT * steps / steps[:, None] / scale, center.double(), tuple(shape))

    def values(self, x: Float[Tensor, "channels *space"]) -> Float[Tensor, "channels *shape"]:
        """A scan on the grid, by cubic splines, which keep fine detail that linear interpolation blurs; 0 outside."""
        from scipy.ndimage import affine_transform

        result = torch.empty(len(x), *self.shape, dtype=x.dtype)
        offset = (self._offset() + _EDGE).numpy()
        for channel, target in zip(x.numpy(), result.numpy(), strict=True):
            # odd reflection continues value and slope: a spline rings where a scan ends abruptly
            extended = np.pad(channel, _EDGE, mode="reflect", reflect_type="odd")
            affine_transform(extended, self.matrix.numpy(), offset, self.shape, target, order=3, mode="mirror")
        return result.where(self.inside(x.shape[1:]), 0)

    def labels(self, labels: Integer[Tensor, "*space"]) -> Integer[Tensor, "*shape"]:
        """Labels on the grid: the one with the largest share of each voxel, interpolated linearly; 0 outside.

        Nearest neighbors would leave outlines ragged.
        """
        from scipy.ndimage import affine_transform

        found, most = labels.new_zeros(self.shape), np.zeros(self.shape, dtype=np.float32)
        share, offset = np.empty_like(most), self._offset().numpy()
        for label in labels.unique():
            one = (labels == label).numpy().astype(np.float32)
            affine_transform(one, self.matrix.numpy(), offset, self.shape, share, order=1, mode="nearest")
            found[torch.from_numpy(share > most)] = label
            np.maximum(share, most, out=most)
        return found.where(self.inside(labels.shape), 0)

    def inside(self, size: Sequence[int]) -> Bool[Tensor, "*shape"]:
        """Voxels of the grid that lie in a scan of this size."""
        found = torch.ones((), dtype=torch.bool)
        for row, start, n in zip(self.matrix, self._offset(), size, strict=True):
            along = [step * torch.arange(m, dtype=torch.float64) for step, m in zip(row, self.shape, strict=True)]
            place = start + sum(torch.meshgrid(*along, indexing="ij"))
            found = found & (place > -0.5 - _ROUNDING) & (place < n - 0.5 + _ROUNDING)
        return found

    def within(self, size: Sequence[int]) -> tuple[list[slice], "AffineMap"]:
        """The box of a scan of this size that the grid touches, with all that splines need, and the map into it."""
        reach = self.matrix.abs() @ ((torch.tensor(self.shape) - 1) / 2).double() + _EDGE
        last = torch.tensor(size) - 1
        low = (self.center - reach).floor().long().clamp_min(0).minimum(last)
        high = (self.center + reach).ceil().long().clamp_min(0).minimum(last)
        box = [slice(start, end + 1) for start, end in zip(low.tolist(), high.tolist(), strict=True)]
        return box, replace(self, center=self.center - low)

    def _offset(self) -> Float[Tensor, "dim"]:
        """Voxel coordinates, in the scan, of the grid's first voxel."""
        return self.center - self.matrix @ ((torch.tensor(self.shape) - 1) / 2).double()
