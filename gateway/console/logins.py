"""Who speaks to the API: logins of the page, tokens of programs, failures that make an address wait. No HTTP here.

A login lasts hours and ends with the process; a token lasts days and is kept as a digest, so that the file lets nobody
in. Both stand for an MQTT user, whose rights they have. Time and randomness are passed in.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.base import PrivateFileError, read_private, write_private

LOGIN_S = 8 * 3600.0
IDLE_S = 3600.0
LOGINS_MAX = 1_000
TOKENS_MAX = 1_000
SECRET_BYTES = 32
FAILURES_MAX = 10
FAILURES_S = 60.0
"""So many wrong passwords or tokens of one address in so long; then it waits."""
ADDRESSES_MAX = 10_000


class TooManyError(Exception):
    """The address has to wait before it is heard again."""


@dataclass(slots=True)
class ConsoleLogin:
    """One login of the page."""

    user: str
    begun: float
    seen: float


@dataclass(frozen=True, slots=True)
class ApiToken:
    """One token of a program. `digest`: SHA-256 of its secret, in hex; `id`: its beginning, to name it by."""

    digest: str
    user: str
    ends: float
    note: str

    @property
    def id(self) -> str:
        return self.digest[:12]


class Logins:
    """All of one process. `path`: where tokens are kept; None: they end with the process. `random(n)`: n bytes."""

    def __init__(self, path: Path | None, random: Callable[[int], bytes]) -> None:
        """Raises PrivateFileError for a file that others may read, or that is none."""
        self._path, self._random = path, random
        self._logins: dict[str, ConsoleLogin] = {}
        self._tokens: dict[str, ApiToken] = {}
        self._failures: dict[str, list[float]] = {}
        if path is not None and path.exists():
            try:
                entries = json.loads(read_private(path))
                self._tokens = {entry["digest"]: ApiToken(**entry) for entry in entries}
            except (ValueError, TypeError, KeyError):
                raise PrivateFileError(f"{path}: holds no tokens; remove it and make new ones") from None

    # ------------------------------------------------------------------------------------------- failures

    def check_address(self, address: str, now: float) -> None:
        """Raises TooManyError for an address that failed too often."""
        failures = [at for at in self._failures.get(address, ()) if now - at < FAILURES_S]
        if failures:
            self._failures[address] = failures
        else:
            self._failures.pop(address, None)
        if len(failures) >= FAILURES_MAX:
            raise TooManyError

    def failed(self, address: str, now: float) -> None:
        """A wrong password or token came from there."""
        if address not in self._failures and len(self._failures) >= ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures.setdefault(address, []).append(now)

    # --------------------------------------------------------------------------------------------- logins

    def begin(self, user: str, now: float) -> str:
        """A new login; what the browser keeps."""
        if len(self._logins) >= LOGINS_MAX:
            del self._logins[min(self._logins, key=lambda digest: self._logins[digest].seen)]
        secret = self._random(SECRET_BYTES).hex()
        self._logins[_digest(secret)] = ConsoleLogin(user, now, now)
        return secret

    def user_of_login(self, secret: str, now: float) -> str | None:
        """Whose login it is; None if it is over, or none."""
        digest = _digest(secret)
        login = self._logins.get(digest)
        if login is None:
            return None
        if now - login.begun >= LOGIN_S or now - login.seen >= IDLE_S:
            del self._logins[digest]
            return None
        login.seen = now
        return login.user

    def end(self, secret: str) -> None:
        self._logins.pop(_digest(secret), None)

    def end_all(self, user: str) -> None:
        """Everything that stands for a user who is no more, or has a new password. Raises PrivateFileError."""
        self._logins = {digest: login for digest, login in self._logins.items() if login.user != user}
        if any(token.user == user for token in self._tokens.values()):
            self._tokens = {digest: token for digest, token in self._tokens.items() if token.user != user}
            self._save()

    # --------------------------------------------------------------------------------------------- tokens

    def issue(self, user: str, days: int, note: str, now: float) -> tuple[str, ApiToken]:
        """A new token: the secret, which is shown once, and what is kept. Raises PrivateFileError, TooManyError."""
        self._tokens = {digest: token for digest, token in self._tokens.items() if token.ends > now}
        if len(self._tokens) >= TOKENS_MAX:
            raise TooManyError
        secret = self._random(SECRET_BYTES).hex()
        token = ApiToken(_digest(secret), user, now + days * 86_400.0, note)
        self._tokens[token.digest] = token
        self._save()
        return secret, token

    def user_of_token(self, secret: str, now: float) -> str | None:
        token = self._tokens.get(_digest(secret))
        return token.user if token is not None and token.ends > now else None

    def tokens(self, user: str | None, now: float) -> list[ApiToken]:
        """Those of a user, or (None) all, that still count."""
        return [token for token in self._tokens.values() if token.ends > now and user in (None, token.user)]

    def revoke(self, id_: str, user: str | None) -> bool:
        """Whether there was such a token of that user (None: of anybody). Raises PrivateFileError."""
        found = [t for t in self._tokens.values() if hmac.compare_digest(t.id, id_) and user in (None, t.user)]
        for token in found:
            del self._tokens[token.digest]
        if found:
            self._save()
        return bool(found)

    def _save(self) -> None:
        if self._path is not None:
            entries = [
                {"digest": t.digest, "user": t.user, "ends": t.ends, "note": t.note} for t in self._tokens.values()
            ]
            write_private(self._path, json.dumps(entries, indent=1).encode() + b"\n", replace=True)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
