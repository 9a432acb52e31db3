from __future__ import annotations

import pytest

from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Properties, Publish, Version, Will


def test_what_belongs_to_a_connection_does_not_travel_on() -> None:
    properties = Properties(
        content_type="t", user=(("a", "b"),), topic_alias=3, subscription_ids=(1,), message_expiry_s=5
    )
    message = Message.from_publish(Publish("a", b"x", 1, True, properties=properties), 100.0, "me")
    assert message.properties == Properties(content_type="t", user=(("a", "b"),))
    assert (message.expires_at, message.publisher, message.qos, message.retain) == (105.0, "me", 1, True)


def test_of_will() -> None:
    will = Will("a", b"x", 2, True, Properties(will_delay_s=9, message_expiry_s=5, payload_format=1))
    message = Message.of_will(will, 100.0, "me")
    assert message.properties == Properties(payload_format=1)
    assert (message.topic, message.qos, message.retain, message.expires_at) == ("a", 2, True, 105.0)


@pytest.mark.parametrize(
    ("now", "remaining_s", "expired"),
    [(100.0, 5, False), (100.2, 5, False), (104.9, 1, False), (105.0, 0, False), (105.1, 0, True)],
)
def test_expiry_counts_down(now: float, remaining_s: int, expired: bool) -> None:
    message = Message("a", b"", expires_at=105.0)
    assert message.remaining_s(now) == remaining_s
    assert message.expired(now) is expired


def test_never_expires_without_expiry() -> None:
    message = Message("a", b"")
    assert message.remaining_s(1e12) is None
    assert not message.expired(1e12)


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_serialised_once_and_equal_to_encode(version: Version) -> None:
    v5 = version is Version.V5
    properties = Properties(content_type="t")
    message = Message("a/b", b"x" * 200, properties=properties)
    sent = properties if v5 else Properties()
    for retain in (False, True):
        packet = message.packet(v5, retain)
        assert packet == encode(Publish("a/b", b"x" * 200, 0, retain, properties=sent), version)
        assert message.packet(v5, retain) is packet
        for qos in (1, 2):
            template = message.template(v5, qos, retain)
            expected = encode(Publish("a/b", b"x" * 200, qos, retain, False, 9, sent), version)
            assert template.with_packet_id(9) == expected
            assert message.template(v5, qos, retain) is template
            assert Decoder(version, role="client").feed(template.with_packet_id(8, dup=True)) == [
                Publish("a/b", b"x" * 200, qos, retain, True, 8, sent)
            ]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_whole_is_the_publication_as_it_came_whoever_was_sent_it_before(qos: int, retain: bool) -> None:
    properties = Properties(content_type="t")
    message = Message("a/b", b"x", qos, retain, properties)
    expected = encode(Publish("a/b", b"x", qos, retain, packet_id=1 if qos else 0, properties=properties), Version.V5)
    assert message.whole() == expected
    for number in (5, 6) if qos else ():
        message.numbered(True, qos, retain, number)
    assert message.whole() == expected


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("dup", [False, True])
def test_first_and_later_receivers_get_equal_packets(version: Version, dup: bool) -> None:
    v5 = version is Version.V5
    properties = Properties(content_type="t")
    message = Message("a/b", b"x" * 200, properties=properties)
    sent = properties if v5 else Properties()
    for qos in (1, 2):
        for retain in (False, True):
            for packet_id in (7, 8, 9):
                expected = encode(Publish("a/b", b"x" * 200, qos, retain, dup, packet_id, sent), version)
                assert message.numbered(v5, qos, retain, packet_id, dup) == expected


def test_repr_shows_no_payload() -> None:
    assert "secret" not in repr(Message("a", b"secret"))
