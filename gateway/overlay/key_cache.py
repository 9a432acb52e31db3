"""Fetched epoch keys on disk, so that a gateway restarts and goes on while no key server answers.

    content: count(4), each: scope: text  epoch(4)  bump(2)  key(32)

The file is sealed under a key of the store's and bound to the overlay's owner and the member. It is a cache: whatever
is wrong with it is a line in the log and a start without it, the key service has the keys. Not here: which keys count
when (`keys.epochs`), who fetches them (`keys.fetching`).
"""

from __future__ import annotations

import logging
from pathlib import Path

from gateway.base import SealedFile, SealedFileError
from gateway.base.log_events import LogEvent
from keys import frames
from keys.epochs import KEY_BYTES, SCOPE_KEYS_MAX, KeyName, ScopeKeys
from keys.errors import KeysError

log = logging.getLogger("veilmq.keys")

FILE_NAME = "epoch-keys"


class KeyCache:
    """A cache of epoch keys on disk. `sealing_key`: 32 secret bytes of the store; `owner`: the overlay owner's public
    key.
    """

    def __init__(self, directory: Path, sealing_key: bytes, owner: bytes, name: str) -> None:
        purpose = b"veilmq/1 key cache" + frames.sized(owner) + frames.text(name)
        self._file = SealedFile(directory / FILE_NAME, sealing_key, purpose)
        self._written = b""

    def load(self, keys: ScopeKeys) -> int:
        """Put what was kept into `keys`; the number of keys. Never raises for what the file holds."""
        try:
            content = self._file.read()
            found = [] if content is None else _decode(content)
            return sum(keys.put_key(name, key) for name, key in found)
        except (SealedFileError, KeysError) as error:
            LogEvent.EPOCH_KEYS_NOT_USED.say(log, error)
            return 0

    def save(self, keys: ScopeKeys, since_epoch: int = 0) -> None:
        """Keep the keys of `since_epoch` and later, and overwrite those before. Trouble is a line in the log."""
        content = _encode([(name, key) for name, key in keys if name.epoch >= since_epoch])
        if content == self._written:
            return
        try:
            self._file.replace(content)
            self._written = content
        except SealedFileError as error:
            LogEvent.EPOCH_KEYS_NOT_KEPT.say(log, error)


def _encode(keys: list[tuple[KeyName, bytes]]) -> bytes:
    parts = [frames.number(len(keys), 4)]
    for name, key in sorted(keys):
        parts += [frames.text(name.scope), frames.number(name.epoch, 4), frames.number(name.bump, 2), key]
    return b"".join(parts)


def _decode(content: bytes) -> list[tuple[KeyName, bytes]]:
    reader = frames.Reader(content)
    count = min(reader.number(4), SCOPE_KEYS_MAX)
    found = [
        (KeyName(reader.text(), reader.number(4), reader.number(2)), reader.take_bytes(KEY_BYTES)) for _ in range(count)
    ]
    reader.expect_end()
    return found
