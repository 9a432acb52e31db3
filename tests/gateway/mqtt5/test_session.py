from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import mqtt5
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.message import Message
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
from gateway.mqtt5.session import (
    TRANSITIONS,
    Action,
    Close,
    Connection,
    PublishWill,
    ServerOffer,
    ServerSession,
    SessionEnded,
    SessionLimits,
)
from gateway.mqtt5.types import QosNotSupported, ReasonCode, RetainNotSupported

V311, V5 = Version.V311, Version.V5
NOW = 1_700_000_000.0
OFFER = ServerOffer()


def read(out: list[bytes] | list[Action] | bytes | None, version: Version = V5) -> list[Packet]:
    """What the client gets."""
    pieces = [out] if isinstance(out, bytes) else [one for one in out or [] if isinstance(one, bytes)]
    decoder = Decoder(version, role="client")
    got = decoder.feed(b"".join(pieces))
    assert decoder.error is None
    assert decoder.held_bytes == 0
    return got


def connect(version: Version = V5, clean: bool = True, expiry_s: int = 3600, **properties: Any) -> Connect:
    if version is not V5:
        return Connect("c", version, clean)
    return Connect("c", V5, clean, properties=Properties(session_expiry_s=expiry_s, **properties))


def begin(
    packet: Connect | None = None, limits: SessionLimits | None = None, offer: ServerOffer = OFFER
) -> ServerSession:
    session = ServerSession("c", limits)
    first = read(session.take_connect(packet or connect(), offer, NOW), (packet or connect()).version)[0]
    assert isinstance(first, ConnAck)
    return session


def closes(actions: list[Action]) -> ReasonCode:
    assert isinstance(actions[-1], Close)
    return actions[-1].reason


def message(number: int, size: int = 1, **fields: Any) -> Message:
    return Message("topic/of/some/length", bytes((number,)) * size, **fields)


def send(session: ServerSession, count: int, qos: int = 1, now: float = NOW) -> list[Packet]:
    out = [session.deliver(message(n), qos, False, now) for n in range(count)]
    return read([one for one in out if one is not None], session.version)


# ------------------------------------------------------------------------------- connection begins and ends


def test_connack_says_what_differs_from_the_defaults() -> None:
    offer = ServerOffer(
        receive_maximum=20,
        maximum_packet_size=5000,
        topic_alias_maximum=0,
        maximum_qos=1,
        retain_available=False,
        session_expiry_max_s=60,
        keep_alive_max_s=30,
    )
    session = ServerSession("c")
    packet = Connect("c", V5, keep_alive_s=100, properties=Properties(session_expiry_s=100))
    (connack,) = read(session.take_connect(packet, offer, NOW, Properties(assigned_client_id="x")))
    assert connack == ConnAck(
        False,
        0,
        Properties(
            assigned_client_id="x",
            receive_maximum=20,
            maximum_packet_size=5000,
            maximum_qos=1,
            retain_available=0,
            session_expiry_s=60,
            server_keep_alive_s=30,
        ),
    )
    assert session.next_deadline == NOW + 45


@pytest.mark.parametrize(
    ("version", "clean", "expiry_s", "present"),
    [(V5, False, 3600, True), (V5, True, 3600, False), (V5, False, 0, False), (V311, False, 0, True),
     (V311, True, 0, False)],
)  # fmt: skip
def test_session_present(version: Version, clean: bool, expiry_s: int, present: bool) -> None:
    session = begin(connect(version, clean, expiry_s))
    session.disconnected(NOW)
    out = read(session.take_connect(connect(version, clean, expiry_s), OFFER, NOW + 1), version)
    assert isinstance(out[0], ConnAck)
    assert out[0].session_present is present


def test_a_first_connection_has_no_session_whatever_clean_start_says() -> None:
    out = read(ServerSession("c").take_connect(connect(clean=False), OFFER, NOW))
    assert isinstance(out[0], ConnAck)
    assert not out[0].session_present


def test_a_session_ends_when_its_expiry_interval_has_passed() -> None:
    session = begin()
    assert session.next_deadline is None, "no keep-alive"
    assert session.disconnected(NOW) == []
    assert session.next_deadline == NOW + 3600
    assert session.due_actions(NOW + 3599) == []
    assert session.due_actions(NOW + 3600) == [SessionEnded()]
    assert session.next_deadline is None


