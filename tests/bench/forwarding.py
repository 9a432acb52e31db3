"""Sealed publications across an overlay beside bridged Mosquittos: `python -m tests.bench.forwarding [--json]`.

256-byte messages at QoS 1 from a site to a control room, 100 in flight; nothing is pinned to a core, every process is
on this machine. One region (2 of 3 replicas suffice) stands beside site, middle and control Mosquitto with mutual TLS
between them, each further region beside one Mosquitto more. Those carry messages that somebody sealed before, as long
as ours are on the wire, and keep nothing on disk; ours has each on disk before it is acknowledged or sent on. The
second peer is ourselves, with a scope that is signed and not sealed. Each figure is the median of some runs, ours and
the peers' taken in turn, each with fresh processes; `cpu` and `read` are what all processes together used and read
(by `read`: their sockets, mostly) for each message that was delivered.

BASE=DIRECTORY of another version adds its rows beside ours (`tests.bench.versions`). Mosquitto is the one that
MOSQUITTO=PATH names, else the installed one.

The last rows have no peer but a base of our own; those of `growth` are measured in one process (`tests.bench.growth`),
those of `calls` are counted in the simulator (`tests.bench.lone`). Rows of `history` are beside a scope without one, or
beside live traffic (`tests.bench.histories`): `--messages` says how many are replayed, `--gigabytes` how much a replica
has that is started.
That content goes over all cross links is no setting: the processes of that row are started with another
`bridge.wire.pieces.INLINE_BYTES`.

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit, and with a goal goal and met; ratio is
ours / peer. The first object has the versions.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from keys.envelope import PROPERTY_HEADER, MessageHeader, Mode, SignedHeader, to_property
from keys.records import encode
from tests.bench import across, bridged, gateways, growth, histories, lone, slow_reader, versions
from tests.bench.broker import Target
from tests.bench.load import in_process, open_client, subscribe
from tests.bench.peers import MOSQUITTO, OURS, Running
from tests.bench.peers import versions as found
from tests.gateway.overlay_processes import VEILMQ, OverlayProcesses

RUNS = 5
SECONDS = 3.0
WINDOW, MANY = 100, 1000
PACED_GOAL_US = 1500.0
BEFORE_BATCHES_US = {(10, 5.0): 5_450.0, (200, 1.0): 5_772.0, (200, 5.0): 15_888.0}
"""Of processor time a message that was delivered, by gateways and messages a second from each, before there were
batches. Measured once under this very load: a figure of streams would say nothing. Of 200 x 5 it delivered 18 %."""
CROWD_S = 20.0
SLOW_S, SLOW_RATE = 25.0, 3_000
PACE = 300
PACE_LONG = 30
PAYLOAD_BYTES = 256
SEALED, PLAIN, RECEIPTED = "bench/load", "open/load", "receipts/load"
RECEIPTS_RATE, RECEIPTS_SETTLE_S = 1_000, 3.0
"""Messages a second, and the seconds after them in which the last receipts come."""
RECEIPTS_GOAL = 1.02
KEY_MESSAGES = 64
EVERYWHERE = "everywhere"
MESSAGES_REPLAYED, GIGABYTES_KEPT = 200_000, 5.0
IN_FLIGHT_BYTES = 2 << 20
MESSAGES, MICROSECONDS, BYTES = "msg/s", "us", "bytes"


@dataclass(frozen=True)
class Shape:
    """An overlay: replicas of each region, along one path; messages that one data key serves; the topic asked for; how
    content travels (`EVERYWHERE`: over all cross links); its length; `linger_ms` of the scope, and records of its
    batches at most; whether there is such a scope with receipts beside it; whether replicas keep a history of it, and
    those of the first region alone.
    """

    regions: tuple[int, ...] = (3,)
    key_messages: int = KEY_MESSAGES
    topic: str = SEALED
    mode: str = "auto"
    payload_bytes: int = PAYLOAD_BYTES
    in_flight: int = WINDOW
    linger_ms: int = 0
    records: int = 256
    with_receipts: bool = False
    has_history: bool = False
    is_far: bool = False

    @property
    def window(self) -> int:
        return max(4, min(self.in_flight, IN_FLIGHT_BYTES // self.payload_bytes))

    @property
    def set_up(self) -> str:
        """What the processes are started with, beside what they always are."""
        inline = "content.INLINE_BYTES = 1 << 30; " if self.mode == EVERYWHERE else ""
        return f"from bridge.wire import pieces as content; {inline}"


@dataclass(frozen=True)
class Chain:
    """Mosquittos, one bridged to the next."""

    length: int
    payload_bytes: int = PAYLOAD_BYTES
    window: int = WINDOW


@dataclass(frozen=True)
class Figures:
    """Of one run."""

    rate: float
    loaded_us: float
    paced_us: float
    cpu_us: float
    read_bytes: float


@dataclass(frozen=True)
class Result:
    work: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    target: Target | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else float("inf")

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return f"{self.target} {'met' if self.target.is_met(self.ratio) else 'MISSED'}"


# ---------------------------------------------------------------------------------------------- contenders


def wire_bytes(payload_bytes: int) -> int:
    """What a message of ours is on the wire between members: sealed content and signed header, in a full batch."""
    header = MessageHeader(bytes(16), b"k" * 16, 1, 0, 0, 0, 1, False, False, Mode.COPIES, (bytes(32),))
    signed = to_property(SignedHeader(header, bytes(64)).encode())
    content = len(encode(b"\1", [0], [SEALED.encode()], [b""], [bytes(payload_bytes)])) + 16
    return content + len(PROPERTY_HEADER) + len(signed) + 5


@contextlib.contextmanager
def processes_of(shape: Shape, *readers: str) -> Iterator[tuple[OverlayProcesses, across.Way]]:
    """Its running members, and the way from gateway to gateway. `readers`: further gateways of the last region."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as name:
        processes = OverlayProcesses(Path(name))
        regions = [f"r{place + 1}-" for place in range(len(shape.regions))]
        sizes = dict(zip(regions, shape.regions, strict=True))
        gateways = {"site": regions[0], **dict.fromkeys(("control", *readers), regions[-1])}
        processes.make(sizes, [*itertools.pairwise(regions)], gateways)
        sealed = {**_scope(SEALED), "refresh": {"messages": shape.key_messages}}
        sealed["batch"] = {"linger_ms": shape.linger_ms, "records": shape.records}
        sealed["mode"] = "copies" if shape.mode == EVERYWHERE else shape.mode
        if shape.has_history:
            sealed["history"] = {"days": 7, "gigabytes": 20, **({"regions": regions[:1]} if shape.is_far else {})}
        scopes = [sealed, _scope(PLAIN)]
        if shape.with_receipts:
            scopes.append({**sealed, **_scope(RECEIPTED), "receipts": True})
        processes.describe(lambda description: description.update(scopes=scopes))
        processes.hand_out(*processes.ports)
        for gateway in gateways:
            path = Path(name) / f"{gateway}.yaml"
            path.write_text(yaml.safe_dump(_configured(yaml.safe_load(path.read_text()))))
        command = ("-c", f"{shape.set_up}{VEILMQ[1]}")
        try:
            processes.start(*processes.ports, command=(*command, *VEILMQ[2:]))
            way = across.Way(processes.ports["site"], processes.ports["control"], shape.topic, shape.payload_bytes)
            # Somebody wants the scope throughout, so that no run begins before replicas know it.
            with open_client(way.port_out, "holder") as holder:
                subscribe(holder, 0, f"{way.topic}/held")
                across.wait_through(way.port_in, way.port_out, f"{way.topic}/probe")
                yield processes, way
        finally:
            processes.stop()


