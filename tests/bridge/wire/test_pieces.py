"""Content in pieces: what is cut comes back, what a wire says of pieces has one form, and who carries what."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.wire import pieces as content
from keys.envelope import NO_KEY, MessageHeader, Mode, content_digest
from keys.errors import BadContent, BadFrame

MODES = (Mode.COPIES, Mode.ONE, Mode.BLOCKS)


def header_of(mode: Mode, pieces: tuple[bytes, ...], sequence: int = 1, retain: bool = False) -> MessageHeader:
    key_id = NO_KEY if mode is Mode.PLAIN else b"k" * 16
    digests = tuple(map(content_digest, pieces))
    return MessageHeader(b"p" * 16, key_id, sequence, 0, 1, 0, 1, retain, False, mode, digests)


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=300), st.sampled_from([1, 2, 3, 5, 7]))
def test_any_blocks_that_suffice_give_the_content(data: bytes, count: int) -> None:
    pieces = content.cut(data, Mode.BLOCKS, count)
    header = header_of(Mode.BLOCKS, pieces)
    for indexes in combinations(range(count), content.needed(count)):
        some = {index: pieces[index] for index in indexes}
        assert content.suffices(header, some)
        assert content.join(header, some) == data
        assert all(content.remade(header, some, index) == pieces[index] for index in range(count))
        some.popitem()
        assert not content.suffices(header, some)
        lost = indexes[-1]
        assert content.remade(header, some, lost) is None


def test_blocks_of_two_contents_are_refused_by_whoever_has_them() -> None:
    """A publisher that signs such blocks cannot make readers read different things."""
    one, other = content.cut(b"a" * 60, Mode.BLOCKS, 3), content.cut(b"b" * 60, Mode.BLOCKS, 3)
    pieces = (one[0], one[1], other[2])
    header = header_of(Mode.BLOCKS, pieces)
    for indexes in combinations(range(3), 2):
        with pytest.raises(BadContent, match="not of one content"):
            content.join(header, {index: pieces[index] for index in indexes})
    assert content.remade(header, {0: one[0], 1: one[1]}, 2) is None


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 8, b"\0\0\0\xff" + bytes(4)])
def test_blocks_whose_length_lies_are_refused(data: bytes) -> None:
    pieces = (data[:4] or b"x", data[4:] or b"yy", b"zzzz")
    header = header_of(Mode.BLOCKS, pieces)
    with pytest.raises(BadContent):
        content.join(header, {0: pieces[0], 1: pieces[1]})


@pytest.mark.parametrize(
    ("part", "payload", "why"),
    [
        (None, b"x", "mode BLOCKS"), ("-", b"x", "with content"), ("", b"x", "no list"), ("x", b"x", "no list"),
        ("1,0", b"xy", "lists no"), ("0,0", b"xy", "lists no"), ("3", b"x", "lists no"), ("00", b"x", "lists no"),
        ("0,1", b"xyz", "different length"), ("٣", b"x", "no list"), ("0," * 300 + "1", b"x" * 301, "no list|lists no"),
    ],
)  # fmt: skip
def test_a_part_that_cannot_be_is_refused(part: str | None, payload: bytes, why: str) -> None:
    header = header_of(Mode.BLOCKS, content.cut(b"abc", Mode.BLOCKS, 3))
    with pytest.raises(BadFrame, match=why):
        content.read(header, payload, part)


@settings(max_examples=100)
@given(st.text(max_size=12), st.binary(max_size=24))
def test_no_part_makes_a_reader_fail(part: str, payload: bytes) -> None:
    for mode in MODES:
        pieces = content.cut(b"abcdefgh", mode, 3)
        try:
            read = content.read(header_of(mode, pieces), payload, part)
        except BadFrame:
            continue
        assert read is None or all(pieces[index] == piece for index, piece in read.items())


@pytest.mark.parametrize("mode", [*MODES, Mode.PLAIN])
def test_what_is_written_is_read(mode: Mode) -> None:
    pieces = content.cut(b"content" * 9, mode, 5)
    header = header_of(mode, pieces)
    for some in ({}, {0: pieces[0]}, dict(enumerate(pieces))):
        wire = content.wire("t", header, (("vmq", "h"),), some)
        assert content.read(header, wire.payload, dict(wire.properties).get(content.PROPERTY_PART)) == some


def test_altered_content_fits_no_digest() -> None:
    for mode in MODES:
        pieces = content.cut(b"content" * 9, mode, 3)
        wire = content.wire("t", header_of(mode, pieces), (), {0: pieces[0]})
        part = dict(wire.properties).get(content.PROPERTY_PART)
        assert content.read(header_of(mode, pieces), wire.payload[:-1] + b"!", part) is None
        assert content.read(header_of(mode, pieces), b"", part) is None


def test_blocks_of_no_length_are_no_content() -> None:
    """To make another one of them is impossible: that must not be the next neighbour's finding."""
    assert content.read(header_of(Mode.BLOCKS, (b"", b"", b"")), b"", "0,1") is None


