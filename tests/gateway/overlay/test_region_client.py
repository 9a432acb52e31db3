"""The MQTT 5 client against a scripted server: what the server gets, and what the application gets told."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bridge.contract.machine import Wire
from bridge.membership.adopting import OVERLAY_TOPIC
from bridge.wire.statements import SUBSCRIBE_TOPIC, RoutingTable, Statement
from gateway.client import redial
from gateway.client.tls import LinkTls
from gateway.mqtt5.actions import SessionLimits
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
)
from gateway.mqtt5.types import MalformedPacket
from gateway.overlay.region_client import Arrival, ClientError, MqttClient, Publish, RegionClient, TrustError
from gateway.trust.domains import LocalIdentity
from gateway.trust.overlay_file import load_overlay
from tests.support.parties import Parties
from tests.waits import until

P = TypeVar("P")


@dataclass
class Connection:
    """The server's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    decoder: Decoder = field(default_factory=lambda: Decoder(None))
    packets: list[Packet] = field(default_factory=list)
    reads: int = 0

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(packet, Version.V5) for packet in packets))

    async def expect(self, kind: type[P]) -> P:
        """The next packet, which must be of this kind."""
        while not self.packets:
            data = await asyncio.wait_for(self.reader.read(65536), 5)
            assert data, f"connection ended before {kind.__name__}"
            self.reads += 1
            self.packets += self.decoder.feed(data)
            assert self.decoder.error is None
        packet = self.packets.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    async def accept(self, session_present: bool = False, **properties: Any) -> Connect:
        connect = await self.expect(Connect)
        self.send(ConnAck(session_present, 0, Properties(**properties)))
        return connect

    async def ended(self) -> bool:
        while await asyncio.wait_for(self.reader.read(65536), 5):
            pass
        return True

    def cut(self) -> None:
        self.writer.transport.abort()


