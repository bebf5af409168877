"""Grids of a U-net: down and up again, every voxel is where it was."""

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from steerformer.models.levels import Down, Up, crop

pytestmark = pytest.mark.usefixtures("float64")


def there_and_back(group, x, factor, **pooling):
    image = sf.FieldType.image(group, 1)
    coarse = Down(sf.nn.AvgPool(image, kernel_size=factor, **pooling), [])(x)
    return coarse, Up(image, factor, [])(coarse, torch.zeros_like(x))


def ramp(group, axis, sizes):
    """A coordinate, from the center of the grid."""
    return sf.fields.voxel_coordinates(sizes)[..., axis][None, None]


@pytest.mark.parametrize("pooling", [{}, {"antialiased": True}], ids=["means", "Gaussian"])
@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_a_ramp_stays_where_it_is_away_from_the_edge(group, factor, pooling):
    """So both ways have one center and one scale: half a voxel of shift, or of stretch, would be seen."""
    margin, others = (3, (8 * factor + 1, 8 * factor)) if pooling else (2, (5, 6))  # the Gaussian reaches farther
    for n in range(7 * factor, 9 * factor):
        sizes = (n, *others)[: group.dim]
        x = ramp(group, 0, sizes)
        coarse, back = there_and_back(group, x, factor, **pooling)
        assert tuple(coarse.shape[2:]) == tuple(-(-size // factor) for size in sizes)
        along, across = (slice(reach * factor, -reach * factor or None) for reach in (margin, margin if pooling else 0))
        inner = (..., along, *[across] * (group.dim - 1))
        assert_close(back[inner], x[inner], rtol=0, atol=1e-12)


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_constants_stay_constant_up_to_the_edge(group, factor):
    for sizes in ((1, 2, 3), (4, 5, 6), (7, 8, 9), (11, 13, 1)):
        x = torch.ones(1, 1, *sizes[: group.dim])
        assert_close(there_and_back(group, x, factor)[1], x)


def test_cropping_takes_the_middle(group):
    """Whole voxels where they are centered, the mean of two where they are not."""
    others = group.dim - 1
    x = torch.arange(8.0).view(1, 1, 8, *[1] * others).expand(1, 1, 8, *[3] * others)
    rest = x.shape[3:]
    assert crop(x, (6, *rest))[0, 0].flatten(1)[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert crop(x, (5, *rest))[0, 0].flatten(1)[:, 0].tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert crop(x, x.shape[2:]) is x
