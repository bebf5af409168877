"""Layer and batch normalization against their formulas."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from nn.layers import complex_pieces, features, gapped, image, randomized, vectors
from steerformer import SO2, FieldType
from steerformer.nn.batch_statistics import composed_statistics, normalized

pytestmark = pytest.mark.usefixtures("float64")
SIZES = ((), 3)  # without and with spatial axes
KINDS = pytest.mark.parametrize("of", [features, gapped, vectors, image])


@KINDS
def test_layer_norm_matches_the_paper(group, of):
    r"""$\mathrm{LN}(f)(x,\rho) = f(x,\rho) / \sqrt{\sum_\rho \|f(x,\rho)\|_2^2}$."""
    for size in SIZES:
        layer = sf.nn.LayerNorm(of(group), affine=False)
        x = layer.in_type.randn(4, size)
        before, after = complex_pieces(layer.in_type, x), complex_pieces(layer.out_type, layer(x))
        length = np.sqrt(sum((np.abs(f) ** 2).sum(axis=(1, 2)) for f in before.values()))
        for degree, f in before.items():
            np.testing.assert_allclose(after[degree], f / length[:, None, None], rtol=0, atol=1e-12)
        assert not list(layer.parameters())


@KINDS
def test_layer_norm_has_one_factor_per_copy(group, of):
    for size in SIZES:
        layer, plain = randomized(sf.nn.LayerNorm(of(group))), sf.nn.LayerNorm(of(group), affine=False)
        x = layer.in_type.randn(4, size)
        factors = np.split(layer.weight.detach().numpy(), np.cumsum(layer.in_type.multiplicities)[:-1])
        before, after = complex_pieces(layer.in_type, plain(x)), complex_pieces(layer.out_type, layer(x))
        for degree, factor in enumerate(factors):
            expected = factor.reshape(-1, *[1] * (x.ndim - 2)) * before[degree]
            np.testing.assert_allclose(after[degree], expected, rtol=0, atol=1e-12)


def test_layer_norm_gives_unit_variance_at_initialization(group):
    layer = sf.nn.LayerNorm(gapped(group))
    y = layer(1e4 * layer.in_type.randn(50, 2))
    assert y.square().mean().item() == pytest.approx(1, rel=1e-12)


def test_layer_norm_divides_short_vectors_by_eps(group):
    layer = sf.nn.LayerNorm(gapped(group), affine=False, eps=0.5)
    x = layer.in_type.randn(2, 3)
    x = 0.1 * x / x.norm(dim=1, keepdim=True)
    assert_close(layer(x), x / 0.5)
    assert_close(layer(10 * x), 10 * x)


@KINDS
def test_floor_keeps_short_vectors_short(group, of):
    r"""$f / \sqrt{\|f\|^2 + C s^2}$, and nearly the plain norm for long vectors."""
    layer, plain = sf.nn.LayerNorm(of(group), affine=False, floor=0.3), sf.nn.LayerNorm(of(group), affine=False)
    x = layer.in_type.randn(3, SIZES[0])
    for scale in (1e-3, 1.0):
        y = layer(scale * x).numpy()
        squares = (scale * x.numpy()) ** 2
        expected = scale * x.numpy() / np.sqrt(squares.sum(axis=1, keepdims=True) + x.shape[1] * 0.09)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12)
    assert_close(layer(1e4 * x), plain(x), rtol=1e-6, atol=1e-6)
    assert layer(1e-3 * x).norm() < 1e-2 * plain(1e-3 * x).norm()


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float16, 60.0), (torch.float32, 1e25)])
def test_floor_does_not_overflow(group, dtype, scale):
    x = FieldType(group, (4, 4, 2)).randn(3, 5)
    layer = sf.nn.LayerNorm(FieldType(group, (4, 4, 2)), affine=False, floor=0.3)
    expected = layer.double()(scale * x)
    found = layer((scale * x).to(dtype))
    assert_close(found.double(), expected, rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize("floor", [-0.1, np.inf, "low"])
def test_floor_is_checked(floor, unchecked):
    with pytest.raises(ValueError, match="floor of LayerNorm"):
        sf.nn.LayerNorm(gapped(SO2), floor=floor)


def batch_norm_by_definition(layer, x):
    """Per copy: mean (scalars only), mean square of the real channels about it, and normalized values."""
    before, parts = complex_pieces(layer.in_type, x), layer.in_type.parts
    means, squares, after = {}, {}, {}
    axes = (0, *range(3, x.ndim + 1))
    for degree, f in before.items():
        means[degree] = f.mean(axis=axes, keepdims=True) if degree == 0 else 0
        centered = f - means[degree]
        orders = f.shape[1]
        squares[degree] = (np.abs(centered) ** 2).sum(axis=1, keepdims=True).mean(axis=axes, keepdims=True)
        squares[degree] = squares[degree] / (orders * parts)
        after[degree] = centered / np.sqrt(squares[degree] + layer.eps)
    return means, squares, after


def per_copy(field_type, values, ndim):
    shares = np.split(values, np.cumsum(field_type.multiplicities)[:-1])
    return [share.reshape(-1, *[1] * (ndim - 2)) for share in shares]


@KINDS
def test_batch_norm_matches_definition(group, of):
    for size, affine in itertools.product(SIZES, (True, False)):
        layer = randomized(sf.nn.BatchNorm(of(group), affine=affine)).train()
        x = 3 * layer.in_type.randn(8, size) + 1
        _, _, expected = batch_norm_by_definition(layer, x)
        if affine:
            factors = per_copy(layer.in_type, layer.weight.detach().numpy(), x.ndim)
            expected = {degree: factors[degree] * f for degree, f in expected.items()}
            if layer.bias is not None:
                bias = layer.bias.detach().numpy()
                bias = bias[0] + 1j * bias[1] if len(bias) == 2 else bias[0]
                expected[0] = expected[0] + bias.reshape(-1, *[1] * (x.ndim - 2))
        for degree, found in complex_pieces(layer.out_type, layer(x)).items():
            np.testing.assert_allclose(found, expected[degree], rtol=0, atol=1e-10, err_msg=f"{size}, {affine}")


@KINDS
def test_running_statistics_are_moving_averages(group, of):
    layer = sf.nn.BatchNorm(of(group), momentum=0.25).train()
    parts, scalars = layer.in_type.parts, layer.in_type.multiplicity(0)
    mean, rms = np.zeros((parts, scalars)), np.ones(layer.in_type.copies)
    for i in range(3):
        x = (i + 1) * layer.in_type.randn(5, 2) + i
        means, squares, _ = batch_norm_by_definition(layer, x)
        layer(x)
        if scalars:
            flat = means[0].reshape(-1)
            mean = 0.75 * mean + 0.25 * np.stack([flat.real, flat.imag][:parts])
        rms = 0.75 * rms + 0.25 * np.sqrt(np.concatenate([s.reshape(-1) for s in squares.values()]))
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.running_rms.numpy(), rms, rtol=0, atol=1e-12)


def test_eval_mode_uses_running_statistics(group):
    layer = randomized(sf.nn.BatchNorm(gapped(group))).eval()
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    x = layer.in_type.randn(4, 3)
    y = layer(x)
    assert_close(layer(x[:1]), y[:1])  # independent of batch and size
    assert_close(layer(x[..., :1]), y[..., :1])
    for name, value in layer.state_dict().items():
        assert torch.equal(value, state[name])
    twin = sf.nn.BatchNorm(gapped(group)).eval()
    twin.load_state_dict(state)
    assert_close(twin(x), y)


def test_eval_mode_converges_to_training_output(group):
    layer = sf.nn.BatchNorm(gapped(group)).train()
    x = 5 * layer.in_type.randn(16, 3) + 2
    for _ in range(300):
        trained = layer(x)
    assert_close(layer.eval()(x), trained, rtol=0, atol=1e-8)


def test_batch_norm_of_images_matches_torch(group):
    ours = sf.nn.BatchNorm(FieldType.image(group, 3)).train()
    theirs = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[group.dim](3).train()
    x = 2 * torch.randn(4, 3, *[5] * group.dim) + 1
    assert_close(ours(x), theirs(x), rtol=0, atol=1e-10)


def test_normalized_channels_have_unit_variance(group):
    layer = sf.nn.BatchNorm(features(group)).train()
    y = layer(100 * layer.in_type.randn(64, 3) + 50)
    for piece in layer.out_type.split(y):
        assert piece.square().mean().item() == pytest.approx(1, rel=1e-3)
    assert layer.out_type.split(y)[0].mean(dim=(0, *range(4, 4 + group.dim))).abs().max() < 1e-10


def test_batch_norm_subtracts_mean_of_scalars_only(group):
    layer = sf.nn.BatchNorm(vectors(group)).train()
    assert layer.bias is None
    x = torch.ones(4, layer.in_type.channels)
    assert_close(layer(x), x, rtol=0, atol=1e-4)


def test_empty_batch_keeps_running_statistics(group):
    layer = sf.nn.BatchNorm(gapped(group)).train()
    assert layer(layer.in_type.randn(0, 3)).shape == (0, layer.in_type.channels, *[3] * group.dim)
    assert (layer.running_rms == 1).all()
    assert (layer.running_mean == 0).all()


def outcome(layer, x, function=None):
    """Output, and gradients of a weighted sum of outputs by input and parameters."""
    x = x.detach().requires_grad_()
    y = (function or layer)(x)
    weights = torch.linspace(-1, 2, y.numel(), dtype=torch.float64).sin().view_as(y)
    return y.detach(), *torch.autograd.grad((weights.to(y) * y).sum(), [x, *layer.parameters()])


@KINDS
def test_batch_norm_kernels_match_composed_operations(group, of):
    """Output and all gradients, contiguous or not."""
    for size, affine in itertools.product(SIZES, (True, False)):
        layer = randomized(sf.nn.BatchNorm(of(group), affine=affine)).train()

        def composed(x, layer=layer):
            mean, rms = composed_statistics(x, layer.in_type)
            return normalized(x, mean, rms, layer.weight, layer.bias, layer.in_type, layer.eps)

        x = 3 * layer.in_type.randn(6, size) + 1
        expected = outcome(layer, x, composed)
        for same in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
            for found, known in zip(outcome(layer, same), expected, strict=True):
                assert_close(found, known, rtol=0, atol=1e-11)


def test_batch_norm_in_float32_is_accurate_on_large_fields():
    """Sums over 200,000 voxels, with means several deviations away from 0."""
    layer = randomized(sf.nn.BatchNorm(FieldType(SO2, (2, 1)))).train()
    x = layer.in_type.randn(5, 200) + 5
    expected = outcome(layer, x)
    for found, known in zip(outcome(layer.float(), x.float()), expected, strict=True):
        assert_close(found.double(), known, rtol=1e-4, atol=1e-5 * known.abs().max().item())


def test_gradient_of_batch_norm_at_any_scale(group):
    """Outputs do not depend on the scale of the input, so gradients decrease with it; squares overflow in float32."""
    layer = sf.nn.BatchNorm(gapped(group), eps=1e-12).float().train()
    x = layer.in_type.randn(8, 3, dtype=torch.float32)
    y, grad, *parameters = outcome(layer, x)
    for scale in (1e-3, 1e10, 1e25):
        found = outcome(layer, scale * x)
        assert_close(found[0], y, rtol=1e-4, atol=1e-5)
        assert_close(found[1] * scale, grad, rtol=1e-4, atol=1e-5)
        for ours, theirs in zip(found[2:], parameters, strict=True):
            assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_batch_norm_of_half_precision_with_float32_weights(group, dtype):
    """As under autocast: the layer keeps its weights, the field has half precision."""
    layer = randomized(sf.nn.BatchNorm(gapped(group))).float().train()
    x = 3 * layer.in_type.randn(8, 3) + 1
    expected = outcome(layer.double(), x)
    for found, known in zip(outcome(layer.float(), x.to(dtype)), expected, strict=True):
        assert_close(found.double(), known, rtol=0.05, atol=0.05 * known.abs().max().item())


def test_frozen_batch_norm_gives_gradients_of_the_input_only(group):
    layer = randomized(sf.nn.BatchNorm(gapped(group))).train()
    x = layer.in_type.randn(4, 3)
    everything = outcome(layer, x)
    layer.requires_grad_(False)
    free = x.clone().requires_grad_()
    weights = torch.linspace(-1, 2, x.numel()).sin().view_as(x)
    (weights * layer(free)).sum().backward()
    assert_close(free.grad, everything[1])
    layer.requires_grad_()
    (weights * layer(x)).sum().backward()
    for parameter, known in zip(layer.parameters(), everything[2:], strict=True):
        assert_close(parameter.grad, known)
