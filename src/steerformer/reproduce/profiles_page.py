"""Writes ``docs/profiles.md`` from the runs of :mod:`steerformer.reproduce.profiles`."""

import json
from pathlib import Path
from statistics import mean, stdev

from steerformer.reproduce.kernels_page import markdown
from steerformer.reproduce.profiles import EPOCHS, TEST, TRAIN, read_results


def write_page(results: Path, page: Path) -> Path:
    """A row for each choice of kernels, best accuracy first."""
    runs: dict[str, list[dict[str, float]]] = {}
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
    page.write_text(_PAGE.format(train=TRAIN, test=TEST, epochs=EPOCHS, table=markdown([*header, "runs"], rows)))
    return page


_PAGE = """<!-- Written by `steerformer reproduce profiles --data mnist.npz`: change the program, not this page. -->
# Which kernels to take

Purity is not all: a kernel must also see. One small network (three convolutions, two poolings, a convolution over the
7x7 grid that is left, invariants and a head of two layers; degrees 0 to 3) is trained with each choice of kernels on
{train} digits of MNIST, each turned by a random angle, for {epochs} epochs (AdamW, one-cycle schedule), and tested on
{test} turned digits. *Error* is the relative change of its logits when smooth scenes turn by 17 and 45 degrees, nothing
interpolated. Accuracy is the mean over runs with its standard deviation; the digits are the same in all, the weights
and the order are not. Seconds are of training on one thread, and rough.

{table}

How to read it: the differences between families at equal width are about as large as those between runs, but for the
purest kernels of width 5, which see too little. Fitted rings see as much as sampled ones and turn more purely, so they
are the default, with unit norm and a tolerance of 0.01. Sampled rings are there to compare with what others do. The
purest kernels are for those who need equivariance most; give them width 7. Width 7 pays for every family, at twice the
arithmetic.
"""
