"""Peak memory of a training step by volume size: `python benchmarks/step.py PRESET 64x64x48 96x96x64 ...`.

The first step of each size runs in its own process, and the peak is that of the process, Python and torch included.
Rows are added to benchmarks/results.json; docs/guide.md has the table of brain scans.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import report
import results
from steerformer import models
from worker import Worker

ROOT = Path(__file__).parent.parent
GUIDE, MARKER = ROOT / "docs" / "guide.md", "bench-step"
COLUMNS = ("preset", "volume", "million voxels", "peak memory [GB]", "bytes per voxel", "time [s]")
BRAIN_SCANS = "brats-transformer-l2-paper"


@dataclass(frozen=True)
class SizedStep:
    """A step of a preset on inputs of one size, and its limits."""

    preset: str
    space: tuple[int, ...]
    batch: int = 1
    seconds_limit: float | None = None
    gigabyte_limit: float | None = None

    @property
    def name(self) -> str:
        return f"full-size step {self.preset} {'x'.join(map(str, self.space))}, batch size {self.batch}"


CASES = (
    SizedStep("modelnet10-convolution-l3-paper", (32, 32, 32), batch=5, seconds_limit=120),
    SizedStep(BRAIN_SCANS, (64, 64, 48)),
    SizedStep(BRAIN_SCANS, (96, 96, 64)),
    SizedStep(BRAIN_SCANS, (240, 240, 155), seconds_limit=600, gigabyte_limit=16),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=models.presets(), metavar="PRESET")
    parser.add_argument("sizes", nargs="+", type=size, metavar="SIZE", help="voxels along each axis, such as 64x64x48")
    parser.add_argument("--batch", type=int, default=1, help="batch size")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    report.replace_between(GUIDE.read_text(), MARKER, "")
    for space in options.sizes:
        case = SizedStep(options.preset, space, options.batch)
        case = next((known for known in CASES if known.name == case.name), case)  # with its limits
        row = measure(case, threads=options.threads)
        print(report.line(cells(row)), flush=True)
        kept = results.read()
        results.put(kept["full_size"], row)
        results.save(kept)
    write_guide(GUIDE, kept["full_size"])


def size(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a size such as 64x64x48, got {text!r}") from None


def measure(case: SizedStep, *, threads: int) -> dict[str, Any]:
    """The first step on noise: peak memory of the process, memory that the step takes (in bytes), and seconds."""
    with Worker(ROOT / "src", case.preset, batch=case.batch, space=case.space, threads=threads) as worker:
        found = worker.process_peak()
    return {
        "name": case.name,
        "preset": case.preset,
        "size": list(case.space),
        "batch": case.batch,
        "peak": found["peak"],
        "taken": found["taken"],
        "seconds": round(found["seconds"], 1),
        "seconds_limit": case.seconds_limit,
        "gigabyte_limit": case.gigabyte_limit,
        "machine": machine.describe(ROOT) | {"threads": threads},
    }


def write_guide(page: Path, rows: list[dict[str, Any]]) -> None:
    """Write the table of brain scans into the guide."""
    scans = sorted((row for row in rows if row["preset"] == BRAIN_SCANS), key=lambda row: math.prod(row["size"]))
    page.write_text(report.replace_between(page.read_text(), MARKER, table(scans)))


def table(rows: list[dict[str, Any]]) -> str:
    return "\n".join([report.table(COLUMNS, map(cells, rows)), "", *report.machines(rows)])


def cells(row: dict[str, Any]) -> list[str]:
    """Bytes per voxel are those of the step alone, beyond parameters, input and the rest of the process before it."""
    voxels = row["batch"] * math.prod(row["size"])
    memory = f"{row['peak'] / 1e9:.2f}", f"{row['taken'] / voxels:,.0f}"
    return [f"`{row['preset']}`", report.volume(row["size"]), f"{voxels / 1e6:.2f}", *memory, f"{row['seconds']:.0f}"]


if __name__ == "__main__":
    main()
