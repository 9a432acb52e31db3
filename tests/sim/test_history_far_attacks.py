"""Attacks on histories of other regions (docs/protocol-options.md §12.6): what they give, and whom they cost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import pytest

from bridge.contract import (
    FAR_PAGE_BYTES,
    FAR_TOPIC,
    Effect,
    Event,
    FarRequest,
    HistoryRequest,
    Offered,
    ReadAgain,
    Recall,
    Received,
    Wire,
)
from bridge.contract.machine import Machine
from bridge.document import History, Scope
from bridge.membership.adopting import canonical
from bridge.replica.far_passing import ASKS_BURST, ASKS_EVERY_S, OPEN_S
from keys.frames import from_property
from keys.sealedbox import BoxKey
from keys.shamir import combine
from keys.sharetree import Share, decode_shares
from papers.sim.kernel import Kernel
from tests.seldom import slow
from tests.sim.test_history import check_alike, publish_some, reread
from tests.sim.test_history_far import a_world, lying_far
from tests.sim.world import NOW, World, make_world, subscribe

KEEPING, PASSING = ("r1a", "r1b", "r1c"), ("r2a", "r2b", "r2c", "r3a", "r3b", "r3c")

GATEWAYS = {"site": 1, "desk": 1, "late": 3, "greedy": 3}
SCOPES = [Scope("plant/#", history=History(7, 100, (1,))), Scope("open/#")]


class Watched:
    """A replica of which somebody sees all that comes, and for whom it reads its disk."""

    def __init__(self, node: Machine) -> None:
        self._node = node
        self.seen: list[Wire] = []
        self.recalled: Counter[str] = Counter()

    def __getattr__(self, name: str) -> object:
        return getattr(self._node, name)

    @property
    def next_deadline(self) -> float | None:
        return self._node.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if isinstance(event, Received):
            self.seen.append(event.wire)
        effects = self._node.handle(event, now)
        self.recalled.update(effect.peer for effect in effects if isinstance(effect, Recall))
        return effects


def watched(kernel: Kernel, names: Sequence[str]) -> dict[str, Watched]:
    found = {name: Watched(kernel.nodes[name]) for name in names}
    kernel.nodes.update(found)
    return found


def everything(wire: Wire) -> bytes:
    """All bytes of a wire, properties decoded."""
    return b"|".join([wire.payload, *(from_property(value) for _, value in wire.properties)])


def coalitions(regions: int, size: int) -> Iterator[tuple[str, ...]]:
    """All choices of f replicas of each region."""
    of_one = [[f"r{region}{letter}" for letter in "abcdefg"[:size]] for region in range(1, regions + 1)]
    for each in product(*(combinations(names, (size - 1) // 2) for names in of_one)):
        yield tuple(name for names in each for name in names)


@pytest.mark.attack(182)
@pytest.mark.parametrize("size", [3, 5])
def test_no_coalition_of_f_replicas_in_each_region_learns_a_key_or_a_byte(size: int) -> None:
    """All that any replica sees while a reader of region 3 reads what region 1 keeps, against all choices of liars."""
    world, rng = a_world(51, size=size), random.Random(size)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 20)
    kernel.run(NOW + 3_999)
    names = [f"r{region}{letter}" for region in (1, 2, 3) for letter in "abcde"[:size]]
    seen = watched(kernel, names)
    reread(kernel, world, NOW + 4_000)
    kernel.run(NOW + 4_030)
    check_alike(kernel, traffic)
    wires = {name: b"".join(everything(wire) for wire in one.seen) for name, one in seen.items()}
    own = {name: kept_shares(kernel, name) for name in names if name[1] == "1"}
    shares = {
        share.value: (name, key_id, share.places[-1])
        for name, keys in own.items()
        for key_id, found in keys.items()
        for share in found
    }
    assert len(shares) >= size, "there is nothing to look for"
    values = [
        combine({share.places[-1]: share.value for name in sorted(own)[: size // 2 + 1] for share in own[name][key_id]})
        for key_id in own["r1a"]
    ]
    passing = [name for name in names if name[1] != "1"]
    assert any(wire.topic == FAR_TOPIC for name in passing for wire in seen[name].seen), "nothing was passed on"
    for name in passing:
        assert not any(value in wires[name] for value in shares), f"{name} saw a share"
        assert not any(each.payload in wires[name] for each in traffic.published.values() if len(each.payload) > 20)
    for liars in coalitions(3, size):
        bytes_of_all = b"".join(wires[name] for name in liars)
        known = {
            (key_id, place) for value, (name, key_id, place) in shares.items() if name in liars or value in bytes_of_all
        }
        assert max(Counter(key_id for key_id, _ in known).values(), default=0) < size // 2 + 1
        assert not any(secret in bytes_of_all for secret in values)


def kept_shares(kernel: Kernel, name: str) -> dict[bytes, list[Share]]:
    """The shares of each data key in a replica's history."""
    return {key_id: decode_shares(key.shares) for (_, key_id), key in kernel.histories[name]._keys.items()}


