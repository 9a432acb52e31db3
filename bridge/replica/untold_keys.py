"""Keys that found no room at a reader: sent again, without end if need be, and at little cost while the reader is
stuck.

A stuck reader is tried with a key after a while. A key that does not come back was taken: then twice as many go a
moment later, and so on. Not here: keys, and who may have them (`resplitting`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from bridge.replica.retained import DataKeyName

RETELL_S = 5.0  # after a loss, as a publisher repeats keys (docs/protocol.md §2.9)
GOES_ON_S = 0.05  # after keys that were taken, which is known at once


@dataclass(slots=True)
class _Peer:
    at: float
    many: int = 1
    keys: dict[DataKeyName, None] = field(default_factory=dict)


class UntoldKeys:
    """The keys to send each peer again, the oldest loss first."""

    def __init__(self) -> None:
        self.peers: dict[str, _Peer] = {}

    def note_lost_key(self, peer: str, name: DataKeyName, now: float) -> None:
        """Notes that the key found no room at the peer."""
        untold = self.peers.setdefault(peer, _Peer(now + RETELL_S))
        untold.keys[name] = None
        if untold.many > 1:
            untold.at, untold.many = now + RETELL_S, 1

    def link_up(self, peer: str, now: float) -> None:
        """Plans the peer's keys for a while later; it may have lost more."""
        if peer in self.peers:
            self.peers[peer].at, self.peers[peer].many = now + RETELL_S, 1

    def link_down(self, peer: str) -> None:
        """Stops sending to the peer until its link is up."""
        if peer in self.peers:
            self.peers[peer].at = inf

    def forget_all_but(self, members: Collection[str]) -> None:
        """Forgets all other peers."""
        self.peers = {peer: untold for peer, untold in self.peers.items() if peer in members}

    def due_peers(self, now: float) -> list[str]:
        """Returns the peers to send keys now."""
        return [peer for peer, untold in self.peers.items() if untold.at <= now]

    def keys_for(self, peer: str) -> Collection[DataKeyName]:
        """Returns the lost keys a peer was not sent since."""
        return self.peers[peer].keys.keys()

    def next_of(self, peer: str, lacking: Collection[DataKeyName], now: float) -> list[DataKeyName]:
        """Returns the keys to send the peer now. `lacking`: the keys of `keys_for(peer)` that it still lacks; the rest
        is forgotten.
        """
        untold = self.peers[peer]
        told = list(islice(lacking, untold.many))
        untold.keys = dict.fromkeys(islice(lacking, untold.many, None))
        untold.at, untold.many = now + GOES_ON_S, 2 * untold.many
        if not untold.keys:
            del self.peers[peer]
        return told

    @property
    def next_deadline(self) -> float:
        """The next time to send keys; infinite if none are to be sent."""
        return min((untold.at for untold in self.peers.values()), default=inf)
