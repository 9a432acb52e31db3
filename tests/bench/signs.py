"""What one sign of life costs a broker, by how it comes about: asked for, said unasked, or MQTT's own keep alive.

    asked       the broker pings, the entity answers: what an entity does that knows nothing else
    unasked     the entity says by itself that it lives, as often as it was told to (`bridge.traces.signs`)
    keep alive  PINGREQ of a client, and the broker's PINGRESP: two packets, too, and a proof of a connection only, of
                which a program that hangs in its own thread has one

So many entities at one process of a broker on a core of its own, each design with a fresh one. Where some of them are
not traced in time a row says so, and those that are give the figure. Processor time is the kernel's. Not here: how many
a core carries (`herd`, `processes`).
"""

from __future__ import annotations

import selectors
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from bridge.tracking.entity import Wishes
from tests.bench.crowd import connected
from tests.bench.fleet import Fleet, entities
from tests.bench.growth import Row
from tests.bench.herd import Traced, entity_limit
from tests.bench.load import pin
from tests.gateway.traced_site import Site

ENTITIES = 4_000
WITHIN_S = 2.0
ARRIVE_S, READY_MAX_S, SETTLE_S, STEADY_S = 15.0, 60.0, 5.0, 10.0
KEEP_ALIVE_S = 1.0


def rows(number: int, cores: tuple[int, int]) -> Iterator[Row]:
    """`cores`: the broker's and the clients'."""
    number = entity_limit(number)
    who, asked_us = f"{number:,} clients", 0.0
    for what in ("asked", "unasked"):
        each_us, traced = _entities(cores, number, is_asked=what == "asked")
        asked_us = asked_us or each_us
        if traced < number:
            yield Row(f"traced after {READY_MAX_S:g} s, {what}, {who}", traced, number, "all", "")
        yield Row(f"cpu of a sign of life, {what}, {who}", each_us, asked_us, "asked", "us")
    yield Row(f"cpu of a sign of life, keep alive, {who}", _keep_alive(cores, number), asked_us, "asked", "us")


def _entities(cores: tuple[int, int], number: int, is_asked: bool) -> tuple[float, int]:
    """Processor time of a sign of life, and how many gave them."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        pin(cores[1])
        site = Site(Path(directory))
        broker = Traced(site, cores[0], number, traces={"preset": None, "detect_within_s": WITHIN_S})
        made = entities(site.domain, site.gateway, number, Wishes(("desk",)))
        fleet = Fleet(broker.port, made, ARRIVE_S, is_asked=is_asked)
        try:
            fleet.run(READY_MAX_S, lambda: fleet.traced == number)
            traced = fleet.traced
            fleet.run(SETTLE_S)
            cpu_s, signs = broker.running.cpu_s(), fleet.signs
            fleet.run(STEADY_S)
            return 1e6 * (broker.running.cpu_s() - cpu_s) / max(fleet.signs - signs, 1), traced
        finally:
            fleet.close()
            broker.stop()


def _keep_alive(cores: tuple[int, int], number: int) -> float:
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        pin(cores[1])
        broker = Traced(Site(Path(directory)), cores[0], number)
        clients = connected(broker.port, 0, number)
        try:
            cpu_s = broker.running.cpu_s()
            pinged = _ping(clients, STEADY_S)
            return 1e6 * (broker.running.cpu_s() - cpu_s) / pinged
        finally:
            for client in clients:
                client.close()
            broker.stop()


def _ping(clients: deque[socket.socket], seconds: float) -> int:
    """Each once in `KEEP_ALIVE_S`, spread evenly; how many were answered."""
    begins, sent, answered = time.perf_counter(), 0, 0
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.setblocking(False)
            selector.register(client, selectors.EVENT_READ)
        while (passed_s := time.perf_counter() - begins) < seconds or answered < sent:
            while sent < min(passed_s, seconds) * len(clients) / KEEP_ALIVE_S:
                clients[sent % len(clients)].send(b"\xc0\0")
                sent += 1
            for key, _ in selector.select(0.005):
                answered += len(key.fileobj.recv(256)) // 2  # type: ignore[union-attr]
    return answered
