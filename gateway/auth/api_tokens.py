"""Tokens with which programs use the HTTP API: issued for days, kept as digests, listed and revoked.

A token stands for an MQTT user and has the user's rights. It counts as long as the user neither is removed nor gets
another password. The file of digests admits no client. A running broker and `veilmq tokens` take turns to change the
file, and the broker notices the command's changes. A change takes the lock of the directory and so may wait: the
broker makes it in a thread. Time and randomness are passed in.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bridge.base import Belongings, OperatorError
from gateway.base import PrivateFileError, Stamps, alone_in, read_private, write_private
from gateway.base.log_events import LogEvent

log = logging.getLogger("veilmq.auth")

FILE = "console-tokens.json"
"""File name in a broker's data directory."""
TOKENS_MAX = 1_000
"""Tokens of all users; beyond it the user with most loses its oldest to another user, and gets no more itself."""
NOTE_MAX, USER_MAX = 200, 1_000  # characters of a token's note and of its user
SECRET_BYTES = 32
ID_CHARS = 12


class ApiTokenError(OperatorError):
    """An error because a token cannot be issued, in a line for the requester."""


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A token of a program.

    `digest`: SHA-256 of its secret, in hex. `id`: the beginning of the digest, as its name. `mark`: the user's
    standing when the token was issued.
    """

    digest: str
    user: str
    ends: float
    note: str
    mark: str = ""

    @property
    def id(self) -> str:
        return self.digest[:ID_CHARS]


class ApiTokens:
    """The tokens of a broker.

    `path`: their file; None: they end with the process. `random(n)`: n bytes. `standing`: a user's standing
    (`PluginHost.standing`); None for an unknown user.
    """

    def __init__(
        self, path: Path | None, random: Callable[[int], bytes], standing: Callable[[str], str | None]
    ) -> None:
        """Reads the file. Raises PrivateFileError if the file is readable by others or invalid."""
        self._path, self._random, self.standing = path, random, standing
        self._tokens: dict[str, ApiToken] = {}
        self._stamps = Stamps([] if path is None else [path])
        self._taking = threading.Lock()  # held while `_tokens` is replaced from the file
        self._read_tokens()

    def issue(
        self, user: str, days: int, days_max: int, note: str, now: float, mark: str | None = None
    ) -> tuple[str, ApiToken]:
        """Returns the secret of a new token, which is shown once, and the stored token. `mark`: the user's standing
        when the user was last proven, if that is not now.

        Raises ApiTokenError, PrivateFileError.
        """
        if not user or len(user) > USER_MAX or not user.isprintable():
            raise ApiTokenError("a token stands for a user; give a name")
        if not 1 <= days <= days_max:
            raise ApiTokenError(f"a token counts for 1 to {days_max} days here (console.token_days); give so many")
        if len(note) > NOTE_MAX or not (note.isprintable() or not note):
            raise ApiTokenError(f"a note is one line of at most {NOTE_MAX} characters; shorten it")
        secret = self._random(SECRET_BYTES).hex()
        mark = self.standing(user) if mark is None else mark
        if mark is None:
            raise ApiTokenError(f"there is no user {user} that may log in; make the user first")
        token = ApiToken(_digest(secret), user, now + days * 86_400.0, note, mark)
        with self._changing() as tokens:
            for ended in [one for one in tokens.values() if not self._counts(one, now)]:
                del tokens[ended.digest]
            if len(tokens) >= TOKENS_MAX:
                gone = _loses(user, tokens.values())
                if gone is None:
                    raise ApiTokenError(f"{TOKENS_MAX} tokens count already; revoke some")
                del tokens[gone]
            tokens[token.digest] = token
        return secret, token

    def _counts(self, token: ApiToken, now: float) -> bool:
        return token.ends > now and self.standing(token.user) == token.mark

    def user_of(self, secret: str, now: float) -> str | None:
        """Returns the user of a token, or None if the token is unknown or has ended."""
        self._reread_if_changed()
        token = self._tokens.get(_digest(secret))
        return token.user if token is not None and self._counts(token, now) else None

    def tokens_of(self, user: str | None, now: float) -> list[ApiToken]:
        """Returns the valid tokens of a user, or of all users if `user` is None."""
        self._reread_if_changed()
        return [token for token in self._tokens.values() if user in (None, token.user) and self._counts(token, now)]

    def revoke(self, id_: str, user: str | None) -> bool:
        """Revokes a token of that user (None: of any user); returns True if there was one. Raises PrivateFileError."""
        asked = id_.encode("utf-8", "surrogatepass")
        with self._changing() as tokens:
            found = [
                token for token in tokens.values()
                if hmac.compare_digest(token.id.encode(), asked) and user in (None, token.user)
            ]  # fmt: skip
            for token in found:
                del tokens[token.digest]
        return bool(found)

    def revoke_all(self, users: Collection[str]) -> None:
        """Ends the tokens of these users, who were removed or have another password. Raises PrivateFileError."""
        self._reread_if_changed()
        if any(token.user in users for token in self._tokens.values()):
            with self._changing() as tokens:
                for token in [one for one in tokens.values() if one.user in users]:
                    del tokens[token.digest]

    # --------------------------------------------------------------------------------------------- the file

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, ApiToken]]:
        """Yields the tokens of the file for a change, and writes them afterwards.

        No other process writes meanwhile.
        """
        with contextlib.nullcontext() if self._path is None else alone_in(self._path.parent):
            with self._taking:
                self._read_tokens()
                tokens = dict(self._tokens)
            yield tokens
            if tokens == self._tokens:
                return
            if self._path is not None:
                entries = [asdict(token) for token in tokens.values()]
                write_private(self._path, json.dumps(entries, indent=1).encode() + b"\n", replace=True)
            with self._taking:
                self._stamps.have_changed()
                self._tokens = tokens

    def _reread_if_changed(self) -> None:
        """Reads the file if another process changed it. A damaged file leaves the tokens unchanged."""
        with self._taking:
            if self._stamps.have_changed():
                try:
                    self._read_tokens()
                except PrivateFileError as error:
                    LogEvent.TOKENS_NOT_REREAD.say(log, error)

    def _read_tokens(self) -> None:
        if self._path is None:
            return
        if not self._path.exists():
            self._tokens = {}
            return
        try:
            entries = json.loads(read_private(self._path))
            tokens = [ApiToken(**entry) for entry in entries]
            if not all(isinstance(t.digest, str) and isinstance(t.ends, int | float) for t in tokens):
                raise TypeError
        except (ValueError, TypeError):
            raise PrivateFileError(f"{self._path}: holds no tokens; remove it and make new ones") from None
        self._tokens = {token.digest: token for token in tokens}


def _loses(user: str, tokens: Iterable[ApiToken]) -> str | None:
    """Returns the token that ends for a new one of `user`, by digest; None: the new one is refused."""
    of_user: Belongings[str, str] = Belongings()
    for token in tokens:
        of_user.add(token.user, token.digest)
    return of_user.oldest_of_more(user)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
