"""Rotation groups SO(2) and SO(3): irreps, harmonics and couplings behind one interface."""

from steerformer.groups.base import Group
from steerformer.groups.so2 import SO2
from steerformer.groups.so3 import SO3

GROUPS: dict[str, Group] = {group.name: group for group in (SO2, SO3)}
"""Groups by name, for files and compiled code."""

__all__ = ["GROUPS", "SO2", "SO3", "Group"]
