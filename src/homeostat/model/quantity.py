"""Amounts of things (`500m`, `1Gi`, `2e3`), exactly as Kubernetes reads, compares, adds and writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_SHAPE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*)([+-]?[0-9]*)").fullmatch

FORMAT_PROBLEM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_PROBLEM = "unable to parse quantity's suffix"
NUMBER_PROBLEM = "unable to parse numeric part of quantity"

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = ["", *_BINARY]

_NANO = 10**9
_LARGEST = (2**63 - 1) * _NANO
_LONGEST = 1000
"""Characters of a quantity; whatever is longer is no amount of anything."""
_EXACT_DIGITS = 18
"""Numbers of up to this many digits are kept whole whatever their suffix; longer ones stop at 2^63-1."""

DECIMAL_SI = "DecimalSI"
BINARY_SI = "BinarySI"
DECIMAL_EXPONENT = "DecimalExponent"


class QuantityError(ValueError):
    """The text is no quantity; the message says which part of it."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount in billionths, the finest step there is; what is finer was rounded up, away from zero.

    Two quantities are equal when they are the same amount, however they were written. `format` only decides how it is
    written again.
    """

    nanos: int
    format: str = field(default=DECIMAL_SI, compare=False)

    def __add__(self, other: Quantity) -> Quantity:
        # A zero has no opinion of how the sum is written.
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __bool__(self) -> bool:
        return self.nanos != 0

    @property
    def value(self) -> int:
        """The amount in whole units, rounded up away from zero."""
        return _ceil(self.nanos, _NANO)

    def __str__(self) -> str:
        """The canonical form: no fraction, the largest suffix that loses nothing."""
        nanos = self.nanos
        if nanos == 0:
            return "0"
        if self.format == BINARY_SI and abs(nanos) >= 1024 * _NANO:
            return _binary_text(_ceil(nanos, _NANO))
        power = -9
        top = 18 if self.format != DECIMAL_EXPONENT else 10**6
        while power < top and nanos % 1000 == 0:
            nanos //= 1000
            power += 3
        if self.format == DECIMAL_EXPONENT:
            return f"{nanos}e{power}" if power else str(nanos)
        return f"{nanos}{_DECIMAL_SUFFIX[power]}"


def _binary_text(units: int) -> str:
    power = 0
    while power < 6 and units % 1024 == 0:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}"


def _ceil(amount: int, step: int) -> int:
    return -(-amount // step) if amount >= 0 else amount // step


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    shape = _SHAPE(text)
    if shape is None or not text:
        raise QuantityError(FORMAT_PROBLEM)
    sign, whole, fraction, letters, exponent = shape.groups()
    fraction = fraction or ""
    if not whole and not fraction:
        raise QuantityError(FORMAT_PROBLEM if "." not in text else NUMBER_PROBLEM)
    digits = int(whole + fraction)
    power, base, style = _suffix(letters, exponent)
    if base == 2:
        nanos = _ceil(digits * 1024**power * _NANO, 10 ** len(fraction))
    else:
        shift = power - len(fraction) + 9
        nanos = digits * 10**shift if shift >= 0 else _ceil(digits, 10**-shift)
    if nanos > _LARGEST and (base == 2 or len((whole + fraction).lstrip("0")) > _EXACT_DIGITS):
        nanos = _LARGEST
    return Quantity(-nanos if sign == "-" else nanos, style)


def _suffix(letters: str, exponent: str) -> tuple[int, int, str]:
    """Power, base and style of what follows the digits."""
    if exponent:
        if letters not in ("e", "E") or exponent in ("+", "-") or len(exponent) > 4:
            raise QuantityError(SUFFIX_PROBLEM)
        return int(exponent), 10, DECIMAL_EXPONENT
    if letters in _DECIMAL:
        return _DECIMAL[letters], 10, DECIMAL_SI
    if letters in _BINARY:
        return _BINARY[letters], 2, BINARY_SI
    raise QuantityError(SUFFIX_PROBLEM)


def parse_quantity(value: Any) -> Quantity:
    """Reads a quantity as it stands in an object: a string, or a JSON number. Raises `QuantityError` otherwise."""
    if isinstance(value, str):
        if len(value) > _LONGEST:
            raise QuantityError(NUMBER_PROBLEM)
        return _parse(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _parse(repr(value).replace("e+", "e"))
    raise QuantityError(FORMAT_PROBLEM)


def canonical_quantity(value: Any) -> str:
    """The one spelling that is stored and served for this amount: `1000m` becomes `1`, `1024Ki` becomes `1Mi`."""
    return str(parse_quantity(value))
