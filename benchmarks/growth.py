"""Memory of attention against the number of tokens: measurements, slopes and a figure."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from bench_attention import MEGABYTE, fits
from core import BASELINE, Grid, contestants, extrapolated_peak, flat, solid
from measure import peak_memory

GRIDS = (
    *(flat(n, n) for n in (8, 12, 16, 24, 32)),
    flat(32, 64),
    flat(64, 64),
    flat(64, 128),
    flat(128, 128),
    *(solid(n) for n in (4, 6, 8, 10, 12, 16, 20, 24)),
)
FIRST_TOKENS = 1000
"""Slopes are fitted from here on: below, blocks of a fixed size dominate."""
IMPLEMENTATIONS = {
    "auto": "steerformer",
    BASELINE: "torch, without positional encoding",
    "naive": "naive: encodings of all pairs",
}


def case_name(grid: Grid) -> str:
    return f"attention memory {grid.label}"


def measure_growth(grid: Grid) -> dict[str, Any]:
    """Peak memory and time of one step, forward and backward."""
    row: dict[str, Any] = {"name": case_name(grid), "dim": len(grid.space), "tokens": grid.tokens}
    for implementation in IMPLEMENTATIONS:
        if not fits(grid, implementation):
            row[implementation] = {"extrapolated_mb": round(extrapolated_peak(grid, implementation) / MEGABYTE)}
            continue
        (contestant,) = contestants(grid, [implementation], backward=True)
        start = time.perf_counter()
        peak = peak_memory(contestant.run)
        seconds = time.perf_counter() - start
        row[implementation] = {"peak_mb": round(peak / MEGABYTE, 2), "seconds": round(seconds, 2)}
    return row


def slopes(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Exponent of memory as a power of tokens, by least squares on logarithms, for each dimension."""
    found = {}
    for dim in sorted({row["dim"] for row in rows}):
        large = [row for row in rows if row["dim"] == dim and row["tokens"] >= FIRST_TOKENS]
        if len(large) > 1:
            tokens, peaks = np.log([[row["tokens"], row["auto"]["peak_mb"]] for row in large]).T
            found[f"{dim}D"] = round(float(np.polyfit(tokens, peaks, 1)[0]), 2)
    return found


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Peak memory against tokens, one panel for each dimension."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    dims = sorted({row["dim"] for row in rows})
    figure, panels = plt.subplots(1, len(dims), figsize=(5 * len(dims), 4), sharey=True, squeeze=False, dpi=120)
    for panel, dim in zip(panels[0], dims, strict=True):
        _draw_panel(panel, [row for row in rows if row["dim"] == dim])
        panel.set_title(f"{dim}D", loc="left")
    panels[0, 0].set_ylabel("peak memory (forward + backward) [MB]")
    panels[0, 0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def _draw_panel(panel: Any, rows: list[dict[str, Any]]) -> None:
    for (name, label), color in zip(IMPLEMENTATIONS.items(), ("C0", "C7", "C3"), strict=True):
        points = [(row["tokens"], row[name]["peak_mb"]) for row in rows if "peak_mb" in row[name]]
        panel.plot(*zip(*points, strict=True), "o-", color=color, label=label, markersize=4)
        extrapolated = [(row["tokens"], row[name]["extrapolated_mb"]) for row in rows if "extrapolated_mb" in row[name]]
        if extrapolated:  # the first one only
            panel.plot(*zip(points[-1], extrapolated[0], strict=True), ":", color=color, linewidth=1)
            panel.plot(*extrapolated[0], "o", color=color, markerfacecolor="white", markersize=4)
    _draw_guides(panel, rows)
    panel.set(xscale="log", yscale="log", xlabel="number of tokens")
    panel.spines[["top", "right"]].set_visible(False)


def _draw_guides(panel: Any, rows: list[dict[str, Any]]) -> None:
    """Thin lines of slope 1 and 2 as a reference, above ours and the naive implementation."""
    ours, naive = rows[-1], rows[0]
    for power, tokens, peak, ends in (
        (1, ours["tokens"], 3 * ours["auto"]["peak_mb"], (FIRST_TOKENS, ours["tokens"] / 4)),
        (2, naive["tokens"], 2 * naive["naive"]["peak_mb"], (naive["tokens"], FIRST_TOKENS / 2)),
    ):
        x = np.array(ends, dtype=float)
        y = peak * (x / tokens) ** power
        panel.plot(x, y, color="0.6", linewidth=0.7)
        offset = {"xytext": (-2, 2), "textcoords": "offset points", "ha": "right"}
        panel.annotate(f"slope {power}", (x[1], y[1]), **offset, color="0.4", fontsize=8)
