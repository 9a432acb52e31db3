"""The look at how we stand: what begins and ends is said once, what lasts once a day, and metrics show the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from gateway.health import HealthWatch, View, watching
from gateway.health.watching import SETTLE_S
from tests.gateway.health.test_findings import DAY_S, NOW, region, stands


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    found: list[str] = []
    with caplog.at_level(logging.INFO, "veilmq.health"):
        handler = logging.Handler()
        handler.emit = lambda record: found.append(f"{record.levelname} {record.getMessage()}")  # type: ignore[method-assign]
        logging.getLogger("veilmq.health").addHandler(handler)
        yield found
        logging.getLogger("veilmq.health").removeHandler(handler)


def test_a_finding_is_said_once_when_it_begins_and_once_when_it_is_over(lines: list[str]) -> None:
    view = [View(NOW, stands(regions=(region("r1", "r3"),)))]
    told: list[tuple[str, bool]] = []
    watch = HealthWatch(lambda: view[0], lambda: 0.0)
    watch.on_change = lambda finding, begins: told.append((finding.key.split(":")[0], begins))
    watch.inspect_process(1.0)  # links are still being made
    assert not lines
    for now in (20.0, 22.0, 3600.0):
        watch.inspect_process(now)
    assert len(lines) == 1
    assert lines[0].startswith("WARNING region west: 2 of 3")
    watch.inspect_process(20.0 + DAY_S)
    assert len(lines) == 2
    view[0] = View(NOW, stands(regions=(region("r1"),)))
    watch.inspect_process(90_000.0)
    assert lines[-1].startswith("ERROR region west: quorum is lost")
    view[0] = View(NOW, stands())
    watch.inspect_process(90_002.0)
    assert lines[-1].startswith("INFO over: region west")
    assert told == [("region", True), ("region", False), ("region", True), ("region", False)]
    watch.inspect_process(90_004.0)
    assert len([line for line in lines if line.startswith("INFO over")]) == 2


def test_a_quorum_that_stays_lost_names_who_is_missing_now_and_is_not_over(lines: list[str]) -> None:
    view = [View(NOW, stands(regions=(region("r1"),)))]
    told: list[tuple[str, bool]] = []
    watch = HealthWatch(lambda: view[0], lambda: 0.0)
    watch.on_change = lambda finding, begins: told.append((finding.about, begins))
    watch.inspect_process(20.0)
    view[0] = View(NOW, stands(regions=(region(),)))
    watch.inspect_process(22.0)
    watch.inspect_process(24.0)
    assert [line.split(":")[0] for line in lines] == ["ERROR region west"] * 2
    assert "0 of 3" in lines[-1]
    view[0] = View(NOW, stands())
    watch.inspect_process(26.0)
    assert "INFO over: region west: quorum is lost: 0 of 3" in lines[-1]
    assert told == [("r2,r3", True), ("r1,r2,r3", True), ("r1,r2,r3", False)]


def test_metrics_say_level_ends_and_quorum() -> None:
    watch = HealthWatch(lambda: View(NOW, stands(regions=(region("r1"),)), ends={"x": NOW + 5}), lambda: 0.0)
    found = {metric.name: [(s.labels, s.value) for s in metric.samples] for metric in watch.metrics()}
    assert found["veilmq_health"] == [({}, 2)]
    assert found["veilmq_end_seconds"] == [({"what": "x"}, 5)]
    assert found["veilmq_region_replicas_up"] == [({"region": "west"}, 1)]
    assert found["veilmq_region_replicas_needed"] == [({"region": "west"}, 2)]


def test_status_and_readiness_are_of_this_moment() -> None:
    view = [View(NOW, stands(regions=(region("r1", "r3"),)))]
    watch = HealthWatch(lambda: view[0], lambda: 0.0)
    assert (watch.ready, watch.status()["level"]) == (True, "degraded")
    view[0] = View(NOW, stands(regions=(region("r1"),)))
    assert (watch.ready, watch.report().level) == (False, "broken")


def test_what_is_found_before_links_had_time_is_said_when_it_lasts(lines: list[str]) -> None:
    watch = HealthWatch(lambda: View(NOW, stands(removed=True)), lambda: 100.0)
    watch.inspect_process(100.0 + SETTLE_S - 0.1)
    assert not lines
    watch.inspect_process(100.0 + SETTLE_S)
    assert len(lines) == 1


def test_a_look_that_fails_does_not_end_the_watch(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look() -> View:
        looks.append(1)
        if len(looks) == 1:
            raise OSError("the disk is gone")
        return View(NOW, stands(removed=True))

    async def turn(_: float) -> None:
        if len(looks) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr(watching.asyncio, "sleep", turn)
    clock = iter((0.0, 50.0, 60.0))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(HealthWatch(look, lambda: next(clock))._inspect_repeatedly())
    assert [line.split()[0] for line in lines] == ["ERROR", "ERROR"]
    assert "failed" in lines[0]
    assert "no longer" in lines[1]
