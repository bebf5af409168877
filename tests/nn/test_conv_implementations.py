"""All implementations of a convolution: the same results, derivatives and equivariance, and a fixed rule to choose."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import steerformer as sf
from steerformer import SO2, SO3, FieldType
from steerformer.nn import conv_spectral, conv_tiles
from steerformer.nn.conv_cost import cheapest_implementation
from steerformer.nn.conv_tiles import axes_of

CONVOLUTIONS = {2: F.conv2d, 3: F.conv3d}
GRIDS = {SO2: (22, 18), SO3: (10, 6, 8)}
OPTIONS = {
    "same": {"kernel_size": 5},
    "stride": {"kernel_size": 4, "stride": 2, "padding": 2},
    "dilation": {"kernel_size": 3, "dilation": 2},
    "cropped": {"kernel_size": 2, "stride": 3, "padding": 0},
    "valid": {"kernel_size": 3, "padding": 0},
    "wide-padding": {"kernel_size": 3, "padding": 4},
    "tiles-of-padding": {"kernel_size": 3, "padding": 9},
}


def kinds(group):
    features, others, image = FieldType(group, (2, 1, 1)), FieldType(group, (1, 0, 2)), FieldType.image(group, 2)
    found = {
        "features": (features, others),
        "image-in": (image, features),
        "image-out": (features, image),
        "image-to-image": (image, image),
    }
    if group is SO3:
        real = [FieldType(group, each.multiplicities, real=True) for each in (features, others)]
        found |= {"real": tuple(real), "real-in": (real[0], others), "real-out": (features, real[1])}
    return found


KINDS = [(group, kind) for group in (SO2, SO3) for kind in kinds(group)]


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of three voxels, whatever they cost, in groups and blocks that are smaller than all of them."""
    monkeypatch.setattr(conv_tiles, "_SIZES", (3,))
    monkeypatch.setattr(conv_tiles, "_cost", lambda batch, into, out, axes: -sum(axis.tiles for axis in axes))
    conv_tiles.cheapest_tiles.cache_clear()
    yield monkeypatch
    conv_tiles.cheapest_tiles.cache_clear()


def oracle(conv, x):
    """Torch's convolution with the real kernel, on explicitly padded or cropped input."""
    padding = conv._margins(x.shape[2:])
    padded = F.pad(x, [margin for margin in reversed(padding) for _ in range(2)])
    options = {"stride": conv.stride, "dilation": conv.dilation}
    return CONVOLUTIONS[conv.in_type.group.dim](padded, conv.kernel(), **options)


def results(conv, x, apply):
    x = x.clone().requires_grad_()
    y = apply(x)
    slope = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    return y, *torch.autograd.grad(y, (x, conv.weight), slope)


@pytest.mark.parametrize("implementation", ["direct", "spectral", "basis"])
@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_values_and_derivatives_are_those_of_a_plain_convolution(group, kind, implementation, float64):
    for name, options in OPTIONS.items():
        conv = sf.nn.Conv(*kinds(group)[kind], max_impurity=0.2, implementation=implementation, **options)
        x = conv.in_type.randn(2, GRIDS[group])
        assert_close(results(conv, x, conv), results(conv, x, lambda x, c=conv: oracle(c, x)), msg=name)


@pytest.mark.parametrize("implementation", ["direct", "spectral", "basis"])
@pytest.mark.parametrize("group", [SO2, SO3])
def test_gradient_of_the_weights_alone(group, implementation, float64):
    """Features without a gradient, as those of a frozen network."""
    conv = sf.nn.Conv(*kinds(group)["features"], kernel_size=3, implementation=implementation)
    x = conv.in_type.randn(2, GRIDS[group])
    slope = torch.randn_like(conv(x))
    (found,), (expected,) = (
        torch.autograd.grad(apply(x), conv.weight, slope) for apply in (conv, lambda x: oracle(conv, x))
    )
    assert_close(found, expected)


