"""Tables of docs/benchmarks.md, rendered from measured rows."""

import re
from collections.abc import Iterable
from statistics import median
from typing import Any

import machine
from bench_presets import BEFORE, CONTESTANTS, CONTROL, LOSS_OVERRIDES, NOW, SAME
from core import BASELINE
from measure import median_ratio

STEPS_COLUMNS = (
    "preset",
    "before [s]",
    "same configuration [s]",
    "times faster",
    "now [s]",
    "times faster",
    "limit",
    "control [s]",
    "now relative to the control",
    "peak memory [MB]",
)
LOSSES_COLUMNS = ("preset", *LOSS_OVERRIDES)
FULL_SIZE_COLUMNS = ("preset", "input", "batch size", "time [s]", "limit", "peak memory [GB]", "limit")

LAYER_COLUMNS = {
    "layer": "name",
    "baseline": "baseline",
    "forward [ms]": "forward_ms",
    "ratio": "forward_ratio",
    "limit": "forward_limit",
    "forward + backward [ms]": "training_ms",
    "ratio ": "training_ratio",
    "limit ": "training_limit",
    "peak memory ratio": "training_memory_ratio",
    "peak memory relative to input and output": "memory_share",
    "limit   ": "memory_share_limit",
    "relative to a convolution": "share",
    "limit  ": "share_limit",
}
ATTENTION_COLUMNS = (
    "grid",
    "tokens",
    "torch [ms]",
    "dense",
    "blockwise",
    "auto",
    "limit",
    "naive",
    "torch [MB]",
    "dense [MB]",
    "blockwise [MB]",
    "limit [MB]",
    "naive [MB]",
)


def steps_table(rows: Iterable[dict[str, Any]]) -> str:
    return table(STEPS_COLUMNS, map(steps_cells, rows))


def steps_cells(row: dict[str, Any]) -> list[str]:
    """Medians over the rounds; ratios are medians of the ratios of each round."""
    seconds = {name: f"{median(times) / 1e3:.3g}" for name, times in row["rounds_ms"].items()}
    return [
        f"`{row['preset']}`",
        seconds[BEFORE],
        seconds[SAME],
        f"{steps_ratio(row, BEFORE, SAME):.2f}",
        seconds[NOW],
        f"{steps_ratio(row, BEFORE, NOW):.2f}",
        _cell(row["faster_limit"]),
        seconds[CONTROL],
        f"{steps_ratio(row, NOW, CONTROL):.1f}",
        " / ".join(f"{row['peak_mb'][name]:.0f}" for name in CONTESTANTS),
    ]


def steps_ratio(row: dict[str, Any], contestant: str, baseline: str) -> float:
    return median_ratio(row["rounds_ms"][contestant], row["rounds_ms"][baseline])


def losses_table(rows: Iterable[dict[str, Any]]) -> str:
    return table(LOSSES_COLUMNS, map(losses_cells, rows))


def losses_cells(row: dict[str, Any]) -> list[str]:
    """Largest relative difference of each comparison."""
    return [f"`{row['preset']}`", *(f"{row['comparisons'][label]['difference']:.1g}" for label in LOSS_OVERRIDES)]


def full_size_table(rows: Iterable[dict[str, Any]]) -> str:
    return table(FULL_SIZE_COLUMNS, map(full_size_cells, rows))


def full_size_cells(row: dict[str, Any]) -> list[str]:
    limits = [_cell(row[key]) for key in ("seconds_limit", "gigabyte_limit")]
    shape = [volume(row["size"]), str(row["batch"])]
    return [f"`{row['preset']}`", *shape, f"{row['seconds']:.0f}", limits[0], f"{row['peak'] / 1e9:.2f}", limits[1]]


def volume(space: Iterable[int]) -> str:
    return " x ".join(map(str, space))


def layer_table(rows: Iterable[dict[str, Any]]) -> str:
    return table(LAYER_COLUMNS, map(layer_cells, rows))


def layer_cells(row: dict[str, Any]) -> list[str]:
    return [_cell(row.get(key)) for key in LAYER_COLUMNS.values()]


def attention_table(rows: Iterable[dict[str, Any]]) -> str:
    return table(ATTENTION_COLUMNS, map(attention_cells, rows))


def attention_cells(row: dict[str, Any]) -> list[str]:
    """Times are ``forward / forward + backward``: of torch in milliseconds, of the others relative to torch's."""
    found, limits = row["implementations"], row["limits"]

    def both(name: str, what: str) -> str:
        return f"{found[name][f'forward_{what}']} / {found[name][f'training_{what}']}" if name in found else ""

    def peak(name: str) -> str:
        return _cell(found.get(name, {}).get("peak_mb"))

    ratios = [both(name, "ratio") for name in ("dense", "blockwise", "auto")]
    both_limits = [limits.get(key) for key in ("forward_ratio", "training_ratio")]
    limit = " / ".join("-" if x is None else f"{x:g}" for x in both_limits) if any(both_limits) else ""
    times = [both(BASELINE, "ms"), *ratios, limit, both("naive", "ratio")]
    peaks = [peak(BASELINE), peak("dense"), peak("blockwise"), _cell(limits["peak_mb"]), peak("naive")]
    return [row["grid"], str(row["tokens"]), *times, *peaks]


def load(rows: list[dict[str, Any]]) -> str:
    """The load of the machine in one line; rows that do not know it are left out."""
    averages = [row["load_average"] for row in rows if "load_average" in row]
    shares = [100 * row["others_share"] for row in rows if "others_share" in row]
    if not averages or not shares:
        return ""
    used = f"up to {max(shares):.0f} %" if max(shares) >= 1 else "under 1 %"
    return (
        f"Load average before each row {min(averages):.1f} to {max(averages):.1f}, this program included; "
        f"during the rows, other processes used {used} of the CPU time."
    )


def machines(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Where the rows were measured, each machine and version once."""
    return list(dict.fromkeys(machine.sentence(row["machine"]) for row in rows))


def growth_note(slopes: dict[str, float], figure: str) -> str:
    """The figure of memory against tokens, and its slopes."""
    powers = " and ".join(f"{slope:g} in {dim}" for dim, slope in slopes.items())
    return (
        f"![Peak memory of attention against the number of tokens]({figure})\n\n"
        f"From about 1,000 tokens on, peak memory grows as the number of tokens to the power {powers}; "
        f"hollow points are extrapolated."
    )


def replace_between(text: str, marker: str, content: str) -> str:
    """The text with ``content`` between a marker and its end; a text without the marker is an error."""
    marked = re.compile(rf"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    if not marked.search(text):
        raise SystemExit(f"the page has no <!-- {marker} --> ... <!-- /{marker} --> for the table.")
    return marked.sub(lambda found: f"{found[1]}{content}\n{found[2]}", text)


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(header: Iterable[str], rows: Iterable[list[str]]) -> str:
    titles = [title.strip() for title in header]
    return "\n".join([line(titles), "|" + " --- |" * len(titles), *map(line, rows)])


def _cell(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
