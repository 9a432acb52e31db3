"""A small overlay of real processes on loopback: trust domains, signed file, one `veilmq broker` a member."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import paho.mqtt.client as paho
import yaml

from gateway.owner.signing import sign_overlay
from gateway.trust.domains import TrustDomain
from keys.identity import Role
from tests import forking
from tests.forking import Process
from tests.ports import free_ports
from tests.support.files import edited
from tests.waits import wait_until

START_S = 60.0  # a machine may be busy
MAIN = "from gateway.cli import main; main()"
VEILMQ = ("-c", MAIN, "broker")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
SCOPES = ({"filter": "plant/#", "tokens": True}, {"filter": "open/#", "mode": "plain"})


def run_veilmq(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line as a user runs it."""
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        process = forking.run(["-c", MAIN, *arguments], cwd, os.environ, out, err)
        try:
            status = process.wait(60)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, status, out.read_text(), err.read_text())


@dataclass(frozen=True)
class KeyService:
    """Who issues epoch keys. The short epochs leave time for a start; `grace_s` is what an outage may last."""

    servers: int = 4
    issuer: str = "threshold"
    epochs: Mapping[str, int] = field(
        default_factory=lambda: {"length_s": 6, "ahead_s": 2, "grace_s": 2, "skew_s": 0, "history_epochs": 0}
    )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"keys{i + 1}" for i in range(self.servers))


