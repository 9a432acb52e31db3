"""One live evaluation for each of the five papers: `python -m tests.bench.papers [--json] [--runs N] [--only PART]`.

    path        A: sealed paths over four and five regions of three, beside the paths signed and not sealed
    traces      B: traces of an entity over two to four hops, beside a plain message over the same hops
    planes      C: dynamic routing while a link is throttled, beside static routing and beside copies to every replica
    organised   D: an organiser that leaves a way that became slow, beside the tree that stays
    guards      E: throughput at saturation with guards and without, and what forgeries reach

Real processes on loopback. Each part is repeated `--runs` times; a figure is the mean of the runs and half of its 95 %
confidence interval (Student's t). Figures of other work on the machine are in it, so the load is printed, too. Part
`planes` needs root and iproute2. A part that does not come to its end is said, and the others go on (exit status 1).

With --json one object a line: bench, work, ours, interval, peer, peer_interval, peer_name, ratio, unit, runs; ratio is
ours / peer. An object with `missing` instead says what is not measured, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unittest import mock

from papers.experiments.intervals import mean_interval
from tests.bench import papers_guards, papers_organised, papers_path, papers_planes, papers_traces
from tests.gateway import overlay_processes

RUNS = 3
START_S = 240.0
"""Time in which all members of an overlay must listen: up to seventeen processes begin at once."""
Samples = Iterator[tuple[str, str, list[float], str, list[float]]]
"""Work, unit, our figure of each run, the peer's name, its figure of each run."""
PARTS: dict[str, Callable[[int], Samples]] = {
    "path": papers_path.rows,
    "traces": papers_traces.rows,
    "planes": papers_planes.rows,
    "organised": papers_organised.rows,
    "guards": papers_guards.rows,
}


@dataclass(frozen=True)
class Measured:
    """The mean of some runs, and half of its 95 % confidence interval; None of a single run."""

    mean: float
    interval: float | None

    @classmethod
    def of(cls, values: list[float]) -> Measured:
        mean, interval = mean_interval(values)
        return cls(mean, interval if len(values) > 1 else None)

    def __str__(self) -> str:
        return _rounded(self.mean) + ("" if self.interval is None else f" ± {_rounded(self.interval)}")


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def as_json(work: str, unit: str, ours: list[float], peer_name: str, peer: list[float]) -> str:
    own, other = Measured.of(ours), Measured.of(peer)
    fields = {"bench": "papers", "work": work, "ours": round(own.mean, 3), "interval": _short(own.interval)}
    fields |= {"peer": round(other.mean, 3), "peer_interval": _short(other.interval), "peer_name": peer_name}
    ratio = round(own.mean / other.mean, 3) if other.mean else None
    return json.dumps({**fields, "ratio": ratio, "unit": unit, "runs": len(ours)}, ensure_ascii=False)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def show(work: str, unit: str, ours: list[float], peer_name: str, peer: list[float]) -> str:
    return f"{work:<62}{Measured.of(ours)!s:>18} {Measured.of(peer)!s:>18} {unit:<6} {peer_name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--runs", type=int, default=RUNS, help="of which the mean counts")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    arguments = parser.parse_args()
    if not arguments.json:
        runs = f"{arguments.runs} runs" if arguments.runs > 1 else "one run"
        print(f"load of the machine before we begin: {os.getloadavg()[0]:.1f}, cores {os.cpu_count()}; {runs}")
        print(f"{'work':<62}{'ours':>18} {'peer':>18} {'unit':<6} peer")
    form, status = as_json if arguments.json else show, 0
    for name in arguments.only or PARTS:
        began = time.monotonic()
        try:
            with mock.patch.object(overlay_processes, "START_S", START_S):
                for sample in PARTS[name](arguments.runs):
                    print(form(*sample), flush=True)
        except (AssertionError, ConnectionError, OSError, RuntimeError) as error:
            traceback.print_exc(file=sys.stderr)
            why = f"did not finish: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            missing = {"bench": "papers", "work": name, "missing": why}
            print(json.dumps(missing) if arguments.json else f"# {name}: {why}", flush=True)
            status = 1
        if not arguments.json:
            print(f"# {name}: {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
