"""keys beside code that shares no line with it: shamir-mnemonic (our field), pycryptodome, and a tree by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest
from Crypto.Cipher import AES
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from shamir_mnemonic.shamir import SECRET_INDEX, RawShare, _interpolate, _recover_secret, _split_secret

from keys import sharetree
from keys.errors import OurFault
from keys.reedsolomon import encode, rebuild
from keys.shamir import combine, split
from keys.sharetree import Hop, Place, Share, first_split, level1_values, resplit
from tests.keys.helpers import path, recombine, stream

secrets = st.binary(min_size=16, max_size=40)


def region(data: st.DataObject, largest: int = 10) -> tuple[int, int]:
    count = data.draw(st.integers(2, largest))
    return data.draw(st.integers(2, count)), count


# -------------------------------------------------------------------------------------------- one sharing


@settings(max_examples=60)
@given(secrets, st.data())
def test_another_library_recombines_our_shares(secret: bytes, data: st.DataObject) -> None:
    threshold, count = region(data)
    shares = split(secret, threshold, count, stream("ours")((threshold - 1) * len(secret)))
    chosen = data.draw(st.permutations(range(1, count + 1)))[:threshold]
    raw = [RawShare(x, shares[x - 1]) for x in chosen]
    assert _interpolate(raw, 0) == secret
    assert [_interpolate(raw, x) for x in range(1, count + 1)] == list(shares)


@settings(max_examples=60)
@given(secrets, st.data())
def test_we_recombine_the_shares_of_another_library(secret: bytes, data: st.DataObject) -> None:
    """Its secret is at x = 255: in characteristic 2, adding 255 to every coordinate moves it to 0."""
    threshold, count = region(data)
    shares = _split_secret(threshold, count, secret)
    chosen = data.draw(st.permutations(shares))[:threshold]
    assert _recover_secret(threshold, chosen) == secret
    assert combine({share.x ^ SECRET_INDEX: share.data for share in chosen}) == secret


@settings(max_examples=40)
@given(st.binary(min_size=1, max_size=100), st.data())
def test_blocks_are_values_of_the_same_polynomials(content: bytes, data: st.DataObject) -> None:
    needed, total = region(data)
    blocks = encode(content, needed, total)
    chosen = data.draw(st.permutations(range(total)))[:needed]
    raw = [RawShare(index, blocks[index]) for index in chosen]
    for index in range(total):
        assert _interpolate(raw, index) == rebuild({i: blocks[i] for i in chosen}, index, needed, total)


@settings(max_examples=30)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100), st.binary(max_size=100))
def test_another_library_seals_the_same(key: bytes, content: bytes, associated: bytes) -> None:
    nonce = stream("nonce")(12)
    other = AES.new(key, AES.MODE_GCM, nonce=nonce, mac_len=16)
    other.update(associated)
    assert b"".join(other.encrypt_and_digest(content)) == AESGCM(key).encrypt(nonce, content, associated)


# ------------------------------------------------------------------------------------------------- trees


def tree(*counts: int) -> tuple[bytes, tuple[Hop, ...], dict[int, bytes], list[Share]]:
    """Secret, path, level-1 values, and all shares of the last region."""
    hops, draw = path(*counts), stream("tree")
    secret = draw(32)
    shares = first_split(secret, hops[0], draw((hops[0].threshold - 1) * 32))
    level1 = {share.places[0]: share.value for share in shares}
    for hop in hops[1:]:
        shares = [sub for share in shares for sub in resplit(share, bytes(32), hop, bytes(32))]
    return secret, hops, level1, shares


TREES = [tree(3), tree(3, 3), tree(2, 4), tree(1, 3, 2), tree(3, 3, 3), tree(3, 4, 3)]


def row_by_hand(
    leaves: dict[tuple[int, ...], Share], prefix: tuple[int, ...], subsets: Sequence[Sequence[int]]
) -> tuple[bytes, ...] | str | None:
    """(tags..., value) of one label, depth first, share by share; "clash", or None if a share is missing."""
    if not subsets:
        share = leaves.get(prefix)
        return None if share is None else (*share.tags, share.value)
    parts = [row_by_hand(leaves, (*prefix, place), subsets[1:]) for place in subsets[0]]
    if None in parts:
        return None
    if "clash" in parts or len({part[:-1] for part in parts}) != 1:
        return "clash"
    value = _interpolate([RawShare(place, part[-1]) for place, part in zip(subsets[0], parts, strict=True)], 0)
    return (*parts[0][:-2], value)


def disturbed(shares: list[Share], draw: random.Random) -> list[Share]:
    """Shares after a few places altered values and tags, held shares back, or gave them another place or view."""
    liars = {(level, draw.randint(1, 4)) for level in range(3) if draw.random() < 0.6}
    found = []
    for share in shares:
        fault = draw.choice(("value", "tag", "place", "view", "none", "none"))
        last = share.label[-1]
        if not liars.intersection(enumerate(share.places)) or fault == "none":
            found.append(share)
        elif fault == "value":
            found.append(replace(share, value=draw.randbytes(32)))
        elif fault == "tag" and share.tags:
            at = draw.randrange(len(share.tags))
            found.append(replace(share, tags=(*share.tags[:at], draw.randbytes(4), *share.tags[at + 1 :])))
        elif fault == "place":
            found.append(replace(share, label=(*share.label[:-1], last._replace(place=draw.randint(1, 5)))))
        elif fault == "view":
            found.append(replace(share, label=(*share.label[:-1], last._replace(view=8))))
    draw.shuffle(found)
    return found


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TREES), st.integers(0, 1 << 32))
def test_a_tree_is_what_combining_share_by_share_makes_of_it(
    case: tuple[bytes, tuple[Hop, ...], dict[int, bytes], list[Share]], seed: int
) -> None:
    secret, hops, level1, shares = case
    shares = disturbed(shares, random.Random(seed))
    leaves: dict[tuple[int, ...], Share] = {}
    for share in shares:
        fits = zip(share.label, hops, strict=True)
        if all(place.view == hop.view and place.place <= hop.count for place, hop in fits):
            leaves.setdefault(share.places, share)
    present = [sorted({places[level] for places in leaves}) for level in range(len(hops))]
    good, whole = set[int](), False
    for subsets in product(
        *(combinations(places, hop.threshold) for places, hop in zip(present[1:], hops[1:], strict=True))
    ):
        by_hand = {place: row_by_hand(leaves, (place,), subsets) for place in present[0]}
        rows = {place: None if row == "clash" else row[-1] for place, row in by_hand.items() if row is not None}
        assert level1_values(shares, hops, subsets) == rows
        fit = {place for place, value in rows.items() if value == level1[place]}
        good |= fit
        whole |= len(fit) >= hops[0].threshold
    found = recombine(shares, hops, lambda place, value: level1[place] == value, lambda value: value == secret)
    if found is None:
        assert not whole, "k rows fit under one choice, and it was not tried"
    else:
        assert found.secret == secret
        assert found.rows.keys() <= good


def test_forgetting_levels_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    _, hops, level1, shares = tree(3, 3, 3)
    lying = [replace(s, value=bytes(32)) if s.places[1:] in ((1, 1), (2, 2)) else s for s in shares]
    results = []
    for kept in (sharetree.LEVELS_KEPT, 1):
        monkeypatch.setattr(sharetree, "LEVELS_KEPT", kept)
        results.append([level1_values(lying, hops, choice) for choice in product(((1, 2), (1, 3), (2, 3)), repeat=2)])
    assert results[0] == results[1]
    assert level1 in results[0]
    assert results[0].count(level1) < len(results[0])


def test_a_row_without_shares_or_of_other_places_is_no_row() -> None:
    _, hops, _, shares = tree(3, 3)
    for combination in ((), ((1, 4),), ((1, 2), (1, 2))):
        assert level1_values(shares, hops, combination) == {}
    assert level1_values([], hops, ((1, 2),)) == {}


def test_scattered_places_of_huge_regions_fill_no_memory() -> None:
    hops = tuple(Hop(region, 7, 1, 255) for region in (1, 2, 3, 4))
    labels = [tuple(Place(hop.region, 7, place) for hop in hops) for place in range(1, 256)]
    shares = [Share(label, (bytes(4),) * 3, bytes(32)) for label in labels]
    with pytest.raises(OurFault, match="smaller regions"):
        level1_values(shares, hops, ((1,), (1,), (1,)))
