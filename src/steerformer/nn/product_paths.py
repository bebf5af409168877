"""Paths of a tensor product: which degree of one field couples with which degree of the other, to which degree."""

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from steerformer.fields import FieldType, is_integer
from steerformer.groups import Group


class ProductPath(NamedTuple):
    r"""Degrees that couple, and how: $C_{J\ell}(a_J, b_\ell)$ of a harmonic and a degree, with $a_{-J} = \bar a_J$."""

    left: int
    right: int
    out: int
    harmonic: int
    """Degree of the first factor of the coupling, negative if it is conjugated."""
    is_swapped: bool
    """Whether the first factor of the coupling is the right one."""

    def coupling(self, group: Group, parts: int) -> Tensor:
        """Coupling that gives a product of unit variance from independent factors of unit variance."""
        with torch.device("cpu"):  # values are needed, even if the layer is built on "meta"
            coupling = group.coupling(self.out, self.harmonic, self.left if self.is_swapped else self.right)
        # |C(y)| = |y|: the energy of y, its orders times parts, is spread over the orders of `out`; parts add up
        return math.sqrt(group.irrep_dim(self.out) / (parts * group.irrep_dim(abs(self.harmonic)))) * coupling


def product_paths(
    left: FieldType, right: FieldType, out: FieldType, chosen: Iterable[Sequence[int]] | None
) -> list[ProductPath]:
    """The chosen paths ``(degree, degree, degree of the output)``, or all that couple; by degree of the output."""
    if chosen is None:
        candidates = product(left.degrees, right.degrees, out.degrees)
        found = [path for degrees in candidates if (path := _path(left.group, *degrees)) is not None]
    else:
        found = [_chosen_path(left, right, out, degrees) for degrees in chosen]
    if len(set(found)) < len(found):
        raise ValueError(f"each path of TensorProduct is given once, got {[tuple(path[:3]) for path in found]}.")
    for degree in out.degrees:
        if degree not in {path.out for path in found}:
            raise ValueError(
                f"no path of TensorProduct from {left} and {right} leads to degree {degree}; add one, or leave the "
                f"degree out of {out}."
            )
    return sorted(found, key=lambda path: path.out)


def _path(group: Group, left: int, right: int, out: int) -> ProductPath | None:
    """The coupling of two degrees: as they are if possible, otherwise with the complex conjugate of one of them."""
    if left in group.harmonic_degrees(out, right):
        return ProductPath(left, right, out, left, is_swapped=False)
    if -left in group.harmonic_degrees(out, right):
        return ProductPath(left, right, out, -left, is_swapped=False)
    if -right in group.harmonic_degrees(out, left):
        return ProductPath(left, right, out, -right, is_swapped=True)
    return None


def _chosen_path(left: FieldType, right: FieldType, out: FieldType, degrees: Sequence[int]) -> ProductPath:
    values = tuple(degrees)
    if len(values) != 3 or not all(is_integer(degree, least=0) for degree in values):
        raise ValueError(f"a path of TensorProduct is (degree, degree, degree of the output), got {degrees!r}.")
    for degree, field_type in zip(values, (left, right, out), strict=True):
        if degree not in field_type.degrees:
            raise ValueError(f"path {values} of TensorProduct needs degree {degree}, which {field_type!r} lacks.")
    found = _path(left.group, *values)
    if found is None:
        raise ValueError(f"degrees {values[0]} and {values[1]} do not couple to degree {values[2]} in {left.group}.")
    return found
