"""Files holding a secret: written whole and durable with mode 0600, refused when others may read them.

For private keys, certificate authority keys, scope keys, store keys and split seeds, and for every other file that
must be whole after a crash (`write_durably`). The content is opaque here, and imports are few, so that executors of
Spark can use the module. It does not protect against the owner of the account or root, nor does `erase` reach copies a
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
    """An error of a private file, in a line for the operator: the file, the fault and the cure."""


def read_private(path: Path) -> bytes:
    """Returns the content of a file that only its owner can read.

    Raises PrivateFileError when the file is absent, not a regular file, too large, or open to group or others. The
    mode is taken from the opened file, so that the file cannot be exchanged between check and read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
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
    """Creates `path` with mode 0600; content and name are on disk at the return.

    Raises PrivateFileError when the file exists and `replace` is not set, and on any error of the disk.
    """
    _write(path, content, PRIVATE_MODE, replace)


def write_public(path: Path, content: bytes, *, replace: bool = True, still: Callable[[], bool] = lambda: True) -> bool:
    """Writes a public file durably (mode 0644), such as a certificate, card or signed overlay; returns True if written.

    `still` is called under the directory's lock; if it returns False, nothing is written. Raises PrivateFileError.
    """
    with alone_in(path.parent):
        if not still():
            return False
        _write(path, content, 0o644, replace)
    return True


def stamp(path: Path) -> FileStamp | None:
    """Returns a value changing with every new content or replacement of a file; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def replace_public(path: Path, content: bytes, seen: FileStamp | None) -> FileStamp | None:
    """Replaces a public file that others replace too, unless it was replaced since `seen`.

    The check comes last, when the content is on disk under another name: a write may take seconds, in which an
    operator may replace the file. Returns the stamp of our file, so that a replacement right after ours is noticed
    too; None if nothing was written. Raises PrivateFileError.
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
    """Locks the directory (flock) against other changes using this lock.

    `write_public` takes the lock by itself; a change reading first holds the lock around its `write_private`. Raises
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
            # link, not rename: of two writers exactly one wins, and the other gets an error.
            os.link(temporary, path)
    except FileExistsError:
        raise PrivateFileError(f"{path}: exists already; take another name or remove it") from None
    except OSError as error:
        raise PrivateFileError(f"{path}: cannot be written: {error.strerror or error}") from None


def write_durably(path: Path, content: bytes, mode: int = PRIVATE_MODE) -> None:
    """Replaces `path` so that after a crash it holds the whole old or the whole new content. Raises OSError."""
    with written_durably(path, content, mode) as temporary:
        temporary.replace(path)


@contextlib.contextmanager
def written_durably(path: Path, content: bytes, mode: int = PRIVATE_MODE) -> Iterator[Path]:
    """Yields a temporary file with the content on disk; removes it afterwards and makes names durable. Raises OSError.

    A rename or link of the temporary file to `path` makes the whole content visible.
    """
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
    """Makes the directory (mode 0700) if it does not exist. Raises PrivateFileError."""
    try:
        path.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise PrivateFileError(f"{path}: cannot be made: {error.strerror or error}") from None
    return path


def lock_exclusively(path: Path) -> int:
    """Takes the lock file of a data directory; returns its descriptor, which the caller closes at the end.

    Raises PrivateFileError when another process (or this one) has the lock, OSError when the file cannot be made.
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
    """Overwrites a file with zeros, then removes it. An absent file is no error."""
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
    """Makes names in `path` durable (fsync on the directory)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
