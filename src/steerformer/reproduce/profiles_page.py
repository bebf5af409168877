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
and the order are not. Seconds are of training on one thread of a shared machine.

{table}
"""