@contextlib.contextmanager
def sealed_way(shape: Shape) -> Iterator[tuple[list[Running], across.Way]]:
    """Its running processes, and the way from gateway to gateway."""
    with processes_of(shape) as (processes, way):
        yield [Running(processes.ports[n], p.pid) for n, p in processes.running.items()], way


def _scope(topic: str) -> dict[str, Any]:
    whole = {"filter": topic.replace("/load", "/#")}
    return {**whole, "mode": "plain"} if topic == PLAIN else whole


def _configured(content: dict[str, Any]) -> dict[str, Any]:
    del content["availability"]
    content["overlay"]["protect"] = [_scope(SEALED), _scope(RECEIPTED)]
    return content


@contextlib.contextmanager
def chain(of: Chain) -> Iterator[tuple[list[Running], across.Way]]:
    with bridged.chain(of.length, SEALED, of.window) as running:
        yield running, across.Way(running[0].port, running[-1].port, SEALED, wire_bytes(PAYLOAD_BYTES))


def measured(contender: Shape | Chain, seconds: float) -> Figures:
    """One run, with fresh processes."""
    with sealed_way(contender) if isinstance(contender, Shape) else chain(contender) as (running, way):
        cpu_s, read = sum(each.cpu_s() for each in running), sum(each.read_bytes() for each in running)
        flow: across.Flow = in_process(across.windowed, way, seconds, contender.window)
        cpu_s = sum(each.cpu_s() for each in running) - cpu_s
        read = sum(each.read_bytes() for each in running) - read
        time.sleep(0.2)
        pace = PACE if contender.payload_bytes == PAYLOAD_BYTES else PACE_LONG
        p50_us, _ = in_process(across.paced, way, seconds, pace)
    used = cpu_s / flow.delivered * 1e6, read / flow.delivered
    return Figures(flow.rate, flow.p50_us, p50_us, *used)


