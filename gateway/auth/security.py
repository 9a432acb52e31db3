"""Users, groups and rights changing while a broker runs: the document, its file, and the rules made from it.

    {"users": {"ann": {"hash": "$7$...", "groups": ["plant"], "acl": ["topic read news/#"], "enabled": true}},
     "groups": {"plant": {"acl": ["topic readwrite plant/#"]}},
     "everybody": {"acl": ["topic read public/#", "pattern readwrite own/%u/#"]}}

Rules are lines of Mosquitto's `acl_file`. The file is private and replaced in a single step. Every change is made
within `changing`: from the present file, under a lock, and with the next version. Not here: verdicts on clients
(`dynamic`), rights to change the file (`gateway/console`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bridge.base import OperatorError
from gateway.auth.acl_rules import AclError, FileRules, Rule, parse_rule
from gateway.auth.password_hashes import is_known
from gateway.base import PrivateFileError, alone_in, private_directory, read_private, write_private

USERS_MAX, GROUPS_MAX, RULES_MAX = 100_000, 10_000, 1_000
NAME = r"^[^\s:#+/\x00-\x1f]{1,255}$"


class SecurityError(OperatorError):
    """An error of a user, a group or the file, in a line: the fault and the cure."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class UserGroup(_Model):
    """A group of users, and the rights of its members."""

    acl: list[str] = Field(default=[], max_length=RULES_MAX)


class User(_Model):
    """A user: the hash of the password, groups, and rules of its own."""

    hash: str = Field(repr=False)
    groups: list[str] = []
    acl: list[str] = Field(default=[], max_length=RULES_MAX)
    enabled: bool = True


class Security(_Model):
    """The document of users, groups and rights. `version` rises by one with each change."""

    version: int = Field(default=0, ge=0)
    users: dict[str, User] = Field(default={}, max_length=USERS_MAX)
    groups: dict[str, UserGroup] = Field(default={}, max_length=GROUPS_MAX)
    everybody: UserGroup = UserGroup()

    @classmethod
    def load(cls, path: Path) -> Security:
        """Reads the document; an absent file gives an empty document. Raises SecurityError."""
        if not path.exists():
            return cls()
        try:
            return cls.model_validate(json.loads(read_private(path)))
        except PrivateFileError as error:
            raise SecurityError(str(error)) from None
        except (ValueError, ValidationError):
            raise SecurityError(f"{path}: holds no users and groups; restore it from a backup") from None

    def save(self, path: Path) -> None:
        """Writes the document. Raises SecurityError."""
        try:
            write_private(path, self.model_dump_json(indent=1).encode() + b"\n", replace=True)
        except PrivateFileError as error:
            raise SecurityError(str(error)) from None

    def checked_rules(self) -> FileRules:
        """Returns all rules. Raises SecurityError for an invalid rule, name or group."""
        for name, user in self.users.items():
            _check_name(name)
            if missing := [group for group in user.groups if group not in self.groups]:
                raise SecurityError(f"user {name}: there is no group {missing[0]}; make it first")
            if not is_known(user.hash):
                raise SecurityError(f"user {name}: the hash is of no known kind; give a password")
        for name in self.groups:
            _check_name(name)
        try:
            return self._rules()
        except AclError as error:
            raise SecurityError(f"rules: {error}; write e.g. topic readwrite plant/#") from None

    def _rules(self) -> FileRules:
        """Returns all rules; a user's own rules and those of its groups stand under the user's name, patterns too."""
        everybody = [parse_rule(line, "of everybody") for line in self.everybody.acl]
        topics = [rule for rule in everybody if not rule.is_pattern]
        groups = {
            name: [parse_rule(line, f"of group {name}") for line in group.acl] for name, group in self.groups.items()
        }
        of_user: dict[str | None, list[Rule]] = {None: topics}
        for name, user in self.users.items():
            if user.enabled:
                own = [parse_rule(line, f"of user {name}") for line in user.acl]
                of_user[name] = [*topics, *own, *(rule for group in user.groups for rule in groups[group])]
        return FileRules(of_user, [rule for rule in everybody if rule.is_pattern], groups)

    def hash_of(self, name: str) -> str:
        """Returns the hash of an enabled user; empty for any other name."""
        user = self.users.get(name)
        return user.hash if user is not None and user.enabled else ""

    @property
    def hashes(self) -> dict[str, str]:
        """The hashes of enabled users by name."""
        return {name: user.hash for name, user in self.users.items() if user.enabled}


@contextlib.contextmanager
def changing(path: Path) -> Iterator[Security]:
    """Yields the document of the file; checks and writes it afterwards. No other process changes the file meanwhile.

    Takes the lock of the directory, and so may wait: not for the event loop. Raises SecurityError, PrivateFileError.
    """
    if path.parent.parent.is_dir():  # a data directory of before the first start; more than one is a wrong path
        private_directory(path.parent)
    with alone_in(path.parent):
        security = Security.load(path)
        yield security
        security.version += 1
        security.checked_rules()
        security.save(path)


def _check_name(name: str) -> None:
    if not name or len(name) > 255 or any(c in ":#+/" or c.isspace() or not c.isprintable() for c in name):
        raise SecurityError(f"{name!r} is no name of a user or group; take one without spaces and : # + /")
