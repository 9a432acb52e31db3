"""Counters that people read: what this party did, whom it suspects, whom it names (PROTOCOL §7).

Kept in memory and published once a second as one retained JSON object on `$SYS/veilmq/figures` to local clients.
Not here: the broker's own counters (`traffic.py`) and the endpoint that shows both (`prometheus.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bridge.machine import Blame, Count

FIGURES_TOPIC = "$SYS/veilmq/figures"
LABELS_MAX = 1000  # distinct figures; a peer that invents reasons cannot grow the object


@dataclass(slots=True)
class Figures:
    """Counts by name (and label), suspicions by member, and the members that are named."""

    name: str
    role: str
    counts: Counter[str] = field(default_factory=Counter)
    suspected: Counter[str] = field(default_factory=Counter)
    named: dict[str, str] = field(default_factory=dict)

    def count(self, effect: Count) -> None:
        key = f"{effect.name}.{effect.label}" if effect.label else effect.name
        if key in self.counts or len(self.counts) < LABELS_MAX:
            self.counts[key] += effect.amount

    def blame(self, effect: Blame) -> bool:
        """Note it; True the first time this is said of the member."""
        if effect.named:
            return self.named.setdefault(effect.member, effect.why) is effect.why
        self.suspected[effect.member] += 1
        return self.suspected[effect.member] == 1

    def to_dict(self, **more: Any) -> dict[str, Any]:
        return {
            "name": self.name,
            "role": self.role,
            "counts": dict(sorted(self.counts.items())),
            "suspected": dict(sorted(self.suspected.items())),
            "named": sorted(self.named),
            **more,
        }

    def to_json(self, **more: Any) -> bytes:
        return json.dumps(self.to_dict(**more), separators=(",", ":")).encode()
