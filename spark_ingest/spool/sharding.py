"""Which part of the devices a query or a receiver takes: `shard=2/3` is the second of three parts.

The part is decided by a hash of one level of the *wire* topic, which names the device. All replicas carry a publication
under the same wire topic, so that all of its pieces meet in one receiver; a shared subscription would scatter them. All
publications of a device are in one part, and every publication is in exactly one of n. Where topic names are hidden the
level is a token, which is as good until the owner renews the key of tokens. Batches, on the topic of their scope, have
records of many devices: they are divided by publisher and number, and a device's records are in several parts.

Pure. Not here: who has which part, and what becomes of positions when n changes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

DEVICE_LEVEL = 1
"""In `plant/press-4/temperature` the device is the second level: levels count from 0."""
SHARDS_MAX = 1024
BATCH_BITS = 12
LEVELS_MAX = 127


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` (1..count) of `count`. `level`: which level of the topic names the device, from 0."""

    number: int
    count: int
    level: int = DEVICE_LEVEL

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def owns(self, wire_topic: str) -> bool:
        """Whether this part has the topic. A topic with fewer levels goes by its last one."""
        levels = wire_topic.split("/", self.level + 1)
        return self._has(levels[min(self.level, len(levels) - 1)].encode())

    def owns_batch(self, publisher: bytes, sequence: int) -> bool:
        """Whether this part has a batch, which has records of many devices: a publisher's next 4,096 numbers go to one
        part together."""
        return self._has(publisher + (sequence >> BATCH_BITS).to_bytes(8))

    def _has(self, name: bytes) -> bool:
        # 64 of the hash's bits: no part is larger than another by more than one in 2**54.
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) % self.count == self.number - 1


def parse_shard(text: str, level: int = DEVICE_LEVEL) -> Shard:
    """`i/n` with 1 <= i <= n. Raises ValueError for anything else."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and len(text) < 12):
        raise ValueError("not i/n")
    shard = Shard(int(number), int(count), level)
    if not 1 <= shard.number <= shard.count <= SHARDS_MAX:
        raise ValueError("out of range")
    return shard
