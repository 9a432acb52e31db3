"""Availability is an entity's: documents and words of Home Assistant's devices as public firmware publishes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.devices import conventions
from bridge.devices.rules import DeviceRules
from bridge.traces.kinds import TraceKind
from tests.bridge.devicesite import Site

JOIN, READY, FAILED, WELL = TraceKind.JOIN, TraceKind.READY, TraceKind.FAILED, TraceKind.ALLS_WELL
SUSPECTED = TraceKind.FAILURE_SUSPICION


class Home(Site):
    """A bridge's connection, and what it publishes."""

    def __post_init__(self) -> None:
        self.rules = DeviceRules(clients=())
        super().__post_init__()
        self.connect("hub")

    def entity(self, device: object, entity: str = "t", **fields: Any) -> None:
        document = {"unique_id": f"{device}_{entity}", "device": {"identifiers": [device]}, **fields}
        self.say(f"homeassistant/sensor/{device}_{entity}/config", document)

    def say(self, topic: str, payload: object, will: bool = False) -> None:
        data = payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()
        self.publish("hub", topic, data, will)
        self.run(1.5)


def availability(*topics: str) -> dict[str, Any]:
    return {"availability": [{"topic": topic} for topic in topics], "availability_mode": "all"}


def test_one_unavailable_entity_is_no_dead_device() -> None:
    """A printer whose buttons are available while it prints; a sensor board one of whose sensors broke."""
    home = Home()
    home.entity("printer", "bed", availability_topic="p/mqtt")
    home.entity("printer", "cancel", availability_topic="p/prints", payload_available="True",
                payload_not_available="False")  # fmt: skip
    home.entity("board", "bme", **availability("b/status", "b/bme"))
    home.entity("board", "light", availability_topic="b/status")
    for topic, word in (("p/mqtt", "online"), ("p/prints", "False"), ("b/status", "online"), ("b/bme", "offline")):
        home.say(topic, word)
    assert (home.kinds("printer"), home.kinds("board")) == ([JOIN, READY], [JOIN, READY])
    home.say("b/status", "offline")
    home.say("p/mqtt", "offline")
    assert (home.kinds("board")[-1], home.kinds("printer")[-1]) == (FAILED, FAILED)


def test_a_renamed_device_is_heard_where_its_new_document_says() -> None:
    home = Home()
    home.entity("lamp", **availability("z/state", "z/old"))
    home.entity("plug", **availability("z/state", "z/plug"))
    for topic, word in (("z/state", "online"), ("z/old", "online"), ("z/plug", "online"), ("z/old", "offline")):
        home.say(topic, word)
    home.say("z/plug", "offline")
    home.say("z/old", "")
    home.entity("lamp", **availability("z/state", "z/new"))
    assert home.kinds("lamp")[-1] is FAILED, "nobody said yet that it is back"
    home.say("z/new", "offline")
    home.entity("plug", **availability("z/state"))
    assert home.kinds("plug")[-1] is WELL, "its bridge's word is the only one that counts"
    home.say("z/new", "online")
    assert home.kinds("lamp")[-1] is WELL
    home.say("z/old", "offline")
    assert home.kinds("lamp")[-1] is WELL, "no document names that topic any more"


def test_a_topic_that_was_silent_so_far_says_nothing() -> None:
    home = Home()
    home.entity("lamp", **availability("z/state", "z/lamp"))
    home.say("z/state", "online")
    assert home.kinds("lamp") == []
    home.say("z/lamp", "online")
    assert home.kinds("lamp") == [JOIN, READY]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"payload_available": True, "payload_not_available": False}, {"online": True}),
        ({"payload_available": "True", "payload_not_available": "False"}, {"online": True}),
        ({"payload_available": 1, "payload_not_available": 0}, {"online": 1}),
        ({"payload_available": "1.5"}, {"online": 1.5}),
    ],
)
def test_words_are_text_whatever_json_has(fields: dict[str, Any], word: object) -> None:
    home = Home()
    home.entity("x", availability_topic="a", availability_template="{{ value_json.online }}", **fields)
    home.say("a", word)
    assert home.kinds("x") == [JOIN, READY]


def test_identifiers_may_be_numbers() -> None:
    home = Home()
    for entity in ("t", "h"):
        home.entity(20240017, entity, availability_topic="a")
    home.say("a", "online")
    assert home.kinds("20240017") == [JOIN, READY]
    assert len(home.devices) == 1


def test_each_entity_expires_by_itself() -> None:
    home = Home()
    home.entity("x", "battery", expire_after=86_400, state_topic="x/battery")
    home.entity("x", "temperature", expire_after="9", state_topic="x/temperature")
    home.say("x/battery", "90")
    home.say("x/temperature", "21")
    home.run(86_300)
    assert home.kinds("x")[0] is JOIN
    assert FAILED not in home.kinds("x")
    home.run(100)
    assert home.kinds("x")[-1] is FAILED


