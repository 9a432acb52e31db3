"""What dashboards are shown: described once, cleared whole, and never taken for a word of a device."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.devices.conventions import HOME_ASSISTANT, HOMIE, OURS
from bridge.devices.dashboards import BEGINNINGS, DASHBOARDS, Dashboards, entity_id
from bridge.devices.standing import DeviceHealth
from bridge.document.own_topics import OwnTopics
from bridge.traces.kinds import TraceKind


def by_topic(made: Dashboards, *arguments: object) -> dict[str, bytes]:
    return {show.topic: show.payload for show in made.show(*arguments)}  # type: ignore[arg-type]


def test_an_entity_is_described_once_and_its_state_is_shown_each_time() -> None:
    made = Dashboards(DASHBOARDS)
    name = entity_id("pump")
    first = by_topic(made, "pump", DeviceHealth.ALIVE, None, 5_000, "")
    assert list(first) == [
        f"homeassistant/binary_sensor/{name}/config", f"homie/5/{name}/$description",
        f"homeassistant/binary_sensor/{name}/state", f"homie/5/{name}/$alert/health", f"homie/5/{name}/$state",
    ]  # fmt: skip
    config = json.loads(first[f"homeassistant/binary_sensor/{name}/config"])
    assert config["state_topic"] == f"homeassistant/binary_sensor/{name}/state"
    assert (config["unique_id"], config["device"]["name"]) == (name, "pump")
    again = by_topic(made, "pump", DeviceHealth.FAILED, None, 6_000, "silent")
    assert list(again) == [topic for topic in list(first)[2:] if "$alert" not in topic]
    state = json.loads(again[f"homeassistant/binary_sensor/{name}/state"])
    assert state == {
        "state": config["payload_off"], "health": "failed", "since": 6_000, "reason": "silent", "entity": "pump",
    }  # fmt: skip


@pytest.mark.parametrize(("health", "there"), [
    (DeviceHealth.ALIVE, True), (DeviceHealth.SUSPECTED, True), (DeviceHealth.FAILED, False),
    (DeviceHealth.GONE, False),
])  # fmt: skip
def test_only_who_is_dead_or_gone_is_off(health: DeviceHealth, there: bool) -> None:
    made = Dashboards((HOME_ASSISTANT,))
    config, state = (json.loads(show.payload) for show in made.show("pump", health, None, 1, ""))
    assert state["state"] == config["payload_on" if there else "payload_off"]


@pytest.mark.parametrize(("health", "state", "word"), [
    (DeviceHealth.FAILED, TraceKind.READY, "lost"), (DeviceHealth.GONE, None, "disconnected"),
    (DeviceHealth.SUSPECTED, TraceKind.READY, "ready"), (DeviceHealth.ALIVE, TraceKind.RECOVERING, "ready"),
    (DeviceHealth.ALIVE, TraceKind.INITIALIZING, "init"), (DeviceHealth.ALIVE, TraceKind.SHUTDOWN, "sleeping"),
    (DeviceHealth.ALIVE, TraceKind.READY, "ready"), (DeviceHealth.ALIVE, None, "ready"),
])  # fmt: skip
def test_states_of_homie(health: DeviceHealth, state: TraceKind | None, word: str) -> None:
    *_, shown = Dashboards((HOMIE,)).show("pump", health, state, 1, "")
    assert shown.payload == word.encode()


def test_what_is_amiss_is_an_alert_of_homie_5_and_no_state() -> None:
    made = Dashboards((HOMIE,))
    topic = f"homie/5/{entity_id('pump')}/$alert/health"
    told = [
        by_topic(made, "pump", health, state, 1, why).get(topic)
        for health, state, why in (
            (DeviceHealth.ALIVE, TraceKind.READY, ""), (DeviceHealth.SUSPECTED, TraceKind.READY, "silent"),
            (DeviceHealth.SUSPECTED, TraceKind.READY, "silent"), (DeviceHealth.ALIVE, TraceKind.RECOVERING, ""),
            (DeviceHealth.FAILED, TraceKind.RECOVERING, "silent"), (DeviceHealth.ALIVE, TraceKind.READY, ""),
        )
    ]  # fmt: skip
    assert told == [b"", b"silent", None, b"recovering", b"", None]


@pytest.mark.parametrize("kinds", [(), (HOME_ASSISTANT,), (HOMIE,), DASHBOARDS])
def test_whatever_was_shown_is_cleared_and_described_anew(kinds: tuple[str, ...]) -> None:
    made = Dashboards(kinds)
    shown = set(by_topic(made, "pump", DeviceHealth.ALIVE, None, 1, ""))
    cleared = made.clear("pump")
    assert {show.topic for show in cleared} == shown
    assert {show.payload for show in cleared} <= {b""}
    assert set(by_topic(made, "pump", DeviceHealth.ALIVE, None, 2, "")) == shown


def test_nobody_else_publishes_what_is_shown() -> None:
    own = OwnTopics()
    Dashboards((HOMIE,)).guard(own)
    assert f"homie/5/{entity_id('pump')}/$state" in own
    assert f"{HOME_ASSISTANT}/binary_sensor/{entity_id('pump')}/state" not in own
    made = Dashboards(DASHBOARDS)
    for topic in by_topic(made, "pump", DeviceHealth.ALIVE, None, 1, ""):
        assert topic.startswith(tuple(BEGINNINGS.values()))


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True))
def test_any_name_is_one_plain_level_and_different_ones_stay_different(names: list[str]) -> None:
    first, second = map(entity_id, names)
    assert first != second
    for made in (first, second):
        assert made.startswith(f"{OURS}-")
        assert made.isascii()
        assert len(made) <= len(OURS) + 58
        assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
