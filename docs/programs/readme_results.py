"""The table of results in README.md, from docs/results.json: ``python docs/programs/readme_results.py``."""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steerformer.io.atomic import write_atomic
from steerformer.reproduce.markdown import markdown_table

ROOT = Path(__file__).parents[2]
MARKERS = re.compile(r"(<!-- results -->\n).*?(<!-- /results -->)", re.DOTALL)
ROWS = (
    ("Hippocampus MRI, {cases} scans, Dice", "steerable transformer U-Net", "hippocampus-transformer-l2-cpu"),
    ("", "steerable transformer U-Net", "hippocampus-transformer-l2-rotated-cpu"),
    ("", "MONAI UNet", "hippocampus-monai-cpu"),
    ("", "MONAI UNet", "hippocampus-monai-rotated-cpu"),
    ("", "MONAI DynUNet", "hippocampus-dynunet-rotated-cpu"),
    ("PH2 skin lesions, {cases} photographs, Dice", "steerable transformer U-Net", "ph2-transformer-k4-cpu"),
    ("", "MONAI UNet", "ph2-monai-cpu"),
    ("Rotated MNIST, {cases} digits, accuracy", "steerable transformer", "rotmnist-transformer-k4-cpu"),
    ("ModelNet10, {cases} objects, accuracy", "steerable transformer", "modelnet10-transformer-l3-cpu"),
)
ROTATED = ("any", "so3")


def results_table(records: dict[str, Any]) -> str:
    """A row for each run: its score on upright and on randomly rotated test samples, and what it cost."""
    rows = []
    for data, network, name in ROWS:
        record = records[name]
        scores = dict(_scores(record))
        cells = [f"{100 * scores[key]:.1f} %" if key in scores else "-" for key in ("upright", "rotated")]
        metrics = record["metrics"]
        count = metrics.get("test_cases") or sum(map(sum, metrics["confusion"]))
        cost = f"{metrics['parameters']:,}", f"{metrics['seconds'] / 60:.0f}"
        rows.append(
            [data.format(cases=f"{count:,}"), f"{network}, trained {_trained(record['config']['data'])}", *cells, *cost]
        )
    return markdown_table(["test data", "network", "upright", "rotated", "parameters", "minutes"], rows)


def update(page: str, records: dict[str, Any]) -> str:
    """The page with the table between its markers."""
    return MARKERS.sub(lambda match: f"{match[1]}{results_table(records)}\n{match[2]}", page)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    records = json.loads((ROOT / "docs" / "results.json").read_text())
    readme = ROOT / "README.md"
    write_atomic(readme, update(readme.read_text(), records))


def _trained(data: dict[str, Any]) -> str:
    if data.get("train_rotation") not in ROTATED:
        return "upright"
    return "rotated" if data.get("train_rotated", 1) == 1 else "upright and rotated"


def _scores(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    metrics, own = record["metrics"], record["config"]["data"].get("test_rotation", "none")
    tests = [(own, metrics.get("test_dice", metrics.get("test_accuracy")))]
    for evaluation in record["evaluations"].values():
        if evaluation["split"] == "test" and evaluation["rotations"] == 1:
            rotation = evaluation["data"].get("test_rotation", "none")
            tests.append((rotation, evaluation.get("dice", evaluation.get("accuracy"))))
    for rotation, score in tests:
        if rotation in ("none", *ROTATED):
            yield ("rotated" if rotation in ROTATED else "upright"), score


if __name__ == "__main__":
    main()
