"""The whole system once, as `make demo` runs it: processes, TLS, a liar, kill -9, Spark. CI runs `make demo` itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

KEYS = {
    "published", "delivered", "lost", "wrong", "duplicated", "spark_rows", "blamed", "faults", "latency_ms",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_demonstration_loses_nothing_and_finds_the_liar():
    command = [sys.executable, "-c", "from gateway.cli import main; main()", "demo", "--seconds", "8", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    shown = json.loads(ended.stdout)
    assert shown.keys() >= KEYS
    assert shown["published"] > 0
    assert shown["delivered"] == shown["spark_rows"] == shown["published"]
    assert (shown["lost"], shown["wrong"], shown["duplicated"]) == (0, 0, 0)
    assert shown["latency_ms"]["plain"]["p50"] > 0
    assert shown["latency_ms"]["sealed"]["p50"] > 0
