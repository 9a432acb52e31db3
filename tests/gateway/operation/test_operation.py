"""What operators see: `$SYS`, Prometheus, log lines, the clean end, and what `veilmq check` says of it."""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.contract.machine import Blame, Count
from gateway import cli
from gateway.base.config import ConfigError, StartError, parse
from gateway.base.figures import Figures
from gateway.base.logs import JsonLines, KeyValueLines
from gateway.clients import overlay_port as hooks
from gateway.commands.check import check as look
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, Disconnect, PubAck, Publish, Subscribe, Subscription, Version
from gateway.mqtt5.types import ReasonCode
from gateway.operation.prometheus import overlay_metrics
from gateway.operation.sys_topics import Load
from gateway.overlay.broker_overlay import BrokerOverlay
from gateway.overlay.dials import Dials
from keys.epochs import Calendar
from keys.identity import Role
from tests.gateway.harness import Wire, serving

ROOT = Path(__file__).parents[3]
METRICS = {"metrics": {"bind": "127.0.0.1:0"}}

# ---------------------------------------------------------------------------------------------- $SYS

MOSQUITTO = [
    "version",
    "uptime",
    "clients/total",
    "clients/maximum",
    "clients/connected",
    "clients/disconnected",
    "clients/expired",
    "messages/received",
    "messages/sent",
    "publish/messages/received",
    "publish/messages/sent",
    "publish/messages/dropped",
    "publish/bytes/received",
    "publish/bytes/sent",
    "bytes/received",
    "bytes/sent",
    "store/messages/count",
    "store/messages/bytes",
    "subscriptions/count",
    "shared_subscriptions/count",
    "load/connections",
    "load/messages/received",
    "load/messages/sent",
    "load/publish/received",
    "load/publish/sent",
    "load/publish/dropped",
    "load/bytes/received",
    "load/bytes/sent",
    "load/sockets",
]
WINDOWS = ("1min", "5min", "15min")


def test_sys_topics_are_those_of_mosquitto_and_say_what_happened() -> None:
    async def check() -> None:
        async with serving() as broker:
            one, two = await Wire.connect(broker, "one"), await Wire.connect(broker, "two")
            await one.subscribe("t")
            await one.subscribe("$share/g/s")
            two.publish("t", b"12345", 1)
            two.publish("kept", b"123", retain=True)
            await two.barrier()
            two.send(Disconnect())
            await two.closed()
            assert broker.operation.sys_topics is not None
            broker.operation.sys_topics.update()
            watch = await Wire.connect(broker, "watch", Version.V311)
            await watch.subscribe("$SYS/broker/#")
            said = {topic.removeprefix("$SYS/broker/"): text.decode() for topic, text in await watch.published()}
            loads = {f"{name}/{window}" for name in MOSQUITTO if name.startswith("load") for window in WINDOWS}
            assert {name for name in MOSQUITTO if not name.startswith("load")} | loads <= set(said)
            assert said["version"].startswith("veilmq version ")
            assert said["uptime"].endswith(" seconds")
            assert (said["clients/connected"], said["clients/total"], said["clients/maximum"]) == ("1", "1", "2")
            assert (said["publish/messages/received"], said["publish/bytes/received"]) == ("2", "8")
            assert (said["publish/messages/sent"], said["publish/bytes/sent"]) == ("1", "5")
            assert (said["subscriptions/count"], said["shared_subscriptions/count"]) == ("2", "1")
            assert int(said["retained messages/count"]) > 30, "its own are retained too, as in Mosquitto"
            assert said["messages/received"] == "8", "2 CONNECT, 2 SUBSCRIBE, 2 PUBLISH, PINGREQ, DISCONNECT"
            assert float(said["load/publish/received/1min"]) > float(said["load/publish/received/15min"]) > 0

    asyncio.run(check())


def test_sys_topics_are_sent_when_they_change_and_can_be_switched_off() -> None:
    async def check() -> None:
        async with serving({"sys_interval": 3_600}) as broker:
            wire = await Wire.connect(broker)
            await wire.subscribe("$SYS/broker/clients/#")
            assert dict(await wire.published())["$SYS/broker/clients/connected"] == b"0"
            assert broker.operation.sys_topics is not None
            broker.operation.sys_topics.update()
            assert dict(await wire.published())["$SYS/broker/clients/connected"] == b"1"
            broker.operation.sys_topics.update()
            assert await wire.published() == []
        async with serving({"sys_interval": 0}) as broker:
            wire = await Wire.connect(broker)
            await wire.subscribe("$SYS/#")
            assert await wire.published() == []

    asyncio.run(check())


def test_sys_topics_take_no_room_of_the_clients_retained_messages() -> None:
    async def check() -> None:
        async with serving({"limits": {"retained_messages": 1}}) as broker:
            wire = await Wire.connect(broker)
            wire.publish("mine", retain=True)
            await wire.subscribe("#")
            assert [topic for topic, _ in await wire.published()] == ["mine"]

    asyncio.run(check())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_beside_amqtts_plugin_ours_win_where_names_meet() -> None:
    async def check() -> None:
        plugin = {"amqtt.plugins.sys.broker.BrokerSysPlugin": {"sys_interval": 3_600}}
        async with serving({"plugins": plugin, "sys_interval": 3_600}) as broker:
            wire = await Wire.connect(broker)
            await broker.internal_message_broadcast("$SYS/broker/uptime", b"forged")
            await broker.retain_message(None, "$SYS/broker/version", b"aMQTT")
            await broker.retain_message(None, "$SYS/broker/cpu/percent", b"3")
            await wire.subscribe("$SYS/#")
            said = dict(await wire.published())
            assert said["$SYS/broker/version"].startswith(b"veilmq")
            assert said["$SYS/broker/uptime"] == b"0 seconds"
            assert said["$SYS/broker/cpu/percent"] == b"3"

    asyncio.run(check())


