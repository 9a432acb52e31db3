"""keys.reedsolomon: any `needed` blocks give the data back; what cannot be a block is refused before arithmetic."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.errors import BadShare, NotEnoughShares, OurFault
from keys.reedsolomon import MAX_BLOCKS, block_bytes, decode, encode, rebuild
from tests.keys.helpers import stream

CONTENT = stream("content")(1000)


def kinds(largest: int = 12) -> st.SearchStrategy[tuple[int, int]]:
    return st.integers(1, largest).flatmap(lambda total: st.tuples(st.integers(1, total), st.just(total)))


@settings(max_examples=80)
@given(st.binary(min_size=1, max_size=200), kinds(), st.data())
def test_any_needed_blocks_give_the_data_and_every_other_block(
    content: bytes, kind: tuple[int, int], data: st.DataObject
) -> None:
    needed, total = kind
    blocks = encode(content, needed, total)
    chosen = data.draw(st.permutations(range(total)))[: data.draw(st.integers(needed, total))]
    have = {index: blocks[index] for index in chosen}
    assert decode(have, needed, total, len(content)) == content
    assert tuple(rebuild(have, index, needed, total) for index in range(total)) == blocks


@pytest.mark.parametrize(("total", "needed"), [(3, 2), (5, 3), (7, 4)])
def test_all_subsets_of_blocks_of_a_region(total: int, needed: int) -> None:
    blocks = encode(CONTENT, needed, total)
    for chosen in combinations(range(total), needed):
        assert decode({index: blocks[index] for index in chosen}, needed, total, len(CONTENT)) == CONTENT


@settings(max_examples=40)
@given(st.binary(min_size=1, max_size=100), kinds())
def test_the_first_blocks_are_the_data_and_all_are_as_small_as_can_be(content: bytes, kind: tuple[int, int]) -> None:
    needed, total = kind
    blocks = encode(content, needed, total)
    assert b"".join(blocks[:needed])[: len(content)] == content
    assert {len(block) for block in blocks} == {block_bytes(len(content), needed)} == {-(-len(content) // needed)}


def test_two_contents_differ_in_all_but_needed_minus_one_blocks() -> None:
    """Maximum distance: one changed byte changes its own block and every coded one."""
    other = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    same = [a == b for a, b in zip(encode(CONTENT, 3, 7), encode(other, 3, 7), strict=True)]
    assert same == [False, True, True, False, False, False, False]


@pytest.mark.long
def test_as_many_blocks_as_the_field_allows() -> None:
    blocks = encode(CONTENT, 200, MAX_BLOCKS)
    last = {index: blocks[index] for index in range(MAX_BLOCKS - 200, MAX_BLOCKS)}
    assert decode(last, 200, MAX_BLOCKS, len(CONTENT)) == CONTENT


def test_a_wrong_block_is_not_noticed() -> None:
    """Why blocks are checked against signed digests first."""
    blocks = encode(CONTENT, 2, 3)
    assert decode({0: blocks[0], 2: bytes(len(blocks[2]))}, 2, 3, len(CONTENT)) != CONTENT


def test_padding_has_one_spelling() -> None:
    blocks = dict(enumerate(encode(b"12345", 2, 3)))
    assert blocks[1] == b"45\0"
    with pytest.raises(BadShare, match="padding"):
        decode(blocks | {1: b"45\1"}, 2, 3, 5)


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ({}, NotEnoughShares),
        ({0: b"123"}, NotEnoughShares),
        ({0: b"123", 3: b"456"}, BadShare),
        ({-1: b"123", 0: b"456"}, BadShare),
        ({0: b"123", 1: b"45"}, BadShare),
        ({0: b"123", 1: b"456", 2: b"7"}, BadShare),
        ({0: b"", 1: b""}, BadShare),
        ({0: b"1234", 1: b"5678"}, BadShare),
        ({0: b"12", 1: b"34"}, BadShare),
    ],
)
def test_blocks_are_validated_before_arithmetic(blocks: dict[int, bytes], error: type[Exception]) -> None:
    with pytest.raises(error):
        decode(blocks, 2, 3, 6)


@pytest.mark.parametrize(("needed", "total"), [(0, 3), (4, 3), (-1, 3), (2, 256), (256, 256)])
def test_a_code_that_cannot_be(needed: int, total: int) -> None:
    for attempt in (
        lambda: encode(CONTENT, needed, total),
        lambda: decode({0: b"a", 1: b"b"}, needed, total, 2),
        lambda: rebuild({0: b"a", 1: b"b"}, 0, needed, total),
    ):
        with pytest.raises(OurFault):
            attempt()


@pytest.mark.parametrize("blocks", [{-1: b"a", 0: b"b", 1: b"c"}, {0: b"b", 1: b"c", 3: b"d"}, {0: b"", 1: b""}])
def test_a_block_is_not_rebuilt_beside_impossible_ones(blocks: dict[int, bytes]) -> None:
    with pytest.raises(BadShare):
        rebuild(blocks, 1, 2, 3)


def test_no_data_and_no_such_block() -> None:
    with pytest.raises(OurFault):
        encode(b"", 2, 3)
    with pytest.raises(OurFault):
        decode({0: b"a", 1: b"b"}, 2, 3, 0)
    for index in (-1, 3):
        with pytest.raises(OurFault):
            rebuild({0: b"a", 1: b"b"}, index, 2, 3)
    with pytest.raises(NotEnoughShares):
        rebuild({0: b"a"}, 2, 2, 3)


def test_the_lowest_indexes_count_in_whatever_order_blocks_came() -> None:
    blocks = encode(CONTENT, 2, 4)
    came = {3: bytes(len(blocks[3])), 1: blocks[1], 0: blocks[0]}
    assert decode(came, 2, 4, len(CONTENT)) == CONTENT
    assert rebuild(came, 2, 2, 4) == blocks[2]
    for outside in (4, -1):
        with pytest.raises(BadShare, match="outside"):
            decode({1: blocks[1], outside: blocks[0], 0: blocks[0]}, 2, 4, len(CONTENT))


def test_a_code_may_be_of_255_blocks_that_are_all_needed() -> None:
    blocks = encode(CONTENT, 255, 255)
    assert decode(dict(enumerate(blocks)), 255, 255, len(CONTENT)) == CONTENT
    assert (block_bytes(1, 255), block_bytes(256, 255)) == (1, 2)
