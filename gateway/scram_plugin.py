"""SCRAM-SHA-256 as a plugin, and the file holding its users.

    plugins:
      gateway.scram_plugin.ScramPlugin:
        users_file: scram.yaml

`scram.yaml` has mode 0600 and is read at the start and on SIGHUP. `set_user` makes and changes it:

    python -c 'from getpass import getpass; from gateway.scram_plugin import set_user;
               set_user("scram.yaml", "nurse", getpass())'

    decoy_key: <base64 of 32 secret bytes>        makes the salts of unknown names
    users:
      nurse: SCRAM-SHA-256$65536:<salt>$<StoredKey>:<ServerKey>

The form of a user is PostgreSQL's. No password is in the file, but the file must stay private: see `scram.Verifier`.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import yaml
from amqtt.broker import BrokerContext
from amqtt.session import Session

from gateway.auth import (
    METHOD,
    NONCE_BYTES,
    SALT_BYTES,
    AuthRefused,
    Decoys,
    EnhancedAuthPlugin,
    Proven,
    ScramError,
    ScramServer,
    Verifier,
    saslprep,
)
from gateway.base import PrivateFileError, StartError, alone_in, read_private, write_private

ITERATIONS = 65_536
"""Iterations of `set_user`: about 30 ms of a client's time; 4,096 is the least that RFC 7677 allows."""
DECOY_KEY_BYTES, MARK_CHARS = 32, 16


@dataclass(frozen=True, slots=True)
class ScramUsers:
    """The content of the file. `verifiers`: by prepared user name."""

    verifiers: Mapping[str, Verifier] = field(repr=False)
    decoy_key: bytes = field(repr=False)

    @classmethod
    def load(cls, path: Path) -> ScramUsers:
        """Reads the file. Raises StartError naming file, user, cause and cure."""
        try:
            content = yaml.safe_load(read_private(path))
        except PrivateFileError as error:
            raise StartError(f"{error}") from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise StartError(f"{path}: not valid YAML; make it with gateway.scram_plugin.set_user") from None
        users = content.get("users") if isinstance(content, dict) else None
        if not isinstance(users, dict) or not set(content) <= {"users", "decoy_key"}:
            raise StartError(f"{path}: holds more or less than users and decoy_key; make it with set_user")
        verifiers = {}
        for name, text in users.items():
            try:
                verifiers[saslprep(str(name))] = Verifier.parse(str(text))
            except ValueError as error:
                raise StartError(f"{path}: user {name}: {error}; enter it again with set_user") from None
        try:
            decoy_key = base64.b64decode(str(content.get("decoy_key") or ""), validate=True)
        except ValueError:
            decoy_key = b""
        if len(decoy_key) < DECOY_KEY_BYTES:
            raise StartError(f"{path}: decoy_key is not base64 of {DECOY_KEY_BYTES} bytes; make the file with set_user")
        return cls(verifiers, decoy_key)

    def save(self, path: Path) -> None:
        users = {name: str(verifier) for name, verifier in self.verifiers.items()}
        content = {"decoy_key": base64.b64encode(self.decoy_key).decode(), "users": users}
        write_private(path, yaml.safe_dump(content, allow_unicode=True).encode(), replace=True)

    def shapes(self) -> tuple[tuple[int, int], ...]:
        return tuple(sorted((user.iterations, len(user.salt)) for user in self.verifiers.values()))


def set_user(path: Path | str, name: str, password: str, iterations: int = ITERATIONS) -> None:
    """Adds a user to the file, or changes the password; makes an absent file, with mode 0600.

    Raises ValueError for a name, password or number of iterations that SCRAM cannot have; StartError,
    PrivateFileError for the file.
    """
    path, name = Path(path), saslprep(name)
    verifier = Verifier.from_password(password, os.urandom(SALT_BYTES), iterations)
    with alone_in(path.parent):
        users = ScramUsers.load(path) if path.exists() else ScramUsers({}, os.urandom(DECOY_KEY_BYTES))
        ScramUsers({**users.verifiers, name: verifier}, users.decoy_key).save(path)


class _Exchange:
    """An exchange of two steps: the client's name, and the proof."""

    def __init__(self, scram: ScramServer) -> None:
        self._scram = scram
        self._began = False

    async def step(self, data: bytes) -> bytes | Proven:
        try:
            if not self._began:
                self._began = True
                return self._scram.first_message(data)
            answer = self._scram.final(data)
        except ScramError as error:
            raise AuthRefused(str(error)) from None
        assert self._scram.username is not None
        return Proven(self._scram.username, answer)


class ScramPlugin(EnhancedAuthPlugin):
    """The authentication method SCRAM-SHA-256 (RFC 5802, RFC 7677) for users of a file. Raises StartError."""

    method: ClassVar[str] = METHOD

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        # Called with the users whose standing changed; set by the host of plugins.
        self.when_changed: Callable[[frozenset[str]], None] = lambda users: None
        self._users = ScramUsers({}, b"")
        self._take_users(ScramUsers.load(Path(self.config.users_file)))

    def _take_users(self, users: ScramUsers) -> None:
        before, self._users, shapes = self._users, users, users.shapes()
        self._decoys = Decoys(users.decoy_key, shapes) if shapes else Decoys(users.decoy_key)
        changed = (name for name, known in before.verifiers.items() if users.verifiers.get(name) != known)
        self.when_changed(frozenset(changed))

    def mark(self, user: str) -> str | None:
        """Returns a short text changing with the user's password; None for an unknown user."""
        known = self._users.verifiers.get(user)
        return None if known is None else hashlib.sha256(f"veilmq mark {known}".encode()).hexdigest()[:MARK_CHARS]

    def reread(self, options: dict[str, Any]) -> Callable[[], None]:
        """Reads the file anew; returns a function putting it into force. Raises StartError."""
        return partial(self._take_users, ScramUsers.load(Path(options.get("users_file") or self.config.users_file)))

    def _lookup(self, name: str) -> tuple[Verifier, bool]:
        decoy = self._decoys.verifier(name)
        verifier = self._users.verifiers.get(name)
        return (decoy, False) if verifier is None else (verifier, True)

    def begin(self, session: Session) -> _Exchange:
        return _Exchange(ScramServer(self._lookup, os.urandom(NONCE_BYTES)))

    @dataclass
    class Config:
        """The options of the plugin. A relative path is taken from the directory of the configuration."""

        users_file: str | Path


__all__ = ["ITERATIONS", "ScramPlugin", "ScramUsers", "set_user"]
