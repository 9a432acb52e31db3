"""Where spans and metrics go: an address of the web, or a line that says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.base.config_telemetry import TelemetrySettings


def test_an_address_loses_its_last_slash_and_a_file_is_taken_from_the_folder_of_the_configuration() -> None:
    settings = TelemetrySettings(otlp="http://127.0.0.1:4318/", headers_file=Path("token"))
    assert settings.otlp == "http://127.0.0.1:4318"
    assert settings.anchored(Path("/etc/veilmq")).headers_file == Path("/etc/veilmq/token")
    assert TelemetrySettings(otlp="https://collector").anchored(Path("/etc")).headers_file is None


@pytest.mark.parametrize("otlp", ["collector:4318", "ftp://collector", "http://", "http://c/?a=b", "http://c/#a"])
def test_what_is_no_address_of_the_web_is_refused_with_an_example(otlp: str) -> None:
    with pytest.raises(ValidationError, match="is no web address; write"):
        TelemetrySettings(otlp=otlp)
