"""Who reads histories for a receiver: the parts that write now, whatever former parts were asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ingest.errors import SpoolBusy
from spark_ingest.receiver.reaching_back import alone, hand_on, read_back
from spark_ingest.spool import SpoolWriter
from spark_ingest.spool.backfilled import RECORD, BackfillRecord, ScopeRecord, answered, ask, is_asked, take_asked

TWO, THREE = [[f"main.w{number}of{count}" for number in range(1, count + 1)] for count in (2, 3)]


def test_a_first_start_asks_every_part_and_a_later_one_asks_none(tmp_path: Path) -> None:
    hand_on(tmp_path, "main", TWO, 5)
    assert [take_asked(tmp_path / part) for part in TWO] == [5, 5]
    for part in TWO:
        answered(tmp_path / part)
    hand_on(tmp_path, "main", TWO, None)
    assert not any(is_asked(tmp_path / part) for part in TWO)
    writer = SpoolWriter(tmp_path, TWO[0], cap_bytes=1 << 20)
    writer.roll(b"")
    writer.close()
    hand_on(tmp_path, "main", THREE, 5)
    assert not any(is_asked(tmp_path / part) for part in THREE), "another part has rows: this is no first start"


def test_what_the_receiver_is_asked_for_goes_to_the_parts_that_write(tmp_path: Path) -> None:
    ask(tmp_path / "main", 7)
    hand_on(tmp_path, "main", TWO)
    assert [take_asked(tmp_path / part) for part in TWO] == [7, 7]
    assert not is_asked(tmp_path / "main")


def test_other_parts_go_on_with_what_former_parts_did_not_end(tmp_path: Path) -> None:
    hand_on(tmp_path, "main", TWO, 5)
    answered(tmp_path / TWO[0])
    BackfillRecord(9, {1: ScopeRecord(9, 99, 50)}).store(tmp_path / TWO[0])
    hand_on(tmp_path, "main", ["main"])
    assert take_asked(tmp_path / "main") == 5
    assert not any((tmp_path / part / RECORD).exists() or is_asked(tmp_path / part) for part in TWO)


def test_parts_together_are_as_far_as_all_of_them(tmp_path: Path) -> None:
    assert read_back(tmp_path, "main") is None
    hand_on(tmp_path, "main", TWO, 5)
    first, second = (tmp_path / part for part in TWO)
    answered(first)
    BackfillRecord(5, {1: ScopeRecord(0, 100, 100, is_over=True)}, 40, is_over=True).store(first)
    told = read_back(tmp_path, "main")
    assert told is not None
    assert (told.is_over, told.rows, told.scopes[1].is_over, told.scopes[1].share) == (False, 40, False, 0.5)
    answered(second)
    BackfillRecord(5, {1: ScopeRecord(0, 100, 50)}, 2).store(second)
    told = read_back(tmp_path, "main")
    assert told is not None
    assert told.told == "42 sealed batches of history written; scope 1 75%"
    BackfillRecord(5, {1: ScopeRecord(0, 100, 100, True, True)}, 2, is_over=True).store(second)
    told = read_back(tmp_path, "main")
    assert told is not None
    assert told.is_over
    assert told.scopes[1].is_refused, "one part was refused"


def test_a_receiver_alone_does_not_write_beside_workers(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, TWO[1], cap_bytes=1 << 20)
    with pytest.raises(SpoolBusy, match="with workers"):
        alone(tmp_path, "main")
    writer.close()
    alone(tmp_path, "main")
