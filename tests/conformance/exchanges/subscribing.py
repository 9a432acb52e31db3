"""SUBSCRIBE to UNSUBACK (MQTT 5.0 §3.8 to §3.11)."""

from __future__ import annotations

from tests.conformance.hearing import codes, message
from tests.conformance.packets import (
    AS_PUBLISHED,
    MAXIMUM_PACKET_SIZE,
    NO_LOCAL,
    SUBSCRIPTION_ID,
    puback,
    pubcomp,
    publish,
    pubrec,
    pubrel,
    suback,
    subscribe,
    unsuback,
    unsubscribe,
)
from tests.conformance.rows import Peer, Row, Steps, row

a, b = Peer("a"), Peer("b")

#: More levels than the server takes; well-formed all the same.
TOO_DEEP = "/".join("a" * 200)


def connected() -> Steps:
    yield from a.connects()
    yield from b.connects()


FORMAT: list[Row] = [
    row(
        "a filter that is not UTF-8 closes the connection",
        "5: 3.8.3-1 1.5.4-1; 3.1.1: 3.8.3-1 1.5.3-1",
        a.connects(),
        a.says(subscribe(1, (b"t/\xff", 0))),
        a.is_told(0x81),
    ),
    row(
        "a filter of UNSUBSCRIBE that is not UTF-8 closes the connection",
        "5: 3.10.3-1 1.5.4-1; 3.1.1: 3.10.3-1 1.5.3-1",
        a.connects(),
        a.says(unsubscribe(1, b"t/\xff")),
        a.is_told(0x81),
    ),
    row(
        "SUBSCRIBE needs a filter",
        "5: 3.8.3-2 4.13.1-1; 3.1.1: 3.8.3-3 4.8.0-1",
        a.connects(),
        a.says(subscribe(1)),
        a.is_told(0x82),
    ),
    row(
        "UNSUBSCRIBE needs a filter",
        "5: 3.10.3-2 4.13.1-1; 3.1.1: 3.10.3-2 4.8.0-1",
        a.connects(),
        a.says(unsubscribe(1)),
        a.is_told(0x82),
    ),
    row(
        "a filter needs its options",
        "5: 3.8.3-2; 3.1.1: 3.8.3-3",
        a.connects(),
        a.says(lambda who: b"\x82\x06\0\1\0\0\1t" if who.version == 5 else b"\x82\5\0\1\0\1t"),
        a.is_told(0x81),
    ),
    *(
        row(
            f"subscription options {options:#04x} are malformed",
            f"5: 3.8.3-5; 3.1.1: 3.8.3-4 {also}",
            a.connects(),
            a.says(subscribe(1, ("t", options))),
            a.is_told(0x81),
        )
        for options, also in ((0x40, ""), (0x80, ""), (0xC1, ""), (0x03, "4.8.0-1"))
    ),
    *(
        row(
            f"options of MQTT 5 ({options:#04x}) are reserved bits in 3.1.1",
            "3.1.1: 3.8.3-4",
            a.connects(),
            a.says(subscribe(1, ("t", options))),
            a.is_closed(),
        )
        for options in (0x04, 0x08, 0x10, 0x20)
    ),
    row(
        "retain handling 3 is a protocol error",
        "5: 3.8.3-5 4.13.1-1",
        a.connects(),
        a.says(subscribe(1, ("t", 0x30))),
        a.is_told(0x82),
    ),
    row(
        "no local on a shared subscription is a protocol error",
        "5: 3.8.3-4 4.13.1-1",
        a.connects(),
        a.says(subscribe(1, ("$share/g/t", NO_LOCAL))),
        a.is_told(0x82),
    ),
]

