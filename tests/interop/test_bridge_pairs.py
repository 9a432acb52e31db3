"""What crosses a bridge to which broker how, also when the link is cut at each step of a handshake.

    make peers                                                # installs the brokers
    python -m pytest -s -m slow tests/interop/test_bridge_pairs.py     # prints the tables of docs/how-to/mosquitto.md

With MOSQUITTO=PROGRAM another Mosquitto has rows of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.base import BridgeSettings
from gateway.base.config import parse
from gateway.bridged import make_bridges
from gateway.bridging import Bridge
from gateway.client import redial
from tests.conftest import ROOT, ThreadedBroker
from tests.peers.brokers import BROKERS, LOGIN, MOSQUITTO, OURS, BrokerPeer, Running, running
from tests.peers.cutting import NAMES, STEPS, Cutter
from tests.waits import wait_until

PAGE = ROOT / "docs" / "how-to" / "mosquitto.md"
HEAD = (
    "other broker",
    "MQTT",
    "direction",
    "order",
    "QoS",
    "RETAIN",
    "user properties",
    "expiry",
    "will",
    "after cuts",
)
RINGS = ("other broker", "MQTT", "one way", "both ways")
WAYS = (("out", False), ("in", True), ("both", False), ("both", True))
"""Directions of the bridge, and whether messages are looked at that come in by it."""
NUMBER = 20
EXPIRY_S = 100
PATIENCE_S = 20.0
"""Seconds for a message that may be lost: enough for the new connections after a cut."""
NEVER_S = 1.5
"""Seconds in which a copy that should not come would have come."""
_ids = itertools.count()


@dataclass(frozen=True)
class Place:
    """A broker as a client sees it: port, MQTT version, and whether it wants a login."""

    port: int
    version: str
    login: bool = False


class Client:
    """A paho client with the messages that it got."""

    def __init__(self, at: Place, will: str = "") -> None:
        self.messages: list[paho.MQTTMessage] = []
        self.version = at.version
        self._answers = 0
        self._changed = threading.Condition()
        protocol = paho.MQTTv5 if at.version == "5" else paho.MQTTv311
        self.client = paho.Client(CallbackAPIVersion.VERSION2, f"client-{next(_ids)}", protocol=protocol)
        if at.login:
            self.client.username_pw_set(*LOGIN)
        if will:
            self.client.will_set(will, b"will", 1)
        self.client.on_message = lambda _, __, message: self._note(message)
        self.client.on_subscribe = self.client.on_connect = lambda *_: self._note(None)
        self.client.connect("127.0.0.1", at.port)
        self.client.loop_start()
        assert self._answered(1)

    def _note(self, message: paho.MQTTMessage | None) -> None:
        with self._changed:
            if message is None:
                self._answers += 1
            else:
                self.messages.append(message)
            self._changed.notify_all()

    def _answered(self, number: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._answers >= number, PATIENCE_S)

    def subscribe(self, topic_filter: str) -> Client:
        self.client.subscribe(topic_filter, 2)
        assert self._answered(2)
        return self

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False, rich: bool = False) -> None:
        properties = None
        if rich and self.version == "5":
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = ("unit", "kelvin")
            properties.MessageExpiryInterval = EXPIRY_S
        self.client.publish(topic, payload, qos, retain, properties)

    def got(self, payload: bytes, seconds: float = PATIENCE_S) -> list[paho.MQTTMessage]:
        """Messages with this payload, once there is one or the time is over."""
        found: Callable[[], list[paho.MQTTMessage]] = lambda: [one for one in self.messages if one.payload == payload]  # noqa: E731
        with self._changed:
            self._changed.wait_for(found, seconds)
            return found()

    def first(self, seconds: float) -> paho.MQTTMessage | None:
        """The first message at all, or None when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.messages, seconds)
            return self.messages[0] if self.messages else None

    def die(self) -> None:
        socket = self.client.socket()
        assert socket is not None
        self.client._reconnect_on_failure = False
        socket.shutdown(2)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def toward(port: int, version: str, direction: str, login: bool, qos: int = 2) -> dict[str, Any]:
    topic = {"filter": "x/#", "direction": direction, "qos": qos}
    known = {"username": LOGIN[0]} if login else {}
    return {"addresses": [f"127.0.0.1:{port}"], "version": version, "topics": [topic], **known}


