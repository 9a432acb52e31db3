"""PUBACK, PUBREC, PUBREL, PUBCOMP and the flows of QoS 0, 1 and 2 (MQTT 5.0 §3.4 to §3.7, §4.3, §4.6)."""

from __future__ import annotations

from tests.conformance.hearing import message, refusal
from tests.conformance.packets import (
    MAXIMUM_PACKET_SIZE,
    MESSAGE_EXPIRY,
    PROBLEM_INFORMATION,
    puback,
    pubcomp,
    publish,
    pubrec,
    pubrel,
    suback,
    subscribe,
)
from tests.conformance.rows import Peer, Row, Steps, passes, row

a, b = Peer("a"), Peer("b")

FORBIDDEN = "$SYS/x"


def connected(qos: int) -> Steps:
    """A publisher `a` and a subscriber `b` to `t`."""
    yield from a.connects()
    yield from b.persists()
    yield from b.says(subscribe(1, ("t", qos)))
    yield from b.hears(suback(1, qos))


RECEIVING: list[Row] = [
    row(
        "after PUBACK an identifier means a new message, whatever DUP says",
        "5: 4.3.2-5 4.3.2-4; 3.1.1: 4.3.2-2",
        connected(1),
        a.says(publish("t", b"1", 1, 5)),
        a.hears(puback(5)),
        a.says(publish("t", b"2", 1, 5, dup=1)),
        a.hears(puback(5)),
        b.hears(message("t", b"1", 1, "m1"), message("t", b"2", 1, "m2")),
    ),
    row(
        "until PUBREL an identifier means the same message, which is delivered once",
        "5: 4.3.3-10 4.3.3-11; 3.1.1: 4.3.3-2",
        connected(2),
        a.says(publish("t", b"1", 2, 5)),
        a.hears(pubrec(5)),
        a.says(publish("t", b"1", 2, 5, dup=1), publish("t", b"1", 2, 5)),
        a.hears(pubrec(5), pubrec(5)),
        a.says(pubrel(5)),
        a.hears(pubcomp(5)),
        b.hears(message("t", b"1", 2, "m1")),
        b.hears_nothing(),
    ),
    row(
        "after PUBCOMP an identifier means a new message",
        "5: 4.3.3-12; 3.1.1: 4.3.3-2",
        connected(2),
        a.says(publish("t", b"1", 2, 5)),
        a.hears(pubrec(5)),
        a.says(pubrel(5)),
        a.hears(pubcomp(5)),
        a.says(publish("t", b"2", 2, 5, dup=1)),
        a.hears(pubrec(5)),
        b.hears(message("t", b"1", 2, "m1"), message("t", b"2", 2, "m2")),
    ),
    row(
        "after a refusing PUBREC an identifier means a new message",
        "5: 4.3.3-9",
        connected(2),
        a.says(publish(FORBIDDEN, b"1", 2, 5)),
        a.hears(refusal(0x50, 5, 0x87)),
        a.says(publish("t", b"2", 2, 5, dup=1)),
        a.hears(pubrec(5)),
        b.hears(message("t", b"2", 2, "m2")),
    ),
    row(
        "an expired message does not end its QoS 2 sequence",
        "5: 4.3.3-13",
        a.connects(),
        a.says(publish("t", b"1", 2, 5, given=((MESSAGE_EXPIRY, 1),))),
        a.hears(pubrec(5)),
        passes(10),
        a.says(pubrel(5)),
        a.hears(pubcomp(5)),
    ),
    row(
        "an identifier in use for QoS 2 is not used for QoS 1",
        "5: 4.13.1-1; 3.1.1: 4.8.0-1",
        a.connects(),
        a.says(publish("t", b"1", 2, 5)),
        a.hears(pubrec(5)),
        a.says(publish("t", b"1", 1, 5)),
        a.is_told(0x82),
    ),
    row(
        "PUBREL of an unknown identifier is answered",
        "5: 4.3.3-11 3.7.2-1",
        a.connects(),
        a.says(pubrel(77)),
        a.hears(refusal(0x70, 77, 0x92)),
    ),
    row(
        "PUBREL of an unknown identifier is answered as any other",
        "3.1.1: 4.3.3-2",
        a.connects(),
        a.says(pubrel(77)),
        a.hears(pubcomp(77)),
    ),
]

