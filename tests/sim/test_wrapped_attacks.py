"""Attacks on wrapped shares by liars that know the protocol (docs/protocol.md §3.5), beside `test_wrapped_paths`.

A liar rewrites what its replica sends with shares or wraps, wire by wire, and may send more wires than that. f liars of
each region lie together. Each reader gets every publication, unaltered, once and in order, and nobody else is named.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pytest

from bridge.contract.machine import Effect, Event, Machine, Received, Send, Wire
from bridge.reader.blame import WrappedEvidence
from bridge.wire import KEYS_TOPIC
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS, KeyHeader, from_property, to_property
from keys.sharetree import Hop, Place, Share, decode_shares, encode_shares
from keys.wrapping import Wrap, WrapName, decode_wraps, encode_wraps
from papers.sim.adversary import each_wrap
from papers.sim.checkers import check_blame, check_liveness, check_safety
from tests.keys.wrapped import garbage
from tests.sim.placements import name
from tests.sim.test_wrapped_paths import READERS, Listening, deliver, line
from tests.sim.world import NOW, Traffic, subscribe

Told: TypeAlias = dict[str, str]
"""The properties of a wire that speak of a key, its shares and its wraps."""
Attack: TypeAlias = Callable[[Told, str, random.Random], list[Told]]
"""Gives what is said to a peer in place of what a replica would say, a wire for each; the last rides on its own."""
OF_KEYS = (PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS)


@dataclass
class Liar:
    """A replica that says of keys what its attack makes of the truth."""

    machine: Machine
    attack: Attack
    rng: random.Random
    told: int = 0
    overlay: object = field(init=False)

    def __post_init__(self) -> None:
        self.overlay = self.machine.overlay  # type: ignore[attr-defined]

    @property
    def next_deadline(self) -> float | None:
        return self.machine.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        said: list[Effect] = []
        for effect in self.machine.handle(event, now):
            if isinstance(effect, Send) and (told := dict(effect.wire.properties)).keys() & {*OF_KEYS[1:]}:
                said += self._said(effect, told)
            else:
                said.append(effect)
        return said

    def _said(self, send: Send, told: Told) -> list[Effect]:
        self.told += 1
        of_key = {key: value for key, value in told.items() if key in OF_KEYS}
        *before, last = self.attack(of_key, send.peer, self.rng)
        others = tuple((key, value) for key, value in send.wire.properties if key not in OF_KEYS)
        wires: list[Effect] = [Send(send.peer, Wire(KEYS_TOPIC, b"", 1, False, tuple(one.items()))) for one in before]
        return [*wires, replace(send, wire=replace(send.wire, properties=(*others, *last.items())))]


def with_shares(told: Told, change: Callable[[Share], Share | None]) -> Told:
    """What is told, with each share changed, or left out for None."""
    if PROPERTY_SHARES not in told:
        return told
    shares = [changed for share in decode_shares(from_property(told[PROPERTY_SHARES])) if (changed := change(share))]
    rest = {key: value for key, value in told.items() if key != PROPERTY_SHARES}
    return rest | ({PROPERTY_SHARES: to_property(encode_shares(shares))} if shares else {})


def with_wraps(told: Told, change: Callable[[Wrap], Wrap]) -> Told:
    if PROPERTY_WRAPS not in told:
        return told
    return told | {PROPERTY_WRAPS: to_property(each_wrap(from_property(told[PROPERTY_WRAPS]), change))}


def spoiled(share: Share) -> Share:
    return replace(share, value=garbage(share.value))


def forged(wrap: Wrap) -> Wrap:
    return wrap._replace(sealed=garbage(wrap.sealed + wrap.sealed)[:52])


# ------------------------------------------------------------------------------------------------- attacks


class OfAnotherKey:
    """Says the shares and wraps of the key before beside each key, as if they were of it."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, Told]] = {}  # by peer and key

    def __call__(self, told: Told, peer: str, rng: random.Random) -> list[Told]:
        known = self._last.setdefault(peer, {})
        known.setdefault(told[PROPERTY_KEY], told)
        old = next(iter(known.values()))
        swapped = {**told, **{key: old[key] for key in OF_KEYS[1:] if key in told and key in old}}
        if PROPERTY_WRAPS in swapped and PROPERTY_WRAPS in told:
            now, before = from_property(told[PROPERTY_WRAPS]), from_property(swapped[PROPERTY_WRAPS])
            swapped[PROPERTY_WRAPS] = to_property(before[:3] + now[3:19] + before[19:])
        return [swapped]


