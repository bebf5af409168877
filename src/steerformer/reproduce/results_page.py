"""Writes ``docs/results.md`` from the records of :mod:`steerformer.reproduce.results`; no figure is typed in."""

import json
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from steerformer import models, plots
from steerformer.audit import standard_error
from steerformer.files import write_whole
from steerformer.models.summary import count
from steerformer.reproduce.kernels_page import markdown
from steerformer.reproduce.results import PAPER, PAPER_PARAMETERS, Record
from steerformer.reproduce.results_cases import cases_line, cases_sections, check_line, is_segmentation

_TURNED = {"any": "turned in the plane", "upright": "upright", "z": "turned about z", "so3": "turned in space"}


def write_page(folder: Path) -> Path:
    """Render ``results.json`` of a folder into ``results.md`` and ``images/results-*.png``."""
    records: dict[str, Record] = json.loads((folder / "results.json").read_text())
    (folder / "images").mkdir(exist_ok=True)
    page = folder / "results.md"
    sections = [_data_section(name, records) for name in ("rotmnist", "modelnet10", "folder")]
    text = _PAGE.format(
        figures="\n\n".join([*filter(None, sections), *cases_sections(records)]),
        presets=presets_table(),
        runs="\n\n".join(_run_section(name, record, folder / "images") for name, record in records.items()),
    )
    write_whole(page, text)
    return page


def presets_table() -> str:
    """Parameters of every preset beside the paper's."""
    rows = []
    for name in models.presets():
        experiment = models.preset(name)
        if experiment["model"]["kind"] == "monai" and find_spec("monai") is None:
            rows.append([f"`{name}`", "needs MONAI", "", "", ""])
            continue
        real, complex_as_one = _parameters(name)
        paper = PAPER_PARAMETERS.get(_kind(experiment)) if "paper" in name else None
        far = f"{complex_as_one / 1e4 / paper - 100:+.1f} %" if paper else ""
        counts = f"{real:,}", f"{complex_as_one:,}"
        rows.append([f"`{name}`", *counts, f"{paper:.2f} M" if paper else "", far])
    return markdown(["preset", "real parameters", "complex as one", "paper", "difference"], rows)


@cache
def _parameters(name: str) -> tuple[int, int]:
    """Of a preset, without a run through it, which takes long in space."""
    return count(models.build(name))


def _kind(experiment: Record) -> tuple[str, bool, int]:
    model = experiment["model"]
    return (
        experiment["data"]["name"],
        model.get("depth", 0 if model["kind"] in ("cnn", "monai") else 1) > 0,
        model.get("degrees", 0),
    )


def _turn(data: Record) -> str:
    """How test samples are turned."""
    if data["name"] == "rotmnist":
        return "any" if data.get("rotate_test", True) else "upright"
    return str(data.get("test_rotation", "none")).replace("none", "upright")


def _grid(data: Record) -> str:
    """How the grid stands to the objects; runs from before there was a choice have it aligned."""
    return str(data.get("grid", "aligned"))


def _tests(record: Record) -> Iterator[tuple[str, int, Record]]:
    """Every test of a run: how samples were turned, over how many rotations it was averaged, and figures."""
    metrics = record["metrics"]
    if "test_accuracy" in metrics:
        count = sum(map(sum, metrics["confusion"]))
        yield _turn(record["config"]["data"]), 1, {**metrics, "samples": count, "accuracy": metrics["test_accuracy"]}
    for evaluation in record["evaluations"].values():
        own, data = record["config"]["data"], evaluation["data"]
        turn, is_other = _turn(data), _grid(data) != _grid(own)
        if evaluation["split"] == "test" and (is_other or (turn, evaluation["rotations"]) != (_turn(own), 1)):
            yield turn, evaluation["rotations"], {**evaluation, "grid": _grid(data) if is_other else None}


def _data_section(name: str, records: dict[str, Record]) -> str:
    rows = []
    for run, record in records.items():
        kind = _kind(record["config"])
        if kind[0] != name:
            continue
        for turn, rotations, found in _tests(record):
            accuracy, error = 100 * found["accuracy"], 100 * standard_error(found["accuracy"], found["samples"])
            other = found.get("grid")
            has_peer = rotations == 1 and not other and record["config"]["model"]["kind"] == "classifier"
            paper = PAPER.get((*kind, turn)) if has_peer else None
            tested = _TURNED[turn] + (f", mean of {rotations} rotations" if rotations > 1 else "")
            tested += f", {other} grid" if other else ""
            counts = f"{record['metrics']['complex_parameters']:,}", f"{record['metrics']['seconds'] / 60:.0f}"
            values = f"{found['samples']:,}", f"{accuracy:.2f} ± {error:.2f}", f"{paper:.2f}" if paper else ""
            rows.append([f"[{run}](#{run})", tested, *values, *counts])
    if not rows:
        return ""
    head = ["run", "tested on samples", "number", "accuracy, %", "paper, %", "parameters, complex as one", "minutes"]
    return f"## {_TITLES[name]}\n\n{_NOTES[name]}\n\n{markdown(head, rows)}"