# --------------------------------------------------------------------------------------------------- tables


@dataclass
class Medians:
    """Figures of every contender that was asked for; runs of a group are taken in turn."""

    seconds: float
    runs: int
    messages: int = MESSAGES_REPLAYED
    gigabytes: float = GIGABYTES_KEPT
    _known: dict[Shape | Chain, Figures] = field(default_factory=dict)

    def of(self, contenders: Sequence[Shape | Chain]) -> list[Figures]:
        """Known ones are not measured again."""
        missing = [contender for contender in contenders if contender not in self._known]
        runs = [[measured(contender, self.seconds) for contender in missing] for _ in range(self.runs)]
        for place, contender in enumerate(missing):
            each = [vars(run[place]) for run in runs]
            self._known[contender] = Figures(*(statistics.median(one[name] for one in each) for name in each[0]))
        return [self._known[contender] for contender in contenders]


def one_region(medians: Medians) -> Iterator[Result]:
    ours, peer, plain = medians.of([Shape(), Chain(3), Shape(topic=PLAIN)])
    for name, other, has_goal in ((f"{MOSQUITTO} x 3", peer, True), (f"{OURS} plain", plain, False)):
        goals = (Target(1.0), _at_most(1.2), None, _at_most(1.0), _at_most(2.5)) if has_goal else (None,) * 5
        yield Result("throughput", ours.rate, other.rate, name, MESSAGES, goals[0])
        yield Result(f"p50, {WINDOW} in flight", ours.loaded_us, other.loaded_us, name, MICROSECONDS, goals[1])
        yield Result(f"p50, {PACE} msg/s", ours.paced_us, other.paced_us, name, MICROSECONDS, goals[2])
        yield Result("cpu a message", ours.cpu_us, other.cpu_us, name, MICROSECONDS, goals[3])
        yield Result("read a message", ours.read_bytes, other.read_bytes, name, BYTES, goals[4])
    yield Result(f"p50, {PACE} msg/s", ours.paced_us, PACED_GOAL_US, "its goal", MICROSECONDS, _at_most(1.0))
    ours, peer = medians.of([Shape(in_flight=MANY), Chain(3, window=MANY)])
    yield Result(f"throughput, {MANY} in flight", ours.rate, peer.rate, f"{MOSQUITTO} x 3", MESSAGES, Target(1.0))


def _at_most(ratio: float) -> Target:
    return Target(ratio, is_least=False)


def further_regions(medians: Medians) -> Iterator[Result]:
    """What each region more adds, beside what each bridge more adds; with larger batches, too."""
    shapes, larger = ([Shape((3,) * hops, in_flight=many) for hops in (1, 2, 3)] for many in (WINDOW, MANY))
    # All in turn, those that are known, too: between two tables the machine may have become slower.
    in_turn = Medians(medians.seconds, medians.runs).of([*shapes, Chain(3), Chain(4), Chain(5), *larger])
    pairs = (itertools.pairwise(in_turn[at : at + 3]) for at in (0, 3, 6))
    for hops, (before, ours), (peer_before, peer), (many_before, many) in zip((2, 3), *pairs, strict=True):
        name, adds = f"{MOSQUITTO} {hops + 2}th", f"region {hops} adds to"
        paced = ours.paced_us - before.paced_us, peer.paced_us - peer_before.paced_us
        yield Result(f"{adds} p50, {PACE} msg/s", *paced, name, MICROSECONDS)
        cpu = ours.cpu_us - before.cpu_us, peer.cpu_us - peer_before.cpu_us
        yield Result(f"{adds} cpu a message", *cpu, name, MICROSECONDS)
        work, base = f"cpu a message, {hops} regions", f"{hops - 1} region{'s' * (hops > 2)}"
        yield Result(work, ours.cpu_us, before.cpu_us, base, MICROSECONDS, _at_most(1.25))
        yield Result(f"{work}, {MANY} in flight", many.cpu_us, many_before.cpu_us, base, MICROSECONDS)


