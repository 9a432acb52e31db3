"""Events that say how loaded a replica is: its links, its processor, what waits. `machine` has all others."""

from __future__ import annotations

from typing import TypeAlias

from keys.values import value

PeerLoad: TypeAlias = tuple[str, int, int, int]
"""Peer; publications that came for its link and that it acknowledged since this was said last; that wait now."""

LOADS_EVERY_S = 0.05


@value
class Loads:
    """How loaded our links with replicas are: said every `LOADS_EVERY_S` where scopes go by planes."""

    links: tuple[PeerLoad, ...]


@value
class Worked:
    """Processor time since this was said last, in microseconds; publications that wait for links now."""

    processor_us: int
    queued: int
