"""Rotation groups as values: all that differs between images and volumes is their methods."""

from steerformer.groups.base import Group
from steerformer.groups.so2 import SO2
from steerformer.groups.so3 import SO3

GROUPS: dict[str, Group] = {group.name: group for group in (SO2, SO3)}
"""Groups by the names that files and compiled code know them by."""

__all__ = ["GROUPS", "SO2", "SO3", "Group"]
