"""All layers with every option that changes their code path, and helpers, for the generic tests."""

from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import steerformer as sf
from checks import without_type_checks
from steerformer import SO2, SO3, FieldType
from steerformer.fields import permute_axes
from steerformer.groups import Group

SIZES = {2: (7, 6, (5, 6)), 3: (5, 6, (4, 5, 6))}  # odd, even, not square


def image(group: Group) -> FieldType:
    return FieldType.image(group, 2)


def features(group: Group) -> FieldType:
    return FieldType(group, (2, 1, 1))


def gapped(group: Group) -> FieldType:
    """Degrees 0, 1 and 3."""
    return FieldType(group, (1, 2, 0, 1))


def real(group: Group) -> FieldType:
    """Real fields: of all degrees in 3D, scalars in 2D."""
    return FieldType(group, (2, 1, 1) if group is SO3 else (3,), real=True)


def real_gapped(group: Group) -> FieldType:
    """Real fields of degrees 0, 1 and 3 in 3D, scalars in 2D."""
    return FieldType(group, (1, 2, 0, 1) if group is SO3 else (2,), real=True)


def even(group: Group) -> FieldType:
    """Even multiplicities, which two groups share."""
    return FieldType(group, (4, 2, 2))


def vectors(group: Group) -> FieldType:
    """Degree 1 only, no scalars."""
    return FieldType(group, "2x1")


def many(group: Group) -> FieldType:
    """Degrees so far apart that no small kernel connects the first and the last."""
    return FieldType(group, (1, 2, 1, 1, 1, 1, 1) if group is SO2 else (1, 1, 0, 0, 1, 1))


def conv(kernel_size: int, into=features, out=gapped, **options) -> Callable[[Group], nn.Module]:
    return lambda group: sf.nn.Conv(into(group), out(group), kernel_size=kernel_size, **options)


def upsampling(kernel_size: int, stride: int, into=features, out=gapped, **options) -> Callable[[Group], nn.Module]:
    return lambda group: sf.nn.ConvTranspose(into(group), out(group), kernel_size=kernel_size, stride=stride, **options)


def mixing(layer: type, into=features, out=gapped, **options) -> Callable[[Group], nn.Module]:
    return lambda group: layer(into(group), out(group), **options)


def keeping(layer: type, of=gapped, **options) -> Callable[[Group], nn.Module]:
    return lambda group: layer(of(group), **options)


