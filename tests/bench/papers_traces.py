"""Traces of an entity over two to four hops, live, beside a plain message over the same brokers (paper B, Table 3).

Regions are single trusted brokers, as the paper's are. A trace takes from `load` of the entity's library to `next` of
the tracker's; the plain message from one paho client to another. Both take turns in each run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bridge.tracking.entity import Wishes
from tests.bench import tracecost
from tests.bench.taken_ports import retried

REGIONS = (1, 2, 3)


def rows(runs: int) -> Iterator[tuple[str, str, list[float], str, list[float]]]:
    """Yields samples by hops, of traces signed and of traces sealed as well."""
    for regions in REGIONS:
        plain, traces = retried(partial(_measured, regions, runs))
        for secured, took in traces.items():
            kind = "authorised and sealed" if secured else "authorised"
            yield f"B: a trace, {kind}, {regions + 1} hops: median", "ms", took, "plain message", plain


def _measured(regions: int, runs: int) -> tuple[list[float], dict[bool, list[float]]]:
    """Milliseconds of plain messages, and of traces signed only and sealed, a median of each run."""
    with tracecost.traced_line(regions, 1) as made:
        ports = made.ports["g1"], made.ports["g2"]
        pumps, desk = iter(tracecost.PUMPS), (made.directory / "desk", ports[1])
        plain, traces = list[float](), {False: list[float](), True: list[float]()}
        for _ in range(runs):
            plain.append(tracecost.plain_us(*ports) / 1000)
            for secured, took in traces.items():
                pump = made.directory / next(pumps), ports[0]
                with tracecost.followed(pump, desk, Wishes(("desk",), secured=secured)) as (entity, tracker):
                    took.append(tracecost.trace_us(entity, tracker) / 1000)
    return plain, traces
