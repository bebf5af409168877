"""Markdown tables."""

from collections.abc import Sequence


def markdown_table(header: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table.

    >>> print(markdown_table(["a", "b"], [[1, 2]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
