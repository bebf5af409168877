"""Time and memory of the attention core, relative to torch's attention and to the naive implementation."""

import os
from typing import Any

from core import BASELINE, Grid, contestants, extrapolated_peak, flat, solid
from measure import interleaved_times, peak_memory

GRIDS = (
    flat(8, 8),
    flat(16, 16, ratio_limit=5),
    flat(32, 32, ratio_limit=3),
    flat(64, 64, megabyte_limit=400),
    solid(6),
    solid(10, ratio_limit=3),
    solid(16, megabyte_limit=400),
)
MEGABYTE = 1e6
_BYTE_LIMITS = {"dense": 2e9, "naive": 8e9}
"""Implementations that form all pairs are skipped beyond this; the memory of others is linear in the tokens."""


def case_name(grid: Grid) -> str:
    return f"attention {grid.label}"


def fits(grid: Grid, implementation: str) -> bool:
    """Whether an implementation can run on this grid and this machine."""
    if implementation not in _BYTE_LIMITS:
        return True
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return extrapolated_peak(grid, implementation) <= min(_BYTE_LIMITS[implementation], installed / 2)


def measure_grid(grid: Grid, *, seconds: float) -> dict[str, Any]:
    """Time of forward, of forward and backward, and peak memory of the latter, of every implementation that fits."""
    names = [name for name in (BASELINE, "dense", "blockwise", "auto", "naive") if fits(grid, name)]
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    for mode, backward in (("forward", False), ("training", True)):
        running = contestants(grid, names, backward=backward)
        # those that form all pairs run last: others would pay for the memory that they free
        times = interleaved_times([c for c in running if c.name not in _BYTE_LIMITS], rounds=30, seconds=seconds)
        times |= interleaved_times([c for c in running if c.name == "dense"], rounds=15, seconds=seconds / 2)
        # one run: it is hundreds of times slower
        times |= interleaved_times([c for c in running if c.name == "naive"], rounds=1, warm=False)
        for contestant in running:
            here = found[contestant.name]
            here[f"{mode}_ms"] = round(1e3 * times[contestant.name], 2)
            here[f"{mode}_ratio"] = round(times[contestant.name] / times[BASELINE], 2)
            if backward:
                here["peak_mb"] = round(peak_memory(contestant) / MEGABYTE, 1)
    return {
        "name": case_name(grid),
        "grid": grid.label,
        "tokens": grid.tokens,
        "heads": grid.num_heads,
        "head_dim": grid.head_dim,
        "implementations": found,
        "limits": {"training_ratio": grid.ratio_limit, "peak_mb": grid.megabyte_limit},
    }
