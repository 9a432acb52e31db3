"""What a client has published and was not answered for: whatever its connection meets, its repetition ends it.

The publisher is one that repeats by the book (MQTT-4.4.0-1): all that is unfinished, in its first order, on each new
connection of its session, and nothing otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Publication
from gateway.broker import exchange
from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.waits import Wait
from gateway.mqtt5.packets import Disconnect, Packet, PubAck, PubComp, Publish, PubRec, PubRel, Version
from gateway.mqtt5.types import ReasonCode
from gateway.sessions import store as session_store
from tests.gateway.broker.test_holding import configured
from tests.gateway.ending import ends
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.sessions.test_store import Gatekeeper
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.waits import until

NUMBER = 60
"""More than the receiver's window and half its queue, so that some wait."""
ENDS_S = 10.0


class Publisher:
    """A session that repeats. `unfinished`: packet identifier -> what it says next."""

    def __init__(self, broker: EdgeBroker, version: Version, qos: int) -> None:
        self.broker, self.version, self.qos = broker, version, qos
        self.unfinished: dict[int, Packet] = {}
        self.codes: dict[int, int] = {}
        self.connections = 0
        self._wire: Wire | None = None
        self._reading: asyncio.Task[None] | None = None

    def publish(self, *numbers: int) -> None:
        assert self._wire is not None
        for number in numbers:
            self.unfinished[number] = Publish("ward/1", str(number).encode(), self.qos, packet_id=number)
        self._wire.send(*(self.unfinished[number] for number in numbers))

    async def connect(self) -> None:
        stays = {"session_expiry_s": 3_600} if self.version == Version.V5 else {}
        wire = self._wire = await Wire.connect(
            self.broker, "pub", self.version, clean_start=False, properties=stays
        )  # fmt: skip
        self.connections += 1
        for packet in self.unfinished.values():
            if isinstance(packet, Publish):
                packet.dup = self.connections > 1
        wire.send(*(one for one in self.unfinished.values() if isinstance(one, PubRel)))
        wire.send(*(one for one in self.unfinished.values() if isinstance(one, Publish)))
        self._reading = asyncio.create_task(self._read(wire))

    async def _read(self, wire: Wire) -> None:
        while (packet := await wire.next()) is not None:
            if isinstance(packet, PubRec) and packet.code < 0x80:
                self.unfinished[packet.packet_id] = release = PubRel(packet.packet_id)
                wire.send(release)
            elif isinstance(packet, PubAck | PubRec | PubComp):
                del self.unfinished[packet.packet_id]
                self.codes[packet.packet_id] = packet.code

    async def break_off(self) -> None:
        """The connection breaks, and the broker has noticed."""
        assert self._wire is not None
        assert self._reading is not None
        self._wire.cut()
        self._reading.cancel()
        await until(lambda: all(one.closed or one.client is None or one.client.client_id != "pub"
                                for one in self.broker.lifecycle.connections))  # fmt: skip

    async def stay(self, while_: Callable[[], bool]) -> None:
        """Connects again whenever the broker ends the connection."""
        while while_():
            assert self._reading is not None
            if self._reading.done():
                await self.connect()
            await asyncio.wait((self._reading,), timeout=0.05)


async def reading(sub: Wire, taken: list[bytes], finished: Callable[[], bool]) -> None:
    """A receiver that acknowledges all it gets."""
    while not finished():
        try:
            async with asyncio.timeout(0.2):
                packet = await sub.next()
        except TimeoutError:
            continue
        if isinstance(packet, Publish):
            taken.append(packet.payload)
            sub.send(PubAck(packet.packet_id) if packet.qos == 1 else PubRec(packet.packet_id))
        elif isinstance(packet, PubRel):
            sub.send(PubComp(packet.packet_id))


def numbers(taken: list[bytes]) -> list[int]:
    return [int(one) for one in taken]


VERSIONS = pytest.mark.parametrize("version", [Version.V311, Version.V5])
EVERY_QOS = pytest.mark.parametrize("qos", [1, 2])


async def check(sub: Wire, pub: Publisher, taken: list[bytes]) -> None:
    """All that was sent is acknowledged and delivered: in order, at QoS 2 once."""
    everything = list(range(1, NUMBER + 1))

    def finished() -> bool:
        return not pub.unfinished and set(numbers(taken)) == set(everything)

    async with asyncio.timeout(ENDS_S), asyncio.TaskGroup() as group:
        group.create_task(reading(sub, taken, finished))
        group.create_task(pub.stay(lambda: not finished()))
    # PUBCOMP of a PUBREL that comes twice, since the first PUBCOMP was lost, says so in MQTT 5.
    assert set(pub.codes.values()) <= {ReasonCode.SUCCESS, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND}
    assert list(dict.fromkeys(numbers(taken))) == everything, "in order"
    if pub.qos == 2:
        assert len(taken) == NUMBER, "once"


