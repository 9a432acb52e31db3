"""How far histories were read into a part of the spool, over restarts, and what was asked for meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ingest.errors import SpoolDamaged
from spark_ingest.spool.backfilled import (
    ASKED,
    RECORD,
    BackfillRecord,
    ScopeRecord,
    answered,
    ask,
    is_asked,
    take_asked,
)


def test_a_record_outlives_its_process_and_says_how_far_it_is(tmp_path: Path) -> None:
    assert BackfillRecord.load(tmp_path) is None
    record = BackfillRecord(7, {1: ScopeRecord(1_000, 2_000, 1_250), 4: ScopeRecord(0, 9, 0, True, True)}, 1_234)
    record.store(tmp_path)
    assert BackfillRecord.load(tmp_path) == record
    assert record.told == "1,234 sealed batches of history written; scope 1 25%, scope 4 refused"
    assert BackfillRecord(0).told.endswith("waits for replicas")


def test_what_is_asked_for_is_taken_once_it_is_in_the_record(tmp_path: Path) -> None:
    assert take_asked(tmp_path) is None
    ask(tmp_path / "main", 5)
    assert take_asked(tmp_path / "main") == take_asked(tmp_path / "main") == 5
    assert is_asked(tmp_path / "main")
    answered(tmp_path / "main")
    assert take_asked(tmp_path / "main") is None
    assert not is_asked(tmp_path / "main")


@pytest.mark.parametrize("name", [RECORD, ASKED])
def test_a_damaged_file_says_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[]")
    with pytest.raises(SpoolDamaged, match="remove it"):
        BackfillRecord.load(tmp_path) if name == RECORD else take_asked(tmp_path)
