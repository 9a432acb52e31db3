"""The same script of client actions on one broker and on two gateways of an overlay, and what each client saw.

A script is a list of steps. Clients of side 0 are at gateway g1, those of side 1 at g2; with one broker all are there.
Three replicas and the gateways are real parties in this process, over real sockets. After each step the two gateways
have `WAIT_S` to show each client what one broker showed it; order counts between steps and, on one topic, within a
step. Times are compared to a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.base import load
from gateway.broker.edge_broker import EdgeBroker
from gateway.mqtt5.packets import (
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.types import ReasonCode
from gateway.overlay import BrokerOverlay
from gateway.setup import Plan, make_overlay
from gateway.testing import start_member
from tests.gateway.harness import Wire, cut_all, serving
from tests.ports import free_ports
from tests.waits import until

SCOPES = 24
"""Scopes `s0/#` to `s23/#`: scripts that run at one time have one each, so that each has first subscribers."""
WAIT_S = 6.0
"""How long the two gateways have to catch up after a step, on a busy machine."""
SURPLUS_S = 0.9
"""After the last step: what comes then is too much. Longer than a first subscriber waits for what was here before."""
LASTING = {"session_expiry_s": 100}


@dataclass(frozen=True)
class Join:
    """A client connects, or comes back to its session."""

    client: str
    side: int
    version: Version = Version.V5
    clean: bool = True


@dataclass(frozen=True)
class Leave:
    """A client's connection is lost; its session stays."""

    client: str


@dataclass(frozen=True)
class Say:
    """A publication. `extras`: properties of MQTT 5."""

    client: str
    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    extras: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Follow:
    """A subscription."""

    client: str
    topic_filter: str
    qos: int = 1
    no_local: bool = False
    as_published: bool = False
    handling: int = 0
    identifier: int = 0


@dataclass(frozen=True)
class Unfollow:
    """The end of a subscription."""

    client: str
    topic_filter: str


@dataclass(frozen=True)
class Die:
    """A client with a will connects, and its connection is lost."""

    client: str
    side: int
    topic: str
    payload: bytes
    retain: bool = False


@dataclass(frozen=True)
class Pass:
    """Time passes."""

    seconds: float


Step = Join | Leave | Say | Follow | Unfollow | Die | Pass


