"""CONNECT as the first packet, and its format (MQTT 5.0 §3.1)."""

from __future__ import annotations

from tests.conformance.hearing import connack, message
from tests.conformance.packets import (
    AUTH_DATA,
    MAXIMUM_PACKET_SIZE,
    PINGREQ,
    PROBLEM_INFORMATION,
    RECEIVE_MAXIMUM,
    Will,
    connect,
    cut_short,
    followed_by,
    publish,
    string,
    suback,
    subscribe,
)
from tests.conformance.rows import Peer, Row, row

a, b, w = Peer("a"), Peer("b"), Peer("w")
c1, c2 = Peer("c1"), Peer("c2")

REFUSED_311 = b"\x20\x02\x00"

FIRST: list[Row] = [
    *(
        row(
            f"{what} instead of CONNECT closes the connection without an answer",
            "5: 3.1.0-1 3.2.0-1 3.14.0-1; 3.1.1: 3.1.0-1 3.2.0-1 4.8.0-1",
            a.opens(),
            a.says(packet),
            a.is_closed(),
        )
        for what, packet in (
            ("PINGREQ", PINGREQ),
            ("PUBLISH", publish("t")),
            ("SUBSCRIBE", subscribe(1, ("t", 0))),
            ("DISCONNECT", b"\xe0\0"),
            ("AUTH", b"\xf0\0"),
            ("HTTP", b"GET / HTTP/1.1\r\n\r\n"),
        )
    ),
    row(
        "a second CONNECT is a protocol error",
        "5: 3.1.0-2 3.2.0-2 4.13.1-1; 3.1.1: 3.1.0-2 4.8.0-1",
        a.connects(),
        a.says(connect()),
        a.is_told(0x82),
    ),
    row(
        "a second CONNECT in the same write is a protocol error",
        "5: 3.1.0-2 3.2.0-2; 3.1.1: 3.1.0-2",
        a.opens(),
        a.says(connect(), connect()),
        a.hears(connack()),
        a.is_told(0x82),
    ),
    *(
        row(
            f"protocol name {name!r} is refused",
            "5: 3.1.2-1 3.1.4-1; 3.1.1: 3.1.2-1",
            w.connects(),
            w.says(subscribe(1, ("t", 0))),
            w.hears(suback(1, 0)),
            a.opens(),
            a.says(connect(protocol=name), publish("t")),
            a.hears(REFUSED_311 + b"\x01"),
            a.is_closed(),
            w.hears_nothing(),
        )
        for name in (b"MQTX", b"mqtt", b"MQTT ", b"MQ")
    ),
    *(
        row(
            f"protocol level {level} is refused",
            "5: 3.1.2-2; 3.1.1: 3.1.2-2 3.2.2-4 3.2.2-5",
            a.opens(),
            a.says(connect(level=level)),
            a.hears(REFUSED_311 + b"\x01"),
            a.is_closed(),
        )
        for level in (0, 3, 6, 0x85)
    ),
    row(
        "the reserved connect flag must be 0",
        "5: 3.1.2-3 3.1.4-1; 3.1.1: 3.1.2-3 3.1.4-1",
        a.opens(),
        a.says(connect(flags=0x03)),
        a.is_refused(0x81),
    ),
]

