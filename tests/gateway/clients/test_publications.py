"""Messages to and from the overlay: nothing is lost on the way, and what is the overlay's alone stays there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.base.topics import TopicError
from gateway.clients.publications import message_of, publication_of, without_reserved
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import NO_PROPERTIES, Properties

NOW = 1_000.0
PROPERTIES = Properties(
    payload_format=1, content_type="text/plain", response_topic="reply", correlation_data=b"c",
    user=(("k", "v"), ("k", "w")),
)  # fmt: skip
MESSAGE = Message("plant/a", b"payload", 2, True, PROPERTIES, NOW + 30)


def test_a_message_comes_back_as_it_was() -> None:
    publication = publication_of(MESSAGE, NOW)
    assert (publication.expiry_s, publication.properties) == (30, (("k", "v"), ("k", "w")))
    again = message_of(publication, NOW + 5)
    assert (again.topic, again.payload, again.qos, again.retain) == ("plant/a", b"payload", 2, True)
    assert again.properties == PROPERTIES
    assert again.expires_at == NOW + 5 + 30
    bare = message_of(publication_of(Message("a", b""), NOW), NOW)
    assert (bare.expires_at, bare.properties) == (None, NO_PROPERTIES)


def test_the_time_it_has_left_goes_along() -> None:
    assert publication_of(MESSAGE, NOW + 12).expiry_s == 18


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0b"])
def test_what_is_no_topic_reaches_no_client(topic: str) -> None:
    with pytest.raises(TopicError):
        message_of(replace(publication_of(MESSAGE, NOW), topic=topic), NOW)


def test_nobody_sees_or_sends_properties_of_the_overlay() -> None:
    spoofed = replace(PROPERTIES, user=(("vmq", "1"), ("k", "v"), ("vmq-key", "2"), ("vmqx", "3"), ("VMQ", "4")))
    assert without_reserved(spoofed).user == (("k", "v"), ("VMQ", "4"))
    assert without_reserved(PROPERTIES) is PROPERTIES
    assert without_reserved(Properties(user=(("vmq", "1"),))) is NO_PROPERTIES
    seen = message_of(replace(publication_of(MESSAGE, NOW), properties=spoofed.user), NOW)
    assert seen.properties.user == (("k", "v"), ("VMQ", "4"))


@pytest.mark.parametrize("sealed", [{}, {"payload_format": 0}, {"content_type": ""}, {"correlation_data": b""}])
@pytest.mark.parametrize("name", ["published", "vmq"])
def test_a_message_with_one_user_property_has_this_and_all_others(name: str, sealed: dict[str, object]) -> None:
    told = Properties(user=((name, "1"),), **sealed)  # type: ignore[arg-type]
    message = message_of(publication_of(Message("plant/a", b"x", 1, False, told), NOW), NOW)
    assert message.properties == without_reserved(told)
    fresh = Message("plant/a", b"x", 1, False, message.properties)
    assert message.numbered(True, 1, False, 7) == fresh.numbered(True, 1, False, 7)
    assert message.held_bytes == fresh.held_bytes
