"""Work of each party: the cost of each operation, and Figure 6 of the EventGuard paper (E3).

`Costs` are microseconds of a core. The defaults were measured once on a small shared virtual machine; the command line
measures the real operations anew and passes them in, since nothing here reads a clock. Not here: queues under such
loads (`saturation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series, mean_of
from papers.experiments.pubsub import NetworkSize, PubSubNetwork

RUNS = 5
RATIOS = tuple(step / 4 for step in range(17))
SAMPLED_STATEMENTS = 200  # subscriptions a run whose way towards their publishers is walked


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of an operation on a publication of some hundred bytes."""

    parse_us: float = 2.0
    """Read one PUBLISH."""
    write_us: float = 1.0
    """Write it to one neighbour."""
    seal_us: float = 11.0
    """Header, content and its digest; without a signature."""
    open_us: float = 6.0
    sign_us: float = 36.0
    """A signature over one header of its own."""
    batched_sign_us: float = 2.3
    """A header's part of a signature over 16."""
    verify_us: float = 125.0
    """Decode and verify a header under a signature of its own."""
    batched_verify_us: float = 7.8
    derive_us: float = 2.5
    """The epoch key of one scope."""
    statement_us: float = 38.0
    """Make and sign a statement of a subscription."""
    check_statement_us: float = 115.0
    """Decode and verify one statement."""
    tcp_us: float = 12.0
    """Carry one packet over a loopback: system calls of both sides."""
    udp_us: float = 9.0
    """Carry one datagram over a loopback: system calls of both sides."""


@dataclass(frozen=True, slots=True)
class LoadReach:
    """The mean effect of a publication or statement: nodes working on it, subscribers getting it."""

    nodes: float
    subscribers: float
    statement_nodes: float


PARTIES = ("key service", "publisher", "subscriber", "node, statements to publishers", "node, statements to all")


def loads(ratio: float, reach: LoadReach, size: NetworkSize, costs: Costs) -> tuple[float, ...]:
    """Returns the microseconds of work for an operation of the whole system, of one of each of `PARTIES`.

    `ratio`: subscriptions for a publication, with as many unsubscriptions; together they are a single operation.
    """
    published = 1 / (1 + 2 * ratio)
    subscribed = ratio * published
    service = subscribed * (2 * costs.check_statement_us + 2 * costs.sign_us + costs.derive_us)
    publisher = published * (costs.seal_us + costs.sign_us) / size.publishers
    received = published * reach.subscribers * (costs.verify_us + costs.open_us)
    subscriber = (received + 2 * subscribed * costs.statement_us) / size.subscribers
    nodes = [
        (published * reach.nodes * costs.verify_us + 2 * subscribed * statement_nodes * costs.check_statement_us)
        / size.nodes
        for statement_nodes in (reach.statement_nodes, size.nodes)
    ]
    return service, publisher, subscriber, *nodes


def reach_of(network: PubSubNetwork, draws: Draws) -> LoadReach:
    """Counts the reach on a network. Statements go to all nodes between the subscriber and the publishers of its
    topic.
    """
    homes: dict[int, list[int]] = {}
    for home, topics in zip(network.publisher_at, network.publishes, strict=True):
        for topic in topics:
            homes.setdefault(topic, []).append(home)
    informed = []
    for _ in range(SAMPLED_STATEMENTS):
        leaf, topic = draws.choice(network.subscriptions)
        informed.append(len({leaf}.union(*(network.path(leaf, home) for home in homes.get(topic, ())))))
    publishers = network.size.publishers
    return LoadReach(sum(network.receptions()) / publishers, network.deliveries() / publishers, fmean(informed))


def figure_6(
    seed: int, progress: Progress, *, costs: Costs | None = None, size: NetworkSize | None = None, runs: int = RUNS
) -> Figure:
    """Draws the work of each party against the ratio of subscriptions to publications.

    Their sum is constant; a node at 0 is 1.
    """
    size, costs = size or NetworkSize(), costs or Costs()
    by_run: list[list[tuple[float, ...]]] = []
    for run in range(runs):
        reach = reach_of(PubSubNetwork(size, Draws("network", seed, run)), Draws("statements", seed, run))
        unit = loads(0, reach, size, costs)[-1]
        by_run.append([tuple(load / unit for load in loads(ratio, reach, size, costs)) for ratio in RATIOS])
        progress((run + 1) / runs)
    means = [[fmean(run[at][party] for run in by_run) for at in range(len(RATIOS))] for party in range(len(PARTIES))]
    spread = [
        max(pstdev([run[at][party] for run in by_run]) for party in range(len(PARTIES))) for at in range(len(RATIOS))
    ]
    return Figure(
        experiment="eventguard",
        number="6",
        title=f"Load of the key service beside the others ({size.nodes} nodes, {mean_of(runs, 'run')})",
        x_label="subscriptions per publication",
        y_label="work, in that of a node at 0",
        series=tuple(Series(name, RATIOS, tuple(ys)) for name, ys in zip(PARTIES, means, strict=True)),
        columns=("ratio", *PARTIES, "largest sd"),
        rows=tuple((ratio, *column, sd) for ratio, *column, sd in zip(RATIOS, *means, spread, strict=True)),
        notes=_notes(costs, means),
        log_y=True,
    )


def _notes(costs: Costs, means: Sequence[Sequence[float]]) -> tuple[str, ...]:
    crossing = next((ratio for ratio, load in zip(RATIOS, means[0], strict=True) if load > 1), None)
    where = "at no ratio" if crossing is None else f"from a ratio of {crossing:g} on"
    return (
        f"Here one key service works more than a node at 0 {where}; several share the load without talking to each "
        "other (E3).",
        "Paper: the key service's load is small where publications dominate, the publisher's falls, a node's is almost "
        "constant, a subscriber's is far below a node's. Its curves are not given as numbers.",
        "A node's load is constant only if statements reach as many nodes as publications do: it falls where they go "
        "to the publishers of their topic alone, and rises where every node hears them, as ours do.",
        f"Costs in µs: verify {costs.verify_us:.0f}, sign {costs.sign_us:.0f}, check a statement "
        f"{costs.check_statement_us:.0f}, seal {costs.seal_us:.1f}, open {costs.open_us:.1f}, derive "
        f"{costs.derive_us:.1f}.",
    )
