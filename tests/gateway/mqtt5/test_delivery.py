"""What one client is still to get, without a connection around it: queue, flow, aliases, sizes, and the journal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5.actions import SessionLimits
from gateway.mqtt5.aliases import OutboundAliases
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.delivery import Connection, Delivery, Queued
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish, Version
from gateway.mqtt5.types import ReasonCode

NOW = 1000.0


class Told:
    """A journal, and whoever is told of what is lost, in one list."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def queued(self, queued: Queued, packet_id: int) -> None:
        self.said.append(("queued", queued.message.payload, packet_id))

    def dropped(self, queued: Queued) -> None:
        self.said.append(("dropped", queued.message.payload))

    def pubrec_received(self, packet_id: int, queued: Queued) -> None: ...
    def finished(self, packet_id: int, queued: Queued | None) -> None: ...
    def pubrel_received(self, packet_id: int) -> None: ...
    def cleared(self) -> None: ...


class Recorded(Delivery):
    def __init__(self, limits: SessionLimits) -> None:
        self.lost: list[tuple[bytes, ReasonCode]] = []
        self.reached: list[str] = []
        super().__init__(limits)

    def _take_dropped(self, queued: Queued, reason: ReasonCode) -> None:
        self.lost.append((queued.message.payload, reason))

    def _reached(self, bound: str) -> None:
        self.reached.append(bound)


def delivery(connected: bool = True, v5: bool = True, **limits: Any) -> Recorded:
    made = Recorded(SessionLimits(**limits))
    made.state = Connection.CONNECTED if connected else Connection.OFFLINE
    made.version = Version.V5 if v5 else Version.V311
    made.outbound.reconnected(65_535)
    made.journal = Told()
    return made


def message(number: int, size: int = 1, **fields: Any) -> Message:
    return Message("topic", b"%d" % number + bytes(size - 1), **fields)


def read(data: bytes | None, v5: bool = True) -> Publish:
    assert data is not None
    (packet,) = Decoder(Version.V5 if v5 else Version.V311, role="client").feed(data)
    assert isinstance(packet, Publish)
    return packet


def waiting(one: Delivery) -> list[bytes]:
    return [queued.message.payload[:1] for queued in one.waiting]


@pytest.mark.parametrize("v5", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [True, False])
def test_what_can_go_goes_at_once(v5: bool, qos: int, retain: bool) -> None:
    one = delivery(v5=v5)
    packet = read(one.deliver(message(7), qos, retain, NOW), v5)
    assert (packet.payload, packet.qos, packet.retain, packet.dup) == (b"7", qos, retain, False)
    assert packet.packet_id == (1 if qos else 0)
    assert (one.figures.delivered, one.figures.delivered_bytes) == (1, 1)
    assert one.held_bytes == (message(7).held_bytes if qos else 0)


@pytest.mark.parametrize("state", [Connection.OFFLINE, Connection.CLOSING, Connection.OPENING, "paused"])
def test_without_a_connection_that_takes_it_qos_0_is_dropped_and_the_rest_waits(state: Connection | str) -> None:
    one = delivery()
    if isinstance(state, Connection):
        one.state = state
    else:
        one.pause()
    assert one.deliver(message(1), 0, False, NOW) is None
    assert one.deliver(message(2), 1, False, NOW) is None
    assert (one.figures.dropped_qos0, waiting(one), one.has_work) == (1, [b"2"], True)
    assert one.reached == [], "it waits for the client, not for its quota"


def test_what_waits_goes_in_order_before_what_is_new() -> None:
    one = delivery()
    one.pause()
    for number in range(3):
        one.deliver(message(number), 1, False, NOW)
    one.paused = False
    assert one.deliver(message(3), 1, False, NOW) is None, "others wait before it"
    assert [read(data).payload for data in one.resume(NOW)] == [b"0", b"1", b"2", b"3"]
    assert not one.has_work


def test_a_full_flight_is_counted_as_the_clients_business() -> None:
    one = delivery(in_flight_messages=1)
    one.deliver(message(1), 1, False, NOW)
    one.deliver(message(2), 1, False, NOW)
    assert (one.reached, waiting(one)) == (["in_flight"], [b"2"])


