"""Seeds of a replica's splits, a single file an epoch: all shares the replica splits in that epoch derive from a seed.

Seeds lie beside the outbox and not in it: an erased file is gone, and a row's bytes would stay in SQLite's pages.
`gateway/party.py` has the behaviour of a party whose disk keeps no seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from gateway.base import PrivateFileError, erase, private_directory, read_private, write_private
from gateway.data.database import StoreError

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
