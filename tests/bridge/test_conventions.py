"""Home Assistant, Homie and Sparkplug B as their own documents write them, and what must not be taken for them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import conventions
from bridge.conventions import CONFIG_BYTES_MAX, Conventions, Said, Word, home_assistant_config, homie_state


def config(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_home_assistant_availability_topic() -> None:
    read = Conventions()
    told = config(name="Pump", unique_id="pump7", state_topic="plant/p", availability_topic="plant/p/avail")
    assert read.read("homeassistant/sensor/pump7/config", told) is None
    assert read.read("plant/p/avail", b"online") == Word("homeassistant", "pump7", Said.READY)
    assert read.read("plant/p/avail", b"offline") == Word("homeassistant", "pump7", Said.LOST)
    assert read.read("plant/p/avail", b"perhaps") is None
    assert read.read("plant/p", b"online") is None


def test_home_assistant_abbreviations_base_topics_and_own_payloads() -> None:
    read = Conventions()
    short = config(
        **{"~": "devices/7", "uniq_id": "seven", "avty_t": "~/lwt", "pl_avail": "Up", "pl_not_avail": "Down"}
    )
    read.read("homeassistant/switch/node/seven/config", short)
    assert read.read("devices/7/lwt", b"Up") == Word("homeassistant", "seven", Said.READY)
    assert read.read("devices/7/lwt", b"Down") == Word("homeassistant", "seven", Said.LOST)


def test_home_assistant_lists_of_availability() -> None:
    read = Conventions()
    listed = config(unique_id="lamp", availability=[{"topic": "bridge/state"}, {"t": "lamp/state", "pl_avail": "1"}])
    read.read("homeassistant/light/lamp/config", listed)
    assert len(read) == 2
    assert read.read("bridge/state", b"offline") == Word("homeassistant", "lamp", Said.LOST)
    assert read.read("lamp/state", b"1") == Word("homeassistant", "lamp", Said.READY)


@pytest.mark.parametrize(
    ("word", "said"),
    [("init", Said.STARTING), ("ready", Said.READY), ("disconnected", Said.GONE), ("sleeping", Said.SLEEPING),
     ("lost", Said.LOST), ("alert", Said.ALERT)],
)  # fmt: skip
def test_homie_states_of_both_versions(word: str, said: Said) -> None:
    read = Conventions()
    assert read.read("homie/pump-7/$state", word.encode()) == Word("homie", "pump-7", said)
    assert read.read("homie/5/pump-7/$state", word.encode()) == Word("homie", "pump-7", said)
    topic, payload = homie_state("pump-7", said)
    assert read.read(topic, payload) == Word("homie", "pump-7", said)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("spBv1.0/plant/NBIRTH/edge", Word("spBv1.0", "plant/edge", Said.READY)),
        ("spBv1.0/plant/NDEATH/edge", Word("spBv1.0", "plant/edge", Said.LOST)),
        ("spBv1.0/plant/DBIRTH/edge/pump", Word("spBv1.0", "plant/edge/pump", Said.READY)),
        ("spBv1.0/plant/DDEATH/edge/pump", Word("spBv1.0", "plant/edge/pump", Said.LOST)),
        ("spBv1.0/plant/DBIRTH/edge", None),
        ("spBv1.0/plant/NBIRTH/edge/pump", None),
        ("spBv1.0/plant/NDATA/edge", None),
        ("spBv1.0/STATE/scada", None),
        ("spBv1.0//NBIRTH/edge", None),
        ("spBv2.0/plant/NBIRTH/edge", None),
    ],
)
def test_sparkplug_births_and_deaths(topic: str, expected: Word | None) -> None:
    assert Conventions().read(topic, b"\x08\x01") == expected


def test_what_we_write_is_a_connectivity_sensor() -> None:
    topic, payload = home_assistant_config("pump_7", "Pump 7", "entities/site/pump/availability")
    assert topic == "homeassistant/binary_sensor/veilmq_pump_7/config"
    fields = json.loads(payload)
    assert (fields["device_class"], fields["payload_on"]) == ("connectivity", "online")
    assert fields["state_topic"] == "entities/site/pump/availability"


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{", b"\xff", b'{"availability_topic": 7}', b'{"availability": "x"}', b'{"availability": [7]}',
     b"[" * 10_000, b'{"a": "' + b"x" * CONFIG_BYTES_MAX + b'", "availability_topic": "t"}'],
)  # fmt: skip
def test_discovery_messages_that_say_nothing(payload: bytes) -> None:
    read = Conventions()
    assert read.read("homeassistant/sensor/x/config", payload) is None
    assert len(read) == 0


def test_watched_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conventions, "WATCHED_MAX", 3)
    read = Conventions()
    for place in range(5):
        read.read(f"homeassistant/sensor/{place}/config", config(availability_topic=f"t/{place}"))
        read.read("t/0", b"online")
    assert len(read) == 3
    assert read.read("t/0", b"online") is not None, "what is heard of stays"
    many = config(availability=[{"topic": f"m/{n}"} for n in range(100)])
    monkeypatch.setattr(conventions, "WATCHED_MAX", 1_000)
    read.read("homeassistant/sensor/many/config", many)
    assert len(read) == 3 + conventions.NAMED_MAX


@given(st.text(max_size=40), st.binary(max_size=80))
def test_nothing_makes_it_raise(rest: str, payload: bytes) -> None:
    read = Conventions()
    for topic in (rest, f"homeassistant/{rest}/config", f"homie/{rest}/$state", f"spBv1.0/{rest}"):
        read.read(topic, payload)
