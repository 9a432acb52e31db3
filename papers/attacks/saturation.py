"""Capacity of a tree of nodes, with the guards and without: the saturation test of the EventGuard paper (E5).

A publisher is the root of a complete binary tree, 32 subscribers hang from its leaves and get everything. Each party
is a single server that takes messages in order and works on each for a time following from `loads.Costs`. In a tree
every server has a single source, so a run needs no queue of events: a message leaves when its predecessor has left and
its own work is done. Publications come at a fixed rate; link latencies are drawn, and matter for the latency alone.
Not here: several publishers, lost links.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.loads import RUNS, Costs
from papers.experiments.pubsub import one_way_ms

TREES = (0, 2, 6, 14, 30)
SUBSCRIBERS = 32
OBSERVE_S = 0.05
OBSERVATIONS = 8
RISES = 5  # observations in a row with a longer backlog: the node is saturated
PRECISION = 0.005
RATE_MAX = 1 << 22  # publications a second; stops a search among parties that work for nothing
GUARDS = {"off": "guards off", "on": "guards on", "batched": "guards on, 16 records a signature"}


@dataclass(frozen=True, slots=True)
class Work:
    """The seconds of a party for a publication, and `copy_s` more for each neighbour getting it from there."""

    publisher_s: float
    node_s: float
    subscriber_s: float
    copy_s: float

    @classmethod
    def from_costs(cls, costs: Costs, guards: str) -> Work:
        """Returns the work under `guards`, one of `GUARDS`."""
        parse_s, copy_s = costs.parse_us / 1e6, costs.write_us / 1e6
        if guards == "off":
            return cls(0.0, parse_s, parse_s, copy_s)
        batched = guards == "batched"
        sign_us = costs.batched_sign_us if batched else costs.sign_us
        verify_s = (costs.batched_verify_us if batched else costs.verify_us) / 1e6
        publisher_s = (costs.seal_us + sign_us) / 1e6
        return cls(publisher_s, parse_s + verify_s, parse_s + verify_s + costs.open_us / 1e6, copy_s)


@dataclass(frozen=True, slots=True)
class SingleServer:
    """A party. `source`: the index of its feeder, None for the publisher. `last`: it is a subscriber."""

    source: int | None
    work_s: float
    latency_s: float
    last: bool


def tree(nodes: int, subscribers: int, work: Work, draws: Draws) -> list[SingleServer]:
    """Returns the servers, sources before the servers that they feed.

    `nodes`: 2^h - 2, without the publisher, which is the root. Raises ValueError.
    """
    inner = nodes + 1
    if inner & (inner + 1):
        raise ValueError(f"{nodes} nodes and the publisher make no complete binary tree")
    first_leaf = (inner + 1) // 2
    leaves = inner - first_leaf + 1
    sources = [None, *(v // 2 - 1 for v in range(2, inner + 1))]
    sources += [first_leaf - 1 + index % leaves for index in range(subscribers)]
    copies = [0] * len(sources)
    for source in sources:
        if source is not None:
            copies[source] += 1
    servers = []
    for index, source in enumerate(sources):
        base_s = work.publisher_s if source is None else work.node_s if index < inner else work.subscriber_s
        latency_s = 0.0 if source is None else one_way_ms(draws) / 1000
        servers.append(SingleServer(source, base_s + copies[index] * work.copy_s, latency_s, index >= inner))
    return servers


def latency_at(servers: Sequence[SingleServer], rate: float, observe_s: float = OBSERVE_S) -> float | None:
    """Returns mean seconds from publication to the end of a subscriber's work; None if some backlog kept rising."""
    count = max(2, int(rate * observe_s * OBSERVATIONS) + 1)
    published = [index / rate for index in range(count)]
    left: list[list[float]] = []
    latencies = []
    for server in servers:
        came = published if server.source is None else [at + server.latency_s for at in left[server.source]]
        done, free = [], 0.0
        for at in came:
            free = (at if at > free else free) + server.work_s
            done.append(free)
        if rises(came, done, observe_s):
            return None
        if server.last:
            latencies.append(fmean(done) - fmean(published))
        left.append(done)
    return fmean(latencies)


