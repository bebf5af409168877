"""Arguments of attention: types, heads, spacings, context and mask."""

import math
from collections.abc import Sequence

from torch import Tensor

from steerformer.fields import FieldType, as_number, is_integer, require_field_type
from steerformer.nn.metadata import without_metadata
from steerformer.nn.offsets import Spacings
from steerformer.nn.ops import require_space
from steerformer.nn.position import checked_spacing


def require_attention_types(query_type: FieldType, key_type: FieldType | None, num_heads: int) -> None:
    """Raise ``ValueError`` unless attention between these types with this number of heads is possible."""
    require_field_type(query_type, "Attention")
    if key_type is not None:
        require_field_type(key_type, "Attention")
        if key_type.group is not query_type.group:
            raise ValueError(f"Attention needs both types in one group, got {query_type!r} and {key_type!r}.")
        if not set(query_type.degrees) & set(key_type.degrees):
            raise ValueError(
                f"queries and keys are compared degree by degree, but {query_type} and {key_type} share no degree."
            )
    _require_heads(query_type, num_heads)


def _require_heads(field_type: FieldType, num_heads: int) -> None:
    if not is_integer(num_heads, least=1):
        raise ValueError(f"num_heads is an integer >= 1, got {num_heads!r}.")
    possible = math.gcd(*field_type.multiplicities)
    if possible % num_heads:
        fitting = [n for n in range(1, possible + 1) if possible % n == 0]
        raise ValueError(
            f"num_heads must divide the copies of every degree of {field_type}, got {num_heads}; "
            f"possible: {', '.join(map(str, fitting))}."
        )


def require_bound(qk_norm: float) -> float:
    """The largest score of content as a number; ``ValueError`` unless it is positive."""
    number = as_number(qk_norm)
    if not 0 < number < math.inf:
        raise ValueError(f"qk_norm is the largest score of content, a number above 0, got {qk_norm!r}.")
    return number


def attention_spacings(
    query_type: FieldType,
    key_type: FieldType | None,
    spacing: Sequence[float] | None,
    context_spacing: Sequence[float] | None,
    radius: float | None,
    positional: bool,
) -> Spacings:
    """Spacings of queries and keys; where nothing depends on distances, those of the context may be any."""
    dim = query_type.group.dim
    if context_spacing is not None and key_type is None:
        raise ValueError("context_spacing belongs to a context; write Attention(query_type, key_type, num_heads=...).")
    of_queries = checked_spacing(spacing, dim) or (1.0,) * dim
    of_keys = checked_spacing(context_spacing, dim) or of_queries
    return Spacings(of_queries, of_keys if positional or radius is not None else of_queries, radius)


def source_and_mask(
    x: Tensor, in_type: FieldType, context_type: FieldType | None, context: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The field of keys and values and its padding mask, from the arguments of a call."""
    if context_type is None:
        if context is not None and (mask is not None or context.ndim == x.ndim):
            raise ValueError(
                f"this Attention of {in_type} is self-attention and takes no context; write Attention(query_type, "
                f"key_type, num_heads=...) for cross-attention."
            )
        source, mask = x, context if mask is None else mask
    else:
        if context is None:
            raise ValueError(f"this Attention attends to a context of {context_type!r}; call it with (x, context).")
        require_space(context_type, context, "Attention to a context")
        if len(context) != len(x):
            raise ValueError(f"x and context are of one batch size, got {len(x)} and {len(context)}.")
        source = without_metadata(context)
    return source, None if mask is None else without_metadata(mask)
