"""First and last words of a server, word by word."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.mqtt5.actions import ServerOffer
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.endings import acceptance, answer_bytes, check_connect, farewell, granted_times, refusal, tellings
from gateway.mqtt5.packets import (
    NO_PROPERTIES,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Properties,
    SubAck,
    UnsubAck,
    Version,
    Will,
)
from gateway.mqtt5.types import NEVER_EXPIRES_S, PacketTooLarge, QosNotSupported, ReasonCode, RetainNotSupported

V311, V5 = Version.V311, Version.V5
OFFER = ServerOffer()
PLAIN_OFFER = ServerOffer(receive_maximum=65_535, maximum_packet_size=1 << 20, topic_alias_maximum=0)


def read(data: bytes, version: Version = V5) -> list[Packet]:
    decoder = Decoder(version, role="client")
    got = decoder.feed(data)
    assert decoder.error is None
    return got


def connect(version: Version = V5, clean: bool = True, keep_alive_s: int = 60, **properties: Any) -> Connect:
    return Connect("c", version, clean, keep_alive_s, properties=Properties(**properties))


def accepted(packet: Connect, offer: ServerOffer = OFFER, present: bool = False) -> Properties:
    (answer,) = read(acceptance(packet, offer, present, NO_PROPERTIES), packet.version)
    assert isinstance(answer, ConnAck)
    assert (answer.code, answer.session_present) == (0, present)
    return answer.properties


def test_farewell() -> None:
    assert read(farewell(V5, ReasonCode.SESSION_TAKEN_OVER)) == [Disconnect(0x8E)]
    assert read(farewell(V5, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)) == [Disconnect(0x80)]
    assert farewell(V311, ReasonCode.SESSION_TAKEN_OVER) == b""


def test_refusal() -> None:
    assert read(refusal(V5, ReasonCode.NOT_AUTHORIZED)) == [ConnAck(False, 0x87)]
    assert read(refusal(V5, ReasonCode.KEEP_ALIVE_TIMEOUT)) == [ConnAck(False, 0x80)]
    assert refusal(V311, ReasonCode.NOT_AUTHORIZED) == encode(ConnAck(False, 5), V311)
    assert refusal(None, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION) == b"\x20\2\0\1"
    assert refusal(None, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID) == b"\x20\2\0\2"
    assert refusal(None, ReasonCode.MALFORMED_PACKET) == b""
    assert refusal(V311, ReasonCode.MALFORMED_PACKET) == b""


# ------------------------------------------------------------------------------------------------ accepting


def test_what_is_the_default_is_not_said() -> None:
    assert vars(accepted(connect(session_expiry_s=5), PLAIN_OFFER)) == {"maximum_packet_size": 1 << 20}


def test_what_differs_from_what_was_asked_or_usual_is_said() -> None:
    offer = ServerOffer(100, 5000, 7, 1, False, 30, 20)
    found = accepted(connect(session_expiry_s=31, keep_alive_s=21), offer, present=True)
    assert vars(found) == {
        "session_expiry_s": 30, "receive_maximum": 100, "maximum_packet_size": 5000, "topic_alias_maximum": 7,
        "maximum_qos": 1, "retain_available": 0, "server_keep_alive_s": 20,
    }  # fmt: skip


@pytest.mark.parametrize(("most", "said"), [(268_435_460, 268_435_455), (268_435_455, 268_435_455), (300, 300)])
def test_no_packet_size_is_said_that_paho_refuses(most: int, said: int) -> None:
    assert accepted(connect(), ServerOffer(maximum_packet_size=most)).maximum_packet_size == said


def test_an_old_client_is_told_nothing_but_that_it_is_accepted() -> None:
    assert acceptance(connect(V311), OFFER, True, Properties(reason="x")) == b"\x20\2\1\0"


def test_a_client_of_mqtt_3_1_is_not_told_of_its_session_in_a_byte_that_it_knows_as_reserved() -> None:
    assert acceptance(connect(Version.V31, clean=False), OFFER, True, Properties()) == b"\x20\2\0\0"


@pytest.mark.parametrize(
    ("asked", "most", "granted"), [(0, 20, 20), (10, 20, 10), (20, 20, 20), (21, 20, 20), (0, 0, 0)]
)
def test_keep_alive_is_no_longer_than_the_servers(asked: int, most: int, granted: int) -> None:
    offer = ServerOffer(keep_alive_max_s=most)
    assert granted_times(connect(keep_alive_s=asked), offer)[1] == granted
    assert granted_times(connect(V311, keep_alive_s=asked), offer)[1] == asked, "3.x cannot be told"


def test_a_session_lives_as_asked_within_the_servers_bound() -> None:
    offer = ServerOffer(session_expiry_max_s=100)
    assert granted_times(connect(), offer)[0] == 0
    assert granted_times(connect(session_expiry_s=50), offer)[0] == 50
    assert granted_times(connect(session_expiry_s=NEVER_EXPIRES_S), offer)[0] == 100
    assert granted_times(connect(V311, clean=True), offer)[0] == 0
    assert granted_times(connect(V311, clean=False), offer)[0] == 100


def test_a_connect_that_asks_for_too_much_is_refused_before_anything_is_done() -> None:
    strict = ServerOffer(maximum_qos=1, retain_available=False)
    check_connect(Connect("c", will=Will("t", b"", 1)), strict)
    check_connect(Connect("c"), strict)
    with pytest.raises(QosNotSupported):
        check_connect(Connect("c", will=Will("t", b"", 2)), strict)
    with pytest.raises(RetainNotSupported):
        check_connect(Connect("c", will=Will("t", b"", 0, True)), strict)
    check_connect(Connect("c", will=Will("t", b"", 2, True)), OFFER)


def test_a_client_that_cannot_take_the_answer_is_refused() -> None:
    size = len(acceptance(connect(maximum_packet_size=100), OFFER, False, NO_PROPERTIES))
    check_connect(connect(maximum_packet_size=size), OFFER)
    with pytest.raises(PacketTooLarge):
        check_connect(connect(maximum_packet_size=size - 1), OFFER)
    with pytest.raises(PacketTooLarge):
        check_connect(connect(maximum_packet_size=size), OFFER, Properties(assigned_client_id="x"))


def test_an_identifier_is_told_to_who_had_none() -> None:
    proof = Properties(authentication_data=b"p")
    assert tellings(connect(), "c", proof, None) is proof
    found = tellings(Connect(""), "made up", proof, None)
    assert (found.assigned_client_id, found.authentication_data) == ("made up", b"p")


def test_response_information_is_for_who_asks_and_names_its_own_topics_only() -> None:
    asking = connect(request_response_information=1)
    assert tellings(asking, "c", NO_PROPERTIES, "answers/{client_id}").response_information == "answers/c"
    assert tellings(connect(), "c", NO_PROPERTIES, "answers/{client_id}") is NO_PROPERTIES
    assert tellings(asking, "c", NO_PROPERTIES, None) is NO_PROPERTIES
    for id_ in ("a/b", "+", "#"):
        assert tellings(asking, id_, NO_PROPERTIES, "answers/{client_id}") is NO_PROPERTIES


@pytest.mark.parametrize("filters", [1, 2, 124, 125, 126, 200, 20_000])
@pytest.mark.parametrize("version", [V311, V5])
def test_the_size_of_an_answer_is_known_before(filters: int, version: Version) -> None:
    assert answer_bytes(filters, version) == len(encode(SubAck(1, (0,) * filters), version))
    if version is V5:
        assert answer_bytes(filters, version) == len(encode(UnsubAck(1, (0,) * filters), version))
