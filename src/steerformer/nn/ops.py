"""Functions behind the layers: dispatch on the number of spatial axes, and arithmetic per irrep copy."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad

from steerformer.fields import FieldType, is_integer, require_floats
from steerformer.nn.exported import is_exported, is_symbolic, take_voxels

_CONVOLUTIONS = {2: F.conv2d, 3: F.conv3d}
_TRANSPOSED_CONVOLUTIONS = {2: F.conv_transpose2d, 3: F.conv_transpose3d}
_PLAIN_LAYERS = {2: nn.Conv2d, 3: nn.Conv3d}
_AVERAGES = {2: F.avg_pool2d, 3: F.avg_pool3d}
_MAXIMA = {2: F.max_pool2d, 3: F.max_pool3d}
_INTERPOLATIONS = {2: "bilinear", 3: "trilinear"}
_VECTORIZED_INTERPOLATIONS = ("bilinear",)
SCALE = 2.0**-42  # keeps squares of 1e30 and of 1e-6 within the range of float32; a power of two, so exact
SHORTEST = 1e-6  # smallest norm to divide by: keeps f / |f| and its gradient finite


def require_space(field_type: FieldType, x: Tensor, layer: str) -> None:
    """Raise ``ValueError`` unless ``x`` is a floating-point field of this type with all spatial axes."""
    dim = field_type.group.dim
    if x.ndim != 2 + dim or x.shape[1] != field_type.channels or 0 in x.shape[2:]:
        raise ValueError(
            f"{layer} takes {field_type!r}, a tensor (batch, {field_type.channels}, {dim} spatial axes), "
            f"got shape {tuple(x.shape)}{'; a grid has at least one voxel' if 0 in x.shape[2:] else ''}."
        )
    require_floats(x)


def require_same_placement(x: Tensor, weight: Tensor, layer: str) -> None:
    """Raise ``ValueError`` unless ``x`` and the weights are on one device, with one dtype or under autocast."""
    if x.device != weight.device:  # torch mixes the meta device with others silently
        advice = "load or initialize the weights" if weight.is_meta else "move one of them with .to(device)"
        raise ValueError(f"{layer} has weights on {weight.device}, got a field on {x.device}; {advice}.")
    if x.dtype != weight.dtype and not is_autocast(x):
        raise ValueError(
            f"{layer} has weights of {weight.dtype}, got a field of {x.dtype}; convert one of them with .to(dtype)."
        )


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of ``x``."""
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Context manager that disables autocast."""
    return torch.autocast(x.device.type, enabled=False) if is_autocast(x) else nullcontext()


def convolve(
    x: Float[Tensor, "batch in *space"],
    kernel: Float[Tensor, "out _ *size"],
    *,
    stride: Sequence[int] | int = 1,
    padding: Sequence[int] | int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Float[Tensor, "batch out *new"]:
    """Convolution over all spatial axes, ``out(x) = sum_z kernel(z) f(x + z)``; negative padding crops.

    With ``groups`` the channels of input and output are in as many equal parts, each convolved by itself.
    """
    dim = x.ndim - 2
    padding = [padding] * dim if isinstance(padding, int) else list(padding)
    if min(padding) < 0:
        x = pad(x, [min(p, 0) for p in padding])
        padding = [max(p, 0) for p in padding]
    return _CONVOLUTIONS[dim](x, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)


def convolve_transposed(
    x: Float[Tensor, "batch in *space"],
    kernel: Float[Tensor, "out in *size"],
    *,
    stride: Sequence[int],
    crop: Sequence[int],
    dilation: int,
) -> Float[Tensor, "batch out *new"]:
    """Transposed convolution, ``out(y) = sum_x kernel(y - stride x) f(x)``, cropped; negative crops add zeros."""
    transposed, padding = _TRANSPOSED_CONVOLUTIONS[x.ndim - 2], [max(n, 0) for n in crop]
    y = transposed(x, kernel.transpose(0, 1), stride=tuple(stride), padding=tuple(padding), dilation=dilation)
    return pad(y, [max(-n, 0) for n in crop])


def plain_conv(dim: int, in_channels: int, out_channels: int, kernel_size: int) -> nn.Module:
    """Torch's own convolution layer, not steerable: same padding, and no bias because a norm follows."""
    return _PLAIN_LAYERS[dim](in_channels, out_channels, kernel_size, padding="same", bias=False)


