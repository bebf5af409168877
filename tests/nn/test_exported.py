"""Expressions of layers for exported graphs: the same values as those that layers use otherwise."""

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn.layers import LAYERS, randomized, supported_inputs
from steerformer.models.unet_levels import crop
from steerformer.nn.exported import centered_voxels, is_surely_zero, is_symbolic, take_voxels
from steerformer.nn.ops import pad


def test_voxels_beyond_the_ends_are_the_outermost_ones(group, float64):
    x = torch.randn(2, 3, *(5, 6, 4)[: group.dim])
    padded = pad(x, [2, 0, 0][: group.dim], mode="replicate")
    assert_close(take_voxels(x, 2, -2, 9), padded, rtol=0, atol=0)
    assert_close(take_voxels(x, 3, 1, 3), x.narrow(3, 1, 3), rtol=0, atol=0)


@pytest.mark.parametrize("new", [3, 4, 7])
def test_centered_voxels_are_a_center_crop(group, new, float64):
    """Crops by an odd and by an even number of voxels, against the crop of U-Nets, which is tested by itself."""
    x = torch.randn(2, 3, *(7, 8, 9)[: group.dim])
    found = x
    for axis in range(2, 2 + group.dim):
        found = centered_voxels(found, axis, new)
    assert_close(found, crop(x, (new,) * group.dim), rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("n", [6, 7, 8])
def test_centered_voxels_are_those_that_pooling_averages(group, size, n, float64):
    """Rounded up to whole windows, as in the levels of a U-Net."""
    x = torch.randn(1, 2, *(n,) * group.dim)
    pool = sf.nn.AvgPool(sf.FieldType.image(group, 2), kernel_size=size)
    found = x
    for axis in range(2, 2 + group.dim):
        found = centered_voxels(found, axis, -(-n // size) * size)
    assert_close(pool(found), pool(pad(x, [-(-(-n % size) // 2)] * group.dim, mode="replicate")), rtol=0, atol=1e-14)


def test_sizes_are_symbolic_unless_they_are_integers():
    assert is_symbolic(3, torch.tensor(3)) and not is_symbolic(3, 4)
    assert is_surely_zero(0) and not is_surely_zero(1) and not is_surely_zero(torch.tensor(0))


@pytest.mark.filterwarnings("ignore")  # torch warns of every Python condition on sizes, and of its own deprecation
@pytest.mark.parametrize("make", LAYERS)
def test_recorded_layers_give_the_same_output(make, group, unchecked, float64):
    """torch.jit.trace records the expressions that torch.export records, too; other batch size than recorded."""
    layer = randomized(make(group)).eval()
    x = next(supported_inputs(layer, batch=3))
    with torch.no_grad():
        recorded = torch.jit.trace(layer, (x[:2],), check_trace=False)
        kinds = {node.kind() for node in recorded.inlined_graph.nodes()}
        assert not [kind for kind in kinds if "steerformer" in kind or "PythonOp" in kind or "hypot" in kind]
        assert_close(recorded(x), layer(x), rtol=1e-9, atol=1e-9)
