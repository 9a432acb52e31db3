"""Figures of the secret-forwarding paper (000) by number, and the figures about shares as such.

`FIGURES[number](seed, progress, **sizes)` gives a `Figure`; sizes default to the paper's. Here: the attacks of
Figures 3 and 4, counted over all placements of bad replicas; growth of shares and their traffic (7); duration of
splitting (8), with a clock from outside. Elsewhere: latency over regions (`hops`), friends apart (9, `dispersion`), a
month of interactions (10, `socialtrace`), bad brokers (11, `retransmissions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from types import MappingProxyType

from keys import shamir
from papers.experiments.baselines import (
    Algorithm1,
    Algorithm2,
    Attacked,
    NetworkCoding,
    Scheme,
    Spread,
    attacked,
    coalitions,
)
from papers.experiments.dispersion import REPLICAS, figure_9
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.hops import figure_latency
from papers.experiments.retransmissions import figure_11
from papers.experiments.socialtrace import PAPER_SHARE_BYTES, figure_10, frame_bytes

EXPERIMENT = "secret-forwarding"
COUNTS = (3, 5)
HOPS = (1, 2, 3)
MB, GB = 10**6, 10**9
REFRESHES = (200 * MB, GB)
KEY_BYTES = (16, 32)  # AES-128, AES-256
PAPER_SPLIT_MS, PAPER_RECOMBINE_MS = 1.0, 5.2


def figure_3(seed: int, progress: Progress, *, counts: Sequence[int] = COUNTS, hops: Sequence[int] = HOPS) -> Figure:
    """Counts the placements in which Algorithm 1 loses its secret, or its delivery; beside it Algorithm 2."""
    schemes = {
        f"Algorithm 1, {spread.value}": _algorithm_1(spread, Draws("figure 3", seed, spread.value)) for spread in Spread
    }
    drawn = (f"Algorithm 1, {Spread.EVEN.value}",)
    notes = (
        "All placements of f = (n - 1) / 2 bad replicas in each virtual node. Reads: together they rebuild the secret "
        "from what they see while they behave. Stops: the subscriber cannot, if they drop what they get.",
        "One column each is the ideal case of the paper's text. As printed (t < k) every replica gets k shares and one "
        "bad replica suffices from the second node on; the paper's text means fewer than k.",
        "Both pictures of Figure 3, (2, 3) and (3, 5) with a next node of three, are carried out in the tests: one bad "
        "replica gets k shares because a bad one before it hands its own over.",
    )
    return _attack_figure("3", "Algorithm 1", schemes, drawn, notes, seed, progress, counts, hops)


def figure_4(seed: int, progress: Progress, *, counts: Sequence[int] = COUNTS, hops: Sequence[int] = HOPS) -> Figure:
    """Counts the placements in which network coding loses its secret, or its delivery: all blocks are needed."""

    def network_coding(counts: Sequence[int]) -> Scheme:
        return NetworkCoding(counts, Draws("figure 4", seed, *counts))

    notes = (
        "Blocks take one column each. Reading needs all n: impossible while f bad replicas a node see fewer than n "
        "columns in all, possible from three nodes on (Figure 4a, carried out in the tests).",
        "One bad replica that drops its block stops delivery. A block also is part of the secret: whoever has m of n "
        "knows all but (n - m) / n of its bits, which the paper does not say.",
        "Figure 4b is Algorithm 2: no placement reads or stops it.",
    )
    schemes = {"network coding": network_coding}
    return _attack_figure("4", "network coding", schemes, tuple(schemes), notes, seed, progress, counts, hops)


def _algorithm_1(spread: Spread, draws: Draws) -> Callable[[Sequence[int]], Scheme]:
    return lambda counts: Algorithm1(counts, spread, draws)


def _attack_figure(
    number: str,
    what: str,
    schemes: Mapping[str, Callable[[Sequence[int]], Scheme]],
    drawn: Sequence[str],
    notes: tuple[str, ...],
    seed: int,
    progress: Progress,
    counts: Sequence[int],
    hops: Sequence[int],
) -> Figure:

    def algorithm_2(counts: Sequence[int]) -> Scheme:
        return Algorithm2(counts, Draws("algorithm 2", seed, *counts))

    every = {**schemes, "Algorithm 2": algorithm_2}
    paths = [(n,) * h for n in counts for h in hops]
    tries = len(every) * sum(sum(1 for _ in coalitions(path)) for path in paths)
    done = 0

    def one_done() -> None:
        nonlocal done
        done += 1
        progress(done / tries)

    found: dict[str, dict[tuple[int, ...], Attacked]] = {
        name: {path: attacked(make(path), path, one_done) for path in paths} for name, make in every.items()
    }
    rows = tuple(
        (name, float(path[0]), float(len(path)), float(a.placements), a.read / a.placements, a.stopped / a.placements)
        for name, by_path in found.items()
        for path, a in by_path.items()
    )
    series = []
    for name in (*drawn, "Algorithm 2"):
        for n in counts:
            results = [found[name][(n,) * h] for h in hops]
            xs = tuple(map(float, hops))
            series.append(Series(f"{name}, n = {n}: reads", xs, tuple(a.read / a.placements for a in results)))
            series.append(Series(f"{name}, n = {n}: stops", xs, tuple(a.stopped / a.placements for a in results)))
    return Figure(
        experiment=EXPERIMENT,
        number=number,
        title=f"What f bad replicas in each virtual node do to {what}",
        x_label="virtual nodes on the path",
        y_label="fraction of placements",
        series=tuple(series),
        columns=("scheme", "n", "virtual nodes", "placements", "reads", "stops"),
        rows=rows,
        notes=notes,
    )


def figure_7(
    seed: int,
    progress: Progress,
    *,
    hops: Sequence[int] = (1, 2, 3, 4, 5),
    fanouts: Sequence[int] = (2, 3, 4, 5),
    refreshes: Sequence[int] = REFRESHES,
) -> Figure:
    """Counts shares of a key by path length and fan-out, and the traffic that they add to each 10^9 bytes of content.

    Nothing is drawn; `seed` is there because every figure has one. The whole tree is served: a subscriber a leaf.
    """
    del seed
    rows, series = [], [Series("one subscriber", tuple(map(float, hops)), tuple(float(REPLICAS**h) for h in hops))]
    for done, fanout in enumerate(fanouts):
        totals = tuple(float(tree_shares(h, fanout)) for h in hops)
        series.append(Series(f"whole tree, fan-out {fanout}", tuple(map(float, hops)), totals))
        for h, total in zip(hops, totals, strict=True):
            added = [total * PAPER_SHARE_BYTES * (GB / refresh) / MB for refresh in refreshes]
            ours = frame_bytes(h) * (GB / refreshes[0]) / MB
            rows.append((float(h), float(fanout), float(REPLICAS**h), total, *added, max(added) / min(added), ours))
        progress((done + 1) / len(fanouts))
    names = tuple(f"MB a GB, key each {refresh // MB} MB" for refresh in refreshes)
    own = f"one subscriber, our frames, key each {refreshes[0] // MB} MB"
    return Figure(
        experiment=EXPERIMENT,
        number="7",
        title=f"Shares of one key, {REPLICAS} replicas in each virtual node",
        x_label="virtual nodes on the path",
        y_label="shares",
        series=tuple(series),
        columns=("virtual nodes", "fan-out", "one subscriber", "whole tree", *names, "ratio", own),
        rows=tuple(rows),
        notes=(
            "Paper: shares grow exponentially with path length and fan-out; its curves are not given as numbers.",
            "Paper: keys renewed each 1 GB instead of each 200 MB make the increase about 10 times less. The number of "
            "keys is 5 times less, and so is every count that follows from it: the text and its own inputs disagree.",
            f"Whole tree: shares over every link, with a subscriber at each leaf, at {PAPER_SHARE_BYTES} bytes each "
            "(figure 10).",
            "On paths of more than 4 virtual nodes VeilMQ wraps keys instead; the fifth is for comparison.",
        ),
        log_y=True,
    )


def tree_shares(hops: int, fanout: int) -> int:
    """Returns the shares over all links of a tree with `hops` levels of nodes, and a subscriber at each leaf.

    Level l has d^(l-1) nodes. A node of level l gets r^l, a subscriber as many as its node.
    """
    nodes = [(fanout ** (level - 1), level) for level in (*range(1, hops + 1), hops)]
    return sum(int(width * REPLICAS**level) for width, level in nodes)


def figure_8(
    seed: int,
    progress: Progress,
    *,
    clock: Callable[[], float],
    counts: Sequence[int] = (3, 4, 5, 6, 7, 8, 9, 10),
    key_bytes: Sequence[int] = KEY_BYTES,
    rounds: int = 2_000,
) -> Figure:
    """Measures milliseconds to split and to recombine AES keys on `clock` (seconds, e.g. `time.perf_counter`)."""
    rows, series = [], []
    for at, size in enumerate(key_bytes):
        timed = []
        for done, count in enumerate(counts):
            draws = Draws("figure 8", seed, size, count)
            split, combine = _times(draws, count, size, rounds, clock)
            timed.append((median(split) * 1e3, median(combine) * 1e3))
            paper = "< 1 ms; 5.2 ms" if count == 10 else "< 1 ms"
            k = shamir.threshold_of(count)
            rows.append(
                (size * 8.0, float(count), float(k), *timed[-1], fmean(split) * 1e3, fmean(combine) * 1e3, paper)
            )
            progress((at + (done + 1) / len(counts)) / len(key_bytes))
        xs = tuple(map(float, counts))
        series.append(Series(f"split, AES-{size * 8}", xs, tuple(ms for ms, _ in timed)))
        series.append(Series(f"recombine, AES-{size * 8}", xs, tuple(ms for _, ms in timed)))
    return Figure(
        experiment=EXPERIMENT,
        number="8",
        title=f"Splitting and recombining a key, median of {rounds:,}",
        x_label="replicas n",
        y_label="time of one operation, ms",
        series=tuple(series),
        columns=("key bits", "n", "k", "split ms", "recombine ms", "split mean ms", "recombine mean ms", "paper"),
        rows=tuple(rows),
        notes=(
            f"Paper: split well under {PAPER_SPLIT_MS:g} ms, recombining {PAPER_RECOMBINE_MS} ms at n = 10, Java on a "
            "1.83 GHz Core 2 Duo; the shape there is that recombining is the dearer one and grows with n.",
            "Here split costs more than recombining, because it makes n shares and its operations work on whole byte "
            "strings, while the Lagrange weights of a set of places are computed once and kept.",
            "The threshold is floor(n / 2) + 1, as in the paper.",
        ),
        log_y=True,
    )


def _times(
    draws: Draws, count: int, size: int, rounds: int, clock: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Measures the seconds of every split and every recombination, each of another key."""
    threshold = shamir.threshold_of(count)
    split, combine = [], []
    for _ in range(rounds):
        secret, coefficients = draws.randbytes(size), draws.randbytes((threshold - 1) * size)
        start = clock()
        shares = shamir.split(secret, threshold, count, coefficients)
        split.append(clock() - start)
        some = dict(list(enumerate(shares, 1))[-threshold:])
        start = clock()
        found = shamir.combine(some)
        combine.append(clock() - start)
        assert found == secret, "shares do not recombine"
    return split, combine


FIGURES: Mapping[str, Callable[..., Figure]] = MappingProxyType(
    {
        "3": figure_3,
        "4": figure_4,
        "7": figure_7,
        "7-latency": figure_latency,
        "8": figure_8,
        "9": figure_9,
        "10": figure_10,
        "11": figure_11,
    }
)
"""Figures by number. All take (seed, progress); "7-latency" and "8" also need `clock`."""
