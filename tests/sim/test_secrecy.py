"""Nobody without the right, and no f replicas of each region together, ever holds what recombines a key."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

import pytest

from bridge.contract.machine import Effect, Event, Machine, Received, Wire
from bridge.document.policy import Scope
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, KeyHeader, check_share, from_property
from keys.errors import BadFrame, BadShare
from keys.sharetree import Hop, Label, Share, decode_shares
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_liveness, check_safety
from papers.sim.kernel import Kernel
from tests.keys.helpers import recombine
from tests.sim.world import NOW, Traffic, World, make_world, subscribe


@dataclass
class Recorder:
    """Sees all that its node sees."""

    machine: Machine
    wires: list[Wire] = field(default_factory=list)

    @property
    def next_deadline(self) -> float | None:
        return self.machine.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if isinstance(event, Received):
            self.wires.append(event.wire)
        return self.machine.handle(event, now)


def recorded(world: World, rng: random.Random) -> tuple[Kernel, dict[str, Recorder]]:
    kernel = world.kernel(rng)
    recorders = {name: Recorder(node) for name, node in kernel.nodes.items()}
    kernel.nodes.update(recorders)
    return kernel, recorders


def pool(wires: Iterable[Wire]) -> dict[bytes, tuple[KeyHeader, dict[Label, Share]]]:
    """By key: its header, and every share that rode beside it, whatever its depth."""
    pooled: dict[bytes, tuple[KeyHeader, dict[Label, Share]]] = {}
    for wire in wires:
        properties = dict(wire.properties)
        if PROPERTY_KEY not in properties:
            continue
        try:
            header = KeyHeader.decode(from_property(properties[PROPERTY_KEY]))
            shares = decode_shares(from_property(properties[PROPERTY_SHARES])) if PROPERTY_SHARES in properties else []
        except (BadFrame, BadShare):
            continue
        known = pooled.setdefault(header.key_id, (header, {}))[1]
        known.update({share.label: share for share in shares})
    return pooled


def derivable(labels: Collection[Label], hops: Sequence[Hop]) -> bool:
    """Whether the secret follows: a value does from any k of its sub-shares, the secret from k values of level 1."""
    known = set(labels)
    for depth in range(len(hops), 0, -1):
        held = Counter(label[:-1] for label in known if len(label) == depth)
        known |= {parent for parent, count in held.items() if count >= hops[depth - 1].threshold}
    return () in known


def opens(header: KeyHeader, shares: dict[Label, Share], hops: Sequence[Hop]) -> bool:
    fits = lambda place, value: check_share(header, place, value)  # noqa: E731
    return recombine(shares.values(), hops, fits, lambda secret: True) is not None


def assert_keeps_secret(world: World, wires: Iterable[Wire], start: int, end: int) -> None:
    hops = world.overlay.hops_between(start, end)
    for header, shares in pool(wires).values():
        assert not derivable(shares, hops)
        for depth in range(1, len(hops) + 1):
            level = {label: share for label, share in shares.items() if len(label) == depth}
            assert not opens(header, level, hops[:depth])


@pytest.mark.invariant(3)
@pytest.mark.parametrize(("sizes", "end"), [({1: 3, 2: 3}, 2), ({1: 5}, 1)], ids=["n=3, two hops", "n=5, one hop"])
def test_no_coalition_of_f_replicas_a_region_holds_a_key_that_the_subscriber_opens(sizes: dict[int, int], end: int):
    world = make_world(sizes, [(1, 2)] if end == 2 else [], {"site": 1, "control": end})
    kernel, recorders = recorded(world, random.Random(11))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for n in range(150):  # three keys
        traffic.publish(kernel, NOW + 5 + n * 0.05, f"plant/{n % 3}", b"x", retain=n % 10 == 0)
    for replica in ("r1a", f"r{end}b"):  # whatever crashes repeat
        kernel.run(kernel.now + 7)
        kernel.crash(replica)
        kernel.run(kernel.now + 1)
        kernel.restart(replica)
    trace = kernel.run(NOW + 60)
    check_liveness(traffic.published, trace.delivered["control"])
    hops = world.overlay.hops_between(1, end)
    known = pool(recorders["control"].wires)
    assert len(known) >= 3
    assert all(derivable(shares, hops) and opens(header, shares, hops) for header, shares in known.values())
    choices = []
    for region, n in sizes.items():
        members = world.overlay.views[region].members
        choices.append([c for size in range((n - 1) // 2 + 1) for c in combinations(members, size)])
    for coalition in product(*choices):
        assert_keeps_secret(world, [w for group in coalition for m in group for w in recorders[m].wires], 1, end)


@pytest.mark.invariant(6)
@pytest.mark.parametrize("liar", ["r1a", "r1b", "r1c"])
def test_a_liar_that_swaps_keys_gets_a_reader_of_another_scope_nothing(liar: str):
    """`nosy` may read open/# alone, and tells the liars all that it gets; `control` reads both and loses nothing."""
    scopes = [Scope("plant/#", shares_only=True), Scope("open/#")]
    rights = {"nosy": ((), ("open/#",))}
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2, "nosy": 2}, scopes, rights=rights)
    world.liars = {liar: frozenset({Behaviour.FOREIGN_KEY}), "r2a": frozenset({Behaviour.FOREIGN_KEY})}
    kernel, recorders = recorded(world, random.Random(12))
    subscribe(kernel, "control", "#")
    subscribe(kernel, "nosy", "open/#")
    traffic = Traffic("site")
    for n in range(60):
        traffic.publish(kernel, NOW + 5 + n * 0.1, "plant/a" if n % 2 else f"open/{n}", b"x", retain=n % 7 == 0)
    trace = kernel.run(NOW + 40)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    seen = [w for name in (liar, "r2a", "nosy") for w in recorders[name].wires]
    hops = world.overlay.hops_between(1, 2)
    plant = [p for p in pool(seen).values() if p[0].scope == "plant/#"]
    assert plant
    for header, shares in plant:
        assert not derivable(shares, hops)
        assert not opens(header, {label: s for label, s in shares.items() if len(label) == 2}, hops)
