"""What the way into Spark costs, beside peers in the same run: `python -m tests.bench.ingest [--json] [--only ...]`.

rows      spool to Spark's noop sink, decrypted, in one and two tasks: messages in batches of 64 whose key serves 1,024,
          as they were received and packed. Beside them the same rows in clear out of parquet, and parquet with AES-GCM
          in mapInArrow, whose data keys are wrapped by AES-GCM. "cpu": of JVM and Python workers together, which a busy
          machine distorts less.
tasks     two tasks beside one with nearly three times the rows, of parquet in clear too: the start of a query, which no
          second task makes shorter, is half of the time that parquet takes in `rows`
singles   the same of lone messages, with a key for 64 of them, or for each
receiver  what a core receives, durable, beside bytes that are kept undecoded (`ingest_receiver`): lone messages, and
          batches of 2 and 64; and what of a message's time is the check of its one signature
delay     a device's PUBLISH to the row in Python at 1,000 messages a second, through a gateway, three replicas and a
          receiver, each a process; in turns, in one session and under the same load, with lines into the JVM's socket
          source and with rows of a Python source with nothing to do, made as often
growth    CPU of a row with 1, 2 and 4 receivers, and with 10 and 100 times the segments: opened, and planned in a
          micro-batch of 500
workers   what `--workers` receives by the wall clock, beside one process (`ingest_workers`)

Medians of several runs, taken in turns. With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit;
ratio is ours / peer; goal and met, null for a row without a goal. Each section takes two to five minutes on two quiet
cores, and makes its own spools. `--part 20` does a twentieth of the work, to see that all of it runs: its figures mean
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.packing import pack
from spark_ingest.session import QUICK_PROGRESS
from spark_ingest.spool.segments import segment_numbers
from spark_ingest.spool.view import SpoolView
from tests.bench import ingest_growth, ingest_publishing, ingest_receiver, ingest_workers, receiving, spools
from tests.bench.broker import Target
from tests.bench.load import in_process, pin
from tests.gateway.overlay_processes import OverlayProcesses


class Kind(NamedTuple):
    """A spool of `rows` messages, read `times` times, as copies: the start of a query and of its workers takes a second
    whatever it reads."""

    rows: int
    times: int
    messages_a_key: int
    batch: int = 1
    segment_bytes: int = 8 << 20

    def part(self, part: int) -> Kind:
        """So much smaller, but for what fills one segment and begins another: only full ones are copied."""
        rows = max(self.rows // part, 2 * spools.GROUP_ROWS * self.batch)
        return self._replace(rows=rows, segment_bytes=self.segment_bytes // part)


MANY = "many"
KINDS = {
    "batch": Kind(400_000, 3, 1024, 64),
    MANY: Kind(400_000, 8, 1024, 64),
    "64": Kind(120_000, 5, 64),
    "1": Kind(40_000, 5, 1),
}
PACKED = "-packed"
SMALL = Kind(20_000, 1, 64, segment_bytes=900_000)
"""Few groups a segment, for plans of many segments; never smaller, for several plans are made of the least of them."""
CORES = (1, 2)
BATCH = 64
RECEIVED = {1: 30_000, 2: 15_000, BATCH: 4_000}
"""What each replica sends, by publications in it."""
RUNS = 3
CHILD_S = 400.0
RATE = 1000
DELAY_GOAL_MS = {"p50": 200.0, "p99": 400.0}
GOAL = Target(1.0, is_least=False)
DELAY_S = 8
DELAY_LEAST_S = 2
LINGER_MS = 20
DELAYS: tuple[tuple[Mapping[str, str], int, str], ...] = (
    ({}, 0, ""),
    (QUICK_PROGRESS, LINGER_MS, ", quick progress, lingering"),
)
"""Settings of the session, the scope's `linger_ms`, and what rows say of both."""
LEAST_SEGMENTS = 4
FACTORS = (10, 100)
RECEIVERS = (1, 2, 4)
WORKERS = (1, 2, 4)
FLAT = Target(1.2, is_least=False)
FED = 20_000


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    work: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    target: Target | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.peer


