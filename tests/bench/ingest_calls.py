"""The data source `veilmq` that also tells, of each call of Spark in the driver, when it began and how long it took.

A line of JSON for each call goes to the file that environment variable `CALLS` names: name of the call, begin in
seconds since 1970, seconds by the wall clock, seconds of processor time of the calling thread.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spark_ingest.source.reader import SpoolStreamReader
from spark_ingest.source.source import VeilMQDataSource

CALLS = "VEILMQ_BENCH_CALLS"
"""Name of the environment variable."""


class Call(NamedTuple):
    """A call of the reader. Times in seconds."""

    name: str
    begin: float
    took: float
    cpu: float


class TimedReader(SpoolStreamReader):
    """Reader of `veilmq` whose calls are written down."""

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """Returns the reader's own answer."""
        return _timed("latestOffset", super().latestOffset, start, limit)

    def partitions(self, start: Any, end: Any) -> Any:
        """Returns the reader's own answer; rows of a small micro-batch are opened here."""
        return _timed("partitions", super().partitions, start, end)

    def commit(self, end: Any) -> None:
        """Has the reader's own effect."""
        _timed("commit", super().commit, end)

    def reportLatestOffset(self) -> Any:
        """Returns the reader's own answer."""
        return _timed("reportLatestOffset", super().reportLatestOffset)


class TimedSource(VeilMQDataSource):
    """Data source with timed readers."""

    def streamReader(self, schema: Any) -> TimedReader:
        """Returns the reader for `readStream`."""
        return TimedReader(self._checked(schema), self.connect)


def _timed(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
    begin, cpu, wall = time.time(), time.thread_time(), time.perf_counter()
    try:
        return call(*arguments)
    finally:
        told = Call(name, begin, time.perf_counter() - wall, time.thread_time() - cpu)
        with Path(os.environ[CALLS]).open("a") as file:
            file.write(f"{json.dumps(told)}\n")


class Taken(NamedTuple):
    """A row at the application: when it was sent, received and taken. Times in seconds since 1970."""

    sent: float
    received: float
    taken: float


def read_calls(path: Path) -> list[Call]:
    """Returns the calls of a file, in turn."""
    return [Call(*json.loads(line)) for line in path.read_text().splitlines()]


def stages_ms(calls: Sequence[Call], rows: Iterable[Taken]) -> dict[str, float]:
    """Returns the medians of the stages of rows' delays in milliseconds, by stage. A row is of the last plan before it.

    Raises StatisticsError without rows.
    """
    found: dict[str, list[float]] = {}
    plans = [(look, plan) for look, plan in _plans(calls)]
    for row in rows:
        look, plan = max((each for each in plans if each[1].begin < row.taken), key=lambda each: each[1].begin)
        parts = {
            "device, gateway, replicas, receiver": row.received - row.sent,
            "sync, and wait for the micro-batch before": look.begin - row.received,
            "our latestOffset": look.took,
            "Spark between latestOffset and plan": plan.begin - look.begin - look.took,
            "our plan, rows opened": plan.took,
            "Spark from plan to application": row.taken - plan.begin - plan.took,
        }
        for name, seconds in parts.items():
            found.setdefault(name, []).append(seconds * 1000)
    return {name: statistics.median(values) for name, values in found.items()}


def calls_ms(calls: Iterable[Call]) -> dict[str, tuple[float, float]]:
    """Returns the medians of the reader's calls in milliseconds, by name: by the wall clock, of processor time."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call.name, []).append(call)
    return {
        name: (statistics.median(each.took for each in of) * 1000, statistics.median(each.cpu for each in of) * 1000)
        for name, of in found.items()
    }


def _plans(calls: Sequence[Call]) -> Iterable[tuple[Call, Call]]:
    """Yields each plan behind the look at the spool that it rests on."""
    look: Call | None = None
    for call in calls:
        if call.name == "latestOffset":
            look = call
        elif call.name == "partitions" and look is not None:
            yield look, call
