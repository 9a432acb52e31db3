"""What survives the broker, what waits for the disk and what does not, and what a full disk means for clients.

`image` copies the data directory of a broker that runs: what a kill at that moment would leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.waits import Wait
from gateway.data import NoRoomError, StoreError
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
)
from gateway.sessions import store as session_store
from gateway.sessions.database import Changes, SessionDatabase
from gateway.sessions.store import SessionStore
from tests.gateway.ending import ends
from tests.gateway.harness import Wire, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.waits import until

LASTING: dict[str, Any] = {"clean_start": False, "properties": {"session_expiry_s": 1000}}


@contextlib.asynccontextmanager
async def durable(directory: Path, **config: Any) -> AsyncIterator[EdgeBroker]:
    async with serving({"data": str(directory), **config}) as broker:
        yield broker


def store_of(broker: EdgeBroker) -> SessionStore:
    store = broker.exchange.store
    assert store is not None
    return store


async def image(broker: EdgeBroker, source: Path, target: Path) -> Path:
    """A copy of the data directory once everything that happened so far is on disk."""
    store = store_of(broker)
    await until(lambda: store.pending.is_empty and store._writing is None)
    shutil.copytree(source, target)
    return target


class Gatekeeper:
    """Stands between the store and its database: lets commits through, holds them or fails them."""

    def __init__(self, broker: EdgeBroker) -> None:
        self._database = store_of(broker)._database
        self._commit = self._database.commit
        self._open = threading.Event()
        self._open.set()
        self.is_full = False
        self.refused = set[int]()
        self.commits = 0
        self._database.commit = self.commit  # type: ignore[method-assign]

    def commit(self, changes: Changes) -> None:
        self.commits += 1
        number = self.commits
        assert self._open.wait(10)
        if self.is_full or number in self.refused:
            raise NoRoomError("data directory: disk is full; free some space")
        self._commit(changes)

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


# ------------------------------------------------------------------------------------------- restart


def test_what_is_finished_or_ended_leaves_no_row(tmp_path: Path) -> None:
    async def use() -> None:
        async with durable(tmp_path) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            await sub.subscribe("a", 2)
            pub = await Wire.connect(broker, "pub", **LASTING)
            pub.publish("a", b"1", 1)
            pub.publish("a", b"2", 2, packet_id=2)
            assert [type(await pub.next()) for _ in range(2)] == [PubAck, PubRec]
            one, two = await sub.expect(Publish), await sub.expect(Publish)
            sub.send(PubAck(one.packet_id), PubRec(two.packet_id))
            await sub.expect(PubRel)
            sub.send(PubComp(two.packet_id))
            pub.send(PubRel(2))
            await pub.expect(PubComp)
            pub.publish("a", b"left in the queue", 1, packet_id=3)
            await pub.expect(PubAck)
            sub.send(Unsubscribe(9, ("a",)))
            await sub.barrier()
            for name in ("sub", "pub"):  # a clean start ends the session
                await Wire.connect(broker, name)

    asyncio.run(use())
    db = sqlite3.connect(tmp_path / "sessions.sqlite3")
    for table in ("sessions", "subscriptions", "messages", "deliveries", "received", "retained"):
        assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    db.close()


def test_files_are_private_and_a_second_broker_is_refused_in_one_line(tmp_path: Path) -> None:
    async def use() -> None:
        async with durable(tmp_path / "data"):
            for path in (tmp_path / "data").iterdir():
                assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
            with pytest.raises(StoreError, match="used by another veilmq"):
                SessionDatabase(tmp_path / "data")

    asyncio.run(use())


# --------------------------------------------------------------------------------- what waits for the disk


async def silent(wire: Wire) -> None:
    """Nothing comes until the broker has taken part in another exchange, which it answers at once."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await wire.next()


