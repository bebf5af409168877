"""Measure layers and attention; write benchmarks/results.json and docs/benchmarks.md with its figure: `make bench`."""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

import bench_attention
import bench_layers
import growth
import machine
import report

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
MARKERS = LAYER_MARKER, ATTENTION_MARKER = "bench", "bench-attention"
FIGURE = "images/attention-memory.png"

Job = tuple[str, str, Callable[[], dict[str, Any]]]
"""Section of the results, name, and the function that measures the row."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure only cases whose name contains this, without writing")
    parser.add_argument(
        "--update", action="store_true", help="with --only: update these rows of the results and the page"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="approximate duration of each measurement")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    writes = options.update or not options.only
    if writes:
        require_markers(PAGE)
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
        if writes:  # after each row, so that an interrupted run keeps its rows
            _save(results)
    if writes:
        results["memory_slopes"] = growth.slopes(results["memory"])
        _save(results)
        growth.draw(results["memory"], PAGE.parent / FIGURE)
        write_tables(PAGE, results)


def all_jobs(seconds: float) -> Iterator[Job]:
    """All measurements; cases are built lazily."""
    for name, build in bench_layers.all_cases():
        yield "layers", name, partial(_measure_layer, name, build, seconds)
    for grid in bench_attention.GRIDS:
        yield "attention", bench_attention.case_name(grid), partial(bench_attention.measure_grid, grid, seconds=seconds)
    for grid in growth.GRIDS:
        yield "memory", growth.case_name(grid), partial(growth.measure_growth, grid)


def require_markers(page: Path) -> None:
    """Fail before an hour of measuring, not after it."""
    for marker in MARKERS:
        report.replace_between(page.read_text(), marker, "")


def write_tables(page: Path, results: dict[str, Any]) -> None:
    """Write the tables between their markers."""
    measured_on = machine.sentence(results["machine"])
    text = report.replace_between(
        page.read_text(), LAYER_MARKER, f"{report.layer_table(results['layers'])}\n\n{measured_on}"
    )
    note = report.growth_note(results["memory_slopes"], FIGURE)
    text = report.replace_between(text, ATTENTION_MARKER, f"{report.attention_table(results['attention'])}\n\n{note}")
    page.write_text(text)


def _measure_layer(name: str, build: Callable[[], bench_layers.Case], seconds: float) -> dict[str, Any]:
    return bench_layers.measure(name, build(), seconds=seconds)


def _save(results: dict[str, Any]) -> None:
    """Write atomically, so that an interruption leaves no truncated file."""
    temporary = RESULTS.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=1) + "\n")
    temporary.replace(RESULTS)


def _line(section: str, row: dict[str, Any]) -> str:
    if section == "layers":
        return report.line(report.layer_cells(row))
    return report.line(report.attention_cells(row)) if section == "attention" else json.dumps(row)


if __name__ == "__main__":
    main()
