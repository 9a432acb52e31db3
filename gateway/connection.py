"""One network connection of a client: an `asyncio.Protocol` with batched reads and writes.

One `data_received` parses all packets of the read; whatever many publications cause for one receiver leaves
in one write per turn of the event loop (`Flusher`). Reading stops while something that came earlier is
undecided (a plugin is asked, an acknowledgement is owed) or the client does not read what we answer.
Not here: what packets mean (`mqtt5/session.py`), who gets them (`gateway/broker.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from .config import Limits
from .mqtt5.codec import Decoder
from .mqtt5.packets import Connect, Packet, Publish, Version
from .mqtt5.session import Action, Close, refusal
from .mqtt5.types import MqttError, ReasonCode

if TYPE_CHECKING:
    from .clients import Client

log = logging.getLogger("veilmq.connection")

#: How long a peer may take to read our farewell before it is cut off.
CLOSE_GRACE_S = 5.0
#: A client that is sent answers and does not read them is no longer read from above so many times
#: `limits.write_bytes`.
UNREAD_FACTOR = 2

# Why reading is paused; any of them is enough.
BUSY, UNACKNOWLEDGED, UNREAD, CLOSING = 1, 2, 4, 8

Later: TypeAlias = Coroutine[Any, Any, None]


class Core(Protocol):
    """What a connection needs of the broker. `Later`: reading and later actions wait until it is done."""

    limits: Limits

    def now(self) -> float: ...
    def opened(self, connection: MqttConnection) -> bool: ...
    def connecting(self, connection: MqttConnection, connect: Connect) -> Later: ...
    def received(self, client: Client, packets: Sequence[Packet], now: float) -> list[Action]: ...
    def published(self, client: Client, publish: Publish) -> Later | None: ...
    def perform(self, client: Client, action: Action) -> Later | None: ...
    def lost(self, connection: MqttConnection, error: Exception | None) -> None: ...


class Flusher:
    """Connections with something to write, flushed together once per turn of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: list[MqttConnection] = []

    def add(self, connection: MqttConnection) -> None:
        if not self._dirty:
            self._loop.call_soon(self.flush)
        self._dirty.append(connection)

    def flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()


class MqttConnection(asyncio.Protocol):
    """Bytes of one client. `client` is set once CONNECT is accepted."""

    def __init__(self, core: Core, flusher: Flusher, listener: str, overlay: bool, over_limit: bool) -> None:
        self.listener, self.is_overlay, self.over_limit = listener, overlay, over_limit
        self.client: Client | None = None
        self.closed = False
        #: Told of everything that is written, if somebody asked for it.
        self.tap: Callable[[bytes], None] | None = None
        self._core, self._flusher = core, flusher
        self._decoder = Decoder(None, core.limits.packet_bytes, "server")
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._held: list[Action] = []
        self._early: list[Packet] = []
        self._task: asyncio.Task[None] | None = None
        self._paused = 0
        self._writing_paused = False
        #: When reading was last resumed, in the broker's time.
        self.held_until = 0.0
        self._lost: tuple[Exception | None] | None = None
        self._timer: asyncio.TimerHandle | None = None

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
        log.info("%s: no CONNECT within %g s", self.address, self._core.limits.connect_timeout_s)
        self.abort()

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the client."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return (str(name[0]), int(name[1])) if isinstance(name, tuple | list) and len(name) >= 2 else None

    @property
    def address(self) -> str:
        peer = self.peer
        return f"{peer[0]}:{peer[1]}" if peer else "unknown peer"

    @property
    def tls(self) -> Any:
        """The `ssl.SSLObject` of the connection, or None."""
        return self._transport.get_extra_info("ssl_object") if self._transport else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self.closed = True
        self._lost = (exc,)
        # What came before the end still counts: a QoS 0 PUBLISH followed by a close is no lost message.
        if self._task is None:
            self._core.lost(self, exc)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------------------------------------ reading

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        decoder = self._decoder
        packets = decoder.feed(data)
        client = self.client
        if client is None:
            self._before_connected(packets)
            return
        actions = self._core.received(client, packets, self._core.now()) if packets else []
        if decoder.error is not None:
            actions.append(self._fault(decoder.error))
        if self._task is not None:
            self._held += actions
        else:
            self._perform(actions)

    def _before_connected(self, packets: list[Packet]) -> None:
        error = self._decoder.error
        if self._task is None and packets:
            connect = packets.pop(0)
            assert isinstance(connect, Connect), "the decoder of a server lets nothing else come first"
            self._cancel_timer()
            self._early = packets
            self._wait_for(self._core.connecting(self, connect))
        elif packets:
            self._early += packets
        elif error is not None and self._task is None:
            log.info("%s: %s", self.address, error)
            self.refuse(error.reason, self._decoder.version)

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
        for place, action in enumerate(actions):
            kind = type(action)
            if kind is Publish:
                later = core.published(client, action)  # type: ignore[arg-type]
            elif kind is bytes:
                self.write(action)  # type: ignore[arg-type]
                continue
            else:
                later = core.perform(client, action)
            if later is not None:
                self._held = actions[place + 1 :]
                self._wait_for(later)
                return
            if client.connection is not self and self._lost is None:
                return  # closed by us, or taken over: nothing of this connection counts any more

    def _wait_for(self, later: Later) -> None:
        self.pause(BUSY)
        self._task = asyncio.get_running_loop().create_task(later)
        self._task.add_done_callback(self._done_waiting)

    def _done_waiting(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: internal error", self.address, exc_info=error)
            self._held = []
            self.abort()
        held, self._held = self._held, []
        if self.client is not None:
            self._perform(held)
        if self._is_waiting():
            return
        if self._lost is not None:
            self._core.lost(self, self._lost[0])
        else:
            self.resume(BUSY)

    def _is_open(self) -> bool:
        # uvloop raises where asyncio ignores what comes between the peer's close and `connection_lost`.
        return self._transport is not None and not self.closed and not self._transport.is_closing()

    def _is_waiting(self) -> bool:
        return self._task is not None

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
        if not self._out:
            self._flusher.add(self)
        self._out.append(data)

    def flush(self) -> None:
        out = self._out
        if not out:
            return
        transport = self._transport
        if self.closed or transport is None:
            out.clear()
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        transport.write(data)
        if self.tap is not None:
            self.tap(data)
        if self._writing_paused and (transport.get_write_buffer_size() > UNREAD_FACTOR * self._core.limits.write_bytes):
            self.pause(UNREAD)

    def pause_writing(self) -> None:
        self._writing_paused = True
        if self.client is not None:
            self.client.session.pause()

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self.client is not None and not self.closed:
            for data in self.client.session.resume(self._core.now()):
                self.write(data)
        self.resume(UNREAD)

    def refuse(self, reason: ReasonCode, version: Version | None) -> None:
        """Answer CONNECT with a CONNACK of failure, where the version has one, and close."""
        self.close(refusal(version, reason))

    def close(self, farewell: bytes = b"") -> None:
        """Send what is queued and `farewell`, then close; a peer that does not read is cut off soon."""
        if self.closed or self._transport is None:
            return
        self._cancel_timer()
        if farewell:
            self._out.append(farewell)
        self.flush()
        self.pause(CLOSING)
        self.closed = True
        self._transport.close()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(CLOSE_GRACE_S, self._transport.abort)

    def abort(self) -> None:
        """Close at once, without a word."""
        self._cancel_timer()
        self._out.clear()
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
