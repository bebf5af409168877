"""Write docs/real_fields.md: time and accuracy of real beside complex fields in volumes.

``--times`` measures training steps, a minute or two; ``--data FOLDER`` trains the steerable transformer of ModelNet10
with every kind of fields, about a quarter of an hour for each run; interrupted training resumes. Both update
real_fields.json, from which the page is written.
"""

import argparse
import json
import os
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch

import steerformer as sf
from real_field_times import CLASSIFIER, KINDS, SUBJECTS, changes, measure
from steerformer.io.atomic import write_atomic, write_json
from steerformer.reproduce.markdown import markdown_table
from steerformer.training.environment import describe_environment

_MACHINE = ("processor", "cores", "threads")
_BASELINE = next(iter(KINDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", action="store_true", help="measure training steps")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of --times (default: 9)")
    parser.add_argument("--data", type=Path, help="folder or file of ModelNet10, as for steerformer train")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each kind with --data (default: 2)")
    parser.add_argument("--epochs", type=int, default=6, help="epochs of each run (default: 6)")
    parser.add_argument("--runs", type=Path, default=Path("runs/real-fields"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the page (default: docs)")
    options = parser.parse_args()
    file = options.out / "real_fields.json"
    if options.times:
        update(file, "times", measure_all(rounds=options.rounds))
    if options.data is not None:
        for seed in range(options.seeds):
            for kind in KINDS:
                row = train(kind, seed, data=options.data, epochs=options.epochs, runs=options.runs)
                kept = [old for old in read(file)["trainings"] if (old["kind"], old["seed"]) != (kind, seed)]
                update(file, "trainings", [*kept, row])
                print(f"{kind}, seed {seed}: {row['accuracy']:.2%}", flush=True)
    if not file.exists():
        parser.error(f"there is no file {file}; measure with --times.")
    print(f"wrote {write_page(options.out)}")


def read(file: Path) -> dict[str, Any]:
    """Results so far, if any."""
    empty: dict[str, Any] = {"times": None, "trainings": []}
    return {**empty, **(json.loads(file.read_text()) if file.exists() else {})}


def update(file: Path, key: str, value: Any) -> None:
    """Replace one part of the results."""
    write_json(file, {**read(file), key: value})


def measure_all(*, rounds: int) -> dict[str, Any]:
    """Times of all subjects on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        subjects = {}
        for name, subject in SUBJECTS.items():
            subjects[name] = measure(subject, rounds=rounds)
            print(f"measured {name}", flush=True)
        return {"subjects": subjects, "machine": _machine() | {"load_average": round(os.getloadavg()[1], 1)}}
    finally:
        torch.set_num_threads(before)


def train(kind: str, seed: int, *, data: Path, epochs: int, runs: Path) -> dict[str, Any]:
    """Train and test one network; an interrupted run resumes, a finished one is read."""
    folder = runs / f"{kind.replace(', ', '-').replace(' ', '-')}-{epochs}-epochs-{seed}"
    model = changes(CLASSIFIER, KINDS[kind])
    overrides = [f"model.{key}={json.dumps(value)}" for key, value in model.items()]
    overrides += [f"data.root={data}", f"training.epochs={epochs}", f"seed={seed}"]
    metrics = folder / "metrics.json"
    if not (metrics.exists() and json.loads(metrics.read_text()).get("finished")):
        sf.train(CLASSIFIER, overrides, out=folder, resume=(folder / "config.yaml").exists())
    found = json.loads(metrics.read_text())
    parameters = sum(parameter.numel() for parameter in sf.open_run(folder).model.parameters())
    return {
        "kind": kind,
        "seed": seed,
        "epochs": epochs,
        "accuracy": found["test_accuracy"],
        "seconds": round(found["seconds"]),
        "parameters": parameters,
        "machine": _machine(),
    }


def _machine() -> dict[str, Any]:
    environment = describe_environment()
    return {key: environment[key] for key in _MACHINE} | {"torch": environment["packages"]["torch"]}


def write_page(folder: Path) -> Path:
    """Write the page from real_fields.json in the same folder; returns its path."""
    found = read(folder / "real_fields.json")
    path = folder / "real_fields.md"
    write_atomic(path, _PAGE.format(times=_times(found["times"]), trainings=_trainings(found["trainings"])))
    return path


def _times(times: dict[str, Any] | None) -> str:
    if times is None:
        return "Not measured yet: `python docs/programs/real_fields.py --times`."
    others = [kind for kind in KINDS if kind != _BASELINE]
    rows = []
    for name, kinds in times["subjects"].items():
        base = kinds[_BASELINE]
        ratios = [median(a / b for a, b in zip(kinds[k]["ms"], base["ms"], strict=True)) for k in others]
        numbers = [f"{kinds[kind]['parameters']:,}" for kind in KINDS]
        rows.append([name, f"{median(base['ms']):.3g}", *(f"{ratio:.2f}" for ratio in ratios), *numbers])
    head = ["training step of", f"{_BASELINE} [ms]", *others, *(f"parameters, {kind}" for kind in KINDS)]
    rounds = len(next(iter(times["subjects"].values()))[_BASELINE]["ms"])
    load = f"Load average of the machine while measuring: {times['machine']['load_average']}."
    return f"{markdown_table(head, rows)}\n\n{rounds} interleaved rounds. {_sentence(times['machine'])} {load}"


def _trainings(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "**Not run yet**: `python docs/programs/real_fields.py --data FOLDER` trains the networks."
    cells = []
    for kind in KINDS:
        found = [row for row in rows if row["kind"] == kind]
        if found:
            accuracies = [100 * row["accuracy"] for row in found]
            spread = f" ± {stdev(accuracies):.2f}" if len(found) > 1 else ""
            seconds = f"{mean(row['seconds'] for row in found):.0f}"
            epochs = ", ".join(sorted({str(row["epochs"]) for row in found}))
            numbers = [f"{found[0]['parameters']:,}", seconds, epochs, len(found)]
            cells.append([kind, f"{mean(accuracies):.2f}{spread}", *numbers])
    head = ["features", "test accuracy [%]", "parameters", "time [s]", "epochs", "runs"]
    return f"{markdown_table(head, cells)}\n\n{_sentence(rows[0]['machine'])}"


def _sentence(machine: dict[str, Any]) -> str:
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"
    return f"Measured on {machine['processor']}, {machine['cores']} cores, {threads}, torch {machine['torch']}."


_PAGE = """<!-- Written by `python docs/programs/real_fields.py`: change the program, not this page. -->
# Real and complex features in volumes

Irreps of SO(3) are real, so features, weights and attention scores of volumes can be real:
`FieldType(SO3, (16, 8, 4), real=True)`, or `model.real=true` for models and presets. The paper's features are complex.
A complex feature is two real ones, so two comparisons are of interest: at *equal multiplicities*, real fields have half
the channels; at *equal channels*, twice the multiplicities. [theory.md](theory.md#fields) explains the choice.

## Time

A training step is forward pass, backward pass and a step of AdamW, of layers between features with 16, 8 and 4 complex
copies of degrees 0, 1 and 2, and of two models. Columns of real features have the time relative to that of complex
ones: the median over rounds of the ratio of two steps of one round.

{times}

A direct convolution of complex fields takes three real convolutions, one of real fields takes one of the same size at
equal multiplicities, and one four times as large at equal channels. Real layers at equal channels have twice the
parameters: between the two parts of a complex feature, weights are tied. The spectral implementation, which the fixed
rule in sizes selects for the first row, transforms the kernel, too, and at equal channels that has four times as many
entries. Attention without an imaginary part of the scores saves little: the softmax and its products with values
remain.

## Accuracy

The network of `modelnet10-transformer-l3-cpu` (1,024 points of each object, trained on upright objects, tested on
rotated ones) with complex features and with real ones, all multiplicities and the head's features doubled at equal
channels.

{trainings}
"""


if __name__ == "__main__":
    main()
