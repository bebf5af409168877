"""Segmentation in ``docs/results.md``: Dice and HD95 of whole cases, upright and rotated."""

from collections.abc import Iterator

from steerformer.audit import DiceSweep, SweepScores
from steerformer.metrics.case_scores import missed_or_spurious
from steerformer.metrics.overlap import tumor_regions
from steerformer.metrics.statistics import with_error
from steerformer.reproduce.markdown import markdown_table
from steerformer.reproduce.results import Record

PAPER_DICE: dict[tuple[str, bool, int], tuple[float, ...]] = {
    ("PH2", False, 4): (89.31,),
    ("PH2", False, 8): (89.63,),
    ("PH2", True, 4): (90.61,),
    ("PH2", True, 8): (90.72,),
    ("BraTS", False, 3): (73.29, 51.07, 74.43),
    ("BraTS", True, 3): (75.01, 54.89, 76.37),
}
"""Dice in the paper's table, in %, by data, attention and number of degrees; BraTS: enhancing, core and whole."""


def is_segmentation_record(record: Record) -> bool:
    """Whether a record is of a segmentation run."""
    return record["config"]["model"]["kind"] in ("unet", "monai")


def segmentation_sections(records: dict[str, Record]) -> list[str]:
    """A section with a table for each data set."""
    groups: dict[str, dict[str, Record]] = {}
    for run, record in records.items():
        if is_segmentation_record(record):
            groups.setdefault(_data(record), {})[run] = record
    return [f"## {title}\n\n{_NOTES.get(title, _NOTE)}\n\n{_table(title, group)}" for title, group in groups.items()]


def evaluation_line(found: Record) -> str:
    """Metrics of one evaluation, and the cases with missed or spurious structures."""
    hd95 = with_error(found["hd95"], found["hd95_error"])
    first = f"Dice {_dice(found)} %, HD95 {hd95} {found['unit']} on {found['cases']} cases"
    return ". ".join([first, *missed_or_spurious(found["structures"])]) + "."


def check_line(name: str, check: Record) -> str:
    """Results of an equivariance check, of the run and, if given, of its control."""
    scenes = check.get("scenes")
    random = "" if scenes is None else f", on smooth scenes at three random rotations {100 * scenes:.1f} %"
    control = check.get("control_run")
    command = f"steerformer check runs/{name}" + (f" --control runs/{control}" if control else "")
    text = (
        f"`{command}`: relative change of the logits under rotations of the grid at most "
        f"{check['grid']['worst']:.1e}{random}. {_extremes(check['sweep'])}, on {len(check['cases'])} cases."
    )
    return f"{text} {control or 'Control'}: {_extremes(check['control'])}." if check.get("control") else text


def dice_sweeps(name: str, check: Record) -> dict[str, DiceSweep]:
    """The Dice sweeps of a check, of the run and of its control, by the names of the runs."""
    sweeps = {name: check["sweep"]}
    if check.get("control"):
        sweeps[check.get("control_run") or "control"] = check["control"]
    return {run: _dice_sweep(sweep) for run, sweep in sweeps.items()}


def _dice_sweep(sweep: Record) -> DiceSweep:
    axes = {axis: [SweepScores(**scores) for scores in row] for axis, row in sweep["axes"].items()}
    return DiceSweep(sweep["upright"], sweep["angles"], axes, [SweepScores(**scores) for scores in sweep["random"]])


def _extremes(sweep: Record) -> str:
    """Smallest and largest Dice over all rotations."""
    scores = [score for axis in sweep["axes"].values() for score in axis] + sweep["random"]
    low, high = (100 * choose(score["dice"] for score in scores) for choose in (min, max))
    agreement = 100 * min(score["agreement"] for score in scores)
    return (
        f"Dice {100 * sweep['upright']:.1f} % upright and {low:.1f} to {high:.1f} % at {len(scores)} rotations, with "
        f"predictions rotated back; Dice with the upright prediction at least {agreement:.1f} %"
    )


