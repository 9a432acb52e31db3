"""Brokers that take less than they say: what is stored goes in parts, each record once and in order, and none is lost."""

from __future__ import annotations

import random

import pytest

from bridge.contract import Acked, Committed, Effect, Forget, LinkUp, Numbered, Publication, Received, Tick, packed
from bridge.contract.machine import NotTaken
from bridge.contract.refusing import Reason
from bridge.document.policy import Scope
from bridge.node import GatewayNode, ReplicaNode
from tests.bridge.helpers import NOW, counted, delivered, replica, sent, subscribe_at, subscriber
from tests.sim.world import World, make_world

SCOPES = [Scope("plant/#")]


@pytest.fixture
def world() -> World:
    return make_world({1: 3}, [], {"site": 1, "reader": 1}, SCOPES)


class Region:
    """A gateway, three brokers of which each takes contents of at most so many bytes, and a reader behind them."""

    def __init__(self, world: World, most: dict[str, int]) -> None:
        self.most, self.got = most, list[bytes]()
        self.forgotten: list[int] = []
        self.tried: list[tuple[str, int]] = []
        self.reader = subscriber(world, "reader")
        self.brokers: dict[str, ReplicaNode] = {}
        for name in world.overlay.views[1].members:
            self.brokers[name] = replica(world, name, ["site", "reader"])
            subscribe_at(self.brokers[name], world, "reader", "plant/#")
            self.reader.handle(LinkUp(name), NOW)
        self.site = self.started(world, 1)

    def started(self, world: World, seed: int) -> GatewayNode:
        draw = random.Random(seed).randbytes
        self.site = GatewayNode(
            world.overlay, world.identities["site"], "site", world.secrets, world.keys, draw, generation=seed
        )
        for name in self.brokers:
            self.handle(LinkUp(name), NOW)
        return self.site

    def handle(self, event: object, now: float) -> list[Effect]:
        effects = list(self.site.handle(event, now))  # type: ignore[arg-type]
        for effect in effects:
            if isinstance(effect, Forget):
                self.forgotten += effect.sequences
        for send in [send for send in sent(effects) if send.ticket > 0]:
            self.tried.append((send.peer, send.ticket))
            if len(send.wire.payload) > self.most.get(send.peer, 1 << 20):
                effects += self.handle(NotTaken(send.peer, send.ticket, Reason.SIZE), now)
                continue
            passed = self.brokers[send.peer].handle(Received("site", send.wire), now)
            for onward in sent(passed, "reader"):
                came = self.reader.handle(Received(send.peer, onward.wire), now)
                self.got += [each.publication.payload for each in delivered(came)]
            effects += self.handle(Acked(send.peer, send.ticket), now)
        return effects

    def run(self, until: float) -> list[Effect]:
        effects: list[Effect] = []
        at: float | None = NOW
        while (at := self.site.next_deadline) is not None and at <= until:
            effects += self.handle(Tick(), max(at, NOW) + 0.001)
        return effects


def batch(first: int, count: int, size: int = 100) -> Publication:
    records = [Publication("plant/t", b"%05d" % n + bytes(size), 1, time_ms=int(NOW * 1000)) for n in range(first, first + count)]
    return packed("plant/#", [Numbered(first + at, each) for at, each in enumerate(records)])


def numbers(got: list[bytes]) -> list[int]:
    return [int(payload[:5]) for payload in got]


def test_what_too_few_take_goes_in_parts_each_record_once_and_in_order(world: World) -> None:
    region = Region(world, {"r1a": 900, "r1b": 900})
    effects = region.handle(Committed(((101, 0, batch(101, 20)), (121, 101, batch(121, 3)))), NOW)
    effects += region.run(NOW + 5)
    assert numbers(region.got) == list(range(101, 124))
    assert counted(effects, "batches_cut") > 0
    assert region.forgotten == [101, 121] or region.forgotten == [121, 101]
    assert region.site.publisher.depth == 0


def test_the_row_on_disk_goes_with_the_last_of_its_parts(world: World) -> None:
    region = Region(world, {"r1a": 900, "r1b": 900})
    region.most["r1c"] = 0  # away, as far as anybody can tell
    region.handle(Committed(((101, 0, batch(101, 4, 400)),)), NOW)
    assert region.forgotten == []
    region.most["r1c"] = 1 << 20
    region.run(NOW + 5)
    assert region.forgotten == [101]


def test_after_a_restart_what_was_delivered_in_parts_does_not_come_again(world: World) -> None:
    region = Region(world, {"r1a": 900, "r1b": 900})
    region.handle(Committed(((101, 0, batch(101, 20)),)), NOW)
    assert numbers(region.got) == list(range(101, 121))
    region.started(world, 2)
    region.handle(Committed(((101, 0, batch(101, 20)),)), NOW + 2)
    assert numbers(region.got) == list(range(101, 121))


def test_what_is_too_large_for_one_passes_it_by_once_others_have_it(world: World) -> None:
    region = Region(world, {"r1a": 900})
    effects = region.handle(Committed(((101, 0, batch(101, 20)),)), NOW)
    effects += region.run(NOW + 5)
    assert counted(effects, "batches_cut") == 0
    assert numbers(region.got) == list(range(101, 121))
    assert region.forgotten == [101]


def test_a_record_that_nobody_takes_is_not_lost_and_goes_when_they_take_it(world: World) -> None:
    region = Region(world, {"r1a": 900, "r1b": 900})
    lone = Publication("plant/t", b"00101" + bytes(2000), 1, time_ms=int(NOW * 1000))
    region.handle(Committed(((101, 0, lone), (102, 101, batch(102, 2)))), NOW)
    region.run(NOW + 50)
    assert region.forgotten == [102]
    assert len(region.tried) < 40, "offered again, ever more seldom"
    region.most.clear()
    region.run(NOW + 120)
    assert region.forgotten == [102, 101]
    assert sorted(numbers(region.got)) == [101, 102, 103]


def test_a_plain_batch_that_somebody_has_is_not_cut_since_readers_may_have_it() -> None:
    from keys.envelope import Mode

    world = make_world({1: 3}, [], {"site": 1, "reader": 1}, [Scope("plant/#", Mode.PLAIN)])
    region = Region(world, {"r1b": 900, "r1c": 900})
    effects = region.handle(Committed(((101, 0, batch(101, 20)),)), NOW)
    effects += region.run(NOW + 20)
    assert counted(effects, "batches_cut") == 0
    assert numbers(region.got) == list(range(101, 121))
