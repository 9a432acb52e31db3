"""Groups, who is away since when, who flaps, who is called when; all of it bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.base import Wall
from bridge.document.own_topics import OwnTopics
from bridge.traces import fleet as fleets
from bridge.traces.fleet import (
    FLAPS_KEPT,
    FLAPS_S,
    OFFLINE_SHOWN,
    SAY_EVERY_S,
    Alert,
    Fleet,
    Stood,
    Summary,
    group_of,
)
from bridge.traces.kinds import TraceKind

K = TraceKind
NOW = 1_000.0


class Watched:
    """A fleet and what it said last on each topic."""

    def __init__(self) -> None:
        self.fleet = Fleet("fleet", 60.0, Wall())
        self.said: dict[str, Any] = {}
        self.alerts: list[dict[str, Any]] = []
        self.summaries = 0
        self.now = NOW

    def stands(self, entity: str, kind: K) -> None:
        self.take(self.fleet.stood(Stood(entity, kind), self.now))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.fleet.next_deadline) is not None and due <= until:
            self.now = max(self.now, due)
            self.take(self.fleet.due_alerts(self.now))
        self.now = until

    def take(self, effects: list[Summary | Alert]) -> None:
        for effect in effects:
            if isinstance(effect, Alert):
                self.alerts.append(json.loads(effect.payload))
            else:
                self.summaries += 1
                self.said[effect.topic] = json.loads(effect.payload) if effect.payload else None


def test_a_group_says_how_many_stand_how_and_who_is_away_since_when() -> None:
    site = Watched()
    for entity in ("shop:a", "shop:b", "shop:c", "pump"):
        site.stands(entity, K.JOIN)
    site.run(5)
    site.stands("shop:b", K.FAILED)
    site.run(2)
    site.stands("shop:a", K.DISCONNECT)
    site.run(2)
    shop = site.said["fleet/shop/fleet"]
    assert (shop["alive"], shop["failed"], shop["disconnected"]) == (1, 1, 1)
    assert [(one["entity"], one["since_ms"]) for one in shop["offline"]] == [
        ("shop:b", 1_005_000),
        ("shop:a", 1_007_000),
    ]
    assert site.said["fleet/all/fleet"]["alive"] == 1
    assert len(site.fleet) == 4


def test_a_herd_that_dies_at_once_is_one_summary_a_second() -> None:
    site = Watched()
    for place in range(500):
        site.stands(f"shop:{place}", K.JOIN)
    site.run(5)
    before = site.summaries
    for place in range(500):
        site.stands(f"shop:{place}", K.FAILED)
        site.run(0.01)
    site.run(2)
    assert site.summaries - before <= 5 / SAY_EVERY_S + 2
    shop = site.said["fleet/shop/fleet"]
    assert (shop["failed"], len(shop["offline"])) == (500, OFFLINE_SHOWN)
    assert shop["offline"][0]["entity"] == "shop:0", "the longest away first"


def test_who_stays_away_is_alerted_of_once_and_once_more_when_it_is_back() -> None:
    site = Watched()
    site.stands("shop:a", K.JOIN)
    for _ in range(3):  # short absences call nobody
        site.stands("shop:a", K.FAILED)
        site.run(30)
        site.stands("shop:a", K.ALLS_WELL)
        site.run(30)
    assert site.alerts == []
    site.stands("shop:a", K.DISCONNECT)
    site.run(30)
    site.stands("shop:a", K.FAILED)  # worse, and since the same moment away
    site.run(31)
    (away,) = site.alerts
    assert (away["entity"], away["health"], away["back"], away["flaps"]) == ("shop:a", "failed", False, 4)
    site.run(600)
    site.stands("shop:a", K.ALLS_WELL)
    assert [each["back"] for each in site.alerts] == [False, True]


def test_what_is_no_more_leaves_its_group_and_an_empty_group_is_cleared() -> None:
    site = Watched()
    site.stands("shop:a", K.FAILED)
    site.run(5)
    site.stands("shop:a", K.REVERTING_TO_SILENT_MODE)
    site.run(100)
    assert site.said["fleet/shop/fleet"] is None
    assert site.alerts == []
    assert len(site.fleet) == 0
    site.stands("nobody", K.REVERTING_TO_SILENT_MODE)


def test_names_that_act_in_topics_do_not() -> None:
    site = Watched()
    site.stands("a/b+#:x", K.JOIN)
    assert list(site.said) == ["fleet/a%2Fb%2B%23/fleet"]
    assert group_of("a:b:c") == "a"


def test_groups_and_entities_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "GROUPS_MAX", 3)
    monkeypatch.setattr(fleets, "ENTITIES_MAX", 5)
    site = Watched()
    for place in range(20):
        site.stands(f"g{place}:x", K.JOIN)
        site.stands(f"g0:{place}", K.JOIN)
    assert len(site.fleet) == 5


def test_a_view_has_all_groups_and_the_members_of_one_those_away_first() -> None:
    site = Watched()
    for entity in ("shop:a", "shop:b", "shop:c", "pump"):
        site.stands(entity, K.JOIN)
    site.run(5)
    site.stands("shop:c", K.FAILED)
    site.run(2)
    site.stands("shop:c", K.ALLS_WELL)
    site.run(2)
    site.stands("shop:b", K.FAILED)
    site.run(1)
    site.stands("shop:a", K.FAILURE_SUSPICION)
    view: Any = site.fleet.view("shop", 2, site.now)
    assert [(each["group"], each["alive"], each["failed"]) for each in view["groups"]] == [
        ("all", 1, 0),
        ("shop", 1, 1),
    ]
    assert [(each["entity"], each["health"]) for each in view["entities"]] == [
        ("shop:b", "failed"),
        ("shop:a", "suspected"),
    ]
    assert view["more"], "the third stands well"
    whole: Any = site.fleet.view("", 10, site.now)
    assert [each["entity"] for each in whole["entities"]] == ["shop:b", "shop:a", "pump", "shop:c"]
    (well,) = [each for each in whole["entities"] if each["entity"] == "shop:c"]
    assert (well["flaps"], well["went_ms"], whole["more"]) == (1, [1_005_000], False)
    assert site.fleet.view("nobody", 10, site.now)["entities"] == []


def test_a_summary_and_an_alert_are_these_documents() -> None:
    fleet = Fleet("site/fleet", 60.0, Wall(1_000.0))
    (summary,) = fleet.stood(Stood("shöp:a", K.FAILED), 100.0)
    assert summary == Summary(
        "site/fleet/sh%C3%B6p/fleet",
        '{"group":"shöp","alive":0,"suspected":0,"failed":1,"disconnected":0,'
        '"offline":[{"entity":"shöp:a","since_ms":1100000,"flaps":1}],"time_ms":1100000}'.encode(),
    )
    assert fleet.next_deadline == 160.0
    assert fleet.due_alerts(159.999) == []
    (alert,) = fleet.due_alerts(160.0)
    body = '{"entity":"shöp:a","health":"failed","since_ms":1100000,"back":false,"flaps":1,"time_ms":1160000}'
    assert alert == Alert("site/fleet/sh%C3%B6p/alerts", body.encode(), back=False)
    assert fleet.next_deadline is None
    summary, alert = fleet.stood(Stood("shöp:a", K.JOIN), 170.0)
    assert isinstance(alert, Alert)
    assert alert.back
    assert json.loads(alert.payload)["health"] == "alive"
    assert json.loads(alert.payload)["since_ms"] == 1_170_000


def test_nobody_else_publishes_a_fleet() -> None:
    own = OwnTopics()
    Fleet("site/fleet", 60.0, Wall()).reserve_topics(own)
    assert "site/fleet/shop/fleet" in own
    assert "site/fleets" not in own


def test_who_may_not_be_discovered_here_is_not_counted() -> None:
    fleet = Fleet("fleet", 60.0, Wall(), lambda discoverers: "us" in discoverers)
    assert fleet.stood(Stood("shop:a", K.JOIN), NOW) == []
    assert (len(fleet), fleet.view("", 9, NOW)) == (0, {"groups": [], "entities": [], "more": False})
    assert len(fleet.stood(Stood("shop:a", K.JOIN, ("us",)), NOW)) == 1
    assert fleet.stood(Stood("shop:a", K.REVERTING_TO_SILENT_MODE), NOW) == []
    assert len(fleet) == 1


def test_a_change_within_a_second_is_said_at_its_end_and_what_is_no_change_never() -> None:
    fleet = Fleet("fleet", 60.0, Wall())
    assert fleet.next_deadline is None
    fleet.stood(Stood("shop:a", K.JOIN), NOW)
    assert fleet.stood(Stood("shop:a", K.ALLS_WELL), NOW + 0.1) == []
    assert fleet.next_deadline is None
    for at in (0.2, 0.3):
        assert fleet.stood(Stood("shop:a", K.FAILURE_SUSPICION if at == 0.2 else K.ALLS_WELL), NOW + at) == []
        assert fleet.next_deadline == NOW + SAY_EVERY_S
    assert fleet.due_alerts(NOW + SAY_EVERY_S - 0.001) == []
    assert len(fleet.due_alerts(NOW + SAY_EVERY_S)) == 1
    assert len(fleet.stood(Stood("shop:a", K.FAILED), NOW + 2 * SAY_EVERY_S)) == 1, "a second later it may"


def test_flaps_are_those_of_the_last_day_and_a_few_only() -> None:
    fleet, now = Fleet("fleet", 1e9, Wall()), NOW
    for _ in range(FLAPS_KEPT + 5):
        fleet.stood(Stood("a", K.FAILED), now)
        fleet.stood(Stood("a", K.ALLS_WELL), now)
    fleet.stood(Stood("b", K.FAILED), now)
    view: Any = fleet.view("", 9, now + FLAPS_S - 0.001)
    assert [(each["entity"], each["flaps"]) for each in view["entities"]] == [("b", 1), ("a", FLAPS_KEPT)]
    assert len(view["entities"][1]["went_ms"]) == FLAPS_KEPT
    view = fleet.view("", 9, now + FLAPS_S)
    assert [(each["flaps"], each["went_ms"]) for each in view["entities"]] == [(0, []), (0, [])]


def test_a_view_is_cut_and_says_so_and_each_stands_with_its_group() -> None:
    fleet = Fleet("fleet", 60.0, Wall())
    for entity in ("shop:a", "pump"):
        fleet.stood(Stood(entity, K.JOIN), NOW)
    whole: Any = fleet.view("", 2, NOW)
    assert [(each["entity"], each["group"]) for each in whole["entities"]] == [("pump", "all"), ("shop:a", "shop")]
    assert not whole["more"]
    cut: Any = fleet.view("", 1, NOW)
    assert (len(cut["entities"]), cut["more"]) == (1, True)


def test_bounds_leave_every_group_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "GROUPS_MAX", 2)
    monkeypatch.setattr(fleets, "ENTITIES_MAX", 3)
    fleet = Fleet("fleet", 60.0, Wall())
    for entity in ("a:1", "b:1", "c:1", "a:2", "a:3"):
        fleet.stood(Stood(entity, K.JOIN), NOW)
    view: Any = fleet.view("", 9, NOW)
    assert {each["entity"] for each in view["entities"]} == {"b:1", "a:2", "a:3"}, "the largest group loses its oldest"
    fleet.due_alerts(NOW + 2)
    assert fleet.stood(Stood("a:3", K.FAILED), NOW + 5), "they change as before"
    fleet.stood(Stood("b:1", K.REVERTING_TO_SILENT_MODE), NOW + 5)
    assert len(fleet) == 2
    fleet.stood(Stood("c:1", K.JOIN), NOW + 10)
    assert len(fleet) == 3, "an empty group leaves its place"


@pytest.mark.attack(169)
def test_a_group_with_ever_new_entities_keeps_no_alert_of_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: an owner's devices fill the fleet, and of others that come later nobody is told that they died."""
    monkeypatch.setattr(fleets, "ENTITIES_MAX", 10)
    site = Watched()
    for number in range(50):
        site.stands(f"evil:{number}", K.JOIN)
    site.stands("shop:door", K.JOIN)
    site.stands("shop:door", K.FAILED)
    for number in range(50, 100):
        site.stands(f"evil:{number}", K.JOIN)
    site.run(100)
    assert [each["entity"] for each in site.alerts] == ["shop:door"]
    assert len(site.fleet) == 10
    assert site.said["fleet/evil/fleet"]["alive"] == 9


def test_who_is_back_before_its_time_and_away_again_is_alerted_of_by_its_last_absence() -> None:
    site = Watched()
    site.stands("a", K.FAILED)
    site.run(50)
    site.stands("a", K.ALLS_WELL)
    site.stands("a", K.DISCONNECT)
    site.run(59.9)
    assert site.alerts == []
    site.run(0.2)
    assert [each["back"] for each in site.alerts] == [False]
    site.run(600)
    assert len(site.alerts) == 1
    site.stands("a", K.JOIN)
    site.stands("a", K.FAILED)
    site.stands("a", K.JOIN)
    assert [each["back"] for each in site.alerts] == [False, True]
