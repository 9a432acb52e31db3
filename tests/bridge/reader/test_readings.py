"""Readings of one gateway: shared, bounded, stopped. How they read on is in `tests/sim/test_history.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from bridge.contract import (
    HISTORY_TOPIC,
    Acked,
    Deliver,
    Effect,
    Event,
    GoOn,
    HistoryPage,
    HistoryPosition,
    HistoryRequest,
    HoldReading,
    Keep,
    LinkDown,
    LinkUp,
    Pause,
    ReadAgain,
    ReadAgainDone,
    ReadAgainLive,
    Received,
    Reread,
    Restored,
    Send,
    StopReading,
    Subscribed,
    Tick,
    Unsubscribed,
    Wire,
    encode_body,
    tag_of,
)
from bridge.document import History, Scope
from bridge.reader.gaps import GAP_S
from bridge.reader.kept import Rows
from bridge.reader.readings import AWAY_S, OVERLAP_S, READINGS_MAX, Readings
from bridge.reader.waiting import REPAIR_S
from bridge.wire import AHEAD_S
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, from_property, header_of
from keys.errors import BadFrame
from tests.bridge.helpers import counted, gateway, publish
from tests.sim.world import NOW, World, make_world

REPLICAS = ("r1a", "r1b", "r1c")
SCOPES = [Scope("plant/#", history=History(7, 100)), Scope("open/#")]


@pytest.fixture
def readings() -> Readings:
    world = make_world({1: 3}, [], {"desk": 1}, SCOPES)
    from bridge.reader import Collector

    collector = Collector(world.overlay, "desk", world.secrets, world.keys)
    made = Readings(world.overlay, "desk", world.secrets, world.keys, collector, 1 << 20)
    for peer in ("r1a", "r1b", "r1c"):
        made.link_up(peer, NOW)
    return made


def asked(reading: int, since_s: float = NOW - 100, scope: int = 1, owner: str | None = None) -> ReadAgain:
    return ReadAgain(reading, scope, int(since_s * 1000), f"user {reading}" if owner is None else owner)


def test_readings_of_one_scope_and_time_are_one(readings: Readings) -> None:
    assert len(readings.read_again(asked(1), NOW)) == 3
    assert readings.read_again(asked(2), NOW) == []
    assert len(readings.read_again(asked(3, NOW - 500), NOW)) == 3


def test_a_scope_without_a_history_ends_at_once(readings: Readings) -> None:
    assert readings.read_again(asked(1, scope=2), NOW) == [ReadAgainDone(1, False)]
    assert readings.read_again(asked(2, scope=99), NOW) == [ReadAgainDone(2, False)]
    assert not readings


def test_more_than_a_few_wait_for_their_turn(readings: Readings) -> None:
    for number in range(READINGS_MAX):
        assert readings.read_again(asked(number, NOW - 10 * number - 10), NOW)
    assert readings.read_again(asked(99, NOW - 1_000), NOW) == []
    assert readings.read_again(asked(98, NOW - 2_000), NOW) == []
    assert [each for each in readings.stop(0, NOW) if isinstance(each, Send)], "the next one begins"
    for number in (*range(READINGS_MAX), 98, 99):
        readings.stop(number, NOW)
    assert not readings
    assert readings.next_deadline is None


def test_pages_of_nobody_are_dropped_and_what_is_none_is_refused(readings: Readings) -> None:
    page = HistoryPage(5, is_end=True).encode()
    assert readings.take_page(Received("r1a", Wire(HISTORY_TOPIC, page)), NOW) == []
    with pytest.raises(BadFrame):
        readings.take_page(Received("r1a", Wire(HISTORY_TOPIC, b"no page")), NOW)


@pytest.mark.attack(167)
def test_one_owner_that_reads_all_the_time_leaves_places_for_others_and_is_behind_them(readings: Readings) -> None:
    """Attack: one user asks for all of the past, again and again: others waited behind all of that."""
    greedy = [
        bool(readings.read_again(asked(number, NOW - 10 * number - 10, owner="greedy"), NOW)) for number in range(20)
    ]
    assert greedy == [True] * (READINGS_MAX // 2) + [False] * (20 - READINGS_MAX // 2)
    others = [bool(readings.read_again(asked(100 + n, NOW - 1_000 * n - 1_000), NOW)) for n in range(5)]
    assert others == [True, True, True, True, False]
    effects = readings.stop(0, NOW)  # a place of the greedy one
    assert effects
    assert {each.owner for each in readings._queue.values()} == {"greedy"}, "the fifth of the others was first"


def test_one_whose_client_has_no_room_is_no_reason_for_others_to_wait(readings: Readings) -> None:
    for number in range(READINGS_MAX):
        readings.read_again(asked(number, NOW - 10 * number - 10), NOW)
    assert readings.read_again(asked(99, NOW - 1_000), NOW) == []
    assert [each for each in readings.hold_reading(0, True, NOW) if isinstance(each, Send)]


# ------------------------------------------------------------------------------------- a whole gateway that reads


class Desk:
    """A gateway beside replicas that have these records: it asks, and `serve` answers."""

    def __init__(self, world: World, rows: Rows = (), now: float = NOW, links: Sequence[str] = REPLICAS) -> None:
        self.world, self.node = world, gateway(world, "desk", links=False)
        self.asked: list[tuple[str, HistoryRequest]] = []
        self.rows: dict[bytes, bytes | None] = {}
        self.effects: list[Effect] = []
        self.pauses = 0
        if rows:
            self.handle(Restored(tuple(rows)), now)
        for peer in links:
            self.handle(LinkUp(peer), now)
        self.handle(Subscribed("plant/#"), now)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Returns what came of it; requests wait for `serve`."""
        effects = list(self.node.handle(event, now))
        for effect in effects:
            if isinstance(effect, Keep):
                self.rows.update(effect.rows)
            if isinstance(effect, Pause):
                self.pauses += 1
            if isinstance(effect, Send) and effect.wire.topic == HISTORY_TOPIC:
                self.asked.append((effect.peer, HistoryRequest.decode(effect.wire.payload)))
        self.effects += effects
        return effects

    def serve(self, kept: Mapping[str, Sequence[Kept]], now: float, turns: bool = True) -> list[Effect]:
        """Answers all requests, and gives turns, until nothing is asked any more."""
        found: list[Effect] = []
        while self.asked or (turns and self.pauses):
            if self.asked:
                peer, request = self.asked.pop(0)
                page = page_of(request, kept.get(peer, ()))
                found += self.handle(Received(peer, Wire(HISTORY_TOPIC, page.encode())), now)
            else:
                self.pauses -= 1
                found += self.handle(GoOn(), now)
        return found

    def live(self, wires: Mapping[str, Wire], now: float) -> list[Effect]:
        return [effect for peer, wire in wires.items() for effect in self.handle(Received(peer, wire), now)]

    def left(self) -> Rows:
        """Returns the rows for a next process."""
        return [(key, row) for key, row in self.rows.items() if row is not None]


