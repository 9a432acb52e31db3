"""Access rules for publishing, subscribing and receiving. Text in, verdicts out; no I/O.

`Table` is the form of amqtt's plugin: for each user, filters. A subscription is granted if a filter of the user covers
all of it: `ward/+` does not cover `ward/#`. `parse_acl` reads the form of Mosquitto's `acl_file`: a subscription is
granted if any matching topic may be read, and each delivery is checked, so that a client subscribing to `#` gets the
messages that it may read.

In a filter `%u` stands for the client's user name and `%c` for its client id. A rule does not count for a client
whose name would put a level or a wildcard into the filter, unless the rule denies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Protocol

from amqtt.contexts import Action

from bridge.base import TopicError, breaks_line, check_filter, covers, matches, overlaps, split_share, text_lines

ANONYMOUS = "anonymous"
"""The name under which a table has the rules of clients without a user name."""
EVERYBODY = "*"
"""The name under which a table has rules for all clients besides their own rules."""
READ, WRITE = 1, 2
RULES = ("topic", "pattern")
"""First words of lines that are rules."""
NEAR = 0.8
"""How alike a word must be to be taken for a misspelt access: such a rule would be one on a topic that nobody has."""
_MARK = re.compile("%[uc]")
_ACCESS = {"read": READ, "write": WRITE, "readwrite": READ | WRITE, "deny": 0}


class AclError(ValueError):
    """An error of a rule: line and cause."""


class AclRules(Protocol):
    """A set of access rules."""

    def permits(self, user: str | None, client_id: str, topic: str, action: Action) -> bool:
        """Returns the verdict on an action. `topic`: a name, or the filter of a subscription without share prefix."""
        ...

    def ruled_users(self) -> list[str]:
        """Returns user names that have rules of their own; `%u` for rules applying to any claimed name."""
        ...

    def covers(self, user: str | None, client_id: str, topic_filter: str) -> bool:
        """Returns True if the client may receive every topic the filter matches."""
        ...


def filled_in(pattern: str, user: str | None, client_id: str, denies: bool = False) -> str | None:
    """Returns the filter for this client, or None if the pattern does not count for the client. `denies`: the rule
    takes rights away, and so counts for every name.
    """
    names = {"%u": user, "%c": client_id}
    for name in (names[mark] for mark in _MARK.findall(pattern)):
        if name is None or (not denies and (not name or set(name) & set("+#/"))):
            return None
    return _MARK.sub(lambda mark: names[mark[0]] or "", pattern)  # at once: a name may hold the mark of the other


# --------------------------------------------------------------------------------------------------- tables

Acl = Mapping[str, Iterable[str]]


class Table:
    """The rules of three tables, filters by user; None: everything is permitted. Raises AclError."""

    def __init__(self, publish: Acl | None, subscribe: Acl | None, receive: Acl | None) -> None:
        self._publish, self._subscribe, self._receive = (
            None if one is None else {str(user): _checked(str(user), filters) for user, filters in one.items()}
            for one in (publish, subscribe, receive)
        )

    def permits(self, user: str | None, client_id: str, topic: str, action: Action) -> bool:
        if action is Action.PUBLISH:
            return self._any(self._publish, user, client_id, topic)
        if action is Action.SUBSCRIBE:
            return self._any(self._subscribe, user, client_id, topic)
        # A subscription made under wider rules delivers only topics that are still permitted.
        subscribed = self._any(self._subscribe, user, client_id, topic)
        return subscribed and self._any(self._receive, user, client_id, topic)

    def covers(self, user: str | None, client_id: str, topic_filter: str) -> bool:
        return self.permits(user, client_id, topic_filter, Action.RECEIVE)  # a rule must cover all topics of a filter

    def ruled_users(self) -> list[str]:
        tables = [table for table in (self._publish, self._subscribe, self._receive) if table is not None]
        found = {user for table in tables for user in table if user not in (ANONYMOUS, EVERYBODY)}
        filters = [pattern for table in tables for patterns in table.values() for pattern in patterns]
        return sorted(found) + ["%u"] * any("%u" in pattern for pattern in filters)

    @staticmethod
    def _any(table: dict[str, tuple[str, ...]] | None, user: str | None, client_id: str, topic: str) -> bool:
        if table is None:
            return True
        patterns = (*table.get(ANONYMOUS if user is None else user, ()), *table.get(EVERYBODY, ()))
        found = (filled_in(pattern, user, client_id) for pattern in patterns)
        return any(one is not None and covers(one, topic) for one in found)


def _checked(user: str, filters: Iterable[str]) -> tuple[str, ...]:
    if isinstance(filters, str):
        raise AclError(f"rules of {user} are not a list; write {user}: [{filters}]")
    found = tuple(map(str, filters))
    for one in found:
        _check(one, f"rules of {user}")
    return found


def _check(pattern: str, where: str) -> None:
    try:
        check_filter(pattern)
    except TopicError as error:
        raise AclError(f"{where}: {error}") from None


# ----------------------------------------------------------------------------------------- Mosquitto's file


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of an ACL file. `access`: READ | WRITE, or 0 (deny). `is_pattern`: %u and %c stand for names."""

    filter: str
    access: int
    is_pattern: bool = False


