"""The tracing file: what comes back, what is bounded, what a damaged one says."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bridge.traces.kinds import TraceKind
from bridge.tracking.tracker import Observed
from gateway.tracing import store as trace_store
from gateway.tracing.store import TraceStore, TraceStoreError
from tests.bridge.traces.test_tracer import NOW_MS, advertised


def seen(entity: str, number: int, kind: TraceKind = TraceKind.ALLS_WELL) -> Observed:
    return Observed(entity, kind, NOW_MS + number, number, {"ping": number, "näme": "ü"})


def test_advertisements_come_back_until_they_end(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / "data" / "traces.sqlite3")
    first, second = advertised(topic=b"1" * 16), advertised("other", topic=b"2" * 16)
    store.write({each.topic: each for each in (second, first)}, {})
    store.write({first.topic: first}, {})
    store.close()
    again = TraceStore(tmp_path / "data" / "traces.sqlite3")
    assert {each.topic for each in again.advertisements(NOW_MS)} == {first.topic, second.topic}
    assert list(again.advertisements(first.not_after_ms + 1)) == []
    assert list(again.advertisements(NOW_MS)) == []
    again.close()


def test_history_and_the_latest_of_each(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / "traces.sqlite3")
    for number in range(1, 6):
        store.observe(seen("a", number))
    store.observe(seen("b", 9, TraceKind.FAILED))
    assert [each.fields["ping"] for each in store.history("a", 3)] == [3, 4, 5]
    assert [each.entity for each in store.history(limit=2)] == ["a", "b"]
    assert {(each.entity, each.kind, each.fields["ping"]) for each in store.latest()} == {
        ("a", TraceKind.ALLS_WELL, 5), ("b", TraceKind.FAILED, 9),
    }  # fmt: skip
    store.close()


def test_history_is_bounded_by_rows_and_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_store, "HISTORY_MAX", 50)
    monkeypatch.setattr(trace_store, "TRIM_EVERY", 10)
    monkeypatch.setattr(trace_store, "HISTORY_AGE_S", 0.03)
    store = TraceStore(tmp_path / "traces.sqlite3")
    for number in range(1, 101):
        store.observe(seen("a", number))
    kept = [each.fields["ping"] for each in store.history(limit=1_000)]
    assert kept == list(range(70, 101)), "30 ms is 30 numbers here"
    store.close()


@pytest.mark.attack(169)
def test_an_entity_that_changes_without_end_shortens_its_own_history_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: its observations are all that there is room for, and what was seen of others is forgotten."""
    monkeypatch.setattr(trace_store, "HISTORY_MAX", 50)
    monkeypatch.setattr(trace_store, "TRIM_EVERY", 10)
    store = TraceStore(tmp_path / "traces.sqlite3")
    for number in range(1, 21):
        store.observe(seen("door", number))
    for number in range(21, 521):
        store.observe(seen("evil", number))
    assert [each.fields["ping"] for each in store.history("door")] == list(range(1, 21))
    assert [each.fields["ping"] for each in store.history("evil")] == list(range(491, 521))
    for each in range(100):
        store.observe(seen(f"new{each}", 600 + each))
    assert len(store.history(limit=1_000)) <= 50
    store.close()


def test_the_file_is_private(tmp_path: Path) -> None:
    TraceStore(tmp_path / "traces.sqlite3").close()
    assert stat.S_IMODE((tmp_path / "traces.sqlite3").stat().st_mode) == 0o600


def test_a_damaged_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "traces.sqlite3").write_bytes(b"not a database, but long enough to be taken for one" * 30)
    (tmp_path / "traces.sqlite3").chmod(0o600)
    with pytest.raises(TraceStoreError, match="remove the file"):
        TraceStore(tmp_path / "traces.sqlite3")
