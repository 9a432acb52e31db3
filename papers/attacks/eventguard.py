"""START HERE for the EventGuard experiments (E1 to E5, paper 001): Figures 4 and 5, and the list of all of them.

Both count on the network of `pubsub` the crossings of bad nodes, so that no message need be followed alone; the
effect of a crossing is not assumed but tried, on real bytes by `forgery` and a real gateway by `attacked_reader`
(Figure 4), and on a real replica by `firsthop` (Figure 5). Figure 6 is in `loads`, the saturation test in
`saturation`: these two have the costs of operations as an input. Table 1 is measured (`primitives`). Everything else
follows from the seed.

Table 1 of the EventGuard paper: the speed of the cryptographic primitives, theirs and ours, by a clock from outside.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median, pstdev

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys.identity import Identity, verify
from papers.attacks.attacked_reader import AttackedReader
from papers.attacks.firsthop import first_honest_node
from papers.attacks.forgery import Transit
from papers.attacks.saturation import figure_saturation
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series, mean_of
from papers.experiments.loads import RUNS, figure_6
from papers.experiments.pubsub import BrokerPlacement, NetworkSize, PubSubNetwork, attackers, components, marked

ROUNDS = 21
CALLS = 50
SMALL_BYTES, LARGE_BYTES = 16, 1_024
PAPER = {
    ("hash", SMALL_BYTES): 2.0, ("hash", LARGE_BYTES): 61.0,
    ("keyed hash", SMALL_BYTES): 1.5, ("keyed hash", LARGE_BYTES): 49.0,
    ("encryption", LARGE_BYTES): 10.0, ("sign", 0): 714.0, ("verify", 0): 588.0,
}  # fmt: skip
"""The paper's numbers, by primitive and bytes of a block: MB/s; of a signature: a second."""
OURS = {
    "hash": "SHA-256", "keyed hash": "HMAC-SHA-256", "encryption": "AES-256-GCM", "sign": "Ed25519", "verify": "Ed25519"
}  # fmt: skip
THEIRS = {
    "hash": "MD5", "keyed hash": "HMAC-MD5", "encryption": "AES-128-CBC", "sign": "ElGamal 512",
    "verify": "ElGamal 512",
}  # fmt: skip


def figure_primitives(
    seed: int, progress: Progress, *, clock: Callable[[], float], rounds: int = ROUNDS, calls: int = CALLS
) -> Figure:
    """Measures the table. `clock`: seconds."""
    work = _work(Draws("primitives", seed))
    rows = []
    for done, ((primitive, size), paper) in enumerate(PAPER.items(), 1):
        a_second = 1 / median(_call_s(work[primitive, size], clock, calls) for _ in range(rounds))
        ours = a_second * size / 1e6 if size else a_second
        unit = f"MB/s of {size} bytes" if size else "a second"
        rows.append((primitive, OURS[primitive], THEIRS[primitive], unit, ours, paper))
        progress(done / len(PAPER))
    xs = tuple(map(float, range(len(rows))))
    return Figure(
        experiment="eventguard",
        number="table-1",
        title=f"How fast the primitives are, median of {rounds} rounds",
        x_label="row of the table",
        y_label="MB/s, or signatures a second",
        series=(Series("ours", xs, tuple(row[4] for row in rows)), Series("paper", xs, tuple(row[5] for row in rows))),
        columns=("primitive", "here", "in the paper", "unit", "ours", "paper"),
        rows=tuple(rows),
        notes=(
            "Paper: Java 1.5 on a Pentium III of 900 MHz. Ours: Python calling OpenSSL on this machine; what a call "
            "costs by itself is in it, so small blocks are far from what the processor could do.",
            "An Ed25519 signature costs less to make than to verify; with ElGamal of 512 bits it was about the same.",
        ),
        log_y=True,
    )


def _work(draws: Draws) -> dict[tuple[str, int], Callable[[], object]]:
    key = draws.randbytes(32)
    blocks = {size: draws.randbytes(size) for size in (SMALL_BYTES, LARGE_BYTES)}
    cipher, identity = AESGCM(key), Identity.generate(draws.randbytes(32))
    nonces = iter(range(1 << 63))
    signature, public = identity.sign("table", blocks[LARGE_BYTES]), identity.public_bytes
    work: dict[tuple[str, int], Callable[[], object]] = {}
    for size, block in blocks.items():
        work["hash", size] = partial(_hash, block)
        work["keyed hash", size] = partial(hmac.digest, key, block, "sha256")
    work["encryption", LARGE_BYTES] = lambda: cipher.encrypt(next(nonces).to_bytes(12), blocks[LARGE_BYTES], None)
    work["sign", 0] = lambda: identity.sign("table", blocks[LARGE_BYTES])
    work["verify", 0] = lambda: verify(public, "table", blocks[LARGE_BYTES], signature)
    return work


