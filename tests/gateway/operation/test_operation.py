"""What operators see: `$SYS`, Prometheus, log lines, the clean end, and what `veilmq check` says of it."""

from __future__ import annotations

import json
import logging
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway import cli
from gateway.base.config import parse
from gateway.base.logs import JsonLines, KeyValueLines
from gateway.checking.check import check as look
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, Disconnect, PubAck, Publish, Subscribe, Subscription, Version
from gateway.mqtt5.types import ReasonCode

ROOT = Path(__file__).parents[3]

# --------------------------------------------------------------------------------------------- lines


def record(text: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("veilmq.test").makeRecord(
        "veilmq.test", logging.WARNING, __file__, 1, text, arguments, None, extra=extra
    )
    made.created = 1_767_323_045.678
    return made


HOSTILE = 'x"\nlevel=critical event="forged\r\u2028\x1b[31m'


def test_a_line_is_json_if_asked() -> None:
    line = JsonLines().format(record("%s said", HOSTILE, client=HOSTILE, nothing="", count=3))
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {
        "time": "2026-01-02T03:04:05.678Z", "level": "warning", "logger": "veilmq.test",
        "event": f"{HOSTILE} said", "client": HOSTILE, "count": 3,
    }  # fmt: skip


def test_a_line_is_key_and_value_otherwise() -> None:
    line = KeyValueLines().format(record("plain", client=HOSTILE, count=3))
    assert len(line.splitlines()) == 1
    assert line.startswith("time=2026-01-02T03:04:05.678Z level=warning logger=veilmq.test event=plain client=")
    assert dict(word.split("=", 1) for word in shlex.split(line))["count"] == "3"
    assert "level=critical" not in shlex.split(line), "a name cannot forge a field"


def test_tracebacks_and_long_names_stay_one_line_of_bounded_length() -> None:
    try:
        raise ValueError("cause\n" * 10_000)
    except ValueError:
        made = record("x" * 100_000)
        made.exc_info = sys.exc_info()
    for lines in (JsonLines(), KeyValueLines()):
        line = lines.format(made)
        assert len(line.splitlines()) == 1
        assert "cause" in line
        assert len(line) < 20_000


# -------------------------------------------------------------------------------------------- the end


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """A broker as operators start it: process, port, its log lines so far."""
    config = tmp_path / "edge.yaml"
    config.write_text("listeners: {default: {bind: 127.0.0.1:0}}\nallow_anonymous: true\nlog: json\n")
    command = [sys.executable, "-m", "gateway.cli", "broker", "-c", str(config)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            lines.append(line)
            if "listener default" in line:
                break
        yield process, int(json.loads(lines[-1])["event"].rpartition(":")[2]), lines
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_sigterm_ends_it_cleanly(started: tuple[subprocess.Popen[str], int, list[str]]) -> None:
    process, port, lines = started
    socks = {version: socket.create_connection(("127.0.0.1", port), 10) for version in (Version.V5, Version.V311)}
    for version, sock in socks.items():
        secret = f"secret-{version}".encode()
        sock.sendall(encode(Connect(f"c{version}", version, username="u", password=secret), version))
        sock.sendall(encode(Subscribe(1, (Subscription("t", 1),)), version))
        assert sock.recv(4)[0] == 0x20
    # The last thing that is read before the end is still delivered and acknowledged.
    socks[Version.V5].sendall(encode(Publish("t", b"secret-payload", 1, packet_id=9), Version.V5))
    socks[Version.V311].settimeout(10)
    data = b""
    while b"secret-payload" not in data:
        data += socks[Version.V311].recv(65_536)
    process.send_signal(signal.SIGTERM)
    rest = b""
    while chunk := socks[Version.V5].recv(65_536):
        rest += chunk
    assert encode(PubAck(9), Version.V5) in rest
    assert rest.endswith(encode(Disconnect(ReasonCode.SERVER_SHUTTING_DOWN), Version.V5))
    while socks[Version.V311].recv(65_536):
        pass
    assert process.wait(10) == 0
    assert process.stderr is not None
    lines += process.stderr
    for sock in socks.values():
        sock.close()
    events = [json.loads(line) for line in lines]
    assert {"connected", "stopping", "stopped"} <= {event["event"] for event in events}
    assert next(event for event in events if event["event"] == "connected")["client"] == "c5"
    assert "secret" not in "".join(lines)


# ---------------------------------------------------------------------------------------------- check


def findings(content: dict[str, Any]) -> dict[str, str]:
    report = look(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, "allow_anonymous": True, **content}), [])
    return {finding.text: finding.level for finding in report.findings}


def test_check_looks_at_metrics_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1_024, 1_024))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        found = findings({"metrics": {"bind": bind}, "limits": {"queue_bytes": 2_000, "half_open": 20_000}})
    assert not [text for text, level in found.items() if level == "error"]
    (said,) = [text for text in found if text.startswith("metrics:")]
    assert said.startswith(f"metrics: {bind}: port is in use"), "by this member itself, if it runs"
    warnings = " ".join(text for text, level in found.items() if level == "warning")
    assert "limits.connections is 10000, open files are limited to 1024" in warnings
    assert "limits.queue_bytes is below limits.packet_bytes" in warnings
    assert "limits.half_open is above limits.connections" in warnings
    calm = findings({"limits": {"connections": 500}})
    assert set(calm.values()) == {"ok"}


def test_check_names_a_setting_that_is_misspelt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("limits: {conections_per_address: 3}\n")
    assert cli.run(["check", "-c", str(config)]) == 2
    assert "did you mean connections_per_address?" in capsys.readouterr().err
    config.write_text("log: xml\n")
    assert cli.run(["check", "-c", str(config)]) == 2
    assert "log: " in capsys.readouterr().err
    config.write_text("metrics: {port: 1}\n")
    assert cli.run(["check", "-c", str(config)]) == 2
    assert "metrics.port: unknown key" in capsys.readouterr().err
