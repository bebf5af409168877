"""Tensor product of two fields along chosen paths, against e3nn's Wigner 3j symbols and complex products."""

import itertools
import math

import numpy as np
import pytest
import torch
from e3nn import o3
from torch.testing import assert_close

import steerformer as sf
from checks import raises, without_type_checks
from nn.layers import complex_pieces, features, gapped, vectors
from steerformer import SO2, SO3, FieldType

pytestmark = pytest.mark.usefixtures("float64")
PATHS = {
    SO2: [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 2), (2, 1, 1), (1, 2, 1), (1, 2, 3), (3, 1, 2), (0, 2, 2)],
    SO3: [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1), (1, 1, 2), (2, 1, 3), (1, 2, 1), (3, 2, 2)],
}


def types(group):
    return FieldType(group, (2, 3, 1, 1)), FieldType(group, (3, 1, 2)), FieldType(group, (2, 1, 3, 1))


def layer_of(group, **options):
    """A layer with the paths whose last degree the output has."""
    paths = [path for path in PATHS[group] if path[2] in types(group)[2].degrees]
    return sf.nn.TensorProduct(*types(group), **{"paths": paths, **options})


def coupled(group, path, a, b):
    """Unit-variance product of ``(order_a)`` and ``(order_b)``: of complex numbers, or by e3nn's symbols."""
    left, right, out = path
    if group is SO2:
        products = {left - right: a * b.conj(), right - left: a.conj() * b, left + right: a * b}  # the last one counts
        return products[out] / math.sqrt(2)
    symbol = o3.wigner_3j(out, left, right, dtype=torch.float64).numpy()
    # all entries have a sum of squares of 1, so that of one order of the output is 1 / (2 out + 1)
    return math.sqrt((2 * out + 1) / 2) * np.einsum("oij,i,j->o", symbol, a, b)


def by_definition(layer, f, g):
    """The sum over paths, copies and weights, for each sample and position separately."""
    group, out_type = layer.in_type.group, layer.out_type
    a = complex_pieces(layer.left.out_type, layer.left(f))
    b = complex_pieces(layer.right.out_type, layer.right(g))
    positions = list(itertools.product(range(len(f)), *map(range, f.shape[2:])))
    found = {}
    for degree, weight in zip(layer.mix.shared, layer.mix.weights, strict=True):
        W = torch.complex(*weight.detach()).numpy()  # copy out, (path, copy)
        total = np.zeros((len(f), group.irrep_dim(degree), len(W), *f.shape[2:]), dtype=complex)
        for sample, *place in positions:
            column = 0
            for path in [path for path in layer.paths if path.out == degree]:
                for copy in range(a[path.left].shape[2]):
                    factors = (piece[(sample, slice(None), copy, *place)] for piece in (a[path.left], b[path.right]))
                    product = coupled(group, path[:3], *factors)
                    for k in range(len(W)):
                        total[(sample, slice(None), k, *place)] += W[k, column] * product
                    column += 1
        found[degree] = total
    return {degree: found[degree] for degree in out_type.degrees}


def assert_same(field_type, y, expected):
    found = complex_pieces(field_type, y)
    for degree in field_type.degrees:
        np.testing.assert_allclose(found[degree], expected[degree], rtol=0, atol=1e-12, err_msg=f"degree {degree}")


@pytest.mark.parametrize("size", [(), 2], ids=["vectors", "grid"])
def test_product_is_the_sum_over_paths(group, size):
    layer = layer_of(group, copies=2)
    f, g = layer.in_type.randn(2, size), layer.other_type.randn(2, size)
    assert_same(layer.out_type, layer(f, g), by_definition(layer, f, g))


def test_product_of_a_field_with_itself_along_paths(group):
    layer = sf.nn.TensorProduct(features(group), FieldType(group, (2, 1)), paths=[(1, 1, 0), (0, 1, 1), (2, 1, 1)])
    x = layer.in_type.randn(2, 2)
    assert layer.other_type is None and layer.left.out_type == FieldType(group, (2, 2, 2))
    assert_same(layer.out_type, layer(x), by_definition(layer, x, x))


