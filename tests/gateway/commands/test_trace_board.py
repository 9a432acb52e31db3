"""The rows behind the table of `veilmq traces`, and what keeps a tracker from observing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.traces import TraceKind
from bridge.tracking import Observed
from gateway.commands.trace_board import GIVE_UP_S, PATIENCE_S, TraceBoard, Troubles

START_MS = 1_800_000_000_000


def seen(entity: str, kind: TraceKind, second: int = 0, **fields: Any) -> Observed:
    return Observed(entity, kind, START_MS + second * 1000, second + 1, fields)


def test_the_board_shows_who_needs_somebody_first() -> None:
    board = TraceBoard(("idle",))
    for each in (
        seen("pump", TraceKind.JOIN, 0),
        seen("pump", TraceKind.READY, 1, state="READY"),
        seen("pump", TraceKind.ALLS_WELL, 2, latency_ms=3),
        seen("fan", TraceKind.JOIN, 2),
        seen("pump", TraceKind.LOAD_INFORMATION, 3, cpu=0.5),
        seen("pump", TraceKind.NETWORK_METRICS, 4, loss_rate=0.25, latency_ms=4, jitter_ms=None),
        seen("fan", TraceKind.FAILURE_SUSPICION, 5),
        seen("fan", TraceKind.FAILED, 6),
    ):
        board.show_trace(each)
    assert [(row.entity, row.health) for row in board.sorted()] == [
        ("fan", "failed"), ("idle", "unknown"), ("pump", "alive"),
    ]  # fmt: skip
    assert board.summary() == {"unknown": 1, "alive": 1, "failed": 1}
    assert board.rows["pump"].to_json() == {
        "entity": "pump", "health": "alive", "state": "READY", "since_ms": START_MS, "seen_ms": START_MS + 4000,
        "latency_ms": 4, "loss_rate": 0.25, "load": {"cpu": 0.5}, "flaps": 0,
    }  # fmt: skip
    board.show_trace(seen("fan", TraceKind.ALLS_WELL, 7, after="failed"))
    assert (board.rows["fan"].health, board.rows["fan"].since_ms) == ("alive", START_MS + 7000)


def test_who_goes_while_it_was_known_to_be_there_flaps() -> None:
    board = TraceBoard()
    board.show_trace(seen("pump", TraceKind.FAILED, 0))  # from unknown: nobody saw it go
    assert board.rows["pump"].flaps == 0
    for second in (1, 3):
        board.show_trace(seen("pump", TraceKind.ALLS_WELL, second))
        board.show_trace(seen("pump", TraceKind.DISCONNECT, second + 1))
    board.show_trace(seen("pump", TraceKind.FAILED, 6))  # still away
    assert board.rows["pump"].flaps == 2


def test_since_when_is_the_brokers_word_before_ours() -> None:
    board = TraceBoard()
    board.show_trace(seen("pump", TraceKind.ALLS_WELL, 5))
    board.show_trace(seen("pump", TraceKind.ALLS_WELL, 6))
    assert board.rows["pump"].since_ms == START_MS + 5000
    board.show_trace(seen("pump", TraceKind.ALLS_WELL, 7, since_ms=START_MS - 1))
    assert board.rows["pump"].since_ms == START_MS - 1
    board.show_trace(seen("pump", TraceKind.FAILED, 8, since_ms="yesterday"))
    assert board.rows["pump"].since_ms == START_MS + 8000


def test_an_old_trace_that_comes_late_does_not_take_back_when_it_was_seen() -> None:
    board = TraceBoard()
    board.show_trace(seen("pump", TraceKind.ALLS_WELL, 9))
    board.show_trace(seen("pump", TraceKind.LOAD_INFORMATION, 2, cpu=1))
    assert board.rows["pump"].seen_ms == START_MS + 9000


@given(st.lists(st.tuples(st.sampled_from(["a", "shop:b", "shop:c"]), st.sampled_from(list(TraceKind)))))
def test_groups_and_summary_count_everybody_once(story: list[tuple[str, TraceKind]]) -> None:
    board = TraceBoard(("idle",))
    for second, (entity, kind) in enumerate(story):
        board.show_trace(seen(entity, kind, second))
    groups = board.groups()
    assert sum(board.summary().values()) == len(board.rows) == len(board.sorted())
    assert {health: sum(group.get(health, 0) for group in groups.values()) for health in board.summary()} == (
        board.summary()
    )
    assert list(groups) == sorted(groups)


class FakeTracker:
    """A tracker whose state the test writes."""

    def __init__(self) -> None:
        self.amiss: tuple[str, ...] = ()
        self.is_connected = False
        self.told: dict[str, str] = {}

    def trouble(self, entity: str) -> str | None:
        return self.told.get(entity)


def test_nothing_is_said_before_discovery_had_its_time() -> None:
    tracker = FakeTracker()
    troubles = Troubles(tracker, ["pump"], now=100.0)
    assert troubles.news(100.0 + PATIENCE_S - 0.1) == []
    assert not troubles.are_all
    assert troubles.news(100.0 + PATIENCE_S) == ["no broker answers; is --gateway right?"]
    assert (troubles.are_all, troubles.are_any) == (True, True)


def test_what_lasts_is_said_once_and_again_after_it_was_gone() -> None:
    tracker = FakeTracker()
    tracker.is_connected = True
    tracker.told = {"pump": "no entity of that name"}
    troubles = Troubles(tracker, ["pump", "fan"], now=0.0)
    assert troubles.news(10.0) == ["pump: no entity of that name"]
    assert not troubles.are_all, "fan is followed"
    assert troubles.news(11.0) == []
    tracker.told = {}
    assert troubles.news(12.0) == []
    assert not troubles.are_any
    tracker.told = {"pump": "no entity of that name", "fan": "may not be tracked by us"}
    assert len(troubles.news(13.0)) == 2
    assert not troubles.are_all, "a device that came just now is found soon"
    assert troubles.news(13.0 + GIVE_UP_S) == []
    assert troubles.are_all


@pytest.mark.parametrize("why", ["127.0.0.1:1883 refuses us: bad password", "certificate has ended"])
def test_why_the_link_is_down_is_said_instead_of_a_guess(why: str) -> None:
    tracker = FakeTracker()
    tracker.amiss = (why,)
    assert Troubles(tracker, [], now=0.0).news(10.0) == [why]


def test_a_connection_that_is_lost_later_is_not_all_that_was_ever_wrong() -> None:
    tracker = FakeTracker()
    tracker.is_connected = True
    troubles = Troubles(tracker, ["pump"], now=0.0)
    assert troubles.news(10.0) == []
    tracker.is_connected = False
    assert troubles.news(11.0) == ["no broker answers; is --gateway right?"]
    assert not troubles.are_all
