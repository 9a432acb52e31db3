"""Data keys by count and in both ways to travel: liars who withhold, replay or swap them, restarts, late joiners."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import pytest

from bridge.contract.machine import Effect, Event, Machine, Send, Wire
from bridge.document.policy import Refresh, Scope
from bridge.wire.key_repository import carries_key_alone, key_topic
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, KeyHeader, from_property
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import Kernel
from tests.seldom import in_turn, slow
from tests.sim.test_epochs import adopt_everywhere
from tests.sim.test_secrecy import recorded
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(8)

REGIONS = {1: 3, 2: 3}
on_topic = pytest.mark.parametrize("on_topic", [False, True], ids=["riding", "topic"])


def two_regions(on_topic: bool, messages: int = 64, gateways: dict[str, int] | None = None, seed: int = 1) -> World:
    scope = Scope("plant/#", keys_on_topic=on_topic, refresh=Refresh(messages=messages))
    return make_world(REGIONS, [(1, 2)], gateways or {"site": 1, "control": 2}, [scope], seed)


class Lie(Enum):
    WITHHOLD = "withhold"
    OLD = "old"  # replays the key before in place of each
    SWAP = "swap"  # the shares of another key
    ELSEWHERE = "elsewhere"  # on the topic of another scope


@dataclass
class KeyLiar:
    """An honest replica but for the keys that it passes on."""

    machine: Machine
    lie: Lie
    before: dict[str, Wire] = field(default_factory=dict)

    @property
    def next_deadline(self) -> float | None:
        return self.machine.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        falsified: list[Effect] = []
        for effect in self.machine.handle(event, now):
            if not isinstance(effect, Send) or PROPERTY_KEY not in dict(effect.wire.properties):
                falsified.append(effect)
            elif self.lie is not Lie.WITHHOLD:
                falsified.append(replace(effect, wire=self._altered(effect.peer, effect.wire)))
            elif not carries_key_alone(effect.wire.topic):
                kept = tuple(p for p in effect.wire.properties if p[0] == PROPERTY_HEADER)
                falsified.append(replace(effect, wire=replace(effect.wire, properties=kept)))
        return falsified

    def _altered(self, peer: str, wire: Wire) -> Wire:
        if self.lie is Lie.ELSEWHERE:
            return replace(wire, topic=key_topic("open/#", bytes(16))) if carries_key_alone(wire.topic) else wire
        before = self.before.setdefault(peer, wire)
        self.before[peer] = wire
        old, names = dict(before.properties), {PROPERTY_SHARES}
        if self.lie is Lie.OLD:
            names.add(PROPERTY_KEY)
        return replace(wire, properties=tuple((n, old.get(n, v) if n in names else v) for n, v in wire.properties))


def run_with(world: World, liars: Sequence[str], lie: Lie | None, seed: int = 1) -> Kernel:
    kernel = world.kernel(random.Random(seed))
    if lie is not None:
        kernel.nodes.update({name: KeyLiar(kernel.nodes[name], lie) for name in liars})
    return kernel


@pytest.mark.parametrize(("lie", "on_topic"), in_turn([None, *Lie], [False, True]))
@pytest.mark.parametrize("messages", [10, *slow([1, 64])])
def test_everything_arrives_whatever_one_replica_of_each_region_does_with_keys(
    lie: Lie | None, messages: int, on_topic: bool
):
    world = two_regions(on_topic, messages)
    kernel = run_with(world, ["r1b", "r2c"], lie)
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for number in range(30):
        topic = f"plant/line{number % 3}/temp"
        traffic.publish(kernel, NOW + 5 + number * 0.1, topic, b"%d" % number, number % 3, number % 7 == 0)
    trace = kernel.run(NOW + 40)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), ["r1b", "r2c"])
    keys = {1: 30, 10: 3, 64: 1}[messages]
    assert trace.figures["recombined"] == keys


@pytest.mark.parametrize("near_far", ["a-b", "b-c", "c-a", *slow(["a-a", "a-c", "b-a", "b-b", "c-b", "c-c"])])
@pytest.mark.parametrize("lies", [{Behaviour.DROP}, {Behaviour.SHARES, Behaviour.REPLAY}, {Behaviour.FOREIGN_KEY}],
                         ids=lambda lies: "+".join(sorted(lie.value for lie in lies)))  # fmt: skip
def test_a_key_a_message_on_its_own_topic_with_liars_anywhere(near_far: str, lies: set[Behaviour]):
    world = two_regions(True, 1)
    near, far = f"r1{near_far[0]}", f"r2{near_far[-1]}"
    world.liars = {name: frozenset(lies) for name in (near, far)}
    kernel = world.kernel(random.Random(3))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for number in range(12):
        traffic.publish(kernel, NOW + 5 + number * 0.05, f"plant/{number % 3}", b"%d" % number)
    trace = kernel.run(NOW + 40)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), [near, far])


def test_no_publication_carries_a_key_and_every_key_stands_on_its_topic():
    world = two_regions(True, 10)
    kernel, recorders = recorded(world, random.Random(2))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for number in range(40):
        traffic.publish(kernel, NOW + 5 + number * 0.1, f"plant/{number % 3}", b"x", retain=number % 4 == 0)
    check_liveness(traffic.published, kernel.run(NOW + 20).delivered["control"])
    topic = key_topic("plant/#", world.identities["site"].party_id)
    told: dict[str, int] = {}
    for name, recorder in recorders.items():
        for wire in recorder.wires:
            if PROPERTY_KEY in dict(wire.properties):
                assert (wire.topic, wire.retain) == (topic, True)
                assert PROPERTY_HEADER not in dict(wire.properties)
                told[name] = told.get(name, 0) + 1
    assert {told[name] for name in ("r1a", "r1b", "r1c")} == {4}, "each key once to each replica"


# ------------------------------------------------------------------------------------------------ late joiners


@pytest.mark.attack(24)
@on_topic
@pytest.mark.parametrize(("liar", "messages"), in_turn([None, "r1b", "r2a"], [64, 1]))
@pytest.mark.parametrize("late", [2, *slow([1])])
def test_a_late_joiner_gets_the_newest_retained_values_and_nothing_that_was_cleared(
    liar: str | None, late: int, messages: int, on_topic: bool
):
    world = two_regions(on_topic, messages, {"site": 1, "control": 2, "late": late})
    if liar is not None:
        world.liars = {liar: frozenset({Behaviour.REPLAY, Behaviour.DUPLICATE})}
    kernel = world.kernel(random.Random(8))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    last: dict[str, int] = {}
    for n in range(24):
        last[f"plant/{n % 4}"] = traffic.publish(kernel, NOW + 5 + n, f"plant/{n % 4}", b"%d" % n, retain=True)
    last["plant/3"] = traffic.publish(kernel, NOW + 40, "plant/3", b"", retain=True)
    subscribe(kernel, "late", "plant/#", NOW + 4000)
    live = {traffic.publish(kernel, NOW + 4010 + n, f"plant/{n % 4}", b"live") for n in range(8)}
    trace = kernel.run(NOW + 4040)
    got = [d.sequence for d in trace.delivered["late"]]
    assert sorted(got[:4]) == sorted(last.values())
    assert set(got[4:]) == live
    values = {d.publication.topic: d.publication.payload for d in trace.delivered["late"] if d.publication.retain}
    assert values["plant/3"] == b"", "what was cleared stays cleared"
    check_safety(traffic.published, trace.delivered["late"])


@on_topic
@pytest.mark.parametrize("liar", [None, "r1a", "r2c"])
@pytest.mark.parametrize("seed", [0, *slow(range(1, 4))])
def test_a_late_joiner_opens_the_very_next_publication(seed: int, liar: str | None, on_topic: bool):
    """In the midst of a key's life, and with every publication on the same topic."""
    world = two_regions(on_topic, 64, {"site": 1, "control": 2, "late": 2})
    kernel = run_with(world, [liar] if liar else [], Lie.WITHHOLD if liar else None, seed)
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for n in range(8):
        traffic.publish(kernel, NOW + 5 + n * 0.1, "plant/t", b"%d" % n)
    subscribe(kernel, "late", "plant/#", NOW + 6)
    following = traffic.publish(kernel, NOW + 6.5, "plant/t", b"next")
    trace = kernel.run(NOW + 7)
    assert [d.sequence for d in trace.delivered["late"]] == [following]


