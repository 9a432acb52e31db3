"""Registrations that wait for their turn: pings go on while thousands of entities come at once, after a restart.

To register one entity costs as much as twenty pings with their answers, nearly all of it for signatures. So a few are
taken up in each turn of the event loop, between everything that can be read and everything that is due: neither pings
nor registrations take all of the time, and none of it is left unused. The others wait, a client's latest in the
place of its first: what it asked for before it does not hear an answer to. What is no registration at all costs nothing
and does not wait, so that its client is soon sent away; neither does what would not fit here. Not here: whether a
registration holds (`tracing`), when a turn begins.
"""

from __future__ import annotations

from collections import OrderedDict

from keys.errors import BadFrame
from keys.tracesession import Registration

AT_ONCE = 4  # in one turn
WAITING_MAX = 100_000  # clients
WAITING_BYTES_MAX = 4_096  # of one registration


class RegistrationQueue:
    """Registrations by client, in order of coming."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, bytes] = OrderedDict()
        self._left = AT_ONCE  # of this turn

    def __len__(self) -> int:
        """Clients that wait."""
        return len(self._waiting)

    def arrives(self, client: str, data: bytes) -> bool:
        """Whether this registration is to be taken up now. Else it waits."""
        if self._left:  # then nobody waits
            self._left -= 1
            return True
        if len(data) > WAITING_BYTES_MAX or not _is_one(data):
            return True
        if len(self._waiting) >= WAITING_MAX and client not in self._waiting:
            return True
        self._waiting[client] = data
        return False

    def turn(self) -> list[tuple[str, bytes]]:
        """The next turn: those that are to be taken up now."""
        taken = [self._waiting.popitem(last=False) for _ in range(min(AT_ONCE, len(self._waiting)))]
        self._left = AT_ONCE - len(taken)
        return taken

    def gone(self, client: str) -> None:
        """It waits no longer, if it did."""
        self._waiting.pop(client, None)


def _is_one(data: bytes) -> bool:
    try:
        Registration.decode(data)
    except BadFrame:
        return False
    return True
