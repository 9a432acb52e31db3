"""When a replica acknowledges what it is to pass on: once enough replicas of every next region have room for it.

A *lane* is the queue towards a single replica of a next region: what is in flight to it and what waits for its window.
A publication of a gateway or of a replica before us is acknowledged when, in each region that it was passed on to, n −
f lanes are below a mark (n replicas, f = ⌊(n−1)/2⌋). Up to f dead, slow or lying replicas thus hold up nobody; their
lanes fill, and lose beyond their own bound. A region of which more is slow fills the lanes, the windows of those
before it, and so on back to the gateways, whose outboxes keep on disk what is not sent. No memory grows beyond that.

Nobody waits in a circle: a publication that came from a region never goes back there, so its acknowledgement waits for
lanes leading away from where it came from, along a tree, and the last region waits for nobody. Two trees together are
no tree: while the former is open, what goes along it is never held back, whatever its lanes hold; publishers have left
it, so what is left of it is what their windows held. For lanes within a region, which planes have, nobody waits. Each
direction between two replicas is a connection of its own, with its own window. What controls the overlay
(`is_control`) is never held back: it has a part of each window to itself (`members.LINK_LIMITS`).

Acknowledgements of members may overtake each other: packet identifiers tell them apart, and MQTT asks only clients to
keep their order (MQTT 5.0 §4.6). Not here: what goes where (`bridge.replica.forwarder`), subscribers' queues, which
nobody waits for (`members`), the publisher's window (`bridge.publisher.windows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from bridge.contract import Count, tree_of
from bridge.document import Overlay
from bridge.document.trees import NUMBERS
from bridge.wire import CONTROL_ROOT
from gateway.client import MqttClient
from gateway.clients import Done
from gateway.mqtt5.packets import Publish
from keys.envelope import PROPERTY_HEADER

MARK_MESSAGES = 1_024  # a lane with so much in flight and waiting has no room ...
MARK_BYTES = 4 << 20  # ... nor has one with so many bytes of it
AWAY_S = 3_600.0  # as long as a session is kept: a region of which n − f are gone for longer holds up nobody
HELD_MAX = 16_384  # publications whose acknowledgement is held back; the oldest is let go
HELD_BYTES_MAX = 8 << 20  # their payloads; above, whoever brings more is not read until there is room

_CONTROL = CONTROL_ROOT + "/"


def is_control(topic: str) -> bool:
    """Statements, shares, overlays, requests for keys: what the overlay needs to go on."""
    return topic.startswith(_CONTROL)


@dataclass(slots=True)
class _Held:
    """A publication that regions without room were given, and who waits for its acknowledgement."""

    size: int
    regions: set[int]
    waiting: list[tuple[str, Done]] = field(default_factory=list)


class Backpressure:
    """A replica's, of region `home`. `lanes`: the client towards each neighbouring replica; `count` gets figures."""

    def __init__(
        self,
        overlay: Callable[[], Overlay],
        lanes: Mapping[str, MqttClient],
        count: Callable[[Count], None],
        home: int | None = None,
    ) -> None:
        self._overlay, self._lanes, self._count, self._home = overlay, lanes, count, home
        self._stalled: set[int] = set()  # regions without room
        self._towards: set[int] = set()  # those of them that the publication at hand goes to
        self._held: dict[str, _Held] = {}  # by signed header
        self._held_bytes = 0
        self._down_at: dict[str, float] = {}
        self._gone: frozenset[str] = frozenset()
        self._heard = self._on_ack  # bound once

    @property
    def acks_held(self) -> int:
        """Acknowledgements that members wait for."""
        return sum(len(held.waiting) for held in self._held.values())

    # ------------------------------------------------------------------------------------ lanes

    def passing(self, peer: str, client: MqttClient) -> Callable[[], None] | None:
        """A publication is about to be sent to `peer`: whom to tell when it is acknowledged, if that matters."""
        in_flight, waiting, held_bytes = client.load
        if self._stalled or in_flight + waiting >= MARK_MESSAGES or held_bytes >= MARK_BYTES:
            self._pass_on_full(peer)
        # Half a mark early, so that the lane does not run dry before anybody hears that there is room.
        return self._heard if 2 * (in_flight + waiting) >= MARK_MESSAGES or 2 * held_bytes >= MARK_BYTES else None

    def _pass_on_full(self, peer: str) -> None:
        region = self._overlay().certificate(peer).region
        if region == self._home:
            return
        if region not in self._stalled and self._stalls(region):
            self._stalled.add(region)
            self._count(Count("stalls", 1, self._overlay().views[region].name))
        if region in self._stalled:
            self._towards.add(region)

    def is_full(self, peer: str) -> bool:
        client = self._lanes.get(peer)
        if client is None:
            return False
        in_flight, waiting, held_bytes = client.load
        return in_flight + waiting >= MARK_MESSAGES or held_bytes >= MARK_BYTES

    def _stalls(self, region: int) -> bool:
        """Returns True if fewer than n − f lanes have room, among those that are not gone for good."""
        view = self._overlay().views.get(region)
        if view is None:  # the owner took the region away
            return False
        members = view.members
        there = [member for member in members if member not in self._gone]
        enough = len(members) - (len(members) - 1) // 2
        return sum(not self.is_full(member) for member in there) < min(enough, len(there))

    def member_up(self, peer: str) -> None:
        self._down_at.pop(peer, None)

    def down(self, peer: str, now: float) -> None:
        """The connection of a lane ended; the lane goes on, and what it holds is sent when there is another one."""
        self._down_at.setdefault(peer, now)

    def give_up_absent(self, now: float) -> None:
        """Stops waiting for members that are away for too long. Called every second or so."""
        self._gone = frozenset(peer for peer, at in self._down_at.items() if now - at >= AWAY_S)
        if self._stalled:
            self._release_unstalled()

    # ------------------------------------------------------------------------- acknowledgements

    def begin_publication(self) -> None:
        """A publication of a member is about to be handled."""
        if self._towards:
            self._towards.clear()

    def hold_publication(self, peer: str, publish: Publish) -> Callable[[Done], bool] | None:
        """Notes that the publication announced by `begin_publication` was handled. Returns None if it is to be
        acknowledged at once.

        Otherwise the result is to be called with the acknowledgement; it returns False if the member is not to be
        read until
        then. Other copies of a held publication wait with it: a new connection, which repeats it, would open a new
        window.
        """
        if not self._towards and not self._held:
            return None
        header = next((value for name, value in reversed(publish.properties.user) if name == PROPERTY_HEADER), None)
        if header is None or is_control(publish.topic) or self._is_former(header):
            return None
        held = self._held.get(header)
        if held is None:
            if not self._towards:
                return None
            held = self._held[header] = _Held(len(publish.payload), set())
            self._held_bytes += held.size
        held.regions |= self._towards
        return partial(self._hold_back, peer, held)

    def _is_former(self, header: str) -> bool:
        """Returns True if a publication travels along a tree that is no longer the newest."""
        trees = self._overlay().trees
        return len(trees.open) > 1 and tree_of(header) != trees.newest.number % NUMBERS

    def _hold_back(self, peer: str, held: _Held, done: Done) -> bool:
        held.waiting.append((peer, done))
        if len(self._held) > HELD_MAX:
            self._let_go(next(iter(self._held)))
        return self._held_bytes <= HELD_BYTES_MAX

    def reconnected(self, peer: str) -> None:
        """A member has another connection: nobody waits on the former one, and it repeats what it has no answer to."""
        for held in self._held.values():
            held.waiting = [one for one in held.waiting if one[0] != peer]

    def _on_ack(self) -> None:
        if self._stalled:
            self._release_unstalled()

    def _release_unstalled(self) -> None:
        """Let go what waits for no region without room any more, in the order in which it came."""
        stalled = {region for region in self._stalled if self._stalls(region)}
        if stalled == self._stalled:
            return
        self._stalled = stalled
        for header in [header for header, held in self._held.items() if not held.regions & stalled]:
            self._let_go(header)

    def _let_go(self, header: str) -> None:
        held = self._held.pop(header)
        self._held_bytes -= held.size
        for _, done in held.waiting:
            done(0)
