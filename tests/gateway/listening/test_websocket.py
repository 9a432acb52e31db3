"""MQTT over WebSocket: packets split anywhere, what is refused, and peers that misbehave."""

from __future__ import annotations

import asyncio
import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import Frame, Opcode

from gateway.broker.edge_broker import EdgeBroker
from gateway.listening.websocket import FRAME_SPARE_BYTES
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.packets import ConnAck, Connect, Packet, PingReq, PingResp, PubAck, Publish, Version, Will
from tests.gateway.certificates import Authority
from tests.gateway.harness import ANSWER_S, Wire, serving
from tests.waits import until

WS = {"default": {"bind": "127.0.0.1:0"}, "ws": {"bind": "127.0.0.1:0", "type": "ws"}}
MQTT: Any = ["mqtt"]


def uri(broker: EdgeBroker, scheme: str = "ws") -> str:
    return f"{scheme}://127.0.0.1:{broker.port('ws')}/mqtt"


async def packets(socket: ClientConnection, number: int) -> list[Packet]:
    decoder = Decoder(Version.V5, role="client")
    found: list[Packet] = []
    while len(found) < number:
        message = await asyncio.wait_for(socket.recv(), ANSWER_S)
        assert isinstance(message, bytes)
        found += decoder.feed(message)
    return found


def hello(client_id: str = "ws") -> bytes:
    return encode(Connect(client_id), Version.V5)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.booleans())
def test_packets_may_be_split_and_joined_by_frames_anywhere(sizes: list[int], fragmented: bool) -> None:
    async def check() -> None:
        stream = hello() + b"".join(
            encode(Publish("t", bytes([number]) * 30, 1, packet_id=number + 1), Version.V5) for number in range(4)
        )
        pieces, at = [], 0
        for size in sizes:
            pieces.append(stream[at : at + size])
            at += size
        pieces.append(stream[at:])
        async with serving({"listeners": WS}) as broker:
            tcp = await Wire.connect(broker, "tcp")
            await tcp.subscribe("t")
            async with connect(uri(broker), subprotocols=MQTT) as socket:
                if fragmented:
                    await socket.send(pieces)
                else:
                    for piece in pieces:
                        await socket.send(piece)
                kinds = [type(packet) for packet in await packets(socket, 5)]
                assert kinds == [ConnAck, PubAck, PubAck, PubAck, PubAck]
            assert [payload[0] for _, payload in await tcp.published()] == [0, 1, 2, 3]

    asyncio.run(check())


def test_secure_websocket_with_a_client_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certfile, keyfile = authority.issue("127.0.0.1")
    listener = {
        "type": "ws",
        "bind": "127.0.0.1:0",
        "ssl": True,
        "certfile": str(certfile),
        "keyfile": str(keyfile),
        "cafile": str(authority.cafile),
        "require_client_certificate": True,
    }

    async def check() -> None:
        async with serving({"listeners": {**WS, "ws": listener}}) as broker:
            context = authority.client("phone")
            async with connect(uri(broker, "wss"), subprotocols=MQTT, ssl=context) as socket:
                await socket.send(hello())
                (connack,) = await packets(socket, 1)
                assert isinstance(connack, ConnAck)
                assert connack.code == 0
                assert broker.sessions["ws"][0].ssl_object.getpeercert()["subject"]
            with pytest.raises((ssl.SSLError, ConnectionError, ConnectionClosed, InvalidHandshake)):
                async with connect(uri(broker, "wss"), subprotocols=MQTT, ssl=authority.client()) as socket:
                    await socket.recv()

    asyncio.run(check())


@pytest.mark.parametrize("offered", [[], ["chat"], ["mqtt3"]])
def test_a_client_that_does_not_offer_mqtt_is_refused(offered: Any) -> None:
    async def check() -> None:
        async with serving({"listeners": WS}) as broker:
            with pytest.raises(InvalidStatus) as refused:
                await connect(uri(broker), subprotocols=offered or None)
            assert refused.value.response.status_code == 400
            await until(lambda: not broker.lifecycle.connections)

    asyncio.run(check())


@pytest.mark.parametrize(("offered", "chosen"), [(["chat", "mqtt"], "mqtt"), (["mqttv3.1"], "mqttv3.1")])
def test_the_subprotocol_is_chosen_among_those_offered(offered: Any, chosen: str) -> None:
    async def check() -> None:
        async with serving({"listeners": WS}) as broker, connect(uri(broker), subprotocols=offered) as socket:
            assert socket.subprotocol == chosen

    asyncio.run(check())


@pytest.mark.parametrize(
    ("origin", "is_let_in"), [("https://ward.example", True), ("https://evil.example", False), (None, True)]
)
def test_pages_of_other_origins_are_refused_where_origins_are_named(origin: Any, is_let_in: bool) -> None:
    """Attack: a page that a nurse visits connects to the broker on her own machine."""

    async def check() -> None:
        listeners = {**WS, "ws": {**WS["ws"], "origins": ["https://ward.example"]}}
        async with serving({"listeners": listeners}) as broker:
            if is_let_in:
                async with connect(uri(broker), subprotocols=MQTT, origin=origin) as socket:
                    await socket.send(hello())
                    assert await packets(socket, 1)
            else:
                with pytest.raises(InvalidStatus) as refused:
                    await connect(uri(broker), subprotocols=MQTT, origin=origin)
                assert refused.value.response.status_code == 403

    asyncio.run(check())


def test_a_text_frame_ends_the_connection() -> None:
    async def check() -> None:
        async with serving({"listeners": WS}) as broker, connect(uri(broker), subprotocols=MQTT) as socket:
            await socket.send(hello())
            await packets(socket, 1)
            await socket.send("text")
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket.recv(), ANSWER_S)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1003
            await until(lambda: not broker.lifecycle.connections)

    asyncio.run(check())


