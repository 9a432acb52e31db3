"""The broker's own figures on `$SYS/broker/...`, named as Mosquitto names them, so that its dashboards work.

Every value is a retained message in text, sent when it changed. `load/...` are averages per minute over the last 1, 5
and 15 minutes, exponentially weighted. Not here: `$SYS/veilmq/figures` of the overlay (`gateway.base.figures`),
Prometheus.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from gateway.mqtt5.message import Message
from gateway.operation.registry import BROKER_FIGURES
from gateway.operation.snapshot import BrokerSnapshot

ROOT = "$SYS/broker/"
INTERVAL_S = 10
WINDOWS_S = {"1min": 60.0, "5min": 300.0, "15min": 900.0}


def release() -> str:
    """Returns the version of the installed distribution."""
    try:
        return version("veilmq")
    except PackageNotFoundError:
        return "unknown"


class Load:
    """The averages per minute of a rising total."""

    def __init__(self) -> None:
        self._total = 0
        self.per_minute = dict.fromkeys(WINDOWS_S, 0.0)

    def update(self, total: int, elapsed_s: float) -> None:
        """Updates the averages; `elapsed_s` > 0 seconds have passed since the last update."""
        rate = (total - self._total) * 60.0 / elapsed_s
        self._total = total
        for window, window_s in WINDOWS_S.items():
            keep = math.exp(-elapsed_s / window_s)
            self.per_minute[window] = rate + keep * (self.per_minute[window] - rate)


class SysTopics:
    """The publisher of `observe`'s figures. `publish` retains and routes a message; it must not raise."""

    def __init__(
        self, observe: Callable[[], BrokerSnapshot], publish: Callable[[Message], None], interval_s: float
    ) -> None:
        self._observe, self._publish, self._interval_s = observe, publish, interval_s
        self._loads: dict[str, Load] = {}
        self._said: dict[str, str] = {}
        self._last_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def owns(self, topic: str) -> bool:
        """Returns True if the topic is one of ours, where a plugin's message would contradict ours."""
        return topic in self._said

    def start(self) -> None:
        self._publish_figure("version", f"veilmq version {release()}")
        self.update()
        self._task = asyncio.get_running_loop().create_task(self._publish_repeatedly())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _publish_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            self.update()

    def update(self) -> None:
        """Publishes all values that changed since the last update."""
        snapshot = self._observe()
        for topic, value in values(snapshot):
            self._publish_figure(topic, str(value))
        elapsed_s, self._last_s = snapshot.uptime_s - self._last_s, snapshot.uptime_s
        for name, total in totals(snapshot).items():
            load = self._loads.setdefault(name, Load())
            if elapsed_s > 0:
                load.update(total, elapsed_s)
            for window, rate in load.per_minute.items():
                self._publish_figure(f"load/{name}/{window}", f"{rate:.2f}")

    def _publish_figure(self, name: str, text: str) -> None:
        topic = ROOT + name
        if self._said.get(topic) != text:
            self._said[topic] = text
            self._publish(Message(topic, text.encode(), 2, retain=True))


def values(snapshot: BrokerSnapshot) -> Iterator[tuple[str, object]]:
    """Yields (topic below the root, value) of all figures but loads and version."""
    yield "uptime", f"{int(snapshot.uptime_s)} seconds"
    for figure in BROKER_FIGURES:
        for topic in figure.topics:
            yield topic, figure.value(snapshot)


def totals(snapshot: BrokerSnapshot) -> dict[str, int]:
    """Returns the totals from which `load/` is computed, by name."""
    return {figure.load: int(figure.value(snapshot)) for figure in BROKER_FIGURES if figure.load}
