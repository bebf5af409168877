"""Multiplicities of a field type from tuples, dictionaries and text."""

import re
from collections.abc import Iterable, Mapping, Set
from typing import cast

from steerformer.fields.numbers import is_integer
from steerformer.groups import Group

_MOST_DEGREE = 256


def checked_multiplicities(copies: object) -> tuple[int, ...]:
    """The multiplicity of degree 0, 1, 2, ..., without zeros at the end, from such a list or from a dictionary."""
    if isinstance(copies, Mapping):
        copies = _listed(copies)
    if not isinstance(copies, Iterable) or isinstance(copies, (Set, bytes)):
        raise TypeError(f"a field type needs the multiplicity of each degree, such as (8, 4, 2), got {copies!r}.")
    counts: list[int] = []
    for degree, count in enumerate(copies):
        if not is_integer(count, least=0):
            raise ValueError(f"the multiplicity of degree {degree} is an integer >= 0, got {count!r}.")
        counts.append(int(count))
    while counts and counts[-1] == 0:
        counts.pop()
    if not counts:
        raise ValueError("a field type needs at least one copy of one degree, got none.")
    return tuple(counts)


def parse_multiplicities(text: str, group: Group) -> tuple[dict[int, int], bool]:
    """Multiplicities of a text such as ``"8x0+4x1"`` or ``"8x0e+4x1o"``, and whether it says that the field is real.

    Real fields are ``"8x0+4x1 real"``, or ``"3xreal"`` for scalars.
    """
    if scalars := re.fullmatch(r"\s*(\d+)xreal\s*", text):
        return {0: int(scalars[1])}, True
    degrees = re.sub(r"\s+real\s*$", "", text)
    words = degrees.replace(" ", "").split("+")
    terms = [_term(word, text) for word in words]
    letters = {letter for _, _, letter in terms}
    if "" in letters and len(letters) > 1:
        raise ValueError(f"write a parity letter after every degree or after none, got {text!r}.")
    if not letters <= {"", *group.parities}:
        raise ValueError(f"degrees of {group} have no parity, got {text!r}; leave the letters out.")
    counts: dict[int, int] = {}
    for copies, degree, letter in terms:
        if degree in counts and not letter:  # e3nn's notation may repeat degrees
            raise ValueError(f"degree {degree} occurs twice in field type {text!r}.")
        counts[degree] = counts.get(degree, 0) + copies
    return counts, degrees != text


def _term(word: str, text: str) -> tuple[int, int, str]:
    """Copies, degree and parity letter, if any, of a term such as ``"4x1"``, ``"4x1o"`` or ``"1o"``."""
    found = re.fullmatch(r"(?:(\d+)x)?(\d+)([eo]?)", word)
    if found is None or not (found[1] or found[3]):
        raise ValueError(
            f"cannot parse {word!r} in field type {text!r}; write copies x degree, such as '8x0+4x1' or '8x0+4x1 "
            f"real', or '3xreal'."
        )
    return int(found[1] or 1), int(found[2]), found[3]


def _listed(copies: Mapping[object, object]) -> list[object]:
    counts: dict[int, object] = {}
    for degree, count in copies.items():
        if not is_integer(degree, least=0):
            raise ValueError(f"the degrees of a field type are integers >= 0, got {degree!r} in {copies!r}.")
        counts[cast(int, degree)] = count
    largest = max(counts, default=0)
    if largest > _MOST_DEGREE:
        raise ValueError(f"the largest degree of a field type is {_MOST_DEGREE}, got {largest}.")
    return [counts.get(degree, 0) for degree in range(largest + 1)]
