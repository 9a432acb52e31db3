"""Figures of regions by their replicas: the median of each, which f liars of 2 f + 1 cannot move beyond honest values
(D2).

From the newest summary and newest interests of each replica, verified by the caller, follow link costs, processing
and counts of publications as `bridge.organising` needs them. The filter of a region is the bitwise median of its
replicas' filters. A region has no figures if too few of its replicas have spoken lately. Not here: the judgement
(`bridge.organising`), the frames (`summaries`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bridge.document import Overlay
from bridge.measuring.summaries import UNKNOWN_US, InterestSummary, ReplicaSummary
from bridge.organising import agreed, believed, estimated

OLD_INTERVALS = 3  # the age in intervals at which a summary no longer counts


class RegionCosts:
    """The costs of a moment, in microseconds a publication, weighed as the owner says; `told`: the newest summary and
    the newest interests of each replica, verified.
    """

    def __init__(self, overlay: Overlay, told: Iterable[ReplicaSummary | InterestSummary], now: float) -> None:
        self._overlay = overlay
        organising = overlay.policy.organising
        self._processing_weight = organising.processing_weight if organising else 1.0
        self._said: dict[int, dict[str, ReplicaSummary]] = {}
        interests: dict[tuple[int, int], dict[int, dict[str, bytes]]] = {}  # by end and length, and region
        for each in told:
            view = overlay.views.get(each.region)
            if view is None or each.member not in view.members or not _is_of_now(each, now):
                continue
            if isinstance(each, ReplicaSummary):
                self._said.setdefault(each.region, {})[each.member] = each
            else:
                of_interval = interests.setdefault((each.ended_s, each.interval_s), {})
                of_interval.setdefault(each.region, {})[each.member] = each.filter
        self._filters = self._agreed(interests)
        self._counts: dict[frozenset[int], float | None] = {}

    def _agreed(self, interests: Mapping[tuple[int, int], Mapping[int, Mapping[str, bytes]]]) -> dict[int, int]:
        """Returns the filter of each region in the newest interval for which all regions told enough; empty if there is
        none.
        """
        for _, told in sorted(interests.items(), reverse=True):
            if all(len(told.get(region, ())) >= 2 * view.faults + 1 for region, view in self._overlay.views.items()):
                return {region: agreed(list(told[region].values())) for region in self._overlay.views}
        return {}

    @property
    def are_interests_known(self) -> bool:
        """True if all regions told their interests of an interval."""
        return bool(self._filters)

    def concerned(self, regions: frozenset[int]) -> float | None:
        """Returns the number of publications of an interval that clients of these regions sent or got, each counted
        once; None if unknown.
        """
        if not self._filters:
            return None
        if regions not in self._counts:
            union = 0
            for region in regions:
                union |= self._filters[region]
            self._counts[regions] = estimated(union)
        return self._counts[regions]

    def spoke(self, region: int) -> int:
        """Returns the number of replicas of the view in force that have spoken lately."""
        return len(self._said.get(region, {}))

    def of_replicas(self, region: int) -> Mapping[str, ReplicaSummary]:
        """Returns the summary of each replica of a region that has spoken lately."""
        return self._said.get(region, {})

    def processing(self, region: int) -> float | None:
        """Returns the cost of a publication at a replica of the region; None if too few know."""
        known = (each.processing_us for each in self._said.get(region, {}).values())
        middle = self._middle(region, [us for us in known if us != UNKNOWN_US])
        return None if middle is None else self._processing_weight * middle

    def link_cost(self, one: int, other: int) -> float | None:
        """Returns the cost of a way of the link between two regions, by the end with the longer time; None if a single
        end does not know.
        """
        ends = [self._link_of(one, other), self._link_of(other, one)]
        known = [end for end in ends if end is not None]
        return (2 - self._processing_weight) * max(known) / 2 if len(known) == len(ends) else None

    def rate(self, home: int, end: int) -> float | None:
        """Returns the publications a second of region `home` that came for gateways of region `end`; None if
        unknown.
        """
        return self._counted(end, lambda said: dict(said.rates).get(home, 0) / said.interval_s)

    def _link_of(self, here: int, there: int) -> float | None:
        return self._counted(here, lambda said: said.link_us(there))

    def _counted(self, region: int, what: Callable[[ReplicaSummary], float | None]) -> float | None:
        values = [what(each) for each in self._said.get(region, {}).values()]
        return self._middle(region, [value for value in values if value is not None])

    def _middle(self, region: int, values: list[float] | list[int]) -> float | None:
        view = self._overlay.views.get(region)
        return None if view is None or not values else believed(values, view.faults)


def _is_of_now(said: ReplicaSummary | InterestSummary, now: float) -> bool:
    return said.ended_s - said.interval_s <= now < said.ended_s + OLD_INTERVALS * said.interval_s