class BetweenReceivers:
    """Says to each peer the shares that another one ought to get, under labels that fit the peer."""

    def __init__(self) -> None:
        self._of: dict[str, list[Share]] = {}

    def __call__(self, told: Told, peer: str, rng: random.Random) -> list[Told]:
        if PROPERTY_SHARES not in told:
            return [told]
        own = decode_shares(from_property(told[PROPERTY_SHARES]))
        others = self._of.get(told[PROPERTY_KEY], own)
        self._of[told[PROPERTY_KEY]] = own
        values = {share.label[:-1]: share.value for share in others}
        return [with_shares(told, lambda share: replace(share, value=values.get(share.label[:-1], share.value)))]


def two_faces(told: Told, peer: str, rng: random.Random) -> list[Told]:
    """Two wrap keys: half of the next region gets shares of one, the others of another, and wraps of either."""
    return [with_shares(told, spoiled) if peer[-1] > "a" else with_wraps(told, forged)]


def lies_first(told: Told, peer: str, rng: random.Random) -> list[Told]:
    """Everything forged, then the truth: whoever takes the last word, or both, gains or loses."""
    return [with_wraps(with_shares(told, spoiled), forged), told]


def truth_first(told: Told, peer: str, rng: random.Random) -> list[Told]:
    return [told, with_wraps(with_shares(told, spoiled), forged)]


def deeper(told: Told, peer: str, rng: random.Random) -> list[Told]:
    """Labels as of short ways: with a place of every region, or of a region too many."""
    first = Place(99, 1, 1)
    return [with_shares(told, lambda s: replace(s, label=(first, *s.label), tags=(b"tags", *s.tags))), told]


def shallower(told: Told, peer: str, rng: random.Random) -> list[Told]:
    """Labels as of a way of one region."""
    if PROPERTY_SHARES not in told:
        return [told]
    share = decode_shares(from_property(told[PROPERTY_SHARES]))[0]
    frame = encode_shares([replace(share, label=share.label[-1:], tags=())])
    return [told | {PROPERTY_SHARES: to_property(frame)}, told]


def in_another_order(told: Told, peer: str, rng: random.Random) -> list[Told]:
    """Regions of a frame from the last to the first."""
    if PROPERTY_WRAPS not in told:
        return [told]
    key_id, wraps = decode_wraps(from_property(told[PROPERTY_WRAPS]))
    regions = dict.fromkeys((owner.region, owner.view) for (owner, _), _ in reversed(wraps))
    frame = encode_wraps(key_id, [Hop(region, view, 1, 1) for region, view in regions], wraps)
    return [told | {PROPERTY_WRAPS: to_property(frame)}]


def unwrapped(told: Told, peer: str, rng: random.Random) -> list[Told]:
    """The header without its flag, which its signature does not cover any more."""
    header = bytearray(from_property(told[PROPERTY_KEY]))
    header[2] &= 0xFE
    return [told | {PROPERTY_KEY: to_property(bytes(header))}, told]


