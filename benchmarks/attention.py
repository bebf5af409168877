"""Time and memory of the attention core beside torch's own attention and beside the naive way."""

import os
from typing import Any

from core import PEER, Grid, contestants, flat, foreseen_peak, solid
from measure import interleaved_times, peak_memory

GRIDS = (
    flat(8, 8),
    flat(16, 16, most_ratio=5),
    flat(32, 32, most_ratio=3),
    flat(64, 64, most_megabytes=400),
    solid(6),
    solid(10, most_ratio=3),
    solid(16, most_megabytes=400),
)
MEGABYTE = 1e6
_MOST_BYTES = {"dense": 2e9, "naive": 8e9}
"""Beyond this a way that forms all pairs is not run; other ways take memory as the tokens do, and always are."""


def name(grid: Grid) -> str:
    return f"attention {grid.label}"


def fits(grid: Grid, way: str) -> bool:
    """Whether a way may be run on this grid, and on this machine."""
    if way not in _MOST_BYTES:
        return True
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return foreseen_peak(grid, way) <= min(_MOST_BYTES[way], installed / 2)


def measure_grid(grid: Grid, *, seconds: float) -> dict[str, Any]:
    """Forward, forward and backward, and peak memory of the latter, of every way that fits."""
    ways = [way for way in (PEER, "dense", "blockwise", "auto", "naive") if fits(grid, way)]
    found: dict[str, dict[str, float]] = {way: {} for way in ways}
    for mode, backward in (("forward", False), ("training", True)):
        running = contestants(grid, ways, backward=backward)
        # those that form all pairs come afterwards: what they free has to be fetched again by the others
        times = interleaved_times([c for c in running if c.name not in _MOST_BYTES], rounds=30, seconds=seconds)
        times |= interleaved_times([c for c in running if c.name == "dense"], rounds=15, seconds=seconds / 2)
        # a hundred times behind: one run
        times |= interleaved_times([c for c in running if c.name == "naive"], rounds=1, warm=False)
        for contestant in running:
            here = found[contestant.name]
            here[f"{mode}_ms"] = round(1e3 * times[contestant.name], 2)
            here[f"{mode}_ratio"] = round(times[contestant.name] / times[PEER], 2)
            if backward:
                here["peak_mb"] = round(peak_memory(contestant) / MEGABYTE, 1)
    return {
        "name": name(grid),
        "grid": grid.label,
        "tokens": grid.tokens,
        "heads": grid.num_heads,
        "head_size": grid.head_size,
        "ways": found,
        "allowed": {"training_ratio": grid.most_ratio, "peak_mb": grid.most_megabytes},
    }