class Kept(NamedTuple):
    """A record of a replica, with the key that it has of it."""

    position: HistoryPosition
    body: bytes
    key: tuple[bytes, bytes]


def page_of(request: HistoryRequest, kept: Sequence[Kept]) -> HistoryPage:
    if request.eras:
        return HistoryPage(request.number, 1, eras=())
    found = [
        each
        for each in kept
        if each.position > request.after
        and each.position.time_ms < request.until_ms
        and (not request.publishers or each.position.publisher in request.publishers)
    ]
    upto = found[-1].position if found else request.after
    keys, bodies = tuple({each.key for each in found}), tuple(each.body for each in found)
    return HistoryPage(request.number, 1, upto=upto, keys=keys, bodies=bodies, is_end=True)


class Site:
    """A publisher, and what each replica keeps of it."""

    def __init__(self, world: World) -> None:
        self._node = gateway(world, "site")
        self._keys: dict[str, tuple[bytes, bytes]] = {}
        self.kept: dict[str, list[Kept]] = {peer: [] for peer in REPLICAS}

    def publish(self, sequence: int, now: float, topic: str = "plant/t") -> dict[str, Wire]:
        wires = publish(self._node, topic, b"%d" % sequence, sequence=sequence, previous=sequence - 1, now=now)
        for peer, wire in wires.items():
            self._node.handle(Acked(peer, sequence), now)
            told = {name: from_property(value) for name, value in wire.properties}
            if PROPERTY_KEY in told:
                self._keys[peer] = told[PROPERTY_KEY], told[PROPERTY_SHARES]
            header = header_of(told["vmq"])
            position = HistoryPosition(
                header.time_ms, header.publisher, header.sequence, tag_of(wire.topic, told["vmq"])
            )
            body = encode_body(wire.topic, told["vmq"], b"", {0: wire.payload})
            self.kept[peer].append(Kept(position, body, self._keys[peer]))
        return wires


@pytest.fixture
def world() -> World:
    return make_world({1: 3}, [], {"desk": 1, "site": 1}, SCOPES)


