"""`veilmq ingest run` and `status`: a receiver as a process, with real replicas; a user's mistake is one line."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from spark_ingest.errors import BadOption
from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.receiver.daemon import receiver_options
from spark_ingest.spool.status import status_of
from spark_ingest.spool.view import SpoolView
from tests.forking import run
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ, OverlayProcesses, run_veilmq
from tests.ports import free_ports
from tests.waits import wait_until

REPLICAS = ("north1", "north2", "north3")
CAP_BYTES = 1 << 20


class Daemon:
    """`veilmq ingest run` of a member of the overlay."""

    def __init__(self, overlay: OverlayProcesses, spool: Path, member: str = "job") -> None:
        self.overlay, self.spool, self.member = overlay, spool, member
        self.log = spool.with_name(f"{member}.log")
        (self.port,) = free_ports(1)
        self.config = spool.with_name(f"{member}.yaml")
        job = overlay.directory / member
        self.config.write_text(
            f"spool: {spool}\nidentity: {job}\noverlay: {job}-overlay.json\n"
            f"topics: [plant/line/#, open/#]\nincomplete_s: 30\ngrants_identity: {job}\n"
        )

    def start(self, *arguments: str) -> None:
        words = ["ingest", "run", "--config", str(self.config), "--metrics", f"127.0.0.1:{self.port}", *arguments]
        self.overlay.running[self.member] = run([*VEILMQ[:-1], *words], None, ENVIRONMENT, self.log, self.log)

    def end(self) -> int:
        process = self.overlay.running.pop(self.member)
        process.send_signal(signal.SIGTERM)
        return process.wait(20)

    def metric(self, name: str, labels: str = "") -> float | None:
        """Its value now; None while the endpoint or the sample is not there."""
        lines = self.metrics().splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{labels} ")), None)

    def metrics(self) -> str:
        """What the endpoint says; nothing while it is not there."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def rows(self, **told: str) -> list[dict[str, Any]]:
        """What an executor opens now, in any order."""
        job = self.overlay.directory / self.member
        grants = {"grants": str(job / "scope_keys.json"), "grants_identity": str(job)}
        options = parse_options({"spool": str(self.spool), **grants, **told})
        if not options.grants.exists():
            return []
        view, reader = SpoolView(options.spool), RowReader(options)
        batches = (batch for extent in view.ranges({}, view.advance({}), 1) for batch in reader.read(extent))
        return [row for batch in batches for row in batch.to_pylist()]

    def payloads(self, **told: str) -> list[bytes]:
        """The same, of each row what was published."""
        return [row["payload"] for row in self.rows(**told)]


@pytest.mark.timeout(180)
def test_a_receiver_process_loses_nothing_to_signals_crashes_or_a_full_spool(
    overlay: OverlayProcesses, tmp_path: Path
) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "job": "north"})
    gateways = run_veilmq(
        "ingest", "run", "--spool", str(tmp_path / "other"), "--identity", str(overlay.directory / "site"),
        "--overlay", str(overlay.directory / "overlay.json"),
    )  # fmt: skip
    assert gateways.returncode == 2
    assert gateways.stderr.splitlines()[-1].startswith("veilmq: ")
    assert "is that of gateway site, whose sessions this job would take over" in gateways.stderr
    assert "Traceback" not in gateways.stderr
    overlay.start(*REPLICAS, "site")
    daemon = Daemon(overlay, tmp_path / "spool")
    daemon.start("--cap-bytes", str(CAP_BYTES))
    assert wait_until(lambda: daemon.log.read_text().count("subscribed at enough") == 1), daemon.log.read_text()
    device = overlay.client("site", "device", paho.MQTTv5)
    sent: list[bytes] = []

    def publish(count: int, size: int) -> None:
        for _ in range(count):
            sent.append((b"%d " % len(sent)).ljust(size))
            device.publish("plant/line/temperature", sent[-1], qos=1).wait_for_publish(10)

    publish(20, 40)
    assert wait_until(lambda: len(daemon.payloads()) == 20), daemon.metrics()
    overlay.kill("job")
    publish(20, 40)  # while nobody receives
    daemon.start("--cap-bytes", str(CAP_BYTES))
    publish(60, 40_000)  # as much as the cap, and a group may exceed it
    assert wait_until(lambda: (daemon.metric("veilmq_ingest_spool_bytes") or 0) > CAP_BYTES), daemon.metrics()
    publish(20, 40)  # waits at the replicas, unacknowledged
    assert wait_until(lambda: daemon.metric("veilmq_ingest_spool_full") == 1), daemon.log.read_text()
    assert len(daemon.payloads()) < len(sent)
    assert daemon.metric("veilmq_ingest_receiving") == 0
    assert daemon.end() == 0
    daemon.start("--cap-bytes", str(100 * CAP_BYTES))
    assert wait_until(lambda: len(daemon.payloads()) >= len(sent)), (len(daemon.payloads()), daemon.log.read_text())
    assert wait_until(lambda: daemon.metric("veilmq_ingest_link_up", '{replica="north1"}') == 1)
    status = json.loads(run_veilmq("ingest", "status", str(daemon.spool), "--json").stdout)
    (part,) = status["receivers"]
    assert (part["receiver"], part["running"]) == ("main", True)
    assert part["sealed_batches"] >= len(sent)  # and what the gateway tells of the device
    assert (daemon.metric("veilmq_ingest_sealed_batches_total") or 0) > 0
    second = run_veilmq("ingest", "run", "--config", str(daemon.config))
    assert (second.returncode, second.stderr.count("written by another process")) == (2, 1)
    assert "Traceback" not in second.stderr
    assert daemon.end() == 0
    device.disconnect()
    device.loop_stop()
    assert sorted(daemon.payloads()) == sorted(sent)  # each once
    log = daemon.log.read_text()
    assert "Traceback" not in log
    kept = (overlay.directory / "job" / "scope_keys.json").read_text()
    assert '"box"' in kept
    assert "plant" not in kept
    assert not [payload for payload in (b"plant/line", sent[0]) if payload in daemon.log.read_bytes()]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_two_receivers_share_what_is_published(overlay: OverlayProcesses, tmp_path: Path) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "job1": "north", "job2": "north"})
    overlay.start(*REPLICAS, "site")
    daemons = [Daemon(overlay, tmp_path / "spool", member) for member in ("job1", "job2")]
    # Both seal their keys to the first one's identity, so that one is enough to read all.
    reader = str(overlay.directory / "job1")
    for number, daemon in enumerate(daemons, 1):
        daemon.start("--shard", f"{number}/2", "--grants-identity", reader)
    for daemon in daemons:
        assert wait_until(lambda: daemon.log.read_text().count("subscribed at enough") == 1), daemon.log.read_text()  # noqa: B023
    device = overlay.client("site", "device", paho.MQTTv5)
    sent = [b"%d" % number for number in range(120)]
    for number, payload in enumerate(sent):
        device.publish(f"plant/line/press-{number % 12}/temperature", payload, 1, number % 2 == 0).wait_for_publish(10)
    grants = ",".join(str(overlay.directory / daemon.member / "scope_keys.json") for daemon in daemons)
    assert wait_until(lambda: len(daemons[0].payloads(grants=grants)) >= len(sent)), daemons[0].metrics()
    assert sorted(daemons[0].payloads(grants=grants)) == sorted(sent)
    parts = status_of(tmp_path / "spool").receivers
    assert [part.receiver for part in parts] == ["main-1of2", "main-2of2"]
    said = daemons[0].rows(grants=grants, stream="availability")
    assert [(row["entity"], row["state"]) for row in said] == [("device", "online")], "what the gateway says of it"
    assert daemons[0].rows(grants=grants, stream="quarantine") == []
    rows = sum(part.sealed_batches for part in parts)
    assert rows == len(sent) + len(said), "shared out by blocks of numbers, here perhaps to one"
    assert all(daemon.end() == 0 for daemon in daemons)
    device.disconnect()
    device.loop_stop()


