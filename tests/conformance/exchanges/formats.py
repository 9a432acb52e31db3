"""Strings, numbers, flags and packet identifiers (MQTT 5.0 and 3.1.1, chapters 1 and 2)."""

from __future__ import annotations

from tests.conformance.hearing import message
from tests.conformance.packets import (
    CONTENT_TYPE,
    PINGREQ,
    RESPONSE_TOPIC,
    USER,
    one_property,
    puback,
    pubcomp,
    publish,
    pubrec,
    pubrel,
    string,
    suback,
    subscribe,
    unsuback,
    unsubscribe,
    with_first,
)
from tests.conformance.rows import Peer, Row, row

a, b = Peer("a"), Peer("b")

#: Each is refused by a decoder that follows the Unicode standard.
ILL_FORMED = {
    "a byte that no UTF-8 has": b"\xff",
    "an overlong form": b"\xc0\xaf",
    "a surrogate": b"\xed\xa0\x80",
    "a code point above U+10FFFF": b"\xf4\x90\x80\x80",
    "a sequence that ends too early": b"\xe2\x82",
}

STRINGS: list[Row] = [
    *(
        row(
            f"a topic with {what} closes the connection",
            "5: 1.5.4-1 3.3.2-1 4.13.1-1; 3.1.1: 1.5.3-1 3.3.2-1",
            a.connects(),
            a.says(publish(b"t/" + bad)),
            a.is_told(0x81),
        )
        for what, bad in ILL_FORMED.items()
    ),
    row(
        "U+0000 in a topic closes the connection",
        "5: 1.5.4-2 4.7.3-2; 3.1.1: 1.5.3-2 4.7.3-2",
        a.connects(),
        a.says(publish(b"t\0")),
        a.is_told(0x81),
    ),
    row(
        "U+0000 in a filter closes the connection",
        "5: 1.5.4-2 4.7.3-2; 3.1.1: 1.5.3-2 4.7.3-2",
        a.connects(),
        a.says(subscribe(1, (b"t\0", 0))),
        a.is_told(0x81),
    ),
    row(
        "a byte order mark is part of the topic",
        "5: 1.5.4-3 4.7.3-4; 3.1.1: 1.5.3-3 4.7.3-4",
        a.connects(),
        a.says(subscribe(1, ("t", 0))),
        a.hears(suback(1, 0)),
        a.says(publish("\ufefft", b"marked")),
        a.hears_nothing(),
        a.says(subscribe(2, ("\ufefft", 0))),
        a.hears(suback(2, 0)),
        a.says(publish("\ufefft", b"marked"), publish("t\ufeff", b"elsewhere")),
        a.hears(message("\ufefft", b"marked")),
        a.hears_nothing(),
    ),
    *(
        row(
            f"a string pair with {what} closes the connection",
            "5: 1.5.7-1 1.5.4-1",
            a.connects(),
            a.says(publish("t", given=((USER, pair),))),
            a.is_told(0x81),
        )
        for what, pair in {
            "an ill-formed name": (b"\xff", "v"),
            "an ill-formed value": ("n", b"\xff"),
            "U+0000 in its name": (b"\0", "v"),
            "U+0000 in its value": ("n", b"\0"),
        }.items()
    ),
    *(
        row(
            f"a {what} that is not UTF-8 closes the connection",
            f"5: {statement} 1.5.4-1",
            a.connects(),
            a.says(publish("t", given=((identifier, b"\xff"),))),
            a.is_told(0x81),
        )
        for what, identifier, statement in (
            ("response topic", RESPONSE_TOPIC, "3.3.2-13"),
            ("content type", CONTENT_TYPE, "3.3.2-19"),
        )
    ),
]