def test_expiry_may_be_text() -> None:
    home = Home()
    home.entity("x", expire_after="9", state_topic="x", availability_topic="a")
    home.say("a", "online")
    home.say("x", "1")
    home.run(9)
    assert home.kinds("x") == [JOIN, READY, SUSPECTED, FAILED]
    home.say("x", "1")
    assert home.kinds("x")[-1] is WELL


def test_a_state_topic_may_have_wildcards() -> None:
    home = Home()
    home.entity("ble", expire_after=9, availability_topic="lwt", state_topic="+/+/BTtoMQTT/A4C1")
    home.say("lwt", "online")
    for _ in range(20):
        home.say("home/hub/BTtoMQTT/A4C1", {"tempc": 21.4})
    assert home.kinds("ble") == [JOIN, READY]
    home.run(9)
    assert home.kinds("ble")[-1] is FAILED


def test_offline_on_a_topic_of_states_is_a_word() -> None:
    home = Home()
    home.entity("x", expire_after=60, state_topic="x", availability_topic="x",
                availability_template="{{ value_json.availability }}")  # fmt: skip
    home.say("x", {"availability": "online", "t": 5})
    assert home.kinds("x") == [JOIN, READY]
    home.say("x", {"availability": "offline", "t": 5})
    home.run(2)
    assert home.kinds("x")[-1] is FAILED


def test_an_empty_document_removes_its_entity_and_the_last_one_its_device() -> None:
    home = Home()
    for entity in ("a", "b"):
        home.entity("x", entity, availability_topic=f"x/{entity}")
        home.say(f"x/{entity}", "online")
    home.say("homeassistant/sensor/x_a/config", "")
    home.say("x/b", "offline")
    home.run(2)
    assert home.kinds("x")[-1] is FAILED, "the entity that is left is gone"
    home.say("homeassistant/sensor/x_b/config", "")
    home.say("homeassistant/sensor/x_b/config", "")
    assert home.removed == ["x"]


def test_an_empty_document_for_a_device_removes_all_its_components() -> None:
    home = Home()
    document = {
        "device": {"identifiers": "x"},
        "availability_topic": "x/a",
        "components": {"p": {"unique_id": "p"}, "q": {"unique_id": "q"}},
    }
    home.say("homeassistant/device/x/config", document)
    home.say("x/a", "online")
    assert home.kinds("x") == [JOIN, READY]
    home.say("homeassistant/device/x/config", "")
    assert home.removed == ["x"]
    assert len(home.devices._conventions) == 0


def test_a_will_that_says_online_is_no_death() -> None:
    home = Home()
    home.entity("tank", availability_topic="tank/status")
    home.say("tank/status", "online")
    home.publish("hub", "tank/status", b"online", will=True)
    home.lose("hub")
    home.run(3_600)
    assert home.kinds("tank") == [JOIN, READY]


def test_a_bridge_of_one_sensor_that_says_it_is_offline_does_not_leave() -> None:
    home = Home()
    home.entity("only", availability_topic="only")
    home.say("only", "online")
    home.say("only", "offline")
    home.run(2)
    assert home.kinds("only") == [JOIN, READY, FAILED]


def test_what_one_origin_watches_with_wildcards_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packet is held against every filter that matches it."""
    monkeypatch.setattr(conventions, "WILD_MAX", 10)
    home = Home()
    home.entity("honest", availability_topic="+/lwt")
    home.connect("evil", origin="10.6.6.6")
    for place in range(50):
        document = {"unique_id": f"x{place}", "availability_topic": f"{'+/' * (place + 2)}lwt"}
        home.publish("evil", f"homeassistant/sensor/x{place}/config", json.dumps(document).encode())
    assert len(home.devices._conventions._filters) == 10
    home.say("any/lwt", "online")
    assert home.kinds("honest") == [JOIN, READY]


def test_a_document_finds_what_was_said_before_it() -> None:
    """As Home Assistant does, which subscribes then: a bridge says its own state before it describes its devices."""
    home = Home(retained={"z/state": b"online", "z/dead": b"offline"})
    for device in ("lamp", "dead"):
        home.entity(device, **availability("z/state", f"z/{device}"))
        home.say(f"z/{device}", "online" if device == "lamp" else "?")
    assert home.kinds("lamp") == [JOIN, READY]
    assert home.kinds("dead") == []
    home.entity("dead", **availability("z/state"))
    home.say("z/state", "offline")
    home.entity("lamp", "second", availability_topic="z/other")
    assert home.kinds("lamp")[-1] is FAILED, "a word that was heard outweighs one that lay there"
