"""Block structure of a kernel: skip the pairs of degrees whose kernels are always zero.

No kernel joins degrees that are far apart: on a 5x5 grid no harmonic beyond 4 is pure, so degree 0 receives nothing
from degrees 5 to 7. Output degrees are cut into a few bands, each convolved with the input degrees that reach it.
"""

from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

from steerformer.fields import FieldType
from steerformer.kernels import KernelBasis

_MOST_CUTS = 2
_WORTH = 0.92  # cutting costs memory copies: the remaining arithmetic must be below this share


class Band(NamedTuple):
    """Output channels (of one part) and the input channels (of one part) that reach them, possibly none."""

    out: slice
    inp: slice


EVERYTHING = Band(slice(None), slice(None))
"""A single band of all channels."""


def bands(basis: KernelBasis) -> list[Band]:
    """The cut with the least arithmetic; a single band if cutting does not pay off."""
    outs, ins = _edges(basis.out_type), _edges(basis.in_type)
    degrees_out, degrees_in = basis.out_type.degrees, basis.in_type.degrees
    joined = {(degrees_out.index(path.degree_out), degrees_in.index(path.degree_in)) for path in basis.paths}

    def band(first: int, last: int) -> Band:
        reach = [i for o, i in joined if first <= o < last]
        inp = slice(ins[min(reach)], ins[max(reach) + 1]) if reach else slice(0, 0)
        return Band(slice(outs[first], outs[last]), inp)

    whole = [Band(slice(0, outs[-1]), slice(0, ins[-1]))]
    best = whole
    for cuts in range(_MOST_CUTS + 1):
        for inner in combinations(range(1, len(degrees_out)), cuts):
            marks = [0, *inner, len(degrees_out)]
            found = [band(first, last) for first, last in pairwise(marks)]
            best = min(best, found, key=_arithmetic)
    return best if _arithmetic(best) < _WORTH * _arithmetic(whole) else whole


def _edges(field_type: FieldType) -> list[int]:
    """First channel of each degree within a part, and the end of the last degree."""
    sizes = (field_type.group.irrep_dim(degree) * field_type.multiplicity(degree) for degree in field_type.degrees)
    return [0, *accumulate(sizes)]


def _arithmetic(found: list[Band]) -> int:
    return sum((band.out.stop - band.out.start) * (band.inp.stop - band.inp.start) for band in found)
