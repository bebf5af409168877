"""Weights of keys by their distance from the query, for local attention."""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch._guards import detect_fake_mode

from steerformer.fields import as_number
from steerformer.nn.offsets import Lattice, Spacings, offset_points
from steerformer.nn.ops import is_traced
from steerformer.nn.window import smooth_step


def require_radius(radius: float | None, falloff: float) -> tuple[float | None, float]:
    """Radius and fall-off as numbers; ``ValueError`` unless the radius is positive and the fall-off within it."""
    if radius is None:
        if falloff:
            raise ValueError(f"falloff belongs to a radius, got falloff={falloff!r} without one.")
        return None, 0.0
    numbers = as_number(radius), as_number(falloff)
    if not 0 < numbers[0] < math.inf:
        raise ValueError(f"radius is a positive distance in the units of spacing (voxels without it), got {radius!r}.")
    if not 0 <= numbers[1] <= numbers[0]:
        raise ValueError(f"falloff is a distance from 0 to the radius {radius!r}, got {falloff!r}.")
    return numbers


def log_falloff(lattice: Lattice, spacings: Spacings, falloff: float, like: Tensor) -> Float[Tensor, "*offsets"]:
    """Logarithms of the weights of all offsets: 0 within ``radius - falloff``, -inf beyond the radius."""
    assert spacings.radius is not None
    key = (lattice, spacings.units, spacings.radius, spacings.largest_distance, falloff)
    if is_traced(like) or detect_fake_mode(like) is not None:
        return _logarithms(*key).to(like)  # torch operations only, and no cache
    return _shared_logarithms(*key, like.dtype, like.device)


@lru_cache(maxsize=32)
def _shared_logarithms(
    lattice: Lattice,
    units: tuple[float, ...],
    radius: float,
    largest: float,
    falloff: float,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    # kept for later calls, which may need gradients
    with torch.device("cpu"), torch.inference_mode(False), torch.no_grad():
        return _logarithms(lattice, units, radius, largest, falloff).to(device=device, dtype=dtype)


def _logarithms(lattice: Lattice, units: Sequence[float], radius: float, largest: float, falloff: float) -> Tensor:
    distances = torch.linalg.vector_norm(offset_points(lattice, units), dim=-1)
    weights = smooth_step((radius - distances) / falloff) if falloff else torch.ones_like(distances)
    return weights.log().masked_fill(distances > largest, -math.inf)
