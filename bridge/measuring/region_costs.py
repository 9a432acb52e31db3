"""What regions say by their replicas: of each figure the median, which f liars of 2 f + 1 move nowhere (D2).

The newest summary of each replica, verified before it comes here, and from them link costs, processing and common
interest as `bridge.organising` wants them. A region of whose replicas too few have spoken lately has no figures; then
nothing is judged that touches it. Not here: who judges (`bridge.organising`), the frames (`summaries`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bridge.document import Overlay
from bridge.measuring.summaries import UNKNOWN_US, ReplicaSummary
from bridge.organising import believed

OLD_INTERVALS = 3  # a summary that ended so many intervals ago says nothing of now


class RegionCosts:
    """Costs of one moment, in microseconds a publication; `summaries`: by replica, the newest, verified."""

    def __init__(self, overlay: Overlay, summaries: Iterable[ReplicaSummary], now: float) -> None:
        self._overlay = overlay
        self._said: dict[int, dict[str, ReplicaSummary]] = {}
        for each in summaries:
            view = overlay.views.get(each.region)
            if view is not None and each.member in view.members and _is_of_now(each, now):
                self._said.setdefault(each.region, {})[each.member] = each

    def spoke(self, region: int) -> int:
        """How many replicas of the view in force have spoken lately."""
        return len(self._said.get(region, {}))

    def of_replicas(self, region: int) -> Mapping[str, ReplicaSummary]:
        """What each of them said."""
        return self._said.get(region, {})

    def processing(self, region: int) -> float | None:
        """What a publication costs a replica of the region; None if too few know."""
        known = (each.processing_us for each in self._said.get(region, {}).values())
        return self._middle(region, [us for us in known if us != UNKNOWN_US])

    def link(self, one: int, other: int) -> float | None:
        """One way of the link between two regions, as the end says for which it takes longer; None if one of them
        does not know."""
        ends = [self._link_of(one, other), self._link_of(other, one)]
        known = [end for end in ends if end is not None]
        return max(known) / 2 if len(known) == len(ends) else None

    def common(self, region: int) -> dict[int, float]:
        """What the region has in common with each other of which that is known, itself included."""
        others = {other for each in self._said.get(region, {}).values() for other, _ in each.common}
        found = {other: self._counted(region, lambda said, other=other: dict(said.common).get(other))  # type: ignore[misc]
                 for other in others}  # fmt: skip
        return {other: count for other, count in found.items() if count is not None}

    def rate(self, home: int, end: int) -> float | None:
        """Publications of region `home` that came for gateways of region `end`, a second."""
        return self._counted(end, lambda said: dict(said.rates).get(home, 0) / said.interval_s)

    def _link_of(self, here: int, there: int) -> float | None:
        return self._counted(here, lambda said: said.link_us(there))

    def _counted(self, region: int, what: Callable[[ReplicaSummary], float | None]) -> float | None:
        values = [what(each) for each in self._said.get(region, {}).values()]
        return self._middle(region, [value for value in values if value is not None])

    def _middle(self, region: int, values: list[float] | list[int]) -> float | None:
        view = self._overlay.views.get(region)
        return None if view is None or not values else believed(values, view.faults)


def _is_of_now(said: ReplicaSummary, now: float) -> bool:
    ended = said.interval * said.interval_s
    return ended - said.interval_s <= now < ended + OLD_INTERVALS * said.interval_s
