"""Wills (MQTT 5.0 §3.1.2.5, §3.1.3.2; MQTT 3.1.1 §3.1.2.5)."""

from __future__ import annotations

from tests.conformance.hearing import message
from tests.conformance.packets import (
    CONTENT_TYPE,
    CORRELATION,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    SESSION_EXPIRY,
    USER,
    WILL_DELAY,
    Will,
    suback,
    subscribe,
)
from tests.conformance.rows import Peer, Row, Steps, passes, row

a, w, late = Peer("a"), Peer("w"), Peer("late")


def watched() -> Steps:
    """A witness that subscribes to `will` at QoS 2."""
    yield from w.connects()
    yield from w.says(subscribe(1, ("will", 2)))
    yield from w.hears(suback(1, 2))


def delayed(delay_s: int, expiry_s: int) -> Steps:
    yield from a.connects(will=Will("will", given=((WILL_DELAY, delay_s),)), given=((SESSION_EXPIRY, expiry_s),))


ROWS: list[Row] = [
    row(
        "a will is published when the connection breaks, and once",
        "5: 3.1.2-7 3.1.2-8 3.1.2-10; 3.1.1: 3.1.2-8 3.1.2-10",
        watched(),
        a.connects(will=Will("will", b"gone")),
        w.hears_nothing(),
        a.cuts(),
        w.hears(message("will", b"gone")),
        a.connects(),
        a.cuts(),
        w.hears_nothing(),
    ),
    *(
        row(
            f"a will of QoS {qos} is published at QoS {qos}",
            "5: 3.1.2-9 3.1.2-12; 3.1.1: 3.1.2-9",
            watched(),
            a.connects(will=Will("will", b"gone", qos)),
            a.cuts(),
            w.hears(message("will", b"gone", qos, "m" if qos else 0)),
        )
        for qos in (0, 1, 2)
    ),
    row(
        "DISCONNECT discards the will",
        "5: 3.1.2-8 3.1.2-10 3.14.4-3; 3.1.1: 3.1.2-8 3.1.2-10 3.14.4-3",
        watched(),
        a.connects(will=Will("will")),
        a.leaves(),
        w.hears_nothing(),
    ),
    row(
        "DISCONNECT discards a will that would be delayed",
        "5: 3.14.4-3 3.1.2-10",
        watched(),
        delayed(10, 100),
        a.leaves(),
        passes(200),
        w.hears_nothing(),
    ),
    row(
        "DISCONNECT with will publishes it",
        "5: 3.1.2-8",
        watched(),
        a.connects(will=Will("will", b"on purpose")),
        a.leaves(0x04),
        w.hears(message("will", b"on purpose")),
    ),
    row(
        "a client without a will leaves none",
        "3.1.1: 3.1.2-12",
        watched(),
        a.connects(),
        a.cuts(),
        w.hears_nothing(),
    ),
    row(
        "a protocol error of the client publishes its will",
        "5: 3.1.2-8; 3.1.1: 3.1.2-8",
        watched(),
        a.connects(will=Will("will", b"broke a rule")),
        a.says(b"\0\0"),
        a.is_told(0x81),
        w.hears(message("will", b"broke a rule")),
    ),
    row(
        "a will without retain is not retained",
        "5: 3.1.2-14; 3.1.1: 3.1.2-16",
        watched(),
        a.connects(will=Will("will")),
        a.cuts(),
        w.hears(message("will", b"gone")),
        late.connects(),
        late.says(subscribe(1, ("will", 0))),
        late.hears(suback(1, 0)),
        late.hears_nothing(),
    ),
    row(
        "a will with retain is retained",
        "5: 3.1.2-15; 3.1.1: 3.1.2-17",
        watched(),
        a.connects(will=Will("will", retain=1)),
        a.cuts(),
        w.hears(message("will", b"gone")),
        late.connects(),
        late.says(subscribe(1, ("will", 0))),
        late.hears(suback(1, 0), message("will", b"gone", retain=1)),
    ),
    row(
        "a will waits for its delay",
        "5: 3.1.2-8",
        watched(),
        delayed(10, 100),
        a.cuts(),
        passes(9),
        w.hears_nothing(),
        passes(2),
        w.hears(message("will", b"gone")),
    ),
    row(
        "a will waits no longer than its session",
        "5: 3.1.2-8 4.1.0-2",
        watched(),
        delayed(100, 10),
        a.cuts(),
        passes(9),
        w.hears_nothing(),
        passes(2),
        w.hears(message("will", b"gone")),
    ),
    row(
        "a client that is back in time leaves no will",
        "5: 3.1.3-9 3.1.2-8",
        watched(),
        delayed(10, 100),
        a.cuts(),
        passes(9),
        a.persists(present=1),
        passes(20),
        w.hears_nothing(),
        a.leaves(),
        w.hears_nothing(),
    ),
    row(
        "a client that begins anew ends its session, and its will goes out",
        "5: 3.1.2-8 3.1.2-4",
        watched(),
        delayed(10, 100),
        a.cuts(),
        a.connects(clean=1, present=0),
        w.hears(message("will", b"gone")),
    ),
    row(
        "user properties of a will keep order and repeats",
        "5: 3.1.3-10",
        watched(),
        a.connects(will=Will("will", given=((USER, ("b", "1")), (USER, ("a", "2")), (USER, ("b", "1"))))),
        a.cuts(),
        w.hears(message("will", b"gone", given=((USER, ("b", "1")), (USER, ("a", "2")), (USER, ("b", "1"))))),
    ),
    row(
        "properties of a will go with it",
        "5: 3.1.2-9 3.3.2-4 3.3.2-15 3.3.2-16 3.3.2-20 3.3.2-6",
        watched(),
        a.connects(
            will=Will(
                "will",
                given=(
                    (PAYLOAD_FORMAT, 1),
                    (MESSAGE_EXPIRY, 60),
                    (CONTENT_TYPE, "text/plain"),
                    (RESPONSE_TOPIC, "answer/here"),
                    (CORRELATION, b"\0\xff"),
                ),
            )
        ),
        a.cuts(),
        w.hears(
            message(
                "will",
                b"gone",
                given=(
                    (PAYLOAD_FORMAT, 1),
                    (CONTENT_TYPE, "text/plain"),
                    (RESPONSE_TOPIC, "answer/here"),
                    (CORRELATION, b"\0\xff"),
                ),
                expiry_s=(59, 60),
            )
        ),
    ),
]