def test_a_frame_above_the_bound_ends_the_connection_unread() -> None:
    async def check() -> None:
        config = {"listeners": WS, "limits": {"packet_bytes": 1024}}
        async with serving(config) as broker, connect(uri(broker), subprotocols=MQTT) as socket:
            await socket.send([b"x" * FRAME_SPARE_BYTES, b"x" * 2_000])
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(socket.recv(), ANSWER_S)
            assert socket.close_code in (1009, 1006)  # 1006: gone before the reason could be read

    asyncio.run(check())


def test_a_malformed_packet_gets_its_disconnect_before_the_closing_handshake() -> None:
    async def check() -> None:
        async with serving({"listeners": WS}) as broker, connect(uri(broker), subprotocols=MQTT) as socket:
            await socket.send(hello() + b"\x00\x00")
            message = await packets(socket, 2)
            assert type(message[1]).__name__ == "Disconnect"
            await asyncio.wait_for(socket.wait_closed(), ANSWER_S)
            assert socket.close_code == 1000
            await until(lambda: not broker.lifecycle.connections)

    asyncio.run(check())


def test_the_will_is_published_when_a_page_is_closed() -> None:
    async def check() -> None:
        async with serving({"listeners": WS}) as broker:
            watch = await Wire.connect(broker, "watch")
            await watch.subscribe("wills")
            async with connect(uri(broker), subprotocols=MQTT) as socket:
                await socket.send(encode(Connect("page", will=Will("wills", b"gone")), Version.V5))
                await packets(socket, 1)
            assert isinstance(message := await watch.next(), Publish)
            assert message.payload == b"gone"

    asyncio.run(check())


# ---------------------------------------------------------------------------------- peers below the library


def request(*more: str) -> bytes:
    key = base64.b64encode(b"0123456789abcdef").decode()
    lines = ("GET / HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}")
    return "\r\n".join((*lines, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mqtt", *more, "", "")).encode()


def masked(opcode: Opcode, data: bytes) -> bytes:
    return Frame(opcode, data).serialize(mask=True)


async def dial(broker: EdgeBroker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", broker.port("ws"))


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 426 "),
        (b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x02id\r\n\r\n", b""),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 500 + b"\r\n", b""),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n", b""),
        (request() + masked(Opcode.PING, b"early"), b""),
        (request() + masked(Opcode.CLOSE, b""), b""),
    ],
    ids=["plain HTTP", "MQTT without HTTP", "many headers", "long line", "frame before answer", "close before answer"],
)
def test_what_is_no_websocket_handshake_is_refused_and_closed(sent: bytes, answer: bytes) -> None:
    async def check() -> None:
        async with serving({"listeners": WS}) as broker:
            reader, writer = await dial(broker)
            writer.write(sent)
            try:
                got = await asyncio.wait_for(reader.read(), ANSWER_S)
            except ConnectionResetError:
                got = b""
            assert got.startswith(answer)
            assert got[:12] != b"HTTP/1.1 101"
            writer.close()
            await until(lambda: not broker.lifecycle.connections)

    asyncio.run(check())


def test_a_handshake_that_never_ends_is_cut_off_in_time() -> None:
    async def check() -> None:
        async with serving({"listeners": WS, "limits": {"connect_timeout_s": 0.05}}) as broker:
            for begun in (b"", request()[:-2], request()):
                reader, writer = await dial(broker)
                writer.write(begun)
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await asyncio.wait_for(reader.readexactly(4096), ANSWER_S)
                writer.close()

    asyncio.run(check())


def test_an_unmasked_frame_is_a_protocol_error() -> None:
    async def check() -> None:
        async with serving({"listeners": WS}) as broker:
            reader, writer = await dial(broker)
            writer.write(request())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(Frame(Opcode.BINARY, hello()).serialize(mask=False))
            answer = await asyncio.wait_for(reader.read(), ANSWER_S)
            assert answer[:1] == b"\x88"
            assert int.from_bytes(answer[2:4]) == 1002
            writer.close()

    asyncio.run(check())


@pytest.mark.long
def test_pings_of_a_peer_that_reads_nothing_do_not_fill_memory() -> None:
    async def check() -> None:
        async with serving({"listeners": WS, "limits": {"write_bytes": 65_536}}) as broker:
            reader, writer = await dial(broker)
            writer.write(request())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(masked(Opcode.BINARY, hello()))
            await until(lambda: "ws" in dict(broker.clients()))
            connection = broker.lifecycle.clients["ws"].connection
            assert connection is not None
            transport: Any = connection._transport
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            flood, worst = masked(Opcode.PING, bytes(125)) * 1_000, 0
            for _ in range(150):  # 20 MB, more than the kernel holds for a peer
                writer.write(flood)
                await asyncio.wait_for(writer.drain(), ANSWER_S)
                worst = max(worst, transport.get_write_buffer_size())
            assert 65_536 <= worst < 1 << 20
            writer.transport.abort()

    asyncio.run(check())


def test_a_ping_is_answered_and_one_read_is_one_answer() -> None:
    async def check() -> None:
        async with serving({"listeners": WS}) as broker, connect(uri(broker), subprotocols=MQTT) as socket:
            await asyncio.wait_for(await socket.ping(b"hello"), ANSWER_S)
            await socket.send(hello() + encode(PingReq(), Version.V5) * 2)
            assert [type(packet) for packet in await packets(socket, 3)] == [ConnAck, PingResp, PingResp]

    asyncio.run(check())
