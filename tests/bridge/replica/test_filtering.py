"""What one replica says about what it left out."""

from __future__ import annotations

import pytest

from bridge.replica.filtering import GIVEN_MAX, RUNS_MAX, VOTES_MAX, Filtering
from keys.message import NO_KEY, MessageHeader, Mode

pytestmark = pytest.mark.invariant(37)

TOPIC = "plant/a"


def header(sequence: int, previous: int, qos: int = 1) -> MessageHeader:
    return MessageHeader(b"p" * 16, NO_KEY, sequence, previous, 1, 0, qos, False, False, Mode.PLAIN, (bytes(32),))


def claim(filtering: Filtering, peer: str, sequence: int, previous: int, topic: str = TOPIC) -> int | None:
    return filtering.claim(peer, topic, header(sequence, previous))


def to(*peers: str) -> dict[str, tuple[str, ...]]:
    """Given to these, each on its own way."""
    return {peer: (peer,) for peer in peers}


def test_a_run_that_was_left_out_is_told_beside_the_next() -> None:
    filtering = Filtering()
    filtering.passes(TOPIC, header(1, 0), to("one", "two"), [])
    filtering.passes(TOPIC, header(4, 1), to("two"), ["one"])
    filtering.passes(TOPIC, header(6, 4), to("two"), ["one"])
    filtering.passes(TOPIC, header(9, 6), to("one", "two"), [])
    assert claim(filtering, "one", 9, 6) == 1
    assert claim(filtering, "two", 9, 6) is None
    assert claim(filtering, "one", 9, 6, "plant/b") is None
    filtering.passes(TOPIC, header(10, 9), to("one", "two"), [])
    assert claim(filtering, "one", 10, 9) is None


def test_what_never_came_is_not_vouched_for() -> None:
    filtering = Filtering()
    filtering.passes(TOPIC, header(4, 3), {}, ["one"])  # 3 was lost, or came while the peer was away
    filtering.passes(TOPIC, header(9, 6), to("one"), [])
    assert claim(filtering, "one", 9, 6) is None
    filtering.passes(TOPIC, header(10, 4), to("one"), [])
    assert claim(filtering, "one", 10, 4) == 3


def test_nothing_follows_a_publication_of_qos_0() -> None:
    filtering = Filtering()
    filtering.passes(TOPIC, header(2, 1, qos=0), {}, ["one"])
    filtering.passes(TOPIC, header(3, 1), to("one"), [])
    assert claim(filtering, "one", 3, 1) is None


def test_what_others_left_out_counts_once_enough_say_so() -> None:
    filtering = Filtering()
    filtering.passes(TOPIC, header(1, 0), to("one"), [])
    assert filtering.take_gap_word(TOPIC, header(9, 6), "r1a", 0, 2) == []
    filtering.passes(TOPIC, header(9, 6), to("one"), [])
    assert claim(filtering, "one", 9, 6) is None
    assert filtering.take_gap_word(TOPIC, header(9, 6), "r1a", 0, 2) == [], "one replica speaks once"
    assert filtering.take_gap_word(TOPIC, header(9, 6), "r1b", 1, 2) == [("one", 9)]
    assert claim(filtering, "one", 9, 6) == 1
    assert filtering.take_gap_word(TOPIC, header(9, 6), "r1c", 1, 2) == [], "it is known"


def test_what_others_and_we_left_out_is_one_run() -> None:
    filtering = Filtering()
    filtering.passes(TOPIC, header(4, 2), {}, ["one"])  # 2 was left out by those before us
    filtering.passes(TOPIC, header(5, 4), to("one"), [])
    filtering.passes(TOPIC, header(8, 7), to("one"), [])  # and so were 6 and 7
    assert claim(filtering, "one", 5, 4) == 2
    assert filtering.take_gap_word(TOPIC, header(4, 2), "r1a", 1, 1) == [("one", 5)]
    assert claim(filtering, "one", 5, 4) == 1
    assert filtering.take_gap_word(TOPIC, header(8, 7), "r1a", 5, 1) == [("one", 8)]


