"""Prometheus metrics of running queries, from Spark's own reports of their progress: `veilmq_query_...`.

    from spark_ingest.metrics import counted, listen

    endpoint = listen(spark)                           # http://127.0.0.1:9465/metrics
    counted(quarantine).writeStream...                 # counts these rows as quarantine

A query is named by its `queryName`, else by its id. Lag is what the newest batch left in the spool. For the process
holding the session; what a receiver and a spool show is the endpoint of `veilmq ingest run --metrics`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spark_ingest.errors import IngestError

PREFIX = "veilmq_query_"
PORT = 9465
QUERIES_MAX = 256
"""Queries kept; those that ended first go first."""
QUARANTINE = "veilmq_quarantine"
"""Name of the observation that `counted` makes."""


def counted(rows: Any) -> Any:
    """Returns rows of stream quarantine unchanged, and counts them in the metrics of the query reading them."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return rows.observe(QUARANTINE, f.count(f.lit(1)).alias("rows"))


@dataclass
class QueryFigures:
    """The figures of a query. Counts begin with the listener, over restarts of the query."""

    running: bool = True
    failures: int = 0
    batches: int = 0
    rows: int = 0
    quarantine_rows: int = 0
    dropped_rows: int = 0
    reported_at: float | None = None
    gauges: dict[str, float] = field(default_factory=dict)


class QueryTable:
    """Figures of queries by name, fed with Spark's events as plain dictionaries. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._names: dict[str, str] = {}
        self._queries: dict[str, QueryFigures] = {}

    def started(self, query_id: str, name: str | None) -> None:
        with self._lock:
            label = self._names[query_id] = name or query_id
            figures = self._queries.pop(label, QueryFigures())
            figures.running = True
            self._queries[label] = figures
            self._keep_bound()

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """`progress`: the JSON object of a StreamingQueryProgress."""
        with self._lock:
            label = self._names.setdefault(progress["id"], progress.get("name") or progress["id"])
            figures = self._queries.setdefault(label, QueryFigures())
            figures.batches += 1
            figures.rows += int(progress.get("numInputRows", 0))
            observed = progress.get("observedMetrics", {}).get(QUARANTINE, {})
            figures.quarantine_rows += int(observed.get("rows", 0))
            figures.dropped_rows += sum(
                int(each.get("numRowsDroppedByWatermark", 0)) for each in progress.get("stateOperators", [])
            )
            figures.reported_at = self._clock()
            figures.gauges = _gauges(progress)
            self._keep_bound()

    def note_end(self, query_id: str, failed: bool) -> None:
        with self._lock:
            figures = self._queries.get(self._names.pop(query_id, ""))
            if figures is not None:
                figures.running = False
                figures.failures += failed

    def snapshot(self) -> dict[str, QueryFigures]:
        with self._lock:
            return {name: replace(figures) for name, figures in self._queries.items()}

    def _keep_bound(self) -> None:
        if len(self._queries) > QUERIES_MAX:
            ended = next((name for name, figures in self._queries.items() if not figures.running), None)
            gone = ended or next(iter(self._queries))
            del self._queries[gone]
            self._names = {key: name for key, name in self._names.items() if name != gone}


def _gauges(progress: Mapping[str, Any]) -> dict[str, float]:
    state = progress.get("stateOperators", [])
    lag = _lag(progress.get("sources", []))
    return {
        "input_rows_per_second": float(progress.get("inputRowsPerSecond") or 0.0),
        "processed_rows_per_second": float(progress.get("processedRowsPerSecond") or 0.0),
        "batch_duration_seconds": float(progress.get("batchDuration", 0)) / 1000,
        "state_rows": float(sum(each.get("numRowsTotal", 0) for each in state)),
        "state_bytes": float(sum(each.get("memoryUsedBytes", 0) for each in state)),
    } | lag


def _lag(sources: Any) -> dict[str, float]:
    """Returns the spool's sealed batches behind the planned batch; nothing for queries with another source."""
    found: dict[str, float] = {}
    for source in sources:
        latest = source.get("latestOffset")
        if isinstance(latest, str):
            try:
                latest = json.loads(latest)
            except ValueError:
                continue
        for at in latest.values() if isinstance(latest, dict) else ():
            if isinstance(at, dict) and "sealed_batches_behind" in at:
                found["lag_sealed_batches"] = found.get("lag_sealed_batches", 0.0) + float(at["sealed_batches_behind"])
                found["lag_bytes"] = found.get("lag_bytes", 0.0) + float(at.get("bytes_behind", 0))
                if "seconds_behind" in at:
                    found["lag_seconds"] = max(found.get("lag_seconds", 0.0), float(at["seconds_behind"]))
    return found


