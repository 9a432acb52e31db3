"""Fifty thousand traced entities at one broker of several processes, all on one core: `detect_within_s: 10`.

A process may open fewer files than that, so that the broker is three processes that share the entities, and so are
the clients on another core (`fleet`). They come once, for that takes minutes. Then up to `ROUNDS` times: steady
state, `SETTLE_S` behind the last who came, deaths that are told, a kill of all processes of the broker. A figure is
the median of the rounds; where something must not happen at all, that of the worst. `LONG_S` is one round of the ten
minutes in which nobody living may be suspected.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bridge.tracking.entity import Wishes
from tests.bench.fleet import Fleet, entities
from tests.bench.growth import Row
from tests.bench.herd import COUNTED, Traced, entity_limit
from tests.bench.load import pin
from tests.gateway.traced_site import Site

ENTITIES, PROCESSES = 50_000, 3
WITHIN_S = 10.0
ARRIVE_PER_S, READY_MAX_S, BACK_MAX_S = 300, 200.0, 70.0
SETTLE_S, STEADY_S, LONG_S = 8.0, 8.0, 600.0
ROUNDS = 3
BEGINS_WITHIN_S = 240.0  # a round that would begin later is left out, so that the whole takes no more than 400 s
REMEMBERED_S = 2.0  # what was told is on disk then
DEATHS = 30  # at each process, in each round
SUSPICION, FAILED, REFUSED = COUNTED
TRACED, SIGNS, PINGS, STOP, DIE, DEAD, DIED = range(7)  # what clients and we tell each other


class Crowd:
    """The clients of one process of the broker, in a process of their own."""

    def __init__(self, site: Site, port: int, number: int, core: int) -> None:
        fork = multiprocessing.get_context("fork")  # keys are not sent to other processes
        self.shared = fork.Array("d", DIED + 1, lock=False)
        self._process = fork.Process(target=_serve, args=(site, port, number, core, self.shared), daemon=True)
        self._process.start()

    def __getitem__(self, what: int) -> int:
        return int(self.shared[what])

    def stop(self) -> None:
        self.shared[STOP] = 1
        self._process.join(10)
        self._process.kill()


def _serve(site: Site, port: int, number: int, core: int, shared: Any) -> None:
    pin(core)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    gc.disable()  # millions of objects that stay
    fleet = Fleet(
        port, entities(site.domain, site.gateway, number, Wishes(("desk",))), PROCESSES * number / ARRIVE_PER_S
    )

    def look() -> bool:
        shared[TRACED], shared[SIGNS], shared[PINGS] = fleet.traced, fleet.signs, fleet.pings
        if shared[DIE] > shared[DEAD]:
            fleet.freeze(int(shared[DIE] - shared[DEAD]))
            shared[DEAD], shared[DIED] = shared[DIE], time.monotonic()
        return bool(shared[STOP])

    fleet.run(3_600, look)
    fleet.close()


def rows(number: int, cores: tuple[int, int], is_long: bool = False) -> Iterator[Row]:
    """`cores`: the broker's and the clients'."""
    each, begins = entity_limit(number // PROCESSES + 1), time.monotonic()
    who = f"{each * PROCESSES:,} entities in {PROCESSES} processes on a core"
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        site = Site(Path(directory))
        more = {"preset": None, "detect_within_s": WITHIN_S}
        brokers = [Traced(site, cores[0], each, Path(directory) / f"data-{n}", more) for n in range(PROCESSES)]
        empty = sum(broker.running.resident_bytes() for broker in brokers)
        crowds = [Crowd(site, broker.port, each, cores[1]) for broker in brokers]
        try:
            cpu_s = sum(broker.running.cpu_s() for broker in brokers)
            took_s = _wait(lambda: _sum(crowds, TRACED) >= each * PROCESSES, READY_MAX_S)
            traced = _sum(crowds, TRACED)
            cpu_us = 1e6 * (sum(broker.running.cpu_s() for broker in brokers) - cpu_s) / max(traced, 1)
            came_s = each * PROCESSES / ARRIVE_PER_S
            yield Row(f"traced after the first came, arriving over {came_s:.0f} s, {who}", took_s, came_s, "", "s")
            yield Row(f"cpu of one until all are traced, {who}", cpu_us, 0, "", "us")
            yield Row(f"traced by then, {who}", traced, each * PROCESSES, "all", "")
            time.sleep(SETTLE_S)
            full = sum(broker.running.resident_bytes() for broker in brokers)
            yield Row(
                f"memory of an entity with its connection, {who}", (full - empty) / max(traced, 1) / 1000, 10, "", "kB"
            )
            rounds: dict[str, list[Row]] = {}
            for made in range(1 if is_long else ROUNDS):
                if made and time.monotonic() > begins + BEGINS_WITHIN_S:
                    break
                time.sleep(SETTLE_S if made else 0)
                for row in _round(who, brokers, crowds, traced, LONG_S if is_long else STEADY_S):
                    rounds.setdefault(row.work, []).append(row)
                    yield Row(f"round {made + 1}: {row.work}", row.ours, row.peer, row.peer_name, row.unit)
            yield from (_combined(same) for same in rounds.values() if len(same) > 1)
        finally:
            for crowd in crowds:
                crowd.stop()
            for broker in brokers:
                broker.stop()


def _combined(same: list[Row]) -> Row:
    """The median; of what must not happen, or must for all, the worst."""
    found = [row.ours for row in same]
    first = same[0]
    ours = statistics.median(found)
    if first.peer_name in ("all", "none"):
        ours = min(found) if first.peer_name == "all" else max(found)
    return Row(first.work, ours, first.peer, first.peer_name, first.unit)


def _wait(until: Callable[[], bool], most_s: float) -> float:
    begins = time.monotonic()
    while not until() and time.monotonic() < begins + most_s:
        time.sleep(0.02)
    return time.monotonic() - begins


def _sum(crowds: list[Crowd], what: int) -> int:
    return sum(crowd[what] for crowd in crowds)


def _counted(brokers: list[Traced], name: str) -> int:
    return sum(broker.counted(name) for broker in brokers)


def _round(who: str, brokers: list[Traced], crowds: list[Crowd], traced: int, seconds: float) -> Iterator[Row]:
    yield from _steady(who, brokers, crowds, seconds)
    yield from _deaths(who, brokers, crowds)
    yield from _killed(who, brokers, crowds, traced)


def _steady(who: str, brokers: list[Traced], crowds: list[Crowd], seconds: float) -> Iterator[Row]:
    suspected, begins = _counted(brokers, SUSPICION), time.monotonic()
    cpu = sum(broker.running.cpu_s() for broker in brokers)
    signs, pings = _sum(crowds, SIGNS), _sum(crowds, PINGS)
    time.sleep(seconds)
    took_s = time.monotonic() - begins
    cpu = sum(broker.running.cpu_s() for broker in brokers) - cpu
    signs, pings = _sum(crowds, SIGNS) - signs, _sum(crowds, PINGS) - pings
    suspected = _counted(brokers, SUSPICION) - suspected
    yield Row(f"the broker's share of its core for {took_s:.0f} s, {who}", 100 * cpu / took_s, 60, "goal", "%")
    yield Row(f"signs of life a second, {who}", signs / took_s, 0, "", "1/s")
    yield Row(f"pings among them, {who}", pings / took_s, 0, "", "1/s")
    yield Row(f"cpu of a sign of life, {who}", 1e6 * cpu / max(signs, 1), 0, "", "us")
    yield Row(f"suspicions of living entities, {who}", suspected, 0, "none", "")


def _deaths(who: str, brokers: list[Traced], crowds: list[Crowd]) -> Iterator[Row]:
    """So many more stop speaking on open connections, all at once."""
    failed = _counted(brokers, FAILED)
    for crowd in crowds:
        crowd.shared[DIE] += DEATHS
    _wait(lambda: all(crowd[DEAD] == crowd[DIE] for crowd in crowds), 5)
    died = min(crowd.shared[DIED] for crowd in crowds)
    number = DEATHS * len(crowds)
    _wait(lambda: _counted(brokers, FAILED) >= failed + number, 3 * WITHIN_S)
    told_s = time.monotonic() - died
    yield Row(f"the last of {number} deaths told, {who}", told_s, WITHIN_S, "goal", "s")
    yield Row(f"told as failed, {who}", _counted(brokers, FAILED) - failed, number, "all", "")


def _killed(who: str, brokers: list[Traced], crowds: list[Crowd], traced: int) -> Iterator[Row]:
    time.sleep(REMEMBERED_S)
    failed, begins, alive = _counted(brokers, FAILED), time.monotonic(), traced - _sum(crowds, DEAD)
    for broker in brokers:
        broker.stop()
    _wait(lambda: _sum(crowds, TRACED) < alive // 2, 10)
    for broker in brokers:
        broker.start()
    _wait(lambda: _sum(crowds, TRACED) >= alive, BACK_MAX_S)
    took_s, back = time.monotonic() - begins, _sum(crowds, TRACED)
    time.sleep(max(begins + SETTLE_S - time.monotonic(), 0))
    yield Row(f"killed and restarted, traced again after, {who}", took_s, 60, "goal", "s")
    yield Row(f"living that are not traced then, {who}", alive - back, 0, "none", "")
    yield Row(f"living told as failed meanwhile, {who}", _counted(brokers, FAILED) - failed, 0, "none", "")
