"""Home Assistant, Homie and Sparkplug B as their own documents write them, and what must not be taken for them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.devices import conventions
from bridge.devices.conventions import Cleared, Conventions, ConventionWord, Said
from bridge.devices.discovery import (
    ANYTHING,
    CONFIG_BYTES_MAX,
    NAMED_MAX,
    REPORTED,
    TOPIC_MAX,
    ConventionAvailability,
    Named,
)


def config(**fields: object) -> bytes:
    return json.dumps(fields).encode()


class Believing:
    """Believes every discovery message, and returns the only statement of a publication."""

    def __init__(self) -> None:
        self.conventions = Conventions()

    def read(self, topic: str, payload: bytes, owner: bytes = b"somebody") -> ConventionWord | Cleared | None:
        found = list(self.conventions.read_publication(topic, payload))
        for each in found:
            if isinstance(each, Named):
                self.conventions.watch(each, owner)
        said = [each for each in found if not isinstance(each, Named)]
        assert len(said) <= 1
        word = said[0] if said else None
        return replace(word, source=word.source.partition("\0")[0]) if isinstance(word, ConventionWord) else word

    def __len__(self) -> int:
        return len(self.conventions)


def test_home_assistant_availability_topic() -> None:
    read = Believing()
    told = config(name="Pump", unique_id="pump7", state_topic="plant/p", availability_topic="plant/p/avail")
    assert read.read("homeassistant/sensor/pump7/config", told) is None
    assert read.read("plant/p/avail", b"online") == ConventionWord(
        "homeassistant", "pump7", Said.READY, "plant/p/avail"
    )
    assert read.read("plant/p/avail", b"offline") == ConventionWord(
        "homeassistant", "pump7", Said.LOST, "plant/p/avail"
    )
    assert read.read("plant/p/avail", b"perhaps") is None
    assert read.read("plant/p", b"online") == ConventionWord("homeassistant", "pump7", Said.REPORTS, "plant/p")


def test_home_assistant_abbreviations_base_topics_and_own_payloads() -> None:
    read = Believing()
    short = config(
        **{"~": "devices/7", "uniq_id": "seven", "avty_t": "~/lwt", "pl_avail": "Up", "pl_not_avail": "Down"}
    )
    read.read("homeassistant/switch/node/seven/config", short)
    assert read.read("devices/7/lwt", b"Up") == ConventionWord("homeassistant", "seven", Said.READY, "devices/7/lwt")
    assert read.read("devices/7/lwt", b"Down") == ConventionWord("homeassistant", "seven", Said.LOST, "devices/7/lwt")


def test_home_assistant_words_inside_json() -> None:
    read = Believing()
    template = "{{ value_json.state }}"
    listed = config(unique_id="lamp", availability=[{"topic": "z2m/lamp/availability", "value_template": template}])
    read.read("homeassistant/light/lamp/config", listed)
    alone = config(uniq_id="plug", avty_t="plug/status", avty_tpl="{{value_json.up}}", pl_avail="1")
    read.read("homeassistant/switch/plug/config", alone)
    for payload, said in ((b'{"state":"online"}', Said.READY), (b'{"state":"offline"}', Said.LOST)):
        word = ConventionWord("homeassistant", "lamp", said, "z2m/lamp/availability")
        assert read.read("z2m/lamp/availability", payload) == word
    assert read.read("plug/status", b'{"up": "1"}') == ConventionWord(
        "homeassistant", "plug", Said.READY, "plug/status"
    )
    assert read.read("z2m/lamp/availability", b"online"), "a template that cannot be applied leaves the payload"
    for payload in (b'"online"', b'{"state": 1}', b"{", b"[" * 10_000, b"\xff"):
        assert read.read("z2m/lamp/availability", payload) is None
    program = config(unique_id="x", avty_t="x", avty_tpl="{{ 'online' if value | int > 3 else 'offline' }}")
    assert Conventions().read_publication("homeassistant/sensor/x/config", program) == ()


def test_home_assistant_lists_of_availability() -> None:
    read = Believing()
    listed = config(unique_id="lamp", availability=[{"topic": "bridge/state"}, {"t": "lamp/state", "pl_avail": "1"}])
    read.read("homeassistant/light/lamp/config", listed)
    assert len(read) == 2
    assert read.read("bridge/state", b"offline") == ConventionWord("homeassistant", "lamp", Said.LOST, "bridge/state")
    assert read.read("lamp/state", b"1") == ConventionWord("homeassistant", "lamp", Said.READY, "lamp/state")


@pytest.mark.parametrize(
    ("word", "said"),
    [("init", Said.STARTING), ("ready", Said.READY), ("disconnected", Said.GONE), ("sleeping", Said.SLEEPING),
     ("lost", Said.LOST), ("alert", Said.ALERT)],
)  # fmt: skip
def test_homie_states_of_both_versions(word: str, said: Said) -> None:
    read = Believing()
    assert read.read("homie/pump-7/$state", word.encode()) == ConventionWord("homie", "pump-7", said, "homie")
    assert read.read("homie/5/pump-7/$state", word.encode()) == ConventionWord("homie", "pump-7", said, "homie")


@pytest.mark.parametrize(("topic", "payload", "expected"), [
    ("homie/5/car/$alert/battery", b"below 10 %", ("car", Said.ALERT, "homie $alert battery")),
    ("homie/5/car/$alert/battery", b"", ("car", Said.CALM, "homie $alert battery")),
    ("homie/car/$alert/battery", b"low", None), ("homie/5/car/$alert/", b"low", None),
    ("homie/5//$alert/x", b"low", None), ("homie/5/a/b/$alert/x", b"low", None),
    ("homie/5/car/$alert/x/y", b"low", None), ("homie/5/veilmq-car/$alert/x", b"low", None),
    ("homie/5/" + "c" * 600 + "/$alert/x", b"low", None),
])  # fmt: skip
def test_alerts_of_homie_5(topic: str, payload: bytes, expected: tuple[str, Said, str] | None) -> None:
    said = Conventions().read_publication(topic, payload)
    assert said == (() if expected is None else (ConventionWord("homie", *expected),))


def test_an_empty_homie_state_clears_the_device() -> None:
    assert Believing().read("homie/pump-7/$state", b"") == Cleared("homie", "pump-7")


def test_what_a_gateway_writes_is_no_word() -> None:
    for topic in ("homie/5/veilmq-pump-1/$state", "homie/veilmq-pump-1/$state"):
        assert Believing().read(topic, b"ready") is None
    assert not Conventions().read_publication(
        "homeassistant/binary_sensor/x/config", config(unique_id="veilmq-x", avty_t="t")
    )


def test_a_discovery_message_counts_once_it_is_believed() -> None:
    read = Conventions()
    told = read.read_publication("homeassistant/sensor/x/config", config(unique_id="x", availability_topic="x/lwt"))
    assert told == (Named("x", (ConventionAvailability("x/lwt"),)),)
    assert read.read_publication("x/lwt", b"online") == ()
    read.watch(told[0], b"a")
    assert read.read_publication("x/lwt", b"online") == (ConventionWord("homeassistant", "x", Said.READY, "x/lwt"),)
    read.forget_device("x")
    assert (read.read_publication("x/lwt", b"online"), len(read)) == ((), 0)


def test_sensors_of_one_device_are_one_device_and_a_bridges_topic_is_about_all() -> None:
    read = Believing()
    for sensor in ("temperature", "humidity"):
        for device in ("a", "b"):
            told = config(unique_id=f"{device}_{sensor}", device={"identifiers": [device]}, avty_t="bridge/state")
            read.read(f"homeassistant/sensor/{device}_{sensor}/config", told)
    words = read.conventions.read_publication("bridge/state", b"offline")
    assert [each.device for each in words] == ["a", "b"]


def test_conventions_that_are_not_wanted_are_not_read() -> None:
    read = Conventions(read=("homie",))
    assert read.read_publication("spBv1.0/plant/NBIRTH/edge", b"") == ()
    assert read.read_publication("homeassistant/sensor/x/config", config(availability_topic="t")) == ()
    assert read.read_publication("homie/x/$state", b"ready") != ()


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("spBv1.0/plant/NBIRTH/edge", ConventionWord("spBv1.0", "plant/edge", Said.READY, "spBv1.0")),
        ("spBv1.0/plant/NDEATH/edge", ConventionWord("spBv1.0", "plant/edge", Said.LOST, "spBv1.0")),
        ("spBv1.0/plant/DBIRTH/edge/pump", ConventionWord("spBv1.0", "plant/edge/pump", Said.READY, "spBv1.0")),
        ("spBv1.0/plant/DDEATH/edge/pump", ConventionWord("spBv1.0", "plant/edge/pump", Said.LOST, "spBv1.0")),
        ("spBv1.0/plant/DBIRTH/edge", None),
        ("spBv1.0/plant/NBIRTH/edge/pump", None),
        ("spBv1.0/plant/NDATA/edge", ConventionWord("spBv1.0", "plant/edge", Said.SPEAKS, "spBv1.0")),
        ("spBv1.0/plant/DDATA/edge/pump", ConventionWord("spBv1.0", "plant/edge/pump", Said.SPEAKS, "spBv1.0")),
        ("spBv1.0/plant/NCMD/edge", None),
        ("spBv1.0/STATE/scada", None),
        ("spBv1.0//NBIRTH/edge", None),
        ("spBv2.0/plant/NBIRTH/edge", None),
    ],
)
def test_sparkplug_births_and_deaths(topic: str, expected: ConventionWord | None) -> None:
    assert Believing().read(topic, b"\x08\x01") == expected


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{", b"\xff", b'{"availability": "x"}', b'{"availability": [7]}',
     b"[" * 10_000, b'{"a": "' + b"x" * CONFIG_BYTES_MAX + b'", "availability_topic": "t"}'],
)  # fmt: skip
def test_discovery_messages_that_say_nothing(payload: bytes) -> None:
    read = Believing()
    assert read.read("homeassistant/sensor/x/config", payload) is None
    assert len(read) == 0


def test_watched_topics_are_bounded_and_a_flooder_loses_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conventions, "WATCHED_MAX", 30)
    monkeypatch.setattr(conventions, "WATCHERS_MAX", 4)
    read = Believing()
    read.read("homeassistant/sensor/honest/config", config(availability_topic="honest"), b"honest")
    for place in range(100):
        read.read(f"homeassistant/sensor/{place}/config", config(availability_topic=f"t/{place}"), b"flooder")
    assert len(read) == 30
    assert read.read("honest", b"online") is not None
    assert read.read("t/99", b"online") is not None
    assert read.read("t/0", b"online") is None
    for place in range(100):
        read.read(f"homeassistant/sensor/b{place}/config", config(availability_topic="bridge"), b"flooder")
    assert len(read.conventions.read_publication("bridge", b"online")) <= 4
    many = config(availability=[{"topic": f"m/{n}"} for n in range(100)])
    told = Conventions().read_publication("homeassistant/sensor/many/config", many)[0]
    assert isinstance(told, Named)
    assert len(told.topics) == NAMED_MAX


@pytest.mark.parametrize(
    ("topic", "payload"),
    [("homie/pump/$state", b"lost"), ("spBv1.0/plant/NDEATH/edge", b""),
     ("homeassistant/sensor/plug/config", config(availability_topic="esp/lwt"))],
)  # fmt: skip
def test_who_names_anothers_topic_does_not_silence_its_words(topic: str, payload: bytes) -> None:
    read = Believing()
    before = read.conventions.read_publication(topic, payload)
    assert before
    read.read("homeassistant/sensor/evil/config", config(availability_topic=topic), b"evil")
    assert read.conventions.read_publication(topic, payload) == before


def test_half_a_character_names_nobody() -> None:
    for named in (b'"unique_id":"\\ud800"', b'"device":{"ids":["x\\udfff"]}'):
        payload = b"{" + named + b',"availability_topic":"t"}'
        assert Conventions().read_publication("homeassistant/sensor/x/config", payload) == ()


def test_what_many_read_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge's word about a thousand devices costs one look at its JSON, however long that is."""
    read, parsed = Believing(), list[bytes | str]()
    for place in range(50):
        named = config(availability_topic="b", availability_template="{{ value_json.state }}")
        read.read(f"homeassistant/sensor/{place}/config", named)
    plain = conventions.parse_object
    monkeypatch.setattr(conventions, "parse_object", lambda payload: (parsed.append(payload), plain(payload))[1])
    assert len(read.conventions.read_publication("b", b'{"state": "online"}')) == 50
    assert len(parsed) == 1


