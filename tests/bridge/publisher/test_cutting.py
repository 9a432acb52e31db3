"""Brokers that take less than they say: what is stored goes in parts, each record once, and none is lost."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract import (
    Acked,
    Committed,
    Effect,
    Forget,
    LinkDown,
    LinkUp,
    Numbered,
    Publication,
    Received,
    Send,
    Tick,
    Wire,
    packed,
)
from bridge.contract.machine import NotTaken
from bridge.contract.refusing import Reason
from bridge.document.policy import Scope
from bridge.node import GatewayNode, ReplicaNode
from bridge.publisher.cutting import may_be_cut
from bridge.publisher.entry import Entry
from bridge.publisher.publisher import Publisher
from bridge.wire import OwnLife
from keys.envelope import PROPERTY_KEY, Mode
from keys.records import encode
from tests.bridge.helpers import NOW, counted, delivered, replica, sent, subscribe_at, subscriber
from tests.seldom import slow
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

SCOPES = [Scope("plant/#")]


world = fresh(one_region, "site", "reader", scopes=SCOPES)


class Region:
    """A gateway, three brokers of which each takes contents of at most so many bytes, and a reader behind them."""

    def __init__(self, world: World, most: dict[str, int]) -> None:
        self.most, self.got = most, list[bytes]()
        self.forgotten: list[int] = []
        self.tried: list[tuple[str, int]] = []
        self.reader = subscriber(world, "reader")
        self.brokers: dict[str, ReplicaNode] = {}
        self.names, self.down = world.overlay.views[1].members, set[str]()
        for name in self.names:
            if name not in world.overlay.hosted:
                self.brokers[name] = replica(world, name, ["site", "reader"])
                subscribe_at(self.brokers[name], world, "reader", "plant/#")
            self.reader.handle(LinkUp(name), NOW)
        self.site = self.started(world, 1)

    def started(self, world: World, seed: int) -> GatewayNode:
        draw = random.Random(seed).randbytes
        self.site = GatewayNode(
            world.overlay, world.identities["site"], "site", world.secrets, world.keys, draw, generation=seed
        )
        for name in self.names:
            self.handle(LinkUp(name), NOW)
        return self.site

    def handle(self, event: object, now: float) -> list[Effect]:
        effects = list(self.site.handle(event, now))  # type: ignore[arg-type]
        for effect in effects:
            if isinstance(effect, Forget):
                self.forgotten += effect.sequences
        for send in [send for send in sent(effects) if send.ticket > 0]:
            self.tried.append((send.peer, send.ticket))
            if send.peer in self.down:
                continue
            if len(send.wire.payload) > self.most.get(send.peer, 1 << 20):
                effects += self.handle(NotTaken(send.peer, send.ticket, Reason.SIZE), now)
                continue
            for wire in self.passed(send, now):
                came = self.reader.handle(Received(send.peer, wire), now)
                self.got += [each.publication.payload for each in delivered(came)]
            effects += self.handle(Acked(send.peer, send.ticket), now)
        return effects

    def passed(self, send: Send, now: float) -> list[Wire]:
        """What a broker sends the reader; a hosted one sends on as it is."""
        broker = self.brokers.get(send.peer)
        if broker is None:
            return [send.wire]
        return [onward.wire for onward in sent(broker.handle(Received("site", send.wire), now), "reader")]

    def run(self, until: float) -> list[Effect]:
        effects: list[Effect] = []
        at: float | None = NOW
        while (at := self.site.next_deadline) is not None and at <= until:
            effects += self.handle(Tick(), max(at, NOW) + 0.001)
        return effects


def batch(first: int, count: int, size: int = 100) -> Publication:
    time_ms = int(NOW * 1000)
    made = [
        (n, Publication("plant/t", b"%05d" % n + bytes(size), 1, time_ms=time_ms)) for n in range(first, first + count)
    ]
    return packed("plant/#", [Numbered(*each) for each in made])


def numbers(got: list[bytes]) -> list[int]:
    return [int(payload[:5]) for payload in got]


ALL = {"r1a": 900, "r1b": 900, "r1c": 900}


def test_what_nobody_takes_goes_in_parts_each_record_once_and_in_order(world: World) -> None:
    region = Region(world, dict(ALL))
    effects = region.handle(Committed(((101, 0, batch(101, 20)),)), NOW)
    effects += region.handle(Committed(((121, 101, batch(121, 3)),)), NOW)
    effects += region.run(NOW + 5)
    assert numbers(region.got) == list(range(101, 124))
    assert counted(effects, "batches_cut") == 3
    assert region.forgotten == [101, 121]
    assert region.site.publisher.depth == 0


def test_the_row_on_disk_goes_with_the_last_of_its_parts(world: World) -> None:
    region = Region(world, dict(ALL))
    records = [Publication("plant/t", b"%05d" % n + bytes(size), 1) for n, size in ((101, 10), (102, 2000))]
    uneven = packed("plant/#", [Numbered(101 + at, each) for at, each in enumerate(records)])
    region.handle(Committed(((101, 0, uneven),)), NOW)
    region.run(NOW + 5)
    assert (numbers(region.got), region.forgotten) == ([101], [])
    region.most.clear()
    region.run(NOW + 60)
    assert numbers(region.got) == [101, 102]
    assert region.forgotten == [101]


def test_after_a_restart_what_was_delivered_in_parts_does_not_come_again(world: World) -> None:
    region = Region(world, dict(ALL))
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


@pytest.mark.parametrize("mode", [None, Mode.PLAIN])
def test_what_one_broker_has_is_not_cut_since_readers_may_have_it_and_stays_until_enough_have(
    mode: Mode | None,
) -> None:
    scope = Scope("plant/#") if mode is None else Scope("plant/#", mode)
    region = Region(make_world({1: 3}, [], {"site": 1, "reader": 1}, [scope]), {"r1a": 900, "r1b": 900})
    effects = region.handle(Committed(((101, 0, batch(101, 3)), (104, 101, batch(104, 20)))), NOW)
    effects += region.run(NOW + 20)
    assert counted(effects, "batches_cut") == 0
    assert numbers(region.got) == list(range(101, 124))
    assert region.forgotten == [101]
    region.most.clear()
    region.run(NOW + 120)
    assert region.forgotten == [101, 104]
    assert numbers(region.got) == list(range(101, 124))


@pytest.mark.parametrize(("qos", "cut"), [(1, True), (2, False)])
def test_who_is_away_and_may_have_it_counts_for_qos_2(qos: int, cut: bool) -> None:
    made = make_world({1: 3}, [], {"site": 1}, SCOPES)
    entry = Entry(7, replace(batch(7, 2), qos=qos), made.secrets[0], 0, NOW, too_large_for={"r1a", "r1b"})
    assert may_be_cut(entry, made.overlay.views[1], ["r1a", "r1b"]) is cut
    assert not may_be_cut(entry, made.overlay.views[1], ["r1a", "r1b", "r1c"])
    entry.too_large_for.add("r1c")
    assert may_be_cut(entry, made.overlay.views[1], ["r1a", "r1b"])
    assert not may_be_cut(replace(entry, acked={"r1c"}), made.overlay.views[1], ["r1a", "r1b"])
    lone = replace(entry, publication=batch(7, 1))
    assert not may_be_cut(lone, made.overlay.views[1], ["r1a", "r1b"])


class Refusing:
    """A publisher with one batch in flight, and replicas that find it too large."""

    def __init__(self, world: World, count: int = 5) -> None:
        draw = random.Random(1).randbytes
        site = world.identities["site"]
        self.publisher = Publisher(world.overlay, site, "site", world.secrets, world.keys, draw, OwnLife(1))
        for peer in world.overlay.views[1].members:
            self.publisher.link_up(peer, NOW)
        self.publisher.take_entries([(101, 0, batch(101, count))], NOW)

    def refuse(self, *peers: str, number: int = 101) -> list[Effect]:
        return [e for peer in peers for e in self.publisher.take_refusal(NotTaken(peer, number, Reason.SIZE), NOW)]


def test_a_batch_that_all_refused_goes_in_halves_to_all(world: World) -> None:
    case = Refusing(world)
    assert not counted(case.refuse("r1a", "r1b"), "batches_cut")
    effects = case.refuse("r1c")
    assert counted(effects, "batches_cut") == 1
    for peer in ("r1a", "r1b", "r1c"):
        assert [send.ticket for send in sent(effects, peer)] == [101, 103]
    assert not counted(case.refuse("r1a", "r1b"), "batches_cut")
    assert [send.ticket for send in sent(case.refuse("r1c"), "r1a")] == [101, 102]


def test_a_batch_of_two_goes_in_two_and_one_record_is_not_cut(world: World) -> None:
    case = Refusing(world, 2)
    effects = case.refuse("r1a", "r1b", "r1c")
    assert [send.ticket for send in sent(effects, "r1a")] == [101, 102]
    case.refuse("r1a", "r1b", "r1c")
    assert not counted(case.refuse("r1a", "r1b", "r1c"), "batches_cut")
    assert case.publisher.depth == 2


def test_a_record_that_cannot_be_read_goes_with_no_part(world: World) -> None:
    case = Refusing(world, 1)
    damaged = encode(bytes([1, 1, 1]), [1, 1, 1], [b"plant/t", b"\xff", b"plant/u"], [b""] * 3, [b"x", b"y", b"z"])
    case.publisher.take_entries([(200, 101, replace(batch(200, 3), payload=damaged))], NOW)
    effects = case.refuse("r1a", "r1b", "r1c", number=200)
    assert [send.ticket for send in sent(effects, "r1a")] == [200, 202]


def test_on_a_new_link_a_replica_may_take_larger_packets(world: World) -> None:
    case = Refusing(world)
    case.refuse("r1a", "r1b")
    case.publisher.link_down("r1a")
    case.publisher.link_up("r1a", NOW)
    assert not counted(case.refuse("r1c"), "batches_cut")
    assert counted(case.refuse("r1a"), "batches_cut") == 1


def test_a_key_that_rode_on_a_refused_batch_rides_on_the_next_publication(world: World) -> None:
    case = Refusing(world)
    case.refuse("r1a")
    effects = case.publisher.take_entries([(200, 101, batch(200, 1))], NOW)
    assert {send.peer: PROPERTY_KEY in dict(send.wire.properties) for send in sent(effects)} == {
        "r1a": True, "r1b": False, "r1c": False,
    }  # fmt: skip


@pytest.mark.attack(54)
@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.PLAIN])
def test_f_liars_cut_no_batch_while_the_links_of_all_others_are_down(mode: Mode) -> None:
    """Attack: all replicas got a batch, the links of the honest ones are cut before their acknowledgements, and the one
    that is left says that it is too large. In parts, under other numbers, its records would come a second time."""
    region = Region(make_world({1: 3}, [], {"site": 1, "reader": 1}, [Scope("plant/#", mode)]), {})
    sends = sent(region.site.handle(Committed(((101, 0, batch(101, 20)),)), NOW))
    for send in sends:
        for onward in sent(region.brokers[send.peer].handle(Received("site", send.wire), NOW), "reader"):
            came = region.reader.handle(Received(send.peer, onward.wire), NOW)
            region.got += [each.publication.payload for each in delivered(came)]
    assert numbers(region.got) == list(range(101, 121))
    for honest in ("r1a", "r1b"):
        region.handle(LinkDown(honest), NOW)
    effects = region.handle(NotTaken("r1c", sends[0].ticket, Reason.SIZE), NOW)
    for honest in ("r1a", "r1b"):
        effects += region.handle(LinkUp(honest), NOW + 0.5)
    effects += region.run(NOW + 20)
    assert numbers(region.got) == list(range(101, 121)), "each record once"
    assert (counted(effects, "batches_cut"), region.forgotten) == (0, [101])


def test_a_record_that_nobody_takes_is_not_lost_and_goes_when_they_take_it(world: World) -> None:
    region = Region(world, dict(ALL))
    lone = Publication("plant/t", b"00101" + bytes(2000), 1, time_ms=int(NOW * 1000))
    region.handle(Committed(((101, 0, lone), (102, 101, batch(102, 2)))), NOW)
    region.run(NOW + 50)
    assert region.forgotten == [102]
    assert len(region.tried) < 40, "offered again, ever more seldom"
    region.most.clear()
    region.run(NOW + 120)
    assert region.forgotten == [102, 101]
    assert sorted(numbers(region.got)) == [101, 102, 103]


@pytest.mark.parametrize("hosted", [(), ("r1b",), ("r1a", "r1b", "r1c")], ids=["own", "one", "all"])
@pytest.mark.parametrize("seed", [0, 1, *slow(range(2, 12))])
def test_brokers_that_take_less_and_more_and_go_lose_and_repeat_nothing(seed: int, hosted: tuple[str, ...]) -> None:
    """Parts beside links that break and bounds that move; readers behind brokers of somebody else, too."""
    rng = random.Random(seed)
    region = Region(make_world({1: 3}, [], {"site": 1, "reader": 1}, SCOPES, hosted=hosted), {})
    now, number, previous = NOW, 101, 0
    for _ in range(25):
        name, what = rng.choice(region.names), rng.random()
        if what < 0.35:
            region.most[name] = rng.choice([400, 900, 2_500, 1 << 20])
        elif what < 0.5 and not region.down:
            region.down.add(name)
            region.handle(LinkDown(name), now)
        elif what < 0.7 and region.down:
            back = region.down.pop()
            region.handle(LinkUp(back), now)
        count = rng.randrange(1, 15)
        region.handle(Committed(((number, previous, batch(number, count)),)), now)
        number, previous = number + count, number
        now += rng.uniform(0.0, 3.0)
        region.run(now)
    for back in list(region.down):
        region.down.discard(back)
        region.handle(LinkUp(back), now)
    region.most.clear()
    region.run(now + 200)
    assert numbers(region.got) == list(range(101, number))
    assert region.site.publisher.depth == 0
