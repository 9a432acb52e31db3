"""A reader that takes less than comes: how much of what was acknowledged reaches it in the end.

One publisher sends at a steady rate, QoS 1; one reader of another gateway acknowledges so many a second while that
lasts, and then as fast as it can. See `forwarding --only slow`.
"""

from __future__ import annotations

import time
from collections import deque
from select import POLLIN, poll

from tests.bench import across
from tests.bench.load import READ_BYTES

SILENT_S = 20.0  # what does not come in a silence of that length is lost
TURN_MS = 5


def kept(way: across.Way, seconds: float, rate: float, taken_per_s: float) -> tuple[int, int]:
    """(acknowledged to the publisher, received by the reader)."""
    publisher, reader = way.open()
    polled = poll()
    for each in (publisher, reader):
        polled.register(each, POLLIN)
    payload = bytes(way.payload_bytes)
    size = len(way.packet(payload, 1))
    id_at = size - way.payload_bytes - 2
    total = int(seconds * rate)
    sent = acknowledged = came = answered = 0
    owed, held = deque[bytes](), b""
    began = now = came_at = time.perf_counter()
    while (came < total or acknowledged < total) and now < max(began + seconds, came_at) + SILENT_S:
        due = min(total, int((now - began) * rate))
        if due > sent:
            publisher.sendall(b"".join(way.packet(payload, number % 65_535 + 1) for number in range(sent, due)))
            sent = due
        for descriptor, _ in polled.poll(TURN_MS):
            if descriptor == publisher.fileno():
                acknowledged += len(publisher.recv(READ_BYTES)) // 4
                continue
            held += reader.recv(READ_BYTES)
            end = len(held) // size * size
            owed.extend(held[at + id_at : at + id_at + 2] for at in range(0, end, size))
            came, held, came_at = came + end // size, held[end:], time.perf_counter()
        now = time.perf_counter()
        may = len(owed) if now > began + seconds else int((now - began) * taken_per_s) - answered
        now_answered = [owed.popleft() for _ in range(max(0, min(may, len(owed))))]
        if now_answered:
            reader.sendall(b"".join(b"\x40\2" + packet_id for packet_id in now_answered))
            answered, came_at = answered + len(now_answered), now
    publisher.close()
    reader.close()
    return acknowledged, came
