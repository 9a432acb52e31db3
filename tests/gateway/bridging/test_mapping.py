"""Which topics cross under which name, and that no circle of bridges keeps a message going."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base import BridgeSettings, BridgeTopic, ConfigError, parse
from gateway.bridging import Marks, Topics, remote_name
from gateway.bridging.mapping import PASSED_MAX
from gateway.mqtt5.bridge_clients import MARK
from gateway.mqtt5.packets import Properties


def test_prefixes_are_exchanged_and_the_first_entry_counts() -> None:
    topics = Topics(
        [
            BridgeTopic(filter="temp/#", direction="out", local_prefix="plant/", remote_prefix="site1/"),
            BridgeTopic(filter="#", direction="out", local_prefix="plant/", remote_prefix="rest/"),
            BridgeTopic(filter="cmd/+", direction="in", qos=2, local_prefix="l/", remote_prefix="r/"),
            BridgeTopic(filter="x", direction="both", qos=0),
        ]
    )
    assert topics.outwards("plant/temp/1") == "site1/temp/1"
    assert topics.outwards("plant/other") == "rest/other"
    assert topics.outwards("elsewhere") is None
    assert topics.outwards("l/cmd/a") is None
    assert topics.inwards("r/cmd/a") == "l/cmd/a"
    assert topics.inwards("r/cmd/a/b") is None
    assert (topics.outwards("x"), topics.inwards("x")) == ("x", "x")
    assert topics.wanted_here() == {"plant/temp/#": 1, "plant/#": 1, "x": 0}
    assert topics.wanted_there() == {"r/cmd/+": 2, "x": 0}


LEVEL = st.text("ab", min_size=1, max_size=2)
PREFIX = st.lists(LEVEL, max_size=2).map(lambda levels: "".join(f"{level}/" for level in levels))


@given(PREFIX, PREFIX, st.lists(LEVEL, min_size=1, max_size=3).map("/".join))
def test_what_goes_out_comes_back_under_its_name(local: str, remote: str, rest: str) -> None:
    topics = Topics([BridgeTopic(filter="#", direction="both", local_prefix=local, remote_prefix=remote)])
    there = topics.outwards(local + rest)
    assert there == remote + rest
    assert topics.inwards(there) == local + rest


@pytest.mark.parametrize("brokers", [1, 2, 3, 7])
def test_a_message_ends_where_it_has_been(brokers: int) -> None:
    ring = [Marks(f"broker-{number}") for number in range(brokers)]
    properties, passed = Properties(user=(("unit", "kelvin"),)), 0
    while True:
        properties = ring[passed % brokers].leaving("t", properties)
        passed += 1
        assert passed <= brokers
        if ring[passed % brokers].has_been("t", properties):
            break
    assert passed == brokers
    assert properties.user[0] == ("unit", "kelvin")


def test_marks_of_strangers_end_a_message_that_passed_too_many() -> None:
    properties = Properties(user=tuple((MARK, f"b{number}") for number in range(PASSED_MAX)))
    assert Marks("we").has_been("t", properties)


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ({"filter": "a/#/b"}, "topics"),
        ({"filter": "a", "local_prefix": "x/#/"}, "holds a wildcard"),
        ({"filter": "$share/g/a"}, "shared subscription"),
        ({"filter": "a", "direction": "up"}, "direction"),
    ],
)
def test_what_cannot_cross_is_said_when_the_file_is_read(topic: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=r"bridges\.m") as error:
        parse({"bridges": {"m": {"addresses": ["a:1"], "topics": [topic]}}})
    assert said in str(error.value)


def named(address: str, machine: str = "m", **more: str) -> str:
    return remote_name(BridgeSettings.model_validate({"addresses": [address], "topics": [{}], **more}), machine)


def test_a_broker_without_a_name_is_known_by_its_address_and_a_loopback_by_its_machine_too() -> None:
    assert named("a.example:1883", "m") == named("a.example:1883", "n")
    assert named("a.example:1883") != named("a.example:1884")
    assert named("127.0.0.1:1883", "m") != named("127.0.0.1:1883", "n")
    assert named("127.0.0.1:1883", broker="cloud") == "cloud"
    assert "a.example" not in named("a.example:1883")


def test_a_topic_of_the_overlay_ends_at_every_gateway_of_it_and_another_topic_does_not() -> None:
    first, second = (Marks(name, lambda topic: ("o",) if topic == "shared" else ()) for name in ("g1", "g2"))
    assert second.has_been("shared", first.leaving("shared", Properties()))
    assert not second.has_been("local", first.leaving("local", Properties()))
    assert not second.has_been("local", first.leaving("shared", Properties()))
