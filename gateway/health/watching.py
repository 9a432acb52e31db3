"""Periodic health check: inspects the process every few seconds, logs changes, and answers `/status`.

Each finding is logged when it begins, when it ends, once a day while it lasts, and again when it affects other
members, such as another missing replica of a lost quorum.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.base.log_events import LogEvent
from gateway.base.rhythm import until_next
from gateway.health.alarms import Alarms
from gateway.health.findings import BROKEN, LEVELS, Finding, HealthReport, View, all_ends, judge

log = logging.getLogger("veilmq.health")

LOOK_EVERY_S = 2.0
SETTLE_S = 10.0
"""Seconds after the start in which links are made: an absence in this time is no finding."""
AGAIN_S = 86_400.0


class HealthWatch:
    """The health check of a process. `look` returns the present view; `clock` returns seconds of a monotonic clock."""

    def __init__(self, look: Callable[[], View], clock: Callable[[], float]) -> None:
        self._look, self._clock = look, clock
        self.alarms = Alarms()
        self._begun = clock()
        self._said: dict[str, tuple[float, Finding]] = {}
        self._task: asyncio.Task[None] | None = None
        self.on_change: Callable[[Finding, bool], None] = lambda finding, begins: None
        """Called with each finding that begins or affects other members (True), or ends (False)."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._inspect_repeatedly(), name="health")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def report(self) -> HealthReport:
        """Returns a report of the present standing."""
        return judge(self._look())

    def status(self) -> dict[str, Any]:
        """Returns the answer to `/status`."""
        return self.report().to_json()

    @property
    def ready(self) -> bool:
        """True unless the process itself is broken: the answer to `/readyz`. Faults of other regions do not count."""
        return all(finding.level != BROKEN or finding.elsewhere for finding in self.report().findings)

    def metrics(self) -> Iterator[Metric]:
        """Yields the metrics for Prometheus."""
        report = self.report()
        yield GaugeMetricFamily(
            "veilmq_health", "0 well, 1 degraded, 2 broken: as `veilmq status`.", value=LEVELS.index(report.level)
        )
        ends = GaugeMetricFamily("veilmq_end_seconds", "Seconds until it ends.", labels=["what"])
        for what, end in all_ends(report.view).items():
            ends.add_metric([what], end - report.view.now)
        yield ends
        up = GaugeMetricFamily("veilmq_region_replicas_up", "Replicas that we are connected to.", labels=["region"])
        needed = GaugeMetricFamily("veilmq_region_replicas_needed", "Replicas that are a quorum.", labels=["region"])
        for region in report.view.overlay.regions if report.view.overlay else ():
            up.add_metric([region.name], len(region.up))
            needed.add_metric([region.name], region.needed)
        yield up
        yield needed

    def inspect_process(self, now: float) -> None:
        """Inspects the process once and logs changes. `now`: seconds of `clock`."""
        report = self.report()
        if now - self._begun < SETTLE_S:
            return
        self.alarms.take_findings(report.findings, report.view.now)
        present = {finding.key: finding for finding in report.findings}
        for key, (_, finding) in list(self._said.items()):
            if key not in present:
                del self._said[key]
                LogEvent.HEALTH_OVER.say(log, finding.text)
                self.on_change(finding, False)
        for key, finding in present.items():
            said = self._said.get(key)
            changed = said is None or said[1].about != finding.about
            if changed:
                self.on_change(finding, True)
            if changed or said is None or now - said[0] >= AGAIN_S:
                self._said[key] = now, finding
                event = LogEvent.HEALTH_BROKEN if finding.level == BROKEN else LogEvent.HEALTH_DEGRADED
                event.say(log, finding.text)

    async def _inspect_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(until_next(LOOK_EVERY_S))
            try:
                self.inspect_process(self._clock())
            except Exception:  # noqa: BLE001  the log has its traceback
                LogEvent.HEALTH_FAILED.say(log, exc_info=True)
