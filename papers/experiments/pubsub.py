"""The network of the EventGuard simulation: a binary tree, topics by popularity, clients at leaves, attackers.

Source: paper 001, section 5.1.1 (E4). Nodes are numbered as a heap: the parent of v is v // 2, the root is 1, and
entry 0 of every list is unused. Publications take the tree's own paths, without a detour over the root. Sets of topics
are integers, a bit a topic, so that what a subtree wants is one `or`. Counting only: `forgery` handles bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from papers.experiments.draws import Draws, Zipf

RTT_MIN_MS, RTT_MAX_MS = 24.0, 184.0
RTT_BETA = (0.375, 0.825)
"""Mean 74 ms and standard deviation 50 ms on that range make a U-shaped beta distribution: many short links and some
long ones, as between stub and transit networks. No truncated normal or exponential distribution spreads so far."""


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """The size of a run; the defaults are the paper's. Nodes are half as many as subscribers, and grow with them."""

    subscribers: int = 8192
    publishers: int = 32
    topics: int = 128
    topics_a_publisher: int = 16
    topics_a_subscriber: int = 4
    zipf_alpha: float = 1.0

    @property
    def nodes(self) -> int:
        return self.subscribers // 2


class BrokerPlacement(Enum):
    """The placement of attackers: anywhere, or in that many connected clusters."""

    SPARSE = 0
    CLUSTER_1 = 1
    CLUSTER_10 = 10


def one_way_ms(draws: Draws) -> float:
    """Draws half of a round trip of the paper's links."""
    return (RTT_MIN_MS + (RTT_MAX_MS - RTT_MIN_MS) * draws.beta(*RTT_BETA)) / 2


class PubSubNetwork:
    """The nodes, publishers, subscribers and their topics in a single run."""

    def __init__(self, size: NetworkSize, draws: Draws) -> None:
        self.size = size
        self.nodes = size.nodes
        leaves = range(self.nodes // 2 + 1, self.nodes + 1)
        popularity = Zipf(size.topics, size.zipf_alpha)
        self.publisher_at = [draws.choice(leaves) for _ in range(size.publishers)]
        self.publishes = [self._any_topics(draws) for _ in range(size.publishers)]
        self.subscriptions: list[tuple[int, int]] = []  # (leaf, topic)
        self.wanted_at: list[list[int]] = [[] for _ in range(self.nodes + 1)]
        for _ in range(size.subscribers):
            leaf = draws.choice(leaves)
            for topic in popularity.distinct(draws, size.topics_a_subscriber):
                self.subscriptions.append((leaf, topic))
                self.wanted_at[leaf].append(topic)
        self.leaves_of: list[list[int]] = [[] for _ in range(size.topics)]
        for leaf, topic in self.subscriptions:
            self.leaves_of[topic].append(leaf)
        self._sum_up()

    def _any_topics(self, draws: Draws) -> tuple[int, ...]:
        topics = list(range(self.size.topics))
        draws.shuffle(topics)
        return tuple(topics[: self.size.topics_a_publisher])

    def _sum_up(self) -> None:
        """Sums topics up: `down[v]` wanted in the subtree of v; `up[v]` wanted beyond its link to the parent."""
        here = [0] * (2 * self.nodes + 2)
        for leaf, topic in self.subscriptions:
            here[leaf] |= 1 << topic
        self.down = list(here)
        for v in range(self.nodes, 1, -1):
            self.down[v // 2] |= self.down[v]
        self.up = [0] * (self.nodes + 1)
        for v in range(2, self.nodes + 1):
            self.up[v] = self.up[v // 2] | here[v // 2] | self.down[v ^ 1]

    def topics_by_link(self, v: int) -> list[tuple[int, int]]:
        """Returns pairs of (neighbour, topics that are wanted in its direction)."""
        up = [(v // 2, self.up[v])] if v > 1 else []
        return up + [(child, self.down[child]) for child in (2 * v, 2 * v + 1) if child <= self.nodes]

    def path(self, a: int, b: int) -> list[int]:
        """Returns the nodes from a to b, both included, over their nearest common ancestor."""
        left, right = [a], [b]
        while left[-1] != right[-1]:
            side = left if left[-1] > right[-1] else right
            side.append(side[-1] // 2)
        return left + right[-2::-1]

    def receptions(self) -> list[float]:
        """Returns the copies of publications each node gets while each publisher publishes one.

        A publisher divides itself evenly over its topics. Its own node gets all; others get the topics wanted beyond
        them.
        """
        copies = [0.0] * (self.nodes + 1)
        for home, topics in zip(self.publisher_at, self.publishes, strict=True):
            mask, share = sum(1 << topic for topic in topics), 1 / len(topics)
            copies[home] += 1
            steps = [(home, neighbour, wanted & mask) for neighbour, wanted in self.topics_by_link(home)]
            while steps:
                before, v, wanted = steps.pop()
                if not wanted:
                    continue
                copies[v] += wanted.bit_count() * share
                steps += [(v, n, beyond & wanted) for n, beyond in self.topics_by_link(v) if n != before]
        return copies

    def deliveries(self) -> float:
        """Returns the number of deliveries to subscribers while each publisher publishes one."""
        return sum(sum(len(self.leaves_of[topic]) for topic in topics) / len(topics) for topics in self.publishes)


def attackers(network: PubSubNetwork, placement: BrokerPlacement, draws: Draws) -> list[int]:
    """Returns all nodes in the order in which they turn bad: the first p * nodes are the attackers at fraction p.

    Clusters grow breadth-first from random nodes, each by one node in turn.
    """
    nodes = list(range(1, network.nodes + 1))
    draws.shuffle(nodes)
    if placement is BrokerPlacement.SPARSE:
        return nodes
    order, taken = [], [False] * (network.nodes + 1)
    growing = [_growth(network, seed, taken) for seed in nodes[: placement.value]]
    while growing:
        for cluster in list(growing):
            v = next(cluster, None)
            if v is None:
                growing.remove(cluster)
            else:
                order.append(v)
    return order


def _growth(network: PubSubNetwork, seed: int, taken: list[bool]) -> Iterator[int]:
    """Yields the nodes of a cluster, nearest first, that no other cluster took before."""
    waiting = deque([seed])
    while waiting:
        v = waiting.popleft()
        if not taken[v]:
            taken[v] = True
            yield v
            waiting += [neighbour for neighbour, _ in network.topics_by_link(v) if not taken[neighbour]]


def marked(order: list[int], count: int, nodes: int) -> list[bool]:
    """Returns `bad[v]` for the first `count` of an order."""
    bad = [False] * (nodes + 1)
    for v in order[:count]:
        bad[v] = True
    return bad


def components(nodes: int, member: list[bool]) -> list[int]:
    """Returns for each node with `member[v]` the topmost node of its connected part; 0 for the others."""
    top = [0] * (nodes + 1)
    for v in range(1, nodes + 1):
        if member[v]:
            top[v] = top[v // 2] or v
    return top
