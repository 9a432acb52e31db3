"""Enhanced authentication, with a method whose bytes are known beforehand (MQTT 5.0 §3.15, §4.12)."""

from __future__ import annotations

from typing import Any

from tests.conformance.hearing import connack, message
from tests.conformance.packets import (
    AUTH_DATA,
    MAXIMUM_PACKET_SIZE,
    METHOD,
    Given,
    auth,
    connect,
    publish,
    suback,
    subscribe,
)
from tests.conformance.rows import Peer, Row, Steps, row

a, w = Peer("a"), Peer("w")

WITH: dict[str, Any] = {"plugins": {"tests.conformance.plugins.TwoWords": {}}}
CONTINUE, AGAIN = 0x18, 0x19
TWO_WORDS = (METHOD, "TWO-WORDS")
FIRST, SECOND = (TWO_WORDS, (AUTH_DATA, b"first")), (TWO_WORDS, (AUTH_DATA, b"second"))
CHALLENGE, WELCOME = (TWO_WORDS, (AUTH_DATA, b"challenge")), (TWO_WORDS, (AUTH_DATA, b"welcome"))
WRONG = (TWO_WORDS, (AUTH_DATA, b"third"))


def begun(given: Given = ()) -> Steps:
    """A CONNECT that was answered by a challenge."""
    yield from a.opens()
    yield from a.says(connect(given=(*FIRST, *given)))
    yield from a.hears(auth(CONTINUE, CHALLENGE))


def proven(given: Given = ()) -> Steps:
    yield from begun(given)
    yield from a.says(auth(CONTINUE, SECOND))
    yield from a.hears(connack(0, given=WELCOME))


ROWS: list[Row] = [
    row(
        "CONNECT with a method: AUTH to and fro, then CONNACK, all naming the method",
        "5: 4.12.0-2 4.12.0-5 3.15.2-1 3.2.0-1 3.1.4-5",
        proven(),
        a.hears_nothing(),
        config=WITH,
    ),
    row(
        "authentication that fails is refused and closed",
        "5: 4.12.0-4 3.1.4-2 3.2.2-6 3.2.2-7 3.14.0-1 4.13.2-1",
        begun(),
        a.says(auth(CONTINUE, WRONG), publish("t")),
        a.hears(connack(0x87)),
        a.is_closed(),
        config=WITH,
    ),
    row(
        "authentication that fails at once is refused and closed",
        "5: 4.12.0-4 3.1.4-2",
        a.opens(),
        a.says(connect(given=WRONG)),
        a.hears(connack(0x87)),
        a.is_closed(),
        config=WITH,
    ),
    row(
        "another packet than AUTH before CONNACK is not processed and closes the connection",
        "5: 3.1.2-30 3.1.4-6 3.2.0-1 4.13.1-1",
        w.connects(),
        w.says(subscribe(1, ("t", 0))),
        w.hears(suback(1, 0)),
        begun(),
        a.says(publish("t")),
        a.hears(connack(0x82)),
        a.is_closed(),
        w.hears_nothing(),
        config=WITH,
    ),
    row(
        "an answer with another method is a protocol error",
        "5: 4.12.0-5 4.13.1-1",
        begun(),
        a.says(auth(CONTINUE, ((METHOD, "OTHER"), (AUTH_DATA, b"second")))),
        a.hears(connack(0x82)),
        a.is_closed(),
        config=WITH,
    ),
    row(
        "AUTH keeps to the client's maximum packet size",
        "5: 3.15.2-2 3.15.2-3 3.2.2-19 3.2.2-20",
        proven(((MAXIMUM_PACKET_SIZE, 60),)),
        a.says(auth(AGAIN, FIRST)),
        a.hears(auth(CONTINUE, CHALLENGE)),
        config=WITH,
    ),
    row(
        "an AUTH too large for the client is not sent",
        "5: 3.1.2-24 3.15.2-2 3.15.2-3",
        a.opens(),
        a.says(connect(given=(*FIRST, (MAXIMUM_PACKET_SIZE, 20)))),
        a.hears(connack(0x95, at_most=20)),
        a.is_closed(),
        config=WITH,
    ),
    row(
        "a client authenticates again, and goes on meanwhile and afterwards",
        "5: 4.12.1-1 4.12.0-5 3.15.2-1",
        proven(),
        a.says(subscribe(1, ("t", 0)), auth(AGAIN, FIRST)),
        a.hears(suback(1, 0), auth(CONTINUE, CHALLENGE)),
        a.says(publish("t", b"meanwhile")),
        a.hears(message("t", b"meanwhile")),
        a.says(auth(CONTINUE, SECOND)),
        a.hears(auth(0, WELCOME)),
        a.hears_nothing(),
        config=WITH,
    ),
    row(
        "authenticating again with another method is a protocol error",
        "5: 4.12.1-1 4.12.1-2 4.13.1-1",
        proven(),
        a.says(auth(AGAIN, ((METHOD, "OTHER"), (AUTH_DATA, b"first")))),
        a.is_told(0x82),
        config=WITH,
    ),
    row(
        "authenticating again without success closes the connection",
        "5: 4.12.1-2 4.13.2-1",
        proven(),
        a.says(auth(AGAIN, WRONG)),
        a.is_told(0x87),
        config=WITH,
    ),
]
