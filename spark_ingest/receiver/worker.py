"""A worker process of a receiver: `python -m spark_ingest.receiver.worker SOCKET`, started by `workers`.

A worker is a receiver with a part of the spool and a file of scope keys of its own, whose replicas are at the
other end of a socket: it has no identity and no connection. It ends when that end says so, or is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from bridge.contract import HISTORY_TOPIC, Prove
from bridge.document import Overlay, Scope, ScopeSecret
from gateway.base import collect_seldom
from gateway.base.logs import configure
from gateway.overlay import Properties, Publish
from keys.envelope import KeyName
from spark_ingest.receiver.channel import (
    Channel,
    LinkStanding,
    WorkAsked,
    WorkBegun,
    WorkDone,
    WorkEnd,
    WorkFailed,
    WorkKnowledge,
    WorkPage,
    WorkProved,
    WorkSetup,
    WorkSpooled,
    WorkTold,
    WorkWanted,
    first_of,
)
from spark_ingest.receiver.progress import ReplicaLink
from spark_ingest.receiver.receiver import OnArrivals, Receiver
from spark_ingest.receiving import Dealt, SpooledBatch
from spark_ingest.secrets import Grants

STOP_S = 60.0
"""Patience with the group that is being written at the end; a disk that takes longer has failed."""
TELL_S = 1.0


class DealtReplicas:
    """A `receiver.ReplicaClient` of a worker, over all of its sessions. The channel is in another thread's loop."""

    def __init__(self, setup: WorkSetup, send: Callable[[object], None]) -> None:
        """Takes the setup and `send`, which may be called from any thread."""
        self._known, self._standing, self._send = setup.known, setup.standing, send
        self._session = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_arrivals: OnArrivals | None = None
        self._on_keys: Callable[[], None] | None = None

    @property
    def overlay(self) -> Overlay:
        """The version in force."""
        return self._known.overlay

    @property
    def home_region(self) -> int:
        """The region to whose replicas the receiver listens."""
        return self._known.home_region

    @property
    def name(self) -> str:
        """The member that reads."""
        return self._known.name

    def read_scopes(self) -> Sequence[Scope]:
        """Returns the subscribed scopes."""
        return self._known.scopes

    def held_grants(self) -> Grants:
        """Returns the scopes and keys the receiver told last."""
        return self._known.held

    def want_keys(self, names: Collection[KeyName]) -> None:
        """Passes the wish for keys on to the receiver."""
        self._send(WorkWanted(tuple(names)))

    def ask_replica(self, replica: str, topic: str, payload: bytes) -> None:
        """Passes the request for content on to the receiver."""
        self._send(WorkAsked(replica, topic, payload))

    def keep_evidence(self, proof: Prove) -> None:
        """Passes evidence on to the receiver, which has the identity."""
        self._send(WorkProved(proof))

    def secrets(self) -> Sequence[ScopeSecret]:
        """Returns the knowledge of scopes the receiver told last."""
        return self._known.secrets

    def take_spooled(self, batches: Sequence[SpooledBatch]) -> None:
        """Passes batches that are on disk on to the receiver, which has the identity."""
        self._send(WorkSpooled(tuple(batches)))

    @property
    def is_accepted(self) -> bool:
        """True if enough replicas know all our subscriptions."""
        return self._standing.accepted

    @property
    def reads_back(self) -> bool:
        """True if it is this worker's turn to read histories."""
        return self._standing.accepted and self._standing.reads_back

    def connected_replicas(self) -> tuple[str, ...]:
        """Returns the connected replicas, as the receiver told last."""
        return self._standing.up

    def link_states(self) -> list[ReplicaLink]:
        """Returns an empty list: the receiver has the links."""
        return []

    def clocks(self) -> tuple[float, ...]:
        """Returns the leads the receiver told last."""
        return self._standing.clocks

    def acknowledge_all(self, publishes: Sequence[Publish]) -> None:
        """Acknowledges messages to the receiver; the number of a packet is its ticket, and a page has none."""
        if tickets := [publish.packet_id for publish in publishes if publish.packet_id]:
            self._send(WorkDone(tickets))

    async def run(self, on_arrivals: OnArrivals, on_keys: Callable[[], None]) -> None:
        """Runs until cancelled; unacknowledged pieces come again when the next session begins."""
        self._loop, self._on_arrivals, self._on_keys = asyncio.get_running_loop(), on_arrivals, on_keys
        self._session += 1
        self._send(WorkBegun(self._session))
        try:
            await asyncio.Event().wait()
        finally:
            self._on_arrivals = None

    # ------------------------------------------------------------------------- in the channel's thread

    def take_message(self, message: object) -> None:
        """Takes a message of the receiver."""
        match message:
            case Dealt(session, replica, pieces):
                publishes = [
                    Publish(topic, payload, 1, packet_id=ticket, properties=Properties(user=user))
                    for ticket, topic, payload, user in pieces
                ]
                self._in_loop(self._arrived, session, replica, publishes)
            case WorkPage(replica, payload):
                page = Publish(HISTORY_TOPIC, payload, 1, properties=Properties())
                self._in_loop(self._arrived, self._session, replica, [page])
            case WorkKnowledge():
                self._known = message
                self._in_loop(self._keys_changed)
            case LinkStanding():
                self._standing = message

    def _in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the receiver's loop has ended
                self._loop.call_soon_threadsafe(call, *arguments)

    def _arrived(self, session: int, replica: str, publishes: Sequence[Publish]) -> None:
        if self._on_arrivals is not None and session == self._session:
            self._on_arrivals(replica, publishes, self)

    def _keys_changed(self) -> None:
        if self._on_keys is not None and self._on_arrivals is not None:
            self._on_keys()


async def serve(sock: socket.socket) -> int:
    """Runs until the other end says so. Returns exit status 2 for a fault that waiting does not cure."""
    setup = first_of(sock)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def send(message: object) -> None:
        with contextlib.suppress(RuntimeError):  # we have ended
            loop.call_soon_threadsafe(channel.send_message, message)

    replicas = DealtReplicas(setup, send)

    def take(message: object) -> None:
        if isinstance(message, WorkEnd):
            ended.set()
        else:
            replicas.take_message(message)

    channel = Channel(take, ended.set)
    sock.setblocking(False)
    await loop.create_connection(lambda: channel, sock=sock)
    receiver = Receiver(setup.settings, lambda: replicas)
    receiver.start()
    collect_seldom()
    while receiver.alive and not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), TELL_S)
        channel.send_message(_told(receiver))
    await asyncio.to_thread(receiver.stop, STOP_S)
    if receiver.failure is not None:
        channel.send_message(WorkFailed(str(receiver.failure)))
    channel.send_message(_told(receiver))
    channel.close()
    await asyncio.sleep(0)  # what was sent goes
    return 0 if receiver.failure is None else 2


def _told(receiver: Receiver) -> WorkTold:
    return WorkTold(receiver.progress, Counter(dict(receiver.figures)), receiver.trouble)


def main() -> int:
    """Runs the process; its argument is the number of its end of the socket pair."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)  # of a terminal, or a supervisor: the receiver says when
    configure("text")
    try:
        return asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
    except EOFError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
