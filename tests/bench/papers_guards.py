"""Guards at saturation, live: what verifying costs, and how far forgeries get with guards and without (paper E).

Two regions of three replicas, a publisher's and a forger's gateway in the first, a reader's in the second. Without
guards every process takes each signature for valid; the forger signs with zeros. What it publishes is refused by the
first honest replica where there are guards, and reaches the reader where there are none. The load is honest messages
with 100 in flight, from end to end, alone and beside a forger that publishes as quickly as its gateway takes it.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Publish
from tests.bench import across
from tests.bench.load import READ_BYTES, V3, Ring, in_process, open_client, subscribe
from tests.bench.peers import Running
from tests.bench.taken_ports import retried
from tests.gateway.overlay_processes import OverlayProcesses
from tests.support.files import edited

SECONDS, WINDOW, PAYLOAD_BYTES = 3.0, 100, 256
FORGED, HONEST = "open/forged", "open/load"
GATEWAYS = {"site": "r1-", "forger": "r1-", "control": "r2-"}
UNGUARDED = "import keys.identity; keys.identity.crypto_sign_open = lambda signed, key: b''; "
FORGES = (
    "from keys.identity import Identity; from keys.signedheader import HEADER_DOMAIN; sign = Identity.sign; "
    "Identity.sign = lambda self, domain, data: bytes(64) if domain == HEADER_DOMAIN else sign(self, domain, data); "
)
MAIN = "from gateway.cli import main; main()"
FIGURES = {"messages a second alone": "1/s", "messages a second beside forgeries": "1/s",
           "processor time a message alone": "us", "forgeries that reached the reader": "1/s"}  # fmt: skip


def rows(runs: int) -> Iterator[tuple[str, str, list[float], str, list[float]]]:
    """Yields samples with guards beside those without."""
    found: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    for _ in range(runs):
        for guarded, figures in found.items():
            figures.append(retried(partial(_measured, guarded)))
    for place, (what, unit) in enumerate(FIGURES.items()):
        columns = [[run[place] for run in figures] for figures in found.values()]
        yield f"E: with guards: {what}", unit, columns[0], "without guards", columns[1]


def _measured(guarded: bool) -> tuple[float, ...]:
    """The figures of one run with fresh processes, in the order of `FIGURES`."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        overlay = OverlayProcesses(Path(directory))
        overlay.make({"r1-": 3, "r2-": 3}, [("r1-", "r2-")], GATEWAYS)
        for gateway in GATEWAYS:
            with edited(overlay.directory / f"{gateway}.yaml") as content:
                del content["availability"]
        before = "" if guarded else UNGUARDED
        try:
            honest = [name for name in overlay.ports if name != "forger"]
            overlay.start(*honest, command=("-c", before + MAIN, "broker"))
            overlay.start("forger", command=("-c", before + FORGES + MAIN, "broker"))
            return _loaded(overlay)
        finally:
            overlay.stop()


def _loaded(overlay: OverlayProcesses) -> tuple[float, ...]:
    way = across.Way(overlay.ports["site"], overlay.ports["control"], HONEST, PAYLOAD_BYTES)
    with open_client(way.port_out, "holder") as holder:
        subscribe(holder, 0, f"{HONEST}/held")
        across.wait_through(way.port_in, way.port_out, f"{HONEST}/probe")
        running = [Running(overlay.ports[name], process.pid) for name, process in overlay.running.items()]
        cpu_s = sum(each.cpu_s() for each in running)
        alone: across.Flow = in_process(across.windowed, way, SECONDS, WINDOW)
        cpu_us = (sum(each.cpu_s() for each in running) - cpu_s) / alone.delivered * 1e6
        shared: Any = multiprocessing.Array("d", 2, lock=False)
        ports = overlay.ports["forger"], overlay.ports["control"]
        forger = multiprocessing.Process(target=_forge, args=(*ports, shared), daemon=True)
        forger.start()
        time.sleep(1.0)
        before, began = shared[1], time.monotonic()
        beside: across.Flow = in_process(across.windowed, way, SECONDS, WINDOW, limit_s=120.0)
        reached = (shared[1] - before) / (time.monotonic() - began)
        assert shared[0], "the forger published nothing"
        forger.kill()
        forger.join()
    return alone.rate, beside.rate, cpu_us, reached


def _forge(port_in: int, port_out: int, shared: Any) -> None:
    """Publishes as quickly as it is acknowledged, and counts what a reader gets: `shared` is (published, came)."""
    reader, forger = open_client(port_out, "forged-out"), open_client(port_in, "forged-in")
    subscribe(reader, 0, FORGED)
    ring = Ring(lambda number: encode(Publish(FORGED, bytes(PAYLOAD_BYTES), 1, packet_id=number), V3))
    size = len(encode(Publish(FORGED, bytes(PAYLOAD_BYTES)), V3))
    unanswered = read = 0
    while True:
        forger.sendall(ring.take(WINDOW - unanswered))
        unanswered = WINDOW
        for ready in select.select([reader, forger], [], [], 1.0)[0]:
            got = len(_received(ready))
            if ready is forger:
                unanswered -= got // 4
                shared[0] += got // 4
            else:
                read += got
                shared[1] = read // size


def _received(sock: socket.socket) -> bytes:
    data = sock.recv(READ_BYTES)
    if not data:
        raise ConnectionError("closed by the broker")
    return data