def test_load_approaches_the_rate_and_forgets_it() -> None:
    load = Load()
    total = 0
    for _ in range(60):
        total += 50
        load.update(total, 10.0)
    one, five, fifteen = (load.per_minute[window] for window in WINDOWS)
    assert one == pytest.approx(300, rel=0.001)
    assert 250 < five < 300
    assert 100 < fifteen < five
    load.update(total, 600.0)
    assert load.per_minute["1min"] < 0.1 < load.per_minute["15min"]


# ---------------------------------------------------------------------------------------- Prometheus


def scraped(port: int) -> dict[tuple[str, str], float]:
    """(name, value of its only label or empty) -> value, through the library's own parser."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert all(sample.name.startswith("veilmq_") for sample in samples)
    return {(sample.name, "/".join(sample.labels.values())): sample.value for sample in samples}


class Measured:
    """As much of an overlay as the broker asks when there are no members."""

    def __init__(self) -> None:
        self.figures = Figures("g", "gateway")

    def gauges(self) -> dict[str, int]:
        return {"outbox_depth": 4, "links_up": 2, "links": 3}

    def publish(self, *_: Any) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_prometheus_is_shown_broker_process_and_overlay() -> None:
    async def check() -> None:
        overlay = Measured()
        overlay.figures.count(Count("delivered", 7, "plant"))
        overlay.figures.blame(Blame("r2", False, "late"))
        overlay.figures.blame(Blame("r3", True, "two values"))
        async with serving(METRICS, overlay=overlay) as broker:
            wire = await Wire.connect(broker, "c")
            await wire.subscribe("t")
            wire.publish("t", b"12345")
            await wire.barrier()
            assert broker.operation.endpoint is not None
            found = await asyncio.to_thread(scraped, broker.operation.endpoint.port)
            assert found["veilmq_clients_connected", ""] == 1
            assert found["veilmq_publications_received_total", ""] == 1
            assert found["veilmq_publications_sent_bytes_total", ""] == 5
            assert found["veilmq_received_bytes_total", ""] > 20
            assert found["veilmq_subscriptions", ""] == 1
            assert found["veilmq_limit", "connections"] == 10_000
            assert found["veilmq_process_resident_memory_bytes", ""] > 1e6
            assert found["veilmq_overlay_events_total", "delivered/plant"] == 7
            assert found["veilmq_overlay_suspicions_total", "r2"] == 1
            assert found["veilmq_overlay_named", "r3"] == 1
            assert (found["veilmq_overlay_outbox_depth", ""], found["veilmq_overlay_links_up", ""]) == (4, 2)

    asyncio.run(check())


def test_the_overlays_shell_is_one_that_is_shown() -> None:
    nothing: Any = None
    policy = SimpleNamespace(version=3, calendar=Calendar(length_s=10, zero_ms=0))
    keeping: Any = SimpleNamespace(overlay=SimpleNamespace(policy=policy), live=None, role=Role.GATEWAY)
    store: Any = SimpleNamespace(depth=3, held_bytes=500)
    links = BrokerOverlay(nothing, Figures("g", "gateway"), store, keeping, Dials(nothing), clock=lambda: 25.0)
    assert isinstance(links, hooks.Measured)
    overlay = {"links_up": 0, "links": 0, "epoch": 2, "policy_version": 3}
    assert links.gauges() == {"outbox_depth": 3, "outbox_bytes": 500, **overlay}


def test_what_a_peer_names_is_escaped() -> None:
    figures = Figures("g", "gateway")
    figures.count(Count("refused", 1, 'bad"\n} 1'))
    (events, *_) = overlay_metrics(figures, {})
    assert events.samples[0].labels == {"event": "refused", "label": 'bad"\n} 1'}


def test_who_holds_the_metrics_port_open_holds_up_neither_broker_nor_end() -> None:
    async def check() -> None:
        async with serving(METRICS) as broker:
            assert broker.operation.endpoint is not None
            port = broker.operation.endpoint.port
            idle = socket.create_connection(("127.0.0.1", port))
            wire = await Wire.connect(broker)
            await wire.barrier()
            idle.close()
            assert ("veilmq_connections", "") in await asyncio.to_thread(scraped, port)
            idle = socket.create_connection(("127.0.0.1", port))
            await wire.barrier()
            began = time.monotonic()
        assert time.monotonic() - began < 2
        idle.close()

    asyncio.run(check())


def test_a_metrics_port_in_use_is_one_clear_line() -> None:
    async def check() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            bind = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(StartError, match=f"metrics: cannot bind {bind}: the port is in use"):
                async with serving({"metrics": {"bind": bind}}):
                    pass

    asyncio.run(check())


@pytest.mark.parametrize("bind", ["0.0.0.0:9464", "192.0.2.1:9464", ":9464", "127.0.0.1", "127.0.0.1:99999"])
def test_metrics_are_for_loopback_only(bind: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.bind: .*loopback"):
        parse({"metrics": {"bind": bind}})


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
