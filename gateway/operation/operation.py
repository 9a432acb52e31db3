"""Operation of a broker: starts and ends `$SYS` topics and the Prometheus endpoint with the broker.

The figures are in `snapshot.py`, their form in `sys_topics.py` and `prometheus.py`. The starter of the process sets
up log lines (`logs.configure`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from gateway.clients import Measured
from gateway.operation.answers import BrokerHealth
from gateway.operation.prometheus import Endpoint, broker_metrics, history_metrics, overlay_metrics, tracing_metrics
from gateway.operation.snapshot import BrokerSnapshot
from gateway.operation.sys_topics import INTERVAL_S, ROOT, SysTopics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from gateway.base import Figures, Limits, Settings
    from gateway.mqtt5.message import Message


class Tallied(Protocol):
    """A counting part beside the broker: tracing."""

    figures: Figures

    def gauges(self) -> dict[str, int | float]: ...


AMQTT_PLUGIN = "BrokerSysPlugin"
"""amqtt's plugin that fills `$SYS` topics. If it alone is configured, it fills them, as with amqtt."""


class Operation:
    """The operation of a broker: `prepare`, then `start`, then `stop`; `stop` may follow any of them.

    `observe` returns the broker's snapshot; `publish` takes messages of `$SYS`; `overlay` returns the party carrying
    publications beyond the broker.
    """

    def __init__(
        self,
        settings: Settings | None,
        limits: Limits,
        observe: Callable[[], BrokerSnapshot],
        publish: Callable[[Message], None],
        overlay: Callable[[], object],
    ) -> None:
        self._settings, self.limits = settings, limits
        self.observe, self._publish, self._overlay = observe, publish, overlay
        self.endpoint: Endpoint | None = None
        self.health: BrokerHealth | None = None
        """The judge of the process's standing, if any; set before `start`."""
        self.summaries: Callable[[], list[str]] = list
        """Returns the measurements of the overlay's replicas for `/summaries`; set before `start`."""
        self.day: Callable[[], dict[str, Any]] = dict
        """Returns figures and alarms of the last day for `/day`; set before `start`."""
        self.sys_topics: SysTopics | None = None
        self.tracing: Tallied | None = None

    def prepare(self) -> None:
        """Binds the port of the endpoint. Raises StartError."""
        if self._settings is not None and self._settings.metrics is not None:
            self.endpoint = Endpoint(self._settings.metrics.bind, self.collect)

    def start(self) -> None:
        if self.endpoint is not None:
            self.endpoint.start(self.health, self.summaries, self.day)
        interval_s = self._interval_s()
        if interval_s:
            self.sys_topics = SysTopics(self.observe, self._publish, interval_s)
            self.sys_topics.start()

    def _interval_s(self) -> float:
        settings = self._settings
        if settings is None:
            return 0  # amqtt's own configuration object: amqtt's plugins only
        if settings.sys_interval is not None:
            return settings.sys_interval
        return 0 if any(name.endswith(f".{AMQTT_PLUGIN}") for name in settings.plugins) else INTERVAL_S

    def owns(self, topic: str) -> bool:
        """Returns True if only we may write a topic, even if a plugin of amqtt writes a topic with that name."""
        return self.sys_topics is not None and topic.startswith(ROOT) and self.sys_topics.owns(topic)

    def collect(self) -> list[Metric]:
        """Returns all metrics for Prometheus."""
        snapshot = self.observe()
        found = list(broker_metrics(snapshot, self.limits))
        overlay = self._overlay()
        if isinstance(overlay, Measured):
            found += overlay_metrics(overlay.figures, overlay.gauges())
        elif snapshot.histories:
            found += history_metrics(snapshot.histories)
        if self.tracing is not None:
            found += tracing_metrics(self.tracing.figures, self.tracing.gauges())
        if self.health is not None:
            found += self.health.metrics()
        return found

    async def stop(self) -> None:
        if self.sys_topics is not None:
            self.sys_topics.stop()
        if self.endpoint is not None:
            await self.endpoint.stop()
            self.endpoint = None
