"""Whether this machine's clock can be believed: nothing is acknowledged while it cannot.

By a clock that is far ahead the certificates of publishers have ended, and all that they publish looks old. So a
receiver by whose clock most gateways' certificates have ended receives nothing, and says so; nor does one whose clock
differs by minutes from those of most replicas of its region, as they told when it connected: no minority of liars can
make that up. And a clock that is set while a session runs ends it: what was not acknowledged comes again, to be judged
by the new time. Within a session time is counted on a steady clock, so that no wait depends on who sets the other one.

Not here: one publisher whose certificate has ended, who is believed as far as replicas vouch for it (`bridge.wire`);
what publications say of our clock (`receiving.heard`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from bridge.document import Overlay
from keys.identity import Role
from spark_ingest.errors import ClockTrouble

STEP_S = 5.0
"""A clock that moves by more than this against the monotonic one was set; daemons that keep time slew what is less."""


OFF_S = 120.0
"""A clock that differs by more from those of most replicas: what was sealed just now would soon count as a replay."""


PAUSE_MAX_S = 30.0
"""Between attempts under a clock that stays off: each leaves a segment, and it may be a weekend until it is set."""
BRIEF_S = 10.0
"""A session that lived longer had a clock that was right."""


def next_pause_s(pause_s: float, first_s: float, lived_s: float) -> float:
    """How long to wait after the clock ended a session that lived so long; `pause_s` is what was waited before it."""
    return first_s if lived_s > BRIEF_S else min(PAUSE_MAX_S, 2 * pause_s)


class SessionClock:
    """The clock of one session with the replicas."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._offset = wall() - monotonic()
        self._overlay: Overlay | None = None
        self._most_ended_s = math.inf

    def now(self) -> float:
        """UNIX time, counted from the session's beginning by the steady clock."""
        return self._monotonic() + self._offset

    def trouble(self, overlay: Overlay, ahead_s: float | None = None) -> str | None:
        """Why the clock cannot be believed, None if it can. `overlay`: the version in force; `ahead_s`: of most
        replicas (`most_ahead_s`)."""
        now = self._wall()
        step_s = now - self._monotonic() - self._offset
        if abs(step_s) > STEP_S:
            way = "forward" if step_s > 0 else "back"
            return f"the clock was set {way} by {abs(step_s):.0f} s; the session with the replicas begins anew"
        if overlay is not self._overlay:
            self._overlay, self._most_ended_s = overlay, most_ended_s(overlay)
        if ahead_s:
            way = "behind" if ahead_s > 0 else "ahead of"
            return (
                f"this machine's clock is {abs(ahead_s):.0f} s {way} those of most replicas: nothing is acknowledged; "
                "set the clock"
            )
        if now <= self._most_ended_s:
            return None
        return (
            "by this machine's clock the certificates of most gateways have ended, "
            f"{now - self._most_ended_s:.0f} s ago or more: nothing is acknowledged; set the clock, or bring the "
            "overlay file with new certificates"
        )

    def check(self, overlay: Overlay, ahead_s: float | None = None) -> None:
        """Raises ClockTrouble."""
        trouble = self.trouble(overlay, ahead_s)
        if trouble is not None:
            raise ClockTrouble(trouble)


def most_ahead_s(ahead_s: Iterable[float], replicas: int) -> float | None:
    """By how much the clocks of most of a region's `replicas` are ahead of ours at least, in seconds; 0 when most are
    near it, None when too few told or they do not agree. `ahead_s`: of those that told."""
    told, most = list(ahead_s), replicas // 2 + 1
    if sum(abs(each) <= OFF_S for each in told) >= most:
        return 0.0
    for side in ([each for each in told if each > OFF_S], [each for each in told if each < -OFF_S]):
        if len(side) >= most:
            return min(side, key=abs)
    return None


def most_ended_s(overlay: Overlay) -> float:
    """UNIX time at which more than half of the gateways' certificates have ended; infinite without gateways."""
    gateways = (each.certificate for each in overlay.members.values() if each.certificate.role is Role.GATEWAY)
    ends = sorted(certificate.not_after_ms for certificate in gateways)
    return ends[len(ends) // 2] / 1000 if ends else math.inf
