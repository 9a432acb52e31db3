"""Histories of replicas: reading one again, what that costs live traffic, and a replica that starts with a large one.

The large store is written by the replica's own archive, under the key of its data directory; publishers and times are
made up, and its records have the size of full batches. Used by `tests.bench.forwarding`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from bridge.contract import HistoryKey, HistoryPosition, HistoryRecord
from bridge.document import History
from gateway.commands.status import fetched
from gateway.data import sealing_key
from gateway.history import Archive
from gateway.trust import load_overlay
from tests.bench import across
from tests.bench.load import Acknowledger, in_process, open_client, subscribe
from tests.gateway.overlay_processes import OverlayProcesses
from tests.ports import free_ports
from tests.waits import wait_until

LIMIT_S = 900.0
FILL_S = 10.0
SINCE = "$since/2h/"
KEPT = History(7, 20_000)
PUBLISHERS, RECORD_BYTES, WRITE_RECORDS = 20, 16 << 10, 256
SPAN_S = 4 * 86_400.0
REST_S = 2.0  # so long a started replica is left alone before its memory is read


def filled(way: across.Way, windows: Sequence[int], messages: int) -> tuple[list[float], int]:
    """Publishes at least so many messages, live from gateway to gateway. Returns the rate with each of the windows, and
    how many there were."""
    rates: dict[int, list[float]] = {window: [] for window in windows}
    count = 0
    while count < messages or not all(rates.values()):
        window = min(rates, key=lambda each: len(rates[each]))
        flow: across.Flow = in_process(across.windowed, way, FILL_S, window, limit_s=LIMIT_S)
        rates[window].append(flow.rate)
        count += flow.delivered
    return [statistics.mean(each) for each in rates.values()], count


def replayed(port: int, way: across.Way, count: int) -> float:
    """Returns messages a second of one client of one gateway that reads so many of the past, QoS 1."""
    client = open_client(port, "past", patience_s=60.0)
    size = len(way.packet(bytes(way.payload_bytes), 1))
    began = time.perf_counter()
    subscribe(client, 1, SINCE + way.topic)
    receiver = Acknowledger(client, size, size - way.payload_bytes - 2)
    while receiver.delivered < count:
        receiver.read()
    took_s = time.perf_counter() - began
    client.close()
    return count / took_s


@contextlib.contextmanager
def reading(port: int, way: across.Way) -> Iterator[None]:
    """A client that reads the past again and again."""
    process = multiprocessing.Process(target=_read_for_ever, args=(port, way), daemon=True)
    process.start()
    try:
        yield
        assert process.is_alive(), "the reader of the past ended"
    finally:
        process.kill()
        process.join()


def _read_for_ever(port: int, way: across.Way) -> None:
    size, number = len(way.packet(bytes(way.payload_bytes), 1)), 0
    while True:
        number += 1
        with open_client(port, f"past-{number}", patience_s=60.0) as client:
            subscribe(client, 1, SINCE + way.topic)
            receiver = Acknowledger(client, size, size - way.payload_bytes - 2)
            client.settimeout(1.0)
            with contextlib.suppress(TimeoutError):  # all of the past has come
                while True:
                    receiver.read()


def disk_bytes(processes: OverlayProcesses, replica: str) -> int:
    """Ends the members, and returns what the history of one replica takes."""
    processes.stop()
    return sum(path.stat().st_size for path in (processes.directory / f"data-{replica}" / "history").iterdir())


# ---------------------------------------------------------------------------------------------------- starts


@dataclass(frozen=True)
class Start:
    """`seconds`: from the start of a replica's process until it says how far its history reaches."""

    seconds: float
    memory_bytes: int


def started(gigabytes: float) -> tuple[Start, Start]:
    """Returns the start of a replica with an empty history, and with so much."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as name:
        processes = OverlayProcesses(Path(name)).make({"r1-": 3}, [], {"site": "r1-"})
        kept = {"days": KEPT.days, "gigabytes": KEPT.megabytes // 1_000}
        processes.describe(lambda told: told.update(scopes=[{"filter": "bench/#", "history": kept}]))
        processes.hand_out(*processes.ports)
        bind = f"127.0.0.1:{free_ports(1)[0]}"
        path = Path(name) / "r1-1.yaml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "metrics": {"bind": bind}}))
        empty = _start(processes, bind, 0)
        (scope,) = load_overlay(Path(name) / "overlay.json", int(time.time() * 1000)).policy.scopes
        fill(Path(name) / "data-r1-1", scope.number, int(gigabytes * 1e9))
        return empty, _start(processes, bind, int(gigabytes * 1e9))


def _start(processes: OverlayProcesses, bind: str, kept_bytes: int) -> Start:
    began = time.perf_counter()
    processes.start("r1-1")

    def says() -> bool:
        with contextlib.suppress(OSError):
            told: list[dict[str, Any]] = fetched(bind, "status", 10.0)["overlay"]["histories"]
            return bool(told) and told[0]["bytes"] >= kept_bytes and not told[0]["refused"]
        return False

    assert wait_until(says, 120.0, every_s=0.02), processes.log("r1-1")
    took_s = time.perf_counter() - began
    time.sleep(REST_S)
    memory = psutil.Process(processes.running["r1-1"].pid).memory_info().rss
    processes.stop()
    return Start(took_s, memory)


def fill(data: Path, scope: int, size: int) -> None:
    """Writes a scope's history of so many bytes into a replica's data directory, by its archive; the times end now."""
    now = time.time()
    archive = Archive(data / "history", sealing_key(data, b"history"))
    many = -(-size // RECORD_BYTES)
    noise = os.urandom(RECORD_BYTES + many)
    publishers = [os.urandom(16) for _ in range(PUBLISHERS)]
    for first in range(0, many, WRITE_RECORDS):
        records, keys = [], []
        for number in range(first, min(many, first + WRITE_RECORDS)):
            time_ms = int((now - SPAN_S + SPAN_S * number / many) * 1_000)
            publisher, key_id = publishers[number % PUBLISHERS], b"%16d" % (number // WRITE_RECORDS)
            position = HistoryPosition(time_ms, publisher, number, b"%8d" % number)
            records.append(HistoryRecord(scope, position, key_id, noise[number : number + RECORD_BYTES]))
            keys = [HistoryKey(scope, key_id, bytes(300), bytes(120))]
        archive.write(records, keys, {scope: KEPT}, now)
    archive.close()
