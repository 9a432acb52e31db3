"""One network connection of a client: an `asyncio.Protocol` with batched reads and writes.

One `data_received` parses all packets of the read; whatever many publications cause for one receiver leaves
in one write per turn of the event loop (`Flusher`). Reading stops while something that came earlier is
undecided (a plugin is asked, an acknowledgement is owed) or the client does not read what we answer.
Not here: what packets mean (`mqtt5/session.py`), who gets them (`gateway/broker/edge_broker.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gateway.base import Limits
from gateway.base.log_events import LogEvent
from gateway.broker.flushing import BUSY, CLOSING, UNACKNOWLEDGED, UNREAD, Flusher, Later, Waiting, end_writing
from gateway.broker.host_probes import probe_host
from gateway.broker.write_room import Room
from gateway.clients import INTERNAL, Reached
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.packets import Connect, Packet, Publish, Version
from gateway.mqtt5.session import Action, Close, refusal
from gateway.mqtt5.types import MqttError, ReasonCode
from gateway.operation import Traffic

if TYPE_CHECKING:
    from gateway.clients import Client

log = logging.getLogger("veilmq.connection")

CLOSE_GRACE_S = 5.0
"""How long a peer may take to read our farewell before it is cut off."""
UNREAD_FACTOR = 2
"""A client that is sent answers and does not read them is no longer read from above so many times
`limits.write_bytes`."""
HELD_ACTIONS, HELD_BYTES = 1_024, 1 << 20
"""Of a client whose publication waits for a receiver, so much more is read and kept, lest it could not acknowledge what
it is sent, and two clients that publish to each other would wait for each other."""


class Core(Protocol):
    """What a connection needs of the broker. `Later`: reading and later actions wait until it is done."""

    limits: Limits
    reached: Reached
    traffic: Traffic

    def now(self) -> float: ...
    def opened(self, connection: MqttConnection) -> bool: ...
    def connecting(self, connection: MqttConnection, connect: Connect) -> Later: ...
    def received(self, client: Client, packets: Sequence[Packet], now: float) -> list[Action]: ...
    def published(self, client: Client, publish: Publish) -> Later | Waiting | None: ...
    def perform(self, client: Client, action: Action) -> Later | None: ...
    def lost(self, connection: MqttConnection, error: Exception | None) -> None: ...


class MqttConnection(asyncio.Protocol):
    """Bytes of one client. `client` is set once CONNECT is accepted."""

    def __init__(self, core: Core, flusher: Flusher, listener: str, overlay: bool, over_limit: bool) -> None:
        self.listener, self.is_overlay, self.over_limit = listener, overlay, over_limit
        self.is_internal = listener.startswith(INTERNAL)
        self.client: Client | None = None
        self.closed = False
        # Told of everything that is written, if somebody asked for it.
        self.tap: Callable[[bytes], None] | None = None
        self._core, self._flusher = core, flusher
        self._decoder = Decoder(None, core.limits.packet_bytes, "server", core.limits.connect_bytes)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        # What waits for a batch of the session store: the batch that later bytes wait for, and bytes with theirs.
        self._gate = self._gated_bytes = 0
        self._gated: list[tuple[int, bytes]] = []
        self._held: list[Action] = []
        self._early: list[Packet] = []
        self._answer: asyncio.Future[Packet] | None = None
        # The re-authentication that is under way (`enhanced_auth.py`).
        self.reauthentication: Any = None
        self._task: Waiting | None = None
        self._is_paced = False  # what is waited for is only the time
        self._reads_on = False  # what is waited for keeps us from nothing but what came behind it
        self._paused = 0
        # When reading was last resumed, in the broker's time.
        self.held_until = 0.0
        self._lost: tuple[Exception | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room = Room(core.limits.stalled_s, self._unsent, self._stalled)

    # ------------------------------------------------------------------------------------------ the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        limits = self._core.limits
        transport.set_write_buffer_limits(high=limits.write_bytes)  # type: ignore[attr-defined]
        if not self._core.opened(self):
            self.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(limits.connect_timeout_s, self._no_connect)

    def _no_connect(self) -> None:
        self._core.reached.note("connect_timeout_s", self.address)
        self.abort()

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the client."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return (str(name[0]), int(name[1])) if isinstance(name, tuple | list) and len(name) >= 2 else None

    @property
    def address(self) -> str:
        peer = self.peer
        return f"{peer[0]}:{peer[1]}" if peer else f"client of listener {self.listener}"

    @property
    def tls(self) -> Any:
        """The `ssl.SSLObject` of the connection, or None."""
        return self._transport.get_extra_info("ssl_object") if self._transport else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self._room.end()
        self.closed = True
        self._lost = (exc,)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("closed by the client"))
        # What came before the end still counts: a QoS 0 PUBLISH followed by a close is no lost message.
        if self._task is None:
            self._core.lost(self, exc)

    def probe_host(self, within_s: float) -> None:
        """Have the system end this connection when its peer's machine is gone for so long."""
        probe_host(self._transport, within_s)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------------------------------------ reading

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        decoder, traffic = self._decoder, self._core.traffic
        packets = decoder.feed(data)
        traffic.bytes_received += len(data)
        traffic.read(packets)
        client = self.client
        if client is None:
            self._before_connected(packets)
            return
        actions = self._core.received(client, packets, self._core.now()) if packets else []
        if decoder.error is not None:
            actions.append(self._fault(decoder.error))
        if self._task is not None:
            self._keep(actions)
        else:
            self._perform(actions)
        self._flusher.read(len(data))

    def _before_connected(self, packets: list[Packet]) -> None:
        error = self._decoder.error
        if self._task is None and packets:
            connect = packets.pop(0)
            assert isinstance(connect, Connect), "the decoder of a server lets nothing else come first"
            self._cancel_timer()
            self._early = packets
            self._wait_for(self._core.connecting(self, connect))
        elif self._answer is not None and not self._answer.done() and (packets or error is not None):
            if packets:
                self._answer.set_result(packets.pop(0))
            elif error is not None:
                self._answer.set_exception(error)
            self._early += packets
        elif packets:
            self._early += packets
        elif error is not None and self._task is None:
            LogEvent.NO_PACKET.say(log, self.address, error)
            if error.reason == ReasonCode.PACKET_TOO_LARGE:
                self._core.reached.note("connect_bytes", self.address)
            self.refuse(error.reason, Version.V5 if self._decoder.answers_v5 else self._decoder.version)

    async def challenge(self, data: bytes) -> Packet:
        """Write AUTH while CONNECT is undecided, and wait for what the client says next.

        Raises ConnectionError when the connection ends first, MqttError for bytes that are no packet.
        """
        self.write(data)
        if self._early:
            return self._early.pop(0)
        if self._decoder.error is not None:
            raise self._decoder.error
        if self.closed or self._lost is not None:
            raise ConnectionResetError("closed by the client")
        self._answer = asyncio.get_running_loop().create_future()
        self.resume(BUSY)
        try:
            return await self._answer
        finally:
            self._answer = None
            self.pause(BUSY)

    def established(self, client: Client) -> None:
        """CONNECT was accepted; what came right behind it is handled when the acceptance is done."""
        self.client = client
        packets, self._early = self._early, []
        self._held = self._core.received(client, packets, self._core.now()) if packets else []
        if self._decoder.error is not None:
            self._held.append(self._fault(self._decoder.error))

    def _fault(self, error: MqttError) -> Close:
        assert self.client is not None
        return self.client.session.close(error.reason, str(error))

    def _perform(self, actions: list[Action]) -> None:
        """Do what the session says, in order; stop where something must be waited for."""
        core, client = self._core, self.client
        assert client is not None
        pace = client.pace
        for place, action in enumerate(actions):
            kind = type(action)
            if kind is Publish:
                if pace is not None and (wait_s := pace.take(core.now())):
                    core.reached.note("publish_rate", client.client_id)
                    self._held = actions[place:]
                    self._wait_for(asyncio.sleep(wait_s))
                    self._is_paced = True
                    return
                later: Later | Waiting | None = core.published(client, action)  # type: ignore[arg-type]
            elif kind is bytes:
                self.write(action)  # type: ignore[arg-type]
                continue
            else:
                later = core.perform(client, action)
            if later is not None:
                self._held = []
                self._keep(actions[place + 1 :])
                self._wait_for(later)
                return
            if client.connection is not self and self._lost is None:
                return  # closed by us, or taken over: nothing of this connection counts any more

    def _keep(self, actions: list[Action]) -> None:
        """Something that came earlier is undecided: the client waits, but not for answers that do not depend on it."""
        for action in actions:
            if self._reads_on and type(action) is bytes:
                self.write(action)
            else:
                self._held.append(action)
        if self._reads_on and self._holds_enough():
            self.pause(BUSY)

    def _holds_enough(self) -> bool:
        held = self._held
        return len(held) > HELD_ACTIONS or sum(len(one.payload) for one in held if type(one) is Publish) > HELD_BYTES

    def read_on(self) -> None:
        """What is waited for depends on others: acknowledgements are still read, and the rest is kept up to a bound."""
        self._reads_on = True
        if self._task is not None and not self._holds_enough():
            self.resume(BUSY)

    def _wait_for(self, later: Later | Waiting) -> None:
        if not self._reads_on or self._holds_enough():
            self.pause(BUSY)
        else:
            self.resume(BUSY)
        self._task = asyncio.ensure_future(later)
        self._task.add_done_callback(self._done_waiting)

    def _done_waiting(self, task: Waiting) -> None:
        self._task, self._is_paced, self._reads_on = None, False, False
        if not task.cancelled() and (error := task.exception()) is not None:
            LogEvent.CONNECTION_FAILED.say(log, self.address, exc_info=error)
            self._held = []
            self.abort()
        held, self._held = self._held, []
        # Taken over or closed by us meanwhile: nothing of this connection counts any more.
        if self.client is not None and self.client.connection is self:
            self._perform(held)
        if self._has_task():
            return
        if self._lost is not None:
            self._core.lost(self, self._lost[0])
        else:
            self.resume(BUSY)

    def _is_open(self) -> bool:
        # uvloop raises where asyncio ignores what comes between the peer's close and `connection_lost`.
        return self._transport is not None and not self.closed and not self._transport.is_closing()

    def _has_task(self) -> bool:
        return self._task is not None

    @property
    def is_waiting(self) -> bool:
        """Something that came earlier is undecided."""
        return self._task is not None and not self._is_paced

    def pause(self, why: int) -> None:
        if not self._paused and self._is_open():
            self._transport.pause_reading()  # type: ignore[union-attr]
        self._paused |= why

    def resume(self, why: int) -> None:
        was, self._paused = self._paused, self._paused & ~why
        if was & why:
            self.held_until = self._core.now()
        if was and not self._paused and self._is_open():
            self._transport.resume_reading()  # type: ignore[union-attr]

    @property
    def is_held(self) -> bool:
        """Reading is paused by us, so silence is not the client's fault."""
        return bool(self._paused & (BUSY | UNACKNOWLEDGED))

    # ------------------------------------------------------------------------------------------------ writing

    def write(self, data: bytes) -> None:
        """Queue bytes for the next flush; ignored once closed."""
        if self._gate:
            self._write_gated(data)
            return
        if not self._out:
            self._flusher.add(self)
        self._out.append(data)

    def gate(self, batch: int) -> bool:
        """What is written from now on leaves with `release(batch)`. False if that is so already, or closed."""
        if self.closed or self._gate == batch:
            return False
        self._gate = batch
        return True

    def _write_gated(self, data: bytes) -> None:
        self._gated.append((self._gate, data))
        self._gated_bytes += len(data)
        if self._gated_bytes > self._core.limits.write_bytes and self.client is not None:
            self.client.session.pause()  # a slow disk, like a slow client, must not fill memory

    def release(self, batch: int) -> None:
        """A batch is on disk, and all before it."""
        if self._gate <= batch:
            self._gate = 0
        ready = [data for number, data in self._gated if number <= batch]
        del self._gated[: len(ready)]
        if not ready or self.closed:
            return
        self._gated_bytes = sum(len(data) for _, data in self._gated)
        if not self._out:
            self._flusher.add(self)
        self._out += ready
        if self.client is not None and self.client.session.paused and not (self._gated or self._room.is_full):
            for data in self.client.session.resume(self._core.now()):
                self.write(data)

    def flush(self) -> None:
        out = self._out
        if not out:
            return
        transport = self._transport
        if self.closed or transport is None:
            out.clear()
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        traffic = self._core.traffic
        traffic.packets_sent += len(out)
        traffic.bytes_sent += len(data)
        out.clear()
        transport.write(data)
        if self.tap is not None:
            self.tap(data)
        if self._room.is_full and (transport.get_write_buffer_size() > UNREAD_FACTOR * self._core.limits.write_bytes):
            self.pause(UNREAD)

    def pause_writing(self) -> None:
        self._room.full()
        if self.client is not None:
            self._core.reached.note("write_bytes", self.client.client_id)
            self.client.session.pause()

    def resume_writing(self) -> None:
        self._room.free()
        if self.client is not None and not self.closed:
            for data in self.client.session.resume(self._core.now()):
                self.write(data)
        self.resume(UNREAD)

    def _unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _stalled(self) -> None:
        self._core.reached.note("stalled_s", self.client.client_id if self.client is not None else self.address)
        self.abort()

    async def room(self) -> bool:
        """Write what is queued and wait until the peer has taken enough of it. False: the connection is gone."""
        self.flush()
        if not self.closed:
            await self._room.wait()
        return not self.closed

    def _stop_waiting(self) -> None:
        """We end the connection: what is held back only to slow the client down is not done any more."""
        self._room.end()
        if self._task is not None and self._is_paced:
            self._task.cancel()

    def refuse(self, reason: ReasonCode, version: Version | None, maximum_packet_size: int | None = None) -> None:
        """Answer CONNECT with a CONNACK of failure, where the version has one and it fits, and close."""
        answer = refusal(version, reason)
        self.close(answer if maximum_packet_size is None or len(answer) <= maximum_packet_size else b"", lingers=True)

    def close(self, farewell: bytes = b"", lingers: bool = False) -> None:
        """Send what is queued and `farewell`, then close; a peer that does not read is cut off soon.

        `lingers`: the peer is still writing. Closing at once would reset the connection, and it would never read why.
        """
        if self.closed or self._transport is None:
            return
        self._cancel_timer()
        self._stop_waiting()
        if farewell and not self._gated:  # never before the CONNACK that may wait there
            self._out.append(farewell)
        self._gated.clear()
        self.flush()
        if lingers and farewell and self._is_open() and end_writing(self._transport):
            self.resume(self._paused)  # what still comes is read and dropped, until the peer closes
            self.closed = True
        else:
            self.pause(CLOSING)
            self.closed = True
            self._transport.close()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(CLOSE_GRACE_S, self._transport.abort)

    def abort(self) -> None:
        """Close at once, without a word."""
        self._cancel_timer()
        self._stop_waiting()
        self._out.clear()
        self._gated.clear()
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
