"""Fifty thousand traced entities at one broker of several processes, all on one core: `detect_within_s: 10`.

A process may open fewer files than that, so that the broker is three processes that share the entities, and so are the
clients on another core (`fleet`). Steady state, deaths that are told, a kill of all processes of the broker. Once, for
everything takes minutes; `LONG_S` is the ten minutes in which nobody living may be suspected.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bridge.traces.entity import Wishes
from tests.bench.fleet import Fleet, entities
from tests.bench.growth import Row
from tests.bench.herd import COUNTED, Traced, entity_limit
from tests.bench.load import pin
from tests.gateway.traced_site import Site

ENTITIES, PROCESSES = 50_000, 3
WITHIN_S = 10.0
ARRIVE_S, READY_MAX_S = 60.0, 120.0
SETTLE_S, STEADY_S, LONG_S = 12.0, 20.0, 600.0
DEATHS = 30  # at each process
SUSPICION, FAILED, REFUSED = COUNTED
TRACED, PINGS, STOP, DIE, DIED = range(5)  # what clients and we tell each other


class Crowd:
    """The clients of one process of the broker, in a process of their own."""

    def __init__(self, site: Site, port: int, number: int, core: int) -> None:
        fork = multiprocessing.get_context("fork")  # keys are not sent to other processes
        self.shared = fork.Array("d", DIED + 1, lock=False)
        self._process = fork.Process(target=_serve, args=(site, port, number, core, self.shared), daemon=True)
        self._process.start()

    @property
    def traced(self) -> int:
        return int(self.shared[TRACED])

    @property
    def pings(self) -> int:
        return int(self.shared[PINGS])

    def stop(self) -> None:
        self.shared[STOP] = 1
        self._process.join(10)
        self._process.kill()


def _serve(site: Site, port: int, number: int, core: int, shared: Any) -> None:
    pin(core)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    fleet = Fleet(port, entities(site.domain, site.gateway, number, Wishes(("desk",))), ARRIVE_S)

    def look() -> bool:
        shared[TRACED], shared[PINGS] = fleet.traced, fleet.pings
        if shared[DIE] and not shared[DIED]:
            fleet.freeze(int(shared[DIE]))
            shared[DIED] = time.monotonic()
        return bool(shared[STOP])

    fleet.run(3_600, look)
    fleet.close()


def rows(number: int, cores: tuple[int, int], steady_s: float = STEADY_S) -> Iterator[Row]:
    """`cores`: the broker's and the clients'."""
    each = entity_limit(number // PROCESSES + 1)
    who = f"{each * PROCESSES:,} entities in {PROCESSES} processes on a core"
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        site = Site(Path(directory))
        more = {"preset": None, "detect_within_s": WITHIN_S}
        brokers = [Traced(site, cores[0], each, Path(directory) / f"data-{n}", more) for n in range(PROCESSES)]
        empty = sum(broker.running.resident_bytes() for broker in brokers)
        crowds = [Crowd(site, broker.port, each, cores[1]) for broker in brokers]
        try:
            took_s = _wait(lambda: sum(crowd.traced for crowd in crowds) >= each * PROCESSES, READY_MAX_S)
            traced = sum(crowd.traced for crowd in crowds)
            yield Row(f"traced after the first came, arriving over {ARRIVE_S:g} s, {who}", took_s, ARRIVE_S, "", "s")
            yield Row(f"traced by then, {who}", traced, each * PROCESSES, "all", "")
            time.sleep(SETTLE_S)
            yield from _steady(who, brokers, crowds, steady_s)
            full = sum(broker.running.resident_bytes() for broker in brokers)
            yield Row(f"memory of an entity with its connection, {who}", (full - empty) / traced / 1000, 10, "", "kB")
            yield from _deaths(who, brokers, crowds)
            yield from _killed(who, brokers, crowds, traced)
        finally:
            for crowd in crowds:
                crowd.stop()
            for broker in brokers:
                broker.stop()


def _wait(until: Callable[[], bool], most_s: float) -> float:
    begins = time.monotonic()
    while not until() and time.monotonic() < begins + most_s:
        time.sleep(0.02)
    return time.monotonic() - begins


def _counted(brokers: list[Traced], name: str) -> int:
    return sum(broker.counted(name) for broker in brokers)


def _steady(who: str, brokers: list[Traced], crowds: list[Crowd], seconds: float) -> Iterator[Row]:
    suspected, begins = _counted(brokers, SUSPICION), time.monotonic()
    cpu, pings = sum(broker.running.cpu_s() for broker in brokers), sum(crowd.pings for crowd in crowds)
    time.sleep(seconds)
    took_s = time.monotonic() - begins
    cpu = sum(broker.running.cpu_s() for broker in brokers) - cpu
    pings = sum(crowd.pings for crowd in crowds) - pings
    suspected = _counted(brokers, SUSPICION) - suspected
    yield Row(f"the broker's share of its core for {took_s:.0f} s, {who}", 100 * cpu / took_s, 60, "goal", "%")
    yield Row(f"pings answered a second, {who}", pings / took_s, 0, "", "1/s")
    yield Row(f"cpu of a ping and its answer, {who}", 1e6 * cpu / pings, 0, "", "us")
    yield Row(f"suspicions of living entities, {who}", suspected, 0, "goal", "")


def _deaths(who: str, brokers: list[Traced], crowds: list[Crowd]) -> Iterator[Row]:
    """So many stop answering on open connections, all at once."""
    failed = _counted(brokers, FAILED)
    for crowd in crowds:
        crowd.shared[DIE] = DEATHS
    _wait(lambda: all(crowd.shared[DIED] for crowd in crowds), 5)
    died = min(crowd.shared[DIED] for crowd in crowds)
    number = DEATHS * len(crowds)
    _wait(lambda: _counted(brokers, FAILED) >= failed + number, 3 * WITHIN_S)
    told_s = time.monotonic() - died
    yield Row(f"the last of {number} deaths told, {who}", told_s, WITHIN_S, "goal", "s")
    yield Row(f"told as failed, {who}", _counted(brokers, FAILED) - failed, number, "deaths", "")


def _killed(who: str, brokers: list[Traced], crowds: list[Crowd], traced: int) -> Iterator[Row]:
    failed, begins, alive = _counted(brokers, FAILED), time.monotonic(), traced - DEATHS * len(crowds)
    for broker in brokers:
        broker.stop()
    _wait(lambda: sum(crowd.traced for crowd in crowds) < alive // 2, 10)
    for broker in brokers:
        broker.start()
    _wait(lambda: sum(crowd.traced for crowd in crowds) >= alive, READY_MAX_S)
    yield Row(f"killed and restarted, traced again after, {who}", time.monotonic() - begins, 60, "goal", "s")
    yield Row(f"traced again, {who}", sum(crowd.traced for crowd in crowds), alive, "all", "")
    yield Row(f"living told as failed meanwhile, {who}", _counted(brokers, FAILED) - failed, 0, "goal", "")
