"""What becomes of acknowledgements when the home region has another view."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from bridge.document.region_view import RegionView
from bridge.publisher.entry import Standing, has_enough
from bridge.publisher.resealing import AWAY_S, STRAGGLERS_MAX, YOUNG_MAX, hand_over
from bridge.publisher.residents import Residents
from tests.bridge.helpers import NOW

BEFORE = RegionView(1, 1, "home", ("a", "b", "c"))
LARGER = RegionView(1, 2, "home", ("a", "b", "c", "d"))
CHANGED = RegionView(1, 2, "home", ("b", "c", "d"))
SMALLER = RegionView(1, 2, "home", ("b", "c"))


@dataclass
class Sealed:
    """As much of an entry as counts here. `key`: anything, or None for what is sent in clear."""

    acked: set[str]
    key: object | None = "key"
    standing: Standing = Standing.SEALED
    sequence: int = 1
    size: int = 10
    sealed_ms: int = int((NOW - AWAY_S - 1) * 1000)
    had_enough: bool = False
    residents: Residents = field(default_factory=Residents)

    def __post_init__(self) -> None:
        self.residents.add_entry(self)


def after(entry: Sealed, view: RegionView, up: str = "abc") -> tuple[set[str], Standing]:
    hand_over([entry], entry.residents, BEFORE, view, set(up), NOW)  # type: ignore[list-item]
    return entry.acked, entry.standing


def test_what_one_that_left_may_not_have_goes_to_all_anew() -> None:
    """Who stays may hold too few honest shares of it."""
    entry = Sealed({"b", "c"})
    assert after(entry, CHANGED) == (set(), Standing.FRESH)
    assert after(Sealed({"b", "c"}), SMALLER) == (set(), Standing.FRESH)
    assert entry.residents.lacked_by("b") == 0, "it is no sealed entry that b lacks"


@pytest.mark.attack(132)
def test_of_what_enough_have_only_the_newest_goes_to_all_anew_when_one_that_was_away_leaves() -> None:
    """All of it would go before what is new: who replaces a replica that died would stop all publications."""
    residents = Residents()
    entries = [
        Sealed({"b", "c"}, sequence=sequence, standing=Standing.SETTLED, residents=residents)
        for sequence in range(STRAGGLERS_MAX + 2, 0, -1)
    ]
    hand_over(entries, residents, BEFORE, CHANGED, {"b", "c"}, NOW)  # type: ignore[arg-type]
    assert [entry.sequence for entry in entries if entry.standing is Standing.SETTLED] == [2, 1]
    assert all(entry.acked == {"b", "c", "d"} for entry in entries[-2:]), "the newcomer need not have it"
    assert not any(entry.acked for entry in entries[:-2])


@pytest.mark.attack(135)
def test_so_is_what_is_so_young_that_a_slow_link_may_be_why_one_lacks_it() -> None:
    residents, young = Residents(), int((NOW - AWAY_S + 0.1) * 1000)
    entries = [
        Sealed({"b", "c"}, sequence=sequence, standing=Standing.SETTLED, sealed_ms=young, residents=residents)
        for sequence in range(YOUNG_MAX + 2, 0, -1)
    ]
    hand_over(entries, residents, BEFORE, CHANGED, {"a", "b", "c"}, NOW)  # type: ignore[arg-type]
    assert [entry.sequence for entry in entries if entry.standing is Standing.SETTLED] == [2, 1]
    assert entries[0].had_enough, "replicas may take another sealing for a repetition"


@pytest.mark.attack(135)
def test_another_version_with_the_same_view_changes_nothing_however_much_one_lacks() -> None:
    residents = Residents()
    entries = [
        Sealed({"b", "c"}, sequence=sequence, standing=Standing.SETTLED, residents=residents)
        for sequence in range(YOUNG_MAX + 2, 0, -1)
    ]
    hand_over(entries, residents, BEFORE, replace(BEFORE, signature=b"later"), {"b", "c"}, NOW)  # type: ignore[arg-type]
    assert all(entry.acked == {"b", "c"} for entry in entries)


def test_what_all_that_left_have_keeps_its_acknowledgements() -> None:
    assert after(Sealed({"a"}), CHANGED) == ({"a"}, Standing.SEALED)


def test_what_is_sent_in_clear_needs_no_shares_of_anybody() -> None:
    assert after(Sealed({"b"}, key=None), CHANGED) == ({"b"}, Standing.SEALED)


def test_newcomers_need_not_have_what_none_but_those_that_are_away_lack() -> None:
    assert after(Sealed({"a", "b"}), LARGER, up="ab")[0] == {"a", "b", "d"}
    assert after(Sealed({"a", "b"}), LARGER, up="abc")[0] == {"a", "b"}, "c is there, and it is still on its way to it"
    assert after(Sealed({"a"}), LARGER, up="a")[0] == {"a"}, "too few have it"


def test_without_a_change_of_members_nothing_happens() -> None:
    same = RegionView(1, 2, "home", ("c", "b", "a"))
    assert after(Sealed({"a", "b"}), same, up="ab") == ({"a", "b"}, Standing.SEALED)


@pytest.mark.parametrize(("acked", "enough"), [("", False), ("a", False), ("ab", True), ("abc", True), ("axy", False)])
def test_n_minus_f_of_the_view_are_enough(acked: str, enough: bool) -> None:
    assert has_enough(Sealed(set(acked)), BEFORE) is enough  # type: ignore[arg-type]


def test_of_four_three_are_enough() -> None:
    assert not has_enough(Sealed({"a", "b"}), LARGER)  # type: ignore[arg-type]
    assert has_enough(Sealed({"a", "b", "d"}), LARGER)  # type: ignore[arg-type]
