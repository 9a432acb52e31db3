"""`telemetry` of the configuration: spans and metrics for a collector of OpenTelemetry, by OTLP over HTTP."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from gateway.base.limits import Model


class TelemetrySettings(Model):
    """Collector, and what it gets."""

    otlp: str = Field(description="address of the collector, such as http://127.0.0.1:4318; OTLP over HTTP")
    headers_file: Path | None = Field(
        default=None, description="a private file of lines NAME: VALUE, headers of each request, such as a token"
    )
    spans: bool = Field(
        default=True, description="a span for each publication whose user properties have a traceparent"
    )
    begin: float = Field(
        default=0.0, ge=0.0, le=1.0, description="share of the other publications for which a trace begins here"
    )
    topics: bool = Field(default=True, description="whether spans have names of topics")
    metrics_every_s: float = Field(default=60.0, ge=0.0, description="seconds between two sendings; 0: no metrics")

    @field_validator("otlp")
    @classmethod
    def _is_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{value} is no web address; write e.g. http://127.0.0.1:4318")
        return value.rstrip("/")

    def anchored(self, directory: Path) -> TelemetrySettings:
        """Returns the settings with relative paths taken from `directory`."""
        file = self.headers_file
        return self.model_copy(update={"headers_file": file and directory / file.expanduser()})
