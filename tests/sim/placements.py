"""Whole overlays with a coalition of liars in them, and what is promised of every run (docs/protocol.md §1).

A run is a path of regions, a publisher in the first and readers in the first and the last, bad replicas with their
behaviours, and a reader of another scope, `nosy`, who tells the liars all that it gets. `assert_promises` checks
delivery, secrecy and blame at once: whatever the liars did, every reader got every publication, unaltered, once and in
order; what the liars received from honest senders is a part of what `linearview` says they may see, which does not
determine the secret; and whoever was named is one of them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bridge.contract.machine import Acked, Effect, Event, Machine, Received, Wire
from bridge.document.policy import Scope
from bridge.topology import peers_of
from bridge.wire.pieces import PROPERTY_PART
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, KeyHeader, Mode, check_share, from_property
from keys.sharetree import Label, decode_shares
from papers.sim.adversary import Adversary, Behaviour, Coalition
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import EventTrace, Kernel
from tests.sim.linearview import Bad, Overlay, Path, Rows, Span, faulty
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

BURSTS_S = (5.0, 70.0)  # a data key lives for 60 s, so each burst has one of its own
IN_A_BURST = 5
AFTER_S = 50.0  # more than DELAY_MAX_S and REPAIR_S
READERS = ("near", "control")
MARK = b"not for replicas"  # in every payload


@dataclass
class Recorder:
    """Notes what its node receives; `deaf` to acknowledgements of some peers, who so seem not to give them."""

    machine: Machine
    deaf: Collection[str] = ()
    received: list[Received] = field(default_factory=list)

    @property
    def next_deadline(self) -> float | None:
        return self.machine.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if isinstance(event, Received):
            self.received.append(event)
        if isinstance(event, Acked) and event.peer in self.deaf:
            return []
        return self.machine.handle(event, now)


class Rushing(Kernel):
    """The network is the adversary's too: what liars send arrives at once, what honest nodes send takes its time."""

    liars: Collection[str] = ()

    def _arrival(self, source: str, target: str) -> float:
        return self.now if source in self.liars else super()._arrival(source, target)


@dataclass
class Run:
    """A finished run: what was published, what came of it, and what each liar and `nosy` received."""

    overlays: Mapping[int, Overlay]  # as the publishers of each home region split
    bad: Bad
    liars: Mapping[str, Collection[Behaviour]]
    traffic: Traffic
    trace: EventTrace
    received: dict[str, list[Received]]

    def lags_s(self, reader: str) -> list[float]:
        """How long each publication that the reader got was on its way."""
        delivered = zip(self.trace.delivered[reader], self.trace.delivered_at[reader], strict=True)
        return [at - delivery.publication.time_ms / 1000 for delivery, at in delivered]


def name(region: int, place: int) -> str:
    """As `world` names the replica."""
    return f"r{region}{chr(96 + place)}"


def everywhere(bad: Bad, behaviours: Collection[Behaviour]) -> dict[str, frozenset[Behaviour]]:
    """All bad replicas lie in the same ways."""
    return {name(region, place): frozenset(behaviours) for region, places in bad.items() for place in places}


def random_bad(counts: Sequence[int], rng: random.Random) -> dict[int, tuple[int, ...]]:
    return {region: tuple(sorted(rng.sample(range(1, n + 1), faulty(n)))) for region, n in enumerate(counts, 1)}


def mixture(bad: Bad, rng: random.Random, most: int = 4) -> dict[str, frozenset[Behaviour]]:
    """Each bad replica lies in one to `most` ways of its own."""
    every = list(Behaviour)
    return {
        liar: frozenset(rng.sample(every, 1 + rng.randrange(most)))
        for region, places in bad.items()
        for liar in (name(region, place) for place in places)
    }