@given(st.text(max_size=40), st.binary(max_size=80))
def test_nothing_makes_it_raise(rest: str, payload: bytes) -> None:
    read = Believing()
    for topic in (rest, f"homeassistant/{rest}/config", f"homie/{rest}/$state", f"spBv1.0/{rest}"):
        read.read(topic, payload)


# ------------------------------------------------------------------------- Home Assistant, whole devices; Homie 5


def test_a_device_document_names_the_availability_of_all_its_components() -> None:
    document = config(
        dev={"ids": "0AFFD2"}, o={"name": "bla2mqtt"}, avty=[{"t": "bridge/state"}], **{"~": "plug"},
        cmps={
            "temp": {"p": "sensor", "stat_t": "~/temp", "exp_aft": 600, "unique_id": "t"},
            "power": {"p": "switch", "avty_t": "~/power/there", "unique_id": "p"},
            "gone": {"p": "sensor"}, "odd": 7,
        },
    )  # fmt: skip
    said = Conventions().read_publication("homeassistant/device/0AFFD2/config", document)
    named = [each for each in said if isinstance(each, Named)]
    assert [each.device for each in named] == ["0AFFD2"] * 2
    assert [[topic.topic for topic in each.topics] for each in named] == [
        ["bridge/state", "plug/temp"], ["bridge/state"],
    ]  # fmt: skip
    assert [each.expire_s for each in named] == [600, None]
    (alone,) = Conventions().read_publication(
        "homeassistant/sensor/x/config", config(stat_t="x/state", expire_after=5, uniq_id="x")
    )
    assert isinstance(alone, Named)
    assert (alone.topics, alone.expire_s) == ((ConventionAvailability("x/state", ANYTHING),), 5)
    for odd in (-1, 0, "9.5", 1e12, None):
        assert (
            Conventions().read_publication(
                "homeassistant/sensor/x/config", config(stat_t="x", expire_after=odd, uniq_id="x")
            )
            == ()
        )


