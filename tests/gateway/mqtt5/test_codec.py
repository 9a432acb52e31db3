from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5 import codec, encoding, parsing
from gateway.mqtt5.codec import Decoder, encode, encode_publish, pubacks
from gateway.mqtt5.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.types import MqttError, ReasonCode
from tests.gateway.mqtt5.strategies import VERSIONS, connects, packets

V31, V311, V5 = Version.V31, Version.V311, Version.V5
S, C = "server", "client"

# (version, role of the decoder, bytes, packet). The bytes follow the figures and examples of chapter 3 of the
# specifications (MQTT 5.0 figure 3-6 and §3.8.3.1, MQTT 3.1.1 figures 3.6, 3.10-3.12, 3.20-3.32, MQTT 3.1 §3.1).
EXAMPLES: list[tuple[Version, str, str, Packet]] = [
    (V31, S, "100f 00064d51497364700302003c 000161", Connect("a", V31, True, 60)),
    (V311, S, "100d 00044d5154540402000a 000161", Connect("a", V311, True, 10)),
    (V311, S, "100d 00044d5154548402000a 000161", Connect("a", V311, True, 10, is_bridge=True)),  # as Mosquitto's
    (V31, S, "100f 00064d51497364708302003c 000161", Connect("a", V31, True, 60, is_bridge=True)),
    (V5, S, "100e 00044d5154545602000a 000161 00", Connect("a", V5, True, 10, is_kin=True)),  # as our own bridges'
    (
        V5, S, "1016 00044d5154545682000a 000161 000175 05110000000a",
        Connect("a", V5, True, 10, "u", properties=Properties(session_expiry_s=10), is_kin=True),
    ),
    (
        V311, S, "101e 00044d51545404ce000a 000161 000174 000168 00057573657231 00026d79",
        Connect("a", V311, True, 10, "user1", b"my", Will("t", b"h", 1)),
    ),
    (
        V5, S, "1025 00044d51545405ce000a 05110000000a 000161 05180000000a 000174 000168 000175 000170",
        Connect(
            "a", V5, True, 10, "u", b"p", Will("t", b"h", 1, False, Properties(will_delay_s=10)),
            Properties(session_expiry_s=10),
        ),
    ),
    (V5, S, "1010 00044d5154540540000000 0000 000170", Connect("", V5, False, 0, None, b"p")),
    (V311, C, "20020000", ConnAck(False)),
    (V311, C, "20020100", ConnAck(True)),
    (V311, C, "20020005", ConnAck(False, 5)),
    (V5, C, "2003008700", ConnAck(False, ReasonCode.NOT_AUTHORIZED)),
    (V5, C, "2006010003210014", ConnAck(True, 0, Properties(receive_maximum=20))),
    (V311, S, "3007 0003612f62 6869", Publish("a/b", b"hi")),
    (V311, S, "3d07 0003612f62 000a", Publish("a/b", b"", 2, True, True, 10)),
    (V311, S, "3207 0003612f62 000a", Publish("a/b", b"", 1, packet_id=10)),
    (V5, S, "3208 0003612f62 000a 00", Publish("a/b", b"", 1, packet_id=10)),
    (V5, S, "3107 0000 03230005 78", Publish("", b"x", 0, True, properties=Properties(topic_alias=5))),
    (V5, C, "3009 000161 040b010b02 78", Publish("a", b"x", properties=Properties(subscription_ids=(1, 2)))),
    (V311, S, "40020007", PubAck(7)),
    (V5, S, "40020007", PubAck(7)),
    (V5, S, "4003000710", PubAck(7, 0x10)),
    (V5, S, "40080007 87041f000178", PubAck(7, 0x87, Properties(reason="x"))),
    (V311, S, "50020007", PubRec(7)),
    (V5, S, "5003000797", PubRec(7, 0x97)),
    (V311, C, "62020007", PubRel(7)),
    (V5, C, "6203000792", PubRel(7, 0x92)),
    (V311, S, "7002ffff", PubComp(65535)),
    (V5, S, "7003000792", PubComp(7, 0x92)),
    (V311, S, "820e 000a 0003612f6201 0003632f6402", Subscribe(10, (Subscription("a/b", 1), Subscription("c/d", 2)))),
    (
        V5, S, "820b 000a 020b07 0003612f62 2e",
        Subscribe(10, (Subscription("a/b", 2, True, True, 2),), Properties(subscription_ids=(7,))),
    ),
    (V311, C, "9005 000a 000280", SubAck(10, (0, 2, 0x80))),
    (V5, C, "9005 000a 00 019e", SubAck(10, (1, 0x9E))),
    (V311, S, "a20c 000a 0003612f62 0003632f64", Unsubscribe(10, ("a/b", "c/d"))),
    (V5, S, "a208 000a 00 0003612f62", Unsubscribe(10, ("a/b",))),
    (V311, C, "b002000a", UnsubAck(10)),
    (V5, C, "b005 000a 00 0011", UnsubAck(10, (0, 0x11))),
    (V311, S, "c000", PingReq()),
    (V5, C, "d000", PingResp()),
    (V311, S, "e000", Disconnect()),
    (V5, S, "e000", Disconnect()),
    (V5, S, "e00104", Disconnect(4)),
    (V5, S, "e007 00 05 1100000000", Disconnect(0, Properties(session_expiry_s=0))),
    (V5, C, "e0018b", Disconnect(0x8B)),
    (V5, S, "f006 18 04 15000178", Auth(0x18, Properties(authentication_method="x"))),
    (V5, C, "f000", Auth()),
]  # fmt: skip


