"""What a gateway shows Home Assistant fits what its MQTT integration takes: each key that it knows, and of which type.

The integration itself wants a newer Python than ours, so its schema stands here in our own words, from its public
source (`schemas.py`, `binary_sensor.py`, `entity.py` of the component `mqtt`, and its documentation of 2026.4).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bridge.base.topics import TopicError, check_filter
from bridge.devices.conventions import HOME_ASSISTANT
from bridge.devices.dashboards import Dashboards
from bridge.devices.life_evidence import DeviceHealth

Check = Callable[[Any], bool]


def text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def topic(value: Any) -> bool:
    try:
        check_filter(value)
    except (TopicError, AttributeError):
        return False
    return True


def positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def one_of(*values: str) -> Check:
    return lambda value: value in values


def fits(known: dict[str, Check], *required: str) -> Check:
    """An object with these keys and no others."""

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and set(required) <= set(value) <= set(known)
            and all(known[name](each) for name, each in value.items())
        )

    return check


def listed(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


AVAILABILITY = {"topic": topic, "payload_available": text, "payload_not_available": text, "value_template": text}
DEVICE = dict.fromkeys(
    ("name", "manufacturer", "model", "model_id", "hw_version", "sw_version", "serial_number", "suggested_area",
     "via_device", "configuration_url"), text,
)  # fmt: skip
BINARY_SENSOR: dict[str, Check] = {
    **dict.fromkeys(
        ("name", "unique_id", "default_entity_id", "value_template", "payload_on", "payload_off", "icon", "encoding",
         "json_attributes_template", "availability_template", "payload_available", "payload_not_available"), text,
    ),
    **dict.fromkeys(("state_topic", "json_attributes_topic", "availability_topic"), topic),
    "availability": listed(fits(AVAILABILITY, "topic")),
    "availability_mode": one_of("all", "any", "latest"),
    "device": lambda value: (
        fits({**DEVICE, "identifiers": listed(text), "connections": listed(listed(text))})(value)
        and bool(value.get("identifiers") or value.get("connections"))
    ),
    "device_class": one_of("connectivity", "problem", "running"),  # of some thirty
    "enabled_by_default": lambda value: isinstance(value, bool),
    "entity_category": one_of("config", "diagnostic"),
    "expire_after": positive,
    "force_update": lambda value: isinstance(value, bool),
    "off_delay": positive,
    "origin": fits({"name": text, "sw_version": text, "support_url": text}, "name"),
    "qos": lambda value: value in (0, 1, 2),
}  # fmt: skip
takes = fits(BINARY_SENSOR, "state_topic")


def shown(entity: str = "shop:pump 7/ü") -> dict[str, Any]:
    made = Dashboards((HOME_ASSISTANT,)).show(entity, DeviceHealth.ALIVE, None, 1, "")
    (found,) = (json.loads(each.payload) for each in made if each.topic.endswith("/config"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("entity", ["pump", "shop:pump 7/ü", "x" * 300, "+#"])
def test_what_we_show_fits_the_schema_of_the_integration(entity: str) -> None:
    document = shown(entity)
    assert takes(document)
    assert not {"availability", "availability_topic"} <= set(document), "one or the other"
    assert document["default_entity_id"].startswith("binary_sensor."), "with its domain, since 2025.10"
    slug = document["default_entity_id"].removeprefix("binary_sensor.")
    assert slug == "".join(each for each in slug if each in "abcdefghijklmnopqrstuvwxyz0123456789_")


def test_its_values_are_the_payloads_that_the_document_names() -> None:
    made = Dashboards((HOME_ASSISTANT,))
    document = shown()
    for health in DeviceHealth:
        state = json.loads(made.show("shop:pump 7/ü", health, None, 1, "")[-1].payload)
        assert state["state"] in (document["payload_on"], document["payload_off"])
        assert isinstance(state, dict), "its attributes are an object"


@pytest.mark.parametrize("wrong", [
    {"object_id": "pump"}, {"expire_after": 0}, {"expire_after": "900"}, {"device": {"name": "pump"}}, {"origin": {}},
    {"availability": [{"payload_available": "on"}]}, {"availability_mode": "most"}, {"state_topic": "a/#/b"},
    {"entity_category": "system"},
])  # fmt: skip
def test_the_check_notices(wrong: dict[str, Any]) -> None:
    assert not takes({**shown(), **wrong})
