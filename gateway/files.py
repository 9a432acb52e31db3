"""Files that hold a secret: written whole and durable with mode 0600, refused when others may read them.

For: private keys, certificate authority keys, scope keys, store keys, split seeds; and for whatever else must be
whole after a crash (`write_durably`). It knows nothing of what is inside, and imports so little that executors of Spark
may have it. It does not protect against the owner of the account or root, nor does `erase` reach copies that a
file system or flash translation layer keeps elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from bridge.base import OperatorError

PRIVATE_MODE = 0o600
PRIVATE_DIRECTORY_MODE = 0o700
FileStamp: TypeAlias = tuple[int, int, int]
MAX_PRIVATE_BYTES = 16 << 20
"""Stops a device node or a wrong path from being read into memory without end."""


class PrivateFileError(OperatorError):
    """One line for the operator: the file, what is wrong with it, and the cure."""


def read_private(path: Path) -> bytes:
    """Content of a file that only its owner can read.

    Raises PrivateFileError when it is absent, not a regular file, too large, or open to group or others. The
    mode is taken from the opened file, so it cannot be exchanged between check and read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would have us wait for a writer
    except OSError as error:
        raise PrivateFileError(f"{path}: {error.strerror or error}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PrivateFileError(f"{path}: is not a regular file")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            raise PrivateFileError(f"{path}: mode {mode:04o} lets others read a secret; chmod 600 {path}")
        if status.st_size > MAX_PRIVATE_BYTES:
            raise PrivateFileError(f"{path}: {status.st_size} bytes is more than a secret file can have")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Create `path` with mode 0600; content and name are on disk when this returns.

    Raises PrivateFileError when it exists and `replace` is not set, and on any error of the disk.
    """
    _write(path, content, PRIVATE_MODE, replace)


def write_public(path: Path, content: bytes, *, replace: bool = True, still: Callable[[], bool] = lambda: True) -> bool:
    """The same for what everybody may read (mode 0644): certificates, cards, the signed overlay.

    `still`: asked when nobody else can write here any more, until we did; nothing is written unless it says so. Returns
    whether anything was.
    """
    with alone_in(path.parent):
        if not still():
            return False
        _write(path, content, 0o644, replace)
    return True


def stamp(path: Path) -> FileStamp | None:
    """What a file's content cannot change without, and what a new name leaves; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def replace_public(path: Path, content: bytes, seen: FileStamp | None) -> FileStamp | None:
    """Replace a public file that others put files in place of as well, unless somebody did since it was `seen`.

    Asked last, when all is on disk under another name: to write may take seconds, in which an operator comes. Returns
    the stamp of what we wrote, so that what comes right after it is seen too; None if nothing was. Raises
    PrivateFileError.
    """
    with alone_in(path.parent):
        try:
            with written_durably(path, content, 0o644) as temporary:
                if stamp(path) not in (None, seen):
                    return None
                ours = stamp(temporary)
                temporary.replace(path)
                return ours
        except OSError as error:
            raise PrivateFileError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Of those who change files of this directory so, one after the other (flock on the directory).

    `write_public` does so by itself; a change that reads first holds it around its `write_private`. Raises
    PrivateFileError.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise PrivateFileError(f"{directory}: cannot be written: {error.strerror or error}") from None
    try:
        with contextlib.suppress(OSError):  # file systems without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes, mode: int, replace: bool) -> None:
    if not replace and path.exists():
        raise PrivateFileError(f"{path}: exists already; take another name or remove it")
    try:
        if replace:
            write_durably(path, content, mode)
            return
        with written_durably(path, content, mode) as temporary:
            # link, not rename: of two writers exactly one wins, and the loser sees it.
            os.link(temporary, path)
    except FileExistsError:
        raise PrivateFileError(f"{path}: exists already; take another name or remove it") from None
    except OSError as error:
        raise PrivateFileError(f"{path}: cannot be written: {error.strerror or error}") from None


def write_durably(path: Path, content: bytes, mode: int = PRIVATE_MODE) -> None:
    """Replace `path` so that after a crash it holds the old or the new content, whole. Raises OSError."""
    with written_durably(path, content, mode) as temporary:
        temporary.replace(path)


@contextlib.contextmanager
def written_durably(path: Path, content: bytes, mode: int = PRIVATE_MODE) -> Iterator[Path]:
    """The content on disk under another name, which is gone afterwards; then names are durable. Raises OSError.

    Whoever renames or links it to `path` makes it visible, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
        temporary.unlink(missing_ok=True)
        sync_directory(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def private_directory(path: Path) -> Path:
    """Make the directory (mode 0700) if it is not there. Raises PrivateFileError."""
    try:
        path.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise PrivateFileError(f"{path}: cannot be made: {error.strerror or error}") from None
    return path


def lock_exclusively(path: Path) -> int:
    """Take the lock file of a data directory: its descriptor, to be closed at the end.

    Raises PrivateFileError when another process (or this one) has it, OSError when it cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise PrivateFileError(
            f"data directory {path.parent} is used by another veilmq; stop it or name another with --data"
        ) from None
    return descriptor


def erase(path: Path) -> None:
    """Overwrite with zeros, then remove. No error if it is gone already."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(bytes(os.fstat(file.fileno()).st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make names in `path` durable (fsync on the directory)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
