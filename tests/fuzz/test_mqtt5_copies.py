"""Invariant: decoders that share what they decoded find in every stream what a decoder alone finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt5 import copies
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.copies import COPIES_BYTES, COPY_BYTES_MAX, COPY_PROPERTIES_MAX, Copies
from gateway.mqtt5.packets import Packet, Properties, Publish, Version
from gateway.mqtt5.types import MqttError
from tests.gateway.mqtt5.strategies import PACKET_IDS, publishes

MAXIMUM = 1 << 16


@st.composite
def streams(draw: st.DrawFn) -> list[list[bytes]]:
    """Of three connections: few publications, in packets that differ in identifier, flags, topic, or any byte."""
    bodies = draw(st.lists(publishes(Version.V5, from_client=False), min_size=1, max_size=3))
    topics = sorted({body.topic for body in bodies})
    made: list[list[bytes]] = [[], [], []]
    for _ in range(draw(st.integers(1, 12))):
        body = draw(st.sampled_from(bodies))
        qos = draw(st.integers(0, 2))
        packet = Publish(
            draw(st.sampled_from([body.topic, *topics])), body.payload, qos, draw(st.booleans()),
            bool(qos) and draw(st.booleans()), draw(PACKET_IDS) if qos else 0, body.properties,
        )  # fmt: skip
        if packet.topic or packet.properties.topic_alias is not None:
            raw = bytearray(encode(packet, Version.V5))
            if draw(st.integers(0, 3)) == 0:
                raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
            made[draw(st.integers(0, 2))].append(bytes(raw))
    return made


def decoded(decoder: Decoder, read: bytes) -> tuple[list[Packet], object]:
    packets = decoder.feed(read)
    error = decoder.error
    assert error is None or isinstance(error, MqttError)
    return packets, error and (type(error), str(error))


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(streams(), st.booleans())
def test_what_was_decoded_elsewhere_changes_nothing(made: list[list[bytes]], whole: bool) -> None:
    shared = Copies()
    for _ in range(2):  # the second time, all that was well-formed is known
        for stream in made:
            together = Decoder(Version.V5, MAXIMUM, "client", copies=shared)
            alone = Decoder(Version.V5, MAXIMUM, "client")
            for read in [b"".join(stream)] if whole else stream:
                assert decoded(together, read) == decoded(alone, read)


def packet(payload: bytes, packet_id: int = 1, topic: str = "plant/a") -> bytes:
    return encode(
        Publish(topic, payload, 1, packet_id=packet_id, properties=Properties(user=(("a", "b"),))), Version.V5
    )


def test_a_copy_is_made_of_the_same_objects() -> None:
    shared = Copies()
    first, second = (Decoder(Version.V5, MAXIMUM, "client", copies=shared).feed(packet(b"x", n))[0] for n in (1, 2))
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert (first.packet_id, second.packet_id) == (1, 2)
    assert second.payload is first.payload
    assert second.properties is first.properties


def test_a_body_under_another_topic_is_another_message() -> None:
    """Its signature covers the topic: who moves it must be found out."""
    shared = Copies()
    decoder = Decoder(Version.V5, MAXIMUM, "client", copies=shared)
    got = decoder.feed(packet(b"x", 1) + packet(b"x", 2, "plant/b") + packet(b"x", 3))
    assert [one.topic for one in got if isinstance(one, Publish)] == ["plant/a", "plant/b", "plant/a"]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "BODY_OVERHEAD_BYTES", 0)
    shared = Copies(10_000)
    decoder = Decoder(Version.V5, MAXIMUM, "client", copies=shared)
    for number in range(1000):
        decoder.feed(packet(b"%04d" % number * 50))
        assert sum(len(body) for generation in shared.generations for body in generation) <= 10_000
    assert any(shared.generations)
    decoder.feed(packet(bytes(COPY_BYTES_MAX)))
    assert not any(len(body) > COPY_BYTES_MAX for generation in shared.generations for body in generation)
    many = Properties(user=(("", ""),) * (COPY_PROPERTIES_MAX + 1))
    decoder.feed(encode(Publish("plant/a", b"", properties=many), Version.V5))
    assert not any(len(one[2].user) > COPY_PROPERTIES_MAX for kept in shared.generations for one in kept.values())
    assert COPIES_BYTES == 8 << 20


def test_a_server_keeps_nothing() -> None:
    """There, clients that nobody trusts with each other's messages would tell from the time who sent what."""
    shared = Copies()
    Decoder(Version.V5, MAXIMUM, "server", copies=shared).feed(packet(b"x"))
    assert not any(shared.generations)