@pytest.mark.parametrize(("newest", "left", "lost"), [(False, [b"2", b"3"], b"1"), (True, [b"1", b"2"], b"3")])
def test_a_full_queue_loses_the_oldest_or_the_newest(newest: bool, left: list[bytes], lost: bytes) -> None:
    one = delivery(connected=False, queue_messages=2, drops_newest=newest)
    for number in (1, 2, 3):
        one.deliver(message(number), 1, False, NOW)
    assert waiting(one) == left
    assert one.lost == [(lost, ReasonCode.QUOTA_EXCEEDED)]
    assert (one.figures.dropped_queue_full, one.reached) == (1, ["queue_messages"])
    assert one.held_bytes == 2 * message(1).held_bytes


def test_bytes_count_what_waits_and_what_is_in_flight() -> None:
    size = message(0, 1000).held_bytes
    one = delivery(queue_bytes=3 * size, in_flight_messages=1)
    for number in range(5):
        one.deliver(message(number, 1000), 1, False, NOW)
    assert waiting(one) == [b"3", b"4"]
    assert one.held_bytes == 3 * size
    assert one.figures.dropped_queue_full == one.reached.count("queue_bytes") == 2
    one.deliver(message(9, 4000), 1, False, NOW)
    assert waiting(one) == [b"3", b"4"], "dropping others would make no room for it"


def test_no_queue_at_all_keeps_nothing() -> None:
    one = delivery(connected=False, queue_messages=0)
    one.deliver(message(1), 1, False, NOW)
    assert (waiting(one), one.held_bytes, one.figures.dropped_queue_full) == ([], 0, 1)


def test_what_expired_before_it_came_or_while_it_waited_is_told_as_lost() -> None:
    one = delivery()
    assert one.deliver(message(1, expires_at=NOW - 1), 1, False, NOW) is None
    one.pause()
    one.deliver(message(2, expires_at=NOW + 1), 1, False, NOW)
    one.deliver(message(3), 1, False, NOW)
    assert [read(data).payload for data in one.resume(NOW + 2)] == [b"3"]
    assert one.figures.dropped_expired == 2
    assert one.lost == [(b"1", ReasonCode.UNSPECIFIED_ERROR), (b"2", ReasonCode.UNSPECIFIED_ERROR)]


def test_what_the_client_cannot_take_leaves_no_flow_behind() -> None:
    one = delivery()
    one._maximum_packet_size = 50
    assert one.deliver(message(1, 100), 1, False, NOW) is None
    assert one.deliver(message(1, 100), 0, False, NOW) is None
    assert (one.held_bytes, one.outbound.in_flight, one.figures.dropped_too_large) == (0, 0, 2)
    assert one.lost == [(message(1, 100).payload, ReasonCode.PACKET_TOO_LARGE)] * 2
    assert read(one.deliver(message(2), 1, False, NOW)).payload == b"2"


def test_a_message_says_to_each_receiver_what_is_its_own() -> None:
    one = delivery()
    packet = read(one.deliver(message(1, expires_at=NOW + 9.5), 0, False, NOW, subscription_ids=(3, 300)))
    assert (packet.properties.message_expiry_s, packet.properties.subscription_ids) == (10, (3, 300))
    old = delivery(v5=False)
    assert read(old.deliver(message(1, expires_at=NOW + 9), 1, False, NOW, (3,)), v5=False).payload == b"1"


def test_an_alias_stands_for_a_topic_once_that_was_said() -> None:
    one = delivery()
    one._aliases_out = OutboundAliases(1)
    said = [read(one.deliver(Message("topic/long", b""), qos, False, NOW)) for qos in (0, 1)]
    assert [(packet.topic, packet.properties.topic_alias) for packet in said] == [("topic/long", 1), ("", 1)]
    one = delivery()
    one._aliases_out, one._maximum_packet_size = OutboundAliases(1), 20
    assert one.deliver(Message("topic/long", bytes(50)), 0, False, NOW) is None
    assert read(one.deliver(Message("topic/long", b""), 0, False, NOW)).topic == "topic/long"


