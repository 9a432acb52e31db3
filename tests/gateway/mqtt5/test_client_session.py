from __future__ import annotations

import itertools
from typing import Any

import pytest

from gateway.mqtt5.actions import Close, SessionLimits
from gateway.mqtt5.client_session import (
    CLIENT_TRANSITIONS,
    Answered,
    ClientAction,
    ClientSession,
    Completed,
    Connected,
    Unanswered,
)
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.delivery import Connection
from gateway.mqtt5.flows import MAXIMUM_REQUESTS
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
)
from gateway.mqtt5.types import (
    MalformedPacket,
    MqttError,
    PacketTooLarge,
    QosNotSupported,
    ReasonCode,
    Refused,
    RetainNotSupported,
)

V311, V5 = Version.V311, Version.V5
NOW = 1_700_000_000.0


def read(out: bytes | list[ClientAction] | None, version: Version = V5) -> list[Packet]:
    """What the server gets."""
    pieces = [out] if isinstance(out, bytes) else [one for one in out or [] if isinstance(one, bytes)]
    decoder = Decoder(version, role="server")
    got = decoder.feed(b"".join(pieces))
    assert decoder.error is None
    return got


def connack(present: bool = False, **properties: Any) -> ConnAck:
    return ConnAck(present, 0, Properties(**properties))


def begin(
    packet: Connect | None = None, answer: ConnAck | None = None, limits: SessionLimits | None = None
) -> ClientSession:
    session = ClientSession(packet or Connect("c", clean_start=False), limits)
    session.open(NOW)
    answer = answer or connack()
    assert session.take_packets([answer], NOW) == [Connected(answer)]
    return session


def again(session: ClientSession, answer: ConnAck, now: float = NOW) -> list[ClientAction]:
    session.disconnected(now)
    session.open(now)
    return session.take_packets([answer], now)


def publish(qos: int = 1, payload: bytes = b"x", **fields: Any) -> Publish:
    return Publish("topic/of/some/length", payload, qos, **fields)


def closes(actions: list[ClientAction]) -> ReasonCode:
    assert isinstance(actions[-1], Close)
    return actions[-1].reason


# ------------------------------------------------------------------------------- connection begins and ends


def test_open_sends_connect_with_the_identifier_that_the_server_assigned() -> None:
    session = ClientSession(Connect("", properties=Properties(session_expiry_s=60)))
    decoder = Decoder(None)
    assert decoder.feed(session.open(NOW)) == [session.connect]
    session.take_packets([connack(assigned_client_id="given")], NOW)
    session.disconnected(NOW)
    (packet,) = Decoder(None).feed(session.open(NOW))
    assert isinstance(packet, Connect)
    assert packet.client_id == "given"


@pytest.mark.parametrize(
    ("version", "code", "reason"),
    [(V5, 0x87, ReasonCode.NOT_AUTHORIZED), (V311, 4, ReasonCode.BAD_USER_NAME_OR_PASSWORD)],
)
def test_a_refusing_connack_closes_with_its_reason(version: Version, code: int, reason: ReasonCode) -> None:
    session = ClientSession(Connect("c", version))
    session.open(NOW)
    actions = session.take_packets([ConnAck(False, code)], NOW)
    assert actions == [Close(reason, b"", f"the server refuses: {reason.name}")]


def test_a_session_that_we_do_not_have_is_refused_unless_adopted() -> None:
    for clean, adopt, accepted in itertools.product((True, False), repeat=3):
        session = ClientSession(Connect("c", clean_start=clean), adopt=adopt)
        session.open(NOW)
        actions = session.take_packets([connack(True)], NOW)
        assert isinstance(actions[0], Connected) is (adopt and not clean), accepted