def test_memory_is_bounded_and_what_is_forgotten_is_not_vouched_for() -> None:
    filtering = Filtering()
    for at in range(1, 4 * RUNS_MAX, 2):
        filtering.passes(TOPIC, header(at + 1, at), {}, ["one"])
        filtering.take_gap_word(TOPIC, header(at + 1, at), "r1a", at - 1, 2)
    for at in range(GIVEN_MAX + 1):
        filtering.passes(TOPIC, header(1000 + at, 4), to("one"), [])
    assert claim(filtering, "one", 1000, 4) is None
    stream = filtering._streams.get((b"p" * 16, TOPIC))
    assert stream is not None
    assert len(stream.votes) <= VOTES_MAX
    assert all(len(runs) <= RUNS_MAX for runs in stream.left_out.values())


def test_who_is_no_member_any_more_is_forgotten() -> None:
    filtering = Filtering()
    filtering.passes(TOPIC, header(2, 1), {}, ["one", "two"])
    filtering.forget_all_but({"two"}, {b"p" * 16})
    filtering.passes(TOPIC, header(3, 2), to("one", "two"), [])
    assert claim(filtering, "one", 3, 2) is None
    assert claim(filtering, "two", 3, 2) == 1
    filtering.forget_all_but({"two"}, set())
    assert len(filtering) == 0


def test_a_copy_for_several_ways_says_what_was_left_out_on_all_of_them() -> None:
    filtering = Filtering()
    filtering.passes(TOPIC, header(1, 0), {"x": ("one",)}, ["two"])
    filtering.passes(TOPIC, header(2, 1), {}, ["one", "two"])
    filtering.passes(TOPIC, header(3, 2), {"x": ("one", "two"), "y": ("two",)}, [])
    assert claim(filtering, "x", 3, 2) == 1
    assert claim(filtering, "y", 3, 2) == 0


def test_one_that_is_believed_alone_is_believed_of_its_ways_only() -> None:
    filtering = Filtering()
    filtering.passes(TOPIC, header(6, 5), {"x": ("one",), "y": ("two",)}, [])
    assert filtering.believed(TOPIC, header(6, 5), 2, ["one"]) == [("x", 6)]
    assert claim(filtering, "x", 6, 5) == 2
    assert claim(filtering, "y", 6, 5) is None
    assert filtering.believed(TOPIC, header(6, 5), 2, ["one"]) == []


def test_a_word_on_a_publication_that_passed_long_ago_is_told_all_the_same() -> None:
    filtering = Filtering()
    for number in range(4, 4 * RUNS_MAX, 4):  # of each four, two are left out here and one before us
        filtering.passes(TOPIC, header(number, number - 2), to("one"), [])
        filtering.passes(TOPIC, header(number + 1, number), to("two"), ["one"])
    first = header(4, 2)
    assert filtering.believed(TOPIC, first, 0, ["one"]) == []
    assert filtering.believed(TOPIC, first, 0, ["one"], is_passed=True) == [("one", 4)]
    assert claim(filtering, "one", 4, 2) == 0
    second = header(8, 6)
    assert filtering.believed(TOPIC, second, 5, ["one"], is_passed=True) == [("one", 8)]
    assert claim(filtering, "one", 8, 6) == 4
    last = 4 * RUNS_MAX - 3
    assert filtering.believed(TOPIC, header(last, last - 1), last - 2, ["one"], is_passed=True) == [], "it was left out"


def test_a_word_on_one_way_of_a_copy_for_several_says_nothing_of_the_others() -> None:
    filtering = Filtering()
    filtering.passes(TOPIC, header(6, 5), {"one": ("one", "two")}, [])
    assert filtering.believed(TOPIC, header(6, 5), 2, ["one"], is_passed=True) == []
    assert claim(filtering, "one", 6, 5) is None
    assert filtering.believed(TOPIC, header(6, 5), 3, ["two"], is_passed=True) == [("one", 6)]
    assert claim(filtering, "one", 6, 5) == 3
