"""Rights of a member to topics in a single scope, by which readers judge each record of a batch.

A record belongs to a scope if no more specific scope takes its topic, and needs a grant of its publisher's covering
the topic. Gateways ask the policy; a job's receiver writes the present rights into the spool, so that a reader of a
row later judges by the rights at its arrival. All filters are filters on the wire. Not here: the policy itself.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from keys.errors import BadFrame
from keys.topictokens import matches

TEXTS_KEPT = 1024
"""Number of rights whose text is kept: a job writes it beside each publication, and a publisher has few."""


class RecordRights(NamedTuple):
    """Rights of a member in a single scope.

    `scope`: its filter. `within`: filters of scopes taking topics from it. `granted`: filters on which the member may
    publish, as far as they touch the scope.
    """

    scope: str
    within: tuple[str, ...]
    granted: tuple[str, ...]

    @property
    def is_all(self) -> bool:
        """True if every topic of the filter is allowed."""
        return not self.within and self.granted == (self.scope,)

    def allow(self, wire_topic: str) -> bool:
        """Returns True if a record may have this topic."""
        return (
            matches(self.scope, wire_topic)
            and any(matches(granted, wire_topic) for granted in self.granted)
            and not any(matches(other, wire_topic) for other in self.within)
        )

    def to_text(self) -> str:
        """Returns the rights as text, for a file of this party."""
        return _text_of(self)

    @classmethod
    def from_text(cls, text: str) -> RecordRights:
        """Reads the result of `to_text`. Raises BadFrame for anything else."""
        try:
            scope, within, granted = json.loads(text)
            return cls(str(scope), tuple(map(str, within)), tuple(map(str, granted)))
        except (ValueError, TypeError):
            raise BadFrame("rights of a publisher that cannot be read") from None


@lru_cache(maxsize=TEXTS_KEPT)
def _text_of(rights: RecordRights) -> str:
    return json.dumps(rights, separators=(",", ":"), ensure_ascii=False)