class Framing:
    """Spoils the values of one place of each region, whoever told them, so that this place seems to lie."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __call__(self, told: Told, peer: str, rng: random.Random) -> list[Told]:
        def share(one: Share) -> Share:
            return spoiled(one) if len(one.label) > 1 and one.label[-2].place == self._place else one

        def wrap(one: Wrap) -> Wrap:
            return forged(one) if self._place in (one.name.sender, one.name.owner.place) else one

        return [with_wraps(with_shares(told, share), wrap)]


class Cocktail:
    """Another attack for each wire."""

    def __init__(self) -> None:
        self._others = [make() for key, make in ATTACKS.items() if key != "a cocktail"]

    def __call__(self, told: Told, peer: str, rng: random.Random) -> list[Told]:
        return rng.choice(self._others)(told, peer, rng)


def silent(told: Told, peer: str, rng: random.Random) -> list[Told]:
    return [{PROPERTY_KEY: told[PROPERTY_KEY]}]


ATTACKS: dict[str, Callable[[], Attack]] = {
    "of another key": OfAnotherKey,
    "between receivers": BetweenReceivers,
    "two faces": lambda: two_faces,
    "lies first": lambda: lies_first,
    "truth first": lambda: truth_first,
    "deeper": lambda: deeper,
    "shallower": lambda: shallower,
    "in another order": lambda: in_another_order,
    "unwrapped": lambda: unwrapped,
    "framing the first": lambda: Framing(1),
    "framing the second": lambda: Framing(2),
    "silent": lambda: silent,
    "a cocktail": Cocktail,
}


def attacked(count: int, sizes: int, attack: str, seed: int) -> None:
    """f liars of each region attack; what is promised is checked."""
    rng = random.Random(f"{count} {attack} {seed}")
    letters = range(1, sizes + 1)
    bad = {(region, place) for region in range(1, count + 1) for place in rng.sample(letters, (sizes - 1) // 2)}
    liars = {name(*each) for each in bad}
    made: list[Liar] = []

    def wrapper(member: str, node: Machine) -> Machine:
        if member not in liars:
            return node
        made.append(Liar(node, ATTACKS[attack](), rng))
        return made[-1]

    check_blame(deliver(line(count, sizes), seed, wrapper, burst=6).named_members(), liars)
    assert sum(liar.told for liar in made) > 30


@pytest.mark.parametrize("attack", ATTACKS)
def test_f_liars_of_each_region_lose_nobody_anything_and_frame_nobody(attack: str) -> None:
    attacked(5, 3, attack, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_same_over_longer_ways(attack: str, seed: int) -> None:
    attacked(5 + seed % 4, 3, attack, seed)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_same_with_two_liars_of_five(attack: str) -> None:
    attacked(5, 5, attack, 1)


# --------------------------------------------------------------------------------------------- publishers


class Lying:
    """The topology of a publisher that says the contrary of which keys need wrapping."""

    def __init__(self, topology: Any) -> None:
        self._topology = topology

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._topology, attribute)

    def needs_wrapping(self, hops: Sequence[Hop], tree: int) -> bool:
        return not self._topology.needs_wrapping(hops, tree)


@pytest.mark.parametrize("count", [3, 5])
def test_a_publisher_that_wraps_where_it_must_not_or_does_not_where_it_must_harms_itself_alone(count: int) -> None:
    """Its own region refuses such a key: nothing of it goes any farther, and no replica is blamed for it."""
    world = line(count)
    kernel = world.kernel(random.Random(2))
    keys: Any = kernel.nodes["near"].publisher.sealer._data_keys  # type: ignore[attr-defined]
    keys._topology = Lying(keys._topology)
    readers: Collection[str] = [reader for reader in READERS if reader not in ("near", "third") or count > 3]
    for reader in readers:
        subscribe(kernel, reader, "plant/#")
    honest, bad = Traffic("site"), Traffic("near")
    for number in range(8):
        honest.publish(kernel, NOW + 5 + number, f"plant/{number % 3}", b"honest %d" % number, qos=1)
        bad.publish(kernel, NOW + 5.5 + number, f"plant/{number % 3}", b"bad %d" % number, qos=1)
    trace = kernel.run(NOW + 60)
    check_blame(trace.named_members(), ())
    for reader in readers:
        delivered = [each for each in trace.delivered[reader] if each.publication.payload.startswith(b"honest")]
        check_safety(honest.published, delivered)
        check_liveness(honest.published, delivered)
    assert not any(each.publication.payload.startswith(b"bad") for each in trace.delivered["control"])
    blamed = {effect.member for _, effect in trace.blamed} if trace.blamed else set()
    assert blamed <= {"near"}


# ------------------------------------------------------------------------------------------------- readers


def test_votes_that_decide_nothing_cost_a_reader_no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: one replica keeps its wraps back, and another one makes them up, one after the other, for every key."""
    audits: list[bytes] = []
    judge = WrappedEvidence.judge

    def counted(self: WrappedEvidence, header: KeyHeader, *more: Any) -> list[Effect]:
        audits.append(header.key_id)
        return judge(self, header, *more)

    monkeypatch.setattr(WrappedEvidence, "judge", counted)
    world = line(5)
    kernel = world.kernel(random.Random(3))
    kernel.nodes[name(2, 1)] = Liar(kernel.nodes[name(2, 1)], silent, random.Random(3))
    heard = kernel.nodes["control"] = Listening(kernel.nodes["control"])
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    traffic.publish(kernel, NOW + 5, "plant/1", b"x", qos=1)
    kernel.run(NOW + 20)
    assert audits
    header = next(
        told[PROPERTY_KEY] for event in heard.received if PROPERTY_KEY in (told := dict(event.wire.properties))
    )
    key = KeyHeader.decode(from_property(header))
    before, owner = len(audits), Place(2, key.hops[1].view, 1)
    hops = key.along([1, 2, 3, 4, 5])
    for sender in (1, 2, 3):
        frame = encode_wraps(key.key_id, hops, [Wrap(WrapName(owner, sender), bytes(52))])
        told = ((PROPERTY_KEY, header), (PROPERTY_WRAPS, to_property(frame)))
        kernel.plan_event(kernel.now, "control", Received(name(5, 1), Wire(KEYS_TOPIC, b"", 1, False, told)))
        kernel.run(kernel.now + 3)
    assert len(audits) == before
