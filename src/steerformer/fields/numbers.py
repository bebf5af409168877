"""Checks of numbers."""

from math import nan
from numbers import Integral
from typing import SupportsFloat, cast

import torch


def is_integer(value: object, *, least: int) -> bool:
    """Whether ``value`` is an integer >= ``least``; accepts numpy's and torch.export's integers, but not booleans."""
    if isinstance(value, torch.Tensor):  # a size that torch.jit.trace records
        return bool(torch.jit.is_tracing())  # type: ignore[attr-defined]
    whole = isinstance(value, (Integral, torch.SymInt)) and not isinstance(value, bool)
    return whole and cast(int, value) >= least


def as_number(value: object) -> float:
    """``value`` as a float, or NaN if it is not a number, so that every range check fails."""
    return float(value) if isinstance(value, SupportsFloat) else nan
