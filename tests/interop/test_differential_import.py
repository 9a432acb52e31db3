"""One script of client actions against a Mosquitto and against the broker that `veilmq import` makes of its files.

What clients see is written down step by step and compared. It is the same, or the import has said that it will not be:
then the difference stands in the site's table, with the words of the report that announced it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.base import load
from gateway.broker.running import make_broker
from gateway.cli import run
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from tests import forking
from tests.gateway.harness import Wire, cut_all
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ
from tests.ports import free_ports
from tests.waits import wait_until

pytestmark = pytest.mark.skipif(shutil.which("mosquitto") is None, reason="no mosquitto here; make tools")
WAIT_S = 20.0
USERS = {"ann": "pw-ann", "bob": "pw-bob", "boss": "pw-boss"}
ACL = """
topic read public/#
topic write inbox/+
user ann
topic readwrite plant/#
topic deny plant/secret
topic read orders/#
user boss
topic readwrite #
pattern readwrite home/%u/#
pattern write device/%c/up
"""
SYS = "$SYS/"


@dataclass(frozen=True)
class Conf:
    """A configuration of Mosquitto. `{p0}` to `{p3}`: free ports; `{dir}`: its directory. `listeners`: of the ports,
    which are tried. `differs`: steps that are other after the import, by the words of its report that announced it."""

    name: str
    conf: str
    listeners: tuple[int, ...] = (0,)
    differs: dict[str, str] = field(default_factory=dict)
    watcher: str | None = "boss"


NOT_REFUSED = "CONNACK does not refuse them"
FULL = {"waited": "the oldest message goes"}
SITES = [
    Conf("anybody", "listener {p0} 127.0.0.1\nallow_anonymous true\n", watcher=None),
    Conf("users", "listener {p0} 127.0.0.1\npassword_file {dir}/pw\n"),
    Conf("users and guests", "listener {p0} 127.0.0.1\npassword_file {dir}/pw\nallow_anonymous true\n"),
    Conf("rights", "listener {p0} 127.0.0.1\npassword_file {dir}/pw\nallow_anonymous true\nacl_file {dir}/acl\n"),
    Conf(
        "bounds",
        "listener {p0} 127.0.0.1\npassword_file {dir}/pw\nmax_packet_size 3000\nmax_queued_messages 8\n"
        "max_inflight_messages 1\nretain_available false\n",
        differs=FULL | dict.fromkeys(("0 ann: offer", "0 bob: offer", "0 boss: offer"), NOT_REFUSED),
    ),
    Conf(
        "listeners",
        "per_listener_settings true\nlistener {p0} 127.0.0.1\npassword_file {dir}/pw\nlistener {p1} 127.0.0.1\n"
        "allow_anonymous true\n",
        listeners=(0, 1),
        differs={
            "1 anonymous": "nobody gets in without a login",
            "1 wrong password": "it was of some listeners; here it counts for all of them",
        },
    ),
    Conf(
        "included",
        "listener {p0} 127.0.0.1\npassword_file {dir}/pw\ninclude_dir {dir}/conf.d\n",
        differs=FULL,
    ),
    Conf(
        "least QoS",
        "listener {p0} 127.0.0.1\npassword_file {dir}/pw\nmax_qos 1\n",
        differs=dict.fromkeys(("0 ann: offer", "0 bob: offer", "0 boss: offer", "QoS 2"), "clients may use every QoS"),
    ),
]  # fmt: skip


class Port:
    """What `Wire` needs of a broker: a port for each listener."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports

    def port(self, listener: str) -> int:
        return self._ports[int(listener)]


