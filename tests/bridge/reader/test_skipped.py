"""Whom a reader believes that nothing is missing."""

from __future__ import annotations

from bridge.document.region_view import RegionView
from bridge.reader.skipped import SKIPS_MAX, Skipped

VIEW = RegionView(1, 1, "hall", ("a", "b", "c"))
NAME = b"p" * 16, "plant/a", 9


def test_a_gap_is_bridged_by_f_plus_one_replicas_of_the_view() -> None:
    skipped = Skipped()
    skipped.heard(NAME, "a", 0)
    skipped.heard(NAME, "a", 0)
    skipped.heard(NAME, "stranger", 0)
    assert not skipped.bridges(NAME, 5, VIEW), "one liar, however often, and a stranger"
    skipped.heard(NAME, "b", 6)
    assert not skipped.bridges(NAME, 5, VIEW), "what b left out begins later"
    skipped.heard(NAME, "b", 5)
    assert skipped.bridges(NAME, 5, VIEW)
    assert not skipped.bridges(NAME, 4, VIEW)
    assert not skipped.bridges((b"p" * 16, "plant/b", 9), 5, VIEW)
    skipped.done(NAME)
    assert not skipped.bridges(NAME, 5, VIEW)
    assert len(skipped) == 0


def test_memory_is_bounded() -> None:
    skipped = Skipped()
    for sequence in range(SKIPS_MAX + 10):
        skipped.heard((b"p" * 16, "plant/a", sequence), "a", 0)
    assert len(skipped) == SKIPS_MAX
