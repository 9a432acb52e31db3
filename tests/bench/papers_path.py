"""A path of four regions, live: sealed content whose key is shared again in each region, beside content in clear.

Fourteen processes: four regions of three replicas in a row, a gateway at either end. The baseline is the same path
with a scope that is signed and not sealed, which is how paper A's brokers send before there is secret forwarding. The
last rows have a fresh key for each message beside one for 64 messages: what the paper saves by refreshing seldom.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from tests.bench import across
from tests.bench.forwarding import PLAIN, Shape, overlay
from tests.bench.load import in_process
from tests.bench.taken_ports import retried

REGIONS = (3, 3, 3, 3)
SECONDS, PACE = 3.0, 40
SHAPES = {
    "sealed": Shape(REGIONS),
    "signed, not sealed": Shape(REGIONS, topic=PLAIN),
    "a key for each message": Shape(REGIONS, key_messages=1),
}
FIGURES = {"messages a second": "1/s", "p50 at 40 messages a second": "ms", "processor time a message": "us",
           "read a message": "bytes"}  # fmt: skip


def measured(shape: Shape) -> tuple[float, ...]:
    """The figures of one run with fresh processes, in the order of `FIGURES`."""
    with overlay(shape) as (running, way):
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
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in SHAPES}
    for name in chain.from_iterable(SHAPES for _ in range(runs)):
        found[name].append(retried(partial(measured, SHAPES[name])))
    for ours, peer in (("sealed", "signed, not sealed"), ("a key for each message", "sealed")):
        for place, (what, unit) in enumerate(FIGURES.items()):
            other = peer if peer != "sealed" else "a key for 64 messages"
            columns = [[run[place] for run in found[name]] for name in (ours, peer)]
            yield f"A: four regions of three, {ours}: {what}", unit, columns[0], other, columns[1]
