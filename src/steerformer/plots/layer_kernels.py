"""Figures of the learned kernels of a convolution."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.nn import Conv, ConvTranspose
from steerformer.plots.planes import add_colorbar, plane_through


def kernels_figure(
    layer: nn.Module, *, out_copy: int = 0, in_copy: int = 0, imaginary: bool = False, axis: int = -1
) -> Figure:
    """Draw the kernel of a convolution: a row for each output degree, a column for each input degree.

    A kernel between degrees is a matrix from the orders of one copy of the input to those of one copy of the output. A
    panel has a tile for each entry, an image of the size of the kernel; between scalars, and in 2D always, there is one
    tile. All panels share one color scale, so that weak kernels are pale.

    Args:
        layer: a :class:`~steerformer.nn.Conv` or ``ConvTranspose``, or a module that contains one: the first is drawn.
        out_copy, in_copy: which copy of each degree; the last one of degrees with fewer copies.
        imaginary: draw the imaginary instead of the real part.
        axis: of volumes, the axis across the drawn slice, which is the middle one.

    >>> import steerformer as sf
    >>> image, features = sf.FieldType.image(sf.SO2, 1), sf.FieldType(sf.SO2, "2x0+2x1")
    >>> figure = sf.viz.kernels(sf.nn.Conv(image, features, kernel_size=5))
    >>> [axes.get_ylabel() for axes in figure.axes[:2]]
    ['to degree 0', 'to degree 1']
    """
    conv = next((module for module in layer.modules() if isinstance(module, Conv | ConvTranspose)), None)
    if conv is None:
        raise TypeError(
            f"viz.kernels draws the kernels of a Conv or ConvTranspose, but {type(layer).__name__} contains none."
        )
    if imaginary and conv.basis.weight_parts == 1:
        raise ValueError(f"kernels from {conv.in_type} to {conv.out_type} are real; leave imaginary out.")
    with torch.no_grad():
        kernel = _part_of_kernel(conv, imaginary=imaginary).cpu()
    plane = plane_through(kernel.shape[2:], axis)
    blocks = {
        (out, inp): plane.cut(kernel[_places(conv.out_type, out, out_copy)][:, _places(conv.in_type, inp, in_copy)])
        for out in conv.out_type.degrees
        for inp in conv.in_type.degrees
    }
    return _draw(conv, blocks, f"{'imaginary' if imaginary else 'real'} part of the kernel", plane.title)


def _part_of_kernel(conv: Conv | ConvTranspose, *, imaginary: bool) -> Float[Tensor, "half_out half_in *size"]:
    """Real or imaginary part of the complex kernel, from its real form."""
    kernel = conv.kernel()
    half_out, half_in = conv.out_type.channels // conv.out_type.parts, conv.in_type.channels // conv.in_type.parts
    if not imaginary:
        return kernel[:half_out, :half_in]
    if not conv.out_type.real:
        return kernel[half_out:, :half_in]
    return -kernel[:, half_in:]


def _places(field_type: FieldType, degree: int, copy: int) -> list[int]:
    """Channels of all orders of one copy, among those of one part."""
    if copy < 0:
        raise ValueError(f"copies are numbered from 0, got {copy}.")
    before = sum(field_type.group.irrep_dim(d) * field_type.multiplicity(d) for d in field_type.degrees if d < degree)
    copies = field_type.multiplicity(degree)
    return [before + order * copies + min(copy, copies - 1) for order in range(field_type.group.irrep_dim(degree))]


def tiled(block: Float[Tensor, "out in row column"]) -> Float[Tensor, "height width"]:
    """Images side by side with a line of NaN, which is drawn white, between them."""
    framed = torch.nn.functional.pad(block, (0, 1, 0, 1), value=torch.nan)
    return framed.permute(0, 2, 1, 3).flatten(2, 3).flatten(0, 1)[:-1, :-1]


def _draw(conv: Conv | ConvTranspose, blocks: Mapping[tuple[int, int], Tensor], label: str, title: str) -> Figure:
    outs, ins = conv.out_type.degrees, conv.in_type.degrees
    images = {pair: tiled(block) for pair, block in blocks.items()}
    heights, widths = [len(images[out, ins[0]]) for out in outs], [images[outs[0], inp].shape[1] for inp in ins]
    pixel = min(0.28, 7 / max(sum(heights), sum(widths)))  # in inches
    figure = Figure(figsize=(pixel * sum(widths) + 1.7, pixel * sum(heights) + 1.0), layout="constrained")
    grid = figure.subplots(len(outs), len(ins), squeeze=False, height_ratios=heights, width_ratios=widths)
    limit = max(block.abs().max().item() for block in blocks.values()) or 1.0
    for axes, image in zip(grid.flat, images.values(), strict=True):
        shown = axes.imshow(
            image.cpu().float().numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest"
        )
        axes.set(xticks=[], yticks=[])
    for axes, degree in zip(grid[0], ins, strict=True):
        axes.set_title(f"from degree {degree}", fontsize=9)
    for axes, degree in zip(grid[:, 0], outs, strict=True):
        axes.set_ylabel(f"to degree {degree}", fontsize=9)
    figure.suptitle(title, fontsize=10)
    add_colorbar(figure, shown, list(grid.flat), label)
    return figure
