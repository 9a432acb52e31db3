from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5.types import (
    MalformedPacket,
    MqttError,
    ReasonCode,
    UnsendablePacket,
    check_topic_filter,
    check_topic_name,
    connack_code_v3,
    decode_utf8,
    decode_varint,
    encode_varint,
    reason_of_connack_v3,
)


# MQTT 5.0 table 1-1: the first and last value of each length.
@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_varint_boundaries_of_the_specification(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0, len(encoded) // 2) == (value, len(encoded) // 2)


@pytest.mark.parametrize("raw", ["8000", "808000", "80808000", "ff8000"])
def test_varint_longer_than_needed_is_refused(raw: str) -> None:
    with pytest.raises(MalformedPacket):
        decode_varint(bytes.fromhex(raw), 0, len(raw) // 2)


def test_varint_of_five_bytes_is_refused_and_a_short_one_waits() -> None:
    with pytest.raises(MalformedPacket):
        decode_varint(b"\x80\x80\x80\x80\x01", 0, 5)
    assert decode_varint(b"\x80\x80", 0, 2) == (0, -1)
    assert decode_varint(b"", 0, 0) == (0, -1)


@pytest.mark.parametrize("value", [-1, 268_435_456])
def test_varint_out_of_range_is_unsendable(value: int) -> None:
    with pytest.raises(UnsendablePacket):
        encode_varint(value)


@given(st.integers(0, 268_435_455), st.binary(max_size=3))
def test_varint_round_trip(value: int, after: bytes) -> None:
    data = encode_varint(value) + after
    assert decode_varint(data, 0, len(data)) == (value, len(data) - len(after))


@pytest.mark.parametrize("raw", [b"a\0b", b"\xed\xa0\x80", b"\xc0\xaf", b"\xff", b"\xf4\x90\x80\x80"])
def test_strings_that_mqtt_forbids(raw: bytes) -> None:
    with pytest.raises(MalformedPacket):
        decode_utf8(raw)


def test_byte_order_mark_is_kept() -> None:
    assert decode_utf8(b"\xef\xbb\xbfa") == "\ufeffa"


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0b", "x" * 65_536])
def test_topic_names_that_no_publish_may_carry(topic: str) -> None:
    with pytest.raises(MalformedPacket):
        check_topic_name(topic)


@pytest.mark.parametrize("topic", ["a", "/", "/a//b", "$SYS/x", "é" * 20_000])
def test_topic_names(topic: str) -> None:
    assert check_topic_name(topic) == topic


# MQTT 5.0 §4.7.1 and §4.8.2, valid and invalid examples.
@pytest.mark.parametrize(
    "name",
    ["#", "+", "sport/tennis/#", "sport/+/player1", "/+", "+/+", "a/b", "/", "$SYS/#", "$share/g/#", "$share/g//"],
)
def test_filters_of_the_specification(name: str) -> None:
    assert check_topic_filter(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "sport/tennis#", "sport/#/ranking", "sport+", "a/b+/c", "##", "#/", "$share//a", "$share/g", "$share/g/",
     "$share/g+/a", "$share/#/a", "a\0"],
)  # fmt: skip
def test_filters_that_are_malformed(name: str) -> None:
    with pytest.raises(MalformedPacket):
        check_topic_filter(name)


def test_every_error_carries_a_reason_of_failure() -> None:
    tree = [MqttError]
    while tree:
        error = tree.pop()
        tree.extend(error.__subclasses__())
        assert error("text").reason >= 0x80


def test_reasons_for_old_clients_and_back() -> None:
    assert [connack_code_v3(reason_of_connack_v3(code)) for code in range(6)] == list(range(6))
    assert connack_code_v3(ReasonCode.MALFORMED_PACKET) is None
    assert connack_code_v3(ReasonCode.SERVER_BUSY) == 3
