"""Spans of rows: those with a trace context, once for each, bounded; nothing without the option or its libraries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.telemetry import TRACEPARENT
from spark_ingest.errors import BadOption, IngestError
from spark_ingest.options import parse_options
from spark_ingest.source import row_spans
from spark_ingest.source.row_spans import RowSpans, traced_rows
from spark_ingest.spool.writer import SpoolWriter
from tests.gateway.telemetry.collector import collector
from tests.gateway.telemetry.test_context import CONTEXT, TEXT
from tests.spark_ingest.site import Site
from tests.spark_ingest.source.test_handing import planned

USER = ((TRACEPARENT, TEXT), ("unit", "C"))


def filled(tmp_path: Path) -> Site:
    """A spool with three rows, of which the second has a trace context."""
    site = Site(None, tmp_path)
    writer = SpoolWriter(site.spool, "main", cap_bytes=1 << 30)
    writer.roll(b"")
    for properties in ((("unit", "C"),), USER, ()):
        site.link.publish(site.seal("plant/a", b"hush", properties=properties))
    site.link.write(writer, 20)
    writer.close()
    return site


def test_the_row_with_a_context_has_a_span_of_that_trace(tmp_path: Path) -> None:
    reader, (part,), _ = planned(filled(tmp_path))
    exporter = InMemorySpanExporter()
    spans = RowSpans("http://127.0.0.1:1", "query", exporter)
    (batch,) = reader.read(part)
    spans.make_spans(batch)
    spans.close()
    (span,) = exporter.get_finished_spans()
    assert span.parent is not None
    assert (span.name, span.context.trace_id, span.parent.span_id) == ("row", CONTEXT.trace_id, CONTEXT.span_id)
    assert dict(span.attributes or {}) == {
        "veilmq.publisher": batch.column("publisher")[1].as_py(), "veilmq.sequence": 2, "veilmq.topic": "plant/a",
    }  # fmt: skip
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.end_time
    assert span.resource.attributes["service.name"] == "veilmq-spark"
    reader.stop()


@pytest.mark.long
def test_a_task_and_a_small_micro_batch_tell_the_collector(tmp_path: Path) -> None:
    with collector(tmp_path) as there:
        reader, (part,), offsets = planned(filled(tmp_path), otlp=f"{there.address}/")
        assert sum(batch.num_rows for batch in reader.getCache(*offsets) or ()) == 3
        assert [span["trace"] for span in there.spans()] == [TEXT[3:35]]
        assert sum(batch.num_rows for batch in reader.read(part)) == 3
        assert len(there.spans()) == 2
        reader.stop()


def test_so_many_rows_of_a_batch_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_spans, "SPANS_MAX", 2)
    pairs = [{"name": name, "value": value} for name, value in USER]
    batch = pa.RecordBatch.from_pylist([{"properties": each, "n": n} for n, each in enumerate(([], *[pairs] * 3))])
    assert [row["properties"] for row in traced_rows(batch)] == [pairs, pairs]
    assert list(traced_rows(batch.select(["n"]))) == []
    assert list(traced_rows(batch.slice(0, 1))) == []


def test_without_the_libraries_or_with_a_wrong_address_it_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, (part,), _ = planned(filled(tmp_path), otlp="http://127.0.0.1:1")
    monkeypatch.delitem(sys.modules, "spark_ingest.source.row_spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(IngestError, match=r"otlp: opentelemetry is missing here; pip install 'veilmq\[otel\]'"):
        list(reader.read(part))
    with pytest.raises(BadOption, match="otlp=collector:4318 is no web address"):
        parse_options({"spool": str(tmp_path / "spool"), "grants": "keys.json", "otlp": "collector:4318"})