def test_a_session_without_expiry_ends_with_its_connection() -> None:
    session = begin(connect(expiry_s=0))
    assert session.disconnected(NOW) == [SessionEnded()]
    assert session.disconnected(NOW) == []


def test_an_expired_session_is_not_resumed_even_if_nobody_looked() -> None:
    session = begin(connect(expiry_s=10))
    session.disconnected(NOW)
    out = read(session.take_connect(connect(clean=False), OFFER, NOW + 11))
    assert isinstance(out[0], ConnAck)
    assert not out[0].session_present


def test_old_clients_sessions_are_bounded_by_the_servers_maximum() -> None:
    session = begin(connect(V311, clean=False))
    session.disconnected(NOW)
    assert session.next_deadline == NOW + OFFER.session_expiry_max_s


def test_a_session_may_be_kept_for_ever() -> None:
    offer = ServerOffer(session_expiry_max_s=0xFFFFFFFF)
    session = begin(connect(expiry_s=0xFFFFFFFF), offer=offer)
    session.disconnected(NOW)
    assert session.next_deadline is None


def test_disconnect_may_change_the_expiry_but_not_from_zero() -> None:
    session = begin()
    actions = session.take_packet(Disconnect(0, Properties(session_expiry_s=5)), NOW)
    assert closes(actions) is ReasonCode.SUCCESS
    session.disconnected(NOW)
    assert session.next_deadline == NOW + 5
    session = begin(connect(expiry_s=0))
    assert closes(session.take_packet(Disconnect(0, Properties(session_expiry_s=5)), NOW)) == 0x82


def test_keep_alive_is_enforced_at_one_and_a_half() -> None:
    session = begin(Connect("c", V5, keep_alive_s=10))
    assert session.next_deadline == NOW + 15
    assert read(session.take_packet(PingReq(), NOW + 10)) == [PingResp()]
    assert session.due_actions(NOW + 24.9) == []
    (close,) = session.due_actions(NOW + 25)
    assert isinstance(close, Close)
    assert read(close.farewell) == [Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)]


def test_nothing_is_heard_after_a_close() -> None:
    session = begin()
    actions = session.take_packets([Disconnect(), PingReq(), Publish("a", b"")], NOW)
    assert len(actions) == 1
    assert session.take_packet(PingReq(), NOW) == []


def test_the_password_is_not_kept() -> None:
    session = begin(Connect("c", V5, username="u", password=b"secret"))
    kept = [getattr(session, name) for name in ServerSession.__slots__]
    assert not any("secret" in repr(value) or isinstance(value, Connect) for value in kept)


# --------------------------------------------------------------------------------------------------- wills


def with_will(delay_s: int | None = None, expiry_s: int = 100, **will: Any) -> Connect:
    return Connect(
        "c",
        V5,
        will=Will("w", b"", properties=Properties(will_delay_s=delay_s), **will),
        properties=Properties(session_expiry_s=expiry_s),
    )


def test_will_of_a_lost_connection_goes_at_once() -> None:
    session = begin(with_will())
    actions = session.disconnected(NOW)
    assert [type(action) for action in actions] == [PublishWill]
    assert session.due_actions(NOW + 100) == [SessionEnded()], "a will is published once"


@pytest.mark.parametrize(("code", "published"), [(0x00, False), (0x04, True), (0x80, True)])
def test_disconnect_discards_the_will_or_not(code: int, published: bool) -> None:
    session = begin(with_will())
    session.take_packet(Disconnect(code), NOW)
    assert any(isinstance(action, PublishWill) for action in session.disconnected(NOW)) is published


def test_a_protocol_error_publishes_the_will() -> None:
    session = begin(with_will())
    session.take_packet(PingResp(), NOW)
    assert [type(action) for action in session.disconnected(NOW)] == [PublishWill]


def test_will_delay_and_return_in_time() -> None:
    session = begin(with_will(delay_s=10))
    assert session.disconnected(NOW) == []
    assert session.next_deadline == NOW + 10
    session.take_connect(Connect("c", V5, clean_start=False), OFFER, NOW + 9)
    assert session.disconnected(NOW + 20) == [SessionEnded()]


