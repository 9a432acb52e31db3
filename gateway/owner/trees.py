"""Next tree of regions in a signed version: the rise of its number, and the former tree.

Any change of the routes of publications and keys makes another tree: edges, regions, and the regions of a scope. The
next change follows after the former tree is closed at every member that learned of it in time. Where regions stay,
members have `TREE_SETTLE_S` for the links of new edges before they seal for the new tree.

Where an organiser changes trees in the owner's place, the next version keeps the tree in force, and edges that equal
those of the previous description mean: no change. A tree by the owner has a number above all that the organiser may
have given meanwhile. Not here: the members' side (`bridge.document.trees`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bridge.document import OWNER_STEPS, TREE_GRACE_S, TREE_SETTLE_S, Organising, Overlay, Scope, TreeChange
from gateway.owner.description import Description, region_id
from gateway.trust import TrustError, date_of


def next_tree(
    wanted: Description,
    ids: dict[str, int],
    scopes: Sequence[Scope],
    previous: Overlay | None,
    now: float,
    grace_s: int | None = None,
    described: Iterable[Sequence[int]] | None = None,
) -> tuple[tuple[tuple[int, int], ...], TreeChange]:
    """Returns edges by region numbers, and the change of the tree.

    `grace_s`: seconds for which the former tree stays open after a change. `described`: edges of the previous
    description. Raises TrustError while two trees are open.
    """
    edges = described_edges(wanted, ids)
    if previous is None:
        return edges, TreeChange()
    present, policy = previous.arrangement, previous.policy
    before = present.change
    organises = policy.organising is not None and bool(policy.organising.organiser)
    is_over = now * 1000 >= before.closes_ms
    same_regions = set(ids.values()) == previous.latest.keys() and _regions(scopes, previous)
    untouched = organises and described is not None and _are_same(edges, described)
    if same_regions and (untouched or _are_same(edges, present.edges)):
        return present.edges, before.settled if before.former is None or is_over else before
    if before.former is not None and not is_over:
        raise TrustError(
            f"regions were joined anew in version {policy.version}, and both trees are open until "
            f"{date_of(before.closes_ms / 1000)}; sign the next change then"
        )
    settle_s = TREE_SETTLE_S if same_regions else 0
    steps = OWNER_STEPS if organises else 1
    return edges, before.followed_by(present.edges, int(now * 1000), settle_s, grace_s or TREE_GRACE_S, steps)


def described_edges(wanted: Description, ids: dict[str, int]) -> tuple[tuple[int, int], ...]:
    """Returns the description's edges by region numbers. Raises TrustError for an unknown region."""
    return tuple((region_id(ids, a, "edges"), region_id(ids, b, "edges")) for a, b in wanted.edges)


def next_organising(
    wanted: Description, ids: dict[str, int], previous: Overlay | None, edges: Sequence[tuple[int, int]]
) -> Organising | None:
    """Returns the described rules of organising. Raises TrustError.

    With an organiser, every described edge or link that is not an edge now may become one.
    """
    organising = wanted.organise.organising(ids, previous) if wanted.organise else None
    if organising is None or not organising.organiser:
        return organising
    links = {frozenset(link): link for link in (*organising.links, *described_edges(wanted, ids))}
    for edge in edges:
        links.pop(frozenset(edge), None)
    return replace(organising, links=tuple(links.values()))


def _are_same(some: Iterable[Sequence[int]], others: Iterable[Sequence[int]]) -> bool:
    return set(map(frozenset, some)) == set(map(frozenset, others))


def _regions(scopes: Sequence[Scope], previous: Overlay) -> bool:
    """Returns True if existing scopes keep their regions."""
    before = {scope.filter: scope.regions for scope in previous.policy.scopes}
    return all(before.get(scope.filter, scope.regions) == scope.regions for scope in scopes)
