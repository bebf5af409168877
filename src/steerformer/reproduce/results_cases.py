"""The part of ``docs/results.md`` about segmentation: Dice and HD95 over whole cases, upright and turned."""

from collections.abc import Iterator

from steerformer.reproduce.kernels_page import markdown
from steerformer.reproduce.results import Record
from steerformer.train.cases import what_is_wrong, with_error
from steerformer.train.overlap import regions

PAPER_DICE: dict[tuple[str, bool, int], tuple[float, ...]] = {
    ("PH2", False, 4): (89.31,),
    ("PH2", False, 8): (89.63,),
    ("PH2", True, 4): (90.61,),
    ("PH2", True, 8): (90.72,),
    ("BraTS", False, 3): (73.29, 51.07, 74.43),
    ("BraTS", True, 3): (75.01, 54.89, 76.37),
}
"""Dice in the paper's table, %: data, attention or not, number of degrees; of BraTS enhancing, core and whole."""


def is_segmentation(record: Record) -> bool:
    """Whether the run labels voxels."""
    return record["config"]["model"]["kind"] in ("unet", "monai")


def cases_sections(records: dict[str, Record]) -> list[str]:
    """A table for each data set."""
    groups: dict[str, dict[str, Record]] = {}
    for run, record in records.items():
        if is_segmentation(record):
            groups.setdefault(_data(record), {})[run] = record
    return [f"## {title}\n\n{_NOTES.get(title, _NOTE)}\n\n{_table(title, group)}" for title, group in groups.items()]


def cases_line(found: Record) -> str:
    """The figures of one evaluation, and what was missed."""
    hd95 = with_error(found["hd95"], found["hd95_error"])
    first = f"Dice {_dice(found)} %, HD95 {hd95} {found['unit']} on {found['cases']} cases"
    return ". ".join([first, *what_is_wrong(found["structures"])]) + "."


def check_line(name: str, check: Record) -> str:
    """What turning cases does to the predictions, of the run and, if there was one, of a control beside it."""
    scenes = f", three random ones those of smooth scenes by {100 * check['scenes']:.1f} %" if "scenes" in check else ""
    control = check.get("control_run")
    command = f"steerformer check runs/{name}" + (f" --control runs/{control}" if control else "")
    text = (
        f"`{command}`: the grid's own rotations change the logits by {check['grid']['worst']:.1e} "
        f"at worst{scenes}. {_swept(check['sweep'])}, on {len(check['cases'])} cases."
    )
    return f"{text} Of {control or 'a control'}: {_swept(check['control'])}." if check.get("control") else text


def _swept(sweep: Record) -> str:
    """Extremes over all angles and axes."""
    scores = [score for axis in sweep["axes"].values() for score in axis] + sweep["random"]
    low, high = (100 * choose(score["dice"] for score in scores) for choose in (min, max))
    agreement = 100 * min(score["agreement"] for score in scores)
    return (
        f"Dice {100 * sweep['upright']:.1f} % upright and {low:.1f} to {high:.1f} % at {len(scores)} rotations, turned "
        f"back; agreement with the upright prediction at least {agreement:.1f} %"
    )


def _table(title: str, group: dict[str, Record]) -> str:
    names = list(dict.fromkeys(name for record in group.values() for name in _parts(record["metrics"], "test_")))
    names = names if len(names) > 1 else []
    rows = []
    for run, record in group.items():
        paper = PAPER_DICE.get((title, *_network(record))) if record["config"]["model"]["kind"] == "unet" else None
        size = f"{record['metrics']['complex_parameters']:,}", f"{record['metrics']['seconds'] / 60:.0f}"
        for turned, found in _tests(record):
            each = [_dice(part) for part in _chosen(found, names)]
            scores = _dice(found), *each, with_error(found["hd95"], found["hd95_error"])
            wrong = f"{found['missed']} / {found['invented']}"
            published = paper if paper and turned == "upright" else ()  # the paper turns no cases
            values = str(found["cases"]), *scores, wrong, " / ".join(f"{value:.2f}" for value in published)
            rows.append([f"[{run}](#{run})", turned, *values, *size])
    unit = "mm" if any(record["config"]["model"]["group"] == "SO3" for record in group.values()) else "pixels"
    figures = ["Dice, %", *(f"{name}, %" for name in names), f"HD95, {unit}", "missed / invented", "paper, %"]
    return markdown(["run", "tested on cases", "number", *figures, "parameters, complex as one", "minutes"], rows)


