"""One connection: timeouts, TLS, batching, backpressure, WebSocket and external listeners."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from websockets.asyncio.client import connect as websocket_connect

from gateway.base import turns
from gateway.base.config import StartError, parse
from gateway.broker.running import make_broker
from gateway.clients import EntitySeen
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.packets import ConnAck, Connect, Disconnect, PingReq, PingResp, PubAck, Publish, Version
from gateway.mqtt5.session import ServerSession
from gateway.mqtt5.types import ReasonCode
from gateway.sockets.connection import MqttConnection
from gateway.sockets.flushing import Flusher
from tests.gateway.certificates import Authority
from tests.gateway.harness import Wire, serving
from tests.waits import until


def test_whoever_does_not_say_connect_is_cut_off() -> None:
    async def check() -> None:
        async with serving({"limits": {"connect_timeout_s": 0.05}}) as broker:
            silent = await Wire.open(broker)
            assert await silent.closed() == []
            slow = await Wire.open(broker)
            slow.raw(encode(Connect("c"), Version.V5)[:-1])
            assert await slow.closed() == []

    asyncio.run(check())


@pytest.mark.parametrize("first", [b"\xc0\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_something_else_than_connect_is_cut_off_without_an_answer(first: bytes) -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.open(broker)
            wire.raw(first)
            assert await wire.closed() == []

    asyncio.run(check())


def test_more_connections_than_allowed_are_not_accepted() -> None:
    async def check() -> None:
        async with serving({"limits": {"connections": 2}}) as broker:
            kept = [await Wire.connect(broker) for _ in range(2)]
            assert await (await Wire.open(broker)).closed() == []
            kept[0].cut()
            await until(lambda: len(broker.lifecycle.connections) == 1)
            again = await Wire.connect(broker)
            assert again.connack is not None
            assert again.connack.code == 0

    asyncio.run(check())


def test_extended_authentication_is_refused() -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.connect(broker, "c", properties={"authentication_method": "SCRAM"})
            assert wire.connack is not None
            assert wire.connack.code == ReasonCode.BAD_AUTHENTICATION_METHOD

    asyncio.run(check())


class RecordingTransport(asyncio.Transport):
    """Takes writes and remembers them one by one."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 5)})
        self.writes: list[bytes] = []
        self.reading = True
        self.buffered = 0
        self.ended = ""

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


async def fake_client(broker: Any, client_id: str, version: Version = Version.V5) -> tuple[Any, Any]:
    """A connected client without a socket: (connection, transport)."""
    connection = MqttConnection(broker.lifecycle, broker._flusher, "default", False, False)
    transport = RecordingTransport()
    connection.connection_made(transport)
    connection.data_received(encode(Connect(client_id, version), version))
    await until(lambda: transport.writes)
    transport.writes.clear()
    return connection, transport


def test_everything_of_one_turn_leaves_in_one_write() -> None:
    async def check() -> None:
        async with serving() as broker:
            sub = await Wire.connect(broker, "sub")
            connection, transport = await fake_client(broker, "fake")
            await sub.subscribe("t")
            client = broker.lifecycle.clients["fake"]
            assert client.connection is connection
            wire = await Wire.connect(broker, "pub")
            await wire.subscribe("none")
            connection.data_received(
                b"\x82\x07\x00\x01\x00\x00\x01t\x00"
                + encode(PingReq(), Version.V5) * 3
                + encode(Publish("t", b"1"), Version.V5) * 5
            )
            await until(lambda: transport.writes)
            (data,) = transport.writes
            packets = Decoder(Version.V5, role="client").feed(data)
            assert [type(packet).__name__ for packet in packets] == (["SubAck"] + ["PingResp"] * 3 + ["Publish"] * 5)
            assert len(await sub.published()) == 5
            connection.connection_lost(None)

    asyncio.run(check())


