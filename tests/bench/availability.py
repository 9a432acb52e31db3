"""Availability beside other ways to know it, and what it costs: `python -m tests.bench.availability [--json]`.

    simulated   death to verdict on simulated links, beside five other detectors at equal false alarms
    starved     a broker without processor time: whom it takes for dead
    clocks      the wall clock is set by an hour: whom it takes for dead, and whom for living
    recorded    the same on links that were recorded on real sockets (`record`, `tests/bench/data`)
    cost        a trace beside a plain message at one broker: operations, trackers (of the paper's Table 3)
    hops        the same over regions of replicas, acknowledged and at most once (its rows of TCP and UDP)
    signs       what a sign of life costs, asked for, said unasked, and MQTT's own
    herd        ten thousand entities at one broker on one core, heard of once a second, and its restart
    processes   fifty thousand at three processes of a broker on one core, deaths, and its restart

All but the last five are simulated time: the figures are those of the seed and the recordings, not of the machine. The
rest is measured on this machine, in three rounds; the broker has a core of its own where there are two. Processor times
and ratios survive other work on the machine, times do not.

Without --long: fewer hours and deaths, one length of hops, and not the fifty thousand.

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit; ratio is ours / peer. Less is better but
in rows of entities and pings.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence

from tests.bench import clocks, detection, herd, processes, signs, starved, tracecost
from tests.bench.growth import Row
from tests.bench.peers import cores
from tests.bench.recorded import recordings

HOURS, DEATHS = 20, 60
SHORT_HOURS, SHORT_DEATHS, SHORT_REGIONS = 1, 4, (1,)
SHORT = ("simulated", "starved", "clocks", "recorded", "cost", "hops", "signs", "herd")
STARVED = 200
RECORDED_HOURS = 10
REGIONS = (1, 2, 3, 4, 5)  # between the gateways: 2 to 6 hops
REPLICAS = (1, 3)  # in each


def told(links: Sequence[detection.Connection], hours: int, deaths: int, seed: int) -> Iterator[Row]:
    """`alarms`: false ones an hour, ours and theirs; `sent`: pings a second, and heartbeats."""
    for row in detection.rows(links, hours, deaths, seed):
        ours, peer = row.ours, row.peer
        alarms = f"alarms/h {ours.alarms_per_hour:.2f}, {peer.alarms_per_hour:.2f}"
        sent = f"sent/s {ours.sent_per_s:.2f}, {peer.sent_per_s:.2f}"
        yield Row(f"death to verdict, {row.link}; {alarms}; {sent}", ours.median_s, peer.median_s, row.peer_name, "s")


def hops(regions: Sequence[int]) -> Iterator[Row]:
    for replicas in REPLICAS:
        for number in regions:
            yield from tracecost.by_hops(number, replicas)


def show(row: Row) -> str:
    ratio = row.ours / row.peer if row.peer else float("inf")
    return f"{row.work:<78}{row.ours:>10,.2f}{row.peer:>10,.2f} {row.unit:<4}{ratio:>8.2f}  {row.peer_name}"


def as_json(row: Row) -> str:
    ratio = round(row.ours / row.peer, 4) if row.peer else None
    fields = {"bench": "availability", "work": row.work, "ours": round(row.ours, 4), "peer": round(row.peer, 4)}
    return json.dumps({**fields, "peer_name": row.peer_name, "ratio": ratio, "unit": row.unit})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="JSON lines")
    parser.add_argument("--long", action="store_true", help="everything, in full: an hour or more")
    parser.add_argument("--hours", type=int, help="of living entities for each simulated link")
    parser.add_argument("--deaths", type=int, help="for each link")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--entities", type=int, default=herd.ENTITIES, help="of the herd")
    parser.add_argument("--crowd", type=int, default=processes.ENTITIES, help="entities at several processes")
    parser.add_argument("--ten-minutes", action="store_true", help="watch that crowd for so long")
    parser.add_argument("--regions", type=int, nargs="+", help="between the gateways, for hops")
    tables: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
        "simulated": lambda how: told(detection.LINKS, how.hours, how.deaths, how.seed),
        "starved": lambda how: starved.rows(STARVED, how.seed),
        "clocks": lambda how: clocks.rows(),
        "recorded": lambda how: told(recordings(), min(how.hours, RECORDED_HOURS), how.deaths, how.seed),
        "cost": lambda how: tracecost.one_broker(cores()[0]),
        "hops": lambda how: hops(how.regions),
        "signs": lambda how: signs.rows((cores()[0], cores()[1][0])),
        "herd": lambda how: herd.rows(how.entities, (cores()[0], cores()[1][0])),
        "processes": lambda how: processes.rows(how.crowd, (cores()[0], cores()[1][0]), how.ten_minutes),
    }
    parser.add_argument("--only", action="append", choices=tables, metavar="NAME", help=f"of {', '.join(tables)}")
    arguments = parser.parse_args()
    arguments.hours = arguments.hours or (HOURS if arguments.long else SHORT_HOURS)
    arguments.deaths = arguments.deaths or (DEATHS if arguments.long else SHORT_DEATHS)
    arguments.regions = arguments.regions or (REGIONS if arguments.long else SHORT_REGIONS)
    if not arguments.json:
        print(f"load of the machine before we begin: {os.getloadavg()[0]:.1f}, cores {os.cpu_count()}")
        print(f"{'work':<78}{'ours':>10}{'peer':>10} {'unit':<4}{'ratio':>8}  peer")
    for name in arguments.only or (tables if arguments.long else SHORT):
        for row in tables[name](arguments):
            print(as_json(row) if arguments.json else show(row), flush=True)


if __name__ == "__main__":
    main()
