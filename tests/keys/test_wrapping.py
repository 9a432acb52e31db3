"""Wraps: who can open which, the frame byte by byte, what may come from whom, and when others' wraps are believed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st

from keys import frames
from keys.errors import BadFrame, BadShare, OurFault
from keys.sharetree import DEPTH_LIMIT, Hop, Place, Share
from keys.wrapping import (
    REGIONS_LIMIT,
    SEALED_BYTES,
    WRAPS_LIMIT,
    Wrap,
    WrapKey,
    WrapName,
    Wraps,
    carrying,
    check_wraps,
    decode_wraps,
    encode_wraps,
    honest_needed,
    is_long,
    label_hops,
    split_wrap_key,
    wrap_key,
    wrapping_hops,
    wraps_of,
)
from tests.keys.helpers import assert_canonical, assert_strict, bit_flips, path
from tests.keys.wrapped import Way

SEED, DIGEST = bytes(range(32)), bytes(range(32, 64))
OWN, BEFORE = Place(5, 2, 3), Place(4, 1, 2)
HELD = Share((BEFORE, OWN), (b"tag1",), bytes(range(64, 96)))
KEY_ID = b"k" * 16
FIVE = Way((3, 3, 3, 3, 3))


def sealing(key: bytes = b"w" * 32, digest: bytes = DIGEST, owner: Place = OWN) -> WrapKey:
    return WrapKey(key, digest, owner)


# -------------------------------------------------------------------------------------------------- sealing


def test_a_wrap_opens_under_its_own_key_header_owner_and_sender_alone() -> None:
    wrap = sealing().seal(HELD)
    assert wrap.name == WrapName(OWN, 2)
    assert len(wrap.sealed) == SEALED_BYTES == 52
    assert sealing().open(BEFORE, wrap.sealed) == HELD
    assert sealing(key=b"v" * 32).open(BEFORE, wrap.sealed) is None
    assert sealing(digest=bytes(32)).open(BEFORE, wrap.sealed) is None, "of another key, so of another epoch, too"
    for owner in (OWN._replace(region=6), OWN._replace(view=3), OWN._replace(place=4)):
        assert sealing(owner=owner).open(BEFORE, wrap.sealed) is None
    for sender in (BEFORE._replace(region=6), BEFORE._replace(view=3), BEFORE._replace(place=4)):
        assert sealing().open(sender, wrap.sealed) is None
    assert all(sealing().open(BEFORE, other) is None for other in bit_flips(wrap.sealed))


def test_equal_values_give_equal_wraps_and_others_nothing_in_common() -> None:
    assert sealing().seal(HELD) == sealing().seal(HELD), "a retransmission repeats them"
    other = sealing().seal(Share(HELD.label, HELD.tags, bytes(32))).sealed
    first = sealing().seal(HELD).sealed
    assert sum(a == b for a, b in zip(first, other, strict=True)) < 8


def test_sealing_is_what_the_protocol_says() -> None:
    coordinate = (5).to_bytes(4) + (2).to_bytes(4) + bytes([3])
    enc = HKDFExpand(hashes.SHA256(), 64, b"veilmq/1 wrap" + DIGEST + coordinate).derive(b"w" * 32)
    before = (4).to_bytes(4) + (1).to_bytes(4) + bytes([2])
    assert sealing().seal(HELD).sealed == AESSIV(enc).encrypt(b"tag1" + HELD.value, [before])
    derived = HKDFExpand(hashes.SHA256(), 32, b"veilmq/1 wrap key" + DIGEST + coordinate).derive(SEED)
    assert wrap_key(DIGEST, OWN, SEED) == Share((OWN,), (), derived)


def test_a_wrap_key_hangs_on_seed_header_and_place() -> None:
    known = {
        wrap_key(DIGEST, OWN, SEED).value,
        wrap_key(bytes(32), OWN, SEED).value,
        wrap_key(DIGEST, OWN, DIGEST).value,
    }
    known |= {wrap_key(DIGEST, place, SEED).value for place in (OWN._replace(place=4), OWN._replace(view=9), BEFORE)}
    assert len(known) == 6
    assert wrap_key(DIGEST, OWN, SEED) == wrap_key(DIGEST, OWN, SEED)


def test_a_wrap_key_is_split_for_each_next_region_on_its_own() -> None:
    key = wrap_key(DIGEST, OWN, SEED)
    one, other = path(3, view=7)[0], path(3, 3, view=7)[1]
    first, second = split_wrap_key(key, DIGEST, one, SEED), split_wrap_key(key, DIGEST, other, SEED)
    assert [share.label for share in first] == [(OWN, Place(1, 7, x)) for x in (1, 2, 3)]
    assert {s.value for s in first}.isdisjoint(s.value for s in second)


def test_a_replica_wraps_only_what_it_holds() -> None:
    for label in ((OWN, BEFORE), (BEFORE,), (Place(1, 1, 1), BEFORE, OWN)):
        with pytest.raises(OurFault):
            sealing().seal(Share(label, (b"tag1",) * (len(label) - 1), bytes(32)))
    for key, digest in ((b"", DIGEST), (b"w" * 32, b"")):
        with pytest.raises(OurFault):
            WrapKey(key, digest, OWN)
    for digest, seed in ((DIGEST, b""), (b"", SEED)):
        with pytest.raises(OurFault):
            wrap_key(digest, OWN, seed)


def test_nothing_shows_a_wrap_key() -> None:
    assert b"w" * 8 not in repr(sealing()).encode()
    assert (b"w" * 32).hex() not in repr(sealing())
    assert repr(wrap_key(DIGEST, OWN, SEED).value) not in repr(wrap_key(DIGEST, OWN, SEED))


# ---------------------------------------------------------------------------------------------------- bounds


def test_bounds() -> None:
    assert [is_long(n) for n in (1, DEPTH_LIMIT, DEPTH_LIMIT + 1)] == [False, False, True]
    assert wraps_of(path(3)) == wraps_of(path(3, 3)) == 0
    assert wraps_of(path(3, 5, 7)) == 15
    assert wraps_of(path(*[7] * REGIONS_LIMIT)) == 14 * 49 <= WRAPS_LIMIT
    assert label_hops(path(3, 3, 3), wrapped=True) == path(3, 3, 3)[1:]
    assert label_hops(path(3, 3, 3), wrapped=False) == path(3, 3, 3)
    assert label_hops(path(3), wrapped=True) == path(3)
    assert wrapping_hops(path(3, 3, 3, 3)) == path(3, 3, 3, 3)[1:3]
    assert [honest_needed(hop) for hop in path(1, 2, 3, 4, 5, 7)] == [1, 1, 2, 2, 3, 4]


def test_the_largest_frame_fits_a_user_property() -> None:
    hops = path(*[7] * REGIONS_LIMIT)
    wraps = [Wrap(WrapName(Place(hop.region, hop.view, owner), sender), bytes(SEALED_BYTES))
             for hop in hops[1:-1] for owner, sender in product(range(1, 8), repeat=2)]  # fmt: skip
    assert len(frames.to_property(encode_wraps(KEY_ID, hops, wraps))) <= frames.PROPERTY_LENGTH_LIMIT


# ---------------------------------------------------------------------------------------------------- frames


def one_frame() -> bytes:
    return encode_wraps(KEY_ID, FIVE.hops, FIVE.wraps)


def encode(told: Any) -> bytes:
    key_id, wraps = told
    regions = dict.fromkeys((owner.region, owner.view) for (owner, _), _ in wraps)
    return encode_wraps(key_id, [Hop(region, view, 1, 1) for region, view in regions], wraps)


def test_the_frame_is_strict_and_what_the_protocol_says() -> None:
    frame = one_frame()
    key_id, wraps = decode_wraps(frame)
    assert key_id == KEY_ID
    assert set(wraps) == set(FIVE.wraps)
    assert frame[:20] == bytes([1, 45, 0]) + KEY_ID + b"\3"
    assert frame[20:32] == (2).to_bytes(4) + (7).to_bytes(4) + (9).to_bytes(2) + b"\1\1"
    assert len(frame) == 20 + 3 * (10 + 9 * 54)
    assert_strict(decode_wraps, encode, frame[:20].replace(b"\3", b"\1") + frame[20:84].replace(b"\0\x09", b"\0\1"))
    assert encode((key_id, wraps)) == frame


def head(regions: int = 1, count: int = 1, region: int = 2) -> bytes:
    return bytes([1, 45, 0]) + KEY_ID + bytes([regions]) + region.to_bytes(4) + (7).to_bytes(4) + count.to_bytes(2)


SEALED = bytes(SEALED_BYTES)


@pytest.mark.parametrize(("frame", "words"), [
    (head(regions=0)[:20], "wraps of 0 regions"),
    (head(regions=15), "wraps of 15 regions"),
    (head(count=0), "without wraps"),
    (head(count=WRAPS_LIMIT + 1), "too many"),
    (head(regions=2) + b"\1\1" + SEALED + head()[20:] + b"\1\2" + SEALED, "twice"),
    (head() + b"\0\1" + SEALED, "place 0"),
    (head() + b"\1\0" + SEALED, "place 0"),
    (head(count=2) + (b"\1\1" + SEALED) * 2, "ascending"),
    (head(count=2) + b"\1\2" + SEALED + b"\1\1" + SEALED, "ascending"),
    (head() + b"\1\1" + SEALED[1:], "ends at byte"),
    (head() + b"\1\1" + SEALED + b"\0", "trailing"),
])  # fmt: skip
def test_frames_that_are_refused(frame: bytes, words: str) -> None:
    with pytest.raises(BadFrame, match=words):
        decode_wraps(frame)


@given(st.binary(max_size=300), st.integers(0, 3), st.integers(0, 4))
def test_arbitrary_bytes_are_refused_or_canonical(tail: bytes, regions: int, count: int) -> None:
    assert_canonical(decode_wraps, encode, head(regions, count) + tail)
    assert_canonical(decode_wraps, encode, bytes([1, 45, 0]) + tail)


def test_what_fits_no_frame_is_our_fault() -> None:
    (wrap, *_) = FIVE.wraps
    for key_id, told in ((KEY_ID, []), (b"", [wrap]), (KEY_ID, [wrap, wrap]), (KEY_ID, [wrap._replace(sealed=b"")])):
        with pytest.raises(OurFault):
            encode_wraps(key_id, FIVE.hops, told)
    with pytest.raises(OurFault, match="not on the way"):
        encode_wraps(KEY_ID, FIVE.hops[3:], [wrap])
    many = [Wrap(WrapName(Place(2, 7, 1 + n // 255), 1 + n % 255), SEALED) for n in range(WRAPS_LIMIT + 1)]
    assert len(encode_wraps(KEY_ID, FIVE.hops, many[1:])) > WRAPS_LIMIT * SEALED_BYTES
    with pytest.raises(OurFault, match=f"1 to {WRAPS_LIMIT}"):
        encode_wraps(KEY_ID, FIVE.hops, many)


def test_a_kept_property_says_what_it_is() -> None:
    assert carrying(frames.to_property(one_frame())) == "vmq-wraps"
    assert carrying(frames.to_property(b"\1\1\0")) == "vmq-shares"


# ------------------------------------------------------------------------------------------------ on arrival


def named(region: int, owner: int, sender: int, view: int = 7) -> Wrap:
    return Wrap(WrapName(Place(region, view, owner), sender), SEALED)


REPLICA, READER = Place(4, 7, 2), Place(5, 7, 2)  # who sends to a replica of region 5, and to a reader there


@pytest.mark.parametrize("sender", [REPLICA, READER], ids=["to a replica", "to a reader"])
def test_wraps_of_the_regions_between_may_come(sender: Place) -> None:
    check_wraps([named(2, 1, 3), named(3, 3, 1), named(3, 3, 3)], FIVE.hops, sender)
    check_wraps([], FIVE.hops, sender)
    check_wraps([named(4, 2, 1), named(4, 2, 3)], FIVE.hops, Place(4, 7, 2))


@pytest.mark.parametrize(("wraps", "sender"), [
    ([named(1, 1, 1)], REPLICA),  # the publisher's region wraps nothing
    ([named(5, 1, 1)], REPLICA),  # nor the last one for its own readers
    ([named(5, 2, 1)], READER),
    ([named(9, 1, 1)], REPLICA),  # not on the way
    ([named(3, 1, 1), named(2, 1, 1)], REPLICA),
    ([named(2, 1, 1, view=6)], REPLICA),
    ([named(2, 4, 1)], REPLICA),
    ([named(2, 1, 4)], REPLICA),
    ([named(4, 1, 1)], REPLICA),  # of a replica beside the sender
    ([named(4, 2, 1), named(4, 3, 1)], REPLICA),
], ids=str)  # fmt: skip
def test_wraps_that_may_not_come(wraps: Sequence[Wrap], sender: Place) -> None:
    with pytest.raises(BadShare):
        check_wraps(wraps, FIVE.hops, sender)


@pytest.mark.parametrize("counts", [(3,), (3, 3)])
def test_on_a_way_of_one_or_two_regions_nobody_wraps(counts: tuple[int, ...]) -> None:
    for region in (1, 2):
        with pytest.raises(BadShare):
            check_wraps([named(region, 1, 1)], path(*counts), Place(1, 7, 1))


# ------------------------------------------------------------------------------------------------- believing

FAR, OTHER = named(2, 1, 1), named(2, 1, 1)._replace(sealed=b"o" * SEALED_BYTES)


def test_a_wrap_is_believed_once_f_and_one_neighbours_said_the_same() -> None:
    wraps = Wraps(2)
    assert wraps.take_wraps([FAR], Place(3, 7, 1)) == ([], [FAR], False)
    assert wraps.take_wraps([FAR], Place(3, 7, 1)) == ([], [], False), "one vote each"
    assert wraps.take_wraps([OTHER], Place(3, 7, 2)) == ([], [OTHER], False)
    assert [*wraps.undecided] == [FAR.name]
    assert wraps.take_wraps([FAR], Place(3, 7, 3)) == ([FAR], [FAR], False)
    assert wraps.believed == {FAR.name: FAR.sealed}
    assert not wraps.undecided
    assert wraps.take_wraps([OTHER], Place(3, 7, 2)) == ([], [], False), "the first that is believed stays"
    assert wraps.believed == {FAR.name: FAR.sealed}


def test_a_neighbour_that_says_two_things_has_the_first_vote_alone() -> None:
    wraps = Wraps(2)
    wraps.take_wraps([FAR], Place(3, 7, 1))
    assert wraps.take_wraps([OTHER], Place(3, 7, 1)) == ([], [], True)
    assert wraps.take_wraps([OTHER], Place(3, 7, 2)).believed == []


def test_the_owners_own_word_counts_alone_and_at_first() -> None:
    wraps = Wraps(3)
    assert wraps.take_wraps([FAR], FAR.name.owner) == ([FAR], [FAR], False)
    assert wraps.take_wraps([OTHER], FAR.name.owner) == ([], [], True), "different wraps of one name"
    assert wraps.believed == {FAR.name: FAR.sealed}


@pytest.mark.parametrize("seed", range(20))
def test_liars_neither_forge_a_wrap_nor_hide_one(seed: int) -> None:
    """f of five neighbours say anything, as often as they like, before and after the honest ones."""
    rng = random.Random(seed)
    truth = [
        named(2, owner, sender)._replace(sealed=rng.randbytes(52)) for owner, sender in product((1, 2, 3), repeat=2)
    ]
    wraps, liars = Wraps(3), rng.sample(range(1, 6), 2)
    said: list[tuple[int, list[Wrap]]] = [(place, truth) for place in range(1, 6) if place not in liars]
    for liar in liars:
        said += [(liar, [rng.choice([w, w._replace(sealed=rng.randbytes(52))]) for w in truth]) for _ in range(4)]
    rng.shuffle(said)
    for place, told in said:
        wraps.take_wraps(told, Place(3, 7, place))
    assert wraps.believed == {wrap.name: wrap.sealed for wrap in truth}


def test_what_neighbours_said_in_vain_is_bounded_by_names_and_neighbours() -> None:
    wraps = Wraps(3)
    for n in range(50):
        wraps.take_wraps([FAR._replace(sealed=n.to_bytes(52))], Place(3, 7, 1 + n % 2))
    assert len(wraps.undecided) == 1
    assert sum(map(len, wraps._votes.values())) == 2


def test_frozen_wraps_have_not_changed() -> None:
    vectors = json.loads((Path(__file__).parents[1] / "vectors" / "wraps.json").read_text("utf-8"))["wraps"]
    key = wrap_key(DIGEST, OWN, SEED)
    assert key.value.hex() == vectors["wrap_key"]
    wrap = WrapKey(key.value, DIGEST, OWN).seal(HELD)
    assert wrap.sealed.hex() == vectors["sealed"]
    parts = split_wrap_key(key, DIGEST, path(3)[0], SEED)
    assert [[*map(bytes.hex, (*part.tags, part.value))] for part in parts] == vectors["split"]
    hops = [Hop(region, view, 2, 3) for region, view in ((4, 1), (5, 2), (6, 1))]
    assert encode_wraps(KEY_ID, hops, [wrap]).hex() == vectors["frame"]