def test_acknowledgements_wait_for_the_commit_that_a_persistent_session_needs(tmp_path: Path) -> None:
    async def use() -> None:
        async with durable(tmp_path) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            await sub.subscribe("a", 1)
            pub = await Wire.connect(broker, "pub")
            gate = Gatekeeper(broker)
            with gate.holding():
                pub.publish("a", b"x", 1)
                pub.publish("retained", b"x", 1, retain=True)
                pub.publish("elsewhere", b"x", 1)
                assert (await sub.expect(Publish)).payload == b"x"  # QoS 1 itself does not wait
                assert await pub.barrier() == []
            acknowledged = [(await pub.expect(PubAck)).packet_id for _ in range(3)]
            assert acknowledged == [1, 2, 3]  # in the order of the messages, also that which needs no disk

    asyncio.run(use())


def test_a_message_that_all_have_acknowledged_needs_no_disk(tmp_path: Path) -> None:
    async def use() -> None:
        async with durable(tmp_path) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            await sub.subscribe("a", 1)
            pub = await Wire.connect(broker, "pub")
            gate = Gatekeeper(broker)
            with gate.holding():
                pub.publish("a", b"x", 1)
                sub.send(PubAck((await sub.expect(Publish)).packet_id))
                assert isinstance(await pub.next(), PubAck)

    asyncio.run(use())


def test_clean_sessions_cost_no_write(tmp_path: Path) -> None:
    async def use() -> None:
        async with durable(tmp_path) as broker:
            gate = Gatekeeper(broker)
            sub, pub = await Wire.connect(broker, "sub"), await Wire.connect(broker, "pub")
            await sub.subscribe("a", 2)
            for qos in (0, 1, 2):
                pub.publish("a", b"x", qos)
            await pub.barrier()
            await sub.barrier()
            assert store_of(broker).pending.is_empty
        assert gate.commits == 0

    asyncio.run(use())


@ends(Wait.SESSIONS, Wait.RELEASE)
def test_what_the_other_end_concludes_from_waits_for_the_disk(tmp_path: Path) -> None:
    """PUBREL, PUBCOMP, PUBLISH of QoS 2, CONNACK and SUBACK: after them the other end forgets, or relies on us."""

    async def use() -> None:
        async with durable(tmp_path) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            await sub.subscribe("a", 2)
            pub = await Wire.connect(broker, "pub", **LASTING)
            gate = Gatekeeper(broker)
            with gate.holding():
                pub.publish("a", b"x", 2, packet_id=5)
                await silent(sub)
                await silent(pub)
            assert isinstance(await pub.next(), PubRec)
            sent = await sub.expect(Publish)
            with gate.holding():
                sub.send(PubRec(sent.packet_id))
                pub.send(PubRel(5))
                await silent(sub)
                await silent(pub)
            assert isinstance(await sub.next(), PubRel)
            assert isinstance(await pub.next(), PubComp)
            with gate.holding():
                sub.send(Subscribe(8, (Subscription("b"),)), PingReq())
                await silent(sub)
                fresh = await Wire.open(broker)
                fresh.send(Connect("fresh", clean_start=False, properties=Properties(session_expiry_s=9)))
                await silent(fresh)
            assert [type(await sub.next()) for _ in range(2)] == [SubAck, PingResp]
            assert isinstance(await fresh.next(), ConnAck)

    asyncio.run(use())


@ends(Wait.GATE)
def test_an_answer_waits_behind_a_change_of_its_clients_own_session(tmp_path: Path) -> None:
    async def use() -> None:
        async with durable(tmp_path) as broker:
            pub = await Wire.connect(broker, "pub", **LASTING)
            with Gatekeeper(broker).holding():
                pub.send(Subscribe(8, (Subscription("b"),)))
                pub.publish("nobody", b"x", 1, packet_id=9)
                await silent(pub)
            assert [type(await pub.next()) for _ in range(2)] == [SubAck, PubAck]

    asyncio.run(use())


