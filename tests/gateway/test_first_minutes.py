"""What a new operator does in the first minutes, command by command, as `docs/how-to/first-minutes.md` tells it.

Each command is run as a user runs it. From nothing to an overlay that lost a replica, shut out a reader and took in two
replicas; and a `mosquitto.conf` with logins, rights and kept messages served to Mosquitto's own clients unchanged.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from gateway.setup import role_folders
from tests.gateway.overlay_processes import ENVIRONMENT, free_ports

ROOT = Path(__file__).parent.parent.parent
VEILMQ = (sys.executable, "-m", "gateway.cli")
WAIT_S = 90.0
NEEDS_MOSQUITTO = pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="no mosquitto here; make tools")


def veilmq(*arguments: str | Path, status: int | None = 0) -> str:
    """Standard output of one command."""
    command = [*VEILMQ, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT)
    assert status is None or done.returncode == status, done.stderr + done.stdout
    return done.stdout


def until(holds: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.25)


class Reader:
    """An ordinary client that subscribes."""

    def __init__(self, port: int) -> None:
        self.got: list[bytes] = []
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda client, data, message: self.got.append(message.payload)
        self.client.on_connect = lambda client, *rest: client.subscribe("plant/#", 1)
        self.client.reconnect_delay_set(1, 1)
        self.client.connect_async("127.0.0.1", port)
        self.client.loop_start()


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """`veilmq init` and `veilmq up`, ended with Ctrl-C."""
    directory = tmp_path / "site"
    (port,) = free_ports(1)
    veilmq("init", directory, "--port", str(20_000 + port % 20_000))
    with (tmp_path / "up.log").open("w") as log:
        up = subprocess.Popen([*VEILMQ, "up", str(directory)], stdout=log, stderr=log, env=ENVIRONMENT)
        yield directory
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 0
    assert not list(directory.glob("*/pid"))


@pytest.mark.timeout(300)
def test_from_nothing_to_a_healthy_overlay(overlay: Path) -> None:
    g1, g2 = (int(_bind(overlay / name / "broker.yaml")) for name in ("g1", "g2"))
    until(
        lambda: veilmq("status", "-c", overlay / "g1/broker.yaml", status=None).rstrip().endswith("well"), "never well"
    )
    reader, writer = Reader(g2), paho.Client(paho.CallbackAPIVersion.VERSION2)
    writer.connect("127.0.0.1", g1)
    writer.loop_start()

    def arrives(payload: bytes) -> bool:
        writer.publish("plant/line1/temp", payload, qos=1)
        time.sleep(0.5)
        return payload in reader.got

    until(lambda: arrives(b"first"), "nothing arrived at the other gateway")

    os.kill(int((overlay / "r2/pid").read_text()), signal.SIGTERM)
    until(lambda: "r2 is away" in veilmq("status", "-c", overlay / "g1/broker.yaml", status=None), "never noticed")
    veilmq("status", "-c", overlay / "g1/broker.yaml", status=1)
    until(lambda: arrives(b"without r2"), "two of three replicas did not do")

    veilmq("trust", "revoke", overlay / "overlay.json", "--owner", overlay / "owner", "--member", "g2",
           "--read", "plant/#", "--now")  # fmt: skip
    until(lambda: not arrives(b"%f" % time.time()), "the reader was never shut out")
    assert not arrives(b"secret")

    ports = free_ports(2)
    for name, port in zip(("r4", "r5"), ports, strict=True):
        address = f"127.0.0.1:{port}"
        veilmq("join", overlay / name, "--address", address)
        attach = ("overlay", "attach", overlay / "overlay.json", "--owner", overlay / "owner", "--region", "region1",
                  "--card", overlay / name / "identity/card.json", "--address", address, "--grace", "2")  # fmt: skip
        until(lambda attach=attach: "is in" in veilmq(*attach, status=None), f"{name} was never attached")
    said = [""]

    def all_in() -> bool:
        said[0] = veilmq("status", "-c", overlay / "g1/broker.yaml", status=None)
        return "4 of 5" in said[0]

    until(all_in, said[0])
    assert re.search(r"4 of 5\s+3\s+r2", said[0])
    assert {folder.name for folder in role_folders(overlay)} == {"g1", "g2", "r1", "r2", "r3", "r4", "r5"}
    for client in (reader.client, writer):
        client.loop_stop()


def _bind(config: Path) -> str:
    match = re.search(r"bind: 127\.0\.0\.1:(\d+)", config.read_text())
    assert match is not None
    return match.group(1)


@NEEDS_MOSQUITTO
def test_a_mosquitto_with_logins_rights_and_kept_messages_is_taken_over(tmp_path: Path) -> None:
    port, ws = free_ports(2)
    (tmp_path / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nlistener {ws} 127.0.0.1\nprotocol websockets\nuser root\n"
        f"allow_anonymous false\npassword_file {tmp_path}/pw\nacl_file {tmp_path}/acl\n"
        f"persistence true\npersistence_location {tmp_path}/\n"
    )
    (tmp_path / "acl").write_text("user ann\ntopic readwrite plant/#\nuser bob\ntopic read plant/public/#\n")
    for user in ("ann", "bob"):
        subprocess.run(["mosquitto_passwd", *(() if user == "bob" else ("-c",)), "-b", tmp_path / "pw", user, "pw1"],
                       check=True, timeout=20)  # fmt: skip

    def client(kind: str, *arguments: str, status: int | None = 0) -> str:
        command = [f"mosquitto_{kind}", "-p", str(port), *arguments]
        for _ in range(100):
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            if "Connection refused" not in done.stderr:  # nobody listens yet; CONNACK's refusal is spelt otherwise
                assert status is None or done.returncode == status, done.stderr
                return done.stdout
            time.sleep(0.2)
        raise AssertionError(done.stderr)

    ann = ("-u", "ann", "-P", "pw1", "-q", "1")
    theirs = subprocess.Popen(["mosquitto", "-c", tmp_path / "mosquitto.conf"], stderr=subprocess.DEVNULL)
    try:
        client("sub", *ann, "-i", "keeper", "-c", "-t", "plant/+/temp", "-E")
        client("pub", *ann, "-t", "plant/1/temp", "-m", "while away")
        client("pub", *ann, "-t", "plant/public/sign", "-m", "kept", "-r")
    finally:
        theirs.terminate()
        theirs.wait(20)
    said = veilmq("import", tmp_path / "mosquitto.conf", "-o", tmp_path / "new")
    assert "1 retained messages, 1 sessions with 1 subscriptions and 1 queued messages" in said
    with (tmp_path / "ours.log").open("w") as log:
        ours = subprocess.Popen(
            [*VEILMQ, "broker", "-c", tmp_path / "new/broker.yaml"], stdout=log, stderr=log, env=ENVIRONMENT
        )
    try:
        assert client("sub", *ann, "-i", "keeper", "-c", "-t", "plant/+/temp", "-C", "1", "-W", "20") == "while away\n"
        assert client("sub", "-u", "bob", "-P", "pw1", "-t", "plant/public/#", "-C", "1", "-W", "20") == "kept\n"
        client("sub", "-u", "bob", "-P", "wrong", "-t", "plant/public/#", "-C", "1", "-W", "5", status=None)
        client("pub", "-u", "bob", "-P", "pw1", "-q", "1", "-r", "-t", "plant/public/sign", "-m", "forged")
        assert client("sub", *ann, "-t", "plant/public/#", "-C", "1", "-W", "20") == "kept\n"
    finally:
        ours.terminate()
        ours.wait(30)
