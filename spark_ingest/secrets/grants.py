"""The file of scope keys with which executors open rows: its form, reading and writing.

    {"veilmq_grant": 2, "scopes": [
        {"wire": "plant/#", "keyed": true, "token_key": null, "keys": [
            {"epoch": 41, "bump": 0, "key": "BASE64", "segment": 7}]}],
     "spool_key": "BASE64"}

The receiver in the driver writes it (`grants_writer`) whenever it has learned a key: executors talk to no key
service.
`keyed` is false for shares-only and plain scopes, `token_key` null where topic names are not hidden; `segment` is the
last one of the spool whose rows need the key, 0 for none. `spool_key` is the receiver's local key, under which shares
in the spool are sealed (`sharebox`). For an identity, the receiver writes {"veilmq_grant": 2, "box": BASE64},
which only that identity's private key opens (`keys.sealedbox`). Mode 0600, owned by the user that runs the executors,
and at one path for all of them. The file may not lie in the spool: ciphertext, shares and keys together are
plaintext.
A job's plan, options, checkpoint and logs hold the file's *path* only.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from gateway.files import FileStamp, stamp
from keys.epochs import KEY_BYTES, KeyName
from keys.errors import KeysError
from keys.identity import Identity
from keys.sealedbox import seal_box
from spark_ingest.errors import GrantsError
from spark_ingest.secrets.sharebox import ShareOpener

GRANT_FORMAT = 2
BOX_INFO = b"veilmq/1 scope keys"
GRANTS_BYTES_MAX = 16 << 20
"""Stops a wrong path (a device, an image) from being read without end."""


@dataclass(frozen=True, slots=True)
class GrantedScope:
    """The keys for reading a single scope. `wire`: its wire filter; `keys`: 32 bytes each; `segments`: the last
    needing each.
    """

    wire: str
    keyed: bool
    token_key: bytes | None = field(default=None, repr=False)
    keys: Mapping[KeyName, bytes] = field(default_factory=dict, repr=False)
    segments: Mapping[KeyName, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Grants:
    """The scopes a job may read, by wire filter."""

    scopes: Mapping[str, GrantedScope] = field(repr=False)
    spool_keys: tuple[bytes, ...] = field(default=(), repr=False)
    """The local keys under which shares in the spool are sealed (`sharebox`), 32 bytes each."""

    @cached_property
    def shares(self) -> ShareOpener:
        """An opener for shares of the spool."""
        return ShareOpener(self.spool_keys)

    @property
    def token_keys(self) -> tuple[bytes, ...]:
        """The distinct keys of topic tokens."""
        return tuple(dict.fromkeys(scope.token_key for scope in self.scopes.values() if scope.token_key is not None))


def merge(several: Sequence[Grants]) -> Grants:
    """Returns the grants of several receivers' files together."""
    scopes: dict[str, GrantedScope] = {}
    for scope in (scope for grants in several for scope in grants.scopes.values()):
        before = scopes.get(scope.wire)
        if before is not None:
            token_key = before.token_key or scope.token_key
            scope = replace(before, token_key=token_key, keys={**before.keys, **scope.keys})  # noqa: PLW2901
        scopes[scope.wire] = scope
    return Grants(scopes, tuple(dict.fromkeys(key for grants in several for key in grants.spool_keys)))


def encode_grants(scopes: Iterable[GrantedScope], spool_key: bytes | None = None) -> bytes:
    """Returns the content of the file: equal scopes give equal bytes."""
    entries = [
        {
            "wire": scope.wire,
            "keyed": scope.keyed,
            "token_key": _encode(scope.token_key),
            "keys": [
                {"epoch": n.epoch, "bump": n.bump, "key": _encode(scope.keys[n]), "segment": scope.segments.get(n, 0)}
                for n in sorted(scope.keys)
            ],
        }
        for scope in sorted(scopes, key=lambda scope: scope.wire)
    ]
    document = {"veilmq_grant": GRANT_FORMAT, "scopes": entries}
    if spool_key is not None:
        document["spool_key"] = _encode(spool_key)
    return json.dumps(document, separators=(",", ":")).encode()


def seal_grants(content: bytes, reader: Identity, ephemeral: bytes) -> bytes:
    """Returns the content of the file sealed to an identity. `ephemeral`: 32 fresh random bytes."""
    box = seal_box(reader.hybrid_bytes, content, BOX_INFO, ephemeral)
    return json.dumps({"veilmq_grant": GRANT_FORMAT, "box": base64.b64encode(box).decode()}).encode()


