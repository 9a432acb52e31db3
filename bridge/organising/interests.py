"""What brokers have in common, told in a Bloom filter (D2): how many of one's recent publications another had too.

A broker remembers the ids of verified publications that its own clients sent or got. What it tells others of them is a
filter of fixed size, in which nobody can look up more than whether an id that he knows is likely in it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

CACHE_IDS = 8192
"""Ids that a broker remembers (the paper's number)."""
FILTER_BITS = 100_000
FILTER_HASHES = 5


class InterestFilter:
    """A Bloom filter of ids, at most one byte string of `bits` / 8 bytes whatever is in it."""

    __slots__ = ("_array", "bits", "hashes")

    def __init__(self, bits: int = FILTER_BITS, hashes: int = FILTER_HASHES, array: bytes = b"") -> None:
        """`array`: as `encode` gave it. Raises ValueError for one of another size."""
        self.bits, self.hashes = bits, hashes
        size = (bits + 7) // 8
        if array and len(array) != size:
            raise ValueError(f"a filter of {len(array)} bytes where {size} are needed")
        self._array = bytearray(array or size)

    def add(self, ids: Iterable[bytes]) -> None:
        """Ids of publications: publisher and number."""
        for one in ids:
            for place in self._places(one):
                self._array[place >> 3] |= 1 << (place & 7)

    def __contains__(self, one: bytes) -> bool:
        return all(self._array[place >> 3] >> (place & 7) & 1 for place in self._places(one))

    def common(self, ids: Iterable[bytes]) -> int:
        """How many of these are in it; some too many, by chance, and never one too few."""
        return sum(one in self for one in ids)

    def encode(self) -> bytes:
        return bytes(self._array)

    def _places(self, one: bytes) -> list[int]:
        # Two hashes make as many as are wanted (Kirsch and Mitzenmacher, 2006); an odd second one repeats late.
        digest = hashlib.blake2b(one, digest_size=16).digest()
        first, second = int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
        return [(first + number * second) % self.bits for number in range(self.hashes)]


class RecentIds:
    """The ids that a broker remembers, each with the interval in which it came; the oldest are forgotten."""

    def __init__(self, most: int = CACHE_IDS) -> None:
        self._most = most
        self._ids: OrderedDict[bytes, int] = OrderedDict()
        self._interval = 0

    def add(self, one: bytes) -> None:
        self._ids[one] = self._interval
        self._ids.move_to_end(one)
        if len(self._ids) > self._most:
            self._ids.popitem(last=False)

    def next_interval(self) -> list[bytes]:
        """The ids of the interval that ends now."""
        ended = [one for one, came in self._ids.items() if came == self._interval]
        self._interval += 1
        return ended
