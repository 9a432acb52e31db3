"""Reports of traces: what consents, how often, the newest word is said; who floods harms itself."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from bridge.contract.machine import Count
from bridge.document.own_topics import OwnTopics
from bridge.traces import reporting
from bridge.traces.kinds import Interest, TraceKind, own_fields
from bridge.traces.presets import LAN
from bridge.traces.reporting import CHANGES_BURST, CHANGES_EVERY_S, STEADY_S, ReportEffect, Reporter, TraceReport
from bridge.traces.tracer import ClientGone, Spoke, Tracer, TracingEffect
from keys.ownword import OwnWord
from keys.tracesession import Word
from tests.bridge.traces.test_tracer import Entity
from tests.keys.test_delegation import AUTHORITY, NODE, SPY

NOW = 1_800_000_000.0


@pytest.fixture
def reporter() -> Reporter:
    return Reporter("gate", "works", "entities")


def told(
    reporter: Reporter, kind: TraceKind, now: float = NOW, entity: str = "pump-7", **fields: Any
) -> list[ReportEffect]:
    return reporter.report_trace(entity, kind, fields, now)


def bodies(effects: Iterable[ReportEffect]) -> list[dict[str, Any]]:
    return [json.loads(effect.payload) for effect in effects if isinstance(effect, TraceReport)]


def test_a_report_is_one_json_object_on_the_entitys_own_topic(reporter: Reporter) -> None:
    (report,) = reporter.report_trace("pump-7", TraceKind.LOAD_INFORMATION, {"cpu": 0.5}, NOW)
    assert isinstance(report, TraceReport)
    assert report.topic == "entities/gate/pump-7/trace"
    assert json.loads(report.payload) == {
        "entity": "pump-7", "gateway": "gate", "kind": "LOAD_INFORMATION", "time_ms": int(NOW * 1000), "number": 1,
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
    assert isinstance(report, TraceReport)
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
    back = reporter.report_trace("pump-7", TraceKind.ALLS_WELL, {"after": "failed"}, NOW + 2, Interest.CHANGES)
    assert bodies(back)[0]["fields"] == {"after": "failed"}


def test_the_question_who_is_interested_is_no_news(reporter: Reporter) -> None:
    assert not told(reporter, TraceKind.GAUGE_INTEREST)


def test_an_entity_that_floods_is_slowed_down_and_its_last_word_is_said(reporter: Reporter) -> None:
    flood: list[ReportEffect] = []
    for number in range(1_000):
        kind = TraceKind.READY if number % 2 else TraceKind.RECOVERING
        flood += reporter.report_trace("pump-7", kind, {"nth": number}, NOW + number / 1_000)
    assert len(bodies(flood)) == CHANGES_BURST
    assert sum(1 for effect in flood if isinstance(effect, Count)) == 1_000 - CHANGES_BURST - 1
    assert bodies(told(reporter, TraceKind.READY, NOW + 1, entity="pump-8")), "others are not slowed down"
    due = reporter.next_deadline
    assert due is not None
    assert due <= NOW + 1 + CHANGES_EVERY_S
    (last,) = bodies(reporter.due_reports(due))
    assert (last["fields"], last["time_ms"]) == ({"nth": 999}, int((NOW + 0.999) * 1000))
    assert last["number"] == CHANGES_BURST + 1, "readers see no gap"
    assert reporter.next_deadline is None


def test_over_a_minute_of_flood_one_a_second_comes_through(reporter: Reporter) -> None:
    said = 0
    for tenth in range(600):
        now = NOW + tenth / 10
        said += len(bodies(reporter.due_reports(now))) + len(bodies(told(reporter, TraceKind.READY, now)))
    assert said <= CHANGES_BURST + 60 / CHANGES_EVERY_S + 1


def test_paces_are_bounded_and_what_is_held_is_said_before_it_is_forgotten(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "REPORTED_MAX", 3)
    for number in range(CHANGES_BURST + 1):
        reporter.report_trace("pump-7", TraceKind.READY, {"nth": number}, NOW)
    effects = [effect for n in range(3) for effect in told(reporter, TraceKind.JOIN, NOW, f"other {n}")]
    assert [body["entity"] for body in bodies(effects)] == ["other 0", "other 1", "pump-7", "other 2"]
    assert not list(reporter.due_reports(NOW + 60)), "it is not said twice"


def test_all_together_are_slowed_down_and_the_last_word_of_each_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge with thousands of devices that dies and comes back, say, while others are simply well."""
    monkeypatch.setattr(reporting, "REPORTS_BURST", 50)
    monkeypatch.setattr(reporting, "REPORTS_PER_S", 10)
    reporter = Reporter("gate", "works", "entities")
    herd = [f"e{number:03}" for number in range(200)]
    said = bodies(effect for name in herd for effect in told(reporter, TraceKind.FAILED, NOW, name))
    assert [body["entity"] for body in said] == herd[:50]
    effects = [effect for name in herd for effect in told(reporter, TraceKind.ALLS_WELL, NOW, name)]
    assert len(bodies(effects)) == 50, "what does not change takes no change's place"
    assert sum(1 for effect in effects if isinstance(effect, Count)) == 150
    effects = [effect for name in herd[100:] for effect in told(reporter, TraceKind.JOIN, NOW + 0.05, name)]
    assert not bodies(effects)
    said, times, now = [], [], NOW
    while (due := reporter.next_deadline) is not None:
        assert due > now
        now = due
        fresh = bodies(reporter.due_reports(now))
        said += fresh
        times += [now] * len(fresh)
    assert [(body["entity"], body["kind"]) for body in said] == [
        *((name, "FAILED") for name in herd[50:100]), *((name, "JOIN") for name in herd[100:])
    ]  # fmt: skip
    assert all(at - NOW >= (place - 1) / 10 for place, at in enumerate(times))
    assert times[-1] - NOW < 17
    assert {body["number"] for body in said} == {1}, "readers see no gap"
    assert bodies(told(reporter, TraceKind.ALLS_WELL, now, herd[150])), "it was not said before, so it is now"