def numbers(effects: Sequence[Effect]) -> list[int]:
    return [each.sequence for each in effects if isinstance(each, Deliver)]


def reread(effects: Sequence[Effect]) -> list[tuple[tuple[int, ...], list[int]]]:
    return [(each.readings, numbers(each.delivers)) for each in effects if isinstance(each, Reread)]


def said(effects: Sequence[Effect]) -> list[Effect]:
    return [each for each in effects if isinstance(each, ReadAgainLive | ReadAgainDone)]


def away(world: World, away_s: float) -> tuple[Desk, Site, float]:
    """A gateway that had publications 1 and 2, and its successor after so many seconds, in which 3 and 4 came."""
    site, former = Site(world), Desk(world)
    for sequence in (1, 2):
        former.live(site.publish(sequence, NOW), NOW)
    for sequence in (3, 4):
        site.publish(sequence, NOW + 60 * sequence)
    now = NOW + away_s
    return Desk(world, former.left(), now), site, now


def test_clients_that_read_together_hear_all_together_and_once_when_they_are_live(world: World) -> None:
    site, desk = Site(world), Desk(world)
    for sequence in (1, 2, 3):
        site.publish(sequence, NOW - 50 + sequence)
    desk.handle(asked(1), NOW)
    desk.handle(asked(2), NOW)
    effects = desk.serve(site.kept, NOW)
    assert reread(effects) == [((1, 2), [sequence]) for sequence in (1, 2, 3)]
    assert numbers(effects) == [], "nobody else gets them"
    assert said(effects) == [ReadAgainLive(1), ReadAgainLive(2), ReadAgainDone(1, True), ReadAgainDone(2, True)]
    assert numbers(desk.live(site.publish(4, NOW), NOW)) == [4]


def test_one_that_stopped_hears_nothing_more_and_the_other_goes_on(world: World) -> None:
    site, desk = Site(world), Desk(world)
    site.publish(1, NOW - 50)
    desk.handle(asked(1), NOW)
    desk.handle(asked(2), NOW)
    desk.handle(StopReading(1), NOW)
    effects = desk.serve(site.kept, NOW)
    assert reread(effects) == [((2,), [1])]
    assert said(effects) == [ReadAgainLive(2), ReadAgainDone(2, True)]


def test_a_reading_stops_while_one_of_its_clients_has_no_room(world: World) -> None:
    site, desk = Site(world), Desk(world)
    site.publish(1, NOW - 50)
    desk.handle(asked(1), NOW)
    desk.handle(asked(2), NOW)
    for reading in (1, 2):
        desk.handle(HoldReading(reading, True), NOW)
    desk.handle(HoldReading(3, True), NOW)
    assert reread(desk.serve(site.kept, NOW)) == []
    assert reread(desk.handle(HoldReading(1, False), NOW) + desk.serve(site.kept, NOW)) == []
    assert reread(desk.handle(HoldReading(2, False), NOW) + desk.serve(site.kept, NOW)) == [((1, 2), [1])]


def test_one_that_stopped_without_room_holds_nobody_up(world: World) -> None:
    site, desk = Site(world), Desk(world)
    site.publish(1, NOW - 50)
    desk.handle(asked(1), NOW)
    desk.handle(asked(2), NOW)
    desk.handle(HoldReading(1, True), NOW)
    desk.handle(StopReading(1), NOW)
    effects = desk.handle(HoldReading(2, False), NOW) + desk.serve(site.kept, NOW)
    assert reread(effects) == [((2,), [1])]


def test_a_refused_reading_says_so(world: World) -> None:
    desk = Desk(world)
    desk.handle(asked(1), NOW)
    effects: list[Effect] = []
    for peer, request in desk.asked[:2]:
        page = HistoryPage(request.number, 1, is_refused=True)
        effects += desk.handle(Received(peer, Wire(HISTORY_TOPIC, page.encode())), NOW)
    assert said(effects) == [ReadAgainDone(1, False)]


def test_readings_take_turns_and_ask_for_one_at_a_time(world: World) -> None:
    site, desk = Site(world), Desk(world)
    for sequence in (1, 2, 3):
        site.publish(sequence, NOW - 50 + sequence)
    desk.handle(asked(1), NOW)
    desk.handle(asked(2, NOW - 200), NOW)
    assert desk.handle(GoOn(), NOW) == [], "nothing to take yet"
    first = desk.serve(site.kept, NOW, turns=False)
    assert desk.pauses == 1
    turns = [each[0] for each in reread(first + desk.serve(site.kept, NOW))]
    assert turns == [(1,), (2,)] * 3