def test_the_journal_hears_of_what_waits_and_of_its_number() -> None:
    one = delivery(in_flight_messages=1)
    one.deliver(message(1), 1, False, NOW)
    one.deliver(message(2), 1, False, NOW)
    one.deliver(message(3), 0, False, NOW)
    assert isinstance(one.journal, Told)
    assert one.journal.said == [("queued", b"1", 1), ("queued", b"2", 0)]


def test_only_what_waits_can_be_withdrawn() -> None:
    one = delivery(connected=False)
    for number in range(3):
        one.deliver(message(number), 1, False, NOW)
    queued = one.waiting[1]
    assert one.withdraw(queued)
    assert not one.withdraw(queued)
    assert (waiting(one), one.held_bytes) == ([b"0", b"2"], 2 * message(0).held_bytes)
    assert not delivery().withdraw(queued)


def test_what_is_taken_back_frees_its_number_and_its_bytes() -> None:
    one = delivery()
    one.deliver(message(1), 1, False, NOW)
    one.take_back(1)
    assert (one.held_bytes, one.outbound.in_flight) == (0, 0)


def test_what_a_journal_kept_is_repeated_before_what_waited() -> None:
    first, second = (Queued(message(n), 1, False, message(n).held_bytes) for n in (1, 2))
    one = delivery()
    one.restore_outbound([second], {5: first}, [9])
    one.outbound.reconnected(65_535)
    assert one.held_bytes == 2 * message(1).held_bytes
    assert list(one.outbound.released) == [9]
    again, new = (read(data) for data in one.resume(NOW))
    assert (again.payload, again.packet_id, again.dup) == (b"1", 5, True)
    assert (new.payload, new.dup) == (b"2", False)
    assert one.figures.repeated == 1


@given(st.lists(st.tuples(st.sampled_from(["deliver", "pause", "resume", "ack"]), st.integers(1, 40)), max_size=60))
def test_bytes_held_are_those_of_what_is_there_and_within_the_bound(steps: list[tuple[str, int]]) -> None:
    one = delivery(queue_bytes=700, queue_messages=5, in_flight_messages=3)
    for what, size in steps:
        if what == "deliver":
            one.deliver(message(1, size), 1, False, NOW)
        elif what == "ack" and one.outbound.unacknowledged:
            one.take_back(next(iter(one.outbound.unacknowledged)))
        elif what == "pause":
            one.pause()
        else:
            one.resume(NOW)
        there = [queued.size for queued in one.waiting]
        there += [entry[0].size for entry in one.outbound.unacknowledged.values()]
        assert one.held_bytes == sum(there) <= 700
        assert len(one.waiting) <= 5


def test_who_gets_nothing_has_no_figures_until_something_is_counted() -> None:
    one = delivery()
    assert one.counted is None
    one.deliver(Message("t", b"four"), 0, False, NOW)
    counted = one.counted
    assert counted is not None
    assert (counted.delivered, counted.delivered_bytes) == (1, 4)
    assert one.figures is counted


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 400))), st.integers(0, 3), st.sampled_from([1, 2]))
def test_a_run_is_sent_as_its_messages_alone(sizes: list[tuple[int, int]], before: int, qos: int) -> None:
    alone, together = (delivery(queue_bytes=4_000, in_flight_messages=6) for _ in range(2))
    for each in (alone, together):
        for number in range(before):
            each.deliver(Message("t", b"%d" % number, 1), 1, False, NOW)
    run = [Message("t", bytes(size), own) for own, size in sizes]
    sent = list[bytes]()
    for message in run:
        data = alone.send_at_once(message, min(qos, message.qos))
        if data is None:
            break
        sent.append(data)
    assert together.send_run(run, qos) == sent if run else not sent
    assert together.held_bytes == alone.held_bytes
    assert together.journal.said == alone.journal.said  # type: ignore[union-attr]
    if sent:
        assert together.figures == alone.figures
