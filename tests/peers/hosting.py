"""A region of three brokers of others, each behind a front of TLS, and two gateways of ours that seal over them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.trust.domains import TrustDomain
from keys.identity import Role
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ
from tests.interop.hosted_region import GATEWAYS, Region
from tests.peers.brokers import BrokerPeer, Running
from tests.ports import free_ports
from tests.waits import wait_until

NAMES = ("cloud-a", "cloud-b", "cloud-c")
NUMBER = 20
ARRIVE_S = 60.0
"""Seconds until sealed messages come through: the gateways' links to all brokers need some at the first time."""
PROBE_S = 300.0
"""Seconds for `veilmq check --probe`, which waits for what does not come."""
_REASON = 90
"""Characters of a reason that the table shows."""


class Front:
    """TLS in front of a broker that is started without: it passes bytes on, as a provider's balancer does."""

    def __init__(self, port: int, target: int, directory: Path) -> None:
        self._port, self._target, self._directory = port, target, directory
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Front:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *of_error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._directory / "cert.pem", self._directory / "key.pem")

        async def start() -> None:
            await asyncio.start_server(self._connected, "127.0.0.1", self._port, ssl=context)

        self._loop.run_until_complete(start())
        self._ready.set()
        self._loop.run_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        ways = [asyncio.ensure_future(_pass(*way)) for way in ((reader, far_writer), (far_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for each in (writer, far_writer):
            each.transport.abort()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()


class Hosts:
    """Three brokers of one kind, as `hosted_region.Region` describes them: `ports` are those of their fronts."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.names = directory, NAMES
        self.ports = self.fronts = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        for name in NAMES:
            domain = TrustDomain.create(directory / f"ca-{name}", f"{name}.example", time.time())
            domain.issue(name, Role.REPLICA, ("localhost", "127.0.0.1"), directory / name, time.time())
            for gateway in GATEWAYS:
                file = directory / f"{gateway}-{name}.password"
                file.touch(0o600)
                file.write_text("any will do\n")


@contextlib.contextmanager
def hosted(peer: BrokerPeer, directory: Path) -> Iterator[tuple[Region, list[Running]]]:
    """Runs the brokers with their fronts; the gateways are described and not started."""
    directory.mkdir(parents=True)
    hosts, region = Hosts(directory), Region(directory)
    brokers = [Running(peer, free_ports(peer.ports), directory / f"broker-{name}") for name in NAMES]
    with contextlib.ExitStack() as stack:
        for name, broker in zip(NAMES, brokers, strict=True):
            broker.directory.mkdir()
            stack.callback(broker.stop)
            broker.start()
            stack.enter_context(Front(hosts.ports[name], broker.port("5"), directory / name))
        region.describe_hosted(hosts)
        stack.callback(region.stop)
        yield region, brokers


def hosted_answer(peer: BrokerPeer, directory: Path) -> str:
    """Returns whether gateways seal over three brokers of this kind, or why not."""
    if "5" not in peer.versions:
        return "no: no MQTT 5"
    with hosted(peer, directory) as (region, brokers):
        region.start(*GATEWAYS)
        if not _passes(region, b"first"):
            return f"no: {_reason(directory)}"
        brokers[0].stop()
        return "yes" if _passes(region, b"second") else "yes, while all three are there"


def _passes(region: Region, word: bytes) -> bool:
    """Publishes until a message crosses, then a number of them; returns whether all came once and in order."""
    got = list[bytes]()
    reader, writer = (region.client(name, f"{name}-{word.decode()}") for name in reversed(GATEWAYS))
    reader.on_message = lambda _, __, message: got.append(bytes(message.payload))
    reader.subscribe("plant/#", 1)
    up = wait_until(lambda: writer.publish("plant/up", word, 1) and bool(got), ARRIVE_S)
    sent = [word + b" %d" % number for number in range(NUMBER)]
    for payload in sent if up else ():
        writer.publish("plant/x", payload, 1)
    came = up and wait_until(lambda: sent[-1] in got, ARRIVE_S)
    for client in (reader, writer):
        client.disconnect()
        client.loop_stop()
    return bool(came) and [one for one in got if one != word] == sent


def _reason(directory: Path) -> str:
    """Returns what `veilmq check --probe` says of the first broker."""
    command = [sys.executable, *VEILMQ[:-1], "check", "-c", "site.yaml", "--probe", "plant/line1/temp"]
    try:
        done = subprocess.run(
            command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=PROBE_S, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"nothing came, and the probe has no answer within {PROBE_S:g} s"
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if NAMES[0] in line]
    return (lines or ["nothing came"])[-1][:_REASON]
