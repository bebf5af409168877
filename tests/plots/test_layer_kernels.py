"""Figures of kernels: tiles are entries of the kernel that the convolution applies."""

import numpy as np
import pytest
import torch

from steerformer import SO2, FieldType, viz
from steerformer.nn import Conv, Gated, NormReLU
from steerformer.plots.layer_kernels import tiled


def channels(field_type, degree, copy, part):
    """Channels of all orders of a copy, from the documented order of channels."""
    numbers = torch.arange(field_type.channels, dtype=torch.float32)[None]
    piece = dict(zip(field_type.degrees, field_type.split(numbers), strict=True))[degree]
    return piece[0, part, :, copy].long().tolist()


def drawn_tiles(axes, outs, ins, size):
    """The tiles of a panel, ``(order out, order in, row, column)``."""
    image = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert image.shape == (outs * (size + 1) - 1, ins * (size + 1) - 1)
    starts = [(out * (size + 1), inp * (size + 1)) for out in range(outs) for inp in range(ins)]
    tiles = np.stack([image[row : row + size, column : column + size] for row, column in starts])
    return tiles.reshape(outs, ins, size, size)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("imaginary", [False, True])
def test_panels_have_the_entries_of_the_kernel(group, imaginary, groups):
    before, after = FieldType(group, (2, 2)), FieldType(group, (2 * groups - 2 or 1, 2))
    conv = Conv(before, after, kernel_size=3, groups=groups)
    kernel = conv.kernel().detach()
    figure = viz.kernels(conv, out_copy=1, imaginary=imaginary)
    panels = iter(figure.axes)
    for out in after.degrees:
        for inp in before.degrees:
            # the real form [[A, -B], [B, A]] has B from the real part of the input to the imaginary part of the output
            rows = channels(after, out, min(1, after.multiplicity(out) - 1), int(imaginary))
            expected = kernel[rows][:, channels(before, inp, 0, 0)]
            expected = expected if group is SO2 else expected[..., 1]
            found = drawn_tiles(next(panels), group.irrep_dim(out), group.irrep_dim(inp), 3)
            assert np.allclose(found, expected, atol=1e-6)


def test_imaginary_part_of_real_outputs_is_that_of_their_complex_weights(group):
    features, image = FieldType(group, (1,)), FieldType.image(group, 1)
    conv = Conv(features, image, kernel_size=3)
    complex_kernel = conv.basis.assemble(conv.weight)[1, :1, :1].detach()
    tile = drawn_tiles(viz.kernels(conv, imaginary=True).axes[0], 1, 1, 3)
    assert np.allclose(tile, complex_kernel if group is SO2 else complex_kernel[..., 1], atol=1e-6)


def test_real_kernels_have_no_imaginary_part(group):
    image = FieldType.image(group, 1)
    with pytest.raises(ValueError, match=r"kernels from 1xreal to 1xreal are real; leave imaginary out"):
        viz.kernels(Conv(image, image, kernel_size=3), imaginary=True)


def test_panels_share_one_scale_and_name_their_degrees(group):
    before, after = FieldType.image(group, 1), FieldType(group, (1, 1, 1))
    figure = viz.kernels(Conv(before, after, kernel_size=5))
    panels = figure.axes[:3]
    assert [axes.get_ylabel() for axes in panels] == ["to degree 0", "to degree 1", "to degree 2"]
    assert panels[0].get_title() == "from degree 0"
    limits = {axes.images[0].get_clim() for axes in panels}
    assert len(limits) == 1 and -limits.copy().pop()[0] == limits.copy().pop()[1]
    assert figure.axes[3].get_ylabel() == "real part of the kernel"


def test_first_convolution_of_a_module_is_drawn():
    features = FieldType(SO2, (1, 1))
    net = torch.nn.Sequential(NormReLU(features), Gated(features, kernel_size=3))
    assert len(viz.kernels(net).axes) == 2 + 1  # two input degrees to real scalars, and the colorbar
    with pytest.raises(
        TypeError, match=r"viz\.kernels draws the kernels of a Conv or ConvTranspose, but NormReLU contains none"
    ):
        viz.kernels(net[0])
    with pytest.raises(ValueError, match="copies are numbered from 0, got -1"):
        viz.kernels(net, in_copy=-1)


def test_tiles_are_separated_by_lines():
    block = torch.arange(2 * 1 * 2 * 2.0).reshape(2, 1, 2, 2)
    found = tiled(block)
    assert found.shape == (5, 2)
    assert torch.equal(found[:2], block[0, 0]) and found[2].isnan().all() and torch.equal(found[3:], block[1, 0])
