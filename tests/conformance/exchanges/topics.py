"""Topic names, filters, matching and shared subscriptions (MQTT 5.0 §4.7, §4.8.2)."""

from __future__ import annotations

from tests.conformance.hearing import message
from tests.conformance.packets import (
    AS_PUBLISHED,
    SUBSCRIPTION_ID,
    puback,
    publish,
    pubrec,
    pubrel,
    suback,
    subscribe,
    unsuback,
    unsubscribe,
)
from tests.conformance.rows import Peer, Row, Steps, row

a, b, c, pub = Peer("a"), Peer("b"), Peer("c"), Peer("pub")

#: filter -> topics that it matches, topics that it does not
MATCHING: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("a/b", ("a/b",), ("a", "a/b/", "/a/b", "A/b", "a/B", "a//b", "a/b/c")),
    ("a/#", ("a", "a/", "a/b", "a/b/c"), ("aa", "/a", "b/a")),
    ("#", ("a", "/", "a/b/c"), ("$a", "$a/b")),
    ("+", ("a",), ("a/b", "/a", "a/", "$a")),
    ("+/+", ("a/b", "/a", "a/"), ("a", "a/b/c", "$a/b")),
    ("/+", ("/a", "/"), ("a", "/a/b")),
    ("a/+", ("a/b", "a/"), ("a", "a/b/c")),
    ("a/+/c", ("a/b/c", "a//c"), ("a/c", "a/b/b/c", "a/b/c/d")),
    ("+/b/#", ("a/b", "a/b/c", "/b"), ("b", "a/c/b", "$a/b")),
    ("$a/#", ("$a", "$a/b"), ("a/b", "$b/b")),
    ("$a/+", ("$a/b",), ("$a", "a/b")),
    ("a/ b", ("a/ b",), ("a/b", "a/  b")),
    ("\u00e9", ("\u00e9",), ("e\u0301", "e")),
    ("\u2126", ("\u2126",), ("\u03a9",)),
    ("a/../b", ("a/../b",), ("b", "a/b")),
    ("a%2fb", ("a%2fb",), ("a/b",)),
)


def matching(topic_filter: str, yes: tuple[str, ...], no: tuple[str, ...]) -> Steps:
    yield from a.connects()
    yield from a.says(subscribe(1, (topic_filter, 0)))
    yield from a.hears(suback(1, 0))
    yield from a.says(*(publish(topic) for topic in (*no, *yes)))
    yield from a.hears(*(message(topic) for topic in yes))
    yield from a.hears_nothing()


def retained(topic_filter: str, yes: tuple[str, ...], no: tuple[str, ...]) -> Steps:
    yield from a.connects()
    yield from a.says(*(publish(topic, retain=1) for topic in (*no, *yes)))
    yield from a.hears_nothing()
    yield from a.says(subscribe(1, (topic_filter, 0)))
    yield from a.hears(suback(1, 0))
    yield from a.hears_in_any_order(*(message(topic, retain=1) for topic in yes))
    yield from a.hears_nothing()


