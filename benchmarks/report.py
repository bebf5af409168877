"""Tables of docs/benchmarks.md, rendered from measured rows."""

import re
from collections.abc import Iterable
from typing import Any

from core import BASELINE

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


def layer_table(rows: Iterable[dict[str, Any]]) -> str:
    return _table(LAYER_COLUMNS, map(layer_cells, rows))


def layer_cells(row: dict[str, Any]) -> list[str]:
    return [_cell(row.get(key)) for key in LAYER_COLUMNS.values()]


def attention_table(rows: Iterable[dict[str, Any]]) -> str:
    return _table(ATTENTION_COLUMNS, map(attention_cells, rows))


def attention_cells(row: dict[str, Any]) -> list[str]:
    """Times are ``forward / forward + backward``: of torch in milliseconds, of the others relative to torch's."""
    found, limits = row["implementations"], row["limits"]

    def both(name: str, what: str) -> str:
        return f"{found[name][f'forward_{what}']} / {found[name][f'training_{what}']}" if name in found else ""

    def peak(name: str) -> str:
        return _cell(found.get(name, {}).get("peak_mb"))

    ratios = [both(name, "ratio") for name in ("dense", "blockwise", "auto")]
    limit = limits["training_ratio"]
    times = [both(BASELINE, "ms"), *ratios, "" if limit is None else f"- / {limit:g}", both("naive", "ratio")]
    peaks = [peak(BASELINE), peak("dense"), peak("blockwise"), _cell(limits["peak_mb"]), peak("naive")]
    return [row["grid"], str(row["tokens"]), *times, *peaks]


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


def _table(header: Iterable[str], rows: Iterable[list[str]]) -> str:
    titles = [title.strip() for title in header]
    return "\n".join([line(titles), "|" + " --- |" * len(titles), *map(line, rows)])


def _cell(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
