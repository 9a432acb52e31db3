"""Freshness of publications on topics without any delivered publication, where no other state shows a replay.

A liar may replay any publication that its author ever signed. The state of a stream, if there is one, shows delivered
publications. Elsewhere a publication must be fresh; or sealed while this reader was away, since replicas kept the
publications of that time; or sealed after this reader subscribed to the scope and forgot nothing of it
(`subscriptions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.wire.admission import GATEWAY_SESSION_S

FRESH_S = 300.0


@dataclass(slots=True)
class Away:
    """The time in which this reader was away: from the last life sign of its former process to the start of this one;
    UNIX seconds. `let_in` is True for publications the former process had already accepted.
    """

    since: float = 0.0
    until: float = 0.0
    let_in: bool = False

    def is_fresh(self, time_ms: int, now: float) -> bool:
        """Returns True if a publication sealed at that time may be new."""
        return self.let_in or abs(now - time_ms / 1000) <= FRESH_S or self.covers(time_ms, now)

    def covers(self, time_ms: int, now: float) -> bool:
        """Returns True if a publication sealed at that time was sealed during the absence: replicas kept it for this
        reader.
        """
        sealed = time_ms / 1000
        meanwhile = self.since - FRESH_S <= sealed <= self.until + FRESH_S
        return meanwhile and sealed <= now <= sealed + GATEWAY_SESSION_S + FRESH_S
