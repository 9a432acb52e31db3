"""When a member signs with its next key: after the others had the time to hear of it.

The version of the overlay that lists another key of ours may come to us first. What we signed with that key at once
would be a stranger's to everybody who has not adopted the version yet. Our former certificate counts on for a while, so
we sign with the former key until the version got about (`NEXT_KEY_SETTLE_S`); less, if that certificate ends before, or
a newer version does not list it any more. A start within that time signs with the next key: who does not know it yet
keeps what comes through who does (`bridge.membership.early_wires`). Boxes for the next key open at once.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.document import Overlay
from bridge.wire import BUMP_GRACE_S
from keys.identity import Identity

NEXT_KEY_SETTLE_S = BUMP_GRACE_S


class SigningKey:
    """The key that a member signs with, and the one that comes after it. `takes` is called with that when its time has
    come."""

    def __init__(self, identity: Identity, takes: Callable[[Identity], None]) -> None:
        self.identity = identity
        self._takes = takes
        self._next: Identity | None = None
        self._from = 0.0  # when the next one was heard of

    def rotate(self, identity: Identity, now: float) -> None:
        """Another key of ours is listed."""
        self._next, self._from = identity, now

    def settle(self, overlay: Overlay, now: float) -> None:
        """Take the next one if it is time, by the version in force."""
        if self._next is None:
            return
        former = overlay.by_party.get(self.identity.party_id)
        counts = former is not None and now * 1000 <= former.not_after_ms
        if not counts or not 0 <= now - self._from < NEXT_KEY_SETTLE_S:
            self.identity, self._next = self._next, None
            self._takes(self.identity)

    @property
    def next_deadline(self) -> float | None:
        """When the next one is taken at the latest."""
        return None if self._next is None else self._from + NEXT_KEY_SETTLE_S
