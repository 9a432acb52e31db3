"""Ten thousand traced entities at one broker process, on one core, that are heard of once a second, and a restart (B5).

Everything happens `RUNS` times, each with a fresh broker, and less often where that would take too long. A figure is
the median of all runs; where something must not happen at all, that of the worst. The broker runs on a core of its own,
the entities (`fleet`) and one tracker of a few of them on another. Processor time is read from the kernel; on a machine
that does other things as well it says more than times do. Beside a sign of life, which is one packet, or two where the
broker had to ask, stands a plain QoS 0 message that a client sends to itself through the same broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.contract.machine import Count
from bridge.traces.kinds import Interest, TraceKind
from bridge.tracking.entity import Wishes
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Publish
from gateway.tracing.client import Tracker
from tests.bench.crowd import SPARE_FILES, allowed_files
from tests.bench.fleet import Fleet, Member, entities
from tests.bench.growth import Row
from tests.bench.load import V3, open_client, pin, receive, subscribe
from tests.bench.peers import Running, wait_for
from tests.gateway.traced_site import Site
from tests.ports import free_ports

if TYPE_CHECKING:
    from gateway.broker.edge_broker import EdgeBroker

ENTITIES = 10_000
SHORT_ENTITIES = 4_000
ARRIVE_PER_S = 333  # of them connect; after the restart all come at once
RUNS = 3
BEGINS_WITHIN_S = 150.0  # no further run begins later
STEADY_S = 5.0
NEWCOMERS_S = 10.0  # ten pings at twice the pace, and the first words that are said unasked
FOLLOWED = 10
READY_MAX_S = 120.0
PLAIN = 5_000  # messages of the base
COUNTED = ("traces.FAILURE_SUSPICION", "traces.FAILED", "traces_refused")
MICROSECONDS = "us"
TRACED, AGAIN, FAILED, SUSPECTED = "traced", "traced again", "told as failed", "suspected meanwhile"
SUSPICIONS = "suspicions"
WORST = {TRACED: min, AGAIN: min, FAILED: max, SUSPECTED: max, SUSPICIONS: max}


def _serve(config: dict[str, Any], core: int | None, counts: Any) -> None:
    """`counts`: how often each of `COUNTED` was counted."""
    if core is not None:
        pin(core)
    from gateway.base import collect_seldom
    from gateway.base.config import parse
    from gateway.broker.running import run_broker
    from gateway.tracing.assembly import join, make_tracing

    def count(effect: Count) -> None:
        for name in (effect.name, f"{effect.name}.{effect.label}"):
            if name in COUNTED:
                counts[COUNTED.index(name)] += effect.amount

    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    settings = parse(config)
    assert settings.traces is not None
    tracing = make_tracing(settings.traces, settings.data, count)

    def started(broker: EdgeBroker) -> None:
        join(tracing, broker)
        collect_seldom()  # as every party does

    asyncio.run(run_broker(settings, started=started))


class Traced:
    """A broker that traces, in a process of its own; `restart` kills it. `counts`: of all its lives."""

    def __init__(
        self, site: Site, core: int | None, number: int, data: Path | None = None, traces: dict[str, Any] | None = None
    ) -> None:
        """`data`: where it remembers entities; `traces`: settings in place of the site's."""
        self.port = free_ports(1)[0]  # never one that a client has when we come back
        limits = {"connections": number + SPARE_FILES}
        kept = {} if data is None else {"data": str(data)}
        self._config = site.config(listeners={"default": {"bind": f"127.0.0.1:{self.port}"}}, limits=limits, **kept)
        self._config["traces"] |= traces or {}
        self._core = core
        self._spawn = multiprocessing.get_context("spawn")
        self.counts = self._spawn.Array("q", len(COUNTED), lock=False)
        self.start()

    def start(self) -> None:
        self._process = self._spawn.Process(target=_serve, args=(self._config, self._core, self.counts), daemon=True)
        self._process.start()
        wait_for(self.port)
        assert self._process.pid is not None
        self.running = Running(self.port, self._process.pid)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()

    def restart(self) -> None:
        self.stop()
        self.start()

    def counted(self, name: str) -> int:
        return int(self.counts[COUNTED.index(name)])


def entity_limit(number: int) -> int:
    """As many as asked for, or as this process may connect."""
    return min(number, allowed_files() - SPARE_FILES)


def rows(number: int, cores: tuple[int, int]) -> Iterator[Row]:
    """`cores`: the broker's and the clients'."""
    number = entity_limit(number)
    runs: dict[str, list[Row]] = {}
    begins = time.monotonic()
    for made in range(RUNS):
        if made and time.monotonic() > begins + BEGINS_WITHIN_S:
            break
        for row in _run(number, cores):
            runs.setdefault(row.work, []).append(row)
    for work, same in runs.items():
        combined = next((WORST[what] for what in WORST if work.startswith(what)), statistics.median)
        peer = statistics.median(row.peer for row in same)
        yield replace(same[0], ours=combined(row.ours for row in same), peer=peer)


