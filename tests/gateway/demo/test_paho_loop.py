"""One thread drives several paho clients: it reads, writes, connects again, and hears commands."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from paho.mqtt.enums import MQTTErrorCode

from gateway.demo.paho_loop import LOOK_EVERY_S, PahoLoop


class FakeClient:
    """paho's client on a socket of a test, as far as a loop drives it."""

    def __init__(self, there: socket.socket | None, refused: int = 0) -> None:
        self._socket, self._refused = None if refused else there, refused
        self._there = there
        self.done, self.wants = list[str](), False

    def socket(self) -> socket.socket | None:
        return self._socket

    def want_write(self) -> bool:
        return self.wants

    def loop_read(self) -> None:
        assert self._socket is not None
        self.done.append(f"read {self._socket.recv(10).decode()}")

    def loop_write(self) -> None:
        self.done.append("wrote")
        self.wants = False

    def loop_misc(self) -> MQTTErrorCode:
        return MQTTErrorCode.MQTT_ERR_NO_CONN if self._socket is None else MQTTErrorCode.MQTT_ERR_SUCCESS

    def reconnect(self) -> None:
        self.done.append("connects")
        self._refused -= 1
        if self._refused > 0:
            raise ConnectionRefusedError
        self._socket = self._there


class Words:
    """Commands that are there already."""

    def __init__(self, *words: str) -> None:
        self._words = queue.SimpleQueue[str]()
        for word in words:
            self._words.put(word)

    def next_word(self, timeout_s: float) -> str | None:
        assert timeout_s == 0, "nobody reads sockets while it waits for a word"
        return None if self._words.empty() else self._words.get()


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(2)]
    yield made
    for pair in made:
        for each in pair:
            each.close()


def loop_of(*clients: FakeClient) -> PahoLoop:
    return PahoLoop(*clients)  # type: ignore[arg-type]


def test_each_client_reads_what_came_for_it_and_writes_what_it_has(pairs: Any) -> None:
    (one, one_peer), (two, two_peer) = pairs
    clients = FakeClient(one), FakeClient(two)
    loop = loop_of(*clients)
    one_peer.send(b"a")
    two_peer.send(b"b")
    clients[1].wants = True
    loop.serve(0)
    assert [client.done for client in clients] == [["read a"], ["read b", "wrote"]]
    loop.serve(0)
    assert [len(client.done) for client in clients] == [1, 2], "nothing more came"


def test_who_is_not_connected_tries_again_and_holds_up_nobody(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (one, _), (two, two_peer) = pairs
    away, there = FakeClient(one, refused=3), FakeClient(two)
    loop = loop_of(away, there)
    now = 100.0
    monkeypatch.setattr("gateway.demo.paho_loop.time.monotonic", lambda: now)
    for step in range(3):
        two_peer.send(b"x")
        loop.serve(0)
        loop.serve(0)
        assert away.done == ["connects"] * (step + 1), "once between looks"
        now += LOOK_EVERY_S
    assert away.socket() is one
    assert there.done == ["read x"] * 3
    loop.serve(0)
    assert len(away.done) == 3


def test_a_command_is_heard_while_clients_are_served(pairs: Any) -> None:
    (one, one_peer), _ = pairs
    client = FakeClient(one)
    one_peer.send(b"a")
    assert loop_of(client).next_word(Words("go", "stop"), 60.0) == "go"  # type: ignore[arg-type]
    assert client.done == ["read a"]
    assert loop_of(client).next_word(Words(), 0.0) is None  # type: ignore[arg-type]
    assert loop_of(client).next_word(Words(), -1.0) is None, "who is late serves all the same"  # type: ignore[arg-type]
