"""Spans and metrics by the SDK's own memory, and by OTLP to a collector in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.base import StartError
from gateway.base.config_telemetry import TelemetrySettings
from gateway.telemetry.context import TRACEPARENT, context_of
from gateway.telemetry.exporting import Exporting, GatewaySpans, headers_of
from tests.gateway.harness import on_loop
from tests.gateway.telemetry.collector import collector
from tests.gateway.telemetry.test_context import CONTEXT, TEXT

USER = (("unit", "C"), (TRACEPARENT, TEXT))


def settings(**more: object) -> TelemetrySettings:
    return TelemetrySettings.model_validate({"otlp": "http://127.0.0.1:1", **more})


def made(draw: float = 0.5, **more: object) -> tuple[GatewaySpans, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return GatewaySpans(provider.get_tracer("test"), settings(**more), lambda: draw), exporter


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def test_one_trace_goes_on_from_the_publisher_to_the_reader() -> None:
    spans, exporter = made()
    user, end = spans.span_of_published("plant/a", 1, 12, USER)
    onward = context_of(user)
    assert onward is not None
    assert user[0] == ("unit", "C")
    there, ended = spans.span_of_opened("site", 7, "plant/a", 12, user)
    ended()
    end(0)
    end(0x97)  # answered once more, by a store
    deliver, publish = exporter.get_finished_spans()
    assert (publish.name, deliver.name) == ("publish", "deliver")
    assert publish.context.trace_id == deliver.context.trace_id == CONTEXT.trace_id
    assert parent_of(publish) == CONTEXT.span_id
    assert parent_of(deliver) == publish.context.span_id == onward.span_id
    last = context_of(there)
    assert last is not None
    assert last.span_id == deliver.context.span_id
    assert publish.status.is_unset
    assert dict(publish.attributes or {}) == {
        "messaging.system": "mqtt", "messaging.destination.name": "plant/a", "messaging.message.body.size": 12,
        "messaging.mqtt.qos": 1,
    }  # fmt: skip


def test_a_refusal_is_an_error_and_topics_may_stay_here() -> None:
    spans, exporter = made(topics=False)
    _, end = spans.span_of_published("plant/a", 1, 12, USER)
    end(0x87)
    (span,) = exporter.get_finished_spans()
    assert span.status.description == "refused (0x87)"
    assert "plant" not in str(span.attributes)


@pytest.mark.parametrize(("draw", "begin", "count"), [(0.0, 0.0, 0), (0.2, 0.3, 1), (0.3, 0.3, 0), (0.99, 1.0, 1)])
def test_a_share_of_the_others_begins_a_trace(draw: float, begin: float, count: int) -> None:
    spans, exporter = made(draw, begin=begin)
    user, end = spans.span_of_published("t", 0, 1, ())
    end(0)
    assert len(exporter.get_finished_spans()) == count
    assert len(user) == count
    same, done = spans.span_of_opened("site", 1, "t", 1, ())
    done()
    assert (same, len(exporter.get_finished_spans())) == ((), count), "a reader begins none"


def test_what_the_sender_did_not_sample_is_carried_and_not_sent() -> None:
    spans, exporter = made()
    user, end = spans.span_of_published("t", 1, 1, ((TRACEPARENT, f"{TEXT[:-1]}0"),))
    end(0)
    context = context_of(user)
    assert context is not None
    assert (context.trace_id, context.flags) == (CONTEXT.trace_id, 0)
    assert not exporter.get_finished_spans()


def families() -> Sequence[Metric]:
    counter = CounterMetricFamily("veilmq_messages", "Messages.", labels=["kind"])
    counter.add_metric(["in"], 3)
    counter.add_metric(["out"], 4)
    return [counter, GaugeMetricFamily("veilmq_clients", "Clients.", value=7)]


@on_loop
async def test_metrics_are_those_of_prometheus() -> None:
    reader = InMemoryMetricReader()
    exporting = Exporting(settings(), "site", families, InMemorySpanExporter(), reader)
    exporting.start()
    await asyncio.sleep(0)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: {tuple(point.attributes.items()): point.value for point in metric.data.data_points}  # type: ignore[union-attr]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    assert found == {"veilmq_messages": {(("kind", "in"),): 3, (("kind", "out"),): 4}, "veilmq_clients": {(): 7}}
    assert data.resource_metrics[0].resource.attributes["service.instance.id"] == "site"
    await exporting.stop()


@pytest.mark.long
@on_loop
async def test_a_collector_of_its_own_gets_all_of_it_at_the_end(tmp_path: Path) -> None:
    secret = tmp_path / "headers"
    secret.touch(0o600)
    secret.write_text("Authorization: Bearer of-the-collector\n\n")
    with collector(tmp_path) as there:
        exporting = Exporting(settings(otlp=there.address, headers_file=str(secret)), "site", families)
        exporting.start()
        _, end = exporting.spans.span_of_published("plant/a", 1, 12, USER)
        end(0)
        await exporting.stop()
        (span,) = there.spans()
        assert (span["name"], span["trace"], span["parent"]) == ("publish", TEXT[3:35], TEXT[36:52])
        assert (span["member"], span["service"]) == ("site", "veilmq")
        assert span["token"] == "Bearer of-the-collector"
        sent = {line["metric"]: (line["points"], line["is_sum"]) for line in there.metrics()}
        assert sent == {"veilmq_messages": (2, True), "veilmq_clients": (1, False)}


@pytest.mark.parametrize(("content", "said"), [
    (None, "No such file"), ("no colon", "a line is no NAME: VALUE; correct it"), (": x", "a line is no NAME"),
    ("A: é", "not ASCII"),
])  # fmt: skip
def test_headers_that_cannot_be_read_are_one_line(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "headers"
    if content is not None:
        file.write_text(content)
        file.chmod(0o600)
    with pytest.raises(StartError, match=said):
        headers_of(file)