@ends(Wait.UNREAD)
def test_a_client_that_knows_no_receive_maximum_is_read_again_when_it_is_to_release_what_fills_it(
    tmp_path: Path,
) -> None:
    async def use() -> None:
        async with durable(tmp_path, limits={"receive_maximum": 2}) as broker:
            pub = await Wire.connect(broker, "pub", Version.V311, clean_start=False)
            with Gatekeeper(broker).holding():
                pub.send(*(Publish("a", b"x", 2, packet_id=number) for number in (1, 2)))
                await silent(pub)
            assert [type(await pub.next()) for _ in range(2)] == [PubRec, PubRec]
            pub.send(PubRel(1), PubRel(2))
            assert [type(await pub.next()) for _ in range(2)] == [PubComp, PubComp]

    asyncio.run(use())


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_repeated_at_qos_1_does_not_replace_what_its_topic_retained_after_it(
    restarts: bool, tmp_path: Path
) -> None:
    """The answers to both are lost: the client repeats both, and of QoS 2 nothing is routed again."""
    sent = Publish("t", b"older", 1, True, packet_id=1), Publish("t", b"newer", 2, True, packet_id=2)

    async def repeated(broker: EdgeBroker) -> None:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("t", 2, retain_handling=2)
        pub, kept = await Wire.connect(broker, "pub", **LASTING), broker.exchange.retained
        pub.send(*(replace(publish, dup=True) for publish in sent))
        assert [type(await pub.next()) for _ in range(2)] == [PubAck, PubRec]
        assert kept["t"].data == b"newer"
        assert await sub.published() == [("t", b"older")]
        pub.send(PubRel(2))
        await pub.expect(PubComp)
        pub.send(replace(sent[0], payload=b"last", dup=True))
        await pub.expect(PubAck)
        assert kept["t"].data == b"last"

    async def use() -> None:
        async with durable(tmp_path / "a") as broker:
            pub = await Wire.connect(broker, "pub", **LASTING)
            pub.send(*sent)
            await until(lambda: "t" in broker.exchange.retained.data)
            await pub.barrier()
            copy = await image(broker, tmp_path / "a", tmp_path / "b")
            pub.cut()
            if not restarts:
                await repeated(broker)
        if restarts:
            async with durable(copy) as broker:
                await repeated(broker)

    asyncio.run(use())


@pytest.mark.long
def test_a_kill_before_the_outbox_has_a_message_has_its_repetition_offered_again_and_delivered_to_nobody_here(
    tmp_path: Path,
) -> None:
    async def use() -> None:
        overlay: Any = FakeOverlay()
        async with serving({"data": str(tmp_path / "a"), "limits": {"shutdown_s": 0.05}}, overlay=overlay) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            await sub.subscribe("far/#", 2)
            pub = await Wire.connect(broker, "pub", **LASTING)
            for number in (1, 2):
                pub.publish("far/1", b"%d" % number, 2, packet_id=number)
            await until(lambda: len(overlay.done) == 2)
            overlay.done[0](0)
            await pub.expect(PubRec)
            copy = await image(broker, tmp_path / "a", tmp_path / "b")
        overlay = FakeOverlay()
        async with serving({"data": str(copy)}, overlay=overlay) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            assert [payload for _, payload in await sub.published()] == [b"1", b"2"]
            pub = await Wire.connect(broker, "pub", **LASTING)
            for number in (1, 2):
                pub.publish("far/1", b"%d" % number, 2, packet_id=number, dup=True)
            assert (await pub.expect(PubRec)).packet_id == 1
            assert [publication.payload for _, publication in overlay.published] == [b"2"]
            overlay.done[0](0)
            assert (await pub.expect(PubRec)).packet_id == 2
            pub.send(PubRel(1), PubRel(2))
            assert [type(await pub.next()) for _ in range(2)] == [PubComp, PubComp]
            assert await sub.published() == []
            pub.publish("far/1", b"3", 2, packet_id=2)
            await until(lambda: len(overlay.done) == 2)
            assert [payload for _, payload in await sub.published()] == [b"3"]

    asyncio.run(use())


