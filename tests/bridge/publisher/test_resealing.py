"""What is sealed anew, and that nobody counts as having it until then."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.contract.machine import Publication, Wire
from bridge.document.policy import Scope
from bridge.publisher.entry import Entry, Standing
from bridge.publisher.resealing import AWAY_S, BACK_AFTER_S, STRAGGLERS_MAX, is_on_its_way, outdated, unseal
from bridge.publisher.residents import Residents
from bridge.publisher.windows import RESEAL_AFTER_S, Lanes
from keys.epochs import KeyName
from tests.sim.world import NOW, make_world

MADE = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")])
VIEW = MADE.overlay.views[1]
R1, R2, R3 = VIEW.members


def sealed(acked: set[str], age_s: float = 0.0) -> Entry:
    entry = Entry(7, Publication("plant/t", b"x", 1), MADE.secrets[0], 0, NOW, sealed_ms=int((NOW - age_s) * 1000))
    entry.wire, entry.acked, entry.standing = Wire("t", b""), acked, Standing.SEALED
    entry.name = KeyName("plant/#", 7, 0)
    return entry


def judging(is_current: bool, epoch_only: bool = False, within_grace: bool = False) -> Any:
    """As much of a sealer as counts here."""
    return SimpleNamespace(
        is_current=lambda _: is_current,
        is_current_but_for_its_epoch=lambda _: epoch_only,
        calendar=SimpleNamespace(
            grace_s=0, may_seal=lambda _epoch, _now: within_grace, end_s=lambda _epoch: NOW - AWAY_S
        ),
    )


@pytest.mark.parametrize(
    ("entry", "sealer", "found"),
    [
        (sealed(set()), judging(True), ([], [])),
        (sealed(set()), judging(False), ([7], [])),
        (sealed({R1}, RESEAL_AFTER_S + 1), judging(True), ([7], [])),
        (sealed({R1, R2}, RESEAL_AFTER_S + 1), judging(True), ([], [])),
        (sealed({R1, R2}), judging(False), ([7], [])),
        (sealed({R1}), judging(False, epoch_only=True, within_grace=True), ([7], [])),
        (sealed({R1, R2}), judging(False, epoch_only=True, within_grace=True), ([], [])),
        (sealed({R1, R2}, AWAY_S), judging(False, epoch_only=True), ([7], [])),
        (sealed({R1, R2}, AWAY_S + 1), judging(False, epoch_only=True), ([], [7])),
        (sealed({R1, R2, R3}), judging(False), ([], [])),
    ],
    ids=[
        "as it is",
        "otherwise now",
        "old",
        "old, and enough have it",
        "otherwise now, and enough have it",
        "its epoch has ended",
        "its epoch has ended, enough have it, and the others still take it",
        "its epoch and its grace are over, and enough have it, but not for long",
        "its epoch and its grace are over, and enough have it",
        "all have it",
    ],
)
def test_which_is_sealed_anew(entry: Entry, sealer: Any, found: tuple[list[int], list[int]]) -> None:
    lanes = Lanes()
    for peer in VIEW.members:
        lanes.open_lane(peer, [])
    assert outdated({7: entry}, sealer, VIEW, lanes, NOW) == found


@pytest.mark.attack(113)
def test_what_was_on_its_way_when_a_link_went_is_sealed_anew_once_one_is_back() -> None:
    """Readers who hear of its publisher first take what is older for a replay. It is sealed anew once for each link
    that is back, and what is younger, or enough replicas have, is not."""
    lanes = Lanes()
    sealer = judging(True)
    old, young, enough = sealed({R1}, BACK_AFTER_S + 1), sealed(set(), BACK_AFTER_S), sealed({R1, R2}, BACK_AFTER_S + 1)
    entries = {1: old, 2: young, 3: enough}
    lanes.open_lane(R3, [])
    assert outdated(entries, sealer, VIEW, lanes, NOW) == ([1], [])
    assert outdated(entries, sealer, VIEW, lanes, NOW) == ([], [])
    lanes.close_lane(R3)
    assert outdated(entries, sealer, VIEW, lanes, NOW) == ([], [])
    lanes.open_lane(R3, [])
    assert outdated(entries, sealer, VIEW, lanes, NOW) == ([1], [])


def test_of_what_enough_have_only_the_newest_is_sealed_anew_and_all_that_too_few_have() -> None:
    """In order of numbers, whatever that of the entries: what became a void stands last."""
    lanes = Lanes()
    for peer in VIEW.members:
        lanes.open_lane(peer, [])
    sealer = judging(False)
    many = STRAGGLERS_MAX + 5
    entries = {sequence: replace(sealed({R1, R2}, AWAY_S + 1), sequence=sequence) for sequence in range(many, 0, -1)}
    entries[2] = sealed({R1})
    again, settled = outdated(entries, sealer, VIEW, lanes, NOW)
    assert again == [2, *range(many - STRAGGLERS_MAX + 1, many + 1)]
    assert sorted(settled) == [1, 3, 4, 5]
    lanes.close_lane(R3)
    assert outdated(entries, sealer, VIEW, lanes, NOW) == ([2], []), "nobody is there who lacks the others"


def test_who_had_it_counts_no_more_nor_what_is_on_its_way() -> None:
    entry, residents, lanes = sealed({R1}), Residents(), Lanes()
    residents.add_entry(entry)
    lanes.open_lane(R2, [(7, entry.chain)])
    next(lane for _, lane in lanes).take_into_flight(NOW, lambda _: True)
    unseal([7, 7], {7: entry}, residents, lanes)
    assert (entry.wire, entry.acked, entry.standing) == (None, set(), Standing.FRESH)
    assert not lanes.note_acknowledged(R2, 7, NOW), "of the former sealing"
    assert lanes.note_acknowledged(R2, 7, NOW)


@pytest.mark.parametrize(
    ("acked", "age_s", "sealer", "is_on"),
    [
        ({R1, R2}, 0, judging(False, epoch_only=True, within_grace=True), True),
        ({R1, R2}, AWAY_S, judging(False, epoch_only=True, within_grace=True), True),
        ({R1, R2}, AWAY_S + 1, judging(False, epoch_only=True, within_grace=True), False),
        ({R1}, 0, judging(False, epoch_only=True, within_grace=True), False),
        ({R1, R2, R3}, 0, judging(False, epoch_only=True, within_grace=True), False),
        ({R1, R2}, 0, judging(False, epoch_only=True), False),
        ({R1, R2}, 0, judging(False, within_grace=True), False),
        ({R1, R2}, 0, judging(True, epoch_only=True, within_grace=True), False),
    ],
)
def test_what_enough_have_is_on_its_way_to_the_other_while_its_epoch_counts(
    acked: set[str], age_s: float, sealer: Any, is_on: bool
) -> None:
    assert is_on_its_way(sealed(acked, age_s), sealer, VIEW, NOW) is is_on
    sealer.calendar.grace_s = 60
    assert is_on_its_way(sealed(acked, age_s), sealer, VIEW, NOW) is (is_on or age_s > AWAY_S)
