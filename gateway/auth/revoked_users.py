"""Users of an identity provider who are shut out here before their tokens end: a file, a line each.

    ann                            # no token of ann counts, until the line is taken out
    pump-7 2026-11-29T10:00:00Z    # tokens that were issued before count no more: a stolen one, say

A signed token counts wherever its signature is checked, whether or not the provider has withdrawn it meanwhile. Text
in, verdicts out; no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from bridge.base import text_lines

REVOKED_MAX = 100_000  # users of a file


class RevokedError(ValueError):
    """An error of a line: number and cause."""


@dataclass(frozen=True, slots=True)
class RevokedUsers:
    """Users who are shut out. `before`: by name, the Unix time from which on tokens must be issued to count."""

    before: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> RevokedUsers:
        """Raises RevokedError."""
        before: dict[str, float] = {}
        for number, line in enumerate(text_lines(text), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) > 2 or len(before) >= REVOKED_MAX:
                raise RevokedError(f"line {number}: more than a user and a time, or more than {REVOKED_MAX} users")
            until = math.inf if len(words) == 1 else _time(words[1], number)
            before[words[0]] = max(until, before.get(words[0], 0.0))
        return cls(before)

    def counts(self, user: str, issued: float) -> bool:
        """Returns True if a token of the user counts. `issued`: Unix time; 0 if the token does not tell."""
        return issued >= self.before.get(user, 0.0)

    def more_than(self, earlier: RevokedUsers) -> frozenset[str]:
        """Returns the users of whom more is shut out than in `earlier`."""
        return frozenset(user for user, until in self.before.items() if until > earlier.before.get(user, 0.0))


def _time(text: str, number: int) -> float:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.timestamp()
    except ValueError:
        pass
    raise RevokedError(f"line {number}: {text} is no time; write e.g. 2026-11-29T10:00:00Z")
