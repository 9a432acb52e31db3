"""Our broker beside others, in one run on one machine: `python -m tests.bench.broker [--json]`.

Mosquitto of the program that MOSQUITTO= names, and the installed one; rumqttd by the wheel `iotcore`; amqtt. The first
lines say which of them were found, with their versions.

64-byte payloads where no other size is named, MQTT 3.1.1, loopback; the rows are in `broker_rows.py` and
`broker_scale.py`, the load comes from a program in C (`loadgen.c`). The broker has a core of its own where there are
two or more, the load clients another; each figure is the median of some runs, ours and the peers' taken in turn, each
with a fresh broker. Ratios say more than figures: the machine is yours.

`cpu` is the processor time of the broker for a delivered message, in microseconds, ours and the peer's. Other work on
the machine changes this figure least.

`load` is the share of its core that the load generator had, with ours and with the peer: above 70 % it may be the
generator that was measured. `busy` is what share of the run the broker had or waited for its core, and behind it what
share it had. Far below 100 %: load or disk were slower than the broker. Far apart: something else is using that core,
and the figures say little. `lost`: messages acknowledged, or sent at QoS 0, that never came.

With --json one object a line. The first has what was found and the load of the machine, the last the load at the end.
The others: bench, name, work, ours, peer, peer_name, peer_version, ratio, unit, goal, is_met, cpu_us, peer_cpu_us,
load_share, lost; ratio is ours / peer. `python -m tests.bench.broker_table FILE` makes a table of them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bridge.predicates.covering import COVER_MAX
from tests.bench import native, predicates, routing
from tests.bench.broker_rows import (
    FLEET,
    IDLE,
    MICROSECONDS,
    NO_GOAL,
    SOCKETS,
    Load,
    Row,
    Target,
    idle_connections,
    rows,
)
from tests.bench.broker_scale import Scale, scales
from tests.bench.peers import AMQTT, DESIGNS, MOSQUITTO, OURS, PACKAGED, RUMQTTD, cores, start, versions

RUNS = 3
SECONDS = 1.0
#: Peers without goals of their own, beside which a fleet's rows stand too.
BESIDE = (PACKAGED, RUMQTTD)
ORDER = (MOSQUITTO, PACKAGED, RUMQTTD, AMQTT, *DESIGNS)
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
    cpu_us: tuple[float, float] = (0.0, 0.0)

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else float("inf")


@dataclass(frozen=True)
class Run:
    """One run against one broker. `had`, `wanted`: shares of its core; `cpu_us`: of a delivered message."""

    figure: float
    share: float
    lost: int
    had: float
    wanted: float
    cpu_us: float


def _run(row: Row, name: str, seconds: float) -> Run:
    core, clients = cores()
    with start(name, core, row.is_durable, row.has_tls) as broker:  # no run pays for the queues of the last
        cpu_s, waited_s, began = broker.cpu_s(), broker.waited_s(), time.perf_counter()
        outcome = row.run(broker, Load(seconds, clients[0]))
        took_s = time.perf_counter() - began
        had, waited = (broker.cpu_s() - cpu_s) / took_s, (broker.waited_s() - waited_s) / took_s
    return Run(outcome.figure, outcome.share, outcome.lost, had, had + waited, outcome.cpu_us)


def _peers(row: Row, beside: int, has_designs: bool) -> dict[str, Target]:
    """The peers of a row that were found; `beside`: runs of those without goals."""
    if has_designs:
        return dict.fromkeys((MOSQUITTO, *DESIGNS), NO_GOAL)
    more = {name: NO_GOAL for name in BESIDE if beside and row.name in FLEET}
    return {name: target for name, target in {**more, **row.targets}.items() if name in versions()}


def measured(row: Row, seconds: float, runs: int, beside: int, has_designs: bool = False) -> Iterator[Result]:
    """The row against each of its peers: medians."""
    found: dict[str, list[Run]] = {}
    peers = _peers(row, beside, has_designs)
    for number in range(runs):
        for name in (OURS, *peers):
            if number >= beside and name in BESIDE:
                continue
            try:
                found.setdefault(name, []).append(_run(row, name, seconds))
            except (native.NativeError, OSError) as error:
                if name in (OURS, MOSQUITTO):
                    raise
                print(f"{row.work}: {name} was not measured: {error}", file=sys.stderr)
    middle = {name: sorted(some, key=lambda run: run.figure)[len(some) // 2] for name, some in found.items() if some}
    ours = middle[OURS]
    for name in sorted(peers.keys() & middle.keys(), key=ORDER.index):
        peer = middle[name]
        busy = "  ".join(f"{run.wanted:.0%} {run.had:.0%}" for run in (ours, peer))
        shares, lost, cpu_us = (ours.share, peer.share), (ours.lost, peer.lost), (ours.cpu_us, peer.cpu_us)
        yield Result(
            row.name, row.work, ours.figure, peer.figure, name, row.unit, peers[name], busy, shares, lost, cpu_us
        )


def scaled(scale: Scale) -> Iterator[Result]:
    """One run of ours and of Mosquitto."""
    core, clients = cores()
    ours, peer = (scale.run(name, core, clients[0]) for name in (OURS, MOSQUITTO))
    for figure, own, other in zip(scale.figures, ours, peer, strict=True):
        target = Target(figure.goal, figure.is_least)
        yield Result(figure.name, figure.work, own, other, MOSQUITTO, figure.unit, target)


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
    digits = 2 if result.unit in (MICROSECONDS, "s") and result.ours < 100 else 0
    met = {True: "met", False: "MISSED", None: ""}[result.target.is_met(result.ratio)]
    load = " ".join(f"{share:.0%}{'!' if share > native.SHARE_MAX else ''}" for share in result.shares if share)
    cpu = " ".join(f"{each:.1f}" for each in result.cpu_us if each)
    lost = " ".join(
        f"{who} lost {lost:,}" for who, lost in zip((OURS, result.peer_name), result.lost, strict=True) if lost
    )
    return (
        f"{result.work:<57}{result.ours:>12,.{digits}f}{result.peer:>12,.{digits}f} {result.unit:<13}"
        f"{result.ratio:>7.2f} {result.target!s:>9} {met:<7}{_with_version(result.peer_name):<29}{cpu:<12}{load:<10} "
        f"{result.busy:<20} {lost}"
    ).rstrip()


def _with_version(name: str) -> str:
    version = versions().get(name)
    return name if version is None else f"{name} {version}"


def as_json(result: Result) -> str:
    return json.dumps(
        {
            "bench": "broker",
            "name": result.name,
            "work": result.work,
            "ours": round(result.ours, 3),
            "peer": round(result.peer, 3),
            "peer_name": result.peer_name,
            "peer_version": versions().get(result.peer_name, ""),
            "ratio": round(result.ratio, 3),
            "unit": result.unit,
            "goal": str(result.target),
            "is_met": result.target.is_met(result.ratio),
            "cpu_us": round(result.cpu_us[0], 2),
            "peer_cpu_us": round(result.cpu_us[1], 2),
            "load_share": max(result.shares),
            "lost": result.lost[0],
        }
    )


def _begin(is_json: bool) -> None:
    load = os.getloadavg()[0]
    if is_json:
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        print(json.dumps({"bench": "broker", "found": versions(), "day": day, "load_before": round(load, 2)}))
        return
    if idle_connections() < IDLE:
        print(f"only {idle_connections():,} idle connections: the hard limit of open files allows no more")
    print("found: " + ", ".join(map(_with_version, versions())))
    for missing, cure in ((MOSQUITTO, "`make tools`"), (RUMQTTD, "`pip install '.[bench]'`"), (AMQTT, "`make venv`")):
        if missing not in versions():
            print(f"not found: {missing}; {cure} installs it")
    print(f"load of the machine before we begin: {load:.1f}, cores {os.cpu_count()}")
    print(
        f"{'work':<57}{'ours':>12}{'peer':>12} {'unit':<13}{'ratio':>7} {'target':>9} {'':<7}{'peer':<29}{'cpu':<12}"
        f"{'load':<10} busy"
    )


def _results(arguments: argparse.Namespace) -> Iterator[Result]:
    """The results of the rows that were asked for."""
    only = set(arguments.only or ())
    for row in rows():
        if (only and row.name not in only) or (arguments.fleet and row.name not in FLEET):
            continue
        if arguments.designs and row.name not in SOCKETS:
            continue
        if arguments.goals and all(target.ratio is None for target in row.targets.values()):
            continue
        try:
            yield from measured(row, arguments.seconds, arguments.runs, arguments.beside, arguments.designs)
        except native.NativeError as error:
            print(f"{row.work}: not measured: {error}", file=sys.stderr)
    if arguments.designs:
        return
    for scale in scales():
        if not only or only & {figure.name for figure in scale.figures}:
            try:
                yield from scaled(scale)
            except (OSError, AssertionError) as error:
                print(f"{scale.figures[0].work}: not measured: {error}", file=sys.stderr)
    if not arguments.fleet and (not only or "routing" in only):
        yield routed(arguments.runs)
    if not arguments.fleet and (not only or "predicates" in only):
        yield from chosen(arguments.runs)


def main() -> int:
    names = [row.name for row in rows()] + [figure.name for scale in scales() for figure in scale.figures]
    names += ["routing", "predicates"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of which the median counts")
    parser.add_argument("--beside", type=int, default=1, help=f"of them beside {', '.join(BESIDE)}")
    parser.add_argument("--goals", action="store_true", help="only rows that have a goal")
    parser.add_argument("--fleet", action="store_true", help="only rows of a fleet's ordinary day")
    parser.add_argument(
        "--designs", action="store_true", help="one in flight beside bare designs of sockets (`bare.py`)"
    )
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    arguments = parser.parse_args()
    form = as_json if arguments.json else show
    _begin(arguments.json)
    for result in _results(arguments):
        print(form(result), flush=True)
    load = os.getloadavg()[0]
    if arguments.json:
        print(json.dumps({"bench": "broker", "load_after": round(load, 2)}))
    else:
        print(f"load of the machine at the end: {load:.1f}, ours and the others in turn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
