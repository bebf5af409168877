"""Rotation groups as values: all that differs between images and volumes is their methods."""

from steerformer.groups.base import Group
from steerformer.groups.so2 import SO2
from steerformer.groups.so3 import SO3

__all__ = ["SO2", "SO3", "Group"]