@pytest.mark.parametrize(
    ("mode", "read"), [(None, "latest"), ("all", "all"), ("any", "any"), ("latest", "latest"), ("odd", "all")]
)
def test_the_mode_is_of_several_topics(mode: str | None, read: str) -> None:
    more = {} if mode is None else {"availability_mode": mode}
    two = [{"topic": "a"}, {"topic": "b"}]
    (named,) = Conventions().read_publication("homeassistant/sensor/x/config", config(availability=two, **more))
    (one,) = Conventions().read_publication("homeassistant/sensor/x/config", config(availability=two[:1], **more))
    assert isinstance(named, Named)
    assert isinstance(one, Named)
    assert (named.mode, one.mode) == (read, "all")


def test_a_child_of_homie_5_names_its_root() -> None:
    read = Conventions()
    described = config(homie="5.0", root="bridge", parent="bridge")
    assert read.read_publication("homie/5/lamp/$description", described) == (conventions.Rooted("lamp", "bridge"),)
    for odd in (config(root="lamp"), config(root=7), config(root=""), b"{", config(root="\ud800")):
        assert read.read_publication("homie/5/lamp/$description", odd) == ()
    assert read.read_publication("homie/lamp/$description", described) == (), "of version 5 only"
    assert read.read_publication("homie/5/lamp/$description", config(homie="5.0")) == (conventions.Rooted("lamp"),), (
        "a root"
    )
    assert read.read_publication("ebus/5/lamp/$description", described) == (
        conventions.Rooted("ebus/lamp", "ebus/bridge"),
    )


