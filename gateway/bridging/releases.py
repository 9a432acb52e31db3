"""PUBRELs that the other broker leaves without an answer, and when a bridge goes on without one. No I/O, time is
passed in.

MQTT demands a PUBCOMP for each PUBREL, also for one that is repeated (MQTT 5.0 §4.3.3). Some brokers close the
connection on a PUBREL that they have answered before, or say nothing at all. A bridge would repeat such a PUBREL for
ever, with every message of the identifier behind it. It gives the PUBREL up after ENDS_MAX connections that ended on
it, or after ANSWER_S on one connection. The message itself is there: its PUBREC had come.
"""

from __future__ import annotations

ENDS_MAX = 3
"""Connections that the other broker ends on one packet: it will never take this packet. A broker of 3.1.1, or one that
does not state its bounds, has no other way to refuse it.
"""
ANSWER_S = 60.0
"""Seconds on one connection after which a PUBREL is left without its answer."""


class Releases:
    """The PUBRELs of a client towards its server, oldest first. `are_left`: the server has left one without an answer,
    and has answered none since that was repeated on a later connection.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._repeated: set[int] = set()
        self._suspect, self._ends = 0, 0
        self.are_left = False

    @property
    def due_at(self) -> float | None:
        """The time at which the oldest PUBREL is given up."""
        return next(iter(self._since.values())) + ANSWER_S if self._since else None

    @property
    def are_open(self) -> bool:
        """True if a PUBREL has no answer yet."""
        return bool(self._since)

    def sent(self, packet_id: int, now: float) -> None:
        """Notes a PUBREL."""
        self._since[packet_id] = now

    def connected(self, has_session: bool, now: float) -> None:
        """Begins a new connection, on which open PUBRELs are repeated; without the session there are none."""
        self._since = dict.fromkeys(self._since, now) if has_session else {}
        self._repeated = set(self._since)

    def answered(self, packet_id: int) -> None:
        """Notes a PUBCOMP."""
        self._since.pop(packet_id, None)
        if packet_id in self._repeated:
            self._repeated.discard(packet_id)
            self.are_left = False

    def ended(self) -> int | None:
        """Counts the end of a connection by the server. Returns the identifier of a PUBREL to give up, if the server
        ended one connection after the other on it: the oldest, since open PUBRELs are repeated first.
        """
        oldest = next(iter(self._since), None)
        if oldest is None:
            return None
        self._ends = self._ends + 1 if oldest == self._suspect else 1
        self._suspect = oldest
        if self._ends < ENDS_MAX and not self.are_left:
            return None
        self._give_up(oldest)
        return oldest

    def overdue(self, now: float) -> list[int]:
        """Returns the identifiers of PUBRELs to give up, since they have no answer for too long."""
        found = [packet_id for packet_id, since in self._since.items() if since + ANSWER_S <= now]
        for packet_id in found:
            self._give_up(packet_id)
        return found

    def _give_up(self, packet_id: int) -> None:
        del self._since[packet_id]
        self._repeated.discard(packet_id)
        self._suspect, self._ends = 0, 0
        self.are_left = True
