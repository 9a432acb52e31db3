"""Secrets of a scope beside its epoch keys, for an authorised party; the public scope is in `policy`."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.document.policy import Scope
from keys.topictokens import tokenise_topic


@dataclass(frozen=True, slots=True)
class ScopeSecret:
    """An authorised party's knowledge of a scope: its clear filter, and the token key where names are hidden."""

    scope: Scope
    clear_filter: str
    token_key: bytes | None = field(default=None, repr=False)

    def wire_topic(self, topic: str) -> str:
        return tokenise_topic(topic, self.token_key) if self.token_key else topic