def _hash(block: bytes) -> bytes:
    return hashlib.sha256(block).digest()


def _call_s(work: Callable[[], object], clock: Callable[[], float], calls: int) -> float:
    start = clock()
    for _ in range(calls):
        work()
    return (clock() - start) / calls


FRACTIONS = tuple(step / 20 for step in range(11))
SAMPLED_MESSAGES = 40  # messages a run and fraction that are attacked in earnest
FLOOD_ROUNDS = 50  # publications a run that an honest replica gets between forged ones
FLOOD_RATE, PUBLISH_RATE = 100.0, 25.0
REPLICAS, FAULTS = 3, 1
GUARDED = {
    "EventGuard-sparse": (BrokerPlacement.SPARSE, False),
    "EventGuard-cluster-1": (BrokerPlacement.CLUSTER_1, False),
    "EventGuard-cluster-10": (BrokerPlacement.CLUSTER_10, False),
    "cluster-1, relayed": (BrokerPlacement.CLUSTER_1, True),
}
"""The placement of attackers, and True if adjacent attackers pass on each other's floods."""
SHORT_PATH = 4  # regions on a path of few regions


# -------------------------------------------------------------------------------------------------- Figure 4


def figure_4(seed: int, progress: Progress, *, size: NetworkSize | None = None, runs: int = RUNS) -> Figure:
    """Counts deliveries whose confidentiality or integrity a bad node on their way can violate, by fraction of bad
    nodes.
    """
    size = size or NetworkSize()
    sizes = {f"N={share}": replace(size, subscribers=size.subscribers // part) for share, part in _shares(size)}
    names = (*sizes, "EventGuard", "VeilMQ, shares only")
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    attacked, plain_violated = 0, 0
    for run in range(runs):
        for name, smaller in sizes.items():
            network = PubSubNetwork(smaller, Draws("network", seed, run, smaller.subscribers))
            order = attackers(network, BrokerPlacement.SPARSE, Draws("attackers", seed, run, smaller.subscribers))
            found[name].append([violated(network, marked(order, _count(p, network), network.nodes)) for p in FRACTIONS])
        # The last of the sizes is the full one, which the guarded figures are for.
        samples = [guarded_sample(network, order, p, Draws("sample", seed, run, at)) for at, p in enumerate(FRACTIONS)]
        found["EventGuard"].append([broken / SAMPLED_MESSAGES for _, broken in samples])
        attacked += sum(crossing for crossing, _ in samples)
        plain = Transit(Draws("plain", seed, run), guarded=False)
        plain_violated += sum(plain.attack().violated for _ in range(SAMPLED_MESSAGES))
        found["VeilMQ, shares only"].append(replicated(network, Draws("replicas", seed, run)))
        progress((run + 1) / runs)
    control = f"{plain_violated} of {runs * SAMPLED_MESSAGES}"
    return Figure(
        experiment="eventguard",
        number="4",
        title=f"Messages violated between publisher and subscriber ({mean_of(runs, 'run')})",
        x_label="fraction of bad nodes",
        y_label="fraction of messages",
        series=_series(found),
        columns=_columns(found),
        rows=_rows(found),
        notes=_notes_4(attacked, control),
    )


def _shares(size: NetworkSize) -> list[tuple[str, int]]:
    """Returns the paper's 1K, 4K and 8K subscribers, in the proportion of the full size."""
    return [(_thousands(size.subscribers // part), part) for part in (8, 2, 1)]


def _thousands(count: int) -> str:
    return f"{count // 1024}K" if count % 1024 == 0 else str(count)


def _count(fraction: float, network: PubSubNetwork) -> int:
    return round(fraction * network.nodes)


def violated(network: PubSubNetwork, bad: Sequence[bool]) -> float:
    """Returns the fraction of deliveries crossing a node with `bad[v]`. Clean ones stay inside a single part of good
    nodes.
    """
    top = components(network.nodes, [not each for each in bad])
    reachable: Counter[tuple[int, int]] = Counter((top[leaf], topic) for leaf, topic in network.subscriptions)
    clean = 0.0
    for home, topics in zip(network.publisher_at, network.publishes, strict=True):
        if top[home]:
            clean += sum(reachable[top[home], topic] for topic in topics) / len(topics)
    total = network.deliveries()
    return 1 - clean / total if total else 0.0


def replicated(network: PubSubNetwork, draws: Draws) -> list[float]:
    """Returns `violated` by fraction, where every node is a region of 3 replicas and bad once more than f = 1 are."""
    replicas = list(range(network.nodes * REPLICAS))
    draws.shuffle(replicas)
    fractions = []
    for p in FRACTIONS:
        bad = Counter(replica // REPLICAS + 1 for replica in replicas[: round(p * len(replicas))])
        fractions.append(violated(network, [bad[v] > FAULTS for v in range(network.nodes + 1)]))
    return fractions


def guarded_sample(network: PubSubNetwork, order: list[int], fraction: float, draws: Draws) -> tuple[int, int]:
    """Counts, of `SAMPLED_MESSAGES` random deliveries, crossings of a bad node, and crossings that it reads or
    alters.
    """
    bad = marked(order, _count(fraction, network), network.nodes)
    transit, reader = Transit(draws, guarded=True), AttackedReader(draws)
    crossing = broken = 0
    for _ in range(SAMPLED_MESSAGES):
        publisher = draws.randrange(len(network.publisher_at))
        leaves = network.leaves_of[draws.choice(network.publishes[publisher])]
        if leaves and any(bad[v] for v in network.path(network.publisher_at[publisher], draws.choice(leaves))):
            crossing += 1
            read = transit.attack().violated
            broken += reader.attack() or read
    return crossing, broken


def _notes_4(attacked: int, control: str) -> tuple[str, ...]:
    region = [3 * p * p * (1 - p) + p**3 for p in (0.05, 0.25, 0.5)]
    short = ", ".join(f"{1 - (1 - q) ** SHORT_PATH:.3f}" for q in region)
    return (
        f"EventGuard: {attacked} sampled messages crossed a bad node that tried to read, alter, forge and repeat them, "
        "on their way to a gateway of ours, with all replicas of the region and all shares in its hands; "
        f"the same attacks without guards violated {control}.",
        "Paper: a small rise of a small p costs many messages, more so with more subscribers; EventGuard keeps all. "
        "Its curves are not given as numbers.",
        "Where publishers are attached is not said: here to leaves, as subscribers are. A message is one delivery, on "
        "the tree's own path; nodes are half as many as subscribers.",
        "VeilMQ, shares only: each node a region of 3 replicas, which reads once two are bad, and even then alters "
        "nothing; where it takes an epoch key, too, it reads nothing either, as the EventGuard line shows.",
        f"With {SHORT_PATH} regions on a path instead of the tree's many, p = 0.05, 0.25 and 0.5 make that {short}.",
    )


# -------------------------------------------------------------------------------------------------- Figure 5


def figure_5(seed: int, progress: Progress, *, size: NetworkSize | None = None, runs: int = RUNS) -> Figure:
    """Counts the bandwidth of honest parties that floods take, by fraction of bad nodes.

    With and without guards, by placement.
    """
    size = size or NetworkSize()
    found: dict[str, list[list[float]]] = {name: [] for name in ("Siena", *GUARDED)}
    tried = passed = true = 0
    for run in range(runs):
        at_node = first_honest_node(Draws("flood", seed, run), FLOOD_ROUNDS)
        tried, passed, true = tried + at_node.tried, passed + at_node.forged, true + at_node.true
        network = PubSubNetwork(size, Draws("network", seed, run, size.subscribers))
        orders = {p: attackers(network, p, Draws("attackers", seed, run, size.subscribers)) for p in BrokerPlacement}
        for name, line in flooded(network, orders, at_node.fraction).items():
            found[name].append(line)
        progress((run + 1) / runs)
    return Figure(
        experiment="eventguard",
        number="5",
        title=f"Bandwidth lost to floods, {size.subscribers} subscribers ({mean_of(runs, 'run')})",
        x_label="fraction of bad nodes",
        y_label="fraction of bandwidth",
        series=_series(found),
        columns=_columns(found),
        rows=_rows(found),
        notes=_notes_5(tried, passed, true, runs * FLOOD_ROUNDS),
    )


def flooded(network: PubSubNetwork, orders: Mapping[BrokerPlacement, list[int]], leak: float) -> dict[str, list[float]]:
    """Returns a single run's lines of Figure 5. `leak`: the part of a flood an honest node was seen to pass on."""
    wanted = network.receptions()
    lines: dict[str, list[float]] = {name: [] for name in ("Siena", *GUARDED)}
    for p in FRACTIONS:
        bads = {place: marked(order, _count(p, network), network.nodes) for place, order in orders.items()}
        floods = {place: unguarded(network, bad) for place, bad in bads.items()}
        sparse = BrokerPlacement.SPARSE
        lines["Siena"].append(wasted(network, bads[sparse], wanted, floods[sparse]))
        for name, (place, relayed) in GUARDED.items():
            first = first_hop(network, bads[place], relayed=relayed)
            beyond = leak * max(0.0, floods[place] - first)
            lines[name].append(wasted(network, bads[place], wanted, first + beyond))
    return lines


def wasted(network: PubSubNetwork, bad: Sequence[bool], wanted: Sequence[float], flood: float) -> float:
    """Returns the part of floods in all receptions of honest nodes and subscribers. Bad nodes pass on genuine ones.

    `wanted`: of `Network.receptions`; `flood`: receptions in the time in which each attacker sends a single forgery.
    """
    copies = sum(each for each, lies in zip(wanted, bad, strict=True) if not lies) + network.deliveries()
    genuine = PUBLISH_RATE * copies
    return FLOOD_RATE * flood / (FLOOD_RATE * flood + genuine)


def unguarded(network: PubSubNetwork, bad: Sequence[bool]) -> float:
    """Counts receptions by honest parties if a single publication of every attacker, on any topic, goes to all that
    want it.
    """
    below = [0] * (network.nodes + 1)
    for v in range(network.nodes, 0, -1):
        below[v] += bad[v]
        if v > 1:
            below[v // 2] += below[v]
    total = below[1]
    received = total * len(network.subscriptions)
    for v in range(2, network.nodes + 1):
        if not bad[v]:
            received += (total - below[v]) * network.down[v].bit_count()
        if not bad[v // 2]:
            received += below[v] * network.up[v].bit_count()
    return received / network.size.topics


def first_hop(network: PubSubNetwork, bad: list[bool], *, relayed: bool) -> float:
    """Counts receptions by honest parties if every honest node drops forgeries: only attackers' neighbours, once each.

    `relayed`: attackers touching each other pass on each other's floods, beyond their own rate.
    """
    top = components(network.nodes, bad)
    strength = Counter(top)
    received = 0
    for v in range(1, network.nodes + 1):
        if bad[v]:
            hit = len(network.wanted_at[v]) + sum(w.bit_count() for n, w in network.topics_by_link(v) if not bad[n])
            received += hit * (strength[top[v]] if relayed else 1)
    return received / network.size.topics


def _notes_5(tried: int, passed: int, true: int, published: int) -> tuple[str, ...]:
    return (
        f"An honest replica was sent {tried} forged publications of ten kinds and passed on {passed}; of {published} "
        f"true ones among them it passed on {true}.",
        "Paper: no flood gets beyond one honest node, so clustered attackers cost much less than scattered ones. Its "
        "curves are not given as numbers.",
        "Bandwidth is what honest nodes and subscribers receive; links between two attackers are their own affair. An "
        "attacker's rate is what it sends, whoever invented it, on topics drawn evenly.",
        "Relayed: if attackers in one cluster pass on each other's floods without bound, each neighbour of the cluster "
        "pays for all of them. Signatures stop a flood behind that neighbour; only a budget of the link would stop it.",
    )


# --------------------------------------------------------------------------------------------------- tables


def _mean_and_sd(found: Mapping[str, list[list[float]]], at: int) -> list[float]:
    cells = []
    for runs in found.values():
        values = [run[at] for run in runs]
        cells += [fmean(values), pstdev(values)]
    return cells


def _series(found: Mapping[str, list[list[float]]]) -> tuple[Series, ...]:
    return tuple(
        Series(name, FRACTIONS, tuple(fmean(run[at] for run in runs) for at in range(len(FRACTIONS))))
        for name, runs in found.items()
    )


def _columns(found: Mapping[str, list[list[float]]]) -> tuple[str, ...]:
    return ("p", *(column for name in found for column in (name, "sd")))


def _rows(found: Mapping[str, list[list[float]]]) -> tuple[tuple[float, ...], ...]:
    return tuple((p, *_mean_and_sd(found, at)) for at, p in enumerate(FRACTIONS))


FIGURES: Mapping[str, Callable[..., Figure]] = {
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "saturation": figure_saturation,
    "table-1": figure_primitives,
}
"""Figures by the paper's numbers. Each takes `(seed, progress)` and, by keyword, sizes and where it counts work the
`costs`.
"""
