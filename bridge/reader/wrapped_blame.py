"""Evidence against lying replicas from wrapped keys: every *named* replica is guilty (docs/protocol.md §3.5).

As for short ways (`blame`) a replica is named only if the evidence allows no innocent explanation: one k-subset of
honest places for every region. What wraps and shares contradict concerns a replica and k replicas of the next region
alone. So explanations are not listed, but walked: from subset to subset of neighbouring regions, where nothing refutes
the pair. A replica in no subset on a walk from end to end lied, however long the way is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise

from bridge.contract import Blame, Count, Effect
from bridge.document import Overlay
from bridge.reader.blame import are_open, member_at
from keys.envelope import KeyHeader, check_share
from keys.sharetree import Hop, Label, Share
from keys.wrapping import Wrap, WrapName
from keys.wrapsearch import Split, Subset, audited

PAIRS_MAX = (
    20_000  # pairs of subsets along one way; more are judged by suspicion only. Bounds memory and time of an audit
)


class WrappedEvidence:
    """Refutations by wrapped keys so far, by way and views."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._walks: dict[tuple[Hop, ...], _Walks] = {}
        self._named: set[str] = set()

    def adopt(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay or other views; keeps what concerns views remaining open."""
        self._overlay = overlay
        self._walks = {hops: walks for hops, walks in self._walks.items() if are_open(self._overlay, hops)}

    def judge(
        self,
        header: KeyHeader,
        hops: tuple[Hop, ...],
        shares: Mapping[Label, Share],
        wraps: Mapping[WrapName, bytes],
    ) -> list[Effect]:
        """Audits all shares and wraps of an opened key. Returns nothing for closed views: the members at their places
        are no longer known.
        """
        if not are_open(self._overlay, hops):
            return []
        told = map(Wrap._make, wraps.items())
        found = audited(hops, header.digest, shares.values(), told, partial(check_share, header))
        effects: list[Effect] = [
            Blame(self._member(hops, split), False, "shares and wraps of a key contradict each other")
            for split in sorted(found.suspects | found.alone)
        ]
        walks = self._walks.setdefault(hops, _Walks(hops))
        if walks.refute(found.alone, found.refuted):
            for member in sorted({self._member(hops, split) for split in walks.guilty()} - self._named):
                self._named.add(member)
                why = "no explanation of the shares and wraps holds it honest"
                effects += [Blame(member, True, why), Count("named", 1, member)]
        return effects

    def _member(self, hops: Sequence[Hop], split: Split) -> str:
        return member_at(self._overlay, hops[split[0]], split[1])


class _Walks:
    """The k-subsets of each region of a way, and the refutations of subsets and of neighbouring pairs."""

    def __init__(self, hops: Sequence[Hop]) -> None:
        self._hops = hops
        subsets = [list(combinations(range(1, hop.count + 1), hop.threshold)) for hop in hops]
        pairs = sum(len(here) * len(behind) for here, behind in pairwise(subsets))
        self._subsets: list[list[Subset]] = subsets if pairs <= PAIRS_MAX else []
        self._alone: set[Split] = set()
        self._against: dict[tuple[int, Subset], set[int]] = {}  # by subset of the next region: places before it

    def refute(self, alone: Collection[Split], refuted: Collection[tuple[Split, Subset]]) -> bool:
        """Takes what an audit refuted. Returns True if some of it is new, and subsets are judged at all."""
        if not self._subsets:
            return False
        fresh = not self._alone.issuperset(alone)
        self._alone.update(alone)
        for (at, place), subset in refuted:
            against = self._against.setdefault((at + 1, subset), set())
            fresh |= place not in against
            against.add(place)
        return fresh

    def guilty(self) -> set[Split]:
        """Returns the replicas in no subset of a walk from end to end; none if there is no walk."""
        reached: list[list[Subset]] = []
        for at, subsets in enumerate(self._subsets):
            allowed = [subset for subset in subsets if self._alone.isdisjoint((at, place) for place in subset)]
            if reached:
                allowed = [behind for behind in allowed if any(self._fit(at, b, behind) for b in reached[-1])]
            reached.append(allowed)
        if not reached[-1]:
            return set()
        standing = reached[-1:]
        for at in range(len(reached) - 1, 0, -1):
            before = [subset for subset in reached[at - 1] if any(self._fit(at, subset, b) for b in standing[0])]
            standing.insert(0, before)
        return {
            (at, place)
            for at, (hop, subsets) in enumerate(zip(self._hops, standing, strict=True))
            for place in set(range(1, hop.count + 1)).difference(*subsets)
        }

    def _fit(self, at: int, before: Subset, behind: Subset) -> bool:
        """Returns True if nothing refutes that both are honest; `at` is the region of the latter."""
        return self._against.get((at, behind), set()).isdisjoint(before)
