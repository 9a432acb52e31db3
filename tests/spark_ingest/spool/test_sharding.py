"""Shards: every publication in exactly one part, whoever asks, and parts of about one size."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.spool.sharding import BLOCK_BITS, SHARDS_MAX, Shard, parse_shard


def owner(sequence: int, count: int) -> int:
    (found,) = [number for number in range(1, count + 1) if Shard(number, count).owns(sequence)]
    return found


@given(st.integers(0, 2**63 - 1), st.integers(1, 7))
def test_a_publication_is_in_exactly_one_part_with_those_beside_it(sequence: int, count: int) -> None:
    block = sequence >> BLOCK_BITS << BLOCK_BITS
    owners = {owner(each, count) for each in (sequence, block, block + (1 << BLOCK_BITS) - 1)}
    assert len(owners) == 1


def test_the_part_of_a_number_never_changes() -> None:
    """Receivers of different versions must agree, and a checkpoint's rows stay with their query."""
    assert [owner(block << BLOCK_BITS, 3) for block in range(8)] == [1, 1, 3, 2, 1, 2, 3, 1]


def test_parts_are_of_about_one_size() -> None:
    sizes = Counter(owner(block << BLOCK_BITS, 3) for block in range(3_000))
    assert all(900 < size < 1_100 for size in sizes.values())


@pytest.mark.parametrize("text", ["1/1", "2/3", f"{SHARDS_MAX}/{SHARDS_MAX}"])
def test_a_shard_reads_back(text: str) -> None:
    assert str(parse_shard(text)) == text


@pytest.mark.parametrize(
    "text", ["", "/", "1", "0/3", "4/3", "1/0", "-1/3", "+1/3", " 1/3", "1/3/5", "a/b", "1.0/3", f"1/{SHARDS_MAX + 1}",
             "1/" + "9" * 40],
)  # fmt: skip
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"i/n|range"):
        parse_shard(text)
