"""Which outbox entries are too old to be sent: past their message's expiry, or past the outbox's own bound.

Not here: what becomes of what follows them (`publisher`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile

from bridge.publisher.sealing import Entry


class Ages:
    """`max_age_s`: what was published longer ago is dropped instead of sent; None: no bound."""

    def __init__(self, max_age_s: float | None) -> None:
        self._max_age_s = max_age_s

    def expired(self, entries: Iterable[Entry], now: float) -> tuple[list[int], list[int]]:
        """Sequences of those that are too old by their message's bound, and of the others that are by ours."""
        message, age = [], []
        for entry in entries:
            published = entry.publication.time_ms / 1000
            expiry_s = entry.publication.expiry_s
            if expiry_s is not None and now > published + expiry_s:
                message.append(entry.sequence)
            elif self._max_age_s is not None and now > entry.since_s + self._max_age_s:
                age.append(entry.sequence)
        return message, age

    def too_long(self, entries: Mapping[int, Entry], now: float) -> list[int]:
        """The first ones, in the order in which they came, that were in memory for longer than our bound."""
        most_s = self._max_age_s
        if most_s is None:
            return []
        return [entry.sequence for entry in takewhile(lambda one: now > one.since_s + most_s, entries.values())]

    def first_at(self, entries: Mapping[int, Entry]) -> float | None:
        """When `too_long` has something to say."""
        first = next(iter(entries.values()), None)
        if first is None or self._max_age_s is None:
            return None
        return first.since_s + self._max_age_s + 0.001
