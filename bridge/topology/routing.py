"""Routing of notifications in a structured overlay: static, dynamic, or by lists of brokers (C6, C8, C9).

Pure functions over the knowledge of a broker: the targets that its rows give, and the load of its own links. A
dynamically routed notification carries a vector with a bit for every plane that still has to get it. The vector
travels only on links that are targets anyway. A broker that has the vector sends to these planes where its own links
to them are free, and hands the rest on. With every hop fewer planes or less of the tree remain: routing ends, and no
broker gets two copies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from bridge.topology.congestion import LinkLoad
from bridge.topology.scot import PlanePlace, Scot

Loads: TypeAlias = Callable[[PlanePlace], LinkLoad]
"""The load of our link to a neighbour."""
H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True)
class RoutedCopy:
    """A copy to a neighbour. `vector`: the planes the receiver must serve now; 0: none."""

    to: PlanePlace
    vector: int = 0


def planes_of(vector: int) -> list[int]:
    """Returns the planes whose bits are set."""
    return [plane for plane in range(vector.bit_length()) if vector >> plane & 1]


def static(here: PlanePlace, regions: Iterable[int], planes: int) -> list[RoutedCopy]:
    """Routes by SNR: a copy to each next region and, at the publisher's host broker, to each other plane with
    interest.
    """
    region, plane = here
    along = [RoutedCopy((other, plane)) for other in regions]
    return along + [RoutedCopy((region, other)) for other in planes_of(planes)]


def dynamic(here: PlanePlace, regions: Iterable[int], planes: int, loads: Loads) -> list[RoutedCopy]:
    """Routes by DNR. `planes`: with interest, at the publisher's host broker; elsewhere the planes of the vector that
    came along.

    Case I: some links to planes are free; copies use these, and the freest takes the vector of the others along. Case
    II: no such link is free, but a link along the tree is; the freest of these takes all. Case III: no link is free;
    the freest link to a plane takes the others along.
    """
    region, plane = here
    along = [(other, plane) for other in regions]
    across = {(region, other): 1 << other for other in planes_of(planes)}
    load = {to: loads(to) for to in (*along, *across)}
    free = [to for to in across if load[to].is_free]
    left = sum(bit for to, bit in across.items() if to not in free)
    taker: PlanePlace | None = None
    if left and free:
        taker = min(free, key=lambda to: load[to].rank)
    elif left:
        free_along = [to for to in along if load[to].is_free]
        if free_along:
            taker = min(free_along, key=lambda to: load[to].rank)
        else:
            taker = min(across, key=lambda to: load[to].rank)
            free, left = [taker], left & ~across[taker]
    return [RoutedCopy(to, left if to == taker else 0) for to in (*along, *free)]


def detour(scot: Scot, here: PlanePlace, to: int, loads: Loads, dead: Iterable[int] = ()) -> tuple[PlanePlace, ...]:
    """Returns the way round our congested or dead link to region `to`, over another plane; empty if no way is free.

    The way is a source route of three links no table is asked about, so it cannot loop. `dead`: useless planes.
    """
    region, plane = here
    avoided = {plane, *dead}
    others = [other for other in range(scot.planes) if other not in avoided and loads((region, other)).is_free]
    if not others:
        return ()
    over = min(others, key=lambda other: loads((region, other)).rank)
    return (region, over), (to, over), (to, plane)


def split_identifiers(identifiers: Sequence[H], last_hop: Mapping[H, PlanePlace]) -> dict[PlanePlace, list[H]]:
    """Groups the brokers a notification names by the next neighbour on the way to each: the baseline (BID)."""
    found: dict[PlanePlace, list[H]] = {}
    for identifier in identifiers:
        found.setdefault(last_hop[identifier], []).append(identifier)
    return found
