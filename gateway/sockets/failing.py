"""End of a connection after an exception of the broker: the client gets 0x80, the operator reads the traceback.

Nothing else ends: other clients, and the sessions of this one, go on. Not here: publications that are refused singly
(`broker.offering`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol, cast

from gateway.base.log_events import LogEvent
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.packets import Version
from gateway.mqtt5.types import ReasonCode
from gateway.sockets.flushing import Core

if TYPE_CHECKING:
    from gateway.clients import Client

log = logging.getLogger("veilmq.connection")


class Failing(Protocol):
    """Connection of a client, as far as `end_failed` needs it."""

    client: Client | None
    closed: bool

    @property
    def address(self) -> str: ...
    def refuse_connect(self, reason: ReasonCode, version: Version | None, /) -> None: ...
    def abort(self) -> None: ...


def end_failed(connection: Failing, core: Core, decoder: Decoder, error: BaseException) -> None:
    """Counts and logs `error`, and ends the connection with CONNACK or DISCONNECT 0x80, as far as its version has one.

    If sending the packet fails too, the connection ends without a packet.
    """
    core.traffic.defects.note_error(log, LogEvent.CONNECTION_FAILED, error, connection.address)
    client, here = connection.client, cast(Any, connection)
    try:
        if client is None:
            connection.refuse_connect(
                ReasonCode.UNSPECIFIED_ERROR, Version.V5 if decoder.answers_v5 else decoder.version
            )
        elif client.connection is here:
            core.perform(client, client.session.close(ReasonCode.UNSPECIFIED_ERROR, "internal error"))
    except Exception as fault:  # noqa: BLE001  counted as well
        core.traffic.defects.note_error(log, LogEvent.CONNECTION_FAILED, fault, connection.address)
    if not connection.closed:
        connection.abort()
