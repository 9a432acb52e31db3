"""A publication on its way through a single replica: its pieces for each peer, and their ways.

The places of a peer and of this replica decide which pieces go from here to the peer (`wire.pieces`). In a sealed
scope with planes, pieces for a replica of a next region with a busy link go to another replica there, with a vector
of their owners: the other replica passes them on to the owner, or does the owner's part. Every hop compares pieces
with the signed digests, headers and shares go on all links as ever, and a replica without its pieces asks for them:
so withheld pieces are delayed, and receivers find altered pieces. Paper items A10, C9. Not here: arrival of pieces
(`content_relay`), free links (`plane_routing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.contract import Count, Effect, Send, UserProperties, Wire
from bridge.replica.plane_routing import PlaneRouting
from bridge.topology import Routes
from bridge.wire import PROPERTY_ROUTE, Admitted, Name
from bridge.wire import pieces as content
from keys.envelope import MessageHeader

Give: TypeAlias = Callable[[str, Wire, Admitted], list[Effect]]
"""Function that sends a wire to a peer, with the key that it may lack."""


@dataclass(slots=True, eq=False)
class Passing:
    """A publication that was passed on. `owed`: by peer, the pieces that it has from us once they are here."""

    topic: str
    signed: UserProperties
    admitted: Admitted
    sender: str
    since: float
    pieces: dict[int, bytes] = field(repr=False)
    peers: tuple[str, ...] = ()
    announcers: list[str] = field(default_factory=list)
    owed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    announced: bool = False  # to those that are owed something
    detours: int = 0  # the planes for which we passed on others' pieces
    unmakeable: bool = False  # the publisher lied: its blocks are not of one content
    header: MessageHeader = field(init=False)
    name: Name = field(init=False)

    def __post_init__(self) -> None:
        self.header = header = self.admitted.header
        self.name = header.publisher, header.sequence

    @property
    def said_bytes(self) -> int:
        """Bytes of header and list of attributes, which may be far longer than the content."""
        return sum(map(len, dict(self.signed).values()))


class PassingOn:
    """A replica's passing on of pieces. `planes`: which links are free."""

    def __init__(self, routes: Routes, planes: PlaneRouting, give: Give) -> None:
        self._routes, self._planes, self.give = routes, planes, give

    def pieces_at(self, header: MessageHeader, peer: str, carrier: str = "") -> tuple[int, ...]:
        """Returns the pieces a peer has from us, or from another replica of our region.

        The carrier itself has all pieces that it carries.
        """
        place, count = self._standing(carrier or self._routes.name)
        if place is None:
            return ()
        if peer == carrier or not self._routes.is_replica(peer):
            return content.carried(header, place, count)
        next_place, next_count = self._standing(peer)
        return () if next_place is None else content.passed(header, place, count, next_place, next_count)

    def _standing(self, replica: str) -> tuple[int | None, int]:
        """Returns a replica's place in the view in force of its region, and the size of the view.

        A replica that comes or leaves has no place: it carries no content, but hears of all, and may ask.
        """
        view = self._routes.overlay.views[self._routes.region_of(replica)]
        place = view.place_of(replica) if replica in view.members else None
        return place, len(view.members)

    def on(self, peer: str, passing: Passing, pieces: content.Pieces, vector: int = 0) -> list[Effect]:
        """Returns header and pieces for a peer; without pieces: an announcement."""
        said = (*passing.signed, (PROPERTY_ROUTE, str(vector))) if vector else passing.signed
        return self.give(peer, content.wire(passing.topic, passing.header, said, pieces), passing.admitted)

    def carry(self, peer: str, passing: Passing, pieces: content.Pieces) -> list[Effect]:
        """Returns header and pieces for a peer; if its link is not free, the pieces go over another replica."""
        detour = self.round(peer, passing, pieces)
        return [*self.on(peer, passing, {} if detour else pieces), *detour]

    def round(self, peer: str, passing: Passing, pieces: content.Pieces) -> list[Effect]:
        """Returns pieces for a peer over another replica; nothing, if there is none, or its own link is free."""
        if not pieces or passing.header.retain:
            return []
        over, vector = self._planes.carrier(passing.admitted.scope, peer)
        return [*self.on(over, passing, pieces, vector), Count("detours")] if over != peer else []

    def for_others(self, passing: Passing, vector: int) -> list[Effect]:
        """Passes pieces we got for other replicas of our region on to them, or to their receivers.

        A plane counts as served once something went: a sender naming planes without their pieces uses none of them up.
        """
        effects: list[Effect] = []
        scope = passing.admitted.scope
        for owner, is_free in self._planes.owners(scope, vector & ~passing.detours):
            went: list[Effect] = []
            for peer in (owner,) if is_free else passing.peers:
                parts = self.pieces_at(passing.header, peer, owner)
                pieces = {index: passing.pieces[index] for index in parts if index in passing.pieces}
                if pieces and peer == owner:  # without a share: it has its own from those before us
                    went.append(Send(peer, content.wire(passing.topic, passing.header, passing.signed, pieces)))
                elif pieces:
                    went += self.carry(peer, passing, pieces)
            place = self._routes.planes.place_of(scope, owner)
            if went and place is not None:
                passing.detours |= 1 << place[1]
            effects += went
        return effects
