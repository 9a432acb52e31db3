"""The session that lets QoS 2 handshakes pass, and nothing of which it ends by itself.

PUBRELs without an answer: counted by connections that end on them, and by time, until one is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from gateway.bridging.relaying import ANSWER_S, ENDS_MAX, RelaySession, Releases, _Numbered
from gateway.client import redial
from gateway.mqtt5.client_session import Completed
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.encoding import encode
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Version,
)
from tests.gateway.harness import Leap, Wire, on_loop, serving
from tests.gateway.test_bridged import bridged, toward, up
from tests.waits import until


def opened(*packet_ids: int) -> Releases:
    found = Releases()
    for packet_id in packet_ids:
        found.sent(packet_id, 0.0)
    return found


def test_the_oldest_is_given_up_at_the_last_of_several_ends_and_the_next_at_once() -> None:
    one = opened(7, 8)
    assert [one.count_connection_end() for _ in range(ENDS_MAX)] == [None, None, 7]
    assert one.are_left
    assert one.count_connection_end() == 8
    assert one.count_connection_end() is None
    assert not one.are_open


def test_an_answer_between_two_ends_makes_the_count_begin_anew() -> None:
    one = opened(7)
    assert one.count_connection_end() is None
    one.note_pubcomp(7)
    one.sent(8, 0.0)
    assert [one.count_connection_end() for _ in range(ENDS_MAX)] == [None, None, 8]


def test_an_answer_to_a_repeated_one_shows_that_the_server_answers_and_a_new_session_shows_nothing() -> None:
    for has_session in (True, False):
        one = opened(7, 8)
        assert [one.count_connection_end() for _ in range(ENDS_MAX)][-1] == 7
        one.begin_connection(has_session, 1.0)
        one.note_pubcomp(8)
        assert one.are_left is not has_session
        assert not one.are_open


def test_one_that_has_no_answer_for_long_is_given_up_and_a_new_connection_begins_the_time_anew() -> None:
    one = opened(7)
    one.begin_connection(True, 10.0)
    one.sent(8, 20.0)
    assert one.due_at == 10.0 + ANSWER_S
    assert one.overdue(9.0 + ANSWER_S) == []
    assert one.overdue(10.0 + ANSWER_S) == [7]
    assert one.due_at == 20.0 + ANSWER_S
    assert one.are_left


class Deaf:
    """A broker of MQTT 3.1.1 with a session for its client that does not answer PUBREL. `closes`: it closes instead.

    `had`: identifiers and contents of messages that it took. It hands a message on by PUBLISH, once until PUBREL.
    """

    def __init__(self, closes: bool) -> None:
        self._closes = closes
        self._held: set[int] = set()
        self.had: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder(None, role="server")
        while data := await reader.read(65_536):
            for packet in decoder.feed(data):
                if isinstance(packet, PubRel):
                    self._held.discard(packet.packet_id)
                    if self._closes:
                        writer.close()
                        return
                for answer in self._answers(packet):
                    writer.write(encode(answer, Version.V311))
            if decoder.error is not None:  # our own level
                writer.write(encode(ConnAck(False, 1), Version.V311))
                writer.close()

    def _answers(self, packet: Packet) -> list[Packet]:
        match packet:
            case Connect():
                return [ConnAck(code=1, session_present=False) if packet.is_kin else ConnAck(True)]
            case Subscribe():
                return [SubAck(packet.packet_id, tuple(one.qos for one in packet.subscriptions))]
            case Publish() if packet.qos == 2:
                self.had += [packet.payload] * (packet.packet_id not in self._held)
                self._held.add(packet.packet_id)
                return [PubRec(packet.packet_id)]
            case Publish() if packet.qos:
                return [PubAck(packet.packet_id)]
        return []


@pytest.mark.parametrize("closes", [True, False])
@on_loop
async def test_a_broker_that_never_answers_pubrel_gets_each_message_once_and_stops_nothing(
    closes: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redial, "RETRY_FIRST_S", 0.01)
    leap, deaf = Leap(), Deaf(closes)
    server = await asyncio.start_server(deaf.serve, "127.0.0.1", 0)
    way: Any = toward(server.sockets[0].getsockname()[1], "out", "3.1.1", 2, keep_alive_s=65_535)
    words = [b"%d" % number for number in range(30)]
    async with serving() as a, contextlib.AsyncExitStack() as stack:
        await up(await bridged(stack, a, "a", m=way))
        writer = await Wire.connect(a)
        completed = 0
        for word in words:
            packet_id = writer.publish("x/1", word, 2)
            await writer.barrier()
            writer.send(PubRel(packet_id))
            completed += sum(isinstance(one, PubComp) for one in await writer.barrier())

        def came() -> bool:
            leap.ahead_s += 0.0 if closes else ANSWER_S / 4
            return len(deaf.had) >= len(words)

        await until(came)
    assert completed == len(words)
    assert sorted(deaf.had) == sorted(words)
    assert caplog.text.count("does not answer PUBREL") == 1
    server.close()


def connected(session: RelaySession, present: bool) -> list[Any]:
    session.open(0.0)
    return session.take_packets([ConnAck(present, 0)], 0.0)


def made(present: bool = True) -> RelaySession:
    session = RelaySession(Connect("bridge", Version.V5, False), adopt=True)
    connected(session, present)
    return session


def token(packet_id: int, again: bool = False) -> _Numbered:
    return _Numbered(None, None, None, packet_id, again)


def sent(session: RelaySession, packet_id: int, again: bool = False) -> bytes:
    data = session.publish(Publish("a", b"x", 2), token(packet_id, again), 0.0)
    assert data is not None
    return data


def test_a_message_keeps_its_identifier_and_pubrec_is_not_followed_by_pubrel() -> None:
    session = made()
    data = sent(session, 700)
    assert data[0] & 0x08 == 0
    assert data[5:7] == (700).to_bytes(2, "big")
    assert not session.is_free(700)
    assert session.take_packets([PubRec(700)], 0.0) == [Completed(token(700), 0)]
    assert session.take_packets([PubRec(700)], 0.0) == []
    assert not session.is_free(700)
    assert session.pubrel(700) == b"\x62\2\x02\xbc"
    session.take_packets([PubComp(700)], 0.0)
    assert session.over == [700]
    assert session.is_free(700)
    assert sent(session, 7, again=True)[0] & 0x08


def test_a_cut_before_the_release_repeats_nothing_and_after_it_the_release() -> None:
    session = made()
    sent(session, 7)
    session.take_packets([PubRec(7)], 0.0)
    session.disconnected(0.0)
    assert [each for each in connected(session, True) if isinstance(each, bytes)] == []
    session.pubrel(7)
    session.disconnected(0.0)
    assert b"\x62\2\x00\x07" in connected(session, True)


def test_a_cut_before_pubrec_repeats_the_message_and_a_lost_session_sends_it_as_new() -> None:
    for present in (True, False):
        session = made()
        sent(session, 7)
        session.disconnected(0.0)
        (data,) = [each for each in connected(session, present) if isinstance(each, bytes)]
        assert bool(data[0] & 0x08) is present
        assert data[5:7] == b"\x00\x07"


def test_a_server_without_our_session_is_done_with_what_it_acknowledged() -> None:
    session = made()
    sent(session, 7)
    session.take_packets([PubRec(7)], 0.0)
    session.pubrel(8)  # of a former process
    session.disconnected(0.0)
    connected(session, False)
    assert sorted(session.over) == [7, 8]
    assert session.is_free(7)


def test_pubrel_waits_for_complete_and_pubrec_for_acknowledge() -> None:
    session = made()
    (publish,) = session.take_packets([Publish("a", b"x", 2, packet_id=7)], 0.0)
    assert isinstance(publish, Publish)
    assert session.acknowledge(publish) == b"\x50\2\x00\x07"
    assert session.take_packets([PubRel(7)], 0.0) == []
    assert session.wanted == [7]
    assert session.complete(7) == b"\x70\2\x00\x07"
    assert isinstance(session.take_packets([Publish("a", b"y", 2, packet_id=7)], 0.0)[0], Publish)
