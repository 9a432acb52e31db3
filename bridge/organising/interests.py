"""Interests of brokers, told in Bloom filters (D2): the number of publications concerning any of some brokers.

A broker notes the ids of verified publications that its own clients sent or got, and tells others a filter of these
ids, of fixed size. The union of the filters of several brokers gives the number of publications concerning at
least one of them (`estimated`). All of Eq 2 follows from such counts (`costs.tree_cost`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence

FILTER_BITS = 100_000
FILTER_HASHES = 5
FULL_PART = 0.95
"""The part of set bits from which a union counts for nothing: 60,000 publications, known within half a percent."""


class InterestFilter:
    """A Bloom filter of ids: a byte string of `bits` / 8 bytes, for any number of ids."""

    __slots__ = ("_array", "bits", "hashes")

    def __init__(self, bits: int = FILTER_BITS, hashes: int = FILTER_HASHES, array: bytes = b"") -> None:
        """Takes the `array` of an `encode`d filter, or none. Raises ValueError for an array of another size."""
        self.bits, self.hashes = bits, hashes
        size = (bits + 7) // 8
        if array and len(array) != size:
            raise ValueError(f"a filter of {len(array)} bytes where {size} are needed")
        self._array = bytearray(array or size)

    def add_ids(self, ids: Iterable[bytes]) -> None:
        """Adds ids of publications: publisher and number."""
        for one in ids:
            for place in self._places(one):
                self._array[place >> 3] |= 1 << (place & 7)

    def encode(self) -> bytes:
        return bytes(self._array)

    def _places(self, one: bytes) -> list[int]:
        # Two hashes give any number of them (Kirsch and Mitzenmacher, 2006); an odd second hash repeats late.
        digest = hashlib.blake2b(one, digest_size=16).digest()
        first, second = int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
        return [(first + number * second) % self.bits for number in range(self.hashes)]


def agreed(filters: Sequence[bytes]) -> int:
    """Returns the filter of a region from the filters of its replicas, as a number: the median of each bit, of two the
    lower.

    With at most f liars among 2 f + 1 filters or more, a bit is set only if an honest replica set it, and always if
    all honest replicas did.
    """
    needed = len(filters) - (len(filters) - 1) // 2
    set_by = [0] * (needed + 1)  # place n: bits set in n filters or more
    for each in filters:
        bits = int.from_bytes(each)
        for count in range(needed, 1, -1):
            set_by[count] |= set_by[count - 1] & bits
        set_by[1] |= bits
    return set_by[needed]


def estimated(union: int) -> float | None:
    """Returns the number of ids added to filters whose bits together are `union`; None if the union is too full to
    tell.
    """
    filled = union.bit_count() / FILTER_BITS
    return -FILTER_BITS / FILTER_HASHES * math.log1p(-filled) if filled < FULL_PART else None