SUBSCRIBING: list[Row] = [
    row(
        "a no-local subscription does not get its own client's messages",
        "5: 3.8.3-3",
        connected(),
        a.says(subscribe(1, ("t", NO_LOCAL))),
        a.hears(suback(1, 0)),
        a.says(publish("t", b"own")),
        a.hears_nothing(),
        b.says(publish("t", b"another's")),
        a.hears(message("t", b"another's")),
    ),
    row(
        "no local holds for the subscription, not for the client",
        "5: 3.8.3-3 3.3.4-4",
        a.connects(),
        a.says(subscribe(1, ("t", 1 | NO_LOCAL), given=((SUBSCRIPTION_ID, 1),))),
        a.says(subscribe(2, ("+", 0), given=((SUBSCRIPTION_ID, 2),))),
        a.hears(suback(1, 1), suback(2, 0)),
        a.says(publish("t", b"own", 1, 3)),
        a.hears_in_any_order(message("t", b"own", given=((SUBSCRIPTION_ID, 2),)), puback(3)),
        a.hears_nothing(),
    ),
    row(
        "the same filter again replaces the subscription",
        "5: 3.8.4-3 3.3.1-12; 3.1.1: 3.8.4-3",
        connected(),
        b.says(subscribe(1, ("t", 2))),
        b.hears(suback(1, 2)),
        b.says(subscribe(2, ("t", 1))),
        b.hears(suback(2, 1)),
        a.says(publish("t", b"x", 2, 1)),
        b.hears(message("t", b"x", 1, "m")),
        b.hears_nothing(),
        b.says(subscribe(3, ("t", 0))),
        b.hears(suback(3, 0)),
        a.says(publish("t", b"x", 1, 2)),
        b.hears(message("t", b"x")),
        b.hears_nothing(),
    ),
    row(
        "options and identifier are replaced with the subscription",
        "5: 3.8.4-3",
        connected(),
        b.says(subscribe(1, ("t", AS_PUBLISHED | NO_LOCAL), given=((SUBSCRIPTION_ID, 1),)), subscribe(2, ("t", 0))),
        b.hears(suback(1, 0), suback(2, 0)),
        a.says(publish("t", b"x", retain=1)),
        b.hears(message("t", b"x")),
        b.says(publish("t", b"own")),
        b.hears(message("t", b"own")),
    ),
    row(
        "replacing a subscription sends retained messages again and interrupts nothing",
        "5: 3.8.4-4 3.3.1-9; 3.1.1: 3.8.4-3 3.3.1-6",
        connected(),
        a.says(publish("t", b"kept", 1, 9, retain=1)),
        a.hears(puback(9)),
        b.says(subscribe(1, ("t", 1))),
        b.hears(suback(1, 1), message("t", b"kept", 1, "m1", retain=1)),
        a.says(publish("t", b"1", 1, 1)),
        b.hears(message("t", b"1", 1, "m2")),
        b.says(subscribe(2, ("t", 1))),
        b.hears(suback(2, 1), message("t", b"kept", 1, "m3", retain=1)),
        a.says(publish("t", b"2", 1, 2)),
        b.hears(message("t", b"2", 1, "m4")),
        b.says(puback("m1"), puback("m2"), puback("m3"), puback("m4")),
        b.hears_nothing(),
    ),
    row(
        "several filters act as several SUBSCRIBEs with one SUBACK, codes in order",
        "5: 3.8.4-5 3.8.4-6 3.8.4-7 3.9.3-1 3.9.3-2; 3.1.1: 3.8.4-4 3.8.4-5 3.9.3-1 3.9.3-2",
        connected(),
        b.says(subscribe(1, ("a", 2), (TOO_DEEP, 1), ("b", 0), ("c", 1), ("a", 1))),
        b.hears(suback(1, 2, 0x8F, 0, 1, 1)),
        a.says(*(publish(topic, b"x", 2, place) for place, topic in enumerate("abc", 1))),
        b.hears(message("a", b"x", 1, "m1"), message("b", b"x"), message("c", b"x", 1, "m3")),
        b.hears_nothing(),
    ),
    row(
        "more subscriptions than the server grants are refused with a code",
        "5: 3.8.4-7 3.9.3-2; 3.1.1: 3.8.4-5 3.9.3-2",
        connected(),
        b.says(subscribe(1, ("a", 0), ("b", 1), ("c", 2))),
        b.hears(suback(1, 0, 1, 0x97)),
        a.says(publish("c", b"x")),
        a.hears_nothing(),
        b.hears_nothing(),
        config={"limits": {"subscriptions": 2}},
    ),
    *(
        row(
            f"a message of QoS {published} goes to a subscription of QoS {granted} at the lower of both",
            "5: 3.8.4-8 3.8.4-7; 3.1.1: 3.8.4-6 3.8.4-5",
            connected(),
            b.says(subscribe(1, ("t", granted))),
            b.hears(suback(1, granted)),
            a.says(publish("t", b"x", published, 1)),
            b.hears(message("t", b"x", min(granted, published), "m" if min(granted, published) else 0)),
        )
        for published in (0, 1, 2)
        for granted in (0, 1, 2)
    ),
    row(
        "a retained message goes out at the lower QoS as well",
        "5: 3.8.4-8; 3.1.1: 3.8.4-6",
        connected(),
        a.says(publish("t", b"x", 2, 1, retain=1)),
        a.hears(pubrec(1)),
        b.says(subscribe(1, ("t", 1))),
        b.hears(suback(1, 1), message("t", b"x", 1, "m", retain=1)),
    ),
    row(
        "filters with wildcards are supported",
        "3.1.1: 3.8.3-2",
        a.connects(),
        a.says(subscribe(1, ("+/b/#", 0))),
        a.hears(suback(1, 0)),
    ),
    row(
        "SUBACK and UNSUBACK with reasons keep to the client's maximum packet size",
        "5: 3.9.2-1 3.9.2-2 3.11.2-1 3.11.2-2",
        a.connects(given=((MAXIMUM_PACKET_SIZE, 30),)),
        a.says(subscribe(1, (TOO_DEEP, 0)), unsubscribe(2, "never")),
        a.hears(codes(0x90, 1, 0x8F, at_most=30), codes(0xB0, 2, 0x11, at_most=30)),
    ),
    row(
        "a SUBACK too large for the client is not sent",
        "5: 3.1.2-24",
        a.connects(given=((MAXIMUM_PACKET_SIZE, 30),)),
        a.says(subscribe(1, *((f"t{place}", 0) for place in range(40)))),
        a.is_told(0x95),
    ),
]

