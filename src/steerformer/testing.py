"""Equivariance tests: errors and assertions for any module, in 2D and 3D.

Rotations by multiples of 90 degrees need no interpolation, so equality is exact. At other angles the input is an
analytic scene, a formula that is rotated before it is sampled, and outputs are compared at the central voxel, which
stays in place. So no interpolation error enters.
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
    r"""Analytic field of Gaussian blobs, of any type: $f(x) = \sum_b a_b\, e^{-|x-c_b|^2/2\sigma^2}$.

    Rotations act on centers and amplitudes, exactly: $[Rf](x) = \sum_b \rho(R) a_b\, e^{-|x-Rc_b|^2/2\sigma^2}$.

    Args:
        field_type: type of the field.
        centers: centers of the blobs relative to the center of the grid, in voxels or in the units of ``spacing``.
        amplitudes: channels of each blob.
        sigma: standard deviation of the blobs.
    """

    field_type: FieldType
    centers: Float[Tensor, "batch blob dim"]
    amplitudes: Float[Tensor, "batch blob channels"]
    sigma: float

    def rotate(self, R: Float[Tensor, "dim dim"]) -> "Scene":
        """The scene rotated about the origin."""
        rotated = self.amplitudes @ self.field_type.matrix(R.to(self.amplitudes)).mT
        return Scene(self.field_type, self.centers @ R.to(self.centers).mT, rotated, self.sigma)

    def sample(
        self, size: int | Sequence[int], spacing: Sequence[float] | None = None
    ) -> Float[Tensor, "batch channels *space"]:
        """Sample the scene on a centered grid of ``size`` voxels with this voxel spacing (1 if not given)."""
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
    """Random scenes of ``count`` blobs each; centers have standard deviation ``extent``, by default ``2 * sigma``."""
    generator = torch.Generator().manual_seed(seed)
    spread = 2 * sigma if extent is None else extent
    centers = spread * torch.randn(batch, count, field_type.group.dim, generator=generator, dtype=torch.float64)
    amplitudes = torch.randn(batch, count, field_type.channels, generator=generator, dtype=torch.float64)
    return Scene(field_type, centers.to(dtype), amplitudes.to(dtype), sigma)


@dataclass(frozen=True)
class EquivarianceError:
    """Relative equivariance error ``|layer(Rx) - R layer(x)| / |layer(x)|``, in total and per degree of the output."""

    total: float
    per_degree: dict[int, float]
    energy: dict[int, float]
    """Fraction of the output's energy in each degree; errors of degrees with little energy matter little."""

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
    """Relative equivariance error of ``layer`` under one rotation about the center of the grid.

    Args:
        layer: module or function, called in its current mode and dtype.
        rotation: rotation of the grid, or any other rotation.
        x: input for a rotation of the grid, compared at all voxels. Without it the scene is used.
        scene: analytic input for any rotation, compared at the central voxel; by default random :func:`blobs`.
        size: grid size on which the scene is sampled.
        spacing: voxel spacing with which the scene is sampled.
        in_type, out_type: field types, if neither the layer nor the ends of a ``Sequential`` have these attributes.
    """
    in_type = in_type or end_type(layer, "in_type")
    out_type = out_type or end_type(layer, "out_type")
    in_type.group.require_rotation(rotation)
    if x is not None and scene is not None:
        raise ValueError("equivariance_error takes a tensor x or a scene, got both.")
    if scene is not None and scene.field_type != in_type:
        raise ValueError(f"the scene holds {scene.field_type!r}, but the layer takes {in_type!r}.")
    with torch.no_grad():
        if x is not None:
            if not in_type.group.is_grid_rotation(rotation):
                raise ValueError("a tensor x is rotated exactly only by rotations of the grid; pass a scene instead.")
            expected = out_type.rotate(_output(layer, x), rotation)
            found = _output(layer, in_type.rotate(x, rotation))
        else:
            scene = scene or blobs(in_type, sigma=2.0 * max(spacing or [1.0]))
            original, rotated = (s.sample(size, spacing).to(_dtype(layer)) for s in (scene, scene.rotate(rotation)))
            expected = out_type.rotate(_at_center(_output(layer, original)), rotation)
            found = _at_center(_output(layer, rotated))
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
    """Raise ``AssertionError`` unless ``layer`` is equivariant to rotations, within ``tolerance``.

    A layer whose output is zero everywhere fails as well, because nothing would be tested.

    Rotations by multiples of 90 degrees cannot distinguish all degrees (in 2D, 2 from -2): test other angles as well.

    Args:
        layer: module or function; a module is tested as a float64 copy in eval mode.
        rotations: by default all rotations of the grid (those that keep ``spacing``), tested on noise, where equality
            is exact. Other rotations are tested on smooth analytic scenes and need a larger ``tolerance`` (two
            convolutions have errors of about 1e-2).
        size: grid size.
        spacing: voxel spacing.
        tolerance: largest relative equivariance error.
        batch: number of noise samples.
        seed: seed of the noise.
        in_type, out_type: field types, if neither the layer nor the ends of a ``Sequential`` have these attributes.

    >>> import steerformer as sf
    >>> image = sf.FieldType.image(sf.SO2, 3)
    >>> assert_equivariant(torch.nn.AvgPool2d(3, 1, 1), in_type=image, out_type=image)
    """
    in_type = in_type or end_type(layer, "in_type")
    exact = copy.deepcopy(layer).double().eval() if isinstance(layer, nn.Module) else layer
    tested = grid_rotations_preserving(in_type.group, spacing) if rotations is None else list(rotations)
    if not tested or batch < 1:
        raise ValueError(f"assert_equivariant needs a rotation and a sample, got {len(tested)} and batch={batch}.")
    noise = in_type.randn(batch, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for rotation in tested:
        in_type.group.require_rotation(rotation)
        x = noise if in_type.group.is_grid_rotation(rotation) else None
        error = equivariance_error(exact, rotation, x=x, size=size, spacing=spacing, in_type=in_type, out_type=out_type)
        if not error.total <= tolerance:
            raise AssertionError(
                f"{_name(layer)} is not equivariant: {error}, allowed {tolerance:.1e}, at rotation "
                f"{[[round(value, 4) for value in row] for row in rotation.tolist()]}. If it has strides, check "
                f"that its windows are centered on a grid of size {size}."
            )
        if not any(error.energy.values()):
            where = "at all voxels" if x is not None else "at the central voxel"
            raise AssertionError(
                f"the output of {_name(layer)} is zero {where}, so nothing was tested; use random weights."
            )


def grid_rotations_preserving(group: Group, spacing: Sequence[float] | None) -> list[Tensor]:
    """Rotations of the grid that keep the voxel spacing, identity first."""
    rotations = list(group.grid_rotations())
    if spacing is None:
        return rotations
    lengths = torch.tensor(spacing, dtype=torch.float64)
    return [R for R in rotations if torch.allclose(R.abs() @ lengths, lengths, rtol=1e-5)]


def _output(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    y = layer(x)
    if not isinstance(y, Tensor):
        raise TypeError(f"{_name(layer)} returns a {type(y).__name__}; wrap it so that it returns one tensor.")
    return y


def _name(layer: object) -> str:
    return type(layer).__name__ if isinstance(layer, nn.Module) else getattr(layer, "__name__", type(layer).__name__)


def _compare(out_type: FieldType, expected: Tensor, found: Tensor) -> EquivarianceError:
    if expected.shape != found.shape:
        raise ValueError(
            f"the output of the rotated input has shape {tuple(found.shape)}, expected {tuple(expected.shape)}; "
            f"check that the layer treats all spatial axes equally."
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
    """Relative error; 0 if both error and energy are 0."""
    if error == 0:
        return 0.0
    return (error / energy) ** 0.5 if energy else float("inf")


def _at_center(y: Tensor) -> Tensor:
    space = y.shape[2:]
    if any(n % 2 == 0 for n in space):
        raise ValueError(
            f"the output grid {tuple(space)} has no central voxel to compare without interpolation; "
            f"choose an input size whose output size is odd along every axis."
        )
    return y.flatten(2)[..., y[0, 0].numel() // 2] if space else y


def _dtype(layer: object) -> torch.dtype:
    """Dtype of the layer's parameters or buffers; float64 if it has none."""
    tensors = [*layer.parameters(), *layer.buffers()] if isinstance(layer, nn.Module) else []
    return next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.float64)


def end_type(layer: object, name: str) -> FieldType:
    """``in_type`` of the first or ``out_type`` of the last layer that has one."""
    found = _find_end_type(layer, name)
    if found is None:
        raise ValueError(f"{_name(layer)} has no {name}; pass {name}=FieldType(...).")
    return found


def _find_end_type(layer: object, name: str) -> FieldType | None:
    found = getattr(layer, name, None)
    if found is None and isinstance(layer, nn.Sequential):
        ends = [end for child in layer if (end := _find_end_type(child, name)) is not None]
        found = (ends[0] if name == "in_type" else ends[-1]) if ends else None
    return found if isinstance(found, FieldType) else None
