"""Whether this machine's clock can be believed: nothing is acknowledged while it cannot.

By a clock that is far ahead the certificates of publishers have ended: what they publish would be refused, and
acknowledged as what is refused is. So a receiver by whose clock most gateways' certificates have ended receives
nothing, and says so. And a clock that is set while a session runs makes waits too long or too short: the session begins
anew, and what was not acknowledged comes again, to be judged by the new time.

Not here: one publisher whose certificate has ended, which is refused (`bridge.wire`); a clock that is some minutes off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from bridge.document import Overlay
from keys.identity import Role
from spark_ingest.errors import ClockTrouble

STEP_S = 5.0
"""A clock that moves by more than this against the monotonic one was set; daemons that keep time slew what is less."""


class SessionClock:
    """The clock of one session with the replicas."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._offset = wall() - monotonic()
        self._overlay: Overlay | None = None
        self._most_ended_s = math.inf

    def trouble(self, overlay: Overlay) -> str | None:
        """Why the clock cannot be believed, None if it can. `overlay`: the version in force."""
        now = self._wall()
        step_s = now - self._monotonic() - self._offset
        if abs(step_s) > STEP_S:
            way = "forward" if step_s > 0 else "back"
            return f"the clock was set {way} by {abs(step_s):.0f} s; the session with the replicas begins anew"
        if overlay is not self._overlay:
            self._overlay, self._most_ended_s = overlay, most_ended_s(overlay)
        if now <= self._most_ended_s:
            return None
        return (
            "by this machine's clock the certificates of most gateways have ended, "
            f"{now - self._most_ended_s:.0f} s ago or more: nothing is acknowledged; set the clock, or bring the "
            "overlay file with new certificates"
        )

    def check(self, overlay: Overlay) -> None:
        """Raises ClockTrouble."""
        trouble = self.trouble(overlay)
        if trouble is not None:
            raise ClockTrouble(trouble)


def most_ended_s(overlay: Overlay) -> float:
    """UNIX time at which more than half of the gateways' certificates have ended; infinite without gateways."""
    gateways = (each.certificate for each in overlay.members.values() if each.certificate.role is Role.GATEWAY)
    ends = sorted(certificate.not_after_ms for certificate in gateways)
    return ends[len(ends) // 2] / 1000 if ends else math.inf
