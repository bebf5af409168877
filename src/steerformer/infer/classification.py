"""Classification of data sets, files and arrays: logits, probabilities, averages over rotations."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from steerformer.data import read_sample
from steerformer.data.preprocessing import fit_to_grid
from steerformer.fields import FieldType
from steerformer.groups import Group
from steerformer.infer.inputs import Input, array_scan, modality_files
from steerformer.io.errors import DataError
from steerformer.io.scans import Scan
from steerformer.models.config import ClassifierConfig, CNNConfig
from steerformer.models.eval_mode import eval_mode, reference_parameter
from steerformer.runs.run_folder import RunFolder


def classify(
    model: nn.Module, dataset: Any, *, batch_size: int = 256, progress: Callable[[int], object] | None = None
) -> Float[Tensor, "sample class"]:
    """Logits of all samples, in order and in eval mode; on the CPU, whatever the device of the model.

    Args:
        dataset: samples ``(x, label)``; labels are not used.
        progress: called after each batch with its number of samples.
    """
    like = reference_parameter(model)
    # its own generator: the loader would otherwise draw from the global random numbers, which training needs
    loader = DataLoader(dataset, batch_size=batch_size, generator=torch.Generator())
    logits = []
    with eval_mode(model):
        for x, _ in loader:
            logits.append(model(x.to(like)).cpu())
            if progress:
                progress(len(x))
    return torch.cat(logits)


def rotation_averaged_probabilities(
    model: nn.Module,
    dataset: Dataset[Any],
    rotations: Sequence[Tensor],
    *,
    mode: str = "bilinear",
    batch_size: int = 256,
    progress: Callable[[int], None] = lambda samples: None,
) -> tuple[Tensor, Tensor, float]:
    """Test-time averaging: mean softmax over ``rotations`` of each sample, ``(sample, class)``, labels, mean accuracy.

    Probabilities are averaged, not logits: a single overconfident rotation cannot outvote the others. The mean
    accuracy is that of single predictions, as the paper reports.
    """
    like, in_type = reference_parameter(model), model.in_type
    assert isinstance(in_type, FieldType)
    means, labels, correct = [], [], 0
    with eval_mode(model):
        for x, targets in DataLoader(dataset, batch_size=batch_size):
            x = x.to(like)
            views = [model(in_type.rotate(x, R, mode=mode)).softmax(1) for R in rotations]
            means.append(torch.stack(views).mean(0).cpu())
            labels.append(torch.as_tensor(targets))
            correct += sum(int((view.argmax(1).cpu() == labels[-1]).sum()) for view in views)
            progress(len(x))
    return torch.cat(means), torch.cat(labels), correct / (len(rotations) * sum(map(len, labels)))


def equally_spaced_rotations(group: Group, count: int) -> list[Tensor]:
    """``count`` rotations by multiples of 360/count degrees, the identity first; for volumes about the last axis,
    which is the vertical in the paper and on grids that are not tilted."""
    axis = None if group.dim == 2 else (0.0, 0.0, 1.0)
    return [group.rotation(2 * math.pi * i / count, axis) for i in range(count)]


@dataclass(frozen=True)
class Prediction:
    """The class of one input and the probability of every class."""

    name: str
    label: str
    probabilities: dict[str, float]


def predict_classes(
    run: RunFolder, x: Float[Tensor, "batch channels *space"], names: Sequence[str]
) -> list[Prediction]:
    """Predictions for a batch of inputs."""
    with eval_mode(run.model):
        rows = run.model(x.to(reference_parameter(run.model))).softmax(1).tolist()
    return [
        Prediction(name, run.classes[row.index(max(row))], dict(zip(run.classes, row, strict=True)))
        for name, row in zip(names, rows, strict=True)
    ]


def classify_inputs(
    run: RunFolder, items: Sequence[Input], *, spacing: Sequence[float] | None = None
) -> list[Prediction]:
    """Predictions for files or arrays (channels, \\*space), resized to the model's input.

    ``spacing`` is the voxel spacing of arrays. A :class:`DataError` for an input that cannot be used.
    """
    predictions: list[Prediction] = []
    for number, item in enumerate(items):
        files = modality_files(item)
        if files is None:
            name = f"array {number}"
            x = _resize(run, array_scan(item, run.model, spacing, name=name))  # type: ignore[arg-type]
        elif len(files) == 1:
            name, x = str(files[0]), read_input(run, files[0])
        else:
            raise DataError(f"{files[0]} is one of {len(files)} modalities, but a classifier takes one file per input.")
        predictions += predict_classes(run, x[None], [name])
    return predictions


def read_input(run: RunFolder, path: Path) -> Tensor:
    """A file as the model of a run takes it; a :class:`DataError` if it cannot be used."""
    size, dim = _input_size(run), run.model.in_type.group.dim
    x = read_sample(path, size=size, channels=run.model.config.in_channels, normalize=_normalization(run))
    if x.ndim != 1 + dim:
        kinds = {2: "an image", 3: "a volume"}
        raise DataError(f"{path} is {kinds[x.ndim - 1]}, but the model takes {kinds[dim]}.")
    return x


def _resize(run: RunFolder, scan: Scan) -> Tensor:
    """An array as :func:`~steerformer.data.read_sample` gives a file with the same values."""
    deviation = float(scan.x.std()) if scan.kind == "volume" and _normalization(run) == "std" else 0.0
    return fit_to_grid(scan.x / deviation if deviation > 0 else scan.x, _input_size(run), scan.spacing)


def _input_size(run: RunFolder) -> int:
    config = run.model.config
    assert isinstance(config, ClassifierConfig | CNNConfig)
    return config.size


def _normalization(run: RunFolder) -> str:
    return getattr(run.config.data, "normalize", "none")