# ------------------------------------------------------------------------------------------ a full disk


@ends(Wait.SESSIONS_FULL)
def test_a_full_disk_refuses_what_must_be_stored_and_serves_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_store, "RETRY_S", 0.2)

    async def use() -> None:
        async with durable(tmp_path / "a") as broker:
            away = await Wire.connect(broker, "away", **LASTING)
            await away.subscribe("a/#", 2)
            away.cut()
            clean = await Wire.connect(broker, "clean")
            await clean.subscribe("#", 1)
            await until(lambda: broker.lifecycle.clients["away"].connection is None)
            new, old = await Wire.connect(broker, "new"), await Wire.connect(broker, "old", Version.V311)
            await image(broker, tmp_path / "a", tmp_path / "unused")
            gate = Gatekeeper(broker)
            gate.is_full = True
            new.publish("a/1", b"refused", 1)
            assert (await new.expect(PubAck)).code == 0x97
            new.publish("a/1", b"refused at once", 2, packet_id=7)
            assert (await new.expect(PubRec)).code == 0x97
            old.publish("a/1", b"refused too", 1)
            assert await old.closed() == []  # 3.1.1 has no words for it
            new.publish("other", b"served", 1, packet_id=8)
            assert (await new.expect(PubAck)).code == 0
            new.publish("other", b"and QoS 0")
            served = [payload for _, payload in await clean.published()]
            assert served[-2:] == [b"served", b"and QoS 0"]
            returning = await Wire.connect(broker, "persistent", **LASTING)  # CONNACK and SUBACK come
            assert await returning.subscribe("b", 1) == 1
            gate.is_full = False
            store = store_of(broker)
            await until(lambda: not store.is_full)
            new.publish("a/1", b"taken", 2, packet_id=9)
            assert (await new.expect(PubRec)).code == 0
            copy = await image(broker, tmp_path / "a", tmp_path / "b")
        async with durable(copy) as broker:
            assert "persistent" in broker.lifecycle.clients  # what happened meanwhile was written later
            away = await Wire.connect(broker, "away", **LASTING)
            assert [p.payload for p in await away.barrier() if isinstance(p, Publish)] == [b"taken"]

    asyncio.run(use())


def test_a_disk_that_really_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_store, "RETRY_S", 0.02)

    async def use() -> None:
        async with durable(tmp_path) as broker:
            away = await Wire.connect(broker, "away", **LASTING)
            await away.subscribe("a", 1)
            away.send(Disconnect(0))
            await away.closed()
            pub = await Wire.connect(broker, "pub")
            db = store_of(broker)._database._db
            await until(lambda: store_of(broker)._writing is None)
            pages = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {pages + 2}")
            pub.publish("a", bytes(100_000), 1)
            assert (await pub.expect(PubAck)).code == 0x97
            db.execute("PRAGMA max_page_count = 1000000")
            await until(lambda: not store_of(broker).is_full)
            pub.publish("a", b"fits", 1)
            assert (await pub.expect(PubAck)).code == 0
            away = await Wire.connect(broker, "away", **LASTING)
            assert await away.published() == [("a", b"fits")]

    asyncio.run(use())


def test_a_refused_qos_2_message_is_delivered_to_nobody(tmp_path: Path) -> None:
    async def use() -> None:
        async with durable(tmp_path) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            await sub.subscribe("a", 2)
            pub = await Wire.connect(broker, "pub", **LASTING)
            gate = Gatekeeper(broker)
            gate.is_full = True
            pub.publish("a", b"x", 2)
            assert (await pub.expect(PubRec)).code == 0x97
            assert not [p for p in await sub.closed() if isinstance(p, Publish)]
            gate.is_full = False
            sub = await Wire.connect(broker, "sub", **LASTING)
            assert await sub.barrier() == []

    asyncio.run(use())


