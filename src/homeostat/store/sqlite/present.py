"""Which keys may be in the file: whoever creates asks first whether there is one, and most often there is not."""

from __future__ import annotations

from collections.abc import Iterable

BITS = 1 << 23
"""One mebibyte, of which as much is touched as there are keys. A hundred thousand of them make one vain read in two
thousand, a million one in twenty."""

_MASK = BITS - 1
_SHIFT = 30  # the second bit of a key comes from another part of its hash


class Present:
    """A Bloom filter over every key that is or was in the file.

    It never denies one that is there. One that is gone may still be held for present: then the file is asked, as if
    there were no filter.
    """

    __slots__ = ("_bits",)

    def __init__(self, keys: Iterable[str]) -> None:
        self._bits = bytearray(BITS >> 3)
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        """A key is in the file from now on."""
        mixed = hash(key)
        bits, first, second = self._bits, mixed & _MASK, mixed >> _SHIFT & _MASK
        bits[first >> 3] |= 1 << (first & 7)
        bits[second >> 3] |= 1 << (second & 7)

    def __contains__(self, key: str) -> bool:
        """Whether it may be there; False is certain."""
        mixed = hash(key)
        bits, first, second = self._bits, mixed & _MASK, mixed >> _SHIFT & _MASK
        return bool(bits[first >> 3] >> (first & 7) & 1 and bits[second >> 3] >> (second & 7) & 1)