def _beside_base(shapes: dict[str, Shape], base: str, medians: Medians) -> Iterator[Result]:
    figures = dict(zip(shapes, medians.of(list(shapes.values())), strict=True))
    for name, ours in figures.items():
        yield Result(f"cpu a message, {name}", ours.cpu_us, figures[base].cpu_us, base, MICROSECONDS)
        yield Result(f"read a message, {name}", ours.read_bytes, figures[base].read_bytes, base, BYTES)


def by_size(medians: Medians) -> Iterator[Result]:
    shapes = {f"{n // 2 + 1} of {n}": Shape((n,)) for n in (3, 5, 7)}
    yield from _beside_base(shapes, "2 of 3", medians)


def by_hops(medians: Medians) -> Iterator[Result]:
    shapes = {f"{hops} region{'s' * (hops > 1)}": Shape((3,) * hops) for hops in (1, 2, 3, 4)}
    yield from _beside_base(shapes, "1 region", medians)


def by_refresh(medians: Medians) -> Iterator[Result]:
    shapes = {f"{number} messages a key": Shape(key_messages=number) for number in (1, 10, KEY_MESSAGES)}
    yield from _beside_base(shapes, f"{KEY_MESSAGES} messages a key", medians)


def by_linger(medians: Medians) -> Iterator[Result]:
    """What it brings, and costs, that a publication waits for others, beside that it does not."""
    shapes = [Shape(in_flight=window, linger_ms=ms) for window in (WINDOW, MANY) for ms in (0, 5)]
    figures = medians.of(shapes)
    for at, window in ((0, WINDOW), (2, MANY)):
        base, ours = figures[at], figures[at + 1]
        name, load = "linger 0", f"linger 5, {window} in flight"
        yield Result(f"throughput, {load}", ours.rate, base.rate, name, MESSAGES)
        yield Result(f"p50, {load}", ours.loaded_us, base.loaded_us, name, MICROSECONDS)
        yield Result(f"cpu a message, {load}", ours.cpu_us, base.cpu_us, name, MICROSECONDS)
        yield Result(f"read a message, {load}", ours.read_bytes, base.read_bytes, name, BYTES)
    yield Result(f"p50, linger 5, {PACE} msg/s", figures[1].paced_us, figures[0].paced_us, "linger 0", MICROSECONDS)


def by_growth(medians: Medians) -> Iterator[Result]:
    for row in growth.rows(growth.MESSAGES):
        yield Result(row.work, row.ours, row.peer, row.peer_name, row.unit)


def by_mode(medians: Medians) -> Iterator[Result]:
    """Content modes over two regions of three, beside content on all cross links."""
    for size in (PAYLOAD_BYTES, 4 << 10, 64 << 10):
        shapes = {
            f"{mode}, {size} bytes": Shape((3, 3), mode=mode, payload_bytes=size)
            for mode in (EVERYWHERE, "copies", "one", "blocks")
        }
        yield from _beside_base(shapes, f"{EVERYWHERE}, {size} bytes", medians)


def by_cut(medians: Medians) -> Iterator[Result]:
    """From which length on blocks pay: batches of one record over two regions of three."""
    for kib in (1, 2, 4, 8, 16, 32):
        shapes = [Shape((3, 3), mode=mode, payload_bytes=kib << 10, records=1) for mode in ("blocks", "copies")]
        ours, base = medians.of(shapes)
        yield Result(f"cpu a batch of {kib} KiB, blocks", ours.cpu_us, base.cpu_us, "copies", MICROSECONDS)
        yield Result(f"read a batch of {kib} KiB, blocks", ours.read_bytes, base.read_bytes, "copies", BYTES)


