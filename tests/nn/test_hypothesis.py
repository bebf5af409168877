"""Any combination of options: an exactly equivariant layer, or an error in our own words; never torch's."""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings

import steerformer as sf
from nn.layers import worst_error
from steerformer import SO2, SO3, FieldType

pytestmark = pytest.mark.usefixtures("unchecked")
OURS = (
    "cannot lie centered on an axis of",
    "does not fit into",
    'padding="same" with stride 1 needs windows of odd width',
    "the width of antialiased windows follows from their stride",
    "no kernel of size",
    "Resample needs",
    "couple to degree",
    "share none",
)


def trying(examples):
    """The same examples every time; fixtures that hold for all of them."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def field_types(group, *, real=True):
    degrees = 4 if group is SO2 else 3
    complex_types = st.lists(st.integers(0, 2), min_size=1, max_size=degrees).filter(any)
    kinds = complex_types.map(lambda copies: FieldType(group, copies))
    return kinds | st.integers(1, 3).map(lambda n: FieldType.image(group, n)) if real else kinds


def grids(group):
    sizes = st.integers(1, 10 if group is SO2 else 5)
    return sizes | st.tuples(*[sizes] * group.dim)


groups = st.sampled_from([SO2, SO2, SO2, SO3])  # volumes take longer


def assert_exact_or_told(make, size):
    """Build and apply; only a ValueError of ours may come in between. Some outputs are zero, as that of v x v."""
    try:
        error = worst_error(make().double().eval(), size, floor=1e-3)
    except ValueError as problem:
        assert any(words in str(problem) for words in OURS), problem
        return "told"
    assert error < 1e-10
    return "exact"


@trying(120)
@given(st.data())
def test_a_convolution_is_exact_or_says_why_not(data):
    group = data.draw(groups)
    types = [data.draw(field_types(group)) for _ in range(2)]
    options = {
        "kernel_size": data.draw(st.integers(1, 5 if group is SO2 else 3)),
        "stride": data.draw(st.integers(1, 4)),
        "padding": data.draw(st.just("same") | st.integers(0, 4)),
        "dilation": data.draw(st.integers(1, 3)),
        "profiles": data.draw(st.sampled_from(["fitted", "purest", "sampled"])),
        "tolerance": data.draw(st.sampled_from([1e-3, 1e-2, 1.0])),
    }
    assert_exact_or_told(lambda: sf.nn.Conv(*types, **options), data.draw(grids(group)))


@trying(80)
@given(st.data())
def test_a_pool_is_exact_or_says_why_not(data):
    group = data.draw(groups)
    options = {
        "kernel_size": data.draw(st.integers(1, 5)),
        "stride": data.draw(st.none() | st.integers(1, 6)),
        "antialiased": data.draw(st.booleans()),
    }
    field_type = data.draw(field_types(group))
    assert_exact_or_told(lambda: sf.nn.AvgPool(field_type, **options), data.draw(grids(group)))


@trying(40)
@given(st.data())
def test_a_resampling_is_exact(data):
    group = data.draw(groups)
    field_type, scale = data.draw(field_types(group)), data.draw(st.floats(0.1, 3.0))
    assert assert_exact_or_told(lambda: sf.nn.Resample(field_type, scale=scale), data.draw(grids(group))) == "exact"


POINTWISE = {
    "Linear": lambda a, b: sf.nn.Linear(a, b),
    "TensorProduct": lambda a, b: sf.nn.TensorProduct(a, b),
    "NormReLU": lambda a, b: sf.nn.NormReLU(a, bias=-0.5),
    "LayerNorm": lambda a, b: sf.nn.LayerNorm(a),
    "BatchNorm": lambda a, b: sf.nn.BatchNorm(a),
    "Invariants": lambda a, b: sf.nn.Invariants(a),
    "FourierReLU": lambda a, b: sf.nn.FourierReLU(a, oversampling=2),
}


@trying(70)
@given(st.data())
def test_pointwise_layers_are_exact_for_any_types(data):
    group, name = data.draw(groups), data.draw(st.sampled_from(sorted(POINTWISE)))
    real = name not in ("TensorProduct", "FourierReLU")
    into, out = (data.draw(field_types(group, real=real)) for _ in range(2))
    assert_exact_or_told(lambda: POINTWISE[name](into, out), data.draw(grids(group)))


@trying(40)
@given(st.data())
def test_a_gate_is_exact_for_any_type_that_has_one(data):
    group = data.draw(groups)
    field_type, kernel_size = data.draw(field_types(group)), data.draw(st.sampled_from([1, 3, 5]))
    assume(group is SO2 or kernel_size < 5)
    assert_exact_or_told(lambda: sf.nn.Gated(field_type, kernel_size=kernel_size), data.draw(grids(group)))
