"""CONNECT and CONNACK: format, identifiers, refusals, capabilities, keep-alive (§3.1 and §3.2)."""

from __future__ import annotations

from ..hearing import connack, message
from ..packets import (
    ALIAS_MAXIMUM,
    ASSIGNED,
    ASSIGNED_CLIENT_ID,
    AUTH_DATA,
    IDENTIFIERS_AVAILABLE,
    MAXIMUM_PACKET_SIZE,
    MAXIMUM_QOS,
    METHOD,
    PINGREQ,
    PINGRESP,
    PROBLEM_INFORMATION,
    RECEIVE_MAXIMUM,
    RESPONSE_INFORMATION,
    RESPONSE_REQUEST,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SHARED_AVAILABLE,
    USER,
    WILDCARD_AVAILABLE,
    Will,
    connect,
    cut_short,
    followed_by,
    puback,
    publish,
    pubrec,
    string,
    suback,
    subscribe,
)
from ..rows import Peer, Row, passes, row

a, b, w = Peer("a"), Peer("b"), Peer("w")
c1, c2 = Peer("c1"), Peer("c2")

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
NOBODY = {"allow_anonymous": False}
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
        for level in (0, 3, 6, 0x84)
    ),
    row(
        "the reserved connect flag must be 0",
        "5: 3.1.2-3 3.1.4-1; 3.1.1: 3.1.2-3 3.1.4-1",
        a.opens(),
        a.says(connect(flags=0x03)),
        a.is_closed(),
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
    ("the password flag without a password", connect(flags=0xC2, username=None, payload=string("a") + string("u")),
     "3.1.2-19", "3.1.2-21"),
    ("a password without its flag", connect(flags=0x82, payload=string("a") + string("u") + string("p")),
     "3.1.2-18", "3.1.2-20"),
    ("the will flag without a will", connect(flags=0x06), "3.1.2-9", "3.1.2-9"),
    ("half a will", cut_short(connect(will=Will("w", b"abcdef")), 3), "3.1.2-9", "3.1.2-9"),
    ("will QoS 1 without a will", connect(flags=0x0A), "3.1.2-11", "3.1.2-11 3.1.2-13"),
    ("will QoS 2 without a will", connect(flags=0x12), "3.1.2-11", "3.1.2-11 3.1.2-13"),
    ("will retain without a will", connect(flags=0x22), "3.1.2-13", "3.1.2-11 3.1.2-15"),
    ("a will without its flag", connect(payload=string("a") + string("w") + string("m")), "3.1.3-1", "3.1.2-11 3.1.3-1"),
    ("will QoS 3", connect(will=Will("w", qos=3)), "3.1.2-12", "3.1.2-14"),
    ("a will topic that is not UTF-8", connect(will=Will(b"\xff")), "3.1.3-11", "3.1.3-10"),
    ("an empty will topic", connect(will=Will("")), "4.7.3-1", "4.7.3-1"),
    ("a wildcard in the will topic", connect(will=Will("w/#")), "4.7.0-1", "4.7.1-1"),
)

FORMAT: list[Row] = [
    *(
        row(
            f"CONNECT with {what} closes the connection without CONNACK",
            f"5: 3.1.4-1 {v5}; 3.1.1: 3.1.4-1 3.2.2-6 {v311}",
            a.opens(),
            a.says(packet),
            a.is_closed(),
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
            a.is_closed(),
        )
        for what, given in (
            ("a property twice", ((RECEIVE_MAXIMUM, 5), (RECEIVE_MAXIMUM, 5))),
            ("receive maximum 0", ((RECEIVE_MAXIMUM, 0),)),
            ("maximum packet size 0", ((MAXIMUM_PACKET_SIZE, 0),)),
            ("request problem information 2", ((PROBLEM_INFORMATION, 2),)),
            ("a property of PUBLISH", ((0x01, 0),)),
            ("authentication data without a method", ((AUTH_DATA, b"x"),)),
        )
    ),
]

