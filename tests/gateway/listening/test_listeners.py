"""Unix sockets, and every listener on the event loop that `veilmq broker` uses."""

from __future__ import annotations

import asyncio
import socket
import ssl
import stat
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop
from websockets.asyncio.client import connect, unix_connect

from gateway.base.config import ConfigError, StartError, load, parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.running import make_broker
from gateway.checking.check import check as check_settings
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.packets import ConnAck, Connect, Disconnect, Publish, Version
from tests.gateway.certificates import Authority
from tests.gateway.harness import ANSWER_S, Wire, serving
from tests.waits import until

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.run


def unix(path: Path, **more: Any) -> dict[str, Any]:
    return {"default": {"bind": f"unix:{path}", **more}}


async def dial(path: Path, client_id: str) -> Wire:
    wire = Wire(*await asyncio.open_unix_connection(path), Version.V5)
    wire.send(Connect(client_id))
    wire.connack = await wire.expect(ConnAck)
    return wire


def test_a_unix_socket_serves_mqtt_for_owner_and_group_and_goes_with_the_broker(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"

    async def check() -> None:
        async with serving({"listeners": unix(path)}) as broker:
            status = path.stat()
            assert stat.S_ISSOCK(status.st_mode)
            assert stat.S_IMODE(status.st_mode) == 0o660
            one, two = await dial(path, "one"), await dial(path, "two")
            await one.subscribe("t", 1)
            two.publish("t", b"x" * 300_000, 1)
            await two.barrier()
            assert await one.published() == [("t", b"x" * 300_000)]
            assert broker.sessions["one"][0].remote_address is None
            one.cut()
            await until(lambda: "one" not in dict(broker.clients()))
            two.raw(b"\x00\x00")
            *_, last = await two.closed()
            assert isinstance(last, Disconnect)
            two.cut()
        assert not path.exists()

    run(check())


def test_a_websocket_may_come_by_a_unix_socket_as_behind_a_proxy(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ws.sock"
    subprotocols: Any = ["mqtt"]

    async def check() -> None:
        async with (
            serving({"listeners": unix(path, type="ws")}),
            unix_connect(str(path), "ws://proxy/mqtt", subprotocols=subprotocols) as socket,
        ):
            await socket.send(encode(Connect("page"), Version.V5))
            answer = await asyncio.wait_for(socket.recv(), ANSWER_S)
            assert isinstance(answer, bytes)
            (connack,) = Decoder(Version.V5, role="client").feed(answer)
            assert isinstance(connack, ConnAck)
            assert connack.code == 0

    run(check())


def test_a_socket_that_a_killed_broker_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()

    async def check() -> None:
        async with serving({"listeners": unix(path)}):
            await dial(path, "c")

    asyncio.run(check())


def test_a_socket_in_use_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"

    async def check() -> None:
        async with serving({"listeners": unix(path)}):
            with pytest.raises(StartError, match="in use") as caught:
                await make_broker(parse({"listeners": unix(path)})).start()
            assert "\n" not in str(caught.value)
            await dial(path, "still served")

    asyncio.run(check())


@pytest.mark.parametrize(
    ("bind", "words"),
    [("file", "no socket is in the way"), ("absent/mqtt.sock", "no such directory"), ("x" * 200, "bind another path")],
)
def test_a_path_that_cannot_be_bound_is_one_clear_line(tmp_path: Path, bind: str, words: str) -> None:
    (tmp_path / "file").write_text("precious")

    async def check() -> None:
        with pytest.raises(StartError, match=words) as caught:
            await make_broker(parse({"listeners": unix(tmp_path / bind)})).start()
        assert "\n" not in str(caught.value)

    asyncio.run(check())
    assert (tmp_path / "file").read_text() == "precious"
    report = check_settings(parse({"listeners": unix(tmp_path / bind)}), [])
    assert report.failed or bind.startswith("x")


def test_what_a_listener_cannot_be_is_said_when_the_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "edge.yaml"
    path.write_text("listeners: {default: {bind: 'unix:run/mqtt.sock'}}")
    assert load(path).listeners["default"].unix_path == tmp_path / "run/mqtt.sock"
    for listener, words in (
        ({"bind": "unix:"}, "names no path"),
        ({"origins": ["https://x"]}, "type ws"),
        ({"type": "ws", "overlay": True}, "type tcp"),
    ):
        with pytest.raises(ConfigError, match=words):
            parse({"listeners": {"default": listener}})


def test_every_listener_serves_on_every_loop(run: Run, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certfile, keyfile = authority.issue("127.0.0.1")
    mutual = {
        "bind": "127.0.0.1:0",
        "ssl": True,
        "certfile": str(certfile),
        "keyfile": str(keyfile),
        "cafile": str(authority.cafile),
        "require_client_certificate": True,
    }
    listeners = {
        "default": {"bind": "127.0.0.1:0"},
        "tls": mutual,
        "ws": {"bind": "127.0.0.1:0", "type": "ws"},
        "wss": {**mutual, "type": "ws"},
        **unix_as("unix", tmp_path / "mqtt.sock"),
    }

    async def check() -> None:
        async with serving({"listeners": listeners}) as broker:
            watch = await Wire.connect(broker, "watch")
            await watch.subscribe("t")
            certain = authority.client("device")
            senders = [
                await Wire.connect(broker, "tcp"),
                await Wire.connect(broker, "tls", listener="tls", context=certain),
                await dial(tmp_path / "mqtt.sock", "unix"),
            ]
            for sender in senders:
                sender.publish("t", b"wire")
                await sender.barrier()
            for name, context in (("ws", None), ("wss", certain)):
                await page(broker, name, context)
            payloads = [payload for _, payload in await watch.published()]
            assert payloads == [b"wire"] * 3 + [b"ws", b"wss"]
            await until(lambda: {name for name, alive in broker.clients() if alive} == {"watch", "tcp", "tls", "unix"})
            for name in ("tls", "wss"):
                with pytest.raises((ssl.SSLError, OSError, AssertionError)):
                    await Wire.connect(broker, "bare", listener=name, context=authority.client())
            senders[-1].cut()

    run(check())


def unix_as(name: str, path: Path) -> dict[str, Any]:
    return {name: {"bind": f"unix:{path}"}}


async def page(broker: EdgeBroker, name: str, context: ssl.SSLContext | None) -> None:
    """Connect by WebSocket, publish the listener's name, and see a protocol error answered and closed properly."""
    uri = f"{name}://127.0.0.1:{broker.port(name)}/"
    subprotocols: Any = ["mqtt"]
    async with connect(uri, subprotocols=subprotocols, ssl=context) as socket:
        decoder = Decoder(Version.V5, role="client")
        await socket.send(encode(Connect(name), Version.V5) + encode(Publish("t", name.encode()), Version.V5))
        answer = await asyncio.wait_for(socket.recv(), ANSWER_S)
        assert isinstance(answer, bytes)
        assert isinstance(decoder.feed(answer)[0], ConnAck)
        await socket.send(b"\x00\x00")
        answer = await asyncio.wait_for(socket.recv(), ANSWER_S)
        assert isinstance(answer, bytes)
        assert isinstance(decoder.feed(answer)[0], Disconnect)
        await asyncio.wait_for(socket.wait_closed(), ANSWER_S)
        assert socket.close_code == 1000


def _waiting_max(listening: Any) -> int:
    """Connections that the kernel holds for a listening socket (tcp_info(7): tcpi_sacked of one that listens)."""
    return int(struct.unpack_from("I", listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 28)[0])


def test_the_kernel_holds_as_many_who_come_at_once_as_the_system_lets_it(run: Run) -> None:
    """Who finds the queue full tries again after 1, 3, 7, 15, 31 seconds, whatever the broker does meanwhile."""

    async def check() -> None:
        async with serving() as broker:
            for server in broker._servers.values():
                for listening in server.instance.sockets:
                    assert _waiting_max(listening) == int(Path("/proc/sys/net/core/somaxconn").read_text())

    run(check())


def test_many_who_come_at_once_are_taken_up_in_few_turns_of_the_event_loop(run: Run) -> None:
    """A turn takes milliseconds in a broker that registers thousands: one connection in each empties no queue.

    A turn of a busy machine takes up fewer, since its length is bounded in milliseconds.
    """
    number = 96

    async def check() -> None:
        async with serving() as broker:
            with ExitStack() as waiting:
                for place in range(number):
                    sock = waiting.enter_context(socket.create_connection(("127.0.0.1", broker.port())))
                    sock.sendall(encode(Connect(f"c{place}", Version.V311), Version.V311))
                turns = 0
                while len(broker.sessions) < number and turns < 2 * number:
                    turns += 1
                    await asyncio.sleep(0)
                assert turns < number / 2
            await until(lambda: not dict(broker.clients()))

    run(check())
