"""Age limits of outbox entries: the message's expiry and the outbox's own bound.

`publisher` decides on the followers of a dropped entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile

from bridge.publisher.sealing import Entry


class Ages:
    """The age limits of one outbox. An entry published longer than `max_age_s` ago is dropped instead of sent; None:
    no bound.
    """

    def __init__(self, max_age_s: float | None) -> None:
        self._max_age_s = max_age_s

    def expired(self, entries: Iterable[Entry], now: float) -> tuple[list[int], list[int]]:
        """Returns the sequences of entries past their message's expiry, and of other entries past the outbox's
        bound.
        """
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
        """Returns the leading entries, in order of arrival, that were in memory for longer than the outbox's bound."""
        most_s = self._max_age_s
        if most_s is None:
            return []
        return [entry.sequence for entry in takewhile(lambda one: now > one.since_s + most_s, entries.values())]

    def first_at(self, entries: Mapping[int, Entry]) -> float | None:
        """Returns the time at which `too_long` finds its next entry."""
        first = next(iter(entries.values()), None)
        if first is None or self._max_age_s is None:
            return None
        return first.since_s + self._max_age_s + 0.001