def test_will_delay_ends_with_the_session() -> None:
    session = begin(with_will(delay_s=1000, expiry_s=5))
    session.disconnected(NOW)
    assert session.next_deadline == NOW + 5
    assert [type(action) for action in session.due_actions(NOW + 5)] == [PublishWill, SessionEnded]


def test_clean_start_of_a_successor_publishes_the_delayed_will() -> None:
    session = begin(with_will(delay_s=10))
    session.disconnected(NOW)
    assert [type(action) for action in session.end_session()] == [PublishWill, SessionEnded]
    assert session.end_session() == []


def test_a_will_beyond_the_servers_offer_refuses_the_connection() -> None:
    with pytest.raises(QosNotSupported):
        begin(with_will(qos=2), offer=ServerOffer(maximum_qos=1))
    with pytest.raises(RetainNotSupported):
        begin(with_will(retain=True), offer=ServerOffer(retain_available=False))


# ------------------------------------------------------------------------------------------------- inbound


def test_every_state_and_packet_has_an_entry_and_behaves_so() -> None:
    packets: list[Packet] = [
        Connect("c"), ConnAck(False), Publish("a", b"", 2, packet_id=1), PubAck(1), PubRec(1), PubRel(1), PubComp(1),
        Subscribe(1, (Subscription("a"),)), SubAck(1, (0,)), Unsubscribe(1, ("a",)), UnsubAck(1, (0,)), PingReq(),
        PingResp(), Disconnect(), Auth(0x18),
    ]  # fmt: skip
    assert set(TRANSITIONS) == set(itertools.product(Connection, map(type, packets)))
    refused = {Connect, ConnAck, SubAck, UnsubAck, PingResp, Auth}
    for state, packet in itertools.product(Connection, packets):
        session = begin()
        session.state = state
        actions = session.take_packet(packet, NOW)
        if state is not Connection.CONNECTED:
            assert actions == []
        elif type(packet) in refused:
            assert closes(actions) is ReasonCode.PROTOCOL_ERROR
        elif isinstance(packet, Disconnect):
            assert closes(actions) is ReasonCode.SUCCESS
        else:
            assert not any(isinstance(action, Close) for action in actions)


def test_qos_0_is_routed_and_needs_no_answer() -> None:
    session = begin()
    publish = Publish("a", b"x")
    assert session.take_packet(publish, NOW) == [publish]
    assert session.acknowledge(publish) == b""


@pytest.mark.parametrize("version", [V311, V5])
def test_qos_1_is_acknowledged_when_accepted(version: Version) -> None:
    session = begin(connect(version))
    publish = Publish("a", b"x", 1, packet_id=5)
    assert session.take_packet(publish, NOW) == [publish]
    assert read(session.acknowledge(publish), version) == [PubAck(5)]
    assert session.acknowledge(publish) == b"", "once"
    again = Publish("a", b"x", 1, dup=True, packet_id=5)
    assert session.take_packet(again, NOW) == [again], "after PUBACK it is a new message"


@pytest.mark.parametrize("version", [V311, V5])
def test_qos_2_is_routed_once(version: Version) -> None:
    session = begin(connect(version))
    publish = Publish("a", b"x", 2, packet_id=5)
    assert session.take_packet(publish, NOW) == [publish]
    assert session.take_packet(Publish("a", b"x", 2, dup=True, packet_id=5), NOW) == []
    assert read(session.acknowledge(publish), version) == [PubRec(5)]
    for _ in range(2):
        assert read(session.take_packet(Publish("a", b"x", 2, packet_id=5), NOW), version) == [PubRec(5)]
    assert read(session.take_packet(PubRel(5), NOW), version) == [PubComp(5)]
    unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version is V5 else 0
    assert read(session.take_packet(PubRel(5), NOW), version) == [PubComp(5, unknown)]


def test_qos_2_is_not_routed_again_after_a_reconnect() -> None:
    session = begin()
    publish = Publish("a", b"x", 2, packet_id=5)
    session.take_packet(publish, NOW)
    session.acknowledge(publish)
    session.disconnected(NOW)
    session.take_connect(connect(clean=False), OFFER, NOW)
    assert read(session.take_packet(Publish("a", b"x", 2, dup=True, packet_id=5), NOW)) == [PubRec(5)]
    session.disconnected(NOW)
    session.take_connect(connect(), OFFER, NOW)
    publish = Publish("a", b"x", 2, packet_id=5)
    assert session.take_packet(publish, NOW) == [publish], "a clean start forgets"


