"""Concatenation of fields and selection of degrees and copies: exact inverses, equivariance, errors."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import steerformer as sf
from checks import raises
from steerformer import SO2, SO3, FieldType

quick = settings(max_examples=40, deadline=None, derandomize=True)
groups = st.sampled_from([SO2, SO3])
copies = st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any)


def features(group):
    """Two types that share some degrees, not all."""
    return FieldType(group, (2, 1, 0, 1)), FieldType(group, (1, 2, 1))


def rotations(group):
    """All rotations of the grid, and a random one, which is applied to channels only."""
    return [*group.grid_rotations(), group.random_rotation()]


def worst_error(join, types, out_type):
    """Largest relative difference of joining rotated fields and rotating the joined field."""
    group = out_type.group
    worst = 0.0
    for R in rotations(group):
        size = 3 if group.is_grid_rotation(R) else ()
        fields = [each.randn(2, size) for each in types]
        expected = out_type.rotate(join(fields), R)
        found = join([each.rotate(x, R) for x, each in zip(fields, types, strict=True)])
        worst = max(worst, ((found - expected).norm() / expected.norm()).item())
    return worst


def test_concat_commutes_with_rotations_and_torch_cat_does_not(group, float64):
    types = features(group)
    assert worst_error(lambda fields: sf.concat(fields, types), types, sum(types)) < 1e-14
    assert worst_error(lambda fields: torch.cat(fields, dim=1), types, sum(types)) > 0.5


def test_real_fields_are_joined_separated_and_selected(float64):
    types = [FieldType(SO3, each.multiplicities, real=True) for each in features(SO3)]
    assert worst_error(lambda fields: sf.concat(fields, types), types, sum(types)) < 1e-14
    assert worst_error(lambda fields: torch.cat(fields, dim=1), types, sum(types)) > 0.5
    fields = [each.randn(2, 3) for each in types]
    found = sf.separate(sf.concat(fields, types), types)
    assert all(torch.equal(one, other) for one, other in zip(found, fields, strict=True))
    part = types[0].subtype({1: [0], 3: [0]})
    assert part == FieldType(SO3, "1x1+1x3 real")
    assert worst_error(lambda fields: types[0].select(fields[0], (1, 3)), types[:1], part) < 1e-14


def test_select_commutes_with_rotations_and_slicing_channels_does_not(group, float64):
    whole = FieldType(group, (2, 3, 1))
    for chosen in (1, (0, 2), {0: [1], 1: slice(1, 3)}):
        part = whole.subtype(chosen)
        assert worst_error(lambda fields, chosen=chosen: whole.select(fields[0], chosen), [whole], part) < 1e-14
    channels = whole.subtype(1).channels
    assert worst_error(lambda fields: fields[0][:, 2 : 2 + channels], [whole], whole.subtype(1)) > 0.5


def test_channels_of_a_concatenation_by_hand(group):
    """Real parts of the scalars of both, then of the vectors of both order by order; then imaginary parts."""
    one, two = FieldType(group, (1, 1)), FieldType(group, (0, 1))
    orders = group.irrep_dim(1)
    a = torch.arange(one.channels, dtype=torch.get_default_dtype())[None]
    b = 100 + torch.arange(two.channels, dtype=torch.get_default_dtype())[None]
    expected = []
    for part in (0, 1):
        expected.append(part * (1 + orders))
        for order in range(orders):
            expected += [part * (1 + orders) + 1 + order, 100 + part * orders + order]
    assert sf.concat([a, b], [one, two])[0].tolist() == expected


@quick
@given(groups, st.lists(copies, min_size=1, max_size=3), st.integers(0, 2))
def test_separate_returns_the_concatenated_fields_bit_by_bit(group, multiplicities, extra):
    types = [FieldType(group, each) for each in multiplicities]
    fields = [each.randn(2, (3,) * extra) for each in types]
    joined = sf.concat(fields, types)
    assert joined.shape[1] == sum(types).channels == sum(each.channels for each in types)
    for before, after in zip(fields, sf.separate(joined, types), strict=True):
        assert torch.equal(before, after)


@quick
@given(groups, copies)
def test_selected_degrees_concatenate_to_the_whole_bit_by_bit(group, multiplicities):
    whole = FieldType(group, multiplicities)
    x = whole.randn(2, (3,))
    types = [whole.subtype(degree) for degree in whole.degrees]
    assert torch.equal(sf.concat([whole.select(x, degree) for degree in whole.degrees], types), x)
    assert sum(types) == whole


def test_selection_of_both_parts_by_copies(group):
    one, two = features(group)
    a, b = one.randn(2, 3), two.randn(2, 3)
    whole, joined = one + two, sf.concat([a, b], [one, two])
    first = {degree: slice(one.multiplicity(degree)) for degree in one.degrees}
    second = {d: range(one.multiplicity(d), whole.multiplicity(d)) for d in two.degrees}
    assert (whole.subtype(first), whole.subtype(second)) == (one, two)
    assert torch.equal(whole.select(joined, first), a)
    assert torch.equal(whole.select(joined, second), b)


def test_copies_are_selected_in_the_order_chosen_and_degrees_in_increasing_order(group):
    whole = FieldType(group, (2, 3))
    x = whole.randn(1, ())
    scalars, vectors = whole.split(x)
    selected = whole.subtype({1: [2, 0], 0: [1]}).split(whole.select(x, {1: [2, 0], 0: [1]}))
    assert torch.equal(selected[0], scalars[:, :, :, [1]])
    assert torch.equal(selected[1], vectors[:, :, :, [2, 0]])


def test_degrees_from_a_generator_are_selected(group):
    whole = FieldType(group, (2, 3, 1))
    x = whole.randn(1, 3)
    assert torch.equal(whole.select(x, (degree for degree in (0, 1))), whole.select(x, (0, 1)))


def test_images_are_concatenated_and_selected_by_channel(group):
    rgb, depth = FieldType.image(group, 3), FieldType.image(group, 1)
    x, y = rgb.randn(2, 4), depth.randn(2, 4)
    assert rgb + depth == FieldType.image(group, 4)
    assert torch.equal(sf.concat([x, y], [rgb, depth]), torch.cat([x, y], dim=1))
    assert rgb.subtype({0: [2, 0]}) == FieldType.image(group, 2)
    assert torch.equal(rgb.select(x, {0: [2, 0]}), x[:, [2, 0]])


def test_gradients_reach_all_parts(group, float64):
    one, two = FieldType(group, (1, 1)), FieldType(group, (0, 1))
    fields = [each.randn(2, ()).requires_grad_() for each in (one, two)]
    torch.autograd.gradcheck(lambda *fields: sf.concat(fields, (one, two)), fields)
    torch.autograd.gradcheck(lambda x: one.select(x, {1: [0]}), fields[0])


COMPILED = """
import torch
import steerformer as sf
for group in (sf.SO2, sf.SO3):
    one, two = types = sf.FieldType(group, (2, 1)), sf.FieldType(group, (1, 1, 1))
    def there_and_back(x, y):
        joined = sf.concat([x, y], types)
        return joined, *sf.separate(joined, types), (one + two).select(joined, 1)
    fields = [each.randn(2, 3) for each in types]
    compiled = torch.compile(there_and_back, backend="eager", fullgraph=True)
    assert all(map(torch.equal, compiled(*fields), there_and_back(*fields)))
