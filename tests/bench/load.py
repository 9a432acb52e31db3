"""A raw load client: it keeps a socket full with packets that were encoded before the clock starts.

`fan_out` floods in one process and counts in another, so that the broker is the slowest part; `windowed` keeps a
window of unfinished messages. The Python side costs a few C-speed operations per read, not per message (QoS 2:
a short loop). Not a general client: it knows the sizes of the packets that it gets. Many connections: `crowd.py`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, Publish, Subscribe, Subscription, Version

V3 = Version.V311
TOPIC = "bench/load"
MARK = "bench/mark"
PAYLOAD = bytes(64)
#: Where a PUBLISH of QoS 1 or 2 on `TOPIC` has its packet identifier.
ID_AT = 2 + 2 + len(TOPIC)
#: Messages in one write of the flooding publisher.
BATCH = 256
#: Batches that the publisher may be ahead of the broker.
BATCHES_AHEAD = 8
READ_BYTES = 1 << 18
#: Subscribers that hear nothing for so long after the last publication have lost the rest.
QUIET_S = 5.0
#: Pause before each look at the sockets, in which answers gather: a client that takes them one at a time is the
#: bottleneck. The window lasts several times as long.
REST_S = 0.00005
#: A peer that is silent for so long has failed.
SILENCE_S = 10.0


def pin(core: int) -> None:
    """Bind this process to one core where the platform can, also one that its parent, bound itself, left it without."""
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):  # the machine has no such core, or not for us
            os.sched_setaffinity(0, {core})


def open_client(port: int, client_id: str, clean: bool = True) -> socket.socket:
    """A connected MQTT 3.1.1 client as a bare socket; not `clean`: its session outlives it."""
    sock = socket.create_connection(("127.0.0.1", port), SILENCE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(encode(Connect(client_id, V3, clean_start=clean), V3))
    assert receive(sock, 4)[3] == 0, "refused"
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


def flood(port: int, seconds: float, core: int) -> int:
    """Publish QoS 0 for `seconds`; the number of messages sent. Returns when the broker has delivered them all.

    A message to ourselves ends each batch, and only so many may be on their way: without a bound the broker's socket
    would hold seconds of work, and a broker that reads ahead and drops (amqtt) would look fast, or lose nearly all.
    """
    pin(core)
    sock = open_client(port, "flood")
    subscribe(sock, 0, MARK)
    mark = encode(Publish(MARK, b""), V3)
    batch = encode(Publish(TOPIC, PAYLOAD), V3) * BATCH + mark
    sent = back = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sock.sendall(batch)
        sent += 1
        if sent - back >= BATCHES_AHEAD:
            receive(sock, len(mark))
            back += 1
    receive(sock, len(mark) * (sent - back))
    sock.close()
    return sent * BATCH


class Receivers:
    """`number` QoS 0 subscribers in one process, counting bytes until all is there or nothing comes any more."""

    def __init__(self, port: int, number: int, core: int) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_receive, args=(port, number, core, theirs), daemon=True)
        self._process.start()
        assert self._ours.recv() == "ready"

    def result(self, sent: int) -> tuple[int, float]:
        """Messages received by all, and seconds from the first to the last byte. `sent` were published."""
        self._ours.send(sent)
        messages, seconds = self._ours.recv()
        self._process.join()
        return messages, seconds


def _receive(port: int, number: int, core: int, pipe: Any) -> None:
    import selectors

    pin(core)
    selector = selectors.DefaultSelector()
    for place in range(number):
        sock = open_client(port, f"count{place}")
        subscribe(sock, 0)
        selector.register(sock, selectors.EVENT_READ)
    selector.register(pipe, selectors.EVENT_READ)
    pipe.send("ready")
    size = len(encode(Publish(TOPIC, PAYLOAD), V3))
    total, first, last, wanted = 0, 0.0, 0.0, 0
    while not wanted or total < wanted:
        events = selector.select(QUIET_S)
        if wanted and not events:
            break
        now = time.perf_counter()
        for key, _ in events:
            if key.fileobj is pipe:
                wanted = pipe.recv() * number * size
                selector.unregister(pipe)
                continue
            got = len(key.fileobj.recv(READ_BYTES))  # type: ignore[union-attr]
            if got:
                total, first, last = total + got, first or now, now
    pipe.send((total // size, last - first))


def fan_out(port: int, number: int, seconds: float, cores: tuple[int, int]) -> float:
    """Deliveries a second from one publisher to `number` subscribers at QoS 0."""
    receivers = Receivers(port, number, cores[1])
    sent = in_process(flood, port, seconds, cores[0])
    messages, took = receivers.result(sent)
    return messages / took if took else 0.0


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


class QosTwoReceiver:
    """A QoS 2 subscriber's answers: PUBREC to each PUBLISH, PUBCOMP to each PUBREL, as they come."""

    def __init__(self, sock: socket.socket, size: int) -> None:
        self._sock, self._size = sock, size
        self._held = b""
        self.delivered = 0

    def read(self) -> None:
        """Take what is there and answer it. `delivered` counts PUBRELs. Raises ConnectionError."""
        data = self._sock.recv(READ_BYTES)
        if not data:
            raise ConnectionError("closed by the broker")
        data = self._held + data
        at, end, answers = 0, len(data), []
        while at < end:
            is_publish = data[at] & 0xF0 == 0x30
            stop = at + (self._size if is_publish else 4)
            if stop > end:
                break
            if is_publish:
                answers.append(b"\x50\2" + data[at + ID_AT : at + ID_AT + 2])
            else:
                answers.append(b"\x70\2" + data[at + 2 : stop])
                self.delivered += 1
            at = stop
        self._held = data[at:]
        self._sock.sendall(b"".join(answers))