_POINTWISE = {
    "Linear": mixing(sf.nn.Linear),
    "Linear-image-in": mixing(sf.nn.Linear, into=image),
    "Linear-image-out": mixing(sf.nn.Linear, out=image),
    "Linear-bias": mixing(sf.nn.Linear, bias=True),
    "Linear-images": mixing(sf.nn.Linear, into=image, out=image),
    "NormReLU": keeping(sf.nn.NormReLU, bias=-0.7),
    "NormReLU-image": keeping(sf.nn.NormReLU, of=image, bias=-0.7),
    "TensorProduct": mixing(sf.nn.TensorProduct),
    "TensorProduct-3-copies": mixing(sf.nn.TensorProduct, into=gapped, out=features, copies=3),
    "TensorProduct-paths": mixing(sf.nn.TensorProduct, paths=[(0, 0, 0), (1, 2, 1), (2, 1, 3), (2, 2, 0)]),
    "LayerNorm": keeping(sf.nn.LayerNorm),
    "LayerNorm-paper": keeping(sf.nn.LayerNorm, affine=False),
    "LayerNorm-floor": keeping(sf.nn.LayerNorm, floor=0.5),
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
    "Linear-real": mixing(sf.nn.Linear, into=real, out=real_gapped),
    "Linear-real-in": mixing(sf.nn.Linear, into=real),
    "Linear-real-out": mixing(sf.nn.Linear, out=real),
    "NormReLU-real": keeping(sf.nn.NormReLU, of=real_gapped, bias=-0.7),
    "TensorProduct-real": mixing(sf.nn.TensorProduct, into=real, out=real_gapped),
    "TensorProduct-real-in": mixing(sf.nn.TensorProduct, into=real, out=lambda group: FieldType(group, (2,))),
    "TensorProduct-real-out": mixing(sf.nn.TensorProduct, out=real),
    "LayerNorm-real": keeping(sf.nn.LayerNorm, of=real_gapped),
    "BatchNorm-real": keeping(sf.nn.BatchNorm, of=real_gapped),
    "Invariants-real": keeping(sf.nn.Invariants, of=real_gapped),
    "FieldDropout-real": keeping(sf.nn.FieldDropout, of=real_gapped),
    "MLP-real": keeping(sf.nn.MLP, of=real, nonlinearity=partial(sf.nn.NormReLU, bias=-0.1)),
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
    "Conv-purest": conv(3, kernel_family="purest", max_impurity=1e-3),
    "Conv-sampled": conv(3, kernel_family="sampled", max_impurity=1.0, normalization="response"),
    "Conv-3-stride-2": conv(3, stride=2),
    "Conv-2-stride-2": conv(2, stride=2, max_impurity=1.0),
    "Conv-4-stride-2": conv(4, stride=2, padding=1),
    "Conv-3-stride-3": conv(3, stride=3),
    "Conv-1-stride-2": conv(1, stride=2),
    "Conv-real": conv(3, into=real, out=real_gapped),
    "Conv-real-in": conv(3, into=real),
    "Conv-real-out": conv(3, out=real),
    "Gated-real": keeping(sf.nn.Gated, of=real),
    "FourierReLU-real": keeping(sf.nn.FourierReLU, of=real_gapped),
    "AvgPool-real": keeping(sf.nn.AvgPool, of=real, kernel_size=2),
    "Attention-signed": keeping(sf.nn.Attention, num_heads=1, score="real"),
    "Attention-real": keeping(sf.nn.Attention, of=real_gapped, num_heads=1),
    "Attention-real-blockwise": keeping(sf.nn.Attention, of=real, num_heads=1, implementation="blockwise"),
    "Attention-real-paper": keeping(sf.nn.Attention, of=real, num_heads=1, score="paper"),
    "TransformerBlock-real": keeping(sf.nn.TransformerBlock, of=real, num_heads=1, nonlinearity=sf.nn.FourierReLU),
    "Encoder-real": keeping(sf.nn.Encoder, of=real, num_heads=1, depth=2, nonlinearity=sf.nn.FourierReLU),
    "Resample-real": keeping(sf.nn.Resample, of=real, scale=2.0),
    "Conv-reflect": conv(3, padding_mode="reflect"),
    "Conv-5-circular": conv(5, into=image, padding_mode="circular"),
    "Conv-replicate-stride-2": conv(3, stride=2, padding_mode="replicate"),
    "Conv-groups": conv(3, into=even, out=even, groups=2),
    "Conv-bias": conv(3, bias=True),
    "Conv-bias-image-out": conv(3, out=image, bias=True),
    "ConvTranspose": upsampling(4, 2),
    "ConvTranspose-2": upsampling(2, 2, into=image, max_impurity=1.0),
    "ConvTranspose-3-stride-3": upsampling(3, 3, out=image, bias=True),
    "ConvTranspose-1-stride-3": upsampling(1, 3),
    "ConvTranspose-dilated": upsampling(3, 1, dilation=2, kernel_family="purest"),
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
    "NormMaxPool-2": keeping(sf.nn.NormMaxPool, kernel_size=2),
    "NormMaxPool-3-stride-2": keeping(sf.nn.NormMaxPool, kernel_size=3, stride=2),
    "NormMaxPool-image": keeping(sf.nn.NormMaxPool, of=image, kernel_size=2),
    "Attention": keeping(sf.nn.Attention, num_heads=1),
    "Attention-blockwise": keeping(sf.nn.Attention, num_heads=1, implementation="blockwise"),
    "Attention-2-heads": keeping(sf.nn.Attention, of=vectors, num_heads=2, scale="total", radial="paper"),
    "Attention-windowed": keeping(sf.nn.Attention, num_heads=1, key_window=1.5, radial="smooth"),
    "Attention-normalized": keeping(sf.nn.Attention, num_heads=1, qk_norm=2.0),
    "Attention-nowhere": keeping(sf.nn.Attention, num_heads=1, positional=False),
    "Attention-local": keeping(sf.nn.Attention, num_heads=1, radius=2.0, falloff=1.0),
    "Attention-local-blockwise": keeping(sf.nn.Attention, num_heads=1, radius=1.0, implementation="blockwise"),
    "TransformerBlock": keeping(sf.nn.TransformerBlock, num_heads=1),
    "Encoder": keeping(sf.nn.Encoder, of=vectors, num_heads=2, depth=2),
    "Resample-2": keeping(sf.nn.Resample, scale=2.0),
    "Resample-0.6": keeping(sf.nn.Resample, scale=0.6),
    "Resample-to-5": keeping(sf.nn.Resample, size=5),
    "RadialWindow": keeping(sf.nn.RadialWindow, width=1.5),
}

POINTWISE = [pytest.param(make, id=name) for name, make in _POINTWISE.items()]
"""Layers that act on each position and commute with every rotation."""

ON_GRIDS = [pytest.param(make, id=name) for name, make in _ON_GRIDS.items()]
"""Layers that need spatial axes, or commute with grid rotations only."""

LAYERS = POINTWISE + ON_GRIDS

