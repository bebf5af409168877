"""Which task an experiment is, and whether its model, its data and its training fit together."""

from statistics import median

from steerformer.config import ConfigError
from steerformer.data import Cases, Samples, Splits
from steerformer.models import Model
from steerformer.models.config import ModelConfig, MonaiUNetConfig, UNetConfig
from steerformer.train.classification import Classification
from steerformer.train.config import ExperimentConfig
from steerformer.train.losses import loss_parts
from steerformer.train.overlap import require_monai
from steerformer.train.segmentation import Segmentation
from steerformer.train.task import Task

_ALIKE = 1.1
"""Voxels may be longer than the model takes them to be by so much, one way against another, without a word."""


def segments(config: ModelConfig) -> bool:
    """Whether the model has an answer for every voxel, rather than one for the whole sample."""
    return isinstance(config, UNetConfig | MonaiUNetConfig)


def make_task(experiment: ExperimentConfig, classes: tuple[str, ...]) -> Task:
    """The task of the experiment's model."""
    kind = Segmentation if segments(experiment.model) else Classification
    return kind(experiment.training, classes)


def require_fit(model: Model, splits: Splits, experiment: ExperimentConfig) -> None:
    """A :class:`ConfigError` where the model cannot take the samples or name their classes."""
    config, training = experiment.model, experiment.training
    _require_task(splits, experiment)
    if len(splits.classes) != config.classes:
        raise ConfigError(f"model.classes is {config.classes}, but the data have {len(splits.classes)} classes.")
    found, dim = tuple(splits.train[0][0].shape), model.in_type.group.dim
    if isinstance(config, UNetConfig | MonaiUNetConfig):
        expected = f"({config.in_channels}, {', '.join('any' for _ in range(dim))})"
        fits = found[0] == config.in_channels and len(found) == 1 + dim
    else:
        shape = (config.in_channels, *[config.size] * dim)
        expected, fits = str(shape), found == shape
    if not fits:
        raise ConfigError(f"the model takes samples of shape {expected}, but the data have {found} (channels, space).")
    if training.patience and not len(splits.validation):
        raise ConfigError("training.patience needs samples to validate on; set data.validation to their number.")


def voxel_note(splits: Splits, experiment: ExperimentConfig) -> str | None:
    """A line where voxels have other proportions than the model takes them to have; ``None`` where all is well."""
    model, cases = experiment.model, splits.train
    if not isinstance(model, UNetConfig) or not isinstance(cases, Cases):
        return None
    found = [median(sizes) for sizes in zip(*(cases.spacing(i) for i in range(len(cases))), strict=True)]
    taken = model.spacing or (1.0,) * len(found)
    ratios = [size / expected for size, expected in zip(found, taken, strict=True)]
    if max(ratios) <= _ALIKE * min(ratios):
        return None
    sizes, says = (" x ".join(f"{size:g}" for size in each) for each in (found, taken))
    other = f"data.spacing={min(found):g}" + (" and data.size=null" if cases.config.size else "")
    return (
        f"voxels are {sizes}{' mm' if len(found) == 3 else ''}, but model.spacing says {says}: rotations are then not "
        f"those of space; set model.spacing=[{','.join(f'{size:g}' for size in found)}] or {other}."
    )


def _require_task(splits: Splits, experiment: ExperimentConfig) -> None:
    kind, name = experiment.model.kind, experiment.data.name
    if segments(experiment.model) and isinstance(splits.train, Samples):
        raise ConfigError(f"model.kind={kind} labels voxels, but data.name={name} has one label for each sample.")
    if not segments(experiment.model) and not isinstance(splits.train, Samples):
        raise ConfigError(f"model.kind={kind} labels whole samples, but data.name={name} has a label for each voxel.")
    if not segments(experiment.model) and "dice" in loss_parts(experiment.training.loss):
        raise ConfigError(f"training.loss={experiment.training.loss} is for segmentation; take cross_entropy or focal.")
    if segments(experiment.model):
        require_monai()  # now, and not after hours of training
