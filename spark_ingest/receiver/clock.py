"""The trust in this machine's clock: nothing is acknowledged while it cannot be believed.

By a clock that is far ahead the certificates of publishers have ended, and all their publications look old. So a
receiver by whose clock most gateways' certificates have ended receives nothing, and says so. Neither does a receiver
whose clock differs by minutes from the clocks of most replicas of its region, as told in their CONNACKs: no minority
of
liars can fake that. A clock that is set while a session runs ends the session: unacknowledged pieces come again, to
be
judged by the new time. Within a session a steady clock counts the time, so that no wait depends on the wall clock.

Not here: a publisher whose certificate has ended, which is believed as far as replicas vouch for it (`bridge.wire`);
evidence in publications about our clock (`receiving.heard`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from bridge.document import Overlay
from keys.identity import Role
from spark_ingest.errors import ClockTrouble

STEP_S = 5.0
"""A clock that moves by more than this against the monotonic clock was set; daemons that keep time slew smaller
steps.
"""


OFF_S = 120.0
"""Beyond this difference from most replicas' clocks, fresh publications would soon count as replays."""


PAUSE_MAX_S = 30.0
"""The longest pause between attempts under a wrong clock: each attempt leaves a segment, and a repair may take
days.
"""
BRIEF_S = 10.0
"""A session that lived longer had a right clock."""


def next_pause_s(pause_s: float, first_s: float, lived_s: float) -> float:
    """Returns the pause after the clock ended a session that lived `lived_s`; `pause_s` is the pause before the
    session.
    """
    return first_s if lived_s > BRIEF_S else min(PAUSE_MAX_S, 2 * pause_s)


class SessionClock:
    """The clock of a session with the replicas."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._offset = wall() - monotonic()
        self._overlay: Overlay | None = None
        self._most_ended_s = math.inf

    def now(self) -> float:
        """Returns UNIX time, counted from the session's beginning by the steady clock."""
        return self._monotonic() + self._offset

    def clock_trouble(self, overlay: Overlay, ahead_s: float | None = None) -> str | None:
        """Returns the reason for which the clock cannot be believed, None if it can.

        `overlay`: the version in force; `ahead_s`: the lead of most replicas' clocks (`most_ahead_s`).
        """
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

    def check_clock(self, overlay: Overlay, ahead_s: float | None = None) -> None:
        """Raises ClockTrouble if the clock cannot be believed."""
        trouble = self.clock_trouble(overlay, ahead_s)
        if trouble is not None:
            raise ClockTrouble(trouble)


def most_ahead_s(ahead_s: Iterable[float], replicas: int) -> float | None:
    """Returns the least lead of most replicas' clocks over ours, in seconds; 0 when most are near ours.

    Returns None when too few of the region's `replicas` told their time or they do not agree. `ahead_s`: the told
    leads.
    """
    told, most = list(ahead_s), replicas // 2 + 1
    if sum(abs(each) <= OFF_S for each in told) >= most:
        return 0.0
    for side in ([each for each in told if each > OFF_S], [each for each in told if each < -OFF_S]):
        if len(side) >= most:
            return min(side, key=abs)
    return None


def most_ended_s(overlay: Overlay) -> float:
    """Returns the UNIX time at which more than half of the gateways' certificates have ended; infinity without
    gateways.
    """
    gateways = (each.certificate for each in overlay.members.values() if each.certificate.role is Role.GATEWAY)
    ends = sorted(certificate.not_after_ms for certificate in gateways)
    return ends[len(ends) // 2] / 1000 if ends else math.inf
