"""Entities, trackers, one tracing broker and two discovery nodes on a bus with the rules of constrained topics."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from bridge.contract.machine import Count, Tick
from bridge.document import constrained
from bridge.traces.kinds import CREATION_TOPIC, DISCOVERY_TOPIC, REGISTRATION_TOPIC, TraceKind
from bridge.traces.presets import LAN
from bridge.traces.tracer import ClientGone, Interested, Registering, Say, SendAway, Spoke, Tracer
from bridge.tracking.discovery import Asked, DiscoveryNode, Heard, ShareAdvertisement
from bridge.tracking.entity import BrokerConnected, KeepEntity, Listen, Told, TracedEntity, Wishes
from bridge.tracking.tracker import Leave, Observed, Tracker
from keys.delegation import Advertisement
from keys.identity import Identity
from tests.keys.test_delegation import AUTHORITY, NODE, certified

NOW = 1_800_000_000.0
OTHER_NODE = Identity.generate(b"node" * 8)
NODES = {"node-1": NODE.public_bytes, "node-2": OTHER_NODE.public_bytes}


def identity(name: str) -> Identity:
    return Identity.generate(random.Random(f"identity {name}").randbytes(32))


@dataclass
class Bus:
    """`alter(client, topic, payload)`: what becomes of a publication on its way to a client; None loses it."""

    seed: int = 1
    delay_s: tuple[float, float] = (0.001, 0.01)
    alter: Callable[[str, str, bytes], bytes | None] = lambda client, topic, payload: payload
    now: float = NOW
    observed: dict[str, list[tuple[float, Observed]]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    sent_away: list[str] = field(default_factory=list)
    on_topic: list[tuple[str, bytes]] = field(default_factory=list)
    kept: dict[str, Advertisement] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.tracer = Tracer(LAN, NODES, AUTHORITY.public_bytes, self.rng.randbytes)
        self.nodes = {
            name: DiscoveryNode(name, key, NODES, AUTHORITY.public_bytes, self.rng.randbytes)
            for name, key in (("node-1", NODE), ("node-2", OTHER_NODE))
        }
        self.away: set[str] = set()  # nodes and clients that are dead
        self.clients: dict[str, TracedEntity | Tracker] = {}
        self.filters: dict[str, set[str]] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._last: dict[str, float] = {}

    # ----------------------------------------------------------------------------------------------- parties

    def entity(self, name: str, wishes: Wishes | None = None) -> TracedEntity:
        key = identity(name)
        made = TracedEntity(
            key, certified(key, name), NODES, AUTHORITY.public_bytes, self.rng.randbytes,
            wishes or Wishes(("desk*",)), self.kept.get(name),
        )  # fmt: skip
        self._join(name, made)
        return made

    def tracker(self, name: str) -> Tracker:
        key = identity(name)
        made = Tracker(key, certified(key, name), NODES, AUTHORITY.public_bytes, self.rng.randbytes)
        self.observed[name] = []
        self._join(name, made)
        return made

    def _join(self, name: str, made: TracedEntity | Tracker) -> None:
        self.clients[name] = made
        self.filters[name] = set()
        self.away.discard(name)
        self.perform(name, made.handle(BrokerConnected(), self.now))

    def die(self, name: str, told: bool = False) -> None:
        self.away.add(name)
        if told:
            self._broker(self.tracer.handle(ClientGone(name, clean=False), self.now))

    # ------------------------------------------------------------------------------------------------- time

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            due = [(self.tracer.next_deadline, "")] + [
                (client.next_deadline, name) for name, client in self.clients.items() if name not in self.away
            ]
            at, who = min(((at, who) for at, who in due if at is not None), default=(float("inf"), ""))
            if self._queue and self._queue[0][0] <= at:
                at, _, act = heapq.heappop(self._queue)
                if at > until:
                    self._later(at, act)
                    break
                self.now = max(self.now, at)
                act()
                continue
            if at > until:
                break
            self.now = max(self.now, at)
            if who:
                self.perform(who, self.clients[who].handle(Tick(), self.now))
            else:
                self._broker(self.tracer.handle(Tick(), self.now))
        self.now = until

    def _later(self, at: float, act: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (at, self._order, act))

    # ------------------------------------------------------------------------------------------------ effects

    def perform(self, name: str, effects: list[object] | list[Say] | object) -> None:
        """What a client wants done."""
        for effect in effects:  # type: ignore[attr-defined]
            match effect:
                case Listen(topic):
                    parsed = constrained.parse(topic)
                    if parsed is None or parsed.may_subscribe(name, is_broker=False):
                        self.filters[name].add(topic)
                    else:
                        self.refused.append((name, topic))
                case Leave(topic):
                    self.filters[name].discard(topic)
                case Say(topic, payload):
                    self.publish(name, topic, payload)
                case KeepEntity(advertisement):
                    self.kept[name] = advertisement
                case Observed():
                    self.observed[name].append((self.now, effect))
                case Count(figure, amount, _):
                    self.counted[figure] = self.counted.get(figure, 0) + amount

    def publish(self, name: str, topic: str, payload: bytes) -> None:
        """A client's publication."""
        parsed = constrained.parse(topic)
        if parsed is not None and not parsed.may_publish(name, is_broker=False):
            self.refused.append((name, topic))
            return
        self._later(self._arrival(f"from {name}"), lambda: self._arrived(name, topic, payload))

    def _arrival(self, link: str) -> float:
        """A link keeps order, as TCP does."""
        at = max(self.now + self.rng.uniform(*self.delay_s), self._last.get(link, 0.0))
        self._last[link] = at
        return at

    def _arrived(self, name: str, topic: str, payload: bytes) -> None:
        if name in self.away:
            return
        if topic in (CREATION_TOPIC, DISCOVERY_TOPIC):
            for node, each in self.nodes.items():
                if node not in self.away:
                    self._node(node, each.handle(Asked(name, payload), self.now))
                    if topic == CREATION_TOPIC:
                        return
            return
        parsed = constrained.parse(topic)
        if topic == REGISTRATION_TOPIC:
            self._broker(self.tracer.handle(Registering(name, payload), self.now))
        elif parsed is not None and parsed.suffixes[1:2] == ("Interest",):
            uuid = bytes.fromhex(parsed.suffixes[0].replace("-", ""))
            self._broker(self.tracer.handle(Interested(name, uuid, payload), self.now))
        elif parsed is not None and len(parsed.suffixes) == 2:
            self._broker(self.tracer.handle(Spoke(name, bytes.fromhex(parsed.suffixes[1]), payload), self.now))

    def _node(self, node: str, effects: list[object] | object) -> None:
        for effect in effects:  # type: ignore[attr-defined]
            if isinstance(effect, ShareAdvertisement):
                for other, each in self.nodes.items():
                    if other not in (node, *self.away):
                        each.handle(Heard(effect.advertisement.encode()), self.now)
            self._broker([effect] if isinstance(effect, Say) else [])

    def _broker(self, effects: list[object] | object) -> None:
        for effect in effects:  # type: ignore[attr-defined]
            match effect:
                case Say(topic, payload):
                    self.deliver(topic, payload)
                case SendAway(client, _):
                    self.sent_away.append(client)
                case Count(figure, amount, _):
                    self.counted[figure] = self.counted.get(figure, 0) + amount

    def deliver(self, topic: str, payload: bytes) -> None:
        """A publication of the broker's, to whoever listens."""
        self.on_topic.append((topic, payload))
        for name, listening in self.filters.items():
            altered = self.alter(name, topic, payload) if topic in listening else None
            if altered is not None:
                arrival = self._arrival(f"to {name}")
                self._later(arrival, lambda name=name, altered=altered: self._told(name, topic, altered))  # type: ignore[misc]

    def _told(self, name: str, topic: str, payload: bytes) -> None:
        if name not in self.away:
            self.perform(name, self.clients[name].handle(Told(topic, payload), self.now))

    # ------------------------------------------------------------------------------------------------ questions

    def kinds(self, tracker: str) -> list[TraceKind]:
        return [seen.kind for _, seen in self.observed[tracker]]