def test_accepted_while_the_client_was_away() -> None:
    session = begin()
    publish = Publish("a", b"x", 2, packet_id=5)
    session.take_packet(publish, NOW)
    session.disconnected(NOW)
    assert session.acknowledge(publish) == b""
    session.take_connect(connect(clean=False), OFFER, NOW)
    assert read(session.take_packet(Publish("a", b"x", 2, dup=True, packet_id=5), NOW)) == [PubRec(5)]


def test_refusal_of_a_message_reaches_version_5_only() -> None:
    for version, qos in itertools.product((V311, V5), (1, 2)):
        session = begin(connect(version))
        publish = Publish("a", b"x", qos, packet_id=5)
        session.take_packet(publish, NOW)
        (answer,) = read(session.acknowledge(publish, ReasonCode.NOT_AUTHORIZED), version)
        assert isinstance(answer, PubAck if qos == 1 else PubRec)
        assert answer.code == (0x87 if version is V5 else 0)
        if qos == 2:
            new = Publish("a", b"x", 2, packet_id=5)
            routed = new in session.take_packet(new, NOW)
            assert routed is (version is V5), "a refused identifier is free"


def test_receive_maximum_of_the_server() -> None:
    session = begin(offer=ServerOffer(receive_maximum=2))
    publishes = [Publish("a", b"", 1, packet_id=n) for n in (1, 2, 3)]
    actions = session.take_packets(publishes, NOW)
    assert actions[:2] == publishes[:2]
    assert closes(actions) is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    old = begin(connect(V311), offer=ServerOffer(receive_maximum=2))
    assert old.take_packets(publishes, NOW) == publishes
    assert old.inbound.full


def test_offer_is_enforced() -> None:
    session = begin(offer=ServerOffer(maximum_qos=1))
    assert closes(session.take_packet(Publish("a", b"", 2, packet_id=1), NOW)) is ReasonCode.QOS_NOT_SUPPORTED
    session = begin(offer=ServerOffer(retain_available=False))
    assert closes(session.take_packet(Publish("a", b"", 0, True), NOW)) is ReasonCode.RETAIN_NOT_SUPPORTED


def test_topic_aliases_of_the_client_last_as_long_as_the_connection() -> None:
    def aliased(topic: str, alias: int) -> Publish:
        return Publish(topic, b"", properties=Properties(topic_alias=alias))

    session = begin(offer=ServerOffer(topic_alias_maximum=1))
    topics = [one.topic for one in session.take_packets([aliased("a", 1), aliased("", 1)], NOW)]  # type: ignore[union-attr]
    assert topics == ["a", "a"]
    assert closes(session.take_packet(aliased("a", 2), NOW)) is ReasonCode.TOPIC_ALIAS_INVALID
    session.disconnected(NOW)
    session.take_connect(connect(clean=False), OFFER, NOW)
    assert closes(session.take_packet(aliased("", 1), NOW)) is ReasonCode.PROTOCOL_ERROR


def test_re_authentication_needs_the_method_of_connect() -> None:
    session = begin(connect(authentication_method="m"))
    auth = Auth(0x19, Properties(authentication_method="m"))
    assert session.take_packet(auth, NOW) == [auth]
    other = Auth(0x19, Properties(authentication_method="other"))
    assert closes(session.take_packet(other, NOW)) is ReasonCode.PROTOCOL_ERROR


# ------------------------------------------------------------------------------------------- subscriptions


def test_subscribe_grants_refuses_and_replaces() -> None:
    session = begin()
    packet = Subscribe(7, (Subscription("a", 2), Subscription("b", 1)), Properties(subscription_ids=(9,)))
    assert session.take_packet(packet, NOW) == [packet]
    granted = session.enter_granted(packet, (1, ReasonCode.NOT_AUTHORIZED))
    assert read(session.suback(7, granted.codes)) == [SubAck(7, (1, 0x87))]
    assert [(one.options.filter, one.options.qos, one.identifier) for one in granted.subscriptions] == [("a", 1, 9)]
    assert list(session.subscriptions) == ["a"]
    session.enter_granted(Subscribe(8, (Subscription("a", 0),)), (0,))
    assert session.subscriptions["a"].identifier == 0


