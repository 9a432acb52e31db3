"""Password file, one `user:hash` a line, as `veilmq passwd` and `mosquitto_passwd` write it.

Foreign lines (comments, hashes of other kinds) stay unchanged. The file is replaced in a single step and keeps owner
and mode, so that a broker reading it meanwhile sees the whole old or the whole new file. Not here: its readers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from bridge.base import OperatorError, breaks_line, text_lines
from gateway.auth.password_hashes import is_known
from gateway.base import PrivateFileError, alone_in, sync_directory

FILE_BYTES_MAX = 64 << 20
"""Stops a wrong path from being read as a password file; half a million users fit."""
USER_BYTES_MAX = 65_535  # of a user name: what MQTT can carry
NEW_MODE = 0o600


class PasswordFileError(OperatorError):
    """An error of a password file, in a line: the file, the fault and the cure."""


@contextlib.contextmanager
def changing(path: Path, *, must_exist: bool = False) -> Iterator[PasswordFile]:
    """Yields the file as it is, for a change, and writes it afterwards. No other command changes the file meanwhile.

    Raises PasswordFileError.
    """
    try:
        with alone_in(path.parent):
            users = PasswordFile(path, must_exist=must_exist)
            yield users
            users.save()
    except PrivateFileError as error:
        raise PasswordFileError(str(error)) from None


class PasswordFile:
    """The lines of a password file, changed in memory until `save`. `users`: hashes by user name."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        """Reads the file. Raises PasswordFileError if it cannot be read, or is absent although `must_exist` is set."""
        self.path = path
        self._lines: list[str] = []
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise PasswordFileError(f"{path}: larger than {FILE_BYTES_MAX} bytes; is this a password file?")
            self._lines = text_lines(path.read_text("utf-8"))
        except FileNotFoundError:
            if must_exist:
                raise PasswordFileError(f"{path}: no such file; make it with `veilmq passwd {path} USER`") from None
        except (OSError, UnicodeDecodeError) as error:
            said = getattr(error, "strerror", None) or "not UTF-8 text"
            raise PasswordFileError(f"{path}: {said}; name another file") from None

    @property
    def users(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self._lines:
            user, colon, hashed = line.partition(":")
            if colon and user and not line.startswith("#"):
                found[user] = hashed
        return found

    @property
    def unknown(self) -> list[str]:
        """The users whose hash is of an unknown kind, which we cannot verify."""
        return [user for user, hashed in self.users.items() if not is_known(hashed)]

    def put_hash(self, user: str, hashed: str) -> bool:
        """Sets a user's hash; returns True if the user is new.

        Raises PasswordFileError for a name no line can hold.
        """
        if (
            not user
            or len(user.encode()) > USER_BYTES_MAX
            or any(c in user for c in ":\0")
            or breaks_line(user)
            or user[0] == "#"
        ):
            raise PasswordFileError(f"user name {user!r} cannot stand in a password file; take one without : or #")
        is_new = not self._drop_user(user)
        self._lines.append(f"{user}:{hashed}")
        return is_new

    def remove_user(self, user: str) -> None:
        """Removes a user. Raises PasswordFileError for an unknown user."""
        if not self._drop_user(user):
            raise PasswordFileError(f"{self.path}: no user {user}; nothing is changed")

    def _drop_user(self, user: str) -> bool:
        kept = [line for line in self._lines if line.partition(":")[0] != user or ":" not in line]
        found, self._lines = len(kept) < len(self._lines), kept
        return found

    def save(self) -> None:
        """Replaces the file, keeping its owner and mode. Raises PasswordFileError."""
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        try:
            before = self.path.stat() if self.path.exists() else None
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, NEW_MODE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                if before is not None:
                    with contextlib.suppress(PermissionError):
                        os.fchown(file.fileno(), before.st_uid, before.st_gid)
                    os.fchmod(file.fileno(), before.st_mode & 0o7777)
                file.writelines(f"{line}\n" for line in self._lines)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise PasswordFileError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
