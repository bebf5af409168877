"""Steerable kernels between any two field types, on continuous points or on voxel grids."""

from steerformer.kernels.basis import HarmonicSource, KernelBasis, KernelPath, RingsAtPoints
from steerformer.kernels.rings import HarmonicFunctions, Rings
from steerformer.kernels.spectrum import Spectrum
from steerformer.kernels.voxels import FAMILIES, Family, VoxelKernels

__all__ = [
    "FAMILIES",
    "Family",
    "HarmonicFunctions",
    "HarmonicSource",
    "KernelBasis",
    "KernelPath",
    "Rings",
    "RingsAtPoints",
    "Spectrum",
    "VoxelKernels",
]
