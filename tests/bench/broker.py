"""Our broker beside Mosquitto and amqtt, in one run on one machine: `python -m tests.bench.broker [--json]`.

64-byte payloads, MQTT 3.1.1, loopback. The broker has a core of its own where there are two or more, the load
clients share the others; each figure is the median of some runs, ours and the peer's taken in turn, each with a fresh
broker. Ratios say more than figures: the machine is yours. `busy`, for ours and for the peer, is what share of the run
the broker had or waited for its core, and behind it what share it had. Far below 100 %: the load clients or the disk
were slower than the broker. Far apart: something else is using that core, and the figures say little.

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit; ratio is ours / peer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.bench import crowd, load, routing
from tests.bench.peers import AMQTT, MOSQUITTO, OURS, Running, cores, start

RUNS = 3
SECONDS = 1.0
WINDOW = 100
FAN_OUT = 50
CROWD = 500
IDLE = 5_000
RATE = 5_000
FILTERS = 100_000
ITSELF = "itself, 100 filters"
MESSAGES, DELIVERIES, MICROSECONDS, BYTES = "msg/s", "deliveries/s", "us", "bytes"


@dataclass(frozen=True)
class Load:
    """One run against one broker: how long, and on which cores the clients are."""

    seconds: float
    cores: tuple[int, int]


@dataclass(frozen=True)
class Target:
    """The ratio to reach (`is_least`) or to stay below."""

    ratio: float
    is_least: bool = True

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.is_least else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'>=' if self.is_least else '<='} {self.ratio:g} x"


@dataclass(frozen=True)
class Row:
    """One line of the table. `targets`: peer -> ours / peer."""

    name: str
    work: str
    unit: str
    targets: dict[str, Target]
    run: Callable[[Running, Load], float]
    is_durable: bool = False


@dataclass(frozen=True)
class Result:
    work: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    target: Target
    busy: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else float("inf")


def _fan_out(number: int) -> Callable[[Running, Load], float]:
    return lambda broker, how: load.fan_out(broker.port, number, how.seconds, how.cores)


def _windowed(qos: int, is_kept: bool = False, is_away: bool = False) -> Callable[[Running, Load], float]:
    return lambda broker, how: float(
        load.in_process(load.windowed, broker.port, how.seconds, qos, WINDOW, is_kept, is_away, how.cores[0])
    )


def _crowd(broker: Running, how: Load) -> float:
    return float(load.in_process(crowd.one_in_flight, broker.port, how.seconds, CROWD, how.cores[0]))


def _latency(is_shared: bool) -> Callable[[Running, Load], float]:
    return lambda broker, how: float(
        load.in_process(crowd.p99_us, broker.port, how.seconds, 10, RATE, is_shared, how.cores[0])
    )


def idle_connections() -> int:
    """As many as `IDLE`, or as this process may open."""
    return min(IDLE, crowd.allowed_files() - crowd.SPARE_FILES)


def _idle(broker: Running, how: Load) -> float:
    return float(load.in_process(crowd.idle_bytes, broker, idle_connections(), how.cores[0]))


def rows() -> list[Row]:
    """The table, in its order."""
    fast, same = {MOSQUITTO: Target(2), AMQTT: Target(30)}, f"{WINDOW} in flight"
    faster, idle = {MOSQUITTO: Target(4), AMQTT: Target(30)}, idle_connections()
    slow, durable = {MOSQUITTO: Target(1.5, is_least=False)}, {MOSQUITTO: Target(0.5)}
    paced = f"p99 latency, {RATE:,} msg/s, 10 -> 10"
    return [
        Row("qos0", "QoS 0, 1 -> 1", MESSAGES, fast, _fan_out(1)),
        Row("fanout", f"QoS 0, 1 -> {FAN_OUT}", DELIVERIES, faster, _fan_out(FAN_OUT)),
        Row("qos1", f"QoS 1, 1 -> 1, {same}", MESSAGES, {MOSQUITTO: Target(1.5)}, _windowed(1)),
        Row("qos2", f"QoS 2, 1 -> 1, {same}", MESSAGES, {MOSQUITTO: Target(1)}, _windowed(2)),
        Row("crowd", f"QoS 1, {CROWD} -> 1, one in flight each", MESSAGES, {MOSQUITTO: Target(0.8)}, _crowd),
        Row("latency", f"{paced}, a topic each", MICROSECONDS, slow, _latency(is_shared=False)),
        Row("latency-all", f"{paced}, one topic", MICROSECONDS, slow, _latency(is_shared=True)),
        Row("idle", f"memory, each of {idle:,} idle", BYTES, {MOSQUITTO: Target(3, is_least=False)}, _idle),
        Row("durable", f"durable QoS 1, {same}", MESSAGES, durable, _windowed(1, is_kept=True), is_durable=True),
        Row(
            "durable-away",
            "durable QoS 1, receiver away",
            MESSAGES,
            durable,
            _windowed(1, is_kept=True, is_away=True),
            is_durable=True,
        ),
    ]


def measured(row: Row, seconds: float, runs: int) -> Iterator[Result]:
    """The row against each of its peers: medians."""
    core, clients = cores()
    figures: dict[str, list[float]] = {}
    busy: dict[str, list[tuple[float, float]]] = {}
    for _ in range(runs):
        for name in (OURS, *row.targets):
            with start(name, core, row.is_durable) as broker:  # no run pays for the queues of the last
                cpu_s, waited_s, began = broker.cpu_s(), broker.waited_s(), time.perf_counter()
                figures.setdefault(name, []).append(row.run(broker, Load(seconds, clients)))
                took_s = time.perf_counter() - began
                had, waited = (broker.cpu_s() - cpu_s) / took_s, (broker.waited_s() - waited_s) / took_s
                busy.setdefault(name, []).append((had + waited, had))
    ours = statistics.median(figures[OURS])
    for peer, target in row.targets.items():
        shares = "  ".join("{:.0%} {:.0%}".format(*statistics.median_low(busy[name])) for name in (OURS, peer))
        yield Result(row.work, ours, statistics.median(figures[peer]), peer, row.unit, target, shares)


def routed(runs: int) -> Result:
    """The row that needs no broker."""
    few = statistics.median(routing.plan_us(routing.MATCHING) for _ in range(runs))
    many = statistics.median(routing.plan_us(FILTERS) for _ in range(runs))
    return Result(f"route among {FILTERS:,} filters", many, few, ITSELF, MICROSECONDS, Target(2, is_least=False))


def show(result: Result) -> str:
    digits = 2 if result.unit == MICROSECONDS and result.ours < 100 else 0
    return (
        f"{result.work:<44}{result.ours:>12,.{digits}f}{result.peer:>12,.{digits}f} {result.unit:<13}"
        f"{result.ratio:>7.2f} {result.target!s:>9} {'met' if result.target.is_met(result.ratio) else 'MISSED':<7}"
        f"{result.peer_name:<11}{result.busy}"
    )


def as_json(result: Result) -> str:
    return json.dumps(
        {
            "bench": "broker",
            "work": result.work,
            "ours": round(result.ours, 3),
            "peer": round(result.peer, 3),
            "peer_name": result.peer_name,
            "ratio": round(result.ratio, 3),
            "unit": result.unit,
        }
    )


def main() -> int:
    table = rows()
    names = [row.name for row in table] + ["routing"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of which the median counts")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    arguments = parser.parse_args()
    form = as_json if arguments.json else show
    if not arguments.json:
        if idle_connections() < IDLE:
            print(f"only {idle_connections():,} idle connections: the hard limit of open files allows no more")
        print(f"load of the machine before we begin: {os.getloadavg()[0]:.1f}, cores {os.cpu_count()}")
        print(f"{'work':<44}{'ours':>12}{'peer':>12} {'unit':<13}{'ratio':>7} {'target':>9} {'':<7}{'peer':<11}busy")
    for row in table:
        if not arguments.only or row.name in arguments.only:
            for result in measured(row, arguments.seconds, arguments.runs):
                print(form(result), flush=True)
    if not arguments.only or "routing" in arguments.only:
        print(form(routed(arguments.runs)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
