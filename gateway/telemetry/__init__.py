"""OpenTelemetry: the trace context of publications, spans and metrics for a collector by OTLP over HTTP.

Imports `base` alone, and the libraries of OpenTelemetry in `exporting` only: who has not configured it needs none.
"""

from __future__ import annotations

from gateway.telemetry.context import TRACEPARENT, TraceContext, context_of, with_context

__all__ = ["TRACEPARENT", "TraceContext", "context_of", "with_context"]
