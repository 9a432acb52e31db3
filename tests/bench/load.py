"""Raw load clients in Python, for benches whose other end is slower than they are: sockets and packets of known size.

A few C-speed operations per read, not per message. Ordinary traffic of a broker is measured with `native.py`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, Subscribe, Subscription, Version

V3 = Version.V311
TOPIC = "bench/load"
PAYLOAD = bytes(64)
#: Where a PUBLISH of QoS 1 or 2 on `TOPIC` has its packet identifier.
ID_AT = 2 + 2 + len(TOPIC)
READ_BYTES = 1 << 18
#: A peer that is silent for so long has failed.
SILENCE_S = 10.0


def pin(core: int) -> None:
    """Bind this process to one core where the platform can, also one that its parent, bound itself, left it without."""
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):  # the machine has no such core, or not for us
            os.sched_setaffinity(0, {core})


def open_client(
    port: int, client_id: str, clean: bool = True, is_back: bool = False, patience_s: float = SILENCE_S
) -> socket.socket:
    """A connected MQTT 3.1.1 client as a bare socket; not `clean`: its session outlives it. `is_back`: the broker must
    know its session.
    """
    sock = socket.create_connection(("127.0.0.1", port), patience_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(encode(Connect(client_id, V3, clean_start=clean), V3))
    answer = receive(sock, 4)
    assert answer[3] == 0, "refused"
    assert answer[2] or not is_back, "the session is gone"
    return sock


def receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError("closed by the broker")
        data += part
    return data


def subscribe(sock: socket.socket, qos: int, topic_filter: str = TOPIC) -> None:
    sock.sendall(encode(Subscribe(1, (Subscription(topic_filter, qos),)), V3))
    assert receive(sock, 5)[4] == qos


class Ring:
    """Packets with identifiers 1..`LENGTH`, encoded once: `take` gives the next ones as one buffer, no copy."""

    LENGTH = 1024

    def __init__(self, one: Callable[[int], bytes]) -> None:
        packets = [one(number + 1) for number in range(self.LENGTH)]
        self._size, self._next = len(packets[0]), 0
        self._bytes = memoryview(b"".join(packets) * 2)

    def take(self, number: int) -> memoryview:
        """The next `number` <= LENGTH packets."""
        start = self._next
        self._next = (start + number) % self.LENGTH
        return self._bytes[start * self._size : (start + number) * self._size]


class Acknowledger:
    """A QoS 1 subscriber's answers: packets of one size come, their PUBACKs go in one write, by slices."""

    def __init__(self, sock: socket.socket, size: int, id_at: int = ID_AT) -> None:
        self._sock, self._size, self._id_at = sock, size, id_at
        self._held = b""
        self._answers = bytearray()
        self.delivered = 0

    def read(self) -> None:
        """Take what is there and acknowledge it. Raises ConnectionError."""
        data = self._sock.recv(READ_BYTES)
        if not data:
            raise ConnectionError("closed by the broker")
        data = self._held + data
        number = len(data) // self._size
        end = number * self._size
        self._held = data[end:]
        if not number:
            return
        assert data[0] & 0xF0 == 0x30, "not a PUBLISH of the expected size"
        if len(self._answers) != 4 * number:
            self._answers = bytearray(b"\x40\2\0\0" * number)
        self._answers[2::4] = data[self._id_at : end : self._size]
        self._answers[3::4] = data[self._id_at + 1 : end : self._size]
        self._sock.sendall(self._answers)
        self.delivered += number


def in_process(call: Callable[..., Any], *arguments: Any, limit_s: float = 60.0) -> Any:
    """The result of `call(*arguments)`, run in a process of its own. Raises what it raised, and TimeoutError."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_call, args=(theirs, call, arguments), daemon=True)
    process.start()
    if not ours.poll(limit_s):
        process.kill()
        raise TimeoutError("the load client did not finish")
    result = ours.recv()
    process.join()
    if isinstance(result, BaseException):
        raise result
    return result


def _call(pipe: Any, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send(call(*arguments))
    except BaseException as error:  # noqa: BLE001 - raised again by the parent
        pipe.send(error)
