"""A U-Net on a coarser grid than that of the image: stem with stride 2 and head on the grid of the image."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import steerformer as sf
from models.small import STEMS, assert_equivariant_on_grid, settle, unet
from steerformer import SO2, SO3
from steerformer.models.stem import Stem
from steerformer.testing import assert_equivariant, blobs, equivariance_error

SIZES = {SO2: [8, 9, (12, 7), (2, 3), 1], SO3: [4, 5, (3, 4, 6), (1, 2, 7), 1]}
SETS = [(group, size) for group, sizes in SIZES.items() for size in sizes]
BLURS = pytest.mark.parametrize("deviation", [None, 0.6, 1.2])


def image_stem(group, deviation):
    """A stem from an image to an image that keeps the mean."""
    image = sf.FieldType.image(group, 1)
    conv = sf.nn.Conv(image, image, kernel_size=6, stride=2)
    with torch.no_grad():
        conv.weight.fill_(1.0)
        conv.weight.div_(conv.kernel().sum())
    return Stem(conv, deviation)


@BLURS
def test_the_coarse_grid_has_the_center_of_the_image(group, deviation, float64):
    """A coordinate stays the same, away from the edge; a shift by half a voxel would change it."""
    stem = image_stem(group, deviation)
    for n in (22, 23, 24, 25):
        sizes = (n, 20, 21)[: group.dim]
        x = sf.fields.voxel_coordinates(sizes)[..., 0][None, None]
        found = stem(x).detach()
        assert tuple(found.shape[2:]) == tuple(-(-size // 2) for size in sizes)
        expected = 2 * sf.fields.voxel_coordinates(found.shape[2:])[..., 0][None, None]
        inner = (..., *[slice(4, -4)] * group.dim)
        assert_close(found[inner], expected[inner], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("group", "size"), SETS, ids=str)
def test_equivariance_on_odd_even_and_mixed_grids(group, size, float64):
    for options in STEMS.values():
        assert_equivariant_on_grid(settle(unet(group, **options), 6), size=size, batch=1)


def test_anisotropic_voxels_are_equivariant_about_their_axis(float64):
    model = settle(unet(SO3, stem_stride=2, head="scalar", spacing=[1, 1, 3], widths=[[2], [2]], kernel_size=5), 6)
    assert_equivariant_on_grid(model, size=(6, 6, 5), spacing=(1.0, 1.0, 3.0), batch=1)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(model, size=(6, 6, 6), batch=1, tolerance=1e-3)


def test_plain_kernels_are_not_equivariant(group, float64):
    """Negative controls: noise instead of the kernel of the stem, or of that of the head."""
    plain = {2: F.conv2d, 3: F.conv3d}[group.dim]
    for where in ("stem", "head"):
        model = settle(unet(group, stem_stride=2, head="scalar"), 6)
        module = model.down[0].block[0].conv if where == "stem" else model.full_resolution.coarse
        noise, options = (
            torch.randn_like(module.kernel()),
            {"stride": module.stride, "padding": module.kernel_size[0] // 2},
        )
        options["padding"] -= where == "stem"
        module.forward = lambda x, noise=noise, options=options: plain(x, noise, **options)
        with pytest.raises(AssertionError, match="not equivariant"):
            assert_equivariant(model, size=6, batch=1, tolerance=1e-3)


def test_antialiasing_makes_logits_more_equivariant_at_other_angles(float64):
    options = {"stem_stride": 2, "widths": [[4], [4]], "kernel_size": 5, "depth": 0, "head": "scalar"}
    rotation, scene = SO2.rotation(0.6), blobs(sf.FieldType.image(SO2, 1), batch=16, sigma=1.5, extent=5.0)
    errors = []
    for antialiased in (True, False):
        torch.manual_seed(0)
        model = settle(unet(SO2, **options, antialiased=antialiased, blur=0.6), size=33)
        errors.append(equivariance_error(model, rotation, scene=scene, size=33).total)
    assert errors[0] < 0.05
    assert errors[0] < errors[1]


@pytest.mark.parametrize("options", STEMS.values(), ids=STEMS)
def test_shapes_and_stride(group, options):
    model = unet(group, in_channels=2, **options)
    assert model.stride == 2 ** len(model.config.widths)
    x = model.in_type.randn(2, (5, 8, 3)[: group.dim])
    assert model(x).shape == (2, 3, *x.shape[2:])


@pytest.mark.parametrize("n", [64, 61, 63])
def test_windows_at_multiples_of_the_stride_give_the_same_logits(n):
    """Away from the edges, on grids with the same remainder by the stride, as in sliding windows."""
    model = settle(unet(SO2, stem_stride=2, head="scalar", widths=[[2], [2]], depth=0), 16)
    x = model.in_type.randn(1, (n, 16))
    with torch.no_grad():
        whole, window = model(x), model(x[:, :, 8:])
        shifted = model(x[:, :, 10 : n - 2])
    middle = slice(24, 36)
    assert_close(window[:, :, middle], whole[:, :, 8:][:, :, middle], rtol=1e-4, atol=1e-5)
    assert (shifted[:, :, middle] - whole[:, :, 10:][:, :, middle]).abs().max() > 1e-3


def test_without_a_stem_nothing_changes(group):
    torch.manual_seed(0)
    model = unet(group)
    torch.manual_seed(0)
    other = unet(group, stem_stride=1, head_channels=3)
    assert model.full_resolution is None
    assert not any("full_resolution" in name or ".conv." in name for name in model.state_dict())
    for (name, own), (same, value) in zip(model.state_dict().items(), other.state_dict().items(), strict=True):
        assert name == same and torch.equal(own, value)


def test_head_has_a_skip_connection_from_the_image(group):
    """Without the features, logits still depend on the image, and on voxels nearby only."""
    model = settle(unet(group, stem_stride=2, head="scalar", head_kernel_size=1), 8)
    with torch.no_grad():
        model.full_resolution.coarse.weight.zero_()
        x = model.in_type.randn(1, 9)
        changed = x.clone()
        changed[(..., *[4] * group.dim)] += 3
        difference = (model(changed) - model(x)).abs().amax(dim=1)[0]
    assert difference[(4,) * group.dim] > 1e-3
    reach = sf.fields.voxel_coordinates(difference.shape).abs().amax(dim=-1)
    assert difference[reach > 1].max() == 0
