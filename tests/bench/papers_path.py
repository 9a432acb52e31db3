"""Paths of four and five regions, live: sealed content whose key is shared in each region, beside content in clear.

Four or five regions of three replicas in a row and a gateway at either end are fourteen or seventeen processes. Five
regions are more than shares of shares are for, so their keys are wrapped (docs/protocol.md §3.5). The baseline is the
path with a scope that is signed and not sealed, as paper A's brokers send before there is secret forwarding. The last
rows have a fresh key for each message beside a key for 64 messages: the paper's saving by a seldom refresh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from tests.bench import across
from tests.bench.forwarding import PLAIN, Shape, sealed_way
from tests.bench.load import in_process
from tests.bench.taken_ports import retried

FOUR, FIVE = (3,) * 4, (3,) * 5
SECONDS, PACE = 3.0, 40
SEALED, CLEAR, FRESH, SELDOM = "sealed", "signed, not sealed", "a key for each message", "a key for 64 messages"


@dataclass(frozen=True)
class Comparison:
    """Two shapes of a path, and their names."""

    path: str
    ours: tuple[str, Shape]
    peer: tuple[str, Shape]


COMPARISONS = (
    Comparison("four regions of three", (SEALED, Shape(FOUR)), (CLEAR, Shape(FOUR, topic=PLAIN))),
    Comparison("five regions of three", (SEALED, Shape(FIVE)), (CLEAR, Shape(FIVE, topic=PLAIN))),
    Comparison("four regions of three", (FRESH, Shape(FOUR, key_messages=1)), (SELDOM, Shape(FOUR))),
)
FIGURES = {"messages a second": "1/s", "p50 at 40 messages a second": "ms", "processor time a message": "us",
           "read a message": "bytes"}  # fmt: skip


def measured(shape: Shape) -> tuple[float, ...]:
    """The figures of one run with fresh processes, in the order of `FIGURES`."""
    with sealed_way(shape) as (running, way):
        cpu_s, read = (
            sum(values) for values in zip(*((one.cpu_s(), one.read_bytes()) for one in running), strict=True)
        )
        flow: across.Flow = in_process(across.windowed, way, SECONDS, shape.window, limit_s=120.0)
        cpu_s = sum(one.cpu_s() for one in running) - cpu_s
        read = sum(one.read_bytes() for one in running) - read
        p50_us, _ = in_process(across.paced, way, SECONDS, PACE)
    return flow.rate, p50_us / 1000, cpu_s / flow.delivered * 1e6, read / flow.delivered


def rows(runs: int) -> Iterator[tuple[str, str, list[float], str, list[float]]]:
    """Yields samples; shapes take turns, so that each sees the machine's moods alike."""
    shapes = dict.fromkeys(shape for one in COMPARISONS for _, shape in (one.ours, one.peer))
    found: dict[Shape, list[tuple[float, ...]]] = {shape: [] for shape in shapes}
    for shape in chain.from_iterable(shapes for _ in range(runs)):
        found[shape].append(retried(partial(measured, shape)))
    for one in COMPARISONS:
        for place, (what, unit) in enumerate(FIGURES.items()):
            ours, peer = ([run[place] for run in found[shape]] for _, shape in (one.ours, one.peer))
            yield f"A: {one.path}, {one.ours[0]}: {what}", unit, ours, one.peer[0], peer
