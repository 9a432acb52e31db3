"""Plugin of logins by a password file: Argon2, Mosquitto's `$7$` and `$6$`, SHA-512 crypt.

    plugins:
      gateway.auth.passwords.PasswordPlugin:
        password_file: passwords          # one user:hash a line, made by `veilmq passwd`; read again on SIGHUP

Where a configuration names amqtt's `FileAuthPlugin`, this plugin takes its place with its option. Hashes are slow on
purpose: a few threads compute them, so that a login delays no other client, and at most `PENDING_MAX` logins wait. An
unknown user costs as much time as a wrong password. A right password is remembered for `REMEMBERED_S`, as a keyed hash
whose key never leaves this process: a thousand devices returning at once do not need a thousand slow hashes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from amqtt.broker import BrokerContext
from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import Session
from pwdlib.hashers.argon2 import Argon2Hasher

from gateway.auth import password_hashes, sha_crypt
from gateway.auth.password_file import PasswordFile, PasswordFileError
from gateway.base import StartError
from gateway.plugins import BusyError

THREADS = max(1, min(4, (os.cpu_count() or 2) // 2))
"""Threads for hashes: Argon2 takes 64 MiB and several cores for each; the event loop needs a core, too."""
PENDING_MAX = 512
"""Logins that may wait for a thread; further logins are answered that the server is busy. No more of one address wait
than may still fail (`limits.login_failures`).
"""
REMEMBERED_S, REMEMBERED_MAX = 600.0, 20_000  # right passwords that are not hashed again; a full table is emptied
MARK_CHARS = 16
PASSWORD_BYTES_MAX = 4_096
"""Stops a CONNECT with a password of megabytes from being hashed thousands of times."""


def verifier(hashed: str) -> Callable[[bytes], bool] | None:
    """Returns a function that compares a password with the hash, or None for an unknown form."""
    if hashed.startswith("$argon2"):
        return partial(_argon2, hashed)
    if password_hashes.is_known(hashed):
        return partial(_verify, password_hashes.verify, hashed)
    if sha_crypt.is_sha_crypt(hashed):
        return partial(_verify, sha_crypt.verify, hashed)
    return None


def _argon2(hashed: str, password: bytes) -> bool:
    return bool(Argon2Hasher().verify(password, hashed))


def _verify(check: Callable[[bytes, str], bool], hashed: str, password: bytes) -> bool:
    return check(password, hashed)


class Users:
    """The users of a file. `dummy`: the most frequent kind of hash, computed for unknown names."""

    def __init__(self, users: dict[str, str]) -> None:
        self._hashes = users
        found = {user: verifier(hashed) for user, hashed in users.items()}
        self.unknown = sorted(user for user, check in found.items() if check is None)
        self._verifiers = {user: check for user, check in found.items() if check is not None}
        kinds = Counter(_kind(users[user]) for user in self._verifiers)
        usual = kinds.most_common(1)[0][0] if kinds else ""
        self._dummy = next((check for user, check in self._verifiers.items() if _kind(users[user]) == usual), None)

    def __len__(self) -> int:
        return len(self._hashes)

    def hash_of(self, user: str) -> str:
        return self._hashes.get(user, "")

    def check_password(self, user: str, password: bytes) -> bool:
        """Returns True if the password is right; takes equally long for an unknown user. Runs in a thread."""
        found = self._verifiers.get(user)
        if found is not None:
            return found(password)
        if self._dummy is not None:
            self._dummy(password)
        return False

    def mark_of(self, user: str) -> str | None:
        """Returns a short text changing with the user's password; None for an unknown user.

        Logins and tokens store the mark and count as long as the user's mark is unchanged.
        """
        hashed = self.hash_of(user)
        return hashlib.sha256(f"veilmq mark {hashed}".encode()).hexdigest()[:MARK_CHARS] if hashed else None

    def changed_since(self, before: Users) -> frozenset[str]:
        """Returns the users of `before` who were removed or have another password."""
        return frozenset(user for user, hashed in before._hashes.items() if self._hashes.get(user) != hashed)


def _kind(hashed: str) -> str:
    return hashed.split("$")[1] if hashed.count("$") else ""


class PasswordPlugin(BaseAuthPlugin):  # type: ignore[misc]
    """A plugin of logins by a password file. Raises StartError."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._threads = ThreadPoolExecutor(THREADS, "veilmq-login")
        self._console_threads = ThreadPoolExecutor(1, "veilmq-console-login")
        self._pending = 0
        self._key = os.urandom(32)
        self._right: dict[bytes, float] = {}
        # Called with the users whose standing changed; set by the host of plugins.
        self.when_changed: Callable[[frozenset[str]], None] = lambda users: None
        self._users = self._read_users(self.config.password_file)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings for the operator, printed at the start and by `veilmq check`."""
        names = ", ".join(self._users.unknown[:5])
        said = f"{self.config.password_file}: hash of a kind that is not known: {names}; use `veilmq passwd`"
        return (said,) if names else ()

    @staticmethod
    def _read_users(path: str | Path | None) -> Users:
        if not path:
            raise StartError("plugins: password_file is missing; name the file")
        try:
            users = Users(PasswordFile(Path(path), must_exist=True).users)
        except PasswordFileError as error:
            raise StartError(str(error)) from None
        return users

    def reread(self, options: dict[str, Any]) -> Callable[[], None]:
        """Reads the file anew; returns a function putting it into force. Raises StartError."""
        return partial(self._take_users, self._read_users(options.get("password_file") or self.config.password_file))

    def _take_users(self, users: Users) -> None:
        before, self._users = self._users, users
        self.when_changed(users.changed_since(before))

    def mark(self, user: str) -> str | None:
        """Returns the mark of a user among the present users, as `Users.mark_of`."""
        return self._users.mark_of(user)

    async def authenticate(self, *, session: Session) -> bool | None:
        """Returns the verdict on a login; None without a user name, which other plugins decide on.

        Raises BusyError.
        """
        if session.username is None:
            return None
        password = (session.password or "").encode("utf-8", "surrogatepass")
        if len(password) > PASSWORD_BYTES_MAX:
            return False
        users, memory = self._users, self._memory(session.username, password)
        until = self._right.get(memory)
        if until is not None and until > time.monotonic():
            return True
        check = partial(users.check_password, session.username, password)
        if getattr(session, "from_console", False):  # one at a time (`EdgeSession.from_console`)
            is_right = await asyncio.get_running_loop().run_in_executor(self._console_threads, check)
        else:
            is_right = await self._in_turn(check)
        if is_right:
            self._remember(memory)
        return is_right

    async def _in_turn(self, check: Callable[[], bool]) -> bool:
        if self._pending >= PENDING_MAX:
            raise BusyError(f"{PENDING_MAX} logins wait for their password to be verified")
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, check)
        finally:
            self._pending -= 1

    def _memory(self, user: str, password: bytes) -> bytes:
        """Returns the key of a remembered login. It depends on the user's hash, so that a changed password ends it."""
        name, hashed = user.encode("utf-8", "surrogatepass"), self._users.hash_of(user).encode()
        parts = b"".join(len(part).to_bytes(4, "big") + part for part in (name, hashed, password))
        return hashlib.blake2b(parts, key=self._key, digest_size=32).digest()

    def _remember(self, memory: bytes) -> None:
        if len(self._right) >= REMEMBERED_MAX:
            self._right.clear()
        self._right[memory] = time.monotonic() + REMEMBERED_S

    async def close(self) -> None:
        for threads in (self._threads, self._console_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    @dataclass
    class Config:
        password_file: str | Path | None = None


__all__ = ["PasswordPlugin", "Users", "verifier"]
