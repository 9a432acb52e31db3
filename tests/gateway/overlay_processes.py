"""A small overlay of real processes on loopback: trust domains, signed file, one `veilmq broker` a member."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import yaml

from gateway.overlay_file import sign_overlay
from gateway.trust import TrustDomain
from keys.identity import Role

START_S = 20.0
SCOPES = ({"filter": "plant/#", "tokens": True}, {"filter": "open/#", "mode": "plain"})


def run_veilmq(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line as a user runs it."""
    code = "from gateway.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass
class OverlayProcesses:
    """Files in `directory`; members are started by name and end with `stop`."""

    directory: Path
    ports: dict[str, int] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def make(
        self,
        regions: Mapping[str, int],
        edges: Sequence[tuple[str, str]],
        gateways: Mapping[str, str],
        owner_name: str = "owner",
    ) -> OverlayProcesses:
        """Regions by name with their number of replicas, gateways by name with their region."""
        now = time.time()
        replicas = {f"{region}{i + 1}": region for region, size in regions.items() for i in range(size)}
        ports = free_ports(len(replicas) + len(gateways))
        self.ports = dict(zip([*replicas, *gateways], ports, strict=True))
        for name in replicas:
            domain = TrustDomain.create(self.directory / f"domain-{name}", f"operator-{name}", now)
            domain.issue(name, Role.REPLICA, ("127.0.0.1",), self.directory / name, now)
        owner = TrustDomain.create(self.directory / owner_name, owner_name, now)
        for name in gateways:
            owner.issue(name, Role.GATEWAY, ("127.0.0.1",), self.directory / name, now)
        description = {
            "name": "test",
            "regions": [
                {
                    "name": region,
                    "members": [
                        {"card": f"{name}/card.json", "address": f"127.0.0.1:{self.ports[name]}"}
                        for name, home in replicas.items()
                        if home == region
                    ],
                }
                for region in regions
            ],
            "edges": [list(edge) for edge in edges],
            "scopes": list(SCOPES),
            "members": [
                {"card": f"{name}/card.json", "region": region, "publish": ["#"], "read": ["#"]}
                for name, region in gateways.items()
            ],
        }
        self._write("overlay.yaml", description)
        sign_overlay(self.directory / "overlay.yaml", self.directory / owner_name, self.directory / "overlay.json", now)
        for name in replicas:
            listener = {"bind": f"127.0.0.1:{self.ports[name]}", "overlay": True, "ssl": True}
            self._write(f"{name}.yaml", self._member(name, listener))
        for name in gateways:
            content = self._member(name, {"bind": f"127.0.0.1:{self.ports[name]}"})
            content["allow_anonymous"] = True
            content["overlay"]["protect"] = [{"filter": "plant/#", "tokens": True}]
            content["overlay"]["share_plain"] = ["open/#"]
            content["availability"] = {"enabled": True, "topic_prefix": "plant/entities"}
            self._write(f"{name}.yaml", content)
        return self

    def _member(self, name: str, listener: dict[str, Any]) -> dict[str, Any]:
        return {
            "listeners": {"default": listener},
            "data": f"data-{name}",
            "overlay": {"identity": name, "overlay": "overlay.json"},
        }

    def _write(self, name: str, content: object) -> None:
        (self.directory / name).write_text(yaml.safe_dump(content))

    def start(self, *names: str) -> None:
        for name in names:
            log = (self.directory / f"{name}.log").open("ab")
            command = [sys.executable, "-c", "from gateway.cli import main; main()", "broker", "-c", f"{name}.yaml"]
            self.running[name] = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
            log.close()
        for name in names:
            self._wait_for(name)

    def _wait_for(self, name: str) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[name]), 1):
                return
            assert self.running[name].poll() is None, f"{name} ended: {self.log(name)}"
            time.sleep(0.05)
        raise AssertionError(f"{name} does not listen: {self.log(name)}")

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        self.running.clear()

    def client(self, gateway: str, name: str, version: int = paho.MQTTv311) -> paho.Client:
        """An unchanged paho client, connected, its loop running."""
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=version)
        client.connect("127.0.0.1", self.ports[gateway])
        client.loop_start()
        return client


def wait_until(condition: Any, seconds: float = 20.0) -> bool:
    """Poll a real system from outside; True as soon as the condition holds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