@pytest.mark.parametrize(("mode", "count", "following"), list(product(MODES, (3, 5, 7), (3, 5, 7))))
def test_each_place_has_its_pieces_from_one_before(mode: Mode, count: int, following: int) -> None:
    for sequence in range(1, 9):
        header = header_of(mode, content.cut(b"c" * 90, mode, 3), sequence)
        carried = [index for place in range(1, following + 1) for index in content.carried(header, place, following)]
        assert set(carried) == set(range(len(header.digests)))
        if mode is not Mode.COPIES:
            assert len(carried) == len(set(carried)), "once"
        for place in range(1, following + 1):
            got = [content.passed(header, before, count, place, following) for before in range(1, count + 1)]
            assert sorted(sum(got, ())) == sorted(content.carried(header, place, following))


def test_plain_stays_plain_and_what_is_retained_travels_as_copies() -> None:
    assert content.chosen(Mode.PLAIN, 10**6, False) is Mode.PLAIN
    assert content.chosen(Mode.PLAIN, 1, True) is Mode.PLAIN
    for mode in (*MODES, Mode.AUTO):
        assert content.chosen(mode, 10**6, True) is Mode.COPIES
        assert content.chosen(mode, content.INLINE_BYTES, False) is Mode.COPIES
    assert content.chosen(Mode.AUTO, content.AUTO_COPIES_BYTES, False) is Mode.COPIES
    assert content.chosen(Mode.AUTO, content.AUTO_COPIES_BYTES + 1, False) is Mode.BLOCKS
    sealed = header_of(Mode.BLOCKS, (b"x",))
    content.check_mode(sealed, Mode.COPIES)
    for header, scope in ((sealed, Mode.PLAIN), (header_of(Mode.PLAIN, (b"x",)), Mode.AUTO)):
        with pytest.raises(BadFrame, match="does not fit"):
            content.check_mode(header, scope)
    with pytest.raises(BadFrame, match="retained"):
        content.check_mode(replace(sealed, retain=True), Mode.BLOCKS)


def test_each_scope_has_the_mode_that_its_owner_chose() -> None:
    for mode in MODES:
        assert content.chosen(mode, content.INLINE_BYTES + 1, False) is mode
        assert content.chosen(mode, 10**6, False) is mode


def test_what_is_retained_may_come_as_copies() -> None:
    content.check_mode(header_of(Mode.COPIES, (b"x",), retain=True), Mode.BLOCKS)
    with pytest.raises(BadFrame, match="retained"):
        content.check_mode(header_of(Mode.ONE, (b"x",), retain=True), Mode.ONE)


def test_the_first_pieces_are_enough_in_whatever_order_they_came() -> None:
    header = header_of(Mode.BLOCKS, content.cut(b"abc" * 9, Mode.BLOCKS, 5))
    assert content.enough(header, [4, 0, 2, 1]) == (0, 1, 2)


def test_a_request_for_pieces_that_are_not_there_is_told_from_one_for_another_sealing() -> None:
    header = header_of(Mode.BLOCKS, content.cut(b"abc" * 9, Mode.BLOCKS, 3))
    for time_ms in (0, header.time_ms):
        assert content.has_parts(header, (), time_ms)
        assert content.has_parts(header, (2,), time_ms)
        assert not any(content.has_parts(header, parts, time_ms) for parts in ((3,), (0, 3), (7,)))
    assert content.has_parts(header, (7,), header.time_ms + 1)


@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.ONE, Mode.PLAIN])
def test_the_only_piece_is_the_content(mode: Mode) -> None:
    assert content.join(header_of(mode, (b"content",)), {0: b"content"}) == b"content"


def test_blocks_of_no_content_are_none() -> None:
    pieces = content.cut(b"", Mode.BLOCKS, 3)
    with pytest.raises(BadContent, match="not of one content"):
        content.join(header_of(Mode.BLOCKS, pieces), dict(enumerate(pieces)))


def test_a_piece_that_is_here_needs_no_others_and_others_of_two_lengths_make_none() -> None:
    pieces = content.cut(b"abc" * 9, Mode.BLOCKS, 3)
    header = header_of(Mode.BLOCKS, pieces)
    assert content.remade(header, {1: pieces[1]}, 1) == pieces[1]
    assert content.remade(header, {0: pieces[0], 1: pieces[1] + b"!"}, 2) is None