def decode(
    version: Version | None, role: str, data: bytes, limit: int = 1 << 28
) -> tuple[list[Packet], MqttError | None]:
    decoder = Decoder(version, limit, role)  # type: ignore[arg-type]
    return decoder.feed(data), decoder.error


@pytest.mark.parametrize(("version", "role", "text", "packet"), EXAMPLES)
def test_examples_of_the_specification(version: Version, role: str, text: str, packet: Packet) -> None:
    data = bytes.fromhex(text)
    known = None if isinstance(packet, Connect) else version
    assert decode(known, role, data) == ([packet], None)
    assert encode(packet, version) == data


def test_examples_cover_every_packet() -> None:
    assert len({type(packet) for *_, packet in EXAMPLES}) == 15


# Longer forms that a sender may use for what we write shorter (MQTT 5.0 §3.4.2.1, §3.14.2.1).
@pytest.mark.parametrize(
    ("text", "packet"),
    [
        ("4003000700", PubAck(7)),
        ("400400070000", PubAck(7)),
        ("620400070000", PubRel(7)),
        ("e00100", Disconnect()),
        ("e0020000", Disconnect()),
    ],
)
def test_explicit_success_is_read_as_absent(text: str, packet: Packet) -> None:
    assert decode(V5, S, bytes.fromhex(text)) == ([packet], None)


# MQTT 3.1 §2.1.2, §4.2: what is sent again after a time has DUP; later versions reserve that flag of these packets.
@pytest.mark.parametrize(
    ("text", "packet"),
    [
        ("8a06000100016101", Subscribe(1, (Subscription("a", 1),))),
        ("aa050001000161", Unsubscribe(1, ("a",))),
        ("6a020007", PubRel(7)),
    ],
)
def test_what_a_client_of_mqtt_3_1_repeats_has_dup(text: str, packet: Packet) -> None:
    data = bytes.fromhex(text)
    assert decode(V31, S, data) == ([packet], None)
    for version in (V311, V5):
        error = decode(version, S, data)[1]
        assert error is not None
        assert error.reason == ReasonCode.MALFORMED_PACKET


