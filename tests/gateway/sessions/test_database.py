"""The database of sessions: what was committed is there, as a whole or not at all, and what nobody needs goes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.data import StoreError
from gateway.sessions import database as module
from gateway.sessions.database import Changes, SessionDatabase

SESSION = (1, "me", None, 1, 5, 100, 0, None, 7.0, None, None, None, None, None, None)
MESSAGE = (10, b"packet", None, "me")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SessionDatabase]:
    made = SessionDatabase(tmp_path)
    yield made
    made.close()


def delivery(id_: int, session: int = 1, message: int = 10) -> tuple[object, ...]:
    return id_, session, message, 1, 0, None, 0, 0


def whole() -> Changes:
    return Changes(
        sessions=[SESSION, (2, *SESSION[1:])], subscriptions=[(1, "a", 1, 0, 0, 0, 0, ""), (2, "a", 1, 0, 0, 0, 0, "")],
        messages=[MESSAGE, (11, *MESSAGE[1:])], deliveries=[delivery(21), delivery(20), delivery(22, 2, 11)],
        received=[(1 << 16 | 7, "t"), (2 << 16 | 0xFFFF, "")], retained=[("t", b"packet", None, "")],
        kept=[(b"k", b"v")],
    )  # fmt: skip


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be looked at" * 30])
def test_a_damaged_database_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sessions.sqlite3").write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        SessionDatabase(tmp_path)


def test_what_was_committed_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    first = SessionDatabase(tmp_path)
    assert first.load().last_id == 0
    first.commit(whole())
    first.close()
    again = SessionDatabase(tmp_path)
    content = again.load()
    again.close()
    assert content.sessions == [SESSION, (2, *SESSION[1:])]
    assert content.subscriptions == {n: [(n, "a", 1, 0, 0, 0, 0, "")] for n in (1, 2)}
    assert content.messages == {10: MESSAGE, 11: (11, *MESSAGE[1:])}
    assert [row[0] for row in content.deliveries[1]] == [20, 21], "in order of their ids"
    assert content.received == {1: {7: "t"}, 2: {0xFFFF: ""}}
    assert (content.retained, content.kept) == ([("t", b"packet", None, "")], [(b"k", b"v")])
    assert content.last_id == 22


def test_a_row_replaces_the_one_with_its_key(database: SessionDatabase) -> None:
    database.commit(whole())
    database.commit(Changes(retained=[("t", b"newer", None, "")], kept=[(b"k", b"w")]))
    content = database.load()
    assert (content.retained, content.kept) == ([("t", b"newer", None, "")], [(b"k", b"w")])


def test_deletions_come_before_what_is_inserted(database: SessionDatabase) -> None:
    database.commit(whole())
    database.commit(Changes(
        gone_retained=["t"], retained=[("t", b"again", None, "")], gone_kept=[b"k"], gone_messages=[11],
        gone_deliveries=[20, 22], gone_received=[1 << 16 | 7], gone_subscriptions=[(1, "a")],
    ))  # fmt: skip
    content = database.load()
    assert content.retained == [("t", b"again", None, "")]
    assert content.kept == []
    assert set(content.messages) == {10}
    assert [row[0] for row in content.deliveries[1]] == [21]
    assert (content.received, set(content.subscriptions)) == ({2: {0xFFFF: ""}}, {2})


def test_a_session_that_ends_takes_its_rows_along_and_nobody_elses(database: SessionDatabase) -> None:
    database.commit(whole())
    database.commit(Changes(gone_sessions=[1]))
    content = database.load()
    assert [row[0] for row in content.sessions] == [2]
    assert set(content.subscriptions) == set(content.received) == set(content.deliveries) == {2}
    assert set(content.messages) == {11}, "what no delivery refers to goes"


def test_rows_without_a_session_are_dropped_when_it_is_read(database: SessionDatabase) -> None:
    database.commit(Changes(
        subscriptions=[(9, "a", 0, 0, 0, 0, 0, "")], deliveries=[delivery(5, 9)], messages=[MESSAGE],
        received=[(9 << 16 | 1, "")],
    ))  # fmt: skip
    content = database.load()
    left = (content.subscriptions, content.deliveries, content.messages, content.received)
    assert left == ({}, {}, {}, {})


def test_more_rows_than_one_statement_holds(database: SessionDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_MAX", 3)
    database.commit(Changes(retained=[(f"t{n:02}", b"%d" % n, None, "") for n in range(10)]))
    assert sorted(row[0] for row in database.load().retained) == [f"t{n:02}" for n in range(10)]


def test_a_group_that_fails_leaves_nothing(database: SessionDatabase) -> None:
    with pytest.raises(StoreError):
        database.commit(Changes(sessions=[SESSION], retained=[("t", None, None, "")]))  # a packet is never NULL
    assert database.load().sessions == []


def test_who_else_opens_it_is_told_in_one_line(tmp_path: Path) -> None:
    first = SessionDatabase(tmp_path)
    with pytest.raises(StoreError, match="used by another veilmq"):
        SessionDatabase(tmp_path)
    first.close()
    SessionDatabase(tmp_path).close()


def test_another_layout_is_refused(tmp_path: Path) -> None:
    SessionDatabase(tmp_path).close()
    db = sqlite3.connect(tmp_path / module.DATABASE)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="layout 99 is not known"):
        SessionDatabase(tmp_path)
