"""benchmarks/results.json: all measured rows, by section."""

import json
import re
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "results.json"
_NUMBERS = re.compile(r"(?<=\[)[-+.\deE,\s]+(?=\])")
SECTIONS = ("steps", "losses", "full_size", "layers", "attention", "memory")

Row = dict[str, Any]
Results = dict[str, Any]
"""Rows of each section, and the slopes of memory."""


def read() -> Results:
    """All rows; sections that were never measured are empty."""
    return {section: [] for section in SECTIONS} | (json.loads(FILE.read_text()) if FILE.exists() else {})


def save(results: Results) -> None:
    """Write atomically, so that an interruption leaves no truncated file; each list of numbers on one line."""
    temporary = FILE.with_suffix(".tmp")
    text = json.dumps(results, indent=1)
    temporary.write_text(_NUMBERS.sub(lambda found: " ".join(found[0].split()), text) + "\n")
    temporary.replace(FILE)


def put(rows: list[Row], row: Row) -> None:
    """Add a row, in place of an older one of the same name."""
    places = [i for i, old in enumerate(rows) if old["name"] == row["name"]] or [len(rows)]
    rows[places[0] : places[0] + 1] = [row]
