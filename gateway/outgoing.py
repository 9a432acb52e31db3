"""Local publications on their way into the overlay: to the outbox, and once they are on disk to the node, in order.

QoS 1 and 2 go through the store's group commit; QoS 0 is not stored, but waits for what was taken before it. Not here:
which topics leave at all (`links`), sealing and sending (`bridge.sealing`), the disk (`store`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from operator import itemgetter

from bridge.machine import Committed, Count, Publication
from gateway.metrics import Figures
from gateway.store import Entry, Store, StoreError

log = logging.getLogger("veilmq.links")

UNSTORED_MAX = 10_000  # QoS 0 publications behind one group commit: a stalled disk does not fill memory
TOPICS_MAX = 65_536  # topics whose last stored sequence is remembered for QoS 0; the oldest is forgotten
SUCCESS = 0x00


class Outgoing:
    """See the module. `committed` gets what may be sealed now."""

    def __init__(self, store: Store, figures: Figures, committed: Callable[[Committed], None]) -> None:
        self._store, self._figures, self._hand_on = store, figures, committed
        self._storing: dict[int, None] = {}  # appended, not yet reported by the disk; in order
        self._unstored: deque[tuple[int, Publication]] = deque()
        self._last_stored: OrderedDict[str, int] = OrderedDict()

    def start(self) -> None:
        """Take up what the outbox holds from before."""
        self._store.on_committed = self._committed
        pending = list(self._store.pending())
        if pending:
            self._committed(pending)

    def take(self, publication: Publication, done: Callable[[int], None]) -> None:
        """`done(code)` once it is durable, or at once for QoS 0; a code >= 0x80 refuses it."""
        try:
            if publication.qos:
                sequence = self._store.append(publication, lambda result: self._stored(sequence, result, done))
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
            log.error("%s", error)
            done(error.code)

    def _stored(self, sequence: int, result: Entry | StoreError, done: Callable[[int], None]) -> None:
        """The disk's answer to one append; entries themselves come in `_committed`."""
        del self._storing[sequence]
        if isinstance(result, StoreError):
            log.error("%s", result)
            asyncio.get_running_loop().call_soon(self._committed, ())
            done(result.code)
        else:
            done(SUCCESS)

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
        chained = []
        for sequence, previous, publication in ready:
            topic = publication.topic
            if publication.qos:
                self._last_stored[topic] = sequence
                self._last_stored.move_to_end(topic)
                if len(self._last_stored) > TOPICS_MAX:
                    self._last_stored.popitem(last=False)
            chained.append((sequence, previous if publication.qos else self._last_stored.get(topic, 0), publication))
        if chained:
            self._hand_on(Committed(tuple(chained)))
