"""Rows of `broker.py` about many things that are kept: connections that only ping, retained topics, sessions on disk.

Each is one run, since each takes long, and gives one figure or two of the same broker.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, Disconnect, PingReq, Publish, Subscribe, Subscription
from tests.bench import crowd, load
from tests.bench.load import V3, open_client, receive
from tests.bench.peers import Running, start

CONNECTIONS, KEEP_ALIVE_S, WATCHED_S = 10_000, 60, 20.0
TOPICS, SESSIONS = 100_000, 100_000
AT_ONCE = 100
#: A broker that writes a session of each client to disk may let them wait.
PATIENCE_S = 120.0
LIMIT_S = 600.0
PAYLOAD = bytes(64)
SECONDS, BYTES, TOPICS_A_SECOND = "s", "bytes", "topics/s"


@dataclass(frozen=True)
class Figure:
    """One line of the table: its unit, and the ratio ours / Mosquitto that is the goal."""

    name: str
    work: str
    unit: str
    goal: float
    is_least: bool = False


@dataclass(frozen=True)
class Scale:
    """One run of a broker of this name on this core, with clients on the other core: a value for each figure."""

    figures: tuple[Figure, ...]
    run: Callable[[str, int, int], tuple[float, ...]]


def _idle_seconds(name: str, core: int, clients: int) -> tuple[float, ...]:
    """Processor time a minute of the broker while connections only say that they live."""
    with start(name, core, is_durable=False) as broker:
        return (load.in_process(_pinging, broker, clients, limit_s=LIMIT_S),)


def _pinging(broker: Running, core: int) -> float:
    load.pin(core)
    number = min(CONNECTIONS, crowd.allowed_files() - crowd.SPARE_FILES)
    kept = crowd.connected(broker.port, 0, number, KEEP_ALIVE_S)
    ping, pause_s = encode(PingReq(), V3), KEEP_ALIVE_S / number
    began, cpu_s, sent = time.monotonic(), broker.cpu_s(), 0
    while (passed := time.monotonic() - began) < WATCHED_S:
        while sent * pause_s < passed:
            sock = kept[sent % number]
            sock.sendall(ping)
            assert receive(sock, 2) == b"\xd0\0"
            sent += 1
        time.sleep(pause_s)
    return 60 * (broker.cpu_s() - cpu_s) / passed


def _retained(name: str, core: int, clients: int) -> tuple[float, ...]:
    """(resident bytes of a topic, topics a second to a new subscriber)."""
    with start(name, core, is_durable=False) as broker:
        found: tuple[float, float] = load.in_process(_keep_and_read, broker, clients, limit_s=LIMIT_S)
        return found


def _keep_and_read(broker: Running, core: int) -> tuple[float, float]:
    load.pin(core)
    publisher, empty = open_client(broker.port, "keeper"), broker.resident_bytes()
    packets = [encode(Publish(f"kept/{n:06}", PAYLOAD, 1, True, packet_id=n % 1000 + 1), V3) for n in range(TOPICS)]
    for first in range(0, TOPICS, AT_ONCE):
        publisher.sendall(b"".join(packets[first : first + AT_ONCE]))
        receive(publisher, 4 * min(AT_ONCE, TOPICS - first))
    time.sleep(crowd.SETTLE_S)
    each = (broker.resident_bytes() - empty) / TOPICS
    reader = open_client(broker.port, "reader")
    began = time.monotonic()
    reader.sendall(encode(Subscribe(1, (Subscription("kept/+", 0),)), V3))
    missing = 5 + sum(len(packet) - 2 for packet in packets)  # SUBACK; no packet identifiers at QoS 0
    while missing:
        missing -= len(data := reader.recv(load.READ_BYTES))
        assert data, "closed by the broker"
    return each, TOPICS / (time.monotonic() - began)


def _sessions(name: str, core: int, clients: int) -> tuple[float, ...]:
    """(seconds from the program's start to a client's answer, resident bytes of a session) after a restart."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        home = Path(directory)
        with start(name, core, is_durable=True, home=home) as broker:
            empty = broker.resident_bytes()
            load.in_process(_leave_sessions, broker.port, clients, limit_s=LIMIT_S)
            broker.stop()
        began = time.monotonic()
        with start(name, core, is_durable=True, home=home) as broker:
            back = open_client(broker.port, "kept0", clean=False, is_back=True, patience_s=PATIENCE_S)
            took_s = time.monotonic() - began
            back.close()
            time.sleep(crowd.SETTLE_S)
            return took_s, (broker.resident_bytes() - empty) / SESSIONS


def _leave_sessions(port: int, core: int) -> None:
    """Clients that connect with a session, subscribe and go."""
    load.pin(core)
    answers = 4 + 5
    for first in range(0, SESSIONS, AT_ONCE):
        group = []
        for place in range(first, first + AT_ONCE):
            sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
            sock.sendall(encode(Connect(f"kept{place}", V3, clean_start=False), V3))
            sock.sendall(encode(Subscribe(1, (Subscription(f"kept/{place}/#", 1),)), V3))
            group.append(sock)
        for sock in group:
            receive(sock, answers)
            sock.sendall(encode(Disconnect(), V3))
            sock.close()


def scales() -> list[Scale]:
    """The rows, in their order."""
    return [
        Scale(
            (Figure("idle-cpu", f"processor time a minute, {CONNECTIONS:,} idle, keep-alive 60 s", SECONDS, 2),),
            _idle_seconds,
        ),
        Scale(
            (
                Figure("retained-memory", f"memory, each of {TOPICS:,} retained", BYTES, 2),
                Figure("retained-read", f"{TOPICS:,} retained to a new subscriber", TOPICS_A_SECOND, 1, is_least=True),
            ),
            _retained,
        ),
        Scale(
            (
                Figure("sessions-start", f"start with {SESSIONS:,} persistent sessions", SECONDS, 2),
                Figure("sessions-memory", f"memory, each of {SESSIONS:,} persistent sessions", BYTES, 2),
            ),
            _sessions,
        ),
    ]