def _tests(record: Record) -> Iterator[tuple[str, Record]]:
    """Every test of a run that differs from its own in how cases were turned alone: that, and figures."""
    metrics, config = record["metrics"], record["config"]
    own = config["data"].get("test_rotation", "none")
    where = "turned in space" if config["model"]["group"] == "SO3" else "turned in the plane"
    if "test_dice" in metrics:
        found = {key.removeprefix("test_"): value for key, value in metrics.items() if key.startswith("test_")}
        yield where if own == "any" else "upright", found
    for evaluation in record["evaluations"].values():
        turn = evaluation["data"].get("test_rotation", "none")
        if evaluation["split"] == "test" and turn != own and _is_same(evaluation["data"], config["data"]):
            yield where if turn == "any" else "upright", evaluation


def _is_same(data: Record, other: Record) -> bool:
    """Whether all about the data is, but how test cases were turned and where the files lay.

    What only one of them knows is an option that came later.
    """
    keys = data.keys() & other.keys() - {"root", "test_rotation"}
    return all(data[key] == other[key] for key in keys)


def _parts(found: Record, prefix: str = "") -> Record:
    """Structures, and regions under names of their own."""
    structures, together = (found.get(f"{prefix}{kind}", {}) for kind in ("structures", "regions"))
    return structures | {f"region {name}" if name in structures else name: part for name, part in together.items()}


def _chosen(found: Record, names: list[str]) -> list[Record]:
    nothing = {"dice": None, "dice_error": None}
    return [_parts(found).get(name, nothing) for name in names]


def _data(record: Record) -> str:
    """What the data are called: of the Decathlon, by what is to be found."""
    name, classes = record["config"]["data"]["name"], record["metrics"]["classes"]
    if name == "decathlon" and [word.lower() for word in classes[1:]] == ["anterior", "posterior"]:
        return "Hippocampus"
    if name == "decathlon":
        return "BraTS" if regions(classes) else "Decathlon"
    return {"ph2": "PH2", "pairs": "Pairs"}[name]


def _network(record: Record) -> tuple[bool, int]:
    model = record["config"]["model"]
    return model.get("depth", 1) > 0, model.get("degrees", 0)


def _dice(found: Record) -> str:
    return with_error(found["dice"], found["dice_error"], scale=100)


_NOTE = (
    "Dice is the mean over classes and cases, ± one standard error over cases. HD95 is the distance within which 95 % "
    "of one surface lie from the other, the worse of both ways, by MONAI, mean over the cases that have both surfaces. "
    "A structure of which nothing was predicted is missed, one that is not there but was predicted is invented: both "
    "count with Dice 0 and have no distance. Turned cases are each turned by one random rotation, by cubic splines; "
    "runs were trained on cases as they stand, unless their command says otherwise."
)
_NOTES = {
    "PH2": (
        "Presets take photographs of 144 by 192 pixels, 100 to train, 50 to validate and 50 to test, drawn by a fixed "
        "seed; which ones the paper took is not known. They were trained on whole photographs, and turned ones lie in "
        "a frame with empty corners, where they find what is not there, the convolutions most: that is why Dice falls "
        "and HD95 grows, while the check, which looks at the photograph alone, hardly changes. " + _NOTE
    ),
    "Hippocampus": "Task 4 of the Medical Segmentation Decathlon: 260 cases, 60 / 20 / 20 %, by a fixed seed. " + _NOTE,
}