def test_nobody_else_reports_and_no_report_shows(reporter: Reporter) -> None:
    own = OwnTopics()
    reporter.reserve_topics(own)
    assert own.are_ours("entities/gate/pump-7/trace")
    assert "entities/gate/pump-7/availability" not in own
    assert "secret" not in repr(TraceReport("t", b"secret"))


def test_a_clock_that_goes_back_stops_no_report(reporter: Reporter) -> None:
    assert bodies(told(reporter, TraceKind.ALLS_WELL))
    assert not bodies(told(reporter, TraceKind.ALLS_WELL))
    assert bodies(told(reporter, TraceKind.ALLS_WELL, NOW - 1))


def test_what_is_said_as_of_another_interest_has_its_pace(reporter: Reporter) -> None:
    for kind, to, changes in (
        (TraceKind.FAILED, Interest.LOAD, False),
        (TraceKind.LOAD_INFORMATION, Interest.STATES, True),
    ):
        said = [effect for _ in range(3) for effect in reporter.report_trace("pump-7", kind, {}, NOW, to)]
        assert len(bodies(said)) == (3 if changes else 1)


def test_what_was_held_back_is_said_when_it_may_be_and_not_before(reporter: Reporter) -> None:
    assert reporter.next_deadline is None
    for number in range(CHANGES_BURST + 2):
        reporter.report_trace("pump-7", TraceKind.READY, {"nth": number}, NOW)
    assert reporter.next_deadline == NOW + CHANGES_EVERY_S
    assert not list(reporter.due_reports(NOW + CHANGES_EVERY_S - 0.001))
    (last,) = bodies(reporter.due_reports(NOW + CHANGES_EVERY_S))
    assert last["fields"] == {"nth": CHANGES_BURST + 1}
    assert not bodies(told(reporter, TraceKind.READY, NOW + CHANGES_EVERY_S)), "that was the one of this second"
    assert bodies(told(reporter, TraceKind.FAILED, NOW + 3 * CHANGES_EVERY_S))


def test_who_was_heard_of_lately_is_remembered(reporter: Reporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "REPORTED_MAX", 2)
    for entity in ("a", "b", "a", "c", "a"):
        (report,) = bodies(told(reporter, TraceKind.JOIN, entity=entity))
    assert (report["entity"], report["number"]) == ("a", 3)
    (report,) = bodies(told(reporter, TraceKind.JOIN, entity="b"))
    assert report["number"] == 1, "it was forgotten"


def test_what_an_entity_signs_stands_beside_what_its_witness_adds(reporter: Reporter) -> None:
    word = OwnWord(0, 1, int(NOW * 1000), TraceKind.LOAD_INFORMATION, b'{"cpu":0.5,"by":"it"}').signed(SPY)
    said = told(reporter, TraceKind.LOAD_INFORMATION, **own_fields(word), by="witness")
    assert bodies(said)[0]["fields"] == {"cpu": 0.5, "by": "witness"}


# ------------------------------------------------------------------------------------ as its broker makes them


