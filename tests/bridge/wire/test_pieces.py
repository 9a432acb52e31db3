"""Content in pieces: what is cut comes back, what a wire says of pieces has one form, and who carries what."""

from __future__ import annotations

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
