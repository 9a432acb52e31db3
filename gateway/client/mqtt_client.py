"""An asyncio client of MQTT 5 or 3.1.1: a connection that is restored automatically, with batched reads and writes.

`mqtt5.client_session` interprets packets; here are sockets, TLS, timers, reconnecting and subscribing anew.
`MqttClient` serves the links of the overlay and every other client of a broker; `gateway/overlay/region_client.py`
has one to each replica of a region. Callbacks run on the event loop and must not block.

    clean_start (the default)   no state survives a connection: the caller repeats unacknowledged publications
    clean_start=False           QoS 1 and 2 survive reconnects, and wait here, bounded, while there is no connection
    clean_start, and a session_expiry_s     the same, but for what an earlier process left at the server
"""

from __future__ import annotations

import asyncio
import random as random_module
import ssl as ssl_module
import time
from collections.abc import Callable, Sequence
from typing import cast

from gateway.base import LinkFigures
from gateway.base.peer_clock import ahead_s
from gateway.client.awaited import Acknowledgements
from gateway.client.batched import BatchedWriter
from gateway.client.complaints import CONNACK_OF_V3, NOT_MQTT5, ClientError, Complaints
from gateway.client.redial import Address, Redial, host_port
from gateway.client.tls import SOMEBODY_ELSE, explain, group_of, shows
from gateway.client.wanted import WantedSubscriptions
from gateway.mqtt5.actions import Close, SessionLimits
from gateway.mqtt5.client_session import Answered, ClientAction, ClientSession, Completed, Connected, Unanswered
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.copies import Copies
from gateway.mqtt5.packets import (
    NO_PROPERTIES,
    ConnAck,
    Connect,
    Properties,
    Publish,
    Subscription,
    UserProperties,
    Version,
    Will,
)
from gateway.mqtt5.types import MAXIMUM_PACKET_SIZE_SAID, MAXIMUM_REMAINING_LENGTH, MqttError, ReasonCode, Refused

CONNECT_TIMEOUT_S = 10.0
END_S = 1.0
"""Seconds after which a peer is cut off that does not read our last bytes: with TLS it could delay the end forever."""
PACKET_BYTES_MAX = MAXIMUM_REMAINING_LENGTH + 5  # of a server that states no bound: the largest packet of MQTT
TOO_MUCH = (ReasonCode.PACKET_TOO_LARGE, ReasonCode.QOS_NOT_SUPPORTED, ReasonCode.RETAIN_NOT_SUPPORTED)


