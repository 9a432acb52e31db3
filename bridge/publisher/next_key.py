"""Delay before a member signs with its next key, so that the other members learn of the key first.

The version of the overlay with the new key may come first to its owner. A signature with that key would be a
stranger's to every member without that version. The former certificate counts for a while, so the member signs with
the former key until the version has spread (`NEXT_KEY_SETTLE_S`); shorter, if that certificate ends before, or a newer
version no longer lists it. A process started within that time signs with the next key: members without the version
keep wires coming through members with it (`bridge.membership.early_wires`). Boxes for the next key open at once.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.document import Overlay
from bridge.wire import BUMP_GRACE_S
from keys.identity import Identity

NEXT_KEY_SETTLE_S = BUMP_GRACE_S


class SigningKey:
    """The key with which a member signs, and its successor. `takes` is called with the successor when its time has
    come.
    """

    def __init__(self, identity: Identity, takes: Callable[[Identity], None]) -> None:
        self.identity = identity
        self._takes = takes
        self.successor: Identity | None = None
        """The key that takes over; None as a rule."""
        self._from = 0.0  # when the next one was heard of

    def rotate_identity(self, identity: Identity, now: float) -> None:
        """Takes a listed next key."""
        self.successor, self._from = identity, now

    def switch_if_due(self, overlay: Overlay, now: float) -> None:
        """Switches to the next key if it is time, by the version in force."""
        if self.successor is None:
            return
        former = overlay.by_party.get(self.identity.party_id)
        counts = former is not None and now * 1000 <= former.not_after_ms
        if not counts or not 0 <= now - self._from < NEXT_KEY_SETTLE_S:
            self.identity, self.successor = self.successor, None
            self._takes(self.identity)

    @property
    def next_deadline(self) -> float | None:
        """The latest time of the switch to the next key."""
        return None if self.successor is None else self._from + NEXT_KEY_SETTLE_S
