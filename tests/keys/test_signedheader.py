"""keys.signedheader: headers stay what their publisher signed, where it signed them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.errors import BadFrame, BadSignature, OurFault
from keys.frames import text
from keys.message import NO_KEY, MessageHeader, Mode
from keys.signedheader import SignedHeader, header_of, sign_header, verify_header
from tests.keys.helpers import PUBLISHER, STRANGER, assert_canonical, assert_strict, bit_flips, message_header

KEY_ID = bytes(range(16))
TOPIC = "plant/~"
PUBLIC = PUBLISHER.public_bytes


def signed_header(sequence: int = 1001, digests: int = 1) -> SignedHeader:
    header = message_header(KEY_ID, sequence)
    if digests > 1:
        header = replace(header, mode=Mode.BLOCKS, digests=(bytes(32),) * digests)
    return sign_header(PUBLISHER, header, TOPIC)


def verified(frame: bytes, topic: str = TOPIC, public: bytes = PUBLIC) -> MessageHeader:
    header = header_of(frame)
    verify_header(header, frame, topic, public)
    return header


@pytest.mark.parametrize("digests", [1, 2, 255])
def test_a_header_holds_where_it_was_signed(digests: int) -> None:
    signed = signed_header(digests=digests)
    assert verified(signed.encode()) == signed.header


@pytest.mark.parametrize("digests", [1, 3])
def test_a_flipped_bit_anywhere_is_noticed(digests: int) -> None:
    for changed in bit_flips(signed_header(digests=digests).encode()):
        with pytest.raises((BadFrame, BadSignature)):
            verified(changed)


def test_a_header_moved_to_another_topic_is_refused() -> None:
    """Otherwise a replica could use up a sequence on a topic where nobody reads it."""
    frame = signed_header().encode()
    for topic in ("plant/~/x", "plant", "", TOPIC + "/"):
        with pytest.raises(BadSignature):
            verified(frame, topic)


def test_what_is_signed_cannot_be_read_as_a_longer_header_on_a_shorter_topic() -> None:
    """Header and topic are signed side by side; a digest more is none of the topic's bytes."""
    one, two = signed_header(digests=2), signed_header(digests=3)
    for header, other in ((one.header, two), (two.header, one)):
        frame = SignedHeader(header, other.signature).encode()
        with pytest.raises(BadSignature):
            verified(frame)


def test_a_header_of_another_publisher_is_refused() -> None:
    frame = sign_header(STRANGER, message_header(KEY_ID), TOPIC).encode()
    for public in (PUBLIC, STRANGER.public_bytes):
        with pytest.raises(BadSignature):
            verified(frame, public=public)


def test_the_signature_of_another_header_is_refused() -> None:
    one, two = signed_header(1), signed_header(2)
    for mixed in (SignedHeader(one.header, two.signature), SignedHeader(two.header, one.signature)):
        with pytest.raises(BadSignature):
            verified(mixed.encode())


@pytest.mark.parametrize("digests", [1, 16])
def test_the_frame_of_a_signed_header_is_strict(digests: int) -> None:
    frame = signed_header(digests=digests).encode()
    assert_strict(SignedHeader.decode, SignedHeader.encode, frame)  # type: ignore[arg-type]


def test_a_signature_that_cannot_be_is_not_sent() -> None:
    with pytest.raises(OurFault):
        replace(signed_header(), signature=b"").encode()


def test_what_is_shorter_than_a_signature_is_not_read() -> None:
    for size in (0, 3, 63, 64):
        with pytest.raises(BadFrame, match="without a signature" if size < 64 else "ends at byte 0"):
            SignedHeader.decode(bytes(size))


@settings(max_examples=60)
@given(st.integers(0, 170), st.binary(min_size=1, max_size=4))
def test_arbitrary_changes_are_refused_or_canonical(offset: int, data: bytes) -> None:
    frame = signed_header().encode()
    changed = frame[:offset] + data + frame[offset + len(data) :]
    assert_canonical(SignedHeader.decode, SignedHeader.encode, changed)  # type: ignore[arg-type]


@settings(max_examples=200)
@given(st.integers(0, 2), st.booleans(), st.data())
def test_the_short_way_of_reading_a_header_is_the_long_one(qos: int, retain: bool, data: st.DataObject) -> None:
    signed = signed_header()
    frame = bytearray(replace(signed, header=replace(signed.header, qos=qos, retain=retain)).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    both_ways_agree(bytes(frame[: data.draw(st.sampled_from([len(frame), len(frame) - 1, 100]))]))


@pytest.mark.parametrize("key_id", [KEY_ID, NO_KEY])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 80])  # version, kind, flags, mode, count of digests
def test_the_short_way_of_reading_refuses_what_the_long_one_does(at: int, key_id: bytes) -> None:
    header = message_header(key_id, mode=Mode.COPIES if any(key_id) else Mode.PLAIN)
    frame = sign_header(PUBLISHER, header, TOPIC).encode()
    for value in range(256):
        both_ways_agree(frame[:at] + bytes([value]) + frame[at + 1 :])


def both_ways_agree(changed: bytes) -> None:
    try:
        known = MessageHeader.decode(changed[:-64])
    except BadFrame:
        with pytest.raises(BadFrame):
            header_of(changed)
        return
    assert header_of(changed) == known
    assert SignedHeader.decode(changed).encode() == changed


def test_the_signature_is_over_header_and_topic_in_its_domain_and_not_shown() -> None:
    signed = signed_header()
    assert signed.signature == PUBLISHER.sign("veilmq/1 header", signed.header.encode() + text(TOPIC))
    assert repr(signed.signature)[2:-1] not in repr(signed)
