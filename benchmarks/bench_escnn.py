"""Measure convolutions of steerformer beside those of escnn, and write docs/escnn.json for docs/programs/escnn_page.py.

escnn is not among the dependencies of the project, and belongs into an environment of its own. It names py3nj as a
requirement, which needs a Fortran compiler, but does without it; it needs numpy 1:

    python3 -m venv escnn-venv
    escnn-venv/bin/pip install -c constraints.txt "numpy<2" joblib lie_learn pymanopt autograd -e .
    escnn-venv/bin/pip install --no-deps escnn==1.0.11
    escnn-venv/bin/python -W ignore::UserWarning benchmarks/bench_escnn.py
"""

import argparse
import json
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import escnn_errors
import escnn_speed
import machine
from steerformer.io.atomic import write_json

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "escnn.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    parser.add_argument("--only", choices=("grid", "errors", "speed"), help="measure this, and keep the rest")
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    results |= {"escnn": version("escnn"), "numpy": version("numpy")}
    if given.only in (None, "grid"):
        results["grid_errors"] = _shown(escnn_errors.errors_on_the_grid())
    if given.only in (None, "errors"):
        results["errors"] = [_shown(row) for row in escnn_errors.measure()]
        results["errors_of"] = {"scenes": escnn_errors.SCENES, "draws": escnn_errors.SEEDS}
    write_json(given.out, results)
    if given.only in (None, "speed"):
        torch.set_num_threads(1)  # CPU time is then that of the computation
        results["machine"] = machine.describe(ROOT)
        measured = (machine.with_load(partial(escnn_speed.measure, setting)) for setting in escnn_speed.SETTINGS)
        results["speed"] = [_shown(row) for row in measured]
        write_json(given.out, results)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps({key: value for key, value in row.items() if key != "rounds_ms"}), flush=True)
    return row


if __name__ == "__main__":
    main()
