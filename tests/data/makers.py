"""Small files in the formats of MNIST and ModelNet10."""

import gzip
import struct

import numpy as np

from steerformer.data.point_clouds import CLASSES


def digits(count, *, seed=0):
    """Different smooth blobs on a black background, and labels."""
    random = np.random.default_rng(seed)
    places = np.arange(28)
    images = np.zeros((count, 28, 28))
    for image in images:
        for _ in range(3):
            y, x = random.uniform(8, 20, size=2)
            image += np.exp(-((places[:, None] - y) ** 2 + (places[None] - x) ** 2) / 6)
    images = (255 * images / images.max(axis=(1, 2), keepdims=True)).astype(np.uint8)
    return images, random.integers(0, 10, size=count).astype(np.uint8)


def idx(array):
    """The bytes of an idx file."""
    return struct.pack(f">{1 + array.ndim}i", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_idx(root, train=30, test=10, *, gzipped=True):
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    arrays = (*digits(train, seed=1), *digits(test, seed=2))
    root.mkdir(parents=True, exist_ok=True)
    for name, array in zip(names, arrays, strict=True):
        (root / (f"{name}.gz" if gzipped else name)).write_bytes(gzip.compress(idx(array)) if gzipped else idx(array))
    return arrays


def write_npz(path, train=30, test=10, **changes):
    (a, b), (c, d) = digits(train, seed=1), digits(test, seed=2)
    arrays = {"train_images": a, "train_labels": b, "test_images": c, "test_labels": d} | changes
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: array for key, array in arrays.items() if array is not None})
    return path


def write_amat(root, train=6, test=4):
    root.mkdir(parents=True, exist_ok=True)
    written = []
    for name, count, seed in (("train_valid", train, 1), ("test", test, 2)):
        images, labels = digits(count, seed=seed)
        rows = np.concatenate([images.reshape(count, -1) / 255, labels[:, None]], axis=1)
        text = "\n".join("   ".join(f"{value:.7e}" for value in row) for row in rows)
        (root / f"mnist_all_rotation_normalized_float_{name}.amat").write_text(text + "\n")
        written += [images, labels]
    return written


def clouds(count, points=64, *, seed=0):
    """Random point clouds and labels."""
    random = np.random.default_rng(seed)
    return random.normal(size=(count, points, 3)).astype(np.float32), np.arange(count).astype(np.uint8) % 10


def write_clouds(path, train=20, test=10, **changes):
    (a, b), (c, d) = clouds(train, seed=1), clouds(test, seed=2)
    arrays = {"train_points": a, "train_labels": b, "test_points": c, "test_labels": d} | changes
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: array for key, array in arrays.items() if array is not None})
    return path


BOX = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], dtype=float)
SIDES = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))


def off(size=(1, 1, 1), *, header="OFF\n", triangles=True):
    """A box as .off text, with two triangles or one square per side."""
    faces = [f for a, b, c, d in SIDES for f in ((a, b, c), (a, c, d))] if triangles else SIDES
    lines = [f"{header}{len(BOX)} {len(faces)} 0"]
    lines += [" ".join(map(str, vertex)) for vertex in BOX * size]
    lines += [" ".join(map(str, (len(face), *face))) for face in faces]
    return "\n".join(lines) + "\n"


def write_meshes(root, train=2, test=1):
    random = np.random.default_rng(0)
    for name in CLASSES:
        for split, count in (("train", train), ("test", test)):
            folder = root / "ModelNet10" / name / split
            folder.mkdir(parents=True)
            for number in range(count):
                header = "OFF" if number else "OFF\n"  # some official files lack the line break
                (folder / f"{name}_{number:04d}.off").write_text(off(random.uniform(1, 3, size=3), header=header))
    return root
