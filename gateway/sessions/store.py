"""Store of sessions, queues and retained messages, written in groups while the broker goes on.

Changes are collected as the newest state of each row (`Batch`) and written by one thread, a single transaction at a
time: a message that is queued and delivered meanwhile costs no write. A receiver that must not hear of a change before
it is on disk waits for its batch:

* PUBACK and PUBREC, as a debt (`owe`), where a persistent session or a retained message needs the publication.
  PUBACK goes earlier if every persistent session has acknowledged the message first: then it need not be stored.
* members of the overlay, whose publications are acknowledged when their changes here are written (`when_written`):
  within `PATIENT_S`, since each acknowledgement wakes a replica;
* every other packet that is written to a client after a change of its own persistent session (`hold_later_bytes`):
  CONNACK, SUBACK, PUBREL, PUBCOMP, and PUBLISH of QoS 2, whose packet identifier must not be given away twice.

Batches are committed in order, so the disk always holds a prefix of the changes. Not here: the database
(`database.py`), rows (`rows.py`), the behaviour of a session (`mqtt5/`), the overlay's outbox (`store.py`).

Policy when the disk is full: publications of the group that failed, and all that came behind it until a write
succeeds, are refused with 0x97 where they would have to be stored; everything else goes on, from memory, and is
written later. A write is tried each `RETRY_S` seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gateway.base.log_events import LogEvent
from gateway.clients import Client, ClientConnection, OwedAck, StoredSession
from gateway.data import StoreError
from gateway.mqtt5.delivery import Queued
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.session import Connection, SessionSubscription
from gateway.mqtt5.types import ReasonCode
from gateway.sessions.batch import PATIENT_MAX, PATIENT_S, Batch, Debt, HeldMessage
from gateway.sessions.clock_marks import ClockMark, ClockMarks
from gateway.sessions.database import IN_FLIGHT, RELEASED, WAITING, Changes, Content, SessionDatabase
from gateway.sessions.rows import session_row

log = logging.getLogger("veilmq.broker")

LAZY_S = 0.05
"""Seconds until changes that no caller waits for are written."""
UNOFFERED = "\0"
"""Begins the row of a message received at QoS 2 while the overlay's outbox has not answered. No topic has it."""
RETRY_S = 1.0
"""Seconds after a refusal of the disk until the next write is tried."""


def received_of(rows: Mapping[int, str]) -> tuple[dict[int, str], dict[int, str]]:
    """Returns the messages received at QoS 2 that are done, and those the overlay's outbox may lack."""
    done = {packet_id: topic for packet_id, topic in rows.items() if not topic.startswith(UNOFFERED)}
    half = {packet_id: topic.removeprefix(UNOFFERED) for packet_id, topic in rows.items() if packet_id not in done}
    return done, half


class SessionRecord:
    """Session on disk; the `Journal` of its flows where it is persistent."""

    __slots__ = ("_store", "client", "id", "released_ids")

    def __init__(self, store: SessionStore, client: Client, id_: int) -> None:
        self._store, self.client, self.id = store, client, id_
        self.released_ids: dict[int, int] = {}  # packet identifier -> delivery

    def row(self) -> tuple[object, ...]:
        session, view = self.client.session, self.client.view
        is_connected = session.state is not Connection.OFFLINE
        return session_row(
            self.id, session.client_id, view.username, bool(view.is_anonymous), is_connected, session.kept_state,
            view.groups,
        )  # fmt: skip

    def hold_later_bytes(self) -> None:
        """Makes all later bytes to the client wait for the batch."""
        self._store.hold_connection(self.client.connection)

    def queued(self, queued: Queued, packet_id: int) -> None:
        store = self._store
        token = queued.token
        if token is None:
            token = queued.token = store.hold_message(queued.message)
        assert isinstance(token, int)
        store.pending.deliveries[token] = (self, queued, packet_id, IN_FLIGHT if packet_id else WAITING)
        if packet_id and queued.qos == 2:
            self.hold_later_bytes()
        else:
            store.touch()

    def dropped(self, queued: Queued) -> None:
        if isinstance(queued.token, int):
            self._store.delivered(queued.token, queued.message)
            queued.token = None

    def pubrec_received(self, packet_id: int, queued: Queued) -> None:
        self.dropped(queued)
        # A new id: PUBRELs are repeated in the order in which PUBRECs came (MQTT-4.6.0-4).
        id_ = self.released_ids[packet_id] = self._store.new_id()
        self._store.pending.deliveries[id_] = (self, None, packet_id, RELEASED)
        self.hold_later_bytes()

    def finished(self, packet_id: int, queued: Queued | None) -> None:
        if queued is not None:
            self.dropped(queued)
        elif (id_ := self.released_ids.pop(packet_id, None)) is not None:
            self._store.delivered(id_, None)

    def pubrel_received(self, packet_id: int) -> None:
        self._store.pending.received[self.id << 16 | packet_id] = None
        self.hold_later_bytes()

    def cleared(self) -> None:
        session = self.client.session
        for queued in [*session.waiting, *(entry[0] for entry in session.outbound.unacknowledged.values())]:
            self.dropped(queued)
        for packet_id in list(self.released_ids):
            self.finished(packet_id, None)
        for packet_id in (*session.inbound.awaiting_pubrel, *session.inbound.half_done):
            self._store.pending.received[self.id << 16 | packet_id] = None
        self._store.touch()


