"""NIfTI geometry: the affine and header of a file, and the RAS+ orientation of all arrays."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steerformer.io.errors import DataError


@dataclass(frozen=True, eq=False)
class Geometry:
    """Header, affine and shape of a NIfTI file: everything but its voxels.

    Files store their axes in any order and direction. Arrays are reoriented to RAS+ (the closest canonical
    orientation), so that all have the same handedness: a network that is equivariant to rotations but not to
    reflections depends on it.
    """

    kind: Any
    header: Any
    affine: np.ndarray
    shape: tuple[int, ...]

    @cached_property
    def axes(self) -> np.ndarray:
        """nibabel's orientation: for each file axis the RAS+ axis, and 1 or -1 for its direction."""
        import nibabel

        found: np.ndarray = nibabel.io_orientation(self.affine)
        return found

    def to_canonical(self, array: np.ndarray) -> np.ndarray:
        """Reorient an array from the file's axes to RAS+; axes after the third stay."""
        import nibabel

        canonical: np.ndarray = nibabel.apply_orientation(array, self.axes)
        return canonical

    def from_canonical(self, array: np.ndarray) -> np.ndarray:
        """Reorient an array from RAS+ to the file's axes."""
        from nibabel.orientations import apply_orientation, ornt_transform

        ras = np.array([[0, 1], [1, 1], [2, 1]])
        original: np.ndarray = apply_orientation(array, ornt_transform(ras, self.axes))
        return original

    @cached_property
    def spacing(self) -> tuple[float, ...]:
        """Voxel spacing in millimeters along the RAS+ axes."""
        from nibabel.affines import voxel_sizes

        own, axes = voxel_sizes(self.affine), self.axes
        return tuple(float(own[int(np.flatnonzero(axes[:, 0] == axis)[0])]) for axis in range(3))

    @property
    def canonical_affine(self) -> np.ndarray:
        """Affine of the RAS+ array: voxel indices to millimeters."""
        from nibabel.orientations import inv_ornt_aff

        found: np.ndarray = self.affine @ inv_ornt_aff(self.axes, self.shape)
        return found

    def image(self, array: np.ndarray) -> Any:
        """A nibabel image of ``array`` (RAS+) with this affine, orientation and header."""
        header = self.header.copy()
        header.set_data_dtype(array.dtype)
        header.set_data_shape(array.shape)
        header["cal_min"] = header["cal_max"] = 0  # the scan's display window does not apply to labels
        image = self.kind(self.from_canonical(array), self.affine, header)
        image.header.set_slope_inter(1.0, 0.0)
        return image


def corner_distance(first: np.ndarray, second: np.ndarray, shape: Sequence[int]) -> float:
    """Largest distance in millimeters between the corners of a volume under two affines."""
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in shape])).reshape(3, -1)
    difference = first - second
    return float(np.linalg.norm(difference[:3, :3] @ corners + difference[:3, 3:], axis=0).max())


def read_volume(path: Path) -> tuple[np.ndarray, Geometry | None]:
    """The array of a NIfTI file in RAS+ orientation with its geometry, or of an .npy file as it is."""
    if path.name.lower().endswith(".npy"):
        with _explained(path, ".npy"):
            return np.load(path, allow_pickle=False), None
    with _explained(path, "NIfTI"):
        return _read_nifti(path)


def as_channels(array: np.ndarray, channels: int | None, path: Path) -> Tensor:
    """A volume (channels, \\*space) in float32; channels, if any, come from the last of four axes."""
    if not (np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating) or array.dtype == bool):
        raise DataError(f"{path} holds {array.dtype}, expected real numbers.")
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or 0 in array.shape:
        shape = tuple(array.shape[:3] if array.ndim == 4 else array.shape)
        raise DataError(f"{path} has shape {shape}, expected three spatial axes, and channels on a fourth.")
    if channels is not None and array.shape[3] != channels:
        raise DataError(f"{path} has {array.shape[3]} channels (shape {tuple(array.shape)}), expected {channels}.")
    with np.errstate(all="ignore"):  # values beyond float32 become infinity and are reported below
        x = torch.from_numpy(array.astype(np.float32)).movedim(3, 0)
    if not x.isfinite().all():
        raise DataError(f"{path} holds NaN or infinity.")
    return x.contiguous()


def align(
    array: np.ndarray,
    geometry: Geometry | None,
    path: Path,
    *,
    to: Geometry | None,
    shape: tuple[int, ...],
    other: Path,
) -> np.ndarray:
    """An array (\\*space, ...) of the file ``path``, on the grid of the file ``other``, which has this shape.

    A :class:`DataError` unless the shapes are equal and the affines agree to half a voxel, or neither file has an
    affine.
    """
    if (geometry is None) != (to is None):
        # one was reoriented to RAS+, and the orientation of the other is unknown
        raise DataError(f"{path} and {other} cannot be aligned: one is NIfTI, the other is not.")
    if geometry is not None and to is not None and geometry.shape == to.shape:
        apart = corner_distance(geometry.affine, to.affine, to.shape)
        if apart <= min(to.spacing) / 2:
            # nearly equal oblique affines may round to different RAS+ axes
            return to.to_canonical(geometry.from_canonical(array))
    if array.shape[: len(shape)] != shape:
        raise DataError(f"{path} has shape {array.shape}, but {other} has {shape}.")
    if geometry is not None and to is not None:
        apart = corner_distance(geometry.canonical_affine, to.canonical_affine, shape)
        if apart > min(to.spacing) / 2:
            raise DataError(f"{path} lies {apart:.1f} mm away from {other}: their affines differ.")
    return array


def _read_nifti(path: Path) -> tuple[np.ndarray, Geometry | None]:
    """The array in RAS+ orientation and its geometry; an array with fewer than three axes has none."""
    import nibabel

    image: Any = nibabel.load(path)
    if not isinstance(image, nibabel.Nifti1Image):
        raise TypeError
    array = np.asarray(image.dataobj)
    if array.ndim < 3:
        return array, None
    found = Geometry(type(image), image.header, image.affine, tuple(array.shape[:3]))
    if not np.isfinite(found.axes).all() or not all(0 < step < np.inf for step in found.spacing):
        raise ValueError  # an axis without direction or length
    return found.to_canonical(array), found


@contextmanager
def _explained(path: Path, kind: str) -> Iterator[None]:
    """Report any failure in one line that names the file: a damaged header can raise any kind of error."""
    logger = logging.getLogger("nibabel.global")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except PermissionError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except MemoryError:  # not a defect of the file
        raise
    except Exception as error:  # nibabel and numpy raise many kinds; the cause stays attached
        raise DataError(f"{path} cannot be read as {kind}: it is truncated, damaged or of another format.") from error
    finally:
        logger.disabled = before
