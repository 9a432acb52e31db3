"""A receiver of OTLP over HTTP in a process of its own: takes spans and metrics, and writes a line of JSON for each.

    python -m tests.gateway.telemetry.collector PORT FILE

It reads the bodies by the messages of OpenTelemetry's own protocol (`opentelemetry-proto`), as a collector does.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.gateway.overlay_processes import ENVIRONMENT
from tests.ports import free_ports
from tests.waits import wait_until

ROTEL = Path(__file__).parents[3] / ".tools" / "rotel" / "rotel" / "rotel-agent"
"""The program of Rotel, a collector of OpenTelemetry (`make tools`)."""


def spans_in(body: bytes) -> Iterator[dict[str, Any]]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        of = {each.key: each.value.string_value for each in resource.resource.attributes}
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield {
                "name": span.name, "trace": span.trace_id.hex(), "span": span.span_id.hex(),
                "parent": span.parent_span_id.hex(), "member": of["service.instance.id"],
                "service": of["service.name"], "status": span.status.code,
                "about": {each.key: each.value.string_value or each.value.int_value for each in span.attributes},
            }  # fmt: skip


def metrics_in(body: bytes) -> Iterator[dict[str, Any]]:
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            points = metric.sum.data_points or metric.gauge.data_points
            yield {"metric": metric.name, "points": len(points), "is_sum": metric.HasField("sum")}


class Handler(BaseHTTPRequestHandler):
    file: Path

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        read = {"/v1/traces": spans_in, "/v1/metrics": metrics_in}[self.path]
        with self.file.open("a") as out:
            for line in read(body):
                out.write(json.dumps({**line, "token": self.headers.get("Authorization", "")}) + "\n")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return None


class Collector:
    """A running collector. `address`: where it takes OTLP."""

    def __init__(self, file: Path, port: int) -> None:
        self._file, self.address = file, f"http://127.0.0.1:{port}"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []

    def spans(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if "span" in line]

    def metrics(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if "metric" in line]


@contextmanager
def collector(directory: Path) -> Iterator[Collector]:
    (port,) = free_ports(1)
    file = directory / "collected"
    command = [sys.executable, "-m", "tests.gateway.telemetry.collector", str(port), str(file)]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        try:
            yield Collector(file, port)
        finally:
            process.terminate()


@contextmanager
def through_rotel(directory: Path) -> Iterator[Collector]:
    """The same behind a collector of others, which reads, batches and sends on what it gets."""
    with collector(directory) as end:
        http, grpc = free_ports(2)
        told = {
            "ROTEL_OTLP_HTTP_ENDPOINT": f"127.0.0.1:{http}", "ROTEL_OTLP_GRPC_ENDPOINT": f"127.0.0.1:{grpc}",
            "ROTEL_EXPORTER": "otlp", "ROTEL_OTLP_EXPORTER_ENDPOINT": end.address,
            "ROTEL_OTLP_EXPORTER_PROTOCOL": "http", "ROTEL_PID_FILE": str(directory / "rotel.pid"),
        }  # fmt: skip
        with (directory / "rotel.log").open("wb") as log:
            process = subprocess.Popen([ROTEL, "start"], env={**os.environ, **told}, stdout=log, stderr=log)
        end.address = f"http://127.0.0.1:{http}"
        try:
            assert wait_until(lambda: is_listening(http), 30), (directory / "rotel.log").read_text()
            yield end
        finally:
            process.terminate()  # it sends what it has
            process.wait(30)


def is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    Handler.file = Path(sys.argv[2])
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print("listening", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
