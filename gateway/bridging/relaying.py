"""Relay of QoS 2 exactly once through a bridge keeping nothing on disk: the bridge hands the handshake on.

    source          bridge          target
    PUBLISH 7  ->               ->  PUBLISH 7     both brokers keep identifier 7 on their disks
    PUBREC 7   <-               <-  PUBREC 7
    PUBREL 7   ->               ->  PUBREL 7      not before: a source without PUBREC repeats PUBLISH
    PUBCOMP 7  <-               <-  PUBCOMP 7     not before: a source with PUBCOMP gives 7 to another message

After a kill the bridge hears from the source the step reached, under the same identifier, and repeats that step. Here
are the session and the client passing handshakes on; `exact` decides the time. Source: MQTT 5.0 §4.3.3, §4.4.

PUBRELs that the other broker leaves without an answer, and when a bridge goes on without one. No I/O, time is
passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.client import MqttClient
from gateway.client.awaited import Acknowledgements, Awaiting
from gateway.client.redial import STABLE_S
from gateway.mqtt5.client_session import ClientAction, ClientSession, Completed, Connected
from gateway.mqtt5.delivery import Connection, Queued
from gateway.mqtt5.flows import HeardFlow, OutboundFlows
from gateway.mqtt5.packets import Packet, Properties, PubAck, PubComp, Publish, PubRec, PubRel, Version
from gateway.mqtt5.types import ReasonCode

ENDS_MAX = 3
"""Connections that the other broker ends on one packet: it will never take this packet. A broker of 3.1.1, or one that
does not state its bounds, has no other way to refuse it.
"""
ANSWER_S = 60.0
"""Seconds on one connection after which a PUBREL is left without its answer."""


class Releases:
    """The PUBRELs of a client towards its server, oldest first. `are_left`: the server has left one without an answer,
    and has answered none since that was repeated on a later connection.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._repeated: set[int] = set()
        self._suspect, self._ends = 0, 0
        self.are_left = False

    @property
    def due_at(self) -> float | None:
        """The time at which the oldest PUBREL is given up."""
        return next(iter(self._since.values())) + ANSWER_S if self._since else None

    @property
    def are_open(self) -> bool:
        """True if a PUBREL has no answer yet."""
        return bool(self._since)

    def sent(self, packet_id: int, now: float) -> None:
        """Notes a PUBREL."""
        self._since[packet_id] = now

    def begin_connection(self, has_session: bool, now: float) -> None:
        """Begins a new connection, on which open PUBRELs are repeated; without the session there are none."""
        self._since = dict.fromkeys(self._since, now) if has_session else {}
        self._repeated = set(self._since)

    def note_pubcomp(self, packet_id: int) -> None:
        """Notes a PUBCOMP."""
        self._since.pop(packet_id, None)
        if packet_id in self._repeated:
            self._repeated.discard(packet_id)
            self.are_left = False

    def count_connection_end(self) -> int | None:
        """Counts the end of a connection by the server. Returns the identifier of a PUBREL to give up, if the server
        ended one connection after the other on it: the oldest, since open PUBRELs are repeated first.
        """
        oldest = next(iter(self._since), None)
        if oldest is None:
            return None
        self._ends = self._ends + 1 if oldest == self._suspect else 1
        self._suspect = oldest
        if self._ends < ENDS_MAX and not self.are_left:
            return None
        self._give_up(oldest)
        return oldest

    def overdue(self, now: float) -> list[int]:
        """Returns the identifiers of PUBRELs to give up, since they have no answer for too long."""
        found = [packet_id for packet_id, since in self._since.items() if since + ANSWER_S <= now]
        for packet_id in found:
            self._give_up(packet_id)
        return found

    def _give_up(self, packet_id: int) -> None:
        del self._since[packet_id]
        self._repeated.discard(packet_id)
        self._suspect, self._ends = 0, 0
        self.are_left = True


