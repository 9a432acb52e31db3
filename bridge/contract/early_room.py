"""A room for what comes too early: wires that the next version of the overlay, view or tree will make right.

Members adopt a version a little earlier or later. So a neighbour may honestly bring a key for a view to come, a
publication of a tree or a scope to come, or one under a right to come. Such a wire waits here, and is judged when the
time has come. Bounded and fair: on overflow the owner with the most bytes loses its oldest wire, or a full owner's
next wire is refused, as `EarlyPolicy` says. Not here: what may wait, whose it is, and when it is judged (the callers).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from bridge.contract.budgets import FairBytes
from bridge.contract.machine import Count, Effect

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class EarlyPolicy:
    """The bounds of a room. `limit_bytes`: of all together. `overhead_bytes`: added to the size of each, which bounds
    the number. `own_bytes`, `own_count`: of one owner, beyond which the next is refused. `waits_s`: how long each
    waits.
    """

    limit_bytes: float
    overhead_bytes: int
    own_bytes: float = inf
    own_count: float = inf
    waits_s: float = inf


EARLY_BYTES = 16 << 20  # of content, properties and overhead
EARLY_OVERHEAD_BYTES = 2048  # what a header and the tables cost: bounds the number too
PUBLICATIONS = EarlyPolicy(EARLY_BYTES, EARLY_OVERHEAD_BYTES)
"""The bounds of publications at members that forward or read."""


class EarlyRoom(Generic[K, V]):
    """Waiting things by name, the oldest first."""

    def __init__(self, policy: EarlyPolicy) -> None:
        self._policy = policy
        self._kept: FairBytes[K, tuple[V, float]] = FairBytes(policy.limit_bytes, policy.overhead_bytes)

    def __len__(self) -> int:
        return self._kept.count()

    def __contains__(self, name: K) -> bool:
        return self._kept.get(name) is not None

    def get(self, name: K) -> V | None:
        """Returns the thing of this name; None without one."""
        found = self._kept.get(name)
        return None if found is None else found[0]

    def keep_value(self, name: K, owner: bytes, value: V, size: int, now: float = 0.0) -> list[tuple[K, V]] | None:
        """Keeps a thing of `size` bytes as its owner's newest. Returns evicted names and things; None if refused."""
        count, held = self._kept.usage_of(owner)
        if count >= self._policy.own_count or held + size > self._policy.own_bytes:
            return None
        return [(gone, lost) for gone, (lost, _) in self._kept.put(name, owner, (value, now), size)]

    def pop(self, name: K) -> V | None:
        """Removes the thing of this name and returns it; None without one."""
        found = self._kept.pop(name)
        return None if found is None else found[0]

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterates over names and things, oldest first. The room must not change meanwhile."""
        for name, (value, _) in self._kept.items():
            yield name, value

    def take_all(self) -> list[V]:
        """Removes all things and returns them in the order of arrival."""
        taken = list(self.items())
        for name, _ in taken:
            self._kept.pop(name)
        return [value for _, value in taken]

    def take_due(self, now: float) -> list[V]:
        """Removes and returns what waited long enough, even if the clock was set back."""
        found: list[V] = []
        while (oldest := self._oldest()) is not None and not 0 <= now - oldest[1] < self._policy.waits_s:
            self._kept.pop(oldest[0])
            found.append(oldest[2])
        return found

    @property
    def next_deadline(self) -> float | None:
        """The time at which `take_due` finds something; None if never."""
        oldest = self._oldest()
        return None if oldest is None else oldest[1] + self._policy.waits_s

    def _oldest(self) -> tuple[K, float, V] | None:
        return next(((name, since, value) for name, (value, since) in self._kept.items()), None)


def kept_early(gone: int = 0) -> list[Effect]:
    """Returns the counts of a publication that waits, and of the evicted ones."""
    counted: list[Effect] = [Count("publications_ahead")]
    return counted + ([Count("publications_ahead_dropped", gone)] if gone else [])
