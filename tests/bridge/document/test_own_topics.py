"""Topics on which only gateways publish, and those on which only we do."""

from __future__ import annotations

import pytest

from bridge.document.own_topics import OwnTopics


@pytest.fixture
def own() -> OwnTopics:
    made = OwnTopics()
    made.add_documents("entities", "gate", "availability")
    made.add_documents("reports/all", "gate", "trace")
    made.add_shown("homie/5/veilmq-", "homeassistant/binary_sensor/veilmq-")
    return made


@pytest.mark.parametrize(("topic", "gateways", "ours"), [
    ("entities/gate/pump/availability", True, True),
    ("entities/other/pump/availability", True, False),
    ("entities/gate/pump/trace", False, False),
    ("entities/gate/availability", False, False),
    ("entities/gate/a/b/availability", False, False),
    ("entities/gates/pump/availability", True, False),
    ("xentities/gate/pump/availability", False, False),
    ("entities//pump/availability", True, False),
    ("entities/gate//availability", True, True),
    ("reports/all/gate/pump/trace", True, True),
    ("reports/all/far/pump/trace", True, False),
    ("reports/gate/pump/trace", False, False),
    ("homie/5/veilmq-works/$state", True, True),
    ("homie/5/veil/$state", False, False),
    ("homeassistant/binary_sensor/veilmq-x/config", True, True),
    ("homeassistant/sensor/veilmq-x/config", False, False),
    ("", False, False),
])  # fmt: skip
def test_whose_a_topic_is(own: OwnTopics, topic: str, gateways: bool, ours: bool) -> None:
    assert (topic in own, own.are_ours(topic)) == (gateways, ours)


def test_nothing_is_guarded_before_something_was_named() -> None:
    nothing = OwnTopics()
    assert "entities/gate/pump/availability" not in nothing
    assert not nothing.are_ours("")
