"""The receiver in the driver: a thread with an event loop, from the replicas' links to synced groups.

    client -> Collector.receive_all -> [event loop] -> Collector.take -> SpoolWriter.append (fsync) -> acknowledge

A process writes for a receiver name; another process with that name waits for the lock and takes over. Every error of
the disk ends the session with the replicas: unacknowledged pieces come again, and the publications in the spool are
known again from the spool itself. When the spool's cap is reached nothing is written and nothing is acknowledged until
a consumer has trimmed. Epoch keys pass through: from the client into the file that executors read, and only then may
rows of their epochs be written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Protocol, TypeAlias

from bridge.contract import Prove
from bridge.document import Overlay, Scope, ScopeSecret
from gateway.base.log_events import LogEvent
from gateway.overlay import Publish
from keys.envelope import KeyName
from keys.identity import Identity
from spark_ingest.errors import BadPlace, ClockTrouble, SpoolBusy, SpoolDamaged, SpoolError, file_fault
from spark_ingest.options import Options
from spark_ingest.receiver.acknowledging import Sender, acknowledge
from spark_ingest.receiver.clock import SessionClock, most_ahead_s, next_pause_s
from spark_ingest.receiver.family import grants_of, kin
from spark_ingest.receiver.looping import LoopThread
from spark_ingest.receiver.packer import SegmentPacker
from spark_ingest.receiver.progress import Progress, ReplicaLink, tell_links, too_few
from spark_ingest.receiver.reaching_back import alone, hand_on
from spark_ingest.receiver.recovery import recovered, recovered_beside, state_of
from spark_ingest.receiver.trouble import ReceiverTroubles
from spark_ingest.receiving import Backfill, Group, Lineages, Part, Seen, SpoolCollector, SpooledBatch, SpooledBatches
from spark_ingest.secrets import Grants, GrantsWriter, ShareBox, load_readers, names_in, names_of
from spark_ingest.spool import SEGMENT_BYTES, Shard, SpooledKey, SpoolWriter, make_room
from spark_ingest.spool.backfilled import BackfillRecord, answered, take_asked

GROUP_ROWS = 500
"""Publications that share an fsync; more only makes the last of them wait."""
GROUP_BYTES = 8 << 20
"""The most content of a group (one publication at least): bounds the excess over the cap."""
FULL_RETRY_S = 0.5
TICK_S = 1.0
TURN_S = 0.1
"""The longest pause between two looks at a reading of histories."""
TELL_S = 60.0
"""The pause between lines about liars in the log, so that they do not fill it."""
RETRY_S = 1.0
"""The pause after an error of the disk, and between looks at a lock that another receiver holds."""
SETTLED_S = 5.0
"""A session that has lived so long with nothing to write is free of the fault that ended the one before."""
NOT_CURED_BY_WAITING = PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError
"""What the system says of a path that somebody has to correct."""
LOCK_S = 1.0
"""Patience of one look at the lock: `veilmq ingest status` shares it for a moment."""
_log = logging.getLogger(__name__)

OnArrivals: TypeAlias = Callable[[str, Sequence[Publish], Sender], None]
"""A callback for (name of the replica, messages of one read, sender to acknowledge them to)."""


class ReplicaClient(Protocol):
    """Links to all replicas of the home region with stable client ids and kept sessions, MQTT 5, QoS 1.

    A message stays unacknowledged until its sender is told, in the loop's thread, and comes again on the next
    connection if it is not. Links failing are made again by the client.
    """

    @property
    def overlay(self) -> Overlay:
        """The version in force; another object whenever members, rights or views changed."""

    @property
    def home_region(self) -> int:
        """The region to whose replicas the client listens."""

    @property
    def name(self) -> str:
        """The member that reads."""

    def read_scopes(self) -> Sequence[Scope]:
        """Returns the subscribed scopes of which the client may read histories."""

    def held_grants(self) -> Grants:
        """Returns the scopes the job may read now, with the epoch keys that it has."""

    def want_keys(self, names: Collection[KeyName]) -> None:
        """Asks for epoch keys that publications name, or of which they contradict ours; `on_keys` tells when one has
        come.
        """

    def ask_replica(self, replica: str, topic: str, payload: bytes) -> None:
        """Requests content a replica did not send by itself."""

    def keep_evidence(self, proof: Prove) -> None:
        """Keeps evidence beside the identity."""

    def secrets(self) -> Sequence[ScopeSecret]:
        """Returns our knowledge of the scopes we may read, beside their epoch keys."""

    def take_spooled(self, batches: Sequence[SpooledBatch]) -> None:
        """Signs receipts of batches that are on disk, in their time."""

    @property
    def is_accepted(self) -> bool:
        """True if enough replicas know all our subscriptions."""

    @property
    def reads_back(self) -> bool:
        """True if histories may be read now."""

    def connected_replicas(self) -> Collection[str]:
        """Returns the connected replicas."""

    def link_states(self) -> Iterable[ReplicaLink]:
        """Returns the state of each connection."""

    def clocks(self) -> Collection[float]:
        """Returns the leads of replicas' clocks over ours at CONNACK, in seconds, of those that told their time."""

    def run(self, on_arrivals: OnArrivals, on_keys: Callable[[], None]) -> Awaitable[None]:
        """Connects, subscribes and delivers until cancelled. `on_keys`: called when `held_grants` has changed."""


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """The settings of a receiver: where it writes publications and scope keys, and its patience with missing
    pieces.
    """

    spool: Path
    grants: Path
    name: str = "main"
    cap_bytes: int = 8 << 30
    incomplete_s: float = 10.0
    segment_bytes: int = SEGMENT_BYTES
    grants_identity: Path | None = None
    """Directory of the identity to which the file of scope keys is sealed; None: in clear, mode 0600."""
    part: Part | None = None
    """The part of all publications that this receiver takes; None: all."""
    worker: Shard | None = None
    """The part of what its receiver takes that this worker writes; None: no worker, but a receiver."""
    waits: bool = True
    """True: wait for another process that writes as this receiver, to take over from it; False: fail."""
    packs: bool = False
    """True: pack finished segments, which opens their rows."""
    reaches_back_ms: int | None = None
    """UNIX time from which a first start reads histories; None: only what comes live."""

    @classmethod
    def from_options(cls, options: Options, *, waits: bool = True) -> ReceiverSettings:
        """Returns settings from options of the data source."""
        part = Part(options.shard, options.shard_before) if options.shard or options.shard_before else None
        return cls(
            options.spool,
            options.grants,
            options.receiver,
            options.cap_bytes,
            options.incomplete_s,
            grants_identity=options.grants_identity,
            part=part,
            waits=waits,
            packs=options.packs,
            reaches_back_ms=options.reaches_back_ms,
        )