def test_a_reading_begins_at_the_end_of_the_history_at_most(world: World) -> None:
    desk, seconds = Desk(world), History(7, 100).seconds
    desk.handle(asked(1, NOW - 2 * seconds), NOW)
    assert {request.from_ms for _, request in desk.asked} == {int((NOW - seconds) * 1000)}


@pytest.mark.parametrize("over_s", [0.0, 1.0])
def test_after_a_long_absence_a_gateway_reads_on_where_it_was(world: World, over_s: float) -> None:
    desk, site, now = away(world, AWAY_S + over_s)
    desk.serve(site.kept, now)
    effects = list(desk.effects)
    if not over_s:
        assert numbers(effects) == [], "replicas kept that for it"
        assert counted(effects, "read_on") == 0
        return
    assert numbers(effects) == [3, 4]
    assert counted(effects, "read_on") == 1
    assert numbers(desk.live(site.publish(5, now + 1), now + 1)) == [5]
    assert not desk.asked


def test_reading_on_begins_a_bit_before_the_last_life_sign_and_not_before_the_history(world: World) -> None:
    since = NOW - OVERLAP_S
    assert {each.from_ms for _, each in away(world, AWAY_S + 1)[0].asked} == {int(since * 1000)}
    seconds = History(7, 100).seconds
    assert {each.from_ms for _, each in away(world, seconds + AWAY_S)[0].asked} == {int((NOW + AWAY_S) * 1000)}


def test_live_publications_wait_for_the_end_of_the_reading(world: World) -> None:
    desk, site, now = away(world, AWAY_S + 1)
    wires = site.publish(5, now)
    assert numbers(desk.live(wires, now)) == [], "its number comes by the reading"
    effects = desk.serve({peer: each[:-1] for peer, each in site.kept.items()}, now)
    assert numbers(effects) == [3, 4]
    assert numbers(desk.live(site.publish(6, now), now)) == [], "its predecessor did not come"
    assert numbers(desk.live(wires, now)) == [5, 6]


def test_what_comes_live_in_the_last_lap_follows_it(world: World) -> None:
    desk, site, now = away(world, AWAY_S + 1)
    kept = {peer: list(each) for peer, each in site.kept.items()}
    while not in_last_lap(desk):
        served_once(desk, site, now)
    assert numbers(desk.live(site.publish(5, now), now)) == []
    assert numbers(desk.serve(kept, now)) == [5]


def test_more_than_can_be_kept_in_the_last_lap_makes_one_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.reader.readings.KEPT_WIRES_MAX", 2)
    desk, site, now = away(world, AWAY_S + 1)
    effects: list[Effect] = []
    while not in_last_lap(desk):
        effects += served_once(desk, site, now)
    effects += desk.live(site.publish(5, now), now)
    assert not in_last_lap(desk)
    effects += desk.serve(site.kept, now)
    assert numbers(effects) == [3, 4, 5]


def in_last_lap(desk: Desk) -> bool:
    return any(each.replay.is_last for each in desk.node.readings._own.values())


def served_once(desk: Desk, site: Site, now: float) -> list[Effect]:
    """Answers one request, and gives all turns that are wanted then."""
    peer, request = desk.asked.pop(0)
    effects = desk.handle(Received(peer, Wire(HISTORY_TOPIC, page_of(request, site.kept[peer]).encode())), now)
    while desk.pauses:
        desk.pauses -= 1
        effects += desk.handle(GoOn(), now)
    return effects


def test_a_gateway_that_ends_while_it_reads_on_goes_on_from_there(world: World) -> None:
    desk, site, now = away(world, AWAY_S + 1)
    while not any(each.replay.clock > NOW for each in desk.node.readings._own.values()):
        served_once(desk, site, now)
    next_one = Desk(world, desk.left(), now + 1)
    assert counted(next_one.effects, "read_on") == 1, "however short it was away"
    assert min(each.from_ms for _, each in next_one.asked) > int((NOW - OVERLAP_S) * 1000)
    next_one.serve(site.kept, now + 1)
    assert numbers([*desk.effects, *next_one.effects]) == [3, 4]
    last = Desk(world, next_one.left(), now + 2)
    assert not last.asked, "it was read to the end"


