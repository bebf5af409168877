"""Choice of the implementation of a convolution, by the number of operations: a fixed rule in sizes.

Costs are operations at the speed of the transforms of the spectral implementation. The constants are fitted to timings
of forward and backward passes on CPUs, with all spectra computed in both; a choice by timing at run time would make
resumed runs differ.
"""

import math
from collections.abc import Sequence
from typing import Literal

from steerformer.kernels import KernelBasis
from steerformer.nn.conv_direct import padded_products
from steerformer.nn.conv_tiles import Axis, cheapest_tiles

ConvImplementation = Literal["auto", "direct", "spectral", "basis"]
_DIRECT_PRODUCT = 2.8
"""Cost of a product in a direct convolution, relative to an operation of a transform."""


def cheapest_implementation(
    basis: KernelBasis, batch: int, axes: Sequence[Axis], *, input_gradient: bool, weight_gradient: bool
) -> ConvImplementation:
    """The implementation with the least cost for this batch size, these axes, and the gradients that are needed."""
    outputs = math.prod(axis.outputs for axis in axes)
    if outputs == 1:
        return "basis"
    if basis.in_type.real and basis.in_type.is_scalar:  # without the gradient of an image, direct has little to do
        least = 2 if input_gradient else 6 if weight_gradient else math.inf
        return "basis" if _outputs_per_function(basis) >= least else "direct"
    into, out = (each.channels // each.parts for each in (basis.in_type, basis.out_type))
    taps = math.prod(axis.taps for axis in axes)
    direct = _DIRECT_PRODUCT * batch * outputs * taps * _direct_products(basis, into, out)
    spectral = cheapest_tiles(batch, into, out, tuple(axes), is_real=basis.weight_parts == 1)[0]
    return "spectral" if spectral < direct else "direct"


def _direct_products(basis: KernelBasis, into: int, out: int) -> int:
    whole = padded_products(basis.in_type.channels, basis.out_type.channels)
    has_real_side = basis.in_type.real or basis.out_type.real
    return whole if has_real_side else min(whole, 3 * padded_products(into, out))


def _outputs_per_function(basis: KernelBasis) -> float:
    """Output channels relative to the responses of one input channel to the functions of the basis."""
    functions = sum(basis.function_parts * basis.in_type.group.irrep_dim(path.degree_out) for path in basis.paths)
    return padded_products(1, basis.out_type.channels) / padded_products(1, functions)