@dataclass(slots=True)
class FileRules:
    """The rules of a file in Mosquitto's syntax.

    `of_user`: by user name, None: clients without one. `of_group`: by group, for users whose groups an identity
    provider says. `patterns`: for all clients.
    """

    of_user: dict[str | None, list[Rule]] = field(default_factory=dict)
    patterns: list[Rule] = field(default_factory=list)
    of_group: dict[str, list[Rule]] = field(default_factory=dict)

    def permits(
        self, user: str | None, client_id: str, topic: str, action: Action, groups: Sequence[str] | None = None
    ) -> bool:
        """Returns the verdict on an action. `groups`: those of a user who is none of the file's."""
        for rules in (self._own_rules(user, groups), self.patterns):
            verdict = _verdict(_for_client(rules, user, client_id), topic, action)
            if verdict is not None:
                return verdict
        return False

    def _own_rules(self, user: str | None, groups: Sequence[str] | None) -> Sequence[Rule]:
        if groups is None:
            return self.of_user.get(user, ())
        everybody = self.of_user.get(None, ())
        return (*everybody, *(rule for group in groups for rule in self.of_group.get(group, ())))

    def covers(self, user: str | None, client_id: str, topic_filter: str, groups: Sequence[str] | None = None) -> bool:
        own, everybody = (_for_client(r, user, client_id) for r in (self._own_rules(user, groups), self.patterns))
        if any(not access and overlaps(text, topic_filter) for text, access in (*own, *everybody)):
            return False
        return any(access & READ and covers(text, topic_filter) for text, access in (*own, *everybody))

    def ruled_users(self) -> list[str]:
        rules = [*self.patterns, *(rule for own in self.of_user.values() for rule in own)]
        users = sorted(user for user in self.of_user if user is not None)
        return users + ["%u"] * any(rule.is_pattern and "%u" in rule.filter for rule in rules)


def _for_client(rules: Iterable[Rule], user: str | None, client_id: str) -> list[tuple[str, int]]:
    """Returns filter and access of the rules counting for this client."""
    named = (
        (filled_in(one.filter, user, client_id, not one.access) if one.is_pattern else one.filter, one.access)
        for one in rules
    )
    return [(text, access) for text, access in named if text is not None]


def _verdict(rules: list[tuple[str, int]], topic: str, action: Action) -> bool | None:
    """Returns the verdict of a list of rules, denials first; None if no rule applies."""
    if action is Action.SUBSCRIBE:
        if any(not access and covers(text, topic) for text, access in rules):
            return False
        return True if any(access & READ and overlaps(text, topic) for text, access in rules) else None
    needed = WRITE if action is Action.PUBLISH else READ
    if any(not access and matches(text, topic) for text, access in rules):
        return False
    return True if any(access & needed and matches(text, topic) for text, access in rules) else None


def parse_acl(text: str) -> FileRules:
    """Returns the rules of a file in Mosquitto's syntax. Raises AclError with the number of the line.

    A `pattern` counts for all clients, at any place in the file, as in Mosquitto.
    """
    rules, user = FileRules(), None
    for number, line in enumerate(text_lines(text), 1):
        words = line.strip().split(maxsplit=1)
        if not words or words[0].startswith("#"):
            continue
        where = f"line {number}"
        if words[0] == "user":
            if len(words) == 1 or breaks_line(words[1]):
                raise AclError(f"{where}: user needs a value, on one line")
            user = words[1]
            continue
        if words[0] not in RULES:
            raise AclError(f"{where}: {words[0]} is neither user, topic nor pattern")
        rule = parse_rule(line, where)
        if rule.is_pattern:
            rules.patterns.append(rule)
        else:
            rules.of_user.setdefault(user, []).append(rule)
    return rules


def parse_rule(line: str, where: str) -> Rule:
    """Returns the rule of a line `topic ...` or `pattern ...`. Raises AclError, which begins with `where`.

    A topic may hold spaces, so only a known first word is read as access.
    """
    if breaks_line(line):
        raise AclError(f"{where}: holds a character that ends a line; remove it")
    words = line.split(maxsplit=1)
    kind, rest = words[0] if words else "nothing", words[1].strip() if len(words) > 1 else ""
    if kind not in RULES:
        raise AclError(f"{where}: {kind} is neither topic nor pattern")
    if not rest:
        raise AclError(f"{where}: {kind} needs a value")
    first, _, topic = rest.partition(" ")
    if topic and first not in _ACCESS and (near := get_close_matches(first, _ACCESS, 1, NEAR)):
        raise AclError(f"{where}: did you mean {near[0]} by {first}? a topic that begins so: {kind} readwrite {rest}")
    access, topic = (_ACCESS[first], topic.strip()) if first in _ACCESS and topic else (READ | WRITE, rest)
    try:
        plain = split_share(topic)[1]  # Mosquitto's files may name shared subscriptions
    except TopicError as error:
        raise AclError(f"{where}: {error}") from None
    _check(plain, where)
    return Rule(plain, access, kind == "pattern")