SENDING: list[Row] = [
    row(
        "a QoS 2 delivery: PUBLISH, PUBREC, PUBREL, PUBCOMP",
        "5: 4.3.3-2 4.3.3-4 3.6.2-1; 3.1.1: 4.3.3-1 2.3.1-6",
        connected(2),
        a.says(publish("t", b"1", 2, 5)),
        b.hears(message("t", b"1", 2, "m1")),
        b.hears_nothing(),
        b.says(pubrec("m1")),
        b.hears(pubrel("m1")),
        b.hears_nothing(),
        b.says(pubcomp("m1")),
        b.hears_nothing(),
    ),
    row(
        "PUBREC that comes again is answered by PUBREL again",
        "5: 4.3.3-4; 3.1.1: 4.3.3-1",
        connected(2),
        a.says(publish("t", b"1", 2, 5)),
        b.hears(message("t", b"1", 2, "m1")),
        b.says(pubrec("m1"), pubrec("m1")),
        b.hears(pubrel("m1"), pubrel("m1")),
    ),
    row(
        "PUBREC with a code below 0x80 is answered by PUBREL",
        "5: 4.3.3-4",
        connected(2),
        a.says(publish("t", b"1", 2, 5)),
        b.hears(message("t", b"1", 2, "m1")),
        b.says(pubrec("m1", 0x10)),
        b.hears(pubrel("m1")),
    ),
    row(
        "PUBREC of an unknown identifier is answered by PUBREL with a code",
        "5: 3.6.2-1",
        a.connects(),
        a.says(pubrec(77)),
        a.hears(refusal(0x62, 77, 0x92)),
        a.says(puback(78), pubcomp(79)),
        a.hears_nothing(),
    ),
    row(
        "a QoS 2 message that was sent does not expire",
        "5: 4.3.3-7",
        connected(2),
        a.says(publish("t", b"1", 2, 5, given=((MESSAGE_EXPIRY, 10),))),
        b.hears(message("t", b"1", 2, "m1", expiry_s=(9, 10))),
        b.cuts(),
        passes(20),
        b.persists(present=1),
        b.hears(message("t", b"1", 2, "m1", dup=1, expiry_s=(0, 0))),
        b.says(pubrec("m1")),
        b.hears(pubrel("m1")),
    ),
    row(
        "an acknowledgement of another QoS closes the connection",
        "5: 4.13.1-1; 3.1.1: 4.8.0-1",
        connected(1),
        a.says(publish("t", b"1", 1, 5)),
        b.hears(message("t", b"1", 1, "m1")),
        b.says(pubrec("m1")),
        b.is_told(0x82),
    ),
    *(
        row(
            f"messages of QoS {qos} reach a subscriber in their order",
            "5: 4.6.0-5 4.6.0-6; 3.1.1: 4.6.0-5 4.6.0-6",
            connected(2),
            a.says(*(publish("t", bytes([place]), qos, place) for place in range(1, 41))),
            b.hears(*(message("t", bytes([place]), qos, f"m{place}" if qos else 0) for place in range(1, 41))),
        )
        for qos in (0, 1, 2)
    ),
    row(
        "messages that waited come in their order, before later ones",
        "5: 4.6.0-5; 3.1.1: 4.6.0-6 4.6.0-5",
        connected(2),
        b.cuts(),
        a.says(*(publish("t", bytes([place]), 1, place) for place in range(1, 21))),
        a.hears(*(puback(place) for place in range(1, 21))),
        b.persists(present=1),
        a.says(publish("t", b"last", 1, 1)),
        b.hears(
            *(message("t", bytes([place]), 1, f"m{place}") for place in range(1, 21)), message("t", b"last", 1, "m")
        ),
    ),
]

SMALL = ((MAXIMUM_PACKET_SIZE, 30),)

CODES: list[Row] = [
    row(
        "acknowledgements with reasons keep to the client's maximum packet size",
        "5: 3.4.2-2 3.4.2-3 3.5.2-2 3.5.2-3 3.6.2-2 3.6.2-3 3.7.2-2 3.7.2-3",
        a.connects(given=SMALL),
        a.says(publish(FORBIDDEN, b"1", 1, 5), publish(FORBIDDEN, b"1", 2, 6), pubrec(7), pubrel(8)),
        a.hears(
            refusal(0x40, 5, 0x87, at_most=30),
            refusal(0x50, 6, 0x87, at_most=30),
            refusal(0x62, 7, 0x92, at_most=30),
            refusal(0x70, 8, 0x92, at_most=30),
        ),
    ),
    row(
        "a client that wants no problem information gets codes alone",
        "5: 3.1.2-29",
        a.connects(given=((PROBLEM_INFORMATION, 0),)),
        a.says(publish(FORBIDDEN, b"1", 1, 5), publish(FORBIDDEN, b"1", 2, 6), pubrec(7), pubrel(8)),
        a.hears(puback(5, 0x87), pubrec(6, 0x87), pubrel(7, 0x92), pubcomp(8, 0x92)),
        a.says(subscribe(9, ("/".join("a" * 200), 0))),
        a.hears(suback(9, 0x8F)),
    ),
    *(
        row(
            f"{what} with code {code:#04x} is malformed",
            f"5: {statement} 4.13.1-1",
            a.connects(),
            a.says(packet(1, code)),
            a.is_told(0x81),
        )
        for what, packet, code, statement in (
            ("PUBACK", puback, 0x92, "3.4.2-1"),
            ("PUBACK", puback, 0x01, "3.4.2-1"),
            ("PUBREC", pubrec, 0x92, "3.5.2-1"),
            ("PUBREL", pubrel, 0x87, "3.6.2-1"),
            ("PUBCOMP", pubcomp, 0x10, "3.7.2-1"),
        )
    ),
    row(
        "PUBACK with a code and a reason string is understood",
        "5: 3.4.2-1 4.3.2-3",
        connected(1),
        a.says(publish("t", b"1", 1, 5)),
        b.hears(message("t", b"1", 1, "m1")),
        b.says(puback("m1", 0x10, ((0x1F, "why not"), (0x26, ("a", "b"))))),
        b.hears_nothing(),
        b.cuts(),
        b.persists(present=1),
        b.hears_nothing(),
    ),
]

ROWS: list[Row] = RECEIVING + SENDING + CODES
