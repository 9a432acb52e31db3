"""Spans of rows for a collector of OpenTelemetry: the last step of a trace, from reception to the opened row.

A row has a span if its user properties have one `traceparent`, and the query takes the column `properties`. A task that
Spark repeats tells its rows again. Imports OpenTelemetry, so that only who gave option `otlp` needs it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind

from gateway.telemetry import TRACEPARENT, context_of
from gateway.telemetry.exporting import NAME, SENDING_S, linked, resource_of, span_exporter

SPANS_MAX = 1_000  # of one record batch; more rows would slow the query down
SHOWN = ("publisher", "sequence", "topic")
"""Columns that a span names, as far as the query takes them."""


class RowSpans:
    """Spans of one task. `exporter`: of tests, in the place of one that sends to the collector at `address`."""

    def __init__(self, address: str, consumer: str, exporter: SpanExporter | None = None) -> None:
        resource = resource_of(consumer, "veilmq-spark")
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or span_exporter(address, {})))
        self._tracer = self._provider.get_tracer(NAME)

    def make_spans(self, batch: pa.RecordBatch) -> None:
        """Makes the spans of a batch of rows."""
        now_ns = time.time_ns()
        for row in traced_rows(batch):
            user = tuple((pair["name"], pair["value"]) for pair in row["properties"])
            context = context_of(user)
            if context is None:
                continue
            received_at = row.get("received_at")
            begun_ns = now_ns if received_at is None else min(now_ns, int(received_at.timestamp() * 1e9))
            about = {f"veilmq.{name}": row[name] for name in SHOWN if row.get(name) is not None}
            span = self._tracer.start_span(
                "row", linked(context), SpanKind.CONSUMER, attributes=about, start_time=begun_ns
            )
            span.end(now_ns)

    def close(self) -> None:
        """Sends what waits, within `SENDING_S`."""
        self._provider.force_flush(int(SENDING_S * 1000))
        self._provider.shutdown()


def traced_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yields the first SPANS_MAX rows of which a user property is a `traceparent`, with the columns that a span has."""
    if "properties" not in batch.schema.names or not batch.num_rows:
        return
    column = batch.column("properties")
    pairs = pc.list_flatten(column)
    named = pc.filter(pc.list_parent_indices(column), pc.equal(pc.struct_field(pairs, "name"), TRACEPARENT))
    rows = pc.unique(named)[:SPANS_MAX]
    names = [name for name in (*SHOWN, "properties", "received_at") if name in batch.schema.names]
    yield from batch.select(names).take(rows).to_pylist()
