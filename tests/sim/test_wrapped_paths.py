"""Theorems 1 to 3 of secret forwarding over long ways (A5; docs/protocol.md §3.5), and whole overlays with liars.

The functions of `keys` that replicas and readers run are enumerated here: f bad replicas of each region with all wraps
reach no secret, whatever the placement (Theorem 1); a reader opens with whatever honest ones pass on (2), and with
nothing less (3). Then real machines under the simulator, whose liars also attack what is new: wraps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import product

import pytest

from bridge.contract.machine import Effect, Event, Machine, Received, Send, Wire
from bridge.document.policy import Refresh, Scope
from bridge.node import GatewayNode
from bridge.reader import key_opening
from bridge.wire import KEYS_TOPIC
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS, KeyHeader, Mode, from_property, to_property
from keys.sharetree import Hop, decode_shares
from keys.wrapping import Wrap, decode_wraps, encode_wraps
from papers.sim.adversary import Behaviour, each_wrap
from papers.sim.checkers import check_blame, check_liveness, check_safety
from tests.keys.wrapped import Bad, Way, derived, garbage
from tests.seldom import slow
from tests.sim.placements import MARK, everywhere, name, random_bad, run, seen_by
from tests.sim.test_restarts import lives_of
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(2)

LENGTHS = (5, 7, 10)
WAYS = {count: Way((3,) * count) for count in LENGTHS}


def placements(count: int, many: int = 0) -> list[Bad]:
    """All placements of one bad replica in each of `count` regions of three, or so many of them at random."""
    if not many:
        return [{at: (place,) for at, place in enumerate(places)} for places in product((1, 2, 3), repeat=count)]
    rng = random.Random(count)
    return [{at: (rng.randrange(1, 4),) for at in range(count)} for _ in range(many)]


# ------------------------------------------------------------------------------------------- by enumeration


@pytest.mark.parametrize(("count", "many"), [(5, 0), (7, 100), (10, 60)])
def test_no_coalition_of_f_a_region_derives_the_secret(count: int, many: int) -> None:
    """243 placements on five regions, and some of the 2,187 and 59,049: by the live functions, to a fixed point."""
    for bad in placements(count, many):
        assert not derived(WAYS[count], bad)


@pytest.mark.slow
def test_no_coalition_of_f_in_seven_regions_derives_the_secret() -> None:
    for bad in placements(7):
        assert not derived(WAYS[7], bad)


def test_no_coalition_in_regions_of_other_sizes_derives_the_secret() -> None:
    way = Way((3, 5, 3, 5, 4))
    for first, second in product(((1, 2), (2, 4), (3, 5), (1, 5)), repeat=2):
        assert not derived(way, {0: (2,), 1: first, 2: (3,), 3: second, 4: (1,)})


@pytest.mark.parametrize("count", LENGTHS)
def test_one_more_in_any_region_derives_it(count: int) -> None:
    """So the closure can tell. In the first region and behind it, up to the last."""
    for at in range(count):
        assert derived(WAYS[count], {at: (1, 3)})
        assert not derived(WAYS[count], {at: (1,)})


def test_a_placement_of_f_in_all_and_one_more_in_one_region_derives_it() -> None:
    for at in range(5):
        assert derived(WAYS[5], dict.fromkeys(range(5), (2,)) | {at: (2, 3)})


@pytest.mark.parametrize("spoil", [garbage, lambda value: None], ids=["spoiled", "silent"])
@pytest.mark.parametrize(("count", "many"), [(5, 60), (7, 30), (10, 15)])
def test_a_reader_opens_whatever_f_a_region_do(count: int, many: int, spoil: Callable[[bytes], bytes | None]) -> None:
    for bad in placements(count, many):
        assert Way((3,) * count, bad, spoil).opens


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("spoil", [garbage, lambda value: None], ids=["spoiled", "silent"])
def test_with_fewer_honest_ones_than_k_in_a_region_nobody_opens(
    at: int, spoil: Callable[[bytes], bytes | None]
) -> None:
    assert not Way((3,) * 5, {at: (1, 3)}, spoil).opens


def test_who_has_all_wraps_and_fewer_than_k_shares_of_any_key_opens_nothing() -> None:
    way = WAYS[5]
    search = way.search()
    search.add_wraps(way.wraps)
    search.add_shares(share for share in way.told if share.label[1].place == 2)
    assert search.search(10**9, {}) is None
    assert not search.rows


# ----------------------------------------------------------------------------------------- whole overlays


def line(count: int, n: int = 3, **more: object) -> World:
    edges = [(region, region + 1) for region in range(1, count)]
    gateways = {"site": 1, "near": 1, "second": 2, "third": 3, "control": count}
    return make_world(dict.fromkeys(range(1, count + 1), n), edges, gateways, **more)  # type: ignore[arg-type]


READERS = ("near", "second", "third", "control")


def deliver(world: World, seed: int, wrapper: Callable[[str, Machine], Machine] | None = None, burst: int = 6):
    """Publications past whoever lies; every reader gets every one, once, in order. Returns the trace."""
    kernel = world.kernel(random.Random(seed))
    if wrapper is not None:
        kernel.nodes.update({member: wrapper(member, node) for member, node in kernel.nodes.items()})
    for reader in READERS:
        subscribe(kernel, reader, "plant/#")
    traffic = Traffic("site")
    for start in (5.0, 70.0):  # a key each
        for number in range(burst):
            payload = b"%d %d" % (start, number)
            traffic.publish(kernel, NOW + start + number * 0.4, f"plant/{number % 3}", payload, qos=number % 3,
                            retain=number == 4)  # fmt: skip
    trace = kernel.run(NOW + 130)
    for reader in READERS:
        check_safety(traffic.published, trace.delivered[reader])
        check_liveness(traffic.published, trace.delivered[reader])
    return trace


@pytest.mark.parametrize("count", [5, *slow(LENGTHS[1:]), 16])
def test_honest_replicas_deliver_over_long_ways(count: int) -> None:
    trace = deliver(line(count), count)
    assert not trace.blamed


LIES = [Behaviour.SHARES, Behaviour.STRIP, Behaviour.DROP, Behaviour.FOREIGN_KEY, Behaviour.REPLAY, Behaviour.LABELS,
        Behaviour.COLLUDE, Behaviour.EQUIVOCATE, Behaviour.FRAME]  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.value)
@pytest.mark.parametrize("count", [5, *slow([7, 10])])
def test_a_liar_in_each_region_loses_nobody_anything_and_frames_nobody(count: int, lie: Behaviour) -> None:
    rng = random.Random(f"{count}{lie}")
    world = line(count)
    world.liars = {name(region, rng.randrange(1, 4)): frozenset({lie}) for region in range(1, count + 1)}
    check_blame(deliver(world, 1).named_members(), world.liars)


@pytest.mark.parametrize(
    ("count", "seed"),
    [(7, 2), *(pytest.param(c, s, marks=pytest.mark.slow) for c, s in product(LENGTHS, range(4, 10)))],
)
def test_mixed_liars_over_long_ways(count: int, seed: int) -> None:
    rng = random.Random(seed)
    world = line(count)
    ways = [way for way in Behaviour if way not in (Behaviour.FLOOD, Behaviour.PULLS, Behaviour.DELAY)]
    world.liars = {name(region, rng.randrange(1, 4)): frozenset(rng.sample(ways, 2)) for region in range(1, count + 1)}
    check_blame(deliver(world, seed).named_members(), world.liars)


def test_constant_liars_are_named_however_long_the_way_is() -> None:
    """Ten regions of three have 59,049 explanations, which nobody lists."""
    liars = {name(region, 1 + region % 3) for region in (1, 4, 7)}
    trace = deliver(line(10), 5, lambda member, node: Spoiling(node, shares=garbage) if member in liars else node)
    assert trace.named_members() == liars


# --------------------------------------------------------------------------------------- attacks on wraps


@dataclass
class Spoiling:
    """A replica whose wraps and shares are changed on their way out."""

    machine: Machine
    wraps: Callable[[bytes, str], bytes | None] = lambda frame, peer: frame
    shares: Callable[[bytes], bytes | None] | None = None
    told: int = 0
    overlay: object = None

    def __post_init__(self) -> None:
        self.overlay = self.machine.overlay  # type: ignore[attr-defined]

    @property
    def next_deadline(self) -> float | None:
        return self.machine.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        return [self._changed(effect) if isinstance(effect, Send) else effect
                for effect in self.machine.handle(event, now)]  # fmt: skip

    def _changed(self, send: Send) -> Send:
        properties: list[tuple[str, str]] = []
        for key, value in send.wire.properties:
            changed: bytes | None = from_property(value) if key in (PROPERTY_SHARES, PROPERTY_WRAPS) else b""
            if key == PROPERTY_WRAPS:
                changed = self.wraps(changed or b"", send.peer)
                self.told += 1
            elif key == PROPERTY_SHARES and self.shares is not None:
                changed = changed[:-32] + (self.shares(changed[-32:]) or b"") if changed else None
            if changed is not None:
                properties.append((key, to_property(changed) if changed else value))
        wire = Wire(send.wire.topic, send.wire.payload, send.wire.qos, send.wire.retain, tuple(properties))
        return Send(send.peer, wire, send.ticket)


def differing(frame: bytes, peer: str) -> bytes:
    """Other sealed bytes to each receiver."""
    return each_wrap(frame, lambda wrap: wrap._replace(sealed=garbage(wrap.sealed + peer.encode())[:52]))


def half(frame: bytes, peer: str) -> bytes:
    """The truth to some, and one lie to the others."""
    return each_wrap(frame, lambda wrap: wrap if peer[-1] == "a" else wrap._replace(sealed=garbage(wrap.sealed)))


def relabelled(frame: bytes, peer: str) -> bytes:
    """Wraps of other places, which nobody sealed."""

    def other(wrap: Wrap) -> Wrap:
        sender = wrap.name.sender
        return wrap._replace(name=wrap.name._replace(sender=sender % 3 + 1))

    return each_wrap(frame, other)


def foreign_region(frame: bytes, peer: str) -> bytes:
    def other(wrap: Wrap) -> Wrap:
        return wrap._replace(name=wrap.name._replace(owner=wrap.name.owner._replace(region=99)))

    return each_wrap(frame, other)


def foreign_view(frame: bytes, peer: str) -> bytes:
    def other(wrap: Wrap) -> Wrap:
        return wrap._replace(name=wrap.name._replace(owner=wrap.name.owner._replace(view=99)))

    return each_wrap(frame, other)


class Replayed:
    """Wraps of the first key that passed, beside every later one, under the later one's name."""

    def __init__(self) -> None:
        self.first = b""

    def __call__(self, frame: bytes, peer: str) -> bytes:
        self.first = self.first or frame
        return self.first[:3] + frame[3:19] + self.first[19:]