class SessionStore:
    """Store of a broker. Made by `open`; used from the event loop's thread only."""

    def __init__(self, database: SessionDatabase) -> None:
        self._database = database
        self._executor = ThreadPoolExecutor(1, "veilmq-sessions")
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._last_id = 0
        self._writing: Batch | None = None
        self._written: asyncio.Future[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_s = 0.0
        self._is_soon = False
        self._failures = 0
        self._marks_late = False  # True if stored times need a clock mark at the end
        self._is_closing = False
        self.kept: dict[bytes, bytes] = {}
        """Rows that an earlier process passed to `keep_rows`."""
        self.pending = Batch(1, 1)
        self.committed = 0
        """Number of the last batch that is on disk."""
        self.changes = 0
        """Rises whenever a message is stored or a topic's retained one changes."""
        self.mark: Callable[[], ClockMark | None] = lambda: None
        """Makes the clock mark that is written with each batch."""
        self.decided: Callable[[Client], None] = lambda client: None
        """Called when acknowledgements that a client is owed have been decided."""

    @classmethod
    def open(cls, directory: Path) -> SessionStore:
        """Opens or makes the database below the data directory. Raises StoreError (a line). Needs a running loop."""
        return cls(SessionDatabase(directory))

    def load(self, now: Callable[[], float] | None = None) -> Content:
        """Returns the content left by an earlier process. Call before any change. Raises StoreError. `now`: the
        broker's instant.
        """
        if now is not None:
            self._database.set_right(now())
            self.mark = ClockMarks(now)
        content = self._database.load()
        self._last_id = content.last_id
        self._marks_late = bool(content.sessions or content.retained)
        self.kept = dict(content.kept)
        self.pending.first = self._last_id + 1
        return content

    # ----------------------------------------------------------------------------------- what is to be kept

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def hold_message(self, message: Message) -> int:
        """Stores a message for another delivery and returns the delivery's id."""
        held = message.stored
        if not isinstance(held, HeldMessage):
            held = message.stored = HeldMessage(self.new_id())
            self.pending.messages[held.id] = message
        held.references += 1
        self.changes += 1
        return self.new_id()

    def delivered(self, id_: int, message: Message | None) -> None:
        """Ends a delivery; the message is deleted with its last delivery."""
        pending = self.pending
        pending.deliveries.pop(id_, None)
        if id_ < pending.first:
            pending.gone_deliveries.append(id_)
            self.touch()
        held = message.stored if message is not None else None
        if not isinstance(held, HeldMessage):
            return
        held.references -= 1
        if held.references:
            return
        assert message is not None
        message.stored = None
        pending.messages.pop(held.id, None)
        if held.id < pending.first:
            pending.gone_messages.append(held.id)
        debt = held.debt
        if debt is not None and debt.is_open:
            debt.settle_debt(ReasonCode.SUCCESS)
            self.decided(debt.client)

    def note_opened(self, client: Client) -> None:
        """Notes the session of a client that connected if it is to outlive the process, or has a will."""
        session, record = client.session, client.record
        if record is None:
            if client.peer is not None or (not session.session_expiry_s and session.will is None):
                return
            record = client.record = SessionRecord(self, client, self.new_id())
        if session.session_expiry_s and session.journal is None:
            session.journal = record
        self.pending.sessions[record.id] = record
        if session.journal is not None:
            record.hold_later_bytes()
        else:
            self.touch()

    def note_changed(self, client: Client) -> None:
        """Notes that a client's connection has ended, or that its will was published."""
        if client.record is not None and client.alive:
            self.pending.sessions[client.record.id] = client.record
            self.touch()

    def forgotten(self, client: Client) -> None:
        """Deletes a session that has ended."""
        record = client.record
        if record is not None:
            if client.session.journal is not None:
                record.cleared()
                client.session.journal = None
            client.record = None
            self.pending.sessions[record.id] = None
            self.touch()

    def note_subscription(self, client: Client, topic_filter: str, subscription: SessionSubscription | None) -> None:
        """Notes a subscription that was granted, or (None) ended."""
        if client.session.journal is not None and client.record is not None:
            self.pending.subscriptions[client.record.id, topic_filter] = subscription
            client.record.hold_later_bytes()

    def note_retained(self, topic: str, message: Message | None) -> None:
        """Notes a new retained message of a topic; None: it was cleared."""
        self.pending.retained[topic] = message
        self.changes += 1
        self.touch()

    def owe(self, client: Client, owed: OwedAck, publish: Publish, message: Message) -> bool:
        """Lets an acknowledgement wait for the batch. False: nothing of the publication needs to be stored."""
        flow, retained = 0, publish.retain
        held = message.stored
        if publish.qos == 2 and client.session.journal is not None:
            assert client.record is not None
            flow = client.record.id << 16 | publish.packet_id
            # The outbox is another file: a process that is killed may have written this one alone.
            unoffered = UNOFFERED if owed.answers > 1 or not owed.is_good_so_far else ""
            self.pending.received[flow] = unoffered + (publish.topic if retained else "")
        elif not isinstance(held, HeldMessage) and not retained:
            return False
        debt = Debt(client, owed, message, flow)
        if publish.qos == 1 and not retained:
            assert isinstance(held, HeldMessage)
            held.debt = debt
        self.pending.debts.append(debt)
        self.touch(soon=True)
        return True

    def offered(self, client: Client, publish: Publish) -> None:
        """Notes that the overlay's outbox has a message, so that its repetition is not offered again. Nobody waits for
        that: after a kill before the write the repetition is in the outbox twice, if the client has no PUBREC.
        """
        if client.session.journal is None or client.session.inbound.accepting.get(publish.packet_id) is not publish:
            return
        assert client.record is not None
        self.pending.received[client.record.id << 16 | publish.packet_id] = publish.topic if publish.retain else ""
        self.touch()

    def keep_rows(self, rows: Sequence[tuple[bytes, bytes | None]], is_patient: bool = False) -> None:
        """Keeps rows of the overlay, which are written together with its deliveries; None: the row is deleted.
        `is_patient`: within `PATIENT_S`.
        """
        if not self._is_closing:
            self.pending.kept.update(rows)
            self.touch(within_s=PATIENT_S if is_patient else LAZY_S)

    def when_written(self, done: Callable[[], None], is_patient: bool = False) -> None:
        """Calls `done` when all changes until now are on disk: at once, if there are none. Never after the store began
        to close. `is_patient`: with others, within `PATIENT_S`, and not at once.
        """
        if self._is_closing:
            return
        if is_patient:
            self.pending.patient.append(done)
            self.touch(soon=len(self.pending.patient) >= PATIENT_MAX, within_s=PATIENT_S)
            return
        if self._writing is None and self.pending.is_empty:
            done()
            return
        self.pending.waiters.append(done)
        self.touch(soon=True)

    def hold_connection(self, connection: ClientConnection | None) -> None:
        """Holds all later bytes to the connection until the batch is on disk."""
        if connection is None or self._failures > 1:  # a disk that refuses every write must not silence clients
            self.touch()
            return
        if connection.hold_bytes(self.pending.number):
            self.pending.gated.append(connection)
        self.touch(soon=True)

    @property
    def is_full(self) -> bool:
        """True from a refusal of the disk to the next write that succeeds: publications to be stored are refused.

        Without that a refused publication of QoS 2 could have been sent, since nothing waits for the disk after its
        second refusal (`hold_connection`).
        """
        return bool(self._failures)

    # ---------------------------------------------------------------------------------------------- writing

    def touch(self, soon: bool = False, within_s: float = LAZY_S) -> None:
        """Schedules a write: at the end of this turn of the event loop if `soon`, else in a while."""
        pending = self.pending
        pending.within_s = min(pending.within_s, within_s)
        if self._writing is not None or self._is_soon:
            return
        if soon and self._failures < 2:
            if self._timer is not None:
                self._timer.cancel()
            self._is_soon = True
            self._timer = self._loop.call_soon(self._write_batch)
            return
        delay_s = RETRY_S if self._failures else min(pending.within_s, PATIENT_S)
        if self._timer is not None and delay_s < self._timer_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer_s = delay_s
            self._timer = self._loop.call_later(delay_s, self._write_batch, True)

    def _write_batch(self, lazily: bool = False) -> None:
        self._timer, self._is_soon = None, False
        batch = self.pending
        if not lazily and not batch.is_awaited:  # awaited rows are settled already
            if self._failures or batch.is_due:
                self.touch(within_s=batch.within_s)
            return
        self.pending = Batch(batch.number + 1, self._last_id + 1)
        if batch.is_empty and not self._failures:  # else the clock mark tells whether the disk takes again
            self._finish_batch(batch)
            return
        self._writing, self._marks_late = batch, True
        self._written = self._loop.run_in_executor(self._executor, self._database.commit, self._changes(batch))
        self._written.add_done_callback(self._has_written)

    def _changes(self, batch: Batch) -> Changes:
        changes = batch.changed_rows()
        changes.mark = self.mark()
        return changes

    def _has_written(self, future: asyncio.Future[None]) -> None:
        batch, self._writing = self._writing, None
        if batch is None or future.cancelled():
            return
        error = future.exception()
        if error is None:
            if self._failures:
                LogEvent.STORE_TAKES_AGAIN.say(log)
            self._failures = 0
            self._finish_batch(batch)
        else:
            if not isinstance(error, StoreError):
                LogEvent.STORE_FAILED.say(log, exc_info=error)
                error = StoreError(repr(error))
            self._fail_batch(batch, error)
        if self.pending.is_awaited:
            self.touch(soon=True)
        elif self._failures or self.pending.is_due:
            self.touch(within_s=self.pending.within_s)

    def _finish_batch(self, batch: Batch) -> None:
        self.committed = batch.number
        for connection in batch.gated:
            connection.release_bytes(batch.number)
        for done in (*batch.waiters, *batch.patient):
            done()
        self._settle_debts(batch.debts, ReasonCode.SUCCESS)

    def _settle_debts(self, debts: Sequence[Debt], code: int) -> None:
        clients: dict[Client, None] = {}
        for debt in debts:
            if debt.is_open:
                debt.settle_debt(code)
                clients[debt.client] = None
        for client in clients:
            self.decided(client)

    def _fail_batch(self, batch: Batch, error: StoreError) -> None:
        """Refuses the publications of the batch and those that came meanwhile, takes back their waiting deliveries,
        tries the rest again later.

        A client below MQTT 5 repeats a refused publication: no later one may be taken before (MQTT-4.6.0-2).
        """
        self._failures += 1
        if self._failures == 1:
            LogEvent.STORE_REFUSES.say(log, error)
        pending = self.pending
        batch.put_before(pending)
        debts = [debt for debt in (*batch.debts, *pending.debts) if debt.is_open]
        pending.debts = []
        refused = {debt.message for debt in debts}
        taken_back = {debt.flow for debt in debts if not debt.owed.is_repeated}
        for debt in debts:
            pending.received.pop(debt.flow, None)
            if debt.flow in taken_back:
                debt.owed.is_routed = False
                debt.client.session.inbound.undo_half_done(debt.flow & 0xFFFF)
        # Before their messages are removed, which would settle the debts as stored.
        self._settle_debts(debts, error.code)
        for record, queued, packet_id, _ in list(pending.deliveries.values()):
            if queued is not None and queued.message in refused:
                self._withdraw(record, queued, packet_id)
        if self._failures > 1:
            gated, pending.gated = pending.gated, []
            for connection in gated:
                connection.release_bytes(pending.number)

    def _withdraw(self, record: StoredSession, queued: Queued, packet_id: int) -> None:
        session = record.client.session
        if session.withdraw(queued):
            record.dropped(queued)
        elif queued.qos == 2 and packet_id in session.outbound.unacknowledged:
            # Held behind the gate: has an identifier and was not sent. The client reconnects without it.
            session.take_back(packet_id)
            record.dropped(queued)
            if record.client.connection is not None:
                record.client.connection.abort()
        # A QoS 1 message has been sent: its receiver may have it although its publisher was refused.

    async def close(self) -> None:
        """Writes all pending changes, then releases the directory."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_soon = self._is_closing = True  # nothing is scheduled any more
        if self._written is not None:
            await asyncio.wait([self._written])
            await asyncio.sleep(0)
        batch = self.pending
        if not batch.is_empty or self._marks_late:
            try:
                await self._loop.run_in_executor(self._executor, self._database.commit, self._changes(batch))
            except StoreError as error:
                LogEvent.STORE_LOST_CHANGES.say(log, error)
                batch.waiters.clear()
                batch.patient.clear()
        self._finish_batch(batch)
        self._executor.shutdown()
        self._database.close()
