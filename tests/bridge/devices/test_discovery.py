"""Discovery documents beside Home Assistant's own rules: what its schema makes of each, as rows (document, entity).

Source of the rows: `homeassistant/components/mqtt/schemas.py`, `entity.py`, `discovery.py` and
`homeassistant/helpers/config_validation.py` (`string`, `positive_int`) of Home Assistant.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.devices.discovery import ANYTHING, REPORTED, ConventionAvailability, Named, read_document

A = ConventionAvailability("a")
ROWS: list[tuple[str, dict[str, Any], tuple[tuple[ConventionAvailability, ...], str, float | None]]] = [
    ("no availability: always available", {}, ((), "all", None)),
    ("default words", {"availability_topic": "a"}, ((A,), "all", None)),
    ("truth values", {"avty_t": "a", "pl_avail": True, "pl_not_avail": False},
     ((ConventionAvailability("a", "True", "False"),), "all", None)),
    ("numbers", {"avty_t": "a", "payload_available": 1, "payload_not_available": 0},
     ((ConventionAvailability("a", "1", "0"),), "all", None)),
    ("a base topic", {"~": "x", "avty_t": "~/a"}, ((ConventionAvailability("x/a"),), "all", None)),
    ("the latest of a list", {"avty": [{"t": "a"}, {"t": "b"}]}, ((A, ConventionAvailability("b")), "latest", None)),
    ("all of a list", {"avty": [{"t": "a"}, {"t": "b"}], "avty_mode": "all"},
     ((A, ConventionAvailability("b")), "all", None)),
    ("one object is a list", {"availability": {"topic": "a"}}, ((A,), "all", None)),
    ("a template", {"avty_t": "a", "avty_tpl": "{{ value_json.s }}"},
     ((ConventionAvailability("a", key="s"),), "all", None)),
    ("a state that does not expire", {"avty_t": "a", "stat_t": "s"},
     ((A, ConventionAvailability("s", REPORTED)), "all", None)),
    ("an expiry", {"stat_t": "s", "expire_after": 9}, ((ConventionAvailability("s", ANYTHING),), "all", 9.0)),
    ("an expiry as text", {"stat_t": "s", "expire_after": "9"},
     ((ConventionAvailability("s", ANYTHING),), "all", 9.0)),
    ("a part of a second is cut", {"stat_t": "s", "expire_after": 9.9},
     ((ConventionAvailability("s", ANYTHING),), "all", 9.0)),
    ("zero: never", {"stat_t": "s", "expire_after": 0}, ((), "all", None)),
    ("an expiry that is no number", {"stat_t": "s", "expire_after": "soon"}, ((), "all", None)),
    ("wildcards", {"stat_t": "+/s", "exp_aft": 9}, ((ConventionAvailability("+/s", ANYTHING),), "all", 9.0)),
    ("one topic for both", {"stat_t": "a", "exp_aft": 9, "avty_t": "a"},
     ((A, ConventionAvailability("a", ANYTHING)), "all", 9.0)),
]  # fmt: skip


@pytest.mark.parametrize(("document", "entity"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_a_document_describes(
    document: dict[str, Any], entity: tuple[tuple[ConventionAvailability, ...], str, float | None]
) -> None:
    (named,) = read_document("sensor/x/config", json.dumps({"unique_id": "x", **document}).encode())
    assert (named.topics, named.mode, named.expire_s) == entity
    assert (named.device, named.document) == ("x", "sensor/x/config")


def test_a_component_has_what_stands_at_the_top_unless_it_says_otherwise() -> None:
    document = {
        "device": {"identifiers": ["x"]}, "availability_topic": "top", "payload_available": "yes",
        "components": {"own": {"p": "sensor", "avty_t": "own"}, "shared": {"p": "light", "name": "x"},
                       "out": {"p": "light"}},
    }  # fmt: skip
    said = read_document("device/x/config", json.dumps(document).encode())
    assert said == (
        Named("x", (ConventionAvailability("own", "yes"),)), Named("x", (ConventionAvailability("top", "yes"),)),
        Named("x", (), is_removed=True),
    )  # fmt: skip
    assert [each.document for each in said] == [f"device/x/config#{name}" for name in ("own", "shared", "out")]


def test_two_words_on_one_topic_have_two_names() -> None:
    sources = {A.source, ConventionAvailability("a", "1").source, ConventionAvailability("a", key="k").source}
    assert len(sources) == 3
    assert A.source == "a"
