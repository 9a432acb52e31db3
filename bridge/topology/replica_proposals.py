"""Proposals for the next replica to attach or detach, by the reports of members about each other (A11, A12).

`placement` deals the region where replicas do the most good: failures are gamma, rates omega. The step there follows
from the part of the time a quorum of the region would be up: two more replicas, or another while the one that fails
most goes. A step is proposed at a time. A region of even size is in the middle of such a change, and is made odd again
first.

The model: each replica fails independently, as often as it did, and a spare like the median of the running ones. A
region is up while k = floor(n/2) + 1 of its n replicas are: four with k = 3 bear no more faults than three with k =
2. So the expected figure after a first step may be below the present one, and stands beside the figure at the end.

Pure. Not here: the agreement on reports (`witnesses`), signing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median_low

from bridge.topology.placement import SHARING_MIN, Path, place
from keys.shamir import threshold_of

DOWN_MIN = 1e-4
"""The least part of the time that every replica is assumed down, failed or not: a minute a week."""
GAIN_MIN = 0.1
"""The least part of a region's downtime that a change must spare: less is not worth a signature."""


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """The agreed figures of each replica: the number of failures, and the part of the time that it was down."""

    failures: Mapping[str, float]
    down: Mapping[str, float]

    def down_of(self, replica: str) -> float:
        return min(1.0, self.down.get(replica, 0.0) + DOWN_MIN)


@dataclass(frozen=True, slots=True)
class PlaceStep:
    """A step: attach a spare to a region, or detach `member` from it. The expected part of the time a quorum of the
    region is up: `before`, `after` this step, and `at_end`, after `steps` steps. `overall_*`: the part of all traffic
    finding a quorum on its whole path.
    """

    region: int
    member: str
    before: float
    after: float
    at_end: float
    steps: int
    overall_before: float
    overall_at_end: float

    @property
    def is_attach(self) -> bool:
        return not self.member


@dataclass(frozen=True, slots=True)
class _End:
    """A possible outcome for a region: replicas that leave, spares that come, and the first step."""

    detached: tuple[str, ...]
    attached: int
    first: str


def quorum_up(down: Sequence[float]) -> float:
    """Returns the probability that k of these replicas are up, each independently down for its part of the time."""
    counts = [1.0]
    for part in down:
        ups, downs = [one * (1 - part) for one in counts], [one * part for one in counts]
        counts = [a + b for a, b in zip([*downs, 0.0], [0.0, *ups], strict=True)]
    return sum(counts[threshold_of(len(down)) :]) if down else 0.0


def carried(paths: Sequence[Path], up: Mapping[int, float]) -> float:
    """Returns the part of the traffic along these paths, by their weights, that finds a quorum everywhere."""
    whole = sum(path.weight for path in paths)
    return sum(path.weight * prod(up[node] for node in path.nodes) for path in paths) / whole if whole else 1.0


def next_step(
    regions: Mapping[int, Sequence[str]],
    paths: Sequence[Path],
    figures: ReplicaFigures,
    spares: int,
    fits: Callable[[Mapping[int, int]], bool] = lambda sizes: True,
) -> PlaceStep | None:
    """Returns the next step, or None if no step is worth it. `regions`: their replicas; `paths`: over them; `fits`:
    returns True if an overlay with regions of these sizes may be signed.
    """
    up = {region: quorum_up([figures.down_of(one) for one in members]) for region, members in regions.items()}
    sizes = {region: len(members) for region, members in regions.items()}
    replicas = [figures.down_of(one) for members in regions.values() for one in members]
    typical = median_low(replicas) if replicas else DOWN_MIN
    for region in _ranked(regions, paths, figures, spares):
        members = regions[region]
        found: list[tuple[float, int, _End]] = []
        for end in _ends(members, figures, spares):
            step = sizes[region] + (-1 if end.first else 1)
            last = sizes[region] + end.attached - len(end.detached)
            if all(fits({**sizes, region: size}) for size in (step, last)):
                found.append((_up_after(members, figures, typical, end.detached, end.attached), end.attached, end))
        is_even = sizes[region] % 2 == 0
        if not found:
            continue
        at_end, _, end = max(found, key=lambda one: (one[0], -one[1]))
        if not is_even and 1 - at_end > (1 - GAIN_MIN) * (1 - up[region]):
            continue
        after = _up_after(members, figures, typical, (end.first,) if end.first else (), 0 if end.first else 1)
        steps = end.attached + len(end.detached)
        overall = carried(paths, up), carried(paths, {**up, region: at_end})
        return PlaceStep(region, end.first, up[region], after, at_end, steps, *overall)
    return None


def _ranked(
    regions: Mapping[int, Sequence[str]], paths: Sequence[Path], figures: ReplicaFigures, spares: int
) -> Iterator[int]:
    """Yields regions in the middle of a change; then regions that failed, as placement deals two spares or more to
    them.
    """
    failures = {region: sum(figures.failures.get(one, 0) for one in members) for region, members in regions.items()}
    for region, members in regions.items():
        if len(members) > SHARING_MIN and len(members) % 2 == 0:
            yield region
    whole = {region: round(count) for region, count in failures.items()}
    dealt = place(paths, max(2, spares), whole).sizes
    for region in sorted(regions, key=lambda one: (-dealt.get(one, 1), -failures[one], one)):
        if failures[region] and len(regions[region]) % 2:
            yield region


def _ends(members: Sequence[str], figures: ReplicaFigures, spares: int) -> Iterator[_End]:
    """Yields the possible outcomes of a region; `first` is the replica leaving at once, "" if a spare comes."""
    by_failing = sorted(members, key=lambda one: (figures.down_of(one), figures.failures.get(one, 0), one))
    worst = by_failing[-1]
    if len(members) % 2 == 0:
        if len(members) > SHARING_MIN:
            yield _End((worst,), 0, worst)
        if spares:
            yield _End((), 1, "")
        return
    if spares >= 2:
        yield _End((), 2, "")
    if spares:
        yield _End((worst,), 1, "")


def _up_after(
    members: Sequence[str], figures: ReplicaFigures, typical: float, detached: Sequence[str], attached: int
) -> float:
    stay = [figures.down_of(one) for one in members if one not in detached]
    return quorum_up([*stay, *[typical] * attached])
