"""The segmentation of a turned image is the turned segmentation, on any grid; that of a plain network is not."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import steerformer as sf
from models.small import UNETS, monai_unet, unet
from steerformer import SO2, SO3
from steerformer.testing import assert_equivariant, blobs

SIZES = {SO2: [8, 7, (13, 22), (2, 3), 1], SO3: [4, 5, (3, 4, 6), (1, 2, 7), 1]}
SETS = [(group, size) for group, sizes in SIZES.items() for size in sizes]


def settle(model, size=6, batches=3):
    """Running statistics that fit the weights, as after training."""
    model.train()
    for _ in range(batches):
        model(model.in_type.randn(2, size, dtype=next(model.parameters()).dtype))
    return model.eval()


@pytest.mark.parametrize("options", UNETS.values(), ids=UNETS)
def test_logits_turn_with_all_rotations_of_the_grid(group, options, float64):
    size = (7, 10) if group is SO2 else (4, 5, 6)
    assert_equivariant(settle(unet(group, **options)), size=size, batch=1, tolerance=1e-9)


@pytest.mark.parametrize(("group", "size"), SETS, ids=str)
@pytest.mark.parametrize("depth", [0, 1])
def test_on_odd_and_even_and_mixed_grids(group, size, depth, float64):
    assert_equivariant(settle(unet(group, depth=depth)), size=size, batch=1, tolerance=1e-9)


@pytest.mark.parametrize("depth", [0, 1])
def test_voxels_that_are_no_cubes_turn_about_their_axis(depth, float64):
    model = settle(unet(SO3, spacing=[1, 1, 3], depth=depth, kernel_size=5, widths=[[2], [2]]))
    assert_equivariant(model, size=(6, 6, 5), spacing=(1.0, 1.0, 3.0), batch=1, tolerance=1e-9)
    with pytest.raises(AssertionError, match="not equivariant"):  # about other axes they cannot
        assert_equivariant(model, size=(6, 6, 6), batch=1, tolerance=1e-3)


def test_the_control_does_not_turn(group, float64):
    pytest.importorskip("monai", reason="the control is MONAI's UNet")
    with pytest.raises(AssertionError, match="MonaiUNet is not equivariant"):
        assert_equivariant(settle(monai_unet(group)), size=8, batch=1, tolerance=1e-2)


def test_a_bias_among_the_vectors_would_be_seen(group, float64):
    """A negative control for the steerable model itself: degree 1 may not have a constant."""
    model = settle(unet(group))

    def spoil(module, inputs, output):
        scalars = module.out_type.multiplicity(0)
        output[:, scalars : 2 * scalars] += 0.3
        return output

    model.down[1].block[0].register_forward_hook(spoil)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(model, size=6, batch=1, tolerance=1e-6)


def test_a_pool_that_is_not_centered_would_be_seen(group, float64):
    """Another: torch's own pooling, on an odd grid."""
    model = settle(unet(group))
    model.down[1].pool.forward = lambda x: F.interpolate(x[(..., *[slice(-1)] * group.dim)], scale_factor=0.5)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(model, size=7, batch=1, tolerance=1e-3)


