"""Streams: what waits for one that nobody reads, and how many there may be."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from gateway.base.config_console import STREAMS_MAX
from gateway.console.shown import PAYLOAD_SHOWN_BYTES
from gateway.console.streams import WAITING_BYTES_MAX, WAITING_MAX, StreamBacklog
from gateway.mqtt5.packets import Publish
from tests.gateway.console.running import Api, Running
from tests.waits import wait_until


def test_of_large_messages_what_is_shown_waits() -> None:
    waiting = StreamBacklog()
    for number in range(WAITING_MAX + 7):
        waiting.add_message(Publish(f"big/{number}", b"x" * 1_000_000, 0))
    held = sum(len(message.payload) for message, _, _ in waiting._messages)
    assert held <= WAITING_BYTES_MAX
    assert waiting.missed == WAITING_MAX + 7 - len(waiting)
    line = waiting.take_message()
    assert line is not None
    assert (line["topic"], line["bytes"]) == ("big/0", 1_000_000)
    assert line["payload"] == "x" * PAYLOAD_SHOWN_BYTES + " ..."
    assert waiting.arrived.is_set()


@pytest.mark.parametrize(("topic", "payload", "most"), [("t", b"", WAITING_MAX), ("t" * 65_000, b"", 16)])
def test_messages_and_bytes_that_wait_are_bounded(topic: str, payload: bytes, most: int) -> None:
    waiting = StreamBacklog()
    for _ in range(2 * WAITING_MAX):
        waiting.add_message(Publish(topic, payload, 0))
    assert len(waiting) == most
    while waiting.take_message() is not None:
        pass
    assert not waiting.arrived.is_set()
    for _ in range(2 * WAITING_MAX):
        waiting.add_message(Publish(topic, payload, 0))
    assert len(waiting) == most


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    made: list[socket.socket] = []
    yield made
    for one in made:
        one.close()


@pytest.mark.attack(158)
def test_one_user_does_not_have_all_streams(broker: Running, ann: Api, bob: Api, sockets: list[socket.socket]) -> None:
    def opened(api: Api) -> bytes:
        one = socket.create_connection(("127.0.0.1", broker.port), 10)
        sockets.append(one)
        cookie = f"Cookie: veilmq={api.cookie}"
        one.sendall(f"GET /api/v1/stream?filter=plant/%23 HTTP/1.1\r\nHost: 127.0.0.1\r\n{cookie}\r\n\r\n".encode())
        return one.recv(4096).split(b" ")[1]

    assert [opened(bob) for _ in range(STREAMS_MAX + 1)] == [b"200"] * STREAMS_MAX + [b"503"]
    assert opened(ann) == b"200", "who has most loses its oldest"
    sockets[0].settimeout(20)
    while sockets[0].recv(4096):
        pass
    sockets[1].close()
    assert wait_until(lambda: opened(bob) == b"200", 20.0, every_s=0.2)


def test_an_administrator_follows_messages_and_nobody_else_may(broker: Running, ann: Api, bob: Api) -> None:
    assert bob.ask("GET", "/trace?topic=plant/%23")[0] == 403
    assert ann.ask("GET", "/trace")[0] == 400
    assert "no network" in ann.ask("GET", "/trace?address=here")[1]["error"]
    with socket.create_connection(("127.0.0.1", broker.port), 20) as one:
        cookie = f"Cookie: veilmq={ann.cookie}"
        one.sendall(f"GET /api/v1/trace?topic=plant/%23 HTTP/1.1\r\nHost: 127.0.0.1\r\n{cookie}\r\n\r\n".encode())
        came = b""
        while b"subscribed" not in came:
            came += one.recv(4096)
        assert ann.ask("POST", "/publish", {"topic": "plant/a", "payload": "hush-hush"})[0] == 200
        while b"acknowledged" not in came:
            came += one.recv(4096)
    assert b'"step": "received"' in came
    assert b'"topic": "plant/a"' in came
    assert b"hush" not in came
