"""Looks every few seconds how the process stands, says in the log what begins and what ends, and has the answer ready.

Each finding is said once when it begins, once when it is over, and once a day while it lasts; again when it lasts but
concerns others: of a quorum that is lost, who is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.base.log_events import LogEvent
from gateway.health.judging import BROKEN, LEVELS, Finding, HealthReport, View, all_ends, judge

log = logging.getLogger("veilmq.health")

LOOK_EVERY_S = 2.0
SETTLE_S = 10.0
"""After the start links are made: what is away then is no news yet, and no loss."""
AGAIN_S = 86_400.0


class HealthWatch:
    """One process's. `look` returns the view of this moment; `clock`: seconds of a clock that does not jump."""

    def __init__(self, look: Callable[[], View], clock: Callable[[], float]) -> None:
        self._look, self._clock = look, clock
        self._begun = clock()
        self._said: dict[str, tuple[float, Finding]] = {}
        self._task: asyncio.Task[None] | None = None
        self.on_change: Callable[[Finding, bool], None] = lambda finding, begins: None
        """Told of every finding that begins or concerns others (True), or is over (False)."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="health")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def report(self) -> HealthReport:
        """How it stands now."""
        return judge(self._look())

    def status(self) -> dict[str, Any]:
        """The answer of `/status`."""
        return self.report().to_json()

    @property
    def ready(self) -> bool:
        """Whether clients are served as they should be: `/readyz`."""
        return self.report().level != BROKEN

    def metrics(self) -> Iterator[Metric]:
        """For Prometheus."""
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

    def step(self, now: float) -> None:
        """Look once, and say what is new. `now`: of `clock`."""
        report = self.report()
        if now - self._begun < SETTLE_S:
            return
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

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                self.step(self._clock())
            except Exception:  # noqa: BLE001  the log has its traceback
                LogEvent.HEALTH_FAILED.say(log, exc_info=True)
