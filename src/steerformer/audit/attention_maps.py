"""Attention maps: the attention that each voxel receives."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.hooks import run_with_hooks
from steerformer.nn import Attention


def attention_maps(
    model: nn.Module, x: Float[Tensor, "batch channels *space"], *others: Tensor
) -> list[Float[Tensor, "batch head query *grid"]]:
    r"""For every attention layer, in order: the weights $a_{ij}$ of each query $i$, on the grid of the keys $j$.

    ``others`` are further inputs of the model, such as a context.
    """
    inputs: list[tuple[Attention, Tensor, Tensor | None]] = []

    def keep(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        assert isinstance(module, Attention)
        context = options.get("context", arguments[1] if len(arguments) > 1 else None)
        inputs.append((module, arguments[0], context if module.context_type else None))

    layers = [module for module in model.modules() if isinstance(module, Attention)]
    handles = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    run_with_hooks(model, x, handles, *others)
    with torch.no_grad():
        return [_weights(*call) for call in inputs]


def _weights(layer: Attention, features: Tensor, context: Tensor | None) -> Tensor:
    _, weights = layer(features, context, return_weights=True)  # batch, head, query voxel, key voxel
    return weights.unflatten(3, (features if context is None else context).shape[2:])


def received_attention(
    model: nn.Module, x: Float[Tensor, "batch channels *space"]
) -> list[Float[Tensor, "batch *grid"]]:
    r"""For every attention layer, in order: $\sum_i a_{ij}$, the mean over heads, at each voxel $j$ of its grid.

    A voxel that is attended to as much as all others has 1. The map is equivariant: it rotates with the input.
    """
    return [weights.mean(1).sum(1) for weights in attention_maps(model, x)]