"""


@pytest.mark.slow
def test_compiles_without_graph_breaks():
    """In a process without jaxtyping's runtime checks of constructors, which torch.compile cannot trace."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


def test_networks_join_a_skip_connection_exactly(group):
    """A use of both: scalars skip a convolution and join its output."""

    class Joined(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.in_type, middle = FieldType(group, (2, 1)), FieldType(group, (1, 1, 1))
            self.conv = sf.nn.Conv(self.in_type, middle, kernel_size=3)
            self.types = (middle, self.in_type.subtype(0))
            self.out_type = sum(self.types)

        def forward(self, x):
            return sf.concat([self.conv(x), self.in_type.select(x, 0)], self.types)

    sf.testing.assert_equivariant(Joined(), size=5)


def test_sum_of_types_is_commutative_and_associative(group):
    one, two = features(group)
    assert one + two == two + one == sum([one, two])
    assert sum([one, two, one]) == one + (two + one)


def test_types_that_cannot_be_added_raise(group, unchecked):
    other = SO3 if group is SO2 else SO2
    with pytest.raises(ValueError, match=r"only types of one group can be added, got FieldType\(SO"):
        FieldType(group, (1,)) + FieldType(other, (1,))
    with pytest.raises(ValueError, match=r"real and complex fields .* lift the real one with Linear or Conv"):
        FieldType.image(group, 1) + FieldType(group, (1,))
    for stranger in (3, "8x0", (8, 4)):
        with pytest.raises(TypeError, match="unsupported operand"):
            FieldType(group, (1,)) + stranger


def test_fields_that_cannot_be_concatenated_raise(group, unchecked):
    one, two = features(group)
    x, y = one.randn(2, 3), two.randn(2, 3)
    with pytest.raises(ValueError, match="one type per field, and at least one, got 1 for 2 fields"):
        sf.concat([x, y], [one])
    with pytest.raises(ValueError, match="one type per field, and at least one, got 0 for 0 fields"):
        sf.concat([], [])
    with pytest.raises(TypeError, match="concat needs field types, got '2x0'"):
        sf.concat([x, y], ["2x0", one])
    with pytest.raises(ValueError, match=r"needs 2 channels on axis 1"):
        sf.concat([x, y], [one, FieldType(group, (1,))])
    with pytest.raises(ValueError, match=r"equal \(batch, \*space\), got \[.*\]; crop or resample"):
        sf.concat([x, two.randn(2, 4)], [one, two])


BAD_SELECTIONS = [
    (2, r"degrees of the field, \[0, 1, 3\], got 2"),
    (-1, "got -1"),
    ((0, 7), "got 7"),
    (True, "got True"),
    ((), r"at least one copy of one degree, got \(\)"),
    ({1: slice(0)}, "at least one copy"),
    ({0: [2]}, "copies of degree 0 have indices 0 to 1, got 2"),
    ({0: [-1]}, "got -1"),
]


def test_invalid_selections_raise(group, unchecked):
    field_type = features(group)[0]
    for chosen, message in BAD_SELECTIONS:
        with raises(chosen, message):
            field_type.subtype(chosen)
    with pytest.raises(TypeError, match="copies of degree 0 are a slice or a list of indices, got 1"):
        field_type.select(field_type.randn(1), {0: 1})
