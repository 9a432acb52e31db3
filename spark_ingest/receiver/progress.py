"""What a receiver tells of itself while it runs: written by its thread, read by any other.

Plain numbers and whole objects that are replaced, never changed in place, so that a reader needs no lock. Not here: how
they are shown (`metrics`), and what the spool itself tells (`status`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ReplicaLink(NamedTuple):
    """The connection to one replica. `pieces`, `bytes`: PUBLISH packets, and what came at all, before TLS."""

    replica: str
    up: bool
    pieces: int
    bytes: int


@dataclass(slots=True)
class Progress:
    """Since the process began; over sessions."""

    groups: int = 0
    rows: int = 0
    bytes: int = 0
    """Of groups, as they are on disk."""
    fsync_s: float = 0.0
    """Time spent in fsync of groups."""
    waiting: int = 0
    """Publications that are whole, or given up, and not on disk."""
    full: bool = False
    """The spool is at its cap: nothing is acknowledged."""
    clock_off: bool = False
    """This machine's clock cannot be believed: nothing is acknowledged, or nothing that looks like a replay."""
    accepted: bool = False
    """Enough replicas know all that we want: nothing that is published from now on is missed."""
    links: tuple[ReplicaLink, ...] = ()
