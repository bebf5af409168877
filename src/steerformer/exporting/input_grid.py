"""Inputs to export a model with and to compare the file on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.models.classifier import Classifier
from steerformer.models.cnn import CNN
from steerformer.models.monai_unet import MonaiUNet
from steerformer.models.unet import UNet
from steerformer.nn.ops import per_axis

_COARSEST = 3  # voxels of the coarsest grid along each axis: torch.export treats 1 as a special case


@dataclass(frozen=True, eq=False)
class InputGrid:
    """Channels and grid of the inputs of an exported file.

    Args:
        channels: channels of an input.
        space: voxels along each axis; those of the example if any number fits.
        free_size: whether any number fits.
        step: voxels of the input for one voxel of the coarsest grid.
        inputs: real inputs, if given.
    """

    channels: int
    space: tuple[int, ...]
    free_size: bool
    step: int
    inputs: Tensor | None

    def example(self) -> Tensor:
        """Two inputs; torch.export would take a batch of one for a fixed size."""
        return torch.zeros(2, self.channels, *self.space)

    def samples(self) -> Iterator[Tensor]:
        """Inputs to compare with: the real ones, and noise in other batch sizes and on odd and even grids."""
        random = torch.Generator().manual_seed(0)
        if self.inputs is not None:
            yield self.inputs
        shapes = [(1, self.space), (3, self.space)]
        if self.free_size:
            smaller = [max(n - self.step, 2 * self.step) for n in self.space]
            shapes = [(1, tuple(smaller)), (2, tuple(n + 1 for n in reversed(smaller)))]
        for batch, space in shapes:
            yield torch.randn(batch, self.channels, *space, generator=random)


def input_grid(
    model: nn.Module, inputs: Tensor | None, *, size: int | Sequence[int] | None, free_size: bool | None
) -> InputGrid:
    """The inputs that a model takes; ``ValueError`` if neither it nor the arguments say their size."""
    image = _in_type(model)
    if inputs is not None:
        _require_inputs(inputs, image)
        space = tuple(inputs.shape[2:])
    else:
        space = _space(model, image.group.dim) if size is None else per_axis(size, image.group.dim, "size")
    step = model.stride if isinstance(model, UNet | MonaiUNet) else 1
    given = None if inputs is None else inputs.detach().cpu().float()
    return InputGrid(image.channels, space, _is_free(model, free_size), step, given)


def _require_inputs(inputs: Tensor, image: FieldType) -> None:
    if inputs.ndim != 2 + image.group.dim or inputs.shape[1] != image.channels or not len(inputs):
        axes = ", ".join(["batch", str(image.channels), *(f"axis {i}" for i in range(image.group.dim))])
        raise ValueError(f"inputs have shape ({axes}), got {tuple(inputs.shape)}.")


def _space(model: nn.Module, dim: int) -> tuple[int, ...]:
    """Voxels along each axis that the model takes, or a small grid if it takes any number."""
    if isinstance(model, Classifier | CNN):
        return (model.config.size,) * dim
    if isinstance(model, UNet | MonaiUNet):
        return _window(model) or tuple(_COARSEST * model.stride + 2 * i + 2 for i in range(dim))
    raise ValueError("the model does not say the size of its input; give size, such as size=32, or inputs.")


def _is_free(model: nn.Module, wanted: bool | None) -> bool:
    """Whether the file takes grids of any size."""
    if wanted and isinstance(model, Classifier | CNN):
        raise ValueError("a classifier has a grid of fixed size; leave free_size out.")
    if wanted and _window(model):
        raise ValueError(f"the model predicts in windows of {_window(model)}, one for its file; leave free_size out.")
    return isinstance(model, UNet | MonaiUNet) and not _window(model) if wanted is None else wanted


def _window(model: nn.Module) -> tuple[int, ...] | None:
    """Sides of the windows in which a network of MONAI predicts."""
    return model.config.window if isinstance(model, MonaiUNet) else None


def _in_type(model: nn.Module) -> FieldType:
    """Type of the input: that of the model or of its first layer that has one."""
    for module in model.modules():
        if isinstance(found := getattr(module, "in_type", None), FieldType):
            return found
    raise ValueError("the model and its layers have no in_type; set model.in_type to the type of its input.")