_GAUGES = {
    "input_rows_per_second": "Rows that came in a second, of the newest micro-batch.",
    "processed_rows_per_second": "Rows worked through in a second, of the newest micro-batch.",
    "batch_duration_seconds": "How long the newest micro-batch took.",
    "lag_sealed_batches": "Sealed batches that the newest micro-batch left, other streams included.",
    "lag_bytes": "The same in bytes on disk.",
    "lag_seconds": "How long ago the first of these was received.",
    "state_rows": "Rows of state that windows, joins and the dropping of duplicates keep.",
    "state_bytes": "Memory of that state.",
}


class QueryMetrics(Collector):
    """A table as metrics."""

    def __init__(self, table: QueryTable) -> None:
        self._table = table

    def collect(self) -> Iterator[Metric]:
        queries = self._table.snapshot()
        yield _family(GaugeMetricFamily, "running", "1 while the query runs.", queries, lambda q: float(q.running))
        yield _family(
            GaugeMetricFamily, "progress_timestamp_seconds", "When Spark reported a micro-batch of it last.",
            queries, lambda q: q.reported_at,
        )  # fmt: skip
        for name, text in _GAUGES.items():
            yield _family(GaugeMetricFamily, name, text, queries, partial(_gauge, name))
        counters: dict[str, tuple[str, Callable[[QueryFigures], float]]] = {
            "batches": ("Micro-batches that Spark reported.", lambda q: q.batches),
            "rows": ("Rows that came in.", lambda q: q.rows),
            "quarantine_rows": ("Rows of the quarantine, where the query counts them.", lambda q: q.quarantine_rows),
            "dropped_rows": (
                "Rows, or sums of rows in windows, that a watermark dropped as too late.",
                lambda q: q.dropped_rows,
            ),
            "failures": ("Ends of the query by an error.", lambda q: q.failures),
        }
        for name, (text, value) in counters.items():
            yield _family(CounterMetricFamily, name, text, queries, value)


def _gauge(name: str, figures: QueryFigures) -> float | None:
    return figures.gauges.get(name)


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    text: str,
    queries: Mapping[str, QueryFigures],
    value: Callable[[QueryFigures], float | None],
) -> Metric:
    family = kind(PREFIX + name, text, labels=["query"])
    for label, figures in queries.items():
        shown = value(figures)
        if shown is not None:
            family.add_metric([label], shown)
    return family


class QueryEndpoint:
    """A running endpoint: `port` is its port, `stop` ends it."""

    def __init__(self, spark: Any, listener: Any, server: Any, thread: threading.Thread) -> None:
        self._spark, self._listener, self._server, self._thread = spark, listener, server, thread
        self.port = int(server.server_port)

    def stop(self) -> None:
        """No more events, no more scrapes."""
        self._spark.streams.removeListener(self._listener)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def listen(spark: Any, port: int = PORT, host: str = "127.0.0.1") -> QueryEndpoint:
    """Serve metrics of the session's queries from now on; port 0 is any. Raises IngestError if it cannot be had."""
    table = QueryTable()
    registry = CollectorRegistry()
    registry.register(QueryMetrics(table))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise IngestError(f"metrics: cannot bind {host}:{port}: {error.strerror or error}; take another port") from None
    listener = _listener(table)
    spark.streams.addListener(listener)
    return QueryEndpoint(spark, listener, server, thread)


def _listener(table: QueryTable) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener  # noqa: PLC0415  a second of imports

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            table.started(str(event.id), event.name)

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            table.progressed(json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Nothing came: the newest batch's figures stand."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            table.note_end(str(event.id), event.exception is not None)

    return Listener()
