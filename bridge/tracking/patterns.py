"""Following by pattern: `shop:*` means every entity whose name begins so and that lets us discover it, now and later
(B1).

    names    opening(3, flag 8) sealed box to the asker: request(16) count(2) names

A discovery node answers a query for a pattern with names, at most `NAMES_AT_ONCE` in a message; the tracker then asks
for each name as for a single entity. Nodes keep no state for patterns, so the tracker repeats each query every
`ASK_EVERY_S`. An asker that may not discover an entity is not told its name either. Not here: the requests of a node
(`discovery`), a single entity (`tracker`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bridge.base import Wall
from bridge.traces.kinds import DESCRIPTOR, DISCOVERY_TOPIC, Interest
from bridge.traces.telling import Say
from keys.errors import BadFrame
from keys.frames import Kind, Reader, number, opening, text
from keys.identity import Certificate, Identity
from keys.sealedbox import seal_box
from keys.tracesession import REQUEST_BYTES

ASK_EVERY_S = 60.0
PATTERNS_MAX = 256  # of one tracker
NAMES_AT_ONCE = 256  # in one message
NAMES_MAX = 20_000  # in the answers to one query
_NAMES = 8


def is_pattern(name: str) -> bool:
    """Returns True if the name ends with a star; the text before the star begins the names that are meant."""
    return name.endswith("*")


def matches(pattern: str, name: str) -> bool:
    """Returns True if a pattern means a name."""
    return name.startswith(pattern[:-1]) if is_pattern(pattern) else name == pattern


def names_for(asker: Certificate, request: bytes, names: Iterable[str], random: Callable[[int], bytes]
              ) -> Iterator[bytes]:  # fmt: skip
    """Yields a node's answers: one or more messages holding at most `NAMES_MAX` names."""
    head, left = opening(Kind.DISCOVERY, _NAMES), sorted(names)[:NAMES_MAX]
    for at in range(0, max(len(left), 1), NAMES_AT_ONCE):
        part = left[at : at + NAMES_AT_ONCE]
        inside = b"".join((request, number(len(part), 2), *map(text, part)))
        yield head + seal_box(asker.agreement_key, inside, head, random(32))


@dataclass(slots=True)
class _Asked:
    interest: Interest
    request: bytes = b""
    ask_at: float = 0.0
    found: bool = False


class Patterns:
    """The patterns a tracker follows. `sign`: makes a signed query of a descriptor, a request and a time in ms."""

    def __init__(
        self, identity: Identity, random: Callable[[int], bytes], wall: Wall, sign: Callable[[str, bytes, int], bytes]
    ) -> None:
        self._identity, self._random, self._wall, self._sign = identity, random, wall, sign
        self._asked: dict[str, _Asked] = {}

    @property
    def next_deadline(self) -> float | None:
        return min((each.ask_at for each in self._asked.values()), default=None)

    def found(self, pattern: str) -> bool | None:
        """Returns True if the pattern named any entity; None for a pattern that is not followed."""
        asked = self._asked.get(pattern)
        return None if asked is None else asked.found

    def follow_pattern(self, pattern: str, interest: Interest, now: float) -> bool:
        """Asks from now on for the entities a pattern means; the newest interest counts. Returns True if the pattern
        was followed before.
        """
        known = self._asked.get(pattern)
        if known is not None:
            known.interest = interest
        elif len(self._asked) < PATTERNS_MAX:
            self._asked[pattern] = _Asked(interest, ask_at=now)
        return known is not None

    def leave_pattern(self, pattern: str) -> bool:
        """Stops asking for a pattern. Returns True if the pattern was followed."""
        return self._asked.pop(pattern, None) is not None

    def mean(self, name: str) -> bool:
        """Returns True if a followed pattern means this name."""
        return any(matches(pattern, name) for pattern in self._asked)

    def due_queries(self, now: float, *, all_of_them: bool = False) -> list[Say]:
        """Returns the queries that are due now."""
        said = []
        for pattern, asked in self._asked.items():
            if all_of_them or now >= asked.ask_at:
                asked.request, asked.ask_at = self._random(REQUEST_BYTES), now + ASK_EVERY_S
                query = self._sign(DESCRIPTOR + pattern, asked.request, self._wall.ms(now))
                said.append(Say(DISCOVERY_TOPIC, query))
        return said

    def named_entities(self, data: bytes) -> list[tuple[str, Interest]] | None:
        """Returns the entities to follow by an answer, with interests; None if the data is no such answer. Leaves out
        names our question does not mean. Raises BadFrame, BadContent.
        """
        head = opening(Kind.DISCOVERY, _NAMES)
        if data[: len(head)] != head:
            return None
        reader = Reader(self._identity.open_box(data[len(head) :], head))
        request, count = reader.take_bytes(REQUEST_BYTES), reader.number(2)
        if count > NAMES_AT_ONCE:
            raise BadFrame(f"{count} names in one answer")
        names = [reader.text() for _ in range(count)]
        reader.expect_end()
        for pattern, asked in self._asked.items():
            if asked.request == request:
                found = [(name, asked.interest) for name in names if matches(pattern, name) and not is_pattern(name)]
                asked.found = asked.found or bool(found)
                return found
        return []