# ---------------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize(("messages", "on_topic"), in_turn([1, 64], [True, False]))
@pytest.mark.parametrize("liar", ["r1b", *slow(["r2c"])])
def test_what_is_retained_survives_restarts_of_one_replica_after_the_other_beside_a_liar(
    liar: str, messages: int, on_topic: bool
):
    """Of three, one lies; whoever comes back has to have its shares again, long after the keys were in use."""
    world = two_regions(on_topic, messages, {"site": 1, "control": 2, "late": 2})
    world.liars = {liar: frozenset({Behaviour.SHARES})}
    kernel = world.kernel(random.Random(5))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    last = {traffic.publish(kernel, NOW + 5 + n, f"plant/{n}", b"%d" % n, retain=True) for n in range(6)}
    when = NOW + 2000
    for name in sorted(name for region in (1, 2) for name in world.overlay.views[region].members):
        kernel.run(when)
        kernel.crash(name)
        kernel.run(when + 1)
        kernel.restart(name)
        when += 300
    subscribe(kernel, "late", "plant/#", when + 500)
    trace = kernel.run(when + 520)
    assert {d.sequence for d in trace.delivered["late"]} == last
    check_safety(traffic.published, trace.delivered["late"])
    check_safety(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), [liar])


@pytest.mark.parametrize(("victim", "on_topic"), in_turn(["r1a", "r2b", "site", "control"], [True, False]))
@pytest.mark.parametrize("messages", [10, *slow([1])])
def test_nothing_is_lost_when_anybody_restarts_beside_a_liar(victim: str, messages: int, on_topic: bool):
    world = two_regions(on_topic, messages)
    kernel = run_with(world, ["r1c"], Lie.OLD)
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for n in range(30):
        traffic.publish(kernel, NOW + 5 + n * 0.4, f"plant/{n % 2}", b"%d" % n)
    kernel.run(NOW + 10.05)
    kernel.crash(victim)
    before = {d.sequence for d in kernel.trace.delivered["control"]}
    kernel.run(NOW + 10.1)
    kernel.restart(victim)
    if victim == "site":
        traffic.resume(kernel, NOW + 10.1, kernel._outboxes["site"])
    if victim == "control":
        subscribe(kernel, "control", "plant/#", NOW + 10.1)
    trace = kernel.run(NOW + 60)
    if victim != "control":
        check_safety(traffic.published, trace.delivered["control"])
        check_liveness(traffic.published, trace.delivered["control"])
    else:  # its links come up within a second; what was published before is gone with its subscription
        later = {n for n, p in traffic.published.items() if p.time_ms > (NOW + 11.5) * 1000}
        assert later
        check_liveness(later | before, trace.delivered["control"])


