"""A writer of a trace store's changes beside the event loop: those of one turn are one transaction, on a thread of its
own.

A change is on disk some milliseconds later. A caller that must not speak of a change before waits by `when_written`.
Not here: the rows (`store`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from bridge.traces import RememberedEntity
from gateway.tracing.store import TraceStore, TraceStoreError
from keys.delegation import Advertisement

PENDING_MAX = 10_000
"""Changes in memory. Beyond this bound the broker waits for the disk, as without a thread: nothing is lost, and memory
is bounded."""


@dataclass
class _Changes:
    """Changes by trace topic, the last of each; None: forgotten. `waiters`: called when all of them are on disk."""

    advertisements: dict[bytes, Advertisement | None] = field(default_factory=dict)
    entities: dict[bytes, RememberedEntity | None] = field(default_factory=dict)
    waiters: list[Callable[[], None]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.advertisements) + len(self.entities)


class TraceWriter:
    """The one writer of a trace store while its broker runs. Used from the event loop's thread only.

    `failed`: is told why changes were not written; they are not tried again.
    """

    def __init__(self, store: TraceStore, failed: Callable[[TraceStoreError], None]) -> None:
        self._store, self._failed = store, failed
        self._executor = ThreadPoolExecutor(1, "veilmq-traces")
        self._pending, self._writing = _Changes(), _Changes()
        self._written: Future[None] | None = None
        self._is_soon = False

    def keep_advertisement(self, advertisement: Advertisement) -> None:
        """Takes a new advertisement of a trace topic."""
        self._pending.advertisements[advertisement.topic] = advertisement
        self._soon()

    def forget_topic(self, topic: bytes) -> None:
        """Takes the end of an advertisement."""
        self._pending.advertisements[topic] = None
        self._soon()

    def remember(self, records: Sequence[tuple[bytes, RememberedEntity | None]]) -> None:
        """Takes entities by trace topic; None: registered no longer."""
        self._pending.entities.update(records)
        self._soon()

    def when_written(self, done: Callable[[], None]) -> None:
        """Calls `done` when all changes until now are on disk or failed; at once, if there are none."""
        if len(self._pending):
            self._pending.waiters.append(done)
        elif self._written is not None:
            self._writing.waiters.append(done)
        else:
            done()

    def close(self) -> None:
        """Writes what is left, calls who waits, and closes the store."""
        self._wait_for_write()
        self._flush()
        self._wait_for_write()
        self._executor.shutdown()
        self._store.close()

    def _soon(self) -> None:
        if len(self._pending) >= PENDING_MAX:
            self._wait_for_write()
            self._flush()
        elif self._written is None and not self._is_soon:
            self._is_soon = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Hands over what is pending, unless a write goes on: its end comes back here."""
        self._is_soon = False
        if self._written is not None or not len(self._pending):
            return
        self._writing, self._pending = self._pending, _Changes()
        changes, loop = self._writing, asyncio.get_running_loop()
        self._written = self._executor.submit(self._store.write, changes.advertisements, changes.entities)
        self._written.add_done_callback(lambda written: loop.call_soon_threadsafe(self._ended, written))

    def _ended(self, written: Future[None]) -> None:
        if written is self._written:  # else somebody waited for it
            self._wait_for_write()
            self._flush()

    def _wait_for_write(self) -> None:
        """Waits for the write that goes on, if there is one, and calls who waited for it."""
        written, self._written = self._written, None
        if written is None:
            return
        try:
            written.result()
        except TraceStoreError as error:
            self._failed(error)
        waiters, self._writing.waiters = self._writing.waiters, []
        for done in waiters:
            done()
