"""Attention maps: the attention that each voxel receives."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.hooks import run_with_hooks
from steerformer.nn import Attention


def attention_maps(
    model: nn.Module, x: Float[Tensor, "batch channels *space"]
) -> list[Float[Tensor, "batch head query *grid"]]:
    r"""For every attention layer, in order: the weights $a_{ij}$ of each query $i$, on the grid of the keys $j$."""
    inputs: list[tuple[Attention, Tensor]] = []

    def keep(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        assert isinstance(module, Attention)
        inputs.append((module, arguments[0]))

    layers = [module for module in model.modules() if isinstance(module, Attention)]
    handles = [layer.register_forward_pre_hook(keep) for layer in layers]
    run_with_hooks(model, x, handles)
    with torch.no_grad():
        return [_weights(layer, features) for layer, features in inputs]


def _weights(layer: Attention, features: Tensor) -> Tensor:
    _, weights = layer(features, return_weights=True)  # batch, head, query voxel, key voxel
    return weights.unflatten(3, features.shape[2:])


def received_attention(
    model: nn.Module, x: Float[Tensor, "batch channels *space"]
) -> list[Float[Tensor, "batch *grid"]]:
    r"""For every attention layer, in order: $\sum_i a_{ij}$, the mean over heads, at each voxel $j$ of its grid.

    A voxel that is attended to as much as all others has 1. The map is equivariant: it rotates with the input.
    """
    return [weights.mean(1).sum(1) for weights in attention_maps(model, x)]
