"""The next tree of regions as the owner signs it: when its number rises, and what the former one still is.

Whatever changes how publications and keys go is another tree: edges, regions, and the regions of a scope. One change
follows another once the former tree is closed at everybody who heard of it in time. Where regions stay, members have
`TREE_SETTLE_S` for the links of new edges before they seal for it. Not here: what members do with it
(`bridge.document.trees`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.document import TREE_GRACE_S, TREE_SETTLE_S, Overlay, Scope, TreeChange
from gateway.owner.description import Description, region_id
from gateway.trust import TrustError, date_of


def next_tree(
    wanted: Description,
    ids: dict[str, int],
    scopes: Sequence[Scope],
    previous: Overlay | None,
    now: float,
    grace_s: int | None = None,
) -> tuple[tuple[tuple[int, int], ...], TreeChange]:
    """Edges by the numbers of regions, and which tree they are. `grace_s`: how long the former stays open where another
    follows it now. Raises TrustError while two are open."""
    edges = tuple((region_id(ids, a, "edges"), region_id(ids, b, "edges")) for a, b in wanted.edges)
    if previous is None:
        return edges, TreeChange()
    before, policy = previous.policy.tree, previous.policy
    is_over = now * 1000 >= before.closes_ms
    same_regions = set(ids.values()) == previous.latest.keys() and _regions(scopes, previous)
    same_edges = set(map(frozenset, edges)) == set(map(frozenset, policy.edges))
    if same_edges and same_regions:
        return policy.edges, TreeChange(before.number, before.since_ms) if before.former is None or is_over else before
    if before.former is not None and not is_over:
        raise TrustError(
            f"regions were joined anew in version {policy.version}, and both trees are open until "
            f"{date_of(before.closes_ms / 1000)}; sign the next change then"
        )
    settle_s = TREE_SETTLE_S if same_regions else 0
    return edges, before.followed_by(policy.edges, int(now * 1000), settle_s, grace_s or TREE_GRACE_S)


def _regions(scopes: Sequence[Scope], previous: Overlay) -> bool:
    """Whether scopes that were there have the regions that they had."""
    before = {scope.filter: scope.regions for scope in previous.policy.scopes}
    return all(before.get(scope.filter, scope.regions) == scope.regions for scope in scopes)
