"""What PUBLISH carries and what it may cost: properties, expiry, aliases, receive maximum, size
(MQTT 5.0 §3.3, §4.9)."""

from __future__ import annotations

from tests.conformance.hearing import connack, message
from tests.conformance.packets import (
    ALIAS,
    ALIAS_MAXIMUM,
    CONTENT_TYPE,
    CORRELATION,
    MAXIMUM_PACKET_SIZE,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    RECEIVE_MAXIMUM,
    RESPONSE_TOPIC,
    SUBSCRIPTION_ID,
    USER,
    puback,
    publish,
    pubrec,
    suback,
    subscribe,
    with_first,
)
from tests.conformance.rows import Peer, Row, Steps, passes, row

a, b, c = Peer("a"), Peer("b"), Peer("c")


def connected(*filters: tuple[str, int], given: tuple[tuple[int, object], ...] = ()) -> Steps:
    """A publisher `a`, and a subscriber `b` to the filters."""
    yield from a.connects()
    yield from b.connects(given=given)
    if filters:
        yield from b.says(subscribe(1, *filters))
        yield from b.hears(suback(1, *(options & 3 for _, options in filters)))


#: All that travels with a message, user properties in an order of their own and with a repeat.
TRAVELS = (
    (PAYLOAD_FORMAT, 1),
    (CONTENT_TYPE, "text/plain; charset=utf-8"),
    (RESPONSE_TOPIC, "answer/here"),
    (CORRELATION, b"\x00\xff\x80"),
    (USER, ("b", "1")),
    (USER, ("a", "2")),
    (USER, ("b", "1")),
    (USER, ("", "")),
)
FORWARDED = "3.3.2-4 3.3.2-15 3.3.2-16 3.3.2-17 3.3.2-18 3.3.2-20"

PROPERTIES: list[Row] = [
    *(
        row(
            f"properties travel unaltered at QoS {qos}",
            f"5: {FORWARDED}",
            connected(("t", qos)),
            a.says(publish("t", "grün".encode(), qos, 1, given=TRAVELS)),
            b.hears(message("t", "grün".encode(), qos, "m", given=TRAVELS)),
        )
        for qos in (0, 1, 2)
    ),
    row(
        "properties of a retained message travel unaltered",
        f"5: {FORWARDED}",
        connected(),
        a.says(publish("t", b"x", given=TRAVELS, retain=1)),
        a.hears_nothing(),
        b.says(subscribe(1, ("t", 0), given=((SUBSCRIPTION_ID, 300),))),
        b.hears(suback(1, 0), message("t", b"x", retain=1, given=(*TRAVELS, (SUBSCRIPTION_ID, 300)))),
    ),
    row(
        "properties travel unaltered beside one that is the server's to change",
        f"5: {FORWARDED} 3.3.2-6",
        connected(("t", 0)),
        a.says(publish("t", b"x", given=(*TRAVELS, (MESSAGE_EXPIRY, 30)))),
        b.hears(message("t", b"x", given=TRAVELS, expiry_s=(29, 30))),
    ),
    row(
        "payload format 0 is forwarded as well",
        "5: 3.3.2-4",
        connected(("t", 0)),
        a.says(publish("t", given=((PAYLOAD_FORMAT, 0),))),
        b.hears(message("t", given=((PAYLOAD_FORMAT, 0),))),
    ),
    *(
        row(
            f"a response topic {what} closes the connection",
            "5: 3.3.2-14 4.13.1-1",
            a.connects(),
            a.says(publish("t", given=((RESPONSE_TOPIC, topic),))),
            a.is_told(0x81),
        )
        for what, topic in (("with +", "answer/+"), ("with #", "answer/#"))
    ),
    row(
        "a message that expires while it waits is deleted, another goes on with what is left",
        "5: 3.3.2-5 3.3.2-6",
        a.connects(),
        b.persists(),
        b.says(subscribe(1, ("t", 1))),
        b.hears(suback(1, 1)),
        b.cuts(),
        a.says(publish("t", b"short", 1, 1, given=((MESSAGE_EXPIRY, 10),))),
        a.says(publish("t", b"long", 1, 2, given=((MESSAGE_EXPIRY, 90),))),
        a.hears(puback(1), puback(2)),
        passes(20),
        b.persists(present=1),
        b.hears(message("t", b"long", 1, "m", expiry_s=(69, 70))),
        b.hears_nothing(),
    ),
    row(
        "a retained message expires",
        "5: 3.3.2-5 3.3.2-6",
        connected(),
        a.says(publish("t", b"x", given=((MESSAGE_EXPIRY, 30),), retain=1)),
        a.hears_nothing(),
        passes(10),
        b.says(subscribe(1, ("t", 0))),
        b.hears(suback(1, 0), message("t", b"x", retain=1, expiry_s=(19, 20))),
        passes(21),
        b.says(subscribe(1, ("t", 0))),
        b.hears(suback(1, 0)),
        b.hears_nothing(),
    ),
    row(
        "message expiry goes at once to those who are there",
        "5: 3.3.2-6",
        connected(("t", 1)),
        a.says(
            publish("t", b"0", given=((MESSAGE_EXPIRY, 30),)), publish("t", b"1", 1, 1, given=((MESSAGE_EXPIRY, 30),))
        ),
        b.hears(message("t", b"0", expiry_s=(29, 30)), message("t", b"1", 1, "m", expiry_s=(29, 30))),
    ),
]