def _run(number: int, cores: tuple[int, int]) -> Iterator[Row]:
    who = f"{number:,} entities"
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        pin(cores[1])
        site = Site(Path(directory))
        broker = Traced(site, cores[0], number)
        said: dict[str, float] = {}
        followed = [f"pump-{place * number // FOLLOWED}" for place in range(FOLLOWED)]

        def answered(member: Member) -> None:
            said[member.name] = time.time()

        made = entities(site.domain, site.gateway, number, Wishes(("desk",)), followed)
        plain_us, arrive_s = plain_message_us(broker), number / ARRIVE_PER_S
        fleet, cpu_s = Fleet(broker.port, made, arrive_s, answered), broker.running.cpu_s()
        try:
            took_s = _until_traced(fleet, number)
            cpu_us = 1e6 * (broker.running.cpu_s() - cpu_s) / max(fleet.traced, 1)
            yield Row(
                f"{who} connect within {arrive_s:.0f} s, waited for", took_s, number / 1000, "1,000 a second", "s"
            )
            yield Row(f"cpu of one until all are traced, {who}", cpu_us, plain_us, "plain message", MICROSECONDS)
            yield Row(f"{TRACED} of them by then, {who}", fleet.traced, number, "all", "")
            fleet.run(NEWCOMERS_S)
            latency = _Latency(site, broker.port, followed, said)
            fleet.run(3.0, lambda: len(latency.took_us) > FOLLOWED)
            yield from _steady(who, broker, fleet, plain_us)
            yield from latency.rows(who)
            yield from _restarted(who, broker, fleet, number)
        finally:
            fleet.close()
            broker.stop()


def _until_traced(fleet: Fleet, number: int) -> float:
    begins = time.perf_counter()
    fleet.run(READY_MAX_S, lambda: fleet.traced == number)
    return time.perf_counter() - begins


def _steady(who: str, broker: Traced, fleet: Fleet, plain_us: float) -> Iterator[Row]:
    suspected, waited = broker.counted(COUNTED[0]), broker.running.waited_s()
    cpu, pings, signs, begins = broker.running.cpu_s(), fleet.pings, fleet.signs, time.perf_counter()
    fleet.run(STEADY_S)
    cpu, took_s = broker.running.cpu_s() - cpu, time.perf_counter() - begins
    pings, signs = fleet.pings - pings, fleet.signs - signs
    share, lacked = 100 * cpu / took_s, 100 * (broker.running.waited_s() - waited) / took_s
    suspected = broker.counted(COUNTED[0]) - suspected
    yield Row(f"cpu of a sign of life, {who}", 1e6 * cpu / max(signs, 1), plain_us, "plain message", MICROSECONDS)
    yield Row(f"signs of life a second, {who}", signs / took_s, len(fleet.members), "one each", "1/s")
    yield Row(f"pings among them, {who}", pings / took_s, len(fleet.members), "one each", "1/s")
    yield Row(f"the broker's share of its core, {who}", share, 60, "goal", "%")
    yield Row(f"the core was somebody else's meanwhile, {who}", lacked, 100, "a core", "%")
    yield Row(f"{SUSPICIONS} of living entities, {who}", suspected, len(fleet.members), "entities", "")


def plain_message_us(broker: Traced) -> float:
    """Processor time of the broker for a QoS 0 message from a client to itself, one at a time; nobody else is there,
    for while we do this no ping would be answered."""
    topic = "bench/plain"
    with open_client(broker.port, "plain") as sock:
        subscribe(sock, 0, topic)
        packet = encode(Publish(topic, bytes(64)), V3)
        before = broker.running.cpu_s()
        for _ in range(PLAIN):
            sock.sendall(packet)
            receive(sock, len(packet))
        return 1e6 * (broker.running.cpu_s() - before) / PLAIN


class _Latency:
    """From an entity's sign of life to ALLS_WELL at a tracker, both in this process."""

    def __init__(self, site: Site, port: int, followed: list[str], said: dict[str, float]) -> None:
        self.took_us: list[float] = []
        self._said = said
        self._desk = Tracker(site.credentials("desk"), "127.0.0.1", port).start()
        for name in followed:
            self._desk.follow(name, Interest.ALL_UPDATES)
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        for seen in self._desk:
            if seen.kind is TraceKind.ALLS_WELL and seen.entity in self._said:
                self.took_us.append((time.time() - self._said[seen.entity]) * 1e6)

    def rows(self, who: str) -> Iterator[Row]:
        took = self.took_us[:]
        self._desk.stop()
        if took:
            yield Row(f"sign of life to ALLS_WELL, {who}", statistics.median(took), 1e6, "the interval", MICROSECONDS)


def _restarted(who: str, broker: Traced, fleet: Fleet, number: int) -> Iterator[Row]:
    failed, suspected = (broker.counted(name) for name in (COUNTED[1], COUNTED[0]))
    before = broker.running.resident_bytes()
    broker.restart()
    fleet.run(1.0)  # everybody notices
    peak = [0]

    def look() -> bool:
        peak[0] = max(peak[0], broker.running.resident_bytes())
        return fleet.traced == number

    begins = time.perf_counter()
    fleet.run(READY_MAX_S, look)
    took_s = time.perf_counter() - begins + 1.0
    fleet.run(NEWCOMERS_S, lambda: look() and False)
    failed, suspected = broker.counted(COUNTED[1]) - failed, broker.counted(COUNTED[0]) - suspected
    yield Row(f"broker killed and restarted, {who} traced after", took_s, number / 1000, "1,000 a second", "s")
    yield Row(f"{AGAIN} within {READY_MAX_S:g} s, {who}", fleet.traced, number, "all", "")
    yield Row(f"peak memory meanwhile, {who}", peak[0] / 2**20, before / 2**20, "before", "MiB")
    yield Row(f"{FAILED} meanwhile, {who}", failed, number, "entities", "")
    yield Row(f"{SUSPECTED}, {who}", suspected, number, "entities", "")
