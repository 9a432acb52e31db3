"""Directory of a member's durable state, for a single process: a lock refuses the second.

Holds the store key, from which the keys of all sealed files derive, the generation, and the seeds of splits. Not here:
the outbox (`gateway.outbox`), sessions (`gateway.sessions`), what lies in sealed files (`gateway.overlay`).
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

from gateway.base import PrivateFileError, lock_exclusively, private_directory, read_private, write_private
from gateway.data.database import StoreError, open_facts, store_error
from gateway.data.generation import begin_generation
from gateway.data.seeds import erase_seeds, split_seed


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
        """Returns the seed of an epoch's splits, see `seeds.split_seed`. Raises StoreError."""
        return split_seed(self.path / "seeds", epoch)

    def erase_seeds(self, is_over: Callable[[int], bool]) -> list[int]:
        """Erases the seeds of epochs that are over, see `seeds.erase_seeds`. Raises StoreError."""
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