class Server:
    """Accepts connections one after the other; the test says what happens on each."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Connection] = asyncio.Queue()
        self.port = 0

    async def next(self) -> Connection:
        return await asyncio.wait_for(self.queue.get(), 5)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        server.queue.put_nowait(Connection(reader, writer))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for writer in writers:
            writer.transport.abort()


def scenario(test: Callable[[Server], Awaitable[None]]) -> Callable[[pytest.MonkeyPatch], None]:
    """Run the coroutine against a fresh server, with reconnects that do not wait long."""

    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(redial, "RETRY_FIRST_S", 0.01)

        async def main() -> None:
            async with serving() as server:
                await test(server)

        asyncio.run(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def connected(server: Server, **options: Any) -> tuple[MqttClient, Connection]:
    client = MqttClient("127.0.0.1", server.port, client_id="c", **options)
    client.start()
    peer = await server.next()
    await peer.accept()
    await until(lambda: client.connected)
    return client, peer


@scenario
async def test_connect_says_what_it_was_told_to(server: Server) -> None:
    client = MqttClient(
        "127.0.0.1", server.port, client_id="g1", keep_alive_s=7, clean_start=False, session_expiry_s=60,
        receive_maximum=9, username="u", password=b"p", properties=(("generation", "3"),),
    )  # fmt: skip
    client.start()
    connect = await (await server.next()).accept()
    assert (connect.client_id, connect.keep_alive_s, connect.clean_start) == ("g1", 7, False)
    assert (connect.username, connect.password) == ("u", b"p")
    properties = connect.properties
    assert (properties.session_expiry_s, properties.receive_maximum) == (60, 9)
    assert properties.user == (("generation", "3"),)
    await client.close()


@scenario
async def test_many_publications_are_one_read_for_the_server(server: Server) -> None:
    client, peer = await connected(server)
    for n in range(100):
        assert client.publish("a", b"%d" % n, 1, True, (("k", "v"), ("k", "w")))
    received = [await peer.expect(Publish) for _ in range(100)]
    assert [p.payload for p in received] == [b"%d" % n for n in range(100)]
    assert received[0].retain
    assert received[0].properties.user == (("k", "v"), ("k", "w"))
    assert peer.reads <= 3  # CONNECT, and the publications
    await client.close()


@scenario
async def test_on_ack_comes_with_success_and_never_with_a_refusal(server: Server) -> None:
    client, peer = await connected(server)
    acked: list[str] = []
    client.publish("a", b"", 1, on_ack=lambda: acked.append("a"))
    client.publish("b", b"", 1, on_ack=lambda: acked.append("b"))
    client.publish("c", b"", 1, on_ack=lambda: acked.append("c"))
    ids = [(await peer.expect(Publish)).packet_id for _ in range(3)]
    peer.send(PubAck(ids[0]), PubAck(ids[1], 0x87), PubAck(ids[2], 0x10))
    await until(lambda: len(acked) == 2)
    assert acked == ["a", "c"]
    assert client.acks.refused == 1
    await client.close()


@scenario
async def test_no_more_in_flight_than_the_server_allows_and_a_full_queue_refuses(server: Server) -> None:
    client = MqttClient("127.0.0.1", server.port, limits=SessionLimits(queue_messages=3))
    client.start()
    peer = await server.next()
    await peer.accept(receive_maximum=2)
    await until(lambda: client.connected)
    assert [client.publish("a", b"%d" % n, 1) for n in range(7)] == [True] * 5 + [False] * 2
    ids = [(await peer.expect(Publish)).packet_id for _ in range(2)]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.reader.read(1), 0.05)
    peer.send(PubAck(ids[0]))
    assert (await peer.expect(Publish)).payload == b"2"
    await client.close()


@scenario
async def test_what_cannot_be_sent_now_is_refused_not_raised(server: Server) -> None:
    client = MqttClient("127.0.0.1", server.port)
    assert not client.publish("a", b"", 0)
    assert not client.publish("a", b"", 1)
    client.start()
    peer = await server.next()
    await peer.accept(maximum_packet_size=100, maximum_qos=1, retain_available=0)
    await until(lambda: client.connected)
    assert not client.publish("a", bytes(200), 1)
    assert "maximum packet size" in client.last_error
    assert not client.publish("a", b"", 2)
    assert not client.publish("a", b"", 0, retain=True)
    with pytest.raises(MalformedPacket):
        client.publish("a/#", b"", 0)
    await client.close()


@scenario
async def test_messages_are_acknowledged_when_the_callback_returns(server: Server) -> None:
    client, peer = await connected(server)
    got: list[bytes] = []
    client.on_publish = lambda publish: got.append(publish.payload)
    peer.send(*(Publish("a", b"%d" % n, 1, packet_id=n) for n in range(1, 4)), Publish("a", b"0"))
    assert [(await peer.expect(PubAck)).packet_id for _ in range(3)] == [1, 2, 3]
    assert got == [b"1", b"2", b"3", b"0"]
    await client.close()


@scenario
async def test_with_manual_ack_the_application_decides_when(server: Server) -> None:
    client, peer = await connected(server, manual_ack=True)
    held: list[Publish] = []
    client.on_publish = held.append
    peer.send(*(Publish("a", b"", 1, packet_id=n) for n in (1, 2, 3)))
    await until(lambda: len(held) == 3)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.reader.read(1), 0.05)
    client.acknowledge(held[2])
    client.acknowledge(held[0], 0x97)
    assert (await peer.expect(PubAck)).packet_id == 3
    assert await peer.expect(PubAck) == PubAck(1, 0x97)
    await client.close()


@scenario
async def test_an_acknowledgement_after_a_reconnect_is_not_taken_for_another_message(server: Server) -> None:
    client, peer = await connected(server, manual_ack=True)
    held: list[Publish] = []
    client.on_publish = held.append
    peer.send(Publish("a", b"old", 1, packet_id=1))
    await until(lambda: held)
    peer.cut()
    peer = await server.next()
    await peer.accept()
    peer.send(Publish("a", b"new", 1, packet_id=1))
    await until(lambda: len(held) == 2)
    client.acknowledge(held[0])
    client.publish("marker", b"")
    await peer.expect(Publish)  # and no PUBACK before it
    client.acknowledge(held[1])
    await peer.expect(PubAck)
    await client.close()


@scenario
async def test_it_comes_back_and_subscribes_anew(server: Server) -> None:
    client, peer = await connected(server)
    history: list[str] = []
    client.on_up = lambda: history.append("up")
    client.on_down = lambda: history.append("down")
    codes: list[int] = []
    client.subscribe("a/#", on_answer=codes.append)
    client.subscribe("b", qos=0)
    first = await peer.expect(Subscribe)
    second = await peer.expect(Subscribe)
    assert (first.subscriptions[0].filter, first.subscriptions[0].qos) == ("a/#", 1)
    peer.send(SubAck(first.packet_id, (1,)), SubAck(second.packet_id, (0,)))
    await until(lambda: codes == [1])
    peer.cut()
    peer = await server.next()
    await peer.accept()
    again = await peer.expect(Subscribe)
    assert [s.filter for s in again.subscriptions] == ["a/#", "b"]
    await until(lambda: history == ["down", "up"])
    client.subscribe("a/#", on_answer=codes.append)  # asked already on this connection
    client.unsubscribe("b")
    dropped = await peer.expect(Unsubscribe)
    assert dropped.filters == ("b",)
    peer.send(UnsubAck(dropped.packet_id, (0,)))
    await client.close()
    assert history == ["down", "up", "down"]


@scenario
async def test_a_kept_session_is_not_subscribed_again_and_repeats_what_was_unacknowledged(server: Server) -> None:
    client, peer = await connected(server, clean_start=False, session_expiry_s=60)
    acked: list[str] = []
    client.subscribe("a")
    subscribe = await peer.expect(Subscribe)
    peer.send(SubAck(subscribe.packet_id, (1,)))
    client.publish("x", b"1", 1, on_ack=lambda: acked.append("1"))
    await peer.expect(Publish)
    peer.cut()
    await until(lambda: not client.connected)
    assert client.publish("x", b"2", 1, on_ack=lambda: acked.append("2"))  # waits for the connection
    peer = await server.next()
    connect = await peer.accept(session_present=True)
    assert not connect.clean_start
    repeated, waiting = await peer.expect(Publish), await peer.expect(Publish)
    assert (repeated.payload, repeated.dup) == (b"1", True)
    assert (waiting.payload, waiting.dup) == (b"2", False)
    peer.send(PubAck(repeated.packet_id), PubAck(waiting.packet_id))
    await until(lambda: acked == ["1", "2"])
    await client.close()


@scenario
async def test_a_subscription_without_answer_is_asked_again_in_a_kept_session(server: Server) -> None:
    client, peer = await connected(server, clean_start=False, session_expiry_s=60)
    client.subscribe("a")
    await peer.expect(Subscribe)
    peer.cut()
    peer = await server.next()
    await peer.accept(session_present=True)
    assert (await peer.expect(Subscribe)).subscriptions[0].filter == "a"
    await client.close()


@scenario
async def test_with_clean_start_nothing_survives_a_connection(server: Server) -> None:
    client, peer = await connected(server)
    acked: list[str] = []
    client.publish("x", b"1", 1, on_ack=lambda: acked.append("1"))
    first = await peer.expect(Publish)
    peer.cut()
    peer = await server.next()
    await peer.accept()
    await until(lambda: client.connected)
    client.publish("x", b"2", 1, on_ack=lambda: acked.append("2"))
    only = await peer.expect(Publish)
    assert (only.payload, only.packet_id) == (b"2", first.packet_id)
    peer.send(PubAck(only.packet_id))
    await until(lambda: acked == ["2"])
    await client.close()


@scenario
async def test_more_filters_than_a_packet_takes(server: Server) -> None:
    client = MqttClient("127.0.0.1", server.port)
    for n in range(150):
        client.subscribe(f"t/{n}")
    client.start()
    peer = await server.next()
    await peer.accept()
    sizes = [len((await peer.expect(Subscribe)).subscriptions) for _ in range(3)]
    assert sizes == [64, 64, 22]
    await client.close()


@pytest.mark.parametrize("answer", [
    b"\x20\x02\x00\x01",          # MQTT 3.1.1: unacceptable protocol version
    b"\x20\x02\x00\x00",          # a 3.1.1 broker that accepts any level
    b"\x20\x03\x00\x84\x00",      # an MQTT 5 broker that has MQTT 5 switched off
])  # fmt: skip
def test_a_broker_below_mqtt_5_is_refused_in_one_clear_line(answer: bytes) -> None:
    async def main() -> None:
        async with serving() as server:
            client = MqttClient("127.0.0.1", server.port)
            attempt = asyncio.create_task(client.connect())
            peer = await server.next()
            await peer.expect(Connect)
            peer.writer.write(answer)
            with pytest.raises(ClientError) as caught:
                await attempt
            assert str(caught.value) == (
                f"broker 127.0.0.1:{server.port} does not speak MQTT 5: "
                "it would strip user properties; use an MQTT 5 broker"
            )
            assert await peer.ended()

    asyncio.run(main())


@scenario
async def test_a_refusal_names_the_reason(server: Server) -> None:
    client = MqttClient("127.0.0.1", server.port)
    attempt = asyncio.create_task(client.connect())
    peer = await server.next()
    await peer.expect(Connect)
    peer.send(ConnAck(False, 0x87))
    with pytest.raises(ClientError, match=r"refused the connection: .*NOT_AUTHORIZED \(0x87\)") as caught:
        await attempt
    assert caught.value.code == 0x87


def test_nobody_there_and_somebody_who_hangs_up() -> None:
    async def main() -> None:
        async with serving() as server:
            port = server.port
            client = MqttClient("127.0.0.1", port)
            attempt = asyncio.create_task(client.connect())
            (await server.next()).cut()
            with pytest.raises(ClientError, match=r"closed the connection|Connection reset"):
                await attempt
        with pytest.raises(ClientError, match=r"check the address, and that a broker listens there") as caught:
            await MqttClient("127.0.0.1", port).connect()
        assert "\n" not in str(caught.value)

    asyncio.run(main())


@scenario
async def test_junk_ends_the_connection_and_it_tries_again(server: Server) -> None:
    client, peer = await connected(server)
    peer.writer.write(b"\xff\xff\xff\xff\xff\xff")
    assert (await peer.expect(Disconnect)).code == 0x81
    assert await peer.ended()
    await (await server.next()).accept()
    await client.close()


def test_reconnects_wait_longer_each_time_and_never_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        waits.append(delay_s)
        await sleep(0)

    async def main(random: float) -> list[float]:
        waits.clear()
        async with serving() as server:
            port = server.port  # closed below: nobody listens there any more
        client = MqttClient("127.0.0.1", port, random=lambda: random)
        monkeypatch.setattr(asyncio, "sleep", note)
        client.start()
        while len(waits) < 10:
            await sleep(0.001)
        await client.close()
        monkeypatch.setattr(asyncio, "sleep", sleep)
        return waits[:10]

    longest = asyncio.run(main(1.0))
    assert longest == [0.25, 0.5, 1, 2, 4, 8, 8, 8, 8, 8]
    assert asyncio.run(main(0.0)) == [wait / 2 for wait in longest]


@pytest.mark.long
@scenario
async def test_a_silent_server_is_pinged_and_given_up(server: Server) -> None:
    """Half-open: the cable is cut, no FIN ever comes."""
    client, peer = await connected(server, keep_alive_s=1)
    client._session.PING_TIMEOUT_S = 0.05
    down: list[bool] = []
    client.on_down = lambda: down.append(True)
    await peer.expect(PingReq)
    peer.send(PingResp())
    await peer.expect(PingReq)
    await until(lambda: down)
    assert await peer.ended()
    await client.close()


@scenario
async def test_whoever_was_thrown_out_by_a_successor_does_not_come_back_at_once(server: Server) -> None:
    client, peer = await connected(server)
    peer.send(Disconnect(0x8E))
    assert await peer.ended()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.queue.get(), 0.3)
    assert "0x8e" in client.last_error
    await client.close()


@scenario
async def test_close_says_goodbye(server: Server) -> None:
    client, peer = await connected(server)
    client.publish("last", b"words")
    await client.close()
    assert (await peer.expect(Publish)).topic == "last"
    assert (await peer.expect(Disconnect)).code == 0
    assert not client.connected


class Region:
    """Three replicas as scripted TLS servers, and an ingest job that listens to them."""

    def __init__(self, directory: Path) -> None:
        self.world = Parties(directory, time.time())
        self.connections: dict[str, asyncio.Queue[Connection]] = {f"r{n}": asyncio.Queue() for n in (1, 2, 3)}
        self._listeners: list[asyncio.Server] = []

    async def start(self, certificates: tuple[str, ...] = ("r1", "r2", "r3")) -> None:
        """`certificates`: whose identity each of the three shows; another order is an attack."""
        ports = []
        for name in self.connections:
            sock = socket.create_server(("127.0.0.1", 0))
            ports.append((name, sock, sock.getsockname()[1]))
        for entry, (_, _, port) in zip(self.world.description["regions"][0]["members"], ports, strict=True):
            entry["address"] = f"127.0.0.1:{port}"
        self.world.sign()
        overlay = load_overlay(self.world.out, int(time.time() * 1000))
        for (name, sock, _), shown in zip(ports, certificates, strict=True):
            local = LocalIdentity.load(self.world.directory / shown)
            tls = LinkTls(shown, local.cert, local.key_path, overlay.members)
            accept = partial(self._accept, name, tls)
            self._listeners.append(await asyncio.start_server(accept, sock=sock, ssl=tls.server))

    async def _accept(
        self, name: str, tls: LinkTls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        assert tls.peer_name(writer.transport) == "spark"
        self.connections[name].put_nowait(Connection(reader, writer))

    def receiver(self, filters: list[str], on_arrival: Callable[[Arrival], object]) -> RegionClient:
        return RegionClient(self.world.directory / "spark", self.world.out, filters, on_arrival)

    def stop(self) -> None:
        for listener in self._listeners:
            listener.close()


def test_a_region_is_one_source_and_acknowledged_only_when_done(tmp_path: Path) -> None:
    async def main() -> None:
        region = Region(tmp_path)
        await region.start()
        arrivals: list[Arrival] = []
        receiver = region.receiver(["pumps/7/#"], arrivals.append)
        receiver.start()
        table = RoutingTable(receiver.overlay)
        replicas = {}
        for name, queue in region.connections.items():
            peer = replicas[name] = await asyncio.wait_for(queue.get(), 5)
            connect = await peer.accept()
            assert (connect.client_id, connect.clean_start) == ("spark", False)
            subscribe = await peer.expect(Subscribe)
            assert subscribe.subscriptions[0].filter == "pumps/#"  # the scope, not what we look at in it
            peer.send(SubAck(subscribe.packet_id, (1,)))
            statement = await peer.expect(Publish)
            assert statement.topic == SUBSCRIBE_TOPIC
            table.accept(Statement.decode(statement.payload), time.time())
            offer = await peer.expect(Publish)
            assert offer.topic == OVERLAY_TOPIC  # which version of the overlay it has
            peer.send(PubAck(statement.packet_id), PubAck(offer.packet_id))
        assert table.wanting(receiver.read_scopes[0].scope, time.time()) == ["spark"]
        await until(lambda: receiver.is_accepted)
        assert receiver.connected_replicas == ("r1", "r2", "r3")
        properties = Properties(user=(("vmq", "AA"),))
        replicas["r2"].send(Publish("pumps/7", b"sealed", 1, packet_id=5, properties=properties))
        await until(lambda: arrivals)
        assert arrivals[0].replica == "r2"
        assert arrivals[0].wire == Wire("pumps/7", b"sealed", 1, False, (("vmq", "AA"),))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(replicas["r2"].reader.read(1), 0.05)
        arrivals[0].acknowledge()
        assert (await replicas["r2"].expect(PubAck)).packet_id == 5
        await receiver.close()
        region.stop()

    asyncio.run(main())


def test_a_replica_cannot_stand_in_for_another(tmp_path: Path) -> None:
    """Attack: one that answers at the address of another gets two places, and so two shares of every key."""

    async def main() -> None:
        region = Region(tmp_path)
        await region.start(("r2", "r2", "r3"))
        receiver = region.receiver(["pumps/#"], lambda _: None)
        receiver.start()
        await until(lambda: "r1" in receiver.errors)
        assert "shows the certificate of somebody else" in receiver.errors["r1"]
        for name in ("r2", "r3"):
            await (await asyncio.wait_for(region.connections[name].get(), 5)).accept()
        await until(lambda: receiver.connected_replicas == ("r2", "r3"))
        while not region.connections["r1"].empty():  # whoever posed as r1 got not one byte of ours
            with suppress(ConnectionError):
                assert await region.connections["r1"].get_nowait().reader.read() == b""
        await receiver.close()
        region.stop()

    asyncio.run(main())


def test_a_receiver_knows_what_it_needs_to_open_and_is_refused_what_it_may_not_read(tmp_path: Path) -> None:
    async def main() -> None:
        region = Region(tmp_path)
        await region.start()
        receiver = region.receiver(["pumps/#"], lambda _: None)
        (key,) = (key for name, key in receiver.scope_keys if name.scope == "pumps/#")
        assert key.hex() not in repr(receiver.scope_keys)
        gateway = receiver.overlay.certificate("g1")
        assert receiver.publisher(gateway.party_id) == gateway
        assert receiver.publisher(bytes(16)) is None
        assert receiver.home_region == 1
        with pytest.raises(TrustError, match="no scope that we may read holds vault/x"):
            region.receiver(["vault/x"], lambda _: None)
        with pytest.raises(TrustError, match="is a replica, which cannot read"):
            RegionClient(region.world.directory / "r1", region.world.out, ["pumps/#"], lambda _: None)
        region.stop()

    asyncio.run(main())


@scenario
async def test_a_password_shows_nowhere(server: Server) -> None:
    client = MqttClient("127.0.0.1", server.port, username="u", password=b"hunter2")
    assert "hunter2" not in repr(client)
    assert "hunter2" not in repr(client._connect)
    assert "hunter2" not in repr(client._session)