class Greedy:
    """A reader that signs requests without end, and takes nothing."""

    def __init__(self, world: World, name: str = "greedy") -> None:
        self._world, self._name, self._number = world, name, 1 << 50
        self._key = BoxKey(bytes(32), bytes(64)).agreement_bytes

    def wire(self, first: str, asked: str) -> Wire:
        self._number += 1
        inner = HistoryRequest(self._number, 1, 0, int((NOW + 9_000) * 1000), most_bytes=FAR_PAGE_BYTES).encode()
        way = (first, *((f"r2{first[-1]}",) if asked[1] == "1" else ()), asked)
        request = FarRequest(self._name, asked, self._number, self._key, inner, way)
        return Wire(FAR_TOPIC, request.signed(self._world.identities[self._name]).encode())


@pytest.mark.slow
@pytest.mark.attack(183)
def test_a_reader_that_asks_for_everything_all_the_time_spends_its_own_part_alone() -> None:
    took: dict[bool, float] = {}
    for is_attacked in (False, True):
        rng = random.Random(52)
        world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], GATEWAYS, SCOPES, 52)
        kernel = world.kernel(rng)
        subscribe(kernel, "desk", "plant/#")
        traffic = publish_some(kernel, rng, NOW + 60, 300)
        kernel.run(NOW + 999)
        seen, greedy = watched(kernel, KEEPING), Greedy(world)
        for turn in range(40 if is_attacked else 0):
            for first, asked in product(("r3a", "r3b", "r3c"), KEEPING):
                for _ in range(10):
                    kernel.plan_event(NOW + 1_000 + turn / 10, first, Received("greedy", greedy.wire(first, asked)))
        reread(kernel, world, NOW + 1_002)
        kernel.plan_event(NOW + 1_002, "desk", ReadAgain(8, 1, int(NOW * 1000)))
        kernel.run(NOW + 1_060)
        check_alike(kernel, traffic)
        assert 8 in kernel.trace.reread_done, "a reader at home did not get through"
        assert len(kernel.trace.reread[8]) == len(traffic.published)
        took[is_attacked] = kernel.trace.reread_done[7] - NOW - 1_002
        for one in seen.values():
            assert one.recalled["greedy"] <= ASKS_BURST + (4 + OPEN_S) / ASKS_EVERY_S
        if is_attacked:
            assert all(one.recalled["greedy"] > 20 for one in seen.values()), "it did not attack"
            assert not kernel.trace.suspected() & {*KEEPING, *PASSING}
    assert took[True] < took[False] + 10, took