@contextlib.contextmanager
def ours(directory: Path, **ways: dict[str, Any]) -> Iterator[Place]:
    """Our broker with bridges, in a thread."""
    directory.mkdir(parents=True, exist_ok=True)
    password = directory / "password"
    password.touch(0o600)
    password.write_text(LOGIN[1])
    settings = {
        name: BridgeSettings.model_validate({**one, **({"password_file": str(password)} if "username" in one else {})})
        for name, one in ways.items()
    }
    broker = ThreadedBroker(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, "allow_anonymous": True})).start()
    assert broker.loop is not None
    bridges = list[Bridge]()

    async def begin() -> None:
        bridges.extend(make_bridges(settings, broker.broker, None, f"ours-{next(_ids)}"))
        for each in bridges:
            each.start()

    async def end() -> None:
        for each in bridges:
            await each.stop()

    asyncio.run_coroutine_threadsafe(begin(), broker.loop).result(10)
    try:
        yield Place(broker.port(), "5")
    finally:
        asyncio.run_coroutine_threadsafe(end(), broker.loop).result(10)
        broker.stop()


def crosses(source: Client, target: Client, word: bytes = b"probe", seconds: float = 60) -> bool:
    """Waits until the bridge passes messages; returns whether it does."""
    return wait_until(lambda: source.publish("x/probe", word, 0) or target.got(word, 0.3), seconds)


# --------------------------------------------------------------------------------------------- one row


def cells(source: Place, target: Place, cutter: Cutter) -> list[str]:
    """Cells of one row, from `order` on."""
    reader, writer = Client(target).subscribe("x/#"), Client(source)
    if not crosses(writer, reader, seconds=PATIENCE_S):
        return ["nothing crosses", *["–"] * (len(HEAD) - 4)]
    for number in range(NUMBER):
        writer.publish(f"x/{number}", b"order")
    for qos in (0, 1, 2):
        writer.publish("x/qos", b"qos %d" % qos, qos, rich=True)
    writer.publish("x/state", b"on", 1, retain=True)
    Client(source, will="x/will").die()
    will = reader.got(b"will")
    writer.publish("x/last", b"last")
    reader.got(b"last")
    by_qos = {qos: reader.got(b"qos %d" % qos, 3) for qos in (0, 1, 2)}
    order = [one.topic for one in reader.messages if one.payload == b"order"]
    once = order == [f"x/{number}" for number in range(NUMBER)]
    is_kept = _keeps(target)
    cut = after_cuts(writer, reader, cutter)
    state = "kept" if is_kept else "from the next connection on" if _keeps(target) else "lost"
    rich = (by_qos[1] or by_qos[2] or by_qos[0] or [None])[0]
    for each in (reader, writer):
        each.close()
    return [
        "kept" if once else f"{len(set(order))} of {NUMBER}, {len(order)} copies", _by_qos(by_qos), state,
        *_properties(source, target, rich), f"QoS {will[0].qos}" if will else "lost", cut,
    ]  # fmt: skip


def _by_qos(found: dict[int, list[paho.MQTTMessage]]) -> str:
    arrived = {sent: f"{got[0].qos}" if got else "lost" for sent, got in found.items()}
    return ", ".join(str(sent) if str(sent) == came else f"{sent} → {came}" for sent, came in arrived.items())


def _keeps(target: Place) -> bool:
    later = Client(target).subscribe("x/state")
    found = any(one.retain for one in later.got(b"on", NEVER_S))
    later.close()
    return found


def _properties(source: Place, target: Place, message: paho.MQTTMessage | None) -> tuple[str, str]:
    if "3.1.1" in (source.version, target.version):
        return "–", "–"
    properties = getattr(message, "properties", None)
    user = dict(getattr(properties, "UserProperty", []))
    left = getattr(properties, "MessageExpiryInterval", None)
    expiry = "lost" if left is None else "counts down" if left <= EXPIRY_S else f"{left} s of {EXPIRY_S}"
    return "kept" if user.get("unit") == "kelvin" else "lost", expiry


def after_cuts(writer: Client, reader: Client, cutter: Cutter) -> str:
    """Copies of each message whose handshake over the bridge was cut at one of its steps."""
    found = []
    for qos, steps in STEPS.items():
        copies: dict[int, int] = {}
        for step in steps:
            payload, before = b"cut %d %d %d" % (qos, step, next(_ids)), cutter.cuts
            cutter.lose(step)
            writer.publish("x/cut", payload, qos)
            if not wait_until(lambda before=before: cutter.cuts > before, 3):  # type: ignore[misc]
                cutter.lose(0)  # a broker that takes QoS 1 at most has no such step
            if not crosses(writer, reader, payload + b" over", PATIENCE_S):
                return f"stops when {NAMES[step]} of QoS {qos} is lost"
            copies[step] = len(reader.got(payload, 3))
        most = max(copies.values())
        lost = " and ".join(NAMES[step] for step, number in copies.items() if not number)
        well = f"{most} times" if most > 3 - qos else "at least once" if qos == 1 else "once"
        found.append(f"{qos} lost with {lost}" if lost else f"{qos} {well}")
    return ", ".join(found)