def test_a_wire_that_waited_over_the_absence_is_judged_at_the_end_of_the_reading(world: World) -> None:
    site, former = Site(world), Desk(world)
    former.live(site.publish(1, NOW), NOW)
    lost, waits = site.publish(2, NOW), site.publish(3, NOW)
    former.live(waits, NOW)
    now = NOW + AWAY_S + 1
    desk = Desk(world, former.left(), now)
    assert numbers(desk.effects) == []
    only_one = {peer: each[:1] for peer, each in site.kept.items()}
    effects = desk.serve(only_one, now)
    assert numbers(effects) == []
    assert numbers(desk.live(lost, now)) == [2, 3]


@pytest.mark.parametrize("over_s", [0.0, 1.0])
def test_a_gateway_that_was_cut_off_for_long_reads_on(world: World, over_s: float) -> None:
    site, desk = Site(world), Desk(world)
    desk.live(site.publish(1, NOW), NOW)
    for peer in REPLICAS:
        desk.handle(LinkDown(peer), NOW)
    site.publish(2, NOW + 60)
    now = NOW + AWAY_S + over_s
    desk.handle(LinkUp("r1a"), now)
    assert not desk.asked, "one replica is not enough"
    desk.handle(LinkUp("r1b"), now)
    assert bool(desk.asked) is bool(over_s)
    desk.handle(LinkUp("r1c"), now)
    assert numbers(desk.serve(site.kept, now)) == ([2] if over_s else [])


def test_one_link_that_was_gone_for_long_is_no_absence(world: World) -> None:
    desk = Desk(world)
    desk.handle(LinkDown("r1a"), NOW)
    desk.handle(LinkUp("r1a"), NOW + 2 * AWAY_S)
    assert not desk.asked


def test_a_scope_that_nobody_wants_is_not_read_on(world: World) -> None:
    desk = Desk(world)
    desk.handle(Unsubscribed("plant/#"), NOW)
    for peer in REPLICAS:
        desk.handle(LinkDown(peer), NOW)
    for peer in REPLICAS:
        desk.handle(LinkUp(peer), NOW + 2 * AWAY_S)
    assert not desk.asked


# ----------------------------------------------------------------------------------------------------- gaps


def with_a_gap(world: World) -> tuple[Desk, Site, float]:
    """A gateway that has publications 1 and 3, and has waited for 2 in vain."""
    site, desk = Site(world), Desk(world)
    desk.live(site.publish(1, NOW), NOW)
    site.publish(2, NOW + 1)
    desk.live(site.publish(3, NOW + 2), NOW + 2)
    now = NOW + 2 + REPAIR_S
    assert numbers(desk.handle(Tick(), now)) == []
    return desk, site, now


def test_a_gap_is_read_in_its_span_of_its_publisher_alone(world: World) -> None:
    desk, site, now = with_a_gap(world)
    effects: list[Effect] = []
    while desk.asked and desk.asked[0][1].eras:
        effects += served_once(desk, site, now)
    party = world.identities["site"].party_id
    assert {(each.from_ms, each.until_ms, each.publishers) for _, each in desk.asked} == {
        (int((NOW - AHEAD_S) * 1000), int((NOW + 2) * 1000) + 1, (party,))
    }
    effects += desk.serve(site.kept, now)
    assert [(each.sequence, each.late) for each in effects if isinstance(each, Deliver)] == [(2, False), (3, False)]
    assert numbers(desk.live(site.publish(4, now), now)) == [4]
    assert numbers(desk.effects) == [1, 2, 3, 4]


def test_a_gap_that_nobody_can_fill_is_skipped_at_the_end_and_read_once(world: World) -> None:
    desk, site, now = with_a_gap(world)
    without = {peer: [each[0], each[2]] for peer, each in site.kept.items()}
    effects = desk.serve(without, now)
    assert numbers(effects) == [3]
    desk.live(site.publish(5, now), now)
    assert not desk.asked


def test_a_gap_is_waited_for_no_longer_than_its_time(world: World) -> None:
    desk, _, now = with_a_gap(world)
    at, got = now, list[int]()
    while not got and at < now + 2 * GAP_S:
        at = max(at + 0.1, desk.node.next_deadline or at)
        got = numbers(desk.handle(Tick(), at))
    assert got == [3]
    assert now + GAP_S <= at <= now + GAP_S + 1


def test_no_gap_is_read_without_a_history(world: World) -> None:
    site, desk = Site(world), Desk(world)
    desk.handle(Subscribed("open/#"), NOW)
    desk.live(site.publish(1, NOW, "open/t"), NOW)
    site.publish(2, NOW, "open/t")
    desk.live(site.publish(3, NOW, "open/t"), NOW)
    assert numbers(desk.handle(Tick(), NOW + REPAIR_S)) == [3]
    assert not desk.asked
