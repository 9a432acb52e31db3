"""What may be a replay: who has to bring it before it is believed, and how old the first of a stream may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.reader.freshness import FRESH_S
from bridge.reader.replays import Vouchers, is_dated
from bridge.wire.admission import Admission, Admitted
from keys.envelope import PROPERTY_HEADER
from tests.bridge.helpers import craft
from tests.sim.world import NOW, World, make_world


@pytest.fixture
def world() -> World:
    return make_world({1: 5}, [], {"site": 1, "evil": 1, "control": 1})


def admitted(world: World, sequence: int = 1, *, publisher: str = "site", live: bool = False) -> Admitted:
    wire = craft(world, publisher, "plant/a", sequence=sequence, key_id=b"k" * 16)
    found = Admission(world.overlay, replica=False).publication(dict(wire.properties)[PROPERTY_HEADER], wire.topic, NOW)
    return found._replace(live=live)


def test_what_is_live_needs_nobody(world: World):
    assert Vouchers(world.overlay, 1).vouched("r1a", admitted(world, live=True), "plant/a")


def test_what_is_not_needs_one_honest_replica_among_those_that_bring_it(world: World):
    vouchers, old = Vouchers(world.overlay, 1), admitted(world)
    assert [vouchers.vouched(peer, old, "plant/a") for peer in ("r1a", "r1a", "r1b", "r1c")] == [False] * 3 + [True]
    assert not vouchers.vouched("r1d", old, "plant/b"), "on another topic it is something else"
    assert not vouchers.vouched("stranger", admitted(world, 2), "plant/a")


def test_a_replica_that_replays_pushes_out_its_own_entries(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.replays.VOUCHED_MAX", 4)
    vouchers, old = Vouchers(world.overlay, 1), admitted(world)
    for peer in ("r1a", "r1b"):
        vouchers.vouched(peer, old, "plant/a")
    for sequence in range(2, 20):
        vouchers.vouched("r1e", admitted(world, sequence, publisher="evil" if sequence % 2 else "site"), "plant/a")
    assert vouchers.vouched("r1c", old, "plant/a")


def test_a_replica_that_brings_something_first_takes_no_voucher_of_others_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Attack: of five replicas a liar brings what is honest first, and then so much that it is forgotten."""
    monkeypatch.setattr("bridge.reader.replays.VOUCHED_MAX", 4)
    vouchers, old = Vouchers(world.overlay, 1), admitted(world)
    for peer in ("r1e", "r1a", "r1b"):
        believed = vouchers.vouched(peer, old, "plant/a")
    assert believed, "two liars of five need one more"
    old = admitted(world, 2)
    for peer in ("r1e", "r1a"):
        assert not vouchers.vouched(peer, old, "plant/a")
    for sequence in range(3, 20):
        vouchers.vouched("r1e", admitted(world, sequence, publisher="evil"), "plant/a")
    assert [vouchers.vouched(peer, old, "plant/a") for peer in ("r1b", "r1c")] == [False, True]


@pytest.mark.parametrize("off_s", [-FRESH_S - 1, -FRESH_S, 0, FRESH_S, FRESH_S + 1])
def test_the_first_of_a_stream_is_young_or_retained(world: World, off_s: float):
    header = admitted(world).header
    assert is_dated(header, NOW + off_s) == (abs(off_s) > FRESH_S)
    assert not is_dated(replace(header, retain=True), NOW + off_s)