@pytest.mark.parametrize(("handling", "expected"), [(0, [True, True]), (1, [True, False]), (2, [False, False])])
def test_retain_handling(handling: int, expected: list[bool]) -> None:
    session = begin()
    packet = Subscribe(1, (Subscription("a", retain_handling=handling),))
    assert [bool(session.enter_granted(packet, (0,)).retained) for _ in range(2)] == expected


def test_shared_subscriptions_get_no_retained_messages() -> None:
    granted = begin().enter_granted(Subscribe(1, (Subscription("$share/g/a"),)), (0,))
    assert granted.subscriptions
    assert not granted.retained


def test_number_of_subscriptions_is_bounded() -> None:
    session = begin(limits=SessionLimits(subscriptions=1))
    granted = session.enter_granted(Subscribe(1, (Subscription("a"), Subscription("b"), Subscription("a"))), (0, 0, 1))
    assert read(session.suback(1, granted.codes)) == [SubAck(1, (0, ReasonCode.QUOTA_EXCEEDED, 1))]


def test_unsubscribe() -> None:
    session = begin()
    session.enter_granted(Subscribe(1, (Subscription("a"),)), (0,))
    codes = session.remove_subscriptions(("a", "b", "a"))
    assert read(session.unsuback(2, codes)) == [UnsubAck(2, (0, 0x11, 0x11))]
    assert session.subscriptions == {}


# ------------------------------------------------------------------------------------------------ delivery


@pytest.mark.parametrize("version", [Version.V31, V311, V5])
def test_delivery_at_each_qos(version: Version) -> None:
    session = begin(Connect("c", version))
    one = Message("a", b"x", 2, properties=Properties(content_type="t"))
    sent = Properties(content_type="t") if version is V5 else Properties()
    assert read(session.deliver(one, 0, True, NOW), version) == [Publish("a", b"x", 0, True, properties=sent)]
    assert read(session.deliver(one, 1, False, NOW), version) == [Publish("a", b"x", 1, False, False, 1, sent)]
    assert read(session.deliver(one, 2, False, NOW), version) == [Publish("a", b"x", 2, False, False, 2, sent)]
    assert session.take_packet(PubAck(1), NOW) == []
    assert read(session.take_packet(PubRec(2), NOW), version) == [PubRel(2)]
    assert session.take_packet(PubComp(2), NOW) == []
    assert session.outbound.in_flight == 0
    assert session.held_bytes == 0


def test_subscription_identifiers_and_expiry_are_added_for_the_receiver() -> None:
    session = begin()
    one = Message("a", b"x", properties=Properties(user=(("k", "v"),)), expires_at=NOW + 60)
    (packet,) = read(session.deliver(one, 0, False, NOW + 10, (3, 200)))
    assert packet == Publish(
        "a", b"x", properties=Properties(message_expiry_s=50, subscription_ids=(3, 200), user=(("k", "v"),))
    )


def test_receive_maximum_of_the_client_bounds_what_is_in_flight() -> None:
    session = begin(connect(receive_maximum=2))
    assert [one.packet_id for one in send(session, 5)] == [1, 2]  # type: ignore[union-attr]
    assert len(session.waiting) == 3
    (third,) = read(session.take_packet(PubAck(1), NOW))
    assert isinstance(third, Publish)
    assert third.payload == b"\2"


def test_in_flight_messages_are_bounded_for_old_clients_too() -> None:
    session = begin(connect(V311), SessionLimits(in_flight_messages=3))
    assert len(send(session, 5)) == 3