ATTACKS: dict[str, Callable[[], Callable[[bytes, str], bytes | None]]] = {
    "to each another": lambda: differing,
    "to some another": lambda: half,
    "of other senders": lambda: relabelled,
    "of another region": lambda: foreign_region,
    "of another view": lambda: foreign_view,
    "of another key": lambda: lambda frame, peer: frame[:3] + bytes(16) + frame[19:],
    "replayed": Replayed,
    "cut": lambda: lambda frame, peer: frame[:-1],
    "longer": lambda: lambda frame, peer: frame + b"\0",
    "too many": lambda: lambda frame, peer: frame[:28] + b"\xff\xff" + frame[30:] + bytes(40_000),
    "none": lambda: lambda frame, peer: None,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_on_wraps_by_one_of_each_region_loses_nobody_anything(attack: str) -> None:
    rng = random.Random(attack)
    world = line(6)
    liars = {name(region, rng.randrange(1, 4)): Spoiling for region in range(2, 7)}
    made: list[Spoiling] = []

    def wrapper(member: str, node: Machine) -> Machine:
        if member not in liars:
            return node
        made.append(Spoiling(node, wraps=ATTACKS[attack]()))
        return made[-1]

    check_blame(deliver(world, 3, wrapper).named_members(), liars)
    assert sum(liar.told for liar in made) > 50


@pytest.mark.parametrize("place", [1, 2, 3])
def test_liars_at_one_place_of_all_regions_say_alike_forged_wraps(place: int) -> None:
    """The worst for votes: one voice in each region for the very same forgery of everybody's wraps."""
    world = line(7)
    liars = {name(region, place) for region in range(2, 8)}

    def forged(frame: bytes, peer: str) -> bytes:
        return each_wrap(frame, lambda wrap: wrap._replace(sealed=garbage(repr(wrap.name).encode() * 9)[:52]))

    trace = deliver(world, 4, lambda member, node: Spoiling(node, wraps=forged) if member in liars else node)
    check_blame(trace.named_members(), liars)


def test_were_one_voice_enough_forgeries_would_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the votes above are what keeps them out: f + 1 equal words, and not one."""
    for module in ("bridge.replica.wrapping", "bridge.reader.key_opening"):
        monkeypatch.setattr(f"{module}.honest_needed", lambda hop: 1)
    bad = dict.fromkeys(range(1, 8), (1,))
    done = run((3,) * 7, bad, everywhere(bad, {Behaviour.SHARES}), bursts_s=(5.0,))
    sealed = [number for number, it in done.traffic.published.items() if it.topic != "open/x"]
    with pytest.raises(AssertionError, match="were lost"):
        check_liveness(sealed, done.trace.delivered.get("control", []))


def test_two_liars_of_one_region_stop_it() -> None:
    """So delivery above can fail."""
    world = line(5)
    liars = {name(3, 1), name(3, 2)}
    with pytest.raises((AssertionError, KeyError)):
        deliver(world, 4, lambda member, node: Spoiling(node, wraps=differing) if member in liars else node)


# ----------------------------------------------------------------------------------------- what is on wires


@dataclass
class Listening:
    """Notes what comes to its node."""

    machine: Machine
    received: list[Received] = field(default_factory=list)
    overlay: object = None

    def __post_init__(self) -> None:
        self.overlay = self.machine.overlay  # type: ignore[attr-defined]

    @property
    def next_deadline(self) -> float | None:
        return self.machine.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if isinstance(event, Received):
            self.received.append(event)
        return self.machine.handle(event, now)


def listened(count: int, names: Collection[str], **more: object) -> dict[str, Listening]:
    """What came to some members of a row of regions."""
    heard: dict[str, Listening] = {}

    def wrapper(member: str, node: Machine) -> Machine:
        return heard.setdefault(member, Listening(node)) if member in names else node

    deliver(line(count, **more), 7, wrapper)
    return heard


def test_a_replica_is_sent_n_values_a_key_at_its_own_place_however_far_it_is() -> None:
    places = {name(region, 1 + region % 3): (region, 1 + region % 3) for region in range(1, 11)}
    for member, heard in listened(10, places).items():
        region, place = places[member]
        labels: dict[bytes, set[tuple[tuple[int, int], ...]]] = {}
        for event in heard.received:
            told = dict(event.wire.properties)
            if PROPERTY_SHARES in told:
                header = KeyHeader.decode(from_property(told[PROPERTY_KEY]))
                assert header.wrapped
                shares = decode_shares(from_property(told[PROPERTY_SHARES]))
                labels.setdefault(header.key_id, set()).update(
                    tuple((one.region, one.place) for one in share.label) for share in shares
                )
        before = [((region - 1, sender),) for sender in (1, 2, 3)] if region > 1 else [()]
        assert labels
        assert all(told == {(*first, (region, place)) for first in before} for told in labels.values())


@pytest.mark.parametrize(("count", "n"), [(5, 3), (4, 5), pytest.param(6, 5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("retain", [False, True])
def test_no_link_carries_a_longer_packet_than_the_publishers_own(count: int, n: int, retain: bool) -> None:
    """Shares and wraps grow on the way. A content that just fits at home would find a link that takes it no more."""
    world = line(count, n, scopes=[Scope("plant/#", mode=Mode.COPIES)])
    kernel = world.kernel(random.Random(13))
    heard = {member: Listening(kernel.nodes[member]) for member in world.overlay.members}
    kernel.nodes.update(heard)
    for reader in ("near", "control"):
        subscribe(kernel, reader, "plant/#")
    traffic = Traffic("site")
    for number in range(2):
        traffic.publish(kernel, NOW + 5 + number, "plant/1", bytes([number]) * 1_000_000, qos=1, retain=retain)
    trace = kernel.run(NOW + 60)
    check_liveness(traffic.published, trace.delivered["control"])
    bytes_of = {member: max(_wire_bytes(event.wire) for event in each.received) for member, each in heard.items()
                if each.received}  # fmt: skip
    site: GatewayNode = heard["site"].machine  # type: ignore[assignment]
    bound = site.packet_bytes(next(iter(traffic.published.values())))
    assert max(bytes_of.values()) <= bound


def _wire_bytes(wire: Wire) -> int:
    """An upper bound of the packet: fixed header, lengths and packet id take less than 16 bytes."""
    properties = sum(5 + len(key) + len(value.encode()) for key, value in wire.properties)
    return 16 + len(wire.topic.encode()) + len(wire.payload) + properties


def test_on_ways_of_four_regions_nothing_is_wrapped() -> None:
    heard = listened(4, ["control", name(4, 1)])
    told = [dict(event.wire.properties) for each in heard.values() for event in each.received]
    keys = [KeyHeader.decode(from_property(one[PROPERTY_KEY])) for one in told if PROPERTY_KEY in one]
    assert keys
    assert not any(key.wrapped for key in keys)
    assert not any(PROPERTY_WRAPS in one for one in told)


def test_keys_on_a_topic_of_their_own_are_wrapped_too() -> None:
    scopes = [Scope("plant/#", keys_on_topic=True)]
    world = line(6, scopes=scopes)
    world.liars = {name(region, 1 + region % 3): frozenset({Behaviour.SHARES}) for region in range(1, 7)}
    check_blame(deliver(world, 8).named_members(), world.liars)


# ------------------------------------------------------------------------------------- restarts and changes


def test_replicas_and_a_reader_that_start_anew_lose_nothing() -> None:
    """One of each region in turn, in the middle of a key, and the reader while half of the wraps are there."""
    world = line(6)
    kernel = world.kernel(random.Random(9))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for number in range(60):
        traffic.publish(kernel, NOW + 5 + number * 0.5, f"plant/{number % 3}", b"%d" % number)
    kernel.run(NOW + 6)
    for region in range(1, 7):
        victim = name(region, 1 + region % 3)
        kernel.run(kernel.now + 2.5)
        kernel.crash(victim)
        kernel.run(kernel.now + 1.5)
        kernel.restart(victim)
    trace = kernel.run(NOW + 90)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), ())


def test_a_late_reader_gets_the_keys_in_use_with_their_wraps() -> None:
    world = line(7)
    kernel = world.kernel(random.Random(10))
    subscribe(kernel, "near", "plant/#")
    traffic = Traffic("site")
    for number in range(40):
        traffic.publish(kernel, NOW + 5 + number * 0.5, f"plant/{number % 3}", b"%d" % number, retain=number == 2)
    kernel.run(NOW + 12)
    subscribe(kernel, "control", "plant/#", NOW + 12)
    trace = kernel.run(NOW + 60)
    late = [n for n, it in traffic.published.items() if it.time_ms > 1000 * (NOW + 14)]
    assert len(late) > 15
    check_liveness(late, trace.delivered["control"])


@pytest.mark.parametrize(
    "lies",
    [*slow([set(), {Behaviour.SHARES}]), {Behaviour.REPLAY, Behaviour.DUPLICATE}],
    ids=["honest", "shares", "repeats"],
)
@pytest.mark.parametrize("seed", [0, *slow([1])])
def test_a_reader_that_dies_at_any_moment_goes_on_where_it_ended(seed: int, lies: set[Behaviour]) -> None:
    """What it acknowledged of a key it has on disk: shares, and each neighbour's word on wraps."""
    rng = random.Random(f"{seed}{len(lies)}")
    world = line(5, scopes=[Scope("plant/#", refresh=Refresh(messages=8))])
    world.liars = {name(region, rng.randrange(1, 4)): frozenset(lies) for region in range(1, 6) if lies}
    kernel = lives_of(world, rng, ["plant/#"])
    traffic, when = Traffic("site"), NOW + 4.0
    for number in range(80):
        when += rng.expovariate(20.0)
        traffic.publish(kernel, when, f"plant/{number % 3}", b"%d" % number, qos=2)
    at = NOW + 4.0
    while at < when:
        at += rng.uniform(0.02, 0.6)
        kernel.run(at)
        kernel.stop() if rng.random() < 0.4 else kernel.kill()
        at += rng.choice((0.01, 0.3, 2.0))
        kernel.run(at)
        kernel.revive()
    kernel.run(at + 60)
    check_safety(traffic.published, kernel.committed)
    check_liveness(traffic.published, kernel.committed)
    assert not kernel.replayed
    check_blame(kernel.trace.named_members(), world.liars)


def test_a_search_in_many_short_turns_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two candidates a turn: the rest of each search waits for the next."""
    monkeypatch.setattr(key_opening, "TURN_CHOICES", 2 * key_opening.WRAP_CHOICES)
    world = line(6)
    world.liars = {name(region, 1 + region % 3): frozenset({Behaviour.SHARES}) for region in range(1, 7)}
    check_blame(deliver(world, 11).named_members(), world.liars)


# ------------------------------------------------------------------- the network is the adversary's, too


@pytest.mark.parametrize(("counts", "seed"), [((3,) * 5, 1), ((3, 5, 3, 5, 3), 2), ((3,) * 7, 3)])
def test_liars_that_are_faster_than_anybody_gain_nothing(counts: tuple[int, ...], seed: int) -> None:
    """Whatever they send comes first, so that each first word is theirs, and they acknowledge nothing."""
    rng = random.Random(f"{counts}{seed}")
    bad = random_bad(counts, rng)
    done = run(
        counts, bad, everywhere(bad, {Behaviour.SHARES, Behaviour.REPLAY}), seed, 0.7, mute=True, bursts_s=(5.0,)
    )
    for reader in ("near", "control"):
        delivered = done.trace.delivered.get(reader, [])
        check_safety(done.traffic.published, delivered)
        check_liveness([n for n, it in done.traffic.published.items() if it.topic != "open/x"], delivered)
    check_blame(done.trace.named_members(), done.liars)
    for liar, received in done.received.items():
        assert not any(MARK in data for event in received for data in _clear(event.wire)), f"{liar} read a payload"
    own = {(region, place) for region, places in bad.items() for place in places}
    for _, paths in seen_by(done).values():
        assert all(path[-1] in own and len(path) <= 2 for path in paths), "a share of another place"
        assert all(len(values) == 1 for values in paths.values())


def _clear(wire: Wire) -> list[bytes]:
    return [wire.payload, *(from_property(value) for key, value in wire.properties if key.startswith("vmq-"))]


@dataclass
class Dribbling:
    """A replica that says each wrap in a wire of its own, again and again."""

    machine: Machine
    overlay: object = None

    def __post_init__(self) -> None:
        self.overlay = self.machine.overlay  # type: ignore[attr-defined]

    @property
    def next_deadline(self) -> float | None:
        return self.machine.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        said: list[Effect] = []
        for effect in self.machine.handle(event, now):
            told = dict(effect.wire.properties) if isinstance(effect, Send) else {}
            if isinstance(effect, Send) and PROPERTY_WRAPS in told:
                key_id, wraps = decode_wraps(from_property(told[PROPERTY_WRAPS]))
                for wrap in wraps * 3:
                    hops = [Hop(wrap.name.owner.region, wrap.name.owner.view, 1, 1)]
                    frame = (PROPERTY_WRAPS, to_property(encode_wraps(key_id, hops, [wrap])))
                    alone = Wire(KEYS_TOPIC, b"", 1, False, ((PROPERTY_KEY, told[PROPERTY_KEY]), frame))
                    said.append(Send(effect.peer, alone))
            said.append(effect)
        return said


def test_one_that_says_every_wrap_alone_and_thrice_makes_others_send_little_more() -> None:
    """Each wrap is passed on once, when it is believed: so repeated words reach nobody else."""
    world, wires = line(6), list[int]()
    for liars in (set(), {name(3, 2)}):
        kernel = world.kernel(random.Random(12))
        kernel.nodes.update({member: Dribbling(kernel.nodes[member]) for member in liars})
        heard = Listening(kernel.nodes["control"])
        kernel.nodes["control"] = heard
        subscribe(kernel, "control", "plant/#")
        traffic = Traffic("site")
        for number in range(12):
            traffic.publish(kernel, NOW + 5 + number * 0.2, f"plant/{number % 3}", b"%d" % number)
        trace = kernel.run(NOW + 60)
        check_safety(traffic.published, trace.delivered["control"])
        check_liveness(traffic.published, trace.delivered["control"])
        check_blame(trace.named_members(), liars)
        wires.append(sum(PROPERTY_WRAPS in dict(event.wire.properties) for event in heard.received))
    assert wires[1] <= wires[0] + 3 * 4 * 9, "at most one wire for each wrap and replica"