NUMBERS: list[Row] = [
    row(
        "a remaining length longer than need be is malformed",
        "5: 1.5.5-1",
        a.connects(),
        a.says(b"\xc0\x80\x00"),
        a.is_told(0x81),
    ),
    row(
        "a property length longer than need be is malformed",
        "5: 1.5.5-1",
        a.connects(),
        a.says(b"\x30\x06" + string("t") + b"\x80\0x"),
        a.is_told(0x81),
    ),
    row(
        "a remaining length of five bytes closes the connection",
        "5: 1.5.5-1 4.13.1-1; 3.1.1: 4.8.0-1",
        a.connects(),
        a.says(b"\x30\x80\x80\x80\x80\x01"),
        a.is_told(0x81),
    ),
    row(
        "a remaining length of two bytes is read and written as such",
        "5: 1.5.5-1; 3.1.1: 4.3.1-1",
        a.connects(),
        a.says(subscribe(1, ("t", 0))),
        a.hears(suback(1, 0)),
        a.says(publish("t", b"x" * 200)),
        a.hears(publish("t", b"x" * 200)),
        a.says(publish("t", b"x" * 20_000)),
        a.hears(publish("t", b"x" * 20_000)),
    ),
    row(
        "no properties are a property length of zero",
        "5: 2.2.2-1",
        a.connects(),
        a.says(subscribe(1, ("t", 0))),
        a.hears(b"\x90\x04\x00\x01\x00\x00"),
        a.says(b"\x30\x05\x00\x01t\x00x"),
        a.hears(b"\x30\x05\x00\x01t\x00x"),
        a.says(unsubscribe(2, "t")),
        a.hears(b"\xb0\x04\x00\x02\x00\x00"),
    ),
    row(
        "a PUBLISH without property length is malformed",
        "5: 2.2.2-1",
        a.connects(),
        a.says(b"\x30\x03\x00\x01t"),
        a.is_told(0x81),
    ),
    row(
        "properties that end after the packet are malformed",
        "5: 4.13.1-1",
        a.connects(),
        a.says(b"\x30\x06\x00\x01t\x09" + one_property(1, 1)),
        a.is_told(0x81),
    ),
    row(
        "a property that does not exist is malformed",
        "5: 4.13.1-1",
        a.connects(),
        a.says(b"\x30\x06\x00\x01t\x02\x7e\x00"),
        a.is_told(0x81),
    ),
    row(
        "a property of another packet is a protocol error",
        "5: 4.13.1-1",
        a.connects(),
        a.says(publish("t", given=((0x21, 5),))),
        a.is_told(0x82),
    ),
    row(
        "a property that comes twice is a protocol error",
        "5: 4.13.1-1",
        a.connects(),
        a.says(publish("t", given=((0x02, 5), (0x02, 5)))),
        a.is_told(0x82),
    ),
    row(
        "a payload format of 2 is a protocol error",
        "5: 4.13.1-1",
        a.connects(),
        a.says(publish("t", given=((0x01, 2),))),
        a.is_told(0x82),
    ),
]

#: Packets with flags that their type does not have, and the statements of their own on it.
WRONG_FLAGS = (
    ("SUBSCRIBE 0000", with_first(0x80, subscribe(1, ("t", 0))), "3.8.1-1", "3.8.1-1"),
    ("SUBSCRIBE 0011", with_first(0x83, subscribe(1, ("t", 0))), "3.8.1-1", "3.8.1-1"),
    ("UNSUBSCRIBE 0000", with_first(0xA0, unsubscribe(1, "t")), "3.10.1-1", "3.10.1-1"),
    ("UNSUBSCRIBE 0110", with_first(0xA6, unsubscribe(1, "t")), "3.10.1-1", "3.10.1-1"),
    ("PUBREL 0000", with_first(0x60, pubrel(1)), "3.6.1-1", "3.6.1-1"),
    ("PUBREL 1010", with_first(0x6A, pubrel(1)), "3.6.1-1", "3.6.1-1"),
    ("DISCONNECT 0001", b"\xe1\0", "3.14.1-1", "3.14.1-1"),
    ("PINGREQ 0010", b"\xc2\0", "", ""),
    ("PUBACK 0010", with_first(0x42, puback(1)), "", ""),
    ("PUBREC 0001", with_first(0x51, pubrec(1)), "", ""),
    ("PUBCOMP 1000", with_first(0x78, pubcomp(1)), "", ""),
)

FLAGS: list[Row] = [
    *(
        row(
            f"{what}: flags that the type does not have close the connection",
            f"5: 2.1.3-1 4.13.1-1 {v5}; 3.1.1: 2.2.2-1 2.2.2-2 {v311}",
            a.connects(),
            a.says(packet),
            a.is_told(0x81),
        )
        for what, packet, v5, v311 in WRONG_FLAGS
    ),
    row(
        "AUTH with flags closes the connection",
        "5: 2.1.3-1 3.15.1-1",
        a.connects(),
        a.says(b"\xf1\x02\x18\x00"),
        a.is_told(0x81),
    ),
    row(
        "CONNECT with flags closes the connection",
        "5: 2.1.3-1; 3.1.1: 2.2.2-2",
        a.opens(),
        a.says(b"\x11\x00"),
        a.is_closed(),
    ),
    row(
        "packet type 0 closes the connection",
        "5: 4.13.1-1; 3.1.1: 4.8.0-1",
        a.connects(),
        a.says(b"\0\0"),
        a.is_told(0x81),
    ),
    row("packet type 15 closes the connection", "3.1.1: 4.8.0-1", a.connects(), a.says(b"\xf0\0"), a.is_closed()),
    *(
        row(
            f"{what}, which only a server sends, closes the connection",
            "5: 4.13.1-1; 3.1.1: 4.8.0-1",
            a.connects(),
            a.says(packet),
            a.is_told(0x82),
        )
        for what, packet in (
            ("CONNACK", b"\x20\x02\0\0"),
            ("SUBACK", b"\x90\x03\0\1\0"),
            ("UNSUBACK", b"\xb0\2\0\1"),
            ("PINGRESP", b"\xd0\0"),
        )
    ),
    row(
        "PINGREQ with a body closes the connection",
        "5: 4.13.1-1; 3.1.1: 4.8.0-1",
        a.connects(),
        a.says(b"\xc0\1x"),
        a.is_told(0x81),
    ),
]

