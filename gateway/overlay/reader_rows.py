"""Rows of a gateway's reader, sealed on their way to the broker's database and opened at the next start.

Rows hold data keys and shares: a thief of the database alone reads nothing by them. A value is sealed under a key of
the store and bound to the overlay's owner, to the member and to the row's key. A row that does not open is left out,
with a line in the log: it costs at worst a repetition. Not here: the meaning of rows (`bridge.reader`), the database.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.base.log_events import LogEvent
from keys import frames

log = logging.getLogger("veilmq.links")

NONCE_BYTES = 12


class ReaderRows:
    """A sealer of rows. `sealing_key`: 32 secret bytes of the store; `owner`: the overlay owner's public key."""

    def __init__(self, sealing_key: bytes, owner: bytes, name: str) -> None:
        self._aead = AESGCM(sealing_key)
        self._purpose = b"veilmq/1 reader state" + frames.sized(owner) + frames.text(name)

    def seal(self, rows: Sequence[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        """Returns the rows with sealed values."""
        return [(key, None if value is None else self._sealed_value(key, value)) for key, value in rows]

    def _sealed_value(self, key: bytes, value: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, value, self._purpose + key)

    def open(self, rows: Mapping[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
        """Returns the rows given to `seal`, as far as they are ours and whole."""
        found, damaged = [], 0
        for key, value in rows.items():
            try:
                sealed = value[NONCE_BYTES:]
                found.append((key, self._aead.decrypt(value[:NONCE_BYTES], sealed, self._purpose + key)))
            except (InvalidTag, ValueError):
                damaged += 1
        if damaged:
            LogEvent.READER_ROWS_DAMAGED.say(log, damaged)
        return tuple(found)
