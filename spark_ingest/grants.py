"""The grant of an ingest job: epoch keys of the scopes that it may read.

It is the file that the overlay's owner makes for each member (`veilmq overlay sign`, `grants/NAME.json`):

    {"veilmq_grant": 1, "name": "job", "scopes": [
        {"filter": "plant/#", "wire": "plant/#", "epoch": 0, "key": "BASE64", "token_key": null}]}

`key` is null for shares-only and plain scopes, `token_key` where topic names are not hidden; a scope is listed
once for each epoch. Mode 0600, owned by whoever runs the executors, and at the same path for each of them. It
may not lie in the spool: ciphertext, shares and keys together are plaintext. A job's plan, options, checkpoint
and logs hold the file's *path* only. This module asks nobody for keys.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .errors import GrantsError

KEY_BYTES = 32
GRANT_FORMAT = 1
GRANTS_BYTES_MAX = 16 << 20
"""Stops a wrong path (a device, an image) from being read without end."""


@dataclass(frozen=True, slots=True)
class Grants:
    """Keys by (wire filter of the scope, epoch), None for a scope without; the keys of topic tokens."""

    scopes: Mapping[tuple[str, int], bytes | None] = field(repr=False)
    token_keys: tuple[bytes, ...] = field(default=(), repr=False)


def read_grants(path: Path) -> Grants:
    """Read and check the file. Raises GrantsError: absent, open to others, not a grants file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise GrantsError(f"grants={path}: {error.strerror}; name the file that holds the scopes' keys") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode) or status.st_size > GRANTS_BYTES_MAX:
            raise GrantsError(f"grants={path} is not a grant")
        if mode & 0o077:
            raise GrantsError(f"grants={path} has mode {mode:04o}, which lets others read keys; chmod 600 {path}")
        text = file.read()
    try:
        return _parse(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # The text of a decoder's error may quote the file: only its kind is told.
        raise GrantsError(
            f"grants={path} is not a grant ({type(error).__name__}); ask the overlay's owner for it"
        ) from None


class GrantsFile:
    """The file as one executor process sees it: read again only when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._grants = Grants({})

    def load(self) -> tuple[Grants, bool]:
        """(the grants, whether they changed since the last call). Raises GrantsError."""
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            stamp = None
        if stamp is not None and stamp == self._stamp:
            return self._grants, False
        self._grants = read_grants(self._path)
        self._stamp = stamp
        return self._grants, True


def _parse(document: Mapping[str, object]) -> Grants:
    if document["veilmq_grant"] != GRANT_FORMAT:
        raise ValueError("another version")
    scopes: dict[tuple[str, int], bytes | None] = {}
    token_keys: dict[bytes, None] = {}
    entries = document["scopes"]
    if not isinstance(entries, list):
        raise TypeError("scopes is a list")
    for entry in entries:
        wire, epoch = entry["wire"], entry["epoch"]
        if not isinstance(wire, str) or not isinstance(epoch, int):
            raise TypeError("a scope is text, an epoch a number")
        scopes[wire, epoch] = _decode(entry["key"])
        token_key = _decode(entry["token_key"])
        if token_key is not None:
            token_keys[token_key] = None
    return Grants(scopes, tuple(token_keys))


def _decode(text: object) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError("a key is text")
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("a key is base64") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    return key
