"""What of QoS 2 a former life may have sealed."""

from __future__ import annotations

import pytest

from bridge.publisher import sealed_before
from bridge.publisher.sealed_before import RUN_NUMBERS, SealedBefore


def restarted(before: SealedBefore, disk: dict[bytes, bytes]) -> SealedBefore:
    for keep in before.changed_rows():
        for name, row in keep.rows:
            disk.pop(name, None)
            disk.update({} if row is None else {name: row})
    again = SealedBefore()
    again.restore([(b"d of others", b""), *disk.items()])
    return again


def test_each_sealed_number_counts_in_the_next_life_until_nothing_of_its_run_is_left() -> None:
    disk: dict[bytes, bytes] = {}
    before = SealedBefore()
    for number in (5, 7, RUN_NUMBERS * 3, RUN_NUMBERS * 4 - 1):
        before.note_sealed(number)
    assert not before.may_be(5), "in this life it is known of each entry"
    again = restarted(before, disk)
    assert len(disk) == 2
    assert [again.may_be(number) for number in (4, 5, 6, 7, 8)] == [False, True, False, True, False]
    last = (RUN_NUMBERS * 2, RUN_NUMBERS * 3, RUN_NUMBERS * 3 + 1, RUN_NUMBERS * 4 - 1, RUN_NUMBERS * 4)
    assert [again.may_be(number) for number in last] == [False, True, False, True, False]
    again.all_read([6, RUN_NUMBERS * 2])
    third = restarted(again, disk)
    assert [third.may_be(number) for number in (5, RUN_NUMBERS * 3)] == [True, False]
    third.all_read([])
    assert not restarted(third, disk).may_be(5)
    assert disk == {}


def test_numbers_of_two_lives_in_one_run_stay_beside_each_other() -> None:
    disk: dict[bytes, bytes] = {}
    before = SealedBefore()
    before.note_sealed(5)
    again = restarted(before, disk)
    again.note_sealed(6)
    assert not again.may_be(6)
    third = restarted(again, disk)
    assert [third.may_be(number) for number in (5, 6, 7)] == [True, True, False]


def test_a_row_is_written_again_only_for_another_number() -> None:
    before = SealedBefore()
    before.note_sealed(5)
    before.note_sealed(6)
    assert [len(keep.rows) for keep in before.changed_rows()] == [1]
    before.note_sealed(6)
    assert before.changed_rows() == []
    before.note_sealed(7)
    assert [len(keep.rows) for keep in before.changed_rows()] == [1]


def test_of_a_row_of_an_earlier_version_all_numbers_count_as_sealed() -> None:
    again = SealedBefore()
    again.restore([(b"q" + (3).to_bytes(8), b"")])
    ends = (RUN_NUMBERS * 3 - 1, RUN_NUMBERS * 3, RUN_NUMBERS * 4 - 1, RUN_NUMBERS * 4)
    assert [again.may_be(number) for number in ends] == [False, True, True, False]


def test_what_is_below_all_that_is_remembered_counts_as_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_before, "RUNS_MAX", 2)
    before = SealedBefore()
    for run in (1, 2, 3):
        before.note_sealed(run * RUN_NUMBERS)
    assert [before.may_be(run * RUN_NUMBERS) for run in (1, 2, 3, 4)] == [True, False, False, False]


def test_a_row_is_as_long_as_the_highest_of_its_numbers_needs() -> None:
    before = SealedBefore()
    for number in (0, 7, 1024 + 8, 2048 + 1023):
        before.note_sealed(number)
    (kept,) = before.changed_rows()
    assert [len(row or b"") for _, row in kept.rows] == [1, 2, 128]