@dataclass(slots=True)
class _Session:
    """The objects living as long as a single connection to the region."""

    client: ReplicaClient
    collector: SpoolCollector
    writer: SpoolWriter
    grants: GrantsWriter
    box: ShareBox
    clock: SessionClock
    backfill: Backfill
    packer: SegmentPacker | None = None
    batches: SpooledBatches = field(default_factory=SpooledBatches)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    keys_changed: bool = False

    def follow_overlay(self) -> float:
        """Adopts another version of the overlay, if there is one; returns the time."""
        now = self.clock.now()
        if self.client.overlay is not self.collector.overlay:
            self.collector.adopt_overlay(self.client.overlay, now)
        return now

    def check_clock(self) -> None:
        """Raises ClockTrouble if the clock cannot be believed."""
        replicas = self.client.overlay.replicas(self.client.home_region)
        ahead_s = most_ahead_s(self.client.clocks(), len(replicas))
        self.clock.check_clock(self.client.overlay, ahead_s)
        self.collector.vouch(ahead_s == 0)


class Receiver:
    """A receiver running until `stop`; `figures` and `trouble` show its state. Its thread dies with the process."""

    def __init__(self, settings: ReceiverSettings, connect: Callable[[], ReplicaClient]) -> None:
        """Takes settings and `connect`, called anew for every session, in the receiver's thread, within its event
        loop.
        """
        self._settings = settings
        self._connect = connect
        self._thread = LoopThread(self._main, self._failed)
        self.figures: Counter[tuple[str, str]] = Counter()
        self.progress = Progress()
        self._trouble = ReceiverTroubles(settings.spool / settings.name)
        self._told: Counter[tuple[str, str]] = Counter()
        self._told_at = -TELL_S
        self._has_begun = False
        """Whether a session has got as far as its replicas: its paths were right, and a fault of theirs may pass."""
        self.failure: Exception | None = None
        """Set when the receiver ended for a reason that waiting does not cure (a wrong identity or overlay)."""

    def start(self) -> None:
        """Starts the thread; returns when its event loop runs, not when links are up."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends the session after the group that is being written."""
        self._thread.stop(timeout_s)

    @property
    def alive(self) -> bool:
        return self._thread.alive

    @property
    def trouble(self) -> str | None:
        """A line about the reason for which nothing is received now, None if all is well."""
        return self._trouble.text

    def check_progress(self, trouble_s: float) -> None:
        """Raises the error that ended the receiver, or ReceiverTrouble after `trouble_s` without receiving.

        Called by a query that has nothing to read. Another process receiving in this one's place is no trouble.
        """
        if self.failure is not None:
            raise self.failure
        self._trouble.check_trouble(trouble_s)

    # ------------------------------------------------------------------------------------- in the thread

    def _failed(self, error: Exception) -> None:
        """Keeps the error for the query, which raises it to the user."""
        self.failure = error
        self._trouble.tell_trouble(str(error))

    async def _main(self, stop: asyncio.Event) -> None:
        pause_s = RETRY_S
        while not stop.is_set():
            began = time.monotonic()
            try:
                await self._session(stop)
            except SpoolBusy as error:
                if not self._settings.waits:
                    raise
                self._trouble.tell_trouble(str(error), bad=False)
            except SpoolDamaged:
                raise  # by itself it does not get better
            except (OSError, SpoolError, ClockTrouble) as error:
                if isinstance(error, NOT_CURED_BY_WAITING) and error.filename and not self._has_begun:
                    raise BadPlace(file_fault(error)) from None
                self.progress.clock_off = off = isinstance(error, ClockTrouble)
                pause_s = next_pause_s(pause_s, RETRY_S, time.monotonic() - began) if off else RETRY_S
                self._trouble.tell_trouble(str(error))
                LogEvent.RECEIVER_RETRIES.say(_log, self._settings.name, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)

    async def _session(self, stop: asyncio.Event) -> None:
        """Locks and seals the spool, recovers, then receives until `stop` or an error."""
        settings = self._settings
        writer = await asyncio.to_thread(
            lambda: SpoolWriter(
                settings.spool,
                settings.name,
                cap_bytes=settings.cap_bytes,
                segment_bytes=settings.segment_bytes,
                patience_s=LOCK_S,
            )
        )
        try:
            if settings.worker is None:
                await asyncio.to_thread(self._reaches_back)
            needed = await asyncio.to_thread(lambda: names_in(writer.history()))
            grants = await asyncio.to_thread(lambda: self._grants(writer.segment, needed))
            assert grants.spool_key is not None
            box = ShareBox(grants.spool_key, os.urandom)
            client = self._connect()
            seen, keys = await asyncio.to_thread(lambda: self._recovered(writer, grants, Lineages(client.overlay)))
            clock = SessionClock()
            clock.check_clock(client.overlay)
            # Before the new segment, so that the file knows what is sealed under which key when that one is the newest.
            await self._renew(client, writer, grants)
            await asyncio.to_thread(writer.roll, state_of(seen, keys, box))
            collector = SpoolCollector(
                client.overlay,
                client.home_region,
                seen=seen,
                keys=keys,
                incomplete_s=settings.incomplete_s,
                part=settings.part,
                acknowledge=acknowledge,
            )
            collector.figures = self.figures
            collector.learn(grants.check_values)
            self._has_begun = True
            backfill = await asyncio.to_thread(lambda: self._backfill(client, collector))
            session = _Session(client, collector, writer, grants, box, clock, backfill, self._packer())
            await self._receive(session, stop)
        finally:
            writer.close()

    def _recovered(
        self, writer: SpoolWriter, grants: GrantsWriter, lineages: Lineages
    ) -> tuple[Seen, list[SpooledKey]]:
        settings = self._settings
        parts = [(name, grants_of(settings.grants, settings.name, name)) for name in kin(settings.spool, settings.name)]
        beside = recovered_beside(settings.spool, parts, self._readers(), lineages)
        return recovered(writer.state, writer.history(), grants.spool_key, beside, lineages, int(time.time() * 1000))

    def _reaches_back(self) -> None:
        """Takes over what former parts were asked to read. Raises SpoolBusy while workers write."""
        settings = self._settings
        alone(settings.spool, settings.name)
        hand_on(settings.spool, settings.name, [settings.name], settings.reaches_back_ms)

    def _backfill(self, client: ReplicaClient, collector: SpoolCollector) -> Backfill:
        settings, part, lane = self._settings, self._settings.part, 0
        if settings.worker is not None:
            part, lane = Part(settings.worker), settings.worker.number - 1
        record = BackfillRecord.load(settings.spool / settings.name)
        return Backfill(record, collector, part, client.ask_replica, client.want_keys, time.time(), lane)

    def _packer(self) -> SegmentPacker | None:
        told = self._settings
        of = (told.spool, told.name, told.grants, told.grants_identity, told.cap_bytes)
        return SegmentPacker(*of) if told.packs else None

    def _readers(self) -> Sequence[Identity]:
        settings = self._settings
        return () if settings.grants_identity is None else load_readers(settings.grants_identity)

    def _grants(self, segment: int, needed: Collection[KeyName]) -> GrantsWriter:
        """Returns the file of scope keys, sealed if the settings say so. Raises GrantsError, OSError."""
        return GrantsWriter(self._settings.grants, segment, needed, readers=self._readers(), random=os.urandom)

    async def _receive(self, session: _Session, stop: asyncio.Event) -> None:
        """Receives until `stop`, or the first error of links or disk, which it raises; a group in writing is
        finished.
        """
        wake, done = session.wake, session.done
        collector = session.collector

        def on_arrivals(replica: str, publishes: Sequence[Publish], sender: Sender) -> None:
            try:
                session.check_clock()
            except ClockTrouble:
                wake.set()  # not acknowledged, so that it comes again
                return
            if not session.backfill.is_over:
                publishes = _without_pages(session, replica, publishes, sender)
            collector.receive_all(replica, publishes, zip(repeat(sender), publishes), session.follow_overlay())
            if collector.ready or collector.is_asking:
                wake.set()

        def on_keys() -> None:
            session.keys_changed = True
            wake.set()

        self._trouble.began()
        LogEvent.RECEIVING.say(_log, self._settings.name, session.writer.segment)
        links = asyncio.ensure_future(session.client.run(on_arrivals, on_keys))
        writing = asyncio.ensure_future(self._write_groups(session))
        stopping = asyncio.ensure_future(stop.wait())
        packing = asyncio.ensure_future(_packed(session))
        reading = asyncio.ensure_future(self._read_back(session))
        try:
            await asyncio.wait({links, writing, stopping, packing, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._trouble.rests()
            done.set()
            wake.set()
            links.cancel()
            stopping.cancel()
            packing.cancel()
            reading.cancel()
            ended = await asyncio.gather(writing, links, stopping, packing, reading, return_exceptions=True)
        for result in ended:
            if isinstance(result, Exception):
                raise result

    async def _write_groups(self, session: _Session) -> None:
        """Writes groups in turn; while one is synced the next collects. Raises OSError, SpoolError."""
        collector, writer, wake, done = session.collector, session.writer, session.wake, session.done
        began = time.monotonic()
        while not done.is_set():
            deadline = collector.next_deadline
            patience_s = TICK_S if deadline is None else min(TICK_S, max(0.01, deadline - session.clock.now()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), patience_s)
            wake.clear()
            self._trouble.moves()
            if session.client.is_accepted or time.monotonic() - began > SETTLED_S:  # replicas keep what comes then
                session.check_clock()
            await self._keys(session)
            collector.do_due_work(session.follow_overlay())
            self._tell_doubt(collector.doubt)
            for send in collector.take_asks():
                session.client.ask_replica(send.peer, send.wire.topic, send.wire.payload)
            for proof in collector.take_proved():
                session.client.keep_evidence(proof)
            self._tell_lies(time.monotonic())
            tell_links(self._settings.name, self.progress, session.client.link_states(), session.client.is_accepted)
            if time.monotonic() - began > SETTLED_S:  # links take a moment
                few = too_few(self.progress.links, session.client.overlay, session.client.home_region)
                if few is not None or (not collector.ready and collector.doubt is None):
                    self._trouble.tell_trouble(few)
            while (collector.ready or session.backfill.ready) and not done.is_set():
                self._trouble.moves()
                if writer.full:
                    self._full(session)
                    with contextlib.suppress(SpoolBusy):
                        await asyncio.to_thread(make_room, self._settings.spool)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(done.wait(), FULL_RETRY_S)
                    continue
                self._not_full()
                if writer.segment_full:
                    await self._renew(session.client, writer, session.grants)
                    await asyncio.to_thread(writer.roll, state_of(collector.seen, collector.keys(), session.box))
                    if session.packer is not None:
                        session.packer.finished()
                await self._keys(session)
                if (group := collector.take_group(GROUP_ROWS, GROUP_BYTES)) is not None:
                    await self._append(session, group)
                    acknowledge(collector.note_written(group))
                    await _tell_spooled(session, group)
                if (past := session.backfill.take_group(GROUP_ROWS, GROUP_BYTES, session.clock.now())) is not None:
                    await self._append(session, past)
                    session.backfill.note_written(past)
                self.progress.waiting = collector.ready + session.backfill.ready

    async def _append(self, session: _Session, group: Group) -> None:
        """Writes a group to the disk. Raises OSError."""
        progress, writer = self.progress, session.writer
        before_s, before_bytes = writer.fsync_s, writer.written_bytes
        await asyncio.to_thread(writer.append, group.records, session.box.seal_all(group.keys))
        progress.fsync_s += writer.fsync_s - before_s
        progress.bytes += writer.written_bytes - before_bytes
        session.grants.used(writer.segment, names_of(key.header for key in group.keys.values()))
        self._trouble.tell_trouble(None)
        progress.groups += 1
        progress.rows += len(group.records)

    async def _read_back(self, session: _Session) -> None:
        """Reads histories, in turns with everything else, until cancelled. Raises OSError."""
        backfill, client, told_at, has_begun = session.backfill, session.client, time.monotonic(), False
        directory = self._settings.spool / self._settings.name
        while True:
            if (since_ms := await asyncio.to_thread(take_asked, directory)) is not None:
                backfill.asks(since_ms)
                await asyncio.to_thread(self._store, backfill, directory)
                await asyncio.to_thread(answered, directory)
            self.progress.reads_back = not backfill.is_over
            stored_at = time.monotonic()
            while not backfill.is_over and client.reads_back:
                if not has_begun:
                    LogEvent.RECEIVER_READS_BACK.say(_log, self._settings.name)
                backfill.go_on(
                    client.name, client.read_scopes(), list(client.connected_replicas()), session.clock.now()
                )
                self.progress.reads_back = has_begun = not backfill.is_over
                if backfill.ready:
                    session.wake.set()
                if backfill.is_over or time.monotonic() - stored_at > TICK_S:
                    stored_at = time.monotonic()
                    await asyncio.to_thread(self._store, backfill, directory)
                if backfill.is_over or time.monotonic() - told_at > TELL_S:
                    told_at = time.monotonic()
                    event = LogEvent.RECEIVER_READ_BACK if backfill.is_over else LogEvent.RECEIVER_READING_BACK
                    event.say(_log, self._settings.name, backfill.told)
                deadline = backfill.next_deadline
                pause_s = TURN_S if deadline is None else min(TURN_S, max(0.0, deadline - session.clock.now()))
                await asyncio.sleep(pause_s)
            await asyncio.sleep(TICK_S)

    @staticmethod
    def _store(backfill: Backfill, directory: Path) -> None:
        if backfill.record is not None:
            backfill.record.store(directory)

    async def _keys(self, session: _Session) -> None:
        """Asks for the epoch keys that publications wait for; hands on those that came. Raises OSError."""
        wanted = session.collector.granted.take_wanted()
        if wanted:
            session.client.want_keys(wanted)
        if session.keys_changed:
            session.keys_changed = False
            await self._renew(session.client, session.writer, session.grants)
            session.collector.learn(session.grants.check_values)
            session.backfill.keys_changed(session.clock.now())

    async def _renew(self, client: ReplicaClient, writer: SpoolWriter, grants: GrantsWriter) -> None:
        """Brings the file of scope keys up to date; one call at a time. Raises OSError."""
        content = grants.renew_content(client.held_grants(), writer.oldest_segment, writer.segment)
        if content is not None:
            await asyncio.to_thread(grants.write, content)

    def _tell_doubt(self, doubt: str | None) -> None:
        if doubt is not None:
            self._trouble.tell_trouble(doubt)
            if not self.progress.clock_off:
                LogEvent.RECEIVER_CLOCK.say(_log, self._settings.name, doubt)
        self.progress.clock_off = doubt is not None

    def _not_full(self) -> None:
        if self.progress.full:
            LogEvent.RECEIVER_HAS_ROOM.say(_log, self._settings.name)
            self._trouble.tell_trouble(None)
        self.progress.full = False

    def _full(self, session: _Session) -> None:
        self.progress.full, self.progress.waiting = True, session.collector.ready
        is_news = self._trouble.tell_trouble(
            f"the spool of receiver {self._settings.name} is full ({self._settings.cap_bytes} bytes): nothing is "
            "acknowledged until queries have caught up; raise cap_bytes, or forget consumers that will not return"
        )
        if is_news:
            LogEvent.RECEIVER_FULL.say(_log, self.trouble)

    def _tell_lies(self, now: float) -> None:
        """Logs replicas that are suspected or named, and refusals, since the last time."""
        if now - self._told_at < TELL_S:
            return
        news = {
            figure: count - self._told[figure]
            for figure, count in self.figures.items()
            if figure[0].startswith(("suspected", "named", "refused_")) and count > self._told[figure]
        }
        if news:
            self._told_at = now
            self._told = Counter(self.figures)
            listed = ", ".join(f"{name} from {replica}: {count}" for (name, replica), count in sorted(news.items()))
            LogEvent.RECEIVER_DOUBTS.say(_log, self._settings.name, listed)


def _without_pages(session: _Session, replica: str, publishes: Sequence[Publish], sender: Sender) -> Sequence[Publish]:
    """Hands on and acknowledges pages of a history; returns all other messages of a read."""
    pages = [publish for publish in publishes if session.backfill.is_page(publish)]
    if not pages:
        return publishes
    sender.acknowledge_all(pages)
    for page in pages:
        session.backfill.take_page(replica, page, session.clock.now())
    return [publish for publish in publishes if not session.backfill.is_page(publish)]


async def _tell_spooled(session: _Session, group: Group) -> None:
    """Tells of the batches of a group that readers acknowledge, if there are any."""
    client = session.client
    if not any(form.admitted.scope.receipts for form in group.entries):
        return
    keys = {name: key for scope in client.held_grants().scopes.values() for name, key in scope.keys.items()}
    since_ms = session.collector.seen.since_ms or 0
    batches = await asyncio.to_thread(session.batches.batches_of, group, client.secrets(), keys, since_ms)
    if batches:
        client.take_spooled(batches)


async def _packed(session: _Session) -> None:
    """Packs until cancelled."""
    await (asyncio.Event().wait() if session.packer is None else session.packer.run())
