"""keys.sharetree: frames, re-splitting, and recombination among liars (A5, A6; docs/protocol.md §3)."""

from __future__ import annotations

import hmac
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import gf256, sharetree
from keys.errors import BadFrame, BadShare, KeysError, OurFault
from keys.sharetree import (
    Hop,
    Place,
    Share,
    check_label,
    decode_shares,
    encode_shares,
    first_split,
    level1_values,
    resplit,
)
from tests.keys.helpers import (
    Made,
    assert_canonical,
    assert_strict,
    bit_flips,
    made,
    path,
    recombine,
    replica_seed,
    stream,
)

ONE_REGION, TWO_REGIONS, THREE_REGIONS = made(3), made(3, 3), made(3, 3, 3)
DIGEST = bytes(32)


def find(key: Made, shares: Iterable[Share]) -> bytes | None:
    """The secret, None if these shares do not give it."""
    found = recombine(shares, key.hops, key.accept_level1, key.accept_secret)
    return None if found is None else found.secret


# ------------------------------------------------------------------------------------------- splitting


@pytest.mark.parametrize("key", [ONE_REGION, TWO_REGIONS, THREE_REGIONS, made(5, 3), made(1), made(3, 1, 3)])
def test_honest_shares_recombine_to_the_secret(key: Made) -> None:
    assert find(key, key.shares) == key.secret


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_k_honest_places_of_every_region_are_enough(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from([TWO_REGIONS, THREE_REGIONS]))
    honest = [
        data.draw(st.sets(st.integers(1, hop.count), min_size=hop.threshold, max_size=hop.threshold))
        for hop in key.hops
    ]
    kept = [s for s in key.shares if all(p in some for p, some in zip(s.places, honest, strict=True))]
    assert find(key, data.draw(st.permutations(kept))) == key.secret


def test_a_retransmission_repeats_the_same_subshares() -> None:
    share = ONE_REGION.shares[0]
    hop = path(3, 3)[1]
    once = resplit(share, DIGEST, hop, replica_seed(share))
    assert once == resplit(share, DIGEST, hop, replica_seed(share))
    assert len({sub.tags for sub in once}) == 1


def polynomial_of(subshares: list[Share]) -> tuple[bytes, ...]:
    """What two of the subshares say about the coefficients: their difference."""
    return tuple(gf256.xor(a.value, b.value) for a, b in combinations(subshares, 2))


def test_everything_that_could_relate_two_polynomials_changes_them() -> None:
    """A reused key id, a second next region, a new view or another value must not share coefficients."""
    share, hop, seed = ONE_REGION.shares[0], Hop(2, 7, 2, 3), bytes(range(32))
    moved = replace(share, label=(Place(1, 8, 1),))
    altered = replace(share, value=bytes(32))
    splits = [
        resplit(share, DIGEST, hop, seed),
        resplit(share, b"\1" * 32, hop, seed),
        resplit(share, DIGEST, Hop(3, 7, 2, 3), seed),
        resplit(share, DIGEST, Hop(2, 8, 2, 3), seed),
        resplit(share, DIGEST, Hop(2, 7, 3, 3), seed),
        resplit(moved, DIGEST, hop, seed),
        resplit(altered, DIGEST, hop, seed),
        resplit(share, DIGEST, hop, bytes(32)),
    ]
    assert len({polynomial_of(split) for split in splits}) == len(splits)
    assert len({split[0].tags for split in splits}) == len(splits)


def test_a_path_does_not_get_too_long_nor_visit_a_region_twice() -> None:
    share, seed = ONE_REGION.shares[0], bytes(32)
    with pytest.raises(BadShare):
        resplit(share, DIGEST, Hop(1, 8, 2, 3), seed)
    for region in (2, 3, 4):
        share = resplit(share, DIGEST, Hop(region, 7, 2, 3), seed)[0]
    with pytest.raises(BadShare):
        resplit(share, DIGEST, Hop(5, 7, 2, 3), seed)


