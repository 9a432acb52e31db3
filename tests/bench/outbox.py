"""A gateway that comes back with a backlog: `python -m tests.bench.outbox [--entries N ...] [--reopen]`.

An outbox of so many 64-byte publications on 200 topics is made on disk; then a gateway starts without its replicas
(time until it listens, and what it holds in memory then), and again with three replicas and a second gateway of the
same region, all on this machine. While the backlog drains, a device publishes on topics without backlog, some messages
a second, and a client of the second gateway hears them; beside it stand the same figures without a backlog. There is no
peer: the base of the rates is our own without a backlog, of the rest the bound or nothing (`peer` 0).

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit; ratio is ours / peer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bridge.contract.machine import Publication
from gateway.data import DataDirectory
from gateway.outbox.store import GROUP_MAX, Store
from tests.gateway.overlay_processes import OverlayProcesses
from tests.waits import wait_until

REPLICAS = ("north1", "north2", "north3")
TOPICS = 200
PAYLOAD_BYTES = 64
LIVE_PER_S = 20
DRAIN_S = 1_800.0
QUIET_S = 10.0
MIB = float(1 << 20)


@dataclass(frozen=True)
class Result:
    """One line: what was measured, ours, and what stands beside it."""

    work: str
    ours: float
    peer: float
    peer_name: str
    unit: str


async def _fill(directory: Path, entries: int) -> None:
    store = Store(DataDirectory.open(directory))
    for start in range(0, entries, GROUP_MAX):
        publications = [
            Publication(f"plant/{n % TOPICS}", bytes(PAYLOAD_BYTES), 1, time_ms=int(time.time() * 1000))
            for n in range(start, min(start + GROUP_MAX, entries))
        ]
        await asyncio.gather(*(store.put_publication(publication) for publication in publications))
    store.close()


def _resident_bytes(process: subprocess.Popen[bytes], peak: bool = False) -> float:
    if not peak:
        return float(psutil.Process(process.pid).memory_info().rss)
    (line,) = [a for a in Path(f"/proc/{process.pid}/status").read_text().splitlines() if a.startswith("VmHWM")]
    return float(line.split()[1]) * 1024


class Live:
    """A device at `site`, a listener at `control`: how long each message takes."""

    def __init__(self, overlay: OverlayProcesses) -> None:
        self.took_s: list[float] = []
        self._listener = overlay.client("control", "listener")
        self._listener.on_message = lambda c, u, message: self.took_s.append(time.time() - float(message.payload))
        self._listener.subscribe("plant/live/#", 1)
        self._device = overlay.client("site", "device")
        self._sent = 0

    def send(self) -> None:
        self._sent += 1
        self._device.publish(f"plant/live/{self._sent % 20}", repr(time.time()).encode(), qos=1)

    def until_through(self) -> None:
        """Return once something comes through."""
        while not self.took_s:
            self.send()
            time.sleep(0.1)

    def close(self) -> None:
        for client in (self._device, self._listener):
            client.loop_stop()
            client.disconnect()


def _quantiles(took_s: list[float]) -> tuple[float, float]:
    """The median and the 99th of a hundred, in ms."""
    return statistics.median(took_s) * 1000, sorted(took_s)[int(0.99 * (len(took_s) - 1))] * 1000


def _depth(overlay: OverlayProcesses) -> int:
    return int(overlay.figures("site").get("outbox_depth", -1))


def measure(entries: int, drain: bool) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as name:
        overlay = OverlayProcesses(Path(name)).make({"north": 3}, [], {"site": "north", "control": "north"})
        try:
            empty = yield from _reopened(overlay, entries)
            if drain:
                yield from _drained(overlay, entries, empty)
        finally:
            overlay.stop()


def _reopened(overlay: OverlayProcesses, entries: int) -> Generator[Result, None, float]:
    """Without uplink. Returns what a gateway with an empty outbox holds, in bytes."""
    data = overlay.directory / "data-site"
    overlay.start("site")
    empty = _resident_bytes(overlay.running["site"])
    overlay.kill("site")
    asyncio.run(_fill(data, entries))
    begun = time.perf_counter()
    asyncio.run(_reopen(data))
    yield Result(f"reopen, {entries}", time.perf_counter() - begun, 0, "-", "s")
    overlay.start("site")
    held = _resident_bytes(overlay.running["site"])
    overlay.kill("site")
    yield Result(f"memory without uplink, {entries}", held / MIB, empty / MIB, "empty outbox", "MiB")
    return empty


def _drained(overlay: OverlayProcesses, entries: int, empty: float) -> Iterator[Result]:
    overlay.start(*REPLICAS, "control")
    overlay.start("site")
    begun = time.perf_counter()
    live = Live(overlay)
    live.until_through()
    live.took_s.clear()
    while time.perf_counter() - begun < DRAIN_S:
        for _ in range(LIVE_PER_S):
            live.send()
            time.sleep(1 / LIVE_PER_S)
        if _depth(overlay) in range(LIVE_PER_S):
            break
    else:
        raise TimeoutError(f"{_depth(overlay)} of {entries} are still in the outbox")
    took = time.perf_counter() - begun
    peak = _resident_bytes(overlay.running["site"], peak=True)
    during = _quantiles(live.took_s)
    live.took_s.clear()
    for _ in range(int(QUIET_S * LIVE_PER_S)):
        live.send()
        time.sleep(1 / LIVE_PER_S)
    wait_until(lambda: len(live.took_s) >= QUIET_S * LIVE_PER_S, 5)
    quiet = _quantiles(live.took_s)
    live.close()
    yield Result(f"drain, {entries}", entries / took, 0, "-", "msg/s")
    yield Result(f"memory at most, {entries}", peak / MIB, empty / MIB, "empty outbox", "MiB")
    for at, which in enumerate(("p50", "p99")):
        yield Result(f"live {which} beside the backlog, {entries}", during[at], quiet[at], "no backlog", "ms")


async def _reopen(data: Path) -> None:
    Store(DataDirectory.open(data)).close()


def show(result: Result) -> str:
    ratio = f"{result.ours / result.peer:>7.2f}" if result.peer else f"{'-':>7}"
    return f"{result.work:<42}{result.ours:>10,.2f}{result.peer:>10,.2f} {result.unit:<6}{ratio} {result.peer_name}"


def as_json(result: Result) -> str:
    ratio = round(result.ours / result.peer, 3) if result.peer else None
    fields = {"bench": "outbox", "work": result.work, "ours": round(result.ours, 3), "peer": round(result.peer, 3)}
    return json.dumps({**fields, "peer_name": result.peer_name, "ratio": ratio, "unit": result.unit})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--entries", type=int, nargs="+", default=[200_000], help="sizes of the backlog")
    parser.add_argument("--reopen", action="store_true", help="only what needs no replicas")
    arguments = parser.parse_args()
    for entries in arguments.entries:
        for result in measure(entries, not arguments.reopen):
            print(as_json(result) if arguments.json else show(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
