"""Shards: the part of all publications a query or a receiver takes. `shard=2/3` is the second of three parts.

A hash of the publication's number decides the part. All replicas' copies of a publication have this number, and so has
the publication sealed anew under the publisher's next key: all of them meet in a single receiver, while a shared
subscription would scatter them. 4,096 consecutive numbers of a publisher are in a single part, and every publication
is in exactly one of n. Numbers begin at the time of a publisher's start, so that publishers spread. Wire topics name
no device, so that the records of a device are in several parts.

Pure. Not here: which receiver has which part, and the fate of positions when n changes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

SHARDS_MAX = 1024
BLOCK_BITS = 12


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` (1..count) of `count`."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def owns(self, sequence: int) -> bool:
        """Returns True if publications of that number are in this part."""
        name = (sequence >> BLOCK_BITS).to_bytes(8)
        # 64 of the hash's bits: no part is larger than another by more than one in 2**54.
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) % self.count == self.number - 1


def parse_shard(text: str) -> Shard:
    """Reads `i/n` with 1 <= i <= n. Raises ValueError for other texts."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and len(text) < 12):
        raise ValueError("not i/n")
    shard = Shard(int(number), int(count))
    if not 1 <= shard.number <= shard.count <= SHARDS_MAX:
        raise ValueError("out of range")
    return shard
