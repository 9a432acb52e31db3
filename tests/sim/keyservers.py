"""A small overlay whose keys come from four key servers, some of which may lie: for tests of nodes and simulations."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from bridge.document.overlay import Member, Overlay
from bridge.document.policy import Issuer, Scope
from bridge.node import GatewayNode, KeyServerNode
from bridge.topology import peers_of
from keys.epochs import Calendar, KeyName, ScopeKeys
from keys.identity import Certificate, Identity, Role
from keys.material import Generation, Material, deal
from papers.sim.kernel import Kernel
from tests.sim.world import NOT_AFTER_MS, NOW, World, make_world

CALENDAR = Calendar(int((NOW - 1000) * 1000), 60, 20, 10, 2, 1)
SERVERS = ("key1", "key2", "key3", "key4")
FAULTS = 1


@dataclass
class Service:
    """The world, what was dealt, and what each gateway holds."""

    world: World
    materials: dict[str, Material]
    keys: dict[str, ScopeKeys] = field(default_factory=dict)
    liars: frozenset[str] = frozenset()

    @property
    def overlay(self) -> Overlay:
        return self.world.overlay

    def gateway(self, name: str) -> GatewayNode:
        self.keys[name] = ScopeKeys()
        draw = random.Random(name).randbytes
        return GatewayNode(self.overlay, self.world.identities[name], name, self.world.secrets, self.keys[name], draw)

    def server(self, name: str) -> KeyServerNode:
        material = self.materials[name]
        if name in self.liars:
            generations = tuple(map(_false, material.generations))
            material = replace(material, generations=generations)
        draw = random.Random(name).randbytes
        return KeyServerNode(self.overlay, self.world.identities[name], name, material, {}, draw)

    def held(self, name: str, key: KeyName) -> bytes | None:
        return self.keys[name].get(key)

    def right(self, name: KeyName) -> bytes:
        """The key, from what all servers were dealt: the XOR of one output of every set."""
        outputs: dict[int, bytes] = {}
        for material in self.materials.values():
            outputs |= dict(material.generation_of(name.epoch).at_epoch(name.epoch).outputs(name))
        total = 0
        for output in outputs.values():
            total ^= int.from_bytes(output)
        return total.to_bytes(32)

    def kernel(self, rng: random.Random) -> Kernel:
        """Gateways, replicas and key servers."""
        makers = {name: self.world.maker(name, rng) for name in self.overlay.members}
        for name in ("site", "control"):
            makers[name] = lambda name=name: self.gateway(name)  # type: ignore[misc]
        for name in SERVERS:
            makers[name] = lambda name=name: self.server(name)  # type: ignore[misc]
        kernel = Kernel(makers, {name: peers_of(self.overlay, name) for name in makers}, rng, NOW)
        kernel.start()
        return kernel


def _false(generation: Generation) -> Generation:
    """Other subkeys under the same deal: every output is wrong, and properly signed."""
    return replace(generation, subkeys=tuple((index, bytes(31) + b"\1") for index, _ in generation.subkeys))


def key_world(seed: int, liars: frozenset[str] = frozenset(), is_quantum_safe: bool = False) -> Service:
    world = make_world(
        {1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, [Scope("plant/#")], seed, is_quantum_safe=is_quantum_safe
    )
    assert world.owner is not None
    draw = random.Random(f"keys {seed}").randbytes
    members = dict(world.overlay.members)
    for name in SERVERS:
        identity = world.identities[name] = Identity.generate(draw(32))
        certificate = Certificate.issue(
            world.owner, name=name, role=Role.KEY_SERVER, public_key=identity.public_bytes,
            agreement_key=identity.agreement_bytes, domain=f"d-{name}", region=0, not_after_ms=NOT_AFTER_MS,
        )  # fmt: skip
        members[name] = Member(certificate, "127.0.0.1:1")
    policy = replace(world.overlay.policy, calendar=CALENDAR, issuer=Issuer.THRESHOLD, key_servers=SERVERS)
    world.overlay = Overlay.sign(world.owner, policy, world.overlay.views.values(), members.values())
    materials = deal(len(SERVERS), FAULTS, CALENDAR.epoch_at(NOW), draw)
    return Service(world, dict(zip(SERVERS, materials, strict=True)), liars=liars)
