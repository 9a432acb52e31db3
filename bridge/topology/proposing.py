"""Which replica to attach or detach next, by what members witnessed of each other: placement while it runs (A11, A12).

Where replicas do the most good is dealt by `placement`: failures are gamma, rates omega. What is done there follows
from how often a quorum of the region would be up: two more replicas, or one more and the one that fails most goes. One
step is proposed at a time. A region of even size is in the middle of such a change, and is made odd again first.

Each replica is taken to fail by itself, as it did, and a spare as the middle one of those that run. A region is up
while k = floor(n/2) + 1 of its n replicas are: four with k = 3 bear no more than three with k = 2, so what is expected
of a first step may be less than before it, and is said beside what is expected of its end.

Pure. Not here: what counts of what members say (`witnesses`), signing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median_low

from bridge.topology.placement import SHARING_MIN, Path, place
from keys.shamir import threshold_of

DOWN_MIN = 1e-4
"""Nothing runs for ever: a minute a week is taken off every replica, failed or not."""
GAIN_MIN = 0.1
"""What a change spares of the time that a region is not available, at least: less is not worth a signature."""


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """What counts of each replica: how often it failed, and the part of the time that it was down."""

    failures: Mapping[str, float]
    down: Mapping[str, float]

    def down_of(self, replica: str) -> float:
        return min(1.0, self.down.get(replica, 0.0) + DOWN_MIN)


@dataclass(frozen=True, slots=True)
class PlaceStep:
    """Attach a spare to a region, or detach `member` from it. The expected part of the time that a quorum of the region
    is up: before, after this step, and after `steps` of them, which is what it is for. `overall_*`: of what is carried,
    the part that finds a quorum on its whole path."""

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
    """What a region becomes: replicas that leave and spares that come, and what is done first."""

    detached: tuple[str, ...]
    attached: int
    first: str


def quorum_up(down: Sequence[float]) -> float:
    """The probability that k of these replicas are up, each down by itself for such a part of the time."""
    counts = [1.0]
    for part in down:
        ups, downs = [one * (1 - part) for one in counts], [one * part for one in counts]
        counts = [a + b for a, b in zip([*downs, 0.0], [0.0, *ups], strict=True)]
    return sum(counts[threshold_of(len(down)) :]) if down else 0.0


def carried(paths: Sequence[Path], up: Mapping[int, float]) -> float:
    """Of what goes along these paths, by their weights, the part that finds a quorum everywhere."""
    whole = sum(path.weight for path in paths)
    return sum(path.weight * prod(up[node] for node in path.nodes) for path in paths) / whole if whole else 1.0


def next_step(
    regions: Mapping[int, Sequence[str]],
    paths: Sequence[Path],
    figures: ReplicaFigures,
    spares: int,
    fits: Callable[[Mapping[int, int]], bool] = lambda sizes: True,
) -> PlaceStep | None:
    """What to do next, or None if nothing is worth it. `regions`: their replicas; `paths`: over them; `fits`: whether
    an overlay with regions of these sizes may be signed."""
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
    """Regions in the middle of a change; then those that failed, as placement deals two spares or more to them."""
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
    """What may become of a region; the first name is who leaves at once, "" if a spare comes."""
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