@dataclass(frozen=True, order=True)
class Seen:
    """One message as a client got it. `expiry_s`: what is left; -1: it does not expire."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    identifiers: tuple[int, ...] = ()
    extras: tuple[tuple[str, Any], ...] = ()
    expiry_s: int = field(default=-1, compare=False)

    def __repr__(self) -> str:
        more = "".join(
            f" {name}={value}" for name, value in (("ids", self.identifiers), ("extras", self.extras)) if value
        )
        return f"{self.topic} {self.payload!r} qos={self.qos} retain={int(self.retain)}{more} expiry={self.expiry_s}"


class Actor:
    """A client that acknowledges what it gets, and keeps it."""

    def __init__(self, name: str, wire: Wire) -> None:
        self.name, self.wire = name, wire
        self.seen: list[Seen] = []
        self._answers: asyncio.Queue[Packet] = asyncio.Queue()
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while True:
            try:
                packet = await self.wire.next()
            except TimeoutError:
                continue
            if packet is None:
                return
            match packet:
                case Publish():
                    self.seen.append(_seen(packet))
                    if packet.qos:
                        self.wire.send((PubAck if packet.qos == 1 else PubRec)(packet.packet_id))
                case PubRel(packet_id):
                    self.wire.send(PubComp(packet_id))
                case _:
                    self._answers.put_nowait(packet)

    async def ask(self, packet: Packet, kind: type[Any]) -> Any:
        self.wire.send(packet)
        async with asyncio.timeout(WAIT_S):
            while not isinstance(answer := await self._answers.get(), kind):
                pass
        return answer

    async def ask_after(self, packet: Packet) -> None:
        """Send it, and wait until the broker has read it."""
        self.wire.send(packet)
        await self.ask(PingReq(), PingResp)

    def leave(self) -> None:
        self.wire.cut()
        self._task.cancel()


def _seen(publish: Publish) -> Seen:
    of = publish.properties
    extras = {"user": of.user or None, "content_type": of.content_type, "response_topic": of.response_topic,
              "correlation_data": of.correlation_data, "payload_format": of.payload_format}  # fmt: skip
    expiry_s = -1 if of.message_expiry_s is None else of.message_expiry_s
    told = tuple((name, value) for name, value in extras.items() if value is not None)
    ids = tuple(sorted(of.subscription_ids))
    return Seen(publish.topic, publish.payload, publish.qos, publish.retain, ids, told, expiry_s)


class World:
    """Brokers by side, and the clients of one script there."""

    def __init__(self, brokers: Sequence[EdgeBroker], links: Sequence[BrokerOverlay] = ()) -> None:
        self.brokers, self.links = brokers, links
        self.actors: dict[str, Actor] = {}
        self.sides: dict[str, int] = {}
        self.seen: dict[str, list[Seen]] = {}

    async def do(self, step: Step, prefix: str) -> Any:
        """What the client is answered."""
        match step:
            case Join():
                wire = await self._connect(step, prefix)
                self.sides[step.client] = step.side
                actor = self.actors[step.client] = Actor(step.client, wire)
                actor.seen = self.seen.setdefault(step.client, actor.seen)
                return wire.connack and (wire.connack.code, wire.connack.session_present)
            case Leave():
                side = self.sides[step.client]
                self.actors.pop(step.client).leave()
                await self._is_gone(side, f"{prefix}/{step.client}")
            case Say():
                return await self._say(step, prefix)
            case Follow():
                ids = (step.identifier,) if step.identifier else ()
                topic_filter = _below(prefix, step.topic_filter)
                options = Subscription(topic_filter, step.qos, step.no_local, step.as_published, step.handling)
                wire = self.actors[step.client].wire
                packet = Subscribe(wire.new_id(), (options,), Properties(subscription_ids=ids))
                return (await self.actors[step.client].ask(packet, SubAck)).codes
            case Unfollow():
                actor = self.actors[step.client]
                packet = Unsubscribe(actor.wire.new_id(), (_below(prefix, step.topic_filter),))
                return (await actor.ask(packet, UnsubAck)).codes
            case Die():
                will = Will(_below(prefix, step.topic), step.payload, 1, step.retain)
                broker = self.brokers[step.side % len(self.brokers)]
                wire = await Wire.connect(broker, f"{prefix}/{step.client}", will=will)
                wire.cut()
                await self._is_gone(step.side, f"{prefix}/{step.client}")
        return None

    async def _connect(self, step: Join, prefix: str) -> Wire:
        broker = self.brokers[step.side % len(self.brokers)]
        lasting = {"properties": LASTING} if step.version == Version.V5 else {}
        return await Wire.connect(broker, f"{prefix}/{step.client}", step.version, clean_start=step.clean, **lasting)

    async def _say(self, step: Say, prefix: str) -> Any:
        actor = self.actors[step.client]
        extras = Properties(**dict(step.extras)) if actor.wire.version == Version.V5 else Properties()
        packet = Publish(
            _below(prefix, step.topic), step.payload, step.qos, step.retain,
            packet_id=actor.wire.new_id() if step.qos else 0, properties=extras,
        )  # fmt: skip
        if not step.qos:
            await actor.ask_after(packet)
            return None
        answer = await actor.ask(packet, PubAck if step.qos == 1 else PubRec)
        if step.qos == 2:
            await actor.ask(PubRel(packet.packet_id), PubComp)
        return answer.code >= 0x80

    async def rest(self) -> None:
        """Until brokers have answered all that was sent, and replicas have what was published."""
        for _ in range(2):
            for actor in self.actors.values():
                await actor.ask(PingReq(), PingResp)
        await until(lambda: not any(links.gauges()["outbox_depth"] for links in self.links))

    async def _is_gone(self, side: int, client_id: str) -> None:
        """Until the broker knows that the connection is lost."""
        clients = self.brokers[side % len(self.brokers)].lifecycle.clients
        await until(lambda: (client := clients.get(client_id)) is None or client.connection is None)

    def another(self) -> World:
        """The same brokers, for another script."""
        return World(self.brokers, self.links)

    async def end(self, prefix: str) -> None:
        """The clients go, and their sessions with them."""
        for name, actor in list(self.actors.items()):
            actor.leave()
            del self.actors[name]
        for broker in self.brokers:
            for client in list(broker.lifecycle.clients.values()):
                if client.peer is None and client.client_id.startswith(f"{prefix}/"):
                    broker.lifecycle.dismiss(client, ReasonCode.SESSION_TAKEN_OVER)
                    for action in client.session.end_session() if client.alive else ():
                        broker.lifecycle.perform(client, action)


def _below(prefix: str, topic: str) -> str:
    if topic.startswith("$share/"):
        _, group, rest = topic.split("/", 2)
        return f"$share/{group}/{prefix}/{rest}"
    return f"{prefix}/{topic}"


@contextlib.asynccontextmanager
async def two_gateways(directory: Path) -> AsyncIterator[World]:
    """Three replicas and two gateways of one region, all in this process, with sealed scopes."""
    made = make_overlay(
        directory / "site",
        Plan(key_servers=0, protect=tuple(f"s{number}/#" for number in range(SCOPES))),
        20_000 + free_ports(1)[0] % 3_000,
        time.time(),
    )
    async with contextlib.AsyncExitStack() as stack:
        members = {
            member.name: await start_member(
                load(made.folder(member).config).model_copy(update={"metrics": None, "sys_interval": 0}), stack
            )
            for member in made.members
        }
        stack.callback(cut_all)
        sides = [members[name] for name in ("g1", "g2")]
        await until(lambda: all(len(links.parts.dials.connected_peers) == 3 for _, links in sides))
        yield World([broker for broker, _ in sides], [links for _, links in sides])


@contextlib.asynccontextmanager
async def both_worlds(directory: Path) -> AsyncIterator[tuple[World, World]]:
    """One broker, and two gateways."""
    async with serving({"sys_interval": 0}) as broker, two_gateways(directory) as two:
        yield World([broker]), two


def _differs(one: Sequence[Seen], two: Sequence[Seen]) -> bool:
    """Whether what a client got in a step is not the same; order counts on each topic alone."""
    if Counter(one) != Counter(two):
        return True
    for topic in {s.topic for s in one}:
        pairs = zip(_of(topic, one), _of(topic, two), strict=True)
        if any(a != b or abs(a.expiry_s - b.expiry_s) > 1 for a, b in pairs):
            return True
    return False


def _of(topic: str, seen: Sequence[Seen]) -> list[Seen]:
    return [each for each in seen if each.topic == topic]


async def compare(one: World, two: World, script: Sequence[Step], prefix: str) -> str:
    """The first difference, in words; empty if there is none."""
    one.seen, two.seen = {}, {}
    try:
        for number, step in enumerate(script):
            before = {name: (len(one.seen[name]), len(two.seen[name])) for name in one.seen}
            if isinstance(step, Pass):
                await asyncio.sleep(step.seconds)
                continue
            said = await one.do(step, prefix)
            await one.rest()
            told = await two.do(step, prefix)
            await two.rest()
            if said != told:
                return f"step {number} {step}: one broker answers {said}, the gateway {told}"
            if difference := await _until_equal(one, two, before, WAIT_S):
                return f"step {number} {step}: {difference}"
        await asyncio.sleep(SURPLUS_S)
        before = dict.fromkeys(one.seen, (0, 0))
        if difference := await _until_equal(one, two, before, 0.0):
            return f"after the last step: {difference}"
        return ""
    finally:
        for world in (one, two):
            await world.end(prefix)


async def _until_equal(one: World, two: World, before: dict[str, tuple[int, int]], wait_s: float) -> str:
    """What a client saw in one world only since `before`, in words, once it is nothing or `wait_s` have passed."""
    found = ""

    def is_equal() -> bool:
        nonlocal found
        found = ""
        for name, seen in one.seen.items():
            start, other = before.get(name, (0, 0))
            expected, got = seen[start:], two.seen[name][other:]
            if _differs(expected, got):
                found = f"client {name} got {expected} of one broker, {got} of the gateway"
        return not found

    with contextlib.suppress(AssertionError):
        await until(is_equal, wait_s)
    return found
