"""The bridges of a broker by its configuration, and their view of the broker besides their clients.

They are put together here because a bridge (`bridging`) knows neither broker nor overlay.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from bridge.base import TopicError
from bridge.document import constrained
from bridge.node import GatewayNode
from gateway.base import BridgeSettings, PrivateFileError, private_directory
from gateway.base.log_events import LogEvent
from gateway.bridging import Bridge, Circles, Marks, make_bridge, remote_name
from gateway.broker import EdgeBroker
from gateway.clients import INTERNAL
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish
from gateway.overlay import BrokerOverlay
from gateway.sockets.connection import MqttConnection

log = logging.getLogger("veilmq.bridge")
REFUSED_BYTES = 32 << 20
"""Bytes of a file of refused messages, of which each bridge has two: stops a flood of large ones from filling the
disk.
"""


@dataclass(frozen=True)
class BridgesHome:
    """Our broker, as its bridges see it (`gateway.bridging.Home`)."""

    broker: EdgeBroker
    links: BrokerOverlay | None
    data: Path | None = None
    prefix: str = INTERNAL

    def internal(self, listener: str) -> MqttConnection:
        return self.broker.internal(listener)

    def retained(self, topic_filter: str) -> Iterator[Message]:
        return self.broker.exchange.retained.matching(topic_filter, self.broker.now())

    def retained_waiting(self, bridge: str) -> set[str]:
        client = self.broker.lifecycle.clients.get(f"{self.prefix}bridge/{bridge}")
        if client is None:
            return set()
        session = client.session
        waiting = [*session.waiting, *(queued for queued, _ in session.outbound.unacknowledged.values())]
        return {queued.message.topic for queued in waiting if queued.retain}

    def keep_refused(self, bridge: str, publish: Publish, code: int) -> str:
        """Appends a line of JSON for a refused message; returns the place in words.

        Beyond REFUSED_BYTES the file becomes the former one, whose previous content is dropped.
        """
        if self.data is None:
            return "no file, since there is no data directory"
        path = self.data / "refused" / f"{quote(bridge, safe='')}.jsonl"
        about = {"at": int(time.time()), "code": code, "topic": publish.topic, "qos": publish.qos}
        line = json.dumps({**about, "retain": publish.retain, "payload": b64encode(publish.payload).decode()}) + "\n"
        try:
            private_directory(path.parent)
            if path.exists() and path.stat().st_size + len(line) > REFUSED_BYTES:
                path.replace(path.with_suffix(".former"))
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w") as file:
                file.write(line)
        except (OSError, PrivateFileError) as error:
            return f"no file: {error}"
        return str(path)

    def may_leave(self, topic: str) -> bool:
        return self.links is None or self.links.may_leave(topic)

    def may_enter(self, topic: str) -> bool:
        """Returns False for constrained topics if the broker traces.

        Constrained topics belong to an overlay: messages from other brokers have no authority on them.
        """
        if self.broker.exchange.tracing is None:
            return True
        try:
            return constrained.spelled(topic)[0] is None
        except TopicError:
            return False


def overlay_names(links: BrokerOverlay | None, topic: str) -> tuple[str, ...]:
    """Returns the overlay's name for marks if the overlay carries the local topic, else nothing."""
    if links is None:
        return ()
    node, _, keeping, _ = links.parts
    if not isinstance(node, GatewayNode) or node.secret_for(topic) is None:
        return ()
    overlay = keeping.overlay
    return (f"overlay-{sha256(overlay.owner + overlay.policy.overlay.encode()).hexdigest()[:16]}",)


def say_left(settings: Mapping[str, BridgeSettings], broker: EdgeBroker) -> None:
    """Logs bridges that have a session here but no configuration any more."""
    prefix = f"{INTERNAL}bridge/"
    for client_id, client in broker.lifecycle.clients.items():
        name = client_id.removeprefix(prefix)
        if client_id.startswith(prefix) and name not in settings:
            waiting = len(client.session.waiting) + len(client.session.outbound.unacknowledged)
            LogEvent.BRIDGE_LEFT.say(log, name, waiting)


def make_bridges(
    settings: Mapping[str, BridgeSettings],
    broker: EdgeBroker,
    links: BrokerOverlay | None,
    name: str,
    data: Path | None = None,
) -> list[Bridge]:
    """Makes the bridges, and tells the broker of circles that they may make. `name`: our name in marks.

    Raises ConfigError, StartError.
    """
    circles = Circles(Marks(name, lambda topic: overlay_names(links, topic)), time.monotonic)
    broker.exchange.delivery.circles = circles
    home, machine = BridgesHome(broker, links, data), f"{uuid.getnode():x}"
    bridges = [make_bridge(bridge, one, home, circles, remote_name(one, machine)) for bridge, one in settings.items()]
    circles.bridges = [*bridges]
    return bridges