def spread_error(model, scene, rotation, size):
    """Change of the logits at the center when scenes turn, relative to how they differ from scene to scene."""
    with torch.no_grad():
        center = (slice(None), slice(None), *[size // 2] * model.in_type.group.dim)
        upright, turned = (model(s.sample(size))[center] for s in (scene, scene.rotate(rotation)))
    return ((turned - upright).norm() / (upright - upright.mean(dim=0)).norm()).item()


def map_error(model, scene, rotation, size):
    """The same over the inner half of the grid, where logits of the upright scenes are turned by interpolation."""
    with torch.no_grad():
        upright, turned = (model(s.sample(size)) for s in (scene, scene.rotate(rotation)))
    inner = sf.fields.voxel_coordinates(upright.shape[2:]).norm(dim=-1) < size / 4
    expected, found = model.out_type.rotate(upright, rotation)[..., inner], turned[..., inner]
    return ((found - expected).norm() / (expected - expected.mean(dim=(0, 2), keepdim=True)).norm()).item()


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("head", ["norm", "scalar"])
def test_logits_hardly_change_at_any_other_angle(depth, head, float64):
    options = {"kernel_size": 5, "widths": [[4], [4], [4]], "depth": depth, "head": head, "antialiased": True}
    model = settle(unet(SO2, **options), size=33)
    scene = blobs(model.in_type, batch=32, sigma=2.0, extent=5.0)
    assert spread_error(model, scene, SO2.rotation(0.6), 33) < 0.1
    scene = blobs(model.in_type, batch=8, sigma=2.0, extent=8.0)
    assert map_error(model, scene, SO2.rotation(0.6), 33) < 0.2


def test_nor_do_they_in_space(float64):
    model = settle(unet(SO3, kernel_size=5, widths=[[2], [2]], antialiased=True), size=17, batches=1)
    scene = blobs(model.in_type, batch=6, sigma=2.0, extent=3.0)
    rotation = SO3.random_rotation(torch.Generator().manual_seed(0))
    assert spread_error(model, scene, rotation, 17) < 0.1
    assert map_error(model, scene, rotation, 17) < 0.15


def test_plain_convolutions_change_far_more(float64):
    """A control for the measure: the same U-net with white noise for kernels."""
    options = {"kernel_size": 5, "widths": [[4], [4], [4]], "depth": 0, "antialiased": True}
    model = settle(unet(SO2, **options), size=33)
    for convolution in [module for module in model.modules() if isinstance(module, sf.nn.Conv)]:
        kernel = torch.randn_like(convolution.kernel()) * convolution.kernel().std()
        convolution.forward = lambda x, kernel=kernel: F.conv2d(x, kernel, padding="same")
    scene = blobs(model.in_type, batch=32, sigma=2.0, extent=5.0)
    assert spread_error(settle(model, size=33), scene, SO2.rotation(0.6), 33) > 0.4
    assert map_error(model, blobs(model.in_type, batch=8, sigma=2.0, extent=8.0), SO2.rotation(0.6), 33) > 0.4


@pytest.mark.parametrize("head", ["norm", "absolute", "scalar"])
def test_shapes_and_types(group, head):
    model = unet(group, in_channels=2, head=head, classes=4)
    assert model.in_type == sf.FieldType.image(group, 2)
    assert model.out_type == sf.FieldType.image(group, 4)
    assert model.stride == 4
    x = model.in_type.randn(2, (5, 9, 2)[: group.dim])
    assert model(x).shape == (2, 4, *x.shape[2:])


def test_logits_are_lengths_or_signed_by_the_head(group):
    x = sf.FieldType.image(group, 1).randn(1, 6)
    for head, sign in (("norm", False), ("absolute", False), ("scalar", True)):
        assert bool((settle(unet(group, head=head))(x) < 0).any()) == sign


def test_the_head_measures_one_field_for_each_class(group, float64):
    """Against the lengths that Invariants gives, degree by degree."""
    found = sf.FieldType(group, (3, 3))
    head = sf.models.unet.Logits(found, sf.FieldType.image(group, 3))
    with torch.no_grad():
        head.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    x = found.randn(2, 3)
    lengths = sf.nn.Invariants(found)(x).unflatten(1, (2, 3)).norm(dim=1)
    assert_close(head(x), lengths + torch.tensor([1.0, 2.0, 3.0]).view(-1, *[1] * group.dim))


def test_every_parameter_learns(group):
    for options in ({}, {"depth": 0}, {"head": "scalar", "norms": "convolution", "nonlinearity": "fourier"}):
        model = unet(group, **options)
        x = model.in_type.randn(2, 6)
        F.cross_entropy(model(x), torch.randint(3, (2, *x.shape[2:]))).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_without_attention_there_is_an_mlp_in_the_middle(group):
    assert isinstance(unet(group, depth=0, hidden=3).middle, sf.nn.MLP)
    assert unet(group, depth=0, hidden=3).middle.hidden.multiplicities == (12, 12, 12)
    encoder = unet(group, depth=2, hidden=3).middle
    assert len(encoder.blocks) == 2
    assert encoder.blocks[0].mlp.hidden.multiplicities == (12, 12, 12)


def test_the_way_up_mirrors_the_way_down(group):
    model = unet(group, widths=[[2, 3], [4, 4], []], num_heads=4)
    down, up = ([[type(layer).__name__ for layer in level.block] for level in way] for way in (model.down, model.up))
    assert down == [["Conv", "NormReLU", "Conv", "BatchNorm"]] * 2 + [[]]
    assert up == [[], ["Conv", "NormReLU", "Conv", "BatchNorm"], ["Conv", "NormReLU", "Conv"]]
    convolutions = [layer for level in model.up for layer in level.block if isinstance(layer, sf.nn.Conv)]
    assert [layer.out_type.multiplicities[0] for layer in convolutions] == [4, 3, 2, 3]


def test_what_is_far_away_is_seen_by_attention_alone(group):
    """Convolutions of three levels reach about 20 voxels; attention reaches all."""
    for depth, seen in ((0, False), (1, True)):
        model = settle(unet(group, depth=depth, widths=[[2], [2]]), size=4)
        x = model.in_type.randn(1, (60, 3, 3)[: group.dim])
        changed = x.clone()
        changed[:, :, -1] += 3
        with torch.no_grad():
            difference = (model(changed) - model(x))[:, :, 0].abs().max().item()
        assert (difference > 1e-7) == seen


@pytest.mark.slow
def test_a_scene_can_be_learned_by_heart():
    model = unet(SO2, norms="convolution", nonlinearity="fourier", head="scalar", classes=2)
    x = model.in_type.randn(2, (12, 17))
    y = (F.avg_pool2d(x, 5, 1, 2)[:, 0] > 0.1).long()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(dim=1) == y).float().mean() > 0.95


@pytest.mark.parametrize("shape", [(2, 2, 8, 8), (1, 8, 8), (2, 1, 8, 8, 8), (1, 1, 0, 3)])
def test_other_inputs_are_refused(shape, unchecked):
    with pytest.raises(ValueError, match=r"UNet takes .* a tensor \(batch, 1, 2 axes of space\), got shape"):
        unet(SO2)(torch.zeros(shape))
