"""Groups, who is away since when, who flaps, who is called when; all of it bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.base import Wall
from bridge.traces import fleet as fleets
from bridge.traces.fleet import OFFLINE_SHOWN, SAY_EVERY_S, Alert, Fleet, Stood, Summary, group_of
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
            self.take(self.fleet.due(self.now))
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
