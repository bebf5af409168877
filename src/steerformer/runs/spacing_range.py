"""Voxel spacing of the training cases of a run, and which other spacings a network can be applied to."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, TypeVar

from steerformer.data import SegmentationDataset, Splits
from steerformer.data.config import SegmentationDataConfig
from steerformer.io.errors import DataError

Steps = tuple[float, ...]
Config = TypeVar("Config", bound=SegmentationDataConfig)
_CLOSE = 1.05
"""Ratio of two spacings that count as equal."""
_FARTHEST = 8.0
"""Ratio of two spacings beyond which a header is wrong, or a scan shows another structure."""
_SHOWN = 5


@dataclass(frozen=True)
class SpacingRange:
    """Smallest, median and largest voxel spacing of the training cases along each axis, as the network saw them."""

    smallest: Steps
    median: Steps
    largest: Steps

    @classmethod
    def of_training(cls, splits: Splits) -> "SpacingRange | None":
        """That of the training cases; ``None`` for data that are not segmented."""
        cases = splits.train
        if not isinstance(cases, SegmentationDataset):
            return None
        axes = list(zip(*(cases.spacing(i) for i in range(len(cases))), strict=True))
        return cls(
            smallest=tuple(min(steps) for steps in axes),
            median=tuple(median(steps) for steps in axes),
            largest=tuple(max(steps) for steps in axes),
        )

    @classmethod
    def from_json(cls, values: Any) -> "SpacingRange | None":
        """As :meth:`as_json` wrote it; ``None`` for anything else."""
        try:
            found = cls(**{name: tuple(float(step) for step in steps) for name, steps in values.items()})
        except (AttributeError, TypeError, ValueError):
            return None
        return found if len({len(found.smallest), len(found.median), len(found.largest)}) == 1 else None

    def as_json(self) -> dict[str, Any]:
        """As written to the metrics of a run."""
        return asdict(self)

    def holds(self, spacing: Sequence[float]) -> bool:
        """Whether the network has seen such voxels."""
        axes = zip(self.smallest, spacing, self.largest, strict=True)
        return all(least / _CLOSE <= step <= most * _CLOSE for least, step, most in axes)


def adapt_to_spacing(
    config: Config,
    known: SpacingRange | None,
    spacing: Sequence[float],
    *,
    name: object,
    is_stated: bool,
) -> Config:
    """The preprocessing of a scan: as configured, or with resampling to the median spacing of the training cases.

    Args:
        config: preprocessing of the run; if it resamples, nothing needs to change.
        known: spacing of the training cases; ``None`` for runs that did not record it.
        spacing: voxel spacing of the scan.
        name: of the scan, for the error.
        is_stated: whether the file states its spacing; it cannot be resampled otherwise.
    """
    resamples = config.size is not None or config.spacing is not None
    if resamples or known is None or len(known.median) != len(spacing) or known.holds(spacing):
        return config
    trained = describe_spacing(known.median)
    if not is_stated:
        raise DataError(
            f"{name} states no voxel spacing, but the network was trained on voxels of {trained} and cannot know how "
            f"to resample it; use a NIfTI file, or give the spacing of an array."
        )
    ratios = [max(step / other, other / step) for step, other in zip(spacing, known.median, strict=True)]
    if max(ratios) > _FARTHEST:
        raise DataError(
            f"{name} has voxels of {describe_spacing(spacing)}, more than {_FARTHEST:g} times finer or coarser than "
            f"the {trained} that the network was trained on; correct the spacing in its header, or resample it."
        )
    return config.model_copy(update={"spacing": known.median})


def resampled_line(scans: Mapping[str, Sequence[float]], known: SpacingRange) -> str:
    """One line that says which scans were resampled to the spacing of the training cases."""
    shown = [f"{name} ({describe_spacing(spacing)})" for name, spacing in list(scans.items())[:_SHOWN]]
    more = f" and {len(scans) - _SHOWN} more" if len(scans) > _SHOWN else ""
    what = "1 scan has" if len(scans) == 1 else f"{len(scans)} scans have"
    return (
        f"{what} other voxels than the training cases and {'was' if len(scans) == 1 else 'were'} resampled to "
        f"{describe_spacing(known.median)}, predictions back: {', '.join(shown)}{more}"
    )


def describe_spacing(spacing: Sequence[float]) -> str:
    """
    >>> describe_spacing((1.0, 1.0, 2.5))
    '1 x 1 x 2.5 mm'
    """
    return " x ".join(f"{step:.3g}" for step in spacing) + (" mm" if len(spacing) == 3 else "")
