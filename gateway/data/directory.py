"""Directory of a member's durable state, for a single process: a lock refuses the second.

Holds the store key, from which the keys of all sealed files derive, the generation, and the seeds of splits. Not here:
the outbox (`gateway.outbox`), sessions (`gateway.sessions`), what lies in sealed files (`gateway.overlay`).

Generation of a member: the number of this life of its data directory, on disk before it is used.

Seeds of a replica's splits, a single file an epoch: all shares the replica splits in that epoch derive from a seed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from gateway.base import PrivateFileError, erase, lock_exclusively, private_directory, read_private, write_private
from gateway.data.database import LAYOUT, StoreError, open_facts, read_fact, store_error

SEED_BYTES = 32


def split_seed(directory: Path, epoch: int) -> bytes:
    """Returns the 32 bytes from which all splits of this epoch derive; on disk before they are returned.

    Raises StoreError. Blocking, once an epoch.
    """
    path = directory / f"{int(epoch)}.seed"
    try:
        if not path.exists():
            private_directory(directory)
            write_private(path, secrets.token_bytes(SEED_BYTES))
        seed = read_private(path)
    except PrivateFileError as error:
        raise StoreError(str(error)) from None
    if len(seed) != SEED_BYTES:
        raise StoreError(f"{path}: is damaged; remove it (shares of epoch {epoch} will be split anew)")
    return seed


def erase_seeds(directory: Path, is_over: Callable[[int], bool]) -> list[int]:
    """Erases the seeds of epochs that are over, and returns these epochs: no split of them can be derived again.

    `is_over` must hold after the epoch's grace only. Raises StoreError.
    """
    try:
        held = [int(path.stem) for path in directory.glob("*.seed") if path.stem.isdigit()]
        gone = sorted(epoch for epoch in held if is_over(epoch))
        for epoch in gone:
            erase(directory / f"{epoch}.seed")
    except OSError as error:
        where = f"data directory {directory.parent}"
        raise StoreError(f"{where}: {error.strerror or error}; check it and its permissions") from None
    return gone


FAR_AHEAD_MS = 300_000
"""A stored generation further ahead of the clock than this shows that its clock or the present one was wrong; replicas
take none further ahead.
"""
PASSED_OVER = 8
"""Generations remembered, the greatest, of those that a start did not follow."""


def begin_generation(db: sqlite3.Connection, now_ms: int) -> tuple[int, dict[int, int]]:
    """Writes the generation of a start at `now_ms` to the facts of a database. Returns it, and those passed over, as
    `following` does. Raises sqlite3.Error; then nothing was changed.
    """
    with db:
        db.execute("BEGIN IMMEDIATE")
        stored = read_fact(db, "generation", 0)
        over = [n for (n,) in db.execute("SELECT name FROM facts WHERE name LIKE 'over %'") if n[5:].isdigit()]
        generation, passed_over = following(stored, {int(n[5:]): read_fact(db, n, 0) for n in over}, now_ms)
        facts = [("layout", LAYOUT), ("generation", generation)]
        facts += [(f"over {first}", end) for first, end in passed_over.items()]
        db.execute("DELETE FROM facts WHERE name LIKE 'over %'")
        db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)
    return generation, passed_over


def following(stored: int, passed_over: Mapping[int, int], now_ms: int) -> tuple[int, dict[int, int]]:
    """Returns the generation after `stored` at a start at `now_ms`, and the generations passed over. Each generation
    too far ahead maps to the generation with which this start goes on once the clock has reached it (docs/protocol.md
    §2.11).
    """
    over = {first: end + 1 for first, end in passed_over.items()}
    if stored >= now_ms + FAR_AHEAD_MS:
        over.setdefault(stored, stored + 1)
    possible = [number for number in (stored + 1, *over.values()) if number <= now_ms + FAR_AHEAD_MS]
    return max([now_ms, *possible]), dict(sorted(over.items())[-PASSED_OVER:])


class DataDirectory:
    """Data directory of a running member, locked from opening to `close`."""

    def __init__(self, path: Path, now_ms: int) -> None:
        """Opens or makes the directory at `now_ms`: on return a new generation is on disk. Raises StoreError (a line)
        if it cannot be used.
        """
        self.path, self.opened_ms = path, now_ms
        self.database = path / "outbox.sqlite3"
        """File of the generation and of the outbox."""
        self.generation: int
        """The number of this life of the directory. Rises with every opening, and is at least its time in
        milliseconds.
        """
        self.passed_over: Mapping[int, int]
        """The greater generations of wrong clocks, each with the generation to go on with if the clock reaches it."""
        with in_a_line(path):
            private_directory(path)
            self._lock_file = lock_exclusively(path / "lock")
        try:
            with in_a_line(path):
                self.store_key = _own_key(path / "store.key")
                with contextlib.closing(open_facts(self.database)) as db:
                    self.generation, self.passed_over = begin_generation(db, now_ms)
        except StoreError:
            self.close()
            raise

    @classmethod
    def open(cls, path: Path) -> DataDirectory:
        """Opens or makes the directory now. Raises StoreError."""
        return cls(path, time.time_ns() // 1_000_000)

    def split_seed(self, epoch: int) -> bytes:
        """Returns the seed from which the shares of an epoch are split, made and stored at the first call. Raises
        StoreError.
        """
        return split_seed(self.path / "seeds", epoch)

    def erase_seeds(self, is_over: Callable[[int], bool]) -> list[int]:
        """Erases the seeds of epochs for which `is_over` holds, and returns these epochs. Raises StoreError."""
        return erase_seeds(self.path / "seeds", is_over)

    def sealing_key(self, purpose: bytes) -> bytes:
        """Returns 32 secret bytes for sealed files in the directory; another purpose, another key."""
        return _derived(self.store_key, purpose)

    def close(self) -> None:
        """Releases the lock."""
        os.close(self._lock_file)


def sealing_key(path: Path, purpose: bytes) -> bytes:
    """Returns the key of `DataDirectory.sealing_key` for a directory that may be in use. Raises StoreError."""
    with in_a_line(path):
        return _derived(_own_key(path / "store.key"), purpose)


def _derived(store_key: bytes, purpose: bytes) -> bytes:
    return HKDFExpand(hashes.SHA256(), 32, b"veilmq/1 store " + purpose).derive(store_key)


def _own_key(path: Path) -> bytes:
    if not path.exists():
        write_private(path, secrets.token_bytes(32))
    key = read_private(path)
    if len(key) != 32:
        raise PrivateFileError(f"{path}: is not a store key; restore it, or empty the data directory")
    return key


@contextlib.contextmanager
def in_a_line(path: Path) -> Iterator[None]:
    """Raises errors of the disk as StoreError."""
    try:
        yield
    except PrivateFileError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise StoreError(f"data directory {path}: {error.strerror or error}; check it and its permissions") from None
    except sqlite3.Error as error:
        raise store_error(error, path) from None