@pytest.mark.parametrize(("version", "again"), [(V5, False), (V311, True)])
def test_clean_start_is_asked_once_but_in_3_1_1(version: Version, again: bool) -> None:
    session = begin(Connect("c", version), ConnAck(False))
    session.disconnected(NOW)
    (packet,) = Decoder(None).feed(session.open(NOW))
    assert isinstance(packet, Connect)
    assert packet.clean_start is again
    actions = session.take_packets([ConnAck(True)], NOW)
    assert isinstance(actions[0], Close if again else Connected)


def test_a_session_after_an_unanswered_connect_is_doubtful_once() -> None:
    """The server may have begun it with the CONNECT whose CONNACK was lost: it knows no subscription."""
    session = begin()
    assert again(session, connack(True))[0] == Connected(connack(True))
    session.disconnected(NOW)
    session.open(NOW)
    assert again(session, connack(True))[0] == Connected(connack(True), doubtful=True)
    assert again(session, connack(True))[0] == Connected(connack(True))


def test_a_connack_that_was_lost_does_not_make_the_session_foreign() -> None:
    session = ClientSession(Connect("c", clean_start=False))
    session.open(NOW)
    session.disconnected(NOW)
    session.open(NOW)
    assert session.take_packets([connack(True)], NOW) == [Connected(connack(True), doubtful=True)]


def test_a_silent_server_is_given_up() -> None:
    session = ClientSession(Connect("c"))
    session.open(NOW)
    deadline = session.next_deadline
    assert deadline == NOW + session.CONNACK_TIMEOUT_S
    assert session.due_actions(deadline - 1) == []
    assert closes(session.due_actions(deadline)) is ReasonCode.KEEP_ALIVE_TIMEOUT
    assert session.next_deadline is None


def test_keep_alive_pings_and_misses_the_answer() -> None:
    session = begin(Connect("c", keep_alive_s=60), connack(server_keep_alive_s=30))
    assert session.next_deadline == NOW + 30
    assert read(session.due_actions(NOW + 30)) == [PingReq()]
    assert session.take_packets([PingResp()], NOW + 31) == []
    assert session.next_deadline == NOW + 60, "30 s after our own last packet"
    session.due_actions(NOW + 61)
    assert closes(session.due_actions(NOW + 61 + session.PING_TIMEOUT_S)) is ReasonCode.KEEP_ALIVE_TIMEOUT


def test_sending_alone_does_not_show_that_the_server_lives() -> None:
    session = begin(Connect("c", keep_alive_s=10))
    for second in range(10):
        session.publish(publish(0), None, NOW + second)
    assert session.next_deadline == NOW + 10


def test_without_keep_alive_there_is_no_deadline() -> None:
    assert begin().next_deadline is None


def test_disconnect_of_the_server() -> None:
    session = begin()
    actions = session.take_packets([Disconnect(0x8B, Properties(reason="bye")), PingResp()], NOW)
    assert actions == [Close(ReasonCode.SERVER_SHUTTING_DOWN, b"", "bye")]


def test_own_disconnect() -> None:
    session = begin()
    assert read(session.disconnect()) == [Disconnect()]
    assert session.take_packets([publish(0)], NOW) == []


def test_every_state_and_packet_has_an_entry_and_behaves_so() -> None:
    packets: list[Packet] = [
        Connect("c"), ConnAck(False), publish(2, packet_id=1), PubAck(1), PubRec(1), PubRel(1), PubComp(1),
        Subscribe(1, (Subscription("a"),)), SubAck(1, (0,)), Unsubscribe(1, ("a",)), UnsubAck(1, (0,)), PingReq(),
        PingResp(), Disconnect(), Auth(0x18),
    ]  # fmt: skip
    assert set(CLIENT_TRANSITIONS) == set(itertools.product(Connection, map(type, packets)))
    refused = {Connect, ConnAck, Subscribe, SubAck, Unsubscribe, UnsubAck, PingReq, Auth}
    for state, packet in itertools.product(Connection, packets):
        session = begin()
        session.state = state
        actions = session.take_packets([packet], NOW)
        closed = bool(actions) and isinstance(actions[-1], Close)
        if state in (Connection.OFFLINE, Connection.CLOSING):
            assert actions == []
        elif state is Connection.OPENING:
            assert closed is (type(packet) is not ConnAck)
        else:
            assert closed is (type(packet) in refused or isinstance(packet, Disconnect))


