"""Layers on real fields of all degrees: e3nn and complex layers as oracles, parity, initialization."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from nn.layers import worst_error
from steerformer import SO3, FieldType
from steerformer.kernels import KernelBasis, Rings, RingsAtPoints
from steerformer.testing import assert_equivariant

pytestmark = pytest.mark.usefixtures("float64")
REAL, OTHER = FieldType(SO3, (3, 2, 1), real=True), FieldType(SO3, (4, 5, 2), real=True)


def to_e3nn(field_type, x):
    """Channels in e3nn's order: degree, copy, order instead of degree, order, copy."""
    return torch.cat([piece[:, 0].mT.flatten(1) for piece in field_type.split(x)], dim=1)


def irreps(field_type):
    return "+".join(f"{field_type.multiplicity(degree)}x{degree}e" for degree in field_type.degrees)


def test_rotations_are_those_of_e3nn():
    from e3nn import o3

    R, x = SO3.random_rotation(), REAL.randn(5)
    found = to_e3nn(REAL, REAL.rotate(x, R))
    assert REAL.channels == o3.Irreps(irreps(REAL)).dim
    assert_close(found, to_e3nn(REAL, x) @ o3.Irreps(irreps(REAL)).D_from_matrix(R).mT, rtol=0, atol=1e-12)


def test_linear_is_that_of_e3nn():
    """With the same weights, which e3nn keeps as (copy in, copy out) and divides by the root of the copies in."""
    from e3nn import o3

    layer = sf.nn.Linear(REAL, OTHER)
    theirs = o3.Linear(irreps(REAL), irreps(OTHER))
    with torch.no_grad():
        weights = [weight[0].mT * math.sqrt(weight.shape[2]) for weight in layer.weights]
        theirs.weight.copy_(torch.cat([weight.flatten() for weight in weights]))
    x = REAL.randn(5)
    assert_close(to_e3nn(OTHER, layer(x)), theirs(to_e3nn(REAL, x)), rtol=0, atol=1e-12)
    assert sum(p.numel() for p in layer.parameters()) == theirs.weight_numel


