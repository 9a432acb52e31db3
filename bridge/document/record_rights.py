"""Which topics a member may publish on in one scope: what readers ask of each record of a batch.

A record belongs to a scope if no more specific scope takes its topic, and needs a grant of its publisher's that covers
the topic. Gateways ask the policy; a job's receiver writes the rights as it found them into the spool, so that whoever
opens a row later judges by what counted when it came. All filters are those of the wire.
Not here: the policy itself."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from keys.errors import BadFrame
from keys.topictokens import matches

TEXTS_KEPT = 1024
"""Rights whose text is remembered: a job writes it beside each publication, and a publisher has few."""


class RecordRights(NamedTuple):
    """`scope`: its filter. `within`: filters of scopes that take topics from it. `granted`: what the member may publish
    on, as far as that touches the scope."""

    scope: str
    within: tuple[str, ...]
    granted: tuple[str, ...]

    @property
    def is_all(self) -> bool:
        """Whether every topic of the filter is allowed."""
        return not self.within and self.granted == (self.scope,)

    def allow(self, wire_topic: str) -> bool:
        """Whether a record may have this topic."""
        return (
            matches(self.scope, wire_topic)
            and any(matches(granted, wire_topic) for granted in self.granted)
            and not any(matches(other, wire_topic) for other in self.within)
        )

    def to_text(self) -> str:
        """For a file of the same party."""
        return _text_of(self)

    @classmethod
    def from_text(cls, text: str) -> RecordRights:
        """The inverse of `to_text`. Raises BadFrame for anything else."""
        try:
            scope, within, granted = json.loads(text)
            return cls(str(scope), tuple(map(str, within)), tuple(map(str, granted)))
        except (ValueError, TypeError):
            raise BadFrame("rights of a publisher that cannot be read") from None


@lru_cache(maxsize=TEXTS_KEPT)
def _text_of(rights: RecordRights) -> str:
    return json.dumps(rights, separators=(",", ":"), ensure_ascii=False)