def test_all_paths_are_the_default(group):
    layer = sf.nn.TensorProduct(*types(group))
    found = {tuple(path[:3]) for path in layer.paths}
    degrees = [each.degrees for each in types(group)]
    couple = (lambda a, b, c: c in (a + b, abs(a - b))) if group is SO2 else (lambda a, b, c: abs(a - b) <= c <= a + b)
    assert found == {path for path in itertools.product(*degrees) if couple(*path)}
    assert len(layer.paths) == len(found)


def test_product_commutes_with_all_rotations(group):
    layer = layer_of(group)
    f, g, R = layer.in_type.randn(4), layer.other_type.randn(4), group.random_rotation()
    rotated = layer(layer.in_type.rotate(f, R), layer.other_type.rotate(g, R))
    assert_close(rotated, layer.out_type.rotate(layer(f, g), R), rtol=0, atol=1e-10)
    only_one = layer(layer.in_type.rotate(f, R), g)
    assert (only_one - layer.out_type.rotate(layer(f, g), R)).abs().max() > 0.1


def test_product_commutes_with_grid_rotations(group):
    layer = layer_of(group)
    both = layer.in_type + layer.other_type

    def joined(x):
        return layer(*sf.separate(x, [layer.in_type, layer.other_type]))

    options = {"in_type": both, "out_type": layer.out_type, "size": 2, "batch": 1}
    with without_type_checks():
        sf.testing.assert_equivariant(joined, tolerance=1e-10, **options)

    def wrong(x):
        f, g = sf.separate(x, [layer.in_type, layer.other_type])
        return layer(f, g.flip(1))

    with pytest.raises(AssertionError, match="is not equivariant"):
        sf.testing.assert_equivariant(wrong, **options)


def test_product_is_bilinear_up_to_conjugation(group):
    """Real factors of either input are factors of the output."""
    layer = layer_of(group)
    f, g = layer.in_type.randn(3), layer.other_type.randn(3)
    assert_close(layer(2 * f, -3 * g), -6 * layer(f, g))
    other = layer.other_type.randn(3)
    assert_close(layer(f, g + other), layer(f, g) + layer(f, other))


def test_inner_and_cross_product_of_vectors():
    """In 3D, with identity linear maps and weights: known products of real vectors."""
    vector = FieldType(SO3, "1x1")
    layer = sf.nn.TensorProduct(vector, vector, FieldType(SO3, "1x0+1x1"), paths=[(1, 1, 0), (1, 1, 1)])
    for linear in (layer.left, layer.right, layer.mix):
        for weight in linear.weights:
            weight.data.copy_(torch.tensor([1.0, 0.0]).view(2, 1, 1))
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    y = layer(*(torch.cat([v, torch.zeros(4, 3)], dim=1) for v in (a, b)))
    assert_close(y[:, 0].abs(), (a * b).sum(dim=1).abs() / math.sqrt(6))
    cross = torch.linalg.cross(a, b) / 2
    sign = torch.sign((y[:, 1:4] * cross).sum())
    assert_close(y[:, 1:4], sign * cross)


def test_unit_variance_is_kept(group):
    into = FieldType(group, (16, 16, 16))
    layer = sf.nn.TensorProduct(into, into, into, copies=32)
    powers = []
    for _ in range(6):
        for linear in (layer.left, layer.right, layer.mix):
            linear.reset_parameters()
        powers.append([p.square().mean().item() for p in into.split(layer(into.randn(64), into.randn(64)))])
    for power in np.mean(powers, axis=0):
        assert power == pytest.approx(1, rel=0.3)


def test_every_parameter_gets_a_gradient_and_derivatives_are_right():
    layer = layer_of(SO2)
    layer(layer.in_type.randn(2), layer.other_type.randn(2)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())
    small = FieldType(SO2, (1, 1))
    layer = sf.nn.TensorProduct(small, small, small)
    assert torch.autograd.gradcheck(layer, (small.randn(1).requires_grad_(), small.randn(1).requires_grad_()))


