"""Packets to bytes: the shortest form, and nothing that the version or the specification has no room for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5 import encoding
from gateway.mqtt5.encoding import NAME_CACHE_BYTES, PublishTemplate, codes_of, encode, encode_publish, encode_run
from gateway.mqtt5.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Properties,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.properties import Carrier
from gateway.mqtt5.types import MAXIMUM_REMAINING_LENGTH, ReasonCode, UnsendablePacket, encode_varint
from tests.gateway.mqtt5.test_codec import EXAMPLES

V31, V311, V5 = Version.V31, Version.V311, Version.V5


@pytest.mark.parametrize(("version", "_role", "text", "packet"), EXAMPLES)
def test_examples_of_the_specification_are_written_so(version: Version, _role: str, text: str, packet: Packet) -> None:
    assert encode(packet, version) == bytes.fromhex(text)


@pytest.mark.parametrize(
    ("version", "packet"),
    [
        (V311, Auth(0x18)),
        (V5, Auth(0x87)),
        (V5, Publish("a/+", b"")),
        (V5, Publish("", b"")),
        (V311, Publish("", b"", properties=Properties(topic_alias=1))),
        (V5, Publish("a", b"", 3, packet_id=1)),
        (V5, Publish("a", b"", 1)),
        (V5, Publish("a", b"", 1, packet_id=65_536)),
        (V5, Publish("a", b"", 0, dup=True)),
        (V5, Publish("a\ud800", b"")),
        (V5, Publish("x" * 65_536, b"")),
        (V5, PubAck(0)),
        (V5, PubAck(1, 0x92)),
        (V5, Connect("a", V311)),
        (V311, Connect("", V311, clean_start=False)),
        (V31, Connect("", V31)),
        (V311, Connect("a", V311, password=b"x")),
        (V5, Connect("a", keep_alive_s=65_536)),
        (V5, Connect("a", will=Will("#", b""))),
        (V5, Connect("a", will=Will("a", b"", 3))),
        (V5, Connect("a", will=Will("a", b"x" * 65_536))),
        (V5, Connect("a", properties=Properties(authentication_data=b"x"))),
        (V5, ConnAck(True, 0x87)),
        (V5, ConnAck(False, 1)),
        (V5, Subscribe(1, ())),
        (V5, Subscribe(1, (Subscription("a", 3),))),
        (V5, Subscribe(1, (Subscription("$share/g/a", 0, no_local=True),))),
        (V5, Subscribe(1, (Subscription("a#"),))),
        (V5, SubAck(1, ())),
        (V5, SubAck(1, (3,))),
        (V5, Unsubscribe(1, ())),
        (V5, UnsubAck(1, ())),
        (V5, Disconnect(0x01)),
        (V5, object()),
    ],
)  # fmt: skip
def test_what_cannot_be_sent_raises(version: Version, packet: Packet) -> None:
    with pytest.raises(UnsendablePacket):
        encode(packet, version)


def test_version_5_fields_are_left_out_on_older_connections() -> None:
    properties = Properties(reason="x")
    assert encode(PubAck(1, 0x87, properties), V311) == b"\x40\2\0\1"
    assert encode(SubAck(1, (0x87, 1)), V311) == b"\x90\4\0\1\x80\1"
    assert encode(Disconnect(0x8B), V311) == b"\xe0\0"
    assert encode(UnsubAck(1, (0x11,)), V311) == b"\xb0\2\0\1"
    assert encode(Subscribe(1, (Subscription("a", 1, True, True, 2),)), V311)[-1] == 1


@given(
    st.sampled_from([V311, V5]),
    st.integers(0, 2),
    st.booleans(),
    st.integers(1, 65_535),
    st.sampled_from([0, 1, 100, 127, 128, 16_370, 16_400]),
    st.booleans(),
)
def test_a_template_is_what_encode_writes(
    version: Version, qos: int, retain: bool, packet_id: int, size: int, dup: bool
) -> None:
    payload = bytes(size)
    properties = Properties(content_type="x") if version is V5 else Properties()
    fields = b"\x03\0\1x" if version is V5 else None
    template = PublishTemplate("topic/é", payload, qos, retain, version, fields)
    dup = dup and qos > 0
    expected = encode(Publish("topic/é", payload, qos, retain, dup, packet_id if qos else 0, properties), version)
    assert (template.with_packet_id(packet_id, dup) if qos else template.packet) == expected
    assert template.size == len(expected)


@pytest.mark.parametrize("size", [0, 123, 124, 125, 16_379, 16_380, 16_381, 2_097_148, 2_097_149])
def test_lengths_at_the_borders_of_their_bytes(size: int) -> None:
    data = encode_publish("a", bytes(size), version=V311)
    length = encode_varint(3 + size)
    assert data == b"\x30" + length + b"\0\1a" + bytes(size)
    template = PublishTemplate("a", bytes(size), 1, False, V311)
    assert template.with_packet_id(258) == b"\x32" + encode_varint(5 + size) + b"\0\1a\1\2" + bytes(size)


def test_more_than_mqtt_can_say_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return MAXIMUM_REMAINING_LENGTH + 1

    with pytest.raises((UnsendablePacket, ValueError)):
        encode_publish("a", Huge())


@pytest.mark.parametrize("flags", range(8))
def test_flags_of_a_publish(flags: int) -> None:
    retain, qos = flags & 1, flags >> 1 & 3
    if qos == 3:
        return
    dup = bool(qos)
    assert encode_publish("a", b"", qos, bool(retain), dup, 7 if qos else 0)[0] == 0x30 | dup << 3 | qos << 1 | retain


def test_a_name_as_bytes_is_that_of_the_text() -> None:
    assert encode_publish(b"plant/\xc3\xa9", b"x") == encode_publish("plant/é", b"x")
    assert encode_publish(b"", b"x", properties_bytes=b"\x23\0\5")[2:4] == b"\0\0"


def test_the_cache_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "NAME_CACHE_ENTRIES", 3)
    monkeypatch.setattr(encoding, "_names", {})
    for number in range(10):
        encode_publish(f"t/{number}", b"")
        assert len(encoding._names) <= 3
    encode_publish("x" * (NAME_CACHE_BYTES - 1), b"")
    assert "x" * (NAME_CACHE_BYTES - 1) not in encoding._names
    encode_publish("y" * (NAME_CACHE_BYTES - 2), b"")
    assert "y" * (NAME_CACHE_BYTES - 2) in encoding._names


def test_success_without_properties_is_written_as_nothing() -> None:
    assert encode(PubAck(1), V5) == b"\x40\2\0\1"
    assert encode(PubAck(1, 0x10), V5) == b"\x40\3\0\1\x10"
    assert encode(PubAck(1, 0, Properties(reason="x")), V5) == b"\x40\x08\0\1\0\4\x1f\0\1x"
    assert encode(Disconnect(), V5) == b"\xe0\0"


@pytest.mark.parametrize(("carrier", "code", "allowed"), [
    (Carrier.CONNACK, 0x8B, False), (Carrier.CONNACK, 0x8A, True), (Carrier.PUBACK, 0x10, True),
    (Carrier.PUBREL, 0x92, True), (Carrier.PUBREL, 0x80, False), (Carrier.SUBACK, 0x9E, True),
    (Carrier.SUBACK, 0x11, False), (Carrier.UNSUBACK, 0x11, True), (Carrier.DISCONNECT, 0x04, True),
    (Carrier.DISCONNECT, 0x91, False), (Carrier.DISCONNECT, 0xA2, True), (Carrier.DISCONNECT, 0xA3, False),
    (Carrier.AUTH, 0x18, True), (Carrier.AUTH, 0x87, False),
])  # fmt: skip
def test_codes_are_those_of_the_tables_in_chapter_3(carrier: Carrier, code: int, allowed: bool) -> None:
    assert (code in codes_of(carrier, V5)) is allowed


def test_old_versions_have_codes_of_their_own() -> None:
    assert codes_of(Carrier.CONNACK, V311) == set(range(6))
    assert codes_of(Carrier.SUBACK, V31) == {0, 1, 2, 0x80}
    assert encode(ConnAck(False, 5), V311) == b"\x20\2\0\5"
    with pytest.raises(UnsendablePacket):
        encode(ConnAck(False, ReasonCode.NOT_AUTHORIZED), V311)


@pytest.mark.parametrize("version", [V311, V5])
@given(st.lists(st.tuples(st.sampled_from([0, 1, 100, 200]), st.sampled_from([1, 2]), st.integers(1, 65_535))))
def test_a_run_is_written_as_its_messages_alone(version: Version, run: list[tuple[int, int, int]]) -> None:
    alone = [
        encode_publish("a/b", bytes(size), qos, packet_id=packet_id, version=version) for size, qos, packet_id in run
    ]
    columns = [bytes(size) for size, _, _ in run], [qos for _, qos, _ in run], [number for _, _, number in run]
    assert encode_run("a/b", *columns, version) == alone