class Script:
    """Actions of clients, and what each of them saw. The same for every broker."""

    def __init__(self, ports: list[int], site: Conf) -> None:
        self._at: Any = Port(ports)
        self._site = site
        self.seen: dict[str, Any] = {}

    async def run(self) -> dict[str, Any]:
        try:
            for listener in self._site.listeners:
                for who in ("anonymous", "wrong password", *USERS):
                    await self._one(str(listener), who)
            await self._will()
            await self._away()
        finally:
            cut_all()
        return self.seen

    async def _connect(self, listener: str, who: str, client_id: str = "", **fields: Any) -> Wire | None:
        login: dict[str, Any] = {"username": who, "password": USERS.get(who, "wrong").encode()}
        if who in ("anonymous", None):
            login = {}
        elif who == "wrong password":
            login["username"] = "ann"
        wire = await Wire.open(self._at, fields.pop("version", Version.V5), listener)
        properties = Properties(**fields.pop("properties", {}))
        wire.send(
            Connect(client_id or f"c-{who}".replace(" ", "-"), wire.version, properties=properties, **login, **fields)
        )
        packet = await wire.next()
        wire.connack = packet if isinstance(packet, ConnAck) else None
        return wire if wire.connack is not None and wire.connack.code == 0 else None

    async def _one(self, listener: str, who: str) -> None:
        """Everything that one user tries at one listener, with both versions of MQTT."""
        mark = f"{listener} {who}"
        for version in (Version.V311, Version.V5):
            wire = await self._connect(listener, who, version=version)
            self.seen[f"{mark}: connect" if version is Version.V5 else f"{mark}: connect with 3.1.1"] = wire is not None
            if wire is None:
                continue
            offer = wire.connack.properties if wire.connack is not None else Properties()
            if version is Version.V5:
                self.seen[f"{mark}: offer"] = (offer.maximum_qos, offer.retain_available)
            await self._topics(wire, f"{mark} {version.name}")
            wire.cut()

    async def _topics(self, wire: Wire, mark: str) -> None:
        watcher = await self._connect("0", self._site.watcher or "anonymous", "watcher")
        assert watcher is not None
        await watcher.subscribe("#", 1)
        is_refusing = wire.version is Version.V5
        for topic in ("plant/1", "plant/secret", "public/x", "inbox/x", "home/ann/light", "home/bob/light",
                      f"device/{mark.split()[1]}/up", "orders/1"):  # fmt: skip
            code = await self._publish(wire, topic, mark.encode())
            if is_refusing:
                self.seen[f"{mark}: publish to {topic}"] = code < 0x80
            self.seen[f"{mark}: {topic} is delivered"] = (topic, mark.encode()) in await self._delivered(watcher)
        for topic in ("plant/#", "plant/secret", "public/#", "orders/#", "home/+/light", "#", "$share/g/plant/#"):
            code = await wire.subscribe(topic, 1)
            if topic in ("plant/secret",):
                continue  # whether a filter is refused or delivers nothing is a broker's own business
            for name in ("plant/2", "orders/2", "plant/secret"):
                await self._publish(watcher, name, b"to " + topic.encode())
                await self._delivered(watcher)
            self.seen[f"{mark}: {topic} gets"] = sorted({one for one, _ in await self._delivered(wire)})
            self.seen[f"{mark}: {topic} is granted or delivers nothing"] = (
                code < 0x80 or not self.seen[f"{mark}: {topic} gets"]
            )
            await self._unsubscribe(wire, topic)
        watcher.cut()

    async def _publish(self, wire: Wire, topic: str, payload: bytes, **fields: Any) -> int:
        """The code of the PUBACK; deliveries before it stay to be read."""
        wire.publish(topic, payload, 1, **fields)
        before: list[Packet] = []
        while not isinstance(packet := await wire.next(), PubAck):
            assert packet is not None, "closed"
            before.append(packet)
        wire._packets = before + wire._packets
        return packet.code

    async def _unsubscribe(self, wire: Wire, topic: str) -> None:
        wire.send(Unsubscribe(wire.new_id(), (topic,)))
        while not isinstance(packet := await wire.next(), UnsubAck):
            assert packet is not None, "closed"

    async def _delivered(self, wire: Wire) -> list[tuple[str, bytes]]:
        """Until nothing more comes: a broker may send one at a time."""
        found: list[tuple[str, bytes]] = []
        while messages := await wire.published():
            found += [one for one in messages if not one[0].startswith(SYS)]
        return found

    async def _will(self) -> None:
        who = self._site.watcher or "anonymous"
        reader = await self._connect("0", who, "reader")
        assert reader is not None
        await reader.subscribe("plant/will", 1)
        for properties in ({}, {"session_expiry_s": 100}):
            dying = await self._connect(
                "0", who, "dying", will=Will("plant/will", b"gone", 1, False), properties=properties
            )
            assert dying is not None
            dying.cut()
            packet = await reader.next()
            assert isinstance(packet, Publish)
            self.seen[f"will {bool(properties)}"] = (packet.topic, packet.payload, packet.qos)
            reader.send(PubAck(packet.packet_id))
        reader.cut()

    async def _away(self) -> None:
        """What waits for a client that is away, retained messages, sizes, and a QoS 2 handshake."""
        who = self._site.watcher or "anonymous"
        kept: dict[str, Any] = {"clean_start": False, "properties": {"session_expiry_s": 300}}
        away = await self._connect("0", who, "away", **kept)
        assert away is not None
        await away.subscribe("plant/q", 1)
        away.send(Disconnect())
        await away.closed()
        writer = await self._connect("0", who, "writer")
        assert writer is not None
        for number in range(12):
            await self._publish(writer, "plant/q", str(number).encode())
        assert writer.connack is not None
        offer = writer.connack.properties
        if offer.retain_available in (None, True):
            await self._publish(writer, "plant/kept", b"kept", retain=True)
        if offer.maximum_qos is None:
            packet_id = writer.publish("plant/two", b"two", 2)
            self.seen["QoS 2"] = [(await writer.expect(PubRec)).code]
            writer.send(PubRel(packet_id))
            self.seen["QoS 2"].append((await writer.expect(PubComp)).code)
        again = await self._connect("0", who, "away", **kept)
        self.seen["session is there"] = (
            again is not None and again.connack is not None and again.connack.session_present
        )
        if again is not None:
            self.seen["waited"] = [payload for _, payload in await self._delivered(again)]
        late = await self._connect("0", who, "late")
        assert late is not None
        await late.subscribe("plant/kept", 1)
        self.seen["retained"] = [payload for _, payload in await self._delivered(late)]
        for size in (2_000, 5_000):
            big = await self._connect("0", who, "big")
            assert big is not None
            big.publish("plant/big", b"x" * size, 1)
            packet = await big.next()
            self.seen[f"{size} bytes"] = isinstance(packet, PubAck) and packet.code < 0x80
            big.cut()


