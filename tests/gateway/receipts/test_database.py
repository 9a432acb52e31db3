"""The database of receipts: sealed rows, within bounds, that come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.contract import KeepSealed, ReceiptCame
from gateway.receipts import ReceiptDatabase, ReceiptsError, receipts_file

KEY = bytes(range(32))


def came(reader: str, first: int, last: int, row: bytes = b"receipt", time_ms: int = 5) -> ReceiptCame:
    return ReceiptCame(reader, time_ms, first, last, row, ())


def test_rows_come_back_and_are_unreadable_without_the_key(tmp_path: Path) -> None:
    path = receipts_file(tmp_path)
    database = ReceiptDatabase(path, KEY)
    database.write(
        [KeepSealed(n, b"batch %d" % n) for n in (1, 5, 9)], [came("lab", 1, 5), came("desk", 9, 9, time_ms=8)]
    )
    assert database.newest() == [b"batch 1", b"batch 5", b"batch 9"]
    assert database.batches(0, 6, 10) == [b"batch 5", b"batch 1"]
    assert [(r.reader, r.row) for r in database.receipts(3)] == [("lab", b"receipt")]
    assert list(database.receipts(7)) == []
    assert database.readers() == [("desk", 1, 8, 9), ("lab", 1, 5, 5)]
    database.close()
    assert path.stat().st_mode & 0o077 == 0
    assert not any(b"batch" in each.read_bytes() for each in tmp_path.iterdir())
    assert ReceiptDatabase(path, bytes(32)).newest() == []


def test_beyond_the_bound_the_oldest_rows_go_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.receipts.database.BYTES_MAX", 400_000)
    database = ReceiptDatabase(receipts_file(tmp_path), KEY)
    for n in range(500):
        database.write([KeepSealed(n, bytes(3_000))], [came("lab", n, n)])
        if n > 200:
            assert len(database.batches(0, 1_000, 1_000)) > 70, "a full file loses what it must, not more each time"
    left = database.batches(0, 1_000, 1_000)
    assert 70 < len(left) < 130
    assert not list(database.receipts(0))
    assert list(database.receipts(499))
    assert receipts_file(tmp_path).stat().st_size < 500_000


def test_a_reader_that_signs_without_end_pushes_out_its_own_receipts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.receipts.database.BYTES_MAX", 400_000)
    database = ReceiptDatabase(receipts_file(tmp_path), KEY)
    database.write([KeepSealed(n, bytes(3_000)) for n in range(40)], [came("lab", 0, 39)])
    for n in range(300):
        database.write([], [came("flood", 0, 39, bytes(4_000), n)])
    assert len(database.batches(0, 100, 100)) == 40
    kept = [each.reader for each in database.receipts(20)]
    assert kept.count("lab") == 1
    assert 0 < kept.count("flood") < 90


def test_a_file_that_is_none_is_refused_with_a_line(tmp_path: Path) -> None:
    path = receipts_file(tmp_path)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(ReceiptsError, match="cannot be opened"):
        ReceiptDatabase(path, KEY)
