"""Theorems 1 to 3 of secret forwarding in whole overlays (A5): every placement of f bad replicas a region.

Placements: 3 for one region of three, 10 for one of five, multiplied along the path: 3, 9 and 27 for n = 3; 10, 100 and
1,000 for n = 5, up to three hops. No symmetry is used for these: places of a region could be renamed (any k of them
interpolate alike, `test_linear_secrecy` holds for all of them), but the order in which subsets are searched, and who is
first in a list, could not. Fewer than f are dominated: a liar may behave. In every run liars are faster than anybody.

What each placement does is drawn from its number: every bad replica lies in one to four ways of its own.
`test_behaviours` takes the ways one by one. Secrecy of all placements, without a simulation: `test_linear_secrecy`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice, product

import pytest

from bridge.document.overlay import OverlayError
from bridge.replica.resplitting import HeldKey, Resplitter
from keys.shamir import combine
from keys.sharetree import Label, Share
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from tests.seldom import slow
from tests.sim.linearview import Overlay, Rows, Span, threshold
from tests.sim.placements import (
    MARK,
    Recorder,
    Run,
    assert_promises,
    assert_secret,
    everywhere,
    kernel_of,
    mixture,
    random_bad,
    run,
    seen_by,
)
from tests.sim.world import NOW, Traffic, make_world, subscribe

pytestmark = pytest.mark.invariant(1, 12)


def check(counts: Sequence[int], bad: dict[int, tuple[int, ...]], seed: int, bursts: int = 2) -> None:
    rng = random.Random(f"{counts}{bad}{seed}")
    liars = mixture(bad, rng)
    probability = rng.choice([0.3, 0.7, 1.0])
    assert_promises(run(counts, bad, liars, seed, probability, mute=rng.random() < 0.3, bursts_s=(5.0, 70.0)[:bursts]))


# ------------------------------------------------------------------------------------------------ placements


@pytest.mark.parametrize(
    ("counts", "placements"), [((3,), 3), ((3, 3), 9), pytest.param((3, 3, 3), 27, marks=pytest.mark.slow), ((5,), 10)]
)
def test_every_placement(counts: tuple[int, ...], placements: int) -> None:
    """22 runs, 49 with the slow ones."""
    every = list(Overlay.line(counts).placements())
    assert len(every) == placements
    for seed, bad in enumerate(every):
        check(counts, bad, seed, bursts=1 + seed % 2)


@pytest.mark.parametrize("bad", list(product([(), (1,), (2,), (3,)], repeat=2)), ids=str)
def test_fewer_than_f_do_no_more(bad: tuple[tuple[int, ...], ...]) -> None:
    """All 16 placements of at most one bad replica in each of two regions of three."""
    check((3, 3), dict(enumerate(bad, 1)), 1, bursts=1)


@pytest.mark.parametrize(
    "counts", [(5, 5), (5, 3, 3), (3, 3, 5), (7,), (3, 3, 3, 3), *slow([(5, 3), (3, 5), (5, 5, 5), (7, 7)])]
)
def test_some_placements(counts: tuple[int, ...]) -> None:
    for seed in range(2):
        check(counts, random_bad(counts, random.Random(seed)), seed, bursts=1)


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "placements"), [((5, 5), 100), ((3, 5), 30), ((5, 3), 30)])
def test_every_placement_on_two_regions(counts: tuple[int, ...], placements: int) -> None:
    """160 runs."""
    every = list(Overlay.line(counts).placements())
    assert len(every) == placements
    for seed, bad in enumerate(every):
        check(counts, bad, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("hundred", range(10))
def test_every_placement_on_three_regions_of_five(hundred: int) -> None:
    """1,000 runs in ten parts, one for each pair of bad replicas in the first region."""
    every = list(islice(Overlay.line((5, 5, 5)).placements(), 100 * hundred, 100 * hundred + 100))
    assert len(every) == 100
    assert len({bad[1] for bad in every}) == 1
    for seed, bad in enumerate(every):
        check((5, 5, 5), bad, seed, bursts=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "counts", [(3, 5, 3), (3, 5, 5), (5, 3, 5), (7, 7, 3), (3, 7, 7), (7, 7, 7), (5, 5, 5, 3), (7, 5, 5, 3)]
)
def test_random_placements_on_larger_overlays(counts: tuple[int, ...]) -> None:
    """Regions of seven, and four regions, as large as they may be: at most 1,024 shares of a key at a receiver."""
    for seed in range(5):
        check(counts, random_bad(counts, random.Random(seed)), seed, bursts=1)


def test_four_regions_of_seven_are_refused() -> None:
    """2,401 shares of each key: their theorem is checked by algebra and by search alone."""
    with pytest.raises(OverlayError, match="shares a key"):
        run((7, 7, 7, 7), {}, {})


@pytest.mark.parametrize("seed", [0, *slow([1, 2])])
def test_publishers_at_two_ends_of_a_tree(seed: int) -> None:
    """A replica is on the way of both, splits for two next regions, is last for one and first for the other."""
    rng = random.Random(seed)
    world = make_world({1: 3, 2: 3, 3: 3, 4: 3}, [(1, 2), (1, 3), (3, 4)], {"site": 1, "far": 4, "left": 2, "right": 4})
    overlays = {
        1: Overlay({1: 3, 2: 3, 3: 3, 4: 3}, {1: (2, 3), 3: (4,)}, 1),
        4: Overlay({4: 3, 3: 3, 1: 3, 2: 3}, {4: (3,), 3: (1,), 1: (2,)}, 4),
    }
    bad = random_bad((3, 3, 3, 3), rng)
    liars = mixture(bad, rng)
    recorders: dict[str, Recorder] = {}
    kernel = kernel_of(world, bad, liars, rng, 0.7, False, recorders)
    traffic = {gateway: Traffic(gateway) for gateway in ("site", "far")}
    for reader in ("left", "right"):
        subscribe(kernel, reader, "plant/#")
    for number in range(20):
        for gateway, published in traffic.items():
            published.publish(kernel, NOW + 5 + number, f"plant/{gateway}/{number % 2}", MARK + b"%d" % number)
    trace = kernel.run(NOW + 80)
    for reader, (gateway, published) in product(("left", "right"), traffic.items()):
        delivered = [delivery for delivery in trace.delivered[reader] if delivery.publisher == gateway]
        check_safety(published.published, delivered)
        check_liveness(published.published, delivered)
    check_blame(trace.named_members(), liars)
    received = {liar: recorders[liar].received for liar in liars}
    assert_secret(Run(overlays, bad, liars, traffic["site"], trace, received))


# --------------------------------------------------------------------- what these runs would show if it were so


@pytest.mark.parametrize("region", [1, 2])
@pytest.mark.parametrize("way", [Behaviour.DROP, Behaviour.SHARES])
def test_one_liar_more_in_a_region_stops_delivery(region: int, way: Behaviour) -> None:
    bad = {region: (1, 2)}
    with pytest.raises(AssertionError, match="were lost"):
        assert_promises(run((3, 3), bad, everywhere(bad, {way}), bursts_s=(5.0,)))


@pytest.mark.parametrize("region", [1, 2])
def test_one_liar_more_in_a_region_reads_the_secret(region: int) -> None:
    """What liars received, which is of no use to fewer, then gives the secret, or every level-1 share of it."""
    bad = {region: (1, 3)}
    done = run((3, 3), bad, everywhere(bad, {Behaviour.DUPLICATE}), bursts_s=(5.0,))
    rows = Rows(done.overlays[1])
    assert rows.of[()] in Span(rows.view(bad))
    pools = list(seen_by(done).values())
    assert pools
    for _, pool in pools:
        assert set(pool) == set(rows.received(bad))
        above = {path[:-1] for path in pool}
        assert len(above) == (1 if region == 1 else 3)
        for path in above:
            values = {place: next(iter(pool[*path, (region, place)])) for place in bad[region]}
            assert len(values) == threshold(3)
            assert len(combine(values)) == 32


def test_a_replica_that_hands_out_shares_of_other_places_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker, not the protocol, is tested: each replica of the next region gets another's sub-shares."""

    def leaking(self: Resplitter, peer: str, held: HeldKey, shares: dict[Label, Share]) -> list[Share]:
        if self._routes.region_of(peer) == 1:
            return list(shares.values())
        return [self._split(held, share, 2)[1] for share in shares.values()]

    monkeypatch.setattr(Resplitter, "_shares_for", leaking)
    bad = {1: (), 2: (1,)}
    done = run((3, 3), bad, everywhere(bad, {Behaviour.DUPLICATE}), bursts_s=(5.0,))
    with pytest.raises(AssertionError, match="shares of other places"):
        assert_secret(done)
