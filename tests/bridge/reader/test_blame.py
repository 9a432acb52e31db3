"""Who is named lied: whatever at most f members of each region do, together, to what passes through them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract.machine import Effect
from bridge.reader.blame import EXPLANATIONS_MAX, Evidence
from keys.envelope import check_share
from keys.sharetree import Label, Share, resplit
from tests.bridge.helpers import ForgedKey, forge_key, named, suspected
from tests.keys.helpers import recombine
from tests.sim.world import World, make_world

WORLDS = {
    (3, 3): make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1}),
    (5, 5): make_world({1: 5, 2: 5}, [(1, 2)], {"site": 1}),
    (3, 3, 3): make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"site": 1}),
}
KEYS = {sizes: [forge_key(world, "site", "plant/#", salt) for salt in range(8)] for sizes, world in WORLDS.items()}


def lie(share: Share, rng: random.Random) -> Share:
    value, tags = share.value, share.tags
    if rng.random() < 0.8:
        value = rng.choice([bytes(32), rng.randbytes(32)])
    if tags and rng.random() < 0.3:
        tags = (*tags[:-1], rng.randbytes(4))
    return Share(share.label, tags, value)


def travel(world: World, key: ForgedKey, regions: int, liars: set[str], rng: random.Random) -> dict[Label, Share]:
    """All shares that reach a subscriber of the last region when liars do as they please, each anew for each key."""
    shares = list(key.shares)
    for region in range(1, regions + 1):
        view = world.overlay.views[region]
        passed = []
        for share in shares:
            holder = view.members[share.label[-1].place - 1]
            if region < regions:
                hop = world.overlay.views[region + 1].hop
                onward = resplit(share, key.header.digest, hop, f"{holder:0>32}".encode()[:32])
            else:
                onward = [share]
            if holder in liars:
                onward = [lie(s, rng) if rng.random() < 0.7 else s for s in onward if rng.random() < 0.9]
                if region < regions and rng.random() < 0.3:  # a consistent lie: an honest split of a false value
                    false = Share(share.label, share.tags, rng.randbytes(32))
                    onward = resplit(false, key.header.digest, hop, bytes(32))
            passed += onward
        shares = passed
    return {share.label: share for share in shares}


def judge(evidence: Evidence, world: World, key: ForgedKey, regions: int, shares: dict[Label, Share]) -> list[Effect]:
    hops = world.overlay.hops_between(1, regions)
    found = recombine(shares.values(), hops, lambda p, v: check_share(key.header, p, v), lambda secret: True)
    assert found is not None
    return evidence.judge(key.header, hops, shares, found.combination)


@pytest.mark.invariant(26)
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(WORLDS)), st.integers(0, 1 << 32))
def test_no_innocent_is_named_whatever_the_liars_do(sizes: tuple[int, ...], seed: int):
    rng, world = random.Random(seed), WORLDS[sizes]
    liars = {
        member
        for region, size in enumerate(sizes, 1)
        for member in rng.sample(world.overlay.views[region].members, (size - 1) // 2)
    }
    evidence = Evidence(world.overlay)
    for key in KEYS[sizes]:
        effects = judge(evidence, world, key, len(sizes), travel(world, key, len(sizes), liars, rng))
        assert named(effects) <= liars


@pytest.mark.parametrize("liar", ["r1b", "r2c"])
def test_a_constant_liar_is_named_after_enough_keys(liar: str):
    """In the last region every one of its shares is false, in the first all that it hands on."""
    world, evidence, rng = WORLDS[3, 3], Evidence(WORLDS[3, 3].overlay), random.Random(1)
    seen: set[str] = set()
    for key in KEYS[3, 3]:
        shares = travel(world, key, 2, set(), rng)
        place = world.overlay.views[int(liar[1])].place_of(liar)
        level = int(liar[1]) - 1
        for label in [label for label in shares if label[level].place == place]:
            shares[label] = Share(label, shares[label].tags, rng.randbytes(32))
        seen |= named(judge(evidence, world, key, 2, shares))
    assert seen == {liar}


def test_on_one_region_the_contradicting_share_names_its_sender_once():
    world = make_world({1: 3}, [], {"site": 1})
    key, evidence = forge_key(world, "site", "plant/#"), Evidence(world.overlay)
    shares = {s.label: s for s in key.shares}
    label = key.shares[1].label
    shares[label] = Share(label, (), bytes(32))
    first = judge(evidence, world, key, 1, shares)
    assert named(first) == {"r1b"}
    assert not named(judge(evidence, world, key, 1, shares))


def test_absent_shares_prove_nothing():
    world, evidence = WORLDS[3, 3], Evidence(WORLDS[3, 3].overlay)
    for key in KEYS[3, 3]:
        shares = travel(world, key, 2, set(), random.Random(1))
        kept = {k: s for k, s in shares.items() if k[0].place != 2 and k[1].place != 3}
        assert judge(evidence, world, key, 2, kept) == []


def test_if_no_explanation_survives_nobody_is_named():
    """More liars than the bound: nothing is promised, so nothing is claimed."""
    world, key = WORLDS[3, 3], KEYS[3, 3][0]
    honest = travel(world, key, 2, set(), random.Random(1))
    shares = {label: Share(label, s.tags, bytes(32)) for label, s in honest.items()}
    hops = world.overlay.hops_between(1, 2)
    effects = Evidence(world.overlay).judge(key.header, hops, shares, ((1, 2),))
    assert not named(effects)
    assert suspected(effects) == set(world.overlay.views[1].members)


def test_paths_with_too_many_explanations_are_only_suspected(monkeypatch: pytest.MonkeyPatch):
    assert EXPLANATIONS_MAX >= 35 * 35, "two regions of seven"
    monkeypatch.setattr("bridge.reader.blame.EXPLANATIONS_MAX", 8)
    world, evidence, rng = WORLDS[3, 3], Evidence(WORLDS[3, 3].overlay), random.Random(5)
    effects = [e for key in KEYS[3, 3] for e in judge(evidence, world, key, 2, travel(world, key, 2, {"r1a"}, rng))]
    assert not named(effects)
    assert suspected(effects) == {"r1a"}