IDENTIFIERS: list[Row] = [
    row(
        "QoS 0 has no packet identifier, either way",
        "5: 2.2.1-2; 3.1.1: 2.3.1-5",
        a.connects(),
        a.says(subscribe(1, ("t", 2))),
        a.hears(suback(1, 2)),
        a.says(publish("t", b"\0\7x")),
        a.hears(publish("t", b"\0\7x")),
    ),
    *(
        row(
            f"{what} with packet identifier 0 closes the connection",
            "5: 2.2.1-3 4.13.1-1; 3.1.1: 2.3.1-1 4.8.0-1",
            a.connects(),
            a.says(packet),
            a.is_told(0x81),
        )
        for what, packet in (
            ("PUBLISH of QoS 1", publish("t", qos=1, packet_id=0)),
            ("PUBLISH of QoS 2", publish("t", qos=2, packet_id=0)),
            ("SUBSCRIBE", subscribe(0, ("t", 0))),
            ("UNSUBSCRIBE", unsubscribe(0, "t")),
            ("PUBACK", puback(0)),
            ("PUBREL", pubrel(0)),
        )
    ),
    row(
        "the server's packet identifiers are unused and not zero",
        "5: 2.2.1-4 4.3.2-1 4.3.3-1; 3.1.1: 2.3.1-4 4.3.2-1 4.3.3-1",
        a.connects(),
        b.connects(),
        b.says(subscribe(1, ("t", 2))),
        b.hears(suback(1, 2)),
        a.says(publish("t", b"1", 1, 5), publish("t", b"2", 2, 6), publish("t", b"3", 1, 7)),
        a.hears(puback(5), pubrec(6), puback(7)),
        b.hears(message("t", b"1", 1, "m1"), message("t", b"2", 2, "m2"), message("t", b"3", 1, "m3")),
        b.says(puback("m1")),
        a.says(publish("t", b"4", 1, 5)),
        b.hears(message("t", b"4", 1, "m4")),
    ),
    row(
        "acknowledgements carry the identifier of their PUBLISH",
        "5: 2.2.1-5 4.3.2-4 4.3.3-8 4.3.3-11; 3.1.1: 2.3.1-6 4.3.2-2 4.3.3-2",
        a.connects(),
        a.says(publish("t", b"1", 1, 0x1234)),
        a.hears(puback(0x1234)),
        a.says(publish("t", b"2", 2, 0xFFFF)),
        a.hears(pubrec(0xFFFF)),
        a.says(pubrel(0xFFFF)),
        a.hears(pubcomp(0xFFFF)),
        a.hears_nothing(),
    ),
    row(
        "SUBACK and UNSUBACK carry the identifier of what they answer",
        "5: 2.2.1-6 3.8.4-1 3.8.4-2 3.10.4-4 3.10.4-5; 3.1.1: 2.3.1-7 3.8.4-1 3.8.4-2 3.10.4-4",
        a.connects(),
        a.says(subscribe(0x4321, ("t", 0))),
        a.hears(suback(0x4321, 0)),
        a.says(unsubscribe(0x8765, "t")),
        a.hears(unsuback(0x8765, 0)),
        a.hears_nothing(),
    ),
    row(
        "packets need not come as they were sent: byte by byte, and many at once",
        "5: 4.2.0-1; 3.1.1: 7.1.1-1 7.0.0-2",
        a.connects(),
        a.dribbles(subscribe(1, ("t", 1)), publish("t", b"slowly", 1, 2), PINGREQ),
        a.hears_in_any_order(suback(1, 1), message("t", b"slowly", 1, "m"), puback(2), b"\xd0\0"),
        a.says(*(publish("t", bytes([place])) for place in range(50))),
        a.hears(*(message("t", bytes([place])) for place in range(50))),
    ),
]

ROWS: list[Row] = STRINGS + NUMBERS + FLAGS + IDENTIFIERS
