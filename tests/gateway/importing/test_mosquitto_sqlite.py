"""Databases that Mosquitto 2.1.2 wrote: its own format and SQLite give the same records, where SQLite keeps them."""

from __future__ import annotations

import base64
import json
import sqlite3
import zlib
from pathlib import Path

import pytest

from gateway.importing.loading import load_db
from gateway.importing.mosquitto_db import Database, DbError, parse_db
from gateway.importing.mosquitto_sqlite import read_sqlite
from tests.conftest import ROOT

VECTOR = json.loads((ROOT / "tests/vectors/mosquitto_2_1_2.json").read_text())
NOW = 1_795_891_700.0


def written(directory: Path, name: str) -> Path:
    """The file that Mosquitto 2.1.2 wrote."""
    path = directory / name
    path.write_bytes(zlib.decompress(base64.b64decode(VECTOR["files"][name])))
    return path


@pytest.fixture
def found(tmp_path: Path) -> Database:
    return read_sqlite(written(tmp_path, "mosquitto.sqlite3"))


def test_both_formats_hold_the_same(found: Database, tmp_path: Path) -> None:
    other = parse_db(written(tmp_path, "mosquitto.db").read_bytes())
    for client_id in ("old", "new5", "42", "local.edge7"):
        ours, theirs = found.clients[client_id], other.clients[client_id]
        assert ours.subscriptions == theirs.subscriptions or client_id == "local.edge7"
        assert ours.expiry_s == theirs.expiry_s
        queues = [
            [(database.messages[one.message].payload, one.qos, one.identifiers) for one in client.queued]
            for database, client in ((found, ours), (other, theirs))
        ]
        assert queues[0] == queues[1] != []
    retained = [
        {(m.payload, m.qos, m.properties) for number in database.retained if (m := database.messages[number])}
        for database in (found, other)
    ]
    assert retained[0] == retained[1]
    assert len(retained[0]) == 3


def test_only_sqlite_keeps_what_mosquittos_own_format_leaves_out(found: Database, tmp_path: Path) -> None:
    other = parse_db(written(tmp_path, "mosquitto.db").read_bytes())
    assert [one.filter for one in found.clients["share5"].subscriptions] == ["$share/g/q/#"]
    assert other.clients["share5"].subscriptions == []
    assert "clean5" in found.clients
    assert "clean5" not in other.clients


def test_a_topic_that_sqlite_took_for_a_number_is_said(found: Database) -> None:
    assert [note for note in found.notes if note.startswith("topic 7 was stored as a number")]


@pytest.mark.parametrize("name", ["mosquitto.db", "mosquitto.sqlite3"])
def test_it_loads_and_the_queue_of_a_bridge_is_our_bridges(tmp_path: Path, name: str) -> None:
    loaded = load_db(written(tmp_path, name), tmp_path / "data", NOW, 86_400, {"local.edge7": "cloud"})
    assert loaded.retained == 3
    with sqlite3.connect(tmp_path / "data" / "sessions.sqlite3") as ours:
        (row,) = ours.execute(
            "SELECT id, version, expiry_s, ends_at FROM sessions WHERE client = '$veilmq/bridge/cloud'"
        )
        assert row[1:] == (5, 0xFFFF_FFFF, None)
        packets = "SELECT packet FROM deliveries JOIN messages ON messages.id = message WHERE session = ?"
        (packet,) = ours.execute(packets, row[:1]).fetchone()
        assert packet.endswith(b"for the cloud")
        assert not ours.execute("SELECT * FROM sessions WHERE client = 'local.edge7'").fetchall()


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + bytes(100), b"SQLite format 3\0"])
def test_another_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.sqlite3"
    path.write_bytes(content)
    with pytest.raises(DbError, match="name another file with --db"):
        load_db(path, tmp_path / "data", NOW, 86_400)