def by_crowd(_: Medians) -> Iterator[Result]:
    """Many gateways with little each, beside few; one run of each, since to start them takes minutes."""

    def prepare(path: Path) -> None:
        path.write_text(yaml.safe_dump(_configured(yaml.safe_load(path.read_text()))))

    for size, rate in ((1, 50.0), *BEFORE_BATCHES_US):
        crowd = gateways.measured(size, rate, SEALED, PAYLOAD_BYTES, CROWD_S, [_scope(SEALED), _scope(PLAIN)], prepare)
        work, cpu_us = f"{size} x {rate:.0f} msg/s", crowd.cpu_us
        if before_us := BEFORE_BATCHES_US.get((size, rate)):
            goal = _at_most(0.6) if (size, rate) == (gateways.GATEWAYS, gateways.RATE_PER_S) else None
            yield Result(f"cpu, {work}", cpu_us, before_us, "before batches", MICROSECONDS, goal)
        yield Result(f"cpu above idle, {work}", crowd.above_idle_us, cpu_us, "all of it", MICROSECONDS)
        yield Result(f"cpu of replicas, {work}", crowd.replicas_us, cpu_us, "all of it", MICROSECONDS)
        yield Result(f"cpu of the reader, {work}", crowd.reader_us, cpu_us, "all of it", MICROSECONDS)
        yield Result(f"p50, {work}", crowd.p50_us, crowd.p99_us, "p99", MICROSECONDS)
        yield Result(f"messages late, {work}", crowd.late, size * rate * CROWD_S, "sent", "msg")
        yield Result(f"messages lost, {work}", crowd.lost, size * rate * CROWD_S, "sent", "msg")


def by_slow(_: Medians) -> Iterator[Result]:
    """A reader that takes half of what comes, longer than anybody waits for one that is stuck; one run."""
    with sealed_way(Shape()) as (_running, way):
        limit_s = SLOW_S + 120
        sent, came = in_process(slow_reader.kept, way, SLOW_S, SLOW_RATE, SLOW_RATE / 2, limit_s=limit_s)
    yield Result(f"a reader at half of {SLOW_RATE} msg/s", came, sent, "acknowledged", "msg", Target(1.0))


def by_receipts(medians: Medians) -> Iterator[Result]:
    """Processor time of all processes with receipts and without, in turn in the very same processes: receipts cost
    less than fresh processes differ. The time in which the last receipts come is measured on both sides.
    """
    used: dict[str, list[float]] = {SEALED: [], RECEIPTED: []}
    with contextlib.ExitStack() as stack:
        running, way = stack.enter_context(sealed_way(Shape(with_receipts=True)))
        holder = stack.enter_context(open_client(way.port_out, "holder of receipts"))
        subscribe(holder, 0, f"{RECEIPTED}/held")
        across.wait_through(way.port_in, way.port_out, f"{RECEIPTED}/probe")
        for turn in range(2 * medians.runs):
            for topic in (SEALED, RECEIPTED) if turn % 2 else (RECEIPTED, SEALED):
                before_s = sum(each.cpu_s() for each in running)
                in_process(across.paced, replace(way, topic=topic), medians.seconds, RECEIPTS_RATE)
                time.sleep(RECEIPTS_SETTLE_S)
                spent_s = sum(each.cpu_s() for each in running) - before_s
                used[topic].append(spent_s / (medians.seconds * RECEIPTS_RATE) * 1e6)
    ours, base = (statistics.median(used[topic]) for topic in (RECEIPTED, SEALED))
    work = f"cpu a message with receipts, {RECEIPTS_RATE} msg/s"
    yield Result(work, ours, base, "without receipts", MICROSECONDS, _at_most(RECEIPTS_GOAL))


def by_calls(_: Medians) -> Iterator[Result]:
    """Python calls of one lone publication, counted in the simulator: the same on every machine."""
    typical = lone.typical(lone.measured())
    peer_name, total = "79934b97", sum(lone.BEFORE.values())
    yield Result("calls of a lone publication", typical.calls, total, peer_name, "calls", _at_most(0.305))
    for role, before in lone.BEFORE.items():
        yield Result(f"calls, {role}", typical.roles[role], before, peer_name, "calls")
    yield Result("modules entered", len(typical.modules), lone.MODULES_BEFORE, peer_name, "files")


