"""Write docs/escnn.md from docs/escnn.json: errors, time and memory of convolutions beside those of escnn.

``benchmarks/bench_escnn.py`` measures them, where escnn is installed.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from steerformer.io.atomic import write_atomic
from steerformer.reproduce.markdown import markdown_table

Rows = Sequence[dict[str, Any]]
_STORED = ("parameters", "constants", "peak_mb")
_OURS = {"complex": "steerformer", "real": "steerformer, real fields"}


def write_page(folder: Path) -> Path:
    """Write the page from the results in the same folder; returns its path."""
    found: dict[str, Any] = json.loads((folder / "escnn.json").read_text())
    errors, speed, machine = found["errors"], found["speed"], found["machine"]
    path = folder / "escnn.md"
    text = _PAGE.format(
        escnn=found["escnn"],
        **found["errors_of"],
        **{f"grid_{key}": found["grid_errors"][name] for key, name in (("ours", "steerformer"), ("escnn", "escnn"))},
        flat_errors=_one_convolution(errors, 2),
        solid_errors=_one_convolution(errors, 3),
        two_errors=_two_convolutions(errors),
        flat_times=_times(speed, 2),
        solid_times=_times(speed, 3),
        memory=_memory(speed),
        flat=_sizes(speed, 2),
        solid=_sizes(speed, 3),
        rounds=_rounds(speed),
        others=f"{min(r['others_share'] for r in speed):.0%} to {max(r['others_share'] for r in speed):.0%}",
        numpy=found["numpy"],
        **machine,
    )
    write_atomic(path, text)
    return path


def _one_convolution(errors: Rows, dim: int) -> str:
    rows = [row for row in errors if (row["dim"], row["depth"]) == (dim, 1)]
    cells = [[row["kernels"], *(f"{error:.1e}" for error in row["degrees"]), f"{row['total']:.1e}"] for row in rows]
    return markdown_table(["kernels", *(f"degree {degree}" for degree in range(len(cells[0]) - 2)), "together"], cells)


def _two_convolutions(errors: Rows) -> str:
    rows = [row for row in errors if row["depth"] == 2]
    cases = sorted({(row["dim"], row["kernel_size"]) for row in rows})
    total = {(row["dim"], row["kernel_size"], row["kernels"]): row["total"] for row in rows}
    kinds = list(dict.fromkeys(row["kernels"] for row in rows))
    cells = [[kind, *(f"{total[dim, size, kind]:.1e}" for dim, size in cases)] for kind in kinds]
    return markdown_table(["kernels", *(f"{dim}D, kernel size {size}" for dim, size in cases)], cells)


def _times(speed: Rows, dim: int) -> str:
    """Medians over all rounds, and the ratio of ours to escnn's in the same round: median and quartiles."""
    rows = [row for row in speed if row["dim"] == dim]
    ours = [kind for kind in _OURS if kind in rows[0]["rounds_ms"]["eval"]]
    cells = []
    for row in rows:
        for mode, rounds in row["rounds_ms"].items():
            times = [f"{median(rounds[kind]):.0f}" for kind in (*ours, "escnn")]
            ratios = [_ratio(rounds[kind], rounds["escnn"]) for kind in ours]
            cells.append([_name(row), mode, *times, *ratios])
    heads = [f"{_OURS[kind]} [ms]" for kind in ours]
    return markdown_table(["input, kernel", "mode", *heads, "escnn [ms]", *(f"ratio, {kind}" for kind in ours)], cells)


def _ratio(times: Sequence[float], baseline: Sequence[float]) -> str:
    ratios = [time / other for time, other in zip(times, baseline, strict=True)]
    low, _, high = quantiles(ratios, n=4)
    return f"{median(ratios):.2f} ({low:.2f} to {high:.2f})"


def _memory(speed: Rows) -> str:
    cells = [
        [f"{row['dim']}D {_name(row)}", _OURS.get(kind, kind), *(row[key][kind] for key in _STORED)]
        for row in speed
        for kind in (*_OURS, "escnn")
        if kind in row["parameters"]
    ]
    return markdown_table(["convolution", "library", "parameters", "constants", "peak of a training step [MB]"], cells)