class Spools:
    """A directory with the spools that several rows need, made when the first of them does."""

    def __init__(self, directory: Path, part: int = 1) -> None:
        self.directory, self.part = directory, part
        self.keys = spools.grants(directory / "keys.json")
        self._wrapping_key = os.urandom(spools.KEY_BYTES)
        (directory / "wrapping.key").write_bytes(self._wrapping_key)

    def spool(self, name: str) -> Path:
        root, kind = self.directory / f"spool-{name}", KINDS[name].part(self.part) if name in KINDS else SMALL
        if not root.exists():
            made = (kind.rows, kind.messages_a_key, kind.batch, kind.segment_bytes)
            in_process(spools.fill, root, *made, limit_s=CHILD_S)
        return root

    def large(self, name: str) -> int:
        """A spool of many rows, as it was received and packed; how many."""
        source = self.spool(name) / "main"
        root = self.directory / f"large-{name}"
        segments = KINDS[name].times * (len(segment_numbers(source)) - 1)
        for each in (root, root.with_name(root.name + PACKED)):
            ingest_growth.copied(source, each, 1, segments)
        in_process(_packed, each, self.keys, limit_s=CHILD_S)
        view = SpoolView(root)
        return KINDS[name].batch * sum(extent.rows for extent in view.ranges({}, view.latest(), 1))

    def parquet(self, clear: str, sealed: dict[str, int]) -> None:
        """For each number of tasks as many files: the rows of a large spool in clear, and by kind so many sealed
        (`sealed-CLEAR-KIND`)."""
        options = parse_options({"spool": str(self.directory / f"large-{clear}"), "grants": str(self.keys)})
        view = SpoolView(options.spool)
        rows = [batch for extent in view.ranges({}, view.latest(), 1) for batch in RowReader(options).read(extent)]
        for cores in CORES:
            spools.plain_parquet(self.directory / f"plain-{clear}-{cores}", rows, cores)
            for name, count in sealed.items():
                directory = self.directory / f"sealed-{clear}-{name}-{cores}"
                spools.sealed_parquet(directory, count, self._wrapping_key, KINDS[name].messages_a_key, cores)


def _packed(root: Path, keys: Path) -> None:
    assert not [each.told for each in pack(root, keys, None, None) if each.refused]


class Ways(NamedTuple):
    """What a section reads: the figures of each way by name, rows a second and CPU us a row."""

    rate: dict[str, float]
    cpu: dict[str, float]


def read(site: Spools, cores: int, counts: dict[str, int]) -> Ways:
    """Each way, in a process of its own. `counts`: how many rows must come, by way."""
    child = [sys.executable, "-m", "tests.bench.ingest_rows", str(site.directory), str(cores), json.dumps(counts)]
    done = subprocess.run(child, capture_output=True, timeout=CHILD_S, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-4000:])
    found: dict[str, list[list[float]]] = json.loads(done.stdout.splitlines()[-1])
    medians = ({name: statistics.median(run[at] for run in runs) for name, runs in found.items()} for at in (0, 1))
    return Ways(*medians)


Beside = tuple[str, str, str, str, Target | None]
"""Way, peer, what the way reads, name of the peer, goal."""


def compared(
    site: Spools, counts: dict[str, int], beside: tuple[Beside, ...], several: dict[str, str]
) -> Iterator[Row]:
    """Ways beside their peers in one task and in two. `several`: ways of which two tasks are compared with one."""
    single: dict[str, float] = {}
    for cores in CORES:
        ways = read(site, cores, counts)
        tasks = "one task" if cores == 1 else f"{cores} tasks"
        for name, what in several.items():
            if name in single:
                goal = Target(1.6) if name.startswith("ours") else None
                yield Row(f"rows, {tasks}, {what}", ways.rate[name], single[name], "one task", "rows/s", goal)
            single.setdefault(name, ways.rate[name])
        for ours, peer, what, name, target in beside:
            goal = target if cores == 1 else None
            yield Row(f"rows, {tasks}, {what}", ways.rate[ours], ways.rate[peer], name, "rows/s", goal)
            yield Row(f"rows, {tasks}, {what}: cpu", ways.cpu[ours], ways.cpu[peer], name, "us/row")


CLEAR, SEALED = "parquet in clear", "parquet, AES-GCM in mapInArrow"


def rows(site: Spools) -> Iterator[Row]:
    """From disk to the noop sink."""
    count = site.large("batch")
    site.parquet("batch", {"64": count})
    whats = {"ours-batch": "batches of 64", f"ours-batch{PACKED}": "batches of 64, packed"}
    beside = [
        each
        for way, what in whats.items()
        for each in (
            (way, "plain-batch", what, CLEAR, Target(0.6)),
            (way, "sealed-batch-64", what, SEALED, Target(2.0)),
        )
    ]
    counts = dict.fromkeys([*whats, "plain-batch", "sealed-batch-64"], count)
    yield from compared(site, counts, tuple(beside), {**whats, "plain-batch": CLEAR, "sealed-batch-64": SEALED})


def tasks(site: Spools) -> Iterator[Row]:
    """Two tasks beside one, of so many rows that the start of a query is a small part."""
    count = site.large(MANY)
    site.parquet(MANY, {})
    whats = {f"ours-{MANY}": "batches of 64", f"ours-{MANY}{PACKED}": "batches of 64, packed", f"plain-{MANY}": CLEAR}
    several = {way: f"{what}, {count:,} rows" for way, what in whats.items()}
    yield from compared(site, dict.fromkeys(whats, count), (), several)


