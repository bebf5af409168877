"""Run folders without weights, as training, evaluation and checks write them."""

import json

from PIL import Image


def write_run(folder, *, data, finished=True, accuracy=0.75, evaluations=None, seed=0):
    """Write a run folder without weights."""
    folder.mkdir(parents=True)
    model = {"kind": "classifier", "group": "SO2", "size": 28, "degrees": 4, "depth": 1}
    values = {"model": model, "data": {"root": "/home/me/data", **data}, "training": {"batch_size": 50}, "seed": seed}
    (folder / "config.yaml").write_text(json.dumps(values))
    right = round(100 * accuracy)
    history = [{"epoch": i + 1, "train_accuracy": 0.5, "validation_accuracy": None} for i in range(2)]
    metrics = {
        **{"finished": finished, "epochs": 2, "best_epoch": 2, "seconds": 120.0, "history": history},
        **{"parameters": 1000, "complex_parameters": 600, "classes": ["a", "b"]},
        **{"test_accuracy": accuracy, "confusion": [[right, 100 - right], [0, 0]]},
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))
    command = ["/usr/bin/steerformer", "train", "x", "data.root=/home/me/data"]
    (folder / "environment.json").write_text(json.dumps({"command": command, "processor": "a CPU", "threads": 2}))
    for name, values in (evaluations or {}).items():
        (folder / f"evaluation-{name}.json").write_text(json.dumps(values))


def evaluation(data, accuracy, rotations=1):
    return {
        **{"split": "test", "rotations": rotations, "changes": ["data.root=/home/me/data"], "data": data},
        **{"samples": 400, "accuracy": accuracy, "standard_error": 0.01},
    }


def structure(dice, missed=()):
    return {
        **{"cases": 20, "dice": dice, "dice_error": 0.01, "hd95": 2.5, "hd95_error": 0.25},
        **{"missed": list(missed), "spurious": []},
    }


def write_segmentation(folder, *, model, data, classes, regions=(), dice=0.9, rotated=None, missed=()):
    """Write a run folder of a segmentation model without weights, and one evaluation with a figure."""
    write_run(folder, data=data)
    values = json.loads((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(json.dumps({**values, "model": model}))
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["confusion"], metrics["test_accuracy"]
    found = {
        **{"cases": 20, "dice": dice, "dice_error": 0.01, "hd95": 2.0, "hd95_error": 0.5},
        **{"missed": len(missed), "spurious": 1, "structures": {name: structure(dice, missed) for name in classes[1:]}},
        "regions": {name: structure(0.5) for name in regions},
    }
    metrics |= {f"test_{key}": value for key, value in found.items()} | {"classes": classes}
    metrics["history"] = [{"epoch": i, "train_dice": 0.5, "validation_dice": 0.25 * i} for i in (1, 2)]
    (folder / "metrics.json").write_text(json.dumps(metrics))
    if rotated is not None:
        values = {**found, "dice": rotated, "unit": "mm", "split": "test", "rotations": 1}
        values |= {"changes": ["data.test_rotation=any"], "data": {**data, "root": "/home/me", "test_rotation": "any"}}
        (folder / "evaluation-any.json").write_text(json.dumps(values))
        Image.new("RGB", (4, 4)).save(folder / "evaluation-any.png")


def sweep(*dice):
    scores = [{"agreement": 0.9 * value, "dice": value, "ceiling": 0.97} for value in dice]
    return {"upright": 0.91, "angles": [0.0, 45.0], "axes": {"z": scores[:2]}, "random": scores[2:]}


def write_check(folder):
    """Write ``check.json`` as ``steerformer check --control`` does."""
    values = {
        "cases": ["p1", "p2", "p3"],
        "grid": {"worst": 3e-6},
        "layers_grid": [],
        "layers_arbitrary": [{"total": 0.5}, {"total": 0.051}],
    }
    values |= {"sweep": sweep(0.9, 0.88, 0.89), "control": sweep(0.9, 0.25, 0.5), "control_run": "control"}
    (folder / "check.json").write_text(json.dumps(values))