def test_wrong_acknowledgement_closes_and_unknown_is_ignored() -> None:
    session = begin()
    send(session, 1, qos=2)
    assert session.take_packet(PubAck(9), NOW) == []
    assert read(session.take_packet(PubRec(9), NOW)) == [PubRel(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    assert session.take_packet(PubComp(9), NOW) == []
    assert closes(session.take_packet(PubAck(1), NOW)) is ReasonCode.PROTOCOL_ERROR


def test_a_refused_qos_2_message_is_done() -> None:
    session = begin(connect(receive_maximum=1))
    send(session, 2, qos=2)
    (second,) = read(session.take_packet(PubRec(1, ReasonCode.QUOTA_EXCEEDED), NOW))
    assert isinstance(second, Publish)
    assert second.packet_id == 2


def test_resume_repeats_in_order_with_dup_and_then_sends_what_waited() -> None:
    session = begin()
    send(session, 4, qos=2)
    session.take_packet(PubRec(2), NOW)
    session.take_packet(PubRec(1), NOW)
    session.disconnected(NOW)
    session.deliver(message(9), 1, False, NOW)
    connack, *rest = read(session.take_connect(connect(clean=False), OFFER, NOW))
    assert connack == ConnAck(True, 0, connack.properties)  # type: ignore[union-attr]
    assert rest[:2] == [PubRel(2), PubRel(1)]
    publishes = [one for one in rest if isinstance(one, Publish)]
    assert [(one.packet_id, one.dup, one.payload) for one in publishes] == [
        (3, True, b"\2"),
        (4, True, b"\3"),
        (5, False, b"\x09"),
    ]


def test_resume_with_a_smaller_receive_maximum() -> None:
    session = begin()
    send(session, 3)
    session.disconnected(NOW)
    out = read(session.take_connect(connect(clean=False, receive_maximum=1), OFFER, NOW))
    assert [one.packet_id for one in out if isinstance(one, Publish)] == [1]
    assert session.deliver(message(9), 1, False, NOW) is None
    for packet_id in (1, 2):
        (repeated,) = read(session.take_packet(PubAck(packet_id), NOW))
        assert isinstance(repeated, Publish)
        assert (repeated.packet_id, repeated.dup) == (packet_id + 1, True)
    (new,) = read(session.take_packet(PubAck(3), NOW))
    assert isinstance(new, Publish)
    assert not new.dup


def test_resume_in_another_version() -> None:
    session = begin()
    send(session, 1)
    session.disconnected(NOW)
    _, repeated = read(session.take_connect(connect(V311, clean=False), OFFER, NOW), V311)
    assert isinstance(repeated, Publish)
    assert repeated.dup


def test_qos_0_is_dropped_for_absent_and_slow_clients() -> None:
    session = begin()
    session.pause()
    assert session.deliver(message(1), 0, False, NOW) is None
    assert session.deliver(message(2), 1, False, NOW) is None
    assert session.take_packet(PubAck(9), NOW) == []
    (waited,) = read(session.resume(NOW))
    assert isinstance(waited, Publish)
    assert waited.payload == b"\2"
    session.disconnected(NOW)
    assert session.deliver(message(1), 0, False, NOW) is None
    assert session.figures.dropped_qos0 == 2


def test_a_full_queue_drops_the_oldest_waiting_and_counts() -> None:
    session = begin(limits=SessionLimits(queue_messages=2, in_flight_messages=1))
    send(session, 5)
    assert session.outbound.in_flight == 1
    assert [queued.message.payload for queued in session.waiting] == [b"\3", b"\4"]
    assert session.figures.dropped_queue_full == 2


def test_the_queue_is_bounded_in_bytes() -> None:
    one = message(0, 1000).held_bytes
    session = begin(limits=SessionLimits(queue_bytes=3 * one, in_flight_messages=1))
    for n in range(6):
        session.deliver(message(n, 1000), 1, False, NOW)
        assert session.held_bytes <= 3 * one
    assert [queued.message.payload[0] for queued in session.waiting] == [4, 5]
    session.deliver(message(7, 10_000), 1, False, NOW)
    assert len(session.waiting) == 2, "what can never fit displaces nothing"
    assert session.figures.dropped_queue_full == 4


def test_messages_too_large_for_the_client_are_dropped_and_the_next_goes() -> None:
    session = begin(connect(maximum_packet_size=200, receive_maximum=1))
    assert session.deliver(message(1, 500), 0, False, NOW) is None
    assert session.deliver(message(1, 500), 1, False, NOW) is None
    assert session.outbound.in_flight == 0
    session.deliver(message(2), 1, False, NOW)
    session.deliver(message(3, 500), 1, False, NOW)
    session.deliver(message(4), 1, False, NOW)
    (after,) = read(session.take_packet(PubAck(2), NOW))
    assert isinstance(after, Publish)
    assert after.payload == b"\4"
    assert session.figures.dropped_too_large == 3
    assert session.held_bytes == message(4).held_bytes


def test_in_flight_and_too_large_after_a_reconnect() -> None:
    session = begin()
    session.deliver(message(1, 500), 1, False, NOW)
    session.disconnected(NOW)
    out = session.take_connect(connect(clean=False, maximum_packet_size=100), OFFER, NOW)
    assert len(out) == 1
    assert (session.outbound.in_flight, session.held_bytes) == (0, 0)


def test_expired_messages_are_not_sent() -> None:
    session = begin()
    session.disconnected(NOW)
    session.deliver(message(1, expires_at=NOW + 5), 1, False, NOW)
    session.deliver(message(2, expires_at=NOW + 50), 1, False, NOW)
    _, second = read(session.take_connect(connect(clean=False), OFFER, NOW + 10))
    assert isinstance(second, Publish)
    assert (second.payload, second.properties.message_expiry_s) == (b"\2", 40)
    assert session.deliver(message(3, expires_at=NOW + 5), 0, False, NOW + 10) is None
    assert session.figures.dropped_expired == 2


def test_what_was_sent_once_is_repeated_even_when_expired() -> None:
    session = begin()
    session.deliver(message(1, expires_at=NOW + 5), 1, False, NOW)
    session.disconnected(NOW)
    _, again = read(session.take_connect(connect(clean=False), OFFER, NOW + 10))
    assert isinstance(again, Publish)
    assert again.dup
    assert again.properties.message_expiry_s == 0


def test_topic_aliases_towards_the_client() -> None:
    session = begin(connect(topic_alias_maximum=1))
    topics = []
    for topic in ("topic/number/1", "topic/number/1", "topic/number/2"):
        (packet,) = read(session.deliver(Message(topic, b""), 0, False, NOW))
        assert isinstance(packet, Publish)
        topics.append((packet.topic, packet.properties.topic_alias))
    assert topics == [("topic/number/1", 1), ("", 1), ("topic/number/2", None)]
    session.deliver(Message("topic/number/1", b""), 1, False, NOW)
    session.disconnected(NOW)
    _, again = read(session.take_connect(connect(clean=False), OFFER, NOW))
    assert isinstance(again, Publish)
    assert again.topic == "topic/number/1", "aliases end with the connection"


def test_an_alias_is_not_defined_by_a_packet_that_did_not_go() -> None:
    session = begin(connect(topic_alias_maximum=1, maximum_packet_size=100))
    assert session.deliver(Message("topic/number/1", bytes(200)), 0, False, NOW) is None
    (packet,) = read(session.deliver(Message("topic/number/1", b""), 0, False, NOW))
    assert isinstance(packet, Publish)
    assert packet.topic == "topic/number/1"


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 3)), max_size=12),
    st.sampled_from([V5, Version.V311]),
    st.integers(1, 3),
)
def test_the_short_way_of_a_message_is_the_long_one(
    steps: list[tuple[int, int]], version: Version, in_flight: int
) -> None:
    limits = SessionLimits(in_flight_messages=in_flight, queue_messages=2, queue_bytes=4 * message(0).held_bytes)
    long, short = ServerSession("c", limits), ServerSession("c", limits)
    for session in (long, short):
        session.take_connect(connect(version), OFFER, NOW)
    for number, (qos, acknowledged) in enumerate(steps):
        wanted = long.deliver(message(number, qos=qos), qos, False, NOW)
        given_now = short.send_at_once(message(number, qos=qos), qos)
        assert given_now in (wanted, None)
        if given_now is None:
            assert short.deliver(message(number, qos=qos), qos, False, NOW) == wanted
        # Closes, where it is of another flow, and otherwise lets the next one go.
        assert long.take_packet(PubAck(acknowledged), NOW) == short.take_packet(PubAck(acknowledged), NOW)
        assert (short.figures, short.held_bytes) == (long.figures, long.held_bytes)


def test_the_page_of_the_room_names_methods_that_there_are() -> None:
    page = Path(mqtt5.__file__).with_name("README.md").read_text("utf-8")
    named = set(re.findall(r"\bsession\.(\w+)\(", page))
    assert len(named) > 5
    assert {name for name in named if not hasattr(ServerSession, name)} == set()
