"""Lanes: what is late and what is new go in turn, each topic keeps its order, and neither window starves the other."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.publisher.windows import AHEAD_MAX, LATE_WINDOW_MIN, QUEUED_S, WINDOW_MAX, Lane, Lanes
from keys.replay import BLOCK_NUMBERS

pytestmark = pytest.mark.invariant(39)

FAR = BLOCK_NUMBERS << 28


def always(sequence: int) -> bool:
    return True


def late_lane(count: int, topics: int = 10) -> Lane:
    return Lane(deque((n, f"t{n % topics}") for n in range(count)))


def test_late_and_new_go_in_turn():
    lane = late_lane(20)
    for n in range(100, 110):
        lane.append(n, "new", False)
    assert lane.take_into_flight(0.0, always)[:6] == [100, 0, 101, 1, 102, 2]


def test_what_is_new_on_a_late_topic_waits_behind_it_and_only_so_long():
    lane = late_lane(3)
    lane.append(100, "t1", False)
    lane.append(101, "other", False)
    assert lane.take_into_flight(0.0, always) == [101, 0, 1, 2, 100]
    lane.append(102, "t1", False)
    lane.append(103, "t9", True)
    assert lane.take_into_flight(0.0, always) == [102, 103]


def test_a_full_late_window_leaves_room_for_what_is_new():
    lane = late_lane(1_000)
    assert len(lane.take_into_flight(0.0, always)) == LATE_WINDOW_MIN
    lane.append(5_000, "new", False)
    assert lane.take_into_flight(0.0, always) == [5_000]


def test_a_queue_whose_first_may_not_go_stands_still_and_the_other_goes_on():
    lane = late_lane(4)
    for n in range(100, 104):
        lane.append(n, "new", False)
    assert lane.take_into_flight(0.0, lambda sequence: sequence != 1) == [100, 0, 101, 102, 103]
    assert lane.take_into_flight(0.0, lambda sequence: sequence == 1) == [1]


def test_what_may_go_comes_forward_where_both_queues_stand():
    lane = late_lane(6)
    lane.append(100, "new", False)
    assert lane.take_into_flight(0.0, lambda sequence: sequence in (3, 5)) == [], "nobody said that there is some"
    assert lane.take_into_flight(0.0, lambda sequence: sequence in (3, 5), lacked=2) == [3, 5]
    assert lane.take_into_flight(0.0, always) == [100, 0, 1, 2, 4]


def test_what_is_too_far_ahead_to_go_stands_too():
    lane = late_lane(6)
    for block in range(AHEAD_MAX):
        lane._ahead.went(FAR + block * BLOCK_NUMBERS)
    beyond = FAR + AHEAD_MAX * BLOCK_NUMBERS
    lane.append(beyond, "new", False)
    assert lane.take_into_flight(0.0, lambda sequence: sequence in (3, beyond), lacked=2) == [3]


def acknowledge(lane: Lane, rounds: int, took_s: float) -> None:
    now = max(lane.in_flight.values(), default=0.0)
    for _ in range(rounds):
        lane.take_into_flight(now, always)
        now += took_s
        for sequence in list(lane.in_flight):
            lane.note_acknowledged(sequence, now)


def test_the_late_window_grows_to_the_whole_one_while_the_replica_keeps_up_whatever_the_way_takes():
    for way_s in (0.001, 0.5):
        lane = late_lane(100_000)
        acknowledge(lane, 30, way_s)
        assert lane.late_window == WINDOW_MAX


def test_the_late_window_shrinks_while_acknowledgements_queue_and_grows_again():
    lane = late_lane(100_000)
    acknowledge(lane, 30, 0.001)
    acknowledge(lane, 30, 0.001 + 3 * QUEUED_S)
    assert lane.late_window == LATE_WINDOW_MIN
    acknowledge(lane, 30, 0.001)
    assert lane.late_window == WINDOW_MAX


def test_a_clock_that_is_set_back_does_not_hold_the_window_small_for_ever():
    lane = late_lane(100_000)
    lane.take_into_flight(1_000.0, always)
    lane.note_acknowledged(next(iter(lane.in_flight)), 500.0)
    lane.in_flight = dict.fromkeys(lane.in_flight, 500.0)
    acknowledge(lane, 60, 0.2)
    assert lane.late_window == WINDOW_MAX


def test_what_is_new_does_not_run_so_far_ahead_that_replicas_would_drop_what_is_late():
    """However far apart the numbers are, so many blocks of what is new go beside what is late; then it waits."""
    lane, news = late_lane(40 * WINDOW_MAX), [FAR + block * BLOCK_NUMBERS for block in range(AHEAD_MAX + 1)]
    for number, sequence in enumerate(news):
        lane.append(sequence, f"new{number}", False)
    lane.append(news[0] + 1, "new0", False)
    went: list[int] = []
    for _ in range(40):
        for sequence in lane.take_into_flight(0.0, always):
            went += [sequence] if sequence >= FAR else []
            lane.note_acknowledged(sequence, 0.0)
    assert went == news[:-1]
    lane.late.clear()
    assert lane.take_into_flight(0.0, always) == [news[-1], news[0] + 1]


def test_what_is_sealed_anew_waits_for_no_backlog_of_another_scope() -> None:
    """As an epoch ends: a scope that reads from disk keeps nothing of another one waiting, in either order."""
    lane = Lane(deque((number, "plant") for number in range(1_000)))
    for number in range(1_000, 1_004):
        lane.append(number, "live", late=False)
    flying = lane.take_into_flight(0.0, always)
    assert {1_000, 1_001, 1_002, 1_003} <= set(flying)
    for number in flying:
        lane.put_back(number)
    lane.requeue([(number, "live" if number >= 1_000 else "plant") for number in flying])
    lane.append(1_004, "live", late=False)
    again = lane.take_into_flight(0.0, always)
    assert [number for number in again if number >= 1_000] == [1_000, 1_001, 1_002, 1_003, 1_004]
    assert [number for number in again if number < 1_000] == list(range(len(again) - 5)), "the backlog goes on beside"


def test_what_comes_back_by_the_thousand_is_late_and_keeps_nothing_new_waiting() -> None:
    lane = Lane(deque())
    lane.requeue([(number, "plant") for number in range(WINDOW_MAX + 1)])
    lane.append(1_000, "live", late=False)
    assert lane.take_into_flight(0.0, always).index(1_000) <= 1


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("ack"), st.integers(0, 20), st.booleans()),
        st.tuples(st.just("outdate"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("gone"), st.integers(0, 3), st.booleans()),
    ),
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_each_topic_is_taken_in_order_and_nothing_is_lost_or_taken_twice(given_steps):
    """By when they were taken first: what is sealed anew may have been overtaken by what was acknowledged before."""
    lanes = Lanes()
    lanes.open_lane("a", [])
    ((_, lane),) = lanes
    topics: dict[int, str] = {}
    gone: set[int] = set()
    taken: list[int] = []
    sequence = outdated = 0
    for what, number, late in given_steps:
        if what == "append":
            sequence += 1
            topics[sequence] = f"t{number}"
            lanes.append(sequence, f"t{number}", late)
        elif what == "ack":
            for flying in list(lane.in_flight)[:number]:
                lanes.note_acknowledged("a", flying, 0.0)
        elif what == "outdate":
            again = list(lane.in_flight)[-number:] if number else []
            for flying in again:
                lanes.outdate(flying)
            outdated += len(again)
            lanes.requeue([(s, topics[s]) for s in again], lambda peer, s: True)
        else:
            gone |= {s for s in topics if s % 5 == number and s not in taken}
            lane.keep_waiting((set(topics) - gone).__contains__)
        taken += lane.take_into_flight(0.0, always)
    while len(lane):
        for flying in list(lane.in_flight):
            lane.note_acknowledged(flying, 0.0)
        taken += lane.take_into_flight(0.0, always)
    assert set(topics) - gone <= set(taken) <= set(topics)
    assert len(taken) - len(set(taken)) == outdated
    for topic in set(topics.values()):
        of_topic = [s for s in dict.fromkeys(taken) if topics[s] == topic]
        assert of_topic == sorted(of_topic)


def test_an_answer_to_a_former_sealing_counts_for_nothing_and_is_counted_off() -> None:
    lanes = Lanes()
    lanes.open_lane("a", [(1, "t")])
    ((_, lane),) = lanes
    for _ in range(2):
        lane.take_into_flight(0.0)
        lanes.outdate(1)
        assert not lane.in_flight
        lanes.requeue([(1, "t")], lambda peer, sequence: True)
    lane.take_into_flight(0.0)
    assert [lanes.note_acknowledged("a", 1, 0.0) for _ in range(3)] == [False, False, True]
    assert not lane.in_flight
    lanes.outdate(1)
    assert lanes.note_acknowledged("a", 1, 0.0), "it was not on its way"
    assert lanes.note_acknowledged("nobody", 1, 0.0)


def test_a_refusal_of_a_former_sealing_or_of_nobody_counts_for_nothing() -> None:
    lanes = Lanes()
    lanes.open_lane("a", [(1, "t")])
    ((_, lane),) = lanes
    lane.take_into_flight(0.0)
    lanes.outdate(1)
    assert [lanes.note_refused("a", 1), lanes.note_refused("a", 1), lanes.note_refused("b", 1)] == [False, True, False]
    lanes.requeue([(1, "t")], lambda peer, sequence: True)
    lane.take_into_flight(0.0)
    assert lanes.note_refused("a", 1)
    assert not lane.in_flight


def test_what_is_withdrawn_is_nowhere_and_what_comes_back_goes_to_who_lacks_it() -> None:
    lanes = Lanes()
    for peer in "ab":
        lanes.open_lane(peer, [(number, "t") for number in range(1, 5)])
    assert lanes.is_any_back()
    assert not lanes.is_any_back(), "said once"
    of = dict(lanes)
    assert [lane.take_into_flight(0.0, lambda sequence: sequence < 3) for lane in of.values()] == [[1, 2], [1, 2]]
    lanes.withdraw(set())
    lanes.withdraw({2, 3})
    assert [list(lane.in_flight) for lane in of.values()] == [[1], [1]]
    assert [len(lane) for lane in of.values()] == [1, 1]
    lanes.requeue([(1, "t"), (2, "t"), (3, "t")], lambda peer, sequence: peer == "a" or sequence == 3)
    assert [lane.take_into_flight(0.0) for lane in of.values()] == [[2, 3, 4], [3, 4]]
    lanes.close_lane("a")
    assert len(lanes) == 1


def test_long_queues_forget_what_is_gone_and_short_ones_are_left_alone() -> None:
    lanes = Lanes()
    lanes.open_lane("a", [(number, "t") for number in range(WINDOW_MAX + 4)])
    lanes.keep_waiting(lambda sequence: sequence < 2, 2)
    assert len(dict(lanes)["a"]) == WINDOW_MAX + 4
    lanes.append(WINDOW_MAX + 4, "t", True)
    lanes.keep_waiting(lambda sequence: sequence < 2, 2)
    assert len(dict(lanes)["a"]) == 2


def test_an_entry_that_is_put_back_frees_the_late_window() -> None:
    lane = late_lane(1_000)
    (first, *_) = lane.take_into_flight(0.0)
    assert lane.take_into_flight(0.0) == []
    lane.put_back(first)
    assert len(lane.take_into_flight(0.0)) == 1


def test_so_much_may_be_in_flight_and_no_more() -> None:
    lane = Lane(deque())
    for number in range(WINDOW_MAX + 1):
        lane.append(number, "t", False)
    assert len(lane.take_into_flight(0.0)) == WINDOW_MAX
    assert lane.take_into_flight(0.0) == []
    lane.note_acknowledged(0, 0.0)
    assert lane.take_into_flight(0.0) == [WINDOW_MAX]


def test_who_lacks_nothing_sendable_beyond_what_flies_gets_nothing_forward() -> None:
    lane = late_lane(6)
    assert lane.take_into_flight(0.0, lambda sequence: sequence == 0, lacked=1) == [0]
    assert lane.take_into_flight(0.0, lambda sequence: sequence == 3, lacked=1) == [], "that one is on its way"
    assert lane.take_into_flight(0.0, lambda sequence: sequence == 3, lacked=2) == [3]


def test_once_all_that_was_late_went_a_scope_is_new_again():
    lane = Lane(deque())
    for number in (1, 2):
        lane.append(number, "t", True)
    lane.append(3, "t", False)
    assert list(lane.late) == [(1, "t"), (2, "t"), (3, "t")]
    assert lane.take_into_flight(0.0, always) == [1, 2, 3]
    lane.append(4, "t", False)
    assert (list(lane.late), list(lane.new)) == ([], [(4, "t")])


def test_what_ran_ahead_of_late_entries_counts_no_more_when_others_are_late():
    lane = late_lane(1)
    for block in range(AHEAD_MAX):
        lane._ahead.went(FAR + block * BLOCK_NUMBERS)
    lane.keep_waiting(lambda sequence: sequence != 0)
    lane.append(1, "t", True)
    beyond = FAR + AHEAD_MAX * BLOCK_NUMBERS
    lane.append(beyond, "new", False)
    assert lane.take_into_flight(0.0, always) == [beyond, 1]


def test_a_link_that_is_back_is_told_once():
    lanes = Lanes()
    assert not lanes.is_any_back()
    lanes.open_lane("a", [])
    assert [lanes.is_any_back(), lanes.is_any_back()] == [True, False]


@pytest.mark.parametrize(("sendable", "taken"), [((1,), [1]), ((101,), [101]), ((1, 101), [101, 1]), ((0,), [0])])
def test_behind_two_queues_that_stand_all_that_may_go_does(sendable: tuple[int, ...], taken: list[int]):
    """And where one of them goes, nothing comes forward: each keeps its order."""
    lane = late_lane(3)
    for number in (100, 101):
        lane.append(number, "new", False)
    assert lane.take_into_flight(0.0, lambda sequence: sequence in sendable, lacked=2) == taken


def test_what_a_peer_lacks_goes_in_order_in_whichever_order_it_is_named():
    lanes = Lanes()
    lanes.open_lane("a", [(3, "t"), (1, "u"), (2, "t")])
    assert lanes.lanes["a"].take_into_flight(0.0, always) == [1, 2, 3]


def test_nothing_stands_in_an_empty_lane():
    asked: list[int] = []
    assert Lane(deque()).take_into_flight(0.0, lambda sequence: bool(asked.append(sequence)), lacked=5) == []
    assert asked == []
