"""Write ``docs/results.md`` and its figures from the records of :mod:`steerformer.reproduce.results`."""

import json
from functools import cache
from pathlib import Path

from steerformer import models
from steerformer.config import ConfigError, validate
from steerformer.io.atomic import write_atomic
from steerformer.metrics.statistics import binomial_error
from steerformer.models.summary import count
from steerformer.plots.confusion import confusion_figure
from steerformer.plots.curves import learning_curves
from steerformer.plots.equivariance import dice_sweep_figure
from steerformer.plots.style import save_figure
from steerformer.reproduce.markdown import markdown_table
from steerformer.reproduce.results import (
    PAPER,
    PAPER_PARAMETERS,
    Record,
    classification_tests,
    collect,
    copy_figures,
    save_records,
)
from steerformer.reproduce.results_seeds import ROTATION_WORDS, seeds_section
from steerformer.reproduce.results_segmentation import (
    check_line,
    dice_sweeps,
    evaluation_line,
    is_segmentation_record,
    segmentation_sections,
)
from steerformer.runs import ExperimentConfig, load_experiment


def reproduce_results(out: Path, runs: Path | None = None) -> Path:
    """Collect the run folders below ``runs``, if given, in ``results.json`` of ``out``, and write ``results.md``."""
    out.mkdir(parents=True, exist_ok=True)
    if runs is not None:
        found = collect(runs)
        copy_figures(runs, found, out / "images")
        save_records(found, out / "results.json")
    return write_page(out)


def write_page(folder: Path) -> Path:
    """Render ``results.json`` of a folder into ``results.md`` and ``images/results-*.png``."""
    records: dict[str, Record] = json.loads((folder / "results.json").read_text())
    (folder / "images").mkdir(exist_ok=True)
    page = folder / "results.md"
    sections = [_data_section(name, records) for name in ("rotmnist", "modelnet10", "folder")]
    text = _PAGE.format(
        tables="\n\n".join(filter(None, [*sections, *segmentation_sections(records), seeds_section(records)])),
        presets=presets_table(),
        runs="\n\n".join(_run_section(name, record, folder / "images") for name, record in records.items()),
    )
    write_atomic(page, text)
    return page


def presets_table() -> str:
    """Parameter counts of every preset, with those of the paper."""
    rows = []
    for name in models.presets():
        experiment = models.preset(name)
        real, complex_as_one = _parameters(name)
        paper = PAPER_PARAMETERS.get(_kind(experiment)) if "paper" in name else None
        difference = f"{complex_as_one / 1e4 / paper - 100:+.1f} %" if paper else ""
        counts = f"{real:,}", f"{complex_as_one:,}"
        rows.append([f"`{name}`", *counts, f"{paper:.2f} M" if paper else "", difference])
    return markdown_table(["preset", "real parameters", "complex as one", "paper", "difference"], rows)


@cache
def _parameters(name: str) -> tuple[int, int]:
    """Parameter counts of a preset; without a forward pass, which takes long in 3D."""
    return count(models.build(name))


def _kind(experiment: Record) -> tuple[str, bool, int]:
    model = experiment["model"]
    return (
        experiment["data"]["name"],
        model.get("depth", 0 if model["kind"] in ("cnn", "monai") else 1) > 0,
        model.get("degrees", 0),
    )


def _data_section(name: str, records: dict[str, Record]) -> str:
    rows = []
    for run, record in records.items():
        kind = _kind(record["config"])
        if kind[0] != name:
            continue
        for rotation, rotations, found in classification_tests(record):
            accuracy, error = 100 * found["accuracy"], 100 * binomial_error(found["accuracy"], found["samples"])
            other = found.get("grid")
            has_peer = rotations == 1 and not other and record["config"]["model"]["kind"] == "classifier"
            paper = PAPER.get((*kind, rotation)) if has_peer else None
            tested = ROTATION_WORDS[rotation] + (f", mean of {rotations} rotations" if rotations > 1 else "")
            tested += f", {other} grid" if other else ""
            counts = f"{record['metrics']['complex_parameters']:,}", f"{record['metrics']['seconds'] / 60:.0f}"
            values = f"{found['samples']:,}", f"{accuracy:.2f} ± {error:.2f}", f"{paper:.2f}" if paper else ""
            rows.append([f"[{run}](#{run})", tested, *values, *counts])
    if not rows:
        return ""
    head = ["run", "test samples", "number", "accuracy [%]", "paper [%]", "parameters (complex as one)", "time [min]"]
    return f"## {_TITLES[name]}\n\n{_NOTES[name]}\n\n{markdown_table(head, rows)}"


def _run_section(name: str, record: Record, images: Path) -> str:
    metrics, environment = record["metrics"], record["environment"]
    score = "Dice" if is_segmentation_record(record) else "accuracy"
    history = metrics["history"]
    curves = {
        label: [epoch[f"{key}_{score.lower()}"] for epoch in history]
        for label, key in (("training", "train"), ("validation", "validation"))
        if any(epoch.get(f"{key}_{score.lower()}") is not None for epoch in history)
    }
    save_figure(learning_curves(curves, label=f"{score} [%]"), images / f"results-{name}-curves.png")
    lines = [f"### {name}", f"```\n{_command(environment)}\n```", _facts(record)]
    if _is_of_earlier_preset(record):
        lines.append("The preset has changed since: today the command trains another network, or in another way.")
    lines.append(f"![{score.capitalize()} after each epoch](images/results-{name}-curves.png)")
    if "confusion" in metrics:
        file = f"results-{name}-confusion.png"
        save_figure(confusion_figure(metrics["confusion"], metrics["classes"]), images / file)
        lines.append(f"![Confusion matrix](images/{file})")
    for stem, evaluation in record["evaluations"].items():
        changes = " ".join(evaluation["changes"])
        option = f" --rotations {evaluation['rotations']}" if evaluation["rotations"] > 1 else ""
        found = evaluation_line(evaluation) if is_segmentation_record(record) else _samples_line(evaluation)
        lines.append(f"`steerformer evaluate runs/{name} {changes}{option}`: {found}".replace(" `:", "`:"))
        if f"{stem}.png" in record.get("pictures", ()):
            lines.append(f"![Best, median and worst case](images/results-{name}-{stem}.png)")
    if record["check"]:
        lines.append(
            check_line(name, record["check"]) if is_segmentation_record(record) else _check(name, record["check"])
        )
    if record["check"] and is_segmentation_record(record):
        file = f"results-{name}-check.png"
        save_figure(dice_sweep_figure(dice_sweeps(name, record["check"])), images / file)
        lines.append(f"![Dice against rotation angle; thin lines: single axes](images/{file})")
    return "\n\n".join(line.replace("  ", " ") for line in lines)


