"""Reference attention: two loops over voxels in complex numbers, following the paper, without calls to the library.

It relies only on the documented order of channels and shapes of weights.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from oracles import harmonics
from steerformer import FieldType


def attention(
    field_type: FieldType,
    parameters: Mapping[str, Tensor],
    x: Tensor,
    *,
    num_heads: int,
    scale: str,
    phi: Callable[[float, int], float],
    spacing: tuple[float, ...],
    mask: Tensor | None,
    window: Mapping[tuple[int, ...], float] | None = None,
    qk_norm: float | None = None,
    context: Tensor | None = None,
    context_type: FieldType | None = None,
    context_spacing: tuple[float, ...] | None = None,
    distance_weight: Callable[[float], float] = lambda distance: 1.0,
    score: str = "paper",
) -> Tensor:
    """Output field; gradients propagate to ``x``, ``context`` and ``parameters``.

    Spacings are in units of the geometric mean of the first, and so are distances.
    """
    degrees = field_type.degrees
    source = x if context is None else context
    other, other_spacing = context_type or field_type, context_spacing or spacing
    space = x.shape[2:]
    places, other_places = _places(space, spacing), _places(source.shape[2:], other_spacing)
    q = _mapped(parameters, "query", field_type, x, field_type)
    k, v = (_mapped(parameters, name, other, source, field_type) for name in ("key", "value"))
    counts = [field_type.multiplicities[degree] for degree in degrees]
    w_key, w_value = (_complex(parameters[f"{name}_position.weight"]).split(counts) for name in ("key", "value"))
    mixed = [torch.zeros_like(piece) for piece in q]
    directions = cache(lambda offset: _directions(field_type, list(offset), phi))
    for b, head in itertools.product(range(len(x)), range(num_heads)):
        copies = [slice(head * count // num_heads, (head + 1) * count // num_heads) for count in counts]
        widths = [c.stop - c.start for c in copies]
        if scale == "total":
            widths = [sum(len(piece[0]) * width for piece, width in zip(q, widths, strict=True))] * len(widths)
        for i, at in enumerate(places.values()):
            scores, values = [], []
            query = [q[n][b, :, c, i] / math.sqrt(widths[n]) for n, c in enumerate(copies)]
            if qk_norm is not None:
                query = [qk_norm * piece / _norm(query) for piece in query]
            for j, (to, place) in enumerate(other_places.items()):
                if (mask is not None and not mask[(b, *to)]) or (window is not None and not window[to]):
                    continue
                offset = tuple(round(a - t, 12) for a, t in zip(at, place, strict=True))
                nearness = distance_weight(math.hypot(*offset))
                if not nearness:
                    continue
                P = directions(offset)
                total = torch.zeros((), dtype=torch.complex128)
                value = []
                content = [k[n][b, :, c, j] for n, c in enumerate(copies)]
                if qk_norm is not None:
                    content = [piece / _norm(content) for piece in content]
                for n, c in enumerate(copies):
                    key = content[n] + P[n][:, None] * w_key[n][c]
                    total = total + (query[n].conj() * key).sum()
                    value.append(v[n][b, :, c, j] + P[n][:, None] * w_value[n][c])
                bias = math.log(nearness) + (math.log(window[to]) if window else 0)
                scores.append((total.abs() if score == "paper" else total.real) + bias)
                values.append(value)
            if not scores:
                continue
            weights = torch.stack(scores).softmax(dim=0)
            for n, c in enumerate(copies):
                mixed[n][b, :, c, i] = sum(a * value[n] for a, value in zip(weights, values, strict=True))
    weights = [_complex(parameters[f"out.weights.{n}"]) for n in range(len(degrees))]
    out = [torch.einsum("oi,bmin->bmon", w, piece) for w, piece in zip(weights, mixed, strict=True)]
    flat = torch.cat([piece.flatten(1, 2) for piece in out], dim=1)
    parts = [flat.real] if field_type.real else [flat.real, flat.imag]
    return torch.cat(parts, dim=1).unflatten(2, space)


def _places(space: Sequence[int], spacing: Sequence[float]) -> dict[tuple[int, ...], tuple[float, ...]]:
    """Coordinates of all voxels, from the center of their grid."""
    return {
        voxel: tuple((i - (n - 1) / 2) * s for i, n, s in zip(voxel, space, spacing, strict=True))
        for voxel in itertools.product(*map(range, space))
    }


def _mapped(
    parameters: Mapping[str, Tensor], name: str, in_type: FieldType, x: Tensor, out_type: FieldType
) -> list[Tensor]:
    """Complex pieces of a linear map by degree of ``out_type``; zeros for degrees that ``in_type`` lacks.

    Towards real fields, the real part.
    """
    pieces, found, count = dict(zip(in_type.degrees, _unpack(in_type, x.flatten(2)), strict=True)), [], 0
    for degree in out_type.degrees:
        if degree in pieces:
            weight = _complex(parameters[f"{name}.weights.{count}"])
            mixed = torch.einsum("oi,bmin->bmon", weight, pieces[degree])
            found.append(mixed.real.to(torch.complex128) if out_type.real else mixed)
            count += 1
        else:
            shape = (out_type.group.irrep_dim(degree), out_type.multiplicities[degree])
            found.append(torch.zeros(len(x), *shape, math.prod(x.shape[2:]), dtype=torch.complex128))
    return found


def _norm(pieces: list[Tensor]) -> Tensor:
    return (sum(piece.abs().square().sum() for piece in pieces) + 1e-3).sqrt()


def _complex(pair: Tensor) -> Tensor:
    return torch.complex(pair[0], pair[1] if len(pair) == 2 else torch.zeros_like(pair[0]))


def _unpack(field_type: FieldType, x: Tensor) -> list[Tensor]:
    """Complex pieces ``(batch, order, copy, voxel)`` by degree."""
    flat = x.to(torch.complex128) if field_type.real else torch.complex(*x.chunk(2, dim=1))
    pieces, start = [], 0
    for degree in field_type.degrees:
        orders, copies = field_type.group.irrep_dim(degree), field_type.multiplicities[degree]
        pieces.append(flat[:, start : start + orders * copies].unflatten(1, (orders, copies)))
        start += orders * copies
    return pieces


def _directions(field_type: FieldType, offset: list[float], phi: Callable[[float, int], float]) -> list[Tensor]:
    """``phi(r) Y(x / r)`` of every degree, 0 at distance 0."""
    r = math.hypot(*offset)
    found = []
    for degree in field_type.degrees:
        direction = np.array(offset) / r if r else np.eye(len(offset))[0]
        Y = harmonics(field_type.group, degree, direction) * (phi(r, degree) if r else 0)
        found.append(torch.from_numpy(np.asarray(Y, dtype=complex)))
    return found