@pytest.mark.parametrize("seed", [0, *slow([1, 2])])
def test_keys_that_were_lost_with_a_replica_come_again_when_it_is_back(seed: int):
    """The honest one restarts, the other of three withholds keys: what was under way opens late, none is lost."""
    world = two_regions(True, 1)
    kernel = run_with(world, ["r2c"], Lie.WITHHOLD, seed)
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for n in range(40):
        traffic.publish(kernel, NOW + 5 + n * 0.1, f"plant/{n % 2}", b"%d" % n)
    kernel.run(NOW + 6.5)
    kernel.crash("r2a")
    kernel.run(NOW + 9.5)
    assert len(kernel.trace.delivered["control"]) < 20, "what follows rests on what it has lost"
    kernel.restart("r2a")
    trace = kernel.run(NOW + 40)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])


# ------------------------------------------------------------------------------------------------------ rights


@on_topic
def test_a_revoked_reader_gets_no_new_entry_and_the_others_lose_nothing(on_topic: bool):
    world = two_regions(on_topic, 1, {"site": 1, "control": 2, "spy": 2})
    rng = random.Random(4)
    kernel, recorders = recorded(world, rng)
    subscribe(kernel, "control", "plant/#")
    subscribe(kernel, "spy", "plant/#")
    traffic = Traffic("site")
    for n in range(50):
        traffic.publish(kernel, NOW + 5 + n * 0.2, "plant/t", b"%d" % n)
    kernel.run(NOW + 8)
    adopt_everywhere(kernel, world, world.revoked("spy", -1), rng, 0.5)
    known = keys_at(recorders["spy"].wires)
    assert known
    trace = kernel.run(NOW + 30)
    new = keys_at(recorders["spy"].wires) - known
    assert len(new) <= 3, "what was under way while replicas adopted"
    check_liveness(traffic.published, trace.delivered["control"])
    check_safety(traffic.published, trace.delivered["control"])


def keys_at(wires: Sequence[Wire]) -> set[bytes]:
    found = (dict(wire.properties).get(PROPERTY_KEY) for wire in wires)
    return {KeyHeader.decode(from_property(text)).key_id for text in found if text}


def test_the_way_of_keys_may_change_while_everybody_runs():
    """Owners may turn a scope over; whoever learns of it late still gets and gives keys."""
    world = two_regions(False, 10)
    rng = random.Random(6)
    kernel = world.kernel(rng)
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for n in range(75):
        traffic.publish(kernel, NOW + 5 + n * 0.2, f"plant/{n % 2}", b"%d" % n)
    for at, way in ((8, True), (14, False)):
        kernel.run(NOW + at)
        changed = tuple(replace(s, keys_on_topic=way) for s in world.overlay.policy.scopes)
        world.overlay = world.with_policy(scopes=changed)
        adopt_everywhere(kernel, world, world.overlay, rng, 2.0)
    trace = kernel.run(NOW + 60)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
