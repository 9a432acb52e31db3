"""What a key server keeps on disk: its material, walked forward epoch by epoch, and the archive of ended epochs.

    DATA/keyserver/material        the subkeys of the present epoch, sealed under a key of the store's
    DATA/keyserver/archive/EPOCH   what the server gave out in that epoch, sealed to each reader: it cannot open it

The owner hands the first material over as a file of its own (mode 0600); it is taken in at the first start and erased
where it came from, after it is durable here. A later file from `veilmq trust rekey` is taken in the same way. Not here:
what material means, when it walks and what an archive holds (`keys.material`, `keys.issuing`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from gateway.base import (
    PrivateFileError,
    SealedFile,
    SealedFileError,
    erase,
    private_directory,
    read_private,
    write_private,
)
from gateway.base.log_events import LogEvent
from gateway.data import StoreError

log = logging.getLogger("veilmq.keys")

DIRECTORY = "keyserver"
ARCHIVED_EPOCHS_MAX = 10_000
"""Stops a directory full of other files from being read as archives."""


class KeyMaterialError(StoreError):
    """The key server cannot start or go on: a line, cause and cure."""


class KeyMaterial:
    """Files of a key server. `sealing_key`: 32 secret bytes of the store; `owner`: the overlay owner's key."""

    def __init__(self, data: Path, sealing_key: bytes, owner: bytes, name: str) -> None:
        self._archive = data / DIRECTORY / "archive"
        try:
            private_directory(self._archive.parent)
            private_directory(self._archive)
        except PrivateFileError as error:
            raise KeyMaterialError(str(error)) from None
        purpose = b"veilmq/1 key material" + owner + name.encode()
        self._file = SealedFile(data / DIRECTORY / "material", sealing_key, purpose)

    def load(self) -> bytes | None:
        """The material as it was kept last; None at the first start. Raises KeyMaterialError."""
        try:
            return self._file.read()
        except SealedFileError as error:
            raise KeyMaterialError(f"{error}; or ask the overlay's owner to rekey") from None

    def keep_material(self, material: bytes) -> None:
        """Durable when this returns, the material before it overwritten. Raises KeyMaterialError."""
        try:
            self._file.replace(material)
        except SealedFileError as error:
            raise KeyMaterialError(str(error)) from None

    def handed_over(self, source: Path) -> bytes | None:
        """Returns the material the owner handed over in `source`; None without such a file. Raises
        KeyMaterialError.
        """
        if not source.exists():
            return None
        try:
            return read_private(source)
        except PrivateFileError as error:
            raise KeyMaterialError(str(error)) from None

    def take_in(self, source: Path, material: bytes) -> None:
        """Keep `material`, which was made of what `source` held; once it is durable, erase that file.

        After a crash between the two both are there: what is kept then has what the file holds, or walked past it.
        """
        self.keep_material(material)
        try:
            erase(source)
        except OSError as error:
            raise KeyMaterialError(f"{source}: cannot be erased ({error.strerror or error}); remove it") from None
        LogEvent.KEY_MATERIAL_TAKEN.say(log, source)

    # ------------------------------------------------------------------------------------------- archive

    def archived(self) -> Mapping[int, bytes]:
        """Archives by epoch. One that cannot be read is a line in the log: its epoch is lost, the service is not."""
        found: dict[int, bytes] = {}
        for path in sorted(self._archive.iterdir())[:ARCHIVED_EPOCHS_MAX]:
            if not path.name.isdigit():
                continue
            try:
                found[int(path.name)] = read_private(path)
            except PrivateFileError as error:
                LogEvent.KEY_ARCHIVE_NOT_USED.say(log, error)
        return found

    def archive(self, epoch: int, content: bytes | None) -> None:
        """Keep what belongs to an ended epoch, durable when this returns; None removes it. Raises KeyMaterialError."""
        path = self._archive / str(int(epoch))
        try:
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write_private(path, content, replace=True)
        except (PrivateFileError, OSError) as error:
            raise KeyMaterialError(f"keys of epoch {epoch} are not archived: {error}") from None
