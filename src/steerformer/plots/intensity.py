"""The intensity window: which values are drawn black and white."""

from torch import Tensor

_MOST_VALUES = 1_000_000


def to_gray(x: Tensor, of: Tensor | None = None, *, from_zero: bool = False) -> Tensor:
    """Map ``x`` to 0 to 1 by the intensity window of ``of``, or of ``x``: its 0.5 and 99.5 percentiles.

    So a few very dark or bright voxels do not decide the contrast. ``from_zero`` extends the window to 0, so that
    nonnegative images keep their black.
    """
    values = (x if of is None else of).flatten()
    values = values[:: max(1, len(values) // _MOST_VALUES)]  # torch's quantile takes at most 16 million
    low, high = float(values.quantile(0.005)), float(values.quantile(0.995))
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    return ((x - low) / max(high - low, 1e-9)).clamp(0, 1)
