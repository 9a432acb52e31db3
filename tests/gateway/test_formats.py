"""What is kept on disk says its format: a newer program reads the older one, an older one refuses the newer with a line
that says `upgrade veilmq`, and changes nothing. Spools: tests/spark_ingest/spool; backups: tests/gateway/setup.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from bridge.document import OverlayError
from gateway.data import DataDirectory, StoreError
from gateway.data.database import LAYOUT
from gateway.outbox.store import Store
from gateway.owner.record import open_record
from gateway.sessions import database as sessions
from gateway.sessions.database import Changes, SessionDatabase
from gateway.trust.domains import Card, TrustDomain
from gateway.trust.errors import TrustError
from gateway.trust.overlay_file import load_overlay
from tests.support.parties import NOW_MS, Parties, on_disk, signed

world = on_disk(signed)


def newer(path: Path, key: str, by: int = 1) -> bytes:
    """The file as a later program would write it."""
    content = json.loads(path.read_text())
    content[key] += by
    data = json.dumps(content).encode()
    path.write_bytes(data)
    return data


def test_a_newer_overlay_file(world: Parties) -> None:
    data = newer(world.out, "veilmq_overlay")
    with pytest.raises(OverlayError, match="format 2, this program knows 1; upgrade veilmq"):
        load_overlay(world.out, NOW_MS)
    assert world.out.read_bytes() == data


def test_a_newer_card(world: Parties) -> None:
    newer(world.directory / "r1" / "card.json", "veilmq_card")
    with pytest.raises(TrustError, match=r"card.json: is a card of format 3; upgrade veilmq"):
        Card.load(world.directory / "r1" / "card.json")


def test_a_newer_record_of_the_owner(world: Parties) -> None:
    path = world.owner / "overlays" / "demo.json"
    data = newer(path, "veilmq_owner")
    with pytest.raises(TrustError, match=r"demo.json: is of format 2, this program knows 1; upgrade veilmq"):
        open_record(TrustDomain.load(world.owner), "demo", world.out)
    assert path.read_bytes() == data


def dumped(path: Path) -> list[str]:
    with sqlite3.connect(path) as db:
        return list(db.iterdump())


def test_a_newer_outbox_is_left_as_it_is(tmp_path: Path) -> None:
    Store(DataDirectory.open(tmp_path)).close()
    (path,) = tmp_path.glob("*.sqlite*")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE facts SET value = ? WHERE name = 'layout'", (LAYOUT + 1,))
    before = dumped(path)
    with pytest.raises(StoreError, match=f"layout {LAYOUT + 1} is not known to this version; upgrade veilmq"):
        Store(DataDirectory.open(tmp_path))
    assert dumped(path) == before


@pytest.mark.parametrize("layout", [1, 2, 3])
def test_sessions_of_the_layouts_before_are_read(layout: int, tmp_path: Path) -> None:
    session = (1, "me", None, 1, 5, 100, 0, None, 7.0, None, None, None, None, None, None)
    subscription = (1, "a", 1, 0, 0, 0, 0, "")
    opened = SessionDatabase(tmp_path)
    opened.commit(Changes(sessions=[session], received=[(1 << 16 | 7, "t")], subscriptions=[subscription]))
    opened.close()
    path = tmp_path / sessions.DATABASE
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE sessions DROP COLUMN token_groups")
        if layout <= 2:
            db.execute("ALTER TABLE received DROP COLUMN topic")
        if layout == 1:
            db.execute("ALTER TABLE subscriptions DROP COLUMN predicate")
        db.execute(f"PRAGMA user_version = {layout}")
    for _ in range(2):
        opened = SessionDatabase(tmp_path)
        content = opened.load()
        opened.close()
        assert (content.sessions, content.subscriptions) == ([session], {1: [subscription]})
        assert content.received == {1: {7: "t" if layout == 3 else ""}}
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == sessions.LAYOUT
