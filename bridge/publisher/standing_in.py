"""Standing in for a silent replica of the home region, in a scope with planes: another replica takes over its plane.

Each replica of the region gets each publication and serves its own plane. A replica that has acknowledged nothing for
`SLOW_S`, or whose link is down, may not serve its plane: then another one gets a further copy, whose vector names that
plane. The copy does not count in the outbox, and a served subscriber hears of it at most twice.
`replica.plane_routing` uses the vector, `publisher` decides on the copies that an entry needs. Paper item C8.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.contract import Send
from bridge.document import Overlay
from bridge.publisher.sealing import Entry
from bridge.publisher.windows import Lanes
from bridge.topology import Planes
from bridge.wire import PROPERTY_ROUTE

SLOW_S = 0.5


class StandIns:
    """The stand-ins of one gateway in region `home`."""

    def __init__(self, overlay: Overlay, home: int) -> None:
        self._home = home
        self._marks: dict[str, int] = {}  # by silent replica: up to which sequence others got what it may not serve
        self.adopt(overlay)

    def adopt(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay, or other views."""
        self._planes, self._members = Planes(overlay), overlay.views[self._home].members
        self.is_used = any(scope.by_planes for scope in overlay.policy.scopes)
        self._marks.clear()

    def next_deadline(self, lanes: Lanes) -> float | None:
        """Returns the time at which a replica without answers counts as silent."""
        if not self.is_used:
            return None
        oldest = (next(iter(lane.in_flight.values()), None) for peer, lane in lanes if peer not in self._marks)
        return min((at + SLOW_S for at in oldest if at is not None), default=None)

    def sends(self, entries: dict[int, Entry], lanes: Lanes, now: float) -> list[Send]:
        """Returns further copies of entries that silent replicas have not acknowledged, each once."""
        if not self.is_used or not entries:
            return []
        at = {peer: next(iter(lane.in_flight.values()), now) for peer, lane in lanes}
        silent = [peer for peer in self._members if now - at.get(peer, 0.0) >= SLOW_S]
        others = [peer for peer in self._members if peer not in silent]
        for peer in [peer for peer in self._marks if peer not in silent]:
            del self._marks[peer]
        return [send for peer in silent if others for send in self._instead_of(peer, others[0], entries)]

    def _instead_of(self, peer: str, other: str, entries: dict[int, Entry]) -> list[Send]:
        mark, found = self._marks.get(peer, -1), list[Send]()
        self._marks[peer] = max(mark, next(reversed(entries)))
        for sequence in reversed(entries):  # what is new stands last
            if sequence <= mark:
                break
            entry, scope = entries[sequence], entries[sequence].secret.scope
            if entry.wire is None or peer in entry.acked or entry.publication.retain or not self._planes.open(scope):
                continue
            place = self._planes.place_of(scope, peer)
            if place is not None:
                route = (PROPERTY_ROUTE, str(1 << place[1]))
                found.append(Send(other, replace(entry.wire, properties=(*entry.wire.properties, route))))
        return found[::-1]
