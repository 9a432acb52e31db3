"""The judges of a run see every kind of broken promise, and accept what kept them all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import Deliver, Publication
from papers.sim.checkers import check_blame, check_liveness, check_safety

PUBLISHED = {
    sequence: Publication(topic, b"%d" % sequence, 1, properties=(("k", "v"),), time_ms=sequence)
    for sequence, topic in ((1, "a"), (2, "b"), (3, "a"), (4, "a"))
}


def delivered(*sequences: int, late: tuple[int, ...] = ()) -> list[Deliver]:
    return [Deliver("site", sequence, PUBLISHED[sequence], late=sequence in late) for sequence in sequences]


def test_what_is_whole_in_order_on_its_topic_and_once_is_safe() -> None:
    check_safety(PUBLISHED, [])
    check_safety(PUBLISHED, delivered(2, 1, 3, 4))
    check_safety(PUBLISHED, delivered(1, 4, 3, late=(3,)))


@pytest.mark.parametrize("changes", [{"topic": "b"}, {"payload": b"x"}, {"qos": 0}, {"properties": ()}])
def test_what_was_altered_is_seen(changes: dict[str, object]) -> None:
    lie = Deliver("site", 1, replace(PUBLISHED[1], **changes))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="altered"):
        check_safety(PUBLISHED, [lie])


def test_what_nobody_published_is_seen() -> None:
    with pytest.raises(AssertionError, match="nobody published"):
        check_safety(PUBLISHED, [Deliver("site", 9, PUBLISHED[1])])


def test_repetitions_are_seen_even_late_ones() -> None:
    with pytest.raises(AssertionError, match="twice"):
        check_safety(PUBLISHED, delivered(1, 2, 1, late=(1,)))


def test_disorder_on_a_topic_is_seen_also_behind_a_late_one() -> None:
    with pytest.raises(AssertionError, match="out of order"):
        check_safety(PUBLISHED, delivered(3, 1))
    with pytest.raises(AssertionError, match="out of order"):
        check_safety(PUBLISHED, delivered(4, 1, 3, late=(1,)))


def test_what_is_missing_is_named() -> None:
    check_liveness([1, 2], delivered(2, 1, 3))
    with pytest.raises(AssertionError, match=r"2 of 3 publications were lost: \[1, 3\]"):
        check_liveness([1, 2, 3], delivered(2))


def test_an_innocent_who_is_named_is_seen() -> None:
    check_blame({"liar"}, {"liar", "other"})
    with pytest.raises(AssertionError, match="honest"):
        check_blame({"liar", "honest"}, {"liar"})