def windowed(port: int, seconds: float, qos: int, window: int, is_kept: bool, is_away: bool, core: int) -> float:
    """Messages a second through one publisher and one subscriber of QoS 1 or 2, `window` unfinished end to end.

    `is_kept`: the subscriber's session is persistent; `is_away`: it has gone, and only the publisher is answered.
    A message counts when both the publisher's flow and the subscriber's have ended.
    """
    pin(core)
    sub, pub = open_client(port, "sub", clean=not is_kept), open_client(port, "pub")
    subscribe(sub, qos)
    if is_away:
        sub.sendall(b"\xe0\0")
        sub.close()
    packet = encode(Publish(TOPIC, PAYLOAD, qos, packet_id=1), V3)
    publishes = Ring(lambda number: encode(Publish(TOPIC, PAYLOAD, qos, packet_id=number), V3))
    releases = Ring(lambda number: b"\x62\2" + number.to_bytes(2, "big"))
    receiver = Acknowledger(sub, len(packet)) if qos == 1 else QosTwoReceiver(sub, len(packet))
    poll = select.poll()
    for sock in (pub,) if is_away else (sub, pub):
        poll.register(sock, select.POLLIN)
    held, sent, answered, done = b"", 0, 0, 0
    start = now = time.perf_counter()
    while now < start + seconds:
        # Half a window at a time: a client that sends one message for each acknowledgement is the bottleneck.
        if 2 * (sent - done) <= window:
            pub.sendall(publishes.take(window - (sent - done)))
            sent = done + window
        time.sleep(REST_S)
        events = poll.poll(SILENCE_S * 1000)
        if not events:
            raise TimeoutError("the broker is silent")
        for descriptor, _ in events:
            if descriptor != pub.fileno():
                receiver.read()
                continue
            data = pub.recv(READ_BYTES)
            if not data:
                raise ConnectionError("closed by the broker")
            data = held + data
            whole = len(data) & ~3
            kinds, held = data[0:whole:4], data[whole:]
            # Acknowledgements come in the order of the messages: counting them is enough (MQTT-4.6.0-2, -3).
            if received := kinds.count(0x50):
                pub.sendall(releases.take(received))
            answered += kinds.count(0x40) + kinds.count(0x70)
        done = answered if is_away else min(answered, receiver.delivered)
        now = time.perf_counter()
    pub.close()
    sub.close()
    return done / (now - start)


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