WINDOW_3 = 20
"""The window towards a broker of 3.1.1, which cannot state its own: Mosquitto drops QoS 2 beyond 20 silently."""
_NO_MATTER_OF_A_MESSAGE = frozenset(
    {
        ReasonCode.SUCCESS, ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.SERVER_BUSY, ReasonCode.SESSION_TAKEN_OVER,
        ReasonCode.KEEP_ALIVE_TIMEOUT, ReasonCode.ADMINISTRATIVE_ACTION, ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
    }
)  # fmt: skip
"""Reasons for the end of a connection that are independent of the messages sent on it."""


@dataclass(frozen=True, slots=True)
class _Numbered(Awaiting):
    """Token of a message keeping the identifier of its source. `again`: a former process may have sent it."""

    packet_id: int = 0
    again: bool = False


class _Numbering(Acknowledgements):
    next: tuple[int, bool] | None = None

    def awaiting_for(
        self, on_ack: Callable[[], object] | None, on_refused: Callable[[int], None] | None, written_now: bool
    ) -> Awaiting:
        plain = super().awaiting_for(on_ack, on_refused, written_now)
        return plain if self.next is None else _Numbered(on_ack, on_refused, plain.written_at, *self.next)


class _Numbers(OutboundFlows[Queued]):
    def start(self, item: Queued, qos: int) -> int:
        token = item.token
        if not isinstance(token, _Numbered):
            return super().start(item, qos)
        self.unacknowledged = {**self.unacknowledged} if not self.unacknowledged else self.unacknowledged
        self.unacknowledged[token.packet_id] = (item, qos)
        self.quota -= 1
        return token.packet_id

    def begin_flow(self, item: Queued, qos: int) -> int:
        return self.start(item, qos) if self.may_start else 0

    def give_up_release(self, packet_id: int) -> None:
        self._give_back(self.released.pop(packet_id))


