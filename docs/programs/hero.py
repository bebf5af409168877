"""The figure of the README: Dice against rotation angle, and a rotated scan with the outlines of both networks.

``python docs/programs/hero.py --runs runs`` needs the three runs below, trained with the commands in docs/results.md.
It measures (ten minutes on one core), and writes docs/hero.json and docs/images/hero.png.
"""

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import steerformer as sf
from steerformer.audit import dice_sweep, some_cases, upright
from steerformer.audit.rotations import rotation_about
from steerformer.data.rotation import rotate_labels, rotate_scan
from steerformer.infer import predict_labels
from steerformer.infer.evaluation import load_run_data
from steerformer.io.atomic import write_json
from steerformer.io.scans import Scan
from steerformer.plots.curves import ANGLE_LABEL
from steerformer.plots.intensity import to_gray
from steerformer.plots.outlines import draw_outlines, fullest_slice
from steerformer.plots.style import PALETTE, save_figure

RUNS = {
    "steerable transformer U-Net": "hippocampus-transformer-l2-cpu",
    "MONAI UNet, rotation augmentation": "hippocampus-monai-rotated-cpu",
    "MONAI UNet": "hippocampus-monai-cpu",
}
COLORS = dict(zip(RUNS, (PALETTE[0], PALETTE[2], PALETTE[1]), strict=True))
ANGLES = tuple(range(0, 360, 30))
TRUTH = "#d4a800"
SHOWN_ANGLE = 45
SHOWN_VOXELS = 46


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder with the three run folders")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for hero.json and images/hero.png")
    parser.add_argument("--cases", type=int, default=12, help="test cases, spread evenly over the test set")
    parser.add_argument("--root", help="folder of the hippocampus task, if the runs name another place")
    arguments = parser.parse_args()
    overrides = [f"data.root={arguments.root}"] if arguments.root else []
    runs = {label: sf.open_run(arguments.runs / name) for label, name in RUNS.items()}
    found = {label: _sweep(run, overrides, arguments.cases) for label, run in runs.items()}
    write_json(arguments.out / "hero.json", {"cases": arguments.cases, "angles": ANGLES, "curves": found})
    save_figure(_figure(found, runs, overrides, arguments.cases), arguments.out / "images" / "hero.png", dpi=130)


def _cases(run: sf.Run, overrides: list[str], count: int) -> list[Scan]:
    _, splits = load_run_data(run, overrides, upright)
    return some_cases(splits.test, count)  # type: ignore[arg-type]


def _sweep(run: sf.Run, overrides: list[str], count: int) -> dict[str, Any]:
    """Dice with the true labels at each angle, by axis."""
    sweep = dice_sweep(run.model, _cases(run, overrides, count), angles=ANGLES)
    return {axis: [scores.dice for scores in row] for axis, row in sweep.axes.items()}


def _figure(found: dict[str, Any], runs: dict[str, sf.Run], overrides: list[str], count: int) -> Figure:
    figure = Figure(figsize=(11.5, 4.2), layout="constrained")
    left, *right = figure.subplots(1, 3, width_ratios=(1.7, 1, 1))
    _draw_curves(left, found, count)
    shown = [label for label in runs if "augmentation" not in label]
    for axes, angle in zip(right, (0, SHOWN_ANGLE), strict=True):
        _draw_case(axes, angle, {label: runs[label] for label in shown}, overrides, count)
    handles = [Line2D([], [], color=TRUTH, linestyle="dashed", label="true outline")]
    handles += [Line2D([], [], color=COLORS[label], label=label) for label in shown]
    figure.legend(handles=handles, loc="outside lower right", ncols=3, fontsize=9, frameon=False)
    return figure


def _draw_curves(axes: Axes, found: dict[str, Any], count: int) -> None:
    angles = [*ANGLES, 360]
    for label, curves in found.items():
        rows = np.array([[100 * value for value in (*row, row[0])] for row in curves.values()])
        axes.plot(angles, rows.mean(0), ".-", color=COLORS[label], linewidth=2)
        axes.fill_between(angles, rows.min(0), rows.max(0), color=COLORS[label], alpha=0.15, linewidth=0)
        above = "augmentation" not in label  # between two curves a label would overlap
        axes.annotate(
            label,
            (180, rows.mean(0)[6]),
            xytext=(0, 7 if above else -18),
            textcoords="offset points",
            ha="center",
            color=COLORS[label],
            fontsize=9,
        )
    axes.set(xlabel=ANGLE_LABEL, ylabel="Dice [%]", ylim=(0, 100), xlim=(0, 360), xticks=range(0, 361, 60))
    axes.set_title(f"Hippocampus, {count} test cases; mean and range over three axes", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _draw_case(axes: Axes, angle: int, runs: dict[str, sf.Run], overrides: list[str], count: int) -> None:
    """An axial slice of the middle one of the cases, rotated in its plane, with the outlines of all networks."""
    lines = []
    for i, (label, run) in enumerate(runs.items()):
        case = _cases(run, overrides, count)[count // 2]
        R = rotation_about(run.model.in_type.group, angle, (0.0, 0.0, 1.0))
        assert case.labels is not None
        x, truth = rotate_scan(case.x, R, case.spacing), rotate_labels(case.labels, R, case.spacing)
        predicted, level = predict_labels(run.model, x), fullest_slice(truth)
        if i == 0:
            pixels = to_gray(x[0, ..., level], of=x).T
            axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, origin="lower", interpolation="bicubic")
            draw_outlines(axes, (truth[..., level].T > 0).long(), color=TRUTH, style="dashed")
        draw_outlines(axes, (predicted[..., level].T > 0).long(), color=COLORS[label])
        lines.append((f"Dice {100 * _dice(predicted, truth):.0f} %", COLORS[label]))
    corner = max(_window(truth.shape[0])[0], 0), max(_window(truth.shape[1])[0], 0)
    for i, (text, color) in enumerate(lines):
        box = {"facecolor": color, "edgecolor": "none", "pad": 2}
        axes.text(corner[0] + 1, corner[1] + 1 + 3.5 * i, text, color="white", fontsize=9, bbox=box)
    axes.set_title(f"rotated by {angle} degrees" if angle else "upright", fontsize=9)
    axes.set_xlim(_window(truth.shape[0]))
    axes.set_ylim(_window(truth.shape[1]))
    axes.axis("off")


def _window(n: int) -> tuple[float, float]:
    """The central voxels of an axis: the same number in both panels."""
    return (n - 1 - SHOWN_VOXELS) / 2, (n - 1 + SHOWN_VOXELS) / 2


def _dice(predicted: torch.Tensor, truth: torch.Tensor) -> float:
    """Mean over the two structures."""
    both = [((predicted == label) & (truth == label)).sum() for label in (1, 2)]
    sizes = [(predicted == label).sum() + (truth == label).sum() for label in (1, 2)]
    return fmean(float(2 * b / n) for b, n in zip(both, sizes, strict=True))


if __name__ == "__main__":
    main()
