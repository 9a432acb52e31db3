"""Small overlays for tests: identities, certificates and views from a seed, and a kernel that runs them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bridge.machine import Committed, Machine, Publication, Subscribed
from bridge.node import GatewayNode, ReplicaNode, peers_of
from bridge.sealing import ScopeSecret
from bridge.sim.adversary import Adversary, Behaviour
from bridge.sim.kernel import Kernel
from bridge.views import Member, Overlay, Policy, RegionView, Scope
from keys.epochs import scope_key, token_key
from keys.identity import Certificate, Identity, Role
from keys.topictokens import tokenise_filter

NOW = 1_800_000_000.0
NOT_AFTER_MS = int((NOW + 10_000_000) * 1000)
ROOT = bytes(range(32))


@dataclass
class World:
    """An overlay with the identities of all its members."""

    overlay: Overlay
    identities: dict[str, Identity]
    secrets: list[ScopeSecret]
    seed: int
    liars: dict[str, frozenset[Behaviour]] = field(default_factory=dict)
    probability: float = 1.0

    def node(self, name: str, rng: random.Random) -> Machine:
        certificate = self.overlay.certificate(name)
        if certificate.role is Role.REPLICA:
            return ReplicaNode(self.overlay, name, random.Random(f"{self.seed}{name}").randbytes(32))
        return GatewayNode(self.overlay, self.identities[name], name, self.secrets, rng.randbytes)

    def maker(self, name: str, rng: random.Random) -> Callable[[], Machine]:
        def make() -> Machine:
            node = self.node(name, rng)
            if name in self.liars:
                return Adversary(node, self.liars[name], rng, self.probability)
            return node

        return make

    def kernel(self, rng: random.Random, latency_s: tuple[float, float] = (0.001, 0.020)) -> Kernel:
        kernel = Kernel(
            {name: self.maker(name, rng) for name in self.overlay.members},
            {name: peers_of(self.overlay, name) for name in self.overlay.members},
            rng,
            NOW,
            latency_s,
        )
        kernel.start()
        return kernel


def make_world(
    sizes: Mapping[int, int],
    edges: Sequence[tuple[int, int]],
    gateways: Mapping[str, int],
    scopes: Sequence[Scope] | None = None,
    seed: int = 1,
    publish: Sequence[str] = ("#",),
    read: Sequence[str] = ("#",),
    rights: Mapping[str, tuple[Sequence[str], Sequence[str]]] | None = None,
) -> World:
    """Regions by id with their number of replicas, tree edges, gateways by name with their home region.

    `rights`: what single gateways may publish and read, where that differs from `publish` and `read`.
    """
    rng = random.Random(seed)
    owner = Identity.generate(rng.randbytes(32))
    identities: dict[str, Identity] = {}
    members = []
    views = []

    def member(name: str, role: Role, region: int) -> None:
        identities[name] = Identity.generate(rng.randbytes(32))
        may_publish, may_read = (rights or {}).get(name, (publish, read))
        certificate = Certificate.issue(
            owner,
            name=name,
            role=role,
            public_key=identities[name].public_bytes,
            domain=f"domain-{name}",
            region=region,
            not_after_ms=NOT_AFTER_MS,
            publish=() if role is Role.REPLICA else tuple(may_publish),
            read=() if role is Role.REPLICA else tuple(may_read),
        )
        members.append(Member(certificate))

    for region, size in sizes.items():
        names = tuple(f"r{region}{chr(97 + i)}" for i in range(size))
        views.append(RegionView(region, 1, f"region-{region}", names))
        for name in names:
            member(name, Role.REPLICA, region)
    for name, region in gateways.items():
        member(name, Role.GATEWAY, region)
    given = list(scopes) if scopes is not None else [Scope("plant/#"), Scope("open/#")]
    tokens = token_key(ROOT)
    wire_scopes = []
    secrets = []
    for scope in given:
        wire = Scope(
            tokenise_filter(scope.filter, tokens) if scope.tokens else scope.filter,
            scope.mode,
            scope.regions,
            scope.tokens,
            scope.shares_only,
        )
        wire_scopes.append(wire)
        key = scope_key(ROOT, scope.filter, 0)
        secrets.append(ScopeSecret(wire, scope.filter, key, tokens if scope.tokens else None))
    policy = Policy("test", 1, tuple(edges), tuple(wire_scopes))
    overlay = Overlay.sign(owner, policy, views, members)
    return World(overlay, identities, secrets, seed)


class Traffic:
    """What one gateway publishes: sequences, `previous`, and the record of it for the checkers."""

    def __init__(self, gateway: str) -> None:
        self.gateway = gateway
        self.published: dict[int, Publication] = {}
        self.entries: dict[int, tuple[int, int, Publication]] = {}
        self._last: dict[str, int] = {}
        self._next = 1

    def publish(
        self, kernel: Kernel, when: float, topic: str, payload: bytes, qos: int = 1, retain: bool = False
    ) -> int:
        sequence = self._next
        self._next += 1
        publication = Publication(
            topic, payload, qos, retain, properties=(("k", "v"), ("k", "w")), time_ms=int(when * 1000)
        )
        previous = self._last.get(topic, 0)
        if qos:
            self._last[topic] = sequence
        self.published[sequence] = publication
        self.entries[sequence] = (sequence, previous, publication)
        kernel.at(when, self.gateway, Committed((self.entries[sequence],)))
        return sequence

    def recommit(self, kernel: Kernel, when: float, forgotten: Collection[int]) -> None:
        """The gateway is a new process: its outbox is read from disk again."""
        pending = [entry for sequence, entry in self.entries.items() if sequence not in forgotten]
        kernel.at(when, self.gateway, Committed(tuple(pending)))


def subscribe(kernel: Kernel, gateway: str, topic_filter: str, when: float = NOW + 2) -> None:
    kernel.at(when, gateway, Subscribed(topic_filter))
