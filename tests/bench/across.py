"""Load that goes in at one broker and comes out at another: `windowed` for throughput, `paced` for latency.

QoS 1, MQTT 3.1.1, one publisher and one subscriber as bare sockets. `windowed` keeps a window of messages unfinished
end to end; `paced` sends at a rate far below saturation. Neither knows what lies between the two ports.
"""

from __future__ import annotations

import contextlib
import select
import socket
import statistics
import struct
import time
from dataclasses import dataclass

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Publish
from tests.bench.load import READ_BYTES, SILENCE_S, V3, Acknowledger, Ring, open_client, subscribe

READY_S = 30.0
REST_S = 0.0002
STAMP = struct.Struct(">d")
#: The first messages of a paced run do not count: keys are being made, links opened.
WARM_UP = 50
WARM_UP_S = 1.0


@dataclass(frozen=True)
class Way:
    """Where messages go in and come out, on which topic, and how large they are."""

    port_in: int
    port_out: int
    topic: str
    payload_bytes: int

    def open(self) -> tuple[socket.socket, socket.socket]:
        """(publisher, subscriber)."""
        sub, pub = open_client(self.port_out, "sub"), open_client(self.port_in, "pub")
        subscribe(sub, 1, self.topic)
        return pub, sub

    def packet(self, payload: bytes, packet_id: int) -> bytes:
        return encode(Publish(self.topic, payload, 1, packet_id=packet_id), V3)


@dataclass(frozen=True)
class Flow:
    """What a windowed run saw. `delivered`: in the whole run, the warm-up included."""

    rate: float
    p50_us: float
    delivered: int


def windowed(way: Way, seconds: float, window: int) -> Flow:
    """Messages a second, of those that the subscriber had and the publisher's broker acknowledged."""
    pub, sub = way.open()
    payload = bytes(way.payload_bytes)
    publishes = Ring(lambda number: way.packet(payload, number))
    size = len(way.packet(payload, 1))
    receiver = Acknowledger(sub, size, size - way.payload_bytes - 2)
    poll = select.poll()
    for sock in (sub, pub):
        poll.register(sock, select.POLLIN)
    sent = answered = done = before = 0
    # One topic keeps its order: of each message we know when it left and when it came by counting.
    left, came = [(0, 0.0)], [(0, 0.0)]
    began = now = time.perf_counter()
    started = 0.0
    while now < began + WARM_UP_S + seconds:
        if 2 * (sent - done) <= window:
            pub.sendall(publishes.take(window - (sent - done)))
            sent = done + window
            left.append((sent, time.perf_counter()))
        time.sleep(REST_S)
        events = poll.poll(SILENCE_S * 1000)
        if not events:
            raise TimeoutError(f"of {sent} {answered} are acknowledged, {receiver.delivered} came, and no more come")
        for descriptor, _ in events:
            if descriptor == sub.fileno():
                receiver.read()
                came.append((receiver.delivered, time.perf_counter()))
            else:
                data = pub.recv(READ_BYTES)
                if not data:
                    raise ConnectionError("closed by the broker")
                answered += len(data) // 4
        done = min(answered, receiver.delivered)
        now = time.perf_counter()
        if not started and now >= began + WARM_UP_S:
            started, before = now, done
    while receiver.delivered < sent:  # the next run must not find the rest of this one
        receiver.read()
    pub.close()
    sub.close()
    return Flow((done - before) / (now - started), _median_us(left, came, before, done), receiver.delivered)


def _median_us(left: list[tuple[int, float]], came: list[tuple[int, float]], first: int, end: int) -> float:
    """Median time under way of the messages numbered `first` to `end`; both lists rise: (how many so far, when)."""
    took: list[float] = []
    at_left = at_came = 0
    for number in range(first + 1, end + 1):
        while left[at_left][0] < number:
            at_left += 1
        while came[at_came][0] < number:
            at_came += 1
        took.append(came[at_came][1] - left[at_left][1])
    return statistics.median(took) * 1e6


def paced(way: Way, seconds: float, rate: float) -> tuple[float, float]:
    """(p50, p99) of the time from sending to having, in microseconds."""
    pub, sub = way.open()
    size = len(way.packet(bytes(way.payload_bytes), 1))
    poll = select.poll()
    poll.register(sub, select.POLLIN)
    poll.register(pub, select.POLLIN)
    total, sent, held = int(seconds * rate), 0, b""
    took: list[float] = []
    start = time.perf_counter()
    while len(took) < total:
        now = time.perf_counter()
        if sent < total and now >= start + sent / rate:
            payload = STAMP.pack(now) + bytes(way.payload_bytes - STAMP.size)
            pub.sendall(way.packet(payload, sent % 65_535 + 1))
            sent += 1
        wait_s = max(0.0, start + sent / rate - time.perf_counter()) if sent < total else SILENCE_S
        for descriptor, _ in poll.poll(wait_s * 1000):
            if descriptor != sub.fileno():
                pub.recv(READ_BYTES)
                continue
            held += sub.recv(READ_BYTES)
            now = time.perf_counter()
            while len(held) >= size:
                packet, held = held[:size], held[size:]
                took.append(now - STAMP.unpack_from(packet, size - way.payload_bytes)[0])
                at = size - way.payload_bytes - 2
                sub.sendall(b"\x40\2" + packet[at : at + 2])
    pub.close()
    sub.close()
    measured = sorted(took[WARM_UP:])
    return statistics.median(measured) * 1e6, measured[int(len(measured) * 0.99)] * 1e6


def wait_through(port_in: int, port_out: int, topic: str) -> None:
    """Return once something that is published on `topic` at one port arrives at the other. Raises TimeoutError."""
    with open_client(port_out, "probe-out") as receiver, open_client(port_in, "probe-in") as sender:
        subscribe(receiver, 0, topic)
        receiver.settimeout(0.2)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            sender.sendall(encode(Publish(topic, b"probe"), V3))
            with contextlib.suppress(TimeoutError):
                if receiver.recv(1 << 16):
                    return
    raise TimeoutError(f"nothing on {topic} comes through")
