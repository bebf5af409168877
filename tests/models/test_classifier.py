"""The classifier is invariant to rotations; a plain CNN is not."""

import pytest
import torch
import torch.nn.functional as F

import steerformer as sf
from models.small import KINDS, assert_equivariant_on_grid, classifier, plain, settle
from steerformer import SO2, SO3, models
from steerformer.testing import assert_equivariant, blobs


def settled(model):
    return settle(model, model.config.size, batch=4)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_logits_are_invariant_to_grid_rotations(group, options, float64):
    assert_equivariant_on_grid(settled(classifier(group, **options)), size=8, batch=1)


@pytest.mark.parametrize(("size", "pool"), [(9, 2), (7, 2), (8, 3), (7, 3)])
def test_invariance_on_odd_grids_and_incomplete_pooling_windows(group, size, pool, float64):
    assert_equivariant_on_grid(settled(classifier(group, size=size, pool=pool)), size=size, batch=1)


def test_plain_cnn_is_not_invariant(group, float64):
    with pytest.raises(AssertionError, match="CNN is not equivariant"):
        assert_equivariant(settled(plain(group)), size=8, tolerance=1e-2)


def test_bias_on_vectors_is_detected(group, float64):
    """Negative control: a constant added to degree 1 breaks equivariance."""
    model = settled(classifier(group))

    def spoil(module, inputs, output):
        degree = module.out_type.multiplicity(0)
        output[:, degree : 2 * degree] += 0.3
        return output

    model.blocks[0].register_forward_hook(spoil)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(model, size=8, tolerance=1e-6)


def spread_error(model, scene, angle):
    """Change of the logits under rotation, relative to their spread over scenes."""
    with torch.no_grad():
        upright, rotated = (model(s.sample(28)) for s in (scene, scene.rotate(SO2.rotation(angle))))
    return ((rotated - upright).norm() / (upright - upright.mean(dim=0)).norm()).item()


@pytest.mark.parametrize("depth", [0, 1])
def test_logits_are_nearly_invariant_at_any_angle(depth, float64):
    model = settled(classifier(SO2, size=28, depth=depth, kernel_size=5, widths=[[4, 4], [8, 8], [8]]))
    control = settled(plain(SO2, size=28))
    scene = blobs(model.in_type, batch=32, sigma=2.0, extent=4.0)
    assert spread_error(model, scene, 1.0) < 0.25
    assert spread_error(control, scene, 1.0) > 0.75


def test_shapes_and_types(group):
    model = classifier(group, in_channels=2)
    assert model.in_type == sf.FieldType.image(group, 2)
    assert model.out_type == sf.FieldType.image(group, 5)
    assert model(model.in_type.randn(3, 8)).shape == (3, 5)


@pytest.mark.parametrize("make", [classifier, plain])
def test_every_parameter_gets_a_gradient(group, make):
    model = make(group, dropout=0.0)
    F.cross_entropy(model(model.in_type.randn(6, 8)), torch.arange(6) % 5).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_depth_0_has_no_attention(group):
    assert not any(isinstance(module, sf.nn.Attention) for module in classifier(group, depth=0).modules())
    assert any(isinstance(module, sf.nn.Attention) for module in classifier(group).modules())


def test_blocks_are_those_of_the_paper(group):
    names = [type(layer).__name__ for layer in classifier(group, norm="layer").blocks]
    assert names == ["Conv", "NormReLU", "Conv", "LayerNorm", "AvgPool", "Conv", "LayerNorm"]


def test_blur_is_passed_to_poolings(group):
    net = models.build({"kind": "classifier", "group": group.name, "size": 12, "antialiased": True, "blur": 0.7})
    pools = [layer for layer in net.blocks if isinstance(layer, sf.nn.AvgPool)]
    assert [pool.blur for pool in pools] == [0.7, 0.7]


def test_last_convolution_covers_the_remaining_grid(group):
    model = classifier(group, size=11, pool=3)
    assert model.flatten.kernel_size == (3,) * group.dim


@pytest.mark.parametrize("size", [8, 9, 11])
def test_final_pooling_before_the_transformer(group, size, float64):
    model = classifier(group, size=size, pool=2, final_pool=2)
    assert isinstance(model.blocks[-1], sf.nn.AvgPool)
    assert model.flatten.kernel_size == (size // 4,) * group.dim
    assert_equivariant_on_grid(settled(model), size=size, batch=1)


@pytest.mark.slow
def test_overfits_a_few_samples(unchecked):
    torch.manual_seed(0)
    model = classifier(SO2, dropout=0.0)
    x, y = model.in_type.randn(10, 8), torch.arange(10) % 5
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model.eval()(x).argmax(dim=1) == y).all()


@pytest.mark.parametrize("make", [classifier, plain])
@pytest.mark.parametrize("shape", [(2, 1, 9, 9), (2, 2, 8, 8), (1, 8, 8), (2, 1, 8, 8, 8)])
def test_wrong_input_shapes_are_rejected(make, shape, unchecked):
    with pytest.raises(ValueError, match=r"takes a batch of shape \(batch, 1, 8, 8\), got"):
        make(SO2)(torch.zeros(shape))


def test_wrong_input_shapes_are_rejected_in_3d(unchecked):
    with pytest.raises(ValueError, match=r"takes a batch of shape \(batch, 1, 8, 8, 8\), got \(2, 1, 8, 8\)"):
        classifier(SO3)(torch.zeros(2, 1, 8, 8))