class Reported(Entity):
    """A registered entity with these restrictions at a broker that reports; nobody tracks it."""

    def __init__(self, *discoverers: str) -> None:
        random_bytes = random.Random("reported").randbytes
        reporter = Reporter("gate", "works", "entities")
        super().__init__(Tracer(LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, random_bytes, reporter))
        self.advertisement = replace(self.advertisement, discoverers=discoverers).signed(NODE)
        self.reports: list[dict[str, Any]] = []
        self.register()

    def _take(self, effects: list[TracingEffect]) -> None:
        super()._take(effects)
        self.reports += bodies(effect for effect in effects if isinstance(effect, TraceReport))

    def kinds(self) -> list[str]:
        return [report["kind"] for report in self.reports]


def test_what_nobody_tracks_is_reported_all_the_same() -> None:
    pump = Reported("gate")
    pump.authorise()
    pump.say(Word.STATE, bytes([TraceKind.READY]))
    pump.say(Word.LOAD, b'{"cpu":0.5}')
    pump.run(20)
    pump.answers = False
    pump.run(20)
    pump.handle(ClientGone(pump.client, clean=False))
    assert pump.kinds() == [
        "JOIN", "READY", "LOAD_INFORMATION", "ALLS_WELL", "NETWORK_METRICS", "FAILURE_SUSPICION", "FAILED",
        "DISCONNECT",
    ]  # fmt: skip
    assert not pump.traces(TraceKind.LOAD_INFORMATION), "a report makes no tracker"
    assert [report["number"] for report in pump.reports] == list(range(1, 9))


def test_a_day_of_health_is_a_report_of_a_kind_in_half_a_minute() -> None:
    pump = Reported("gate")
    pump.authorise()
    pump.run(10 * STEADY_S)
    assert pump.kinds().count("ALLS_WELL") == pump.kinds().count("NETWORK_METRICS") == 10


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize(("discoverers", "may"), [(("desk",), False), ((), False), (("desk", "entities/#"), True)])
def test_an_entity_that_restricts_discovery_is_not_reported_unless_it_says_so(
    secured: bool, discoverers: tuple[str, ...], may: bool
) -> None:
    pump = Reported(*discoverers)
    pump.authorise()
    if secured:
        pump.say(Word.TRACE_KEY, b"K" * 32)
    pump.say(Word.STATE, bytes([TraceKind.READY]))
    pump.run(5)
    pump.say(Word.SILENT)
    assert bool(pump.reports) is may
    assert pump.traces(TraceKind.REVERTING_TO_SILENT_MODE), "trackers hear of it in any case"


def test_without_a_token_nothing_is_reported_and_with_an_expired_one_no_longer() -> None:
    pump = Reported("gate")
    pump.say(Word.STATE, bytes([TraceKind.READY]))
    pump.run(5)
    assert not pump.reports
    pump.authorise(life_ms=5_000)
    pump.run(60)
    assert {report["time_ms"] <= int((NOW + 10.1) * 1000) for report in pump.reports} == {True}


def test_what_somebody_else_says_is_not_reported() -> None:
    """A client that merely connects, or speaks in a session that is not its own, reports nothing in another's name."""
    pump = Reported("gate")
    pump.authorise()
    before = len(pump.reports)
    state = bytes([TraceKind.SHUTDOWN])
    forged = pump.session.say_word(Word.STATE, state, SPY)
    pump.handle(Spoke("spy", pump.session.session, forged))
    pump.handle(Spoke("spy", bytes(16), forged))
    pump.handle(ClientGone("spy", clean=False))
    assert len(pump.reports) == before


def test_a_tracker_that_comes_anew_hears_the_state_and_no_report_is_made_of_it() -> None:
    pump = Reported("gate", "desk")
    pump.authorise()
    pump.say(Word.STATE, bytes([TraceKind.READY]))
    for _ in range(5):
        pump.want(anew=True)
    assert pump.kinds().count("READY") == 1
    assert len(pump.traces(TraceKind.READY)) == 5


def test_an_entity_that_registers_anew_keeps_its_pace() -> None:
    pump = Reported("gate")
    for _ in range(CHANGES_BURST + 10):
        pump.register()
        pump.authorise()
    assert pump.kinds() == ["JOIN"] * CHANGES_BURST
    pump.run(10)
    assert pump.kinds().count("JOIN") == CHANGES_BURST + 1, "the last one came later"


def test_what_an_entity_of_several_witnesses_signs_is_reported_as_what_it_says(reporter: Reporter) -> None:
    word = OwnWord(0, 1, int(NOW * 1000), TraceKind.LOAD_INFORMATION, b'{"cpu":0.5}').signed(SPY)
    signed = told(reporter, TraceKind.LOAD_INFORMATION, **own_fields(word))
    assert bodies(signed)[0]["fields"] == {"cpu": 0.5}
    figure = told(reporter, TraceKind.LOAD_INFORMATION, NOW + STEADY_S, word=16, cpu=1)
    assert bodies(figure)[0]["fields"] == {"word": 16, "cpu": 1}
