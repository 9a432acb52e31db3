"""The part of a bad neighbour's flood an honest node passes on (E4): real wires into a real `ReplicaNode`.

Two regions of three replicas; a replica of the first is bad and floods an honest replica of the second, behind a
gateway has subscribed. Ten kinds of forgery are tried; a forgery counts if the honest replica sends anything on. Not
here: a certified publisher that floods with its own publications, against which signatures do not help; `budgets`
makes the publisher pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bridge.contract import LinkUp, Received, Send, Wire
from bridge.document import Member, Overlay, Policy, Scope, batch_topic
from bridge.document.overlay import RegionView
from bridge.node import ReplicaNode
from bridge.wire import SUBSCRIBE_TOPIC, Statement
from keys.envelope import PROPERTY_HEADER, content_digest, sign_header, to_property
from keys.grants import Grant, Right
from keys.identity import Certificate, Identity, Role
from papers.attacks.forgery import NOW, PAYLOAD_BYTES, flip, unsigned_header
from papers.experiments.draws import Draws

LEASE_MS = int((NOW + 3600) * 1000)
TOPIC = batch_topic(1)
BAD, HONEST = "r1a", "r2a"


@dataclass(frozen=True, slots=True)
class FirstHopPassed:
    """Counts: `forged` publications out of `tried` went on; `true` ones out of `published`."""

    tried: int
    forged: int
    published: int
    true: int

    @property
    def fraction(self) -> float:
        """The part of a flood surviving a single honest node."""
        return self.forged / self.tried if self.tried else 0.0


def certified(owner: Identity, identity: Identity, name: str, role: Role, region: int, not_after_ms: int) -> Member:
    """Returns a member of a trust domain of its own, as the owner lists it."""
    certificate = Certificate.issue(
        owner,
        name=name,
        role=role,
        public_key=identity.public_bytes,
        agreement_key=identity.agreement_bytes,
        domain=f"domain-{name}",
        region=region,
        not_after_ms=not_after_ms,
    )
    return Member(certificate)


def first_honest_node(draws: Draws, rounds: int) -> FirstHopPassed:
    """Publishes `rounds` times through the bad replica, which adds its flood to each publication."""
    site = _Site(draws)
    tried = forged = true = 0
    for sequence in range(1, rounds + 1):
        genuine = site.genuine(sequence)
        for wire in site.floods_before(genuine):
            tried, forged = tried + 1, forged + site.passes(wire)
        true += site.passes(genuine)
        for wire in site.floods_after(genuine):
            tried, forged = tried + 1, forged + site.passes(wire)
    return FirstHopPassed(tried, forged, rounds, true)


class _Site:
    """The overlay, its identities, and the honest replica with all its links."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._identities: dict[str, Identity] = {}
        owner = Identity.generate(draws.randbytes(32))
        regions = {1: ("r1a", "r1b", "r1c"), 2: ("r2a", "r2b", "r2c")}
        members = [self._member(owner, name, Role.REPLICA, region) for region in regions for name in regions[region]]
        members += [self._member(owner, name, Role.GATEWAY, at) for name, at in (("publisher", 1), ("subscriber", 2))]
        grants = (Grant("publisher", "plant/#", Right.PUBLISH), Grant("subscriber", "plant/#", Right.READ))
        policy = Policy("flood", 1, ((1, 2),), (Scope("plant/#"),), grants)
        views = [RegionView(region, 1, f"region-{region}", names) for region, names in regions.items()]
        overlay = Overlay.sign(owner, policy, views, members)
        seed = draws.randbytes(32)
        self._node = ReplicaNode(overlay, self._identities[HONEST], HONEST, lambda epoch: seed)
        for peer in (*regions[1], "subscriber"):
            self._node.handle(LinkUp(peer), NOW)
        wanted = Statement("subscriber", "plant/#", 1, True, LEASE_MS).signed(self._identities["subscriber"])
        self._node.handle(Received("subscriber", Wire(SUBSCRIBE_TOPIC, wanted.encode())), NOW)

    def _member(self, owner: Identity, name: str, role: Role, region: int) -> Member:
        identity = self._identities[name] = Identity.generate(self._draws.randbytes(32))
        return certified(owner, identity, name, role, region, LEASE_MS)

    def passes(self, wire: Wire) -> bool:
        """Returns True if the honest replica sends anything on because the bad one sent it this wire."""
        return any(isinstance(effect, Send) for effect in self._node.handle(Received(BAD, wire), NOW))

    def genuine(self, sequence: int) -> Wire:
        return self._wire("publisher", "publisher", sequence)

    def _wire(self, named: str, signer: str, sequence: int, topic: str = TOPIC) -> Wire:
        """Returns a publication that names a single party as its publisher and is signed by any party."""
        content = self._draws.randbytes(PAYLOAD_BYTES)
        bare = unsigned_header(self._identities[named].party_id, self._draws.randbytes(16), sequence)
        header = replace(bare, digests=(content_digest(content),))
        signed = sign_header(self._identities[signer], header, topic)
        return Wire(topic, content, properties=((PROPERTY_HEADER, to_property(signed.encode())),))

    def floods_before(self, genuine: Wire) -> Iterator[Wire]:
        """Yields inventions, and falsifications of a publication the honest node has not seen yet."""
        ahead = self._draws.randrange(1 << 40) + (1 << 20)
        yield self._wire("publisher", BAD, ahead)
        yield self._wire(BAD, BAD, ahead)
        yield self._wire("subscriber", "subscriber", ahead)  # a reader that colludes, without the right to publish
        yield self._wire("publisher", "publisher", ahead, batch_topic(2))  # a scope that the policy does not know
        yield Wire(TOPIC, self._draws.randbytes(PAYLOAD_BYTES))
        yield Wire(TOPIC, genuine.payload, properties=((PROPERTY_HEADER, to_property(self._draws.randbytes(180))),))
        yield replace(genuine, payload=flip(genuine.payload, self._draws))
        yield replace(genuine, topic="plant/speed")

    def floods_after(self, genuine: Wire) -> Iterator[Wire]:
        """Yields repetitions of a publication the honest node passed on already."""
        yield genuine
        yield replace(genuine, qos=0, retain=True)
