"""MQTT over WebSocket for the `asyncio.Protocol` that also serves TCP: frames in, frames out.

`WebSocketProtocol` speaks HTTP and frames with the network (the sans-I/O half of `websockets`) and is the transport of
the protocol inside. Packets may be split over frames anywhere; the data of a read is passed on at once, and a single
write becomes a single frame. A text frame ends the connection. Compression is off, because a few bytes could expand to
many. No MQTT is known here, and no proxy headers are believed. Source: MQTT 5.0 §6, RFC 6455.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from websockets import Origin, Subprotocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol

FRAME_SPARE_BYTES = 64 << 10
"""Bytes that a frame may hold besides a packet of the largest size; a longer frame ends the connection with code
1009.
"""
SUBPROTOCOLS = (Subprotocol("mqtt"), Subprotocol("mqttv3.1"))
"""Clients of MQTT 3.1 ask for `mqttv3.1`; the later versions know `mqtt` only (MQTT-6.0.0-3)."""

log = logging.getLogger("veilmq.websocket")
# `websockets` writes every frame to a logger that is enabled for DEBUG, and payloads do not belong into logs.
log.setLevel(logging.WARNING)


class WebSocketProtocol(asyncio.Protocol):
    """A WebSocket connection.

    `inner` learns of the connection at once, so that its time limit covers the handshake too. `origins`: pages whose
    scripts may connect, as in the `Origin` header; empty: any. Clients other than browsers send no `Origin` and are
    admitted. `packet_bytes`: the largest MQTT packet.
    """

    def __init__(self, inner: asyncio.Protocol, packet_bytes: int, origins: Sequence[str] = ()) -> None:
        self._inner = inner
        allowed = [Origin(origin) for origin in origins]
        self._frames = ServerProtocol(
            origins=[*allowed, None] if allowed else None,
            subprotocols=SUBPROTOCOLS,
            max_size=packet_bytes + FRAME_SPARE_BYTES,
            logger=log,
        )
        self._transport: asyncio.Transport | None = None
        self._writing_paused = False

    # -------------------------------------------------------------------------------- what the network calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._inner.connection_made(_FrameTransport(self, self._frames, transport))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        frames = self._frames
        if frames.state is State.CLOSED:
            return
        was_shaking_hands = frames.state is State.CONNECTING
        frames.receive_data(data)
        events = frames.events_received()
        if was_shaking_hands:
            self._answer_handshake(events)
            return
        arrived: list[bytes] = []
        for event in events:
            if isinstance(event, Frame) and not self._collect(event, arrived):
                break
        # Pongs to a peer that does not read them would fill memory; RFC 6455 §5.5.3 lets us leave them out.
        self.flush(drop=self._writing_paused and not frames.close_expected())
        if arrived:
            self._inner.data_received(b"".join(arrived))

    def _answer_handshake(self, events: list[Request | Response | Frame]) -> None:
        frames = self._frames
        match events:
            case [Request() as request] if frames.parser_exc is None:
                frames.send_response(frames.accept(request))
            case []:
                pass  # the rest of the request is yet to come, or the request was invalid
            case _:  # frames before our answer (RFC 6455 §4.1)
                assert self._transport is not None
                self._transport.abort()
                return
        self.flush()

    def _collect(self, frame: Frame, arrived: list[bytes]) -> bool:
        """Keeps the data of a frame; returns False for a forbidden frame."""
        if frame.opcode is Opcode.TEXT:
            if self._frames.state is State.OPEN:
                self._frames.fail(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")
            return False
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            arrived.append(bytes(frame.data))
        return True

    def eof_received(self) -> None:
        """Handles the end of the peer's stream; the transport closes after the return."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._inner.resume_writing()

    def flush(self, drop: bool = False) -> None:
        """Writes the output of the frame layer, and closes the connection when the frame layer asks for that."""
        transport = self._transport
        assert transport is not None
        for data in self._frames.data_to_send():
            if data == SEND_EOF:
                transport.close()
            elif not drop and not transport.is_closing():
                transport.write(data)


class _FrameTransport(asyncio.Transport):
    """The transport of the inner protocol: wraps written bytes in frames for the transport below."""

    def __init__(self, outer: WebSocketProtocol, frames: ServerProtocol, below: asyncio.Transport) -> None:
        super().__init__()
        self._outer, self._frames, self._below = outer, frames, below

    def write(self, data: Any) -> None:
        if self._frames.state is State.OPEN:
            self._frames.send_binary(bytes(data))
            self._outer.flush()

    def close(self) -> None:
        """Sends a close frame if the handshake is done; the peer's close frame then ends the connection.

        The caller sets a time limit and aborts after the limit, as for a peer that does not read.
        """
        if self._frames.state is State.OPEN:
            self._frames.send_close(CloseCode.NORMAL_CLOSURE)
            self._outer.flush()
            self._below.resume_reading()
        elif self._frames.state is not State.CLOSING:
            self._below.close()

    def can_write_eof(self) -> bool:
        """Returns False: `close` sends a close frame instead, and still reads the peer's close frame."""
        return False

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._frames.state in (State.CLOSING, State.CLOSED) or self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def is_reading(self) -> bool:
        return self._below.is_reading()
