"""Any combination of options gives an exactly equivariant layer or the library's own error, never one of torch's."""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings

import steerformer as sf
from nn.layers import worst_error
from steerformer import SO2, SO3, FieldType

pytestmark = [pytest.mark.usefixtures("unchecked"), pytest.mark.slow]
MESSAGES = (
    "cannot be centered on an axis of",
    "does not fit into",
    'padding="same" with stride 1 needs windows of odd width',
    "antialiased windows have stride = kernel_size",
    "no kernel of size",
    "Resample needs",
    "couple to degree",
    "share none",
)


def fixed_examples(examples):
    """Reproducible examples; fixtures apply to all of them."""
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


def assert_exact_or_error(make, size):
    """Exactly equivariant, or one of the library's own errors. Some outputs are zero, such as v x v."""
    try:
        error = worst_error(make().double().eval(), size, floor=1e-3)
    except ValueError as problem:
        assert any(message in str(problem) for message in MESSAGES), problem
        return "error"
    assert error < 1e-10
    return "exact"


@fixed_examples(120)
@given(st.data())
def test_conv_is_exact_or_raises(data):
    group = data.draw(groups)
    types = [data.draw(field_types(group)) for _ in range(2)]
    options = {
        "kernel_size": data.draw(st.integers(1, 5 if group is SO2 else 3)),
        "stride": data.draw(st.integers(1, 4)),
        "padding": data.draw(st.just("same") | st.integers(0, 4)),
        "dilation": data.draw(st.integers(1, 3)),
        "kernel_family": data.draw(st.sampled_from(["fitted", "purest", "sampled"])),
        "max_impurity": data.draw(st.sampled_from([1e-3, 1e-2, 1.0])),
    }
    assert_exact_or_error(lambda: sf.nn.Conv(*types, **options), data.draw(grids(group)))


@fixed_examples(80)
@given(st.data())
def test_pool_is_exact_or_raises(data):
    group = data.draw(groups)
    options = {
        "kernel_size": data.draw(st.integers(1, 5)),
        "stride": data.draw(st.none() | st.integers(1, 6)),
        "antialiased": data.draw(st.booleans()),
    }
    field_type = data.draw(field_types(group))
    assert_exact_or_error(lambda: sf.nn.AvgPool(field_type, **options), data.draw(grids(group)))


@fixed_examples(40)
@given(st.data())
def test_resample_is_exact(data):
    group = data.draw(groups)
    field_type, scale = data.draw(field_types(group)), data.draw(st.floats(0.1, 3.0))
    assert assert_exact_or_error(lambda: sf.nn.Resample(field_type, scale=scale), data.draw(grids(group))) == "exact"


POINTWISE = {
    "Linear": lambda a, b: sf.nn.Linear(a, b),
    "TensorProduct": lambda a, b: sf.nn.TensorProduct(a, b),
    "NormReLU": lambda a, b: sf.nn.NormReLU(a, bias=-0.5),
    "LayerNorm": lambda a, b: sf.nn.LayerNorm(a),
    "BatchNorm": lambda a, b: sf.nn.BatchNorm(a),
    "Invariants": lambda a, b: sf.nn.Invariants(a),
    "FourierReLU": lambda a, b: sf.nn.FourierReLU(a, oversampling=2),
}


@fixed_examples(70)
@given(st.data())
def test_pointwise_layers_are_exact_or_raise(data):
    group, name = data.draw(groups), data.draw(st.sampled_from(sorted(POINTWISE)))
    real = name not in ("TensorProduct", "FourierReLU")
    into, out = (data.draw(field_types(group, real=real)) for _ in range(2))
    assert_exact_or_error(lambda: POINTWISE[name](into, out), data.draw(grids(group)))


@fixed_examples(40)
@given(st.data())
def test_gated_is_exact_or_raises(data):
    group = data.draw(groups)
    field_type, kernel_size = data.draw(field_types(group)), data.draw(st.sampled_from([1, 3, 5]))
    assume(group is SO2 or kernel_size < 5)
    assert_exact_or_error(lambda: sf.nn.Gated(field_type, kernel_size=kernel_size), data.draw(grids(group)))