MALFORMED = ReasonCode.MALFORMED_PACKET
PROTOCOL = ReasonCode.PROTOCOL_ERROR
REFUSED: list[tuple[str, Version, str, str, ReasonCode]] = [
    ("type 0", V5, S, "0000", MALFORMED),
    ("non-minimal length", V5, S, "c08000", MALFORMED),
    ("length of five bytes", V5, S, "c08080808001", MALFORMED),
    ("flags of PINGREQ", V5, S, "c100", MALFORMED),
    ("flags of SUBSCRIBE", V5, S, "8008000a00000361626300", MALFORMED),
    ("flags of PUBREL", V5, S, "60020007", MALFORMED),
    ("flags of PUBACK", V5, S, "41020007", MALFORMED),
    ("body of PINGREQ", V5, S, "c00100", MALFORMED),
    ("body of DISCONNECT 3.1.1", V311, S, "e00100", MALFORMED),
    ("QoS 3", V5, S, "3608000361626300010000", MALFORMED),
    ("DUP at QoS 0", V5, S, "380600036162630000", MALFORMED),
    ("packet id 0", V5, S, "3208000361626300000000", MALFORMED),
    ("PUBLISH without body", V5, S, "3000", MALFORMED),
    ("PUBLISH ends in topic", V5, S, "30040005616263", MALFORMED),
    ("PUBLISH ends in topic, more follows", V5, S, "3004000561 62 c000c000c000", MALFORMED),
    ("PUBLISH ends before packet id", V311, S, "32040002616200", MALFORMED),
    ("PUBLISH ends before properties", V5, S, "30030001 61 c000", MALFORMED),
    ("PUBLISH ends in properties", V5, S, "300500016105 01 01", MALFORMED),
    ("topic with wildcard", V5, S, "3006000361 2f2b00", MALFORMED),
    ("topic with U+0000", V5, S, "30040001 0000", MALFORMED),
    ("topic not UTF-8", V5, S, "30040001ff00", MALFORMED),
    ("topic with surrogate", V5, S, "30060003eda08000", MALFORMED),
    ("empty topic", V311, S, "30020000", PROTOCOL),
    ("empty topic without alias", V5, S, "3003000000", PROTOCOL),
    ("alias 0", V5, S, "30060000 03230000", ReasonCode.TOPIC_ALIAS_INVALID),
    ("subscription id from client", V5, S, "3006000161 020b01", PROTOCOL),
    ("PUBACK id 0", V5, S, "40020000", MALFORMED),
    ("PUBACK short", V5, S, "400107", MALFORMED),
    ("PUBACK 3.1.1 long", V311, S, "4003000700", MALFORMED),
    ("PUBACK unknown code", V5, S, "4003000701", MALFORMED),
    ("PUBACK trailing", V5, S, "40050007100000", MALFORMED),
    ("PUBREL with another's code", V5, S, "6203000787", MALFORMED),
    ("SUBSCRIBE empty", V311, S, "8202000a", PROTOCOL),
    ("SUBSCRIBE id 0", V311, S, "8206 0000 000161 00", MALFORMED),
    ("SUBSCRIBE without options", V311, S, "8205 000a 000161", MALFORMED),
    ("SUBSCRIBE QoS 3", V311, S, "8206 000a 000161 03", MALFORMED),
    ("SUBSCRIBE reserved bits 3.1.1", V311, S, "8206 000a 000161 04", MALFORMED),
    ("SUBSCRIBE reserved bits", V5, S, "8207 000a 00 000161 40", MALFORMED),
    ("SUBSCRIBE retain handling 3", V5, S, "8207 000a 00 000161 30", PROTOCOL),
    ("SUBSCRIBE subscription id 0", V5, S, "8209 000a 020b00 000161 00", PROTOCOL),
    ("SUBSCRIBE empty filter", V311, S, "8205 000a 0000 00", MALFORMED),
    ("SUBSCRIBE bad filter", V311, S, "8207 000a 00026123 00", MALFORMED),
    ("SUBSCRIBE shared no-local", V5, S, "8210 000a 00 000a 2473686172652f672f61 04", PROTOCOL),
    ("SUBSCRIBE bad share", V5, S, "820f 000a 00 0009 2473686172652f2f61 00", MALFORMED),
    ("UNSUBSCRIBE empty", V311, S, "a202000a", PROTOCOL),
    ("UNSUBSCRIBE bad filter", V311, S, "a206 000a 00022b2b", MALFORMED),
    ("second CONNECT", V5, S, "100d00044d5154540402000a000161", PROTOCOL),
    ("SUBACK from client", V5, S, "9004000a0000", PROTOCOL),
    ("CONNACK from client", V5, S, "2003000000", PROTOCOL),
    ("AUTH in 3.1.1", V311, S, "f000", PROTOCOL),
    ("AUTH success from client", V5, S, "f000", PROTOCOL),
    ("AUTH data without method", V5, S, "f006 18 04 16000178", PROTOCOL),
    ("DISCONNECT with a server's code", V5, S, "e0018b", PROTOCOL),
    ("DISCONNECT with unknown code", V5, S, "e00155", MALFORMED),
    ("DISCONNECT from server 3.1.1", V311, C, "e000", PROTOCOL),
    ("DISCONNECT with will from server", V5, C, "e00104", PROTOCOL),
    ("DISCONNECT with expiry from server", V5, C, "e007 00 05 1100000000", PROTOCOL),
    ("CONNECT from server", V5, C, "100d00044d5154540402000a000161", PROTOCOL),
    ("SUBSCRIBE from server", V5, C, "8207 000a 00 000161 00", PROTOCOL),
    ("CONNACK reserved flags", V5, C, "2003020000", MALFORMED),
    ("CONNACK refuses with session", V5, C, "2003018700", PROTOCOL),
    ("CONNACK unknown code", V311, C, "20020006", MALFORMED),
    ("CONNACK short", V311, C, "200100", MALFORMED),
    ("CONNACK trailing", V311, C, "2003000000", MALFORMED),
    ("SUBACK empty", V311, C, "9002000a", MALFORMED),
    ("SUBACK unknown code", V311, C, "9003000a03", MALFORMED),
    ("UNSUBACK 3.1.1 trailing", V311, C, "b003000a00", MALFORMED),
    ("UNSUBACK empty", V5, C, "b003000a00", MALFORMED),
]

