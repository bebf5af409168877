"""Every layer, with each option that changes its code path: what the generic tests walk through."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import steerformer as sf
from steerformer import SO2, FieldType
from steerformer.fields import permute_axes
from steerformer.groups import Group

SIZES = (7, 6, (5, 6, 7))  # odd, even, not square


def image(group: Group) -> FieldType:
    return FieldType.image(group, 2)


def features(group: Group) -> FieldType:
    return FieldType(group, (2, 1, 1))


def gapped(group: Group) -> FieldType:
    """Degree 2 is missing, and degree 3 the last."""
    return FieldType(group, (1, 2, 0, 1))


def vectors(group: Group) -> FieldType:
    """No scalars."""
    return FieldType(group, "2x1")


def many(group: Group) -> FieldType:
    """Degrees so far apart that no small kernel joins the first and the last."""
    return FieldType(group, (1, 2, 1, 1, 1, 1, 1) if group is SO2 else (1, 1, 0, 0, 1, 1))


def conv(kernel_size: int, into=features, out=gapped, **options) -> Callable[[Group], nn.Module]:
    return lambda group: sf.nn.Conv(into(group), out(group), kernel_size=kernel_size, **options)


def mixing(layer: type, into=features, out=gapped, **options) -> Callable[[Group], nn.Module]:
    return lambda group: layer(into(group), out(group), **options)


def keeping(layer: type, of=gapped, **options) -> Callable[[Group], nn.Module]:
    return lambda group: layer(of(group), **options)


_POINTWISE = {
    "Linear": mixing(sf.nn.Linear),
    "Linear-image-in": mixing(sf.nn.Linear, into=image),
    "Linear-image-out": mixing(sf.nn.Linear, out=image),
    "Linear-images": mixing(sf.nn.Linear, into=image, out=image),
    "NormReLU": keeping(sf.nn.NormReLU, bias=-0.7),
    "NormReLU-image": keeping(sf.nn.NormReLU, of=image, bias=-0.7),
    "TensorProduct": mixing(sf.nn.TensorProduct),
    "TensorProduct-3-copies": mixing(sf.nn.TensorProduct, into=gapped, out=features, copies=3),
    "LayerNorm": keeping(sf.nn.LayerNorm),
    "LayerNorm-paper": keeping(sf.nn.LayerNorm, affine=False),
    "LayerNorm-image": keeping(sf.nn.LayerNorm, of=image),
    "BatchNorm": keeping(sf.nn.BatchNorm),
    "BatchNorm-plain": keeping(sf.nn.BatchNorm, affine=False),
    "BatchNorm-image": keeping(sf.nn.BatchNorm, of=image),
    "BatchNorm-vectors": keeping(sf.nn.BatchNorm, of=vectors),
    "Invariants": keeping(sf.nn.Invariants),
    "Invariants-image": keeping(sf.nn.Invariants, of=image),
    "FieldDropout": keeping(sf.nn.FieldDropout),
    "MLP": keeping(sf.nn.MLP),
    "MLP-image": keeping(sf.nn.MLP, of=image),
}
_ON_GRIDS = {
    "Conv-1": conv(1),
    "Conv-3": conv(3),
    "Conv-5": conv(5, out=features),
    "Conv-far-degrees": conv(3, into=many, out=many),
    "Conv-image-to-far-degrees": conv(3, into=image, out=many),
    "Conv-far-degrees-to-image": conv(3, into=many, out=image),
    "Conv-image-in": conv(3, into=image),
    "Conv-image-out": conv(3, out=image),
    "Conv-images": conv(3, into=image, out=image),
    "Conv-4-unpadded": conv(4, padding=0),
    "Conv-padded-2": conv(3, padding=2),
    "Conv-dilated": conv(3, dilation=2),
    "Conv-purest": conv(3, profiles="purest", tolerance=1e-3),
    "Conv-sampled": conv(3, profiles="sampled", tolerance=1.0, normalization="response"),
    "Conv-3-stride-2": conv(3, stride=2),
    "Conv-2-stride-2": conv(2, stride=2, tolerance=1.0),
    "Conv-4-stride-2": conv(4, stride=2, padding=1),
    "Conv-3-stride-3": conv(3, stride=3),
    "Conv-1-stride-2": conv(1, stride=2),
    "Gated": keeping(sf.nn.Gated),
    "Gated-1": keeping(sf.nn.Gated, of=features, kernel_size=1),
    "Gated-image": keeping(sf.nn.Gated, of=image),
    "FourierReLU": keeping(sf.nn.FourierReLU),
    "FourierReLU-coarse": keeping(sf.nn.FourierReLU, of=features, oversampling=2),
    "FourierReLU-vectors": keeping(sf.nn.FourierReLU, of=vectors),
    "AvgPool-2": keeping(sf.nn.AvgPool, kernel_size=2),
    "AvgPool-3": keeping(sf.nn.AvgPool, kernel_size=3),
    "AvgPool-3-stride-2": keeping(sf.nn.AvgPool, kernel_size=3, stride=2),
    "AvgPool-2-stride-3": keeping(sf.nn.AvgPool, kernel_size=2, stride=3),
    "AvgPool-antialiased-2": keeping(sf.nn.AvgPool, kernel_size=2, antialiased=True),
    "AvgPool-antialiased-3": keeping(sf.nn.AvgPool, kernel_size=3, antialiased=True),
    "Attention": keeping(sf.nn.Attention, num_heads=1),
    "Attention-blockwise": keeping(sf.nn.Attention, num_heads=1, implementation="blockwise"),
    "Attention-2-heads": keeping(sf.nn.Attention, of=vectors, num_heads=2, scale="total", radial="paper"),
    "Attention-nowhere": keeping(sf.nn.Attention, num_heads=1, positional=False),
    "TransformerBlock": keeping(sf.nn.TransformerBlock, num_heads=1),
    "Encoder": keeping(sf.nn.Encoder, of=vectors, num_heads=2, depth=2),
    "Resample-2": keeping(sf.nn.Resample, scale=2.0),
    "Resample-0.6": keeping(sf.nn.Resample, scale=0.6),
    "Resample-to-5": keeping(sf.nn.Resample, size=5),
}

POINTWISE = [pytest.param(make, id=name) for name, make in _POINTWISE.items()]
"""Layers that look at one position at a time and commute with every rotation."""

ON_GRIDS = [pytest.param(make, id=name) for name, make in _ON_GRIDS.items()]
"""Layers that need space, or commute with the grid's rotations only."""

