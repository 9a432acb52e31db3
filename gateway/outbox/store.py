"""Durable outbox of a gateway or replica, with its sequence numbers.

Holds *clear* publications under a local store key: sealing for the overlay happens later, at first send
(docs/protocol.md §5.1). A writer thread gathers all appends that arrived meanwhile into a single transaction (group
commit), and reports back on the event loop. An append is on disk when it is reported, not before; an issued number is
never issued again, even after `kill -9`. Memory holds only entries in hand: appended or read, and neither forgotten
nor left. All other entries are on disk, and are read in pages.

Not here: the directory (`gateway.data`), the database itself (`database`), the replicas that have an entry (the
overlay's machines), retained messages and sessions of local clients.

Policy when full: stored entries stay, new publications are refused (`NoRoomError`, reason 0x97) until `forget_entries`
frees bytes. Clients of which little is stored have spare room beyond the bound (`spare_room`).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from bridge.contract import Chain, Publication, size_of
from gateway.data import DataDirectory, NoRoomError, StoreError
from gateway.outbox.bundling import bundled
from gateway.outbox.database import (
    SEQUENCE_BLOCK,
    Outbox,
    Page,
    StoredRow,
    encode_publication,
)
from gateway.outbox.lingering import Lingering
from gateway.outbox.spare_room import PART, SpareRoom
from keys.envelope import TAG_BYTES
from keys.values import value

__all__ = ["Page", "Store", "StoredEntry"]

ALONE_BYTES = 256  # most bytes of a row beside its records; the exact size is known once it is written
MAX_OUTBOX_BYTES = 1 << 30
"""Stops days without uplink from filling the disk."""
GROUP_MAX = 4096
"""Publications in one transaction: bounds the time for which a PUBACK waits behind others."""
RETRY_S = 1.0
"""Seconds after a refusal of the disk until the next write is tried."""
FORGET_WITHIN_S = 1.0
"""Deletions wait so long for an append to go with. In transactions of their own they would delay appends, and cost a
device that publishes now and then two transactions for each message. After `kill -9` the entries deleted in this time
are sent again, and dropped by replicas that have them.
"""
SWITCH_S = 0.0005
"""Time for which a busy event loop may keep the interpreter from the writer thread, which needs it several times a
commit.

A loop that releases it more often, even for a moment, starves the thread: its waiting begins anew each time. At
Python's default of 5 ms, commits beside a busy loop took up to a minute.
"""


@value
class StoredEntry:
    """Publication that is on disk. `previous`: the QoS >= 1 publication before it in the same chain, or 0."""

    sequence: int
    previous: int
    publication: Publication


Done: TypeAlias = Callable[[StoredEntry | StoreError], None]
"""Called on the event loop, in the order of the appends."""


@dataclass(slots=True)
class _Append:
    """Publication on its way to the disk. `refusals`: the store's count when it was appended."""

    row: StoredRow
    publication: Publication
    done: Done | None
    refusals: int


@dataclass(frozen=True, slots=True)
class _Forget:
    sequences: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Reserve:
    """Order to reserve the next block of sequence numbers."""


_Work: TypeAlias = tuple[_Append, ...] | _Forget | _Reserve


