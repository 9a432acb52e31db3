"""What a peer expects to hear, as matchers on raw bytes.

Bytes and `packets.Written` are compared exactly, but for PUBLISH: its properties have no order (user
properties have), and a packet identifier given by a name is learnt, and must differ from those in use. The
other matchers leave open what the specification leaves open. Source: MQTT 5.0 and 3.1.1, chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from tests.conformance.packets import (
    ASSIGNED_CLIENT_ID,
    SIZES,
    SUBSCRIPTION_ID,
    USER,
    Given,
    PacketId,
    Who,
    Written,
    frame,
    number,
    one_property,
    only_v5,
    publish,
    string,
)

Properties: TypeAlias = list[tuple[int, bytes]]


class MismatchError(AssertionError):
    """What came is not what was expected."""


@dataclass(frozen=True)
class Heard:
    """A matcher, and for the table an example of what it takes and what it leaves open.

    `check` raises MismatchError.
    """

    example: Written
    leaves_open: str
    check: Callable[[bytes, Who], None]

    def __call__(self, raw: bytes, who: Who) -> None:
        self.check(raw, who)


Expected: TypeAlias = bytes | Written | Heard


def expect(raw: bytes, expected: Expected, who: Who) -> None:
    """Raises MismatchError."""
    if isinstance(expected, Heard):
        expected(raw, who)
        return
    wanted = expected if isinstance(expected, bytes) else expected(who)
    if raw != wanted:
        raise MismatchError(f"{who.name} heard {raw.hex(' ')} instead of {wanted.hex(' ')}")


def _need(condition: bool, raw: bytes, what: str) -> None:
    if not condition:
        raise MismatchError(f"{what}: {raw.hex(' ')}")


def take_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def body_of(raw: bytes) -> bytes:
    length, at = take_varint(raw, 1)
    _need(len(raw) == at + length, raw, "length does not fit")
    return raw[at:]


def take_properties(data: bytes, at: int) -> tuple[Properties, int]:
    """(identifier, raw value) of each property, and the position after them."""
    length, at = take_varint(data, at)
    stop = at + length
    found: Properties = []
    while at < stop:
        identifier, at = data[at], at + 1
        begin = at
        if identifier == SUBSCRIPTION_ID:
            at = take_varint(data, at)[1]
        elif identifier in SIZES:
            at += SIZES[identifier]
        else:
            for _ in range(2 if identifier == USER else 1):
                at += 2 + int.from_bytes(data[at : at + 2], "big")
        found.append((identifier, data[begin:at]))
    if at != stop:
        raise MismatchError(f"properties do not end where they should: {data.hex(' ')}")
    return found, at


def _sorted(properties: Iterable[tuple[int, bytes]]) -> Properties:
    """In the order of identifiers; user properties keep theirs, repeated subscription identifiers do not."""
    return sorted(properties, key=lambda one: (one[0], b"" if one[0] == USER else one[1]))


def _encoded(given: Given) -> Properties:
    return [(one[0], one_property(*one)[1:]) for one in given]


def _has(found: Properties, wanted: Given, absent: Iterable[int], raw: bytes) -> None:
    for one in _encoded(wanted):
        _need(one in found, raw, f"property {one[0]:#x} is missing or other")
    for identifier in absent:
        _need(all(one[0] != identifier for one in found), raw, f"property {identifier:#x} is not to be here")


def message(
    topic: str,
    payload: bytes = b"x",
    qos: int = 0,
    packet_id: PacketId = 0,
    *,
    retain: int = 0,
    dup: int = 0,
    given: Given = (),
    expiry_s: tuple[int, int] | None = None,
) -> Heard:
    """A PUBLISH. `given` are all its properties, but for a message expiry that lies in `expiry_s`."""

    def check(raw: bytes, who: Who) -> None:
        first = 0x30 | dup << 3 | qos << 1 | retain
        _need(raw[0] == first, raw, f"first byte is not {first:#x}")
        body = body_of(raw)
        name = string(topic)
        _need(body.startswith(name), raw, f"topic is not {topic!r}")
        at = len(name)
        if qos:
            _learn(int.from_bytes(body[at : at + 2], "big"), packet_id, raw, who)
            at += 2
        if who.version == 5:
            found, at = take_properties(body, at)
            if expiry_s is not None:
                left = [int.from_bytes(value, "big") for identifier, value in found if identifier == 2]
                low, high = expiry_s
                _need(len(left) == 1 and low <= left[0] <= high, raw, f"message expiry {left} is not in {expiry_s}")
                found = [one for one in found if one[0] != 2]
            _need(_sorted(found) == _sorted(_encoded(given)), raw, "properties are other")
        _need(body[at:] == payload, raw, f"payload is not {payload!r}")

    example = publish(topic, payload, qos, packet_id, retain=retain, dup=dup, given=given)
    left = "" if expiry_s is None else f", message expiry {expiry_s[0]} to {expiry_s[1]} s besides"
    return Heard(example, f"identifier, order of properties{left}", check)


def _learn(value: int, packet_id: PacketId, raw: bytes, who: Who) -> None:
    _need(value != 0, raw, "packet identifier is 0")
    if isinstance(packet_id, int):
        _need(value == packet_id, raw, f"packet identifier is not {packet_id}")
    elif packet_id in who.ids:
        _need(value == who.ids[packet_id], raw, f"packet identifier is not that of {packet_id}")
    else:
        _need(value not in who.ids.values(), raw, "packet identifier is in use")
        who.ids[packet_id] = value


def connack(
    code: int | dict[int, int] = 0,
    present: int = 0,
    *,
    given: Given = (),
    absent: tuple[int, ...] = (),
    assigns: bool = False,
    at_most: int = 1 << 20,
) -> Heard:
    """CONNACK; in MQTT 5 with these properties among others, without those in `absent`, and not longer.

    `code` may differ by protocol level. `assigns`: with an assigned client identifier, which the peer learns.
    """

    def check(raw: bytes, who: Who) -> None:
        wanted = code[who.version] if isinstance(code, dict) else code
        _need(raw[0] == 0x20, raw, "not CONNACK")
        body = body_of(raw)
        _need(body[:2] == bytes([present, wanted]), raw, f"CONNACK is not {present} {wanted:#x}")
        _need(len(raw) <= at_most, raw, f"longer than {at_most} bytes")
        if who.version != 5:
            _need(len(body) == 2, raw, "bytes after CONNACK")
            return
        found, at = take_properties(body, 2)
        _has(found, given, absent, raw)
        _need(len({one[0] for one in found if one[0] != USER}) == len(found), raw, "a property twice")
        _need(at == len(body), raw, "bytes after CONNACK")
        if assigns:
            names = [value[2:].decode() for identifier, value in found if identifier == ASSIGNED_CLIENT_ID]
            _need(len(names) == 1 and names[0] != "", raw, "no client identifier was assigned")
            who.assigned = names[0]

    def example(who: Who) -> bytes:
        wanted = code[who.version] if isinstance(code, dict) else code
        return frame(0x20, bytes([present, wanted]) + only_v5(given, who))

    return Heard(example, "further properties", check)


def _answer(name: str, first: int, at_most: int, packet_id: PacketId, codes: tuple[int, ...], last: bool) -> Heard:
    """An answer of MQTT 5 with codes of failure: with or without properties, never longer than allowed."""

    def check(raw: bytes, who: Who) -> None:
        _need(raw[0] == first, raw, f"not {name}")
        body = body_of(raw)
        at = 0
        if first != 0xE0:
            wanted = who.ids[packet_id] if isinstance(packet_id, str) else packet_id
            _need(body[:2] == wanted.to_bytes(2, "big"), raw, f"not for {wanted}")
            at = 2
        if last:
            at = take_properties(body, at)[1]
            _need(body[at:] == bytes(codes), raw, f"codes are not {bytes(codes).hex(' ')}")
        else:
            _need(body[at : at + 1] == bytes(codes), raw, f"code is not {codes[0]:#x}")
            if len(body) > at + 1:
                found, at = take_properties(body, at + 1)
                _has(found, (), (0x11,), raw)  # session expiry is the client's (MQTT-3.14.2-2)
                _need(at == len(body), raw, f"bytes after {name}")
        _need(len(raw) <= at_most, raw, f"longer than {at_most} bytes")

    def example(who: Who) -> bytes:
        head = b"" if first == 0xE0 else number(packet_id, who)
        return frame(first, head + (b"\0" if last else b"") + bytes(codes))

    return Heard(example, f"a reason string and user properties, up to {at_most} bytes", check)


def refusal(first: int, packet_id: PacketId, code: int, at_most: int = 1 << 20) -> Heard:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (by first byte) of MQTT 5 with a code, a reason string or none."""
    return _answer(f"{first:#x}", first, at_most, packet_id, (code,), last=False)


def codes(first: int, packet_id: PacketId, *given: int, at_most: int = 1 << 20) -> Heard:
    """SUBACK or UNSUBACK (by first byte) of MQTT 5 with these codes, a reason string or none."""
    return _answer(f"{first:#x}", first, at_most, packet_id, given, last=True)


def goodbye(code: int, at_most: int = 1 << 20) -> Heard:
    """The server's DISCONNECT of MQTT 5."""
    return _answer("DISCONNECT", 0xE0, at_most, 0, (code,), last=False)