LONG = "a/topic/name/that/is/worth/an/alias"

ALIASES: list[Row] = [
    row(
        "aliases of a client stand for their topics, and can be given anew",
        "5: 3.3.2-12",
        connected(("+", 0), given=((ALIAS_MAXIMUM, 0),)),
        a.says(
            publish("t", b"1", given=((ALIAS, 1),)),
            publish("", b"2", given=((ALIAS, 1),)),
            publish("u", b"3", given=((ALIAS, 64),)),
            publish("", b"4", given=((ALIAS, 64),)),
            publish("v", b"5", given=((ALIAS, 1),)),
            publish("", b"6", given=((ALIAS, 1),)),
        ),
        b.hears(message("t", b"1"), message("t", b"2"), message("u", b"3"), message("u", b"4")),
        b.hears(message("v", b"5"), message("v", b"6")),
    ),
    row(
        "every alias up to the announced maximum is accepted",
        "5: 3.3.2-12",
        a.connects(answer=connack(given=((ALIAS_MAXIMUM, 10),))),
        a.says(subscribe(1, ("+", 0))),
        a.hears(suback(1, 0)),
        a.says(*(publish(f"t{alias}", given=((ALIAS, alias),)) for alias in range(1, 11))),
        a.hears(*(message(f"t{alias}") for alias in range(1, 11))),
        config={"limits": {"topic_aliases": 10}},
    ),
    *(
        row(
            f"alias {alias} is refused",
            f"5: {statement} 4.13.1-1",
            a.connects(),
            a.says(publish("t", given=((ALIAS, alias),))),
            a.is_told(0x94),
        )
        for alias, statement in ((0, "3.3.2-8"), (65, "3.2.2-17 3.3.2-9"), (65_535, "3.2.2-17 3.3.2-9"))
    ),
    row(
        "aliases of a client end with its connection",
        "5: 3.3.2-7",
        a.persists(),
        a.says(publish("t", given=((ALIAS, 1),))),
        a.hears_nothing(),
        a.cuts(),
        a.persists(present=1),
        a.says(publish("", given=((ALIAS, 1),))),
        a.is_told(0x82),
    ),
    row(
        "an empty topic without alias is a protocol error",
        "5: 4.7.3-1",
        a.connects(),
        a.says(publish("")),
        a.is_told(0x82),
    ),
    row("an empty topic closes the connection", "3.1.1: 4.7.3-1", a.connects(), a.says(publish("")), a.is_closed()),
    row(
        "the server keeps to the client's alias maximum, and aliases end with the connection",
        "5: 3.1.2-26 3.3.2-11 3.3.2-7 3.3.2-8",
        a.connects(),
        b.persists(given=((ALIAS_MAXIMUM, 1),)),
        b.says(subscribe(1, ("#", 1))),
        b.hears(suback(1, 1)),
        a.says(publish(LONG, b"1"), publish(LONG, b"2"), publish(LONG + "/other", b"3")),
        b.hears(message(LONG, b"1", given=((ALIAS, 1),)), message("", b"2", given=((ALIAS, 1),))),
        b.hears(message(LONG + "/other", b"3")),
        b.cuts(),
        b.persists(present=1, given=((ALIAS_MAXIMUM, 1),)),
        a.says(publish(LONG, b"4")),
        b.hears(message(LONG, b"4", given=((ALIAS, 1),))),
    ),
    row(
        "a client that allows no aliases gets none",
        "5: 3.1.2-27 3.3.2-11",
        connected((LONG, 0)),
        a.says(publish(LONG, b"1"), publish(LONG, b"2")),
        b.hears(message(LONG, b"1"), message(LONG, b"2")),
    ),
    row(
        "a message sent again carries its whole topic",
        "5: 3.3.2-7 4.4.0-1",
        a.connects(),
        b.persists(given=((ALIAS_MAXIMUM, 5),)),
        b.says(subscribe(1, ("#", 1))),
        b.hears(suback(1, 1)),
        a.says(publish(LONG, b"1", 1, 1), publish(LONG, b"2", 1, 2)),
        b.hears(message(LONG, b"1", 1, "m1", given=((ALIAS, 1),)), message("", b"2", 1, "m2", given=((ALIAS, 1),))),
        b.cuts(),
        b.persists(present=1),
        b.hears(message(LONG, b"1", 1, "m1", dup=1), message(LONG, b"2", 1, "m2", dup=1)),
    ),
]