def test_kernel_at_a_point_is_that_of_e3nn():
    """Weighted sum of Wigner 3j symbols times spherical harmonics, with every harmonic, also those of odd sum."""
    from e3nn import o3

    into, out, points = FieldType(SO3, "1x1 real"), FieldType(SO3, "1x2 real"), torch.randn(4, 3)
    basis = KernelBasis(into, out, RingsAtPoints(Rings(SO3, (1.5,), width=0.8), points))
    assert [path.harmonic for path in basis.paths] == [1, 2, 3]
    weights = torch.randn(1, 3)
    r = points.norm(dim=1)
    expected = torch.zeros(5, 3, 4)
    for path, weight in zip(basis.paths, weights[0], strict=True):
        Y = o3.spherical_harmonics(path.harmonic, points, normalize=True, normalization="norm")
        C = math.sqrt(2 * path.harmonic + 1) * o3.wigner_3j(2, path.harmonic, 1)
        expected += weight * torch.exp(-((r - 1.5) ** 2) / 2 / 0.8**2) * torch.einsum("ohi,ph->oip", C, Y)
    assert_close(basis(weights), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("implementation", ["direct", "spectral", "basis"])
def test_real_convolution_is_a_complex_one_without_imaginary_parts(implementation):
    into, out = (FieldType(SO3, each.multiplicities) for each in (REAL, OTHER))
    real = sf.nn.Conv(REAL, OTHER, kernel_size=3, implementation=implementation)
    whole = sf.nn.Conv(into, out, kernel_size=3)
    assert 2 * real.weight.numel() == whole.weight.numel()
    with torch.no_grad():
        whole.weight.copy_(torch.cat([real.weight, torch.zeros_like(real.weight)]))
    x = REAL.randn(2, 5)
    expected, imaginary = whole(torch.cat([x, torch.zeros_like(x)], dim=1)).chunk(2, dim=1)
    assert_close(real(x), expected)
    assert imaginary.abs().max() < 1e-12


def test_products_of_real_vectors_are_inner_and_cross_product():
    vectors = FieldType(SO3, "1x1 real")
    layer = sf.nn.TensorProduct(vectors, FieldType(SO3, "1x0+1x1 real"))
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    layer.left, layer.right, layer.mix = nn.Identity(), Constant(b), nn.Identity()
    scalar, vector = layer(a).split([1, 3], dim=1)
    assert_close(scalar[:, 0].abs(), (a * b).sum(dim=1).abs() / math.sqrt(3))
    cross = torch.linalg.cross(a, b) / math.sqrt(2)
    assert_close(vector * (vector * cross).sum().sign(), cross)


class Constant(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return self.value


def test_rotations_only_not_reflections():
    """Harmonics of odd sum of degrees, such as the cross product, commute with rotations and not with inversion."""
    vectors = FieldType(SO3, "2x1 real")
    layer = sf.nn.Conv(vectors, vectors, kernel_size=3)
    assert {path.harmonic for path in layer.basis.paths} == {0, 1, 2}
    assert worst_error(layer, 5) < 1e-10
    x = vectors.randn(1, 5)

    def inverted(f):  # polar vectors: f(-x) -> -f
        return -f.flip(2, 3, 4)

    assert (layer(inverted(x)) - inverted(layer(x))).abs().max() > 0.1
    even = [i for i, path in enumerate(layer.basis.paths) if path.harmonic != 1]
    weights = layer.weight.data.view(2, 2, -1)
    odd = [i for i in range(weights.shape[2]) if i not in even]
    weights[:, :, odd] = 0
    assert_close(layer(inverted(x)), inverted(layer(x)))


def test_mixed_networks_are_equivariant():
    image, complex_type = FieldType.image(SO3, 1), FieldType(SO3, (2, 1))
    net = nn.Sequential(
        sf.nn.Conv(image, REAL, kernel_size=3),
        sf.nn.BatchNorm(REAL),
        sf.nn.FourierReLU(REAL),
        sf.nn.Conv(REAL, complex_type, kernel_size=3),
        sf.nn.Gated(complex_type),
        sf.nn.Linear(complex_type, REAL),
        sf.nn.TensorProduct(REAL, complex_type),
        sf.nn.Conv(complex_type, OTHER, kernel_size=3),
        sf.nn.Invariants(OTHER),
    )
    assert_equivariant(net, size=4, tolerance=1e-10)


def test_channels_of_real_fields_cannot_be_mixed_freely():
    """The control: a plain linear map of the channels, and torch's ReLU."""
    plain = nn.Linear(REAL.channels, REAL.channels)
    for layer in (lambda x: plain(x.movedim(1, -1)).movedim(-1, 1), torch.relu):
        with pytest.raises(AssertionError, match="not equivariant"):
            assert_equivariant(layer, size=3, in_type=REAL, out_type=REAL)


def test_invariants_of_real_fields_are_signed_scalars_and_norms():
    x = REAL.randn(2, 3)
    found = sf.nn.Invariants(REAL)(x)
    scalars, vectors, tensors = REAL.split(x)
    assert torch.equal(found[:, :3], scalars[:, 0, 0])
    for i, piece in ((slice(3, 5), vectors), (slice(5, 6), tensors)):
        assert_close(found[:, i], piece[:, 0].norm(dim=1))


@pytest.mark.parametrize("out", [FieldType(SO3, (40, 40)), FieldType(SO3, (40, 40), real=True)], ids=str)
@pytest.mark.parametrize("layer", [sf.nn.Linear, sf.nn.TensorProduct])
def test_unit_variance_is_kept_from_real_fields(layer, out):
    layer = layer(FieldType(SO3, (30, 30, 30), real=True), out)
    for piece in out.split(layer(layer.in_type.randn(500))):
        assert piece.square().mean().item() == pytest.approx(1, rel=0.25)


def test_real_kernels_have_no_imaginary_part_to_draw():
    layer = sf.nn.Conv(REAL, OTHER, kernel_size=3)
    assert sf.viz.kernels(layer).axes
    with pytest.raises(ValueError, match=r"kernels from 3x0\+2x1\+1x2 real to .* are real; leave imaginary out"):
        sf.viz.kernels(layer, imaginary=True)


def test_real_fields_are_drawn():
    figure = sf.viz.field(REAL.randn(1, 6), REAL)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["degree 0, copy 0", "degree 0, copy 1"]