def test_who_carries_what() -> None:
    """`one`: one place of a region; `blocks`: block i by place (i mod n) + 1; copies: everybody."""
    for sequence in (1, 2, 3, 1000):
        alone = header_of(Mode.ONE, (b"x",), sequence)
        place = content.alone(alone, 3)
        assert place == zlib.crc32(alone.publisher + sequence.to_bytes(8)) % 3 + 1
        assert [content.carried(alone, at, 3) for at in (1, 2, 3)] == [(0,) if at == place else () for at in (1, 2, 3)]
    blocks = header_of(Mode.BLOCKS, content.cut(b"c" * 90, Mode.BLOCKS, 5))
    assert [content.carried(blocks, at, 3) for at in (1, 2, 3)] == [(0, 3), (1, 4), (2,)]
    assert [content.carried(header_of(Mode.COPIES, (b"x",)), at, 3) for at in (1, 2, 3)] == [(0,)] * 3


@pytest.mark.parametrize("records", [1, 3, 64, 256])
@pytest.mark.parametrize("count", range(2, 10))
def test_batches_of_any_length_are_spread_over_all_places(records: int, count: int) -> None:
    """A bad replica at the one place of all would make each of them wait for a request."""
    places = Counter(
        content.alone(header_of(Mode.ONE, (b"x",), number), count) for number in range(1, 2000 * records, records)
    )
    assert sorted(places) == list(range(1, count + 1))
    assert max(places.values()) < 1.3 * 2000 / count


@pytest.mark.parametrize("mode", MODES)
def test_nobody_passes_on_what_it_does_not_carry_and_copies_stay_in_their_plane(mode: Mode) -> None:
    header = header_of(mode, content.cut(b"c" * 90, mode, 3), 2)
    for before, after in product(range(1, 4), range(1, 6)):
        passed = content.passed(header, before, 3, after, 5)
        assert set(passed) <= set(content.carried(header, before, 3))
        if mode is Mode.COPIES:
            assert bool(passed) is ((after - 1) % 3 + 1 == before)


def test_only_short_whole_copies_ride_along() -> None:
    short, long = b"x" * content.INLINE_BYTES, b"x" * (content.INLINE_BYTES + 1)
    for mode in (Mode.COPIES, Mode.PLAIN):
        assert content.rides_along(header_of(mode, (short,)), {0: short})
        assert not content.rides_along(header_of(mode, (long,)), {0: long})
        assert not content.rides_along(header_of(mode, (short,)), {})
    for mode in (Mode.ONE, Mode.BLOCKS):
        assert not content.rides_along(header_of(mode, (short,)), {0: short})


def test_a_wire_lists_its_blocks_in_order_at_qos_1() -> None:
    pieces = content.cut(b"abc" * 9, Mode.BLOCKS, 3)
    header = header_of(Mode.BLOCKS, pieces)
    wire = content.wire("t", header, (("vmq", "h"),), {2: pieces[2], 0: pieces[0]})
    assert (wire.qos, wire.payload) == (1, pieces[0] + pieces[2])
    assert wire.properties == (("vmq", "h"), ("vmq-part", "0,2"))
    assert content.wire("t", header_of(Mode.COPIES, (b"x",)), (), {0: b"x"}).qos == 1
    assert content.read(header, wire.payload, "0,2") == {0: pieces[0], 2: pieces[2]}
    assert content.read(header, pieces[0] + pieces[2][:-1] + b"!", "0,2") is None, "one that misfits is enough"


def test_blocks_of_one_byte_are_read_and_no_other_mode_has_parts() -> None:
    assert content.read(header_of(Mode.BLOCKS, (b"a", b"b")), b"ab", "0,1") == {0: b"a", 1: b"b"}
    with pytest.raises(BadFrame, match="mode COPIES"):
        content.read(header_of(Mode.COPIES, (b"x",)), b"x", "0")


def test_a_list_of_parts_has_numbers_of_three_digits_in_order() -> None:
    many = header_of(Mode.BLOCKS, tuple(bytes([index]) for index in range(120)))
    assert content.read(many, bytes([100]), "100") == {100: bytes([100])}
    for part in ("1000", "1" * 5000):
        with pytest.raises(BadFrame, match="no list"):
            content.read(many, b"x", part)
    with pytest.raises(BadFrame, match="lists no"):
        content.read(many, b"\x08\0", "8,0")
