"""Databases of a data directory: errors in a line, and numbers that a disk may have damaged."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from gateway.data.database import LAYOUT, NoRoomError, StoreError, open_facts, read_fact, store_error


def test_a_full_disk_and_a_damaged_one_are_told_apart(tmp_path: Path) -> None:
    def said(code: int) -> StoreError:
        error = sqlite3.OperationalError("words of SQLite")
        error.sqlite_errorcode = code
        return store_error(error, tmp_path)

    full = said(sqlite3.SQLITE_FULL)
    assert isinstance(full, NoRoomError)
    assert (full.code, StoreError.code) == (0x97, 0x80)
    assert "damaged" in str(said(sqlite3.SQLITE_NOTADB))
    assert "words of SQLite" in str(said(sqlite3.SQLITE_IOERR))


def test_a_fact_that_is_absent_has_its_default_and_one_that_is_damaged_none(tmp_path: Path) -> None:
    with contextlib.closing(open_facts(tmp_path / "o")) as db:
        assert read_fact(db, "life", 7) == 7
        db.execute("INSERT INTO facts VALUES ('life', 'x')")
        with pytest.raises(sqlite3.DatabaseError, match="the stored life is damaged"):
            read_fact(db, "life", 7)


def test_a_later_layout_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(open_facts(tmp_path / "o")) as db:
        db.execute("INSERT INTO facts VALUES ('layout', ?)", (LAYOUT + 1,))
    with pytest.raises(StoreError, match=f"layout {LAYOUT + 1} is not known to this version; upgrade veilmq"):
        open_facts(tmp_path / "o")
