"""Events of a replica's shell: load of links and processor, and the beat. `machine` has all other events."""

from __future__ import annotations

from typing import TypeAlias

from keys.values import value

PeerLoad: TypeAlias = tuple[str, int, int, int]
"""Peer; publications that came for its link, and that it acknowledged, since the last report; publications waiting."""

LOADS_EVERY_S = 0.05


@value
class Loads:
    """A report of the load of our links with replicas, every `LOADS_EVERY_S` where scopes go by planes."""

    links: tuple[PeerLoad, ...]


@value
class Worked:
    """Processor time since the last report, in microseconds; publications waiting for links now."""

    processor_us: int
    queued: int


@value
class Beat:
    """The beat of a replica's shell, every `presence.BEAT_S` while its event loop turns. `up`: members to which a
    connection stands.
    """

    up: tuple[str, ...]
