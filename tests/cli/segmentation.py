"""Small runs that segment: balls in volumes, discs in images, two channels in files of their own."""

from contextlib import contextmanager

import nibabel
import numpy as np
import pytest
from PIL import Image

from steerformer import train
from steerformer.config import validate
from steerformer.train import ExperimentConfig

MODEL = {"kind": "unet", "degrees": 2, "widths": [[2], [4]], "kernel_size": 3, "num_heads": 2, "head": "scalar"}
TRAINING = {"epochs": 5, "batch_size": 2, "learning_rate": 0.05, "loss": "cross_entropy+dice", "threads": 1}


def scene(shape, *, seed):
    """A bright ball in a gray one on a dark ground, somewhat noisy, and the labels 1 and 2 of both."""
    random = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(*[np.arange(n) for n in shape], indexing="ij"), axis=-1)
    center = (np.array(shape) - 1) / 2 + random.uniform(-1, 1, size=len(shape))
    r = np.linalg.norm(places - center, axis=-1)
    labels = (r < 0.42 * min(shape)).astype(np.uint8) + (r < 0.22 * min(shape))
    return 100 * labels + random.uniform(0, 30, size=shape), labels.astype(np.uint8)


def write_volumes(root, count=6, shape=(14, 12, 13)):
    for name in ("images", "labels"):
        (root / name).mkdir(parents=True)
    for i in range(count):
        x, labels = scene(shape, seed=i)
        for name, array in (("images", x.astype(np.float32)), ("labels", labels)):
            nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), root / name / f"case{i}.nii.gz")
    return root


def write_images(root, count=6, shape=(20, 24)):
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for i in range(count):
        x, labels = scene(shape, seed=i)
        Image.fromarray(x.astype(np.uint8)).save(root / "images" / f"case{i}.png")
        Image.fromarray(np.where(labels > 0, 255, 0).astype(np.uint8)).save(root / "masks" / f"case{i}.png")
    return root


@contextmanager
def without_distances():
    """Distances of surfaces left out: they are MONAI's, which is an extra, and have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("steerformer.train.overlap.hd95", lambda *masks: 0.0)
        patch.setattr("steerformer.train.tasks.require_monai", lambda: None)
        yield


def run_on(folder, root, *, group, classes, training=None, model=None, **data):
    """Train on pairs of files."""
    values = {
        "model": MODEL | {"group": group, "classes": classes, **(model or {})},
        "data": {"name": "pairs", "root": root, "classes": classes, "validation": 1, "test": 2, **data},
        "training": TRAINING | (training or {}),
    }
    with without_distances():
        train.run(validate(ExperimentConfig, values, where="tests"), folder)
    return folder
