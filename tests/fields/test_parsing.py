"""Field types from dictionaries and from e3nn's notation."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import raises
from steerformer import SO2, SO3, FieldType

quick = settings(max_examples=60, deadline=None, derandomize=True)
groups = st.sampled_from([SO2, SO3])
dictionaries = st.dictionaries(st.integers(0, 9), st.integers(0, 9)).filter(lambda copies: any(copies.values()))
terms = st.tuples(st.integers(0, 9), st.integers(0, 6), st.sampled_from("eo"))


@quick
@given(st.lists(terms, min_size=1, max_size=6).filter(lambda terms: any(copies for copies, _, _ in terms)))
def test_e3nn_strings_have_the_multiplicities_and_dimension_of_e3nn(terms):
    from e3nn import o3

    irreps = o3.Irreps([(copies, (degree, 1 if letter == "e" else -1)) for copies, degree, letter in terms])
    field_type = FieldType(SO3, str(irreps))
    assert field_type.channels == 2 * irreps.dim
    for degree in range(7):
        assert field_type.multiplicity(degree) == irreps.count((degree, 1)) + irreps.count((degree, -1))


def test_terms_without_copies_are_those_of_e3nn():
    from e3nn import o3

    text = "0e + 1o+3x1e"
    assert FieldType(SO3, text).channels == 2 * o3.Irreps(text).dim
    assert FieldType(SO3, text) == FieldType(SO3, (1, 4))


def test_printed_types_are_those_of_e3nn_without_parities():
    """What we print is parsed again, and parities do not come back."""
    assert str(FieldType(SO3, "8x0e+4x0o+2x2e")) == "12x0+2x2"


@quick
@given(groups, dictionaries)
def test_dictionaries_map_degrees_to_multiplicities(group, copies):
    field_type = FieldType(group, copies)
    assert dict(enumerate(field_type.multiplicities)).items() >= {d: n for d, n in copies.items() if n}.items()
    assert sum(field_type.multiplicities) == sum(copies.values())
    assert FieldType(group, {d: field_type.multiplicity(d) for d in field_type.degrees}) == field_type


def test_real_scalars_from_dictionaries(group):
    assert FieldType(group, {0: 3}, real=True) == FieldType.image(group, 3)
    with pytest.raises(ValueError, match="real fields of SO2 are scalars"):
        FieldType(SO2, {1: 3}, real=True)


BAD_TEXTS = [
    ("8x0e+4x1", "write a parity letter after every degree or after none, got '8x0e\\+4x1'"),
    ("8x0p", "cannot parse '8x0p'"),
    ("8xe", "cannot parse '8xe'"),
    ("x0e", "cannot parse 'x0e'"),
    ("8x0eo", "cannot parse"),
    ("8", "cannot parse '8'"),
    ("-1o", "cannot parse"),
    ("0x0e", "at least one copy"),
    ("1x257", "the largest degree of a field type is 256, got 257"),
    ("1x257e", "the largest degree of a field type is 256, got 257"),
    ("1xreal+8x0e", "cannot parse '1xreal'"),
]


def test_invalid_texts_raise(unchecked):
    for text, message in BAD_TEXTS:
        with raises(text, message):
            FieldType(SO3, text)


def test_parities_exist_in_3d_only():
    with pytest.raises(ValueError, match="degrees of SO2 have no parity, got '8x0e'; leave the letters out"):
        FieldType(SO2, "8x0e")


BAD_DICTIONARIES = [
    ({}, "at least one copy"),
    ({0: 0}, "at least one copy"),
    ({-1: 2}, r"degrees of a field type are integers >= 0, got -1 in \{-1: 2\}"),
    ({"0e": 2}, "integers >= 0, got '0e'"),
    ({0.5: 2}, "integers >= 0, got 0.5"),
    ({True: 2}, "integers >= 0, got True"),
    ({10**9: 1}, "the largest degree of a field type is 256, got 1000000000"),
    ({0: 8, 1: -4}, "the multiplicity of degree 1 is an integer >= 0, got -4"),
    ({0: 1.5}, "the multiplicity of degree 0 is an integer >= 0, got 1.5"),
]


def test_invalid_dictionaries_raise(group, unchecked):
    for copies, message in BAD_DICTIONARIES:
        with raises(copies, message):
            FieldType(group, copies)
