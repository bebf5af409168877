"""The attention core on given tokens: our ways, torch's own attention, and the naive way."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

import steerformer as sf
from measure import Contestant, peak_memory
from steerformer.nn.attend import attend

PEER = "torch"
FLAT, FLAT_HEADS = sf.FieldType(sf.SO2, (64,) * 8), 8
SOLID, SOLID_HEADS = sf.FieldType(sf.SO3, (64, 32, 16)), 4
_PROBE = {2: (12, 12), 3: (5, 5, 5)}


@dataclass(frozen=True)
class Grid:
    """Tokens of one image or volume, and what the design allows for them."""

    field_type: sf.FieldType
    num_heads: int
    space: tuple[int, ...]
    most_ratio: float | None = None
    """Largest ratio to torch's time, forward and backward."""
    most_megabytes: float | None = None
    """Largest peak memory, forward and backward."""

    @property
    def label(self) -> str:
        return f"{len(self.space)}D, {'x'.join(map(str, self.space))}"

    @property
    def tokens(self) -> int:
        return math.prod(self.space)

    @property
    def head_size(self) -> int:
        """Real numbers of a token in a head: both parts, all degrees, orders and copies."""
        return self.field_type.channels // self.num_heads


def flat(*space: int, most_ratio: float | None = None, most_megabytes: float | None = None) -> Grid:
    return Grid(FLAT, FLAT_HEADS, space, most_ratio, most_megabytes)


def solid(size: int, *, most_ratio: float | None = None, most_megabytes: float | None = None) -> Grid:
    return Grid(SOLID, SOLID_HEADS, (size,) * 3, most_ratio, most_megabytes)


def inputs(grid: Grid) -> tuple[Tensor, ...]:
    """Random arguments of :func:`attend`; queries are scaled as the layer scales them, so that weights spread."""
    shape = (1, grid.num_heads, grid.head_size, grid.tokens)
    q, k, v = (torch.randn(shape) for _ in range(3))
    copies = [n // grid.num_heads for n in grid.field_type.multiplicities]
    head_type = sf.FieldType(grid.field_type.group, copies)
    positions = [[sf.nn.PositionalEncoding(head_type) for _ in range(grid.num_heads)] for _ in range(2)]
    key_map, value_map = (torch.stack([p.matrix() for p in heads]).detach() for heads in positions)
    q = q / math.sqrt(grid.head_size)
    learned = [x.requires_grad_() for x in (q, k, v, key_map, value_map)]
    return *learned, positions[0][0].table(grid.space)


def naive_attention(q: Tensor, k: Tensor, v: Tensor, key_map: Tensor, value_map: Tensor, table: Tensor) -> Tensor:
    """What :func:`attend` computes, with an encoding for every pair and channel, as in the paper's own program.

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


def contestants(grid: Grid, ways: list[str], *, backward: bool) -> list[Contestant]:
    """One for each way: ``torch``, ``naive``, or an implementation of :func:`attend`; all on the same tokens."""
    given = inputs(grid)
    queries, keys, values = (x.detach().mT.contiguous().requires_grad_() for x in given[:3])
    calls: dict[str, Callable[[], Tensor]] = {
        PEER: lambda: F.scaled_dot_product_attention(queries, keys, values),
        "naive": lambda: naive_attention(*given),
        "dense": lambda: attend(*given, implementation="dense"),
        "blockwise": lambda: attend(*given, implementation="blockwise"),
        "auto": lambda: attend(*given, implementation="auto"),
    }
    return [Contestant(way, calls[way], backward) for way in ways]


def foreseen_peak(grid: Grid, way: str) -> float:
    """Bytes that a way which forms all pairs would take on this grid, from a small grid that it was measured on."""
    return _bytes_of_a_pair(grid.field_type, grid.num_heads, way) * grid.tokens**2


@lru_cache
def _bytes_of_a_pair(field_type: sf.FieldType, num_heads: int, way: str) -> float:
    probe = Grid(field_type, num_heads, _PROBE[field_type.group.dim])
    (contestant,) = contestants(probe, [way], backward=True)
    return peak_memory(contestant) / probe.tokens**2


def _rows_of_pairs(table: Tensor) -> Tensor:
    """Rows ``(query, key, row)`` of all pairs: entry ``t`` of an axis of the table is offset ``n - 1 - t``."""
    space = torch.tensor([(length + 1) // 2 for length in table.shape[:-1]])
    places = torch.cartesian_prod(*(torch.arange(n) for n in space))
    entries = space - 1 - (places[:, None] - places[None])
    return table[entries.unbind(-1)]


def _complex(x: Tensor) -> Tensor:
    """Components are real parts, then imaginary parts."""
    return torch.complex(*x.chunk(2, dim=-2))