@asynccontextmanager
async def held(version: Version, qos: int) -> AsyncIterator[tuple[EdgeBroker, Wire, Publisher]]:
    """A receiver that does not read, and a publisher of which all is sent and the more part waits for it."""
    async with serving(configured({"hold_s": 1_000})) as broker:
        sub = await Wire.connect(broker, "sub", Version.V311)
        await sub.subscribe("ward/#", qos)
        pub = Publisher(broker, version, qos)
        await pub.connect()
        pub.publish(*range(1, NUMBER + 1))
        await until(lambda: broker.exchange.holding.waiting == 1)
        yield broker, sub, pub


@ends(Wait.RECEIVER, Wait.BEHIND)
@VERSIONS
@EVERY_QOS
@pytest.mark.parametrize("times", [1, 2, 3])
@on_loop
async def test_a_publisher_that_breaks_while_it_waits_for_a_receiver_gets_on(
    version: Version, qos: int, times: int
) -> None:
    async with held(version, qos) as (broker, sub, pub):
        for _ in range(times):
            await pub.break_off()
            await pub.connect()
        assert broker.exchange.holding.waiting == 1, "one place in the line, however often it connects"
        await check(sub, pub, [])


@VERSIONS
@EVERY_QOS
@on_loop
async def test_a_publisher_that_is_taken_over_while_it_waits_for_a_receiver_gets_on(version: Version, qos: int) -> None:
    async with held(version, qos) as (_, sub, pub):
        for _ in range(2):
            await pub.connect()
        await check(sub, pub, [])


@VERSIONS
@EVERY_QOS
@on_loop
async def test_a_publisher_that_is_away_while_the_receiver_reads_gets_on(version: Version, qos: int) -> None:
    async with held(version, qos) as (_, sub, pub):
        await pub.break_off()
        taken: list[bytes] = []
        await reading(sub, taken, lambda: len(taken) == NUMBER)
        assert numbers(taken) == list(range(1, NUMBER + 1)), "what came before the end still counts"
        await pub.connect()
        await check(sub, pub, taken)


class FullOutbox(FakeOverlay):
    """An overlay whose outbox is full while `room` is 0. What it takes is on disk when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.room, self.taken, self.undecided = 0, list[bytes](), list[Callable[[int], None]]()

    def publish_run(self, client_id: str, run: object, done: object) -> int:
        return 0

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        if not self.room:
            done(ReasonCode.QUOTA_EXCEEDED)
        else:
            self.room -= 1
            self.taken.append(publication.payload)
            self.undecided.append(done)
        return True

    def write(self) -> None:
        """All that was taken is on disk."""
        undecided, self.undecided = self.undecided, []
        for done in undecided:
            done(0)


@ends(Wait.OUTBOX_FULL)
@EVERY_QOS
@on_loop
async def test_whoever_met_a_full_outbox_twice_gets_on_when_there_is_room(qos: int) -> None:
    overlay: Any = FullOutbox()
    async with serving(overlay=overlay) as broker:
        pub = Publisher(broker, Version.V311, qos)
        await pub.connect()
        overlay.room = NUMBER // 3
        pub.publish(*range(1, NUMBER + 1))
        for room in (NUMBER // 3, NUMBER):
            await until(lambda: pub._reading is not None and pub._reading.done())
            assert not overlay.room, "it is refused before all is written, and nothing behind that is taken"
            overlay.write()
            await pub.connect()
            await until(lambda: pub._reading is not None and pub._reading.done())
            overlay.room = room
            await pub.connect()
        await until(lambda: overlay.write() or not pub.unfinished)
        order = list(dict.fromkeys(numbers(overlay.taken)))
        assert order == list(range(1, NUMBER + 1))
        assert qos == 1 or len(overlay.taken) == NUMBER


@on_loop
async def test_room_that_comes_behind_a_refusal_is_not_for_what_was_sent_later() -> None:
    overlay: Any = FullOutbox()
    async with serving(overlay=overlay) as broker:
        pub = Publisher(broker, Version.V311, 2)
        await pub.connect()
        overlay.room = 1
        pub.publish(1)
        await until(lambda: bool(overlay.undecided))
        pub.publish(2)
        await until(lambda: pub._reading is not None and pub._reading.done())
        assert pub.unfinished.keys() == {1, 2}, "1 is not on disk, and 2 is refused"
        overlay.room = 10
        await pub.connect()
        pub.publish(3)
        await until(lambda: len(overlay.undecided) == 3)
        overlay.write()
        await until(lambda: not pub.unfinished)
        assert numbers(overlay.taken) == [1, 2, 3]


@EVERY_QOS
@on_loop
async def test_a_disk_that_refuses_ends_the_connection_though_the_overlay_has_not_answered(
    qos: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes behind the refused publication would be taken before its repetition."""
    monkeypatch.setattr(session_store, "RETRY_S", 0.02)
    overlay: Any = FullOutbox()
    overlay.room = 10
    async with serving({"data": str(tmp_path)}, overlay=overlay) as broker:
        sub = await Wire.connect(broker, "sub", Version.V311, clean_start=False)
        await sub.subscribe("ward/#", 2)
        sub.cut()
        await until(lambda: broker.lifecycle.clients["sub"].connection is None)
        pub, gate = Publisher(broker, Version.V311, qos), Gatekeeper(broker)
        await pub.connect()
        store = broker.exchange.store
        assert store is not None
        await until(lambda: store.pending.is_empty and store._writing is None)
        gate.refused = {gate.commits + 1}
        pub.publish(1)
        assert pub._reading is not None
        await asyncio.wait_for(pub._reading, ENDS_S)
        assert overlay.undecided
        await until(lambda: not store.is_full)
        await pub.connect()
        pub.publish(2)
        await until(lambda: overlay.write() or not pub.unfinished)
        sub = await Wire.connect(broker, "sub", Version.V311, clean_start=False)
        assert [payload for _, payload in await sub.published()] == [b"1", b"2"]


