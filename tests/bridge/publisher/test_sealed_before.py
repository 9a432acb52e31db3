"""What of QoS 2 a former life may have sealed, by runs of numbers."""

from __future__ import annotations

import pytest

from bridge.publisher import sealed_before
from bridge.publisher.sealed_before import RUN_NUMBERS, SealedBefore


def restarted(before: SealedBefore, disk: dict[bytes, bytes]) -> SealedBefore:
    for keep in before.changes():
        for name, row in keep.rows:
            disk.pop(name, None)
            disk.update({} if row is None else {name: row})
    again = SealedBefore()
    again.restore([(b"d of others", b""), *disk.items()])
    return again


def test_a_run_is_written_once_and_counts_in_the_next_life_until_nothing_of_it_is_left() -> None:
    disk: dict[bytes, bytes] = {}
    before = SealedBefore()
    before.sealed(5)
    assert len(before.changes()[0].rows) == 1
    before.sealed(6)
    assert before.changes() == []
    before.sealed(RUN_NUMBERS * 3)
    assert not before.may_be(5), "in this life it is known of each entry"
    again = restarted(before, disk)
    assert [again.may_be(number) for number in (5, RUN_NUMBERS * 2, RUN_NUMBERS * 3 + 1)] == [False, False, True]
    again.all_read([RUN_NUMBERS * 2])
    assert restarted(again, disk).may_be(RUN_NUMBERS * 3) is False
    assert disk == {}


def test_what_is_below_all_that_is_remembered_counts_as_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_before, "RUNS_MAX", 2)
    before = SealedBefore()
    for run in (1, 2, 3):
        before.sealed(run * RUN_NUMBERS)
    assert [before.may_be(run * RUN_NUMBERS) for run in (1, 2, 3, 4)] == [True, False, False, False]
