"""A publisher's gateway, a subscriber's gateway, and an attacker holding everything between them (E1, E2).

Both gateways are the product's own. The attacker holds all three replicas of the only region, more than the overlay
promises to withstand, so every wire passes it, with all shares of every key; it lacks only the scope's epoch key and
the publisher's identity. It hands on forgeries first, then the true wires, then repetitions; the deliveries of the
subscriber's gateway are compared with the publications. Not here: reading by the attacker (`forgery`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from bridge.contract import Acked, Committed, Deliver, Effect, LinkUp, Publication, Received, Send, Subscribed, Wire
from bridge.document import Member, Overlay, Policy, Scope, ScopeSecret
from bridge.document.overlay import RegionView
from bridge.node import GatewayNode
from keys.envelope import PROPERTY_HEADER, SignedHeader, content_digest, from_property, sign_header, to_property
from keys.epochs import KeyName, ScopeKeys, scope_key
from keys.grants import Grant, Right
from keys.identity import Identity, Role
from papers.attacks.firsthop import certified
from papers.attacks.forgery import NOW, PAYLOAD_BYTES, TOPIC, flip
from papers.experiments.draws import Draws

REPLICAS = ("r1a", "r1b", "r1c")
SCOPE = Scope("plant/#")
PAUSE_S = 30.0
"""Seconds between two publications: budgets that forgeries spent fill again, as they would at the paper's rates."""


class AttackedReader:
    """A pair of gateways; `attack` sends a single publication through the attacker."""

    def __init__(self, draws: Draws) -> None:
        self._draws, self._now, self._sequence = draws, NOW, 0
        self._identities: dict[str, Identity] = {}
        owner = Identity.generate(draws.randbytes(32))
        members = [self._member(owner, name, Role.REPLICA) for name in REPLICAS]
        members += [self._member(owner, name, Role.GATEWAY) for name in ("publisher", "subscriber")]
        grants = (Grant("publisher", "plant/#", Right.PUBLISH), Grant("subscriber", "plant/#", Right.READ))
        view = RegionView(1, 1, "region-1", REPLICAS)
        self._overlay = Overlay.sign(owner, Policy("attacked", 1, (), (SCOPE,), grants), [view], members)
        root = draws.randbytes(32)
        self._publisher, self._subscriber = (self._gateway(name, root) for name in ("publisher", "subscriber"))
        for peer in REPLICAS:
            self._handle(self._publisher, LinkUp(peer))
            self._handle(self._subscriber, LinkUp(peer))
        self._acknowledge_wires(self._subscriber, self._subscriber.handle(Subscribed("plant/#"), self._now))

    def _member(self, owner: Identity, name: str, role: Role) -> Member:
        identity = self._identities[name] = Identity.generate(self._draws.randbytes(32))
        return certified(owner, identity, name, role, 1, int((NOW + 10_000_000) * 1000))

    def _gateway(self, name: str, root: bytes) -> GatewayNode:
        keys = ScopeKeys()
        keys.put_key(KeyName(SCOPE.filter, 0, 0), scope_key(root, SCOPE.filter, 0))
        secrets = [ScopeSecret(SCOPE, SCOPE.filter, None)]
        return GatewayNode(self._overlay, self._identities[name], name, secrets, keys, self._draws.randbytes)

    def _handle(self, node: GatewayNode, event: LinkUp | Committed | Received) -> list[Effect]:
        return self._acknowledge_wires(node, node.handle(event, self._now))

    def _acknowledge_wires(self, node: GatewayNode, effects: Sequence[Effect]) -> list[Effect]:
        """Acknowledges all wires as the attacker, lest a gateway waits."""
        found = list(effects)
        for effect in found:  # grows meanwhile
            if isinstance(effect, Send) and effect.ticket:
                found += node.handle(Acked(effect.peer, effect.ticket), self._now)
        return found

    def attack(self) -> bool:
        """Sends a single publication through the attacker; returns True if the subscriber was deceived.

        Raises AssertionError if it refused the true publication.
        """
        self._now += PAUSE_S
        self._sequence += 1
        payload = self._draws.randbytes(PAYLOAD_BYTES)
        said = Publication(TOPIC, payload, 1, time_ms=int(self._now * 1000))
        entry = (self._sequence, self._sequence - 1, said)
        sends = [one for one in self._handle(self._publisher, Committed((entry,))) if isinstance(one, Send)]
        got = [publication for wire in self._forgeries(sends) for publication in self._deliver(*wire)]
        true = [publication for send in sends for publication in self._deliver(send.peer, send.wire)]
        if [one.payload for one in true if one.payload == payload] != [payload] and not got:
            raise AssertionError("the subscriber refused a true publication")
        repeated = [publication for send in sends for publication in self._deliver(send.peer, send.wire)]
        return bool(got or repeated or [one for one in true if (one.topic, one.payload) != (TOPIC, payload)])

    def _deliver(self, peer: str, wire: Wire) -> list[Publication]:
        effects = self._handle(self._subscriber, Received(peer, wire))
        return [effect.publication for effect in effects if isinstance(effect, Deliver)]

    def _forgeries(self, sends: Sequence[Send]) -> Iterator[tuple[str, Wire]]:
        """Yields forgeries of every wire with content: another payload, topic and header, and one of the
        attacker's own.
        """
        for send in sends:
            wire = send.wire
            if wire.payload:
                yield send.peer, replace(wire, payload=flip(wire.payload, self._draws))
                yield send.peer, replace(wire, payload=self._draws.randbytes(PAYLOAD_BYTES))
            yield send.peer, replace(wire, topic=wire.topic + "x")
            yield send.peer, _with_header(wire, lambda header: flip(header, self._draws))
            flipped = flip(wire.payload, self._draws) if wire.payload else b"x"
            yield (
                send.peer,
                replace(_with_header(wire, partial(self._forged_header, flipped, wire.topic)), payload=flipped),
            )

    def _forged_header(self, content: bytes, topic: str, frame: bytes) -> bytes:
        """Returns the header as it would fit other content, under the attacker's own signature."""
        header = replace(SignedHeader.decode(frame).header, digests=(content_digest(content),))
        return sign_header(self._identities[REPLICAS[0]], header, topic).encode()


def _with_header(wire: Wire, change: Callable[[bytes], bytes]) -> Wire:
    changed = tuple(
        (name, to_property(change(from_property(text))) if name == PROPERTY_HEADER else text)
        for name, text in wire.properties
    )
    return replace(wire, properties=changed)