def test_arguments_of_the_wrong_size_are_our_fault() -> None:
    share, hop = ONE_REGION.shares[0], Hop(2, 7, 2, 3)
    with pytest.raises(OurFault):
        resplit(share, DIGEST, hop, b"short")
    with pytest.raises(OurFault):
        resplit(share, b"short", hop, bytes(32))
    with pytest.raises(OurFault):
        first_split(b"short", hop, bytes(5))
    for threshold, count in ((0, 3), (4, 3), (2, 256)):
        with pytest.raises(OurFault):
            Hop(1, 1, threshold, count)
    with pytest.raises(OurFault):
        Hop(1 << 32, 1, 2, 3)


# -------------------------------------------------------------------------------------- what shares say


class Span:
    """Row space over GF(256): is the secret a combination of what a coalition holds?"""

    def __init__(self) -> None:
        self._rows: dict[int, bytes] = {}

    def reduce(self, row: bytes) -> bytes:
        for lead, known in self._rows.items():
            if row[lead]:
                row = gf256.xor(row, gf256.scale(known, row[lead]))
        return row

    def add(self, row: bytes) -> None:
        row = self.reduce(row)
        lead = next((i for i, x in enumerate(row) if x), None)
        if lead is not None:
            self._rows[lead] = gf256.scale(row, gf256.inv(row[lead]))


