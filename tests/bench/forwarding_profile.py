"""Costs of a message at each process of a sealed path: processor time, wake-ups, syncs of the disk, functions.

`python -m tests.bench.forwarding_profile`: one region of three, 256 bytes, QoS 1, 100 in flight, as the first rows of
`tests.bench.forwarding`; with `--pace RATE` so many messages a second, each alone on its way. Processor time is taken
in a run without samples; then a run with samples (`sampling`) gives the ten functions with the largest shares of each
process, or with `--calls` its calls of Python functions and the ten that are called most; a last one counts syncs with
`strace`, where that is there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench import across, sampling
from tests.bench.forwarding import WINDOW, Shape, sealed_way
from tests.bench.load import in_process
from tests.bench.peers import Running
from tests.waits import wait_until

SECONDS = 4.0
LARGEST = 10
WRITTEN_WITHIN_S = 10.0


@dataclass(frozen=True)
class Sampled(Shape):
    """An overlay whose processes can be sampled; `directory`: where to. `counts`: calls are counted instead."""

    directory: str = ""
    counts: bool = False

    @property
    def set_up(self) -> str:
        begin = "count" if self.counts else "begin"
        return f"from tests.bench import sampling; sampling.{begin}({self.directory!r}); "


def lines(seconds: float, pace: float | None, counts: bool = False) -> Iterator[str]:
    """The report, line by line. `pace`: messages a second, None for `WINDOW` in flight. `counts`: calls, no samples."""
    with tempfile.TemporaryDirectory(prefix="veilmq-profile-") as directory:
        with sealed_way(Sampled(directory=directory, counts=counts)) as (running, way):
            names = {each.pid: _name(each) for each in running}
            used = {each.pid: each.cpu_s() for each in running}
            woken = {each.pid: _wakeups(each.pid) for each in running}
            delivered, what = _loaded(way, seconds, pace)
            woken = {each.pid: (_wakeups(each.pid) - woken[each.pid]) / delivered for each in running}
            used = {each.pid: (each.cpu_s() - used[each.pid]) / delivered * 1e6 for each in running}
            yield f"{what}, {sum(used.values()):.0f} us of processor time each"
            with _sampled(running, Path(directory)):
                sampled, _ = _loaded(way, seconds, pace)
            syncs = _syncs(running, way, seconds, pace)
        for pid, name in names.items():
            synced = syncs.get(pid, "strace is missing, so no")
            yield f"{name}: {used[pid]:.0f} us and {woken[pid]:.1f} wake-ups a message, {synced} syncs a second"
            if counts:
                total = sum(json.loads(Path(directory, f"{pid}.json").read_text()).values())
                yield f"  {total / sampled:.0f} calls of Python functions a message"
            for function, share in sampling.shares(Path(directory, f"{pid}.json"), LARGEST):
                yield f"  {share:5.1%}  {function}"


def _loaded(way: across.Way, seconds: float, pace: float | None) -> tuple[int, str]:
    """One run: how many messages were delivered, and how it went."""
    if pace is not None:
        p50_us, p99_us = in_process(across.paced, way, seconds, pace)
        return int(
            seconds * pace
        ), f"{pace:,.0f} messages a second, p50 {p50_us / 1000:.1f} ms, p99 {p99_us / 1000:.1f} ms"
    flow: across.Flow = in_process(across.windowed, way, seconds, WINDOW)
    return flow.delivered, f"{flow.rate:,.0f} messages a second"


def _wakeups(pid: int) -> int:
    """Returns how often the threads of a process waited and were woken since it started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/status")
    found = (line for task in tasks for line in task.read_text().splitlines())
    return sum(int(line.split()[1]) for line in found if line.startswith("voluntary_ctxt_switches"))


def _name(process: Running) -> str:
    words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
    return next(Path(word).stem for word in words if word.endswith(".yaml"))


@contextlib.contextmanager
def _sampled(running: list[Running], directory: Path) -> Iterator[None]:
    for each in running:
        os.kill(each.pid, signal.SIGUSR1)
    yield
    for each in running:
        os.kill(each.pid, signal.SIGUSR2)
    assert wait_until(lambda: len(list(directory.glob("*.json"))) == len(running), WRITTEN_WITHIN_S)


def _syncs(running: list[Running], way: across.Way, seconds: float, pace: float | None) -> dict[int, int]:
    """fsync and fdatasync a second of each process; the tracing slows them a little, and nothing else."""
    strace = shutil.which("strace")
    if strace is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="veilmq-syncs-") as directory:
        command = [strace, "-f", "-e", "trace=fsync,fdatasync", "-o"]
        tracing = [
            subprocess.Popen([*command, f"{directory}/{each.pid}", "-p", str(each.pid)], stderr=subprocess.DEVNULL)
            for each in running
        ]
        time.sleep(0.5)
        began = time.perf_counter()
        _loaded(way, seconds, pace)
        took_s = time.perf_counter() - began
        for each in tracing:
            each.send_signal(signal.SIGINT)
            each.wait()
        counts = {each.pid: Path(directory, str(each.pid)).read_text().count("sync(") for each in running}
    return {pid: round(count / took_s) for pid, count in counts.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of one run")
    parser.add_argument("--pace", type=float, metavar="RATE", help="messages a second, each alone; else many in flight")
    parser.add_argument("--calls", action="store_true", help="count calls of Python functions, take no samples")
    arguments = parser.parse_args()
    print(f"load of the machine before we begin: {os.getloadavg()[0]:.1f}, cores {os.cpu_count()}")
    for line in lines(arguments.seconds, arguments.pace, arguments.calls):
        print(line, flush=True)
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