QUOTA: list[Row] = [
    row(
        "more messages than the server's receive maximum close the connection",
        "5: 3.3.4-7 4.9.0-1",
        a.connects(answer=connack(given=((RECEIVE_MAXIMUM, 2),))),
        a.says(publish("t", b"1", 2, 1), publish("t", b"2", 2, 2)),
        a.hears(pubrec(1), pubrec(2)),
        a.says(publish("t", b"3", 2, 3)),
        a.is_told(0x93),
        config={"limits": {"receive_maximum": 2}},
    ),
    row(
        "the server keeps to the client's receive maximum, and delays nothing but PUBLISH",
        "5: 3.3.4-9 3.3.4-10 4.9.0-1 4.9.0-2 4.9.0-3",
        connected(("t", 2), given=((RECEIVE_MAXIMUM, 2),)),
        a.says(*(publish("t", bytes([48 + place]), 1 + place % 2, place) for place in range(1, 6))),
        a.hears(pubrec(1), puback(2), pubrec(3), puback(4), pubrec(5)),
        b.hears(message("t", b"1", 2, "m1"), message("t", b"2", 1, "m2")),
        b.hears_nothing(),
        b.says(subscribe(2, ("u", 0)), publish("t", b"own", 1, 9)),
        b.hears(suback(2, 0), puback(9)),
        a.says(publish("u", b"free")),
        b.hears(message("u", b"free")),
        b.says(pubrec("m1")),
        b.hears(with_first(0x62, puback("m1"))),
        b.hears_nothing(),
        b.says(with_first(0x70, puback("m1"))),
        b.hears(message("t", b"3", 2, "m3")),
        b.hears_nothing(),
        b.says(puback("m2")),
        b.hears(message("t", b"4", 1, "m4")),
        b.hears_nothing(),
        b.says(pubrec("m3", 0x97)),
        b.hears(message("t", b"5", 2, "m5")),
        b.hears_nothing(),
        b.says(puback("m4")),
        b.hears(message("t", b"own", 1, "m6")),
    ),
    row(
        "what is sent again on resuming keeps to the receive maximum too",
        "5: 3.3.4-9 4.9.0-1 4.9.0-2",
        a.connects(),
        b.persists(),
        b.says(subscribe(1, ("t", 1))),
        b.hears(suback(1, 1)),
        a.says(publish("t", b"1", 1, 1), publish("t", b"2", 1, 2)),
        b.hears(message("t", b"1", 1, "m1"), message("t", b"2", 1, "m2")),
        b.cuts(),
        b.persists(present=1, given=((RECEIVE_MAXIMUM, 1),)),
        b.hears(message("t", b"1", 1, "m1", dup=1)),
        b.hears_nothing(),
        b.says(puback("m1")),
        b.hears(message("t", b"2", 1, "m2", dup=1)),
    ),
]

SIZE: list[Row] = [
    row(
        "a message too large for the client is dropped as if sent",
        "5: 3.1.2-24 3.1.2-25",
        connected(("t", 2), given=((MAXIMUM_PACKET_SIZE, 40), (RECEIVE_MAXIMUM, 1))),
        a.says(publish("t", b"x" * 40), publish("t", b"x" * 40, 1, 1), publish("t", b"x" * 40, 2, 2)),
        a.says(publish("t", b"small", 1, 3)),
        a.hears(puback(1), pubrec(2), puback(3)),
        b.hears(message("t", b"small", 1, "m")),
        b.hears_nothing(),
    ),
    *(
        row(
            f"a message of exactly the maximum packet size is sent at QoS {qos}, of one byte more is not",
            "5: 3.1.2-24",
            connected(("t", qos), given=((MAXIMUM_PACKET_SIZE, 40),)),
            a.says(
                publish("t", b"x" * (35 - bool(qos) * 2), qos, 1), publish("t", b"x" * (34 - bool(qos) * 2), qos, 2)
            ),
            b.hears(message("t", b"x" * (34 - bool(qos) * 2), qos, "m")),
            b.hears_nothing(),
        )
        for qos in (0, 1)
    ),
    row(
        "a retained message too large for the client is not sent",
        "5: 3.1.2-24 3.1.2-25",
        connected(given=((MAXIMUM_PACKET_SIZE, 40),)),
        a.says(publish("t", b"x" * 40, retain=1)),
        a.hears_nothing(),
        b.says(subscribe(1, ("t", 0))),
        b.hears(suback(1, 0)),
        b.hears_nothing(),
    ),
]

ROWS: list[Row] = PROPERTIES + ALIASES + QUOTA + SIZE