@pytest.mark.parametrize("limit", ["none", "slabs", "groups", "blocks"])
@pytest.mark.parametrize(("group", "kind"), [(SO2, "features"), (SO3, "features"), (SO3, "real")])
def test_tiles_do_not_change_spectral_results(group, kind, limit, small_tiles, float64):
    if limit == "slabs":
        small_tiles.setattr(conv_spectral, "_SLAB", 1)
    if limit == "groups":
        small_tiles.setattr(conv_spectral, "_GROUP", 2000)
    if limit == "blocks":
        small_tiles.setattr(conv_spectral, "_LARGEST", 500)
    for name, options in OPTIONS.items():
        conv = sf.nn.Conv(*kinds(group)[kind], max_impurity=0.2, implementation="spectral", **options)
        x = conv.in_type.randn(2, GRIDS[group])
        assert_close(results(conv, x, conv), results(conv, x, lambda x, c=conv: oracle(c, x)), msg=name)


def test_tiles_are_used(small_tiles):
    axes = axes_of((23, 18), (5, 5), (1, 1), (2, 2), 1)
    _, lengths = conv_tiles.cheapest_tiles(2, 3, 4, axes)
    assert [(each.tiles, each.outputs, each.window, each.frequencies) for each in lengths] == [
        (8, 3, 7, 7),
        (6, 3, 7, 7),
    ]


@pytest.mark.parametrize("implementation", ["spectral", "basis"])
def test_second_derivatives(implementation, small_tiles, float64):
    conv = sf.nn.Conv(FieldType(SO2, (1, 1)), FieldType(SO2, (1, 1)), kernel_size=3, implementation=implementation)
    x = conv.in_type.randn(1, (5, 4)).requires_grad_()

    def apply(x, weight):
        return torch.func.functional_call(conv, {"weight": weight}, x)

    assert torch.autograd.gradcheck(apply, (x, conv.weight))
    assert torch.autograd.gradgradcheck(apply, (x, conv.weight))


@pytest.mark.parametrize("implementation", ["direct", "spectral", "basis"])
@pytest.mark.parametrize("group", [SO2, SO3])
def test_every_implementation_is_equivariant(group, implementation, float64):
    conv = sf.nn.Conv(*kinds(group)["features"], kernel_size=5, implementation=implementation)
    sf.testing.assert_equivariant(conv, size=8)
    with torch.no_grad():
        conv.basis._pair0 += 0.1 * torch.randn_like(conv.basis._pair0)
    with pytest.raises(AssertionError):
        sf.testing.assert_equivariant(conv, size=8)


@pytest.mark.parametrize("group", [SO2, SO3])
def test_spectral_convolution_is_accurate_in_single_precision(group):
    conv = sf.nn.Conv(FieldType(group, (8, 4, 2)), FieldType(group, (8, 4, 2)), kernel_size=5)
    conv.implementation = "spectral"
    x = conv.in_type.randn(1, 24 if group is SO2 else 16)
    with torch.no_grad():
        exact = oracle(conv.double(), x.double())
        found = conv.float()(x)
    assert (found - exact).norm() < 1e-6 * exact.norm()


