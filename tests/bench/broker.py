"""Our broker beside Mosquitto and amqtt, in one run on one machine: `python -m tests.bench.broker [--json]`.

64-byte payloads where no other size is named, MQTT 3.1.1, loopback; the rows are in `broker_rows.py`, the load comes
from a program in C (`loadgen.c`). The broker has a core of its own where there are two or more, the load clients
another; each figure is the median of some runs, ours and the peer's taken in turn, each with a fresh broker. Ratios say
more than figures: the machine is yours.

`load` is the share of its core that the load generator had, with ours and with the peer: above 70 % it may be the
generator that was measured. `busy` is what share of the run the broker had or waited for its core, and behind it what
share it had. Far below 100 %: load or disk were slower than the broker. Far apart: something else is using that core,
and the figures say little. `lost`: messages acknowledged, or sent at QoS 0, that never came.

With --json one object a line: bench, name, work, ours, peer, peer_name, ratio, unit, load_share, lost; ratio is
ours / peer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bridge.predicates.covering import COVER_MAX
from tests.bench import native, predicates, routing
from tests.bench.broker_rows import IDLE, MICROSECONDS, Load, Row, Target, idle_connections, rows
from tests.bench.peers import MOSQUITTO, OURS, cores, start

RUNS = 3
SECONDS = 1.0
FILTERS = 100_000
ITSELF = "itself, 100 filters"


@dataclass(frozen=True)
class Result:
    name: str
    work: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    target: Target
    busy: str = ""
    shares: tuple[float, float] = (0.0, 0.0)
    lost: tuple[int, int] = (0, 0)

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else float("inf")


@dataclass(frozen=True)
class Run:
    """One run against one broker. `had`, `wanted`: shares of its core."""

    figure: float
    share: float
    lost: int
    had: float
    wanted: float


def _run(row: Row, name: str, seconds: float) -> Run:
    core, clients = cores()
    with start(name, core, row.is_durable, row.has_tls) as broker:  # no run pays for the queues of the last
        cpu_s, waited_s, began = broker.cpu_s(), broker.waited_s(), time.perf_counter()
        outcome = row.run(broker, Load(seconds, clients[0]))
        took_s = time.perf_counter() - began
        had, waited = (broker.cpu_s() - cpu_s) / took_s, (broker.waited_s() - waited_s) / took_s
    return Run(outcome.figure, outcome.share, outcome.lost, had, had + waited)


def measured(row: Row, seconds: float, runs: int) -> Iterator[Result]:
    """The row against each of its peers: medians."""
    found: dict[str, list[Run]] = {}
    for _ in range(runs):
        for name in (OURS, *row.targets):
            found.setdefault(name, []).append(_run(row, name, seconds))
    middle = {name: sorted(some, key=lambda run: run.figure)[len(some) // 2] for name, some in found.items()}
    ours = middle[OURS]
    for name, target in row.targets.items():
        peer = middle[name]
        busy = "  ".join(f"{run.wanted:.0%} {run.had:.0%}" for run in (ours, peer))
        shares, lost = (ours.share, peer.share), (ours.lost, peer.lost)
        yield Result(row.name, row.work, ours.figure, peer.figure, name, row.unit, target, busy, shares, lost)


def routed(runs: int) -> Result:
    """The row that needs no broker."""
    few = statistics.median(routing.plan_us(routing.MATCHING) for _ in range(runs))
    many = statistics.median(routing.plan_us(FILTERS) for _ in range(runs))
    work = f"route among {FILTERS:,} filters"
    return Result("routing", work, many, few, ITSELF, MICROSECONDS, Target(2, is_least=False))


PREDICATES = {
    "match": f"match, {predicates.PREDICATES:,} predicates",
    "route": f"match with the receivers, {predicates.PREDICATES:,}",
    "change": f"subscribe or unsubscribe, {predicates.PREDICATES:,}",
    "replica": f"match at a replica, {predicates.GATEWAYS} covers of {COVER_MAX}",
}


def chosen(runs: int) -> Iterator[Result]:
    """Rows of subscriptions to content, which need no broker either; beside them stands the goal."""
    all_runs = [predicates.measured_us() for _ in range(runs)]
    for name, work in PREDICATES.items():
        ours, goal = statistics.median(run[name] for run in all_runs), predicates.GOALS_US[name]
        yield Result("predicates", work, ours, goal, "goal", MICROSECONDS, Target(1, is_least=False))


def show(result: Result) -> str:
    digits = 2 if result.unit == MICROSECONDS and result.ours < 100 else 0
    met = {True: "met", False: "MISSED", None: ""}[result.target.is_met(result.ratio)]
    load = " ".join(f"{share:.0%}{'!' if share > native.SHARE_MAX else ''}" for share in result.shares if share)
    lost = " ".join(
        f"{who} lost {lost:,}" for who, lost in zip((OURS, result.peer_name), result.lost, strict=True) if lost
    )
    return (
        f"{result.work:<45}{result.ours:>12,.{digits}f}{result.peer:>12,.{digits}f} {result.unit:<13}"
        f"{result.ratio:>7.2f} {result.target!s:>9} {met:<7}{result.peer_name:<11}{load:<9} {result.busy:<20} {lost}"
    ).rstrip()


def as_json(result: Result) -> str:
    return json.dumps(
        {
            "bench": "broker",
            "name": result.name,
            "work": result.work,
            "ours": round(result.ours, 3),
            "peer": round(result.peer, 3),
            "peer_name": result.peer_name,
            "ratio": round(result.ratio, 3),
            "unit": result.unit,
            "load_share": max(result.shares),
            "lost": result.lost[0],
        }
    )


def main() -> int:
    table = rows()
    names = [row.name for row in table] + ["routing", "predicates"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of which the median counts")
    parser.add_argument("--goals", action="store_true", help="only rows that have a goal")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    arguments = parser.parse_args()
    form = as_json if arguments.json else show
    if not arguments.json:
        if idle_connections() < IDLE:
            print(f"only {idle_connections():,} idle connections: the hard limit of open files allows no more")
        print(f"load of the machine before we begin: {os.getloadavg()[0]:.1f}, cores {os.cpu_count()}")
        print(
            f"{'work':<45}{'ours':>12}{'peer':>12} {'unit':<13}{'ratio':>7} {'target':>9} {'':<7}{'peer':<11}"
            f"{'load':<9} busy"
        )
    for row in table:
        if arguments.only and row.name not in arguments.only:
            continue
        if arguments.goals and all(target.ratio is None for target in row.targets.values()):
            continue
        try:
            for result in measured(row, arguments.seconds, arguments.runs):
                print(form(result), flush=True)
        except native.NativeError as error:
            print(f"{row.work}: not measured: {error}", file=sys.stderr)
    if not arguments.only or "routing" in arguments.only:
        print(form(routed(arguments.runs)), flush=True)
    if not arguments.only or "predicates" in arguments.only:
        for result in chosen(arguments.runs):
            print(form(result), flush=True)
    if not arguments.json:
        print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}, {MOSQUITTO} and ours in turn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
