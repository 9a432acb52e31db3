"""Bridges to Debian's Mosquitto: both directions, both versions, and nothing acknowledged lost while either is killed.

Ours is killed by SIGKILL. Mosquitto is ended by SIGTERM, on which it saves what it acknowledged: after SIGKILL it
forgets what it had not saved yet, whoever sends to it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
import yaml

from tests import forking
from tests.gateway.certificates import Authority
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ
from tests.ports import free_ports
from tests.seldom import slow
from tests.support.files import edited
from tests.waits import wait_until

pytestmark = pytest.mark.skipif(shutil.which("mosquitto") is None, reason="no mosquitto here; make tools")
WAIT_S = 60.0


def until(holds: Callable[[], Any], what: str) -> None:
    assert wait_until(holds, WAIT_S), what


class Process:
    """Something that is started, killed and started again."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self._popen: forking.Process | None = None

    def start(self) -> None:
        if self._command[0] == sys.executable:
            self._popen = forking.run(self._command[1:], None, ENVIRONMENT, self._log, self._log)
            return
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(self._command, stdout=log, stderr=log, env=ENVIRONMENT)

    def end(self, number: int) -> None:
        assert self._popen is not None
        self._popen.send_signal(number)
        self._popen.wait(30)


class TwoBrokers:
    """Our broker and a Mosquitto, each on a port of its own."""

    def __init__(self, directory: Path, bridge: dict[str, Any]) -> None:
        self.ours_port, self.theirs_port = free_ports(2)
        conf = directory / "m.conf"
        conf.write_text(
            f"listener {self.theirs_port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {directory}/\nuser root\nmax_queued_messages 100000\n"
            "max_inflight_messages 1000\n"  # of a writer that comes back with more it would drop QoS 2
        )
        config = directory / "broker.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "listeners": {"default": {"bind": f"127.0.0.1:{self.ours_port}"}},
                    "allow_anonymous": True,
                    "data": str(directory / "data"),
                    "limits": {"queue_messages": 100_000},
                    "bridges": {"m": {"addresses": [f"127.0.0.1:{self.theirs_port}"], **bridge}},
                }
            )
        )
        self.theirs = Process(["mosquitto", "-c", str(conf)], directory / "m.log")
        self.ours = Process([sys.executable, *VEILMQ, "-c", str(config)], directory / "ours.log")

    def stop(self) -> None:
        for process in (self.ours, self.theirs):
            if process._popen is not None and process._popen.poll() is None:
                process.end(signal.SIGKILL)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], TwoBrokers]]:
    sites: list[TwoBrokers] = []

    def make(bridge: dict[str, Any]) -> TwoBrokers:
        sites.append(TwoBrokers(tmp_path, bridge))
        return sites[-1]

    yield make
    for site in sites:
        site.stop()


class Reader:
    """A persistent session that keeps what it got."""

    def __init__(self, port: int, topic_filter: str, qos: int = 1) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.ready = threading.Event()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, "reader", clean_session=False)
        self._client.on_message = lambda client, data, message: self.got.append((message.topic, message.payload))
        self._client.on_connect = lambda client, *rest: client.subscribe(topic_filter, qos)
        self._client.on_subscribe = lambda *rest: self.ready.set()
        self._client.reconnect_delay_set(1, 1)
        self._client.connect_async("127.0.0.1", port)
        self._client.loop_start()

    def stop(self) -> None:
        self._client.loop_stop()


class Releasing(paho.Client):
    """Keeps that PUBREC came through all attempts to reconnect.

    paho 2.2 does so in the first attempt. In the second it makes of "PUBREL is due" a PUBLISH without DUP, which every
    broker must take for another message if it has acted on a PUBREL that was sent before.
    """

    def _messages_reconnect_reset_out(self) -> None:
        due = [message for message in self._out_messages.values() if message.state == paho.mqtt_ms_resend_pubrel]
        super()._messages_reconnect_reset_out()
        for message in due:
            message.state = paho.mqtt_ms_resend_pubrel