@pytest.mark.parametrize("is_clock_over", [True, False])
def test_what_a_reset_connection_had_sent_is_taken_in_turns(
    is_clock_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a long read of small packets, then a reset: all of it was taken in one turn of the event loop."""

    async def check() -> None:
        async with serving() as broker:
            connection, _ = await fake_client(broker, "fake")
            monkeypatch.setattr(turns, "READS_S", 0.0 if is_clock_over else 60.0)
            packets, before = 16_000, broker.lifecycle.traffic.publish_received
            connection.data_received(encode(Publish("t", b"1"), Version.V5) * packets)
            connection.connection_lost(ConnectionResetError())
            taken = broker.lifecycle.traffic.publish_received - before
            assert taken < packets / 2
            assert connection in broker.lifecycle.connections
            await until(lambda: connection not in broker.lifecycle.connections)
            assert broker.lifecycle.traffic.publish_received - before == packets
            assert broker.lifecycle.clients.get("fake") is None

    asyncio.run(check())


@pytest.mark.parametrize("last", [encode(Disconnect(), Version.V5), b"\x00\x00"])
def test_nothing_counts_behind_the_end_that_a_reset_connection_had_sent(
    last: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, _ = await fake_client(broker, "fake")
            monkeypatch.setattr(turns, "READS_S", 0.0)
            publish, before = encode(Publish("t", b"1"), Version.V5), broker.lifecycle.traffic.publish_received
            connection.data_received(publish * 3 + last + publish * 10_000)
            connection.connection_lost(ConnectionResetError())
            await until(lambda: connection not in broker.lifecycle.connections)
            assert broker.lifecycle.traffic.publish_received - before < 3_000
            assert not connection._rest

    asyncio.run(check())


def test_a_connection_that_is_reset_before_its_connect_was_taken_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
        async with serving() as broker:
            monkeypatch.setattr(turns, "READS_S", 0.0)
            connection = MqttConnection(broker.lifecycle, broker._flusher, "default", False, False)
            connection.connection_made(RecordingTransport())
            publish = encode(Publish("t", b"1"), Version.V5)
            connection.data_received(encode(Connect("early"), Version.V5) + publish * 10_000)
            connection.connection_lost(ConnectionResetError())
            await until(lambda: connection not in broker.lifecycle.connections)
            assert "early" not in broker.lifecycle.clients
        assert not errors

    asyncio.run(check())


def counted(broker: Any) -> tuple[int, ...]:
    traffic = broker.lifecycle.traffic
    return traffic.packets_received, traffic.packets_sent, traffic.bytes_received, traffic.bytes_sent


@pytest.mark.parametrize("reads", [(b"\xc0\0",), (b"\xc0", b"\0")], ids=["whole", "in halves"])
def test_a_ping_alone_in_its_read_is_answered_and_counted_as_any_packet(reads: tuple[bytes, ...]) -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_client(broker, "fake")
            client, heard = broker.lifecycle.clients["fake"], list[Any]()
            broker.exchange.watchers.append(heard.append)
            before, client.seen_at = counted(broker), 0.0
            client.session._last_received = 0.0
            for read in reads:
                connection.data_received(read)
            await until(lambda: transport.writes)
            assert transport.writes == [b"\xd0\0"]
            assert [now - was for was, now in zip(before, counted(broker), strict=True)] == [1, 1, 2, 2]
            assert client.session._last_received > 0
            assert heard == [EntitySeen("fake")]
            connection.connection_lost(None)

    asyncio.run(check())


def test_a_ping_is_not_answered_before_what_was_asked_earlier() -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_client(broker, "fake")
            connection.data_received(encode(Publish("t", b"", 1, packet_id=1), Version.V5))
            connection.data_received(encode(PingReq(), Version.V5))
            connection.hold_bytes(7)  # answers wait for the disk
            await until(lambda: b"".join(transport.writes).endswith(b"\xd0\0"))
            packets = Decoder(Version.V5, role="client").feed(b"".join(transport.writes))
            assert [type(packet) for packet in packets] == [PubAck, PingResp]
            transport.writes.clear()
            connection.data_received(encode(PingReq(), Version.V5))
            assert transport.writes == []
            connection.release_bytes(7)
            connection.flush()
            assert transport.writes == [b"\xd0\0"]
            connection.connection_lost(None)

    asyncio.run(check())


def test_a_fault_of_ours_at_a_ping_ends_its_connection_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(session: ServerSession, now: float) -> bool:
        raise RuntimeError

    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_client(broker, "fake")
            monkeypatch.setattr(ServerSession, "note_sign_of_life", fails)
            connection.data_received(encode(PingReq(), Version.V5))
            assert connection.closed
            (bye,) = Decoder(Version.V5, role="client").feed(b"".join(transport.writes))
            assert isinstance(bye, Disconnect)
            assert bye.code == ReasonCode.UNSPECIFIED_ERROR
            assert broker.lifecycle.traffic.defects.count == 1
            connection.connection_lost(None)

    asyncio.run(check())


def test_a_ping_behind_disconnect_has_no_answer() -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_client(broker, "fake")
            connection.data_received(encode(Disconnect(), Version.V5))
            connection.data_received(encode(PingReq(), Version.V5))
            assert b"\xd0\0" not in transport.writes
            connection.connection_lost(None)

    asyncio.run(check())


async def given(broker: Any, transport: RecordingTransport, messages: int, qos: int = 1) -> list[Publish]:
    """Publishes so many messages on `t`; returns those that the fake client got."""
    transport.writes.clear()
    pub = await Wire.connect(broker, "pub")
    for number in range(messages):
        pub.publish("t", b"%d" % number, qos)
    await until(lambda: transport.writes)
    await pub.barrier()
    pub.cut()
    packets = Decoder(Version.V311, role="client").feed(b"".join(transport.writes))
    transport.writes.clear()
    return [packet for packet in packets if isinstance(packet, Publish)]


async def fake_reader(broker: Any, qos: int = 1) -> tuple[Any, Any]:
    connection, transport = await fake_client(broker, "fake", Version.V311)
    connection.data_received(b"\x82\x06\x00\x01\x00\x01t" + bytes([qos]))
    await until(lambda: transport.writes)
    return connection, transport


@pytest.mark.parametrize("split", [4, 2], ids=["whole", "in halves"])
def test_an_acknowledgement_alone_in_its_read_ends_its_flow_and_is_counted(split: int) -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_reader(broker)
            (message,) = await given(broker, transport, 1)
            client, data = broker.lifecycle.clients["fake"], encode(PubAck(message.packet_id), Version.V311)
            before, client.session._last_received = counted(broker), 0.0
            connection.data_received(data[:split])
            connection.data_received(data[split:])
            assert client.session.outbound.in_flight == client.session.held_bytes == 0
            assert [now - was for was, now in zip(before, counted(broker), strict=True)] == [1, 0, 4, 0]
            assert client.session._last_received > 0
            connection.connection_lost(None)

    asyncio.run(check())


def test_acknowledgements_of_one_read_end_their_flows_and_are_counted() -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_reader(broker)
            messages = await given(broker, transport, 50)
            client = broker.lifecycle.clients["fake"]
            data = b"".join(encode(PubAck(message.packet_id), Version.V311) for message in messages)
            before = counted(broker)
            connection.data_received(data)
            assert client.session.outbound.in_flight == client.session.held_bytes == 0
            assert [now - was for was, now in zip(before, counted(broker), strict=True)] == [50, 0, 200, 0]
            connection.connection_lost(None)

    asyncio.run(check())


def test_a_wrong_acknowledgement_among_others_of_its_read_ends_the_connection() -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_reader(broker)
            messages = await given(broker, transport, 3)
            before = counted(broker)
            ids = [messages[0].packet_id, 0, messages[1].packet_id]
            connection.data_received(b"".join(b"\x40\2" + number.to_bytes(2, "big") for number in ids))
            assert connection.closed
            assert counted(broker)[2] - before[2] == 12
            connection.connection_lost(None)

    asyncio.run(check())


def test_an_acknowledgement_alone_in_its_read_lets_the_next_message_go() -> None:
    async def check() -> None:
        async with serving({"limits": {"in_flight": 2}}) as broker:
            connection, transport = await fake_reader(broker)
            first, second = await given(broker, transport, 3)
            for message in (first, second):
                connection.data_received(encode(PubAck(message.packet_id), Version.V311))
            await until(lambda: transport.writes)
            (third,) = Decoder(Version.V311, role="client").feed(b"".join(transport.writes))
            assert isinstance(third, Publish)
            assert third.payload == b"2"
            connection.connection_lost(None)

    asyncio.run(check())


@pytest.mark.parametrize(("qos", "packet_id"), [(1, 0), (2, 1)], ids=["identifier 0", "of a message of QoS 2"])
def test_a_wrong_acknowledgement_alone_in_its_read_ends_the_connection(qos: int, packet_id: int) -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_reader(broker, qos)
            await given(broker, transport, 1, qos)
            connection.data_received(b"\x40\2" + packet_id.to_bytes(2, "big"))
            assert connection.closed
            connection.connection_lost(None)

    asyncio.run(check())


def test_a_slow_reader_loses_qos_0_keeps_qos_1_and_recovers() -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_client(broker, "slow", Version.V311)
            connection.data_received(b"\x82\x06\x00\x01\x00\x01t\x01")
            await until(lambda: transport.writes)
            transport.writes.clear()
            connection.pause_writing()
            pub = await Wire.connect(broker, "pub")
            pub.publish("t", b"dropped", 0)
            for number in range(3):
                pub.publish("t", b"%d" % number, 1)
            await pub.barrier()
            assert transport.writes == []
            connection.resume_writing()
            await until(lambda: transport.writes)
            packets = Decoder(Version.V311, role="client").feed(b"".join(transport.writes))
            assert [packet.payload for packet in packets if isinstance(packet, Publish)] == [b"0", b"1", b"2"]
            assert broker.lifecycle.clients["slow"].session.figures.dropped_qos0 == 1
            connection.connection_lost(None)

    asyncio.run(check())


def test_a_client_that_never_reads_its_answers_is_not_read_either() -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_client(broker, "deaf")
            connection.pause_writing()
            transport.buffered = 3 * broker.limits.write_bytes
            connection.data_received(encode(PingReq(), Version.V5))
            await until(lambda: not transport.reading)
            connection.resume_writing()
            assert transport.reading
            connection.connection_lost(None)

    asyncio.run(check())


def test_a_peer_that_does_not_take_its_farewell_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.sockets.connection.CLOSE_GRACE_S", 0.01)

    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_client(broker, "stuck")
            connection.data_received(b"\xe0\x00")
            assert transport.ended == "closed"
            await until(lambda: transport.ended == "aborted")
            connection.connection_lost(None)
            assert list(broker.clients()) == []

    asyncio.run(check())


def test_a_fault_of_ours_ends_one_connection_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*arguments: object) -> None:
        raise RuntimeError("a fault of ours")

    async def check() -> None:
        async with serving() as broker:
            kept = await Wire.connect(broker, "kept_rows")
            with monkeypatch.context() as patched:
                patched.setattr(broker.lifecycle, "_begin_session", fails)
                refused = await Wire.open(broker)
                refused.send(Connect("other"), PingReq())
                assert [each.code for each in await refused.closed()] == [0x80]  # type: ignore[attr-defined]
                refused.cut()
            assert await kept.barrier() == []
            again = await Wire.connect(broker, "other")
            assert again.connack is not None
            assert again.connack.code == 0
            await until(lambda: len(broker.lifecycle.connections) == 2)

    asyncio.run(check())
    (said,) = [each for each in caplog.records if each.name == "veilmq.connection"]
    assert said.exc_info is not None
    assert str(said.exc_info[1]) == "a fault of ours"


def test_flushing_a_closed_connection_writes_nothing() -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await fake_client(broker, "c")
            connection.write(b"x")
            connection.abort()
            connection.write(b"y")
            flusher = broker._flusher
            assert isinstance(flusher, Flusher)
            flusher.flush()
            assert transport.writes == []
            connection.connection_lost(None)

    asyncio.run(check())


# ------------------------------------------------------------------------------------------------- TLS


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_listener(authority: Authority, **more: Any) -> dict[str, Any]:
    certfile, keyfile = authority.issue("server")
    listener = {"bind": "127.0.0.1:0", "ssl": True, "certfile": str(certfile), "keyfile": str(keyfile)}
    return {"listeners": {"default": {**listener, **more}}}


def test_mutual_tls_is_required_where_the_configuration_says_so(authority: Authority, tmp_path: Path) -> None:
    more = {"cafile": str(authority.cafile), "require_client_certificate": True}

    async def check() -> None:
        async with serving(tls_listener(authority, **more)) as broker:
            good = await Wire.connect(broker, "good", context=authority.client("good"))
            assert good.connack is not None
            assert good.connack.code == 0
            assert broker.sessions["good"][0].ssl_object.getpeercert()["subject"][0][0][1] == "good"
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                await Wire.connect(broker, "bare", context=authority.client())
            (tmp_path / "other").mkdir()
            stranger = Authority(tmp_path / "other").client("good")
            stranger.load_verify_locations(authority.cafile)
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                await Wire.connect(broker, "stranger", context=stranger)
            assert list(broker.clients()) == [("good", True)]

    asyncio.run(check())


def test_tls_without_client_certificates(authority: Authority) -> None:
    async def check() -> None:
        async with serving(tls_listener(authority)) as broker:
            wire = await Wire.connect(broker, "c", context=authority.client())
            await wire.subscribe("t", 1)
            wire.publish("t", b"x" * 100_000)
            assert await wire.published() == [("t", b"x" * 100_000)]

    asyncio.run(check())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"certfile": "/nowhere/c.pem", "keyfile": "/nowhere/k.pem"}, "/nowhere/c.pem"),
        ({"keyfile": "other.key"}, "give a matching pair"),
        ({"cafile": "server.key"}, "no CA certificates"),
    ],
)
def test_unfit_certificates_are_one_clear_line(authority: Authority, change: Any, words: str) -> None:
    authority.issue("other")
    paths = {key: str(authority.directory / value) for key, value in change.items()}

    async def check() -> None:
        with pytest.raises(StartError, match=words) as caught:
            await make_broker(parse(tls_listener(authority, **paths))).start()
        assert str(caught.value).count("\n") == 0

    asyncio.run(check())


def test_an_encrypted_key_is_one_clear_line(authority: Authority) -> None:
    from cryptography.hazmat.primitives import serialization

    config = tls_listener(authority)
    keyfile = authority.directory / "server.key"
    key = serialization.load_pem_private_key(keyfile.read_bytes(), None)
    keyfile.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )

    async def check() -> None:
        with pytest.raises(StartError, match="without passphrase"):
            await make_broker(parse(config)).start()

    asyncio.run(check())


# --------------------------------------------------------------------------- WebSocket, external listeners


def test_a_websocket_listener_serves_the_same_protocol() -> None:
    async def check() -> None:
        listeners = {"default": {"bind": "127.0.0.1:0"}, "ws": {"bind": "127.0.0.1:0", "type": "ws"}}
        async with serving({"listeners": listeners}) as broker:
            tcp = await Wire.connect(broker, "tcp")
            await tcp.subscribe("t")
            uri = f"ws://127.0.0.1:{broker.port('ws')}"
            async with websocket_connect(uri, subprotocols=["mqtt"]) as socket:  # type: ignore[list-item]
                decoder = Decoder(Version.V5, role="client")
                data = encode(Connect("ws"), Version.V5) + encode(Publish("t", b"by ws", 1, packet_id=1), Version.V5)
                # Packets may be split over frames anywhere (MQTT 5.0 §6).
                await socket.send(data[:9])
                await socket.send(data[9:])
                packets: list[Any] = []
                while len(packets) < 2:
                    message = await socket.recv()
                    assert isinstance(message, bytes)
                    packets += decoder.feed(message)
                assert [type(packet) for packet in packets] == [ConnAck, PubAck]
                assert await tcp.published() == [("t", b"by ws")]
                assert dict(broker.clients()) == {"tcp": True, "ws": True}
            await until(lambda: "ws" not in dict(broker.clients()))

    asyncio.run(check())


def test_an_external_server_can_bring_its_connections() -> None:
    async def check() -> None:
        listeners = {"default": {"bind": "127.0.0.1:0"}, "mine": {"type": "external"}}
        async with serving({"listeners": listeners}) as broker:

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await broker.external_connected(StreamReaderAdapter(reader), StreamWriterAdapter(writer), "mine")

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            wire = Wire(reader, writer, Version.V311)
            wire.send(Connect("guest", Version.V311))
            await wire.expect(ConnAck)
            await wire.subscribe("t", 1)
            wire.publish("t", b"x" * 300, 1)
            kinds = {type(packet) for packet in await wire.barrier()}
            assert kinds == {Publish, PubAck}
            wire.send(PingReq())
            await wire.expect(PingResp)
            wire.writer.close()
            await until(lambda: list(broker.clients()) == [])
            server.close()

    asyncio.run(check())
