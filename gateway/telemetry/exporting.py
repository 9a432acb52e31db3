"""Spans and metrics on their way to a collector: the SDK of OpenTelemetry, its queue, its threads.

The SDK's queue is bounded (2,048 spans): what a collector does not take is dropped, and no publication waits for it.
Imports OpenTelemetry, so that only who configured `telemetry` needs the extra `otel`.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from gateway.base import PrivateFileError, StartError, read_private
from gateway.base.config_telemetry import TelemetrySettings
from gateway.base.spans import UserPairs
from gateway.telemetry.context import SAMPLED, TraceContext, context_of, with_context

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from prometheus_client.core import Metric

NAME = "veilmq"
SENDING_S = 10.0
"""Seconds that a collector has for one sending, and that the end of the process waits for it."""
REFUSED = 0x80


def headers_of(file: Path | None) -> dict[str, str]:
    """Returns the headers in a private file of lines `NAME: VALUE`. Raises StartError."""
    if file is None:
        return {}
    try:
        lines = read_private(file).decode("ascii").splitlines()
    except PrivateFileError as error:
        raise StartError(f"telemetry.headers_file: {error}") from None
    except UnicodeDecodeError:
        raise StartError(f"telemetry.headers_file: {file}: not ASCII; write lines NAME: VALUE") from None
    pairs = [line.partition(":") for line in lines if line.strip()]
    if any(not (name.strip() and colon) for name, colon, _ in pairs):
        raise StartError(f"telemetry.headers_file: {file}: a line is no NAME: VALUE; correct it")
    return {name.strip(): value.strip() for name, _, value in pairs}


def resource_of(member: str, service: str = NAME) -> Resource:
    """Returns what spans and metrics of a process say of it."""
    return Resource.create({"service.name": service, "service.instance.id": member, "host.name": socket.gethostname()})


def span_exporter(address: str, headers: Mapping[str, str]) -> SpanExporter:
    """Returns the exporter of spans to a collector."""
    return OTLPSpanExporter(f"{address}/v1/traces", headers=dict(headers), timeout=SENDING_S)


def linked(parent: TraceContext) -> Context:
    """Returns a context of the SDK in which spans have this parent."""
    flags = TraceFlags(parent.flags & SAMPLED)
    return set_span_in_context(NonRecordingSpan(SpanContext(parent.trace_id, parent.span_id, True, flags)))


def context_in(span: Span) -> TraceContext:
    """Returns the context by which what follows has this span as its parent."""
    own = span.get_span_context()
    return TraceContext(own.trace_id, own.span_id, int(own.trace_flags))


class GatewaySpans:
    """Spans of a gateway's publications (`PublicationSpans`). `draw`: returns a number from 0 to 1."""

    def __init__(self, tracer: Tracer, settings: TelemetrySettings, draw: Callable[[], float] | None = None) -> None:
        self._tracer, self._settings = tracer, settings
        self._draw = draw or random.SystemRandom().random

    def span_of_published(
        self, topic: str, qos: int, size: int, user: UserPairs
    ) -> tuple[UserPairs, Callable[[int], None]]:
        parent = context_of(user)
        if parent is None and not self._draw() < self._settings.begin:
            return user, _not_begun
        span = self._begin_span("publish", SpanKind.SERVER, parent, topic, size)
        span.set_attribute("messaging.mqtt.qos", qos)
        return with_context(user, context_in(span)), _Ending(span).publication

    def span_of_opened(
        self, publisher: str, number: int, topic: str, size: int, user: UserPairs
    ) -> tuple[UserPairs, Callable[[], None]]:
        parent = context_of(user)
        if parent is None:
            return user, _nothing
        span = self._begin_span("deliver", SpanKind.CONSUMER, parent, topic, size)
        span.set_attribute("messaging.message.id", f"{publisher}/{number}")
        return with_context(user, context_in(span)), span.end

    def _begin_span(self, name: str, kind: SpanKind, parent: TraceContext | None, topic: str, size: int) -> Span:
        about: dict[str, str | int] = {"messaging.system": "mqtt", "messaging.message.body.size": size}
        if self._settings.topics:
            about["messaging.destination.name"] = topic
        context = None if parent is None else linked(parent)
        return self._tracer.start_span(name, context, kind, attributes=about)


class _Ending:
    """End of a span, once: a publication may be answered by overlay and store."""

    def __init__(self, span: Span) -> None:
        self._span: Span | None = span

    def publication(self, code: int) -> None:
        span, self._span = self._span, None
        if span is None:
            return
        if code >= REFUSED:
            span.set_attribute("messaging.mqtt.reason_code", code)
            span.set_status(Status(StatusCode.ERROR, f"refused (0x{code:02x})"))
        span.end()


def _not_begun(code: int) -> None:
    return None


def _nothing() -> None:
    return None


class SentMetrics:
    """Metrics of Prometheus (`Operation.collect`) as instruments. `take_values` is called on the event loop; the
    SDK's thread reads what it returned last.
    """

    def __init__(self, provider: MeterProvider, collect: Callable[[], Sequence[Metric]]) -> None:
        self._meter, self._collect = provider.get_meter(NAME), collect
        self._values: dict[str, list[Observation]] = {}

    def take_values(self) -> None:
        """Takes the present values; a metric that is new becomes an instrument."""
        for family in self._collect():
            values = [Observation(sample.value, sample.labels) for sample in family.samples]
            if family.name not in self._values:
                self._values[family.name] = values
                is_counter = family.type == "counter"
                make = self._meter.create_observable_counter if is_counter else self._meter.create_observable_gauge
                make(family.name, [self._reader(family.name)], description=family.documentation)
            self._values[family.name] = values

    def _reader(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: self._values[name]


class Exporting:
    """All that a process sends to its collector. Call `start`, then `stop`. Raises StartError."""

    def __init__(
        self, settings: TelemetrySettings, member: str, collect: Callable[[], Sequence[Metric]],
        exporter: SpanExporter | None = None, reader: MetricReader | None = None,
    ) -> None:  # fmt: skip
        """Takes `exporter` and `reader` of tests, in the place of those that send to the collector."""
        headers, resource = headers_of(settings.headers_file), resource_of(member)
        self._settings = settings
        self._tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._tracing.add_span_processor(BatchSpanProcessor(exporter or span_exporter(settings.otlp, headers)))
        self.spans = GatewaySpans(self._tracing.get_tracer(NAME), settings)
        self._metering: MeterProvider | None = None
        if settings.metrics_every_s:
            if reader is None:
                sender = OTLPMetricExporter(f"{settings.otlp}/v1/metrics", headers=headers, timeout=SENDING_S)
                every_ms = settings.metrics_every_s * 1000
                reader = PeriodicExportingMetricReader(sender, every_ms, SENDING_S * 1000)
            self._metering = MeterProvider([reader], resource, shutdown_on_exit=False)
            self._metrics = SentMetrics(self._metering, collect)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._metering is not None:
            self._task = asyncio.get_running_loop().create_task(self._send_metrics(), name="telemetry")

    async def stop(self) -> None:
        """Sends what waits, within `SENDING_S`."""
        if self._task is not None:
            self._task.cancel()
            self._metrics.take_values()
        await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        self._tracing.force_flush(int(SENDING_S * 1000))
        self._tracing.shutdown()
        if self._metering is not None:
            self._metering.shutdown(SENDING_S * 1000)

    async def _send_metrics(self) -> None:
        while True:
            self._metrics.take_values()
            await asyncio.sleep(self._settings.metrics_every_s)
