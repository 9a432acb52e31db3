"""Sealed messages of this version beside another one's, in turns: `BASE=DIRECTORY`, as in `tests.bench.quick`.

DIRECTORY holds the other version. All processes of a run, load included, import the code of one version. `tests.bench.
forwarding` prints the rows; a base older than 2026-11 may lack the parts of that bench that are asked for here.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.broker import Target
from tests.bench.quick import BASE, HERE, base_directory, printed

RUNS_MAX = 3
"""Runs of each version at most: one with ten gateways takes more than a minute."""
LIMIT_S = 900.0
LONE_S = 20.0

_LONE = """
import yaml
from tests.bench import forwarding as f, gateways
def prepare(path):
    path.write_text(yaml.safe_dump(f._configured(yaml.safe_load(path.read_text()))))
scopes = [f._scope(f.SEALED), f._scope(f.PLAIN)]
crowd = gateways.measured({gateways}, {rate}, f.SEALED, f.PAYLOAD_BYTES, {seconds}, scopes, prepare)
assert not crowd.lost, crowd
print(crowd.cpu_us)
"""
_RATE = """
from tests.bench import forwarding as f
print(f.measured(f.Shape(), {seconds}).rate)
"""


@dataclass(frozen=True)
class Row:
    """One line: `code` prints the figure, the last word of its output. `goal`: of the ratio this version / the base."""

    work: str
    unit: str
    code: str
    goal: Target


def rows(seconds: float) -> tuple[Row, ...]:
    """The lines, for runs of throughput of this length in seconds."""
    lone = [(10, 5.0, 0.25), (1, 50.0, 0.3)]
    return (
        *(
            Row(
                f"cpu of a lone message, {gateways} x {rate:.0f} msg/s",
                "us",
                _LONE.format(gateways=gateways, rate=rate, seconds=LONE_S),
                Target(goal, is_least=False),
            )
            for gateways, rate, goal in lone
        ),
        Row("throughput, 100 in flight", "msg/s", _RATE.format(seconds=seconds), Target(1.5)),
    )


def compared(runs: int, seconds: float) -> Iterator[tuple[Row, float, float]]:
    """(row, this version's figure, the base's): medians of runs in turns; nothing, and a line, without a base."""
    if not os.environ.get(BASE):
        print(f"rows beside another version: not measured, since {BASE}= names no directory of one", file=sys.stderr)
        return
    base = base_directory(os.environ[BASE])
    for row in rows(seconds):
        found: dict[Path, list[float]] = {HERE: [], base: []}
        try:
            for number in range(min(runs, RUNS_MAX)):
                for tree in (HERE, base) if number % 2 == 0 else (base, HERE):
                    found[tree].append(printed(row.code, tree, LIMIT_S))
        except subprocess.SubprocessError as error:
            print(f"{row.work}: not measured: {tree}: {type(error).__name__}", file=sys.stderr)
            continue
        yield row, statistics.median(found[HERE]), statistics.median(found[base])