@pytest.mark.parametrize(("topic", "expected"), [
    ("home-a/5/heat/$state", ("home-a/heat", Said.READY, "homie")),
    ("home-a/5/heat/$alert/cold", ("home-a/heat", Said.ALERT, "homie $alert cold")),
    ("home-a/5/heat/node/value", ("home-a/heat", Said.REPORTS, "homie")),
    ("home-a/heat/$state", None), ("home-a/6/heat/$state", None), ("/5/heat/$state", None),
    ("veilmq-a/5/heat/$state", None), ("home-a/5/veilmq-heat/$state", None), ("home-a/5/$heat/$state", None),
    ("home-a/5/" + "h" * 505 + "/$state", ("home-a/" + "h" * 505, Said.READY, "homie")),
    ("home-a/5/" + "h" * 506 + "/$state", None),
])  # fmt: skip
def test_devices_of_homie_5_stand_below_any_domain(topic: str, expected: tuple[str, Said, str] | None) -> None:
    said = Conventions().read_publication(topic, b"ready")
    assert said == (() if expected is None else (ConventionWord("homie", *expected),))
    assert Conventions(read=("homeassistant", "spBv1.0")).read_publication(topic, b"ready") == ()


# ------------------------------------------------------------------------------------------- names and bounds


def named(config_: bytes, topic: str = "homeassistant/sensor/x/config") -> Named | None:
    said = Conventions().read_publication(topic, config_)
    assert len(said) <= 1
    return said[0] if said and isinstance(said[0], Named) else None


