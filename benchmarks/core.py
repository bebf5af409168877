"""The attention core on given tokens: our implementations, torch's attention, and the naive implementation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

import steerformer as sf
from measure import Contestant, peak_memory
from steerformer.nn.attention_core import attend

BASELINE = "torch"
FLAT, FLAT_HEADS = sf.FieldType(sf.SO2, (64,) * 8), 8
SOLID, SOLID_HEADS = sf.FieldType(sf.SO3, (64, 32, 16)), 4
_PROBE = {2: (12, 12), 3: (5, 5, 5)}


@dataclass(frozen=True)
class Grid:
    """Tokens of one image or volume, and their limits."""

    field_type: sf.FieldType
    num_heads: int
    space: tuple[int, ...]
    ratio_limit: float | None = None
    """Largest time relative to torch's, forward and backward."""
    forward_limit: float | None = None
    """The same for forward alone."""
    megabyte_limit: float | None = None
    """Largest peak memory, forward and backward."""

    @property
    def label(self) -> str:
        return f"{len(self.space)}D, {'x'.join(map(str, self.space))}"

    @property
    def tokens(self) -> int:
        return math.prod(self.space)

    @property
    def head_dim(self) -> int:
        """Real channels of a token in a head: real and imaginary parts, all degrees, orders and copies."""
        return self.field_type.channels // self.num_heads


def flat(*space: int, **limits: float) -> Grid:
    return Grid(FLAT, FLAT_HEADS, space, **limits)


def solid(size: int, **limits: float) -> Grid:
    return Grid(SOLID, SOLID_HEADS, (size,) * 3, **limits)


def inputs(grid: Grid) -> tuple[Tensor, ...]:
    """Random arguments of :func:`attend`; queries are scaled as in the layer, so that attention is spread."""
    shape = (1, grid.num_heads, grid.head_dim, grid.tokens)
    q, k, v = (torch.randn(shape) for _ in range(3))
    copies = [n // grid.num_heads for n in grid.field_type.multiplicities]
    head_type = sf.FieldType(grid.field_type.group, copies)
    positions = [[sf.nn.PositionalEncoding(head_type) for _ in range(grid.num_heads)] for _ in range(2)]
    key_map, value_map = (torch.stack([p.matrix() for p in heads]).detach() for heads in positions)
    q = q / math.sqrt(grid.head_dim)
    learned = [x.requires_grad_() for x in (q, k, v, key_map, value_map)]
    return *learned, positions[0][0].table(grid.space)


def naive_attention(q: Tensor, k: Tensor, v: Tensor, key_map: Tensor, value_map: Tensor, table: Tensor) -> Tensor:
    """What :func:`attend` computes, with an encoding for every pair and channel, as in the authors' code.

    Keys and values are formed pair by pair, ``(batch, head, query, key, component)``, and autograd keeps them.
    """
    basis = _rows_of_pairs(table).to(q.dtype.to_complex())

    def of_pairs(x: Tensor, matrix: Tensor) -> Tensor:
        return _complex(x).mT[:, :, None] + torch.einsum("ijr,hcr->hijc", basis, _complex(matrix))

    scores = of_pairs(k, key_map) @ _complex(q).mT.conj()[..., None]
    weights = scores.squeeze(-1).abs().softmax(dim=-1)
    mixed = weights[..., None, :].to(basis.dtype) @ of_pairs(v, value_map)
    mixed = mixed.squeeze(-2).mT
    return torch.cat([mixed.real, mixed.imag], dim=2)


def contestants(grid: Grid, implementations: list[str], *, backward: bool) -> list[Contestant]:
    """``torch``, ``naive`` and implementations of :func:`attend`, all on the same tokens."""
    given = inputs(grid)
    queries, keys, values = (x.detach().mT.contiguous().requires_grad_() for x in given[:3])
    calls: dict[str, Callable[[], Tensor]] = {
        BASELINE: lambda: F.scaled_dot_product_attention(queries, keys, values),
        "naive": lambda: naive_attention(*given),
        "dense": lambda: attend(*given, implementation="dense"),
        "blockwise": lambda: attend(*given, implementation="blockwise"),
        "auto": lambda: attend(*given, implementation="auto"),
    }
    return [Contestant(name, calls[name], backward) for name in implementations]


def extrapolated_peak(grid: Grid, implementation: str) -> float:
    """Peak memory in bytes of an implementation that forms all pairs, extrapolated from a small grid."""
    return _bytes_per_pair(grid.field_type, grid.num_heads, implementation) * grid.tokens**2


@lru_cache
def _bytes_per_pair(field_type: sf.FieldType, num_heads: int, implementation: str) -> float:
    probe = Grid(field_type, num_heads, _PROBE[field_type.group.dim])
    (contestant,) = contestants(probe, [implementation], backward=True)
    return peak_memory(contestant.run) / probe.tokens**2


def _rows_of_pairs(table: Tensor) -> Tensor:
    """Rows ``(query, key, row)`` of all pairs: entry ``t`` along an axis of the table is offset ``n - 1 - t``."""
    space = torch.tensor([(length + 1) // 2 for length in table.shape[:-1]])
    places = torch.cartesian_prod(*(torch.arange(n) for n in space))
    entries = space - 1 - (places[:, None] - places[None])
    return table[entries.unbind(-1)]


def _complex(x: Tensor) -> Tensor:
    """Channels are real parts, then imaginary parts."""
    return torch.complex(*x.chunk(2, dim=-2))