@dataclass
class OverlayProcesses:
    """Files in `directory`; members are started by name and end with `stop`."""

    transport: ClassVar[Literal["tcp", "unix"]] = "tcp"
    directory: Path
    ports: dict[str, int] = field(default_factory=dict)
    running: dict[str, Process] = field(default_factory=dict)

    def make(
        self,
        regions: Mapping[str, int],
        edges: Sequence[tuple[str, str]],
        gateways: Mapping[str, str],
        owner_name: str = "owner",
        service: KeyService | None = None,
        trusted: Sequence[str] = (),
        scopes: Sequence[Mapping[str, Any]] = SCOPES,
    ) -> OverlayProcesses:
        """Makes regions by name with their number of replicas, gateways by name with their region; a gateway whose
        name begins with `job` is an ingest job. `trusted`: regions with fewer than three.

        Each member has an overlay file of its own, as on machines of its own; `overlay.json` is the owner's.
        """
        now = time.time()
        replicas = {f"{region}{i + 1}": region for region, size in regions.items() for i in range(size)}
        servers = [f"keys{i + 1}" for i in range(service.servers if service else 0)]
        ports = free_ports(len(replicas) + len(gateways) + len(servers))
        self.ports = dict(zip([*replicas, *gateways, *servers], ports, strict=True))
        for name in (*replicas, *servers):
            domain = TrustDomain.create(self.directory / f"domain-{name}", f"operator-{name}", now)
            role = Role.REPLICA if name in replicas else Role.KEY_SERVER
            domain.issue(name, role, ("127.0.0.1",), self.directory / name, now)
        owner = TrustDomain.create(self.directory / owner_name, owner_name, now)
        for name in gateways:
            role = Role.INGEST if name.startswith("job") else Role.GATEWAY
            owner.issue(name, role, ("127.0.0.1",), self.directory / name, now)
        description = {
            "name": "test",
            "regions": [
                {
                    "name": region,
                    "trusted": region in trusted,
                    "members": [
                        {"card": f"{name}/card.json", "address": f"127.0.0.1:{self.ports[name]}"}
                        for name, home in replicas.items()
                        if home == region
                    ],
                }
                for region in regions
            ],
            "edges": [list(edge) for edge in edges],
            "scopes": [dict(scope) for scope in scopes],
            "members": [
                {"card": f"{name}/card.json", "region": region, "publish": ["#"], "read": ["#"]}
                for name, region in gateways.items()
            ],
        }
        if service is not None:
            cards = [{"card": f"{name}/card.json", "address": f"127.0.0.1:{self.ports[name]}"} for name in servers]
            description["key_service"] = {"issuer": service.issuer, "servers": cards}
            description["epochs"] = dict(service.epochs)
        self._write("overlay.yaml", description)
        sign_overlay(self.directory / "overlay.yaml", self.directory / owner_name, self.directory / "overlay.json", now)
        for name in servers:
            listener = {"bind": f"127.0.0.1:{self.ports[name]}", "overlay": True, "ssl": True}
            content = self._member(name, listener)
            content["overlay"]["key_server"] = {"material": f"keyserver/{name}.material"}
            self._write(f"{name}.yaml", content)
        self.hand_out(*self.ports)
        for name in replicas:
            self._write_replica(name)
        for name in gateways:
            self._write_gateway(name)
        return self

    def spare(self, *names: str) -> None:
        """Replicas of further parties, made but in no region yet; `overlay attach` takes them in."""
        now = time.time()
        self.ports.update(zip(names, free_ports(len(names)), strict=True))
        for name in names:
            domain = TrustDomain.create(self.directory / f"domain-{name}", f"operator-{name}", now)
            domain.issue(name, Role.REPLICA, ("127.0.0.1",), self.directory / name, now)
            self._write_replica(name)

    def spare_gateway(self, name: str, owner_name: str) -> None:
        """A further gateway, made but not listed yet; `describe` takes it in."""
        self.ports[name] = free_ports(1)[0]
        owner = TrustDomain.load(self.directory / owner_name)
        owner.issue(name, Role.GATEWAY, ("127.0.0.1",), self.directory / name, time.time())
        self._write_gateway(name)

    def _write_gateway(self, name: str) -> None:
        content = self._member(name, {"bind": f"127.0.0.1:{self.ports[name]}"})
        content["allow_anonymous"] = True
        content["overlay"]["protect"] = [{"filter": "plant/#", "tokens": True}]
        content["overlay"]["share_plain"] = ["open/#"]
        content["availability"] = {"enabled": True, "topic_prefix": "plant/entities"}
        self._write(f"{name}.yaml", content)

    def _write_replica(self, name: str) -> None:
        listener = {"bind": f"127.0.0.1:{self.ports[name]}", "overlay": True, "ssl": True}
        self._write(f"{name}.yaml", self._member(name, listener))

    def _member(self, name: str, listener: dict[str, Any]) -> dict[str, Any]:
        return {
            "listeners": {"default": listener},
            "data": f"data-{name}",
            "overlay": {"identity": name, "overlay": f"{name}-overlay.json"},
        }

    def hand_out(self, *names: str) -> None:
        """Give the owner's present overlay file to these members, as a file that is replaced whole."""
        content = (self.directory / "overlay.json").read_bytes()
        for name in names:
            fresh = self.directory / f"{name}-overlay.new"
            fresh.write_bytes(content)
            fresh.replace(self.directory / f"{name}-overlay.json")

    def configure(self, name: str, **sections: object) -> None:
        """Give a member's configuration these sections."""
        with edited(self.directory / f"{name}.yaml") as content:
            content.update(sections)

    def describe(self, change: Callable[[dict[str, Any]], object] = lambda _: None, cards: Sequence[str] = ()) -> None:
        """Edit the owner's YAML and sign it anew, with newer cards of members; `hand_out` gives it to members."""
        with edited(self.directory / "overlay.yaml") as description:
            change(description)
        newer = [word for card in cards for word in ("--card", card)]
        self.veilmq("overlay", "sign", "overlay.yaml", "--owner", "owner", "--out", "overlay.json", *newer)

    def veilmq(self, *arguments: str) -> str:
        """A command of the owner's or an operator's, which must succeed; its output."""
        result = run_veilmq(*arguments, cwd=self.directory)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def figures(self, name: str) -> dict[str, Any]:
        """What a gateway says of itself now; {} if it says nothing for a while."""
        found: list[dict[str, Any]] = []
        watcher = self.client(name, f"watch-{time.monotonic()}")

        def take(client: object, userdata: object, message: paho.MQTTMessage) -> None:
            if not message.retain:  # what is retained is of before
                found.append(json.loads(message.payload))

        watcher.on_message = take
        watcher.subscribe("$SYS/veilmq/figures")
        try:
            wait_until(lambda: bool(found), 5.0)
        finally:
            watcher.disconnect()
            watcher.loop_stop()
        return found[-1] if found else {}

    def _write(self, name: str, content: object) -> None:
        (self.directory / name).write_text(yaml.safe_dump(content))

    def start(self, *names: str, command: Sequence[str] = VEILMQ) -> None:
        """Start members and wait until they listen. `command`: what runs them, before `-c FILE`."""
        for name in names:
            log, prefix, words = self.directory / f"{name}.log", self._prefix(name), [*command, "-c", f"{name}.yaml"]
            self.running[name] = forking.run(words, self.directory, ENVIRONMENT, log, log, prefix)
        for name in names:
            self._wait_for(name)

    def _prefix(self, name: str) -> Sequence[str]:
        """What runs the member's command, if anything does."""
        return ()

    def _wait_for(self, name: str) -> None:
        def listens() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[name]), 1):
                return True
            assert self.running[name].poll() is None, f"{name} ended: {self.log(name)}"
            return False

        assert wait_until(listens, START_S), f"{name} does not listen: {self.log(name)}"

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
            process.send_signal(signal.SIGCONT)  # a stopped one ends when it goes on
        for process in self.running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        self.running.clear()

    def client(self, gateway: str, name: str, version: int = paho.MQTTv311) -> paho.Client:
        """An unchanged paho client, connected, its loop running."""
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=version, transport=self.transport
        )
        client.connect(*self.endpoint(gateway))
        client.loop_start()
        return client

    def endpoint(self, gateway: str) -> tuple[str, int]:
        """Where clients reach a gateway."""
        return "127.0.0.1", self.ports[gateway]
