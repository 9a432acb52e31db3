"""Invariant: no input makes the decoder raise, and what it accepts it would accept again as re-encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.packets import Connect, Packet, PubAck, PubRec, Version
from gateway.mqtt5.types import MqttError, ReasonCode
from tests.gateway.mqtt5.strategies import VERSIONS, connects, packets

ROLES = st.sampled_from(["server", "client"])


def run(version: Version | None, role: str, pieces: list[bytes]) -> tuple[list[Packet], object]:
    decoder = Decoder(version, 1 << 16, role)  # type: ignore[arg-type]
    got = [packet for piece in pieces for packet in decoder.feed(piece)]
    error = decoder.error
    assert error is None or isinstance(error, MqttError)
    return got, error and error.reason


def check(version: Version | None, role: str, data: bytes) -> None:
    got, reason = run(version, role, [data])
    assert run(version, role, [data[at : at + 1] for at in range(len(data))]) == (got, reason)
    for packet in got:
        if isinstance(packet, Connect):
            version = packet.version
        assert version is not None
        if isinstance(packet, PubAck | PubRec) and packet.code == ReasonCode.PACKET_TOO_LARGE:
            continue  # what Mosquitto says, and we never do
        again = encode(packet, version)
        assert run(None if isinstance(packet, Connect) else version, role, [again]) == ([packet], None)


@given(VERSIONS | st.none(), ROLES, st.binary(max_size=64))
def test_random_bytes(version: Version | None, role: str, data: bytes) -> None:
    check(version or (Version.V5 if role == "client" else None), role, data)


@given(VERSIONS, ROLES, st.integers(0, 255), st.binary(max_size=40))
def test_random_bodies_in_a_whole_frame(version: Version, role: str, first: int, body: bytes) -> None:
    check(version, role, bytes((first, len(body))) + body)


@given(st.data(), VERSIONS, ROLES)
def test_mutated_packets(data: st.DataObject, version: Version, role: str) -> None:
    known: Version | None = version
    if role == "server" and data.draw(st.booleans()):
        raw, known = bytearray(encode(data.draw(connects(version)), version)), None
    else:
        raw = bytearray(encode(data.draw(packets(version, role)), version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        kind = data.draw(st.sampled_from(["flip", "set", "insert", "delete", "cut"]))
        if kind == "flip":
            raw[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "set":
            raw[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == "insert":
            raw.insert(at, data.draw(st.integers(0, 255)))
        elif kind == "delete" and len(raw) > 1:
            del raw[at]
        elif kind == "cut" and at:
            del raw[at:]
    check(known, role, bytes(raw))
