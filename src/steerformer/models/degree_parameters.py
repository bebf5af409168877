"""Number of parameters by degree."""

import math
from collections import Counter
from collections.abc import Iterator

from torch import nn

from steerformer.fields import FieldType
from steerformer.nn import BatchNorm, Conv, ConvTranspose, Gated, LayerNorm, Linear, NormReLU, PositionalEncoding

_PER_COPY = (BatchNorm, Gated, LayerNorm, NormReLU, PositionalEncoding)


def parameters_per_degree(module: nn.Module) -> dict[int | None, int]:
    """Count the real parameters of a layer or model by the degree of the features that they give.

    A parameter belongs to the degree of its layer's output that it changes; layers inside others, such as the linear
    layers of attention, count by their own output. A weight of :class:`Conv` from degree 1 to degree 0 belongs to
    degree 0, and so do the convolutions of gates. ``None`` has the rest: parameters of layers without field types,
    such as a head of ``torch.nn.Linear``. The numbers add up to all parameters of the module; shared ones count once.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO3, "8x0+4x1+2x2")
    >>> sf.models.parameters_per_degree(sf.nn.Linear(features, features))  # 2 * 8 * 8, 2 * 4 * 4, 2 * 2 * 2
    {0: 128, 1: 32, 2: 8}
    """
    known = {id(parameter): counts for layer in module.modules() for parameter, counts in _attributed(layer)}
    total: Counter[int | None] = Counter()
    for parameter in module.parameters():
        total.update(known.get(id(parameter), {None: parameter.numel()}))
    return dict(sorted(total.items(), key=lambda item: math.inf if item[0] is None else item[0]))


def _attributed(layer: nn.Module) -> Iterator[tuple[nn.Parameter, dict[int, int]]]:
    """Parameters of the layer itself, each with its numbers by degree."""
    if isinstance(layer, Conv | ConvTranspose | Linear) and layer.bias is not None:
        yield layer.bias, {0: layer.bias.numel()}
    if isinstance(layer, Linear):
        for degree, weight in zip(layer.shared, layer.weights, strict=True):
            yield weight, {degree: weight.numel()}
    elif isinstance(layer, Conv | ConvTranspose):
        counts: Counter[int] = Counter()
        for (degree, _), shape in zip(layer.basis.pairs, layer.basis.weight_shapes, strict=True):
            counts[degree] += layer.groups * layer.basis.weight_parts * math.prod(shape)
        yield layer.weight, +counts  # without degrees that no kernel reaches
    elif isinstance(layer, _PER_COPY):
        for parameter in layer.parameters(recurse=False):
            yield parameter, _by_copy(layer.out_type, parameter)


def _by_copy(field_type: FieldType, parameter: nn.Parameter) -> dict[int, int]:
    """Numbers by degree of a parameter whose last axis has an entry for each copy, or for each scalar only."""
    copies = parameter.shape[-1]
    each = parameter.numel() // copies
    if copies == field_type.multiplicity(0):
        return {0: parameter.numel()}
    return {degree: each * field_type.multiplicity(degree) for degree in field_type.degrees}
