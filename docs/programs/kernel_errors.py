"""Equivariance errors of kernels on a voxel grid, for docs/kernels.md."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from steerformer.fields import FieldType, voxel_coordinates
from steerformer.groups import SO2, SO3, Group
from steerformer.kernels import VoxelKernels
from steerformer.nn import Conv, NormReLU
from steerformer.testing import EquivarianceError, blobs, equivariance_error

BLOB_SIGMA = {SO2.name: 2.0, SO3.name: 1.5}


@dataclass(frozen=True)
class KernelError:
    """Impurity of one voxel kernel, and its equivariance error on blobs."""

    impurity: float
    error: float
    radius: float
    """Root-mean-square radius, in voxels."""


def single_kernel_errors(kernels: VoxelKernels, degree: int, rotations: Sequence[Tensor]) -> list[KernelError]:
    """Equivariance error of each single kernel of ``degree``, on blobs rotated by ``rotations``."""
    values, purity = kernels.functions(degree)[:2]
    squared_radius = voxel_coordinates(kernels.size, kernels.steps).square().sum(dim=-1)
    found = []
    for kernel, share in zip(values, purity.tolist(), strict=True):
        error = mean_error(CentralResponse(kernels.group, kernel, degree), rotations, kernels, size=kernels.size)
        weight = kernel.abs().square().sum(dim=0)
        found.append(KernelError(1 - share, error, math.sqrt((weight * squared_radius).sum() / weight.sum())))
    return found


def two_convolutions(kernels: VoxelKernels, degrees: int, *, bias: float | None = None, seed: int = 0) -> nn.Module:
    """Two unpadded convolutions from an image to 4 copies of each degree, normal weights; a bias adds a NormReLU."""
    image, features = FieldType.image(kernels.group, 1), FieldType(kernels.group, (4,) * degrees)
    torch.manual_seed(seed)
    options: dict[str, Any] = {"kernel_family": kernels.family, "max_impurity": kernels.max_impurity, "padding": 0}
    layers: list[nn.Module] = [Conv(image, features, kernel_size=kernels.size, **options)]
    layers += [] if bias is None else [NormReLU(features, bias=bias)]
    layers.append(Conv(features, features, kernel_size=kernels.size, **options))
    for layer in layers:
        if isinstance(layer, Conv):
            nn.init.normal_(layer.weight)
    return nn.Sequential(*layers).double()


def per_degree_errors(
    layers: Sequence[nn.Module], rotations: Sequence[Tensor], kernels: VoxelKernels
) -> EquivarianceError:
    """Root-mean-square errors of several networks on blobs, in total and per degree."""
    errors = _errors(layers, rotations, kernels, size=[2 * n - 1 for n in kernels.size])
    degrees = errors[0].per_degree
    return EquivarianceError(
        total=_root_mean_square([error.total for error in errors]),
        per_degree={d: _root_mean_square([error.per_degree[d] for error in errors]) for d in degrees},
        energy={d: sum(error.energy[d] for error in errors) / len(errors) for d in degrees},
    )


def mean_error(
    layer: Callable[[Tensor], Tensor], rotations: Sequence[Tensor], kernels: VoxelKernels, *, size: Sequence[int]
) -> float:
    """Root-mean-square relative error over ``rotations`` and random blobs sampled with the kernels' spacing."""
    return _root_mean_square([error.total for error in _errors([layer], rotations, kernels, size=size)])


def _errors(
    layers: Sequence[Callable[[Tensor], Tensor]],
    rotations: Sequence[Tensor],
    kernels: VoxelKernels,
    *,
    size: Sequence[int],
) -> list[EquivarianceError]:
    sigma = BLOB_SIGMA[kernels.group.name] * kernels.resolution
    scene = blobs(FieldType.image(kernels.group, 1), batch=128, sigma=sigma)
    return [
        equivariance_error(layer, R, scene=scene, size=size, spacing=kernels.spacing, in_type=scene.field_type)
        for layer in layers
        for R in rotations
    ]


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


def default_rotations(group: Group) -> list[Tensor]:
    """17 degrees in 2D; eight random rotations in 3D."""
    if group.dim == 2:
        return [group.rotation(math.radians(17))]
    generator = torch.Generator().manual_seed(0)
    return [group.random_rotation(generator) for _ in range(8)]


def spacing_ignored_errors(kernels: VoxelKernels, degree: int, rotations: Sequence[Tensor]) -> list[float]:
    """Errors of the same kernels built for isotropic voxels, on blobs sampled with the true spacing."""
    isotropic = replace(kernels, spacing=None).functions(degree).values
    layers = [CentralResponse(kernels.group, kernel, degree) for kernel in isotropic]
    return [mean_error(layer, rotations, kernels, size=kernels.size) for layer in layers]


@dataclass(frozen=True)
class CentralResponse:
    """One kernel as a layer that responds to the central window only."""

    group: Group
    kernel: Tensor
    degree: int

    @property
    def out_type(self) -> FieldType:
        return FieldType(self.group, (0,) * self.degree + (1,))

    def __call__(self, x: Tensor) -> Tensor:
        size = self.kernel.shape[1:]
        for axis, n in enumerate(size):
            x = x.narrow(2 + axis, (x.shape[2 + axis] - n) // 2, n)
        response = torch.einsum("bz,oz->bo", x.flatten(1).to(self.kernel.dtype), self.kernel.flatten(1))
        imaginary = response.imag if response.is_complex() else torch.zeros_like(response)
        return torch.cat([response.real, imaginary], dim=1)
