"""Whether the model, the data and the training of an experiment fit together."""

from statistics import median

from steerformer.config import ConfigError
from steerformer.data import ClassificationDataset, SegmentationDataset, Splits
from steerformer.models import Model
from steerformer.models.config import ModelConfig, UNetConfig
from steerformer.models.monai_config import MonaiUNetConfig
from steerformer.runs.config import ExperimentConfig, loss_terms

_SPACING_TOLERANCE = 1.1
"""Largest ratio between the proportions of the voxels and of model.spacing without a warning."""


def is_segmentation(config: ModelConfig) -> bool:
    """Whether the model labels every voxel, rather than the whole sample."""
    return isinstance(config, UNetConfig | MonaiUNetConfig)


def require_compatible(model: Model, splits: Splits, experiment: ExperimentConfig) -> None:
    """Raise a :class:`ConfigError` if the model, the data and the training do not fit together."""
    config, training = experiment.model, experiment.training
    _require_same_task(splits, experiment)
    if len(splits.classes) != config.classes:
        count = len(splits.classes)
        raise ConfigError(
            f"model.classes is {config.classes}, but the data have {count} classes; set model.classes={count}."
        )
    found, dim = tuple(splits.train[0][0].shape), model.in_type.group.dim
    if isinstance(config, UNetConfig | MonaiUNetConfig):
        expected = f"({config.in_channels}, {', '.join('any' for _ in range(dim))})"
        fits = found[0] == config.in_channels and len(found) == 1 + dim
        advice = "model.in_channels and model.group"
    else:
        shape = (config.in_channels, *[config.size] * dim)
        expected, fits = str(shape), found == shape
        advice = "model.in_channels and model.size" + (", or data.size" if hasattr(experiment.data, "size") else "")
    if not fits:
        raise ConfigError(
            f"the model takes samples of shape {expected}, but the data have {found} (channels, space); set {advice}."
        )
    if training.patience and not len(splits.validation):
        raise ConfigError("training.patience needs validation samples; set data.validation to their number.")


def spacing_warning(splits: Splits, experiment: ExperimentConfig) -> str | None:
    """One line if the proportions of the voxels differ from those of ``model.spacing``; else ``None``."""
    model, cases = experiment.model, splits.train
    if not isinstance(model, UNetConfig) or not isinstance(cases, SegmentationDataset):
        return None
    found = [median(sizes) for sizes in zip(*(cases.spacing(i) for i in range(len(cases))), strict=True)]
    assumed = model.spacing or (1.0,) * len(found)
    ratios = [size / expected for size, expected in zip(found, assumed, strict=True)]
    if max(ratios) <= _SPACING_TOLERANCE * min(ratios):
        return None
    sizes, says = (" x ".join(f"{size:g}" for size in each) for each in (found, assumed))
    other = f"data.spacing={min(found):g}" + (" and data.size=null" if cases.config.size else "")
    return (
        f"voxels are {sizes}{' mm' if len(found) == 3 else ''}, but model.spacing says {says}, so the network is not "
        f"equivariant in physical space; set model.spacing=[{','.join(f'{size:g}' for size in found)}] or {other}."
    )


def _require_same_task(splits: Splits, experiment: ExperimentConfig) -> None:
    kind, name = experiment.model.kind, experiment.data.name
    if is_segmentation(experiment.model) and isinstance(splits.train, ClassificationDataset):
        raise ConfigError(f"model.kind={kind} labels voxels, but data.name={name} has one label per sample.")
    if not is_segmentation(experiment.model) and not isinstance(splits.train, ClassificationDataset):
        raise ConfigError(f"model.kind={kind} labels whole samples, but data.name={name} has a label for each voxel.")
    if not is_segmentation(experiment.model) and "dice" in loss_terms(experiment.training.loss):
        raise ConfigError(f"training.loss={experiment.training.loss} is for segmentation; use cross_entropy or focal.")
