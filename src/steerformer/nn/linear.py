"""Equivariant linear layer: mix the copies of each degree at every position."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, require_field_type
from steerformer.nn.ops import require_same_placement
from steerformer.nn.scalar_bias import add_bias, scalar_bias


class Linear(nn.Module):
    r"""Equivariant linear layer: mix the copies of each degree at every position (paper, section 3.3).

    $$y_\ell(x) = f_\ell(x)\, W_\ell$$

    with a complex matrix $W_\ell$ per degree, which by Schur's lemma is the most general equivariant map of one
    position: $(\rho(R) f) W = \rho(R) (f W)$, for every rotation. Degrees that only the input has are dropped, degrees
    that only the output has are zero. Towards real scalars the layer returns the real part. Unit variance is kept at
    initialization: ``docs/theory.md``.

    Args:
        in_type: type of the input.
        out_type: type of the output; must share a degree with ``in_type``.
        bias: add a learned constant to the scalars of the output, initially zero; other degrees cannot have one.

    Shape:
        - Input: $(N, C_{in}, *)$ with batch size $N$, $C_{in}$ = ``in_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C_{out}, *)$ with $C_{out}$ = ``out_type.channels``.

    >>> import steerformer as sf
    >>> features, wide = sf.FieldType(sf.SO2, (8, 4)), sf.FieldType(sf.SO2, (16, 8))
    >>> sf.nn.Linear(features, wide)(features.randn(2, 16)).shape
    torch.Size([2, 48, 16, 16])
    """

    def __init__(self, in_type: FieldType, out_type: FieldType, *, bias: bool = False) -> None:
        super().__init__()
        require_field_type(in_type, "Linear")
        require_field_type(out_type, "Linear")
        if in_type.group is not out_type.group:
            raise ValueError(f"Linear needs both types in one group, got {in_type!r} in and {out_type!r} out.")
        self.in_type, self.out_type = in_type, out_type
        self.shared = [degree for degree in out_type.degrees if in_type.multiplicity(degree)]
        if not self.shared:
            raise ValueError(f"Linear mixes copies of equal degree, but {in_type} and {out_type} share none.")
        self.runs = degree_runs(in_type, out_type)
        parts = 1 if in_type.real and out_type.real else 2
        self.weights = nn.ParameterList(
            torch.empty(parts, out_type.multiplicity(degree), in_type.multiplicity(degree)) for degree in self.shared
        )
        self.bias = scalar_bias(out_type, "Linear") if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, with the variances of ``docs/theory.md``, "Initialization"; the bias is zero."""
        with torch.no_grad():
            for weight in self.weights:
                weight.normal_(std=1 / math.sqrt(weight.shape[2] * self.in_type.parts))
            if self.bias is not None:
                self.bias.zero_()

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *space"]:
        """Mix the copies of a field of type ``in_type``."""
        self.in_type.require_channels(x)
        require_same_placement(x, self.weights[0], "Linear")
        positions = math.prod(x.shape[2:])
        parts = self.in_type.parts
        field = x.reshape(x.shape[0], 1, parts, self.in_type.channels // parts, positions)
        mixed = multiply(self.matrices(), to_columns(field, self.runs))
        out = from_columns(mixed, self.runs, (1, x.shape[0], 1, self.out_type.parts, positions))
        out = out.reshape(x.shape[0], self.out_type.channels, *x.shape[2:])
        return out if self.bias is None else add_bias(out, self.bias, self.out_type)

    def matrices(self) -> list[Float[Tensor, "_ _ _"]]:
        """The weights as real matrices on parts and copies, one batch of matrices for each run with weights."""
        found, weights = [], list(self.weights)
        for run in self.runs:
            if run.is_shared:
                here, weights = weights[: run.degrees], weights[run.degrees :]
                found.append(self._real_form(torch.stack(here) if len(here) > 1 else here[0][None]))
        return found

    def _real_form(self, weights: Float[Tensor, "degree part copy_out copy_in"]) -> Tensor:
        if weights.shape[1] == 1:
            return weights[:, 0]
        re, im = weights.unbind(dim=1)
        rows = [torch.cat([re, -im], dim=2), torch.cat([im, re], dim=2)]
        if self.in_type.real:
            rows = [re, im]
        return rows[0] if self.out_type.real else torch.cat(rows, dim=1)

    def extra_repr(self) -> str:
        return f"{self.in_type} -> {self.out_type}{'' if self.bias is None else ', bias=True'}"


def is_plain(layer: nn.Module) -> bool:
    """Whether a product with :meth:`Linear.matrices` replaces a call: no subclass or wrapper, no hooks, no bias."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return type(layer) is Linear and layer.bias is None and not any(hooks)


class DegreeRun(NamedTuple):
    """Consecutive degrees with equally many orders and copies, which one batched matrix product mixes."""

    degrees: int
    orders: int
    in_copies: int
    out_copies: int

    @property
    def is_shared(self) -> bool:
        """Whether both input and output have these degrees."""
        return bool(self.in_copies and self.out_copies)


def degree_runs(in_type: FieldType, out_type: FieldType) -> tuple[DegreeRun, ...]:
    """Runs of the degrees that the input or the output has."""
    degrees = sorted({*in_type.degrees, *out_type.degrees})
    kinds = [(in_type.group.irrep_dim(d), in_type.multiplicity(d), out_type.multiplicity(d)) for d in degrees]
    return tuple(DegreeRun(len(list(same)), *kind) for kind, same in itertools.groupby(kinds))


def to_columns(
    x: Float[Tensor, "batch head part component position"], runs: Sequence[DegreeRun]
) -> Iterator[Float[Tensor, "degree row column"]]:
    """For each shared run a matrix for each degree: rows are (part, copy), columns (order, sample, position).

    Heads share the copies of every degree equally.
    """
    batch, heads, parts, _, positions = x.shape
    pieces = x.split([run.degrees * run.orders * (run.in_copies // heads) for run in runs], dim=3)
    for piece, run in zip(pieces, runs, strict=True):
        if run.is_shared:
            by_degree = piece.unflatten(3, (run.degrees, run.orders, -1)).permute(3, 2, 1, 5, 4, 0, 6)
            yield by_degree.reshape(run.degrees, parts * run.in_copies, run.orders * batch * positions)


def multiply(matrices: Iterable[Tensor], columns: Iterator[Tensor]) -> Iterator[Tensor]:
    """Products with the columns of each run; only one run's columns are in memory, unless gradients are needed."""
    for matrix in matrices:
        yield matrix @ next(columns)


def from_columns(
    columns: Iterator[Tensor], runs: Sequence[DegreeRun], shape: tuple[int, int, int, int, int]
) -> Float[Tensor, "layer batch head part component position"]:
    """The inverse of :func:`to_columns`; zeros where only the output has a degree.

    Args:
        columns: for each shared run ``(degree, row, column)``; rows are (layer, part, copy).
        runs: runs of all layers.
        shape: numbers of layers, samples, heads, parts and positions.
    """
    layers, batch, heads, parts, positions = shape
    pieces = []
    for run in runs:
        if run.is_shared:
            copies = (heads, run.out_copies // heads)
            by_degree = next(columns).view(run.degrees, layers, parts, *copies, run.orders, batch, positions)
            pieces.append(by_degree.permute(1, 6, 3, 2, 0, 5, 4, 7).flatten(4, 6))
    if any(run.out_copies and not run.in_copies for run in runs):
        found, like = iter(pieces), pieces[0]
        sizes = [(run, run.degrees * run.orders * run.out_copies // heads) for run in runs if run.out_copies]
        pieces = [
            next(found) if run.is_shared else like.new_zeros(layers, batch, heads, parts, size, positions)
            for run, size in sizes
        ]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=4)
