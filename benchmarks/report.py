"""Tables for README.md, rendered from measured rows and nothing else."""

import re
from collections.abc import Iterable
from typing import Any

from core import PEER

LAYER_COLUMNS = {
    "layer": "name",
    "beside": "peer",
    "forward, ms": "forward_ms",
    "ratio": "forward_ratio",
    "allowed": "forward_allowed",
    "forward + backward, ms": "training_ms",
    "ratio ": "training_ratio",
    "allowed ": "training_allowed",
    "peak memory, ratio": "training_memory_ratio",
    "share of a convolution": "share",
    "allowed  ": "share_allowed",
}
ATTENTION_COLUMNS = (
    "grid",
    "tokens",
    "torch, ms",
    "dense",
    "blockwise",
    "auto",
    "allowed",
    "naive",
    "torch, MB",
    "dense, MB",
    "blockwise, MB",
    "allowed, MB",
    "naive, MB",
)


def layer_table(rows: Iterable[dict[str, Any]]) -> str:
    return _table(LAYER_COLUMNS, map(layer_cells, rows))


def layer_cells(row: dict[str, Any]) -> list[str]:
    return [_cell(row.get(key)) for key in LAYER_COLUMNS.values()]


def attention_table(rows: Iterable[dict[str, Any]]) -> str:
    return _table(ATTENTION_COLUMNS, map(attention_cells, rows))


def attention_cells(row: dict[str, Any]) -> list[str]:
    """Times are ``forward / forward and backward``: of torch in milliseconds, of the others as ratios to torch's."""
    ways, allowed = row["ways"], row["allowed"]

    def both(way: str, what: str) -> str:
        return f"{ways[way][f'forward_{what}']} / {ways[way][f'training_{what}']}" if way in ways else ""

    def peak(way: str) -> str:
        return _cell(ways.get(way, {}).get("peak_mb"))

    ratios = [both(way, "ratio") for way in ("dense", "blockwise", "auto")]
    limit = allowed["training_ratio"]
    times = [both(PEER, "ms"), *ratios, "" if limit is None else f"- / {limit:g}", both("naive", "ratio")]
    peaks = [peak(PEER), peak("dense"), peak("blockwise"), _cell(allowed["peak_mb"]), peak("naive")]
    return [row["grid"], str(row["tokens"]), *times, *peaks]


def growth_note(slopes: dict[str, float], picture: str) -> str:
    """The picture of memory and its slopes, in a sentence."""
    powers = " and ".join(f"{slope:g} in {dim}" for dim, slope in slopes.items())
    return (
        f"![Peak memory of attention against the number of tokens]({picture})\n\n"
        f"From about 1,000 tokens on, peak memory grows as the number of tokens to the power {powers}; "
        f"hollow points are foreseen, not measured."
    )


def replace_between(text: str, marker: str, content: str) -> str:
    """The text with ``content`` between the marker and its end; a text without them is an error, not left as it is."""
    marked = re.compile(rf"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    if not marked.search(text):
        raise SystemExit(f"there is no <!-- {marker} --> ... <!-- /{marker} --> to write the table into.")
    return marked.sub(lambda found: f"{found[1]}{content}\n{found[2]}", text)


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(header: Iterable[str], rows: Iterable[list[str]]) -> str:
    titles = [title.strip() for title in header]
    return "\n".join([line(titles), "|" + " --- |" * len(titles), *map(line, rows)])


def _cell(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
