"""Reference attention: two loops over voxels in complex numbers, following the paper, without calls to the library.

It relies only on the documented order of channels and shapes of weights.
"""

import itertools
import math
from collections.abc import Callable, Mapping

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
    score: str = "paper",
) -> Tensor:
    """Output field; gradients propagate to ``x`` and ``parameters``."""
    space, degrees = x.shape[2:], field_type.degrees
    voxels = list(itertools.product(*(range(n) for n in space)))
    f = _unpack(field_type, x.flatten(2))
    linear = {name: [_complex(parameters[f"{name}.weights.{n}"]) for n in range(len(degrees))] for name in _LINEAR}
    q, k, v = (
        [torch.einsum("oi,bmin->bmon", w, piece) for w, piece in zip(linear[name], f, strict=True)]
        for name in ("query", "key", "value")
    )
    counts = [field_type.multiplicities[degree] for degree in degrees]
    w_key, w_value = (_complex(parameters[f"{name}_position.weight"]).split(counts) for name in ("key", "value"))
    mixed = [torch.zeros_like(piece) for piece in v]
    offsets = {tuple(a - t for a, t in zip(at, to, strict=True)) for at, to in itertools.product(voxels, repeat=2)}
    positions = {
        offset: _directions(field_type, [n * s for n, s in zip(offset, spacing, strict=True)], phi)
        for offset in offsets
    }
    for b, head in itertools.product(range(len(x)), range(num_heads)):
        copies = [slice(head * count // num_heads, (head + 1) * count // num_heads) for count in counts]
        widths = [c.stop - c.start for c in copies]
        if scale == "total":
            widths = [sum(len(piece[0]) * width for piece, width in zip(q, widths, strict=True))] * len(widths)
        for i, at in enumerate(voxels):
            scores, values = [], []
            query = [q[n][b, :, c, i] / math.sqrt(widths[n]) for n, c in enumerate(copies)]
            if qk_norm is not None:
                query = [qk_norm * piece / _norm(query) for piece in query]
            for j, to in enumerate(voxels):
                if (mask is not None and not mask[(b, *to)]) or (window is not None and not window[to]):
                    continue
                P = positions[tuple(a - t for a, t in zip(at, to, strict=True))]
                total = torch.zeros((), dtype=torch.complex128)
                value = []
                content = [k[n][b, :, c, j] for n, c in enumerate(copies)]
                if qk_norm is not None:
                    content = [piece / _norm(content) for piece in content]
                for n, c in enumerate(copies):
                    key = content[n] + P[n][:, None] * w_key[n][c]
                    total = total + (query[n].conj() * key).sum()
                    value.append(v[n][b, :, c, j] + P[n][:, None] * w_value[n][c])
                scores.append(
                    (total.abs() if score == "paper" else total.real) + (math.log(window[to]) if window else 0)
                )
                values.append(value)
            if not scores:
                continue
            weights = torch.stack(scores).softmax(dim=0)
            for n, c in enumerate(copies):
                mixed[n][b, :, c, i] = sum(a * value[n] for a, value in zip(weights, values, strict=True))
    out = [torch.einsum("oi,bmin->bmon", w, piece) for w, piece in zip(linear["out"], mixed, strict=True)]
    flat = torch.cat([piece.flatten(1, 2) for piece in out], dim=1)
    parts = [flat.real] if field_type.real else [flat.real, flat.imag]
    return torch.cat(parts, dim=1).unflatten(2, space)


_LINEAR = ("query", "key", "value", "out")


def _norm(pieces: list[Tensor]) -> Tensor:
    return (sum(piece.abs().square().sum() for piece in pieces) + 1e-3).sqrt()


def _complex(pair: Tensor) -> Tensor:
    return torch.complex(pair[0], pair[1] if len(pair) == 2 else torch.zeros_like(pair[0]))


def _unpack(field_type: FieldType, x: Tensor) -> list[Tensor]:
    """Complex pieces ``(batch, order, copy, voxel)`` by degree."""
    flat = torch.complex(x, torch.zeros_like(x)) if field_type.real else torch.complex(*x.chunk(2, dim=1))
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
