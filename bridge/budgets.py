"""Bounds that are fair: whoever fills a table loses its own entries first (PROTOCOL §1: a bad publisher harms only
its own publications).

`FairTable` holds values of many owners under one limit; `Repeats` tells publications from repetitions; `Allowance`
limits how often somebody may make us work. Not here: budgets per link and per second of traffic (flood guard).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from keys.envelope import SequenceWindow

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

RESEALED_MAX = 512  # sequences of a publisher whose sealing time is known; more than one window in flight


class FairTable(Generic[K, V]):
    """At most `limit` values. When there is one too many, the owner with the most entries loses its oldest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[K, tuple[bytes, V]] = OrderedDict()
        self._by_owner: dict[bytes, OrderedDict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[1]

    def touch(self, key: K) -> None:
        """`key` was used: of its owner's entries it is now the newest."""
        self._by_owner[self._values[key][0]].move_to_end(key)

    def put(self, key: K, owner: bytes, value: V) -> tuple[K, V] | None:
        """Store or replace a value, as its owner's newest. Returns what had to go, if anything."""
        self.pop(key)
        self._values[key] = (owner, value)
        self._by_owner.setdefault(owner, OrderedDict())[key] = None
        if len(self._values) <= self._limit:
            return None
        greediest = max(self._by_owner.values(), key=len)
        oldest = next(iter(greediest))
        gone = self.pop(oldest)
        assert gone is not None
        return oldest, gone

    def pop(self, key: K) -> V | None:
        found = self._values.pop(key, None)
        if found is None:
            return None
        owner, value = found
        del self._by_owner[owner][key]
        if not self._by_owner[owner]:
            del self._by_owner[owner]
        return value

    def values(self) -> Iterator[V]:
        """In the order in which they were put. The table must not change meanwhile."""
        return (value for _, value in self._values.values())


class Repeats:
    """What one publisher's sequences were seen before, at a replica.

    A gateway that was killed seals its outbox anew under the same sequences; the first sealing may have reached one
    replica only. Hence a later sealing of a recent sequence is no repetition; of an older one it is.
    """

    __slots__ = ("_sealed_ms", "_window")

    def __init__(self) -> None:
        self._window = SequenceWindow()
        self._sealed_ms: OrderedDict[int, int] = OrderedDict()

    def seen(self, sequence: int, sealed_ms: int) -> bool:
        """Mark; True if this sealing, or a later one, came before."""
        if self._window.seen(sequence):
            before_ms = self._sealed_ms.get(sequence)
            if before_ms is None or sealed_ms <= before_ms:
                return True
        self._sealed_ms[sequence] = sealed_ms
        if len(self._sealed_ms) > RESEALED_MAX:
            self._sealed_ms.popitem(last=False)
        return False


class Allowance:
    """`burst` times at once, and once more every `every_s`."""

    __slots__ = ("_at", "_burst", "_every_s", "_left")

    def __init__(self, burst: int, every_s: float, now: float) -> None:
        self._burst = self._left = float(burst)
        self._every_s = every_s
        self._at = now

    def take(self, now: float) -> bool:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) / self._every_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