UNSUBSCRIBING: list[Row] = [
    row(
        "filters of UNSUBSCRIBE are compared character by character",
        "5: 3.10.4-1 3.11.3-2",
        connected(),
        b.says(subscribe(1, ("a/+", 0))),
        b.hears(suback(1, 0)),
        b.says(unsubscribe(2, "a/b", "a/#", "A/+", "a/+/")),
        b.hears(codes(0xB0, 2, 0x11, 0x11, 0x11, 0x11)),
        a.says(publish("a/b", b"1")),
        b.hears(message("a/b", b"1")),
        b.says(unsubscribe(3, "a/+")),
        b.hears(unsuback(3, 0)),
        a.says(publish("a/b", b"2")),
        a.hears_nothing(),
        b.hears_nothing(),
    ),
    row(
        "filters of UNSUBSCRIBE are compared byte by byte",
        "3.1.1: 3.10.4-1",
        connected(),
        b.says(subscribe(1, ("a/+", 0))),
        b.hears(suback(1, 0)),
        b.says(unsubscribe(2, "a/b", "a/#", "A/+", "a/+/")),
        b.hears(unsuback(2)),
        a.says(publish("a/b", b"1")),
        b.hears(message("a/b", b"1")),
        b.says(unsubscribe(3, "a/+")),
        b.hears(unsuback(3)),
        a.says(publish("a/b", b"2")),
        a.hears_nothing(),
        b.hears_nothing(),
    ),
    row(
        "after UNSUBSCRIBE nothing new comes, and other subscriptions stay",
        "5: 3.10.4-2; 3.1.1: 3.10.4-2",
        connected(),
        b.says(subscribe(1, ("t", 1), ("u", 1))),
        b.hears(suback(1, 1, 1)),
        b.says(unsubscribe(2, "t")),
        b.hears(unsuback(2, 0)),
        a.says(publish("t", b"1", 1, 1), publish("u", b"2", 1, 2)),
        b.hears(message("u", b"2", 1, "m")),
        b.hears_nothing(),
    ),
    row(
        "deliveries that have begun are completed after UNSUBSCRIBE",
        "5: 3.10.4-3; 3.1.1: 3.10.4-3",
        a.connects(),
        b.persists(),
        b.says(subscribe(1, ("t", 2))),
        b.hears(suback(1, 2)),
        a.says(publish("t", b"1", 1, 1), publish("t", b"2", 2, 2)),
        b.hears(message("t", b"1", 1, "m1"), message("t", b"2", 2, "m2")),
        b.says(unsubscribe(2, "t"), pubrec("m2")),
        b.hears(unsuback(2, 0), pubrel("m2")),
        b.says(pubcomp("m2")),
        b.hears_nothing(),
        b.cuts(),
        b.persists(present=1),
        b.hears(message("t", b"1", 1, "m1", dup=1)),
    ),
    row(
        "UNSUBACK comes even if nothing was deleted",
        "5: 3.10.4-5 3.10.4-4 3.11.3-2; 3.1.1: 3.10.4-5 3.10.4-4",
        a.connects(),
        a.says(unsubscribe(0xABCD, "never")),
        a.hears(unsuback(0xABCD, 0x11)),
    ),
    row(
        "several filters act as several UNSUBSCRIBEs with one UNSUBACK, codes in order",
        "5: 3.10.4-6 3.11.3-1 3.11.3-2; 3.1.1: 3.10.4-6",
        connected(),
        b.says(subscribe(1, ("a", 0), ("b", 0), ("c", 0))),
        b.hears(suback(1, 0, 0, 0)),
        b.says(unsubscribe(2, "a", "never", "c", "a")),
        b.hears(unsuback(2, 0, 0x11, 0, 0x11)),
        a.says(*(publish(topic) for topic in "abc")),
        b.hears(message("b")),
        b.hears_nothing(),
    ),
    row(
        "UNSUBSCRIBE takes effect in a session that goes on",
        "5: 3.10.4-1 3.10.4-2; 3.1.1: 3.10.4-1 3.10.4-2",
        a.connects(),
        b.persists(),
        b.says(subscribe(1, ("t", 1)), unsubscribe(2, "t")),
        b.hears(suback(1, 1), unsuback(2, 0)),
        b.cuts(),
        a.says(publish("t", b"1", 1, 1)),
        a.hears(puback(1)),
        b.persists(present=1),
        b.hears_nothing(),
    ),
]

ROWS: list[Row] = FORMAT + SUBSCRIBING + UNSUBSCRIBING