@pytest.mark.parametrize(
    ("fields", "device"),
    [
        ({}, "sensor/x"),
        ({"unique_id": "u"}, "u"),
        ({"uniq_id": "u"}, "u"),
        ({"unique_id": "u", "device": {"identifiers": "d"}}, "d"),
        ({"unique_id": "u", "dev": {"ids": ["d", "e"]}}, "d"),
        ({"unique_id": "u", "dev": {"ids": []}}, "u"),
        ({"unique_id": "u", "dev": {"ids": [7]}}, "7"),
        ({"unique_id": "u", "dev": {"ids": [[7]]}}, "u"),
        ({"unique_id": "u", "dev": {"ids": ""}}, "u"),
        ({"unique_id": "u", "dev": "d"}, "u"),
        ({"unique_id": "veilmq-x"}, None),
        ({"unique_id": "n" * 512}, "n" * 512),
        ({"unique_id": "n" * 513}, None),
        ({"unique_id": "\udc00"}, None),
    ],
)
def test_by_which_name_a_discovery_message_calls_its_device(fields: dict[str, object], device: str | None) -> None:
    found = named(config(availability_topic="t", **fields))
    assert (found and found.device) == device


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"availability_topic": "t"}, ConventionAvailability("t", "online", "offline", "")),
        (
            {"avty_t": "t", "payload_available": "1", "payload_not_available": "0"},
            ConventionAvailability("t", "1", "0"),
        ),
        ({"avty_t": "t", "pl_avail": "1", "pl_not_avail": "0"}, ConventionAvailability("t", "1", "0")),
        ({"avty_t": "t", "availability_template": "{{ value_json.a }}"}, ConventionAvailability("t", key="a")),
        ({"avty_t": "t", "avty_tpl": "{{value_json.a}}"}, ConventionAvailability("t", key="a")),
        ({"avty_t": "t", "value_template": "{{ odd }}"}, ConventionAvailability("t")),
        (
            {"avty": {"topic": "t", "payload_available": "1", "pl_not_avail": "0"}},
            ConventionAvailability("t", "1", "0"),
        ),
        ({"avty": [{"t": "t", "val_tpl": "{{ value_json.a }}"}]}, ConventionAvailability("t", key="a")),
        ({"avty": [{"t": "t", "avty_tpl": "{{ odd }}"}]}, ConventionAvailability("t")),
        ({"avty": [{"t": "t", "value_template": "{{ odd }}"}]}, None),
        ({"availability": [7, {"t": "t"}]}, ConventionAvailability("t")),
        ({"availability": [{}], "availability_topic": "t"}, None),
        ({"availability": [], "availability_topic": "t"}, ConventionAvailability("t")),
        ({"~": "base", "avty_t": "~/t"}, ConventionAvailability("base/t")),
        ({"~": "base", "avty_t": "t/~"}, ConventionAvailability("t/base")),
        ({"~": "base", "avty_t": "t~x"}, ConventionAvailability("t~x")),
        ({"avty_t": "~/t"}, ConventionAvailability("/t")),
        ({"avty_t": "t" * 2_048}, ConventionAvailability("t" * 2_048)),
        ({"avty_t": "t" * 2_049}, None),
        ({"~": "b" * 2_048, "avty_t": "~t"}, None),
        ({"avty_t": "t", "pl_avail": "p" * 2_048}, ConventionAvailability("t", "p" * 2_048)),
        ({"avty_t": "t", "pl_avail": "p" * 2_049}, None),
        ({"avty_t": "t", "pl_not_avail": "p" * 2_049}, None),
        ({"avty_t": ""}, None),
    ],
)
def test_where_and_how_availability_is_said(fields: dict[str, object], expected: ConventionAvailability | None) -> None:
    found = named(config(unique_id="x", **fields))
    assert (found.topics if found else ()) == (() if expected is None else (expected,))