LAYERS = POINTWISE + ON_GRIDS


def randomized(layer: nn.Module) -> nn.Module:
    """Parameters and statistics moved away from their first values, at which some layers do nothing at all."""
    with torch.no_grad():
        for value in layer.state_dict().values():
            if value.is_floating_point():
                value.add_(0.3 * torch.randn_like(value).abs())
    return layer


def small_net(group: Group) -> nn.Sequential:
    """All kinds of layers, in a row that takes grids of 8 voxels."""
    field_type, other = features(group), gapped(group)
    return nn.Sequential(
        sf.nn.Conv(image(group), field_type, kernel_size=3),
        sf.nn.BatchNorm(field_type),
        sf.nn.NormReLU(field_type, bias=-0.1),
        sf.nn.AvgPool(field_type, kernel_size=2),
        sf.nn.Conv(field_type, other, kernel_size=3),
        sf.nn.Gated(other),
        sf.nn.LayerNorm(other),
        sf.nn.FourierReLU(other),
        sf.nn.Resample(other, scale=2.0),
        sf.nn.AvgPool(other, kernel_size=2, antialiased=True),
        sf.nn.TensorProduct(other, field_type),
        sf.nn.FieldDropout(field_type),
        sf.nn.Linear(field_type, other),
        sf.nn.Conv(other, field_type, kernel_size=4, padding=0),
        sf.nn.Invariants(field_type),
        nn.Flatten(),
        nn.Linear(field_type.copies, 3),
    )


def in_space(group: Group, size: int | tuple[int, ...]) -> tuple[int, ...]:
    """One number for each axis of space."""
    return (size,) * group.dim if isinstance(size, int) else size[: group.dim]


def inputs_it_takes(layer: nn.Module, batch: int = 2, sizes=SIZES) -> Iterator[torch.Tensor]:
    """Noise on those grids on which the layer can lie centered, at least one; what it says of the others is ours."""
    dtype = next((p.dtype for p in layer.parameters()), torch.get_default_dtype())
    found = 0
    for size in sizes:
        x = layer.in_type.randn(batch, in_space(layer.in_type.group, size), dtype=dtype)
        try:
            with torch.no_grad():
                layer(x)
        except ValueError as error:
            assert "cannot lie centered on an axis of" in str(error)
        else:
            found += 1
            yield x
    assert found, f"none of the grids {sizes} was taken"


def input_it_takes(layer: nn.Module, batch: int = 2) -> torch.Tensor:
    """Noise on the first grid on which the layer can lie centered."""
    return next(inputs_it_takes(layer, batch))


def complex_pieces(field_type: FieldType, x: torch.Tensor) -> dict[int, NDArray]:
    """By degree, ``(batch, order, copy, *space)``, from the documented order of channels."""
    halves = x.detach().numpy()
    halves = halves if field_type.real else halves[:, : x.shape[1] // 2] + 1j * halves[:, x.shape[1] // 2 :]
    pieces, start = {}, 0
    for degree, copies in enumerate(field_type.multiplicities):
        orders = field_type.group.irrep_dim(degree)
        block = halves[:, start : start + orders * copies]
        pieces[degree], start = block.reshape(len(x), orders, copies, *x.shape[2:]), start + orders * copies
    return pieces


def worst_error(
    layer: nn.Module, size: int | tuple[int, ...], *, dtype: torch.dtype = torch.float64, floor: float = 0.0
) -> float:
    """Largest difference of ``layer(R x)`` and ``R layer(x)`` over the grid's turns, relative to the largest output.

    An output of zeros counts as an error (NaN), unless ``floor`` says how large outputs are at least taken to be.
    """
    group = layer.in_type.group
    x, layer = layer.in_type.randn(2, in_space(group, size), dtype=dtype), layer.to(dtype)
    with torch.no_grad():
        y = layer(x)
        pairs = zip(_turns(layer.in_type), _turns(layer.out_type), strict=True)
        errors = [(layer(_turned(x, *before)) - _turned(y, *after)).abs().max() for before, after in pairs]
    return (torch.stack(errors).max() / y.abs().max().clamp_min(floor)).item()


@cache
def _turns(field_type: FieldType) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The grid's rotations and their matrices on channels, made once: ``rotate`` would make them each time."""
    return [(field_type.matrix(R), R) for R in field_type.group.grid_rotations()]


def _turned(x: torch.Tensor, matrix: torch.Tensor, R: torch.Tensor) -> torch.Tensor:
    return permute_axes(torch.einsum("ij,bj...->bi...", matrix.to(x), x), R)