def test_a_wrong_identity_ends_it_with_one_line(tmp_path: Path) -> None:
    told = (
        "--spool",
        str(tmp_path / "spool"),
        "--identity",
        str(tmp_path),
        "--overlay",
        str(tmp_path / "none"),
    )
    ended = run_veilmq("ingest", "run", *told)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("veilmq: ")
    assert "holds no identity" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_schemas_that_cannot_be_used_end_it_before_it_writes(tmp_path: Path) -> None:
    config = tmp_path / "receiver.yaml"
    config.write_text(
        f"spool: {tmp_path}/spool\nidentity: {tmp_path}\noverlay: {tmp_path}/none\nschemas: {tmp_path}/schemas.yaml\n"
    )
    (tmp_path / "schemas.yaml").write_text("climate: {topic: plant/+/climate, schema: climate.json}\n")
    ended = run_veilmq("ingest", "run", "--config", str(config))
    assert ended.returncode == 2
    assert "climate.json: [Errno 2] No such file" in ended.stderr.splitlines()[-1]
    assert not (tmp_path / "spool").exists()


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "receiver.yaml"
    config.write_text("spool: /s\nidentity: /i\noverlay: /o\ntopics: [plant/#, open/+]\ncap_bytes: 2000000\n")
    options = receiver_options(config, {"cap_bytes": "3000000", "receiver": "west", "topics": None})
    assert options.topics == ("plant/#", "open/+")
    assert (options.cap_bytes, options.receiver, options.spool) == (3_000_000, "west", Path("/s"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("spool: /s\n", "needs identity and overlay"),
        ("[spool]", "write options as"),
        ("spool: {a: b}", "neither text nor a number"),
        ("spool: [", "no YAML"),
        ("spool: [true]", "neither text nor a number"),
        ("spool: /s\ngrants: /g\npack: true\n", "pack is for who receives"),
        ("spool: 2026-13-45", "no YAML"),
        pytest.param("[" * 5_000, "no YAML", id="nested"),
        ('spool: "/s\\0"\nidentity: /i\noverlay: /o\n', "zero character"),
        ("spool: /s\nidentity: /i\noverlay: /o\nspeed: 3\n", "unknown"),
        ("spool: /s\nidentity: /i\noverlay: /o\ntopics: $share/a/#\n", "shared"),
    ],
)
def test_a_file_of_options_that_cannot_work_is_one_line(tmp_path: Path, content: str, why: str) -> None:
    config = tmp_path / "receiver.yaml"
    config.write_text(content)
    with pytest.raises(BadOption, match=why) as caught:
        receiver_options(config, {"grants": "/g"} if content == "spool: /s\n" else {})
    assert str(tmp_path / "elsewhere") not in str(caught.value)


def test_a_device_is_no_file_of_options() -> None:
    with pytest.raises(BadOption, match="too large"):
        receiver_options(Path("/dev/zero"), {})
