"""A receiver in several processes under a single identity: `veilmq ingest run --workers N`.

    replicas ══> this process: links, TLS, MQTT ══ socket pairs ══> workers: verify, collect, write their part

A process has the identity and a single session at each replica, as a single receiver has: neither replicas nor stock
brokers learn of workers, and nothing is sent twice. Each worker is a receiver with a part of the spool of its own,
`NAME.w1of2`, and a file of scope keys beside the usual one. A PUBACK goes out when all workers that got a piece have
it on disk. A worker that dies is started again, and gets the pieces that it has not answered for. With another number
of workers the former parts stay for queries, and the new workers know their content.

Not here: how pieces are dealt (`receiving.dealing`), the work of a worker (`worker`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.base.log_events import LogEvent
from gateway.overlay import Publish
from keys.errors import KeysError
from spark_ingest.errors import IngestError
from spark_ingest.receiver.acknowledging import Sender, acknowledge
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
)
from spark_ingest.receiver.family import grants_of, kin, part_of
from spark_ingest.receiver.looping import LoopThread
from spark_ingest.receiver.progress import Progress, summed, tell_links, too_few
from spark_ingest.receiver.reaching_back import hand_on
from spark_ingest.receiver.receiver import SETTLED_S, ReceiverSettings, ReplicaClient
from spark_ingest.receiver.worker import STOP_S
from spark_ingest.receiving import LANES_MAX, Backfill, Dealer
from spark_ingest.spool import Shard, SpoolWriter

WORKERS_MAX = LANES_MAX
READING_AT_ONCE = 4
"""Workers that read histories at once: each reads all pages for its part, and a replica keeps few requests of a
reader.
"""
TELL_S = 1.0
ORPHANS_S = 10.0
"""Patience with the end of the workers of a receiver that was killed."""
_log = logging.getLogger(__name__)


class WorkerFailed(IngestError):  # noqa: N818
    """A fault that ended a worker and that waiting does not cure."""


def parts_of(settings: ReceiverSettings, count: int) -> list[ReceiverSettings]:
    """Returns the settings of each worker."""
    names = [part_of(settings.name, number, count) for number in range(1, count + 1)]
    return [
        replace(
            settings,
            name=name,
            grants=grants_of(settings.grants, settings.name, name),
            cap_bytes=settings.cap_bytes // count,
            waits=False,
            worker=Shard(number, count),
            reaches_back_ms=None,
        )
        for number, name in enumerate(names, 1)
    ]


@dataclass(slots=True)
class _Hand:
    """A worker's process. `past`: the counts of the processes before it."""

    settings: ReceiverSettings
    process: subprocess.Popen[bytes] | None = None
    channel: Channel | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    told: WorkTold = field(default_factory=lambda: WorkTold(Progress(), Counter(), None))
    past: Progress = field(default_factory=Progress)
    past_figures: Counter[tuple[str, str]] = field(default_factory=Counter)


