"""Small overlays for tests: identities, certificates and views from a seed, and a kernel that runs them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bridge.base import matches, specificity
from bridge.contract.machine import Appending, Committed, Machine, Publication, Subscribed, Unstored
from bridge.document.overlay import Member, Overlay, RegionView
from bridge.document.policy import ENDLESS_EPOCH, Issuer, Policy, Scope
from bridge.document.scope_secret import ScopeSecret
from bridge.node import GatewayNode, ReplicaNode
from bridge.topology import peers_of
from keys.envelope import Mode
from keys.epochs import Calendar, KeyName, ScopeKeys, scope_key, token_key
from keys.grants import Grant, Right
from keys.handover import ScopeGrant, seal_grants
from keys.identity import Certificate, Identity, Role
from keys.topictokens import tokenise_filter
from papers.sim.adversary import Adversary, Behaviour
from papers.sim.kernel import Kernel
from papers.sim.outbox import SimulatedOutbox

NOW = 1_800_000_000.0
NOT_AFTER_MS = int((NOW + 10_000_000) * 1000)
ROOT = bytes(range(32))


@dataclass
class World:
    """An overlay with the identities of all its members. `own_keys`: epoch keys of those that do not hold all."""

    overlay: Overlay
    identities: dict[str, Identity]
    secrets: list[ScopeSecret]
    keys: ScopeKeys
    seed: int
    liars: dict[str, frozenset[Behaviour]] = field(default_factory=dict)
    probability: float = 1.0
    own_keys: dict[str, ScopeKeys] = field(default_factory=dict)
    owner: Identity | None = None
    outboxes: dict[str, SimulatedOutbox] = field(default_factory=dict)
    running: Kernel | None = None
    clocks: Mapping[str, float] = field(default_factory=dict)
    max_age_s: float | None = None

    def keys_of(self, name: str) -> ScopeKeys:
        return self.own_keys.get(name, self.keys)

    def learn(self, keys: ScopeKeys, epochs: Sequence[int], bump: int = 0) -> None:
        """What a key service gives somebody who is authorised in these epochs."""
        for secret in self.secrets:
            for epoch in epochs:
                name = KeyName(secret.scope.filter, epoch, bump)
                keys.put_key(name, scope_key(ROOT, name.scope, epoch, bump))

    def with_policy(self, *handed: ScopeGrant, **changes: object) -> Overlay:
        """The next version of the overlay, signed by the same owner, who hands this to gateways."""
        assert self.owner is not None
        old = self.overlay
        policy = replace(old.policy, version=old.policy.version + 1, **changes)  # type: ignore[arg-type]
        members = [self._handed(member, handed) for member in old.members.values()]
        return Overlay.sign(self.owner, policy, old.latest.values(), members)

    def _handed(self, member: Member, handed: Sequence[ScopeGrant]) -> Member:
        to = member.certificate
        if not handed or to.role is not Role.GATEWAY:
            return member
        return replace(
            member, box=seal_grants(self.overlay.policy.overlay, to.name, to.agreement_key, handed, bytes(32))
        )

    def revoked(self, member: str, last_epoch: int, bump: int | None = None) -> Overlay:
        """The next version, in which the member's grants end; a `bump` outdates the keys of all scopes."""
        grants = tuple(
            replace(g, last_epoch=min(g.last_epoch, last_epoch)) if g.member == member else g
            for g in self.overlay.policy.grants
            if last_epoch >= 0 or g.member != member
        )
        scopes = tuple(s if bump is None else replace(s, bump=bump) for s in self.overlay.policy.scopes)
        return self.with_policy(grants=grants, scopes=scopes)

    def secrets_under(self, overlay: Overlay) -> list[ScopeSecret]:
        """Our secrets with the scopes as another version of the overlay has them."""
        found = [(secret, overlay.scope_named(secret.scope.filter)) for secret in self.secrets]
        return [replace(secret, scope=scope) for secret, scope in found if scope is not None]

    def renew_tokens(self, clear: str, generation: int = 1, drop_before: bool = False) -> Overlay:
        """The next version, which hides the names of a scope by another generation of tokens; the scope with the
        present ones retires, or ends. From now on it is the world's; who runs has to adopt it."""
        old = next(s for s in self.secrets if s.clear_filter == clear and not s.scope.retiring).scope
        tokens = token_key(ROOT, generation)
        wire = replace(old, filter=tokenise_filter(clear, tokens), number=0, origin=old.stream)
        name, key = KeyName(wire.filter, 0, 0), scope_key(ROOT, wire.filter, 0)
        handed = ScopeGrant(wire.filter, clear, tokens, ((name, key),))
        kept = [s for s in self.overlay.policy.scopes if not s.retiring and not (drop_before and s == old)]
        self.overlay = self.with_policy(handed, scopes=(*(replace(s, retiring=s == old) for s in kept), wire))
        self.keys.put_key(name, key)
        self.secrets = [*self.secrets_under(self.overlay), ScopeSecret(self.overlay.policy.scopes[-1], clear, tokens)]
        return self.overlay

    def retire(self) -> Overlay:
        """The next version, without the scopes that retire."""
        self.overlay = self.with_policy(scopes=tuple(s for s in self.overlay.policy.scopes if not s.retiring))
        self.secrets = self.secrets_under(self.overlay)
        return self.overlay

    def chain_of(self, topic: str) -> str:
        """The clear filter of the scope that takes a topic."""
        inside = [secret.clear_filter for secret in self.secrets if matches(secret.clear_filter, topic)]
        return min(inside, key=specificity, default=topic)

    def is_plain(self, clear_filter: str) -> bool:
        """Whether the scope is, in the present version."""
        scopes = [self.overlay.scope_named(s.scope.filter) for s in self.secrets if s.clear_filter == clear_filter]
        return any(scope is not None and scope.mode is Mode.PLAIN for scope in scopes)

    def clock(self, name: str) -> float:
        """What a member's clock shows."""
        return (self.running.now if self.running else NOW) + self.clocks.get(name, 0.0)

    def node(self, name: str, rng: random.Random) -> Machine:
        certificate = self.overlay.certificate(name)
        if certificate.role is Role.REPLICA:
            draw = f"{self.seed}{name}"
            seeds = lambda epoch: random.Random(f"{draw}{epoch}").randbytes(32)  # noqa: E731
            return ReplicaNode(self.overlay, self.identities[name], name, seeds)
        return GatewayNode(
            self.overlay, self.identities[name], name, self.secrets, self.keys_of(name), rng.randbytes,
            max_age_s=self.max_age_s, shelf=self.outboxes.get(name), generation=int(self.clock(name) * 1000),
        )  # fmt: skip

    def maker(self, name: str, rng: random.Random) -> Callable[[], Machine]:
        def make() -> Machine:
            node = self.node(name, rng)
            if name in self.liars:
                return Adversary(node, self.liars[name], rng, self.probability)
            return node

        return make

    def kernel(
        self,
        rng: random.Random,
        latency_s: tuple[float, float] = (0.001, 0.020),
        clocks: Mapping[str, float] | None = None,
        jitter: random.Random | None = None,
    ) -> Kernel:
        """`clocks`: by how many seconds nodes' clocks are ahead. `jitter`: ticks come early and late."""
        names = [n for n, member in self.overlay.members.items() if member.certificate.role is not Role.KEY_SERVER]
        gateways = [n for n in names if self.overlay.certificate(n).role is Role.GATEWAY]
        self.outboxes = {name: SimulatedOutbox(self.chain_of, self.is_plain) for name in gateways}
        self.running, self.clocks = None, clocks or {}
        self.running = kernel = Kernel(
            {name: self.maker(name, rng) for name in names},
            {name: peers_of(self.overlay, name).intersection(names) for name in names},
            rng,
            NOW,
            latency_s,
            clocks,
            self.outboxes,
            jitter,
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
    calendar: Calendar = ENDLESS_EPOCH,
    hosted: Collection[str] = (),
    jobs: Collection[str] = (),
    is_quantum_safe: bool = False,
) -> World:
    """Regions by id with their number of replicas, tree edges, gateways by name with their home region.

    `rights`: what single gateways may publish and read, where that differs from `publish` and `read`. With a
    `calendar` of epochs there is a key service in the policy (which no node plays) and no epoch key in `keys` yet.
    `hosted`: names of replicas that are somebody's brokers; nothing here plays them. `jobs`: those of `gateways` that
    are certified as ingest jobs. `is_quantum_safe`: members have hybrid keys for boxes, whose content is drawn anew in
    each run.
    """
    rng = random.Random(seed)
    owner = Identity.generate(rng.randbytes(32))
    identities: dict[str, Identity] = {}
    members = []
    grants: list[Grant] = []
    views = []

    def member(name: str, role: Role, region: int) -> None:
        identities[name] = Identity.generate(rng.randbytes(32))
        may_publish, may_read = (rights or {}).get(name, (publish, read))
        certificate = Certificate.issue(
            owner,
            name=name,
            role=role,
            public_key=identities[name].public_bytes,
            agreement_key=identities[name].hybrid_bytes if is_quantum_safe else identities[name].agreement_bytes,
            domain=f"domain-{name}",
            region=region,
            not_after_ms=NOT_AFTER_MS,
        )
        if role in (Role.GATEWAY, Role.INGEST):
            grants.extend(Grant(name, topic_filter, Right.PUBLISH) for topic_filter in may_publish)
            grants.extend(Grant(name, topic_filter, Right.READ) for topic_filter in may_read)
        members.append(Member(certificate))

    for region, size in sizes.items():
        names = tuple(f"r{region}{chr(97 + i) if size <= 26 else f'm{i}'}" for i in range(size))
        views.append(RegionView(region, 1, f"region-{region}", names, trusted=size < 3))
        for name in names:
            member(name, Role.HOSTED if name in hosted else Role.REPLICA, region)
    for name, region in gateways.items():
        member(name, Role.INGEST if name in jobs else Role.GATEWAY, region)
    servers = ("keys",) if calendar.length_s else ()
    for name in servers:
        member(name, Role.KEY_SERVER, next(iter(sizes)))
    given = list(scopes) if scopes is not None else [Scope("plant/#"), Scope("open/#")]
    tokens = token_key(ROOT)
    wire_scopes = []
    secrets = []
    keys = ScopeKeys()
    for scope in given:
        wire = replace(scope, filter=tokenise_filter(scope.filter, tokens)) if scope.tokens else scope
        wire_scopes.append(wire)
        if not servers:
            keys.put_key(KeyName(wire.filter, 0, 0), scope_key(ROOT, wire.filter, 0))
        secrets.append(ScopeSecret(wire, scope.filter, tokens if scope.tokens else None))
    issuer = Issuer.CHAIN if servers else Issuer.OWNER
    policy = Policy("test", 1, tuple(edges), tuple(wire_scopes), tuple(grants), calendar, issuer, servers)
    overlay = Overlay.sign(owner, policy, views, members)
    secrets = [replace(secret, scope=scope) for secret, scope in zip(secrets, overlay.policy.scopes, strict=True)]
    return World(overlay, identities, secrets, keys, seed, owner=owner)


