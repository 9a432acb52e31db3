"""What people who run a broker look at: `$SYS` topics and the Prometheus endpoint, begun and ended with the broker.

What is shown is in `snapshot.py`, how in `sys_topics.py` and `prometheus.py`. Log lines are set up by whoever starts
the process (`logs.configure`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gateway.clients import Measured
from gateway.operation.answers import BrokerHealth
from gateway.operation.prometheus import Endpoint, broker_metrics, overlay_metrics, tracing_metrics
from gateway.operation.snapshot import BrokerSnapshot
from gateway.operation.sys_topics import INTERVAL_S, ROOT, SysTopics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from gateway.base import Figures, Limits, Settings
    from gateway.mqtt5.message import Message


class Tallied(Protocol):
    """What counts, beside the broker: tracing."""

    figures: Figures

    def gauges(self) -> dict[str, int | float]: ...


AMQTT_PLUGIN = "BrokerSysPlugin"
"""amqtt's plugin that fills the same topics. Where it alone is configured, it does, as with amqtt."""


class Operation:
    """One broker's. `prepare`, then `start`, then `stop`; `stop` may come after any of them.

    `observe` looks at the broker; `publish` takes what `$SYS` says; `overlay` is what carries publications beyond it.
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
        """Who knows how the process stands, if anybody; before `start`."""
        self.summaries: Callable[[], list[str]] = list
        """What replicas of the overlay measured, for `/summaries`; before `start`."""
        self.sys_topics: SysTopics | None = None
        self.tracing: Tallied | None = None

    def prepare(self) -> None:
        """Take the port of the endpoint. Raises StartError."""
        if self._settings is not None and self._settings.metrics is not None:
            self.endpoint = Endpoint(self._settings.metrics.bind, self.collect)

    def start(self) -> None:
        if self.endpoint is not None:
            self.endpoint.start(self.health, self.summaries)
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
        """Whether only we may write a topic: where amqtt's plugin has the same name for something else, ours counts."""
        return self.sys_topics is not None and topic.startswith(ROOT) and self.sys_topics.owns(topic)

    def collect(self) -> list[Metric]:
        """Everything that Prometheus is shown."""
        found = list(broker_metrics(self.observe(), self.limits))
        overlay = self._overlay()
        if isinstance(overlay, Measured):
            found += overlay_metrics(overlay.figures, overlay.gauges())
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
