"""Field types: which irreps the channels of a tensor hold, and how they transform under rotations."""

from steerformer.fields.concatenation import concat, separate
from steerformer.fields.field_type import FieldType, require_field_type, require_floats
from steerformer.fields.grids import permute_axes, sample_at, voxel_coordinates
from steerformer.fields.numbers import as_number, is_integer
from steerformer.fields.real_form import real_form
from steerformer.fields.vectors import from_cartesian, to_cartesian

__all__ = [
    "FieldType",
    "as_number",
    "concat",
    "from_cartesian",
    "is_integer",
    "permute_axes",
    "real_form",
    "require_field_type",
    "require_floats",
    "sample_at",
    "separate",
    "to_cartesian",
    "voxel_coordinates",
]