def read_grants(path: Path, readers: Sequence[Identity] = ()) -> Grants:
    """Reads and checks the file. `readers`: identities to which it may be sealed.

    Raises GrantsError if the file is absent, open to others, sealed to another identity, or no grants file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise GrantsError(
            f"grants={path}: {error.strerror}; name the file that the job's receiver writes, and start the receiver"
        ) from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode) or status.st_size > GRANTS_BYTES_MAX:
            raise GrantsError(f"grants={path} is no file of scope keys; name the one that the job's receiver writes")
        if mode & 0o077:
            raise GrantsError(f"grants={path} has mode {mode:04o}, which lets others read keys; chmod 600 {path}")
        text = file.read()
    try:
        document = json.loads(text)
        if "box" in document:
            document = json.loads(_opened(path, document["box"], readers))
        return _parse(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # The text of a decoder's error may quote the file: only its kind is told.
        raise GrantsError(
            f"grants={path} is no file of scope keys ({type(error).__name__}); move it away, or name another"
        ) from None


def _opened(path: Path, box: object, readers: Sequence[Identity]) -> bytes:
    if not readers:
        raise GrantsError(f"grants={path} is sealed; name the identity that opens it: grants_identity=DIRECTORY")
    if not isinstance(box, str):
        raise TypeError("a box is text")
    sealed = base64.b64decode(box, validate=True)
    for reader in readers:
        with contextlib.suppress(KeysError):
            return reader.open_box(sealed, BOX_INFO)
    raise GrantsError(
        f"grants={path} is sealed to another identity, or altered; name the one that the receiver seals it to"
    )


def load_readers(directory: Path) -> tuple[Identity, ...]:
    """Returns the identity to which a file of scope keys is sealed, and its predecessor in a rotation. Raises
    GrantsError.
    """
    from gateway.overlay.region_client import TrustError, load_working_key  # noqa: PLC0415  only where files are sealed

    paths = (directory / "key.pem", directory / "previous" / "key.pem")
    try:
        return tuple(load_working_key(path) for path in paths if path == paths[0] or path.exists())
    except TrustError as error:
        raise GrantsError(f"grants_identity={directory}: {error}") from None


class GrantsFile:
    """The file of scope keys in a single executor process, read again only when it has changed.

    `reader`: directory of the identity to which it may be sealed. `more`: files of the spool's other receivers.
    """

    def __init__(self, path: Path, reader: Path | None = None, more: Sequence[Path] = ()) -> None:
        self._paths = (path, *more)
        self._reader = reader
        self._stamps: list[FileStamp | None] = []
        self._grants = Grants({})

    def load(self, *, anew: bool = False) -> tuple[Grants, bool]:
        """Returns (the grants, True if they changed since the last call). Raises GrantsError.

        `anew`: read without a look at times and sizes, which shared file systems may tell late.
        """
        stamps = [stamp(path) for path in self._paths]
        if not anew and None not in stamps and stamps == self._stamps:
            return self._grants, False
        # The key is read anew each time: the identity may have been rotated.
        readers = () if self._reader is None else load_readers(self._reader)
        found = merge([read_grants(path, readers) for path in self._paths])
        changed = found != self._grants or stamps != self._stamps
        self._grants, self._stamps = found, stamps
        return self._grants, changed


def _parse(document: Mapping[str, object]) -> Grants:
    if document["veilmq_grant"] != GRANT_FORMAT:
        raise ValueError("another version")
    scopes: dict[str, GrantedScope] = {}
    entries = document["scopes"]
    if not isinstance(entries, list):
        raise TypeError("scopes is a list")
    for entry in entries:
        wire, keyed = entry["wire"], entry["keyed"]
        if not isinstance(wire, str) or not isinstance(keyed, bool):
            raise TypeError("a scope is text, and has a key or none")
        keys: dict[KeyName, bytes] = {}
        segments: dict[KeyName, int] = {}
        for told in entry["keys"]:
            name = KeyName(wire, _number(told["epoch"]), _number(told["bump"]))
            key = _decode(told["key"])
            if key is None:
                raise TypeError("an epoch key is text")
            keys[name] = key
            if number := _number(told["segment"]):
                segments[name] = number
        scopes[wire] = GrantedScope(wire, keyed, _decode(entry["token_key"]), keys, segments)
    spool_key = _decode(document.get("spool_key"))
    return Grants(scopes, () if spool_key is None else (spool_key,))


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError("an epoch, a bump and a segment are numbers")
    return value


def _encode(key: bytes | None) -> str | None:
    return None if key is None else base64.b64encode(key).decode()


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
