"""Who is a device: levels of heartbeats name it, and how long it may take to be back after a restart."""

from __future__ import annotations

import pytest

from bridge.devices.conventions import CONVENTIONS
from bridge.devices.life_evidence import FAIL_PERIODS, REJOIN_S
from bridge.devices.rules import DeviceRules, Heartbeat, device_name


@pytest.mark.parametrize(
    ("topic", "heard", "device"),
    [
        ("site/{device}/alive", "site/pump/alive", "pump"),
        ("site/{device}/alive", "site/pump/dead", None),
        ("site/{device}/alive", "site/pump", None),
        ("site/{device}/alive", "site/pump/alive/now", None),
        ("site/{device}/#", "site/pump/any/thing", "pump"),
        ("site/{device}/#", "site/pump", "pump"),
        ("site/{device}/#", "site", None),
        ("{device}/+/{device}", "a/x/b", "a:b"),
        ("{device}/+/{device}", "b/x/a", "b:a"),
        ("site/{device}", "site/a:b", "a%3Ab"),
        ("site/{device}", "site/", "%-"),
    ],
)
def test_whom_a_topic_names(topic: str, heard: str, device: str | None) -> None:
    assert Heartbeat(topic).device(heard.split("/")) == device


def test_names_of_one_and_of_several_levels_never_meet() -> None:
    names = [["a", "b"], ["a:b"], ["a", "", "b"], ["ab"], ["a%3Ab"], ["a", "b", ""]]
    assert len({device_name(levels) for levels in names}) == len(names)


def test_who_was_known_before_a_restart_may_take_as_long_as_its_slowest_heartbeat() -> None:
    rules = DeviceRules(heartbeats=(
        Heartbeat("a/{device}", 100.0), Heartbeat("b/{device}", 40.0), Heartbeat("c/{device}/{device}", 900.0),
        Heartbeat("d/{device}"),
    ))  # fmt: skip
    assert rules.rejoin_s("pump") == FAIL_PERIODS * 100.0
    assert rules.rejoin_s("line:pump") == FAIL_PERIODS * 900.0
    assert rules.rejoin_s("a:b:c") == REJOIN_S
    assert DeviceRules(heartbeats=(Heartbeat("a/{device}", 1.0),)).rejoin_s("pump") == REJOIN_S


def test_without_a_word_of_the_configuration_every_client_is_a_device_and_every_convention_is_read() -> None:
    assert DeviceRules() == DeviceRules(("*",), (), CONVENTIONS, 10.0, "")