def _samples_line(evaluation: Record) -> str:
    error = f"{100 * evaluation['accuracy']:.2f} ± {100 * evaluation['standard_error']:.2f} %"
    return f"{error} on {evaluation['samples']:,} samples."


def _command(environment: Record) -> str:
    words = environment.get("command") or ["steerformer", "train"]
    program = "steerformer" if words[0] in ("__main__.py", "steerformer") else words[0]
    return " ".join([program, *words[1:]])


def _is_of_earlier_preset(record: Record) -> bool:
    """Whether the command of a run gives another configuration with the presets of today."""
    words = record["environment"].get("command") or []
    if len(words) < 3 or words[2] not in models.presets():
        return False
    overrides = [word for word in words[3:] if "=" in word and not word.startswith("-")]
    try:
        today = load_experiment(words[2], overrides)
        then: ExperimentConfig = validate(ExperimentConfig, record["config"], where=words[2])
    except ConfigError:
        return True
    ignored = {"data": {"root"}}
    return today.model_dump(exclude=ignored) != then.model_dump(exclude=ignored)


def _facts(record: Record) -> str:
    metrics, environment, training = record["metrics"], record["environment"], record["config"]["training"]
    where = f"{environment.get('processor', 'an unknown processor')}, {_threads(environment)}"
    if environment.get("gpus"):
        where = ", ".join(environment["gpus"])
    return (
        f"Single run, seed {record['config']['seed']}: {metrics['epochs']} epochs, batch size "
        f"{training['batch_size']}, {metrics['seconds'] / 60:.0f} minutes on {where}, torch "
        f"{environment.get('packages', {}).get('torch', '?')}; {metrics['parameters']:,} real parameters; best epoch "
        f"{metrics['best_epoch']}."
    )


def _threads(environment: Record) -> str:
    threads = environment.get("threads", "?")
    return f"{threads} thread{'s' * (threads != 1)}"


def _check(name: str, check: Record) -> str:
    low = {axis: min(values) for axis, values in check["accuracy"].items()}
    high = {axis: max(values) for axis, values in check["accuracy"].items()}
    spans = ", ".join(f"{100 * low[axis]:.1f} to {100 * high[axis]:.1f} % ({axis})" for axis in low)
    return (
        f"`steerformer check runs/{name}`: relative change of the logits under rotations of the grid at most "
        f"{check['grid']['worst']:.1e}, under random rotations of interpolated samples "
        f"{check['arbitrary']['mean']:.2f} on average, where {100 * check['arbitrary']['agreement']:.1f} % of the "
        f"predictions stay the same; accuracy at {len(check['angles'])} angles from {min(check['angles']):g} to "
        f"{max(check['angles']):g} degrees: {spans}, on {check['samples']} samples."
    )


_TITLES = {"rotmnist": "Rotated MNIST", "modelnet10": "ModelNet10", "folder": "Image folders"}
_NOTES = {
    "rotmnist": (
        "Runs tested on 50,000 digits did not use the original files of Rotated MNIST. Their data set was generated "
        "from MNIST in the same way and size: 62,000 distinct digits drawn from its 70,000 with a fixed seed, 12,000 "
        "for training and validation and 50,000 for testing, each rotated by one uniformly random angle. Its digits "
        "and angles differ from the original."
    ),
    "modelnet10": (
        "Trained on at most 3,991 upright objects without rotation augmentation and tested on 908: upright, rotated "
        "about the vertical axis, or rotated in 3D, one rotation for each object. The point clouds of these runs have "
        "1,024 points; those of the paper have 2,048, and it rotates voxels by nearest-neighbor interpolation. Where "
        "`data.grid` is `tilted`, as in the `cpu` presets, all objects are rotated against the grid by 35 degrees "
        "about the diagonal, in training and in tests: on an aligned grid the surfaces of upright objects lie along "
        "voxels, a network learns from that, and its accuracy on rotated objects drops. The paper's grid is aligned, "
        "so its results are for other inputs."
    ),
    "folder": "Custom data.",
}
_PAGE = """<!-- Written by `steerformer reproduce results`: change the program, not this page. -->
# Results

Accuracy and Dice of single runs; the standard error is over test samples and does not include the variation over
trainings. Runs that were repeated with other seeds are summarized under *Several seeds*. The paper's networks are
several times larger and were trained for hours on GPUs; ours, where the preset ends in `cpu`, for minutes to about an
hour on one CPU thread (column *time*). So the difference to the paper shows what a laptop can reach, not which method
is better.

{tables}

## Parameter counts of the presets

The paper counts a complex parameter as one; in memory it is two real ones. The paper gives no widths: those of the
presets named `paper` were chosen so that the counts agree.

{presets}

## Runs

{runs}
"""
