"""PUBLISH: flags, retained messages, overlapping subscriptions, refusals (MQTT 5.0 §3.3)."""

from __future__ import annotations

from tests.conformance.hearing import message, refusal
from tests.conformance.packets import (
    AS_PUBLISHED,
    RETAIN_IF_NEW,
    RETAIN_NEVER,
    SUBSCRIPTION_ID,
    puback,
    publish,
    pubrec,
    suback,
    subscribe,
    with_first,
)
from tests.conformance.rows import Peer, Row, Steps, row

a, b, c = Peer("a"), Peer("b"), Peer("c")


def connected(*filters: tuple[str, int], given: tuple[tuple[int, object], ...] = ()) -> Steps:
    """A publisher `a`, and a subscriber `b` to the filters."""
    yield from a.connects()
    yield from b.connects(given=given)
    if filters:
        yield from b.says(subscribe(1, *filters))
        yield from b.hears(suback(1, *(options & 3 for _, options in filters)))


FLAGS: list[Row] = [
    row(
        "QoS 0 with DUP is malformed",
        "5: 3.3.1-2 4.13.1-1; 3.1.1: 3.3.1-2 4.8.0-1",
        a.connects(),
        a.says(publish("t", dup=1)),
        a.is_told(0x81),
    ),
    row(
        "DUP of a publisher does not reach subscribers",
        "5: 3.3.1-3 3.3.1-2 4.3.1-1 4.3.2-2 4.3.3-2; 3.1.1: 3.3.1-3 3.3.1-2 4.3.1-1 4.3.2-1 4.3.3-1",
        connected(("t", 2), ("q0", 0)),
        a.says(publish("t", b"1", 1, 1, dup=1), publish("t", b"2", 2, 2, dup=1), publish("q0", b"3", 1, 3, dup=1)),
        b.hears(message("t", b"1", 1, "m1"), message("t", b"2", 2, "m2"), message("q0", b"3")),
    ),
    row(
        "both QoS bits close the connection",
        "5: 3.3.1-4 4.13.1-1; 3.1.1: 3.3.1-4",
        a.connects(),
        a.says(with_first(0x36, publish("t", b"x", 2, 1))),
        a.is_told(0x81),
    ),
    row(
        "the answer to PUBLISH depends on its QoS",
        "5: 3.3.4-1 4.3.2-4 4.3.3-8 3.4.2-1 3.5.2-1; 3.1.1: 3.3.4-1 4.3.2-2 4.3.3-2",
        a.connects(),
        a.says(publish("t")),
        a.hears_nothing(),
        a.says(publish("t", b"x", 1, 1)),
        a.hears(puback(1)),
        a.hears_nothing(),
        a.says(publish("t", b"x", 2, 2)),
        a.hears(pubrec(2)),
        a.hears_nothing(),
    ),
]

RETAIN: list[Row] = [
    row(
        "the last retained message of a topic goes to new subscriptions, with its QoS and RETAIN",
        "5: 3.3.1-5 3.3.1-9; 3.1.1: 3.3.1-5 3.3.1-6 3.3.1-8",
        connected(),
        a.says(publish("t/1", b"old", 2, 1, retain=1), publish("t/1", b"new", 1, 2, retain=1)),
        a.says(publish("t/2", b"other", retain=1)),
        a.hears(pubrec(1), puback(2)),
        a.hears_nothing(),
        b.says(subscribe(1, ("t/+", 2))),
        b.hears(suback(1, 2)),
        b.hears_in_any_order(message("t/1", b"new", 1, "m", retain=1), message("t/2", b"other", retain=1)),
        b.hears_nothing(),
    ),
    row(
        "a retained message of QoS 0 replaces one of QoS 1",
        "5: 3.3.1-5; 3.1.1: 3.3.1-7",
        connected(),
        a.says(publish("t", b"old", 1, 1, retain=1), publish("t", b"new", retain=1)),
        a.hears(puback(1)),
        a.hears_nothing(),
        b.says(subscribe(1, ("t", 2))),
        b.hears(suback(1, 2), message("t", b"new", retain=1)),
        b.hears_nothing(),
    ),
    row(
        "an empty retained message clears the topic, reaches subscribers and is not kept",
        "5: 3.3.1-6 3.3.1-7; 3.1.1: 3.3.1-10 3.3.1-11",
        connected(("t", 0)),
        a.says(publish("t", b"old", retain=1)),
        b.hears(message("t", b"old")),
        a.says(publish("t", b"", retain=1)),
        b.hears(message("t", b"")),
        c.connects(),
        c.says(subscribe(1, ("t", 0), ("+", 0))),
        c.hears(suback(1, 0, 0)),
        c.hears_nothing(),
    ),
    row(
        "a message without RETAIN leaves the retained message alone",
        "5: 3.3.1-8; 3.1.1: 3.3.1-12",
        connected(),
        a.says(publish("t", b"kept", retain=1), publish("t", b"passing"), publish("u", b"passing"), publish("t", b"")),
        a.hears_nothing(),
        b.says(subscribe(1, ("+", 0))),
        b.hears(suback(1, 0), message("t", b"kept", retain=1)),
        b.hears_nothing(),
    ),
    row(
        "established subscriptions get messages without RETAIN",
        "5: 3.3.1-12; 3.1.1: 3.3.1-9",
        connected(("t", 1)),
        a.says(publish("t", b"1", retain=1), publish("t", b"2", 1, 1, retain=1), publish("t", b"3")),
        b.hears(message("t", b"1"), message("t", b"2", 1, "m"), message("t", b"3")),
    ),
    row(
        "retain as published keeps the flag as it was",
        "5: 3.3.1-13",
        connected(("t", 1 | AS_PUBLISHED)),
        a.says(publish("t", b"1", retain=1), publish("t", b"2", 1, 1, retain=1), publish("t", b"3")),
        b.hears(message("t", b"1", retain=1), message("t", b"2", 1, "m", retain=1), message("t", b"3")),
    ),
    row(
        "retain as published holds for messages that waited for the client",
        "5: 3.3.1-13",
        a.connects(),
        b.persists(),
        b.says(subscribe(1, ("t", 1 | AS_PUBLISHED), ("u", 1))),
        b.hears(suback(1, 1, 1)),
        b.cuts(),
        a.says(publish("t", b"1", 1, 1, retain=1), publish("u", b"2", 1, 2, retain=1)),
        a.hears(puback(1), puback(2)),
        b.persists(present=1),
        b.hears(message("t", b"1", 1, "m1", retain=1), message("u", b"2", 1, "m2")),
    ),
    row(
        "retain handling 0 sends retained messages at every subscribing",
        "5: 3.3.1-9 3.8.4-4; 3.1.1: 3.8.4-3 3.3.1-6",
        connected(),
        a.says(publish("t", b"kept", retain=1)),
        a.hears_nothing(),
        b.says(subscribe(1, ("t", 0)), subscribe(2, ("t", 0))),
        b.hears(suback(1, 0), message("t", b"kept", retain=1), suback(2, 0), message("t", b"kept", retain=1)),
    ),
    row(
        "retain handling 1 sends retained messages to a new subscription only",
        "5: 3.3.1-10",
        connected(),
        a.says(publish("t", b"kept", retain=1)),
        a.hears_nothing(),
        b.says(subscribe(1, ("t", RETAIN_IF_NEW)), subscribe(2, ("t", RETAIN_IF_NEW))),
        b.hears(suback(1, 0), message("t", b"kept", retain=1), suback(2, 0)),
        b.hears_nothing(),
    ),
    row(
        "retain handling 2 sends no retained messages",
        "5: 3.3.1-11",
        connected(),
        a.says(publish("t", b"kept", retain=1)),
        a.hears_nothing(),
        b.says(subscribe(1, ("t", RETAIN_NEVER)), subscribe(2, ("+", RETAIN_NEVER))),
        b.hears(suback(1, 0), suback(2, 0)),
        b.hears_nothing(),
    ),
]

