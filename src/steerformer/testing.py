"""Is it equivariant? Errors and assertions for any module, ours or yours, in two and three dimensions.

Quarter turns of the grid need no interpolation, so there equality is exact. At other angles the input is an analytic
scene: a formula that is turned first and sampled then, and outputs are compared at the one voxel that a rotation leaves
in place, the center. So no interpolation error enters anywhere.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, voxel_coordinates
from steerformer.groups import Group


@dataclass(frozen=True, eq=False)
class Scene:
    r"""A smooth field of any type, given by a formula: $f(x) = \sum_b a_b\, e^{-|x-c_b|^2/2\sigma^2}$.

    Turning it turns centers and amplitudes: $[Rf](x) = \sum_b \rho(R) a_b\, e^{-|x-Rc_b|^2/2\sigma^2}$, exactly.

    Args:
        field_type: what the amplitudes are.
        centers: in voxels (or in the units of ``spacing``), from the center of the grid.
        amplitudes: one vector of channels per blob.
        sigma: size of the blobs.
    """

    field_type: FieldType
    centers: Float[Tensor, "batch blob dim"]
    amplitudes: Float[Tensor, "batch blob channels"]
    sigma: float

    def rotate(self, R: Float[Tensor, "dim dim"]) -> "Scene":
        """The same scene, turned about the origin."""
        turned = self.amplitudes @ self.field_type.matrix(R.to(self.amplitudes)).mT
        return Scene(self.field_type, self.centers @ R.to(self.centers).mT, turned, self.sigma)

    def sample(
        self, size: int | Sequence[int], spacing: Sequence[float] | None = None
    ) -> Float[Tensor, "batch channels *space"]:
        """Values on a centered grid of ``size`` voxels, ``spacing`` apart (1 if not given)."""
        sizes = (size,) * self.field_type.group.dim if isinstance(size, int) else tuple(size)
        points = voxel_coordinates(sizes, spacing).to(self.centers)
        distances = torch.cdist(self.centers, points.flatten(0, -2).expand(len(self.centers), -1, -1))
        blobs = torch.exp(-(distances**2) / (2 * self.sigma**2))
        return torch.einsum("nbc,nbx->ncx", self.amplitudes, blobs).unflatten(2, sizes)


def blobs(
    field_type: FieldType,
    *,
    batch: int = 32,
    count: int = 12,
    sigma: float = 2.0,
    extent: float | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Scene:
    """A batch of random scenes, each of ``count`` blobs spread normally with deviation ``extent`` (twice ``sigma``)."""
    generator = torch.Generator().manual_seed(seed)
    spread = 2 * sigma if extent is None else extent
    centers = spread * torch.randn(batch, count, field_type.group.dim, generator=generator, dtype=torch.float64)
    amplitudes = torch.randn(batch, count, field_type.channels, generator=generator, dtype=torch.float64)
    return Scene(field_type, centers.to(dtype), amplitudes.to(dtype), sigma)


@dataclass(frozen=True)
class EquivarianceError:
    """Relative error ``|layer(Rx) - R layer(x)| / |layer(x)|``, in all and for each degree of the output."""

    total: float
    per_degree: dict[int, float]
    energy: dict[int, float]
    """Share of the output's energy in each degree: errors of a degree without energy matter little."""

    def __str__(self) -> str:
        degrees = ", ".join(
            f"degree {degree}: {error:.1e} ({self.energy[degree]:.0%} of the energy)"
            for degree, error in self.per_degree.items()
        )
        return f"relative error {self.total:.1e} ({degrees})"


def equivariance_error(
    layer: Callable[[Tensor], Tensor],
    rotation: Float[Tensor, "dim dim"],
    *,
    x: Float[Tensor, "batch channels *space"] | None = None,
    scene: Scene | None = None,
    size: int | Sequence[int] = 15,
    spacing: Sequence[float] | None = None,
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
) -> EquivarianceError:
    """How far ``layer`` is from commuting with one rotation about the center of the grid.

    Args:
        layer: a module or function; it is called as it is, in its own mode and precision.
        rotation: one of the grid's own rotations, or any other.
        x: input for a rotation of the grid, compared at all voxels. Without it the scene is used.
        scene: analytic input, for any rotation, compared at the central voxel; by default random :func:`blobs`.
        size: grid on which the scene is sampled.
        spacing: voxel spacing with which the scene is sampled.
        in_type, out_type: field types, where the layer (or the ends of a ``Sequential``) does not tell.
    """
    in_type = in_type or _end_type(layer, "in_type")
    out_type = out_type or _end_type(layer, "out_type")
    in_type.group.require_rotation(rotation)
    if x is not None and scene is not None:
        raise ValueError("equivariance_error takes a tensor x or a scene, got both.")
    if scene is not None and scene.field_type != in_type:
        raise ValueError(f"the scene holds {scene.field_type!r}, but the layer takes {in_type!r}.")
    with torch.no_grad():
        if x is not None:
            if not in_type.group.is_grid_rotation(rotation):
                raise ValueError("a tensor x is turned exactly by the grid's own rotations only; pass a scene instead.")
            expected = out_type.rotate(_output(layer, x), rotation)
            found = _output(layer, in_type.rotate(x, rotation))
        else:
            scene = scene or blobs(in_type, sigma=2.0 * max(spacing or [1.0]))
            upright, turned = (s.sample(size, spacing).to(_dtype(layer)) for s in (scene, scene.rotate(rotation)))
            expected = out_type.rotate(_at_center(_output(layer, upright)), rotation)
            found = _at_center(_output(layer, turned))
    return _compare(out_type, expected, found)


