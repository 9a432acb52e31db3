"""Local publications on their way into the overlay: QoS 1 and 2 to the disk, all of them to the node as events.

Publications for which the node has no room stay on disk, and are read in pages when the node asks. Not here: the
topics leaving at all (`overlay.broker_overlay`), the order of sending (`bridge.publisher.intake`), the disk (`store`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Protocol

from bridge.contract import (
    Appending,
    Chain,
    Committed,
    Count,
    Event,
    NotAppended,
    Numbered,
    OutboxPage,
    Publication,
    Unstored,
    packed,
    size_of,
)
from gateway.base import Figures
from gateway.base.log_events import LogEvent
from gateway.data import NoRoomError, StoreError
from gateway.outbox.store import Store, StoredEntry

log = logging.getLogger("veilmq.links")

LOG_EVERY_S = 10.0  # devices may repeat refused publications for hours
SUCCESS = 0x00
FEW, SHARED_BY = 3, 8
"""A client has batches of QoS 0 of its own with more publications than both: so many, and this part of those that leave
together. Hence at most so many clients have."""
FITS_NO_RECORD = 0x83  # Implementation specific error (MQTT 5.0 §2.4)


def by_owner(records: Sequence[Numbered]) -> Iterator[tuple[str, list[Numbered]]]:
    """Yields runs of publications that are not stored, in order, with the client that owns a run: who floods has runs
    of its own, so that nobody else's publications go with them where there is no uplink. The others share runs, "".
    """
    numbers = Counter([record.publication.owner for record in records])
    most = max(FEW, len(records) // SHARED_BY)
    own = set(numbers) if len(numbers) == 1 else {owner for owner, number in numbers.items() if number > most}
    if not own:
        yield from [("", list(records))] if records else []
        return
    for key, run in groupby(records, lambda one: one.publication.owner if one.publication.owner in own else ""):
        yield key, list(run)


class FollowedOutbox(Protocol):
    """Steps of publications, said to an administrator that follows them (`overlay/followed_wires.py`)."""

    def numbered(self, number: int, publication: Publication, client: str) -> None: ...
    def gathered(self, first: int, publication: Publication) -> None: ...


class Outgoing:
    """Path of local publications to the disk and the node. `handle` gives the node an event; `chain_of` names the chain
    of publications on a clear topic.
    """

    def __init__(
        self,
        store: Store,
        figures: Figures,
        handle: Callable[[Event], object],
        chain_of: Callable[[str], Chain],
        *,
        full_is_local: bool = False,
    ) -> None:
        """`full_is_local`: publications the full outbox does not take are delivered to local clients only. Their
        publisher gets no error: the success code then means that they were served, not that they were stored.
        """
        self._full_is_local = full_is_local
        self._store, self._figures, self._handle, self._chain_of = store, figures, handle, chain_of
        # QoS 0 of this turn of the loop, by chain, and True if the scope of the first publication is plain.
        self._gathered: dict[str, tuple[bool, list[Numbered]]] = {}
        self._gathered_bytes = 0
        self._appending: list[int] = []  # numbers that the node is told with the next event
        self.followed: FollowedOutbox | None = None  # None: no administrator follows publications
        self._said_at = -LOG_EVERY_S
        store.on_committed = self._committed

    def take_publication(self, publication: Publication, done: Callable[[int], None], client: str = "") -> None:
        """Calls `done(code)` once the publication is durable, or at once for QoS 0; a code >= 0x80 refuses it. A
        publication fitting no record is never sealed; its client is told at once. `client`: the id of the client that
        published.
        """
        size = size_of(publication)
        if not size:
            self._figures.count_effect(Count("publish_refused"))
            done(FITS_NO_RECORD)
            return
        try:
            chain = self._chain_of(publication.topic)
            if self._gathered and (publication.qos or publication.retain):
                self._leave_gathered(chain.name)  # keeps the order: earlier publications go first
            if publication.qos:
                sequence: int = self._store.append(
                    publication, lambda result: self._stored(sequence, result, done), chain, size, client
                )
                self._appending.append(sequence)
                if self.followed is not None:
                    self.followed.numbered(sequence, publication, client)
                return
            number = self._store.next_sequence()
            if self.followed is not None:
                self.followed.numbered(number, publication, client)
            done(SUCCESS)
            if publication.retain:
                self._tell_node(Unstored(number, replace(publication, in_clear=chain.in_clear)))
            else:
                self._gather(chain, Numbered(number, publication), size)
        except StoreError as error:
            self._refuse(error, done)

    def take_run(self, run: Sequence[Publication], done: Callable[[int], None], chain: Chain, client: str = "") -> int:
        """Takes leading publications of QoS 1 of one client and chain, no more than topic and payload, as one, and
        returns how many. Calls `done(code)` once for all of these, when they are durable. `take_publication` must take
        the next one.
        """
        if self.followed is not None:
            return 0
        size = count = beside = 0
        topic = None
        for publication in run[: chain.records]:
            if publication.topic != topic:
                topic, beside = publication.topic, size_of(publication) - len(publication.payload)
                if beside <= 0:  # it fits no batch
                    break
            one = beside + len(publication.payload)
            if count and size + one > chain.bytes:
                break
            size, count = size + one, count + 1
        if not count:
            return 0
        if self._gathered:
            self._leave_gathered(chain.name)  # keeps the order: earlier publications go first

        def stored(result: StoredEntry | StoreError) -> None:
            self._stored(sequence, result, done, count)

        try:
            sequence = self._store.append(run[0], stored, chain, size, client, run[:count])
        except StoreError:
            return 0  # there may be room for one, and it says what is the matter
        self._appending.append(sequence)
        return count

    def _gather(self, chain: Chain, record: Numbered, size: int) -> None:
        """Holds a publication that is not stored until the end of this turn of the loop, to leave with others: as a
        rule, those of a read of a socket.
        """
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._leave_all_gathered)
        if self._gathered_bytes + size > chain.bytes:
            self._leave_all_gathered()
        _, together = self._gathered.setdefault(chain.name, (chain.in_clear, []))
        together.append(record)
        self._gathered_bytes += size
        if len(together) >= chain.records:
            self._leave_gathered(chain.name)

    def _leave_all_gathered(self) -> None:
        for chain in list(self._gathered):
            self._leave_gathered(chain)
        self._gathered_bytes = 0

    def _leave_gathered(self, chain: str) -> None:
        in_clear, records = self._gathered.pop(chain, (False, []))
        for owner, run in by_owner(records):
            batch = replace(packed(chain, run), in_clear=in_clear, owner=owner)
            if self.followed is not None:
                self.followed.gathered(run[0].number, batch)
            self._tell_node(Unstored(run[0].number, batch))

    def _stored(
        self, sequence: int, result: StoredEntry | StoreError, done: Callable[[int], None], count: int = 1
    ) -> None:
        """Takes the disk's answer to an append of so many publications; entries themselves come in `_committed`."""
        if isinstance(result, StoreError):
            asyncio.get_running_loop().call_soon(self._tell_node, NotAppended(sequence))
            self._refuse(result, done, count)
        else:
            done(SUCCESS)

    def _committed(self, entries: Sequence[StoredEntry]) -> None:
        if self.followed is not None:
            for entry in entries:
                self.followed.gathered(entry.sequence, entry.publication)
        appending, self._appending = tuple(self._appending), []
        self._handle(Committed(tuple([(e.sequence, e.previous, e.publication) for e in entries]), appending))

    def _tell_node(self, event: Event) -> None:
        """Tells the node the numbers on their way to the disk, then `event`. Numbers go all at once, at a tenth of the
        cost of singly.
        """
        if self._appending:
            sequences, self._appending = tuple(self._appending), []
            self._handle(Appending(sequences))
        self._handle(event)

    def leave_on_disk(self, sequences: Sequence[int]) -> None:
        """Leaves entries on disk for which the node has no room: `read_page` will bring them again."""
        for sequence in sequences:
            self._store.leave_on_disk(sequence)

    def read_page(self, start: int) -> None:
        """Reads a page of entries left on disk; blocks for some milliseconds."""
        try:
            page = self._store.page(start)
        except StoreError as error:
            self._log_error(error)
            self._tell_node(OutboxPage((), start, unreadable=True))
            return
        if page.damaged is not None:
            self._log_error(page.damaged)
            self._figures.count_effect(Count("outbox_damaged"))
        self._tell_node(OutboxPage(tuple((r.sequence, r.previous, r.publication) for r in page.rows), page.following))

    def _refuse(self, error: StoreError, done: Callable[[int], None], count: int = 1) -> None:
        self._log_error(error)
        full = isinstance(error, NoRoomError)
        stays = full and self._full_is_local
        self._figures.count_effect(Count("outbox_refused", count, "local" if stays else "full" if full else "disk"))
        done(SUCCESS if stays else error.code)

    def _log_error(self, error: StoreError) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= LOG_EVERY_S:
            self._said_at = now
            LogEvent.OUTBOX_REFUSES.say(log, error)
