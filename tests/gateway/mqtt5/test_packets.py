"""Packets are data: properties say only what is there, and share what is not."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest

from gateway.mqtt5.packets import LASTING, NO_PROPERTIES, Connect, Properties, Publish


def test_absent_properties_cost_nothing_and_have_their_defaults() -> None:
    assert vars(Properties()) == {}
    one = Properties(content_type="x")
    assert vars(one) == {"content_type": "x"}
    assert (one.content_type, one.response_topic, one.user, one.subscription_ids) == ("x", None, (), ())


def test_properties_are_equal_by_what_they_say_whether_it_is_said() -> None:
    assert Properties() == NO_PROPERTIES == Properties(reason=None, user=())
    assert Properties(reason="x") != NO_PROPERTIES
    assert hash(Properties(reason=None)) == hash(NO_PROPERTIES)
    assert Properties(user=(("a", "1"), ("a", "2"))) != Properties(user=(("a", "2"), ("a", "1"))), "order counts"


def test_a_property_that_does_not_exist_is_an_error_of_ours() -> None:
    with pytest.raises(TypeError, match="colour"):
        Properties(colour="red")  # type: ignore[call-arg]


def test_what_all_share_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        NO_PROPERTIES.reason = "x"  # type: ignore[misc]
    changed = replace(NO_PROPERTIES, reason="x")
    assert (changed.reason, NO_PROPERTIES.reason) == ("x", None)
    assert replace(changed, reason=None) == NO_PROPERTIES


def test_what_lasts_are_properties() -> None:
    assert set(LASTING) < {field.name for field in fields(Properties)}


def test_packets_without_properties_share_one() -> None:
    assert Publish("a", b"").properties is Connect("c").properties is NO_PROPERTIES
