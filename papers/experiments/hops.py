"""Latency of a message over regions, with a fresh key and a known one: the latency of figure 7 of paper A.

Replicas of a region split at a time, so one of them counts; the timed replica acts as on the path: it splits each of
its shares for the next region, really, by a clock from outside. The other costs of a hop (read, verify, write) come
from `Costs`. Links take no time: theirs is the operator's. Paper items A5 and A8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from keys import shamir
from keys.sharetree import Hop, Share, first_split, level1_values, resplit
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.loads import Costs

COUNTS = (3, 5, 7)
HOPS = (1, 2, 3, 4)
SHARES_MAX = 1_024
"""Shares of one key at a reader, the bound of an overlay: longer paths are left out."""
ROUNDS = 9


def figure_latency(
    seed: int,
    progress: Progress,
    *,
    clock: Callable[[], float],
    costs: Costs | None = None,
    counts: Sequence[int] = COUNTS,
    hops: Sequence[int] = HOPS,
    rounds: int = ROUNDS,
) -> Figure:
    """Measures latency by regions on the path and replicas in each. `clock`: seconds."""
    costs = costs or Costs()
    paths = [(n, h) for n in counts for h in hops if n**h <= SHARES_MAX]
    rows: list[tuple[float, float, float, float, float]] = []
    for done, (n, h) in enumerate(paths, 1):
        steps = [_steps_s(Draws("latency", seed, n, h, at), n, h, clock) for at in range(rounds)]
        # step by step, so that other load of the machine disturbs few
        splitting_ms = sum(median(each) for each in zip(*steps, strict=True)) * 1e3
        known_ms = _known_us(costs, h) / 1e3
        rows.append((float(n), float(h), known_ms, known_ms + splitting_ms, float(n**h)))
        progress(done / len(paths))
    series = [Series(f"fresh key, n = {n}", *_line(rows, n, 3)) for n in counts if any(row[0] == n for row in rows)]
    return Figure(
        experiment="secret-forwarding",
        number="7-latency",
        title=f"Latency over regions, links that take no time, median of {rounds}",
        x_label="regions on the path",
        y_label="latency, ms",
        series=(*series, Series("known key", *_line(rows, counts[0], 2))),
        columns=("n", "regions", "known key ms", "fresh key ms", "shares at the reader"),
        rows=tuple(rows),
        notes=(
            "Paper: latency grows with the hops and not with the replicas, since these split at the same time. It "
            "gives no numbers; the curves of its figure 7 are not in the text.",
            "Here it grows with the replicas too from the second region on: replicas split at the same time, but each "
            "holds a share from every one before it, and splits each of them.",
            "Most messages need no fresh key: one serves 64 of them by default, and they take what `known key` says.",
        ),
        log_y=True,
    )


def _line(rows: Sequence[tuple[float, ...]], count: int, column: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    of_count = [row for row in rows if row[0] == count]
    return tuple(row[1] for row in of_count), tuple(row[column] for row in of_count)


def _known_us(costs: Costs, hops: int) -> float:
    """Returns the microseconds of a message whose key everybody has.

    It is sealed and signed, verified and written in each region, opened.
    """
    return costs.seal_us + costs.sign_us + hops * (costs.parse_us + costs.verify_us + costs.write_us) + costs.open_us


def _steps_s(draws: Draws, count: int, regions: int, clock: Callable[[], float]) -> list[float]:
    """Measures the seconds of each step of a key's way.

    Steps are the publisher's split, a single replica's of each region but the last, and the reader's recombination.
    """
    threshold = shamir.threshold_of(count)
    hops = [Hop(region, 1, threshold, count) for region in range(1, regions + 1)]
    secret, seed, digest = draws.randbytes(32), draws.randbytes(32), draws.randbytes(32)
    coefficients = draws.randbytes((threshold - 1) * 32)
    start = clock()
    shares = first_split(secret, hops[0], coefficients)
    steps = [clock() - start]
    for hop in hops[1:]:
        by_place: dict[int, list[Share]] = {}
        for share in shares:
            by_place.setdefault(share.label[-1].place, []).append(share)
        start = clock()
        split = [resplit(share, digest, hop, seed) for share in by_place.pop(1)]
        steps.append(clock() - start)
        split += [resplit(share, digest, hop, seed) for others in by_place.values() for share in others]
        shares = [share for each in split for share in each]
    first = tuple(range(1, threshold + 1))
    start = clock()
    values = level1_values(shares, hops, (first,) * (regions - 1))
    found = shamir.combine({place: value for place, value in values.items() if value and place <= threshold})
    steps.append(clock() - start)
    assert found == secret, "shares do not recombine"
    return steps