@pytest.mark.parametrize("kept", [0, 1 << 21])
def test_spectral_convolution_keeps_input_kernel_and_small_spectra(kept, monkeypatch):
    monkeypatch.setattr(conv_spectral, "_KEPT", kept)
    conv = sf.nn.Conv(FieldType(SO3, (4, 2)), FieldType(SO3, (4, 2)), kernel_size=5, implementation="spectral")
    x = conv.in_type.randn(1, 12).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda value: saved.append(value) or value, lambda value: value):
        conv(x)
    complex_sizes = [value.numel() for value in saved if value.is_complex()]
    assert len(complex_sizes) == 2 * (kept > 0) and all(12**3 < size <= kept for size in complex_sizes)
    sizes = [value.numel() for value in saved if not value.is_complex()]
    assert max(sizes) == max(x.numel(), conv.kernel().numel() // 2)
    assert sum(sizes) < 2 * x.numel() + 4 * conv.kernel().numel()
    saved.clear()
    conv.weight.requires_grad_(False)
    with torch.autograd.graph.saved_tensors_hooks(lambda value: saved.append(value) or value, lambda value: value):
        conv(x)
    assert sum(value.is_complex() for value in saved) == (kept > 0)  # only the kernel's: the input's is not needed


def choice(into, out, space, *, kernel_size=5, batch=2, input_gradient=True, weight_gradient=True, padding=None):
    group = into.group
    conv = sf.nn.Conv(into, out, kernel_size=kernel_size)
    sides = (kernel_size,) * group.dim
    margins = [kernel_size // 2 if padding is None else padding] * group.dim
    axes = axes_of(space, sides, (1,) * group.dim, margins, 1)
    gradients = {"input_gradient": input_gradient, "weight_gradient": weight_gradient}
    return cheapest_implementation(conv.basis, batch, axes, **gradients)


def test_choice_by_the_number_of_operations():
    image = FieldType.image(SO3, 1)
    wide, narrow = FieldType(SO3, (16, 8, 4)), FieldType(SO3, (4, 2))
    assert choice(narrow, FieldType(SO3, (8, 4, 2)), (20, 24, 20)) == "spectral"
    assert choice(wide, wide, (16, 16, 16)) == "spectral"
    assert choice(wide, wide, (2, 2, 2)) == "direct"  # more work for the kernel than for the grid
    assert choice(narrow, narrow, (20, 24, 20), kernel_size=1) == "direct"
    assert choice(wide, FieldType(SO3, (32,)), (5, 5, 5), padding=0) == "basis"  # a single output
    assert choice(image, wide, (32, 32, 32)) == "basis"
    assert choice(image, narrow, (32, 32, 32), input_gradient=False) == "direct"
    image, wide = FieldType.image(SO2, 1), FieldType(SO2, (24,) * 8)
    assert choice(image, wide, (28, 28), input_gradient=False) == "basis"
    assert choice(image, wide, (28, 28), input_gradient=False, weight_gradient=False) == "direct"


def test_low_precision_and_tracing_take_the_direct_implementation():
    conv = sf.nn.Conv(FieldType(SO2, (8,) * 4), FieldType(SO2, (8,) * 4), kernel_size=7)
    x = conv.in_type.randn(8, 16)
    assert conv._implementation(x, [3, 3]) == "spectral"
    assert conv._implementation(x.bfloat16(), [3, 3]) == "direct"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert conv._implementation(x, [3, 3]) == "direct"
    assert torch.func.vmap(lambda x: conv(x[None]))(x).shape == (8, 1, 64, 16, 16)
    assert conv.to("meta")._implementation(x.to("meta"), [3, 3]) == "direct"


def test_spectral_convolution_rejects_what_it_does_not_support(unchecked):
    conv = sf.nn.Conv(FieldType(SO2, (1,)), FieldType(SO2, (1,)), kernel_size=3, implementation="spectral")
    x, message = conv.in_type.randn(2, 6), "spectral convolutions take float32 or float64, without autocast"
    with pytest.raises(ValueError, match=message), torch.autocast("cpu", dtype=torch.bfloat16):
        conv(x)
    with pytest.raises(ValueError, match=message):
        torch.func.grad(lambda x: conv(x).sum())(x)
    with pytest.raises(ValueError, match=message):
        conv.bfloat16()(x.bfloat16())


def test_unknown_implementation_is_rejected(unchecked):
    with pytest.raises(ValueError, match=r"implementation is one of .*'spectral'.*, got 'fast'"):
        sf.nn.Conv(FieldType(SO2, (1,)), FieldType(SO2, (1,)), kernel_size=3, implementation="fast")