#: CONNECT packets that do not fit their format: name, packet, statements of 5 and of 3.1.1 besides 3.1.4-1.
MALFORMED = (
    ("no client identifier", connect(payload=b""), "3.1.3-3", "3.1.3-3"),
    ("half a client identifier", cut_short(connect("abcdef"), 2), "3.1.3-3", "3.1.3-3"),
    ("a client identifier that is not UTF-8", connect(b"\xff\xfe"), "3.1.3-4 3.1.3-8", "3.1.3-4"),
    ("U+0000 in the client identifier", connect(b"a\0"), "3.1.3-4 3.1.3-8", "3.1.3-4"),
    ("bytes after its end", followed_by(connect(), b"x"), "", ""),
    ("a user name without its flag", connect(payload=string("a") + string("u")), "3.1.2-16", "3.1.2-18"),
    ("the user name flag without a name", connect(flags=0x82), "3.1.2-17", "3.1.2-19"),
    ("a user name that is not UTF-8", connect(username=b"\xff"), "3.1.3-12", "3.1.3-11"),
    (
        "the password flag without a password",
        connect(flags=0xC2, username=None, payload=string("a") + string("u")),
        "3.1.2-19",
        "3.1.2-21",
    ),
    (
        "a password without its flag",
        connect(flags=0x82, payload=string("a") + string("u") + string("p")),
        "3.1.2-18",
        "3.1.2-20",
    ),
    ("the will flag without a will", connect(flags=0x06), "3.1.2-9", "3.1.2-9"),
    ("half a will", cut_short(connect(will=Will("w", b"abcdef")), 3), "3.1.2-9", "3.1.2-9"),
    ("will QoS 1 without a will", connect(flags=0x0A), "3.1.2-11", "3.1.2-11 3.1.2-13"),
    ("will QoS 2 without a will", connect(flags=0x12), "3.1.2-11", "3.1.2-11 3.1.2-13"),
    ("will retain without a will", connect(flags=0x22), "3.1.2-13", "3.1.2-11 3.1.2-15"),
    (
        "a will without its flag",
        connect(payload=string("a") + string("w") + string("m")),
        "3.1.3-1",
        "3.1.2-11 3.1.3-1",
    ),
    ("will QoS 3", connect(will=Will("w", qos=3)), "3.1.2-12", "3.1.2-14"),
    ("a will topic that is not UTF-8", connect(will=Will(b"\xff")), "3.1.3-11", "3.1.3-10"),
    ("an empty will topic", connect(will=Will("")), "4.7.3-1", "4.7.3-1"),
    ("a wildcard in the will topic", connect(will=Will("w/#")), "4.7.0-1", "4.7.1-1"),
)

FORMAT: list[Row] = [
    *(
        row(
            f"CONNECT with {what} closes the connection, and MQTT 5 says why before",
            f"5: 3.1.4-1 4.13.1-1 {v5}; 3.1.1: 3.1.4-1 3.2.2-6 {v311}",
            a.opens(),
            a.says(packet),
            a.is_refused(0x81),
        )
        for what, packet, v5, v311 in MALFORMED
    ),
    row(
        "a password needs a user name in 3.1.1",
        "3.1.1: 3.1.2-22",
        a.opens(),
        a.says(connect(password=b"p")),
        a.is_closed(),
    ),
    row(
        "a password without a user name is a matter of authentication in 5",
        "5: 3.1.2-19",
        a.connects(password=b"p"),
        a.hears_nothing(),
    ),
    row(
        "a CONNECT with everything has its fields in their order",
        "5: 3.1.3-1 3.1.2-9 3.1.2-17 3.1.2-19; 3.1.1: 3.1.3-1 3.1.2-9 3.1.2-19 3.1.2-21",
        w.connects(),
        w.says(subscribe(1, ("will/topic", 2))),
        w.hears(suback(1, 2)),
        a.connects(will=Will("will/topic", b"will payload", 1), username="name", password=b"secret"),
        a.hears_nothing(),
        a.cuts(),
        w.hears(message("will/topic", b"will payload", 1, "m")),
        config={"plugins": {"tests.conformance.plugins.AnyName": {}}, "allow_anonymous": True},
    ),
    *(
        row(
            f"CONNECT with {what} is refused",
            "5: 3.1.4-1 4.13.1-1",
            a.opens(),
            a.says(connect(given=given)),
            a.is_refused(code),
        )
        for what, given, code in (
            ("a property twice", ((RECEIVE_MAXIMUM, 5), (RECEIVE_MAXIMUM, 5)), 0x82),
            ("receive maximum 0", ((RECEIVE_MAXIMUM, 0),), 0x82),
            ("maximum packet size 0", ((MAXIMUM_PACKET_SIZE, 0),), 0x82),
            ("request problem information 2", ((PROBLEM_INFORMATION, 2),), 0x82),
            ("a property of PUBLISH", ((0x01, 0),), 0x82),
            ("authentication data without a method", ((AUTH_DATA, b"x"),), 0x82),
        )
    ),
]

ROWS: list[Row] = FIRST + FORMAT
