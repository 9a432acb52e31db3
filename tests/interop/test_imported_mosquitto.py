"""A Mosquitto with TLS, WebSockets, logins, rights, a bridge over TLS and a filled database is imported, and its
clients go on unchanged: mosquitto_pub and mosquitto_sub with the same command lines, MQTT.js with the same options.

The head office at the other end of the bridge is a Mosquitto before and after.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT, tool
from tests.gateway.certificates import Authority
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ, run_veilmq
from tests.ports import free_ports
from tests.waits import wait_until

pytestmark = [
    pytest.mark.skipif(shutil.which("mosquitto") is None, reason="no mosquitto here; make tools"),
    pytest.mark.skipif(tool("node") is None or not (ROOT / ".tools/node_modules/mqtt").exists(), reason="make tools"),
]
WAIT_S = 60.0
QUEUED = [f"while away {number}" for number in range(20)]


class Plant:
    """Files and ports of the plant's broker and of the head office's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tls, self.ws, self.head, dead = free_ports(4)
        self.authority = Authority(directory)
        certfile, keyfile = self.authority.issue("localhost")
        files = f"cafile {self.authority.cafile}\ncertfile {certfile}\nkeyfile {keyfile}\n"
        self._passwords("pw", ann="pw-ann", bob="pw-bob")
        self._passwords("head-pw", site7="pw-site7", boss="pw-boss")
        (directory / "acl").write_text(
            "user ann\ntopic readwrite plant/#\ntopic read orders/#\n\nuser bob\ntopic read plant/public/#\n"
        )
        (directory / "head.conf").write_text(
            f"listener {self.head} 127.0.0.1\n{files}allow_anonymous false\nuser root\n"
            f"password_file {directory}/head-pw\n"
        )
        (directory / "mosquitto.conf").write_text(
            f"listener {self.tls} 127.0.0.1\n{files}\nlistener {self.ws} 127.0.0.1\nprotocol websockets\n\n"
            f"user root\nallow_anonymous false\npassword_file {directory}/pw\nacl_file {directory}/acl\n"
            f"persistence true\npersistence_location {directory}/\nmax_queued_messages 5000\n\n"
            f"connection head\naddress localhost:{dead} localhost:{self.head}\nbridge_protocol_version mqttv50\n"
            "remote_clientid site7\nremote_username site7\nremote_password pw-site7\n"
            f"bridge_cafile {self.authority.cafile}\nrestart_timeout 1\n"
            "topic # out 2 plant/ site7/plant/\ntopic # in 2 orders/ site7/orders/\n"
        )

    def _passwords(self, name: str, **users: str) -> None:
        path = self.directory / name
        path.touch()
        for user, password in users.items():
            subprocess.run(["mosquitto_passwd", "-b", path, user, password], check=True, timeout=30)

    def run(self, kind: str, *arguments: str, at: int | None = None, who: str = "ann") -> str:
        """Standard output of one of Mosquitto's clients, over TLS."""
        login = ("-u", who, "-P", f"pw-{who}", "--cafile", str(self.authority.cafile), "-h", "localhost")
        command = [f"mosquitto_{kind}", "-p", str(at or self.tls), *login, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (0, 27), f"{command}: {done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, *command: str) -> Iterator[None]:
        """A broker until the end of the block; SIGTERM has it save what it keeps."""
        with (self.directory / f"{len(list(self.directory.iterdir()))}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    def serves(self) -> bool:
        """Whether the plant's broker lets a client in."""
        login = ["-u", "ann", "-P", "pw-ann", "--cafile", str(self.authority.cafile), "-h", "localhost"]
        command = ["mosquitto_pub", "-p", str(self.tls), *login, "-t", "plant/hello", "-m", "x", "-q", "1"]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0

    def crosses(self, payload: str) -> None:
        """What is published on one side of the bridge arrives on the other, both ways, at QoS 2."""
        for at, who, written, there, reader, read in (
            (self.tls, "ann", "plant/9/temp", self.head, "boss", "site7/plant/9/temp"),
            (self.head, "boss", "site7/orders/9", self.tls, "ann", "orders/9"),
        ):
            got: list[str] = []

            def arrived(
                at: int = at, who: str = who, written: str = written, there: int = there, reader: str = reader,
                read: str = read, got: list[str] = got,
            ) -> bool:  # fmt: skip
                self.run("pub", "-t", written, "-q", "2", "-r", "-m", payload, at=at, who=who)
                got.append(self.run("sub", "-t", read, "-q", "2", "-C", "1", "-W", "2", at=there, who=reader))
                return payload in got[-1]

            assert wait_until(arrived, WAIT_S, every_s=0.2), f"{written} never became {read}: {got}"


@pytest.mark.timeout(400)
def test_its_clients_and_its_bridge_go_on_unchanged(tmp_path: Path) -> None:
    plant = Plant(tmp_path)
    keeper = ("-i", "keeper", "-c", "-q", "2", "-t", "plant/+/temp")
    with plant.running("mosquitto", "-c", str(tmp_path / "head.conf")):
        with plant.running("mosquitto", "-c", str(tmp_path / "mosquitto.conf")):
            assert wait_until(plant.serves, WAIT_S, every_s=0.2)
            plant.run("sub", *keeper, "-E")
            for payload in QUEUED:
                plant.run("pub", "-t", "plant/1/temp", "-q", "2", "-m", payload)
            plant.run("pub", "-t", "plant/public/sign", "-q", "1", "-r", "-m", "kept")
            plant.crosses("before")
        command = ["import", str(tmp_path / "mosquitto.conf"), "-o", str(tmp_path / "n")]
        imported = run_veilmq(*command)
        assert imported.returncode == 0, imported.stderr
        with plant.running(sys.executable, *VEILMQ, "-c", str(tmp_path / "n" / "broker.yaml")):
            assert wait_until(plant.serves, WAIT_S, every_s=0.2), imported.stdout
            lines = plant.run("sub", *keeper, "-C", str(len(QUEUED)), "-W", "30").splitlines()
            assert lines == QUEUED
            seen = json.loads(
                subprocess.run(
                    [str(tool("node")), str(Path(__file__).parent / "imported.cjs"), str(plant.tls), str(plant.ws),
                     str(plant.authority.cafile)],
                    cwd=ROOT / ".tools", capture_output=True, text=True, timeout=120, check=True,
                ).stdout
            )  # fmt: skip
            assert seen["bob"][0] == ["plant/public/sign", "kept", True], "bob may read it, and forge nothing"
            assert [payload for _, payload, _ in seen["bob"]] == ["kept", "last"]
            assert seen["refused"] in (4, 5)
            assert seen["anonymous"] in (4, 5)
            plant.crosses("after")
