"""Which part of what is published a query or a receiver takes: `shard=2/3` is the second of three parts.

The part is decided by a hash of the number, which all replicas' copies of a publication have alike, and what its
publisher seals anew under its next key too, so that all of them meet in one receiver; a shared subscription would
scatter them. A publisher's next 4,096 numbers are in one part together, and every publication is in exactly one of n.
Numbers begin at the time of a publisher's start, so publishers spread. Wire topics name no device, so the records of
one are in several parts.

Pure. Not here: who has which part, and what becomes of positions when n changes.
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
        """Whether this part has publications of that number."""
        name = (sequence >> BLOCK_BITS).to_bytes(8)
        # 64 of the hash's bits: no part is larger than another by more than one in 2**54.
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) % self.count == self.number - 1


def parse_shard(text: str) -> Shard:
    """`i/n` with 1 <= i <= n. Raises ValueError for anything else."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and len(text) < 12):
        raise ValueError("not i/n")
    shard = Shard(int(number), int(count))
    if not 1 <= shard.number <= shard.count <= SHARDS_MAX:
        raise ValueError("out of range")
    return shard
