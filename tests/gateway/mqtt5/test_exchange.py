"""What both ends of a session do alike: acknowledgements in order, once, and repetition on a reconnect."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.mqtt5.actions import SessionLimits
from gateway.mqtt5.aliases import InboundAliases
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.delivery import Connection, Queued
from gateway.mqtt5.exchange import SessionExchange
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Packet, Properties, PubAck, PubComp, Publish, PubRec, PubRel, Version
from gateway.mqtt5.types import MqttError, ReasonCode, TopicAliasInvalid

NOW = 1000.0
V311, V5 = Version.V311, Version.V5


class Ends(SessionExchange):
    """With the two steps that only a server or a client knows written down."""

    def __init__(self, version: Version = V5) -> None:
        super().__init__(SessionLimits(in_flight_messages=2))
        self.state, self.version = Connection.CONNECTED, version
        self.outbound.reconnected(10)
        self.half: list[int] = []
        self.over: list[tuple[int, bool]] = []

    def _half_finished(self, packet_id: int, queued: Queued) -> None:
        self.half.append(packet_id)

    def _finished(self, packet: PubAck | PubRec | PubComp, queued: Queued | None, actions: list[Any]) -> None:
        self.over.append((packet.packet_id, queued is not None))

    def take(self, publish: Publish) -> list[Any]:
        actions: list[Any] = []
        self._take_publish(publish, actions)
        return actions

    def hear(self, packet: PubAck | PubRec | PubComp | PubRel) -> list[Any]:
        actions: list[Any] = []
        on = {PubAck: self._on_puback, PubRec: self._on_pubrec, PubComp: self._on_pubcomp, PubRel: self._on_pubrel}
        on[type(packet)](packet, NOW, actions)  # type: ignore[operator]
        return actions


def read(data: bytes, version: Version = V5) -> list[Packet]:
    return Decoder(version, role="client").feed(data)


def publish(packet_id: int = 1, qos: int = 1, **fields: Any) -> Publish:
    return Publish("t", b"x", qos, packet_id=packet_id if qos else 0, **fields)


def sends(one: Ends, qos: int, count: int = 1) -> None:
    for _ in range(count):
        one.deliver(Message("t", b"x"), qos, False, NOW)


# ----------------------------------------------------------------------------------------------- inbound


@pytest.mark.parametrize("version", [V311, V5])
def test_each_message_is_acknowledged_once_when_it_is_dealt_with(version: Version) -> None:
    one = Ends(version)
    for qos, said in ((0, b""), (1, b"\x40\2\0\1"), (2, b"\x50\2\0\2")):
        message = publish(max(qos, 1), qos)
        assert one.take(message) == [message]
        assert one.acknowledge(message) == said
        assert one.acknowledge(message) == b""


def test_a_refusal_is_said_where_there_are_words_for_it() -> None:
    for qos, kind in ((1, PubAck), (2, PubRec)):
        one, old, message = Ends(), Ends(V311), publish(1, qos)
        one.take(message)
        assert read(one.acknowledge(message, ReasonCode.QUOTA_EXCEEDED)) == [kind(1, ReasonCode.QUOTA_EXCEEDED)]
        old.take(message)
        assert read(old.acknowledge(message, ReasonCode.QUOTA_EXCEEDED), V311) == [kind(1)]
    one = Ends()
    message = publish(1, 2)
    one.take(message)
    one.acknowledge(message, ReasonCode.QUOTA_EXCEEDED)
    assert one.take(publish(1, 2)), "what was refused is over: its identifier may carry the next"


def test_an_acknowledgement_is_for_the_connection_that_the_message_came_on() -> None:
    one, message = Ends(), publish()
    one.take(message)
    one.state = Connection.OFFLINE
    assert one.acknowledge(message) == b""


def test_qos_2_is_routed_once_however_often_it_is_repeated() -> None:
    one, message = Ends(), publish(1, 2)
    assert one.take(message) == [message]
    assert one.take(publish(1, 2, dup=True)) == [], "it is being accepted"
    assert one.acknowledge(message) == b"\x50\2\0\1"
    assert one.take(publish(1, 2, dup=True)) == [b"\x50\2\0\1"]
    assert read(one.hear(PubRel(1))[0]) == [PubComp(1)]
    assert read(one.hear(PubRel(1))[0]) == [PubComp(1, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


def test_many_are_acknowledged_as_they_are_one_by_one() -> None:
    def messages() -> list[Publish]:
        return [publish(n, (1, 2, 1, 0, 1)[n - 1]) for n in range(1, 6)]

    for acknowledged, offline in ((0, False), (2, False), (0, True)):
        one, other = Ends(), Ends()
        for each in (one, other):
            taken = messages()
            for message in taken:
                each.take(message)
            for message in taken[:acknowledged]:
                each.acknowledge(message)
            each.state = Connection.OFFLINE if offline else Connection.CONNECTED
            said = each.acknowledge_all(taken) if each is one else b"".join(map(each.acknowledge, taken))
            assert bool(said) is not offline
            if each is one:
                first = said
        assert sorted(first.hex(" ", 4).split()) == sorted(said.hex(" ", 4).split())


def test_an_alias_is_resolved_and_one_that_was_never_defined_is_refused() -> None:
    one = Ends()
    one._aliases_in = InboundAliases(3)
    one.take(Publish("topic", b"", properties=Properties(topic_alias=3)))
    (known,) = one.take(Publish("", b"", properties=Properties(topic_alias=3)))
    assert known.topic == "topic"
    with pytest.raises(TopicAliasInvalid):
        one.take(Publish("topic", b"", properties=Properties(topic_alias=4)))
    with pytest.raises(MqttError):
        one.take(Publish("", b"", properties=Properties(topic_alias=2)))


# ---------------------------------------------------------------------------------------------- outbound


def test_a_puback_ends_a_flow_and_lets_the_next_go() -> None:
    one = Ends()
    sends(one, 1, 3)
    (data,) = one.hear(PubAck(1))
    (following,) = read(data)
    assert isinstance(following, Publish)
    assert one.over == [(1, True)]
    assert one.held_bytes == 2 * Message("t", b"x").held_bytes
    assert one.hear(PubAck(1)) == [], "heard before"
    assert one.over == [(1, True)]


def test_qos_2_takes_two_steps_and_its_message_is_needed_in_the_first_only() -> None:
    one = Ends()
    sends(one, 2)
    assert one.hear(PubRec(1)) == [b"\x62\2\0\1"]
    assert (one.half, one.over, one.held_bytes) == ([1], [], 0)
    assert one.hear(PubRec(1)) == [b"\x62\2\0\1"], "our PUBREL was lost"
    assert one.half == [1]
    assert one.hear(PubComp(1)) == []
    assert one.over == [(1, False)]


def test_a_refused_message_is_over_at_once() -> None:
    one = Ends()
    sends(one, 2)
    assert one.hear(PubRec(1, ReasonCode.QUOTA_EXCEEDED)) == []
    assert (one.over, one.held_bytes) == ([(1, True)], 0)


def test_a_pubrec_of_nothing_is_answered_so() -> None:
    one = Ends()
    assert read(one.hear(PubRec(7))[0]) == [PubRel(7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    assert read(Ends(V311).hear(PubRec(7))[0], V311) == [PubRel(7)]


def test_a_reconnect_repeats_pubrels_then_publishes_then_sends_what_waited() -> None:
    one = Ends()
    sends(one, 2)
    one.hear(PubRec(1))
    sends(one, 1, 2)
    one.state = Connection.OFFLINE
    one.outbound.reconnected(10)
    one.state = Connection.CONNECTED
    said: list[bytes] = []
    one._resume(NOW, said.append)
    packets = [packet for data in said for packet in read(data)]
    assert packets[0] == PubRel(1)
    assert [(p.packet_id, p.dup) for p in packets[1:] if isinstance(p, Publish)] == [(2, True)]
    assert one.figures.repeated == 2
    (waited,) = read(one.hear(PubComp(1))[0])
    assert isinstance(waited, Publish)
    assert (waited.packet_id, waited.dup) == (3, False)
