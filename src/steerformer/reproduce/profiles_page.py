"""Writes ``docs/profiles.md`` from the runs of :mod:`steerformer.reproduce.profiles`."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from steerformer.reproduce.kernels_page import markdown
from steerformer.reproduce.profiles import EPOCHS, TEST, TRAIN, Choice, read_results


def write_page(results: Path, page: Path) -> Path:
    """A row for each choice of kernels, best accuracy first."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in read_results(results):
        runs.setdefault(row["choice"], []).append(row)
    rows = []
    for name, found in sorted(runs.items(), key=lambda item: -mean(run["accuracy"] for run in item[1])):
        choice = json.loads(name)
        accuracies = [100 * run["accuracy"] for run in found]
        spread = f" ± {stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
        rows.append(
            [
                choice["profiles"],
                f"{choice['tolerance']:g}",
                choice["normalization"],
                choice["kernel_size"],
                f"{mean(accuracies):.2f}{spread}",
                f"{mean(run['error'] for run in found):.1e}",
                f"{mean(run['seconds'] for run in found):.0f}",
                f"{found[0]['parameters']:,.0f}",
                len(found),
            ]
        )
    header = ["family", "tolerance", "normalization", "width", "accuracy, %", "error", "seconds", "parameters"]
    text = _PAGE.format(
        train=TRAIN,
        test=TEST,
        epochs=EPOCHS,
        table=markdown([*header, "runs"], rows),
        narrow=_advantage(runs, Choice("sampled", 0.1), Choice("fitted", 1e-2)),
        wide=_advantage(runs, Choice("sampled", 0.1, kernel_size=7), Choice("fitted", 1e-2, kernel_size=7)),
    )
    page.write_text(text)
    return page


def _advantage(runs: dict[str, list[dict[str, Any]]], first: Choice, second: Choice) -> str:
    """How much more accurate one choice is than another, in points, with the standard error of that difference."""
    samples = [[100 * run["accuracy"] for run in runs.get(json.dumps(asdict(c)), [])] for c in (first, second)]
    if min(map(len, samples)) < 2:
        return "not measured"
    error = math.sqrt(sum(stdev(sample) ** 2 / len(sample) for sample in samples))
    return f"{mean(samples[0]) - mean(samples[1]):+.2f} ± {error:.2f}"


_PAGE = """<!-- Written by `steerformer reproduce profiles --data mnist.npz`: change the program, not this page. -->
# Which kernels to take

Purity is not all: a kernel must also see. One small network (three convolutions, two poolings, a convolution over the
7x7 grid that is left, invariants and a head of two layers; degrees 0 to 3) is trained with each choice of kernels on
{train} digits of MNIST, each turned by a random angle, for {epochs} epochs (AdamW, one-cycle schedule), and tested on
{test} turned digits. *Error* is the relative change of its logits when smooth scenes turn by 17 and 45 degrees, nothing
interpolated. Accuracy is the mean over runs with its standard deviation; the digits are the same in all, the weights
and the order are not. Seconds are of training on one thread, and rough.

{table}

How to read it. Sampled rings, of which a tolerance of 0.1 drops the impure ones, are more accurate than fitted rings by
{narrow} points at width 5 and {wide} at width 7 (difference of means and its standard error): perhaps a
little, not by much. In fresh layers, whose weights can be anything, fitted rings turn several times more purely
([kernels.md](kernels.md)); in the logits of trained networks, which also pass nonlinearities, that no longer shows.
What the library promises is equivariance of every layer, so as long as accuracy does not clearly say otherwise the
default is the family that turns best among those that see as far: fitted, with unit norm and a tolerance of 0.01. A
stricter tolerance (0.001) drops kernels that are needed, a looser one (0.1) keeps the same ones at width 5.
`profiles="sampled", tolerance=0.1` is worth a try where accuracy is all that counts. The purest kernels are for those
who need equivariance most; give them width 7, since at width 5 they see too little. Width 7 pays for every family, at
twice the arithmetic.
"""
