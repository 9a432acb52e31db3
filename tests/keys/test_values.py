"""Values are equal, hashed, shown and replaced by their fields, and have no other attributes."""

from __future__ import annotations

from dataclasses import field, replace

import pytest

from keys.values import value


@value
class Reading:
    topic: str
    payload: bytes = field(repr=False)
    qos: int = 0


def test_equal_fields_are_equal_values() -> None:
    one, same = Reading("a", b"1"), Reading("a", b"1")
    assert one == same
    assert len({one, same, Reading("a", b"2")}) == 2


def test_a_secret_field_is_not_shown() -> None:
    assert repr(Reading("a", b"secret")) == "Reading(topic='a', qos=0)"


def test_another_value_is_made_of_it_and_it_stays() -> None:
    one = Reading("a", b"1")
    assert (replace(one, qos=1), one.qos) == (Reading("a", b"1", 1), 0)


def test_it_is_taken_apart_by_place() -> None:
    match Reading("a", b"1", 2):
        case Reading(topic, payload, qos):
            assert (topic, payload, qos) == ("a", b"1", 2)


def test_there_is_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Reading("a", b"1").more = 1  # type: ignore[attr-defined]
