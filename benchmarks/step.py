"""Peak memory of a training step by volume size: `python benchmarks/step.py PRESET 64x64x48 96x96x64 ...`.

Forward, loss, backward and optimizer step with batch size 1. Each size runs in its own process, and the peak is that of
the process, Python and torch included. Rows are added to benchmarks/steps.json; their table is in docs/guide.md.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import machine
import report
from steerformer import models
from steerformer.infer.memory import measure_peak, resident

ROOT = Path(__file__).parent.parent
STEPS, GUIDE, MARKER = ROOT / "benchmarks" / "steps.json", ROOT / "docs" / "guide.md", "bench-step"
COLUMNS = ("preset", "volume", "million voxels", "peak memory [GB]", "bytes per voxel", "time [s]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=models.presets(), metavar="PRESET")
    parser.add_argument("sizes", nargs="+", type=size, metavar="SIZE", help="voxels along each axis, such as 64x64x48")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--in-this-process", action="store_true", help="print the row of one size without writing")
    options = parser.parse_args()
    if options.in_this_process:
        torch.set_num_threads(options.threads)
        print(json.dumps(measure(options.preset, options.sizes[0])))
        return
    report.replace_between(GUIDE.read_text(), MARKER, "")
    for space in options.sizes:
        row = _in_subprocess(options.preset, space, options.threads)
        print(report.line(cells(row)), flush=True)
        keep(row, STEPS)
    rows = json.loads(STEPS.read_text())
    GUIDE.write_text(report.replace_between(GUIDE.read_text(), MARKER, table(rows)))


def size(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a size such as 64x64x48, got {text!r}") from None


def measure(preset: str, space: tuple[int, ...]) -> dict[str, Any]:
    """One step on noise: peak memory of the process, memory that the step takes (in bytes), and seconds."""
    torch.manual_seed(0)
    model = models.build(preset)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(1, model.in_type.channels, *space)

    def step() -> None:
        logits = model(x)
        labels = torch.randint(logits.shape[1], (1, *logits.shape[2:]))  # one for the volume or one for each voxel
        F.cross_entropy(logits, labels).backward()
        optimizer.step()

    before, start = resident(), time.perf_counter()
    taken = measure_peak(step)
    if taken is None:
        raise SystemExit("the peak memory of a step can be measured on Linux only.")
    seconds = time.perf_counter() - start
    return {"preset": preset, "size": list(space), "peak": before + taken, "taken": taken, "seconds": round(seconds, 1)}


def keep(row: dict[str, Any], path: Path) -> None:
    """Add the row to the file, in place of an older one of the same preset and size."""
    rows = json.loads(path.read_text()) if path.exists() else []
    others = [old for old in rows if (old["preset"], old["size"]) != (row["preset"], row["size"])]
    rows = sorted([*others, row], key=lambda row: (row["preset"], math.prod(row["size"])))
    path.write_text(json.dumps(rows, indent=1) + "\n")


def table(rows: list[dict[str, Any]]) -> str:
    lines = [report.line(COLUMNS), "|" + " --- |" * len(COLUMNS), *(report.line(cells(row)) for row in rows)]
    return "\n".join([*lines, "", *dict.fromkeys(machine.sentence(row["machine"]) for row in rows)])


def cells(row: dict[str, Any]) -> list[str]:
    """Bytes per voxel are those of the step alone, beyond parameters, input and the rest of the process before it."""
    voxels = math.prod(row["size"])
    volume = " x ".join(map(str, row["size"]))
    memory = f"{row['peak'] / 1e9:.2f}", f"{row['taken'] / voxels:,.0f}"
    return [f"`{row['preset']}`", volume, f"{voxels / 1e6:.2f}", *memory, f"{row['seconds']:.0f}"]


def _in_subprocess(preset: str, space: tuple[int, ...], threads: int) -> dict[str, Any]:
    words = [preset, "x".join(map(str, space)), "--threads", str(threads), "--in-this-process"]
    done = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout) | {"machine": machine.describe(ROOT) | {"threads": threads}}


if __name__ == "__main__":
    main()
