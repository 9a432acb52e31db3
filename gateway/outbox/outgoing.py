"""Local publications on their way into the overlay: to the outbox, and once they are on disk to the node, in order.

QoS 1 and 2 go through the store's group commit; QoS 0 is not stored, but waits for what was taken before it. What the
node has no room for is *left* on disk and read again in pages when there is (`refill`). While something is left, what
is new goes beside it, except on a topic that has something left: that would overtake, so it is left too. Not here:
which topics leave at all (`links`), sealing and sending (`bridge.publisher.publisher`), the disk (`store`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from operator import itemgetter

from bridge.contract import Committed, Count, Publication, fits
from bridge.publisher import AHEAD_MAX, Publisher
from gateway.base import Figures
from gateway.outbox.store import Entry, OutboxFullError, Store, StoreError

log = logging.getLogger("veilmq.links")

UNSTORED_MAX = 10_000  # QoS 0 publications behind one group commit: a stalled disk does not fill memory
TOPICS_MAX = 65_536  # topics whose last stored sequence is remembered for QoS 0; the oldest is forgotten
LOG_EVERY_S = 10.0  # devices repeat what is refused, for hours if need be
SUCCESS = 0x00


class Outgoing:
    """See the module. `committed` gets what may be sealed now; `publisher` says for how much there is room, and is None
    where nothing is published."""

    def __init__(
        self,
        store: Store,
        figures: Figures,
        committed: Callable[[Committed], None],
        publisher: Publisher | None,
        max_age_s: float | None = None,
        clock: Callable[[], float] = time.time,
        batches: bool = True,
    ) -> None:
        """`max_age_s`: what the publisher drops as too old is read for that even if there is no room. `batches`: False
        where each publication travels alone."""
        self._clock, self._batches = clock, batches
        self._store, self._figures, self._hand_on, self._publisher = store, figures, committed, publisher
        self._max_age_s = max_age_s
        self._storing: dict[int, None] = {}  # appended, not yet reported by the disk; in order
        self._unstored: deque[tuple[int, Publication]] = deque()
        self._last_stored: OrderedDict[str, int] = OrderedDict()
        self._alone: OrderedDict[str, None] = OrderedDict()  # topics on which something was retained
        self._left: int | None = None  # nothing with a lower sequence is left on disk; None: nothing is
        self._left_is_old = False
        self._unreadable = False
        self._said_at = -LOG_EVERY_S

    def start(self) -> None:
        """Take up what the outbox holds from before."""
        self._store.on_committed = self._committed
        first = self._store.first(0) if self._publisher is not None else None
        self._left = None if first is None else first[0]

    def take(self, publication: Publication, done: Callable[[int], None]) -> None:
        """`done(code)` once it is durable, or at once for QoS 0; a code >= 0x80 refuses it."""
        try:
            if publication.qos:
                batch, after = self._batch_of(publication)
                sequence: int = self._store.append(
                    publication, lambda result: self._stored(sequence, result, done), batch, after
                )
                self._storing[sequence] = None
            elif len(self._unstored) < UNSTORED_MAX:
                self._unstored.append((self._store.next_sequence(), publication))
                done(SUCCESS)
                if not self._storing:
                    self._committed(())
            else:
                self._figures.count(Count("qos0_dropped"))
                done(SUCCESS)
        except StoreError as error:
            self._refuse(error, done)

    def _batch_of(self, publication: Publication) -> tuple[str | None, str | None]:
        """The topic of the batches that it goes into, or which it follows.

        A topic on which something is retained travels alone from then on: what is retained does, and each topic has one
        order.
        """
        if self._publisher is None or not self._batches:
            return None, None
        topic = publication.topic
        if publication.retain:
            alone = topic in self._alone
            self._keep_alone(topic)
            return None, None if alone else self._publisher.sealer.batch_of(topic, self._clock())
        if topic in self._alone or not fits(publication):
            return None, None
        return self._publisher.sealer.batch_of(topic, self._clock()), None

    def _keep_alone(self, topic: str) -> None:
        self._alone[topic] = None
        self._alone.move_to_end(topic)
        if len(self._alone) > TOPICS_MAX:
            self._alone.popitem(last=False)

    def _stored(self, sequence: int, result: Entry | StoreError, done: Callable[[int], None]) -> None:
        """The disk's answer to one append; entries themselves come in `_committed`."""
        del self._storing[sequence]
        if isinstance(result, StoreError):
            asyncio.get_running_loop().call_soon(self._committed, ())
            self._refuse(result, done)
        else:
            done(SUCCESS)

    def _refuse(self, error: StoreError, done: Callable[[int], None]) -> None:
        self._say(error)
        self._figures.count(Count("outbox_refused", 1, "full" if isinstance(error, OutboxFullError) else "disk"))
        done(error.code)

    def _say(self, error: StoreError) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= LOG_EVERY_S:
            self._said_at = now
            log.error("%s", error)

    def _committed(self, entries: Sequence[Entry]) -> None:
        """Hand entries to the node in order of sequence, and with them QoS 0 publications that waited their turn.

        QoS 0 is not stored, but must not overtake: its number would make a stored one before it look like a repeat.
        """
        ready = [(e.sequence, e.previous, e.publication) for e in entries]
        first_storing = next(iter(self._storing), None)
        while self._unstored and (first_storing is None or self._unstored[0][0] < first_storing):
            sequence, publication = self._unstored.popleft()
            ready.append((sequence, 0, publication))
        ready.sort(key=itemgetter(0))
        assert self._publisher is not None
        taken = []
        room, room_bytes = self._publisher.room
        for sequence, previous, publication in ready:
            topic = publication.topic
            before = previous if publication.qos else self._before(topic, sequence)
            if publication.qos:
                self._remember(topic, sequence)
            overtakes = self._overtakes(sequence, before)
            if not publication.qos and overtakes:
                self._figures.count(Count("qos0_dropped"))
            elif publication.qos and (overtakes or room <= 0 or room_bytes <= 0 or self._publisher.is_stuck(topic)):
                self._leave(sequence, publication)
            else:
                taken.append((sequence, before, publication))
                room, room_bytes = room - 1, room_bytes - len(publication.payload) - len(topic)
        if taken:
            self._hand_on(Committed(tuple(taken)))

    def _before(self, topic: str, sequence: int) -> int:
        """What precedes a QoS 0 publication on its topic, as far as it matters: 0 if nothing is known."""
        known = self._last_stored.get(topic, 0)
        if not known and self._left is not None:
            known = self._store.last_of(topic)
            self._remember(topic, known)
        return known if known < sequence else 0

    def _remember(self, topic: str, sequence: int) -> None:
        self._last_stored[topic] = sequence
        self._last_stored.move_to_end(topic)
        if len(self._last_stored) > TOPICS_MAX:
            self._last_stored.popitem(last=False)

    # ------------------------------------------------------------------------------------ what is left on disk

    def _overtakes(self, sequence: int, previous: int) -> bool:
        """Whether something on its topic is left on disk, or it would run too far ahead of what is."""
        if self._left is None:
            return False
        return sequence - self._left > AHEAD_MAX or (previous >= max(1, self._left) and self._store.is_left(previous))

    def _leave(self, sequence: int, publication: Publication) -> None:
        self._store.leave(sequence)
        self._left = sequence if self._left is None else min(self._left, sequence)
        if publication.retain and self._publisher is not None:
            # An older one of ours on that topic, sealed anew meanwhile, would come after this one.
            self._publisher.overtaken(publication.topic, publication.time_ms)

    @property
    def wants_refill(self) -> bool:
        """Whether something is left that may go on now."""
        if self._left is None or self._publisher is None or self._unreadable:
            return False
        return self._left_is_old or self._publisher.wants_late

    def refill(self, now: float) -> None:
        """Read a page of what is left, if it may go on now; blocks for some milliseconds."""
        if not self.wants_refill:
            return
        assert self._left is not None
        try:
            page = self._store.page(self._left)
        except StoreError as error:
            self._say(error)
            self._unreadable = True
            return
        if page.damaged is not None:
            self._say(page.damaged)
            self._figures.count(Count("outbox_damaged"))
        self._left = page.following
        self.look(now)
        for row in page.rows:
            if row.publication.retain:
                self._keep_alone(row.publication.topic)
        if page.rows:
            self._hand_on(Committed(tuple((r.sequence, r.previous, r.publication) for r in page.rows), late=True))

    def look(self, now: float) -> None:
        """To be called every second: is what is left too old? Then it is read to be dropped, room or not. A disk that
        could not be read is tried again."""
        self._unreadable = self._left_is_old = False
        if self._max_age_s is not None and self._left is not None:
            first = self._store.first(self._left)
            self._left_is_old = first is not None and first[1] / 1000 + self._max_age_s < now
