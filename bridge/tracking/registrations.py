"""A queue of registrations waiting for their turn: pings go on while thousands of entities come at once after a
restart.

Registering an entity costs as much as twenty pings with their answers, nearly all for signatures. So a few
registrations are handled in each turn of the event loop, between all readable input and all due work: neither pings
nor registrations take all of the time, and no time is left unused. The other registrations wait, a client's latest in
the place of its first: the client hears no answer to the earlier request. Data that is no registration costs nothing
and does not wait, so that its client is soon sent away; the same holds for a registration that does not fit. Not
here: the check of a registration (`traces.tracer`), the beginning of a turn.
"""

from __future__ import annotations

from collections import OrderedDict

from keys.errors import BadFrame
from keys.tracesession import Registration

AT_ONCE = 4  # in one turn
WAITING_MAX = 100_000  # clients
WAITING_BYTES_MAX = 4_096  # of one registration


class RegistrationQueue:
    """A queue of registrations by client, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, bytes] = OrderedDict()
        self._left = AT_ONCE  # of this turn

    def __len__(self) -> int:
        """Returns the number of clients that wait."""
        return len(self._waiting)

    def arrives(self, client: str, data: bytes) -> bool:
        """Returns True if this registration is to be handled now; else the registration waits."""
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
        """Begins the next turn and returns the registrations to handle now."""
        taken = [self._waiting.popitem(last=False) for _ in range(min(AT_ONCE, len(self._waiting)))]
        self._left = AT_ONCE - len(taken)
        return taken

    def gone(self, client: str) -> None:
        """Removes the waiting registration of a client, if there is any."""
        self._waiting.pop(client, None)


def _is_one(data: bytes) -> bool:
    try:
        Registration.decode(data)
    except BadFrame:
        return False
    return True