UNSUPPORTED = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
REFUSED_CONNECTS: list[tuple[str, str, ReasonCode]] = [
    ("not CONNECT", "c000", PROTOCOL),
    ("flags", "110d00044d5154540402000a000161", PROTOCOL),
    ("HTTP", b"GET / HTTP/1.1".hex(), PROTOCOL),
    ("protocol name", "100d00044d5154550402000a000161", UNSUPPORTED),
    ("protocol level", "100d00044d5154540602000a000161", UNSUPPORTED),
    ("private bit of bridges in MQTT 5", "100d00044d5154548502000a000161", UNSUPPORTED),
    ("private bit, 3.1 name with level 4", "100f00064d51497364708402000a000161", UNSUPPORTED),
    ("3.1 name with level 4", "100f00064d51497364700402000a000161", UNSUPPORTED),
    ("3.1.1 name with level 3", "100d00044d5154540302000a000161", UNSUPPORTED),
    ("reserved flag", "100d00044d5154540403000a000161", MALFORMED),
    ("will QoS 3", "101300044d515454041e000a000161000174000168", MALFORMED),
    ("will QoS without will", "100d00044d515454040a000a000161", MALFORMED),
    ("will retain without will", "100d00044d5154540422000a000161", MALFORMED),
    ("will topic wildcard", "101300044d5154540406000a000161000123000168", MALFORMED),
    ("will topic empty", "101200044d5154540406000a0001610000000168", MALFORMED),
    ("password without user 3.1.1", "101000044d5154540442000a000161000170", MALFORMED),
    ("empty id with old session 3.1.1", "100c00044d5154540400000a0000", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    ("empty id 3.1", "100e00064d51497364700302000a0000", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    ("trailing", "100e00044d5154540402000a00016100", MALFORMED),
    ("short header", "100900044d51545404020a", MALFORMED),
    ("short id", "100d00044d5154540402000a000561", MALFORMED),
    ("authentication data without method", "101200044d5154540502000a0416000178000161", PROTOCOL),
    ("property of another packet", "101000044d5154540502000a022401000161", PROTOCOL),
]


@pytest.mark.parametrize(("name", "version", "role", "text", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused(name: str, version: Version, role: str, text: str, reason: ReasonCode) -> None:
    packets_before, error = decode(version, role, bytes.fromhex(text))
    assert packets_before == []
    assert error is not None, name
    assert error.reason == reason, error


@pytest.mark.parametrize(("name", "text", "reason"), REFUSED_CONNECTS, ids=lambda value: str(value)[:40])
def test_refused_connects(name: str, text: str, reason: ReasonCode) -> None:
    got, error = decode(None, S, bytes.fromhex(text))
    assert got == []
    assert error is not None, name
    assert error.reason == reason, error


def test_empty_client_id_with_clean_session_is_fine_in_3_1_1() -> None:
    assert decode(None, S, bytes.fromhex("100c00044d5154540402000a0000")) == ([Connect("", V311, True, 10)], None)


def test_packets_before_the_bad_one_are_returned_and_none_after() -> None:
    decoder = Decoder(V5)
    assert decoder.feed(b"\xc0\0\xc0\0\x00\0\xc0\0") == [PingReq(), PingReq()]
    assert decoder.error is not None
    assert decoder.feed(b"\xc0\0") == []


@pytest.mark.parametrize("text", ["3003 0002 61 6200", "3204 0002 6162 0007", "3204 0002 6162 c000"])
def test_a_publish_does_not_reach_into_the_next_packet(text: str) -> None:
    decoder = Decoder(V311)
    known = encode(Publish("ab", b""), V311)  # a topic that the cache knows is no excuse
    assert decoder.feed(known + bytes.fromhex(text)) == [Publish("ab", b"")]
    assert decoder.error is not None
    assert decoder.error.reason is ReasonCode.MALFORMED_PACKET


def test_version_is_learnt_in_the_middle_of_a_read() -> None:
    decoder = Decoder(None)
    publish = Publish("a", b"x", properties=Properties(content_type="text"))
    read = encode(Connect("c"), V5) + encode(publish, V5)
    assert decoder.feed(read) == [Connect("c"), publish]
    assert decoder.version is V5


def test_size_limit_is_applied_as_soon_as_the_length_is_known() -> None:
    data = encode(Publish("a", b"x" * 100), V311)
    for fed in (data, data[:5]):
        _, error = decode(V311, S, fed, limit=len(data) - 1)
        assert error is not None
        assert error.reason == ReasonCode.PACKET_TOO_LARGE
    assert decode(V311, S, data, limit=len(data))[1] is None
    decoder = Decoder(None, maximum_packet_size=64)
    decoder.feed(b"\x10\xff\xff\xff\x7f")
    assert decoder.error is not None
    assert decoder.error.reason == ReasonCode.PACKET_TOO_LARGE


def test_what_is_held_for_an_unfinished_packet_is_bounded_by_the_limit() -> None:
    decoder = Decoder(V311, maximum_packet_size=1000)
    data = encode(Publish("a", b"x" * 900), V311)
    for byte in data[:-1]:
        assert decoder.feed(bytes((byte,))) == []
        assert decoder.held_bytes <= 1000
    assert decoder.feed(data[-1:]) == [Publish("a", b"x" * 900)]
    assert decoder.held_bytes == 0


def test_reads_may_be_views_of_a_buffer_that_is_used_again() -> None:
    decoder = Decoder(V311)
    buffer = bytearray(encode(Publish("a", b"payload"), V311) + b"\x30")
    got = decoder.feed(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert got == [Publish("a", b"payload")]
    assert decoder.feed(encode(Publish("b", b""), V311)[1:]) == [Publish("b", b"")]


def test_a_client_decoder_must_be_told_its_version() -> None:
    with pytest.raises(ValueError, match="version"):
        Decoder(None, role="client")


def test_the_topic_cache_is_bounded() -> None:
    decoder = Decoder(V311)
    most = encoding.NAME_CACHE_ENTRIES
    read = b"".join(encode_publish(f"t{n}", b"", version=V311) for n in range(most + 10))
    assert [packet.topic for packet in decoder.feed(read)] == [f"t{n}" for n in range(most + 10)]
    assert len(codec._topics) <= most
    assert len(encoding._names) <= most
    decoder.feed(encode_publish("x" * 5000, b"", version=V311))
    assert b"x" * 5000 not in codec._topics
    assert "x" * 5000 not in encoding._names
    assert decoder.feed(b"\x30\x02\0\0") == []
    assert decoder.error is not None


def test_the_password_is_in_no_repr() -> None:
    assert "secret" not in repr(Connect("a", username="u", password=b"secret"))


# --------------------------------------------------------------------------------------------- properties


def splits(draw: st.DataObject, data: bytes) -> Sequence[bytes]:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(VERSIONS, st.sampled_from([S, C]), st.data())
def test_round_trip_whole_split_and_byte_by_byte(version: Version, role: str, data: st.DataObject) -> None:
    sent = data.draw(st.lists(packets(version, role), max_size=6))
    known: Version | None = version
    if role == S and data.draw(st.booleans()):
        sent = [data.draw(connects(version)), *sent]
        known = None
    read = b"".join(encode(packet, version) for packet in sent)
    for pieces in ([read], splits(data, read), [bytes((byte,)) for byte in read]):
        decoder = Decoder(known, 1 << 20, role)  # type: ignore[arg-type]
        got = [packet for piece in pieces for packet in decoder.feed(piece)]
        assert decoder.error is None
        assert got == sent
        assert decoder.held_bytes == 0
    assert b"".join(encode(packet, version) for packet in sent) == read


@pytest.mark.parametrize("version", Version)
def test_an_empty_read_in_the_middle_of_a_packet_changes_nothing(version: Version) -> None:
    """As an empty message of a WebSocket is."""
    sent = Subscribe(1, (Subscription("+", 0),))
    read = encode(sent, version)
    for cut in range(len(read)):
        decoder = Decoder(version, 1 << 20, S)
        assert [packet for piece in (read[:cut], b"", read[cut:]) for packet in decoder.feed(piece)] == [sent]


@pytest.mark.parametrize(("name", "kept"), [("plant/a", True), ("$veil/a", True), ("$Constrained/Traces/a", False)])
def test_names_of_which_each_client_has_its_own_are_written_and_read_and_not_kept(name: str, kept: bool) -> None:
    publish = Publish(name, b"x", 0)
    for _ in range(2):
        data = encode(publish, Version.V311)
        assert Decoder(Version.V311).feed(data) == [publish]
    assert (name in encoding._names, name.encode() in codec._topics) == (kept, kept)


@pytest.mark.attack(151)
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_filters_of_a_long_packet_are_parsed_while_they_come(
    version: Version, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: 5,000 filters in one packet were parsed at once, when its last byte came."""
    filters = tuple(f"a/{number}/+/#" for number in range(1_000))
    packet = Subscribe(7, tuple(Subscription(each, 1) for each in filters)) if kind is Subscribe else kind(7, filters)
    data, checked, check = encode(packet, version), [0], parsing.check_topic_filter

    def counted(topic_filter: str) -> str:
        checked[-1] += 1
        return check(topic_filter)

    monkeypatch.setattr(parsing, "check_topic_filter", counted)
    decoder, found = Decoder(version), list[Packet]()
    for at in range(0, len(data), 500):
        checked.append(0)
        found += decoder.feed(data[at : at + 500])
    assert found == [packet]
    assert sum(checked) == len(filters), "each once"
    assert max(checked) <= 2 * (500 // 10)
    assert decoder.feed(data) == [packet], "and the next one from its beginning"


@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
@pytest.mark.parametrize("wrong", [b"\0\4a/#b", b"\0\3\xff\xffa", b"\xff\xffa"])
def test_a_wrong_filter_of_a_long_packet_is_refused_however_it_comes(kind: type, wrong: bytes) -> None:
    good = b"\0\1a" + (b"\1" if kind is Subscribe else b"")
    body = b"\0\7" + b"\0" + good * 40 + wrong + (b"\1" if kind is Subscribe else b"") + good * 40
    data = bytes((0x82 if kind is Subscribe else 0xA2, len(body) & 127 | 128, len(body) >> 7)) + body
    errors = []
    for size in (1, 7, len(data)):
        decoder = Decoder(Version.V5)
        assert [packet for at in range(0, len(data), size) for packet in decoder.feed(data[at : at + size])] == []
        errors.append(str(decoder.error))
    assert errors == [errors[0]] * 3
    assert errors[0] != "None"


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@given(
    st.lists(
        st.one_of(
            st.builds(
                Publish, st.sampled_from(["t", "u/v"]), st.sampled_from([b"", b"12", b"34", b"x" * 200]),
                st.sampled_from([1, 1, 1, 2]), st.booleans(), packet_id=st.integers(1, 9),
            ),
            st.builds(PubAck, st.integers(1, 9)),
        ),
        max_size=12,
    ),
    st.integers(0, 100),
)  # fmt: skip
def test_packets_of_a_burst_are_those_of_single_reads(version: Version, sent: list[Packet], cut: int) -> None:
    data = b"".join(encode(packet, version) for packet in sent)
    decoder = Decoder(version, role="server")
    assert [*decoder.feed(data[:cut]), *decoder.feed(data[cut:])] == sent
    assert decoder.error is None


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("second", ["32060001740000", "0006000174000161", "3206000174"])
def test_a_bad_publish_behind_one_with_an_equal_head_is_refused(version: Version, second: str) -> None:
    first = encode(Publish("t", b"abc"[version == Version.V5 :], 1, packet_id=1), version)
    decoder = Decoder(version, role="server")
    assert len(first) == 10
    assert len(decoder.feed(first + bytes.fromhex(second) + bytes(3))) == 1
    assert decoder.error is not None or decoder.is_amid


def test_properties_behind_an_equal_head_are_read() -> None:
    plain = Publish("t", b"abcdef", 1, packet_id=1)
    other = Publish("t", b"a", 1, packet_id=2, properties=Properties(message_expiry_s=7))
    data = [encode(each, Version.V5) for each in (plain, other)]
    assert len(data[0]) == len(data[1])
    assert Decoder(Version.V5, role="server").feed(b"".join(data)) == [plain, other]


@pytest.mark.parametrize(
    ("text", "found"),
    [("4002000140020102", [1, 258]), ("40020001", [1]), ("400200", []), ("40020001500200024002", []), ("", [])],
)
def test_bytes_of_acknowledgements_alone(text: str, found: list[int]) -> None:
    assert list(pubacks(bytes.fromhex(text))) == found
    assert list(pubacks(memoryview(bytes.fromhex(text)))) == found