def test_while_the_disk_stays_full_a_refused_qos_2_message_is_delivered_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its publisher repeats it under another identifier, so that a receiver would have it twice."""
    monkeypatch.setattr(session_store, "RETRY_S", 0.02)

    async def use() -> None:
        async with durable(tmp_path) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            await sub.subscribe("a", 2)
            pub = await Wire.connect(broker, "pub", **LASTING)
            gate, store, loop = Gatekeeper(broker), store_of(broker), asyncio.get_running_loop()
            gate.is_full = True
            pub.publish("a", b"x", 2)
            assert (await pub.expect(PubRec)).code == 0x97
            await sub.closed()
            sub = await Wire.connect(broker, "sub", **LASTING)
            with gate.holding():  # a write is on its way for longer than publications are refused without a try
                tried = gate.commits
                await until(lambda: gate.commits > tried)
                later = loop.time() + session_store.RETRY_S
                await until(lambda: loop.time() > later)
                pub.publish("a", b"x", 2)
                assert await sub.barrier() == []
            assert (await pub.expect(PubRec)).code == 0x97
            gate.is_full = False
            await until(lambda: not store.is_full)
            pub.publish("a", b"x", 2)
            assert (await pub.expect(PubRec)).code == 0
            assert [payload for _, payload in await sub.published()] == [b"x"]

    asyncio.run(use())


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_client_below_mqtt_5_sends_while_the_disk_refuses_its_last_message_does_not_overtake_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    """The second is in the next group, which the disk takes."""
    monkeypatch.setattr(session_store, "RETRY_S", 0.02)

    async def use() -> None:
        async with durable(tmp_path) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            await sub.subscribe("a", 2)
            sub.cut()
            await until(lambda: broker.lifecycle.clients["sub"].connection is None)
            pub = await Wire.connect(broker, "pub", Version.V311, clean_start=False)
            gate, store = Gatekeeper(broker), store_of(broker)
            await until(lambda: store.pending.is_empty and store._writing is None)
            with gate.holding():
                gate.refused = {gate.commits + 1}
                pub.publish("a", b"1", qos, packet_id=1)
                await until(lambda: store._writing is not None)
                pub.publish("a", b"2", qos, packet_id=2)
                await until(lambda: bool(store.pending.debts))
            assert await pub.closed() == []
            await until(lambda: not store.is_full)
            pub = await Wire.connect(broker, "pub", Version.V311, clean_start=False)
            for number in (1, 2):
                pub.publish("a", b"%d" % number, qos, packet_id=number, dup=True)
                await pub.expect(PubAck if qos == 1 else PubRec)
            sub = await Wire.connect(broker, "sub", **LASTING)
            assert [payload for _, payload in await sub.published()] == [b"1", b"2"]

    asyncio.run(use())


@pytest.mark.long
def test_amqtts_persistence_plugin_observes_and_our_store_decides(tmp_path: Path) -> None:
    plugins = {
        "amqtt.contrib.persistence.SessionDBPlugin": {
            "connection": f"sqlite+aiosqlite:///{tmp_path}/amqtt.db",
            "clear_on_shutdown": False,
        }
    }

    async def use() -> None:
        async with durable(tmp_path / "a", plugins=plugins) as broker:
            sub = await Wire.connect(broker, "sub", username="somebody", **LASTING)
            await sub.subscribe("a", 1)
            await broker.host.catch_up()
            await sub.subscribe("b", 1)
            await broker.host.catch_up()
            sub.send(Unsubscribe(9, ("b",)))
            await sub.barrier()
            sub.cut()
            await until(lambda: broker.lifecycle.clients["sub"].connection is None)
            pub = await Wire.connect(broker, "pub")
            pub.publish("a", b"once", 1)
            await pub.expect(PubAck)
            pub.publish("r", b"kept", 1, retain=True)
            await pub.expect(PubAck)
            await broker.host.catch_up()
        with contextlib.closing(sqlite3.connect(tmp_path / "amqtt.db")) as db:
            assert db.execute("SELECT client_id FROM stored_sessions").fetchall() == [("sub",)]  # it has seen it
        async with durable(tmp_path / "a", plugins=plugins) as broker:
            assert broker.local.local_filters() == ["a"]
            sub = await Wire.connect(broker, "sub", username="somebody", **LASTING)
            assert await sub.published() == [("a", b"once")]

    asyncio.run(use())


# ------------------------------------------------------------------------- any history, any failed commits


def state(broker: EdgeBroker) -> dict[str, Any]:
    """What a restart must bring back."""
    found: dict[str, Any] = {
        "retained": {topic: one.message.payload for topic, one in broker.exchange.retained.items()}
    }
    for name, client in broker.lifecycle.clients.items():
        session = client.session
        if session.journal is not None:
            found[name] = {
                "subscriptions": session.subscriptions,
                "waiting": [(one.message.payload, one.qos, one.retain) for one in session.waiting],
                "in flight": {id_: one.message.payload for id_, (one, _) in session.outbound.unacknowledged.items()},
                "released": list(session.outbound.released),
                "received": set(session.inbound.awaiting_pubrel),
            }
    return found


class Walker:
    """A client that does things at random, and answers what it has got at times."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self._name, self._rng = name, rng
        self._wire: Wire | None = None
        self._unanswered: list[Any] = []

    async def step(self, broker: EdgeBroker) -> None:
        rng = self._rng
        try:
            if self._wire is None:
                again: dict[str, Any] = {"clean_start": True} if rng.random() < 0.1 else {}
                self._wire = await Wire.connect(broker, self._name, **{**LASTING, **again})
                await self._wire.subscribe("t/#", rng.randrange(3))
            await rng.choice([self._publish, self._publish, self._answer, self._answer, self._read, self._leave])()
        except AssertionError:  # closed by the broker: refused, or taken back from
            self._gone()

    async def _publish(self) -> None:
        assert self._wire is not None
        payload = self._rng.choice([b"", *(b"%d" % number for number in range(9))])
        topic, qos = f"t/{self._rng.randrange(3)}", self._rng.randrange(3)
        packet_id = self._rng.randrange(1000, 60_000) if qos else 0
        self._wire.publish(topic, payload, qos, retain=self._rng.random() < 0.3, packet_id=packet_id)
        await self._read()

    async def _read(self) -> None:
        assert self._wire is not None
        self._unanswered += await self._wire.barrier()

    async def _answer(self) -> None:
        assert self._wire is not None
        for packet in self._unanswered:
            match packet:
                case Publish(qos=1):
                    self._wire.send(PubAck(packet.packet_id))
                case Publish(qos=2):
                    self._wire.send(PubRec(packet.packet_id))
                case PubRel():
                    self._wire.send(PubComp(packet.packet_id))
                case PubRec(code=0):
                    self._wire.send(PubRel(packet.packet_id))
        self._unanswered.clear()
        await self._read()

    async def _leave(self) -> None:
        self._gone()

    def _gone(self) -> None:
        if self._wire is not None:
            self._wire.cut()
        self._wire, self._unanswered = None, []


@pytest.mark.long
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_disk_holds_what_the_broker_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, fails: bool
) -> None:
    monkeypatch.setattr(session_store, "RETRY_S", 0.001)
    rng = random.Random(seed)

    async def use() -> None:
        async with durable(tmp_path / "a", limits={"in_flight": 4, "queue_messages": 6}) as broker:
            gate = Gatekeeper(broker)
            walkers = [Walker(name, rng) for name in "abc"]
            for _ in range(150):
                gate.is_full = fails and rng.random() < 0.06
                await rng.choice(walkers).step(broker)
            gate.is_full = False
            copy = await image(broker, tmp_path / "a", tmp_path / "b")
            wanted = state(broker)
        async with durable(copy) as broker:
            assert state(broker) == wanted
            assert len(wanted) > 1

    asyncio.run(use())