class Silent(Watched):
    """A replica that answers no reader of another region."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        is_far = isinstance(event, Received) and event.wire.topic == FAR_TOPIC
        return [] if is_far else super().handle(event, now)


@pytest.mark.slow
@pytest.mark.attack(183)
def test_a_reader_that_asks_a_silent_replica_all_the_time_holds_up_no_other() -> None:
    """Its requests fill each link, and no page comes that would make room."""
    rng = random.Random(52)
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], GATEWAYS, SCOPES, 52)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 60, 300)
    kernel.run(NOW + 999)
    kernel.nodes["r1a"], greedy = Silent(kernel.nodes["r1a"]), Greedy(world)
    for turn, first in product(range(660), ("r3a", "r3b", "r3c")):
        for _ in range(12):
            kernel.plan_event(NOW + 1_000 + turn / 10, first, Received("greedy", greedy.wire(first, "r1a")))
    reread(kernel, world, NOW + 1_002)
    kernel.run(NOW + 1_066)
    check_alike(kernel, traffic)
    assert len(kernel.trace.reread[7]) == len(traffic.published)
    assert not kernel.trace.suspected()


def test_a_replica_whose_clock_is_wrong_by_days_is_one_of_the_f() -> None:
    for wrong in ("r1b", "r2b", "r3b"):
        for days in (-5, 5):
            rng = random.Random(f"{wrong}{days}")
            world = a_world(53)
            kernel = world.kernel(rng, clocks={wrong: days * 86_400.0})
            subscribe(kernel, "desk", "plant/#")
            traffic = publish_some(kernel, rng, NOW + 20)
            reread(kernel, world, NOW + 4_000)
            kernel.run(NOW + 4_120)
            check_alike(kernel, traffic)
            assert not kernel.trace.named_members()


def test_a_reader_whose_right_ended_gets_nothing_from_another_region() -> None:
    rng = random.Random(54)
    world = a_world(54)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    publish_some(kernel, rng, NOW + 20)
    kernel.run(NOW + 60)
    seen = watched(kernel, KEEPING)
    revoked = canonical(world.revoked("late", -1))
    for name in world.overlay.members:
        if name != "late":
            kernel.plan_event(NOW + 61, name, Offered(revoked))
    kernel.run(NOW + 61.5)
    reread(kernel, world, NOW + 61.6)
    kernel.run(NOW + 100)
    assert not kernel.trace.reread.get(7)
    assert not any(one.recalled["late"] for one in seen.values())


@pytest.mark.parametrize("is_revoked", [True, False])
def test_the_region_that_keeps_answers_no_revoked_reader_whom_liars_pass_on(is_revoked: bool) -> None:
    """All replicas on the way are bad: they bring what they should have dropped."""
    rng = random.Random(55)
    world = a_world(55)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    publish_some(kernel, rng, NOW + 20)
    kernel.run(NOW + 60)
    seen, late = watched(kernel, KEEPING), Greedy(world, "late")
    for name in KEEPING if is_revoked else ():
        kernel.plan_event(NOW + 61, name, Offered(canonical(world.revoked("late", -1))))
    for name in KEEPING:
        kernel.plan_event(NOW + 62, name, Received("r2a", late.wire("r3a", name)))
    kernel.run(NOW + 63)
    assert [one.recalled["late"] for one in seen.values()] == [int(not is_revoked)] * 3


@pytest.mark.parametrize("restarts", [*slow([KEEPING[:1], ("r2a", "r3a")]), (*KEEPING[:1], "r2b", "r3c")])
def test_restarts_while_it_is_read_lose_nothing(restarts: tuple[str, ...]) -> None:
    rng = random.Random(str(restarts))
    world = a_world(56)
    kernel = lying_far(world, rng, {}, {})
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 60, 300)
    reread(kernel, world, NOW + 1_000)
    for at, name in enumerate(restarts):
        kernel.run(NOW + 1_000 + 0.02 * (at + 1))
        kernel.crash(name)
        kernel.run(kernel.now + 0.05)
        kernel.restart(name)
    kernel.run(NOW + 1_120)
    check_alike(kernel, traffic)
    assert not kernel.trace.named_members()