def assert_equivariant(
    layer: Callable[[Tensor], Tensor],
    *,
    rotations: Iterable[Float[Tensor, "dim dim"]] | None = None,
    size: int | Sequence[int] = 9,
    spacing: Sequence[float] | None = None,
    tolerance: float = 1e-8,
    batch: int = 2,
    seed: int = 0,
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
) -> None:
    """Raise ``AssertionError`` unless ``layer`` commutes with rotations, to ``tolerance``.

    A module is tried on a float64 copy in eval mode. By default this is done with all rotations of the grid (with
    ``spacing``, with those that keep it), on noise, where equality is exact. Other ``rotations`` are tried on smooth
    analytic scenes; give them a ``tolerance`` to match (two convolutions err by about 1e-2). Quarter turns cannot tell
    all degrees apart (in the plane, 2 from -2): try both.

    >>> import steerformer as sf
    >>> image = sf.FieldType.image(sf.SO2, 3)
    >>> assert_equivariant(torch.nn.AvgPool2d(3, 1, 1), in_type=image, out_type=image)
    """
    in_type = in_type or _end_type(layer, "in_type")
    exact = copy.deepcopy(layer).double().eval() if isinstance(layer, nn.Module) else layer
    tried = grid_rotations_keeping(in_type.group, spacing) if rotations is None else list(rotations)
    if not tried or batch < 1:
        raise ValueError(f"there is nothing to try: {len(tried)} rotations, a batch of {batch}.")
    noise = in_type.randn(batch, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for rotation in tried:
        in_type.group.require_rotation(rotation)
        x = noise if in_type.group.is_grid_rotation(rotation) else None
        error = equivariance_error(exact, rotation, x=x, size=size, spacing=spacing, in_type=in_type, out_type=out_type)
        if not error.total <= tolerance:
            raise AssertionError(
                f"{_name(layer)} is not equivariant: {error}, allowed {tolerance:.1e}, at rotation "
                f"{[[round(value, 4) for value in row] for row in rotation.tolist()]}. If it has strides, do its "
                f"windows lie centered on a grid of size {size}?"
            )


def grid_rotations_keeping(group: Group, spacing: Sequence[float] | None) -> list[Tensor]:
    """The grid's own rotations that map voxels of this size to voxels of this size, the identity first."""
    rotations = list(group.grid_rotations())
    if spacing is None:
        return rotations
    lengths = torch.tensor(spacing, dtype=torch.float64)
    return [R for R in rotations if torch.allclose(R.abs() @ lengths, lengths, rtol=1e-5)]


def _output(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    y = layer(x)
    if not isinstance(y, Tensor):
        raise TypeError(f"{_name(layer)} gives a {type(y).__name__}; wrap it so that it gives the tensor to compare.")
    return y


def _name(layer: object) -> str:
    return type(layer).__name__ if isinstance(layer, nn.Module) else getattr(layer, "__name__", type(layer).__name__)


def _compare(out_type: FieldType, expected: Tensor, found: Tensor) -> EquivarianceError:
    if expected.shape != found.shape:
        raise ValueError(
            f"the output of the turned input has shape {tuple(found.shape)}, expected {tuple(expected.shape)}; "
            f"does the layer treat the axes of space alike?"
        )
    energy = expected.square().sum().item()
    errors, shares = {}, {}
    pieces = zip(out_type.degrees, out_type.split(expected), out_type.split(found - expected), strict=True)
    for degree, value, difference in pieces:
        part = value.square().sum().item()
        shares[degree] = part / energy if energy else 0.0
        errors[degree] = _ratio(difference.square().sum().item(), part)
    return EquivarianceError(_ratio((found - expected).square().sum().item(), energy), errors, shares)


def _ratio(error: float, energy: float) -> float:
    """Relative error; nothing compared with nothing is no error."""
    if error == 0:
        return 0.0
    return (error / energy) ** 0.5 if energy else float("inf")


def _at_center(y: Tensor) -> Tensor:
    space = y.shape[2:]
    if any(n % 2 == 0 for n in space):
        raise ValueError(
            f"the output grid {tuple(space)} has no central voxel, where alone no interpolation is needed; "
            f"choose an input size whose output is odd along every axis."
        )
    return y.flatten(2)[..., y[0, 0].numel() // 2] if space else y


def _dtype(layer: object) -> torch.dtype:
    """What the layer computes in; float64 if it does not tell."""
    tensors = [*layer.parameters(), *layer.buffers()] if isinstance(layer, nn.Module) else []
    return next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.float64)


def _end_type(layer: object, name: str) -> FieldType:
    """``in_type`` of the first or ``out_type`` of the last layer that tells."""
    found = _find_end_type(layer, name)
    if found is None:
        raise ValueError(f"{_name(layer)} does not tell its {name}; pass {name}=FieldType(...).")
    return found


def _find_end_type(layer: object, name: str) -> FieldType | None:
    found = getattr(layer, name, None)
    if found is None and isinstance(layer, nn.Sequential):
        ends = [end for child in layer if (end := _find_end_type(child, name)) is not None]
        found = (ends[0] if name == "in_type" else ends[-1]) if ends else None
    return found if isinstance(found, FieldType) else None
