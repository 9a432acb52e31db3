"""What passes one replica: each publication once, and a snapshot once more under the number that it had."""

from __future__ import annotations

import random

import pytest

from bridge.contract.machine import Committed, LinkUp, Publication, Received, Send, Tick, Wire
from bridge.document import Scope
from bridge.node import GatewayNode, ReplicaNode
from keys.envelope import Mode
from tests.bridge.helpers import NOW, counted, craft, delivered, replica, sent, subscribe_at, subscriber
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


class Region:
    """Three replicas, of which one says nothing, and a reader behind them."""

    def __init__(self, mode: Mode, liar: str) -> None:
        self.world = make_world({1: 3}, [], {"site": 1, "reader": 1}, [Scope("plant/#", mode)])
        self.replicas = {name: replica(self.world, name, ["site", "reader"]) for name in ("r1a", "r1b", "r1c")}
        for each in self.replicas.values():
            subscribe_at(each, self.world, "reader", "plant/#")
        self.reader, self.liar, self.got = subscriber(self.world, "reader"), liar, list[int]()

    def life(self, generation: int, clock: float, links: tuple[str, ...]) -> None:
        """A start of the gateway, which sends its outbox."""
        draw = random.Random(generation).randbytes
        world = self.world
        site = GatewayNode(
            world.overlay, world.identities["site"], "site", world.secrets, world.keys, draw, generation=generation
        )
        for link in links:
            site.handle(LinkUp(link), clock)
        outbox = Committed(((101, 0, Publication("plant/t", bytes(6000), 1, time_ms=int(NOW * 1000))),))
        for send in sent(site.handle(outbox, clock)):
            self.hears(send.peer, "site", send.wire, NOW)

    def hears(self, peer: str, sender: str, wire: Wire, now: float) -> None:
        if peer == self.liar:
            return
        for send in sent(self.replicas[peer].handle(Received(sender, wire), now)):
            if send.peer == "reader":
                self.takes(Received(peer, send.wire), now)

    def takes(self, event: Received | Tick, now: float) -> None:
        effects = self.reader.handle(event, now)
        self.got += [len(each.publication.payload) for each in delivered(effects)]
        for effect in effects:
            if isinstance(effect, Send) and effect.peer in self.replicas:
                self.hears(effect.peer, "reader", effect.wire, now)

    def run(self, until: float) -> None:
        while (at := self.reader.next_deadline) is not None and at <= until:
            self.takes(Tick(), max(at, NOW) + 0.001)
            for peer, each in self.replicas.items():
                if peer != self.liar and (due := each.next_deadline) is not None and due <= at:
                    self.takes_all(peer, each, max(at, NOW) + 0.001)

    def takes_all(self, peer: str, each: ReplicaNode, now: float) -> None:
        for send in sent(each.handle(Tick(), now)):
            if send.peer == "reader":
                self.takes(Received(peer, send.wire), now)


@pytest.mark.attack(58)
@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.BLOCKS])
@pytest.mark.parametrize("liar", ["r1b", "r1c"])
def test_what_is_sealed_anew_by_a_clock_that_was_set_back_replaces_what_one_replica_had(mode: Mode, liar: str) -> None:
    """Attack: a gateway is told a time that is 200 s ahead, reaches one replica, is killed, and starts again by the
    right time. To that replica the second sealing looks like the older one; where another lies neither key has its k
    shares."""
    region = Region(mode, liar)
    begun = int((NOW + 200) * 1000)
    region.life(begun, NOW + 200, ("r1a",))
    assert region.got == []
    region.life(begun + 1, NOW, ("r1a", "r1b", "r1c"))
    region.run(NOW + 30)
    assert region.got == [6000]
