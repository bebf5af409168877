"""Measures layers and attention; writes benchmarks/results.json, the tables of README.md and a plot: `make bench`."""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

import attention
import growth
import layers
import machine
import report

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results.json"
README = ROOT / "README.md"
MARKERS = LAYER_MARKER, ATTENTION_MARKER = "bench", "bench-attention"
PICTURE = "docs/images/attention-memory.png"

Job = tuple[str, str, Callable[[], dict[str, Any]]]
"""Section of the results, name, and what gives the row."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure the cases whose name contains this, and write nothing")
    parser.add_argument("--update", action="store_true", help="with --only: put these rows into results and README")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="about how long to repeat each measurement")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    writes = options.update or not options.only
    if writes:
        require_markers(README)
    results: dict[str, Any] = {"layers": [], "attention": [], "memory": []}
    if options.update:
        results = json.loads(RESULTS.read_text())
    results["machine"] = machine.describe(ROOT)
    for section, name, measure in all_jobs(options.seconds):
        if options.only.lower() not in name.lower():
            continue
        torch.manual_seed(0)
        row = measure()
        print(_line(section, row), flush=True)
        places = [i for i, old in enumerate(results[section]) if old["name"] == row["name"]] or [len(results[section])]
        results[section][places[0] : places[0] + 1] = [row]
        if writes:  # after each, so that an interrupted run keeps what it has
            _save(results)
    if writes:
        results["memory_slopes"] = growth.slopes(results["memory"])
        _save(results)
        growth.draw(results["memory"], ROOT / PICTURE)
        write_readme(README, results)


def all_jobs(seconds: float) -> Iterator[Job]:
    """Everything there is to measure; nothing is built before its turn."""
    for name, build in layers.all_cases():
        yield "layers", name, partial(_measure_layer, name, build, seconds)
    for grid in attention.GRIDS:
        yield "attention", attention.name(grid), partial(attention.measure_grid, grid, seconds=seconds)
    for grid in growth.GRIDS:
        yield "memory", growth.name(grid), partial(growth.measure_growth, grid)


def require_markers(readme: Path) -> None:
    """Say what is missing now rather than after an hour of measuring."""
    for marker in MARKERS:
        report.replace_between(readme.read_text(), marker, "")


def write_readme(readme: Path, results: dict[str, Any]) -> None:
    """Put the tables between their markers."""
    measured_on = machine.sentence(results["machine"])
    text = report.replace_between(
        readme.read_text(), LAYER_MARKER, f"{report.layer_table(results['layers'])}\n\n{measured_on}"
    )
    note = report.growth_note(results["memory_slopes"], PICTURE)
    text = report.replace_between(text, ATTENTION_MARKER, f"{report.attention_table(results['attention'])}\n\n{note}")
    readme.write_text(text)


def _measure_layer(name: str, build: Callable[[], layers.Case], seconds: float) -> dict[str, Any]:
    return layers.measure(name, build(), seconds=seconds)


def _save(results: dict[str, Any]) -> None:
    """Write beside and move, so that no interruption leaves half a file."""
    beside = RESULTS.with_suffix(".tmp")
    beside.write_text(json.dumps(results, indent=1) + "\n")
    beside.replace(RESULTS)


def _line(section: str, row: dict[str, Any]) -> str:
    if section == "layers":
        return report.line(report.layer_cells(row))
    return report.line(report.attention_cells(row)) if section == "attention" else json.dumps(row)


if __name__ == "__main__":
    main()