@contextlib.contextmanager
def mosquitto(conf: Path, port: int) -> Any:
    with (conf.parent / "mosquitto.log").open("ab") as log:
        process = subprocess.Popen(["mosquitto", "-c", str(conf)], stdout=log, stderr=log)
    try:
        assert wait_until(lambda: listens(port), WAIT_S, every_s=0.05), (conf.parent / "mosquitto.log").read_text()
        yield
    finally:
        process.terminate()
        process.wait(20)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.asynccontextmanager
async def ours(folder: Path) -> AsyncIterator[None]:
    broker = make_broker(load(folder / "broker.yaml"))
    await broker.start()
    try:
        yield
    finally:
        await broker.shutdown()
        cut_all()


def write(directory: Path, conf: str, ports: list[int]) -> Path:
    for user, password in USERS.items():
        new = ["-c"] if user == "ann" else []
        subprocess.run(["mosquitto_passwd", "-b", *new, directory / "pw", user, password], check=True, timeout=30)
    (directory / "acl").write_text(ACL)
    (directory / "conf.d").mkdir()
    (directory / "conf.d" / "a.conf").write_text("allow_anonymous true\nmax_queued_messages 3\n")
    (directory / "conf.d" / "B.conf").write_text("allow_anonymous false\nmax_queued_messages 6\n")
    path = directory / "mosquitto.conf"
    numbers = {f"p{number}": port for number, port in enumerate(ports)}
    path.write_text("user root\nsys_interval 0\nset_tcp_nodelay true\n" + conf.format(dir=directory, **numbers))
    return path


