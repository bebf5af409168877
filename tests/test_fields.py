"""FieldType: parsing, printing, equality, channels, split and pack, noise."""

import copy
import dataclasses
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from checks import raises
from steerformer import SO2, SO3, FieldType
from steerformer.fields import real_form, voxel_coordinates

quick = settings(max_examples=60, deadline=None, derandomize=True)
groups = st.sampled_from([SO2, SO3])
copies = st.lists(st.integers(0, 30), min_size=1, max_size=7).filter(any).map(tuple)
# Arguments instead of types: a strategy must not draw random numbers itself, but the runtime type checks do.
real = st.tuples(groups, st.tuples(st.integers(1, 9)), st.just(True)) | st.tuples(st.just(SO3), copies, st.just(True))
arguments = st.tuples(groups, copies, st.just(False)) | real


def make(arguments):
    group, multiplicities, real = arguments
    return FieldType(group, multiplicities, real=real)


@quick
@given(arguments)
def test_str_and_repr_round_trip(drawn):
    field_type = make(drawn)
    assert FieldType(field_type.group, str(field_type)) == field_type
    assert eval(repr(field_type), {"FieldType": FieldType, "SO2": SO2, "SO3": SO3}) == field_type


@quick
@given(groups, copies, st.integers(0, 3))
def test_trailing_zeros_are_ignored(group, multiplicities, zeros):
    short, long = FieldType(group, multiplicities), FieldType(group, (*multiplicities, *[0] * zeros))
    assert short == long
    assert hash(short) == hash(long)
    assert short.multiplicities[-1] > 0


@quick
@given(arguments, arguments)
def test_equality_matches_group_and_str(first, second):
    one, other = make(first), make(second)
    same = one.group is other.group and str(one) == str(other)
    assert (one == other) == same
    assert len({one, other}) == (1 if same else 2)


def test_dataclass_replace_updates_derived_fields():
    field_type = dataclasses.replace(FieldType(SO3, (8, 4, 2)), multiplicities=(1, 3))
    assert field_type == FieldType(SO3, (1, 3))
    assert field_type.channels == 20
    assert field_type.runs == FieldType(SO3, (1, 3)).runs


def test_non_floating_point_tensor_raises(unchecked):
    for dtype in (torch.uint8, torch.int64, torch.bool, torch.complex64):
        with raises(dtype, f"real floating-point numbers, got {dtype}; "):
            FieldType(SO2, (1, 1)).split(torch.ones(1, 4, dtype=dtype))


@quick
@given(arguments)
def test_pickle_and_copy_preserve_equality(drawn):
    field_type = make(drawn)
    assert field_type.channels > 0  # derived fields must not affect equality
    for twin in (pickle.loads(pickle.dumps(field_type)), copy.deepcopy(field_type), copy.copy(field_type)):
        assert twin == field_type
        assert hash(twin) == hash(field_type)
        assert twin.group is field_type.group


@quick
@given(arguments)
def test_channels_is_parts_times_orders_times_copies(drawn):
    field_type = make(drawn)
    dims = (1 if field_type.group is SO2 else 2 * degree + 1 for degree in range(9))
    size = sum(dim * count for dim, count in zip(dims, field_type.multiplicities, strict=False))
    assert field_type.channels == (size if field_type.real else 2 * size)
    assert field_type.degrees == tuple(i for i, count in enumerate(field_type.multiplicities) if count)
    assert field_type.multiplicity(20) == 0


@quick
@given(arguments, st.integers(0, 2))
def test_pack_inverts_split_and_split_returns_views(drawn, extra):
    field_type = make(drawn)
    x = field_type.randn(2, (3,) * extra)
    pieces = field_type.split(x)
    assert torch.equal(field_type.pack(pieces), x)
    for piece, degree in zip(pieces, field_type.degrees, strict=True):
        orders, count = field_type.group.irrep_dim(degree), field_type.multiplicities[degree]
        assert piece.shape == (2, field_type.parts, orders, count, *[3] * extra)
        piece.zero_()
    assert not x.any()


