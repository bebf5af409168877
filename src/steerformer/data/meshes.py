"""Sampling of points on the surface of meshes in .off files."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from steerformer.data.seeding import seeded_generator
from steerformer.io.errors import DataError

POINTS = 2048
"""Points per mesh, as in the paper."""
_CANDIDATES = 4
"""Uniform samples per point that farthest-point sampling keeps."""
_KEY = 3


def sample_meshes(files: Sequence[Path], *, first: int = 0, count: int) -> Float[Tensor, "file count 3"]:
    """``count`` points on each mesh; random numbers depend only on the number of the mesh, counted from ``first``."""
    candidates = []
    for number, path in enumerate(files, start=first):
        vertices, triangles = read_off(path)
        candidates.append(
            sample_surface(vertices, triangles, _CANDIDATES * count, seeded_generator(_KEY, number), where=path)
        )
    return farthest_point_sampling(torch.stack(candidates), count)


def read_off(path: Path) -> tuple[Float[Tensor, "vertex 3"], Int[Tensor, "triangle 3"]]:
    """Vertices and triangles of an .off file; polygons are triangulated as fans.

    Some files of ModelNet lack the line break after the header, ``OFF490 518 0``; they are read, too.
    """
    try:
        text = re.sub(r"#.*", "", path.read_text(encoding="ascii"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not an .off file: it is not text.") from None
    if not text.lstrip().startswith("OFF"):
        raise DataError(f"{path} is not an .off file: it does not start with OFF.")
    try:
        return _parse(text.lstrip().removeprefix("OFF").split())
    except (ValueError, IndexError):
        raise DataError(f"{path} is truncated or damaged: its numbers do not match its counts.") from None


def _parse(words: list[str]) -> tuple[Tensor, Tensor]:
    vertex_count, face_count = int(words[0]), int(words[1])
    end = 3 + 3 * vertex_count
    vertices = np.array(words[3:end], dtype=np.float64).reshape(vertex_count, 3)
    rest = words[end:]
    if rest[::4] == ["3"] * face_count and len(rest) == 4 * face_count:
        triangles = np.array(rest, dtype=np.int64).reshape(face_count, 4)[:, 1:]
    else:
        triangles = _fans(rest, face_count)
    if not np.isfinite(vertices).all() or triangles.min(initial=0) < 0 or triangles.max(initial=0) >= vertex_count:
        raise ValueError
    return torch.from_numpy(vertices), torch.from_numpy(triangles)


def _fans(words: list[str], face_count: int) -> np.ndarray:
    triangles, at = [], 0
    for _ in range(face_count):
        corners = int(words[at])
        face = [int(word) for word in words[at + 1 : at + 1 + corners]]
        if len(face) != corners:
            raise ValueError
        triangles += [(face[0], face[i], face[i + 1]) for i in range(1, corners - 1)]
        at += 1 + corners
    return np.array(triangles, dtype=np.int64).reshape(-1, 3)


def sample_surface(
    vertices: Float[Tensor, "vertex 3"],
    triangles: Int[Tensor, "triangle 3"],
    count: int,
    random: torch.Generator,
    *,
    where: object = "the mesh",
) -> Float[Tensor, "count 3"]:
    """Sample points uniformly over the surface of a mesh."""
    a, b, c = vertices[triangles].unbind(dim=1)
    areas = torch.linalg.cross(b - a, c - a).norm(dim=1)
    if not areas.sum() > 0:
        raise DataError(f"{where} has no surface: all its triangles have area 0.")
    edges = areas.cumsum(dim=0)
    picks = torch.rand(count, generator=random, dtype=torch.float64) * edges[-1]
    chosen = torch.searchsorted(edges, picks, right=True).clamp_max(len(areas) - 1)
    u, v = torch.rand(2, count, 1, generator=random, dtype=torch.float64)
    u, v = torch.where(u + v > 1, 1 - u, u), torch.where(u + v > 1, 1 - v, v)  # fold the square onto the triangle
    return (a[chosen] + u * (b - a)[chosen] + v * (c - a)[chosen]).float()


def farthest_point_sampling(points: Float[Tensor, "batch point 3"], count: int) -> Float[Tensor, "batch count 3"]:
    """Farthest-point sampling: each point is the one farthest from all before it, the first from the mean."""
    rows = torch.arange(len(points))
    chosen = (points - points.mean(dim=1, keepdim=True)).square().sum(dim=2).argmax(dim=1)
    distance = torch.full(points.shape[:2], torch.inf, dtype=points.dtype)
    x, y, z = points.unbind(dim=2)
    order = []
    for _ in range(count):
        order.append(chosen)
        cx, cy, cz = (axis[rows, chosen, None] for axis in (x, y, z))
        distance = torch.minimum(distance, (x - cx) ** 2 + (y - cy) ** 2 + (z - cz) ** 2)
        chosen = distance.argmax(dim=1)
    return points[rows[:, None], torch.stack(order, dim=1)]