@pytest.mark.parametrize("site", SITES, ids=[site.name for site in SITES])
def test_clients_see_no_other_or_were_told(tmp_path: Path, site: Conf, capsys: pytest.CaptureFixture[str]) -> None:
    ports = free_ports(4)
    path = write(tmp_path, site.conf, ports)
    with mosquitto(path, ports[0]):
        theirs = asyncio.run(Script(ports, site).run())
    assert run(["import", str(path), "-o", str(tmp_path / "new")]) == 0
    said = capsys.readouterr().out

    async def here() -> dict[str, Any]:
        async with ours(tmp_path / "new"):
            return await Script(ports, site).run()

    found = asyncio.run(here())
    assert any(theirs.values())
    other = {
        step: (theirs.get(step), found.get(step)) for step in theirs | found if theirs.get(step) != found.get(step)
    }
    unannounced = {
        step: two for step, two in other.items() if not any(step.startswith(known) for known in site.differs)
    }
    assert not unannounced
    for known, words in site.differs.items():
        assert words in said, "the report says so"
        assert any(step.startswith(known) for step in other), f"{known} is no longer other; take it out of the table"


PERSISTENT = "listener {p0} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {dir}\n"


async def _fill(port: int) -> None:
    """Sessions with queues, and retained messages."""
    at: Any = Port([port])
    try:
        for client_id, version in (("old", Version.V311), ("new", Version.V5)):
            properties = {"properties": {"session_expiry_s": 300}} if version is Version.V5 else {}
            wire = await Wire.connect(at, client_id, version, listener="0", clean_start=False, **properties)
            await wire.subscribe("q/+", 1, **({"identifier": 9} if version is Version.V5 else {}))
            wire.send(Disconnect())
            await wire.closed()
        writer = await Wire.connect(at, "writer", listener="0")
        for number in range(5):
            writer.publish("q/1", str(number).encode(), 1, properties={"user": (("n", str(number)),)})
            await writer.expect(PubAck)
        for topic in ("r/1", "r/2", "cleared"):
            writer.publish(topic, topic.encode(), 1, retain=True, properties={"content_type": "text"})
            await writer.expect(PubAck)
        writer.publish("cleared", b"", 1, retain=True)
        await writer.expect(PubAck)
    finally:
        cut_all()


async def _kept(port: int) -> dict[str, Any]:
    """What the clients of `_fill` find when they come back."""
    at: Any = Port([port])
    seen: dict[str, Any] = {}
    try:
        for client_id, version in (("old", Version.V311), ("new", Version.V5)):
            properties = {"properties": {"session_expiry_s": 300}} if version is Version.V5 else {}
            wire = await Wire.connect(at, client_id, version, listener="0", clean_start=False, **properties)
            assert wire.connack is not None
            messages = [one for one in await wire.barrier() if isinstance(one, Publish)]
            seen[client_id] = (
                wire.connack.session_present,
                [
                    (m.topic, m.payload, m.qos, m.retain, m.properties.user, m.properties.subscription_ids)
                    for m in messages
                ],
            )
            wire.send(*(PubAck(one.packet_id) for one in messages))
            wire.publish("q/2", b"subscribed still", 1)
            await wire.expect(Publish)
        reader = await Wire.connect(at, "reader", listener="0")
        await reader.subscribe("#", 1)
        retained = [one for one in await reader.barrier() if isinstance(one, Publish)]
        seen["retained"] = sorted((m.topic, m.payload, m.retain, m.properties.content_type or "") for m in retained)
    finally:
        cut_all()
    return seen


def test_what_was_kept_is_there_as_it_would_be_at_mosquitto(tmp_path: Path) -> None:
    ports = free_ports(4)
    path = write(tmp_path, PERSISTENT, ports)
    with mosquitto(path, ports[0]):
        asyncio.run(_fill(ports[0]))
    assert run(["import", str(path), "-o", str(tmp_path / "new")]) == 0
    with mosquitto(path, ports[0]):
        theirs = asyncio.run(_kept(ports[0]))

    async def here() -> dict[str, Any]:
        async with ours(tmp_path / "new"):
            return await _kept(ports[0])

    assert asyncio.run(here()) == theirs
    assert theirs["old"][0]
    assert len(theirs["new"][1]) == 6, "five, and what the other client published"
    assert len(theirs["retained"]) == 2


