"""The gaps of one reader: few at once, fair by publisher, each ended once."""

from __future__ import annotations

import pytest

from bridge.document import History, Scope
from bridge.reader.gaps import GAPS_BURST, GAPS_MAX, Gap, Gaps

NOW = 1_800_000_000.0


def a_gap(publisher: int, stream: int = 1) -> Gap:
    party = bytes([publisher]) * 16
    scope = Scope("plant/#", number=stream, history=History(7, 100))
    return Gap(((party, f"{stream}"),), scope, (party,), NOW - 100, int(NOW * 1000), NOW + 60)


def test_one_gap_of_a_publisher_and_few_of_all_are_read_at_once() -> None:
    gaps = Gaps()
    assert gaps.open_gap(a_gap(0), NOW)
    assert not gaps.open_gap(a_gap(0, 2), NOW)
    assert all(gaps.open_gap(a_gap(n), NOW) for n in range(1, GAPS_MAX))
    assert not gaps.open_gap(a_gap(99), NOW)
    gaps.end_gap(gaps.fresh[0])
    assert gaps.open_gap(a_gap(99), NOW)


@pytest.mark.attack(175)
def test_a_publisher_that_signs_gaps_without_end_leaves_others_their_part() -> None:
    """Attack: each gap makes all replicas read their disks, and this reader judge what they find."""
    gaps, read = Gaps(), 0
    for _ in range(1_000):
        gap = a_gap(1)
        read += gaps.open_gap(gap, NOW)
        gaps.end_gap(gap)
    assert 0 < read <= GAPS_BURST / 2
    assert gaps.open_gap(a_gap(2), NOW)


def test_an_ended_gap_is_nowhere_any_more() -> None:
    gaps = Gaps()
    first, other = a_gap(1), a_gap(2, 2)
    assert gaps.open_gap(first, NOW)
    assert gaps.open_gap(other, NOW)
    gaps.end_of(1)
    assert first.is_over
    assert gaps.get(first.streams[0]) is None
    assert gaps.get(other.streams[0]) is other
    assert gaps.fresh == [other]
    gaps.end_gap(first)
    assert gaps.fresh == [other]