def _name(row: dict[str, Any]) -> str:
    return f"{row['input']}, {row['kernel_size']}"


def _sizes(speed: Rows, dim: int) -> str:
    row = next(row for row in speed if row["dim"] == dim)
    copies = ", ".join(map(str, row["copies"]))
    grid = "x".join([str(row["size"])] * dim)
    return (
        f"{row['channels']} channels (complex copies {copies} of degrees 0, 1 and 2), batches of {row['batch']}, {grid}"
    )


def _rounds(speed: Rows) -> str:
    counts = sorted({len(times) for row in speed for rounds in row["rounds_ms"].values() for times in rounds.values()})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


_PAGE = """<!-- Written by `python docs/programs/escnn_page.py`: change the program, not this page. -->
# Comparison with escnn

Convolutions of steerformer beside those of escnn {escnn}, in 2D and 3D, with kernels of the same size between the same
representations, so with the same number of real channels: a complex copy of ours is two real irreps of escnn's, in 2D
for degrees above 0 one. `python benchmarks/bench_escnn.py` measures all of it; its docstring says how to install escnn,
which is not among the dependencies of the project. [comparison.md](comparison.md) shows the code that eight tasks take
in both and in e3nn. escnn has more groups (reflections, discrete rotations) and more kinds of layers for regular
representations, and no attention; none of that is compared here.

## Equivariance error

Relative error at the center of the grid when smooth analytic scenes (Gaussian blobs of standard deviation 2) are
rotated by any angle: root mean square over {draws} draws of the initial weights and of the rotation, each on {scenes}
scenes, in float64. Rotations by 90 degrees are exact in both up to rounding errors, with errors of at most
{grid_ours:.0e} in steerformer and {grid_escnn:.0e} in escnn, which samples its basis in float32.

One convolution of an image, kernel size 5, by degree of the output:

{flat_errors}

One convolution of a volume, kernel size 5:

{solid_errors}

Two convolutions, from an image or a volume to degrees 0 to 2 and again to degrees 0 to 2, all degrees together:

{two_errors}

The default, fitted with `max_impurity=0.01`, keeps the outer rings that a network needs to see its whole window; its
errors are larger than those of escnn's default. With `max_impurity=0.001`, which drops rings at size 5, and with
`kernel_family="purest"`, some are smaller than escnn's and some larger, as the tables show.
[kernel_families.md](kernel_families.md) has accuracy and errors of trained networks, on which the default rests.

## Time

CPU time in milliseconds, median over {rounds} rounds, and median and quartiles of the ratio of ours to escnn's in the
same round: below 1, ours is faster. Rounds are interleaved in one process, on {threads} thread of
{processor} ({cores} cores), torch {torch}, numpy {numpy}, float32, {date}. The machine was shared: other processes took
{others} of its CPU time, which disturbs caches. In training mode both libraries assemble the kernel in every step; in
eval mode, without gradients, both keep it.

2D: features have {flat}.

{flat_times}

3D: features have {solid}.

{solid_times}

Convolutions between complex fields are complex products, up to three real convolutions; between real fields they are
one, as in escnn. On CPUs `Conv` chooses among three implementations by the number of operations
([theory.md](theory.md#steerable-kernels)), not by measuring, and does not always choose the fastest: for real features
with kernel size 5 in 3D it takes products of spectra, and escnn's plain convolution needs less time for a training step
and far less memory.

## Memory

Numbers of parameters and of stored constants of one convolution, and the peak of what torch allocates in a training
step.

{memory}

Complex-linear maps have fewer parameters than real-linear ones between the same channels: complex convolutions are more
restricted than escnn's, by about half where input and output are features. Products of spectra need more memory, and
our basis has more constants in 3D.
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the page and its results")
    print(f"wrote {write_page(parser.parse_args().out)}")