IDENTIFIERS: list[Row] = [
    *(
        row(
            f"client identifier {name!r} is accepted",
            "5: 3.1.3-5 3.1.4-5; 3.1.1: 3.1.3-5 3.1.4-4",
            a.connects(client_id=name),
            a.hears_nothing(),
        )
        for name in ("Z", LETTERS[:23], LETTERS[23:46], LETTERS[39:])
    ),
    row(
        "the client identifier tells sessions apart",
        "5: 3.1.3-2; 3.1.1: 3.1.3-2",
        a.persists(client_id="one"),
        a.says(subscribe(1, ("t", 1))),
        a.hears(suback(1, 1)),
        a.leaves(),
        a.persists(client_id="ONE", present=0),
        a.leaves(),
        b.connects(),
        b.says(publish("t", b"kept", 1, 1)),
        b.hears(puback(1)),
        a.persists(client_id="one", present=1),
        a.hears(message("t", b"kept", 1, "m")),
    ),
    row(
        "an empty client identifier is replaced by a unique one that counts as if given",
        "5: 3.1.3-6 3.1.3-7 3.2.2-16",
        a.persists(client_id="", answer=connack(assigns=True)),
        b.persists(client_id="", answer=connack(assigns=True)),
        a.hears_nothing(),
        a.says(subscribe(1, ("t", 1))),
        a.hears(suback(1, 1)),
        a.leaves(),
        b.says(publish("t", b"kept", 1, 1)),
        b.hears(puback(1)),
        a.persists(client_id=ASSIGNED, present=1),
        a.hears(message("t", b"kept", 1, "m")),
        b.hears_nothing(),
    ),
    row(
        "a client identifier that was given is not assigned",
        "5: 3.2.2-16",
        a.connects(answer=connack(absent=(ASSIGNED_CLIENT_ID,))),
    ),
    row(
        "an empty client identifier is accepted with clean session, and unique",
        "3.1.1: 3.1.3-6",
        a.connects(client_id=""),
        b.connects(client_id=""),
        a.hears_nothing(),
        b.hears_nothing(),
    ),
    row(
        "an empty client identifier needs clean session",
        "3.1.1: 3.1.3-7 3.1.3-8 3.1.3-9 3.2.2-4 3.2.2-5 3.1.4-5",
        w.connects(),
        w.says(subscribe(1, ("t", 0))),
        w.hears(suback(1, 0)),
        a.opens(),
        a.says(connect("", clean=0), publish("t")),
        a.hears(REFUSED_311 + b"\x02"),
        a.is_closed(),
        w.hears_nothing(),
    ),
    row(
        "the older connection of a client identifier is closed",
        "5: 3.1.4-3 3.14.4-1 3.14.4-2; 3.1.1: 3.1.4-2",
        c1.connects(client_id="c"),
        c2.connects(client_id="c"),
        c1.is_told(0x8E),
        c2.hears_nothing(),
    ),
    row(
        "a takeover goes on with the session",
        "5: 3.1.4-3 3.1.2-5 3.2.2-3; 3.1.1: 3.1.4-2 3.1.2-4 3.2.2-2",
        c1.persists(client_id="c"),
        c1.says(subscribe(1, ("t", 1))),
        c1.hears(suback(1, 1)),
        c2.persists(client_id="c", present=1),
        c1.is_told(0x8E),
        c2.says(publish("t", b"x", 1, 1)),
        c2.hears_in_any_order(puback(1), message("t", b"x", 1, "m")),
    ),
]

