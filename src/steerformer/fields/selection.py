"""Chosen degrees of a field, or chosen copies of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from steerformer.fields.numbers import is_integer

Selection: TypeAlias = int | Iterable[int] | Mapping[int, slice | Iterable[int]]
"""A degree, several degrees, or the copies of each degree."""


def chosen_copies(multiplicities: Sequence[int], chosen: Selection) -> dict[int, list[int]]:
    """Indices of the chosen copies of each chosen degree."""
    if isinstance(chosen, Mapping):
        copies = {degree: _indices(multiplicities, degree, wanted) for degree, wanted in chosen.items()}
    else:
        degrees = chosen if isinstance(chosen, Iterable) else [chosen]
        copies = {degree: _indices(multiplicities, degree, slice(None)) for degree in degrees}
    if not any(copies.values()):
        raise ValueError(f"a selection needs at least one copy of one degree, got {chosen!r}.")
    return copies


def _indices(multiplicities: Sequence[int], degree: int, wanted: slice | Iterable[int]) -> list[int]:
    present = [degree for degree, count in enumerate(multiplicities) if count]
    if not is_integer(degree, least=0) or degree not in present:
        raise ValueError(f"a selection takes degrees of the field, {present}, got {degree!r}.")
    count = multiplicities[degree]
    if isinstance(wanted, slice):
        return list(range(count))[wanted]
    if not isinstance(wanted, Iterable):
        raise TypeError(f"the copies of degree {degree} are a slice or a list of indices, got {wanted!r}.")
    found = list(wanted)
    for copy in found:
        if not is_integer(copy, least=0) or copy >= count:
            raise ValueError(f"copies of degree {degree} have indices 0 to {count - 1}, got {copy!r}.")
    return found
