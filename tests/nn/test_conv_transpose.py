"""Transposed convolution: the adjoint of Conv, torch's own, its definition, and exact equivariance."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import steerformer as sf
from checks import raises, without_type_checks
from nn.layers import complex_pieces, features, gapped, image, in_space, many, worst_error
from steerformer import SO2, SO3, FieldType
from steerformer.nn.conv_transpose import centered_crop, upsampled_energies
from steerformer.testing import blobs

pytestmark = pytest.mark.usefixtures("float64")
TRANSPOSED = {2: F.conv_transpose2d, 3: F.conv_transpose3d}
OPTIONS = [  # options, size of the input, size that is asked for, size of the output
    ({"kernel_size": 4, "stride": 2}, 4, None, 8),
    ({"kernel_size": 2, "stride": 2}, 3, None, 6),
    ({"kernel_size": 3, "stride": 1}, 4, None, 4),
    ({"kernel_size": 3, "stride": 3}, 3, None, 9),
    ({"kernel_size": 5, "stride": 3}, 3, None, 9),
    ({"kernel_size": 1, "stride": 3}, 3, None, 9),  # zeros between and around
    ({"kernel_size": 3, "stride": 2}, 4, 7, 7),
    ({"kernel_size": 3, "stride": 2}, 4, 9, 9),
    ({"kernel_size": 5, "stride": 2}, 3, 5, 5),
    ({"kernel_size": 4, "stride": 2}, 4, 10, 10),
    ({"kernel_size": 3, "stride": 1, "dilation": 2}, 4, None, 4),
    ({"kernel_size": 2, "stride": 1, "dilation": 2}, 4, None, 4),
]


def by_definition(layer, f, size):
    r"""$g(y) = \sum_x K(y - s x) f(x)$ voxel by voxel; x, y and z are counted from the center."""
    kernel, dim = layer.kernel().detach().numpy(), layer.in_type.group.dim
    taps, space, out = np.array(kernel.shape[2:]), np.array(f.shape[2:]), np.array(in_space(layer.in_type.group, size))
    g = np.zeros((len(f), layer.out_type.channels, *out))
    for source, offset in itertools.product(*(itertools.product(*map(range, each)) for each in (space, taps))):
        z = layer.dilation * (np.array(offset) - (taps - 1) / 2)
        target = np.array(layer.stride) * (np.array(source) - (space - 1) / 2) + z + (out - 1) / 2
        assert (target == target.round()).all(), "sampling between voxels"
        if (target >= 0).all() and (target < out).all():
            place = tuple(target.astype(int))
            g[(..., *place)] += f[(..., *source)].numpy() @ kernel[(..., *offset)].T
    assert len(out) == dim
    return torch.from_numpy(g)


def test_transposed_convolution_is_its_definition(group):
    for options, size, wanted, expected in OPTIONS:
        layer = sf.nn.ConvTranspose(features(group), FieldType(group, (1, 1)), max_impurity=1.0, **options)
        if group is SO3:  # fewer voxels for the loop
            expected -= options["stride"] * (size - 2)
            size, wanted = 2, wanted and expected
        x = layer.in_type.randn(1, size)
        y = layer(x, wanted)
        assert tuple(y.shape[2:]) == in_space(group, expected), options
        assert_close(
            y, by_definition(layer, x, expected), rtol=0, atol=1e-12, msg=lambda text, o=options: f"{o} {text}"
        )


@pytest.mark.parametrize("into", [image, gapped])
@pytest.mark.parametrize("out", [image, gapped])
def test_transposed_convolution_is_torchs_with_the_assembled_kernel(group, into, out):
    layer = sf.nn.ConvTranspose(into(group), out(group), kernel_size=4, stride=2)
    x = layer.in_type.randn(2, (3, 4, 5)[: group.dim])
    expected = TRANSPOSED[group.dim](x, layer.kernel().transpose(0, 1), stride=2, padding=1)
    for mode in (True, False):
        assert_close(layer.train(mode)(x), expected, rtol=0, atol=1e-12)
        with torch.no_grad():
            assert_close(layer(x), expected, rtol=0, atol=1e-12)


ADJOINT = [  # options of the convolution, size of the fine grid
    ({"kernel_size": 4, "stride": 2}, 8),
    ({"kernel_size": 3, "stride": 2}, 7),
    ({"kernel_size": 3, "stride": 2, "padding": 0}, 7),
    ({"kernel_size": 3, "stride": 3}, 6),
    ({"kernel_size": 5}, 5),
    ({"kernel_size": 3, "dilation": 2}, 6),
    ({"kernel_size": 4, "stride": 2, "padding": 2}, 6),
]


@pytest.mark.parametrize(
    "types",
    [(features, gapped), (image, features), (features, image)],
    ids=lambda both: "-to-".join(each.__name__ for each in both),
)
def test_transposed_convolution_is_the_adjoint_of_a_convolution(group, types):
    """$\\langle Conv\\,x, y\\rangle = \\langle x, ConvT\\,y\\rangle$ with types swapped and the adjoint kernel."""
    fine, coarse = (each(group) for each in types)
    for options, size in ADJOINT if group is SO2 else ADJOINT[1:4]:
        conv = sf.nn.Conv(fine, coarse, **options)
        up = sf.nn.ConvTranspose(coarse, fine, **{"stride": 1, **{k: v for k, v in options.items() if k != "padding"}})
        up.kernel_override = conv.kernel().transpose(0, 1).detach()
        up._kernel = lambda form, up=up: up.kernel_override
        x = fine.randn(2, size)
        y = torch.randn_like(conv(x))
        inner = (conv(x) * y).sum()
        assert_close((x * up(y, size)).sum(), inner, msg=lambda text, o=options: f"{o}: {text}")


def test_adjoint_kernels_are_kernels_of_the_transposed_layer(group):
    """The adjoint of a kernel between the types swapped lies in the span of the layer's basis: K(z)^T is steerable."""
    fine, coarse = features(group), FieldType(group, (1, 1))
    conv = sf.nn.Conv(fine, coarse, kernel_size=4, stride=2, padding=1)
    up = sf.nn.ConvTranspose(coarse, fine, kernel_size=4, stride=2)
    count = up.weight.numel()
    columns = torch.stack([up.basis(unit.view_as(up.weight)).flatten() for unit in torch.eye(count)], dim=1)
    target = conv.kernel().detach().transpose(0, 1).flatten()
    solution = torch.linalg.lstsq(columns, target[:, None], driver="gelsd").solution
    assert_close((columns @ solution)[:, 0], target, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", ["fitted", "purest", "sampled"])
def test_every_family_is_exact_under_grid_rotations(group, family):
    layer = sf.nn.ConvTranspose(features(group), gapped(group), kernel_size=4, stride=2, kernel_family=family).eval()
    for size in (4, (2, 3, 4)):
        assert worst_error(layer, size) < 1e-10


def test_given_sizes_are_exact_under_grid_rotations(group):
    layer = sf.nn.ConvTranspose(features(group), gapped(group), kernel_size=3, stride=2)
    types = {"in_type": layer.in_type, "out_type": layer.out_type}
    for size in (7, 9):
        with without_type_checks():
            sf.testing.assert_equivariant(lambda x, size=size: layer(x, size), size=4, tolerance=1e-10, **types)

    def off_center(x):
        return layer(x, 9)[(..., *(slice(0, 8),) * group.dim)]  # as torch's output_padding

    with pytest.raises(AssertionError, match="is not equivariant"):
        sf.testing.assert_equivariant(off_center, size=4, **types)


def test_anisotropic_kernels_and_strides(group):
    """Exact under the rotations that keep the voxel spacing."""
    spacing, stride, kernel = (2.0, 1.0, 1.0)[: group.dim], (1, 2, 2)[: group.dim], (3, 4, 4)[: group.dim]
    options = {"kernel_size": kernel, "stride": stride, "spacing": spacing}
    layer = sf.nn.ConvTranspose(image(group), features(group), **options)
    assert layer(layer.in_type.randn(1, 4)).shape[2:] == (4, 8, 8)[: group.dim]
    sf.testing.assert_equivariant(layer, size=4, spacing=(1.0, 1.5, 1.5)[: group.dim], tolerance=1e-10)


def test_error_at_other_angles_is_bounded_in_2d():
    layer = sf.nn.ConvTranspose(features(SO2), features(SO2), kernel_size=9, stride=3)
    scene = blobs(layer.in_type, sigma=2.5)
    error = sf.testing.equivariance_error(layer, SO2.rotation(0.3), scene=scene, size=7)
    assert 1e-4 < error.total < 0.1


@pytest.mark.parametrize("options", [{"kernel_size": 4, "stride": 2}, {"kernel_size": 5, "stride": 3}], ids=str)
def test_initialization_keeps_variance(group, options):
    """Of noise and of smooth features, in every degree; zero insertion alone would divide it by the stride per axis."""
    into, out = FieldType(group, (4, 4, 4)), FieldType(group, (8, 8, 8))
    noise = into.randn(1, 10 if group is SO2 else 6)
    smooth = blobs(into, batch=1, sigma=3.0, count=300, extent=6.0).sample(noise.shape[2:])
    for x in (noise, smooth / smooth.square().mean().sqrt()):
        powers = []
        for _ in range(4):
            layer = sf.nn.ConvTranspose(into, out, **options)
            powers.append([piece.square().mean().item() for piece in out.split(layer(x).detach())])
        assert all(0.2 < power < 1.5 for power in np.mean(powers, axis=0)), powers


def test_energies_of_images_are_those_of_plane_waves(group):
    """Mean energy over the output of a plane wave, through the path's kernel from scalars, measured."""
    layer = sf.nn.ConvTranspose(FieldType(group, "1x0"), FieldType(group, (1, 1)), kernel_size=4, stride=2)
    curves = upsampled_energies(layer.basis, layer.stride, layer.dilation)
    size, frequency = 8, (1, 3, 2)[: group.dim]
    place = torch.stack(torch.meshgrid(*[torch.arange(size)] * group.dim, indexing="ij"), dim=-1)
    phases = 2 * torch.pi / size * (place * torch.tensor(frequency)).sum(dim=-1)
    wave = torch.stack([phases.cos(), phases.sin()])[None]
    start = 0
    for (degree, _), shape, curve in zip(layer.basis.pairs, layer.basis.weight_shapes, curves, strict=True):
        for path in range(shape[2]):
            layer.weight.data.zero_()
            layer.weight.data[0, start + path] = 1.0
            periodic = F.pad(wave, [2] * (2 * group.dim), mode="circular")
            found = layer(periodic)[(..., *(slice(4, 4 + 2 * size),) * group.dim)]
            energy = complex_pieces(layer.out_type, found)[degree]
            measured = (np.abs(energy) ** 2).sum(axis=(1, 2)).mean()
            index = np.ravel_multi_index([(-n) % size for n in frequency], (size,) * group.dim)
            assert measured == pytest.approx(curve[path, index].item(), rel=1e-9)
        start += shape[2]


def test_gradients_second_derivatives_and_single_precision():
    layer = sf.nn.ConvTranspose(FieldType(SO2, (1, 1)), FieldType(SO2, (1, 1)), kernel_size=2, stride=2, bias=True)
    x = layer.in_type.randn(1, 2).requires_grad_()

    def apply(x, weight, bias):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, x)

    assert torch.autograd.gradcheck(apply, (x, layer.weight, layer.bias), fast_mode=True)
    assert torch.autograd.gradgradcheck(apply, (x, layer.weight, layer.bias), fast_mode=True)
    exact = layer(x)
    assert_close(layer.float()(x.float()).double(), exact, rtol=0, atol=1e-5)


