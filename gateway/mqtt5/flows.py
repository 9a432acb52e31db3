"""QoS 1 and 2 flows by packet identifier, for either end of a connection. No bytes, no I/O.

`OutboundFlows` is the sender of MQTT 5.0 §4.3 with its send quota (§4.9), `InboundFlows` the receiver. Transitions
are data (`OUTBOUND`, `INBOUND`); `session.ServerSession` and `client_session.ClientSession` decide the effect of a
packet on the rest of a session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, auto
from typing import Any, Generic, NamedTuple, TypeVar

from gateway.mqtt5.packets import NO_PROPERTIES, Publish
from gateway.mqtt5.types import MAXIMUM_PACKET_ID, ProtocolViolation, ReceiveMaximumExceeded


class FlowStage(IntEnum):
    """Stage of the flow of a packet identifier. FREE: no flow uses it.

    ACCEPTING: a message came, was handed to the application and is not yet acknowledged.
    """

    FREE = auto()
    AWAIT_PUBACK = auto()
    AWAIT_PUBREC = auto()
    AWAIT_PUBCOMP = auto()
    ACCEPTING_1 = auto()
    ACCEPTING_2 = auto()
    AWAIT_PUBREL = auto()


class HeardFlow(IntEnum):
    """Packet the peer sent with a packet identifier.

    PUBREC_REFUSED: PUBREC with a code of 0x80 or more. PUBLISH_1_DUP: PUBLISH of QoS 1 with DUP set.
    """

    PUBACK = auto()
    PUBREC = auto()
    PUBREC_REFUSED = auto()
    PUBCOMP = auto()
    PUBLISH_1 = auto()
    PUBLISH_1_DUP = auto()
    PUBLISH_2 = auto()
    PUBREL = auto()


class Answer(IntEnum):
    """Reaction to a packet. VIOLATION ends the connection; the others name a packet to send or a receiver to tell."""

    NOTHING = auto()
    DONE = auto()  # outbound flow complete
    SEND_PUBREL = auto()
    SEND_PUBREL_UNKNOWN = auto()
    ROUTE = auto()  # a new application message
    SEND_PUBREC = auto()
    SEND_PUBCOMP = auto()
    SEND_PUBCOMP_UNKNOWN = auto()
    VIOLATION = auto()


class FlowStep(NamedTuple):
    """Step of a flow: the next stage, and the answer."""

    next: FlowStage
    answer: Answer


_S, _H, _A = FlowStage, HeardFlow, Answer
_WRONG = FlowStep(_S.FREE, _A.VIOLATION)

# Sender (§4.3.2, §4.3.3). An acknowledgement of a free identifier is not an error: it may answer a message of
# this side's lost session. An acknowledgement of another QoS than the flow's is an error.
OUTBOUND: dict[tuple[FlowStage, HeardFlow], FlowStep] = {
    (_S.FREE, _H.PUBACK): FlowStep(_S.FREE, _A.NOTHING),
    (_S.FREE, _H.PUBREC): FlowStep(_S.FREE, _A.SEND_PUBREL_UNKNOWN),
    (_S.FREE, _H.PUBREC_REFUSED): FlowStep(_S.FREE, _A.NOTHING),
    (_S.FREE, _H.PUBCOMP): FlowStep(_S.FREE, _A.NOTHING),
    (_S.AWAIT_PUBACK, _H.PUBACK): FlowStep(_S.FREE, _A.DONE),
    (_S.AWAIT_PUBACK, _H.PUBREC): _WRONG,
    (_S.AWAIT_PUBACK, _H.PUBREC_REFUSED): _WRONG,
    (_S.AWAIT_PUBACK, _H.PUBCOMP): _WRONG,
    (_S.AWAIT_PUBREC, _H.PUBACK): _WRONG,
    (_S.AWAIT_PUBREC, _H.PUBREC): FlowStep(_S.AWAIT_PUBCOMP, _A.SEND_PUBREL),
    (_S.AWAIT_PUBREC, _H.PUBREC_REFUSED): FlowStep(_S.FREE, _A.DONE),
    (_S.AWAIT_PUBREC, _H.PUBCOMP): _WRONG,
    (_S.AWAIT_PUBCOMP, _H.PUBACK): _WRONG,
    (_S.AWAIT_PUBCOMP, _H.PUBREC): FlowStep(_S.AWAIT_PUBCOMP, _A.SEND_PUBREL),
    (_S.AWAIT_PUBCOMP, _H.PUBREC_REFUSED): FlowStep(_S.FREE, _A.DONE),
    (_S.AWAIT_PUBCOMP, _H.PUBCOMP): FlowStep(_S.FREE, _A.DONE),
}

# Receiver. At QoS 2 a PUBLISH on an identifier whose PUBREL has not come is the same message again, whatever
# its DUP flag says (MQTT-4.3.3-10). QoS 1 has no memory beyond our PUBACK (MQTT-4.3.2-5); before it, only DUP
# tells a repetition from a second message on an identifier in use, which must not be dropped in silence.
INBOUND: dict[tuple[FlowStage, HeardFlow], FlowStep] = {
    (_S.FREE, _H.PUBLISH_1): FlowStep(_S.ACCEPTING_1, _A.ROUTE),
    (_S.FREE, _H.PUBLISH_1_DUP): FlowStep(_S.ACCEPTING_1, _A.ROUTE),
    (_S.FREE, _H.PUBLISH_2): FlowStep(_S.ACCEPTING_2, _A.ROUTE),
    (_S.FREE, _H.PUBREL): FlowStep(_S.FREE, _A.SEND_PUBCOMP_UNKNOWN),
    (_S.ACCEPTING_1, _H.PUBLISH_1): _WRONG,
    (_S.ACCEPTING_1, _H.PUBLISH_1_DUP): FlowStep(_S.ACCEPTING_1, _A.NOTHING),
    (_S.ACCEPTING_1, _H.PUBLISH_2): _WRONG,
    (_S.ACCEPTING_1, _H.PUBREL): _WRONG,
    (_S.ACCEPTING_2, _H.PUBLISH_1): _WRONG,
    (_S.ACCEPTING_2, _H.PUBLISH_1_DUP): _WRONG,
    (_S.ACCEPTING_2, _H.PUBLISH_2): FlowStep(_S.ACCEPTING_2, _A.NOTHING),
    (_S.ACCEPTING_2, _H.PUBREL): _WRONG,
    (_S.AWAIT_PUBREL, _H.PUBLISH_1): _WRONG,
    (_S.AWAIT_PUBREL, _H.PUBLISH_1_DUP): _WRONG,
    (_S.AWAIT_PUBREL, _H.PUBLISH_2): FlowStep(_S.AWAIT_PUBREL, _A.SEND_PUBREC),
    (_S.AWAIT_PUBREL, _H.PUBREL): FlowStep(_S.FREE, _A.SEND_PUBCOMP),
}

Item = TypeVar("Item")


class _Nothing(dict[Any, Any]):
    """Dict staying empty, shared by sessions without flows, which are most: an own dict would cost 64 bytes each."""

    def __setitem__(self, key: object, value: object) -> None:
        raise AssertionError("make a dict first")

    def update(self, *more: Any, **named: Any) -> None:
        raise AssertionError("make a dict first")


NONE: dict[Any, Any] = _Nothing()

MAXIMUM_IN_FLIGHT = 32_768
MAXIMUM_REQUESTS = 1024


class OutboundFlows(Generic[Item]):
    """Identifiers, send quota and order of messages that one side has sent at QoS 1 and 2.

    `unacknowledged` holds items in the order of their first sending, `released` the identifiers whose PUBREC came, in
    that order: a reconnect repeats both in these orders (§4.4, §4.6). `window_max` bounds the messages in flight to a
    peer, whatever Receive Maximum the peer announces.
    """

    __slots__ = (
        "_last_id",
        "_least",
        "_most",
        "_reserved",
        "quota",
        "released",
        "repeat",
        "requests",
        "unacknowledged",
        "window_max",
    )

    def __init__(self, window_max: int, reserved: int = 0) -> None:
        """`reserved`: part of the window that `may_start` leaves free; 0 if the peer's Receive Maximum is too
        small.
        """
        self.window_max = min(window_max, MAXIMUM_IN_FLIGHT)
        self._reserved, self._least = reserved, 0
        self.requests: Mapping[int, object] = NONE  # SUBSCRIBE and UNSUBSCRIBE in progress (a client's side only)
        self.unacknowledged: dict[int, tuple[Item, int]] = NONE  # packet id -> (item, QoS)
        self.released: dict[int, bool] = NONE  # packet id -> True if its PUBLISH took quota of this connection
        # Unacknowledged, not yet sent again on this connection. Most connections have none: () saves 0.6 kB.
        self.repeat: deque[int] | tuple[()] = ()
        self.quota = self._most = 0
        self._last_id = 0

    def restore_flows(self, unacknowledged: Mapping[int, tuple[Item, int]], released: Iterable[int]) -> None:
        """Takes messages that were in flight before a restart; both in order."""
        self.unacknowledged = {**self.unacknowledged, **unacknowledged}
        self.released = {**self.released, **dict.fromkeys(released, False)}
        self._last_id = next(reversed(self.unacknowledged), 0)

    @property
    def in_flight(self) -> int:
        return len(self.unacknowledged) + len(self.released)

    def reconnected(self, receive_maximum: int) -> None:
        """Begins a new connection: the quota starts anew (§4.9), every unfinished message is to be repeated."""
        self.quota = self._most = min(receive_maximum, self.window_max)
        self._least = self._reserved if self._most > 2 * self._reserved else 0
        self.repeat = deque(self.unacknowledged) if self.unacknowledged else ()
        self.released = dict.fromkeys(self.released, False) if self.released else NONE

    def free_id(self) -> int:
        """Returns the next identifier that is not in use (MQTT-2.2.1-3)."""
        packet_id = self._last_id
        # Ends: MAXIMUM_IN_FLIGHT messages and MAXIMUM_REQUESTS requests are fewer than 65,535 identifiers.
        while True:
            packet_id = packet_id + 1 if packet_id < MAXIMUM_PACKET_ID else 1
            if (
                packet_id not in self.unacknowledged
                and packet_id not in self.released
                and packet_id not in self.requests
            ):
                self._last_id = packet_id
                return packet_id

    def start(self, item: Item, qos: int) -> int:
        """Takes an identifier and quota for a new message; the caller has checked `may_start`."""
        packet_id = self.free_id()
        if self.unacknowledged is NONE:
            self.unacknowledged = {}
        self.unacknowledged[packet_id] = (item, qos)
        self.quota -= 1
        return packet_id

    def begin_flow(self, item: Item, qos: int) -> int:
        """Calls `start` if the message `may_start`, else returns 0. One call instead of two: this runs for every
        message.
        """
        unacknowledged, released = self.unacknowledged, self.released
        if self.quota <= self._least or self.repeat or len(unacknowledged) + len(released) >= self.window_max:
            return 0
        packet_id = self._last_id + 1
        if packet_id > MAXIMUM_PACKET_ID or packet_id in unacknowledged or packet_id in released or self.requests:
            packet_id = self.free_id()
        else:
            self._last_id = packet_id
        if unacknowledged is NONE:
            unacknowledged = self.unacknowledged = {}
        unacknowledged[packet_id] = (item, qos)
        self.quota -= 1
        return packet_id

    def begin_flows(self, entries: Sequence[tuple[Item, int]]) -> Sequence[int]:
        """Calls `begin_flow` for leading messages, each with its QoS, as many as may start; returns their identifiers,
        in order. Takes fewer calls than `begin_flow` for each.
        """
        unacknowledged, released = self.unacknowledged, self.released
        room = min(self.quota - self._least, self.window_max - len(unacknowledged) - len(released))
        if room <= 0 or self.repeat:
            return ()
        entries = entries[:room]
        ids: Sequence[int]
        ids, last = range(self._last_id + 1, self._last_id + 1 + len(entries)), self._last_id + len(entries)
        if last <= MAXIMUM_PACKET_ID and unacknowledged.keys().isdisjoint(ids) and not (released or self.requests):
            self._last_id = last
        else:
            ids = [self.free_id() for _ in entries]
        if unacknowledged is NONE:
            unacknowledged = self.unacknowledged = {}
        unacknowledged.update(zip(ids, entries, strict=True))
        self.quota -= len(entries)
        return ids

    @property
    def may_start(self) -> bool:
        """True if a new message may go: quota is left, no older message waits for repetition, identifiers are free."""
        in_flight = len(self.unacknowledged) + len(self.released)
        return self.quota > self._least and not self.repeat and in_flight < self.window_max

    @property
    def may_start_urgent(self) -> bool:
        """True if a message that may take the reserved part of the window may go."""
        return self.quota > 0 and not self.repeat

    def next_repeat(self) -> tuple[int, Item, int] | None:
        """Returns (packet id, item, QoS) of the next message to send again, taking quota; None if none may go."""
        while self.repeat and self.quota > 0:
            packet_id = self.repeat.popleft()
            entry = self.unacknowledged.get(packet_id)
            if entry is not None:
                self.quota -= 1
                return packet_id, *entry
        return None

    def undo_start(self, packet_id: int) -> None:
        """Undoes `start` for a message that proved unsendable."""
        del self.unacknowledged[packet_id]
        self._give_back(True)

    def stage_of(self, packet_id: int) -> FlowStage:
        entry = self.unacknowledged.get(packet_id)
        if entry is not None:
            return FlowStage.AWAIT_PUBACK if entry[1] == 1 else FlowStage.AWAIT_PUBREC
        return FlowStage.AWAIT_PUBCOMP if packet_id in self.released else FlowStage.FREE

    def take_acknowledgement(self, packet_id: int, what: HeardFlow) -> tuple[Answer, Item | None]:
        """Applies a single acknowledgement: returns the answer, and the item that has left `unacknowledged`, if any.

        Raises ProtocolViolation.
        """
        step = OUTBOUND[self.stage_of(packet_id), what]
        if step.answer is Answer.VIOLATION:
            raise ProtocolViolation(f"{what.name} for packet identifier {packet_id} of another flow")
        entry = self.unacknowledged.pop(packet_id, None)
        if entry is not None:
            # Acknowledged before we repeated it: such a message took no quota of this connection.
            took_quota = not (self.repeat and packet_id in self.repeat)
            if step.next is FlowStage.AWAIT_PUBCOMP:
                if self.released is NONE:
                    self.released = {}
                self.released[packet_id] = took_quota
            else:
                self._give_back(took_quota)
            return step.answer, entry[0]
        if step.answer is Answer.DONE:
            self._give_back(self.released.pop(packet_id))
        return step.answer, None

    def take_puback(self, packet_id: int) -> Item | None:
        """Applies a PUBACK, the most frequent packet, in the stage AWAIT_PUBACK and returns the item. Returns None if
        `take_acknowledgement` must be called.
        """
        known = self.unacknowledged.get(packet_id)
        if known is None or known[1] != 1 or self.repeat:
            return None
        del self.unacknowledged[packet_id]
        self._give_back(True)
        return known[0]

    def take_pubacks(self, packet_ids: Iterable[int]) -> list[Item]:
        """Applies leading PUBACKs as `take_puback` does, and returns their items. `take_acknowledgement` must be called
        for the next one.
        """
        unacknowledged, items = self.unacknowledged, list[Item]()
        if self.repeat:
            return items
        for packet_id in packet_ids:
            known = unacknowledged.get(packet_id)
            if known is None or known[1] != 1:
                break
            del unacknowledged[packet_id]
            items.append(known[0])
        self.quota = min(self._most, self.quota + len(items))
        return items

    def give_back_tables(self) -> None:
        """Gives back empty tables: most of tens of thousands of clients send nothing most of the time."""
        self.unacknowledged, self.released = self.unacknowledged or NONE, self.released or NONE

    def _give_back(self, took_quota: bool) -> None:
        if took_quota and self.quota < self._most:
            self.quota += 1


class InboundFlows:
    """Messages that one side has received at QoS 1 and 2 and not finished, bounded by this side's Receive Maximum.

    While the application works on a message, its PUBLISH object identifies the message. A late acknowledgement after a
    reconnect therefore cannot be taken for that of another message with the same identifier. `awaiting_pubrel` is the
    part surviving the connection and a restart of this side (§4.1), with the topic of each message to be retained.
    """

    __slots__ = ("_enforced", "_receive_maximum", "_to_come", "accepting", "awaiting_pubrel", "half_done")

    def __init__(self) -> None:
        self.accepting: dict[int, Publish] = NONE
        self.awaiting_pubrel: dict[int, str] = NONE
        self.half_done: dict[int, str] = NONE
        """Messages of QoS 2 without a PUBREC, of whose work a part may be undone: a restart or a refusal came between.
        The oldest give way above the Receive Maximum of a peer that does not repeat them."""
        self._to_come: dict[int, str] = NONE  # messages of QoS 2 that the peer has not repeated since its reconnect
        self._receive_maximum = MAXIMUM_PACKET_ID
        self._enforced = False

    def reconnected(self, receive_maximum: int, enforced: bool) -> None:
        """Begins a new connection. `enforced`: the peer knows this side's Receive Maximum (MQTT 5)."""
        self._receive_maximum, self._enforced = receive_maximum, enforced
        # The peer repeats QoS 1 as new messages; at QoS 2 the peer waits for the PUBREC that this side owes.
        if self.accepting:
            self.accepting = {packet_id: one for packet_id, one in self.accepting.items() if one.qos == 2}
        retained = {packet_id: one.topic for packet_id, one in self.accepting.items() if one.retain}
        retained |= {packet_id: topic for packet_id, topic in (self.awaiting_pubrel | self.half_done).items() if topic}
        self._to_come = retained or NONE

    def restore_flows(self, awaiting_pubrel: Mapping[int, str], half_done: Mapping[int, str] = NONE) -> None:
        """Takes messages received at QoS 2 before a restart: the topic if the message was retained, else ""."""
        self.awaiting_pubrel = {**self.awaiting_pubrel, **awaiting_pubrel}
        self.half_done = {**self.half_done, **half_done}

    def is_half_done(self, publish: Publish) -> bool:
        """Returns True if a routed PUBLISH is the repetition of a message of `half_done`, until it is accepted."""
        if publish.qos == 2 and publish.dup:
            return publish.packet_id in self.half_done
        self.half_done.pop(publish.packet_id, None)  # another message: its sender has forgotten the first
        return False

    def is_overtaken(self, topic: str) -> bool:
        """True if a message the peer repeats at QoS 1 precedes a QoS 2 message the topic has retained since. The peer
        repeats in order (MQTT-4.6.0-1) and has yet to repeat that QoS 2 message, which will not be routed again.
        """
        return topic in self._to_come.values()

    @property
    def unfinished(self) -> int:
        """The number of messages received and not yet acknowledged in full, as §4.9 counts."""
        return len(self.accepting) + len(self.awaiting_pubrel)

    @property
    def full(self) -> bool:
        """True if no further QoS 1 or 2 message is welcome: stop reading from a peer knowing no Receive Maximum."""
        return self.unfinished >= self._receive_maximum

    def stage_of(self, packet_id: int) -> FlowStage:
        publish = self.accepting.get(packet_id)
        if publish is not None:
            return FlowStage.ACCEPTING_1 if publish.qos == 1 else FlowStage.ACCEPTING_2
        is_known = packet_id in self.awaiting_pubrel or packet_id in self.half_done
        return FlowStage.AWAIT_PUBREL if is_known else FlowStage.FREE

    def take_publish(self, publish: Publish) -> Answer:
        """Takes a PUBLISH of QoS 1 or 2. Raises ProtocolViolation, ReceiveMaximumExceeded (MQTT 5 peers)."""
        packet_id = publish.packet_id
        if packet_id in self.accepting or packet_id in self.awaiting_pubrel:
            what = HeardFlow.PUBLISH_2
            if publish.qos == 1:
                what = HeardFlow.PUBLISH_1_DUP if publish.dup else HeardFlow.PUBLISH_1
            answer = INBOUND[self.stage_of(packet_id), what].answer
            if answer is Answer.VIOLATION:
                raise ProtocolViolation(f"packet identifier {packet_id} is in use")
            self._to_come.pop(packet_id, None)
            return answer
        # FREE: the table says ROUTE to every PUBLISH.
        if not self.routed(publish):
            raise ReceiveMaximumExceeded(f"more than {self._receive_maximum} messages unacknowledged")
        return Answer.ROUTE

    def routed(self, publish: Publish) -> bool:
        """Takes a PUBLISH of QoS 1 or 2 that is to be routed with no answer yet: True. False, with no effect, if
        `take_publish` must be called.
        """
        packet_id = publish.packet_id
        accepting, awaiting = self.accepting, self.awaiting_pubrel
        if packet_id in accepting or packet_id in awaiting:
            return False
        if self._enforced and len(accepting) + len(awaiting) >= self._receive_maximum:
            return False
        if accepting is NONE:
            accepting = self.accepting = {}
        accepting[packet_id] = publish
        return True

    def routed_run(self, packets: Sequence[object]) -> int:
        """Takes leading PUBLISHes of QoS 1 without retain flag and properties as `routed` does; returns how many."""
        accepting, awaiting, count = self.accepting, self.awaiting_pubrel, 0
        room = self._receive_maximum - self.unfinished if self._enforced else len(packets)
        for packet in packets[: max(0, room)]:
            if type(packet) is not Publish or packet.qos != 1 or packet.retain:
                break
            packet_id = packet.packet_id
            if packet.properties is not NO_PROPERTIES or packet_id in accepting or packet_id in awaiting:
                break
            if accepting is NONE:
                accepting = self.accepting = {}
            accepting[packet_id] = packet
            count += 1
        return count

    def forgo(self, publish: Publish) -> None:
        """Undoes `routed` for a dropped message: the repetition is a new message.

        Without this a QoS 2 message that its connection dropped would count as in progress for ever.
        """
        if self.accepting.get(publish.packet_id) is publish:
            del self.accepting[publish.packet_id]

    def accepted_plainly(self, publishes: Iterable[Publish]) -> list[int]:
        """Takes messages the application accepted: returns the identifiers of QoS 1, whose PUBACK is to be sent, in
        order. Leaves all others, and messages whose connection is gone, to `settle_routed`.
        """
        accepting, due = self.accepting, []
        for publish in publishes:
            packet_id = publish.packet_id
            if publish.qos == 1 and accepting.get(packet_id) is publish:
                del accepting[packet_id]
                due.append(packet_id)
        return due

    def settle_routed(self, publish: Publish, refused: bool) -> bool:
        """Takes a routed message the application accepted or refused: True if PUBACK or PUBREC is to be sent.

        False if the message belongs to a connection or session that is gone.
        """
        packet_id = publish.packet_id
        if self.accepting.get(packet_id) is not publish:
            return False
        del self.accepting[packet_id]
        if not refused:
            self.half_done.pop(packet_id, None)
        if publish.qos == 2 and not refused:
            if self.awaiting_pubrel is NONE:
                self.awaiting_pubrel = {}
            self.awaiting_pubrel[packet_id] = publish.topic if publish.retain else ""
        else:
            self._to_come.pop(packet_id, None)
        return True

    def settle_half_done(self, publish: Publish) -> bool:
        """Takes a routed message of QoS 2 that is done in part and refused: True if its peer waits for an answer.

        The peer gets none on this connection, and repeats the message (`is_half_done`).
        """
        if not self.settle_routed(publish, refused=True):
            return False
        self.half_done = {**self.half_done, publish.packet_id: publish.topic if publish.retain else ""}
        while len(self.half_done) > self._receive_maximum:
            del self.half_done[next(iter(self.half_done))]
        return True

    def undo_half_done(self, packet_id: int) -> None:
        """Takes back that a message is done in part: its repetition is a new message."""
        self.half_done.pop(packet_id, None)

    def give_back_tables(self) -> None:
        """Gives back empty tables."""
        self.accepting, self.awaiting_pubrel = self.accepting or NONE, self.awaiting_pubrel or NONE
        self._to_come = self._to_come or NONE

    def take_pubrel(self, packet_id: int) -> Answer:
        """Takes a PUBREL. Raises ProtocolViolation."""
        answer = INBOUND[self.stage_of(packet_id), HeardFlow.PUBREL].answer
        if answer is Answer.VIOLATION:
            raise ProtocolViolation(f"PUBREL for packet identifier {packet_id} before its PUBREC")
        self.awaiting_pubrel.pop(packet_id, None)
        self.half_done.pop(packet_id, None)
        self._to_come.pop(packet_id, None)
        return answer
