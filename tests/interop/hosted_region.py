"""A region of stock Mosquittos with TLS and passwords, two gateway processes, and a hop that corrupts.

Nothing of ours runs at the brokers: their configuration is a listener, certificates and a password file. The hop stands
where a provider's front end would: it has the broker's certificate, ends TLS and begins it anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import paho.mqtt.client as paho

from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.packets import Packet, Publish, Version
from gateway.owner.signing import sign_overlay
from gateway.trust.domains import TrustDomain
from keys.identity import Role
from tests.bench.peers import wait_for
from tests.conftest import tool
from tests.gateway.overlay_processes import OverlayProcesses
from tests.ports import free_ports
from tests.support.files import edited

GATEWAYS = ("site", "control")
PACKET_BYTES = 1 << 20
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"  # base64url


class Mosquittos:
    """One a name, all in `directory`; each is run by a party of its own. `port` is where gateways are sent."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.directory, self.names = directory, names
        ports = iter(free_ports(2 * len(names)))
        self.ports = {name: next(ports) for name in names}
        self.fronts = {name: next(ports) for name in names}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in names:
            domain = TrustDomain.create(directory / f"ca-{name}", f"{name}.example", time.time())
            domain.issue(name, Role.REPLICA, ("localhost", "127.0.0.1"), directory / name, time.time())
            for gateway in GATEWAYS:
                self._allow(name, gateway)
            self.configure(name)

    def _allow(self, name: str, gateway: str) -> None:
        passwords, secret = self.directory / name / "passwords", f"secret of {gateway} at {name}"
        new = [] if passwords.exists() else ["-c"]
        subprocess.run(["mosquitto_passwd", "-b", *new, passwords, gateway, secret], check=True, capture_output=True)
        file = self.directory / f"{gateway}-{name}.password"
        file.touch(0o600)
        file.write_text(secret + "\n")

    def configure(self, name: str, *more: str) -> None:
        """Write its configuration; `more` lines say what differs from Debian's defaults."""
        here = self.directory / name
        lines = [f"listener {self.ports[name]} 127.0.0.1", "allow_anonymous false", f"password_file {here}/passwords"]
        lines += [f"certfile {here}/cert.pem", f"keyfile {here}/key.pem", *more]
        lines += ["user root"] if os.getuid() == 0 else []
        (here / "mosquitto.conf").write_text("\n".join(lines) + "\n")

    def start(self, *names: str) -> None:
        program = tool("mosquitto")
        assert program is not None
        for name in names or self.names:
            with (self.directory / f"{name}.log").open("ab") as log:
                command = [program, "-c", str(self.directory / name / "mosquitto.conf")]
                self._running[name] = subprocess.Popen(command, stdout=log, stderr=log)
            wait_for(self.ports[name])

    def kill(self, name: str) -> None:
        """kill -9; without persistence its memory is gone."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for name in list(self._running):
            self.kill(name)


class Hosted(Protocol):
    """Brokers of a region, each run by a party of its own: a folder a broker, its port, and that of its front."""

    directory: Path
    names: Sequence[str]
    ports: dict[str, int]
    fronts: dict[str, int]


class Region(OverlayProcesses):
    """Gateways `site` and `control` in front of one region of hosted brokers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._clients: list[paho.Client] = []

    def describe_hosted(self, brokers: Hosted, behind: Sequence[str] = (), records: int = 256) -> Region:
        """`behind`: brokers that gateways reach through a hop on their front port. `records`: of a batch, at most."""
        now = time.time()
        owner = TrustDomain.create(self.directory / "owner", "owner", now)
        self.ports = dict(zip(GATEWAYS, free_ports(len(GATEWAYS)), strict=True))
        for name in (*GATEWAYS, "job"):
            owner.issue(name, Role.INGEST if name == "job" else Role.GATEWAY, (), self.directory / name, now)
        entries = [
            {
                "hosted": True, "name": name, "domain": f"{name}.example", "ca": f"{name}/ca.pem",
                "address": f"localhost:{(brokers.fronts if name in behind else brokers.ports)[name]}",
            }
            for name in brokers.names
        ]  # fmt: skip
        everything = ["plant/#", "open/#"]
        rights = {"publish": everything, "read": everything}
        description = {
            "name": "test",
            "regions": [{"name": "cloud", "members": entries}],
            "scopes": [
                {"filter": "plant/#", "tokens": True, "batch": {"records": records}},
                {"filter": "open/#", "mode": "plain"},
            ],
            "members": [{"card": f"{name}/card.json", "region": "cloud", **rights} for name in GATEWAYS]
            + [{"card": "job/card.json", "region": "cloud", "read": everything}],
        }
        self._write("overlay.yaml", description)
        sign_overlay(self.directory / "overlay.yaml", self.directory / "owner", self.directory / "overlay.json", now)
        for name in GATEWAYS:
            content = self._member(name, {"bind": f"127.0.0.1:{self.ports[name]}"})
            content["allow_anonymous"] = True
            content["overlay"]["protect"] = [{"filter": "plant/#", "tokens": True}]
            content["overlay"]["share_plain"] = ["open/#"]
            content["overlay"]["hosted"] = self.logins(brokers, name)
            self._write(f"{name}.yaml", content)
        self.hand_out(*GATEWAYS)
        self._write("job-logins.yaml", self.logins(brokers, "control"))
        return self

    def logins(self, brokers: Hosted, gateway: str) -> dict[str, dict[str, str]]:
        return {
            broker: {"username": gateway, "password_file": f"{gateway}-{broker}.password"} for broker in brokers.names
        }

    def client(self, gateway: str, name: str, version: int = paho.MQTTv311) -> paho.Client:
        client = super().client(gateway, name, version)
        self._clients.append(client)
        return client

    def stop(self) -> None:
        for client in self._clients:
            client.disconnect()
            client.loop_stop()
        super().stop()

    def edit(self, name: str, **overlay: object) -> None:
        """Change the overlay section of a gateway's configuration."""
        with edited(self.directory / f"{name}.yaml") as content:
            content["overlay"].update(overlay)