def symbolic_shares(hops: tuple[Hop, ...]) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Every share of the tree as a linear form in the secret (unknown 0) and all coefficients."""
    counts = [hop.count for hop in hops]
    splits = [1]
    for count in counts[:-1]:
        splits.append(splits[-1] * count)
    size = 1 + sum(number * (hop.threshold - 1) for number, hop in zip(splits, hops, strict=True))
    fresh = iter(range(1, size))
    level: dict[tuple[int, ...], bytes] = {(): bytes([1] + [0] * (size - 1))}
    for hop in hops:
        below = {}
        for label, form in level.items():
            unknowns = [next(fresh) for _ in range(hop.threshold - 1)]
            for x in range(1, hop.count + 1):
                row, power = bytearray(form), 1
                for unknown in unknowns:
                    power = gf256.mul(power, x)
                    row[unknown] ^= power
                below[(*label, x)] = bytes(row)
        yield from below.items()
        level = below


def coalition_learns(hops: tuple[Hop, ...], bad: tuple[tuple[int, ...], ...]) -> bool:
    """Whether the bad replicas of all regions together can compute the secret (Theorem 1 of A5)."""
    span = Span()
    size = 0
    for label, form in symbolic_shares(hops):
        size = len(form)
        if label[-1] in bad[len(label) - 1]:
            span.add(form)
    return not any(span.reduce(bytes([1] + [0] * (size - 1))))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_minority_of_three_learns_the_secret_wherever_it_sits(depth: int) -> None:
    hops = path(*[3] * depth)
    for bad in product([(1,), (2,), (3,)], repeat=depth):
        assert not coalition_learns(hops, bad)


def test_no_minority_of_five_learns_the_secret() -> None:
    pairs = list(combinations(range(1, 6), 2))
    for bad in random.Random(5).sample(list(product(pairs, repeat=2)), 40):
        assert not coalition_learns(path(5, 5), bad)


@pytest.mark.parametrize("bad", [((1, 2), (), ()), ((), (1, 3), ()), ((), (), (2, 3))])
def test_a_majority_of_one_region_does_learn_it(bad: tuple[tuple[int, ...], ...]) -> None:
    assert coalition_learns(path(3, 3, 3), bad)


# ------------------------------------------------------------------------------------------------- liars

Lie = Callable[[Share], Share | None]


def corrupt(value: bytes, salt: str) -> bytes:
    return gf256.xor(value, stream(salt + value.hex())(32))


LIES: dict[str, Lie] = {
    "silent": lambda share: None,
    "garbage": lambda share: replace(share, value=corrupt(share.value, "garbage")),
    "one bit": lambda share: replace(share, value=gf256.xor(share.value, bytes(31) + b"\1")),
    "zeros": lambda share: replace(share, value=bytes(32)),
    "to some": lambda share: replace(share, value=corrupt(share.value, "some")) if sum(share.places) % 2 else share,
    "tags": lambda share: replace(share, tags=(*share.tags[:-1], b"liar")) if share.tags else None,
    "first tag": lambda share: replace(share, tags=(b"liar", *share.tags[1:])) if share.tags else None,
    "view": lambda share: replace(share, label=tuple(p._replace(view=p.view + 1) for p in share.label)),
}


def forwarded(key: Made, liars: list[dict[int, Lie]]) -> list[Share]:
    """All shares that a subscriber behind the last region gets; `liars[d][place]` lies in region d + 1.

    A liar of the first regions lies in what it sends to the next; the last region's in what it delivers.
    """
    shares = first_shares(key)
    for depth, hop in enumerate(key.hops):
        sent = []
        for share in shares:
            lie = liars[depth].get(share.places[-1])
            subs = (
                resplit(share, key.header.digest, key.hops[depth + 1], replica_seed(share))
                if hop is not key.hops[-1]
                else [share]
            )
            for sub in subs:
                told = lie(sub) if lie else sub
                if told is not None:
                    sent.append(told)
        shares = sent
    return shares


def first_shares(key: Made) -> list[Share]:
    random_bytes = stream("made")
    secret = random_bytes(32)
    return first_split(secret, key.hops[0], random_bytes((key.hops[0].threshold - 1) * 32))


@pytest.mark.parametrize(("first", "second"), list(product(LIES, repeat=2)))
def test_every_placement_of_one_liar_in_each_of_two_regions_of_three(first: str, second: str) -> None:
    key = TWO_REGIONS
    for a, b in product((0, 1, 2, 3), repeat=2):
        shares = forwarded(key, [{a: LIES[first]} if a else {}, {b: LIES[second]} if b else {}])
        assert find(key, shares) == key.secret


def test_liars_in_three_regions_of_three() -> None:
    key = THREE_REGIONS
    for a, b, c in product((1, 2, 3), repeat=3):
        for lies in (("garbage", "one bit", "to some"), ("tags", "to some", "first tag")):
            liars = [{place: LIES[lie]} for place, lie in zip((a, b, c), lies, strict=True)]
            assert find(key, forwarded(key, liars)) == key.secret


@pytest.mark.parametrize("seed", range(8))
def test_two_liars_in_each_region_of_five(seed: int) -> None:
    key, draw = made(5, 5), random.Random(seed)
    liars = [{p: LIES[draw.choice(list(LIES))] for p in draw.sample(range(1, 6), 2)} for _ in key.hops]
    shares = forwarded(key, liars)
    draw.shuffle(shares)
    assert find(key, shares) == key.secret


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(sorted(LIES))), max_size=9), st.data())
def test_any_corruption_at_all_never_yields_a_wrong_secret(lies: list[tuple[int, str]], data: st.DataObject) -> None:
    shares: list[Share | None] = list(TWO_REGIONS.shares)
    for index, lie in lies:
        share = shares[index]
        shares[index] = LIES[lie](share) if share else None
    assert find(TWO_REGIONS, [share for share in shares if share]) in (TWO_REGIONS.secret, None)


# ------------------------------------------------------------------------------------------------ search


def test_too_few_shares_ask_for_more_and_one_more_suffices() -> None:
    key = TWO_REGIONS
    needed = [s for s in key.shares if s.places[0] < 3 and s.places[1] < 3]
    for count in range(len(needed)):
        assert find(key, needed[:count]) is None
    assert find(key, needed) == key.secret


def test_shares_of_other_splits_do_not_combine() -> None:
    """The same place re-split under another seed has another tag: nothing is combined across the two."""
    key = TWO_REGIONS
    other = [resplit(s, key.header.digest, key.hops[1], bytes(32)) for s in first_shares(key)]
    mixed = [share for share in key.shares if share.places[1] == 1]
    mixed += [subs[1] for subs in other]
    assert find(key, mixed) is None
    assert find(key, mixed + [subs[2] for subs in other]) == key.secret


def test_the_first_value_for_a_label_wins() -> None:
    key = ONE_REGION
    later = [LIES["garbage"](share) for share in key.shares]
    both = [*key.shares, *[share for share in later if share]]
    assert level1_values(both, key.hops, ()) == level1_values(key.shares, key.hops, ())


def test_level1_values_of_a_combination() -> None:
    key = TWO_REGIONS
    honest = {share.places[0]: share.value for share in first_shares(key)}
    assert level1_values(key.shares, key.hops, ((1, 3),)) == honest
    shares = forwarded(key, [{}, {1: LIES["first tag"], 2: LIES["silent"]}])
    assert level1_values(shares, key.hops, ((1, 3),)) == dict.fromkeys((1, 2, 3))
    assert level1_values(shares, key.hops, ((2, 3),)) == {}


def test_no_repr_shows_a_value() -> None:
    key = TWO_REGIONS
    found = recombine(key.shares, key.hops, key.accept_level1, key.accept_secret)
    shown = repr(found) + repr(key.shares)
    for secret in (key.secret, *[share.value for share in TWO_REGIONS.shares]):
        assert repr(secret) not in shown
        assert secret.hex() not in shown


# ------------------------------------------------------------------------------------------------ labels


@pytest.mark.parametrize(
    "label",
    [
        (),
        (Place(1, 7, 0),),
        (Place(1, 7, 256),),
        (Place(1, 7, -1),),
        (Place(1, 7, 1), Place(1, 7, 2)),
        tuple(Place(region, 7, 1) for region in range(5)),
    ],
)
def test_impossible_labels_make_no_share(label: tuple[Place, ...]) -> None:
    with pytest.raises(BadShare):
        Share(label, (b"tag.",) * max(len(label) - 1, 0), bytes(32))


def test_tags_and_values_of_the_wrong_size_make_no_share() -> None:
    label = (Place(1, 7, 1), Place(2, 7, 1))
    for tags, value in (((), bytes(32)), ((b"tag",), bytes(32)), ((b"tag.",), bytes(31))):
        with pytest.raises(BadShare):
            Share(label, tags, value)


def test_a_label_must_fit_our_own_views() -> None:
    share = TWO_REGIONS.shares[0]
    check_label(share, TWO_REGIONS.hops)
    first, second = TWO_REGIONS.hops
    for hops in (
        (first,),
        (second, first),
        (replace(first, view=8), second),
        (first, replace(second, view=6)),
        (first, replace(second, region=9)),
    ):
        with pytest.raises(BadShare):
            check_label(share, hops)
    beyond = replace(share, label=(share.label[0], share.label[1]._replace(place=4)))
    with pytest.raises(BadShare):
        check_label(beyond, TWO_REGIONS.hops)


# ------------------------------------------------------------------------------------------------ frames


@pytest.mark.parametrize("key", [ONE_REGION, TWO_REGIONS, made(3, 3, 3, 1)])
def test_the_frame_of_shares_is_strict(key: Made) -> None:
    shares = key.shares[:4]
    frame = encode_shares(reversed(shares))
    assert decode_shares(frame) == shares
    assert_strict(decode_shares, encode_shares, frame)  # type: ignore[arg-type]


@pytest.mark.long
def test_a_flipped_bit_of_shares_is_refused_or_cannot_mislead() -> None:
    key = TWO_REGIONS
    frame = encode_shares([share for share in key.shares if share.places[1] == 1])
    others = [share for share in key.shares if share.places[1] != 1]
    for changed in bit_flips(frame):
        try:
            shares = decode_shares(changed)
        except KeysError:
            continue
        assert encode_shares(shares) == changed
        assert find(key, shares + others) == key.secret


def test_coordinates_of_zero_and_repeated_labels_are_refused() -> None:
    frame = encode_shares(ONE_REGION.shares[:2])
    first = 3 + 1 + 8 + 2  # opening, depth, region and view, count
    with pytest.raises(BadShare):
        decode_shares(frame[:first] + b"\0" + frame[first + 1 :])
    with pytest.raises(BadFrame):
        decode_shares(frame[: first + 33] + b"\1" + frame[first + 34 :])
    with pytest.raises(OurFault):
        encode_shares([ONE_REGION.shares[0]] * 2)


def test_a_region_twice_in_a_path_is_refused() -> None:
    frame = bytearray(encode_shares(TWO_REGIONS.shares[:1]))
    frame[4 + 8 : 4 + 12] = frame[4:8]
    with pytest.raises(BadShare):
        decode_shares(bytes(frame))


def test_numbers_of_shares_and_paths_are_bounded() -> None:
    with pytest.raises(OurFault):
        encode_shares([])
    with pytest.raises(OurFault):
        encode_shares([ONE_REGION.shares[0], TWO_REGIONS.shares[0]])
    many = [
        Share((Place(1, 1, a), Place(2, 1, b)), (b"tag.",), bytes(32)) for a, b in product(range(1, 34), range(1, 33))
    ]
    assert len(decode_shares(encode_shares(many[:1024]))) == 1024
    with pytest.raises(OurFault):
        encode_shares(many)
    head = encode_shares(ONE_REGION.shares)[:12]
    for count in (0, 1025):
        with pytest.raises(BadFrame):
            decode_shares(head + count.to_bytes(2) + bytes(33 * count))


@settings(max_examples=100)
@given(st.binary(max_size=120))
def test_arbitrary_bytes_are_refused_or_canonical(tail: bytes) -> None:
    assert_canonical(decode_shares, encode_shares, b"\1\1\0" + tail)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ edges


def test_regions_and_views_are_numbers_of_32_bits() -> None:
    for region, view in ((0, 0), (2**32 - 1, 2**32 - 1)):
        assert Hop(region, view, 1, 1).view == view
    for region, view in ((-1, 0), (0, -1), (2**32, 0), (0, 2**32)):
        with pytest.raises(OurFault):
            Hop(region, view, 1, 1)


def test_the_last_place_of_a_region_fits_its_view() -> None:
    for place in (1, 3):
        check_label(Share((Place(1, 7, place),), (), bytes(32)), path(3))
    for place in (4, 255):
        with pytest.raises(BadShare):
            check_label(Share((Place(1, 7, place),), (), bytes(32)), path(3))


def test_a_second_split_is_that_of_the_derivation() -> None:
    """HKDF-Expand with HMAC alone, for a share that went through two regions already."""
    share = Share((Place(1, 7, 2), Place(5, 8, 3)), (b"tag1",), bytes(range(32)))
    hop, seed = Hop(9, 6, 2, 3), b"s" * 32
    label = (1).to_bytes(4) + (7).to_bytes(4) + b"\2" + (5).to_bytes(4) + (8).to_bytes(4) + b"\3"
    following = (9).to_bytes(4) + (6).to_bytes(4) + b"\2\3"
    info = b"veilmq/1 split" + DIGEST + b"\2" + label + following + share.value
    first = hmac.digest(seed, info + b"\1", "sha256")
    stream = (first + hmac.digest(seed, first + info + b"\2", "sha256"))[: 4 + 32]
    subshares = resplit(share, DIGEST, hop, seed)
    for x, sub in enumerate(subshares, 1):
        assert sub.tags == (b"tag1", stream[:4])
        expected = bytes(c ^ gf256.mul(a, x) for c, a in zip(share.value, stream[4:], strict=True))
        assert sub.value == expected


@pytest.mark.parametrize("depth", [0, 5, 255])
def test_a_frame_of_no_region_or_of_too_many_is_refused_as_a_frame(depth: int) -> None:
    with pytest.raises(BadFrame, match=f"depth {depth}"):
        decode_shares(b"\1\1\0" + bytes([depth]) + bytes(8 * depth) + b"\0\1" + b"\1" * (depth + 4 * 4 + 32))


def test_tags_of_every_split_must_agree() -> None:
    """A replica of the second region that tells another tag of the first split contradicts the others of its row."""
    key = THREE_REGIONS
    shares = [replace(share, tags=(b"liar", share.tags[1])) if share.places[1] == 2 else share for share in key.shares]
    assert set(level1_values(shares, key.hops, ((1, 2), (1, 2))).values()) == {None}
    assert None not in level1_values(shares, key.hops, ((1, 3), (1, 2))).values()


def test_nobody_is_enough_of_nothing() -> None:
    for shares in ([], [share for share in TWO_REGIONS.shares if share.places[0] == 1]):
        assert find(TWO_REGIONS, shares) is None


def test_every_tag_and_every_place_of_a_share_must_fit() -> None:
    label = tuple(Place(region, 7, 1) for region in (1, 2, 3))
    Share((Place(1, 7, 255), Place(2, 7, 1)), (b"tag.",), bytes(32))
    for tags in ((b"tag.", b"tag"), (b"tag", b"tag.")):
        with pytest.raises(BadShare):
            Share(label, tags, bytes(32))
    for wrong in (0, 256):
        with pytest.raises(BadShare):
            Share((Place(1, 7, wrong), Place(2, 7, 1)), (b"tag.",), bytes(32))


def test_a_region_has_255_replicas_at_most_and_a_secret_32_bytes() -> None:
    assert Hop(1, 1, 255, 255).count == 255
    for secret in (bytes(31), bytes(33)):
        with pytest.raises(OurFault):
            first_split(secret, Hop(1, 7, 2, 3), secret)


def test_a_frame_of_too_many_shares_is_refused_before_they_are_read() -> None:
    ascending = b"".join(bytes([a, b]) + b"tag." + bytes(32) for a, b in product(range(1, 6), range(1, 206)))
    head = encode_shares(TWO_REGIONS.shares)[: 3 + 1 + 16]
    with pytest.raises(BadFrame, match="a frame of 1025 shares"):
        decode_shares(head + (1025).to_bytes(2) + ascending)


def test_shares_of_another_path_are_left_out_and_hide_no_others() -> None:
    """One liar's share of another view, place or depth stops nobody from looking at the rest."""
    key, row = TWO_REGIONS, ((1, 3),)
    honest = level1_values(key.shares, key.hops, row)
    share = replace(key.shares[0], value=b"\7" * 32)
    first, second = share.label
    foreign = [
        replace(share, label=(first, second._replace(view=9))),
        replace(share, label=(first._replace(region=9), second)),
        replace(share, label=(first, second._replace(place=4))),
        THREE_REGIONS.shares[0],
        ONE_REGION.shares[0],
    ]
    for one in foreign:
        assert level1_values([one, *key.shares], key.hops, row) == honest
        assert level1_values([one], key.hops, row) == {}
        assert level1_values([one, *key.shares], key.hops, ((1, 4),)) == {}
    assert level1_values([], key.hops, row) == {}
    assert level1_values([], ONE_REGION.hops, ()) == {}