def test_channel_order_is_part_degree_order_copy(group):
    """Written out by hand, because saved weights depend on it."""
    field_type = FieldType(group, (1, 2))
    x = torch.arange(field_type.channels, dtype=torch.get_default_dtype())[None]
    scalars, vectors = field_type.split(x)
    half = field_type.channels // 2
    assert scalars.flatten().tolist() == [0, half]
    for part in (0, 1):
        for order in range(group.irrep_dim(1)):
            assert vectors[0, part, order].tolist() == [part * half + 1 + 2 * order, part * half + 2 + 2 * order]


def test_runs_merge_degrees_of_equal_dimension():
    """In 2D all irreps have dimension 1 and form one run; in 3D each degree is its own run."""
    assert FieldType(SO2, (3, 0, 2, 4)).runs == ((1, 9),)
    assert FieldType(SO3, (3, 0, 2, 4)).runs == ((1, 3), (5, 2), (7, 4))
    for field_type in (FieldType(SO2, (3, 0, 2)), FieldType(SO3, (3, 0, 2)), FieldType.image(SO3, 4)):
        assert sum(copies for _, copies in field_type.runs) == field_type.copies == sum(field_type.multiplicities)
        assert field_type.parts * sum(orders * copies for orders, copies in field_type.runs) == field_type.channels


def test_parser_accepts_spaces_gaps_and_any_order():
    assert FieldType(SO3, " 2x3 + 8x0 ") == FieldType(SO3, (8, 0, 0, 2))
    assert str(FieldType(SO3, (8, 0, 0, 2))) == "8x0+2x3"
    assert FieldType(SO2, "3xreal") == FieldType(SO2, " 3x0 real ") == FieldType.image(SO2, 3)
    assert FieldType(SO3, "2x3 + 8x0  real") == FieldType(SO3, (8, 0, 0, 2), real=True)
    assert FieldType(SO3, "2x1o + 8x0e real") == FieldType(SO3, (8, 2), real=True)
    assert FieldType(SO2, [4, 2]).multiplicities == (4, 2)


def test_real_and_complex_scalars_differ(group):
    image, scalars = FieldType.image(group, 3), FieldType(group, (3,))
    assert image != scalars
    assert (image.channels, image.parts, image.degrees) == (3, 1, (0,))
    assert (scalars.channels, scalars.parts, scalars.degrees) == (6, 2, (0,))
    assert FieldType(SO2, (3,)) != FieldType(SO3, (3,))


def test_real_fields_have_half_the_channels():
    real, whole = FieldType(SO3, (8, 4, 2), real=True), FieldType(SO3, (8, 4, 2))
    assert real != whole
    assert (real.channels, real.parts, real.degrees, real.runs) == (30, 1, (0, 1, 2), whole.runs)
    assert whole.channels == 60
    assert str(real) == "8x0+4x1+2x2 real"
    assert [piece.shape[1:] for piece in real.split(real.randn(2))] == [(1, 1, 8), (1, 3, 4), (1, 5, 2)]


def test_field_type_is_immutable(group):
    with pytest.raises(AttributeError):
        FieldType(group, (1,)).multiplicities = (2,)


def test_real_flag_is_kept_for_strings(group):
    assert FieldType(group, "3x0", real=True).real


def test_randn_is_standard_normal_in_every_channel(group, float64):
    field_type = FieldType(group, (2, 1))
    x = field_type.randn(400, 5)
    assert x.shape == (400, field_type.channels, *[5] * group.dim)
    assert x.mean((0, *range(2, x.ndim))).abs().max() < 0.06  # five standard errors of 10,000 numbers are 0.05
    assert (x.var((0, *range(2, x.ndim))) - 1).abs().max() < 0.08


def test_randn_follows_shape_dtype_and_generator(group):
    field_type = FieldType.image(group, 2)
    space = (3, 4, 5)[: group.dim]
    draw = lambda: field_type.randn(1, space, generator=torch.Generator().manual_seed(1), dtype=torch.float64)  # noqa: E731
    assert draw().shape == (1, 2, *space)
    assert draw().dtype == torch.float64
    assert torch.equal(draw(), draw())
    assert field_type.randn(7).shape == (7, 2)


