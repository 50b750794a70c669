"""Numbers in bodies: whole ones are integers, however they are written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homeostat.model.encoding import decode_yaml

LARGEST = 2**63 - 1024
"""The largest float below the limit of 64 bits."""


@given(st.integers(-LARGEST, LARGEST).map(float), st.sampled_from(["%r", "%e", "%.1f", "%E", "%.17g"]))
def test_a_whole_number_is_an_integer_in_whatever_form_it_is_written(number: float, form: str) -> None:
    text = form % number
    (found,), doubled = decode_yaml(f"[{text}]".encode())
    assert found == float(text)
    assert type(found) is int
    assert doubled == []


@given(st.floats(-1e15, 1e15).filter(lambda number: not number.is_integer()))
def test_what_is_not_whole_stays_as_it_is(number: float) -> None:
    assert decode_yaml(f'{{"a":{number!r}}}'.encode()) == ({"a": number}, [])


def test_what_is_beyond_64_bits_stays_a_float() -> None:
    (found,), _ = decode_yaml(b"[1e19]")
    assert type(found) is float