class CorruptingHop:
    """Ends TLS in front of a broker, with the broker's own certificate, and alters every `every`-th PUBLISH that passes
    in either direction (0: none): a byte of its payload or of one of its user properties; `wholly`: of each of them."""

    def __init__(self, brokers: Mosquittos, name: str, every: int, seed: int = 1, *, wholly: bool = False) -> None:
        self.every, self.altered, self._wholly = every, 0, wholly
        self._random = random.Random(seed)
        self._seen = 0
        self._brokers, self._name = brokers, name
        self._listening = threading.Event()
        self._ends: Callable[[], object] = lambda: None

    @contextlib.contextmanager
    def running(self) -> Iterator[CorruptingHop]:
        thread = threading.Thread(target=asyncio.run, args=(self._serve(),))
        thread.start()
        try:
            assert self._listening.wait(10)
            yield self
        finally:
            self._ends()
            thread.join(10)

    async def _serve(self) -> None:
        here = self._brokers.directory / self._name
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(here / "cert.pem", here / "key.pem")
        ended = asyncio.Event()
        self._ends = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
        port = self._brokers.fronts[self._name]
        server = await asyncio.start_server(self._connected, "127.0.0.1", port, ssl=context)
        self._listening.set()
        await ended.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context = ssl.create_default_context(cafile=str(self._brokers.directory / self._name / "ca.pem"))
        try:
            port = self._brokers.ports[self._name]
            far_reader, far_writer = await asyncio.open_connection("localhost", port, ssl=context)
        except OSError:
            writer.close()
            return
        ways = [self._pass(reader, far_writer, "server"), self._pass(far_reader, writer, "client")]
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the end of the test
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            for each in (writer, far_writer):
                each.transport.abort()

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, role: Literal["server", "client"]
    ) -> None:
        decoder = Decoder(None if role == "server" else Version.V5, PACKET_BYTES, role)
        try:
            while data := await source.read(65536):
                for packet in decoder.feed(data):
                    sink.write(encode(self._perhaps(packet, role), Version.V5))
                assert decoder.error is None, decoder.error
                await sink.drain()
        finally:
            sink.close()

    def _perhaps(self, packet: Packet, role: str) -> Packet:
        if not isinstance(packet, Publish):
            return packet
        self._seen += 1
        if not self.every or self._seen % self.every:
            return packet
        self.altered += 1
        return self._alter(packet, 1 if role == "server" else 2)

    def _alter(self, packet: Publish, by: int) -> Publish:
        """What stays valid MQTT: the broker must not notice, else it would hang up. `by`: differs from way to way, so
        that the second does not undo the first."""
        user, payload = list(packet.properties.user), bytearray(packet.payload)
        parts = range(len(user) + 1)
        for which in parts if self._wholly else [self._random.choice(parts)]:
            if which == len(user) and payload:
                payload[self._random.randrange(len(payload))] ^= by
            elif which < len(user):
                name, value = user[which]
                at = self._random.randrange(len(value))
                other = ALPHABET[(ALPHABET.index(value[at]) + by) % len(ALPHABET)]
                user[which] = (name, value[:at] + other + value[at + 1 :])
        properties = replace(packet.properties, user=tuple(user))
        return replace(packet, payload=bytes(payload), properties=properties)
