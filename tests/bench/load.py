"""A raw load client: it keeps a socket full with packets that were encoded before the clock starts.

`publish_qos0` floods and `count` counts in other processes, so that the broker is the slowest part;
`publish_qos1` keeps a window of unacknowledged messages. The Python side costs one C-speed `bytes` operation
per read, not per message. Not a general client: it knows the sizes of the packets that it gets.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, PingReq, Publish, Subscribe, Subscription, Version

V3 = Version.V311
TOPIC = "bench/load"
PAYLOAD = bytes(64)
#: Messages in one write of the flooding publisher.
BATCH = 256
#: Batches that the publisher may be ahead of the broker.
BATCHES_AHEAD = 8
READ_BYTES = 1 << 18
#: Subscribers that hear nothing for so long after the last publication have lost the rest.
QUIET_S = 5.0
#: A peer that is silent for so long has failed.
SILENCE_S = 10.0


def pin(core: int) -> None:
    """Bind this process to one core where the platform can."""
    if hasattr(os, "sched_setaffinity") and core in os.sched_getaffinity(0):
        os.sched_setaffinity(0, {core})


def open_client(port: int, client_id: str) -> socket.socket:
    """A connected MQTT 3.1.1 client as a bare socket."""
    sock = socket.create_connection(("127.0.0.1", port), SILENCE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(encode(Connect(client_id, V3), V3))
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


def subscribe(sock: socket.socket, qos: int) -> None:
    sock.sendall(encode(Subscribe(1, (Subscription(TOPIC, qos),)), V3))
    assert receive(sock, 5)[4] == qos


def flood(port: int, seconds: float, core: int, batches_ahead: int = BATCHES_AHEAD) -> int:
    """Publish QoS 0 for `seconds`; the number of messages sent. Returns when the broker has read them all.

    A PINGREQ ends each batch, and only so many stay unanswered: without a bound the broker's socket would
    hold seconds of work, and a broker that reads ahead and drops would look fast.
    """
    pin(core)
    sock = open_client(port, "flood")
    batch = encode(Publish(TOPIC, PAYLOAD), V3) * BATCH + encode(PingReq(), V3)
    sent = answered = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sock.sendall(batch)
        sent += 1
        if sent - answered >= batches_ahead:
            receive(sock, 2)
            answered += 1
    receive(sock, 2 * (sent - answered))
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
    while True:
        events = selector.select(QUIET_S)
        if wanted and (total >= wanted or not events):
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


def fan_out(
    port: int, number: int, seconds: float, cores: tuple[int, int], batches_ahead: int = BATCHES_AHEAD
) -> float:
    """Deliveries a second from one publisher to `number` subscribers at QoS 0."""
    receivers = Receivers(port, number, cores[1])
    sent = _in_process(flood, port, seconds, cores[0], batches_ahead)
    messages, took = receivers.result(sent)
    return messages / took if took else 0.0


def windowed(port: int, seconds: float, window: int, core: int) -> float:
    """Messages a second through one QoS 1 publisher and one QoS 1 subscriber, `window` unacknowledged."""
    pin(core)
    sub, pub = open_client(port, "sub"), open_client(port, "pub")
    subscribe(sub, 1)
    packets = [encode(Publish(TOPIC, PAYLOAD, 1, packet_id=number + 1), V3) for number in range(window)]
    one = len(packets[0])
    batch = b"".join(packets)
    done = 0
    start = time.perf_counter()
    while (now := time.perf_counter()) < start + seconds:
        pub.sendall(batch)
        _acknowledge(sub, window, one)
        receive(pub, 4 * window)
        done += window
    pub.close()
    sub.close()
    return done / (now - start)


def _acknowledge(sub: socket.socket, messages: int, size: int) -> None:
    """Take `messages` PUBLISHes of `size` bytes, acknowledging as they come: brokers send few at a time."""
    at = 2 + 2 + len(TOPIC)
    held = b""
    while messages:
        data = sub.recv(READ_BYTES)
        if not data:
            raise ConnectionError("closed by the broker")
        held += data
        whole = len(held) // size * size
        sub.sendall(b"".join(b"\x40\x02" + held[place + at : place + at + 2] for place in range(0, whole, size)))
        messages -= whole // size
        held = held[whole:]


def windowed_in_process(port: int, seconds: float, window: int, core: int) -> float:
    return float(_in_process(windowed, port, seconds, window, core))


def _in_process(call: Callable[..., Any], *arguments: Any) -> Any:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_call, args=(theirs, call, arguments), daemon=True)
    process.start()
    if not ours.poll(60):
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
