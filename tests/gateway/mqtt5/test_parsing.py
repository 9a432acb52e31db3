"""Bodies of packets, read strictly within their bounds: examples, every truncation, and what follows is not read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5 import parsing
from gateway.mqtt5.encoding import encode
from gateway.mqtt5.packets import Connect, Packet, PubAck, Publish, PubRec, Version
from gateway.mqtt5.parsing import is_connect_v5, parse_connect
from gateway.mqtt5.types import MqttError
from tests.gateway.mqtt5.strategies import connects, packets
from tests.gateway.mqtt5.test_codec import EXAMPLES

TABLES = {
    ("server", True): parsing.FROM_CLIENT_V5, ("server", False): parsing.FROM_CLIENT_V3,
    ("client", True): parsing.FROM_SERVER_V5, ("client", False): parsing.FROM_SERVER_V3,
}  # fmt: skip
HAVE_PARSERS = [
    (version, role, bytes.fromhex(text), packet)
    for version, role, text, packet in EXAMPLES
    if not isinstance(packet, Connect | Publish)
]


def body_of(data: bytes) -> tuple[int, bytes]:
    """The first byte of a packet, and its body."""
    at = 1
    while data[at] & 0x80:
        at += 1
    return data[0], data[at + 1 :]


def read(version: Version, role: str, data: bytes, before: bytes = b"", after: bytes = b"") -> Packet:
    """The packet as one of a longer read."""
    first, body = body_of(data)
    parse = TABLES[role, version is Version.V5][first]
    return parse(before + body + after, len(before), len(before) + len(body), version)


@pytest.mark.parametrize(("version", "role", "data", "packet"), HAVE_PARSERS)
def test_examples_wherever_they_lie_in_a_read(version: Version, role: str, data: bytes, packet: Packet) -> None:
    assert read(version, role, data) == packet
    assert read(version, role, data, before=b"\xff" * 5, after=b"\0\1a" * 3) == packet


@given(st.data(), st.sampled_from([Version.V311, Version.V5]), st.sampled_from(["server", "client"]))
def test_a_packet_that_is_cut_is_refused_or_a_shorter_one(data: st.DataObject, version: Version, role: str) -> None:
    """Never another exception, and what is read again is what was read."""
    packet = data.draw(packets(version, role).filter(lambda p: not isinstance(p, Connect | Publish)))
    first, body = body_of(encode(packet, version))
    parse = TABLES[role, version is Version.V5][first]
    end = data.draw(st.integers(0, len(body)))
    try:
        found = parse(body, 0, end, version)
    except MqttError:
        assert end < len(body)
        return
    assert body_of(encode(found, version))[0] == first
    assert parse(body[:end], 0, end, version) == found


@given(st.data(), st.sampled_from(list(Version)))
def test_a_connect_is_read_as_it_was_written_and_refused_when_cut(data: st.DataObject, version: Version) -> None:
    packet = data.draw(connects(version))
    _, body = body_of(encode(packet, version))
    assert parse_connect(b"xx" + body + b"yy", 2, 2 + len(body)) == packet
    assert is_connect_v5(b"xx" + body, 2, 2 + len(body)) is (version is Version.V5)
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(MqttError):
        parse_connect(body, 0, end)


def test_a_connect_says_its_version_within_its_own_bytes() -> None:
    said = b"\0\4MQTT\5"
    assert is_connect_v5(said, 0, len(said))
    assert not is_connect_v5(said, 0, len(said) - 1)
    assert not is_connect_v5(b"\0\4MQTT\4", 0, 7)


@pytest.mark.parametrize("direction", ["server", "client"])
def test_what_one_side_may_not_send_has_no_parser(direction: str) -> None:
    v3, v5 = TABLES[direction, False], TABLES[direction, True]
    assert {0x40, 0x50, 0x62, 0x70} <= set(v3)
    assert set(v5) - set(v3) == ({0xF0} if direction == "server" else {0xE0, 0xF0})
    others = {0x20, 0x90, 0xB0, 0xD0} if direction == "server" else {0x82, 0xA2, 0xC0}
    assert not others & set(v5)
    assert not {0x10, 0x30, 0x60, 0x80, 0xA0} & set(v5), "CONNECT comes first, and flags are prescribed"


@pytest.mark.parametrize("first", [0x40, 0x50])
def test_a_server_may_say_too_large_where_mqtt_has_no_such_code(first: int) -> None:
    """Mosquitto does, beyond its `message_size_limit`; a client may not, and nothing else passes."""
    packet = read(Version.V5, "client", bytes((first, 3, 0, 7, 0x95)))
    assert isinstance(packet, PubAck | PubRec)
    assert (packet.packet_id, packet.code) == (7, 0x95)
    for role, code in (("server", 0x95), ("client", 0x96)):
        with pytest.raises(MqttError):
            read(Version.V5, role, bytes((first, 3, 0, 7, code)))
    with pytest.raises(MqttError):
        encode(packet, Version.V5)


def test_codes_of_disconnect_and_auth_depend_on_who_says_them() -> None:
    assert 0x04 in parsing.DISCONNECT_FROM_CLIENT
    assert 0x04 not in parsing.DISCONNECT_FROM_SERVER
    assert 0x8E in parsing.DISCONNECT_FROM_SERVER - parsing.DISCONNECT_FROM_CLIENT, "taken over: a server's"
    assert ({0x18, 0x19}, {0x00, 0x18}) == (parsing.AUTH_FROM_CLIENT, parsing.AUTH_FROM_SERVER)
