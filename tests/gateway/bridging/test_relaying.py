"""The session that lets QoS 2 handshakes pass, and nothing of which it ends by itself."""

from __future__ import annotations

from typing import Any

from gateway.bridging.relaying import RelaySession, _Numbered
from gateway.mqtt5.client_session import Completed
from gateway.mqtt5.packets import ConnAck, Connect, PubComp, Publish, PubRec, PubRel, Version


def connected(session: RelaySession, present: bool) -> list[Any]:
    session.open(0.0)
    return session.received_all([ConnAck(present, 0)], 0.0)


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
    assert session.received_all([PubRec(700)], 0.0) == [Completed(token(700), 0)]
    assert session.received_all([PubRec(700)], 0.0) == []
    assert not session.is_free(700)
    assert session.release(700) == b"\x62\2\x02\xbc"
    session.received_all([PubComp(700)], 0.0)
    assert session.over == [700]
    assert session.is_free(700)
    assert sent(session, 7, again=True)[0] & 0x08


def test_a_cut_before_the_release_repeats_nothing_and_after_it_the_release() -> None:
    session = made()
    sent(session, 7)
    session.received_all([PubRec(7)], 0.0)
    session.disconnected(0.0)
    assert [each for each in connected(session, True) if isinstance(each, bytes)] == []
    session.release(7)
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
    session.received_all([PubRec(7)], 0.0)
    session.release(8)  # of a former process
    session.disconnected(0.0)
    connected(session, False)
    assert sorted(session.over) == [7, 8]
    assert session.is_free(7)


def test_pubrel_waits_for_complete_and_pubrec_for_acknowledge() -> None:
    session = made()
    (publish,) = session.received_all([Publish("a", b"x", 2, packet_id=7)], 0.0)
    assert isinstance(publish, Publish)
    assert session.acknowledge(publish) == b"\x50\2\x00\x07"
    assert session.received_all([PubRel(7)], 0.0) == []
    assert session.wanted == [7]
    assert session.complete(7) == b"\x70\2\x00\x07"
    assert isinstance(session.received_all([Publish("a", b"y", 2, packet_id=7)], 0.0)[0], Publish)
