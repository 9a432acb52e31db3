"""The simulator's disk of a history: what it gives is in order, behind a position and a row."""

from __future__ import annotations

from bridge.contract import HistoryPosition, HistoryRecord, HistoryRequest, Recall, Record, RecordEra
from papers.sim.history import SimulatedHistory


def record(at: int, size: int = 10) -> HistoryRecord:
    return HistoryRecord(1, HistoryPosition(at, bytes(16), at, bytes(8)), b"", bytes(size))


def times(history: SimulatedHistory, **asked: int) -> list[int]:
    page = history.recall(Recall("desk", HistoryRequest(1, 1, 0, 1 << 40, **asked)))  # type: ignore[arg-type]
    return [each.position.time_ms for each in page.records]


def test_records_are_in_order_behind_a_row_and_within_the_bytes() -> None:
    history = SimulatedHistory()
    history.append_records(Record(tuple(map(record, (5, 3, 9))), ()))
    history.append_records(Record((record(1),), ()))
    assert times(history) == [1, 3, 5, 9]
    assert times(history, row=3) == [1]
    assert times(history, most_bytes=20) == [1, 3]
    history.append_records(Record((record(3, 5),), ()))
    assert times(history, row=4) == []
    history.append_records(Record((record(3, 50),), ()))
    assert times(history, row=4) == [3]


def test_an_era_is_listed_once() -> None:
    history = SimulatedHistory()
    for at, digest in ((1, b"a"), (2, b"a"), (3, b"b")):
        history.record_era(RecordEra(at, digest, b"document"))
    assert list(history.recall(Recall("desk", HistoryRequest(1, eras=True))).eras) == [(1, b"a"), (3, b"b")]