OVERLAPPING: list[Row] = [
    row(
        "overlapping subscriptions give one copy, at the highest QoS",
        "5: 3.3.4-2; 3.1.1: 3.3.5-1",
        connected(("a/#", 0), ("a/+", 1), ("a/b", 0)),
        a.says(publish("a/b", b"x", 2, 1)),
        b.hears(message("a/b", b"x", 1, "m")),
        b.hears_nothing(),
    ),
    row(
        "a single copy carries the identifiers of all matching subscriptions",
        "5: 3.3.4-3 3.3.4-4 3.3.4-5 3.3.4-2",
        connected(),
        b.says(
            subscribe(1, ("a/#", 0), given=((SUBSCRIPTION_ID, 7),)),
            subscribe(2, ("a/b", 1), given=((SUBSCRIPTION_ID, 268_435_455),)),
            subscribe(3, ("+/b", 0)),
            subscribe(4, ("c", 0), given=((SUBSCRIPTION_ID, 9),)),
        ),
        b.hears(suback(1, 0), suback(2, 1), suback(3, 0), suback(4, 0)),
        a.says(publish("a/b", b"x", 1, 1)),
        b.hears(message("a/b", b"x", 1, "m", given=((SUBSCRIPTION_ID, 7), (SUBSCRIPTION_ID, 268_435_455)))),
        b.hears_nothing(),
    ),
    row(
        "subscription identifier 0 is a protocol error",
        "5: 4.13.1-1",
        a.connects(),
        a.says(subscribe(1, ("t", 0), given=((SUBSCRIPTION_ID, 0),))),
        a.is_told(0x82),
    ),
    row(
        "a subscription identifier in a client's PUBLISH is a protocol error",
        "5: 3.3.4-6 4.13.1-1",
        a.connects(),
        a.says(publish("t", given=((SUBSCRIPTION_ID, 1),))),
        a.is_told(0x82),
    ),
]

REFUSED: list[Row] = [
    row(
        "a publication that is not permitted is acknowledged in 3.1.1 and not delivered",
        "3.1.1: 3.3.5-2",
        connected(("$SYS/#", 0)),
        a.says(publish("$SYS/x", b"x", 1, 1), publish("$SYS/x", b"x", 2, 2), publish("$SYS/x", b"x")),
        a.hears(puback(1), pubrec(2)),
        b.hears_nothing(),
    ),
    row(
        "a publication that is not permitted is refused with a code of PUBACK and PUBREC",
        "5: 3.4.2-1 3.5.2-1",
        connected(("$SYS/#", 0)),
        a.says(publish("$SYS/x", b"x", 1, 1), publish("$SYS/x", b"x", 2, 2), publish("$SYS/x", b"x")),
        a.hears(refusal(0x40, 1, 0x87), refusal(0x50, 2, 0x87)),
        b.hears_nothing(),
    ),
]

ROWS: list[Row] = FLAGS + RETAIN + OVERLAPPING + REFUSED