@on_loop
async def test_on_its_next_connection_nothing_but_publications_waits() -> None:
    async with held(Version.V311, 2) as (broker, _, pub):
        await pub.break_off()
        wire = await Wire.connect(broker, "pub", Version.V311, clean_start=False)
        assert await wire.subscribe("lab/#", 1) == 1
        broker.local.deliver_local(Publication("lab/1", b"for it", 1))
        assert await wire.published() == [("lab/1", b"for it")]


@ends(Wait.PLUGIN)
@on_loop
async def test_a_plugin_that_never_answers_ends_the_connection_and_its_client_gets_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "ASK_S", 0.05)
    async with serving() as broker:
        host: Any = broker.host
        never = asyncio.Event()

        async def ask(*_: object) -> bool:
            await never.wait()
            return True

        monkeypatch.setattr(host, "ask_topic_plugins", ask)
        monkeypatch.setattr(host, "filters_topics", True)
        monkeypatch.setattr(host, "is_absent", False)
        monkeypatch.setattr(host, "verdict", lambda *_: None)
        sub = await Wire.connect(broker, "sub", Version.V311)
        pub = Publisher(broker, Version.V311, 2)
        await pub.connect()
        pub.publish(*range(1, 4))
        await until(lambda: pub._reading is not None and pub._reading.done())
        never.set()
        monkeypatch.setattr(host, "filters_topics", False)
        monkeypatch.setattr(host, "verdict", lambda *_: True)
        await sub.subscribe("ward/#", 2)
        taken: list[bytes] = []
        await pub.connect()
        await reading(sub, taken, lambda: not pub.unfinished and len(taken) == 3)
        assert numbers(taken) == [1, 2, 3]


@ends(Wait.OUTBOX, Wait.TURN)
@EVERY_QOS
@on_loop
async def test_the_second_of_two_is_answered_behind_the_first_though_it_is_on_disk_before(qos: int) -> None:
    overlay: Any = FullOutbox()
    overlay.room = 2
    async with serving(overlay=overlay) as broker:
        wire = await Wire.connect(broker, "pub")
        ids = [wire.publish("ward/1", b"%d" % number, qos) for number in (1, 2)]
        await until(lambda: len(overlay.undecided) == 2)
        first, second = overlay.undecided
        second(0)
        assert await wire.barrier() == []
        first(0)
        kind = PubAck if qos == 1 else PubRec
        assert [(await wire.expect(kind)).packet_id for _ in ids] == ids


@ends(Wait.SHUTDOWN)
@EVERY_QOS
@pytest.mark.parametrize("is_written", [True, False])
@on_loop
async def test_a_broker_that_stops_answers_what_is_decided_in_time_and_then_says_goodbye(
    qos: int, is_written: bool
) -> None:
    overlay: Any = FullOutbox()
    overlay.room = 1
    async with serving({"limits": {"shutdown_s": 5 if is_written else 0.1}}, overlay=overlay) as broker:
        wire = await Wire.connect(broker, "pub")
        wire.publish("ward/1", b"1", qos)
        await until(lambda: bool(overlay.undecided))
        if is_written:
            asyncio.get_running_loop().call_later(0.05, overlay.write)
    *answers, bye = await wire.closed()
    assert isinstance(bye, Disconnect)
    assert bye.code == ReasonCode.SERVER_SHUTTING_DOWN
    assert [type(one) for one in answers] == [PubAck if qos == 1 else PubRec] * is_written