# --------------------------------------------------------------------------------------------- publishing


@pytest.mark.parametrize("version", [V311, V5])
def test_qos_1_and_2_complete(version: Version) -> None:
    session = begin(Connect("c", version, clean_start=False), ConnAck(False))
    (one,) = read(session.publish(publish(1), "one", NOW), version)
    (two,) = read(session.publish(publish(2), "two", NOW), version)
    assert (one, two) == (publish(1, packet_id=1), publish(2, packet_id=2))
    assert session.take_packets([PubAck(1)], NOW) == [Completed("one", 0)]
    assert read(session.take_packets([PubRec(2)], NOW), version) == [PubRel(2)]
    assert session.take_packets([PubComp(2)], NOW) == [Completed("two", 0)]


def test_refusals_of_the_server_are_completions_too() -> None:
    session = begin()
    session.publish(publish(1), "one", NOW)
    session.publish(publish(2), "two", NOW)
    assert session.take_packets([PubAck(1, 0x87), PubRec(2, 0x97)], NOW) == [
        Completed("one", 0x87),
        Completed("two", 0x97),
    ]


def test_publications_wait_for_the_connection_and_for_quota() -> None:
    session = ClientSession(Connect("c", clean_start=False))
    for n in range(3):
        assert session.publish(publish(1, bytes((n,))), n, NOW) is None
    session.open(NOW)
    actions = session.take_packets([connack(receive_maximum=2)], NOW)
    assert [one.payload for one in read(actions)] == [b"\0", b"\1"]  # type: ignore[union-attr]
    completed, third = session.take_packets([PubAck(1)], NOW)
    assert completed == Completed(0, 0)
    assert isinstance(third, bytes)


def test_a_full_queue_refuses_and_loses_nothing() -> None:
    session = ClientSession(Connect("c"), SessionLimits(queue_messages=1))
    session.publish(publish(1), "kept", NOW)
    with pytest.raises(Refused) as caught:
        session.publish(publish(1), "refused", NOW)
    assert caught.value.reason is ReasonCode.QUOTA_EXCEEDED
    assert [queued.token for queued in session.waiting] == ["kept"]


def test_qos_0_needs_a_connection() -> None:
    session = ClientSession(Connect("c"))
    with pytest.raises(Refused):
        session.publish(publish(0), None, NOW)
    session = begin()
    session.pause()
    with pytest.raises(Refused):
        session.publish(publish(0), None, NOW)


def test_limits_of_the_server_are_respected() -> None:
    session = begin(answer=connack(maximum_packet_size=100, maximum_qos=1, retain_available=0))
    for packet, error in (
        (publish(1, bytes(200)), PacketTooLarge),
        (publish(2), QosNotSupported),
        (publish(1, retain=True), RetainNotSupported),
        (Publish("a/#", b""), MalformedPacket),
    ):
        with pytest.raises(error):
            session.publish(packet, None, NOW)
    assert session.held_bytes == 0


def test_what_waited_and_is_beyond_the_servers_limits_completes_with_the_reason() -> None:
    session = ClientSession(Connect("c"))
    session.publish(publish(2), "qos", NOW)
    session.publish(publish(1, retain=True), "retain", NOW)
    session.publish(publish(1, bytes(200)), "size", NOW)
    session.publish(publish(1, properties=Properties(message_expiry_s=5)), "expired", NOW)
    session.publish(publish(1), "fine", NOW)
    session.open(NOW + 10)
    answer = connack(maximum_packet_size=100, maximum_qos=1, retain_available=0)
    actions = session.take_packets([answer], NOW + 10)
    completed = {one.token: one.code for one in actions if isinstance(one, Completed)}
    assert completed == {"qos": 0x9B, "retain": 0x9A, "size": 0x95, "expired": 0x80}
    assert len(read(actions)) == 1
    assert session.held_bytes == session.outbound.unacknowledged[2][0].size