class RelaySession(ClientSession):
    """Session of a client that neither answers PUBREL nor follows PUBREC by itself.

    `wanted`: identifiers whose PUBREL came; `complete` answers. `over`: identifiers whose PUBCOMP came, or that a
    server without this session no longer knows. A message given to `publish` is Completed by its PUBREC already;
    `pubrel` sends the PUBREL, also for messages of a former process. `packet_bytes`: the largest packet to send,
    whatever the server states; None: no bound of ours.
    """

    packet_bytes: int | None = None

    def __init__(self, *of_session: Any, **more: Any) -> None:
        self.wanted: list[int] = []
        self.over: list[int] = []
        self._had: dict[int, bool] = {}  # PUBREC came, PUBREL is not due; value as in `outbound.released`
        super().__init__(*of_session, **more)

    def _clear_delivery(self) -> None:
        super()._clear_delivery()
        self.outbound = _Numbers(self.limits.in_flight_messages)

    @property
    def maximum_qos(self) -> int:
        """The maximum QoS the server last stated."""
        return self._maximum_qos

    def is_free(self, packet_id: int) -> bool:
        """True if this process does not use the identifier towards the server."""
        flows = self.outbound
        return not any(packet_id in used for used in (flows.unacknowledged, flows.released, flows.requests, self._had))

    @property
    def first_unacknowledged(self) -> tuple[object, int] | None:
        """The token and identifier of the oldest message the server has not acknowledged."""
        found = next(iter(self.outbound.unacknowledged.items()), None)
        return None if found is None else (found[1][0].token, found[0])

    def give_up(self, packet_id: int) -> None:
        """Stops sending an unacknowledged message."""
        self.take_back(packet_id)

    def give_up_release(self, packet_id: int) -> None:
        """Stops sending a PUBREL."""
        assert isinstance(self.outbound, _Numbers)
        self.outbound.give_up_release(packet_id)

    def pubrel(self, packet_id: int) -> bytes:
        """Returns the PUBREL, empty without a connection; repeats it on every new connection until its PUBCOMP
        comes.
        """
        self.outbound.released = {**self.outbound.released, packet_id: self._had.pop(packet_id, False)}
        return b"\x62\2" + packet_id.to_bytes(2, "big") if self.state is Connection.CONNECTED else b""

    def complete(self, packet_id: int) -> bytes:
        """Returns the PUBCOMP, empty without a connection: the server will then ask again."""
        self.inbound.awaiting_pubrel.pop(packet_id, None)
        return b"\x70\2" + packet_id.to_bytes(2, "big") if self.state is Connection.CONNECTED else b""

    def take_packets(self, packets: Iterable[Packet], now: float) -> list[ClientAction]:
        return super().take_packets(self._without_releases(packets), now)

    def _without_releases(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        for packet in packets:
            connected = self.state is Connection.CONNECTED
            if isinstance(packet, PubRel) and connected and packet.packet_id not in self.inbound.accepting:
                self.wanted.append(packet.packet_id)
            else:
                yield packet

    def _adopt_offer(self, offer: Properties) -> None:
        """Takes the server's limits. Half done handshakes still count at the server: after a reconnect, too, they use
        the quota.
        """
        if self.version != Version.V5:
            offer = replace(offer, receive_maximum=WINDOW_3)
        super()._adopt_offer(offer)
        self._maximum_packet_size = min(self._maximum_packet_size, self.packet_bytes or self._maximum_packet_size)
        flows = self.outbound
        flows.quota -= len(self._had) + len(flows.released)
        self._had = dict.fromkeys(self._had, True)
        flows.released = dict.fromkeys(flows.released, True)

    def disconnected(self, now: float) -> list[ClientAction]:
        self._had = dict.fromkeys(self._had, False)
        return super().disconnected(now)

    def _start_anew(self, actions: list[ClientAction]) -> None:
        self.over += [*self._had, *self.outbound.released]
        self._had.clear()
        self.wanted.clear()
        super()._start_anew(actions)

    def _take_acknowledgement(
        self, packet: PubAck | PubRec | PubComp, what: HeardFlow, now: float, actions: list[Any]
    ) -> None:
        packet_id = packet.packet_id
        if packet_id in self._had:
            return  # a repeated PUBREC; PUBREL follows in its time
        known = self.outbound.unacknowledged.get(packet_id)
        if what is HeardFlow.PUBREC and known is not None and known[1] == 2:
            self.outbound.take_acknowledgement(packet_id, what)
            self._in_flight_bytes -= known[0].size
            self._had[packet_id] = self.outbound.released.pop(packet_id)
            actions.append(Completed(known[0].token, ReasonCode.SUCCESS))
            return
        super()._take_acknowledgement(packet, what, now, actions)

    def _finished(self, packet: PubAck | PubRec | PubComp, queued: Queued | None, actions: list[Any]) -> None:
        if queued is None:
            self.over.append(packet.packet_id)
        else:
            super()._finished(packet, queued, actions)

    def _packet(self, queued: Queued, packet_id: int, dup: bool, now: float) -> bytes | None:
        token = queued.token
        return super()._packet(queued, packet_id, dup or (isinstance(token, _Numbered) and token.again), now)


class RelayClient(MqttClient):
    """Client passing handshakes on. `on_release`: PUBREL came. `on_complete`: PUBCOMP came, or the server's session is
    gone, and the identifier is free; or, with False, PUBREL was given up, and the server may still hold it.
    """

    def __init__(self, *of_client: Any, **options: Any) -> None:
        self.on_release: Callable[[int], object] = lambda _: None
        self.on_complete: Callable[[int, bool], object] = lambda _, __: None
        super().__init__(*of_client, **options)
        self.acks = self._numbering = _Numbering(self.figures)
        self._suspect: object = None
        self._ends = 0
        self._releases = Releases()
        self._alarm: asyncio.TimerHandle | None = None
        self._got_on = False  # the connection ended on a PUBREL that is not sent again

    def _new_session(self) -> ClientSession:
        return RelaySession(self._connect, self._limits, adopt=not self._connect.clean_start)

    def ask_again(self) -> None:
        """Subscribes to all wanted filters once more, so that the server sends its retained messages."""
        self._wanted.mark_all_unsent()
        self._send_wanted()

    @property
    def _relay(self) -> RelaySession:
        assert isinstance(self._session, RelaySession)
        return self._session

    def relay(
        self, publish: Publish, again: bool, on_ack: Callable[[], None], on_refused: Callable[[int], None]
    ) -> bool:
        """Publishes a message under its own identifier. False: not now. `again`: the message may be there already."""
        if not self.is_free(publish.packet_id):
            return False
        self._numbering.next = publish.packet_id, again
        qos = publish.qos if self.maximum_qos == 2 else min(publish.qos, 1)
        try:
            one = replace(publish, qos=qos)
            return self.publish(one.topic, one.payload, qos, one.retain, one.properties, on_ack, on_refused)
        finally:
            self._numbering.next = None

    def is_free(self, packet_id: int) -> bool:
        """True if this process does not use the identifier towards the server."""
        return self._relay.is_free(packet_id)

    @property
    def maximum_qos(self) -> int:
        """The maximum QoS the server last stated."""
        return self._relay.maximum_qos

    @property
    def leaves_releases(self) -> bool:
        """True if the server has left a PUBREL without an answer."""
        return self._releases.are_left

    def send_pubrel(self, packet_id: int) -> None:
        """Sends PUBREL until PUBCOMP comes, or the server proves to send none."""
        self._releases.sent(packet_id, self._now())
        self._write_if_any(self._relay.pubrel(packet_id))
        self._watch_releases()

    def complete(self, packet_id: int) -> None:
        """Answers PUBREL."""
        self._write_if_any(self._relay.complete(packet_id))

    def connection_lost(self, error: Exception | None) -> None:
        """Notes the packet on which one connection after the other ends, and gives it up: the oldest PUBREL without an
        answer, since these are repeated first, else the oldest message.
        """
        is_suspicious = self._up and self._task is not None and self.ended not in _NO_MATTER_OF_A_MESSAGE
        super().connection_lost(error)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not is_suspicious:
            return
        if self._releases.are_open:
            given_up = self._releases.count_connection_end()
            if given_up is not None:
                self._got_on = True
                self._give_up_release(given_up)
            return
        first = self._relay.first_unacknowledged
        if first is None:
            return
        token, packet_id = first
        self._ends = self._ends + 1 if token is self._suspect else 1
        self._suspect = token
        if self._ends >= ENDS_MAX:
            self._suspect = None
            self._relay.give_up(packet_id)
            self.acks.take_completed(Completed(token, ReasonCode.PACKET_TOO_LARGE))

    def _take_connack(self, action: Connected) -> None:
        self._releases.begin_connection(action.connack.session_present, self._now())
        super()._take_connack(action)
        self._watch_releases()

    def _watch_releases(self) -> None:
        if self._alarm is None and self._up and (due_at := self._releases.due_at) is not None:
            self._alarm = asyncio.get_running_loop().call_at(due_at, self._unanswered)

    def _unanswered(self) -> None:
        self._alarm = None
        for packet_id in self._releases.overdue(self._now()) if self._up else ():
            self._give_up_release(packet_id)
        self._watch_releases()

    def _give_up_release(self, packet_id: int) -> None:
        session = self._relay
        session.give_up_release(packet_id)
        self.on_complete(packet_id, False)
        if self._up and not session.paused:  # its place in the window is free
            for data in session.resume(self._now()):
                self._write(data)

    async def _connection(self) -> float | None:
        """Runs a connection. One that got past a packet counts as good: the next attempt follows at once."""
        self._got_on = False
        up_s = await super()._connection()
        return up_s if up_s is None or not self._got_on else max(up_s, STABLE_S)

    def _write_if_any(self, data: bytes) -> None:
        if data:
            self._write(data)

    def _perform_actions(self, actions: Sequence[ClientAction]) -> None:
        super()._perform_actions(actions)
        session = self._relay
        wanted, session.wanted = session.wanted, []
        over, session.over = session.over, []
        for packet_id in over:
            self._releases.note_pubcomp(packet_id)
            self.on_complete(packet_id, True)
        for packet_id in wanted:
            self.on_release(packet_id)