def singles(site: Spools) -> Iterator[Row]:
    """The same of lone messages."""
    count = {name: site.large(name) for name in ("64", "1")}
    site.parquet("64", count)
    key = "a key a message"
    beside: tuple[Beside, ...] = (
        ("ours-64", "sealed-64-64", "64 messages a key", SEALED, None),
        (f"ours-64{PACKED}", "plain-64", "64 messages a key, packed", CLEAR, Target(0.6)),
        ("ours-1", "sealed-64-1", key, SEALED, Target(1.5)),
        (f"ours-1{PACKED}", "sealed-64-1", f"{key}, packed", SEALED, Target(1.5)),
    )
    counts = {way: count["1" if "-1" in way else "64"] for each in beside for way in each[:2]}
    yield from compared(site, counts, beside, {"ours-1": key, f"ours-1{PACKED}": f"{key}, packed"})


def receiver(site: Spools) -> Iterator[Row]:
    """What one core receives."""
    overlay = receiving.Steady()
    kinds = ((1, "singles", 15_000), (2, "batches of 2", 15_000), (BATCH, f"batches of {BATCH}", 50_000))
    for batch, what, goal in kinds:
        wires = receiving.premade(RECEIVED[batch] // site.part, overlay, batch)
        packets = ingest_receiver.packets_of([publication[0] for publication in wires])
        ours, peer = [], []
        for run in range(RUNS + 1):
            found = batch * in_process(_received, overlay, wires, site.directory / f"received-{batch}-{run}")
            other = batch * ingest_receiver.undecoded(packets, site.directory / "undecoded")
            if run:
                ours.append(found)
                peer.append(other)
        told = statistics.median(ours)
        yield Row(f"received, one core, {what}", told, statistics.median(peer), "one copy, undecoded", "pub/s")
        yield Row(f"received, one core, {what}: goal", told, goal, "the goal", "pub/s", Target(1.0))
        signature_us = in_process(_signature_us)
        yield Row(f"a signature a message, {what}", signature_us, batch * 1e6 / told, "all of the message", "us")


def _received(overlay: receiving.Overlay, wires: Any, spool: Path) -> float:
    pin(1)
    warm = wires[: 2 * receiving.GROUP_ROWS]  # the first group imports what a receiver then has for months
    receiving.measure(overlay, warm, spool.with_name(f"{spool.name}-warm"))
    return receiving.measure(overlay, wires, spool).rate


def _signature_us() -> float:
    pin(1)
    return receiving.signatures_us()


def delay(site: Spools) -> Iterator[Row]:
    """From PUBLISH to row, with settings as they come and with those that make rows sooner."""
    for number, (session, linger_ms, what) in enumerate(DELAYS):
        overlay = OverlayProcesses(site.directory / f"overlay-{number}")
        overlay.directory.mkdir()
        overlay.make({"north": 3}, [], {"site": "north", "job": "north"})
        overlay.describe(partial(_lingering, linger_ms))
        overlay.hand_out(*overlay.ports)
        told = {
            "options": {
                "spool": str(overlay.directory / "received"),
                "identity": str(overlay.directory / "job"),
                "overlay": str(overlay.directory / "job-overlay.json"),
                "topics": ingest_publishing.TOPIC,
                "startingOffsets": "latest",
            },
            "session": dict(session),
            "seconds": max(DELAY_LEAST_S, DELAY_S / site.part),
            "rate": RATE,
        }
        child = [sys.executable, "-m", "tests.bench.ingest_delay", json.dumps(told)]
        try:
            overlay.start("north1", "north2", "north3", "site")
            with subprocess.Popen(child, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as spark:
                end = ingest_publishing.publish_beside(overlay.ports["site"], spark, RATE)
            yield from _delay_rows(end, what)
        finally:
            overlay.stop()


def _lingering(linger_ms: int, description: dict[str, Any]) -> None:
    description["scopes"][0]["batch"] = {"linger_ms": linger_ms}


def _delay_rows(end: dict[str, Any], what: str) -> Iterator[Row]:
    peers = (
        ("socket", "lines into Spark's socket source, same load", Target(1.1, is_least=False)),
        ("clock", "rows of a Python source with nothing to do, same load", None),
    )
    for name, goal_ms in DELAY_GOAL_MS.items():
        for way, where in (("ours", ""), ("apart", ", receiver apart")):
            ours, work = end[way][name], f"device to row, {name}, {RATE} msg/s{what}{where}"
            judged = way == "ours"
            yield Row(work, ours, goal_ms, "goal", "ms", GOAL if judged else None)
            for peer, told, goal in peers:
                yield Row(work, ours, end[peer][name], told, "ms", goal if judged else None)
            batch, lines = (end[each][f"batch_{name}"] for each in (way, "socket"))
            yield Row(f"a micro-batch of it, {name}{what}{where}", batch, lines, "of lines", "ms")
    for part, ours in end["ours"]["parts_ms"].items():
        theirs = max(1.0, end["socket"]["parts_ms"][part])  # Spark tells whole milliseconds
        yield Row(f"{part} of a micro-batch, p50{what}", ours, theirs, "of lines", "ms")
    for stage, ours in end["stages_ms"].items():
        yield Row(f"of it {stage}, p50{what}", ours, end["ours"]["p50"], "device to row", "ms")
    for call, (wall, cpu) in end["calls_ms"].items():
        yield Row(f"{call} of our reader, p50{what}", wall, max(cpu, 0.001), "its processor time", "ms")


def growth(site: Spools) -> Iterator[Row]:
    """What a row and a plan cost in larger spools."""
    source = site.spool("64") / "main"
    segments = max(RECEIVERS)
    cpu: dict[int, list[float]] = {count: [] for count in RECEIVERS}
    roots = {
        count: ingest_growth.copied(source, site.directory / f"by-{count}", count, segments // count)
        for count in RECEIVERS
    }
    for run in range(RUNS + 1):
        for count, root in roots.items():
            found = ingest_growth.cpu_us_a_row(root, site.keys)
            if run:
                cpu[count].append(found)
    small = site.spool("small") / "main"
    least = statistics.median(cpu[1])
    for count in RECEIVERS[1:]:
        ours = statistics.median(cpu[count])
        yield Row(f"opening a row, {count} receivers: cpu", ours, least, "one receiver", "us/row", FLAT)
    for at_end in (False, True):
        where = "at its end" if at_end else "at its start"
        plans = {}
        for factor in (1, *FACTORS):
            root = ingest_growth.copied(small, site.directory / f"plan-{factor}-{at_end}", 1, LEAST_SEGMENTS * factor)
            plans[factor] = ingest_growth.plan_ms(root, site.keys, at_end)
        for factor in FACTORS:
            yield Row(f"planning a micro-batch {where}, {factor} x the spool", plans[factor], plans[1], "1 x", "ms")
            ours, small_us = (least + plans[each] * 1000 / ingest_growth.BATCH_ROWS for each in (factor, 1))
            yield Row(f"a row {where}, {factor} x the spool: cpu", ours, small_us, "1 x", "us/row", FLAT)


def workers(site: Spools) -> Iterator[Row]:
    """What more processes bring a receiver."""
    usual = receiving.NOW
    receiving.NOW = time.time()  # these receivers go by the clock
    try:
        found = _by_workers(site)
    finally:
        receiving.NOW = usual
    for count in WORKERS:
        yield Row(f"received, --workers {count}, by the wall clock", found[count], found[0], "one process", "pub/s")


def _by_workers(site: Spools) -> dict[int, float]:
    overlay = receiving.Steady()
    wires = receiving.premade(FED // site.part, overlay)
    found: dict[int, list[float]] = {count: [] for count in (0, *WORKERS)}
    for run in range(RUNS):
        for count, rates in found.items():
            home = site.directory / f"workers-{count}-{run}"
            home.mkdir()
            rates.append(in_process(ingest_workers.measure, overlay, wires, count, home, limit_s=CHILD_S))
    return {count: statistics.median(rates) for count, rates in found.items()}


SECTIONS: dict[str, Callable[[Spools], Iterator[Row]]] = {
    "rows": rows, "tasks": tasks, "singles": singles, "receiver": receiver, "delay": delay, "growth": growth,
    "workers": workers,
}  # fmt: skip


def show(row: Row) -> str:
    verdict = f"  {row.target} {'met' if row.target.is_met(row.ratio) else 'MISSED'}" if row.target else ""
    figures = f"{row.ours:>12,.1f}{row.peer:>12,.1f} {row.unit:<7}{row.ratio:>7.2f}"
    return f"{row.work:<52}{figures}  {row.peer_name}{verdict}"


def as_json(row: Row) -> str:
    fields = {
        "bench": "ingest", "work": row.work, "ours": round(row.ours, 3), "peer": round(row.peer, 3),
        "peer_name": row.peer_name, "ratio": round(row.ratio, 3), "unit": row.unit,
        "goal": row.target and str(row.target), "met": row.target and row.target.is_met(row.ratio),
    }  # fmt: skip
    return json.dumps(fields)


def main() -> int:
    """Print the table, or JSON lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="some sections")
    parser.add_argument("--part", type=int, default=1, metavar="N", help="an Nth of the work, to see that it runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as name:
        site = Spools(Path(name), arguments.part)
        for section in arguments.only:
            for row in SECTIONS[section](site):
                print(as_json(row) if arguments.json else show(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