NAMES: list[Row] = [
    *(
        row(
            f"filter {topic_filter!r} matches what it says",
            "5: 3.3.2-3 4.7.2-1 4.7.3-4; 3.1.1: 3.3.2-3 4.7.2-1 4.7.3-4",
            matching(topic_filter, yes, no),
        )
        for topic_filter, yes, no in MATCHING
    ),
    *(
        row(
            f"filter {topic_filter!r} matches retained messages in the same way",
            "5: 3.3.2-3 4.7.2-1 4.7.3-4 3.3.1-9; 3.1.1: 3.3.2-3 4.7.2-1 4.7.3-4 3.3.1-6",
            retained(topic_filter, yes, no),
        )
        for topic_filter, yes, no in MATCHING
    ),
    *(
        row(
            f"topic name {topic!r} closes the connection",
            "5: 3.3.2-2 4.7.0-1 4.13.1-1; 3.1.1: 3.3.2-2 4.7.1-1 4.8.0-1",
            a.connects(),
            a.says(publish(topic)),
            a.is_told(0x81),
        )
        for topic in ("a/+", "#", "a/#", "a+b", "+")
    ),
    *(
        row(
            f"filter {topic_filter!r} closes the connection",
            f"5: {v5} 4.13.1-1; 3.1.1: {v311} 4.8.0-1",
            a.connects(),
            a.says(subscribe(1, (topic_filter, 0))),
            a.is_told(0x81),
        )
        for topic_filter, v5, v311 in (
            ("a/b#", "4.7.1-1", "4.7.1-2"),
            ("a/#/b", "4.7.1-1", "4.7.1-2"),
            ("#/a", "4.7.1-1", "4.7.1-2"),
            ("a#", "4.7.1-1", "4.7.1-2"),
            ("##", "4.7.1-1", "4.7.1-2"),
            ("a+", "4.7.1-2", "4.7.1-3"),
            ("a/+b/c", "4.7.1-2", "4.7.1-3"),
            ("++", "4.7.1-2", "4.7.1-3"),
            ("", "4.7.3-1", "4.7.3-1"),
        )
    ),
    row(
        "an empty filter of UNSUBSCRIBE closes the connection",
        "5: 4.7.3-1; 3.1.1: 4.7.3-1",
        a.connects(),
        a.says(unsubscribe(1, "")),
        a.is_told(0x81),
    ),
    row(
        "+ may stand in any level, # alone or after a separator",
        "5: 4.7.1-1 4.7.1-2; 3.1.1: 4.7.1-2 4.7.1-3",
        a.connects(),
        a.says(subscribe(1, ("+", 0), ("+/a", 0), ("a/+", 0), ("#", 0), ("a/#", 0), ("+/+/#", 0), ("/#", 0))),
        a.hears(suback(1, 0, 0, 0, 0, 0, 0, 0)),
    ),
    row(
        "a topic name has up to 65,535 bytes",
        "5: 4.7.3-3; 3.1.1: 4.7.3-3",
        a.connects(),
        a.says(subscribe(1, ("#", 0))),
        a.hears(suback(1, 0)),
        a.says(publish("a" * 65_535)),
        a.hears(message("a" * 65_535)),
    ),
    row(
        "a filter has up to 65,535 bytes",
        "5: 4.7.3-3; 3.1.1: 4.7.3-3",
        a.connects(),
        a.says(subscribe(1, ("b" * 65_535, 0))),
        a.hears(suback(1, 0)),
        a.says(publish("b" * 65_535)),
        a.hears(message("b" * 65_535)),
    ),
]


def members(qos: int) -> Steps:
    """A publisher, and the only member so far of a shared subscription."""
    yield from pub.connects()
    yield from a.persists()
    yield from a.says(subscribe(1, ("$share/g/t", qos)))
    yield from a.hears(suback(1, qos))


def joins(qos: int) -> Steps:
    """A second member."""
    yield from b.connects()
    yield from b.says(subscribe(1, ("$share/g/t", qos)))
    yield from b.hears(suback(1, qos))