class Writer:
    """Publishes numbers, one every 10 ms, and repeats what is not acknowledged."""

    def __init__(self, port: int, topic: str, qos: int = 1) -> None:
        self.acknowledged: set[bytes] = set()
        self._qos = qos
        self._topic = topic
        self._client = Releasing(paho.CallbackAPIVersion.VERSION2, "writer", clean_session=False)
        self._waiting: dict[int, bytes] = {}
        self._client.on_publish = self._on_publish
        self._client.reconnect_delay_set(1, 1)
        self._client.connect_async("127.0.0.1", port)
        self._client.loop_start()

    def write(self, count: int, start: int) -> None:
        for number in range(start, start + count):
            payload = b"%d" % number
            self._waiting[self._client.publish(self._topic, payload, qos=self._qos).mid] = payload
            time.sleep(0.01)

    def _on_publish(self, client: Any, data: Any, mid: int, *rest: Any) -> None:
        while mid not in self._waiting:
            time.sleep(0.001)
        self.acknowledged.add(self._waiting.pop(mid))

    def stop(self) -> None:
        self._client.loop_stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("version", "outwards"), [("5", True), pytest.param("3.1.1", False, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_while_either_is_killed(
    made: Callable[[dict[str, Any]], TwoBrokers], version: str, outwards: bool
) -> None:
    topics = [
        {"filter": "#", "direction": "out", "local_prefix": "a/", "remote_prefix": "b/"},
        {"filter": "#", "direction": "in", "local_prefix": "c/", "remote_prefix": "d/"},
    ]
    site = made({"version": version, "topics": topics})
    site.theirs.start()
    site.ours.start()
    read_at, write_at = (site.theirs_port, site.ours_port) if outwards else (site.ours_port, site.theirs_port)
    written, arrives = ("a/x", "b/x") if outwards else ("d/x", "c/x")
    reader = Reader(read_at, f"{arrives[0]}/#")
    assert reader.ready.wait(WAIT_S)
    writer = Writer(write_at, written)
    writer.write(50, 0)
    # What was subscribed for the bridge is so now: from here on each broker keeps what the other misses.
    until(lambda: any(payload == b"49" for _, payload in reader.got), "the bridge never passed anything on")
    site.theirs.end(signal.SIGTERM)
    writer.write(100, 50)
    site.theirs.start()
    writer.write(100, 150)
    site.ours.end(signal.SIGKILL)
    writer.write(100, 250)
    site.ours.start()
    writer.write(100, 350)
    site.theirs.end(signal.SIGTERM)
    site.ours.end(signal.SIGKILL)
    writer.write(50, 450)
    site.ours.start()
    site.theirs.start()
    everything = {b"%d" % number for number in range(50, 500)}
    until(lambda: everything <= writer.acknowledged, "the writer's broker never took everything")
    until(lambda: everything <= {payload for _, payload in reader.got}, "messages were lost")
    assert {topic for topic, _ in reader.got} == {arrives}
    reader.stop()
    writer.stop()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_qos_2_crosses_both_ways_once_while_either_is_killed(made: Callable[[dict[str, Any]], TwoBrokers]) -> None:
    topics = [
        {"filter": "#", "direction": "out", "qos": 2, "local_prefix": "a/", "remote_prefix": "b/"},
        {"filter": "#", "direction": "in", "qos": 2, "local_prefix": "c/", "remote_prefix": "d/"},
    ]
    site = made({"topics": topics, "status_topic": "up"})
    site.theirs.start()
    site.ours.start()
    readers = [Reader(site.theirs_port, "b/#", 2), Reader(site.ours_port, "c/#", 2)]
    writers = [Writer(site.ours_port, "a/x", 2), Writer(site.theirs_port, "d/x", 2)]
    assert all(reader.ready.wait(WAIT_S) for reader in readers)

    def write(numbers: range) -> None:
        for number in numbers:
            for writer in writers:
                writer.write(1, number)

    def crossed(count: int) -> bool:
        everything = {b"%d" % number for number in range(count)}
        return all(everything <= {payload for _, payload in reader.got} for reader in readers)

    while not all(reader.got for reader in readers):  # until the filters of the bridge are known at both
        write(range(1))
    write(range(1, 60))
    site.ours.end(signal.SIGKILL)
    site.ours.start()
    write(range(60, 120))
    site.theirs.end(signal.SIGTERM)
    write(range(120, 150))
    site.theirs.start()
    write(range(150, 200))
    site.ours.end(signal.SIGKILL)
    site.theirs.end(signal.SIGTERM)
    site.theirs.start()
    site.ours.start()
    until(lambda: crossed(200), "messages were lost")
    for reader in readers:
        numbers = [int(payload) for _, payload in reader.got if payload != b"0"]
        assert sorted(numbers) == list(range(1, 200))
        reader.stop()
    for writer in writers:
        writer.stop()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", ["5", *slow(["3.1.1"])])
def test_tls_at_the_second_address_with_a_certificate_that_is_replaced(
    made: Callable[[dict[str, Any]], TwoBrokers], version: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server, client = authority.issue("m"), authority.issue("before")
    (dead,) = free_ports(1)
    tls = {
        "cafile": str(authority.cafile),
        "certfile": str(client[0]),
        "keyfile": str(client[1]),
        "check_hostname": False,
    }
    site = made({"version": version, "tls": tls, "topics": [{"filter": "a/#", "direction": "out"}]})
    conf, config = tmp_path / "m.conf", tmp_path / "broker.yaml"
    (there,) = free_ports(1)
    conf.write_text(
        f"{conf.read_text()}listener {there} 127.0.0.1\ncafile {authority.cafile}\ncertfile {server[0]}\n"
        f"keyfile {server[1]}\nrequire_certificate true\nuse_identity_as_username true\n"
    )
    with edited(config) as content:
        content["bridges"]["m"]["addresses"] = [f"127.0.0.1:{dead}", f"127.0.0.1:{there}"]
    site.theirs.start()
    site.ours.start()
    reader, writer = Reader(site.theirs_port, "a/#"), Writer(site.ours_port, "a/x")
    assert reader.ready.wait(WAIT_S)
    log = tmp_path / "m.log"
    until(lambda: "u'before'" in log.read_text(), "the second address was never tried with our certificate")
    writer.write(1, 0)
    until(lambda: ("a/x", b"0") in reader.got, "nothing crossed")
    for old, new in zip(client, authority.issue("after"), strict=True):
        new.replace(old)
    site.theirs.end(signal.SIGTERM)
    writer.write(1, 1)
    site.theirs.start()
    until(lambda: "u'after'" in log.read_text(), "the certificate that was replaced is not shown")
    until(lambda: ("a/x", b"1") in reader.got, "what waited did not cross")
    reader.stop()
    writer.stop()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", ["5", *slow(["3.1.1"])])
def test_a_topic_that_crosses_both_ways_does_not_echo(
    made: Callable[[dict[str, Any]], TwoBrokers], version: str
) -> None:
    site = made({"version": version, "topics": [{"filter": "both/#", "direction": "both"}], "status_topic": "up"})
    site.theirs.start()
    site.ours.start()
    here, there = Reader(site.ours_port, "#"), Reader(site.theirs_port, "both/#")
    assert here.ready.wait(WAIT_S)
    assert there.ready.wait(WAIT_S)
    until(lambda: ("up", b"1") in here.got, "never connected")
    ours, theirs = Writer(site.ours_port, "both/ours"), Writer(site.theirs_port, "both/theirs")
    ours.write(5, 0)
    theirs.write(5, 0)
    until(lambda: len(there.got) >= 10 and len(here.got) >= 11, "not everything crossed")
    ours.write(1, 9)  # an echo would have come before this one
    until(lambda: there.got.count(("both/ours", b"9")) and here.got.count(("both/ours", b"9")), "the last")
    expected = sorted((f"both/{side}", b"%d" % n) for side in ("ours", "theirs") for n in range(5))
    assert sorted(one for one in there.got if one[1] != b"9") == expected
    assert sorted(one for one in here.got if one[1] != b"9" and one[0] != "up") == expected
    site.theirs.end(signal.SIGTERM)
    until(lambda: ("up", b"0") in here.got, "the status never changed")
    for each in (here, there, ours, theirs):
        each.stop()
