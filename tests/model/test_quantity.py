"""Quantities are read, compared, added and written as upstream does."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeostat.model.quantity import Quantity, QuantityError, canonical_quantity, parse_quantity

POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1", "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("100000", "100k"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("1000Ki", "1000Ki"),
        ("0.1Ki", "102400m"),
        ("1e3", "1e3"),
        ("12E2", "1200"),
        ("1E", "1E"),
        ("-5", "-5"),
        ("+3", "3"),
        ("0Gi", "0"),
        (".5", "500m"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("9223372036854775808", "9223372036854775807"),
        (3, "3"),
        (0.25, "250m"),
    ],
)
def test_a_quantity_has_one_spelling(text, canonical):
    assert canonical_quantity(text) == canonical


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("abc", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("1.2.3", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("1mm", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
        (None, "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        (True, "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
    ],
)
def test_what_is_no_quantity_is_refused(text, problem):
    with pytest.raises(QuantityError) as refusal:
        parse_quantity(text)
    assert str(refusal.value) == problem


@given(st.integers(-(10**9), 10**9), st.sampled_from(sorted(POWERS)), st.integers(-(10**9), 10**9))
def test_amounts_are_exact(number, suffix, other):
    quantity = parse_quantity(f"{number}{suffix}")
    assert Fraction(quantity.nanos, 10**9) == number * Fraction(10) ** POWERS[suffix]
    assert (quantity < parse_quantity(str(other))) == (number * Fraction(10) ** POWERS[suffix] < other)
    assert (quantity + Quantity(other)).nanos == quantity.nanos + other


@given(st.integers(-(10**15), 10**15), st.sampled_from(["", "m", "k", "Mi", "Gi", "e3"]))
def test_the_canonical_form_is_a_fixed_point(number, suffix):
    once = canonical_quantity(f"{number}{suffix}")
    assert canonical_quantity(once) == once
    assert parse_quantity(once) == parse_quantity(f"{number}{suffix}")


def test_a_sum_keeps_the_form_of_its_first_part():
    assert str(parse_quantity("1Gi") + parse_quantity("1024Mi")) == "2Gi"
    assert str(parse_quantity("0") + parse_quantity("1Gi")) == "1Gi"
    assert parse_quantity("1500m").value == 2
