"""Reports of traces: what consents, how often, the newest word is said; who floods harms itself."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from bridge import reporting
from bridge.machine import Count
from bridge.reporting import CHANGES_BURST, CHANGES_EVERY_S, STEADY_S, Report, ReportEffect, Reporter
from bridge.traces import Interest, TraceKind

NOW = 1_800_000_000.0


@pytest.fixture
def reporter() -> Reporter:
    return Reporter("gate", "works", "entities")


def told(
    reporter: Reporter, kind: TraceKind, now: float = NOW, entity: str = "pump-7", **fields: Any
) -> list[ReportEffect]:
    return reporter.told(entity, kind, 1, fields, now, None)


def bodies(effects: Iterable[ReportEffect]) -> list[dict[str, Any]]:
    return [json.loads(effect.payload) for effect in effects if isinstance(effect, Report)]


def test_a_report_is_one_json_object_on_the_entitys_own_topic(reporter: Reporter) -> None:
    (report,) = reporter.told("pump-7", TraceKind.LOAD_INFORMATION, 5, {"cpu": 0.5}, NOW, None)
    assert isinstance(report, Report)
    assert report.topic == "entities/gate/pump-7/trace"
    assert json.loads(report.payload) == {
        "entity": "pump-7", "gateway": "gate", "kind": "LOAD_INFORMATION", "time_ms": int(NOW * 1000), "number": 5,
        "fields": {"cpu": 0.5},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("discoverers", "may"),
    [((), False), (("desk*",), False), (("desk", "gate"), True), (("g*",), True), (("@works",), True),
     (("@elsewhere",), False), (("entities/#",), True), (("other/#",), False), (("entities",), False), (("*",), True)],
)  # fmt: skip
def test_only_entities_whose_restrictions_name_the_gateway_or_the_report_consent(
    reporter: Reporter, discoverers: tuple[str, ...], may: bool
) -> None:
    assert reporter.consents(discoverers) is may


@pytest.mark.parametrize("name", ["../x", "a/b", "#", "+", "a/+/trace", "", "x" * 70_000])
def test_a_name_stays_one_level_of_the_topic(reporter: Reporter, name: str) -> None:
    (report,) = told(reporter, TraceKind.JOIN, entity=name)
    assert isinstance(report, Report)
    prefix, gateway, level, last = report.topic.split("/")
    assert (prefix, gateway, last) == ("entities", "gate", "trace")
    assert level
    assert not set(level) & set("+#")
    assert json.loads(report.payload)["entity"] == name


def test_what_does_not_change_comes_at_the_pace_of_a_gauge(reporter: Reporter) -> None:
    times = [
        now / 4
        for now in range(int(4 * 3 * STEADY_S))
        if bodies(told(reporter, TraceKind.ALLS_WELL, NOW + now / 4, latency_ms=3))
    ]
    assert times == [0, STEADY_S, 2 * STEADY_S]
    assert bodies(told(reporter, TraceKind.NETWORK_METRICS, NOW + 1)), "each kind has its own pace"


def test_all_is_well_again_after_a_failure_is_a_change(reporter: Reporter) -> None:
    told(reporter, TraceKind.ALLS_WELL)
    told(reporter, TraceKind.FAILED, NOW + 1)
    back = reporter.told("pump-7", TraceKind.ALLS_WELL, 3, {"after": "failed"}, NOW + 2, Interest.CHANGES)
    assert bodies(back)[0]["fields"] == {"after": "failed"}


def test_the_question_who_is_interested_is_no_news(reporter: Reporter) -> None:
    assert not told(reporter, TraceKind.GAUGE_INTEREST)


def test_an_entity_that_floods_is_slowed_down_and_its_last_word_is_said(reporter: Reporter) -> None:
    flood: list[ReportEffect] = []
    for number in range(1_000):
        kind = TraceKind.READY if number % 2 else TraceKind.RECOVERING
        flood += reporter.told("pump-7", kind, number, {}, NOW + number / 1_000, None)
    assert len(bodies(flood)) == CHANGES_BURST
    assert sum(1 for effect in flood if isinstance(effect, Count)) == 1_000 - CHANGES_BURST - 1
    assert bodies(told(reporter, TraceKind.READY, NOW + 1, entity="pump-8")), "others are not slowed down"
    due = reporter.next_deadline
    assert due is not None
    assert due <= NOW + 1 + CHANGES_EVERY_S
    assert [body["number"] for body in bodies(reporter.due(due))] == [999]
    assert reporter.next_deadline is None


def test_over_a_minute_of_flood_one_a_second_comes_through(reporter: Reporter) -> None:
    said = 0
    for tenth in range(600):
        now = NOW + tenth / 10
        said += len(bodies(reporter.due(now))) + len(bodies(told(reporter, TraceKind.READY, now)))
    assert said <= CHANGES_BURST + 60 / CHANGES_EVERY_S + 1


def test_paces_are_bounded_and_what_is_held_is_said_before_it_is_forgotten(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "REPORTED_MAX", 3)
    for number in range(CHANGES_BURST + 1):
        reporter.told("pump-7", TraceKind.READY, number, {}, NOW, None)
    effects = [effect for n in range(3) for effect in told(reporter, TraceKind.JOIN, NOW, f"other {n}")]
    assert [body["entity"] for body in bodies(effects)] == ["other 0", "other 1", "pump-7", "other 2"]
    assert not list(reporter.due(NOW + 60)), "it is not said twice"
