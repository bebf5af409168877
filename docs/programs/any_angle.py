"""Write docs/any_angle.md: the error that each layer adds at arbitrary angles, in several trained networks.

``python docs/programs/any_angle.py --run "NAME=FOLDER" ...`` reads check.json of run folders, written by
``steerformer check``, into any_angle.json first; without ``--run`` the page is written from any_angle.json alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from steerformer.config import read_yaml
from steerformer.io.atomic import write_atomic, write_json
from steerformer.reproduce.markdown import markdown_table

_LOGITS = "logits"
_OPTIONS = ("pool", "final_pool", "blur", "radial", "window", "qk_norm", "norm_floor", "mlp_nonlinearity", "depth")
_OF_TRANSFORMERS = ("radial", "qk_norm", "norm_floor", "mlp_nonlinearity")
_COMPOSED = ("encoder", "encoder.blocks.0", "encoder.blocks.0.mlp")


def read_run(folder: Path) -> dict[str, Any]:
    """What the page needs of a run: its options, accuracy, and the errors of its layers."""
    check = json.loads((folder / "check.json").read_text())
    metrics = json.loads((folder / "metrics.json").read_text())
    model = read_yaml(folder / "config.yaml")["model"]
    options = {key: model.get(key) for key in _OPTIONS}
    layers = {
        layer["name"]: {"grid": layer["grid"], "total": layer["total"], "added": layer["added"]}
        for layer in check["layers_arbitrary"]
    }
    return {
        "options": options,
        "accuracy": metrics["test_accuracy"],
        "layers": layers,
        "verdict": check["verdict"],
        "digits": check["arbitrary"]["mean"],
        "agreement": check["arbitrary"]["agreement"],
    }


def write_any_angle_page(folder: Path) -> Path:
    """Write the page from any_angle.json in the same folder; returns its path."""
    runs: dict[str, Any] = json.loads((folder / "any_angle.json").read_text())
    path = folder / "any_angle.md"
    write_atomic(path, f"{_INTRODUCTION}\n{_summary(runs)}\n\n## Layers\n\n{_LAYERS}\n\n{_layers(runs)}\n")
    return path


def _summary(runs: dict[str, Any]) -> str:
    rows = []
    for name, run in runs.items():
        shares = run["accuracy"], run["layers"][_LOGITS]["total"], run["digits"], run["agreement"]
        cells = [f"{100 * share:.1f}" for share in shares]
        rows.append([name, _options(run["options"]), *cells, run["verdict"]])
    head = [
        "network",
        "options",
        "accuracy [%]",
        "change of logits, scenes [%]",
        "change of logits, digits [%]",
        "agreement, digits [%]",
        "verdict",
    ]
    return markdown_table(head, rows)


def _options(options: dict[str, Any]) -> str:
    """The options that the network uses; those of transformers only where there is one."""
    used = {key: value for key, value in options.items() if options["depth"] or key not in _OF_TRANSFORMERS}
    return ", ".join(f"{key} {value}" for key, value in used.items() if key != "depth" and value)


def _layers(runs: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for run in runs.values() for name in run["layers"]))
    names = [name for name in names if name not in _COMPOSED]
    rows = [[name, *(_cell(run["layers"].get(name)) for run in runs.values())] for name in names]
    return markdown_table(["layer", *runs], [row for row in rows if any("/" in cell for cell in row[1:])])


def _cell(layer: dict[str, Any] | None) -> str:
    if layer is None:
        return ""
    added = "-" if layer["added"] is None else f"{100 * layer['added']:.1f}"
    return f"{added} / {100 * layer['total']:.1f}"


_INTRODUCTION = """<!-- Written by `python docs/programs/any_angle.py`: change the program, not this page. -->
# Equivariance error at arbitrary angles

Rotations of the grid are exact. At other angles a network on a grid is equivariant approximately only. The tables show
the networks of `steerformer demo` after training (5,000 digits, 10 epochs, single runs), from `steerformer check`:
relative change of the logits on smooth analytic scenes at three random angles; the same on digits, which have to be
interpolated, at eight random angles, and how many predictions stay the same there.

The change on scenes, which no network has been trained on, varies more between runs than the errors of the layers do.
"""
_LAYERS = """Error that a layer adds, with its input rotated as it should be, and error after it, which includes all
layers before it: both relative, in %, at all pixels that rotations keep in the grid."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the page")
    parser.add_argument("--run", action="append", default=[], metavar="NAME=FOLDER", help="a run with check.json")
    given = parser.parse_args()
    if given.run:
        pairs = (word.partition("=") for word in given.run)
        write_json(given.out / "any_angle.json", {name: read_run(Path(folder)) for name, _, folder in pairs})
    print(f"wrote {write_any_angle_page(given.out)}")
