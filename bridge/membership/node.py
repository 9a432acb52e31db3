"""The part of every node making it a member: refuse strangers, guard links, follow newer versions of the overlay.

Gateways, jobs, replicas and key servers share `Node`; their own work stands in `bridge.node`. A wire passes these
checks in order: it comes from a neighbour, the link has budget left (E4), the wire concerns the overlay itself. A node
the overlay in force no longer lists only passes that overlay on.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.contract import (
    COPY,
    Acked,
    Adopt,
    Adoption,
    Blame,
    Count,
    Effect,
    Event,
    LinkDown,
    LinkGuard,
    LinkUp,
    NotAdopted,
    NotTaken,
    Offered,
    Received,
    Rotated,
    Tick,
    earliest,
)
from bridge.document import Overlay, OverlayError
from bridge.membership.adopting import OVERLAY_TOPIC, OverlayKeeper
from bridge.membership.early_wires import Early, EarlyWires
from bridge.membership.endorsing import VIEWS_TOPIC
from bridge.membership.swapping import SWAPS_TOPIC
from bridge.topology import peers_of
from bridge.wire import CONTROL_ROOT
from keys.errors import NotAuthorised
from keys.identity import CARRIERS, Identity


class Node:
    """A member of the overlay: refuses strangers, guards its links, keeps the overlay up to date."""

    def __init__(self, overlay: Overlay, name: str, identity: Identity | None = None) -> None:
        """Takes the `identity` of a replica, which endorses views; None for other members."""
        self.name = name
        self.keeper = OverlayKeeper(overlay, name, identity)
        self._peers = peers_of(overlay, name)
        self._left: frozenset[str] = frozenset()  # left with the last change, and may hear of it a little later
        self._links = LinkGuard()
        self._early = EarlyWires()
        self._due: float | None = None  # the deadline as it was worked out last ...
        self._is_due_known = False  # ... if nothing changed since

    @property
    def overlay(self) -> Overlay:
        """The version in force."""
        return self.keeper.overlay

    @property
    def peers(self) -> frozenset[str]:
        """The neighbours with whom we have links; empty once the overlay in force has no use for us."""
        return frozenset() if self.keeper.removed else self._peers

    @property
    def removed(self) -> bool:
        """True if the overlay in force has no use for us any more."""
        return self.keeper.removed

    @property
    def versions(self) -> dict[str, int]:
        """The version of the overlay each neighbour named last."""
        return self.keeper.versions

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Returns the effects of an event in the order in which they must happen. Refuses a stranger's event."""
        if isinstance(event, Received) and event.peer in self._peers:
            peer = event.peer
            if peer in self._links.charged and self._links.closed(peer, event.wire.properties, now):
                return [Count("link_throttled", 1, peer)]
            if peer in self.keeper.level and not event.wire.topic.startswith(CONTROL_ROOT) and not self.keeper.removed:
                effects = self._handle_event(event, now)  # the usual case
            else:
                effects = self._receive_wire(event, now)
            if len(effects) == 1 and effects[0] is COPY:
                return effects
            self._is_due_known = False
            for effect in effects:
                if isinstance(effect, Count) and effect.name == "refused":
                    self._links.charge(peer, effects, now)
                    break
            return effects
        self._is_due_known = False
        match event:
            case Offered(document):
                try:
                    return self.offered(document, now)
                except OverlayError as error:
                    return [NotAdopted(str(error))]
            case LinkUp(peer) | LinkDown(peer) | Received(peer, _) | Acked(peer, _) | NotTaken(peer, _, _) if (
                peer not in self._peers
            ):
                counted = Count("refused", 1, "stranger")
                return [counted] if peer in self._left else [counted, Blame(peer, False, "not a neighbour of ours")]
        effects = [] if self.keeper.removed else self._handle_event(event, now)
        match event:
            case LinkUp(peer) if peer not in self.overlay.hosted:
                effects += self.keeper.link_up(peer, now)
            case LinkDown(peer):
                effects += self.keeper.link_down(peer, now)
            case Tick():
                effects += self._adopted(self.keeper.tick(now), now)
                effects += [] if self.keeper.removed else self._judged_again(now)
            case Rotated(identity):
                self.keeper.rotate_identity(identity, now)
        return effects

    def _receive_wire(self, event: Received, now: float) -> list[Effect]:
        topic = event.wire.topic
        if event.peer in self.keeper.overlay.hosted and topic.startswith(f"{CONTROL_ROOT}/"):
            # A stock broker says nothing of its own; any client that may publish there could speak in its name.
            return [Count("refused", 1, "topic"), Blame(event.peer, False, "a hosted broker only carries")]
        if topic == OVERLAY_TOPIC:
            ahead = self.keeper.may_be_ahead(event.peer, now)
            effects = self._adopted(self.keeper.take_overlay_wire(event, now), now)
            if ahead and not self.keeper.may_be_ahead(event.peer, now):
                self._early.release_peer(event.peer, now)
                effects = effects + self._judged_again(now)
            return effects
        if topic == VIEWS_TOPIC:
            return self._adopted(self.keeper.endorsed(event, now), now)
        if topic == SWAPS_TOPIC:
            return self._adopted(self.keeper.swapped(event, now), now)
        if self.keeper.removed:
            return []
        return self._judged(event, now) if self.keeper.may_be_ahead(event.peer, now) else self._handle_event(event, now)

    def _judged(self, event: Received, now: float, before: Early | None = None) -> list[Effect]:
        """Returns the effects of our machines for a wire. A wire that would be refused for want of a right waits if
        that right may be to come, and the link pays as for a refused wire. `before`: the wire's entry, if it waited
        until now.
        """
        if not self.keeper.may_be_ahead(event.peer, now):
            return self._handle_event(event, now)
        if before is None and (waits := self._early.take_repeat(event)):
            self._links.charge(event.peer, [Count("refused", 1, NotAuthorised.__name__)], now)
            return waits
        effects = self._handle_event(event, now)
        keeps = self.overlay.certificate(event.peer).role in CARRIERS
        told = self._early.instead(event, effects, keeps=keeps, before=before)
        if told is not effects:
            self._links.charge(event.peer, [effect for effect in effects if effect not in told], now)
        return told

    def _judged_again(self, now: float) -> list[Effect]:
        """Judges waiting wires, a bounded number at once, when another version is in force or is known not to come."""
        effects: list[Effect] = []
        for early in self._early.take_due_wires():
            peer, news = early.event.peer, list[Effect]()
            if peer not in self.peers:
                pass
            elif self._links.closed(peer, early.event.wire.properties, now):
                news = [Count("link_throttled", 1, peer)]
            else:
                event = replace(early.event, acknowledged=not early.number)
                news = self._judged(event, now, early)
                self._links.charge(peer, news, now)
            effects += self._early.judged(early, news)
        return effects

    def offered(self, document: bytes, now: float) -> list[Effect]:
        """Takes another overlay file. Raises OverlayError, in a line, if the version cannot be adopted."""
        return self._adopted(self.keeper.offered(document, now), now)

    @property
    def next_deadline(self) -> float | None:
        if not self._is_due_known:
            own = [] if self.keeper.removed else [*self._deadlines(), self._early.next_deadline]
            self._due, self._is_due_known = earliest(self.keeper.next_deadline, *own), True
        return self._due

    def _adopted(self, effects: list[Effect], now: float) -> list[Effect]:
        """Makes the machines follow the version the keeper put in force. Members that left are no longer
        neighbours.
        """
        self._is_due_known = False
        outcomes = {effect.outcome for effect in effects if isinstance(effect, Adopt)}
        if Adoption.REMOVED in outcomes or (Adoption.RESTART in outcomes and self.keeper.removed):
            self._erase()
        if self.keeper.removed or outcomes.isdisjoint((Adoption.LIVE, Adoption.RESTART)):
            return effects
        before, self._peers = self._peers, peers_of(self.overlay, self.name)
        self._left = before - self._peers or self._left
        for peer in sorted(before - self._peers):
            effects = effects + self.keeper.link_down(peer, now) + self._handle_event(LinkDown(peer), now)
        self._links.forget_all_but(self._peers)
        effects = effects + self._adopt_overlay(self.overlay, now)
        self._early.release_peer(None, now)
        return effects + self._judged_again(now)

    def _handle_event(self, event: Event, now: float) -> list[Effect]:
        """Returns the effects of the node's own machines. Never called once the overlay does not list us."""
        raise NotImplementedError

    def _adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        raise NotImplementedError

    def _erase(self) -> None:
        """Erases all that must not outlive our membership, once the overlay does not list us any more."""

    def _deadlines(self) -> list[float | None]:
        raise NotImplementedError