def test_save_load_single_precision_and_meta_device(group):
    layer = layer_of(group)
    with torch.device("meta"):
        twin = layer_of(group)
    twin.load_state_dict(layer.state_dict(), assign=True)
    f, g = layer.in_type.randn(2), layer.other_type.randn(2)
    exact = layer(f, g)
    assert_close(twin(f, g), exact, rtol=0, atol=1e-14)
    assert_close(layer.float()(f.float(), g.float()).double(), exact, rtol=0, atol=1e-4)


def test_products_of_one_field_are_as_before(group):
    """Two types without paths: the same parameters from the same seed."""
    layer = sf.nn.TensorProduct(features(group), gapped(group))
    assert layer.paths is None and "paths" not in repr(layer)
    assert layer.products == FieldType(group, [2 * bool(n) for n in gapped(group).multiplicities])


def test_repr_lists_paths(group):
    layer = sf.nn.TensorProduct(vectors(group), vectors(group), FieldType(group, "1x0+1x2"))
    assert "2x1, 2x1 -> 1x0+1x2, paths=[(1, 1, 0), (1, 1, 2)]" in repr(layer)


BAD_PATHS = [
    ([(1, 1)], r"a path of TensorProduct is \(degree, degree, degree of the output\), got \(1, 1\)"),
    ([(1, -1, 0)], "a path of TensorProduct is"),
    ([(1, 1.0, 0)], "a path of TensorProduct is"),
    ([(5, 1, 0)], r"path \(5, 1, 0\) of TensorProduct needs degree 5, which FieldType.* lacks"),
    ([(1, 1, 3)], r"path \(1, 1, 3\) of TensorProduct needs degree 3, which FieldType.* lacks"),
    ([(0, 0, 1)], r"degrees 0 and 0 do not couple to degree 1 in SO"),
    ([(1, 1, 0), (1, 1, 0), (0, 1, 1)], "each path of TensorProduct is given once"),
    ([(1, 1, 0)], r"no path of TensorProduct from .* leads to degree 1; add one, or leave the degree out of 1x0[+]1x1"),
]


def test_invalid_paths_raise(group, unchecked):
    for paths, message in BAD_PATHS:
        with raises(paths, message):
            sf.nn.TensorProduct(features(group), features(group), FieldType(group, (1, 1)), paths=paths)


@pytest.mark.parametrize("second", ["real", "complex"])
def test_real_fields_are_inputs(second, float64):
    """Products of real fields are real; with a complex factor they are complex."""
    f_type, out = (sf.FieldType(SO3, copies, real=True) for copies in ((2, 1, 1), (1, 2)))
    g_type = sf.FieldType(SO3, (1, 2), real=second == "real")
    layer = sf.nn.TensorProduct(f_type, g_type, out, paths=[(1, 1, 0), (0, 1, 1), (2, 1, 1), (1, 1, 1)])
    assert layer.products.real == (second == "real")
    f, g, R = f_type.randn(64), g_type.randn(64), SO3.random_rotation()
    rotated = layer(f_type.rotate(f, R), g_type.rotate(g, R))
    assert_close(rotated, out.rotate(layer(f, g), R), rtol=0, atol=1e-10)
    assert (rotated - layer(f, g)).abs().max() > 0.1


def test_invalid_inputs_raise(group, unchecked):
    layer, single = layer_of(group), sf.nn.TensorProduct(features(group), features(group))
    f, g = layer.in_type.randn(2, 3), layer.other_type.randn(2, 3)
    with pytest.raises(ValueError, match=r"this TensorProduct takes two fields, .*, got 1"):
        layer(f)
    with pytest.raises(ValueError, match="this TensorProduct takes one field, got 2"):
        single(features(group).randn(2), features(group).randn(2))
    with pytest.raises(ValueError, match=r"fields of equal \(batch, \*space\), got shapes .*; crop or resample one"):
        layer(f, g[:1])
    with pytest.raises(ValueError, match=r"needs .* channels on axis 1"):
        layer(g, f)
    with pytest.raises(TypeError, match="takes the types of one or two inputs, then that of the output, got"):
        sf.nn.TensorProduct(features(group))
    other = features(SO3 if group is SO2 else SO2)
    with pytest.raises(ValueError, match="TensorProduct needs all types in one group"):
        sf.nn.TensorProduct(features(group), other, features(group))
