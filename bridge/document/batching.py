"""Limits of batches: the owner sets them for each scope, and its publishers keep them (docs/protocol.md §2.5).

No other party checks them: a reader takes any batch of valid form. Not here: packing (`gateway.outbox`), content
(`keys.records`).
"""

from __future__ import annotations

from dataclasses import dataclass

from keys.errors import BadFrame
from keys.frames import Reader, number

BATCH_MOST = (1_024, 1 << 19, 1_000)
"""The greatest values that an owner can give, in the order of the fields: the format has room for so many records, and
replicas take packets of 1 MiB by default.
"""


@dataclass(frozen=True, slots=True)
class Batching:
    """Limits of a batch: records, bytes and waiting time.

    `content_bytes` counts topics, payloads and extras (a longer record is alone). `linger_ms`: the most milliseconds a
    stored publication waits for others.
    """

    records: int = 256
    content_bytes: int = 64 << 10
    linger_ms: int = 0

    def encode(self) -> bytes:
        return number(self.records, 2) + number(self.content_bytes, 4) + number(self.linger_ms, 2)

    @classmethod
    def read(cls, frame: Reader) -> Batching:
        """Reads the limits. Raises BadFrame for numbers out of range, and for the default, which is not written."""
        batching = cls(frame.number(2), frame.number(4), frame.number(2))
        inside = all(least <= v <= most for least, v, most in zip((1, 1, 0), batching.values, BATCH_MOST, strict=True))
        if not inside or batching == BATCHING:
            raise BadFrame(f"batches of {batching.values}; at most {BATCH_MOST}, at least 1, 1 and 0, not the default")
        return batching

    @property
    def values(self) -> tuple[int, int, int]:
        return self.records, self.content_bytes, self.linger_ms


BATCHING = Batching()
