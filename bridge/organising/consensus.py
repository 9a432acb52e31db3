"""The choice of the link of a cycle to remove, by the votes of all brokers on the cycle (D5; Eqs 8 to 10 of paper D).

The simulator plays the paper's rule by this module; the overlay judges by Eq 2 (`swaps`). A new link closes a cycle
with the way that it replaces. Each broker on the cycle states its costs after each link's removal; the link goes
whose removal costs all together least. If the new link goes, nothing changes.

A region speaks by the median of its replicas (`believed`): with at most f < n / 2 liars of n the median is never
outside the honest values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bridge.organising.costs import indirect_cost


def cost_vector(
    ring: Sequence[int],
    at: int,
    common: Mapping[int, float],
    phi: float,
    link_costs: Sequence[float],
    processing: Sequence[float],
) -> list[float] | None:
    """Returns the cost (Eq 8 of paper D) to the broker at place `at` of `ring`, for each link of the cycle if removed.

    Link number i joins `ring[i]` and `ring[i + 1]`, the last link the ends. `common`: the
    publications in common with each other broker of the ring. Returns None if a needed value is unknown.
    """
    count = len(ring)
    ways: list[list[float]] = []  # going up and down: the cost of reaching each further broker
    for step in (1, -1):
        places = [(at + step * number) % count for number in range(count)]
        path = [ring[place] for place in places]
        costs = [link_costs[place if step == 1 else (place - 1) % count] for place in places[:-1]]
        taken = [processing[place] for place in places]
        way: list[float] = []
        for end in range(1, count):
            wanted = common.get(path[end])
            cost = indirect_cost(path[: end + 1], common, phi, costs, taken)
            if wanted is None or cost is None:
                return None
            way.append(wanted * cost)
        ways.append(way)
    up, down = ways
    vector = []
    for removed in range(count):
        forward = (removed - at) % count  # number of brokers before the gap, going up
        vector.append(sum(down[: count - 1 - forward], sum(up[:forward])))
    return vector


def ring_vectors(
    ring: Sequence[int],
    common: Sequence[Mapping[int, float]],
    phis: Sequence[float],
    link_costs: Sequence[float],
    processing: Sequence[float],
) -> list[list[float]] | None:
    """Returns Eq 8 of all brokers on the cycle; `common`, `phis`: of each. None if a broker does not know enough."""
    vectors = []
    for at, (known, phi) in enumerate(zip(common, phis, strict=True)):
        vector = cost_vector(ring, at, known, phi, link_costs, processing)
        if vector is None:
            return None
        vectors.append(vector)
    return vectors


def link_to_remove(vectors: Sequence[Sequence[float]], ring: Sequence[int]) -> int:
    """Returns the number of the link whose removal costs all together least (Eqs 9 and 10); of equals, the link whose
    ends come first. The last link of the ring is the new one: if chosen, nothing changes.
    """
    count = len(ring)
    totals = [sum(column) for column in zip(*vectors, strict=True)]
    return min(range(count), key=lambda at: (totals[at], *sorted((ring[at], ring[(at + 1) % count]))))


def believed(values: Sequence[float], faults: int) -> float | None:
    """Returns the value of a region by its replicas, of which at most `faults` lie: the median, which lies within the
    honest values. None if fewer than 2 f + 1 spoke, since their median might not. A silent replica may be an honest
    one whose messages are held back, so silence takes no liar out of the count.
    """
    return _median(values) if len(values) >= 2 * faults + 1 else None


def _median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]
