"""Time and memory of the attention core, relative to torch's attention and to the naive implementation."""

import os
from collections.abc import Iterator
from statistics import median
from typing import Any

from core import BASELINE, Grid, contestants, extrapolated_peak, flat, solid
from measure import Contestant, in_ms, interleaved_times, median_ratio, peak_memory

GRIDS = (
    flat(8, 8),
    flat(16, 16, ratio_limit=5),
    flat(32, 32, ratio_limit=2.5, forward_limit=3),
    flat(64, 64, ratio_limit=2.8, forward_limit=3, megabyte_limit=400),
    solid(6),
    solid(10, ratio_limit=2.5, forward_limit=3),
    solid(16, ratio_limit=2.8, forward_limit=3, megabyte_limit=400),
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
    names = [name for name in (BASELINE, "blockwise", "auto", "dense", "naive") if fits(grid, name)]
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    rounds: dict[str, list[dict[str, list[float]]]] = {}
    for mode, backward in (("forward", False), ("training", True)):
        running = contestants(grid, names, backward=backward)
        groups = list(_group_times(running, seconds))
        for group in groups:
            for name, times in group.items():
                ratio = median_ratio(times, group[BASELINE])
                here = {f"{mode}_ms": round(1e3 * median(times), 2), f"{mode}_ratio": round(ratio, 2)}
                found[name] = here | found[name]  # torch's of the first group
        rounds[mode] = [in_ms(group) for group in groups]
    for contestant in running:
        found[contestant.name]["peak_mb"] = round(peak_memory(contestant.run) / MEGABYTE, 1)
    return {
        "name": case_name(grid),
        "grid": grid.label,
        "tokens": grid.tokens,
        "heads": grid.num_heads,
        "head_dim": grid.head_dim,
        "implementations": found,
        "limits": {
            "forward_ratio": grid.forward_limit,
            "training_ratio": grid.ratio_limit,
            "peak_mb": grid.megabyte_limit,
        },
        "rounds_ms": rounds,
    }


def _group_times(running: list[Contestant], seconds: float) -> Iterator[dict[str, list[float]]]:
    """Times of all rounds, in groups with torch's attention in each.

    Implementations that form all pairs have groups of their own, because they leave the caches to others without their
    data. The naive one has one round: it is hundreds of times slower.
    """
    for names, rounds in ((("blockwise", "auto"), 30), (("dense",), 15), (("naive",), 1)):
        group = [contestant for contestant in running if contestant.name in (BASELINE, *names)]
        if len(group) > 1:
            yield interleaved_times(group, rounds=rounds, seconds=seconds, warmup=min(rounds - 1, 1))
