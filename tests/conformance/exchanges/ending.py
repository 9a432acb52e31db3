"""PINGREQ, DISCONNECT, AUTH and errors (MQTT 5.0 §3.12 to §3.15, §4.12, §4.13)."""

from __future__ import annotations

from tests.conformance.hearing import connack, goodbye
from tests.conformance.packets import (
    AUTH_DATA,
    MAXIMUM_PACKET_SIZE,
    METHOD,
    PINGREQ,
    PINGRESP,
    REASON,
    SESSION_EXPIRY,
    USER,
    auth,
    connect,
    disconnect,
    publish,
    suback,
    subscribe,
)
from tests.conformance.rows import Peer, Row, row

a, b = Peer("a"), Peer("b")
SCRAM = (METHOD, "SCRAM-SHA-256")
UNKNOWN = (METHOD, "NO-SUCH-METHOD")

ENDING: list[Row] = [
    row(
        "PINGREQ is answered by PINGRESP",
        "5: 3.12.4-1; 3.1.1: 3.12.4-1",
        a.connects(),
        a.says(PINGREQ),
        a.hears(PINGRESP),
        a.says(PINGREQ, PINGREQ),
        a.hears(PINGRESP, PINGRESP),
    ),
    row(
        "nothing that follows DISCONNECT counts, and the connection is closed",
        "5: 3.14.4-1 3.14.4-2; 3.1.1: 3.14.4-3",
        b.connects(),
        b.says(subscribe(1, ("t", 0))),
        b.hears(suback(1, 0)),
        a.connects(),
        a.says(disconnect(), publish("t"), PINGREQ),
        a.is_closed(),
        b.hears_nothing(),
    ),
    row(
        "after the server's DISCONNECT comes nothing but the end",
        "5: 3.14.4-1 3.14.4-2 3.14.2-1 3.14.2-2 4.13.1-1 4.13.2-1; 3.1.1: 4.8.0-1",
        b.connects(),
        b.says(subscribe(1, ("t", 0))),
        b.hears(suback(1, 0)),
        a.connects(),
        a.says(b"\0\0", publish("t"), PINGREQ, subscribe(2, ("t", 0))),
        a.is_told(0x81),
        b.hears_nothing(),
    ),
    row(
        "the server's DISCONNECT keeps to the client's maximum packet size",
        "5: 3.14.2-3 3.14.2-4",
        a.connects(given=((MAXIMUM_PACKET_SIZE, 25),)),
        a.says(b"\0\0"),
        a.hears(goodbye(0x81, at_most=25)),
        a.is_closed(),
    ),
    *(
        row(
            f"DISCONNECT of a client with code {code:#04x} is refused",
            "5: 3.14.2-1 4.13.1-1",
            a.connects(),
            a.says(b"\xe0\x01" + bytes([code])),
            a.is_told(answer),
        )
        for code, answer in ((0x05, 0x81), (0x91, 0x81), (0x8E, 0x82), (0x8B, 0x82))
    ),
    row(
        "DISCONNECT of a client may give a reason",
        "5: 3.14.2-1 3.14.4-3",
        a.connects(),
        a.leaves(0x82, ((REASON, "because"), (USER, ("a", "b")), (SESSION_EXPIRY, 0))),
    ),
    row(
        "DISCONNECT of 3.1.1 has no body",
        "3.1.1: 4.8.0-1",
        a.connects(),
        a.says(b"\xe0\x01\x00"),
        a.is_closed(),
    ),
]

AUTHENTICATION: list[Row] = [
    row(
        "an unknown authentication method is refused: CONNACK with 0x8C, no AUTH before it",
        "5: 4.12.0-1 4.12.0-4 4.13.2-1 3.2.2-6 3.2.2-7",
        a.opens(),
        a.says(connect(given=(UNKNOWN, (AUTH_DATA, b"x")))),
        a.hears(connack(0x8C)),
        a.is_closed(),
    ),
    row(
        "a client that names no method gets neither AUTH nor a method",
        "5: 4.12.0-6",
        a.connects(answer=connack(absent=(METHOD, AUTH_DATA))),
        a.hears_nothing(),
    ),
    *(
        row(
            f"AUTH with {code:#04x} of a client that named no method is a protocol error",
            "5: 4.12.0-7 4.13.1-1",
            a.connects(),
            a.says(auth(code, (SCRAM,))),
            a.is_told(0x82),
        )
        for code in (0x18, 0x19)
    ),
    *(
        row(
            f"AUTH with code {code:#04x} is refused",
            "5: 3.15.2-1 4.13.1-1",
            a.connects(),
            a.says(auth(code, (SCRAM,))),
            a.is_told(answer),
        )
        for code, answer in ((0x00, 0x82), (0x01, 0x81))
    ),
]

ROWS: list[Row] = ENDING + AUTHENTICATION