def run(
    counts: Sequence[int],
    bad: Bad,
    liars: Mapping[str, Collection[Behaviour]],
    seed: int = 1,
    probability: float = 1.0,
    mute: bool = False,
    bursts_s: Sequence[float] = BURSTS_S,
    mode: Mode = Mode.COPIES,
    extra_bytes: int = 0,
) -> Run:
    """Bursts of publications past the liars. `mute`: they never acknowledge anything to the publisher either. `mode`:
    how content travels, which it does by planes only if `extra_bytes` make it too long to ride along."""
    overlay = Overlay.line(counts)
    last = len(counts)
    edges = [(region, region + 1) for region in range(1, last)]
    gateways = {"site": 1, "near": 1, "control": last, "nosy": last}
    scopes = [Scope("plant/#", mode), Scope("open/#", mode)]
    world = make_world(dict(overlay.counts), edges, gateways, scopes, rights={"nosy": ((), ("open/#",))})
    rng = random.Random(seed)
    recorders: dict[str, Recorder] = {}
    kernel = kernel_of(world, bad, liars, rng, probability, mute, recorders)
    for reader in READERS:
        subscribe(kernel, reader, "plant/#")
    subscribe(kernel, "nosy", "open/#")
    traffic = Traffic("site")
    for start in bursts_s:
        for number in range(IN_A_BURST):
            payload = MARK + b"%d" % number + rng.randbytes(extra_bytes)
            when = NOW + start + number * 0.05
            traffic.publish(kernel, when, f"plant/{number % 2}", payload, number % 3, retain=number == 3)
        traffic.publish(kernel, NOW + start, "open/x", b"open")
    trace = kernel.run(NOW + bursts_s[-1] + AFTER_S)
    received = {name: recorder.received for name, recorder in recorders.items() if name in (*liars, "nosy")}
    return Run({1: overlay}, bad, liars, traffic, trace, received)


def kernel_of(
    world: World,
    bad: Bad,
    liars: Mapping[str, Collection[Behaviour]],
    rng: random.Random,
    probability: float,
    mute: bool,
    recorders: dict[str, Recorder],
) -> Kernel:
    """A kernel of all nodes, the liars among them, each in a recorder that is put into `recorders`."""
    coalition = Coalition({name(region, place): (region, place) for region in bad for place in bad[region]}, rng)

    def make(member: str) -> Machine:
        node = world.node(member, rng)
        if member in liars:
            node = Adversary(node, liars[member], rng, probability, coalition=coalition)
        recorders[member] = Recorder(node, deaf=frozenset(liars) if mute and member == "site" else ())
        return recorders[member]

    members = world.overlay.members
    makers = {member: partial(make, member) for member in members}
    kernel = Rushing(makers, {member: peers_of(world.overlay, member) for member in members}, rng, NOW)
    kernel.liars = liars.keys()
    kernel.start()
    return kernel


# -------------------------------------------------------------------------------------------------- promises


def assert_promises(done: Run) -> None:
    """Delivery, secrecy, blame."""
    for reader in READERS:
        delivered = done.trace.delivered.get(reader, [])
        check_safety(done.traffic.published, delivered)
        check_liveness([n for n, it in done.traffic.published.items() if it.topic != "open/x"], delivered)
        assert not any(delivery.late for delivery in delivered), f"{reader}: out of order"
    check_blame(done.trace.named_members(), done.liars)
    assert_secret(done)


def seen_by(done: Run) -> dict[bytes, tuple[KeyHeader, dict[Path, set[bytes]]]]:
    """By key id: its header, and the values that liars got from honest senders, by the path that their labels say.

    `nosy` may have the shares of what it reads; whatever else it has is here.
    """
    seen: dict[bytes, tuple[KeyHeader, dict[Path, set[bytes]]]] = {}
    for receiver, received in done.received.items():
        for event in received:
            properties = dict(event.wire.properties)
            if event.peer in done.liars or PROPERTY_SHARES not in properties:
                continue
            header = KeyHeader.decode(from_property(properties[PROPERTY_KEY]))
            if receiver == "nosy" and header.scope == "open/#":
                continue
            for share in decode_shares(from_property(properties[PROPERTY_SHARES])):
                seen.setdefault(header.key_id, (header, {}))[1].setdefault(_path(share.label), set()).add(share.value)
    return seen


def _path(label: Label) -> Path:
    return tuple((place.region, place.place) for place in label)


def assert_secret(done: Run) -> None:
    """No honest sender gave a liar a clear word or a share of another place, one not split anew, two for one label."""
    trees = {home: Rows(overlay) for home, overlay in done.overlays.items()}
    for rows in trees.values():
        assert rows.of[()] not in Span(rows.view(done.bad))
    allowed = {path for rows in trees.values() for path in rows.received(done.bad)}
    for header, paths in seen_by(done).values():
        assert allowed.issuperset(paths), f"shares of other places: {sorted(set(paths) - allowed)[:3]}"
        assert all(len(values) == 1 for values in paths.values())
        for path, (value, *_) in paths.items():
            assert len(path) == 1 or not check_share(header, path[0][1], value), f"{path} was not split anew"
    for liar, received in done.received.items():
        assert not any(_holds(event.wire, MARK) for event in received), f"{liar} read a payload"


def _holds(wire: Wire, mark: bytes) -> bool:
    frames = [from_property(value) for name, value in wire.properties if name != PROPERTY_PART]
    return any(mark in data for data in (wire.payload, *frames))