@pytest.mark.parametrize(
    ("fields", "expire_s"),
    [
        ({"state_topic": "s", "expire_after": 60}, 60.0),
        ({"stat_t": "s", "exp_aft": 0.5}, None),
        ({"stat_t": "s", "exp_aft": "90"}, 90.0),
        ({"stat_t": "s", "exp_aft": 30 * 86_400}, 30 * 86_400.0),
        ({"stat_t": "s", "exp_aft": 30 * 86_400 + 1}, None),
        ({"stat_t": "s"}, None),
        ({"exp_aft": 60}, None),
    ],
)
def test_how_long_a_state_counts(fields: dict[str, object], expire_s: float | None) -> None:
    found = named(config(unique_id="x", availability_topic="t", **fields))
    assert found is not None
    assert found.expire_s == expire_s
    assert [each.online for each in found.topics[1:]] in ([], [REPORTED if expire_s is None else ANYTHING])


def test_only_sensors_expire() -> None:
    """Of the components of Home Assistant's, `sensor` and `binary_sensor` have `expire_after`."""
    document = config(unique_id="x", availability_topic="t", state_topic="s", expire_after=9)
    for component, expire_s in (("sensor", 9), ("binary_sensor", 9), ("switch", None), ("light", None)):
        found = named(document, f"homeassistant/{component}/x/config")
        assert found is not None
        assert found.expire_s == expire_s


def test_components_are_those_of_a_device_document_and_each_has_its_base() -> None:
    parts = {
        "a": {"p": "light", "avty_t": "~/a"},
        "b": {"p": "sensor", "~": "own", "avty_t": "~/b", "stat_t": "b", "exp_aft": 9},
        "c": {"platform": "binary_sensor", "stat_t": "c", "exp_aft": 7},
    }
    for name in ("components", "cmps"):
        document = config(**{"~": "base", "dev": {"ids": "d"}, name: parts})
        found = [
            each
            for each in Conventions().read_publication("homeassistant/device/d/config", document)
            if isinstance(each, Named)
        ]
        assert [[topic.topic for topic in each.topics] for each in found] == [["base/a"], ["own/b", "b"], ["c"]]
        assert [each.topics[-1].online for each in found[1:]] == [ANYTHING] * 2
        assert [each.expire_s for each in found] == [None, 9, 7]
        assert named(document, "homeassistant/sensor/d/config") is None
    many = config(dev={"ids": "d"}, cmps={str(n): {"p": "light", "avty_t": f"t/{n}"} for n in range(40)})
    assert len(Conventions().read_publication("homeassistant/device/d/config", many)) == NAMED_MAX


def test_the_mode_has_two_spellings() -> None:
    for name in ("availability_mode", "avty_mode"):
        found = named(config(avty=[{"t": "a"}, {"t": "b"}], **{name: "any"}))
        assert found is not None
        assert found.mode == "any"


def test_discovery_messages_are_of_one_prefix_and_end_in_config() -> None:
    told = config(unique_id="x", avty_t="t")
    assert Conventions("ha").read_publication("ha/sensor/x/config", told)
    assert not Conventions("ha").read_publication("homeassistant/sensor/x/config", told)
    assert not Conventions().read_publication("homeassistant/sensor/x/state", told)
    padding = CONFIG_BYTES_MAX - len(config(unique_id="x", avty_t="t", pad=""))
    assert named(config(unique_id="x", avty_t="t", pad="p" * padding)) is not None
    assert named(config(unique_id="x", avty_t="t", pad="p" * (padding + 1))) is None


@pytest.mark.parametrize(
    ("topic", "device"),
    [
        ("homie/" + "n" * 512 + "/$state", "n" * 512), ("homie/" + "n" * 513 + "/$state", None),
        ("homie//$state", None), ("homie/$state", None), ("homie/a/b/$state", None), ("homie/a/$states", None),
        ("homie/a/$name", None), ("homie/5/a/$state", "a"), ("homie/6/a/$state", None), ("homes/a/$state", None),
    ],
)  # fmt: skip
def test_which_topics_of_homie_are_states(topic: str, device: str | None) -> None:
    said = Conventions().read_publication(topic, b"ready")
    assert said == (() if device is None else (ConventionWord("homie", device, Said.READY, "homie"),))
    assert Conventions().read_publication(topic, b"odd") == Conventions().read_publication(topic, b"\xff") == ()