class Store:
    """Durable store of a gateway or replica; every method belongs to the event loop's thread."""

    def __init__(self, data: DataDirectory, max_bytes: int = MAX_OUTBOX_BYTES) -> None:
        """Takes over an opened directory, and closes it at the end. On return, a block of sequence numbers is on disk.
        Raises StoreError; then the directory is closed.
        """
        self._data = data
        self.max_bytes = max_bytes
        self.on_committed: Callable[[Sequence[StoredEntry]], None] | None = None
        """Called once per group commit with all its entries, after their own callbacks."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()  # bounded by max_bytes
        self._appends: list[_Append] = []  # of this turn of the loop, and lingering ones
        self._appended = 0  # publications in them
        self._lingering = Lingering(self._hand_over)
        self._reserving = False
        self._gone: list[int] = []  # deletions for the next commit, which comes within FORGET_WITHIN_S
        self._retry: asyncio.TimerHandle | None = None
        self._gone_timer: asyncio.TimerHandle | None = None
        self._ungone: list[int] = []  # deletions that the disk refused, for the next commit
        # Refusals of the disk that the event loop knows of. The writer's last one, with the highest such count of its
        # group: what was appended at that count or before is refused as well.
        self._refusals = 0
        self._refusing: StoreError | None = None  # the disk's last word, if it was a refusal
        self._refused: tuple[int, StoreError | None] = (-1, None)
        try:
            self._outbox = Outbox(data.database, data.store_key, data.opened_ms)
            block = self._outbox.commit((), (), True, 0)
            self._count, self._bytes = self._outbox.totals()  # including entries on their way to the disk
        except BaseException:
            data.close()
            raise
        self._numbers = range(*block) if block else range(0)  # reserved, unused
        self._ranges: list[range] = []  # reserved ranges after `_numbers`
        self._in_hand: dict[int, int] = {}  # bytes of entries that were appended or read, until forgotten or left
        self._spare = SpareRoom()
        self._deleting: set[int] = set()  # forgotten, still on disk
        self._ranges_lock = threading.Lock()
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        self._thread = threading.Thread(target=self._write_all, name="veilmq-store", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------ numbers

    def next_sequence(self, count: int = 1) -> int:
        """Returns the first of `count` numbers in a row, such as the one of a publication that is not stored (QoS 0).
        Raises NoRoomError if so many are not reserved.

        Numbers run out only if the disk refused to reserve more, or if 2^16 are wanted within a single commit.
        """
        numbers = self._numbers
        if len(numbers) < count or (len(numbers) < SEQUENCE_BLOCK // 2 and not self._ranges):
            numbers = self._more_numbers(numbers, count)
        self._numbers = numbers[count:]
        return numbers[0]

    def _more_numbers(self, left: range, count: int) -> range:
        with self._ranges_lock:
            if not self._ranges and not self._reserving:
                self._reserving = True
                self._work.put(_Reserve())
            if len(left) < count and self._ranges:
                left = self._ranges.pop(0)
        if len(left) < count:
            raise NoRoomError(f"data directory {self._data.path} cannot reserve numbers; free some disk space")
        return left

    # ------------------------------------------------------------------------------------- outbox

    def append(
        self,
        publication: Publication,
        done: Done | None = None,
        chain: Chain | None = None,
        size: int = 0,
        client: str = "",
        run: Sequence[Publication] = (),
    ) -> int:
        """Hands a publication to the group commit and returns its sequence number.

        `chain`: names the scope. Consecutive publications of a chain and a single commit are a single entry with the
        first's number, except retained ones. None: the publication is alone, in a chain of its topic. `size`: the
        result of `size_of`, if known. `client`: the id of the client that published. `run`: several publications of
        the client, of which `publication` is the first; they are no more than a batch of the chain takes, none is
        retained, `size` is that of all, and the next ones have the next numbers.

        `done` gets the StoredEntry once it is on disk, or the StoreError if it is not (the number is then burned).
        Must be called on the event loop; the order of calls is the order of numbers and of reports. Raises
        NoRoomError, and from a refusal of the disk to the next write that succeeds the StoreError of the refusal:
        local clients would get a publication that is refused later, with each repetition.
        """
        if self._closed:
            raise StoreError("the store is closed")
        if self._refusing is not None:
            raise type(self._refusing)(str(self._refusing))
        self._loop = self._loop or asyncio.get_running_loop()
        chain, alone = chain or Chain(publication.topic), chain is None or publication.retain
        publication = replace(publication, in_clear=chain.in_clear) if alone else publication
        frame = encode_publication(publication) if alone else b""
        size = 0 if frame else size or size_of(publication)
        held = (len(frame) or ALONE_BYTES + size) + TAG_BYTES
        is_beyond = self._bytes + held > self.max_bytes
        free = self.max_bytes + self.max_bytes // PART - self._bytes - held
        if is_beyond and not self._spare.admits(publication.owner, client, held, free):
            raise NoRoomError(
                f"outbox in {self._data.path} holds {self._bytes} of {self.max_bytes} bytes; "
                "restore the uplink or raise overlay.outbox_bytes"
            )
        sequence = self.next_sequence(len(run) or 1)
        if is_beyond:
            self._spare.enter_entry(sequence, publication.owner, client, held)
        self._in_hand[sequence] = held
        self._bytes += held
        row = StoredRow(sequence, chain, publication.qos, frame, publication, size, run=run)
        self._count += row.publications
        self._appended += row.publications
        self._appends.append(_Append(row, publication, done, self._refusals))
        self._lingering.add_row(
            self._loop, row
        )  # once a turn: each hand-over wakes the writer, which takes the interpreter
        if self._appended >= GROUP_MAX:
            self._hand_over()
        return sequence

    def _hand_over(self) -> None:
        """Hands all appended publications to the writer, with all waiting deletions."""
        self._delete_gone()
        if self._appends:
            self._work.put(tuple(self._appends))
            self._appends.clear()
            self._appended = 0
            assert self._loop is not None
            self._lingering.note_handed_over(self._loop.time())

    async def put_publication(self, publication: Publication) -> StoredEntry:
        """Appends a publication and waits for the commit. Raises StoreError."""
        future: asyncio.Future[StoredEntry] = asyncio.get_running_loop().create_future()

        def done(result: StoredEntry | StoreError) -> None:
            if future.done():
                return
            if isinstance(result, StoreError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.append(publication, done)
        return await future

    def forget_entries(self, sequences: Sequence[int]) -> None:
        """Deletes entries that every party has (with the next commit). Ignores entries not in hand."""
        known = [s for s in sequences if s in self._in_hand]
        self._count -= len(known)
        for sequence in known:
            self._bytes -= self._in_hand.pop(sequence)
            self._spare.gone(sequence)
        if not known or self._closed:
            return
        self._lingering.gone(self._loop, known)
        self._deleting.update(known)
        self._gone += known
        if self._loop is None or len(self._gone) >= GROUP_MAX:
            self._delete_gone()
        elif self._gone_timer is None:
            self._gone_timer = self._loop.call_later(FORGET_WITHIN_S, self._delete_gone)

    def leave_on_disk(self, sequence: int) -> None:
        """Leaves an entry on disk for which the node has no room: `page` will bring it again."""
        self._in_hand.pop(sequence, None)

    def _delete_gone(self) -> None:
        if self._gone_timer is not None:
            self._gone_timer.cancel()
            self._gone_timer = None
        if self._gone:
            self._work.put(_Forget(tuple(self._gone)))
            self._gone.clear()

    def page(self, start: int) -> Page:
        """Returns entries on disk from sequence `start` on, in order, that are not in hand; now they are in the
        caller's hand.

        Some hundred at most, and blocking for some milliseconds. Raises StoreError.
        """
        self._loop = self._loop or asyncio.get_running_loop()
        page = self._outbox.page(start, lambda sequence: sequence in self._in_hand or sequence in self._deleting)
        self._in_hand.update((row.sequence, row.size) for row in page.rows)
        return page

    def is_left_on_disk(self, sequence: int) -> bool:
        """True if an entry is on disk and not in hand. Also True if the disk cannot be read: later entries then wait,
        and `page` reports the cause.
        """
        if sequence in self._in_hand or sequence in self._deleting:
            return False
        try:
            return self._outbox.holds_row(sequence)
        except StoreError:
            return True

    def first_from(self, start: int) -> tuple[int, int] | None:
        """Returns sequence and time of storage (ms since the UNIX epoch) of the first entry on disk from `start` on. If
        the disk cannot be read, returns (`start`, 0), so that the caller reads `page`, which reports the cause.
        """
        try:
            return self._outbox.first_row(start)
        except StoreError:
            return start, 0

    def last_of_chain(self, chain: str) -> int:
        """Returns the sequence of the last stored QoS >= 1 publication of a chain, 0 for none, or if the disk cannot be
        read: asked only for publications that are not stored themselves.
        """
        try:
            return self._outbox.last_of_chain(chain)
        except StoreError:
            return 0

    @property
    def depth(self) -> int:
        """The number of entries held, including those on their way to the disk."""
        return self._count

    @property
    def held_bytes(self) -> int:
        return self._bytes

    # -------------------------------------------------------------------------------------- close

    def close(self) -> None:
        """Writes all appended entries, stops the thread, releases the lock. Reports still come, on the loop."""
        if self._closed:
            return
        self._closed = True
        self._hand_over()
        self._work.put(None)
        self._thread.join()
        self._outbox.close()
        self._data.close()

    # ------------------------------------------------------------------------- in the writer thread

    def _write_all(self) -> None:
        while True:
            batch: list[_Append | _Forget | _Reserve] = []
            held = 0
            item = self._work.get()
            while item is not None:
                if isinstance(item, tuple):
                    batch += item
                    held += sum([each.row.publications for each in item])
                else:
                    batch.append(item)
                    held += 1
                if held >= GROUP_MAX:
                    break
                try:
                    item = self._work.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._commit(batch)
            if item is None:
                return

    def _commit(self, batch: Sequence[_Append | _Forget | _Reserve]) -> None:
        appends, refused = self._sorted_out([item for item in batch if isinstance(item, _Append)])
        gone = self._ungone + [s for item in batch if isinstance(item, _Forget) for s in item.sequences]
        reserve = any(isinstance(item, _Reserve) for item in batch)
        error: StoreError | None = None
        block, rows = None, list[StoredRow]()
        self._ungone = []
        try:
            rows = bundled([a.row for a in appends])
            block = self._outbox.commit(rows, gone, reserve, time.time_ns() // 1_000_000)
        except StoreError as fault:
            error = fault
        except Exception as fault:  # noqa: BLE001  a dead writer thread would leave every device without an answer
            error = StoreError(f"data directory {self._data.path}: {fault!r}; please report this")
        if error is not None:
            self._ungone = gone
            self._refused = (max((a.refusals for a in appends), default=-1), error)
        with self._ranges_lock:
            if reserve:
                self._reserving = False
            if block is not None:
                self._ranges.append(range(*block))
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            if refused and self._loop is not None:
                self._loop.call_soon_threadsafe(self._report, refused, [], [], self._refused[1])
            if (appends or gone or reserve) and self._loop is not None:
                self._loop.call_soon_threadsafe(self._report, appends, rows, gone, error)

    def _sorted_out(self, appends: list[_Append]) -> tuple[list[_Append], list[_Append]]:
        """Returns the appends to write, and those to refuse: the event loop handed them in before it knew of the last
        refusal. A client below MQTT 5 repeats what was refused, and no later one may be taken before (MQTT-4.6.0-2).
        """
        last, error = self._refused
        if error is None:
            return appends, []
        return [a for a in appends if a.refusals > last], [a for a in appends if a.refusals <= last]

    # ------------------------------------------------------------------------------- on the loop

    def _report(self, appends: list[_Append], rows: list[StoredRow], gone: list[int], error: StoreError | None) -> None:
        self._note_disk(error)
        if error is not None:
            self._refusals = max([self._refusals, *(item.refusals + 1 for item in appends)])
        entries = [] if error else [StoredEntry(row.sequence, row.previous, row.publication) for row in rows]
        if error is None:
            self._deleting.difference_update(gone)
        for item in appends:
            result: StoredEntry | StoreError
            if error is not None:
                self._bytes -= self._in_hand.pop(item.row.sequence)
                self._spare.gone(item.row.sequence)
                self._count -= item.row.publications
                result = error
            else:
                result = StoredEntry(item.row.sequence, item.row.previous, item.publication)
            if item.done is not None:
                item.done(result)
        for row in rows if error is None else ():  # its first number stands for all of them
            numbers = row.sequences or (row.sequence,)
            held, taken = sum(map(self._in_hand.pop, numbers)), len(row.frame) + TAG_BYTES
            self._in_hand[row.sequence] = taken
            self._spare.bundled(numbers)
            self._bytes += taken - held
            self._count -= row.publications - 1
            self._lingering.wrote(row)
        if entries and self.on_committed is not None:
            self.on_committed(entries)

    def _note_disk(self, error: StoreError | None) -> None:
        """Takes note of a write; after a refusal a small one is tried each `RETRY_S`."""
        self._refusing = error
        if error is not None and self._retry is None and self._loop is not None:
            self._retry = self._loop.call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._refusing is not None and not self._closed:
            self._work.put(_Reserve())
