"""Secret file of this party, sealed under a key the store derives for it, and always replaced whole.

    file = magic(8)  nonce(12)  AES-256-GCM(key, nonce, content, additional data: purpose)

For content that may be written anew at any time but must not lie open on the disk: fetched epoch keys, a key server's
material. The magic and the purpose keep a single file from being taken for another. Not here: the content, and the
store key, which lies beside: a thief of the whole directory has the content. `replace` overwrites the former content,
as far as a file can (`gateway/files.py`), but only once the new content is durable.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bridge.base import OperatorError
from gateway.files import PrivateFileError, erase, read_private, sync_directory, write_private

MAGIC = b"veilmqs1"
NONCE_BYTES = 12
TAG_BYTES = 16


class SealedFileError(OperatorError):
    """Error of a file that exists and cannot be used: a line, cause and cure."""


class SealedFile:
    """Sealed file at a path. `key`: 32 secret bytes. `purpose`: the kind of content and its owner."""

    def __init__(self, path: Path, key: bytes, purpose: bytes) -> None:
        self.path = path
        self._new = path.with_name(f"{path.name}.new")
        self._cipher, self._purpose = AESGCM(key), purpose

    def read(self) -> bytes | None:
        """Returns the content; None if there is no file. Raises SealedFileError.

        Takes up a replacement a crash interrupted, once its file is whole.
        """
        try:
            if self._new.exists():
                content = self._open_content(self._new)
                self._take_new()
                return content
            return self._open_content(self.path) if self.path.exists() else None
        except (PrivateFileError, OSError) as error:
            raise SealedFileError(str(error)) from None

    def replace(self, content: bytes) -> None:
        """Replaces the content: durable on return, and the former content overwritten. Raises SealedFileError."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = MAGIC + nonce + self._cipher.encrypt(nonce, content, self._purpose)
        try:
            write_private(self._new, sealed, replace=True)
            self._take_new()
        except (PrivateFileError, OSError) as error:
            raise SealedFileError(str(error)) from None

    def _take_new(self) -> None:
        # In this order a crash leaves one whole file at every moment, and never the old one beside the new for good.
        erase(self.path)
        os.rename(self._new, self.path)  # noqa: PTH104  as read: the new one takes the old one's name
        sync_directory(self.path.parent)

    def _open_content(self, path: Path) -> bytes:
        sealed = read_private(path)
        nonce = sealed[len(MAGIC) : len(MAGIC) + NONCE_BYTES]
        if not sealed.startswith(MAGIC) or len(sealed) < len(MAGIC) + NONCE_BYTES + TAG_BYTES:
            raise SealedFileError(f"{path}: is not a sealed file of ours; restore it or remove it")
        try:
            return self._cipher.decrypt(nonce, sealed[len(MAGIC) + NONCE_BYTES :], self._purpose)
        except InvalidTag:
            raise SealedFileError(f"{path}: is damaged or of another store key; restore it or remove it") from None