def test_resume_repeats_and_completes_once() -> None:
    session = begin()
    session.publish(publish(1), "one", NOW)
    session.publish(publish(2), "two", NOW)
    session.take_packets([PubRec(2)], NOW)
    actions = again(session, connack(True))
    assert read(actions) == [PubRel(2), publish(1, dup=True, packet_id=1)]
    assert session.take_packets([PubComp(2), PubAck(1)], NOW) == [Completed("two", 0), Completed("one", 0)]


def test_a_lost_session_sends_the_unacknowledged_as_new_in_order() -> None:
    session = begin()
    for n in range(3):
        session.publish(publish(2, bytes((n,))), n, NOW)
    session.take_packets([PubRec(1)], NOW)
    actions = again(session, connack(False))
    assert [one for one in actions if isinstance(one, Completed)] == [Completed(0, 0)]
    resent = [one for one in read(actions) if isinstance(one, Publish)]
    assert [(one.payload, one.dup) for one in resent] == [(b"\1", False), (b"\2", False)]
    session.take_packets([PubRec(one.packet_id) for one in resent], NOW)
    done = session.take_packets([PubComp(one.packet_id) for one in resent], NOW)
    assert done == [Completed(1, 0), Completed(2, 0)]
    assert session.held_bytes == 0


def test_topic_aliases_towards_the_server() -> None:
    session = begin(answer=connack(topic_alias_maximum=5))
    sent = [read(session.publish(publish(0), None, NOW))[0] for _ in range(2)]
    assert [one.topic for one in sent] == ["topic/of/some/length", ""]  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------- requests


def test_subscribe_and_unsubscribe_are_answered() -> None:
    session = begin()
    assert read(session.subscribe((Subscription("a"), Subscription("b")), "s", NOW)) == [
        Subscribe(1, (Subscription("a"), Subscription("b")))
    ]
    assert read(session.unsubscribe(("a",), "u", NOW)) == [Unsubscribe(2, ("a",))]
    (sent,) = read(session.publish(publish(1), None, NOW))
    assert sent == publish(1, packet_id=3), "identifiers of requests are in use"
    suback, unsuback = SubAck(1, (0, 0x87)), UnsubAck(2, (0,))
    assert session.take_packets([suback, unsuback], NOW) == [Answered("s", suback), Answered("u", unsuback)]


@pytest.mark.parametrize("answer", [SubAck(1, (0,)), SubAck(9, (0, 0)), UnsubAck(1, (0, 0))])
def test_answers_that_do_not_fit_are_violations(answer: Packet) -> None:
    session = begin()
    session.subscribe((Subscription("a"), Subscription("b")), "s", NOW)
    assert closes(session.take_packets([answer], NOW)) is ReasonCode.PROTOCOL_ERROR


def test_an_old_unsuback_has_no_codes() -> None:
    session = begin(Connect("c", V311, clean_start=False), ConnAck(False))
    session.unsubscribe(("a", "b"), "u", NOW)
    assert session.take_packets([UnsubAck(1)], NOW) == [Answered("u", UnsubAck(1))]


def test_requests_end_with_the_connection() -> None:
    session = begin()
    session.subscribe((Subscription("a"),), "s", NOW)
    assert session.disconnected(NOW) == [Unanswered("s")]
    with pytest.raises(Refused):
        session.subscribe((Subscription("a"),), "s", NOW)


def test_requests_without_answer_are_bounded() -> None:
    session = begin()
    for _ in range(MAXIMUM_REQUESTS):
        session.subscribe((Subscription("a"),), None, NOW)
    with pytest.raises(Refused):
        session.subscribe((Subscription("a"),), None, NOW)


