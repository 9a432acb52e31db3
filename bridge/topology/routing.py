"""Where a notification goes in a structured overlay: statically, dynamically, or by lists of brokers (C6, C8, C9).

Pure functions over what one broker knows: the targets that its rows give, and the load of its own links. A notification
that is routed dynamically carries a vector with a bit for every plane that still has to get it. The vector travels only
on links that are targets anyway; whoever has it sends to these planes where its own links to them are free, and hands
the rest on. With every hop the planes of the vector or the tree ahead become fewer: it ends, and nobody gets two.
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
    """One copy to a neighbour. `vector`: the planes for which whoever gets it is responsible now; 0: none."""

    to: PlanePlace
    vector: int = 0


def planes_of(vector: int) -> list[int]:
    """The planes whose bits are set."""
    return [plane for plane in range(vector.bit_length()) if vector >> plane & 1]


def static(here: PlanePlace, regions: Iterable[int], planes: int) -> list[RoutedCopy]:
    """SNR: one copy to each next region and, at the publisher's host broker, to each other plane with interest."""
    region, plane = here
    along = [RoutedCopy((other, plane)) for other in regions]
    return along + [RoutedCopy((region, other)) for other in planes_of(planes)]


def dynamic(here: PlanePlace, regions: Iterable[int], planes: int, loads: Loads) -> list[RoutedCopy]:
    """DNR. `planes`: those with interest at the publisher's host broker, else those of the vector that came along.

    Case I: some links to planes are free; these are used, and the freest takes the vector of the others along. Case
    II: none is, but one along the tree; the freest of these takes all. Case III: nothing is free; the freest link to a
    plane takes the others along.
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
    """The way round our congested or dead link to region `to`, over another plane; empty: none is free.

    A source route of three links that no table is asked about, so it cannot loop. `dead`: planes that are of no use.
    """
    region, plane = here
    avoided = {plane, *dead}
    others = [other for other in range(scot.planes) if other not in avoided and loads((region, other)).is_free]
    if not others:
        return ()
    over = min(others, key=lambda other: loads((region, other)).rank)
    return (region, over), (to, over), (to, plane)


def split_identifiers(identifiers: Sequence[H], last_hop: Mapping[H, PlanePlace]) -> dict[PlanePlace, list[H]]:
    """The baseline (BID): the brokers that a notification names, by the neighbour over which each is reached."""
    found: dict[PlanePlace, list[H]] = {}
    for identifier in identifiers:
        found.setdefault(last_hop[identifier], []).append(identifier)
    return found
