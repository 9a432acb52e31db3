"""A gateway gives what a silent replica may not serve to another one, once."""

from __future__ import annotations

from collections import deque

from bridge.contract import Publication, Send, Wire
from bridge.document import Scope
from bridge.publisher.entry import Entry
from bridge.publisher.windows import SLOW_S, Lanes, StandIns
from bridge.wire import PROPERTY_ROUTE
from keys.envelope import Mode
from tests.sim.world import NOW, make_world

WORLD = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#", Mode.PLAIN, planes=True), Scope("open/#", Mode.PLAIN)])
REPLICAS = WORLD.overlay.views[1].members


def entry(sequence: int, scope: int = 0, retain: bool = False) -> Entry:
    publication = Publication("plant/a", b"x", 1, retain)
    return Entry(sequence, publication, WORLD.secrets[scope], 0, NOW, Wire("plant/a", b"x"))


def lanes(*sequences: int, now: float = NOW) -> Lanes:
    """All replicas are up; these numbers are on their way to each."""
    found = Lanes()
    for peer in REPLICAS:
        found.open_lane(peer, ())
    for _, lane in found:
        lane.new = deque((sequence, "plant/a") for sequence in sequences)
        assert lane.take_into_flight(now, lambda sequence: True) == list(sequences)
    return found


def given(sends: list[Send]) -> list[tuple[str, str]]:
    return [(send.peer, dict(send.wire.properties)[PROPERTY_ROUTE]) for send in sends]


def test_another_gets_what_a_silent_replica_has_not_acknowledged() -> None:
    stand_ins, there = StandIns(WORLD.overlay, 1), lanes(1, 2)
    entries = {1: entry(1), 2: entry(2)}
    assert stand_ins.next_deadline(there) == NOW + SLOW_S
    assert stand_ins.sends(entries, there, NOW + SLOW_S / 2) == []
    for peer, lane in there:
        if peer != REPLICAS[1]:
            for sequence in (1, 2):
                lane.note_acknowledged(sequence, NOW)
    found = stand_ins.sends(entries, there, NOW + SLOW_S)
    assert given(found) == [(REPLICAS[0], "2")] * 2
    assert all(send.ticket == 0 for send in found)
    assert stand_ins.sends(entries, there, NOW + SLOW_S) == []
    assert stand_ins.next_deadline(there) is None
    entries[3] = entry(3)
    assert given(stand_ins.sends(entries, there, NOW + SLOW_S)) == [(REPLICAS[0], "2")]


def test_a_replica_whose_link_is_down_is_silent_and_one_that_answers_is_not() -> None:
    stand_ins, there = StandIns(WORLD.overlay, 1), lanes()
    there.close_lane(REPLICAS[0])
    assert given(stand_ins.sends({1: entry(1)}, there, NOW)) == [(REPLICAS[1], "1")]
    there.open_lane(REPLICAS[0], ())
    assert stand_ins.sends({2: entry(2)}, there, NOW) == []


def test_what_is_acknowledged_retained_or_of_another_scope_is_left_out() -> None:
    stand_ins, there = StandIns(WORLD.overlay, 1), lanes()
    there.close_lane(REPLICAS[0])
    acknowledged = entry(1)
    acknowledged.acked.add(REPLICAS[0])
    assert stand_ins.sends({1: acknowledged, 2: entry(2, retain=True), 3: entry(3, scope=1)}, there, NOW) == []


def test_nothing_is_looked_at_where_no_scope_goes_by_planes() -> None:
    overlay = make_world({1: 3}, [], {"site": 1}).overlay
    stand_ins = StandIns(overlay, 1)
    assert stand_ins.next_deadline(lanes(1)) is None
    assert stand_ins.sends({1: entry(1)}, lanes(1), NOW + 9) == []


def test_what_is_new_goes_behind_what_went_and_a_replica_that_came_back_begins_anew() -> None:
    stand_ins, there = StandIns(WORLD.overlay, 1), lanes()
    there.close_lane(REPLICAS[1])
    entries = {number: entry(number) for number in (1, 2, 3)}
    entries[2].wire = None
    sent = stand_ins.sends(entries, there, NOW)
    assert given(sent) == [(REPLICAS[0], "2")] * 2
    entries[1].wire, entries[3].wire = Wire("plant/a", b"one"), Wire("plant/a", b"three")
    there.open_lane(REPLICAS[1], ())
    assert stand_ins.sends(entries, there, NOW) == []
    there.close_lane(REPLICAS[1])
    assert [send.wire.payload for send in stand_ins.sends(entries, there, NOW)] == [b"one", b"three"], "in order"
    assert stand_ins.sends({}, there, NOW) == []


def test_where_all_are_silent_nobody_stands_in() -> None:
    stand_ins, there = StandIns(WORLD.overlay, 1), lanes(1)
    assert stand_ins.sends({1: entry(1)}, there, NOW + SLOW_S) == []
    for _, lane in there:
        lane.note_acknowledged(1, NOW)
    assert stand_ins.next_deadline(there) is None
    stand_ins.adopt_overlay(WORLD.overlay)
    assert stand_ins.sends({2: entry(2)}, there, NOW + SLOW_S) == [], "who has nothing in flight is not silent"
