"""Volumes in files: their voxels, and where these lie in space."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steerformer.data.base import DataError


@dataclass(frozen=True, eq=False)
class Geometry:
    """All of a NIfTI file but its voxels: what a second file needs to lie in the same place.

    Files have their axes in any order and direction. Arrays are handed out with axes that run to the right, to the
    front and up, as nearly as the file's own axes allow: then all are of one handedness, which a network that is
    equivariant to rotations but not to reflections depends on.
    """

    kind: Any
    header: Any
    affine: np.ndarray
    shape: tuple[int, ...]

    @property
    def axes(self) -> np.ndarray:
        """For each axis of the file the one it becomes, and 1 or -1 for its direction."""
        import nibabel

        found: np.ndarray = nibabel.io_orientation(self.affine)
        return found

    def to_canonical(self, array: np.ndarray) -> np.ndarray:
        """An array in the file's axes, seen along right, front and up; axes after the third stay."""
        import nibabel

        turned: np.ndarray = nibabel.apply_orientation(array, self.axes)
        return turned

    def from_canonical(self, array: np.ndarray) -> np.ndarray:
        """Back to the file's own axes."""
        from nibabel.orientations import apply_orientation, ornt_transform

        standing = np.array([[0, 1], [1, 1], [2, 1]])
        turned: np.ndarray = apply_orientation(array, ornt_transform(standing, self.axes))
        return turned

    @property
    def spacing(self) -> tuple[float, ...]:
        """Size of a voxel in millimeters, to the right, to the front and up."""
        from nibabel.affines import voxel_sizes

        own, axes = voxel_sizes(self.affine), self.axes
        return tuple(float(own[int(np.flatnonzero(axes[:, 0] == axis)[0])]) for axis in range(3))

    @property
    def canonical_affine(self) -> np.ndarray:
        """From voxels along right, front and up to millimeters."""
        from nibabel.orientations import inv_ornt_aff

        found: np.ndarray = self.affine @ inv_ornt_aff(self.axes, self.shape)
        return found

    def image(self, array: np.ndarray) -> Any:
        """A NIfTI image of ``array`` (in canonical axes) with this geometry and header."""
        header = self.header.copy()
        header.set_data_dtype(array.dtype)
        header.set_data_shape(array.shape)
        header["cal_min"] = header["cal_max"] = 0  # how bright the scan was shown says nothing of labels
        image = self.kind(self.from_canonical(array), self.affine, header)
        image.header.set_slope_inter(1.0, 0.0)
        return image


def distance(first: np.ndarray, second: np.ndarray, shape: Sequence[int]) -> float:
    """How far apart two affines put the corners of a volume, in millimeters."""
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in shape])).reshape(3, -1)
    difference = first - second
    return float(np.linalg.norm(difference[:3, :3] @ corners + difference[:3, 3:], axis=0).max())


def read_volume(path: Path) -> tuple[np.ndarray, Geometry | None]:
    """The array of a NIfTI or .npy file as it is, and where the voxels of a NIfTI file lie.

    Axes of a NIfTI file are turned to right, front and up.
    """
    if path.name.lower().endswith(".npy"):
        with _explained(path, ".npy"):
            return np.load(path, allow_pickle=False), None
    return _read_nifti(path)


def _read_nifti(path: Path) -> tuple[np.ndarray, Geometry | None]:
    import nibabel

    with _explained(path, "NIfTI"):
        image: Any = nibabel.load(path)
        if not isinstance(image, nibabel.Nifti1Image):
            raise TypeError
        array = np.asarray(image.dataobj)
        if array.ndim < 3:
            return array, None
        found = Geometry(type(image), image.header, image.affine, tuple(array.shape[:3]))
        if not np.isfinite(found.axes).all() or not all(0 < step < np.inf for step in found.spacing):
            raise ValueError  # axes without a direction or a length
        return found.to_canonical(array), found


@contextmanager
def _explained(path: Path, kind: str) -> Iterator[None]:
    """Whatever goes wrong is one line that names the file: a damaged header can end in any kind of error."""
    logger = logging.getLogger("nibabel.global")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except PermissionError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except MemoryError:  # says nothing about the file
        raise
    except Exception:
        raise DataError(f"{path} cannot be read as {kind}: it is cut short, damaged or of another kind.") from None
    finally:
        logger.disabled = before


def as_channels(array: np.ndarray, channels: int | None, path: Path) -> Tensor:
    """A volume (channels, \\*space) in float32; channels, if there are any, come from the last of four axes."""
    if not (np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating) or array.dtype == bool):
        raise DataError(f"{path} holds {array.dtype}, expected real numbers.")
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or 0 in array.shape:
        shape = tuple(array.shape[:3] if array.ndim == 4 else array.shape)
        raise DataError(f"{path} has shape {shape}, expected three axes of space, and channels on a fourth.")
    if channels is not None and array.shape[3] != channels:
        raise DataError(f"{path} has {array.shape[3]} channels (shape {tuple(array.shape)}), expected {channels}.")
    with np.errstate(all="ignore"):  # what is too large becomes infinity, and is named
        x = torch.from_numpy(array.astype(np.float32)).movedim(3, 0)
    if not x.isfinite().all():
        raise DataError(f"{path} holds NaN or infinity.")
    return x.contiguous()