def test_kernel_is_cached_in_eval_mode_until_weights_change(group, monkeypatch):
    layer = sf.nn.ConvTranspose(features(group), gapped(group), kernel_size=4, stride=2).eval()
    x, calls, basis = layer.in_type.randn(1, 3), [], layer.basis.assemble
    monkeypatch.setattr(layer.basis, "assemble", lambda weights: calls.append(1) or basis(weights))
    with torch.no_grad():
        first = layer(x)
        assert torch.equal(first, layer(x)) and len(calls) == 1
        layer.weight.mul_(2)
        assert_close(layer(x), 2 * first)
    assert len(calls) == 2


def test_state_dict_round_trip(group):
    one, other = (
        sf.nn.ConvTranspose(features(group), gapped(group), kernel_size=4, stride=2, bias=True) for _ in range(2)
    )
    other.load_state_dict(one.state_dict())
    x = one.in_type.randn(1, 3)
    assert set(one.state_dict()) == {"weight", "bias"}
    assert torch.equal(one(x), other(x))


def test_repr_lists_options_and_silent_degrees():
    layer = sf.nn.ConvTranspose(image(SO2), many(SO2), kernel_size=3, stride=3)
    assert "kernel_size=(3, 3), stride=(3, 3), dilation=1, silent degrees: 3, 4, 5, 6" in repr(layer)
    counts = sf.models.parameters_per_degree(layer)
    assert sum(counts.values()) == layer.weight.numel() and set(counts) == {0, 1, 2}


