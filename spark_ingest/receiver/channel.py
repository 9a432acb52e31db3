"""The channel between a receiver and its worker processes, over a socket pair without a name.

Frames are pickled: both ends are a single program of a user, and no third process can connect to the socket. Scope
keys pass through the channel, so that no file but each worker's own holds them.

    receiver -> worker   WorkSetup; WorkKnowledge at each change, LinkStanding each second; Dealt, WorkPage; WorkEnd
    worker -> receiver   WorkBegun, WorkDone, WorkWanted, WorkAsked, WorkProved, WorkSpooled; WorkTold each second;
                         WorkFailed

Not here: how pieces are dealt (`dealing`), the two ends (`workers`, `worker`).
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from bridge.contract import Prove
from bridge.document import Overlay, Scope, ScopeSecret
from keys.envelope import KeyName
from spark_ingest.receiver.progress import Progress
from spark_ingest.receiver.receiver import ReceiverSettings
from spark_ingest.receiving import SpooledBatch
from spark_ingest.secrets import Grants

SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class WorkKnowledge:
    """The overlay in force, and the scopes the job may read now. `name`: of the job; `scopes`: those subscribed."""

    overlay: Overlay
    home_region: int
    held: Grants = field(repr=False)
    name: str = ""
    scopes: tuple[Scope, ...] = ()
    secrets: tuple[ScopeSecret, ...] = ()


class LinkStanding(NamedTuple):
    """The values of `ReplicaClient.is_accepted`, `clocks` and `up`. `reads_back`: the worker may read histories now."""

    accepted: bool
    clocks: tuple[float, ...]
    up: tuple[str, ...] = ()
    reads_back: bool = False


@dataclass(frozen=True, slots=True)
class WorkSetup:
    """The first message to a worker: its part of the spool, and the present knowledge."""

    settings: ReceiverSettings
    known: WorkKnowledge
    standing: LinkStanding


class WorkPage(NamedTuple):
    """A page of a history that the worker asked for. It is acknowledged already: what is lost is asked for again."""

    replica: str
    payload: bytes


class WorkEnd(NamedTuple):
    """An order to end after the group that is being written."""


class WorkBegun(NamedTuple):
    """A note that a worker's session began: the worker has no pieces but those that it wrote."""

    session: int


class WorkDone(NamedTuple):
    """Tickets of pieces that are durable, or not wanted."""

    tickets: list[int]


class WorkWanted(NamedTuple):
    """Names of epoch keys in publications."""

    names: tuple[KeyName, ...]


class WorkProved(NamedTuple):
    """Evidence against a publisher, to be kept beside the identity."""

    proof: Prove


class WorkSpooled(NamedTuple):
    """Batches that are on a worker's disk, for receipts."""

    batches: tuple[SpooledBatch, ...]


class WorkAsked(NamedTuple):
    """A request for content, for a replica."""

    replica: str
    topic: str
    payload: bytes


class WorkTold(NamedTuple):
    """A worker's report on itself."""

    progress: Progress
    figures: Counter[tuple[str, str]]
    trouble: str | None


class WorkFailed(NamedTuple):
    """The reason for which a worker ended, if waiting does not cure it."""

    text: str


def framed(message: Any) -> bytes:
    """Returns a message as it goes over the socket."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(SIZE_BYTES) + data


def first_of(sock: socket.socket) -> Any:
    """Waits for a message, and reads no byte beyond it. Raises EOFError."""
    size = int.from_bytes(_exactly(sock, SIZE_BYTES))
    return pickle.loads(_exactly(sock, size))  # noqa: S301  of the process that started us


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError("the receiver ended")
        data += part
    return data


class Channel(asyncio.Protocol):
    """An end of the channel. `on_message` gets each message, `on_lost` is called when the other end is gone."""

    def __init__(self, on_message: Callable[[Any], None], on_lost: Callable[[], None]) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        self._transport: asyncio.Transport | None = None
        self._held = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        at = 0
        while len(held) - at >= SIZE_BYTES:
            end = at + SIZE_BYTES + int.from_bytes(held[at : at + SIZE_BYTES])
            if len(held) < end:
                break
            message = pickle.loads(held[at + SIZE_BYTES : end])  # noqa: S301  of our own process
            at = end
            self._on_message(message)
        del held[:at]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._on_lost()

    def send_message(self, message: Any) -> None:
        """Sends a message; does nothing when the other end is gone."""
        if self._transport is not None:
            self._transport.write(framed(message))

    def close(self) -> None:
        """Closes this end after the last sent message."""
        if self._transport is not None:
            self._transport.close()
