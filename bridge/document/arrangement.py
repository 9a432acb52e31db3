"""The arrangement of regions at one moment: the tree, its potential links and barred links.

The owner's policy gives the first (`from_policy`); each change of an edge gives another (`swapped`), equal at all
members knowing the change: nothing here asks a clock. A removed edge may come back, so it is a potential link from
then on. Undoing a change before the tree has rested bars the link that is taken away, twice as long each time. Not
here: who makes a change (`swaps`, or the owner), which changes are in force (`reorganised`).
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, replace

from bridge.document.organise import Organising
from bridge.document.policy import Policy
from bridge.document.trees import TREE_SETTLE_S, Edge, TreeChange, encode_edges
from keys.frames import number, text

DOMAIN_ARRANGEMENT = "veilmq/1 tree"
JUDGED_INTERVALS = 2  # behind a change, before it is judged worse than the tree before


@dataclass(frozen=True, slots=True)
class Arrangement:
    """An arrangement of regions. `change`: the number of the tree of these edges, and the tree before."""

    edges: tuple[Edge, ...]
    change: TreeChange
    organising: Organising | None

    @classmethod
    def from_policy(cls, policy: Policy) -> Arrangement:
        """Returns the arrangement the owner signed."""
        return cls(policy.edges, policy.tree, policy.organising)

    def in_policy(self, policy: Policy) -> Policy:
        """Returns the owner's next policy with this arrangement."""
        return replace(policy, edges=self.edges, tree=self.change, organising=self.organising)

    def digest(self, overlay: str) -> bytes:
        """Returns the digest by which a change names this tree.

        SHA-256 over the domain and 0x00, the overlay's name, the tree's number(4) and its edges, ends and edges
        ascending.
        """
        edges = sorted((min(edge), max(edge)) for edge in self.edges)
        parts = [DOMAIN_ARRANGEMENT.encode(), b"\0", text(overlay), number(self.change.number, 4), encode_edges(edges)]
        return hashlib.sha256(b"".join(parts)).digest()

    def joins(self, edge: Edge) -> bool:
        """Returns True if the edge is in the tree."""
        return _is_among(edge, self.edges)

    def way(self, start: int, end: int) -> tuple[int, ...]:
        """Returns the regions from `start` to `end`, both included; none if they are not joined.

        A single search: a member sending swaps without end must not make us build a whole `Tree` for each.
        """
        beside: dict[int, list[int]] = {}
        for a, b in self.edges:
            beside.setdefault(a, []).append(b)
            beside.setdefault(b, []).append(a)
        came_from, queue = {end: end}, deque([end])
        while queue and start not in came_from:
            region = queue.popleft()
            for other in beside.get(region, ()):
                if other not in came_from:
                    came_from[other] = region
                    queue.append(other)
        found = [start] if start in came_from else []
        while found and found[-1] != end:
            found.append(came_from[found[-1]])
        return tuple(found)

    def allows(self, edge: Edge) -> bool:
        """Returns True if the edge is a potential link."""
        return self.organising is not None and _is_among(edge, self.organising.links)

    def swapped(self, added: Edge, removed: Edge, since_ms: int, grace_s: int, steps: int = 1) -> Arrangement:
        """Returns the arrangement with edge `added` for `removed`, signed at `since_ms`; this tree stays open for
        `grace_s`.
        """
        left = tuple(edge for edge in self.edges if set(edge) != set(removed))
        change = self.change.followed_by(self.edges, since_ms, TREE_SETTLE_S, grace_s, steps)
        organising = self.organising
        if organising is not None:
            links = {tuple(sorted(link)): link for link in (*organising.links, removed)}
            links.pop(tuple(sorted(added)), None)
            if since_ms / 1000 < self.rests[1] and self.undone_by(added, removed):
                organising = organising.with_bar(removed, since_ms / 1000)
            organising = replace(organising, links=tuple(links.values()))
        return Arrangement((*left, added), change, organising)

    @property
    def rests(self) -> tuple[float, float]:
        """UNIX times in seconds: when the last change can be judged, and until when the tree rests."""
        if not self.change.number or self.organising is None:
            return 0.0, 0.0
        judged_at = self.change.closes_ms / 1000 + JUDGED_INTERVALS * self.organising.interval_s
        return judged_at, max(self.change.since_ms / 1000 + self.organising.dwell_s, judged_at)

    def undone_by(self, added: Edge, removed: Edge) -> bool:
        """Returns True if this swap would undo the last change."""
        left = {frozenset(edge) for edge in self.edges} - {frozenset(removed)}
        return left | {frozenset(added)} == {frozenset(edge) for edge in self.change.former or ()}


def _is_among(edge: Edge, edges: tuple[Edge, ...]) -> bool:
    return any(set(edge) == set(each) for each in edges)