def by_history(medians: Medians) -> Iterator[Result]:
    """What a history costs live traffic, how fast it is read again, and what a replica with a large one needs."""
    off, on = medians.of([Shape(), Shape(has_history=True)])
    name, goal = "without history", _at_most(1.15)
    yield Result("history: cpu a message", on.cpu_us, off.cpu_us, name, MICROSECONDS, goal)
    yield Result(f"history: p50, {WINDOW} in flight", on.loaded_us, off.loaded_us, name, MICROSECONDS, goal)
    yield Result(f"history: p50, {PACE} msg/s", on.paced_us, off.paced_us, name, MICROSECONDS, goal)
    with processes_of(Shape(has_history=True), "reader") as (processes, way):
        windows = WINDOW, MANY
        live, count = histories.filled(way, windows, medians.messages)
        rate = in_process(histories.replayed, processes.ports["reader"], way, count, limit_s=histories.LIMIT_S)
        for window, beside in zip(windows, live, strict=True):
            yield Result(f"replay of {count:,}", rate, beside, f"live, {window} in flight", MESSAGES, Target(3.0))
        yield _beside_reading(medians, processes.ports["reader"], way, "another gateway reads")
        yield _beside_reading(medians, processes.ports["control"], way, "its own gateway reads")
    with processes_of(Shape((3, 3), has_history=True, is_far=True), "reader") as (processes, way):
        histories.filled(way, [MANY], medians.messages // 4)
        yield _beside_reading(medians, processes.ports["reader"], way, "another reads a far region")
    with processes_of(Shape(has_history=True, mode="blocks")) as (processes, way):
        _, count = histories.filled(way, [MANY], medians.messages // 4)
        disk = histories.disk_bytes(processes, "r1-1") / count
    yield Result("disk a message, blocks", disk, 0.75 * PAYLOAD_BYTES + 60, "its goal", BYTES, _at_most(1.0))
    empty, full = histories.started(medians.gigabytes)
    kept = f"{medians.gigabytes:g} GB kept"
    yield Result(
        f"start, {kept}", full.seconds * 1e3, 3_000, f"its goal; empty {empty.seconds:.1f} s", "ms", _at_most(1.0)
    )
    more = (full.memory_bytes - empty.memory_bytes) / 1e6
    yield Result(f"memory beyond an empty one, {kept}", more, 50, "its goal", "MB", _at_most(1.0))


def _beside_reading(medians: Medians, port: int, way: across.Way, who: str) -> Result:
    """Live traffic while a client of the gateway at a port reads the past again and again."""
    alone = in_process(across.paced, way, medians.seconds * medians.runs, PACE)
    with histories.reading(port, way):
        reading = in_process(across.paced, way, medians.seconds * medians.runs, PACE)
    return Result(f"p99, {PACE} msg/s, {who}", reading[1], alone[1], "nobody reads", MICROSECONDS, _at_most(1.5))


def by_base(medians: Medians) -> Iterator[Result]:
    """Lone messages and throughput beside another version in the same run."""
    for row, ours, base in versions.compared(medians.runs, medians.seconds):
        yield Result(row.work, ours, base, "base", row.unit, row.goal)


TABLES: dict[str, Callable[[Medians], Iterator[Result]]] = {
    "region": one_region,
    "further": further_regions,
    "size": by_size,
    "hops": by_hops,
    "refresh": by_refresh,
    "linger": by_linger,
    "growth": by_growth,
    "modes": by_mode,
    "cut": by_cut,
    "crowd": by_crowd,
    "slow": by_slow,
    "receipts": by_receipts,
    "calls": by_calls,
    "history": by_history,
    "base": by_base,
}


def show(result: Result) -> str:
    figures = f"{result.ours:>10,.0f}{result.peer:>10,.0f} {result.unit:<6}{result.ratio:>7.2f}"
    return f"{result.work:<38}{figures} {result.peer_name:<21}{result.verdict}"


def as_json(result: Result) -> str:
    fields = {"bench": "forwarding", "work": result.work, "ours": round(result.ours, 3), "peer": round(result.peer, 3)}
    fields |= {"peer_name": result.peer_name, "ratio": round(result.ratio, 3), "unit": result.unit}
    if (target := result.target) is not None:
        fields |= {"goal": str(target), "met": target.is_met(result.ratio)}
    return json.dumps(fields)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of which the median counts")
    parser.add_argument("--only", action="append", choices=TABLES, metavar="NAME", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--messages", type=int, default=MESSAGES_REPLAYED, help="history: how many are read again")
    parser.add_argument("--gigabytes", type=float, default=GIGABYTES_KEPT, help="history: of a replica that starts")
    arguments = parser.parse_args()
    form = as_json if arguments.json else show
    if not arguments.json:
        print(f"load of the machine before we begin: {os.getloadavg()[0]:.1f}, cores {os.cpu_count()}")
        print(f"{'work':<38}{'ours':>10}{'peer':>10} {'unit':<6}{'ratio':>7} {'peer':<21}target")
    else:
        named = {name: version for name, version in found().items() if name in (OURS, MOSQUITTO)}
        print(json.dumps({"bench": "forwarding", "versions": named}), flush=True)
    medians = Medians(arguments.seconds, arguments.runs, arguments.messages, arguments.gigabytes)
    for name in arguments.only or TABLES:
        for result in TABLES[name](medians):
            print(form(result), flush=True)
    if not arguments.json:
        print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
