"""The U-Net is equivariant to rotations on any grid; MONAI's UNet is not."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import steerformer as sf
from models.small import STEMS, UNETS, assert_equivariant_on_grid, monai_unet, settle, unet
from steerformer import SO2, SO3
from steerformer.testing import assert_equivariant, blobs

SIZES = {SO2: [8, 7, (13, 22), (2, 3), 1], SO3: [4, 5, (3, 4, 6), (1, 2, 7), 1]}
SETS = [(group, size) for group, sizes in SIZES.items() for size in sizes]
ROTATION = SO2.rotation(0.6)
SMALL_SCENES = blobs(sf.FieldType.image(SO2, 1), batch=32, sigma=2.0, extent=5.0)
LARGE_SCENES = blobs(sf.FieldType.image(SO2, 1), batch=8, sigma=2.0, extent=8.0)


@pytest.mark.parametrize("options", UNETS.values(), ids=UNETS)
def test_logits_are_equivariant_to_grid_rotations(group, options, float64):
    size = (7, 10) if group is SO2 else (4, 5, 6)
    assert_equivariant_on_grid(settle(unet(group, **options), 6), size=size, batch=1)


@pytest.mark.parametrize(("group", "size"), SETS, ids=str)
@pytest.mark.parametrize("depth", [0, 1])
def test_equivariance_on_odd_even_and_mixed_grids(group, size, depth, float64):
    assert_equivariant_on_grid(settle(unet(group, depth=depth), 6), size=size, batch=1)


@pytest.mark.parametrize("depth", [0, 1])
def test_anisotropic_voxels_are_equivariant_about_their_axis(depth, float64):
    model = settle(unet(SO3, spacing=[1, 1, 3], depth=depth, kernel_size=5, widths=[[2], [2]]), 6)
    assert_equivariant_on_grid(model, size=(6, 6, 5), spacing=(1.0, 1.0, 3.0), batch=1)
    with pytest.raises(AssertionError, match="not equivariant"):  # not about other axes
        assert_equivariant(model, size=(6, 6, 6), batch=1, tolerance=1e-3)


def test_monai_unet_is_not_equivariant(group, float64):
    with pytest.raises(AssertionError, match="MonaiUNet is not equivariant"):
        assert_equivariant(settle(monai_unet(group), 6), size=8, batch=1, tolerance=1e-2)


def test_bias_on_vectors_is_detected(group, float64):
    """Negative control: a constant added to degree 1 breaks equivariance."""
    model = settle(unet(group), 6)

    def spoil(module, inputs, output):
        scalars = module.out_type.multiplicity(0)
        output[:, scalars : 2 * scalars] += 0.3
        return output

    model.down[1].block[0].register_forward_hook(spoil)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(model, size=6, batch=1, tolerance=1e-6)


def test_off_center_pooling_is_detected(group, float64):
    """Negative control: interpolation that is not centered on an odd grid."""
    model = settle(unet(group), 6)
    model.down[1].pool.forward = lambda x: F.interpolate(x[(..., *[slice(-1)] * group.dim)], scale_factor=0.5)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(model, size=7, batch=1, tolerance=1e-3)


def logits_of(model, scene, rotation, size):
    """Logits of scenes, upright and rotated."""
    with torch.no_grad():
        return [model(s.sample(size)) for s in (scene, scene.rotate(rotation))]


def central_error(upright, rotated):
    """Change of the central logits under rotation, relative to their spread over scenes."""
    center = (..., *(n // 2 for n in upright.shape[2:]))
    before, after = upright[center], rotated[center]
    return ((after - before).norm() / (before - before.mean(dim=0)).norm()).item()


def map_error(model, upright, rotated, rotation):
    """The same over the inner half of the grid, with logits of the upright scenes rotated by interpolation."""
    inner = sf.fields.voxel_coordinates(upright.shape[2:]).norm(dim=-1) < upright.shape[2] / 4
    expected, found = model.out_type.rotate(upright, rotation)[..., inner], rotated[..., inner]
    return ((found - expected).norm() / (expected - expected.mean(dim=(0, 2), keepdim=True)).norm()).item()


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("head", ["norm", "scalar"])
def test_logits_are_nearly_equivariant_at_any_angle(depth, head, float64):
    options = {"kernel_size": 5, "widths": [[4], [4], [4]], "depth": depth, "head": head, "antialiased": True}
    model = settle(unet(SO2, **options), size=33)
    assert central_error(*logits_of(model, SMALL_SCENES, ROTATION, 33)) < 0.1
    assert map_error(model, *logits_of(model, LARGE_SCENES, ROTATION, 33), ROTATION) < 0.2


def test_logits_are_nearly_equivariant_at_any_angle_in_3d(float64):
    model = settle(unet(SO3, kernel_size=5, widths=[[2], [2]], antialiased=True), size=11, batches=1)
    scene = blobs(model.in_type, batch=6, sigma=2.0, extent=2.0)
    rotation = SO3.random_rotation(torch.Generator().manual_seed(0))
    upright, rotated = logits_of(model, scene, rotation, 11)
    assert central_error(upright, rotated) < 0.1
    assert map_error(model, upright, rotated, rotation) < 0.15


def test_plain_convolutions_are_not_equivariant(float64):
    """Negative control: the same U-Net with kernels of white noise."""
    options = {"kernel_size": 5, "widths": [[4], [4], [4]], "depth": 0, "antialiased": True}
    model = settle(unet(SO2, **options), size=33)
    for convolution in [module for module in model.modules() if isinstance(module, sf.nn.Conv)]:
        kernel = torch.randn_like(convolution.kernel()) * convolution.kernel().std()
        convolution.forward = lambda x, kernel=kernel: F.conv2d(x, kernel, padding="same")
    settle(model, size=33)
    assert central_error(*logits_of(model, SMALL_SCENES, ROTATION, 33)) > 0.4
    assert map_error(model, *logits_of(model, LARGE_SCENES, ROTATION, 33), ROTATION) > 0.4


@pytest.mark.parametrize("head", ["norm", "absolute", "scalar"])
def test_shapes_and_types(group, head):
    model = unet(group, in_channels=2, head=head, classes=4)
    assert model.in_type == sf.FieldType.image(group, 2)
    assert model.out_type == sf.FieldType.image(group, 4)
    assert model.stride == 4
    x = model.in_type.randn(2, (5, 9, 2)[: group.dim])
    assert model(x).shape == (2, 4, *x.shape[2:])


def test_sign_of_logits_depends_on_the_head(group):
    x = sf.FieldType.image(group, 1).randn(1, 6)
    for head, sign in (("norm", False), ("absolute", False), ("scalar", True)):
        assert bool((settle(unet(group, head=head), 6)(x) < 0).any()) == sign


def test_head_gives_the_norm_of_one_field_per_class(group, float64):
    """Against the norms that Invariants gives, degree by degree."""
    found = sf.FieldType(group, (3, 3))
    head = sf.models.unet.Logits(found, sf.FieldType.image(group, 3))
    with torch.no_grad():
        head.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    x = found.randn(2, 3)
    norms = sf.nn.Invariants(found)(x).unflatten(1, (2, 3)).norm(dim=1)
    assert_close(head(x), norms + torch.tensor([1.0, 2.0, 3.0]).view(-1, *[1] * group.dim))


def test_every_parameter_gets_a_gradient(group):
    fourier = {"head": "scalar", "norm_after": "convolution", "nonlinearity": "fourier"}
    for options in ({}, {"depth": 0}, fourier, *STEMS.values()):
        model = unet(group, **options)
        x = model.in_type.randn(2, model.stride + 2)  # more than one voxel on the coarsest grid
        F.cross_entropy(model(x), torch.randint(3, (2, *x.shape[2:]))).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_depth_0_has_an_mlp_on_the_coarsest_grid(group):
    assert isinstance(unet(group, depth=0, hidden=3).middle, sf.nn.MLP)
    assert unet(group, depth=0, hidden=3).middle.hidden.multiplicities == (12, 12, 12)
    encoder = unet(group, depth=2, hidden=3).middle
    assert len(encoder.blocks) == 2
    assert encoder.blocks[0].mlp.hidden.multiplicities == (12, 12, 12)


def test_expanding_path_mirrors_the_contracting_path(group):
    model = unet(group, widths=[[2, 3], [4, 4], []], num_heads=4)
    down, up = ([[type(layer).__name__ for layer in level.block] for level in way] for way in (model.down, model.up))
    assert down == [["Conv", "NormReLU", "Conv", "BatchNorm"]] * 2 + [[]]
    assert up == [[], ["Conv", "NormReLU", "Conv", "BatchNorm"], ["Conv", "NormReLU", "Conv"]]
    convolutions = [layer for level in model.up for layer in level.block if isinstance(layer, sf.nn.Conv)]
    assert [layer.out_type.multiplicities[0] for layer in convolutions] == [4, 3, 2, 3]


def test_only_attention_has_a_global_receptive_field(group):
    """Convolutions of two levels reach about 20 voxels, attention all, but local attention only 10 more."""
    for options, seen in (({"depth": 0}, False), ({"depth": 1}, True), ({"radius": 5.0}, False)):
        model = settle(unet(group, widths=[[2], [2]], **options), 4)
        x = model.in_type.randn(1, (60, 3, 3)[: group.dim])
        changed = x.clone()
        changed[:, :, -1] += 3
        with torch.no_grad():
            difference = (model(changed) - model(x))[:, :, 0].abs().max().item()
        assert (difference > 1e-7) == seen


def test_radius_is_in_voxels_of_the_coarsest_grid():
    model = unet(SO3, spacing=[1, 1, 8], radius=2.0, falloff=1.0)
    attention = model.middle.blocks[0].attention
    assert (attention.radius, attention.falloff) == pytest.approx((4.0, 2.0))  # the mean spacing is 2


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"stem_stride": 2, "antialiased": True}], ids=["full grid", "stem"])
def test_overfits_one_scene(options, unchecked):
    model = unet(SO2, norm_after="convolution", nonlinearity="fourier", head="scalar", classes=2, **options)
    x = model.in_type.randn(2, (12, 17))
    y = (F.avg_pool2d(x, 5, 1, 2)[:, 0] > 0.1).long()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(dim=1) == y).float().mean() > 0.95


@pytest.mark.parametrize("shape", [(2, 2, 8, 8), (1, 8, 8), (2, 1, 8, 8, 8), (1, 1, 0, 3)])
def test_wrong_input_shapes_are_rejected(shape, unchecked):
    with pytest.raises(ValueError, match=r"UNet takes .* a tensor \(batch, 1, 2 spatial axes\), got shape"):
        unet(SO2)(torch.zeros(shape))
