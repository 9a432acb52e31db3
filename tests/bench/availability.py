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

Without --long: fewer hours and deaths, one length of hops, four thousand in the herd, and not the fifty thousand. What
each section took is said behind it. What does not come to its end is said, too, and the others go on (exit status 1);
without --long and --only no section begins when `BEGINS_WITHIN_S` are over.

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit; ratio is ours / peer. Less is better but
in rows of entities and pings. An object with `missing` instead says what is not measured, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from tests.bench import clocks, detection, herd, processes, signs, starved, tracecost
from tests.bench.growth import Row
from tests.bench.peers import cores
from tests.bench.recorded import recordings

HOURS, DEATHS = 20, 60
SHORT_HOURS, SHORT_DEATHS, SHORT_REGIONS = 4, 20, (1,)
SHORT = ("simulated", "starved", "clocks", "recorded", "cost", "hops", "signs", "herd")
BEGINS_WITHIN_S = 720.0  # of them; the last takes three minutes
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


Part = Callable[[], Iterator[Row]]


def hops(regions: Sequence[int]) -> list[Part]:
    return [partial(tracecost.by_hops, number, replicas) for replicas in REPLICAS for number in regions]


def show(row: Row) -> str:
    ratio = row.ours / row.peer if row.peer else float("inf")
    return f"{row.work:<78}{row.ours:>10,.2f}{row.peer:>10,.2f} {row.unit:<4}{ratio:>8.2f}  {row.peer_name}"


def as_json(row: Row) -> str:
    ratio = round(row.ours / row.peer, 4) if row.peer else None
    fields = {"bench": "availability", "work": row.work, "ours": round(row.ours, 4), "peer": round(row.peer, 4)}
    return json.dumps({**fields, "peer_name": row.peer_name, "ratio": ratio, "unit": row.unit})


def finishes(part: Part, say: Callable[[Row], str], missing: Callable[[str], str]) -> bool:
    """Print its rows, and what kept it from giving all of them."""
    try:
        for row in part():
            print(say(row), flush=True)
    except Exception as error:  # noqa: BLE001 - the next one may do better
        traceback.print_exc(file=sys.stderr)
        why = str(error).strip().partition("\n")[0]
        print(missing(f"did not finish: {type(error).__name__}: {why}"), flush=True)
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="JSON lines")
    parser.add_argument("--long", action="store_true", help="everything, in full: an hour or more")
    parser.add_argument("--hours", type=int, help="of living entities for each simulated link")
    parser.add_argument("--deaths", type=int, help="for each link")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--entities", type=int, help="of the herd, and that give signs of life")
    parser.add_argument("--crowd", type=int, default=processes.ENTITIES, help="entities at several processes")
    parser.add_argument("--ten-minutes", action="store_true", help="watch that crowd for so long")
    parser.add_argument("--regions", type=int, nargs="+", help="between the gateways, for hops")
    two = cores()[0], cores()[1][0]
    tables: dict[str, Callable[[argparse.Namespace], Iterable[Part]]] = {
        "simulated": lambda how: [lambda: told(detection.LINKS, how.hours, how.deaths, how.seed)],
        "starved": lambda how: [lambda: starved.rows(STARVED, how.seed)],
        "clocks": lambda how: [clocks.rows],
        "recorded": lambda how: [lambda: told(recordings(), min(how.hours, RECORDED_HOURS), how.deaths, how.seed)],
        "cost": lambda how: [lambda: tracecost.one_broker(two[0])],
        "hops": lambda how: hops(how.regions),
        "signs": lambda how: [lambda: signs.rows(min(how.entities, signs.ENTITIES), two)],
        "herd": lambda how: [lambda: herd.rows(how.entities, two)],
        "processes": lambda how: [lambda: processes.rows(how.crowd, two, how.ten_minutes)],
    }
    parser.add_argument("--only", action="append", choices=tables, metavar="NAME", help=f"of {', '.join(tables)}")
    arguments = parser.parse_args()
    arguments.hours = arguments.hours or (HOURS if arguments.long else SHORT_HOURS)
    arguments.deaths = arguments.deaths or (DEATHS if arguments.long else SHORT_DEATHS)
    arguments.entities = arguments.entities or (herd.ENTITIES if arguments.long else herd.SHORT_ENTITIES)
    arguments.regions = arguments.regions or (REGIONS if arguments.long else SHORT_REGIONS)
    if not arguments.json:
        print(f"load of the machine before we begin: {os.getloadavg()[0]:.1f}, cores {os.cpu_count()}")
        print(f"{'work':<78}{'ours':>10}{'peer':>10} {'unit':<4}{'ratio':>8}  peer")
    say, began, all_finished = as_json if arguments.json else show, time.monotonic(), True
    for name in arguments.only or (tables if arguments.long else SHORT):
        missing = partial(_missing, name, arguments.json)
        begins = time.monotonic()
        if not (arguments.only or arguments.long) and begins > began + BEGINS_WITHIN_S:
            print(missing(f"left out, {BEGINS_WITHIN_S / 60:g} minutes are over; --only {name} runs it"), flush=True)
            continue
        for part in tables[name](arguments):
            all_finished = finishes(part, say, missing) and all_finished
        if not arguments.json:
            print(f"# {name}: {time.monotonic() - begins:.0f} s", flush=True)
    sys.exit(not all_finished)


def _missing(name: str, is_json: bool, why: str) -> str:
    return json.dumps({"bench": "availability", "work": name, "missing": why}) if is_json else f"# {name}: {why}"


if __name__ == "__main__":
    main()