def test_a_request_that_cannot_be_sent_leaves_nothing_behind() -> None:
    session = begin()
    with pytest.raises(MqttError):
        session.subscribe((Subscription("a#"),), "s", NOW)
    assert session.disconnected(NOW) == []


# ---------------------------------------------------------------------------------------------- receiving


def test_received_messages_are_acknowledged_and_qos_2_is_seen_once() -> None:
    session = begin()
    one, two = publish(1, packet_id=7), publish(2, packet_id=8)
    assert session.take_packets([one, two, publish(2, packet_id=8, dup=True)], NOW) == [one, two]
    assert read(session.acknowledge(one)) == [PubAck(7)]
    assert read(session.acknowledge(two)) == [PubRec(8)]
    again(session, connack(True))
    assert read(session.take_packets([publish(2, packet_id=8, dup=True)], NOW)) == [PubRec(8)]
    assert read(session.take_packets([PubRel(8)], NOW)) == [PubComp(8)]


def test_our_receive_maximum_binds_the_server() -> None:
    session = begin(Connect("c", properties=Properties(receive_maximum=1)))
    actions = session.take_packets([publish(1, packet_id=1), publish(1, packet_id=2)], NOW)
    assert closes(actions) is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    assert isinstance(actions[-1], Close)
    assert read(actions[-1].farewell) == [Disconnect(0x93)]


def test_aliases_of_the_server() -> None:
    session = begin(Connect("c", properties=Properties(topic_alias_maximum=1)))
    first = Publish("a", b"", properties=Properties(topic_alias=1))
    second = Publish("", b"", properties=Properties(topic_alias=1))
    assert [one.topic for one in session.take_packets([first, second], NOW)] == ["a", "a"]  # type: ignore[union-attr]
    third = Publish("a", b"", properties=Properties(topic_alias=2))
    assert closes(session.take_packets([third], NOW)) is ReasonCode.TOPIC_ALIAS_INVALID


def test_extended_authentication_is_passed_on_while_connecting() -> None:
    session = ClientSession(Connect("c", properties=Properties(authentication_method="m")))
    session.open(NOW)
    auth = Auth(0x18, Properties(authentication_method="m"))
    assert session.take_packets([auth], NOW) == [auth]


def test_encode_is_what_the_decoder_of_a_server_accepts() -> None:
    session = begin(Connect("c", V311, clean_start=False), ConnAck(False))
    assert session.publish(publish(1, properties=Properties(content_type="x")), None, NOW) == encode(
        publish(1, packet_id=1), V311
    )


def test_messages_are_acknowledged_together_as_they_are_one_by_one() -> None:
    """Of a lost connection, twice, of QoS 0 and 2: those are left to `acknowledge`."""
    out: list[list[bytes]] = []
    for together in (True, False):
        session, said = begin(), []
        got = [
            action
            for action in session.take_packets(
                [Publish("t", b"", qos, packet_id=n if qos else 0) for n, qos in enumerate((1, 1, 0, 2, 1), 1)], NOW
            )
            if isinstance(action, Publish)
        ]
        assert len(got) == 5
        for some in (got[:2], got[1:3], got):
            said.append(session.acknowledge_all(some) if together else b"".join(map(session.acknowledge, some)))
        again = list(session.take_packets([Publish("t", b"", 1, packet_id=9)], NOW))
        session.disconnected(NOW)
        said.append(session.acknowledge_all(again) if together else b"".join(map(session.acknowledge, again)))  # type: ignore[arg-type]
        assert not session.inbound.accepting
        out.append([b"".join(sorted(piece[at : at + 4] for at in range(0, len(piece), 4))) for piece in said])
    assert out[0] == out[1]
    assert out[0] == [b"\x40\2\0\1\x40\2\0\2", b"", b"\x40\2\0\5\x50\2\0\4", b""]