def rises(came: Sequence[float], done: Sequence[float], observe_s: float) -> bool:
    """Returns True if the backlog rose for `RISES` observations in a row, counted from the first message on."""
    longest = before = 0
    for step in range(OBSERVATIONS + 1):
        at = came[0] + step * observe_s
        backlog = bisect_right(came, at) - bisect_right(done, at)
        longest = longest + 1 if step and backlog > before else 0
        if longest == RISES:
            return True
        before = backlog
    return False


def saturating_rate(servers: Sequence[SingleServer], observe_s: float = OBSERVE_S) -> float:
    """Returns the smallest rate a second at which some party is saturated, to `PRECISION`. Raises ValueError if
    none is.
    """
    low, high = 0.0, 64.0
    while latency_at(servers, high, observe_s) is not None:
        low, high = high, 2 * high
        if high > RATE_MAX:
            raise ValueError("no rate saturates parties that have nothing to do; give them work")
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if latency_at(servers, middle, observe_s) is None:
            high = middle
        else:
            low = middle
    return high


def figure_saturation(
    seed: int,
    progress: Progress,
    *,
    costs: Costs | None = None,
    trees: Sequence[int] = TREES,
    subscribers: int = SUBSCRIBERS,
    runs: int = RUNS,
) -> Figure:
    """Computes throughput against the size of the tree; latencies at half the rate that saturates it with guards
    on.
    """
    costs = costs or Costs()
    works = {guards: Work.from_costs(costs, guards) for guards in GUARDS}
    rates: dict[str, list[float]] = {guards: [] for guards in GUARDS}
    rows = []
    for done, nodes in enumerate(trees):
        built = {guards: tree(nodes, subscribers, works[guards], Draws("links", seed, 0, nodes)) for guards in GUARDS}
        for guards in GUARDS:
            rates[guards].append(saturating_rate(built[guards]))
        busiest_s = max(server.work_s for server in built["on"])
        off, on = (_latencies(nodes, subscribers, works[g], rates["on"][-1] / 2, seed, runs) for g in ("off", "on"))
        found = [rates[guards][-1] for guards in GUARDS]
        rows.append((float(nodes), *found, 1 / busiest_s, fmean(off), fmean(on), pstdev(on), fmean(on) - fmean(off)))
        progress((done + 1) / len(trees))
    xs = tuple(map(float, trees))
    rate_columns = ("off /s", "on /s", "batched /s", "1 / busiest, on /s")
    return Figure(
        experiment="eventguard",
        number="saturation",
        title=f"Publications a second to {subscribers} subscribers before some party saturates",
        x_label="nodes between publisher and subscribers",
        y_label="publications a second",
        series=tuple(Series(name, xs, tuple(rates[guards])) for guards, name in GUARDS.items()),
        columns=("nodes", *rate_columns, "latency off ms", "latency on ms", "sd ms", "guards add ms"),
        rows=tuple(rows),
        notes=_notes(costs),
        log_y=True,
    )


def _latencies(nodes: int, subscribers: int, work: Work, rate: float, seed: int, runs: int) -> list[float]:
    """Returns milliseconds, a single figure a run, each with links of its own."""
    found = []
    for run in range(runs):
        latency_s = latency_at(tree(nodes, subscribers, work, Draws("links", seed, run, nodes)), rate)
        assert latency_s is not None, "half of the saturating rate saturates"
        found.append(latency_s * 1000)
    return found


def _notes(costs: Costs) -> tuple[str, ...]:
    return (
        "The fragment of the paper at hand ends before its throughput and latency; they cannot be compared.",
        f"Saturated: the backlog rose for {RISES} observations in a row, {OBSERVE_S * 1000:.0f} ms apart; the paper "
        "does not say how far apart its were.",
        "Publications are evenly spaced and every party has a processor of its own, as in the paper.",
        "Waiting for a batch to fill is not in the batched figure; under such loads it fills at once.",
        f"Costs in µs: parse {costs.parse_us:.1f}, write {costs.write_us:.1f}, verify {costs.verify_us:.0f} alone and "
        f"{costs.batched_verify_us:.0f} batched, sign {costs.sign_us:.0f} and {costs.batched_sign_us:.0f}.",
    )
