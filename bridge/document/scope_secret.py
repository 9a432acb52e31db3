"""What an authorised party knows of a scope beside its epoch keys; the scope as all see it is in `policy`."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.document.policy import Scope
from keys.topictokens import tokenise_topic


@dataclass(frozen=True, slots=True)
class ScopeSecret:
    """What an authorised party knows of a scope beside its epoch keys: its clear filter, and the token key where names
    are hidden."""

    scope: Scope
    clear_filter: str
    token_key: bytes | None = field(default=None, repr=False)

    def wire_topic(self, topic: str) -> str:
        return tokenise_topic(topic, self.token_key) if self.token_key else topic