def _run_section(name: str, record: Record, images: Path) -> str:
    metrics, environment = record["metrics"], record["environment"]
    score = "Dice" if is_segmentation(record) else "accuracy"
    history = metrics["history"]
    curves = {
        label: [epoch[f"{key}_{score.lower()}"] for epoch in history]
        for label, key in (("training", "train"), ("validation", "validation"))
        if any(epoch.get(f"{key}_{score.lower()}") is not None for epoch in history)
    }
    plots.save(plots.learning_curves(curves, label=f"{score}, %"), images / f"results-{name}-curves.png")
    lines = [f"### {name}", f"```\n{_command(environment)}\n```", _facts(record)]
    lines.append(f"![{score} after each epoch](images/results-{name}-curves.png)")
    if "confusion" in metrics:
        file = f"results-{name}-confusion.png"
        plots.save(plots.confusion(metrics["confusion"], metrics["classes"]), images / file)
        lines.append(f"![who is taken for whom](images/{file})")
    for stem, evaluation in record["evaluations"].items():
        changes = " ".join(evaluation["changes"])
        option = f" --rotations {evaluation['rotations']}" if evaluation["rotations"] > 1 else ""
        found = cases_line(evaluation) if is_segmentation(record) else _samples_line(evaluation)
        lines.append(f"`steerformer evaluate runs/{name} {changes}{option}`: {found}".replace(" `:", "`:"))
        if f"{stem}.png" in record.get("pictures", ()):
            lines.append(f"![the best, the median and the worst case](images/results-{name}-{stem}.png)")
    if record["check"]:
        lines.append(check_line(name, record["check"]) if is_segmentation(record) else _check(name, record["check"]))
    if "check.png" in record.get("pictures", ()):
        lines.append(f"![Dice against angle](images/results-{name}-check.png)")
    return "\n\n".join(line.replace("  ", " ") for line in lines)


def _samples_line(evaluation: Record) -> str:
    error = f"{100 * evaluation['accuracy']:.2f} ± {100 * evaluation['standard_error']:.2f} %"
    return f"{error} on {evaluation['samples']:,} samples."


def _command(environment: Record) -> str:
    words = environment.get("command") or ["steerformer", "train"]
    program = "steerformer" if words[0] in ("__main__.py", "steerformer") else words[0]
    return " ".join([program, *words[1:]])


def _facts(record: Record) -> str:
    metrics, environment, training = record["metrics"], record["environment"], record["config"]["training"]
    where = f"{environment.get('processor', 'an unknown processor')}, {environment.get('threads', '?')} threads"
    if environment.get("gpus"):
        where = ", ".join(environment["gpus"])
    return (
        f"A single run, seed {record['config']['seed']}: {metrics['epochs']} epochs of batches of "
        f"{training['batch_size']} in {metrics['seconds'] / 60:.0f} minutes on {where}, torch "
        f"{environment.get('packages', {}).get('torch', '?')}; {metrics['parameters']:,} real parameters; best epoch "
        f"{metrics['best_epoch']}."
    )


def _check(name: str, check: Record) -> str:
    low = {axis: min(values) for axis, values in check["accuracy"].items()}
    high = {axis: max(values) for axis, values in check["accuracy"].items()}
    spans = ", ".join(f"{100 * low[axis]:.1f} to {100 * high[axis]:.1f} % ({axis})" for axis in low)
    return (
        f"`steerformer check runs/{name}`: the grid's own rotations change the logits by {check['grid']['worst']:.1e} "
        f"at worst, random rotations of interpolated samples by {check['arbitrary']['mean']:.2f} on average, and "
        f"{100 * check['arbitrary']['agreement']:.1f} % of the predictions stay; accuracy at {len(check['angles'])} "
        f"angles from {min(check['angles']):g} to {max(check['angles']):g} degrees is {spans}, on {check['samples']} "
        f"samples."
    )


_TITLES = {"rotmnist": "Rotated MNIST", "modelnet10": "ModelNet10", "folder": "Folders"}
_NOTES = {
    "rotmnist": (
        "Runs tested on 50,000 digits did not use the original files of Rotated MNIST: the set was made from MNIST, "
        "62,000 distinct digits drawn from its 70,000 with a fixed seed, 12,000 to train and 50,000 to test, one "
        "rotation each, uniform over the circle. It is as large as the original and made in the same way; its digits "
        "and angles are others."
    ),
    "modelnet10": (
        "Trained on objects that all stand alike, never turned, at most 3,991, and tested on 908: in the same pose, "
        "turned about the vertical, or by any rotation of space, one rotation for each object. The clouds of these "
        "runs have 1,024 points; the paper's have 2,048, and it turns voxels by nearest neighbors. Where "
        "`data.grid` is `tilted`, as in the `cpu` presets, all objects are turned against the grid by one rotation, "
        "35 degrees about the diagonal, in training and in tests: on an aligned grid the surfaces of upright "
        "objects lie along voxels, a network learns from that, and reads turned objects worse. The paper's grid is "
        "aligned, so its figures are for other inputs."
    ),
    "folder": "Data of one's own.",
}
_PAGE = """<!-- Written by `steerformer reproduce results`: change the program, not this page. -->
# Results

Accuracy and Dice are those of single runs, one seed each; the standard error beside them says how far they would move
with other test samples, not with another training. The paper's figures come from networks several times larger,
trained for hours on GPUs; ours, where the preset ends in `cpu`, from two CPU cores and about an hour. So read the
difference as what is within reach of a laptop, not as which method is better.

{figures}

## Presets and their size

The paper counts a complex parameter as one; in memory it is two real ones. It gives no widths: those of the presets
named `paper` were chosen so that the counts agree.

{presets}

## Runs

{runs}
"""
