"""Logins of the page to the API. No HTTP here.

A login lasts hours, ends with the process and stands for an MQTT user, whose rights it has. It counts while the user
stands as at its begin: neither removed, nor with another password; or until the token ends by which it began. Tokens
of programs are in `gateway.auth.api_tokens`. Time and randomness are passed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bridge.contract import FairTable

LOGIN_S = 8 * 3600.0
IDLE_S = 3600.0
LOGINS_MAX = 1_000
"""Logins of all users; beyond it the user with most loses the login used longest ago."""
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class ConsoleUser:
    """User of a console. `groups`: those that an identity provider says; None: the user has a password here. `ends`:
    Unix time at which the provider's token ends.
    """

    name: str
    groups: tuple[str, ...] | None = None
    ends: float | None = None


@dataclass(slots=True)
class ConsoleLogin:
    """Login of the page."""

    user: ConsoleUser
    mark: str
    begun: float
    seen: float


class Logins:
    """Logins of a process. `random(n)`: n bytes; `standing`: see `PluginHost.standing`."""

    def __init__(self, random: Callable[[int], bytes], standing: Callable[[str], str | None]) -> None:
        self._random, self._standing = random, standing
        self._logins: FairTable[str, ConsoleLogin] = FairTable(LOGINS_MAX)  # by digest of the secret; of users

    def begin_login(self, user: ConsoleUser, now: float) -> str:
        """Begins a login and returns the secret the browser keeps."""
        secret = self._random(SECRET_BYTES).hex()
        login = ConsoleLogin(user, self._standing(user.name) or "", now, now)
        self._logins.put(_digest(secret), user.name.encode("utf-8", "surrogatepass"), login)
        return secret

    def user_of_login(self, secret: str, now: float) -> ConsoleUser | None:
        """Returns the user of a login; None if it is over or unknown."""
        digest = _digest(secret)
        login = self._logins.get(digest)
        if login is None:
            return None
        if not self._stands(login, now) or now - login.seen >= IDLE_S:
            self._logins.pop(digest)
            return None
        login.seen = now
        self._logins.touch(digest)
        return login.user

    def is_on(self, secret: str, now: float) -> bool:
        """True if a login goes on, without using it: for streams that it opened before."""
        login = self._logins.get(_digest(secret))
        return login is not None and self._stands(login, now)

    def _stands(self, login: ConsoleLogin, now: float) -> bool:
        if now - login.begun >= LOGIN_S:
            return False
        ends = login.user.ends
        return now < ends if ends is not None else self._standing(login.user.name) == login.mark

    def end_login(self, secret: str) -> None:
        self._logins.pop(_digest(secret))

    def end_all(self, users: Collection[str]) -> None:
        """Ends logins of users who were removed, or have another password."""
        for digest in [digest for digest, login in self._logins.items() if login.user.name in users]:
            self._logins.pop(digest)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