ANSWERS: list[Row] = [
    row(
        "an accepted CONNECT is answered by CONNACK before all else",
        "5: 3.2.0-1 3.1.4-5 3.2.2-1 3.2.2-8; 3.1.1: 3.2.0-1 3.1.4-4",
        a.opens(),
        a.says(connect(), subscribe(1, ("t", 1)), publish("t"), PINGREQ),
        a.hears(connack(0, 0), suback(1, 1), message("t"), PINGRESP),
    ),
    row(
        "a client that is not authorised is refused and closed",
        "5: 3.1.4-2 3.2.2-6 3.2.2-7 3.2.2-8 3.14.0-1 4.13.2-1 3.1.4-6; 3.1.1: 3.2.2-4 3.2.2-5",
        a.opens(),
        a.says(connect(clean=0), PINGREQ, subscribe(1, ("t", 0))),
        a.hears(connack({5: 0x87, 4: 5}, 0)),
        a.is_closed(),
        config=NOBODY,
    ),
    row(
        "a client with a wrong password is refused and closed",
        "5: 3.1.4-2 3.2.2-7 3.2.2-8; 3.1.1: 3.2.2-4 3.2.2-5",
        a.opens(),
        a.says(connect(username="u", password=b"p")),
        a.hears(connack({5: 0x86, 4: 4}, 0)),
        a.is_closed(),
        config=NOBODY,
    ),
    row(
        "nothing that follows a refused CONNECT is processed",
        "5: 3.1.4-6 4.12.0-1 4.12.0-4 3.2.2-7 3.14.0-1",
        w.connects(),
        w.says(subscribe(1, ("t", 0))),
        w.hears(suback(1, 0)),
        a.opens(),
        a.says(connect(given=((METHOD, "NO-SUCH-METHOD"),)), publish("t"), PINGREQ),
        a.hears(connack(0x8C)),
        a.is_closed(),
        w.hears_nothing(),
    ),
    row(
        "every QoS is supported and nothing else is announced",
        "5: 3.2.2-9 3.2.2-10",
        a.connects(answer=connack(absent=(MAXIMUM_QOS,))),
        a.says(subscribe(1, ("a", 0), ("b", 1), ("c", 2))),
        a.hears(suback(1, 0, 1, 2)),
        a.says(publish("t", b"x", 2, 1)),
        a.hears(pubrec(1)),
    ),
    row(
        "wills of every QoS are accepted, retained too",
        "5: 3.2.2-12 3.2.2-13 3.1.2-12",
        a.connects(will=Will("w", qos=1, retain=1), answer=connack(absent=(RETAIN_AVAILABLE, MAXIMUM_QOS))),
        b.connects(will=Will("w", qos=2, retain=1)),
    ),
    row(
        "wildcards, identifiers and shared subscriptions are supported and so not announced",
        "5: 3.2.2-8",
        a.connects(answer=connack(absent=(WILDCARD_AVAILABLE, IDENTIFIERS_AVAILABLE, SHARED_AVAILABLE))),
        a.says(subscribe(1, ("$share/g/+/t", 0), given=((0x0B, 5),))),
        a.hears(suback(1, 0)),
        a.says(publish("a/t")),
        a.hears(message("a/t", given=((0x0B, 5),))),
    ),
    row(
        "response information is returned to nobody who does not ask",
        "5: 3.1.2-28",
        a.connects(given=((RESPONSE_REQUEST, 0),), answer=connack(absent=(RESPONSE_INFORMATION,))),
        b.connects(answer=connack(absent=(RESPONSE_INFORMATION,))),
    ),
    row(
        "CONNACK keeps to the client's maximum packet size",
        "5: 3.2.2-19 3.2.2-20 3.1.2-24",
        a.connects(given=((MAXIMUM_PACKET_SIZE, 60),), client_id="", answer=connack(at_most=60, absent=(USER,))),
        b.opens(),
        b.says(connect(given=((MAXIMUM_PACKET_SIZE, 60), (METHOD, "NO-SUCH-METHOD")))),
        b.hears(connack(0x8C, at_most=60)),
        b.is_closed(),
    ),
    row(
        "a CONNACK that does not fit the client's maximum packet size is not sent",
        "5: 3.1.2-24",
        a.opens(),
        a.says(connect("", given=((MAXIMUM_PACKET_SIZE, 20),))),
        a.hears(connack(0x95, at_most=20)),
        a.is_closed(),
        b.opens(),
        b.says(connect("", given=((MAXIMUM_PACKET_SIZE, 4),))),
        b.is_closed(),
    ),
    row(
        "CONNACK announces what the server takes",
        "5: 3.2.2-8",
        a.connects(answer=connack(given=((RECEIVE_MAXIMUM, 7), (ALIAS_MAXIMUM, 3), (MAXIMUM_PACKET_SIZE, 5000)))),
        config={"limits": {"receive_maximum": 7, "topic_aliases": 3, "packet_bytes": 5000}},
    ),
    row(
        "a packet larger than announced closes the connection",
        "5: 4.13.1-1 4.13.2-1; 3.1.1: 4.8.0-1",
        a.connects(),
        a.says(publish("t", b"x" * 300)),
        a.is_told(0x95),
        config={"limits": {"packet_bytes": 300}},
    ),
]

KEEP_ALIVE: list[Row] = [
    row(
        "the client's keep-alive is used, one and a half times",
        "5: 3.1.2-22 3.2.2-22; 3.1.1: 3.1.2-24",
        w.connects(),
        w.says(subscribe(1, ("will", 0))),
        w.hears(suback(1, 0)),
        a.connects(keep_alive_s=10, will=Will("will", b"lost"), answer=connack(absent=(SERVER_KEEP_ALIVE,))),
        passes(14),
        a.hears_nothing(),
        passes(14),
        a.hears_nothing(),
        w.hears_nothing(),
        passes(16),
        a.is_told(0x8D),
        w.hears(message("will", b"lost")),
    ),
    row(
        "any packet keeps a client alive",
        "5: 3.1.2-22; 3.1.1: 3.1.2-24",
        a.connects(keep_alive_s=10),
        passes(14),
        a.says(publish("t", b"x", 1, 1)),
        a.hears(puback(1)),
        passes(14),
        a.hears_nothing(),
    ),
    row(
        "a keep-alive of 0 switches it off",
        "5: 3.1.2-22; 3.1.1: 3.1.2-24",
        a.connects(keep_alive_s=0),
        passes(1_000_000),
        a.hears_nothing(),
    ),
]

ROWS: list[Row] = FIRST + FORMAT + IDENTIFIERS + ANSWERS + KEEP_ALIVE