BRIDGE = (
    "listener {p0} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {dir}\n"
    "connection head\naddress 127.0.0.1:{p1}\nremote_clientid site7\nrestart_timeout 1\nnotifications false\n"
    "topic # out 1 plant/ site7/plant/\ntopic # in 1 orders/ site7/orders/\n"
)


async def _crossing(ports: list[int]) -> dict[str, Any]:
    """What comes to either side for what is published at the other. A topic that does not cross is followed by one
    that does."""
    at: Any = Port(ports)
    seen: dict[str, Any] = {}
    try:
        sides = {name: await Wire.connect(at, f"at-{name}", listener=name) for name in ("0", "1")}
        for wire in sides.values():
            await wire.subscribe("#", 1)
        for source, target, topics in (
            ("0", "1", ("orders/no", "plant/9")),
            ("1", "0", ("plant/no", "site7/orders/9")),
        ):
            for topic in topics:
                sides[source].publish(topic, b"now", 1)
            seen[source] = await _until(sides[target], topics[-1].rpartition("/")[2])
            await _until(sides[source], topics[-1].rpartition("/")[2])
    finally:
        cut_all()
    return seen


async def _until(wire: Wire, last: str) -> list[tuple[str, bytes]]:
    """Messages up to the one whose topic ends so, without those that had waited: they may be there before we are."""
    found: list[tuple[str, bytes]] = []
    async with asyncio.timeout(WAIT_S):
        while not found or found[-1][0].rpartition("/")[2] != last:
            packet = await wire.next()
            assert packet is not None, "closed"
            if isinstance(packet, Publish) and not packet.topic.startswith(SYS) and not packet.topic.endswith("waited"):
                found.append((packet.topic, packet.payload))
                wire.send(PubAck(packet.packet_id))
    return sorted(found)


@pytest.mark.timeout(120)
def test_what_waits_for_a_bridge_crosses_the_bridge_that_is_made_of_it(tmp_path: Path) -> None:
    """Messages for the other end that came while it was away, then both directions; each side subscribes before."""
    ports = free_ports(4)
    path = write(tmp_path, BRIDGE, ports)
    head = tmp_path / "head.conf"
    head.write_text(f"user root\nlistener {ports[1]} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n")

    async def leave(port: int) -> None:
        wire = await Wire.connect(Port([port]), "writer", listener="0")  # type: ignore[arg-type]
        for number in range(5):
            wire.publish("plant/waited", str(number).encode(), 1)
            await wire.expect(PubAck)
        cut_all()

    with mosquitto(path, ports[0]):
        asyncio.run(leave(ports[0]))
    assert run(["import", str(path), "-o", str(tmp_path / "new")]) == 0

    async def keep(port: int) -> None:
        wire = await Wire.connect(
            Port([port]),
            "keeper",
            listener="0",
            clean_start=False,
            properties={"session_expiry_s": 300},  # type: ignore[arg-type]
        )
        await wire.subscribe("site7/plant/waited", 1)
        wire.send(Disconnect())
        await wire.closed()
        cut_all()

    async def fetch(port: int) -> list[bytes]:
        wire = await Wire.connect(
            Port([port]),
            "keeper",
            listener="0",
            clean_start=False,
            properties={"session_expiry_s": 300},  # type: ignore[arg-type]
        )
        found = [payload for _, payload in await wire.published()]
        cut_all()
        return found

    def both(site: Any) -> tuple[Any, Any]:
        with mosquitto(head, ports[1]):
            asyncio.run(keep(ports[1]))
            with site:
                assert wait_until(lambda: listens(ports[0]), WAIT_S, every_s=0.05)
                seen = asyncio.run(_crossing(ports))
            return seen, asyncio.run(fetch(ports[1]))

    theirs = both(mosquitto(path, ports[0]))
    assert both(process(tmp_path / "new")) == theirs
    assert theirs[1] == [str(number).encode() for number in range(5)]


@contextlib.contextmanager
def process(folder: Path) -> Any:
    """`veilmq broker` on the imported files, with its bridges."""
    command, log = [*VEILMQ, "-c", str(folder / "broker.yaml")], folder / "log"
    broker = forking.run(command, None, ENVIRONMENT, log, log)
    try:
        yield
    finally:
        broker.terminate()
        broker.wait(30)
