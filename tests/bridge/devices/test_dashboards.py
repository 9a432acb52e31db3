"""What dashboards are shown: described once, cleared whole, and never taken for a word of a device."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.devices.conventions import HOME_ASSISTANT, HOMIE, OURS
from bridge.devices.dashboards import BEGINNINGS, DASHBOARDS, GATEWAY_STATE, Dashboards, Show, entity_id
from bridge.devices.life_evidence import DeviceHealth
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
    cleared = made.clear_entity("pump")
    assert {show.topic for show in cleared} == shown
    assert {show.payload for show in cleared} <= {b""}
    assert set(by_topic(made, "pump", DeviceHealth.ALIVE, None, 2, "")) == shown


def test_nobody_else_publishes_what_is_shown() -> None:
    own = OwnTopics()
    Dashboards((HOMIE,)).reserve_topics(own)
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


def test_names_of_topics_are_letters_digits_dashes_and_a_hash() -> None:
    for entity, slug in (("Pump 7!", "pump-7"), ("shop:a__b", "shop-a-b"), ("--", ""), ("x" * 60, "x" * 48)):
        assert entity_id(entity) == f"veilmq-{slug}-{hashlib.sha256(entity.encode()).hexdigest()[:8]}"


def test_the_documents_are_these() -> None:
    """Home Assistant's binary sensor of class connectivity; a device of Homie 5 without nodes."""
    name = entity_id("shop:plug")
    state = f"homeassistant/binary_sensor/{name}/state"
    made = by_topic(Dashboards(DASHBOARDS), "shop:plug", DeviceHealth.SUSPECTED, TraceKind.READY, 5_000, "silent")
    assert json.loads(made[f"homeassistant/binary_sensor/{name}/config"]) == {
        "name": "Connectivity",
        "unique_id": name,
        "device_class": "connectivity",
        "default_entity_id": "binary_sensor." + name.replace("-", "_"),
        "origin": {"name": "VeilMQ"},
        "entity_category": "diagnostic",
        "state_topic": state,
        "value_template": "{{ value_json.state }}",
        "expire_after": 900,
        "availability": [{"topic": "homeassistant/binary_sensor/veilmq-gateway/state"}],
        "availability_mode": "all",
        "payload_on": "online",
        "payload_off": "offline",
        "json_attributes_topic": state,
        "device": {"identifiers": [name], "name": "shop:plug"},
    }
    assert made[state] == (
        b'{"state":"online","health":"suspected","since":5000,"reason":"silent","entity":"shop:plug"}'
    )
    described = made[f"homie/5/{name}/$description"]
    assert json.loads(described) == {"homie": "5.0", "version": 1, "name": "shop:plug", "nodes": {}}


def test_names_are_written_as_they_are() -> None:
    (config, _) = Dashboards((HOME_ASSISTANT,)).show("büro", DeviceHealth.ALIVE, None, 1, "")
    assert "büro".encode() in config.payload


def test_the_gateway_says_that_it_is_there_to_who_asks_for_it() -> None:
    assert Dashboards(DASHBOARDS).here() == [Show(GATEWAY_STATE, b"online")]
    assert Dashboards((HOMIE,)).here() == [Show(GATEWAY_STATE, b"")]
    assert GATEWAY_STATE == "homeassistant/binary_sensor/veilmq-gateway/state"


def test_a_suspicion_without_a_reason_is_an_alert_all_the_same() -> None:
    topic = f"homie/5/{entity_id('pump')}/$alert/health"
    assert by_topic(Dashboards((HOMIE,)), "pump", DeviceHealth.SUSPECTED, None, 1, "")[topic] == b"suspected"


def test_after_it_was_cleared_an_alert_is_shown_anew() -> None:
    made, topic = Dashboards((HOMIE,)), f"homie/5/{entity_id('pump')}/$alert/health"
    for _ in range(2):
        assert by_topic(made, "pump", DeviceHealth.SUSPECTED, None, 1, "silent")[topic] == b"silent"
        made.clear_entity("pump")
