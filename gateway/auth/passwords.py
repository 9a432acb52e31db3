"""Logins by a password file, as a plugin: Argon2, Mosquitto's `$7$` and `$6$`, SHA-512 crypt.

    plugins:
      gateway.auth.passwords.PasswordPlugin:
        password_file: passwords          # one user:hash a line, made by `veilmq passwd`; read again on SIGHUP

Where a configuration names amqtt's `FileAuthPlugin`, this takes its place with the same option. Hashes are slow on
purpose: they are computed in a few threads, so that a login holds up nobody else, and no more than `PENDING_MAX` wait.
Who is unknown costs as much time as who is not. A password that was right is remembered for `REMEMBERED_S`, as a keyed
hash whose key never leaves this process: a thousand devices that come back at once are not a thousand slow hashes.
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
"""Argon2 takes 64 MiB and several cores for each; the event loop needs one, too."""
PENDING_MAX = 512
"""Logins that wait for a thread; more are told that the server is busy."""
REMEMBERED_S, REMEMBERED_MAX = 600.0, 20_000
MARK_CHARS = 16
PASSWORD_BYTES_MAX = 4_096
"""Stops a CONNECT with a password of megabytes from being hashed thousands of times."""


def verifier(hashed: str) -> Callable[[bytes], bool] | None:
    """What says whether a password fits the hash; None: a form that we do not know."""
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
    """What the file says. `dummy`: the most usual kind of hash, for names that are not in it."""

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

    def check(self, user: str, password: bytes) -> bool:
        """Takes as long for a user who does not exist. Runs in a thread."""
        found = self._verifiers.get(user)
        if found is not None:
            return found(password)
        if self._dummy is not None:
            self._dummy(password)
        return False

    def mark(self, user: str) -> str | None:
        """Returns a short text that is another one once the user's password is; None for a user who is not there.

        Logins and tokens keep it: each counts for as long as its user stands as at its beginning.
        """
        hashed = self.hash_of(user)
        return hashlib.sha256(f"veilmq mark {hashed}".encode()).hexdigest()[:MARK_CHARS] if hashed else None

    def changed_since(self, before: Users) -> frozenset[str]:
        """Returns the users of `before` who are not there any more, or have another password."""
        return frozenset(user for user, hashed in before._hashes.items() if self._hashes.get(user) != hashed)


def _kind(hashed: str) -> str:
    return hashed.split("$")[1] if hashed.count("$") else ""


class PasswordPlugin(BaseAuthPlugin):  # type: ignore[misc]
    """See the module. Raises StartError."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._threads = ThreadPoolExecutor(THREADS, "veilmq-login")
        self._console_threads = ThreadPoolExecutor(1, "veilmq-console-login")
        self._pending = 0
        self._key = os.urandom(32)
        self._right: dict[bytes, float] = {}
        # Told whose standing changed, whenever users or rights did; the host of plugins fills it in.
        self.when_changed: Callable[[frozenset[str]], None] = lambda users: None
        self._users = self._read(self.config.password_file)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should know, said at the start and by `veilmq check`."""
        names = ", ".join(self._users.unknown[:5])
        said = f"{self.config.password_file}: hash of a kind that is not known: {names}; use `veilmq passwd`"
        return (said,) if names else ()

    @staticmethod
    def _read(path: str | Path | None) -> Users:
        if not path:
            raise StartError("plugins: password_file is missing; name the file")
        try:
            users = Users(PasswordFile(Path(path), must_exist=True).users)
        except PasswordFileError as error:
            raise StartError(str(error)) from None
        return users

    def reread(self, options: dict[str, Any]) -> Callable[[], None]:
        """Read the file anew; what takes it over. Raises StartError."""
        return partial(self._take, self._read(options.get("password_file") or self.config.password_file))

    def _take(self, users: Users) -> None:
        before, self._users = self._users, users
        self.when_changed(users.changed_since(before))

    def mark(self, user: str) -> str | None:
        """As `Users.mark`, of the users who count now."""
        return self._users.mark(user)

    async def authenticate(self, *, session: Session) -> bool | None:
        """None: it gave no user name, which is for others to decide. Raises BusyError."""
        if session.username is None:
            return None
        password = (session.password or "").encode("utf-8", "surrogatepass")
        if len(password) > PASSWORD_BYTES_MAX:
            return False
        users, memory = self._users, self._memory(session.username, password)
        until = self._right.get(memory)
        if until is not None and until > time.monotonic():
            return True
        check = partial(users.check, session.username, password)
        if getattr(session, "from_console", False):  # one at a time, see there
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
        """Also of the user's hash: a changed password ends what is remembered."""
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
