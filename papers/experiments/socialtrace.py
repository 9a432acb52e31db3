"""A month of interactions between friends, and the savings of refreshing keys less often (Figure 10).

The trace of the paper is not public: this one has its size (1.4 million interactions, 3 million users, 28.3 million
relations) and is drawn anew from a seed. Users publish by Zipf, exponent 1; so do they choose among their friends.
Brokers of users are drawn as in `dispersion`. Only counters are kept, no list of interactions. Not here: lost
messages (`retransmissions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from keys import frames
from keys.sharetree import SECRET_BYTES, TAG_BYTES
from papers.experiments.dispersion import BROKERS, REPLICAS, DispersionTree, delivered
from papers.experiments.draws import Draws, Zipf
from papers.experiments.experiments import Figure, Progress, Series

INTERACTIONS = 1_400_000
USERS = 3_000_000
FRIENDS = 19  # of one user: 28.3 million relations have two ends among 3 million users
CONTENT_BYTES = 1 << 20
REFRESH_MESSAGES = tuple(range(1, 11))
_PERIOD = lcm(*REFRESH_MESSAGES)

PAPER_SHARE_BYTES = 110
"""The paper gives no size of a share; 144 GB for 1.4 million interactions of 939 shares make this."""
PAPER_GB = {1: "144 GB", 10: "39 GB"}


def frame_bytes(nodes: int) -> int:
    """Returns the bytes of the `vmq-shares` properties a subscriber gets with a key over `nodes` virtual nodes.

    A frame comes from each replica of the last node, in base64. Beyond 4 nodes, where our keys are wrapped instead, the
    layout is continued for the sake of comparison.
    """
    opening = len(frames.opening(frames.Kind.SHARES)) + 1 + 8 * nodes + 2
    share = nodes + TAG_BYTES * (nodes - 1) + SECRET_BYTES
    frame: int = opening + REPLICAS ** (nodes - 1) * share
    return REPLICAS * -(-4 * frame // 3)  # user properties are base64


@dataclass(frozen=True, slots=True)
class Month:
    """Sums over a month for keys renewed every m messages: number of keys, shares delivered, bytes of our frames."""

    keys: int
    shares: float
    bytes: int


class SocialTrace:
    """The sums of a month of interactions. Number i of a sequence carries a key if m divides i, from 0 on."""

    def __init__(self) -> None:
        self._keys = [0] * _PERIOD
        self._shares = [0.0] * _PERIOD
        self._bytes = [0] * _PERIOD

    def add_interaction(self, number: int, hops: int) -> None:
        at = number % _PERIOD
        self._keys[at] += 1
        self._shares[at] += delivered(hops)
        self._bytes[at] += frame_bytes(hops + 1)

    def month(self, messages: int) -> Month:
        """Returns the sums for a rate. `messages`: one of `REFRESH_MESSAGES`, the messages sharing a key."""
        return Month(sum(self._keys[::messages]), sum(self._shares[::messages]), sum(self._bytes[::messages]))


def play(
    draws: Draws,
    progress: Progress,
    interactions: int,
    users: int,
    friends: int,
    brokers: int,
    fanout: int,
    alpha: float,
) -> tuple[SocialTrace, SocialTrace]:
    """Draws the month once. Returns two traces: keys of a pair of friends, keys of a publisher for all its friends."""
    distances = DispersionTree.complete(brokers, fanout).distances()
    places = Zipf(brokers, alpha)
    by_pair, by_publisher = SocialTrace(), SocialTrace()
    homes: dict[int, int] = {}
    sent: dict[int, int] = {}
    pairs: dict[int, tuple[int, int]] = {}  # interactions so far, hops
    for done in range(interactions):
        user = int((users + 1) ** draws.random())  # log-uniform, so Zipf with exponent 1
        pair = user * friends + int((friends + 1) ** draws.random()) - 1
        if user not in homes:
            homes[user] = places.draw(draws)
        number, hops = pairs.get(pair, (0, -1))
        if hops < 0:
            hops = distances[homes[user]][places.draw(draws)]
        by_pair.add_interaction(number, hops)
        by_publisher.add_interaction(sent.get(user, 0), hops)
        pairs[pair] = number + 1, hops
        sent[user] = sent.get(user, 0) + 1
        if not done & 0x3FFF:
            progress(done / interactions)
    progress(1.0)
    return by_pair, by_publisher


def figure_10(
    seed: int,
    progress: Progress,
    *,
    interactions: int = INTERACTIONS,
    users: int = USERS,
    friends: int = FRIENDS,
    brokers: int = BROKERS,
    fanout: int = 5,
    alphas: Sequence[float] = (0.5, 1.0),
    refresh_messages: Sequence[int] = REFRESH_MESSAGES,
) -> Figure:
    """Draws gigabytes of shares in a month against the refresh rate of keys, in-band and from a repository."""
    rows: list[tuple[float | str, ...]] = []
    series, means = [], []
    xs = tuple(1 / messages for messages in refresh_messages)
    for at, alpha in enumerate(alphas):

        def part(fraction: float, at: int = at) -> None:
            progress((at + fraction) / len(alphas))

        draws = Draws("figure 10", seed, str(alpha))
        by_pair, by_publisher = play(draws, part, interactions, users, friends, brokers, fanout, alpha)
        table = _table(by_pair, by_publisher, refresh_messages, interactions)
        rows += [(alpha, *row, PAPER_GB.get(m, "")) for row, m in zip(table, refresh_messages, strict=True)]
        means.append(by_pair.month(1).shares / interactions)
        for name, column in _DRAWN.items():
            series.append(Series(f"α = {alpha:g}, {name}", xs, tuple(row[column] for row in table)))
    return Figure(
        experiment="secret-forwarding",
        number="10",
        title=f"Shares of {interactions:,} interactions in a month, {brokers} brokers, fan-out {fanout}",
        x_label="keys per message",
        y_label="GB a month",
        series=tuple(series),
        columns=("alpha", *_COLUMNS, "paper"),
        rows=tuple(rows),
        notes=_notes(interactions, alphas, means),
        log_y=True,
    )


_COLUMNS = (
    "refresh", "keys per interaction", "GB", "% of content", "saved %",
    "key a publisher: GB", "key a publisher: saved %", "r^h: GB", "our frames: GB", "repository: GB",
)  # fmt: skip
_DRAWN = {"a key a pair of friends": 2, "a key a publisher": 5, "repository": 9}


def _table(
    by_pair: SocialTrace, by_publisher: SocialTrace, refresh_messages: Sequence[int], interactions: int
) -> list[tuple[float, ...]]:
    """Returns a row of `_COLUMNS` for each rate; shares count by r^(h+1) unless the name says r^h."""
    all_shares = by_pair.month(1).shares
    table: list[tuple[float, ...]] = []
    for messages in refresh_messages:
        pair, publisher = by_pair.month(messages), by_publisher.month(messages)
        share_bytes = pair.shares * PAPER_SHARE_BYTES
        table.append((
            1 / messages,
            pair.keys / interactions,
            share_bytes / 1e9,
            share_bytes / (interactions * CONTENT_BYTES) * 100,
            (1 - pair.shares / all_shares) * 100,
            publisher.shares * PAPER_SHARE_BYTES / 1e9,
            (1 - publisher.shares / all_shares) * 100,
            share_bytes / REPLICAS / 1e9,
            pair.bytes / 1e9,
            # one split to the replicas of the repository, and one share from each of them to the subscriber
            2 * REPLICAS * pair.keys * PAPER_SHARE_BYTES / 1e9,
        ))  # fmt: skip
    return table


def _notes(interactions: int, alphas: Sequence[float], means: Sequence[float]) -> tuple[str, ...]:
    shares = ", ".join(f"{mean:,.0f} at α = {alpha:g}" for alpha, mean in zip(alphas, means, strict=True))
    return (
        f"Content: {interactions * CONTENT_BYTES / 2**40:.2f} TiB of 1 MiB each (paper: 1.3 TB/month). Paper, for α = "
        "0.5: 144 GB of shares, 11 %, and 39 GB at refresh 0.1, which its text calls -79 % and its figures make -72.9 "
        "%.",
        f"Shares an interaction: {shares} (paper: 939 for α = 0.5; see the note on it at figure 9).",
        f"{PAPER_SHARE_BYTES} bytes a share follow from the paper's own 144 GB and 939 shares, so GB compare no more "
        "than shares do; what is saved does not depend on it. Our frames are those of the wire, in base64, continued "
        "beyond 4 nodes, where VeilMQ wraps keys instead.",
        "The trace of the paper is not public. What refreshing saves depends on how often two friends interact; here "
        "users publish, and choose among their friends, by Zipf with exponent 1.",
        "A key a publisher: one for all its friends, its shares go with its first message alone. A friend who gets "
        "only a later one needs them too, so this curve is a lower bound.",
    )
