"""The grants file: epoch keys of the scopes that an ingest job may read.

    {"veilmq_grants": 1,
     "scopes": [{"scope": "plant/#", "epoch": 1, "key": "BASE64URL"}],     "key": null for a shares-only scope
     "token_keys": ["BASE64URL"]}                                          for scopes that hide topic names

Mode 0600, owned by whoever runs the executors; every executor needs it at the same path. It must not lie in the
spool directory: ciphertext, shares and keys together are plaintext. A job's plan, options, checkpoint and log
hold the file's *path* only. This module does not ask anybody for keys.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .errors import GrantsError

KEY_BYTES = 32
GRANTS_BYTES_MAX = 16 << 20
"""Stops a wrong path (a device, an image) from being read without end."""


@dataclass(frozen=True, slots=True)
class Grants:
    """Keys by (scope, epoch), None for a shares-only scope; keys of topic tokens, newest first."""

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
            raise GrantsError(f"grants={path} is not a grants file")
        if mode & 0o077:
            raise GrantsError(f"grants={path} has mode {mode:04o}, which lets others read keys; chmod 600 {path}")
        text = file.read()
    try:
        return _parse(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # The text of a decoder's error may quote the file: only its kind is told.
        raise GrantsError(f"grants={path} is not a grants file ({type(error).__name__}); export it anew") from None


def write_grants(path: Path, grants: Grants) -> None:
    """Write the file durably with mode 0600, replacing what was there."""
    document = {
        "veilmq_grants": 1,
        "scopes": [
            {"scope": scope, "epoch": epoch, "key": None if key is None else _encode(key)}
            for (scope, epoch), key in sorted(grants.scopes.items())
        ],
        "token_keys": [_encode(key) for key in grants.token_keys],
    }
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


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
    if document["veilmq_grants"] != 1:
        raise ValueError("another version")
    scopes: dict[tuple[str, int], bytes | None] = {}
    for entry in _objects(document["scopes"]):
        key = entry["key"]
        scopes[str(entry["scope"]), int(str(entry["epoch"]))] = None if key is None else _decode(key)
    token_keys = document.get("token_keys", [])
    if not isinstance(token_keys, list):
        raise TypeError("token_keys is a list")
    return Grants(scopes, tuple(_decode(key) for key in token_keys))


def _objects(value: object) -> Iterable[Mapping[str, object]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise TypeError("a list of objects")
    return value


def _encode(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).rstrip(b"=").decode()


def _decode(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError("a key is text")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("a key is base64url") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    return key