class WorkingReceiver:
    """A receiver in several processes, with the interface of `Receiver`."""

    def __init__(self, settings: ReceiverSettings, workers: int, connect: Callable[[], ReplicaClient]) -> None:
        """Takes settings and `connect`, called once, in the receiver's thread, within its event loop."""
        self._settings, self._connect = settings, connect
        self._parts = parts_of(settings, workers)
        self._dealer = Dealer(workers)
        self._hands: list[_Hand] = []
        self._client: ReplicaClient | None = None
        self._known: WorkKnowledge | None = None
        self._thread = LoopThread(self._main, self._failed)
        self._stop: asyncio.Event | None = None
        self._began = 0.0
        self.progress = Progress()
        self.figures: Counter[tuple[str, str]] = Counter()
        self.trouble: str | None = None
        self.failure: Exception | None = None
        """Set when it ended for a reason that waiting does not cure."""

    @property
    def parts(self) -> list[str]:
        """The names of its parts in the spool."""
        return [part.name for part in self._parts]

    def start(self) -> None:
        """Starts the thread; returns when its event loop runs."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends the workers after the groups that are being written."""
        self._thread.stop(timeout_s + TELL_S)

    @property
    def alive(self) -> bool:
        return self._thread.alive

    # ------------------------------------------------------------------------------------- in the thread

    def _failed(self, error: Exception) -> None:
        """Keeps the error for the program that started the receiver."""
        self.failure = error
        self.trouble = str(error)

    async def _main(self, stop: asyncio.Event) -> None:
        self._stop = stop
        with contextlib.ExitStack() as locks:
            await asyncio.to_thread(self._seal, locks)
            client = self._client = self._connect()
            self._known = self._knowledge(client)
            self._hands = [_Hand(part) for part in self._parts]
            self._began = time.monotonic()
            links = asyncio.ensure_future(client.run(self._arrived, self._know))
            stopping = asyncio.ensure_future(stop.wait())
            try:
                while not stop.is_set() and not links.done() and self.failure is None:
                    for number, hand in enumerate(self._hands):
                        if hand.channel is None:
                            await self._start_worker(number, hand)
                    await asyncio.wait({links, stopping}, timeout=TELL_S)
                    await asyncio.to_thread(hand_on, self._settings.spool, self._settings.name, self.parts)
                    self._tell_workers(client)
            finally:
                await self._end_workers()
                links.cancel()
                stopping.cancel()
                await asyncio.gather(links, stopping, return_exceptions=True)
                self._tell_workers(client)
            if links.done() and not links.cancelled() and (error := links.exception()) is not None:
                raise error
        if self.failure is not None:
            raise self.failure

    def _seal(self, locks: contextlib.ExitStack) -> None:
        """Seals the remains of a crash in any part, before another part's worker reads it, and hands on what is to be
        read of histories.

        Nobody writes as a part of another number of workers while this receiver runs. Raises SpoolBusy, SpoolDamaged.
        """
        name, spool = self._settings.name, self._settings.spool
        own = [name] if (spool / name).is_dir() else []
        for part in own + kin(spool, name):
            writer = SpoolWriter(spool, part, cap_bytes=self._settings.cap_bytes, patience_s=ORPHANS_S)
            if part in self.parts:
                writer.close()
            else:
                locks.callback(writer.close)
        hand_on(spool, name, self.parts, self._settings.reaches_back_ms)

    async def _start_worker(self, number: int, hand: _Hand) -> None:
        assert self._client is not None
        assert self._known is not None
        if hand.process is not None:
            hand.process.kill()
            await asyncio.to_thread(hand.process.wait)
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "spark_ingest.receiver.worker", str(theirs.fileno())]
        hand.process = await asyncio.to_thread(subprocess.Popen, command, pass_fds=[theirs.fileno()])
        theirs.close()
        hand.gone.clear()
        ours.setblocking(False)
        channel = Channel(lambda message: self._said(number, message), lambda: self._worker_lost(number))
        await asyncio.get_running_loop().create_connection(lambda: channel, sock=ours)
        hand.channel = channel
        channel.send_message(WorkSetup(hand.settings, self._known, self._standing(self._client)))

    async def _end_workers(self) -> None:
        """Ends the workers after their present writes; kills those that take too long."""
        for hand in self._hands:
            if hand.channel is not None:
                hand.channel.send_message(WorkEnd())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(hand.gone.wait() for hand in self._hands if hand.channel)), STOP_S)
        for hand in self._hands:
            if hand.channel is not None:
                hand.channel.close()
            if hand.process is not None:
                hand.process.kill()
                await asyncio.to_thread(hand.process.wait)

    # ----------------------------------------------------------------------------------------- from workers

    def _said(self, number: int, message: Any) -> None:
        hand = self._hands[number]
        assert self._client is not None
        match message:
            case WorkDone(tickets):
                acknowledge(self._dealer.take_done(number, tickets))
            case WorkBegun(session):
                for dealt in self._dealer.begun(number, session):
                    self._send_to_worker(number, dealt)
            case WorkWanted(names):
                self._client.want_keys(names)
            case WorkAsked(replica, topic, payload):
                self._client.ask_replica(replica, topic, payload)
            case WorkProved(proof):
                self._client.keep_evidence(proof)
            case WorkSpooled(batches):
                self._client.take_spooled(batches)
            case WorkTold():
                hand.told = message
            case WorkFailed(text):
                self.failure = self.failure or WorkerFailed(text)

    def _worker_lost(self, number: int) -> None:
        hand = self._hands[number]
        self._dealer.note_worker_end(number)
        hand.channel = None
        hand.past = replace(summed((hand.past, hand.told.progress)), waiting=0, full=False, clock_off=False)
        hand.past_figures += hand.told.figures
        hand.told = WorkTold(Progress(), Counter(), None)
        hand.gone.set()
        if self._stop is not None and not self._stop.is_set() and self.failure is None:
            LogEvent.RECEIVER_RETRIES.say(_log, hand.settings.name, "its worker process ended")

    # --------------------------------------------------------------------------------------- from replicas

    def _arrived(self, replica: str, publishes: Sequence[Publish], sender: Sender) -> None:
        if pages := [publish for publish in publishes if Backfill.is_page(publish)]:
            sender.acknowledge_all(pages)
            for page in pages:
                self._page(replica, page)
            publishes = [publish for publish in publishes if not Backfill.is_page(publish)]
        for number, dealt in self._dealer.deal(replica, publishes, sender):
            self._send_to_worker(number, dealt)

    def _page(self, replica: str, page: Publish) -> None:
        """Hands a page of a history to the worker that asked for it."""
        try:
            lane = Backfill.lane_of(page)
        except KeysError:
            lane = 0  # somebody has to refuse it
        if lane < len(self._hands):
            self._send_to_worker(lane, WorkPage(replica, page.payload))

    def _know(self) -> None:
        """Tells workers about new keys or another version of the overlay."""
        assert self._client is not None
        self._known = self._knowledge(self._client)
        for number in range(len(self._hands)):
            self._send_to_worker(number, self._known)

    @staticmethod
    def _knowledge(client: ReplicaClient) -> WorkKnowledge:
        scopes, secrets = tuple(client.read_scopes()), tuple(client.secrets())
        return WorkKnowledge(client.overlay, client.home_region, client.held_grants(), client.name, scopes, secrets)

    @staticmethod
    def _standing(client: ReplicaClient) -> LinkStanding:
        return LinkStanding(client.is_accepted, tuple(client.clocks()), tuple(client.connected_replicas()))

    def _send_to_worker(self, number: int, message: object) -> None:
        channel = self._hands[number].channel
        if channel is not None:
            channel.send_message(message)

    def _tell_workers(self, client: ReplicaClient) -> None:
        """Tells workers the state of links, and metrics the state of workers."""
        if self._known is not None and client.overlay is not self._known.overlay:
            self._know()
        standing = self._standing(client)
        reading = [number for number, hand in enumerate(self._hands) if hand.told.progress.reads_back][:READING_AT_ONCE]
        for number in range(len(self._hands)):
            self._send_to_worker(number, standing._replace(reads_back=number in reading))
        now = summed(each for hand in self._hands for each in (hand.past, hand.told.progress))
        now.links, now.accepted = self.progress.links, self.progress.accepted
        tell_links(self._settings.name, now, client.link_states(), client.is_accepted)
        self.progress = now
        figures: Counter[tuple[str, str]] = Counter()
        for hand in self._hands:
            figures += hand.past_figures + hand.told.figures
        if self._dealer.overflowed:
            figures["held_overflow", ""] += self._dealer.overflowed
        self.figures = figures
        if self.failure is None:
            few = None
            if time.monotonic() - self._began > SETTLED_S:  # links take a moment
                few = too_few(now.links, client.overlay, client.home_region)
            self.trouble = next((hand.told.trouble for hand in self._hands if hand.told.trouble), few)
