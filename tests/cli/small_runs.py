"""Small runs: classifiers of bars and spots, and segmentation models of nested balls and disks."""

import nibabel
import numpy as np
from PIL import Image

import steerformer as sf

SIZE = 12
CLASSIFIERS = {
    "steerable": {"kind": "classifier", "degrees": 2, "widths": [[2], [4]], "num_heads": 2, "features": 8, "hidden": 8},
    "plain": {"kind": "cnn", "widths": [[4], [4]], "kernel_size": 3, "hidden": 8},
}
UNET = {"kind": "unet", "degrees": 2, "widths": [[2], [4]], "kernel_size": 3, "num_heads": 2, "head": "scalar"}
TRAINING = {"epochs": 5, "batch_size": 2, "learning_rate": 0.05, "loss": "cross_entropy+dice", "threads": 1}


def write_classes(root, count=10):
    """A folder with images of bars and one with images of spots, on a dark noisy background."""
    for kind in ("bar", "spot"):
        (root / kind).mkdir()
        for i in range(count):
            image = np.random.default_rng(i).integers(0, 40, (SIZE, SIZE), dtype=np.uint8)
            image[(slice(5, 7), slice(1, 11)) if kind == "bar" else (slice(4, 8), slice(4, 8))] = 230
            Image.fromarray(image).save(root / kind / f"{i}.png")
    return root


def classifier_config(kind, root):
    """A classification experiment as in a YAML file."""
    return {
        "model": {"group": "SO2", "size": SIZE, "classes": 2, **CLASSIFIERS[kind]},
        "data": {"name": "folder", "root": root, "size": SIZE, "validation": 0.3, "test": 0.3},
        "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.01, "threads": 1},
    }


def scene(shape, *, seed):
    """A bright ball in a gray one on a dark noisy background, and their labels 2 and 1."""
    random = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(*[np.arange(n) for n in shape], indexing="ij"), axis=-1)
    center = (np.array(shape) - 1) / 2 + random.uniform(-1, 1, size=len(shape))
    r = np.linalg.norm(places - center, axis=-1)
    labels = (r < 0.42 * min(shape)).astype(np.uint8) + (r < 0.22 * min(shape))
    return 100 * labels + random.uniform(0, 30, size=shape), labels.astype(np.uint8)


def write_volumes(root, count=6, shape=(14, 12, 13)):
    """Volumes with labels of three classes."""
    for name in ("images", "labels"):
        (root / name).mkdir(parents=True)
    for i in range(count):
        x, labels = scene(shape, seed=i)
        for name, array in (("images", x.astype(np.float32)), ("labels", labels)):
            nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), root / name / f"case{i}.nii.gz")
    return root


def write_disks(root, count=6, shape=(20, 24)):
    """Images with masks."""
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for i in range(count):
        x, labels = scene(shape, seed=i)
        Image.fromarray(x.astype(np.uint8)).save(root / "images" / f"case{i}.png")
        Image.fromarray(np.where(labels > 0, 255, 0).astype(np.uint8)).save(root / "masks" / f"case{i}.png")
    return root


def segmentation_config(root, *, group, classes, training=None, model=None, **data):
    """A segmentation experiment as in a YAML file, on a folder of pairs."""
    return {
        "model": UNET | {"group": group, "classes": classes, **(model or {})},
        "data": {"name": "pairs", "root": root, "classes": classes, "normalize": "nonzero", "validation": 1, "test": 2}
        | data,
        "training": TRAINING | (training or {}),
    }


def train(folder, config):
    """Train and return the run folder."""
    return sf.train(config, out=folder).folder
