"""The operators' view of the roles: the figures each role publishes to its local clients.

Used for two purposes only: to know when all links are up, and to report blame. No figure of the table's upper half
comes from here. A killed process takes its figures with it; figures published before stay counted.
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
    """The figures of all roles so far. `names`: the roles expected to publish figures."""

    def __init__(self, names: Iterable[str]) -> None:
        self._lock = threading.Lock()  # paho calls back in one thread a client
        self._latest: dict[str, Mapping[str, Any]] = {}
        self._earlier: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._named: dict[str, set[str]] = {name: set() for name in self._earlier}

    def take_figures(self, name: str, payload: bytes) -> None:
        """Takes a single publication of figures by role `name`; other payloads are ignored."""
        try:
            figures = json.loads(payload)
        except ValueError:
            return
        if isinstance(figures, dict):
            with self._lock:
                self._latest[name] = figures
                self._named[name].update(figures.get("named", ()))

    def restarted(self, name: str) -> None:
        """Records that the process of `name` is gone: its next figures begin at zero.

        Does nothing for roles without figures.
        """
        with self._lock:
            if name not in self._earlier:
                return
            self._earlier[name].update(self._latest.pop(name, {}).get("suspected", {}))

    def not_ready(self) -> list[str]:
        """Returns the roles without figures so far, or with links that are not up."""
        with self._lock:
            return [name for name in self._earlier if not _linked(self._latest.get(name))]

    def epoch(self) -> int:
        """Returns the latest epoch of any role."""
        with self._lock:
            return max((int(figures.get("epoch", 0)) for figures in self._latest.values()), default=0)

    def counted(self, figure: str) -> int:
        """Returns the sum of a figure over all running roles."""
        with self._lock:
            return sum(int(figures.get("counts", {}).get(figure, 0)) for figures in self._latest.values())

    def blamed(self) -> Blamed:
        """Returns the blame reported by all roles, including the liar."""
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
    """The operators: a paho client for each role, at its operator's listener. `ports`: port by role name."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self.ledger = Ledger(ports)
        self._clients = [self._client(name, port) for name, port in ports.items()]

    def _client(self, name: str, port: int) -> Client:
        client = Client(CallbackAPIVersion.VERSION2, client_id=f"operator-{name}", protocol=MQTTProtocolVersion.MQTTv5)
        client.on_connect = lambda c, *_: c.subscribe(FIGURES_TOPIC, 1)
        client.on_message = lambda _c, _u, message: self.ledger.take_figures(name, bytes(message.payload))
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