_CORE = (
    *("Linear", "NormReLU", "TensorProduct", "LayerNorm", "BatchNorm", "Invariants", "FieldDropout", "MLP"),
    *("Conv-3", "Conv-far-degrees", "Conv-image-in", "Conv-image-out", "Conv-3-stride-2", "Gated", "FourierReLU"),
    *("ConvTranspose", "NormMaxPool-2"),
    *("AvgPool-2", "AvgPool-antialiased-2", "Attention", "Attention-blockwise", "TransformerBlock", "Encoder"),
    *("Resample-2", "RadialWindow"),
    *("Linear-real", "NormReLU-real", "TensorProduct-real", "LayerNorm-real", "BatchNorm-real", "Invariants-real"),
    *("MLP-real", "Conv-real", "Conv-real-in", "Conv-real-out", "Gated-real", "FourierReLU-real"),
    *("Attention-real", "Attention-real-blockwise", "TransformerBlock-real"),
)


def _variant(group, layer, *, slow=False):
    marks = [pytest.mark.slow] if slow else []
    return pytest.param(group, layer.values[0], id=f"{group}-{layer.id}", marks=marks)


_IN_2D = [_variant(SO2, layer) for layer in LAYERS if "-real" not in layer.id]  # there real fields are scalars

ALL_VARIANTS = _IN_2D + [_variant(SO3, layer, slow=layer.id not in _CORE) for layer in LAYERS]
"""Groups and layers: all options in 2D and in 3D."""

VARIANTS = _IN_2D + [_variant(SO3, layer, slow=True) for layer in LAYERS if layer.id in _CORE]
"""Groups and layers: all options in 2D, every layer in 3D, where the options take the same code paths."""


def randomized(layer: nn.Module) -> nn.Module:
    """Perturb parameters and statistics: at their initial values some layers are the identity."""
    with torch.no_grad():
        for value in layer.state_dict().values():
            if value.is_floating_point():
                value.add_(0.3 * torch.randn_like(value).abs())
    return layer


def small_net(group: Group, field_type: FieldType | None = None, other: FieldType | None = None) -> nn.Sequential:
    """Sequential of all kinds of layers, for grids of 8 voxels."""
    field_type, other = field_type or features(group), other or gapped(group)
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
    """One size per spatial axis."""
    return (size,) * group.dim if isinstance(size, int) else size[: group.dim]


def supported_inputs(layer: nn.Module, batch: int = 2, sizes=None) -> Iterator[torch.Tensor]:
    """Noise on the grids that the layer supports, at least one; on others it must raise its own centering error."""
    group, dtype = layer.in_type.group, next((p.dtype for p in layer.parameters()), torch.get_default_dtype())
    found = 0
    for size in sizes or SIZES[group.dim]:
        x = layer.in_type.randn(batch, in_space(group, size), dtype=dtype)
        try:
            with torch.no_grad():
                layer(x)
        except ValueError as error:
            assert "cannot be centered on an axis of" in str(error)
        else:
            found += 1
            yield x
    assert found, f"none of the grids {sizes or SIZES[group.dim]} is supported"


def supported_input(layer: nn.Module, batch: int = 2) -> torch.Tensor:
    """Noise on the first grid that the layer supports."""
    return next(supported_inputs(layer, batch))


def complex_pieces(field_type: FieldType, x: torch.Tensor) -> dict[int, NDArray]:
    """Complex pieces ``(batch, order, copy, *space)`` by degree, from the documented order of channels."""
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
    """Largest difference of ``layer(R x)`` and ``R layer(x)`` over all grid rotations, relative to the largest output.

    Zero outputs give NaN, which fails every comparison, unless ``floor`` bounds the largest output from below.
    """
    batch = 2 if layer.training else 1  # in eval mode the rotated copies of one sample are a batch
    x = layer.in_type.randn(batch, in_space(layer.in_type.group, size), dtype=dtype)
    return worst_error_on(layer.to(dtype), x, floor=floor)


@torch.no_grad()
def worst_error_on(layer: nn.Module, x: torch.Tensor, *, floor: float = 0.0) -> float:
    """:func:`worst_error` on one input. In eval mode all rotated inputs of one shape are one batch."""
    y = layer(x)
    with without_type_checks():
        batches: dict[object, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for i, (before, after) in enumerate(zip(_rotations(layer.in_type), _rotations(layer.out_type), strict=True)):
            rotated = _rotated(x, *before)
            key = i if layer.training else rotated.shape
            batches.setdefault(key, []).append((rotated, _rotated(y, *after)))
        errors = []
        for pairs in batches.values():
            inputs, outputs = (torch.cat(parts) for parts in zip(*pairs, strict=True))
            errors.append((layer(inputs) - outputs).abs().max())
    return (torch.stack(errors).max() / y.abs().max().clamp_min(floor)).item()


@cache
def _rotations(field_type: FieldType) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Grid rotations and their channel matrices, cached because ``rotate`` would compute them each time."""
    return [(field_type.matrix(R), R) for R in field_type.group.grid_rotations()]


def _rotated(x: torch.Tensor, matrix: torch.Tensor, R: torch.Tensor) -> torch.Tensor:
    return permute_axes(torch.einsum("ij,bj...->bi...", matrix.to(x), x), R)
