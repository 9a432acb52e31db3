"""What the operators of the roles can see: the figures that each role publishes to its local clients.

Used for two things only: to know when all links are up, and to tell who blames whom. No figure of the table's
upper half comes from here. A process that was killed takes its figures with it; what it had said stays counted.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from gateway.base import FIGURES_TOPIC
from gateway.demo.report import Blamed

HOST = "127.0.0.1"
KEEP_ALIVE_S = 30


class Ledger:
    """What roles have said so far. `names`: the roles that are expected to say something."""

    def __init__(self, names: Iterable[str]) -> None:
        self._lock = threading.Lock()  # paho calls back in one thread a client
        self._latest: dict[str, Mapping[str, Any]] = {}
        self._earlier: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._named: dict[str, set[str]] = {name: set() for name in self._earlier}

    def take(self, name: str, payload: bytes) -> None:
        """One publication of figures by role `name`; what is no object of figures is left out."""
        try:
            figures = json.loads(payload)
        except ValueError:
            return
        if isinstance(figures, dict):
            with self._lock:
                self._latest[name] = figures
                self._named[name].update(figures.get("named", ()))

    def restarted(self, name: str) -> None:
        """The process of `name` is gone: its next figures begin at zero. Nothing for roles that say nothing."""
        with self._lock:
            if name not in self._earlier:
                return
            self._earlier[name].update(self._latest.pop(name, {}).get("suspected", {}))

    def not_ready(self) -> list[str]:
        """Roles that say nothing yet, or have links that are not up."""
        with self._lock:
            return [name for name in self._earlier if not _linked(self._latest.get(name))]

    def epoch(self) -> int:
        """The latest epoch that any role is in."""
        with self._lock:
            return max((int(figures.get("epoch", 0)) for figures in self._latest.values()), default=0)

    def counted(self, figure: str) -> int:
        """A figure, over all roles that run now."""
        with self._lock:
            return sum(int(figures.get("counts", {}).get(figure, 0)) for figures in self._latest.values())

    def blamed(self) -> Blamed:
        """What all roles say, the liar's too."""
        suspected: dict[str, dict[str, int]] = {}
        named: dict[str, list[str]] = {}
        with self._lock:
            for by, earlier in self._earlier.items():
                for member, times in (earlier + Counter(self._latest.get(by, {}).get("suspected", {}))).items():
                    suspected.setdefault(member, {})[by] = times
                for member in self._named[by]:
                    named.setdefault(member, []).append(by)
        return Blamed(suspected, named)


class Operators:
    """One paho client for each role, at its operator's listener. `ports`: role name -> port."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self.ledger = Ledger(ports)
        self._clients = [self._client(name, port) for name, port in ports.items()]

    def _client(self, name: str, port: int) -> Client:
        client = Client(CallbackAPIVersion.VERSION2, client_id=f"operator-{name}", protocol=MQTTProtocolVersion.MQTTv5)
        client.on_connect = lambda c, *_: c.subscribe(FIGURES_TOPIC, 1)
        client.on_message = lambda _c, _u, message: self.ledger.take(name, bytes(message.payload))
        client.reconnect_delay_set(1, 1)
        client.connect_async(HOST, port, KEEP_ALIVE_S)
        client.loop_start()
        return client

    def close(self) -> None:
        for client in self._clients:
            client.disconnect()
        for client in self._clients:
            client.loop_stop()


def _linked(figures: Mapping[str, Any] | None) -> bool:
    return figures is not None and 0 < figures.get("links", 0) == figures.get("links_up", -1)
