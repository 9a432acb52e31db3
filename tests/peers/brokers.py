"""Brokers of others, each started on a port of loopback with a configuration that lets everybody in."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version as distribution_version
from pathlib import Path

from tests.peers.installing import Debian, Npm, Pypi, Source
from tests.ports import free_ports
from tests.waits import wait_until

START_S = 120.0
LOGIN = ("peer", "secret")
"""User and password for a broker that knows no clients without a name."""


@dataclass(frozen=True)
class Started:
    """Command of one broker, and what its environment has besides."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BrokerPeer:
    """A broker of others. `start`: writes its files into a folder and returns the command that serves the port.

    `versions`: of MQTT. `login`: True if it wants a user name. `ports`: how many it wants. `port_of_5`: which of them
    speaks MQTT 5, where another one speaks 3.1.1.
    """

    name: str
    source: Source | None
    start: Callable[[Path, list[int]], Started]
    versions: tuple[str, ...] = ("5", "3.1.1")
    login: bool = False
    ports: int = 1
    port_of_5: int = 0

    @property
    def folder(self) -> str:
        """Name of a folder for it, of letters, digits and hyphens alone: RabbitMQ's scripts do not quote theirs."""
        return re.sub("[^A-Za-z0-9]+", "-", self.name)

    @property
    def title(self) -> str:
        """Name and version."""
        version = self.source.version if self.source else distribution_version(self.name) if self is AMQTT else ""
        return f"{self.name} {version}".rstrip()


@dataclass
class Running:
    """A broker that runs, and may be killed and started again with the files that it left."""

    peer: BrokerPeer
    ports: list[int]
    directory: Path
    _process: subprocess.Popen[bytes] | None = None

    def port(self, version: str) -> int:
        return self.ports[self.peer.port_of_5 if version == "5" else 0]

    def start(self) -> None:
        """Starts the broker and waits for its ports. Raises AssertionError with the end of its log."""
        started = self.peer.start(self.directory, self.ports)
        environment = self.peer.source.environment() if self.peer.source else dict(os.environ)
        path = self.directory / "log"
        with path.open("ab") as log:
            self._process = subprocess.Popen(
                started.command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.directory,
                env={**environment, **started.environment}, start_new_session=True,
            )  # fmt: skip
        process = self._process
        up = wait_until(lambda: process.poll() is not None or all(map(listens, self.ports)), START_S)
        said = path.read_text(errors="replace")[-500:]
        assert up, said
        assert process.poll() is None, said

    def stop(self, number: int = 15) -> None:
        """Ends the broker and its children."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._process = None


@contextlib.contextmanager
def running(peer: BrokerPeer, directory: Path) -> Iterator[Running]:
    """A broker of others, from its start to its end."""
    directory.mkdir(parents=True, exist_ok=True)
    one = Running(peer, free_ports(peer.ports), directory)
    try:
        one.start()
        yield one
    finally:
        one.stop()


def listens(port: int) -> bool:
    """Returns True if somebody listens on the port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# ------------------------------------------------------------------------------------------ each broker


def _mosquitto(program: str) -> Callable[[Path, list[int]], Started]:
    def start(directory: Path, ports: list[int]) -> Started:
        lines = [f"listener {ports[0]} 127.0.0.1", "allow_anonymous true", "persistence true"]
        lines += [f"persistence_location {directory}/", "user root" if os.getuid() == 0 else ""]
        (directory / "m.conf").write_text("\n".join(lines) + "\n")
        return Started([program, "-c", "m.conf"])

    return start


def _amqtt(directory: Path, ports: list[int]) -> Started:
    (directory / "amqtt.yaml").write_text(
        f"listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{ports[0]}\nplugins:\n"
        "  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
    )
    return Started([sys.executable, "-m", "amqtt.scripts.broker_script", "-c", "amqtt.yaml"])


def _aedes(directory: Path, ports: list[int]) -> Started:
    (directory / "aedes.cjs").write_text(
        'const {Aedes} = require("aedes"), net = require("net")\n'
        f'Aedes.createBroker().then(b => net.createServer(b.handle).listen({ports[0]}, "127.0.0.1"))\n'
    )
    return Started(["node", "aedes.cjs"])


def _iotcore(directory: Path, ports: list[int]) -> Started:
    """rumqttd has a listener for each version."""
    of_version = "".join(
        f'[{version}.1]\nname = "{version}"\nlisten = "127.0.0.1:{port}"\nnext_connection_delay_ms = 1\n'
        f"[{version}.1.connections]\nconnection_timeout_ms = 60000\nmax_payload_size = 1000000\n"
        "max_inflight_count = 100\ndynamic_filters = true\n"
        for version, port in zip(("v4", "v5"), ports, strict=True)
    )
    (directory / "rumqttd.toml").write_text(
        "id = 0\n[router]\nid = 0\nmax_connections = 1000\nmax_outgoing_packet_count = 200\n"
        f"max_segment_size = 104857600\nmax_segment_count = 10\n{of_version}"
    )
    code = "import iotcore.broker as b; b.IotCoreBroker(config_path='rumqttd.toml').run_forever()"
    return Started([sys.executable, "-c", code])


