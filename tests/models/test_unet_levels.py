"""Grids of a U-Net: pooling and interpolation have the same center and scale."""

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from steerformer.models.unet_levels import Down, Up, crop

pytestmark = pytest.mark.usefixtures("float64")


def down_and_up(group, x, factor, **pooling):
    image = sf.FieldType.image(group, 1)
    coarse = Down(sf.nn.AvgPool(image, kernel_size=factor, **pooling), [])(x)
    return coarse, Up(image, factor, [])(coarse, torch.zeros_like(x))


def ramp(group, axis, sizes):
    """A coordinate, from the center of the grid."""
    return sf.fields.voxel_coordinates(sizes)[..., axis][None, None]


@pytest.mark.parametrize("pooling", [{}, {"antialiased": True}], ids=["means", "Gaussian"])
@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_a_ramp_is_reproduced_away_from_the_edge(group, factor, pooling):
    """A shift or stretch by half a voxel would change it."""
    margin, others = (3, (8 * factor + 1, 8 * factor)) if pooling else (2, (5, 6))  # the Gaussian has a larger support
    for n in range(7 * factor, 9 * factor):
        sizes = (n, *others)[: group.dim]
        x = ramp(group, 0, sizes)
        coarse, back = down_and_up(group, x, factor, **pooling)
        assert tuple(coarse.shape[2:]) == tuple(-(-size // factor) for size in sizes)
        along, across = (slice(reach * factor, -reach * factor or None) for reach in (margin, margin if pooling else 0))
        inner = (..., along, *[across] * (group.dim - 1))
        assert_close(back[inner], x[inner], rtol=0, atol=1e-12)


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_constants_are_reproduced_up_to_the_edge(group, factor):
    for sizes in ((1, 2, 3), (4, 5, 6), (7, 8, 9), (11, 13, 1)):
        x = torch.ones(1, 1, *sizes[: group.dim])
        assert_close(down_and_up(group, x, factor)[1], x)


def test_crop_is_centered(group):
    """Whole voxels where these are centered, else means of two neighbors."""
    others = group.dim - 1
    x = torch.arange(8.0).view(1, 1, 8, *[1] * others).expand(1, 1, 8, *[3] * others)
    rest = x.shape[3:]
    assert crop(x, (6, *rest))[0, 0].flatten(1)[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert crop(x, (5, *rest))[0, 0].flatten(1)[:, 0].tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert crop(x, x.shape[2:]) is x