def row_cells(other: Running, version: str, direction: str, inwards: bool, directory: Path) -> list[str]:
    login = other.peer.login
    with (
        Cutter(other.port(version)) as cutter,
        ours(directory, m=toward(cutter.port, version, direction, login)) as here,
    ):
        best = other.peer.versions[0]
        there = Place(other.port(best), best, login)
        return cells(there, here, cutter) if inwards else cells(here, there, cutter)


def tried_cells(*of_row: Any) -> list[str]:
    """Cells of a row, also of a broker that ends meanwhile."""
    try:
        return row_cells(*of_row)
    except OSError:
        return ["the broker ends", *["–"] * (len(HEAD) - 4)]


def ring_cells(other: Running, version: str, direction: str, directory: Path) -> str:
    """How often subscribers at three brokers get a message: ours, the other one, ours, and back to the first."""
    login, port = other.peer.login, other.port(version)
    back = "in" if direction == "out" else "both"
    with contextlib.ExitStack() as stack:
        b = stack.enter_context(ours(directory / "b", m=toward(port, version, back, login)))
        a_ways = {"m": toward(port, version, direction, login), "b": toward(b.port, version, back, login=False)}
        a = stack.enter_context(ours(directory / "a", **a_ways))
        there = Place(other.port(other.peer.versions[0]), other.peer.versions[0], login)
        readers = [Client(at).subscribe("x/#") for at in (a, there, b)]
        writer = Client(a)
        if not all(crosses(writer, each, seconds=PATIENCE_S) for each in readers[1:]):
            return "does not come up"
        words = [b"ring %d" % next(_ids) for _ in range(3)]
        for word in words:
            writer.publish("x/1", word, 1, retain=word is words[-1])
            for each in readers:
                each.got(word)
        time.sleep(NEVER_S)
        counts = [sum(one.payload == word for one in each.messages) for each in readers for word in words]
        for each in (*readers, writer):
            each.close()
    return "once" if set(counts) == {1} else "lost" if not min(counts) else "more than once"


def tried_ring(other: Running, version: str, direction: str, directory: Path) -> str:
    """Cell of a ring, also of one whose broker ends meanwhile."""
    try:
        return ring_cells(other, version, direction, directory)
    except OSError:
        return "the broker ends"


# ---------------------------------------------------------------------------------------------- tests


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redial, "RETRY_FIRST_S", 0.02)
    monkeypatch.setattr(redial, "RETRY_MOST_S", 0.2)


@pytest.mark.tools
@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="no mosquitto here; make tools")
@pytest.mark.parametrize(("version", "inwards"), [("5", False), ("3.1.1", True)])
def test_all_of_it_crosses_to_and_from_mosquitto_through_cuts(version: str, inwards: bool, tmp_path: Path) -> None:
    with running(MOSQUITTO, tmp_path / "m") as other:
        found = row_cells(other, version, "in" if inwards else "out", inwards, tmp_path)
    rich = ["kept", "counts down"] if version == "5" else ["lost", "lost"]
    assert found == ["kept", "0, 1, 2", "kept", *rich, "QoS 1", "1 at least once, 2 once"]


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("peer", [OURS, *BROKERS], ids=lambda peer: peer.folder)
def test_the_rows_of_the_page_are_what_was_seen(peer: BrokerPeer, tmp_path: Path) -> None:
    """Rows of a broker that is not here are left as they are."""
    pairs, rings = list[list[str]](), list[list[str]]()
    if peer.source is not None and (why := peer.source.install()):
        pytest.skip(f"{peer.name} is not here: {why}")
    for version in peer.versions:
        with running(peer, tmp_path / f"{peer.folder}-{version}") as other:
            for number, (direction, inwards) in enumerate(WAYS):
                found = tried_cells(other, version, direction, inwards, tmp_path / f"{number}")
                label = direction if direction != "both" else f"both, {'in' if inwards else 'out'}"
                pairs.append([peer.title, version, label, *found])
                print(pairs[-1], flush=True)
        with running(peer, tmp_path / f"{peer.folder}-{version}-ring") as other:
            ways = [tried_ring(other, version, direction, tmp_path / direction) for direction in ("out", "both")]
        rings.append([peer.title, version, *ways])
        print(rings[-1], flush=True)
    text = "\n\n".join([table(HEAD, merged(pairs)), table(RINGS, rings)])
    print(f"\n{text}")
    page = PAGE.read_text("utf-8").splitlines()
    assert [line for line in text.splitlines() if line and line not in page] == []


def merged(rows: list[list[str]]) -> list[list[str]]:
    """Rows that differ by their direction alone as one."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, version, direction, *rest in rows:
        found.setdefault((name, version, *rest), []).append(direction)
    return [[name, version, _ways(ways), *rest] for (name, version, *rest), ways in found.items()]


def _ways(ways: list[str]) -> str:
    return "each" if len(ways) == 4 else "; ".join(ways)


def table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