SHARED: list[Row] = [
    *(
        row(
            f"shared filter {topic_filter!r} closes the connection",
            f"5: {statement} 4.13.1-1",
            a.connects(),
            a.says(subscribe(1, (topic_filter, 0))),
            a.is_told(0x81),
        )
        for topic_filter, statement in (
            ("$share//t", "4.8.2-1"),
            ("$share/", "4.8.2-1"),
            ("$share/g", "4.8.2-2"),
            ("$share/g/", "4.8.2-2"),
            ("$share/g+/t", "4.8.2-2"),
            ("$share/#/t", "4.8.2-2"),
            ("$share/g/a/#/b", "4.7.1-1"),
        )
    ),
    row(
        "$share without a name is refused",
        "5: 4.8.2-1",
        a.connects(),
        a.says(subscribe(1, ("$share", 0))),
        a.hears(suback(1, 0x8F)),
    ),
    row(
        "each message goes to one member of each share, and to ordinary subscriptions",
        "5: 4.8.2-1 4.8.2-2",
        pub.connects(),
        a.connects(),
        b.connects(),
        c.connects(),
        a.says(subscribe(1, ("$share/g/t/+", 0))),
        a.hears(suback(1, 0)),
        b.says(subscribe(1, ("$share/g/t/+", 0), ("$share/h/t/1", 0))),
        b.hears(suback(1, 0, 0)),
        c.says(subscribe(1, ("t/#", 0))),
        c.hears(suback(1, 0)),
        pub.says(publish("t/1", b"1"), publish("t/2", b"2"), publish("t/2", b"3")),
        pub.hears_nothing(),
        c.hears(message("t/1", b"1"), message("t/2", b"2"), message("t/2", b"3")),
        c.hears_nothing(),
        b.says(unsubscribe(2, "$share/g/t/+", "$share/h/t/1")),
        b.hears_in_any_order(message("t/1", b"1"), message("t/1", b"1"), message("t/2", b"3"), unsuback(2, 0, 0)),
        a.hears(message("t/2", b"2")),
        a.hears_nothing(),
        pub.says(publish("t/3", b"4")),
        a.hears(message("t/3", b"4")),
    ),
    row(
        "a shared subscription gets no retained messages",
        "5: 4.8.2-1",
        pub.connects(),
        pub.says(publish("t", b"kept", retain=1)),
        pub.hears_nothing(),
        a.connects(),
        a.says(subscribe(1, ("$share/g/t", 0))),
        a.hears(suback(1, 0)),
        a.hears_nothing(),
    ),
    row(
        "shared subscriptions respect the granted QoS, and carry their identifier",
        "5: 4.8.2-3 3.3.4-3",
        pub.connects(),
        a.connects(),
        a.says(subscribe(1, ("$share/g/t", 1), given=((SUBSCRIPTION_ID, 5),))),
        a.hears(suback(1, 1)),
        pub.says(publish("t", b"2", 2, 1), publish("t", b"0")),
        a.hears(message("t", b"2", 1, "m", given=((SUBSCRIPTION_ID, 5),))),
        a.hears(message("t", b"0", given=((SUBSCRIPTION_ID, 5),))),
    ),
    row(
        "shared subscriptions may keep RETAIN as published",
        "5: 3.3.1-13 3.3.1-12",
        pub.connects(),
        a.connects(),
        a.says(subscribe(1, ("$share/g/t", AS_PUBLISHED), ("$share/g/u", 0))),
        a.hears(suback(1, 0, 0)),
        pub.says(publish("t", b"1", retain=1), publish("t", b"2"), publish("u", b"3", retain=1)),
        a.hears(message("t", b"1", retain=1), message("t", b"2"), message("u", b"3")),
    ),
    row(
        "a QoS 2 delivery to a member that went away is completed when it is back",
        "5: 4.8.2-4",
        members(2),
        pub.says(publish("t", b"1", 2, 1)),
        pub.hears(pubrec(1)),
        a.hears(message("t", b"1", 2, "m1")),
        joins(2),
        a.cuts(),
        b.hears_nothing(),
        a.persists(present=1),
        a.hears(message("t", b"1", 2, "m1", dup=1)),
        a.says(pubrec("m1")),
        a.hears(pubrel("m1")),
        b.hears_nothing(),
    ),
    row(
        "a QoS 2 message of a member whose session ends goes to nobody else",
        "5: 4.8.2-5",
        members(2),
        pub.says(publish("t", b"1", 2, 1)),
        pub.hears(pubrec(1)),
        a.hears(message("t", b"1", 2, "m1")),
        joins(2),
        a.leaves(0, ((0x11, 0),)),
        b.hears_nothing(),
        a.persists(present=0),
    ),
    row(
        "a shared message that a member refuses goes to nobody else",
        "5: 4.8.2-6",
        members(2),
        pub.says(publish("t", b"1", 1, 1), publish("t", b"2", 2, 2)),
        pub.hears(puback(1), pubrec(2)),
        a.hears(message("t", b"1", 1, "m1"), message("t", b"2", 2, "m2")),
        joins(2),
        a.says(puback("m1", 0x80), pubrec("m2", 0x97)),
        a.hears_nothing(),
        b.hears_nothing(),
        a.cuts(),
        b.hears_nothing(),
        a.persists(present=1),
        a.hears_nothing(),
    ),
]

ROWS: list[Row] = NAMES + SHARED