class MqttClient(asyncio.Protocol):
    """An MQTT client with a connection: `start` or `connect`, then use it; `close` ends it for good.

    `verify_peer`: gets the certificate (DER) after the TLS handshake and returns True if the peer is the intended one.
    `receive_maximum`: messages the server may have sent and we have not acknowledged yet (back-pressure).
    `manual_ack`: messages are acknowledged by `acknowledge`, not when `on_publish` returns. `limits`: bounds of
    messages in flight to the server and queued. `random`: 0..1, spreads reconnects. `elsewhere`: other addresses of
    the server, requested and tried when its own address does not answer. `unusable`: returns why the server's CONNACK
    rules the server out, or ""; a reason ends the connection. `copies`: shared by clients receiving the same
    publications. `version`: of MQTT; below 5 no properties are sent.
    """

    cure_without_v5 = NOT_MQTT5  # text for a broker that refuses MQTT 5

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "",
        ssl: ssl_module.SSLContext | None = None,
        verify_peer: Callable[[bytes], bool] | None = None,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        keep_alive_s: int = 30,
        clean_start: bool = True,
        session_expiry_s: int = 0,
        receive_maximum: int = 1024,
        packet_bytes: int = 2 << 20,
        properties: UserProperties = (),
        manual_ack: bool = False,
        limits: SessionLimits | None = None,
        random: Callable[[], float] = random_module.random,
        elsewhere: Callable[[], Sequence[Address]] = tuple,
        unusable: Callable[[ConnAck], str] = lambda connack: "",
        copies: Copies | None = None,
        version: Version = Version.V5,
    ) -> None:
        self.address = self._where = host_port((host, port))
        self.manual_ack = manual_ack
        self.on_publish: Callable[[Publish], object] = lambda _: None
        self.on_publishes: Callable[[Sequence[Publish]], object] | None = None
        """With `manual_ack`, called instead of `on_publish` with the messages of a read that brought nothing else."""
        self.on_up: Callable[[], object] = lambda: None
        self.on_down: Callable[[], object] = lambda: None
        self.last_error = ""
        self.refusal: ReasonCode | None = None  # reason code in the CONNACK of the last attempt
        self.ended: ReasonCode | None = None  # reason code with which the session ended the last connection
        self.session_present = False
        self.told: UserProperties = ()  # user properties of the last CONNACK
        self.packet_limit = PACKET_BYTES_MAX
        """The largest packet, in bytes, that the server accepts, by its last CONNACK."""
        self.clock_ahead_s: float | None = None  # the server's clock minus ours at the last CONNACK
        self.figures = LinkFigures()
        self._redial, self._unusable = Redial((host, port), elsewhere, random), unusable
        self._ssl, self._verify_peer = ssl, verify_peer
        offer = Properties(
            session_expiry_s=session_expiry_s or None,
            receive_maximum=receive_maximum,
            maximum_packet_size=min(packet_bytes, MAXIMUM_PACKET_SIZE_SAID),
            user=properties,
        )
        if version != Version.V5:
            offer = NO_PROPERTIES
        self._connect = Connect(client_id, version, clean_start, keep_alive_s, username, password, will, offer)
        self._is_lasting = not clean_start or session_expiry_s > 0
        self._limits, self._packet_bytes = limits, packet_bytes
        self._session = self._new_session()
        self._copies = copies
        self._decoder = self._new_decoder()
        self._wanted = WantedSubscriptions(self.address)
        self._out = BatchedWriter(self.figures)
        self._write, self._flush = self._out.write, self._out.flush
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._up = False
        self._up_at: float | None = None
        self._wait_longest = False
        self._why = ""
        self._complaints = Complaints()
        self.acks = Acknowledgements(self.figures)

    def _new_session(self) -> ClientSession:
        return ClientSession(self._connect, self._limits, adopt=not self._connect.clean_start)

    def _new_decoder(self) -> Decoder:
        return Decoder(self._connect.version, self._packet_bytes, "client", copies=self._copies)

    def __repr__(self) -> str:
        return f"Client({self.address!r}, {'up' if self._up else 'down'})"

    # ------------------------------------------------------------------------------------- lifetime

    def start(self) -> None:
        """Connects in the background, and again whenever the connection is lost. Needs a running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_connected(), name=f"client {self.address}")

    async def connect(self) -> None:
        """Starts, and waits for the first CONNACK. Raises ClientError when the first attempt fails."""
        self._first = asyncio.get_running_loop().create_future()
        self.start()
        try:
            await self._first
        except ClientError:
            await self.close()
            raise

    async def close(self, farewell: Properties = NO_PROPERTIES) -> None:
        """Sends DISCONNECT, with the properties of `farewell`, and ends. Waiting messages are given up."""
        task, self._task = self._task, None
        transport = self._out.transport
        if transport is not None and self._up and not transport.is_closing():
            self._write(self._session.disconnect(properties=farewell))
            self._flush()
            transport.close()
            if self._lost is not None:
                await asyncio.wait([self._lost], timeout=1.0)
        transport = self._out.transport  # None if the connection ended meanwhile
        if transport is not None:
            transport.abort()
            if self._lost is not None:
                await asyncio.wait([self._lost], timeout=1.0)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._out.transport is not None:
            self._out.transport.abort()  # made while we waited

    @property
    def connected(self) -> bool:
        """True if the connection stands and CONNACK came."""
        return self._up

    @property
    def load(self) -> tuple[int, int, int]:
        """The numbers of unacknowledged messages and of waiting messages, and the bytes of both.

        A message waits for the server's window or for a connection.
        """
        session = self._session
        return len(session.outbound.unacknowledged), len(session.waiting), session.held_bytes

    async def _keep_connected(self) -> None:
        while True:
            self._where = host_port(self._redial.address)
            up_s = await self._connection()
            if self._task is None:  # `close` waits for this
                return
            self.note_failure(self._why or f"{self._where} closed the connection; {self._cure(None)}")
            await asyncio.sleep(self._redial.record_end(up_s, self._wait_longest))

    async def _connection(self) -> float | None:
        """Runs a single connection from beginning to end; returns the seconds that it was up, or None."""
        loop = asyncio.get_running_loop()
        self._up_at, self._why, self._wait_longest, self.refusal, self.ended = None, "", False, None, None
        lost = self._lost = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._open_connection(*self._redial.address)
        except (OSError, ssl_module.SSLError, TimeoutError) as error:
            self._why = self._why or self._explained(error)
            return None
        await lost
        return None if self._up_at is None else loop.time() - self._up_at

    async def _open_connection(self, host: str, port: int) -> None:
        handshake_s, loop = CONNECT_TIMEOUT_S if self._ssl else None, asyncio.get_running_loop()
        await loop.create_connection(lambda: self, host, port, ssl=self._ssl, ssl_handshake_timeout=handshake_s)

    def note_failure(self, text: str, code: int = ReasonCode.SERVER_UNAVAILABLE) -> None:
        """Stores the reason for a missing connection, and logs it once, not at every attempt."""
        self.last_error = text
        self._complaints.log_reason(text)
        if self._first is not None and not self._first.done():
            self._first.set_exception(ClientError(text, code))

    # ------------------------------------------------------------------------------------- requests

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: UserProperties | Properties = (),
        on_ack: Callable[[], object] | None = None,
        on_refused: Callable[[int], None] | None = None,
        urgent: bool = False,
    ) -> bool:
        """Sends or queues a message; returns False if it was not accepted (no connection, queue full, too large).

        `properties`: user properties, or all properties. `on_ack` is called once the server has accepted a message of
        QoS 1 or 2; never if the server refuses it, nor after the connection if no state survives. `on_refused` gets
        the reason code if the server refuses the message or has said that it cannot take it; then the result is True.
        `urgent`: see `ClientSession.publish`. Raises MalformedPacket or UnsendablePacket for a message no MQTT packet
        can carry.
        """
        if not self._up and not (qos and self._is_lasting):
            return False
        if not isinstance(properties, Properties):
            properties = Properties(user=properties) if properties else NO_PROPERTIES
        publish = Publish(topic, payload, qos, retain, properties=properties)
        awaiting = self.acks.awaiting_for(on_ack, on_refused, self._up and qos > 0)
        try:
            data = self._session.publish(publish, awaiting, self._now(), urgent)
        except Refused:
            return False
        except MqttError as error:
            if error.reason in TOO_MUCH:
                self.note_failure(f"{self.address}: {error}; raise its limits")
                if on_refused is not None:
                    on_refused(error.reason)
                return on_refused is not None
            raise
        if data is not None:
            self._write(data)
            self.acks.start_timing(awaiting)
        self.figures.sent += 1
        return True

    def subscribe(
        self, topic_filter: str, qos: int = 1, *, no_local: bool = False, retain_as_published: bool = True,
        retain_handling: int = 0, on_answer: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """Subscribes a filter, now and after every reconnect. `on_answer` gets the reason code of each SUBACK.

        A repeated subscription is sent once per connection. Raises TooManySubscriptionsError.
        """
        options = Subscription(topic_filter, qos, no_local, retain_as_published, retain_handling)
        if self._wanted.add_wanted(options, on_answer):
            self._send_wanted()

    def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribes a filter."""
        if self._wanted.drop_wanted(topic_filter):
            self._send_wanted()

    def acknowledge(self, publish: Publish, code: int = ReasonCode.SUCCESS) -> None:
        """Acknowledges a message with `manual_ack` (the object that `on_publish` got), in any order, any time."""
        data = self._session.acknowledge(publish, code)
        if data:
            self._write(data)

    def acknowledge_all(self, publishes: Sequence[Publish]) -> None:
        """Acknowledges several messages with `manual_ack` at once."""
        data = self._session.acknowledge_all(publishes)
        if data:
            self._write(data)

    def _send_wanted(self) -> None:
        if self._up:
            self._wanted.send_wanted(self._session, self._write, self._now())

    # ----------------------------------------------------------------- transport, called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transport is no subclass of asyncio.Transport, but offers the same.
        self._out.transport = cast(asyncio.Transport, transport)
        self.figures.tls_group = group_of(transport.get_extra_info("ssl_object"))
        if self._verify_peer is not None and not shows(transport.get_extra_info("ssl_object"), self._verify_peer):
            self._why = f"{self._where} {SOMEBODY_ELSE}"
            self._out.transport.abort()
            return
        self._decoder = self._new_decoder()
        if not self._is_lasting:
            self._session = self._new_session()
        self._write(self._session.open(self._now()))
        self._flush()
        self._arm()

    def data_received(self, data: bytes) -> None:
        if not self._up and data.startswith(CONNACK_OF_V3) and self._connect.version == Version.V5:
            self._useless(self.cure_without_v5, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
            return
        self.figures.received_bytes += len(data)
        self._perform_actions(self._session.take_packets(self._decoder.feed(data), self._now()))
        if self._decoder.error is not None and self._out.transport is not None:
            self._why = f"{self._where} sent what is not MQTT: {self._decoder.error}; check what listens there"
            if self._up:
                self._write(self._session.disconnect(self._decoder.error.reason))
            self._end_connection()
        if self._out.is_due:
            self._flush()

    def pause_writing(self) -> None:
        self._session.pause()

    def resume_writing(self) -> None:
        for data in self._session.resume(self._now()):
            self._write(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and not self._why:
            self._why = self._explained(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._out.transport = None
        self.acks.stop_timing()
        self._out.clear_buffer()
        was_up, self._up = self._up, False
        self._perform_actions(self._session.disconnected(self._now()))
        if was_up:
            self.on_down()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    # -------------------------------------------------------------------------------------- actions

    def _perform_actions(self, actions: Sequence[ClientAction]) -> None:
        if self.on_publishes is not None and self.manual_ack:
            publishes = [action for action in actions if type(action) is Publish]
            if publishes and len(publishes) == len(actions):
                self.figures.received += len(publishes)
                self.on_publishes(publishes)
                return
        # Bytes first: a resumed session's repetitions precede publications of callbacks (MQTT 5.0 §4.6).
        for action in actions:
            if type(action) is bytes:
                self._write(action)
        for action in actions:
            if isinstance(action, Publish):
                self.figures.received += 1
                self.on_publish(action)
                if action.qos and not self.manual_ack:
                    self.acknowledge(action)
            elif isinstance(action, Completed):
                self.acks.take_completed(action)
            elif isinstance(action, Connected):
                self._take_connack(action)
            elif isinstance(action, Answered):
                self._wanted.take_answer(action)
                self._send_wanted()
            elif isinstance(action, Unanswered):
                self._wanted.unanswered(action)
            elif isinstance(action, Close):
                self._closed_by_session(action)

    def _take_connack(self, action: Connected) -> None:
        offer = action.connack.properties
        self.packet_limit = offer.maximum_packet_size or PACKET_BYTES_MAX
        self.told, self.clock_ahead_s = offer.user, ahead_s(offer.user, time.time())
        if why := self._unusable(action.connack):
            self._write(self._session.disconnect())
            self._useless(why)
            return
        self._up, self._up_at, self.last_error = True, self._now(), ""
        self._complaints.forget_reasons()
        self.figures.connections += 1
        self.session_present = action.connack.session_present
        self._wanted.begin_connection(self.session_present and not action.doubtful)
        self._send_wanted()
        self._arm()
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        self.on_up()

    def _closed_by_session(self, action: Close) -> None:
        self.refusal, self.ended = (None, action.reason) if self._up else (action.reason, None)
        if self.refusal is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION and self._connect.version == Version.V5:
            self._useless(self.cure_without_v5, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
            return
        verb = "ended the connection" if self._up else "refused the connection"
        self._why = f"{self._where} {verb}: {action.text} (0x{action.reason:02x}); {self._cure(action.reason)}"
        # A quick return would throw out the client that took our session over, and so on forever.
        self._wait_longest = action.reason is ReasonCode.SESSION_TAKEN_OVER
        if self._first is not None and not self._first.done():
            self._first.set_exception(ClientError(self._why, action.reason))
        if action.farewell:
            self._write(action.farewell)
        self._end_connection(0.0 if action.reason is ReasonCode.KEEP_ALIVE_TIMEOUT else END_S)

    def _cure(self, reason: ReasonCode | None) -> str:
        """Returns the cure of a refusal; None: the server closed the connection without a word."""
        return "check the log of that broker" if reason is None else "see the log of that broker"

    def _explained(self, error: BaseException) -> str:
        """Returns a line, cause and cure, for a connection that failed below MQTT."""
        return explain(error, self._where)

    def _useless(self, why: str, code: int = ReasonCode.SERVER_UNAVAILABLE) -> None:
        self._why, self._wait_longest = f"broker {self._where} {why}", True
        self.note_failure(self._why, code)
        self._end_connection()

    # ---------------------------------------------------------------------------------------- bytes

    def _end_connection(self, within_s: float = END_S) -> None:
        self._flush()
        if self._out.transport is not None:
            self._out.transport.close()
            asyncio.get_running_loop().call_later(within_s, self._out.transport.abort)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _arm(self) -> None:
        """(Re)starts the session's timer: CONNACK, keep-alive, an unanswered PINGREQ."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._session.next_deadline
        if deadline is not None and self._out.transport is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._do_due_work)

    def _do_due_work(self) -> None:
        self._timer = None
        self._perform_actions(self._session.due_actions(self._now()))
        self._arm()
