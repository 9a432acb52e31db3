"""Who is named over wrapped keys lied, whatever f of each region do together; and constant liars are named."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bridge.contract.machine import Effect
from bridge.reader import blame
from bridge.reader.blame import WrappedEvidence
from tests.bridge.helpers import named, suspected
from tests.keys.wrapped import Bad, Way, garbage
from tests.sim.placements import name
from tests.sim.world import World, make_world

pytestmark = pytest.mark.invariant(2)

SIZES = [(3, 3, 3, 3, 3), (3, 5, 3, 5, 3), (5, 5, 5, 5, 5), (3,) * 8, (3, 4, 3, 4, 3)]
VIEW = make_world({1: 3}, [], {}).overlay.views[1].number


def world_of(counts: tuple[int, ...]) -> World:
    edges = [(n, n + 1) for n in range(1, len(counts))]
    return make_world(dict(enumerate(counts, 1)), edges, {"site": 1})


def judged(evidence: WrappedEvidence, world: World, way: Way) -> list[Effect]:
    """What one key says, at a reader whose views are those of `world`."""
    assert way.hops == world.overlay.hops_between(1, len(way.counts))
    return evidence.judge(way.header, way.hops, {s.label: s for s in way.told}, dict(way.wraps))


def wayward(counts: tuple[int, ...], bad: Bad, rng: random.Random, seed: int) -> Way:
    """A key past liars that say anything, or the truth, or nothing, value by value."""

    def spoil(value: bytes) -> bytes | None:
        return rng.choice([value, value, None, bytes(32), garbage(value), rng.randbytes(32)])

    return Way(counts, bad, spoil, f"{seed}", VIEW)


@pytest.mark.parametrize("counts", SIZES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_no_innocent_is_named_whatever_the_liars_do(counts: tuple[int, ...], seed: int) -> None:
    rng, world = random.Random(f"{counts}{seed}"), world_of(counts)
    bad = {at: tuple(rng.sample(range(1, n + 1), (n - 1) // 2)) for at, n in enumerate(counts)}
    liars = {name(at + 1, place) for at, places in bad.items() for place in places}
    evidence = WrappedEvidence(world.overlay)
    for number in range(5):
        effects = judged(evidence, world, wayward(counts, bad, rng, number))
        assert named(effects) <= liars


@pytest.mark.parametrize("at", range(5))
def test_a_constant_liar_is_named_once_and_nobody_else(at: int) -> None:
    counts = (3,) * 5
    world = world_of(counts)
    evidence, said = WrappedEvidence(world.overlay), list[Effect]()
    for number in range(3):
        said += judged(evidence, world, Way(counts, {at: (2,)}, garbage, f"{number}", VIEW))
    assert named(said) == {name(at + 1, 2)}
    assert sum(getattr(effect, "named", False) is True for effect in said) == 1
    assert name(at + 1, 2) in suspected(said)


def test_liars_of_all_regions_are_named_together() -> None:
    counts = (3,) * 10
    world = world_of(counts)
    bad = {at: (1 + at % 3,) for at in (0, 3, 6, 9)}
    effects = judged(WrappedEvidence(world.overlay), world, Way(counts, bad, garbage, view=VIEW))
    assert named(effects) == {name(at + 1, place) for at, (place,) in bad.items()}


def test_silence_proves_nothing() -> None:
    counts = (3,) * 6
    world = world_of(counts)
    bad: Mapping[int, tuple[int, ...]] = dict.fromkeys(range(6), (1,))
    assert judged(WrappedEvidence(world.overlay), world, Way(counts, bad, view=VIEW)) == []
    assert judged(WrappedEvidence(world.overlay), world, Way(counts, view=VIEW)) == []


def test_if_no_explanation_stands_nobody_is_named() -> None:
    """More liars than the bound: nothing is promised, so nothing is claimed."""
    counts = (3,) * 5
    world = world_of(counts)
    effects = judged(WrappedEvidence(world.overlay), world, Way(counts, {2: (1, 2, 3)}, garbage, view=VIEW))
    assert not named(effects)
    assert suspected(effects)


def test_beyond_so_many_pairs_of_subsets_suspicion_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "PAIRS_MAX", 3 * 3 * 4 - 1)
    counts = (3,) * 5
    world = world_of(counts)
    effects = judged(WrappedEvidence(world.overlay), world, Way(counts, {1: (2,)}, garbage, view=VIEW))
    assert not named(effects)
    assert suspected(effects)


def test_evidence_ends_with_a_view_and_nothing_is_said_of_a_closed_one() -> None:
    counts = (3,) * 5
    world = world_of(counts)
    evidence, way = WrappedEvidence(world.overlay), Way(counts, {1: (2,)}, garbage, view=VIEW)
    assert named(judged(evidence, world, way)) == {"r2b"}
    renumbered = [replace(hop, view=hop.view + 1) for hop in way.hops]
    told = {share.label: share for share in way.told}
    assert evidence.judge(way.header, tuple(renumbered), told, dict(way.wraps)) == []
    assert len(evidence._walks) == 1
    evidence.adopt_overlay(world.overlay)
    assert len(evidence._walks) == 1