def test_off_center_outputs_raise_with_advice_that_works(group, unchecked):
    layer = sf.nn.ConvTranspose(image(group), image(group), kernel_size=3, stride=2)
    message = r"a window of 3 voxels with stride 2 cannot give 8 voxels centered on an axis of 4, .*whose width is even"
    with pytest.raises(ValueError, match=f"{message}, or pass a size of 7 or 9"):
        layer(layer.in_type.randn(1, 4))
    for size in (7, 9):
        layer(layer.in_type.randn(1, 4), size)
    sf.nn.ConvTranspose(image(group), image(group), kernel_size=4, stride=2)(layer.in_type.randn(1, 4))


def test_sizes_beyond_the_reach_of_the_kernel_raise(group, unchecked):
    layer = sf.nn.ConvTranspose(image(group), image(group), kernel_size=4, stride=2)
    with pytest.raises(ValueError, match="gives at most 10 voxels from 4, got size 12; use a larger kernel or stride"):
        layer(layer.in_type.randn(1, 4), 12)
    for size in (0, 2.5, (4,)):
        with raises(size, "the size of ConvTranspose is an integer >= 1"):
            layer(layer.in_type.randn(1, 4), size)
    assert centered_crop(3, 1, 3, None) == -1  # a zero on each side


def test_invalid_options_raise(group, unchecked):
    good = {"kernel_size": 4, "stride": 2}
    for options, message in [
        ({"kernel_size": 0}, "kernel_size is an integer >= 1"),
        ({"stride": 0}, "stride is an integer >= 1"),
        ({"dilation": 0}, "dilation of a kernel is an integer >= 1"),
        ({"max_impurity": 2}, "max_impurity is an impurity"),
    ]:
        with raises(options, message):
            sf.nn.ConvTranspose(features(group), features(group), **{**good, **options})
    with pytest.raises(TypeError, match="ConvTranspose needs field types"):
        sf.nn.ConvTranspose(4, features(group), **good)
    with pytest.raises(ValueError, match="no kernel of size"):
        sf.nn.ConvTranspose(FieldType(group, "1x0"), FieldType(group, "1x5"), kernel_size=2, stride=2)
    layer = sf.nn.ConvTranspose(features(group), features(group), **good)
    with pytest.raises(ValueError, match="ConvTranspose takes FieldType"):
        layer(image(group).randn(1, 4))
