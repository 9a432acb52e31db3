"""Which publications are too old to be new, where nothing else tells: on a topic of which nothing was delivered yet.

A liar may replay whatever its author ever signed. Where there is state about a stream, that tells what came; elsewhere
a publication must be fresh, or have been sealed while we were away, since replicas kept for us what came then, or since
we subscribed its scope without forgetting anything of it (`subscriptions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.wire.admission import GATEWAY_SESSION_S

FRESH_S = 300.0


@dataclass(slots=True)
class Away:
    """When our former process was last alive, and when this one began; UNIX seconds. `let_in`: what comes now was, by
    our former process."""

    since: float = 0.0
    until: float = 0.0
    let_in: bool = False

    def is_fresh(self, time_ms: int, now: float) -> bool:
        """Whether what was sealed then may be new."""
        return self.let_in or abs(now - time_ms / 1000) <= FRESH_S or self.covers(time_ms, now)

    def covers(self, time_ms: int, now: float) -> bool:
        """Whether it was sealed while we were away, so that replicas kept it for us, as everything of that time."""
        sealed = time_ms / 1000
        meanwhile = self.since - FRESH_S <= sealed <= self.until + FRESH_S
        return meanwhile and sealed <= now <= sealed + GATEWAY_SESSION_S + FRESH_S