def test_alerts_and_roots_have_names_of_512_characters_at_most() -> None:
    device = "n" * (512 - len("/$alert/x"))
    assert Conventions().read_publication(f"homie/5/{device}/$alert/x", b"low")
    assert not Conventions().read_publication(f"homie/5/n{device}/$alert/x", b"low")
    for name, root, ok in (
        ("n" * 512, "r", True),
        ("n" * 513, "r", False),
        ("n", "r" * 512, True),
        ("n", "r" * 513, False),
    ):
        assert bool(Conventions().read_publication(f"homie/5/{name}/$description", config(root=root))) is ok
    for topic in ("homie/5//$description", "homie/5/a/b/$description", "homie/5/veilmq-a/$description"):
        assert not Conventions().read_publication(topic, config(root="r"))
    assert not Conventions().read_publication("homie/5/n/$description", b"[]")
    assert not Conventions().read_publication("spBv1.0/5/n/$state", b"ready"), "of Sparkplug"


@pytest.mark.parametrize(
    ("rest", "ok"),
    [
        ("g/NBIRTH", False), ("g/NBIRTH/n", True), ("g/DBIRTH/n/d", True), ("g/DBIRTH/n/d/e", False),
        ("g/NBIRTH/", False), ("g/DBIRTH/n/", False), ("g/DBIRTH//d", False),
        ("g/NBIRTH/" + "n" * 503, True), ("g/NBIRTH/" + "n" * 504, False),
    ],
)  # fmt: skip
def test_which_topics_of_sparkplug_are_words(rest: str, ok: bool) -> None:
    assert bool(Conventions().read_publication(f"spBv1.0/{rest}", b"")) is ok


def test_a_state_that_expires_says_that_its_device_speaks_whatever_it_is() -> None:
    read = Believing()
    read.read("homeassistant/sensor/m/config", config(unique_id="m", stat_t="m/w", exp_aft=60))
    for payload in (b"17", b"", b"offline", b"\xff"):
        assert read.read("m/w", payload) == ConventionWord("homeassistant", "m", Said.SPEAKS, "m/w")


def test_what_is_named_anew_counts_anew_and_what_is_forgotten_leaves_the_others() -> None:
    read = Believing()
    for device in ("a", "b"):
        read.read(f"homeassistant/sensor/{device}/config", config(unique_id=device, avty_t="t"))
    read.read("homeassistant/sensor/a/config", config(unique_id="a", avty_t="t", pl_avail="up"))
    assert [each.device for each in read.conventions.read_publication("t", b"up")] == ["a"]
    assert [each.device for each in read.conventions.read_publication("t", b"online")] == ["b"]
    read.conventions.forget_device("a")
    assert (len(read), read.conventions.read_publication("t", b"up")) == (1, ())
    read.conventions.forget_device("a")
    assert [each.device for each in read.conventions.read_publication("t", b"online")] == ["b"]


def test_so_many_may_name_one_topic_and_they_may_do_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conventions, "WATCHERS_MAX", 2)
    read = Believing()
    for device in ("a", "b", "c", "a"):
        said = config(unique_id=device, avty_t="t", pl_avail="up" if len(read) == 2 else "online")
        read.read(f"homeassistant/sensor/{device}/config", said)
    assert [each.device for each in read.conventions.read_publication("t", b"up")] == ["a"]
    assert [each.device for each in read.conventions.read_publication("t", b"online")] == ["b"]


def test_what_is_said_keeps_its_place_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conventions, "WATCHED_MAX", 2)
    read = Believing()
    for device in ("a", "b"):
        read.read(f"homeassistant/sensor/{device}/config", config(unique_id=device, avty_t=device))
    read.read("a", b"online")
    read.read("homeassistant/sensor/c/config", config(unique_id="c", avty_t="c"))
    assert [bool(read.read(topic, b"online")) for topic in "abc"] == [True, False, True]


def test_names_that_others_build_on() -> None:
    """Sources of words, and what discovery messages say where they say nothing else."""
    assert ConventionWord("homie", "x", Said.READY).source == ""
    assert ConventionAvailability("t") == ConventionAvailability("t", "online", "offline", "")
    assert Named("x", ()) == Named("x", (), "all", None)


def test_an_availability_topic_that_is_too_long_is_not_watched() -> None:
    for length, topics in ((TOPIC_MAX, 1), (TOPIC_MAX + 1, 0)):
        said = named(config(unique_id="lamp", avty_t="t" * length))
        assert (0 if said is None else len(said.topics)) == topics
