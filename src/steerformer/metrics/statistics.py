"""Means and standard errors, and how they are printed."""

import math
from collections.abc import Iterable
from statistics import fmean, stdev


def known_mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are not ``None``; ``None`` if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def standard_error(values: Iterable[float | None]) -> float | None:
    r"""Standard error of the mean, $s / \sqrt{n}$, of the values that are not ``None``; ``None`` for fewer than two.

    >>> standard_error([1.0, None, 3.0])
    1.0
    """
    known = [value for value in values if value is not None]
    return stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None


def binomial_error(share: float, count: int) -> float:
    r"""Standard error of a share of ``count`` samples, $\sqrt{p(1-p)/n}$.

    >>> round(binomial_error(0.9, 900), 4)
    0.01
    """
    return math.sqrt(share * (1 - share) / count)


def with_error(value: float | None, error: float | None, *, scale: int = 1) -> str:
    """A mean and its standard error as text.

    >>> with_error(0.875, 0.0123, scale=100)
    '87.50 ± 1.23'
    """
    if value is None:
        return "-"
    return f"{scale * value:.2f}" if error is None else f"{scale * value:.2f} ± {scale * error:.2f}"
