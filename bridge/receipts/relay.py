"""The relay of receipts at a replica: from readers to the publisher's gateway, along the tree.

All replicas of a region pass a receipt on to all of the next, so that no minority holds one back. The newest receipt of
each chain is told again when the link of the next receiver comes up.

Source: docs/protocol-options.md §14.3.
"""

from __future__ import annotations

from bridge.contract import Count, Deferrals, Effect, FairBytes, Received, Send, Wire
from bridge.document import Overlay
from bridge.receipts.checks import ReceiptChecks
from bridge.receipts.receipt import RECEIPTS_TOPIC, ChainId
from bridge.topology import Routes
from bridge.wire import Sealings, refused
from keys.errors import KeysError
from keys.identity import Certificate

RELAYED_BYTES_MAX = 16 << 20
"""Receipts that are told again; of the reader with most of them the oldest goes."""
ENTRY_BYTES = 200
COMEBACKS_BURST, COMEBACKS_EVERY_S = 8, 10.0
"""Times that a link may come up and hear all receipts again at once; beyond that it hears them later."""


class ReceiptRelay:
    """The receipts that pass a replica. `routes` and `sealings` are the forwarder's."""

    def __init__(self, overlay: Overlay, routes: Routes, sealings: Sealings) -> None:
        self._overlay, self._routes = overlay, routes
        self._checks = ReceiptChecks(overlay, sealings)
        self._newest: FairBytes[tuple[str, ChainId], tuple[int, bytes]] = FairBytes(RELAYED_BYTES_MAX, ENTRY_BYTES)
        self._comebacks: Deferrals[str] = Deferrals(COMEBACKS_BURST, COMEBACKS_EVERY_S)

    def pass_receipt(self, event: Received, now: float) -> list[Effect]:
        """Takes a receipt, and passes the first copy on."""
        frame = event.wire.payload
        if self._checks.has_seen(frame):
            return []
        try:
            receipt, publisher = self._checks.take_receipt(frame, now)
        except KeysError as error:
            return refused(event.peer, error)
        body = receipt.body
        name = body.reader, body.chain
        known = self._newest.get(name)
        if known is None or known[0] < body.time_ms:
            self._newest.put(name, body.reader.encode(), (body.time_ms, frame), len(frame))
        wire = Wire(RECEIPTS_TOPIC, frame)
        return [
            Count("receipts_passed_on"),
            *(Send(peer, wire) for peer in self._next_hops(publisher) if peer != event.peer),
        ]

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """Tells a receiver whose link came up the newest receipts that go there; later, if that is too often."""
        if not self._newest.count() or not self._comebacks.spend_one(peer, now):
            return []
        onwards = {
            publisher: peer in self._next_hops(self._overlay.by_party[publisher])
            for publisher in {chain.publisher for (_, chain), _ in self._newest.items()}
            if publisher in self._overlay.by_party
        }
        told = [frame for (_, chain), (_, frame) in self._newest.items() if onwards.get(chain.publisher)]
        return [Send(peer, Wire(RECEIPTS_TOPIC, frame)) for frame in told]

    def tick(self, now: float) -> list[Effect]:
        """Tells the postponed receipts."""
        due = [peer for peer in self._comebacks.due_keys(now) if peer in self._routes.up]
        return [effect for peer in due for effect in self.link_up(peer, now)]

    @property
    def next_deadline(self) -> float | None:
        return self._comebacks.next_deadline

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, or other views or trees; forgets what it has no use for."""
        self._overlay = overlay
        self._checks.adopt_overlay(overlay)
        self._comebacks.forget_unless(overlay.members.__contains__)
        for name, _ in list(self._newest.items()):
            scope = overlay.scope_numbered(name[1].scope)
            if name[0] not in overlay.members or scope is None or not scope.receipts:
                self._newest.pop(name)

    def _next_hops(self, publisher: Certificate) -> list[str]:
        """Returns the members to which a receipt for this publisher goes from here."""
        routes = self._routes
        if publisher.region == routes.region:
            return [publisher.name] if publisher.name in routes.up else []
        trees = {self._overlay.trees.newest.number, self._overlay.trees.in_force.number}
        regions = {routes.towards(publisher.region, tree) for tree in trees} - {None}
        return [peer for region in regions if region is not None for peer in routes.replicas_up(region)]
