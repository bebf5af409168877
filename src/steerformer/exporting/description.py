"""What an exported file says about itself: all that a program needs to preprocess an input and name the classes."""

from typing import Any

from steerformer.data.config import SegmentationDataConfig
from steerformer.models import CNN, Classifier
from steerformer.runs import RunFolder

_KINDS = {2: "image", 3: "volume"}


def describe_run(run: RunFolder) -> dict[str, Any]:
    """Description of a run for ``sf.export(..., metadata=)``: plain values that JSON can hold.

    - ``task``: ``"classification"``, one logit for each class, or ``"segmentation"``, logits of every voxel.
    - ``kind``: ``"image"``, axes height and width, or ``"volume"``, axes in RAS+ orientation.
    - ``classes``: their names, in the order of the logits.
    - ``preprocessing``: how a file became an input, in this order. Of images 8 or 16 bits are scaled to 0 to 1 first.
      ``crop``: margin in voxels around what differs from the background, or ``None``. ``size`` or ``spacing``: resample
      to this many voxels, or to this voxel spacing, along each axis, by area averaging down and linear interpolation
      up. ``fit``: resample so that the longest side, in millimeters, has this many voxels, and pad with zeros to a
      square or cube. ``normalize``: ``"background"``, ``"nonzero"``, ``"image"``, ``"std"`` or ``"none"``, as in
      ``steerformer train --keys``.
    - ``training_spacing``: smallest, median and largest voxel spacing of the training cases, or ``None``.
    - ``spacing``: proportions of the voxels that the model assumes, along each axis.
    - ``patch_size``: of the training, or ``None``.
    """
    config, dim = run.config, run.model.in_type.group.dim
    is_classifier = isinstance(run.model, Classifier | CNN)
    found: dict[str, Any] = {
        "task": "classification" if is_classifier else "segmentation",
        "kind": _KINDS[dim],
        "classes": list(run.classes),
        "preprocessing": _preprocessing(run),
        "spacing": list(getattr(config.model, "spacing", None) or [1.0] * dim),
        "training_spacing": run.spacing.as_json() if run.spacing else None,
        "patch_size": None,
        "data": config.data.name,
    }
    if isinstance(config.data, SegmentationDataConfig):
        found["patch_size"] = _per_axis(config.data.patch_size, dim)
    return found


def file_size(run: RunFolder) -> tuple[int, ...] | None:
    """Voxels along each axis of a file of fixed size: those of training patches, or of all cases.

    ``None`` where the model itself says them. A one-line ``ValueError`` if neither the model nor the data have a size.
    """
    data, dim = run.config.data, run.model.in_type.group.dim
    if not isinstance(data, SegmentationDataConfig) or getattr(run.config.model, "window", None):
        return None
    sides = _per_axis(data.patch_size or data.size, dim)
    if sides is None:
        raise ValueError(
            "a file of fixed size needs data.patch_size or data.size, and this run has neither; leave the size free "
            "(without --fixed-size), or give inputs of the size in Python."
        )
    return tuple(sides)


def _preprocessing(run: RunFolder) -> dict[str, Any]:
    data, dim = run.config.data, run.model.in_type.group.dim
    if isinstance(data, SegmentationDataConfig):
        return {
            "crop": data.crop,
            "size": _per_axis(data.size, dim),
            "spacing": _per_axis(data.spacing, dim),
            "normalize": data.normalize,
        }
    assert isinstance(run.model, Classifier | CNN)
    return {"fit": run.model.config.size, "normalize": getattr(data, "normalize", "none")}


def _per_axis(values: tuple[Any, ...] | None, dim: int) -> list[Any] | None:
    """A number for each axis; a single one counts for all."""
    return None if values is None else list(values) * (dim // len(values))