def test_real_form_multiplies_like_complex_matrices(float64):
    a, b = torch.randn(2, 3, 3, dtype=torch.complex128)
    v = torch.randn(3, dtype=torch.complex128)
    product = torch.einsum("poqi,qirj->porj", real_form(a), real_form(b))
    assert_close(product, real_form(a @ b), rtol=0, atol=1e-12)
    image = torch.einsum("poqi,qi->po", real_form(a), torch.stack([v.real, v.imag]))
    assert_close(torch.complex(*image), a @ v, rtol=0, atol=1e-12)


def test_voxel_coordinates_are_centered_and_in_axis_order():
    points = voxel_coordinates((3, 4), spacing=(2.0, 1.0))
    assert points.shape == (3, 4, 2)
    assert points[0, 0].tolist() == [-2.0, -1.5]
    assert points[2, 1].tolist() == [2.0, -0.5]
    assert points.flatten(0, 1).mean(0).tolist() == [0.0, 0.0]


BAD_TYPES = [
    ((2, -1), "the multiplicity of degree 1 is an integer >= 0, got -1"),
    ((2, 1.5), "the multiplicity of degree 1 is an integer >= 0, got 1.5"),
    ((True,), "the multiplicity of degree 0 is an integer >= 0, got True"),
    ((), "at least one copy"),
    ((0, 0), "at least one copy"),
    ("0x1", "at least one copy"),
    ("", "cannot parse ''"),
    ("8x0+", "cannot parse ''"),
    ("8x0,4x1", "cannot parse '8x0,4x1' in field type '8x0,4x1'; write copies x degree"),
    ("8*0", "cannot parse"),
    ("8x-1", "cannot parse '8x-1'"),
    ("8x1.5", "cannot parse '8x1.5'"),
    ("-8x1", "cannot parse"),
    ("3xreal+2x1", "cannot parse '3xreal'"),
    ("2x1real", "cannot parse '2x1real'"),
    ("real", "cannot parse 'real'"),
    ("2x1 real real", "cannot parse '2x1real'"),
    ("3xreal real", "cannot parse '3xreal' .* such as '8x0\\+4x1' or '8x0\\+4x1 real'"),
    ("8x0+4x1+2x0", "degree 0 occurs twice"),
]


def test_invalid_multiplicities_raise(group, unchecked):
    for copies, message in BAD_TYPES:
        with raises(copies, message):
            FieldType(group, copies)


def test_missing_group_raises(unchecked):
    with pytest.raises(TypeError, match=r"needs a group first \(SO2 or SO3\), got \(8, 4\)"):
        FieldType((8, 4), SO2)


def test_real_field_with_higher_degrees_raises_in_2d():
    for arguments in ({"multiplicities": (2, 1), "real": True}, {"multiplicities": "2x0+1x1 real"}):
        with pytest.raises(ValueError, match=r"real fields of SO2 are scalars .* leave real out: .* already"):
            FieldType(SO2, **arguments)


def test_multiplicity_of_invalid_degree_raises(group, unchecked):
    for degree in (-1, 0.5):
        with raises(degree, rf"a degree of {group} is an integer >= 0, got {degree}"):
            FieldType(group, (2, 1)).multiplicity(degree)


def test_wrong_number_of_channels_raises_with_likely_cause(group):
    features, image = FieldType(group, (2, 1)), torch.randn(1, 3, *[4] * group.dim)
    for action in (features.split, lambda x: features.rotate(x, torch.eye(group.dim))):
        with pytest.raises(ValueError, match=rf"needs {features.channels} channels on axis 1.*image\({group}, 3\)"):
            action(image)
    with pytest.raises(ValueError, match=r"channels on axis 1, got shape \(5,\)"):
        features.require_channels(torch.randn(5))
