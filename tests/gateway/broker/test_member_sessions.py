"""Between members and us: acknowledgements that may be held back, and queues of a bound of their own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.broker.member_sessions import hear_acks, published, recognised, send
from gateway.clients import Client, PeerMessage, PeerRefusal, Reached
from gateway.mqtt5.actions import ServerOffer, SessionLimits
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.packets import Connect, Packet, PingReq, Properties, PubAck, Publish, Version
from gateway.mqtt5.session import ServerSession
from gateway.mqtt5.types import MqttError, ReasonCode
from gateway.plugins import EdgeSession
from gateway.sockets.flushing import UNACKNOWLEDGED

NOW = 1000.0


class Connection:
    def __init__(self) -> None:
        self.written, self.said = b"", list[tuple[str, int]]()

    def write(self, data: bytes) -> None:
        self.written += data

    def pause(self, why: int) -> None:
        self.said.append(("pause", why))

    def resume(self, why: int) -> None:
        self.said.append(("resume", why))

    def packets(self) -> list[Packet]:
        data, self.written = self.written, b""
        return Decoder(Version.V5, role="client").feed(data)


class Overlay:
    """Holds acknowledgements back as it is told: None: not at all; else whether the member is read on."""

    def __init__(self, reads_on: bool | None) -> None:
        self._reads_on, self.heard = reads_on, list[str]()
        self.done: Callable[[int], None] = lambda code: None

    def peer_published(self, peer: str, publish: Publish) -> Callable[[Any], bool] | None:
        self.heard.append(peer)
        return None if self._reads_on is None else self._hold

    def _hold(self, done: Callable[[int], None]) -> bool:
        self.done = done
        return bool(self._reads_on)


def member(limits: SessionLimits | None = None, **connect: Any) -> tuple[Client, Connection]:
    client, connection = Client(ServerSession("r1", limits), EdgeSession()), Connection()
    client.peer, client.connection = "r1", connection  # type: ignore[assignment]
    client.session.take_connect(Connect("r1", properties=Properties(**connect)), ServerOffer(), NOW)
    return client, connection


def take(client: Client) -> Publish:
    publish = Publish("t", b"x", 1, packet_id=3)
    client.session.take_packets([publish], NOW)
    return publish


def message(size: int = 1) -> PeerMessage:
    made = PeerMessage("t", bytes(size), 1)
    made.on_ack = lambda code: None
    return made


def test_what_the_overlay_refuses_is_answered_with_code_and_reason() -> None:
    client, connection = member()
    said = PeerRefusal(ReasonCode.QUOTA_EXCEEDED, Properties(user=(("why", "budget"),)))
    overlay = SimpleNamespace(peer_published=lambda peer, publish: said)
    published(client, take(client), overlay)  # type: ignore[arg-type]
    (answer,) = connection.packets()
    assert isinstance(answer, PubAck)
    assert (answer.packet_id, answer.code, answer.properties) == (3, said.code, said.properties)


def test_what_the_overlay_takes_is_acknowledged_at_once() -> None:
    client, connection = member()
    overlay = Overlay(None)
    published(client, take(client), overlay)  # type: ignore[arg-type]
    assert overlay.heard == ["r1"]
    assert connection.packets() == [PubAck(3)]
    assert connection.said == [("resume", UNACKNOWLEDGED)]


def test_what_is_held_back_is_acknowledged_later_and_may_stop_reading() -> None:
    for reads_on in (True, False):
        client, connection = member()
        overlay = Overlay(reads_on)
        published(client, take(client), overlay)  # type: ignore[arg-type]
        assert connection.packets() == []
        assert connection.said == ([] if reads_on else [("pause", UNACKNOWLEDGED)])
        overlay.done(0x97)
        assert connection.packets() == [PubAck(3, 0x97)]
        assert connection.said[-1] == ("resume", UNACKNOWLEDGED)


def test_a_member_that_is_gone_is_not_acknowledged() -> None:
    client, connection = member()
    overlay = Overlay(False)
    publish = take(client)
    client.connection = None
    published(client, publish, overlay)  # type: ignore[arg-type]
    overlay.done(0)
    assert (connection.written, connection.said) == (b"", [])


def test_a_message_leaves_and_its_acknowledgement_is_told_once() -> None:
    client, connection = member()
    one, told = message(), list[int]()
    one.on_ack = told.append
    assert send(client, one, NOW, Reached(lambda: NOW))
    (publish,) = connection.packets()
    assert isinstance(publish, Publish)
    hear_acks(client, [PingReq(), PubAck(99), PubAck(publish.packet_id, 0x10)])
    assert told == [0x10]
    client.session.take_packets([PubAck(publish.packet_id)], NOW)
    hear_acks(client, [PubAck(publish.packet_id)])
    assert told == [0x10]


def test_a_full_queue_takes_no_more_and_loses_nothing_for_it() -> None:
    reached = Reached(lambda: NOW)
    client, _ = member(SessionLimits(in_flight_messages=1, queue_messages=2))
    assert [send(client, message(), NOW, reached) for _ in range(4)] == [True, True, True, False]
    assert reached.counts["member_queue_messages"] == 1
    size = message(1000).held_bytes
    client, _ = member(SessionLimits(queue_bytes=2 * size))
    assert [send(client, message(1000), NOW, reached) for _ in range(3)] == [True, True, False]
    assert reached.counts["member_queue_bytes"] == 1
    assert client.session.figures.dropped_queue_full == 0


def test_what_is_too_large_for_the_member_is_not_taken() -> None:
    client, connection = member(maximum_packet_size=100)
    assert not send(client, message(200), NOW, Reached(lambda: NOW))
    assert send(client, message(10), NOW, Reached(lambda: NOW))
    assert len(connection.packets()) == 1


class Members:
    """Knows one member, by its certificate and its name."""

    def recognise(self, certificate: bytes, client_id: str) -> str | None:
        return "r1" if (certificate, client_id) == (b"of r1", "north") else None


def shows(certificate: bytes | None) -> Any:
    return SimpleNamespace(getpeercert=lambda binary_form: certificate if binary_form else {})


def test_a_member_is_known_by_its_certificate() -> None:
    assert recognised(shows(b"of r1"), Connect("north"), Members()) == "r1"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tls", "connect", "code"),
    [
        (None, Connect("north"), ReasonCode.NOT_AUTHORIZED),
        (shows(None), Connect("north"), ReasonCode.NOT_AUTHORIZED),
        (shows(b"of r2"), Connect("north"), ReasonCode.NOT_AUTHORIZED),
        (shows(b"of r1"), Connect("south"), ReasonCode.NOT_AUTHORIZED),
        (shows(b"of r1"), Connect("north", version=Version.V311), ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    ],
)
def test_who_shows_no_certificate_of_a_member_or_speaks_an_older_mqtt_is_none(
    tls: Any, connect: Connect, code: ReasonCode
) -> None:
    with pytest.raises(MqttError) as refused:
        recognised(tls, connect, Members())  # type: ignore[arg-type]
    assert refused.value.reason == code
