"""Backup of a folder (configuration, identity, trust domain, overlay, users, passwords), and its restore.

Of `data/` only the users of the console are included: other old files would bring back used sequence numbers, erased
keys or revoked tokens (docs/how-to/backup.md). Every file has its digest in a manifest, which a restore checks before
writing anything. Links, and names leading out of the folder, are refused on both sides. An unreadable folder and a
missing file the configuration names are refused, because an archive without a key looks like a backup until a restore.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gateway.base import ConfigError, PrivateFileError, load, private_directory, write_private
from gateway.owner.record import RECORDS
from gateway.setup.folders import CONFIG, DATA
from gateway.setup.plan import SetupError
from gateway.trust import RESTORED, Card, TrustError

FORMAT = 1
MANIFEST = "veilmq-backup.json"
USERS_PLUGIN = "gateway.auth.dynamic.DynamicPlugin"
FILES_MAX, BYTES_MAX = 10_000, 256 << 20  # of one member's folder or backup
KEPT = frozenset({Path(DATA, "security.json")})
"""Exceptions from the files left out: users, groups and rights in the console's file."""
LEFT_OUT = frozenset({DATA, "logs", "pid", "__pycache__"})


def back_up(folder: Path, out: Path) -> list[str]:
    """Writes the archive, readable by its owner only; returns the sorted names of its files.

    Raises SetupError if the folder does not exist, a part cannot be read, or a part that its configuration names is
    missing.
    """
    if not folder.is_dir():
        raise SetupError(f"{folder}: no such folder; name that of a member, or the owner's")
    files: dict[str, bytes] = {}
    kept = KEPT | _configured(folder)
    try:
        for path in _paths(folder):
            name = path.relative_to(folder)
            is_left_out = LEFT_OUT.intersection(name.parts) and name not in kept
            if is_left_out or path.name.endswith(".lock"):
                continue
            if path.is_symlink() or not path.is_file():
                raise SetupError(f"{path}: is a link or no file; put the file itself there")
            files[name.as_posix()] = path.read_bytes()
            if len(files) > FILES_MAX or sum(map(len, files.values())) > BYTES_MAX:
                raise SetupError(f"{folder}: holds more than a member's folder does; name the right one")
    except OSError as error:
        raise SetupError(f"{error.filename}: {error.strerror}; correct that") from None
    if not files:
        raise SetupError(f"{folder}: holds nothing to back up")
    _refuse_missing(folder, frozenset(files))
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest = json.dumps({"veilmq_backup": FORMAT, "files": digests}, indent=1).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for member, content in [(MANIFEST, manifest), *files.items()]:
            entry = tarfile.TarInfo(member)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    try:
        write_private(out, packed.getvalue())
    except PrivateFileError as error:
        raise SetupError(str(error)) from None
    return sorted(files)


def _paths(folder: Path) -> Iterator[Path]:
    """Yields files and links of all folders below, in order. Raises OSError for a folder that cannot be read."""

    def refuse(error: OSError) -> None:
        raise error

    for root, directories, files in os.walk(folder, onerror=refuse):
        directories.sort()
        links = [name for name in directories if (Path(root) / name).is_symlink()]
        yield from (Path(root) / name for name in sorted([*files, *links]))


def _refuse_missing(folder: Path, names: frozenset[str]) -> None:
    """Raises SetupError if the configuration names an identity or overlay inside the folder the archive lacks.

    An unreadable configuration is accepted, since its file is in the archive.
    """
    try:
        overlay = load(folder / CONFIG).overlay
    except ConfigError:
        return
    for path in () if overlay is None else (overlay.identity / "key.pem", overlay.overlay):
        try:
            name = path.resolve().relative_to(folder.resolve()).as_posix()
        except ValueError:
            raise SetupError(
                f"{path}: is outside {folder}, whose configuration needs it; move it there, or copy it yourself"
            ) from None
        if name not in names:
            raise SetupError(f"{path}: is missing; {folder} cannot run without it, so this is no backup")


def _configured(folder: Path) -> frozenset[Path]:
    """Returns the configured path of changeable users, if it lies in the folder."""
    try:
        options = load(folder / CONFIG).plugins.get(USERS_PLUGIN) or {}
        return frozenset({Path(str(options["file"])).resolve().relative_to(folder.resolve())})
    except (ConfigError, KeyError, ValueError):
        return frozenset()  # no configuration of a broker, no such plugin, or its file is elsewhere


def restore(archive: Path, folder: Path) -> int:
    """Writes the files into the new or empty `folder`, all private; returns their number. Records of an owner are
    marked as restored, and identities with their key, by which an organiser signs no more.

    Raises SetupError, before writing anything, for a damaged, altered or newer archive.
    """
    files = _checked(archive)
    try:
        if folder.exists() and any(folder.iterdir()):
            raise SetupError(f"{folder}: holds something already; name a new folder")
        private_directory(folder)
        for name, content in files.items():
            path = folder / name
            private_directory(path.parent)
            write_private(path, content)
        for records in {(folder / name).parent for name in files}:
            if records.name == RECORDS and not (records / RESTORED).exists():
                write_private(records / RESTORED, b"")
            with contextlib.suppress(TrustError):  # no identity, or one that cannot start
                key = Card.load(records / "card.json").public_key
                write_private(records / RESTORED, key.hex().encode(), replace=True)
    except PrivateFileError as error:
        raise SetupError(str(error)) from None
    except OSError as error:
        raise SetupError(f"{error.filename}: {error.strerror}; correct that") from None
    return len(files)


def _checked(archive: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, mode="r:gz") as packed:
            for entry in packed:
                parts = PurePosixPath(entry.name).parts
                if not entry.isfile() or not parts or parts[0] == "/" or ".." in parts or entry.name in found:
                    raise SetupError(f"{archive}: holds {entry.name!r}, which no backup does; take another archive")
                if len(found) >= FILES_MAX or sum(map(len, found.values())) + entry.size > BYTES_MAX:
                    raise SetupError(f"{archive}: holds more than a backup does; take another archive")
                content = packed.extractfile(entry)
                assert content is not None
                found[entry.name] = content.read()
        manifest = json.loads(found.pop(MANIFEST))
        version, digests = int(manifest["veilmq_backup"]), dict(manifest["files"])
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        why = getattr(error, "strerror", None) or "is no backup, or cut short"
        raise SetupError(f"{archive}: {why}; take another archive") from None
    if version > FORMAT:
        raise SetupError(f"{archive}: is of format {version}, this program knows {FORMAT}; upgrade veilmq")
    if {name: hashlib.sha256(content).hexdigest() for name, content in found.items()} != digests:
        raise SetupError(f"{archive}: a file is not as it was backed up; take another archive")
    return found
