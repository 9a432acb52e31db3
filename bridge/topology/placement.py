"""Placement of replicas where they do the most good, in three phases (A11, A12; paper 000, "Replica Placement
Framework").

Phase 1 deals a budget of replicas to end-to-end paths, in proportion to hops x failure ratio x weight. Phase 2 deals
the part of each path to its nodes, in proportion to their failures. Phase 3 takes replicas off paths that have too
many for their latency, the least failing node first. Then every virtual node is made odd, since an even size tolerates
no more faults than the odd size below, and a node of two cannot share a secret at all (A1). The paper's nodes begin
with a broker; a caller whose overlay is to be signed begins with `SHARING_MIN`.

Pure: `witnesses` counts failures, and the caller knows the tree and its paths. Not here: the limit of a path's shares
at a receiver (`document.tree_checks.SHARES_PER_KEY_MAX`), starting or attaching the brokers of a placement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from keys.errors import OurFault
from keys.shamir import MAX_PLACE

SHARING_MIN = 3
"""The smallest virtual node that can share a secret."""
ADDED_MAX = (MAX_PLACE - 1) // 2 * 2
"""The most replicas that a virtual node of one can get: a view has an odd number of places, up to `MAX_PLACE`."""


@dataclass(frozen=True, slots=True)
class Path:
    """An end-to-end path: ids of its virtual nodes, the publisher's first, and its importance (omega > 0)."""

    nodes: tuple[int, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.nodes or len(set(self.nodes)) != len(self.nodes):
            raise OurFault("a path names at least one node and none twice; list it from publisher to subscriber")
        if not 0 < self.weight < float("inf"):
            raise OurFault(f"a path of weight {self.weight}; give a positive number, 1 for an ordinary one")


@dataclass(frozen=True, slots=True)
class Placement:
    """The result of a placement. `sizes`: replicas of each node, the initial ones included, odd. `by_path`: phase 1, by
    path. `stripped`: replicas that phase 3 took off. `unused`: replicas of the budget that found no place.
    """

    sizes: dict[int, int]
    by_path: tuple[int, ...]
    stripped: int
    unused: int


def deal(total: int, claims: Sequence[float]) -> list[int]:
    """Deals `total` indivisible things in proportion to `claims`, by largest remainder; the first of equals gets it.

    Raises `OurFault` unless all claims are finite and none negative, and some positive if there is anything to deal.
    """
    whole = sum(claims)
    if total < 0 or any(claim < 0 for claim in claims) or not whole < float("inf") or (total and not whole):
        raise OurFault("nothing can be dealt in these proportions; give a budget >= 0 and positive claims")
    if not total:
        return [0] * len(claims)
    quotas = [total * claim / whole for claim in claims]
    parts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(claims)), key=lambda at: parts[at] - quotas[at])
    for at in by_remainder[: total - sum(parts)]:
        parts[at] += 1
    return parts


def priorities(paths: Sequence[Path], failures: Mapping[int, int]) -> list[float]:
    """Returns rho = hops x gamma x omega of each path; gamma is the path's part of the failures on all paths.

    A path fails when one of its nodes fails. A failure is added to each path, so that a system without failures still
    has a placement, and no path is without a claim.
    """
    on_path = [1 + sum(failures.get(node, 0) for node in path.nodes) for path in paths]
    everything = sum(on_path)
    return [len(p.nodes) * count / everything * p.weight for p, count in zip(paths, on_path, strict=True)]


def place(
    paths: Sequence[Path],
    replicas: int,
    failures: Mapping[int, int],
    *,
    path_max: int | None = None,
    one_pack: bool = False,
    least: int = 1,
) -> Placement:
    """Spends up to `replicas` more brokers on the nodes of `paths`; each node has `least` already, an odd number.

    `failures`: of each node in a single period. `path_max`: phase 3, the most replicas added along a path. `one_pack`:
    a node on several paths keeps its largest pack only; the rest goes to nodes that cannot share yet. Raises
    `OurFault` for a negative budget or maximum.
    """
    if replicas < 0 or (path_max is not None and path_max < 0):
        raise OurFault("the budget of replicas and the maximum of a path cannot be negative")
    if not paths:
        return Placement({}, (), 0, replicas)
    by_path = deal(replicas, priorities(paths, failures))
    rank = {node: (failures.get(node, 0), -node) for path in paths for node in path.nodes}
    added = _on_nodes(paths, by_path, failures, rank, one_pack, least)
    stripped = 0
    rooms = [inf if path_max is None else path_max - (least - 1) * len(path.nodes) for path in paths]
    if path_max is not None:
        stripped = _strip(paths, added, rank, rooms)
    _make_odd(paths, added, rank, rooms)
    added.update((node, ADDED_MAX + 1 - least) for node, count in added.items() if count > ADDED_MAX + 1 - least)
    sizes = {node: least + count for node, count in sorted(added.items())}
    return Placement(sizes, tuple(by_path), stripped, replicas - stripped - sum(added.values()))


def _on_nodes(
    paths: Sequence[Path],
    by_path: Sequence[int],
    failures: Mapping[int, int],
    rank: Mapping[int, tuple[int, int]],
    one_pack: bool,
    least: int,
) -> dict[int, int]:
    """Returns the replicas each node gets in phase 2: from all its paths together, or the largest pack."""
    added = dict.fromkeys(rank, 0)
    freed = 0
    for path, count in zip(paths, by_path, strict=True):
        if count:
            packs = deal(count, [1 + failures.get(node, 0) for node in path.nodes])
            for node, pack in zip(path.nodes, packs, strict=True):
                if one_pack:
                    freed += min(added[node], pack)
                added[node] = max(added[node], pack) if one_pack else added[node] + pack
    for node in sorted(added, key=rank.__getitem__, reverse=True):
        given = min(freed, max(0, SHARING_MIN - least - added[node]))
        added[node] += given
        freed -= given
    return added


def _strip(
    paths: Sequence[Path], added: dict[int, int], rank: Mapping[int, tuple[int, int]], rooms: Sequence[float]
) -> int:
    """Takes the excess over its room off every path (phase 3), from the least failing node that still has some."""
    stripped = 0
    for path, room in zip(paths, rooms, strict=True):
        excess = sum(added[node] for node in path.nodes) - room
        for node in sorted(path.nodes, key=rank.__getitem__):
            taken = int(max(0, min(excess, added[node])))
            added[node] -= taken
            excess -= taken
            stripped += taken
    return stripped


def _make_odd(
    paths: Sequence[Path], added: dict[int, int], rank: Mapping[int, tuple[int, int]], rooms: Sequence[float]
) -> None:
    """Moves the last replica of a node of even size to an even node failing more, where its paths have room."""
    uneven = sorted((node for node in added if added[node] % 2), key=rank.__getitem__, reverse=True)
    for node in uneven:
        added[node] -= 1
    spare = len(uneven)
    through: dict[int, list[tuple[Path, float]]] = {node: [] for node in uneven}
    for path, room in zip(paths, rooms, strict=True):
        for node in through.keys() & set(path.nodes):
            through[node].append((path, room))
    for node in uneven:
        if spare >= 2 and not _full(through[node], added):
            added[node] += 2
            spare -= 2


def _full(paths: Collection[tuple[Path, float]], added: Mapping[int, int]) -> bool:
    """Returns True if two more replicas would be too many for one of `paths`, each with its room."""
    return any(sum(added[node] for node in path.nodes) + 2 > room for path, room in paths)
