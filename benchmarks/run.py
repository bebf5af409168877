"""All benchmarks: measure, write benchmarks/results.json, and the tables of docs/benchmarks.md and docs/guide.md."""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

import bench_attention
import bench_layers
import bench_presets
import growth
import machine
import report
import results
import step
from steerformer.training.allocator import keep_freed_memory

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
MARKERS = STEPS_MARKER, LOSSES_MARKER, FULL_SIZE_MARKER, LAYER_MARKER, ATTENTION_MARKER = (
    "bench-steps",
    "bench-losses",
    "bench-full-size",
    "bench",
    "bench-attention",
)
FIGURE = "images/attention-memory.png"

Job = tuple[str, str, Callable[[], dict[str, Any]]]
"""Section of the results, name, and the function that measures the row."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="measure only rows whose section and name contain this, without writing"
    )
    parser.add_argument(
        "--update", action="store_true", help="with --only: update these rows of the results and the page"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="approximate duration of a measurement of a layer")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as in training
    writes = options.update or not options.only
    if writes:
        require_markers(PAGE)
    found = results.read()
    described = machine.describe(ROOT)
    for section, name, measure in all_jobs(options.seconds, options.threads):
        if options.only.lower() not in f"{section} {name}".lower():
            continue
        torch.manual_seed(0)
        row = {"machine": described} | machine.with_load(measure)
        print(_line(section, row), flush=True)
        results.put(found[section], row)
        if writes:  # after each row, so that an interrupted run keeps its rows
            results.save(found)
    if writes:
        found["memory_slopes"] = growth.slopes(found["memory"])
        results.save(found)
        growth.draw(found["memory"], PAGE.parent / FIGURE)
        write_tables(PAGE, found)
        step.write_guide(step.GUIDE, found["full_size"])


def all_jobs(seconds: float, threads: int) -> Iterator[Job]:
    """All measurements; cases are built lazily."""
    for name, build in bench_layers.all_cases():
        yield "layers", name, partial(_measure_layer, name, build, seconds)
    for grid in bench_attention.GRIDS:
        yield "attention", bench_attention.case_name(grid), partial(bench_attention.measure_grid, grid, seconds=seconds)
    for grid in growth.GRIDS:
        yield "memory", growth.case_name(grid), partial(growth.measure_growth, grid)
    yield from _preset_jobs(threads)
    for sized in step.CASES:
        yield "full_size", sized.name, partial(step.measure, sized, threads=threads)


def _preset_jobs(threads: int) -> Iterator[Job]:
    if not bench_presets.has_commit(ROOT):
        print(f"commit {bench_presets.COMMIT} is not in the history: training steps are not compared with it.")
        return
    for case in bench_presets.CASES:
        yield "steps", case.step_name, partial(bench_presets.measure_steps, case, threads=threads)
    for case in bench_presets.CASES:
        if case.compares_losses:
            yield "losses", case.losses_name, partial(bench_presets.compare_losses, case, threads=threads)


def require_markers(page: Path) -> None:
    """Fail before half an hour of measuring, not after it."""
    for marker in MARKERS:
        report.replace_between(page.read_text(), marker, "")


def write_tables(page: Path, found: results.Results) -> None:
    """Write the tables between their markers."""
    full_size = [row for row in found["full_size"] if row["seconds_limit"] is not None]
    contents = {
        STEPS_MARKER: [report.steps_table(found["steps"]), _conditions(found["steps"])],
        LOSSES_MARKER: [report.losses_table(found["losses"])],
        FULL_SIZE_MARKER: [report.full_size_table(full_size), *report.machines(full_size)],
        LAYER_MARKER: [report.layer_table(found["layers"]), _conditions(found["layers"])],
        ATTENTION_MARKER: [
            report.attention_table(found["attention"]),
            _conditions(found["attention"]),
            report.growth_note(found["memory_slopes"], FIGURE),
        ],
    }
    text = page.read_text()
    for marker, parts in contents.items():
        text = report.replace_between(text, marker, "\n\n".join(part for part in parts if part))
    page.write_text(text)


def _conditions(rows: list[dict[str, Any]]) -> str:
    """The machine and its load."""
    return " ".join([*report.machines(rows), report.load(rows)]).strip()


def _measure_layer(name: str, build: Callable[[], bench_layers.Case], seconds: float) -> dict[str, Any]:
    return bench_layers.measure(name, build(), seconds=seconds)


def _line(section: str, row: dict[str, Any]) -> str:
    cells = {
        "steps": report.steps_cells,
        "losses": report.losses_cells,
        "full_size": report.full_size_cells,
        "layers": report.layer_cells,
        "attention": report.attention_cells,
    }
    return report.line(cells[section](row)) if section in cells else json.dumps(row)


if __name__ == "__main__":
    main()
