"""Invariants of the two session machines against each other and against arbitrary packets.

Over a wire that loses its connection at any byte: QoS 1 arrives at least once, QoS 2 exactly once, both in the
order of first arrival, and nothing is left in flight when the wire stays up.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt5.actions import Close, ServerOffer, SessionLimits
from gateway.mqtt5.client_session import Answered, ClientSession, Completed, Connected
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Connect, Properties, Publish, Subscribe, Subscription, Version
from gateway.mqtt5.session import ServerSession
from tests.gateway.mqtt5.strategies import VERSIONS, packets

NOW = 1_700_000_000.0
SEEDS = st.integers(0, 2**32)  # hypothesis prints the seed of a failure; faults are drawn from it


class Wire:
    """A client, a broker of one client that records what it gets, and a connection that may break."""

    def __init__(self, version: Version, receive_maximum: int, random: Random, keep: bool) -> None:
        v5 = version == Version.V5
        limits = Properties(session_expiry_s=1000, receive_maximum=receive_maximum, topic_alias_maximum=2)
        self.connect = Connect("c", version, False, properties=limits if v5 else Properties())
        self.client = ClientSession(self.connect, SessionLimits(in_flight_messages=8))
        self.server = ServerSession("c", SessionLimits(in_flight_messages=8))
        self.offer = ServerOffer(receive_maximum=receive_maximum, topic_alias_maximum=2)
        self.random = random
        self.keep = keep
        self.subscribed = False  # does the client know that it is
        self.forgotten = False  # has the server begun anew, and the client not heard so
        self.at_server: list[bytes] = []
        self.at_client: list[bytes] = []
        self.completed: list[object] = []
        self.to_server = bytearray()
        self.to_client = bytearray()
        self.open()
        while not self.server.subscriptions:
            self.step()

    def open(self) -> None:
        version = self.connect.version
        self.server_decoder = Decoder(None)
        self.client_decoder = Decoder(version, role="client")
        self.to_client.clear()
        self.to_server[:] = self.client.open(NOW)

    def lose(self, told: bool = False) -> None:
        """The connection breaks. `told`: a server that forgets does so until the client has heard it."""
        self.client.disconnected(NOW)
        self.server.disconnected(NOW)
        if not self.keep and (self.random.random() < 0.3 or (told and self.forgotten)):
            self.server.end_session()
            self.forgotten = True
        self.open()

    def step(self) -> None:
        """Some bytes of one direction arrive."""
        pipe = self.to_server if self.random.random() < 0.5 else self.to_client
        count = self.random.randint(0, min(len(pipe), 60))
        piece = bytes(pipe[:count])
        del pipe[:count]
        if pipe is self.to_server:
            self._at_server(piece)
        else:
            self._at_client(piece)

    def _at_server(self, piece: bytes) -> None:
        for packet in self.server_decoder.feed(piece):
            if isinstance(packet, Connect):
                self.to_client += b"".join(self.server.take_connect(packet, self.offer, NOW))
                continue
            for action in self.server.take_packet(packet, NOW):
                assert not isinstance(action, Close), action
                if isinstance(action, bytes):
                    self.to_client += action
                elif isinstance(action, Publish):
                    self.at_server.append(action.payload)
                    self.to_client += self.server.acknowledge(action)
                elif isinstance(action, Subscribe):
                    granted = self.server.enter_granted(action, [one.qos for one in action.subscriptions])
                    self.to_client += self.server.suback(action.packet_id, granted.codes)
        assert self.server_decoder.error is None

    def _at_client(self, piece: bytes) -> None:
        for action in self.client.take_packets(self.client_decoder.feed(piece), NOW):
            assert not isinstance(action, Close), action
            if isinstance(action, bytes):
                self.to_server += action
            elif isinstance(action, Connected):
                self.forgotten = False
                if not (action.connack.session_present and self.subscribed) or action.doubtful:
                    self.subscribed = False
                    self.to_server += self.client.subscribe((Subscription("topic/number/two", 2),), None, NOW)
            elif isinstance(action, Answered):
                self.subscribed = True
            elif isinstance(action, Publish):
                self.at_client.append(action.payload)
                self.to_server += self.client.acknowledge(action)
            elif isinstance(action, Completed):
                assert action.code == 0
                self.completed.append(action.token)
        assert self.client_decoder.error is None

    def publish(self, number: int, qos: int) -> None:
        payload = number.to_bytes(2, "big")
        data = self.client.publish(Publish("topic/number/one", payload, qos), number, NOW)
        self.to_server += data or b""
        if self.server.subscriptions:
            self.to_client += self.server.deliver(Message("topic/number/two", payload), qos, False, NOW) or b""

    def settle(self) -> None:
        for _ in range(20_000):
            if not (self.to_server or self.to_client):
                break
            self.step()
        for session in (self.client, self.server):
            assert not session.has_work
            assert session.outbound.in_flight == 0
            assert session.held_bytes == 0


def first_arrivals(payloads: list[bytes]) -> list[int]:
    return [int.from_bytes(payload, "big") for payload in dict.fromkeys(payloads)]


@settings(max_examples=60)
@given(SEEDS, st.sampled_from([Version.V311, Version.V5]), st.integers(1, 2))
def test_delivery_over_a_wire_that_breaks(seed: int, version: Version, qos: int) -> None:
    random = Random(seed)
    wire = Wire(version, random.randint(1, 12), random, keep=True)
    count = random.randint(1, 25)
    for number in range(count):
        wire.publish(number, qos)
        for _ in range(random.randint(0, 6)):
            wire.step()
        if random.random() < 0.15:
            wire.lose()
    wire.settle()
    for arrived in (wire.at_server, wire.at_client):
        assert first_arrivals(arrived) == list(range(count))
        if qos == 2:
            assert len(arrived) == count
    assert sorted(wire.completed, key=str) == sorted(range(count), key=str)


@settings(max_examples=40)
@given(SEEDS, st.integers(1, 2))
def test_a_server_that_forgets_its_sessions_still_gets_everything(seed: int, qos: int) -> None:
    random = Random(seed)
    wire = Wire(Version.V5, 5, random, keep=False)
    for number in range(15):
        wire.publish(number, qos)
        for _ in range(random.randint(0, 6)):
            wire.step()
        if random.random() < 0.2:
            # Where the CONNACK that says so is lost, a client of QoS 2 takes new identifiers for old ones:
            # MQTT gives neither side a way to notice.
            wire.lose(told=qos == 2)
    wire.settle()
    assert set(first_arrivals(wire.at_server)) == set(range(15))
    assert len(wire.completed) == 15
    assert wire.server.subscriptions, "a client that believes in a session that is gone never subscribes anew"


@given(VERSIONS, st.data())
def test_no_packet_of_a_client_makes_the_servers_session_raise(version: Version, data: st.DataObject) -> None:
    session = ServerSession("c", SessionLimits(in_flight_messages=4, queue_messages=4))
    session.take_connect(Connect("c", version), ServerOffer(receive_maximum=4), NOW)
    for packet in data.draw(st.lists(packets(version, "server"), max_size=12)):
        session.deliver(Message("a", b"x"), data.draw(st.integers(0, 2)), False, NOW)
        for action in session.take_packet(packet, NOW):
            if isinstance(action, Publish) and data.draw(st.booleans()):
                session.acknowledge(action)
        assert session.outbound.in_flight <= 4
        assert len(session.waiting) <= 4
    session.disconnected(NOW)


@given(VERSIONS, st.data())
def test_no_packet_of_a_server_makes_the_clients_session_raise(version: Version, data: st.DataObject) -> None:
    session = ClientSession(Connect("c", version), SessionLimits(in_flight_messages=4))
    session.open(NOW)
    for packet in data.draw(st.lists(packets(version, "client"), max_size=12)):
        session.publish(Publish("a", b"x", 1), None, NOW)
        for action in session.take_packets([packet], NOW):
            if isinstance(action, Publish) and data.draw(st.booleans()):
                session.acknowledge(action)
        assert session.outbound.in_flight <= 4
    session.disconnected(NOW)
