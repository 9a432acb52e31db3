"""A gateway's devices on a clock of the test's: connections, publications, and what was told of each device."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from bridge.base import NameTree
from bridge.contract.machine import Count, Tick
from bridge.devices.dashboards import Show
from bridge.devices.devices import Devices
from bridge.devices.events import (
    Command,
    Consult,
    DeviceEvent,
    Knows,
    Published,
    Remembered,
    Removed,
    RetainedBefore,
    Tell,
)
from bridge.devices.rules import DeviceRules
from bridge.traces.availability import EntityConnected, EntityGone, EntitySeen
from bridge.traces.kinds import TraceKind

NOW = 1_800_000_000.0


@dataclass
class Site:
    rules: DeviceRules = field(default_factory=DeviceRules)
    now: float = NOW
    told: list[tuple[float, Tell]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    commands: list[tuple[str, bytes]] = field(default_factory=list)
    shown: dict[str, bytes] = field(default_factory=dict)
    retained: dict[str, bytes] = field(default_factory=dict)  # what documents that come later find

    def __post_init__(self) -> None:
        self.devices = Devices(self.rules)

    def handle(self, event: DeviceEvent) -> None:
        for effect in self.devices.handle(event, self.now):
            match effect:
                case Tell():
                    self.told.append((self.now, effect))
                case Removed(device):
                    self.removed.append(device)
                case Command(topic, payload):
                    self.commands.append((topic, payload))
                case Show(topic, payload):
                    self.shown[topic] = payload
                case Consult(device, topics):
                    for topic in [each for each in topics if each in self.retained]:
                        self.handle(RetainedBefore(topic, self.retained[topic], device))
                case Count(name, amount, _):
                    self.counted[name] = self.counted.get(name, 0) + amount

    def run(self, seconds: float) -> None:
        """To a later time, with every deadline on the way."""
        until = self.now + seconds
        while (due := self.devices.next_deadline) is not None and due <= until:
            self.now = max(self.now, due)
            self.handle(Tick())
        self.now = until

    def connect(self, client: str, keep_alive_s: int = 0, origin: str = "10.0.0.1", settled: bool = True) -> None:
        self.handle(EntityConnected(client, keep_alive_s, origin))
        if settled:
            self.run(4.0)

    def publish(self, client: str, topic: str, payload: bytes = b"1", will: bool = False) -> None:
        self.handle(Published(client, topic, payload, will))

    def seen(self, client: str) -> None:
        self.handle(EntitySeen(client))

    def lose(self, client: str, clean: bool = False) -> None:
        self.handle(EntityGone(client, clean, ""))

    def knows(self, client: str) -> None:
        self.handle(Knows(client))

    def remember(self, device: str) -> None:
        self.handle(Remembered(device))

    def kept(self, retained: dict[str, bytes]) -> None:
        """What the broker had retained when it started."""
        tree = NameTree()
        for topic in retained:
            tree.add(topic)
        found = lambda wanted: [(topic, retained[topic]) for topic in tree.matching(wanted)]  # noqa: E731
        for topic, payload in self.devices.evidence_of(found):
            self.handle(RetainedBefore(topic, payload))

    def home_assistant(self, client: str, device: str, *topics: str) -> None:
        """A discovery message of Home Assistant's."""
        named = [{"topic": topic} for topic in topics]
        config = {"unique_id": device, "availability": named, "availability_mode": "all"}
        self.publish(client, f"homeassistant/sensor/{device}/config", json.dumps(config).encode())

    def kinds(self, device: str) -> list[TraceKind]:
        """What was told of a device, without what is told again and again."""
        told = [each for _, each in self.told if each.device == device]
        often = (TraceKind.ALLS_WELL, TraceKind.NETWORK_METRICS)
        return [each.kind for each in told if each.change or each.kind not in often]

    def last(self, device: str) -> Tell:
        return [each for _, each in self.told if each.device == device][-1]
