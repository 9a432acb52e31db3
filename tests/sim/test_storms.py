"""Everything at once: short cuts, epochs, replicas that come and go, liars, crashes of the gateway. Nothing is lost,
altered or out of order, and no f replicas can open anything.

The links are cut for less than two seconds and one at a time; beside that there are f liars. What is published while
the gateway is down comes at once when it is back, so that replicas and links are behind.
"""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from bridge.contract.machine import Effect, Send, Wire
from bridge.document.policy import Refresh, Scope
from keys.envelope import Mode
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import Kernel
from tests.seldom import slow
from tests.sim.test_live_views import Owner
from tests.sim.test_secrecy import derivable, pool
from tests.sim.test_stragglers import FIRST, calendar, learn, made
from tests.sim.world import NOW, Traffic, World, subscribe

MODES = [Mode.COPIES, Mode.ONE, Mode.BLOCKS, Mode.AUTO]
TOPICS = ("open/1", "plant/1", "plant/2", "plant/3", "two/1", "two/2")


class SeeingOwner(Owner):
    """Who endorsed a view is in members' files, which it sees."""

    def look(self) -> None:
        """What a member started now would have on its disk."""
        known = [node.overlay for name, node in self.kernel.nodes.items() if name not in self.world.liars]  # type: ignore[attr-defined]
        self.overlay = max(known, key=lambda each: (each.policy.version, len(list(each.endorsements))))
        self.world.overlay = self.overlay

    def change(self, region: int) -> str:
        self.look()
        return super().change(region)


def watched(kernel: Kernel) -> dict[str, list[Wire]]:
    """What each replica is sent by the publisher."""
    told, inner = dict[str, list[Wire]](), kernel._effects

    def watching(name: str, effects: list[Effect]) -> None:
        for effect in effects if name == "site" else ():
            if isinstance(effect, Send):
                told.setdefault(effect.peer, []).append(effect.wire)
        inner(name, effects)

    kernel._effects = watching  # type: ignore[method-assign]
    return told


def events(rng: random.Random, seed: int) -> list[tuple[float, str, float]]:
    """When what happens, and for how long."""
    found = [(NOW + 20 * epoch - 2, "keys", float(FIRST + epoch)) for epoch in (1, 2)]
    found += [(NOW + rng.uniform(6, 48), "cut", rng.uniform(0.1, 1.5)) for _ in range(8)]
    if seed % 5:
        found += [(NOW + 8 + 11 * n + rng.uniform(0, 3), "change", 0.0) for n in range(4)]
    if seed % 4 == 1 or seed % 7 == 2:
        found += [(NOW + rng.uniform(10, 48), "crash", rng.uniform(0.2, 2)) for _ in range(2)]
    return sorted(found)


def happen(kernel: Kernel, world: World, owner: SeeingOwner, traffic: Traffic, what: str, value: float) -> None:
    if what == "keys":
        learn(kernel, world, int(value))
    elif what == "change":
        owner.change(1)
    elif what == "crash":
        kernel.crash("site")
        kernel.run(kernel.now + value)
        owner.look()
        kernel.restart("site")
        traffic.resume(kernel, kernel.now + 0.1, kernel._outboxes["site"])
    else:
        honest = [name for name in world.overlay.latest[1].members if name not in world.liars]
        peer = "r1c" if "r1c" in honest and owner.rng.random() < 0.6 else owner.rng.choice(honest)
        kernel.cut("site", peer)
        kernel.run(kernel.now + value)
        kernel.heal("site", peer)
        kernel.run(kernel.now + 0.5)


@pytest.mark.attack(135, 136)
@pytest.mark.parametrize("seed", [1, *slow([0, 2, 3, 8, 13, 26, *range(30, 160)])])
def test_a_storm_loses_and_misplaces_nothing_and_f_replicas_open_nothing(seed: int):
    rng = random.Random(seed)
    size, liars = (5, ("r1b", "r1d")) if seed % 3 == 0 else (3, ("r1b",))
    refresh = Refresh(messages=rng.choice([1, 2, 3, 9]))
    plant = Scope("plant/#", MODES[seed % 4], refresh=refresh, keys_on_topic=seed % 2 == 0)
    scopes = [plant, Scope("open/#", Mode.PLAIN), Scope("two/#", Mode.COPIES)]
    world = made(calendar(20, 6), scopes, {1: size}, liars, seed)
    kernel = world.kernel(rng)
    told = watched(kernel)
    subscribe(kernel, "control", "#")
    traffic, retained = Traffic("site"), rng.choice([0.0, 0.1, 0.3])
    for n in range(500):
        qos, content = 1 + rng.randrange(2), b"%d" % n + bytes(rng.choice([0, 1500]))
        retain = rng.random() < retained
        traffic.publish(kernel, NOW + 5 + n * 0.08, rng.choice(TOPICS), content, qos=qos, retain=retain)
    owner = SeeingOwner(world, kernel, rng, least=size)
    for at, what, value in events(rng, seed):
        kernel.run(max(at, kernel.now))
        happen(kernel, world, owner, traffic, what, value)
    trace = kernel.run(NOW + 70)
    for some in combinations(told, len(liars)):
        for header, shares in pool(wire for name in some for wire in told[name]).values():
            assert not derivable(shares, header.hops), some
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), world.liars)