def pad(
    x: Float[Tensor, "batch channels *space"], margins: Sequence[int], *, mode: str = "zeros"
) -> Float[Tensor, "batch channels *new"]:
    """Pad both sides of each axis with zeros, or as the ``mode`` of torch's padding says; negative margins crop."""
    if mode == "replicate" and is_symbolic(*margins):
        for axis, margin in enumerate(margins, start=2):
            x = take_voxels(x, axis, -margin, x.shape[axis] + 2 * margin)
        return x
    both_sides = [margin for margin in reversed(margins) for _ in range(2)]
    if not any(both_sides):
        return x
    return F.pad(x, both_sides, mode="constant" if mode == "zeros" else mode)


def mean_of_neighbors(x: Tensor, axis: int) -> Tensor:
    """Means of neighboring voxels along one axis, which gets one voxel shorter."""
    return (x.narrow(axis, 0, x.shape[axis] - 1) + x.narrow(axis, 1, x.shape[axis] - 1)) / 2


def average_pool(x: Tensor, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Average pooling over all spatial axes."""
    # on CPUs torch cannot pool volumes of half precision
    values = in_single_precision(x) if x.device.type == "cpu" else x
    return _AVERAGES[x.ndim - 2](values, tuple(size), tuple(stride)).to(x.dtype)


def places_of_maxima(x: Tensor, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Place of the largest value of each window, numbered along all spatial axes together."""
    _, places = _MAXIMA[x.ndim - 2](x, tuple(size), stride=tuple(stride), return_indices=True)
    return places


def interpolate(x: Tensor, size: Sequence[int]) -> Tensor:
    """Linear interpolation to a new size over the same extent (``align_corners=False``)."""
    return F.interpolate(x, size=tuple(size), mode=_INTERPOLATIONS[x.ndim - 2], align_corners=False)


def interpolates_fast(x: Tensor, size: Sequence[int]) -> bool:
    """Whether torch's interpolation on CPUs, forward, is faster than products with matrices: large, and vectorized."""
    return _INTERPOLATIONS[x.ndim - 2] in _VECTORIZED_INTERPOLATIONS and max(size) > 64


def per_axis(value: object, dim: int, name: str, *, least: int = 1) -> tuple[int, ...]:
    """One integer per spatial axis."""
    values: tuple[Any, ...] = tuple(value) if isinstance(value, Iterable) else (value,) * dim
    if len(values) != dim or not all(is_integer(v, least=least) for v in values):
        raise ValueError(f"{name} is an integer >= {least}, or one for each of {dim} axes, got {value!r}.")
    values = tuple(v if isinstance(v, torch.SymInt | Tensor) else int(v) for v in values)  # int() would fix a size
    return values


def copy_norms(
    field_type: FieldType, x: Float[Tensor, "batch channels *space"]
) -> Float[Tensor, "batch copies *space"]:
    """Norm of every irrep copy, over its orders and parts."""
    norms = [length(piece.flatten(1, 2)) for piece in split_runs(field_type, x)]
    # cat copies even a single one: backward needs the norms, and callers may write here
    return torch.cat(norms, dim=1).to(x.dtype)


def length(x: Float[Tensor, "batch components *rest"], *, least: float = 0.0) -> Float[Tensor, "batch *rest"]:
    """Euclidean norm along axis 1, at least in single precision, with a bounded gradient at 0."""
    if is_exported():  # torch.hypot has no counterpart in ONNX
        squares = in_single_precision(x).square().sum(dim=1)
        nonzero = squares > 0
        return torch.where(nonzero, torch.where(nonzero, squares, 1).sqrt(), 0).clamp_min(least)
    return _composed_length(x, least) if in_forward_mode() else _Length.apply(x, least)


def scale_copies(
    field_type: FieldType, x: Float[Tensor, "batch channels *space"], factors: Float[Tensor, "batch copies *#space"]
) -> Float[Tensor, "batch channels *space"]:
    """Multiply every irrep copy by its own real factor, which commutes with rotations."""
    pieces = split_runs(field_type, x)
    shares = factors.split([copies for _, copies in field_type.runs], dim=1)
    scaled = [piece * share[:, None, None] for piece, share in zip(pieces, shares, strict=True)]
    return field_type.pack(scaled) if len(scaled) > 1 else scaled[0].flatten(1, 3)


def inverse_scaled_length(
    piece: Float[Tensor, "batch part order *rest"], *, least: float
) -> Float[Tensor, "batch *rest"]:
    """``1 / (SCALE |x|)`` over parts and orders; norms below ``least`` count as ``least``."""
    if is_traced(piece):
        squares = _scaled_sum_of_squares(piece.flatten(1, 2))
    else:  # parts are not adjacent in memory: flatten would copy them
        squares = _sum_of_squares([order for part in in_single_precision(piece).unbind(1) for order in part.unbind(1)])
    return squares.clamp_min_((least * SCALE) ** 2).rsqrt_()


def is_traced(*tensors: Tensor) -> bool:
    """Whether torch.compile, torch.export, torch.jit, torch.func or forward mode is active, for plain expressions.

    They have no in-place writes and no custom operators. Inside torch.func, autograd functions of the old style fail
    even on plain tensors.
    """
    is_recorded = torch.compiler.is_compiling() or is_exported()
    return is_recorded or inside_transform() or any(is_functional(x) for x in tensors)


def inside_transform() -> bool:
    """Whether a torch.func transform or forward mode is active; tensors created inside it must not be cached."""
    return torch._C._functorch.peek_interpreter_stack() is not None or in_forward_mode()


def in_forward_mode() -> bool:
    """Whether forward-mode derivatives are computed, by torch.func or by dual numbers.

    Through autograd functions with a ``jvp`` torch returns wrong derivatives of second order, so none is used there.
    """
    return not torch.compiler.is_compiling() and forward_ad._current_level >= 0


def is_functional(x: Tensor) -> bool:
    """Whether ``x`` is a wrapper tensor of torch.func."""
    return not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(x)


class _Length(torch.autograd.Function):
    """Norm along axis 1; torch's own needs more memory and up to 20 times as long, unless the axis is the last.

    Squares are scaled, so that neither 1e30 nor 1e-6 leaves the range of float32.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, least: float) -> Tensor:
        if x.shape[1] == 2 and not least:
            return torch.hypot(*in_single_precision(x).unbind(1))  # slower, but also accurate for norms below 1e-6
        return _scaled_sum_of_squares(x).sqrt_().div_(SCALE).clamp_min_(least)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, lengths = ctx.saved_tensors
        return x * (grad / lengths.clamp_min(SHORTEST))[:, None], None


def _composed_length(x: Tensor, least: float) -> Tensor:
    """The norm as an expression; relative to its value, which is constant here, all derivatives are within range."""
    unit = _Length.forward(x.detach(), SHORTEST)
    squares = (x / unit[:, None]).square().sum(dim=1)
    nonzero = squares > 0
    return torch.where(nonzero, unit * torch.where(nonzero, squares, 1).sqrt(), 0).clamp_min(least)


def _scaled_sum_of_squares(x: Tensor) -> Tensor:
    """Sum of squares of ``SCALE * x`` along axis 1, accumulated in place over up to 16 slices."""
    x = in_single_precision(x)
    if is_traced(x):
        return (SCALE * x).square().sum(dim=1)
    count = x.shape[1]
    slices = max(n for n in range(1, 17) if count % n == 0)
    squares = _sum_of_squares(x.unflatten(1, (slices, count // slices)).unbind(dim=1))
    return squares.sum(dim=1) if count > slices else squares.squeeze(1)


def _sum_of_squares(pieces: Sequence[Tensor]) -> Tensor:
    """Sum of squares of ``SCALE * piece``, accumulated in one tensor."""
    squares = torch.addcmul(pieces[0].new_zeros(()), pieces[0], pieces[0], value=SCALE**2)
    for piece in pieces[1:]:
        squares.addcmul_(piece, piece, value=SCALE**2)
    return squares


def in_single_precision(x: Tensor) -> Tensor:
    """Cast half precision to float32: sums of squares leave the range of float16 and the precision of bfloat16."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def spread(field_type: FieldType, values: Float[Tensor, "copies"]) -> Float[Tensor, "channels"]:
    """Repeat one value per copy for all channels of that copy."""
    shares = values.split([copies for _, copies in field_type.runs])
    rows = [
        share.expand(field_type.parts, orders, -1) for share, (orders, _) in zip(shares, field_type.runs, strict=True)
    ]
    return torch.cat([row.flatten(1) for row in rows], dim=1).flatten()


def rms_of_copies(field_type: FieldType, rms: Float[Tensor, "channels"]) -> Float[Tensor, "copies"]:
    """Root mean square of each copy, from the root mean squares of its channels."""
    pieces = [piece[0].flatten(0, 1) for piece in split_runs(field_type, rms[None])]  # components of a copy, copies
    return torch.cat([torch.linalg.vector_norm(piece, dim=0) / len(piece) ** 0.5 for piece in pieces])


def split_runs(field_type: FieldType, x: Tensor) -> list[Tensor]:
    """Views ``(batch, part, order, copy, *space)``, one per run of degrees with equally many orders."""
    runs = field_type.runs
    pieces = x.unflatten(1, (field_type.parts, -1)).split([orders * copies for orders, copies in runs], dim=2)
    return [piece.unflatten(2, run) for piece, run in zip(pieces, runs, strict=True)]
