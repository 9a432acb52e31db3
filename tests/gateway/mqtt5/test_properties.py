from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5.packets import NO_PROPERTIES, Properties
from gateway.mqtt5.properties import TABLE, Carrier, decode_properties, encode_properties
from gateway.mqtt5.types import MalformedPacket, MqttError, ProtocolViolation, TopicAliasInvalid, UnsendablePacket
from tests.gateway.mqtt5.strategies import properties_of

# One encoded value of every property, by identifier.
EXAMPLES = {
    0x01: "0101", 0x02: "0200000005", 0x03: "03000161", 0x08: "08000161", 0x09: "090001ff", 0x0B: "0b01",
    0x11: "1100000001", 0x12: "12000161", 0x13: "130001", 0x15: "15000161", 0x16: "160001ff", 0x17: "1701",
    0x18: "1800000001", 0x19: "1901", 0x1A: "1a000161", 0x1C: "1c000161", 0x1F: "1f000161", 0x21: "210001",
    0x22: "220001", 0x23: "230001", 0x24: "2401", 0x25: "2501", 0x26: "26000161000162", 0x27: "2700000001",
    0x28: "2801", 0x29: "2901", 0x2A: "2a01",
}  # fmt: skip


def decode(text: str, carrier: Carrier) -> Properties:
    body = bytes.fromhex(text)
    data = bytes((len(body),)) + body + b"after"
    properties, at = decode_properties(data, 0, len(data), carrier)
    assert data[at:] == b"after"
    return properties


def test_table_has_every_property_of_the_specification() -> None:
    assert {row.identifier for row in TABLE} == set(EXAMPLES)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.field)
def test_each_property_in_each_packet_is_read_or_refused(row: object) -> None:
    example = EXAMPLES[row.identifier]  # type: ignore[attr-defined]
    holder = next(iter(row.carriers))  # type: ignore[attr-defined]
    read, written = set(), set()
    for carrier in Carrier:
        with suppress(ProtocolViolation):
            properties = decode(example, carrier)
            assert getattr(properties, row.field) not in (None, ()), carrier  # type: ignore[attr-defined]
            read.add(carrier)
        with suppress(UnsendablePacket):
            assert encode_properties(decode(example, holder), carrier)[1:].hex() == example, carrier
            written.add(carrier)
    assert read == written == set(row.carriers)  # type: ignore[attr-defined]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.field)
def test_twice_is_a_protocol_error_but_where_it_is_allowed(row: object) -> None:
    identifier = row.identifier  # type: ignore[attr-defined]
    twice = EXAMPLES[identifier] * 2
    for carrier in row.carriers:  # type: ignore[attr-defined]
        if identifier == 0x26 or (identifier == 0x0B and carrier is Carrier.PUBLISH):
            assert len(getattr(decode(twice, carrier), row.field)) == 2  # type: ignore[attr-defined]
        else:
            with pytest.raises(ProtocolViolation):
                decode(twice, carrier)


@pytest.mark.parametrize(
    ("text", "carrier"),
    [
        ("0102", Carrier.PUBLISH),
        ("0b00", Carrier.SUBSCRIBE),
        ("210000", Carrier.CONNECT),
        ("2700000000", Carrier.CONNECT),
        ("1702", Carrier.CONNECT),
        ("2402", Carrier.CONNACK),
    ],
)
def test_values_out_of_range_are_protocol_errors(text: str, carrier: Carrier) -> None:
    with pytest.raises(ProtocolViolation):
        decode(text, carrier)


def test_topic_alias_zero_has_its_own_reason() -> None:
    with pytest.raises(TopicAliasInvalid):
        decode("230000", Carrier.PUBLISH)


@pytest.mark.parametrize("text", ["00", "7f", "04", "8101", "02000000", "030005", "26000161", "080001", "0800012b"])
def test_malformed_properties(text: str) -> None:
    with pytest.raises(MalformedPacket):
        decode(text, Carrier.PUBLISH)


def test_property_length_beyond_the_packet() -> None:
    with pytest.raises(MalformedPacket):
        decode_properties(b"\x05\x01\x01", 0, 3, Carrier.PUBLISH)
    with pytest.raises(MalformedPacket):
        decode_properties(b"\x80", 0, 1, Carrier.PUBLISH)


def test_user_properties_keep_order_and_repeats() -> None:
    pairs = (("b", "1"), ("a", ""), ("b", "1"))
    encoded = encode_properties(Properties(user=pairs), Carrier.SUBACK)
    assert decode_properties(encoded, 0, len(encoded), Carrier.SUBACK)[0].user == pairs


def test_decoded_properties_equal_constructed_ones() -> None:
    decoded = decode("0101" + "0b07", Carrier.PUBLISH)
    assert decoded == Properties(payload_format=1, subscription_ids=(7,))
    assert decoded.content_type is None
    assert decode("", Carrier.PUBLISH) is NO_PROPERTIES


@pytest.mark.parametrize(
    "properties",
    [
        Properties(payload_format=2),
        Properties(message_expiry_s=-1),
        Properties(message_expiry_s=1 << 32),
        Properties(content_type="\0"),
        Properties(content_type="\ud800"),
        Properties(correlation_data=b"x" * 65_536),
        Properties(response_topic="a/#"),
        Properties(topic_alias=0),
        Properties(subscription_ids=(0,)),
        Properties(user=(("a", "\ud800"),)),
    ],
)
def test_values_that_cannot_be_sent(properties: Properties) -> None:
    with pytest.raises(UnsendablePacket):
        encode_properties(properties, Carrier.PUBLISH)


@given(st.data(), st.sampled_from(Carrier))
def test_round_trip(data: st.DataObject, carrier: Carrier) -> None:
    properties = data.draw(properties_of(carrier))
    encoded = encode_properties(properties, carrier)
    decoded, at = decode_properties(encoded, 0, len(encoded), carrier)
    assert at == len(encoded)
    assert decoded == properties
    assert encode_properties(decoded, carrier) == encoded


@given(st.binary(max_size=40), st.sampled_from(Carrier))
def test_arbitrary_bytes_are_properties_or_an_mqtt_error(body: bytes, carrier: Carrier) -> None:
    data = bytes((len(body),)) + body
    try:
        properties, at = decode_properties(data, 0, len(data), carrier)
    except MqttError:
        return
    assert at == len(data)
    assert decode_properties(encode_properties(properties, carrier), 0, 1 << 20, carrier)[0] == properties


def test_properties_are_equal_however_they_were_made_and_have_no_other_names() -> None:
    made = Properties(content_type="a", user=(("b", "c"),))
    assert made == replace(made) == replace(Properties(user=(("b", "c"),)), content_type="a")
    assert hash(made) == hash(replace(made))
    assert Properties() == NO_PROPERTIES != made
    with pytest.raises(TypeError, match="content"):
        Properties(content="a")  # type: ignore[call-arg]
