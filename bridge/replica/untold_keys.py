"""Keys that found no room at a reader: told again, without end if need be, and without much ado while it stays stuck.

Whoever takes nothing is tried with one key after a while. What does not come back was taken: then twice as many go a
moment later, and so on. Not here: what a key is, and who may have it (`resplitting`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from bridge.replica.retained import DataKeyName

RETELL_S = 5.0  # after a loss, as a publisher repeats keys (docs/protocol.md §2.9)
GOES_ON_S = 0.05  # after what was taken; whether it was is known at once


@dataclass(slots=True)
class _Peer:
    at: float
    many: int = 1
    keys: dict[DataKeyName, None] = field(default_factory=dict)


class UntoldKeys:
    """What each peer is to be told again, the oldest loss first."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}

    def lost(self, peer: str, name: DataKeyName, now: float) -> None:
        """The key found no room at the peer."""
        untold = self._peers.setdefault(peer, _Peer(now + RETELL_S))
        untold.keys[name] = None
        if untold.many > 1:
            untold.at, untold.many = now + RETELL_S, 1

    def link_up(self, peer: str, now: float) -> None:
        """What it is to be told goes in a while; it may have lost more."""
        if peer in self._peers:
            self._peers[peer].at, self._peers[peer].many = now + RETELL_S, 1

    def link_down(self, peer: str) -> None:
        """It can be told nothing until its link is up."""
        if peer in self._peers:
            self._peers[peer].at = inf

    def keep(self, members: Collection[str]) -> None:
        """Forget all others."""
        self._peers = {peer: untold for peer, untold in self._peers.items() if peer in members}

    def due(self, now: float) -> list[str]:
        """Whom to tell something."""
        return [peer for peer, untold in self._peers.items() if untold.at <= now]

    def of(self, peer: str) -> Collection[DataKeyName]:
        """What a peer with losses was not told since."""
        return self._peers[peer].keys.keys()

    def next_of(self, peer: str, lacking: Collection[DataKeyName], now: float) -> list[DataKeyName]:
        """What to tell the peer now. `lacking`: what of `of(peer)` it lacks still; the rest is forgotten."""
        untold = self._peers[peer]
        told = list(islice(lacking, untold.many))
        untold.keys = dict.fromkeys(islice(lacking, untold.many, None))
        untold.at, untold.many = now + GOES_ON_S, 2 * untold.many
        if not untold.keys:
            del self._peers[peer]
        return told

    @property
    def next_deadline(self) -> float:
        """Infinite if nobody is to be told anything."""
        return min((untold.at for untold in self._peers.values()), default=inf)
