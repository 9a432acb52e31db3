"""What passes one replica: each publication once, and a snapshot once more under the number that it had."""

from __future__ import annotations

from bridge.contract.machine import Received, Wire
from bridge.node import ReplicaNode
from tests.bridge.helpers import NOW, counted, craft, replica, sent, subscribe_at
from tests.sim.world import make_world

WORLD = make_world({1: 3}, [], {"a": 1, "b": 1})


def node() -> ReplicaNode:
    made = replica(WORLD, "r1a", ["a", "b"])
    subscribe_at(made, WORLD, "b", "plant/#")
    return made


def retained(sequence: int, counter: int = 0, snapshot: bool = True, deadline_ms: int = 0, at: float = NOW) -> Wire:
    return craft(
        WORLD, "a", "plant/t", sequence=sequence, key_id=b"k" * 16, content=b"c", retain=True, order=(1, counter),
        snapshot=snapshot, deadline_ms=deadline_ms, now=at,
    )  # fmt: skip


def passes(one: ReplicaNode, wire: Wire, now: float = NOW) -> bool:
    effects = one.handle(Received("a", wire), now)
    assert counted(effects, "forwarded") == len([send for send in sent(effects, "b") if send.wire.topic == wire.topic])
    return counted(effects, "forwarded") == 1


def test_a_snapshot_passes_once_though_its_number_passed_and_nothing_older_after_it():
    one = node()
    first, snapshot, newer = retained(5, snapshot=False), retained(5, 1), retained(5, 2)
    assert [passes(one, wire) for wire in (first, first, snapshot, snapshot, newer)] == [True, False, True, False, True]
    for wire in (snapshot, retained(4, 9), retained(5, 1, at=NOW + 1)):
        assert not passes(one, wire)
    assert passes(one, retained(6, 0)), "one that was published later"
    assert passes(one, retained(3, snapshot=False)), "late in its chain"


def test_an_expired_snapshot_goes_nowhere_and_its_number_may_still_come():
    one, ended_ms = node(), int(NOW * 1000) - 1
    effects = one.handle(Received("a", retained(5, deadline_ms=ended_ms, at=NOW - 9)), NOW)
    assert (counted(effects, "expired"), sent(effects, "b")) == (1, [])
    assert passes(one, retained(5, snapshot=False))


def test_what_passed_long_ago_is_dropped_unverified():
    one = node()
    assert passes(one, retained(5, 1))
    assert passes(one, retained(7, snapshot=False))
    later = NOW + 60
    one.handle(Received("a", retained(9, snapshot=False, at=later)), later)
    for wire in (retained(5, 1), retained(7, snapshot=False)):
        spoilt = Wire(wire.topic, b"other", 1, True, wire.properties)
        effects = one.handle(Received("a", spoilt), later)
        assert counted(effects, "duplicates_dropped") == 1
        assert counted(effects, "refused") == 0