class Traffic:
    """What one gateway publishes: sequences, `previous`, and the record of it for the checkers."""

    def __init__(self, gateway: str) -> None:
        self.gateway = gateway
        self.published: dict[int, Publication] = {}
        self.entries: dict[int, tuple[int, int, Publication]] = {}
        self._last: dict[str, int] = {}  # by scope, which a topic's first level names
        self._next = 1

    def publish(
        self, kernel: Kernel, when: float, topic: str, payload: bytes, qos: int = 1, retain: bool = False,
        properties: tuple[tuple[str, str], ...] = (("k", "v"), ("k", "w")),
    ) -> int:  # fmt: skip
        sequence = self._next
        self._next += 1
        publication = Publication(topic, payload, qos, retain, properties=properties, time_ms=int(when * 1000))
        previous = self._previous(publication, sequence)
        self.published[sequence] = publication
        self.entries[sequence] = (sequence, previous, publication)
        self._store(kernel, when, sequence)
        return sequence

    def _previous(self, publication: Publication, sequence: int) -> int:
        chain = publication.topic.partition("/")[0]
        previous = self._last.get(chain, 0)
        if publication.qos:
            self._last[chain] = sequence
        return previous

    def _store(self, kernel: Kernel, when: float, sequence: int) -> None:
        """What the shell does: QoS 1 and 2 to the disk first, QoS 0 beside it."""
        entry = self.entries[sequence]
        if entry[2].qos:
            kernel.plan_event(when, self.gateway, Appending((sequence,)))
            kernel.plan_event(when, self.gateway, Committed((entry,)))
        else:
            kernel.plan_event(when, self.gateway, Unstored(sequence, entry[2]))

    def resume(self, kernel: Kernel, when: float, outbox: SimulatedOutbox) -> None:
        """The gateway is a new process, which reads its outbox: what its devices had not handed over yet comes now."""
        known = {*outbox.rows, *kernel.trace.forgotten.get(self.gateway, ())}
        for sequence in [sequence for sequence in self.entries if sequence not in known]:
            self._store(kernel, when, sequence)


def subscribe(kernel: Kernel, gateway: str, topic_filter: str, when: float = NOW + 2) -> None:
    kernel.plan_event(when, gateway, Subscribed(topic_filter))
