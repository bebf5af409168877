"""Small NIfTI files with various affines, images, masks and whole data sets."""

import json

import nibabel
import numpy as np
from PIL import Image
from scipy.spatial.transform import Rotation

OBLIQUE = Rotation.from_euler("xyz", (20, -35, 50), degrees=True).as_matrix()
_DIRECTIONS = {
    "right": np.eye(3),
    "flipped": np.diag([-1.0, -1.0, 1.0]),
    "mirrored": np.diag([-1.0, 1.0, 1.0]),  # left-handed, as many scanners write
    "permuted": np.array([[0.0, 0, -1], [1, 0, 0], [0, 1, 0]]),
    "oblique": OBLIQUE,
    "oblique mirrored": OBLIQUE @ np.diag([1.0, 1.0, -1.0]),
}
AFFINES = tuple(_DIRECTIONS)


def affine(kind="right", spacing=(1.0, 1.0, 1.0)):
    """An affine with axes in another order or direction, or oblique."""
    found = np.eye(4)
    found[:3, :3] = _DIRECTIONS[kind] @ np.diag(spacing)
    found[:3, 3] = (-12.5, 30.25, 7.0)
    return found


def write_nifti(path, array, matrix=None, **fields):
    """Write a volume with units, a description and ``fields`` in its header."""
    image = nibabel.Nifti1Image(array, affine() if matrix is None else matrix)
    image.header.set_xyzt_units("mm", "sec")
    image.header["descrip"] = b"an anonymous scan"
    for name, value in fields.items():
        image.header[name] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(image, path)
    return path


def numbers(shape, *, seed=0, kind=np.float32):
    """Random numbers from 0 to 1000."""
    return (1000 * np.random.default_rng(seed).uniform(size=shape)).astype(kind)


def blobs(shape, *, seed=0, classes=3):
    """A smooth volume or image that is 0 at its border, and labels that increase with it."""
    random = np.random.default_rng(seed)
    positions = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"), axis=-1)
    center = random.uniform(-0.2, 0.2, size=len(shape))
    height = np.clip(1 - 1.4 * np.linalg.norm(positions - center, axis=-1), 0, None)
    return height.astype(np.float32), np.ceil(height * (classes - 1) - 1e-9).clip(0, classes - 1).astype(np.uint8)


def write_decathlon(root, count=6, *, shape=(9, 10, 8), modalities=1, classes=3, **changes):
    """Write a task of the Decathlon with volumes of slightly different shapes."""
    training = []
    for number in range(count):
        size = tuple(n + number % 2 for n in shape)
        height, labels = blobs(size, seed=number, classes=classes)
        channels = np.stack([height * (2 + i) for i in range(modalities)], axis=-1)
        name = f"case_{number:03d}.nii.gz"
        write_nifti(root / "imagesTr" / name, channels[..., 0] if modalities == 1 else channels)
        write_nifti(root / "labelsTr" / name, labels)
        training.append({"image": f"./imagesTr/{name}", "label": f"./labelsTr/{name}"})
    values = {
        "name": "Blobs",
        "modality": {str(i): f"M{i}" for i in range(modalities)},
        "labels": {str(i): ("background", "rim", "core", "more")[i] for i in range(classes)},
        "training": training,
        "test": ["./imagesTs/case_999.nii.gz"],
    }
    (root / "dataset.json").write_text(json.dumps({k: v for k, v in (values | changes).items() if v is not None}))
    return root


def photograph(seed, shape=(12, 16)):
    """A color image and its mask."""
    height, mask = blobs(shape, seed=seed, classes=2)
    pixels = np.stack([255 * height, 200 * height + 20, 100 * height + 50], axis=-1)
    return pixels.astype(np.uint8), mask


def write_ph2(root, count=6):
    """Write the layout of the PH2 archive: 1-bit masks, and one in color, as in the archive."""
    for number in range(count):
        name = f"IMD{number:03d}"
        pixels, mask = photograph(number, (12 + number % 2, 16))
        case = root / "PH2 Dataset images" / name
        (case / f"{name}_Dermoscopic_Image").mkdir(parents=True)
        (case / f"{name}_lesion").mkdir()
        Image.fromarray(pixels).save(case / f"{name}_Dermoscopic_Image" / f"{name}.bmp")
        image = Image.fromarray(255 * np.stack([mask] * 3, axis=-1) if number == 0 else mask > 0)
        image.save(case / f"{name}_lesion" / f"{name}_lesion.bmp")
    return root


def write_ph2_npz(path, count=6, **changes):
    """Write PH2 as an .npz file; masks have 8 pixels per byte."""
    pairs = [photograph(number, (12, 20)) for number in range(count)]
    images, masks = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    arrays = {"images": images, "masks": np.packbits(masks, axis=2), "ids": [f"IMD{n:03d}" for n in range(count)]}
    np.savez(path, **{key: value for key, value in (arrays | changes).items() if value is not None})
    return images, masks


def write_pairs(root, count=5, *, kind="png", classes=2, folders=("images", "masks"), ending=""):
    """Write a folder of images and a folder of masks."""
    for folder in folders:
        (root / folder).mkdir(parents=True)
    for number in range(count):
        name = f"scan{number}"
        image, mask = root / folders[0] / f"{name}.{kind}", root / folders[1] / f"{name}{ending}.{kind}"
        if kind == "png":
            pixels, labels = photograph(number)
            Image.fromarray(pixels[..., 0]).save(image)
            Image.fromarray(255 * labels).save(mask)
        else:
            height, labels = blobs((8, 9, 10), seed=number, classes=classes)
            for path, array in ((image, height), (mask, labels)):
                np.save(path, array) if kind == "npy" else write_nifti(path, array)
    return root