def _table(title: str, group: dict[str, Record]) -> str:
    names = list(dict.fromkeys(name for record in group.values() for name in _parts(record["metrics"], "test_")))
    names = names if len(names) > 1 else []
    rows = []
    for run, record in group.items():
        paper = PAPER_DICE.get((title, *_network(record))) if record["config"]["model"]["kind"] == "unet" else None
        size = f"{record['metrics']['complex_parameters']:,}", f"{record['metrics']['seconds'] / 60:.0f}"
        for rotation, found in segmentation_tests(record):
            each = [_dice(part) for part in _chosen(found, names)]
            scores = _dice(found), *each, with_error(found["hd95"], found["hd95_error"])
            wrong = f"{found['missed']} / {found['spurious']}"
            published = paper if paper and rotation == "upright" else ()  # the paper does not rotate cases
            values = str(found["cases"]), *scores, wrong, " / ".join(f"{value:.2f}" for value in published)
            rows.append([f"[{run}](#{run})", rotation, *values, *size])
    unit = "mm" if any(record["config"]["model"]["group"] == "SO3" for record in group.values()) else "pixels"
    metrics = ["Dice [%]", *(f"{name} [%]" for name in names), f"HD95 [{unit}]", "missed / spurious", "paper [%]"]
    head = ["run", "test cases", "number", *metrics, "parameters (complex as one)", "time [min]"]
    return markdown_table(head, rows)


def segmentation_tests(record: Record) -> Iterator[tuple[str, Record]]:
    """Rotation of the cases and metrics, for the run's own test and those that differ in the rotation only."""
    metrics, config = record["metrics"], record["config"]
    own = config["data"].get("test_rotation", "none")
    rotated = "rotated in 3D" if config["model"]["group"] == "SO3" else "rotated in 2D"
    if "test_dice" in metrics:
        found = {key.removeprefix("test_"): value for key, value in metrics.items() if key.startswith("test_")}
        yield rotated if own == "any" else "upright", found
    for evaluation in record["evaluations"].values():
        rotation = evaluation["data"].get("test_rotation", "none")
        if evaluation["split"] == "test" and rotation != own and _is_same(evaluation["data"], config["data"]):
            yield rotated if rotation == "any" else "upright", evaluation


def _is_same(data: Record, other: Record) -> bool:
    """Whether two data configurations agree except for the test rotation and the path.

    Keys that only one of them has belong to a later version.
    """
    keys = data.keys() & other.keys() - {"root", "test_rotation"}
    return all(data[key] == other[key] for key in keys)


def _parts(found: Record, prefix: str = "") -> Record:
    """Structures and regions; a region with the name of a structure is marked."""
    structures, regions = (found.get(f"{prefix}{kind}", {}) for kind in ("structures", "regions"))
    return structures | {f"region {name}" if name in structures else name: part for name, part in regions.items()}


def _chosen(found: Record, names: list[str]) -> list[Record]:
    nothing = {"dice": None, "dice_error": None}
    return [_parts(found).get(name, nothing) for name in names]


def _data(record: Record) -> str:
    """Title of the data set; tasks of the Decathlon are recognized by their classes."""
    name, classes = record["config"]["data"]["name"], record["metrics"]["classes"]
    if name == "decathlon" and [word.lower() for word in classes[1:]] == ["anterior", "posterior"]:
        return "Hippocampus"
    if name == "decathlon":
        return "BraTS" if tumor_regions(classes) else "Decathlon"
    return {"ph2": "PH2", "pairs": "Pairs"}[name]


def _network(record: Record) -> tuple[bool, int]:
    model = record["config"]["model"]
    return model.get("depth", 1) > 0, model.get("degrees", 0)


def _dice(found: Record) -> str:
    return with_error(found["dice"], found["dice_error"], scale=100)


_NOTE = (
    "Dice: mean over classes and cases ± standard error over cases. HD95: 95th-percentile Hausdorff distance by MONAI, "
    "mean over the cases that have both surfaces. A structure without any predicted voxel is missed (false negative); "
    "a predicted structure without any true voxel is spurious (false positive): both count with Dice 0 and have no "
    "distance. Rotated cases have one random rotation each, interpolated by cubic splines; runs were trained on "
    "upright cases unless their command says otherwise."
)
_NOTES = {
    "PH2": (
        "Photographs of 144 x 192 pixels: 100 for training, 50 for validation and 50 for testing, drawn with a fixed "
        "seed; the split of the paper is not known. Rotated photographs have empty corners. The networks were trained "
        "on patches that reach over the edges of the photographs, and so learned that nothing is there; trained on "
        "whole photographs, all of them, the control most, find lesions in the corners. " + _NOTE
    ),
    "Hippocampus": "Task 4 of the Medical Segmentation Decathlon: 260 cases, split 60 / 20 / 20 % with a fixed seed. "
    + _NOTE,
}