def test_a_row_that_misses_a_share_is_left_out_and_the_others_are_exact() -> None:
    key = TWO_REGIONS
    honest = {share.places[0]: share.value for share in first_shares(key)}
    without = [share for share in key.shares if share.places != (2, 3)]
    assert level1_values(without, key.hops, ((1, 3),)) == {1: honest[1], 3: honest[3]}
    assert level1_values(without, key.hops, ((1, 2),)) == honest


def test_a_tag_that_differs_spoils_its_own_row_only() -> None:
    key = TWO_REGIONS
    honest = {share.places[0]: share.value for share in first_shares(key)}
    shares = [replace(share, tags=(b"liar",)) if share.places == (2, 3) else share for share in key.shares]
    assert level1_values(shares, key.hops, ((1, 3),)) == {**honest, 2: None}


def test_a_combination_must_be_present_in_every_region_below() -> None:
    key = THREE_REGIONS
    assert level1_values(key.shares, key.hops, ((1, 2), (1, 2)))
    for combination in (((1, 2), (1, 4)), ((1, 4), (1, 2)), ((1, 2),), ((1, 2), (1, 2), (1, 2))):
        assert level1_values(key.shares, key.hops, combination) == {}


def test_a_grid_that_scattered_places_blow_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    key = TWO_REGIONS
    monkeypatch.setattr(sharetree, "CELLS_LIMIT", 9)
    assert level1_values(key.shares, key.hops, ((1, 3),))
    monkeypatch.setattr(sharetree, "CELLS_LIMIT", 8)
    with pytest.raises(OurFault, match="smaller regions"):
        level1_values(key.shares, key.hops, ((1, 3),))
