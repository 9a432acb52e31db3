"""Evidence against lying replicas, from the shares of opened keys: every *named* replica is guilty (docs/protocol.md
§3).

A mismatch proves only that one end of a link lied, so the link is suspected. A replica is named only if the evidence
allows no innocent explanation:

* on a path of one region: its share contradicts the commitment that the publisher signed. An honest replica
  checks that share on arrival and withholds a misfit, so it never delivers one;
* on longer paths: an *explanation* is one k-subset of honest places for every region. Each key refutes the
  explanations under which an allegedly honest column contradicts its commitment. Honest members always form
  explanations that survive, so a member that is in no surviving explanation of the view lied.

Counting accusers instead would frame innocents (docs/explanation/reasons.md says why). Absent, late or wrong-view
shares are no evidence. Contradicting signed statements and audit mode are subjects of other modules.

`WrappedEvidence` is the same for wrapped keys (docs/protocol.md §3.5). What wraps and shares contradict concerns a
replica and k replicas of the next region alone. So explanations are not listed, but walked: from subset to subset of
neighbouring regions, where nothing refutes the pair. A replica in no subset on a walk from end to end lied, however
long the way is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise, product

from bridge.contract import Blame, Count, Effect
from bridge.document import Overlay
from keys.envelope import KeyHeader, check_share
from keys.sharetree import Combination, Hop, Label, Share, level1_values
from keys.wrapping import Wrap, WrapName
from keys.wrapsearch import Split, Subset, audited

EXPLANATIONS_MAX = 2_000  # bigger paths are judged by suspicion only; bounds memory and the time of one audit


class Evidence:
    """Surviving explanations, by path and views."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._standing: dict[tuple[Hop, ...], set[Combination]] = {}
        self._named: set[str] = set()

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay or other views; keeps the explanations of views remaining open.

        An explanation is a choice of k honest places for every region of a path, which no key has refuted. An
        explanation concerns places in one set of views, so evidence of a view is never held against a member of
        another.
        """
        self._overlay = overlay
        self._standing = {hops: standing for hops, standing in self._standing.items() if are_open(self._overlay, hops)}

    def judge(
        self,
        header: KeyHeader,
        hops: tuple[Hop, ...],
        shares: Mapping[Label, Share],
        winning: Combination,
    ) -> list[Effect]:
        """Audits all shares of a key that `winning` (k places of every region below the first) opened. Returns nothing
        for closed views: the members at their places are no longer known.
        """
        if not are_open(self._overlay, hops):
            return []
        values = level1_values(shares.values(), hops, winning)
        mismatched = {p for p, value in values.items() if value is None or not check_share(header, p, value)}
        effects: list[Effect] = [
            Blame(member_at(self._overlay, hops[0], place), False, "shares contradict the signed commitment")
            for place in sorted(mismatched)
        ]
        if len(hops) == 1:
            return effects + self._name_liars({member_at(self._overlay, hops[0], place) for place in mismatched})
        standing = self._standing.get(hops)
        if standing is None:
            standing = self._standing[hops] = self._all_explanations(hops)
        refuted = self._refuted(header, hops, shares, standing)
        if refuted:
            standing -= refuted
            effects += self._suspect_inner(hops, refuted, winning, mismatched)
            effects += self._name_liars(self._in_none(hops, standing))
        return effects

    def _all_explanations(self, hops: tuple[Hop, ...]) -> set[Combination]:
        total = 1
        choices = []
        for hop in hops:
            subsets = list(combinations(range(1, hop.count + 1), hop.threshold))
            total *= len(subsets)
            choices.append(subsets)
        return set(product(*choices)) if total <= EXPLANATIONS_MAX else set()

    def _refuted(
        self,
        header: KeyHeader,
        hops: Sequence[Hop],
        shares: Mapping[Label, Share],
        standing: set[Combination],
    ) -> set[Combination]:
        """Returns the explanations under which an honest column is complete and yet contradicts its commitment."""
        contradicted: dict[Combination, set[int]] = {}
        for inner in {explanation[1:] for explanation in standing}:
            values = level1_values(shares.values(), hops, inner)
            contradicted[inner] = {
                place for place, value in values.items() if value is None or not check_share(header, place, value)
            }
        return {e for e in standing if contradicted[e[1:]].intersection(e[0])}

    def _suspect_inner(
        self, hops: Sequence[Hop], refuted: set[Combination], winning: Combination, columns: set[int]
    ) -> list[Effect]:
        """Suspects places below the first region breaking columns which hold without them."""
        suspects: dict[str, None] = {}
        for explanation in refuted:
            if columns.isdisjoint(explanation[0]):
                for level, subset in enumerate(explanation[1:]):
                    for place in set(subset) - set(winning[level]):
                        suspects[member_at(self._overlay, hops[level + 1], place)] = None
        return [Blame(member, False, "shares contradict the signed commitment") for member in sorted(suspects)]

    def _in_none(self, hops: Sequence[Hop], standing: set[Combination]) -> set[str]:
        """Returns the members no surviving explanation holds honest; an empty set if no explanation survives."""
        if not standing:
            return set()
        guilty = set()
        for level, hop in enumerate(hops):
            honest = {place for explanation in standing for place in explanation[level]}
            guilty |= {member_at(self._overlay, hop, p) for p in range(1, hop.count + 1) if p not in honest}
        return guilty

    def _name_liars(self, members: set[str]) -> list[Effect]:
        effects: list[Effect] = []
        for member in sorted(members - self._named):
            self._named.add(member)
            effects += [
                Blame(member, True, "no explanation of the shares holds it honest"),
                Count("named", 1, member),
            ]
        return effects


def are_open(overlay: Overlay, hops: Sequence[Hop]) -> bool:
    """Returns True if the views of all these hops are open, so that the members at their places are known."""
    return all(overlay.view(hop.region, hop.view) is not None for hop in hops)


def member_at(overlay: Overlay, hop: Hop, place: int) -> str:
    """Returns the name of the member at a place of an open view."""
    view = overlay.view(hop.region, hop.view)
    assert view is not None, "asked before"
    return view.members[place - 1]


PAIRS_MAX = (
    20_000  # pairs of subsets along one way; more are judged by suspicion only. Bounds memory and time of an audit
)


class WrappedEvidence:
    """Refutations by wrapped keys so far, by way and views."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._walks: dict[tuple[Hop, ...], _Walks] = {}
        self._named: set[str] = set()

    def adopt_overlay(self, overlay: Overlay) -> None:
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