def _ejabberd(directory: Path, ports: list[int]) -> Started:
    (directory / "ejabberd.yml").write_text(
        f"""hosts: [localhost]
loglevel: warning
listen: [{{port: {ports[0]}, ip: 127.0.0.1, module: mod_mqtt}}]
auth_method: anonymous
anonymous_protocol: login_anon
modules: {{mod_mqtt: {{session_expiry: "8 days", max_queue: 10000}}}}
"""
    )
    paths = [word for path in sorted(Path("/usr/lib").glob("*/ejabberd-*/ebin")) for word in ("-pa", str(path))]
    command = ["erl", "-noinput", *paths, "-mnesia", "dir", f'"{directory}/spool"', "-s", "ejabberd"]
    files = {"EJABBERD_CONFIG_PATH": "ejabberd.yml", "EJABBERD_LOG_PATH": f"{directory}/ejabberd.log"}
    return Started(command, {**files, "HOME": str(directory)})


def _rabbitmq(directory: Path, ports: list[int]) -> Started:
    """The ports besides that of MQTT: AMQP, distribution of Erlang, its port mapper."""
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{ports[1]}\nmqtt.listeners.tcp.1 = 127.0.0.1:{ports[0]}\n"
        "mqtt.allow_anonymous = true\nloopback_users = none\n"
    )
    (directory / "plugins").write_text("[rabbitmq_mqtt].\n")
    environment = {
        "RABBITMQ_NODENAME": f"peer{ports[0]}@localhost", "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
        "RABBITMQ_LOG_BASE": f"{directory}/log.d", "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
        "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf", "RABBITMQ_PID_FILE": f"{directory}/pid",
        "RABBITMQ_DIST_PORT": str(ports[2]), "RABBITMQ_FEATURE_FLAGS_FILE": f"{directory}/flags",
        "HOME": str(directory), "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(ports[3]),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }  # fmt: skip
    # The port mapper would outlive the broker, so it runs in the same process group.
    script = f"epmd -address 127.0.0.1 -port {ports[3]} & sleep 0.5; exec /usr/lib/rabbitmq/bin/rabbitmq-server"
    return Started(["sh", "-c", script], environment)


def _moat(directory: Path, ports: list[int]) -> Started:
    (directory / "serve.py").write_text(
        f"""import anyio
from moat.mqtt.broker import create_broker

async def main():
    listener = {{"type": "tcp", "bind": "127.0.0.1:{ports[0]}"}}
    config = {{"listeners": {{"default": listener}}, "auth": {{"allow-anonymous": True}}, "plugins": []}}
    async with create_broker({{**config, "topic-check": {{"enabled": False}}}}):
        await anyio.sleep_forever()

anyio.run(main)
"""
    )
    return Started([sys.executable, "serve.py"])


def _ours(directory: Path, ports: list[int]) -> Started:
    return Started(
        [sys.executable, "-m", "gateway.cli", "broker", "--bind", f"127.0.0.1:{ports[0]}", "--allow-anonymous"]
    )


def _newer_mosquitto() -> list[BrokerPeer]:
    """Returns the Mosquitto named by the variable MOSQUITTO, if there is one."""
    program = os.environ.get("MOSQUITTO")
    if not program:
        return []
    said = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\S+)", said)
    return [BrokerPeer(f"Mosquitto {found[1] if found else '?'}", None, _mosquitto(program))]


OLD = ("3.1.1",)
MOSQUITTO = BrokerPeer("Mosquitto", Debian("mosquitto"), _mosquitto(shutil.which("mosquitto") or "/usr/sbin/mosquitto"))
OURS = BrokerPeer("VeilMQ", None, _ours)
AMQTT = BrokerPeer("amqtt", None, _amqtt, OLD)
BROKERS = [
    MOSQUITTO,
    *_newer_mosquitto(),
    AMQTT,
    BrokerPeer("aedes", Npm(("aedes@1.2.0",)), _aedes, OLD),
    BrokerPeer("iotcore", Pypi(("iotcore==0.4.0",)), _iotcore, ports=2, port_of_5=1),
    BrokerPeer("ejabberd", Debian("ejabberd"), _ejabberd, login=True),
    BrokerPeer("RabbitMQ's MQTT plugin", Debian("rabbitmq-server"), _rabbitmq, OLD, ports=4),
    BrokerPeer("moat-mqtt", Pypi(("moat-mqtt==0.38.2", "moat-util==0.38.0", "setuptools==80.9.0")), _moat, OLD),
]
"""Brokers that registries have; the Mosquitto of MOSQUITTO= besides."""
