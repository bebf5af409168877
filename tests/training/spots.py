"""A tiny segmentation experiment: images with bright spots, and a U-Net with attention, dropout and EMA."""

import numpy as np
from PIL import Image

from steerformer.runs import ExperimentConfig

MODEL = {
    **{"kind": "unet", "group": "SO2", "classes": 2, "degrees": 2, "widths": [[2], [2]], "kernel_size": 3},
    **{"depth": 1, "num_heads": 2, "attention_dropout": 0.2, "head": "scalar"},
}
TRAINING = {
    **{"epochs": 2, "batch_size": 2, "learning_rate": 0.05, "ema": 0.5, "threads": 1, "loss": "cross_entropy+dice"},
    "checkpoint_every": 1e-9,
}
STEPS = 3  # per epoch: 6 training cases in batches of 2


def write_spots(root, count=10):
    """Images of several shapes, named case00, case01, ..., with their masks."""
    random = np.random.default_rng(0)
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for number in range(count):
        shape = 14 + number % 3, 16
        rows, columns = np.indices(shape)
        mask = (rows - random.integers(4, 10)) ** 2 + (columns - random.integers(4, 12)) ** 2 <= 9
        image = random.integers(0, 60, shape) + 150 * mask
        Image.fromarray(image.astype(np.uint8)).save(root / "images" / f"case{number:02}.png")
        Image.fromarray((255 * mask).astype(np.uint8)).save(root / "masks" / f"case{number:02}.png")
    return root


def values(root, *, model=None, data=None, **training):
    """The experiment as in a YAML file."""
    pairs = {
        "name": "pairs",
        "root": str(root),
        "patch_size": 12,
        "classes": ["background", "spot"],
        "train_rotation": "any",
    }
    return {"model": MODEL | (model or {}), "data": pairs | (data or {}), "training": TRAINING | training, "seed": 1}


def experiment(root, **changes):
    return ExperimentConfig.model_validate(values(root, **changes))
