"""Shards: every device in exactly one part, wherever its publications come from, and parts of about one size."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.spool.sharding import SHARDS_MAX, Shard, parse_shard

topics = st.lists(st.text("ab/é$", max_size=4), min_size=1, max_size=5).map("/".join)


@given(topics, st.integers(1, 7), st.integers(0, 4))
def test_a_topic_is_in_exactly_one_part(topic: str, count: int, level: int) -> None:
    owners = [number for number in range(1, count + 1) if Shard(number, count, level).owns(topic)]
    assert len(owners) == 1


@pytest.mark.parametrize("topic", ["plant/press-4/temperature", "plant/press-4/a/b/c", "other/press-4"])
def test_all_publications_of_a_device_are_in_one_part(topic: str) -> None:
    for number in range(1, 6):
        assert Shard(number, 5).owns(topic) == Shard(number, 5).owns("plant/press-4")


def test_a_topic_with_fewer_levels_goes_by_its_last_one() -> None:
    for number in range(1, 6):
        assert Shard(number, 5, level=3).owns("press-4") == Shard(number, 5, level=0).owns("press-4/x/y")


def test_the_part_of_a_device_never_changes() -> None:
    """Positions of queries hang on it."""
    assert [next(n for n in (1, 2, 3) if Shard(n, 3).owns(f"plant/press-{k}/t")) for k in range(8)] == [
        1,
        3,
        3,
        1,
        1,
        1,
        1,
        1,
    ]


def test_parts_are_of_about_one_size() -> None:
    sizes = Counter(n for k in range(3_000) for n in (1, 2, 3) if Shard(n, 3).owns(f"plant/device-{k}"))
    assert all(900 < size < 1_100 for size in sizes.values())


@pytest.mark.parametrize("text", ["1/1", "2/3", f"{SHARDS_MAX}/{SHARDS_MAX}"])
def test_a_shard_reads_back(text: str) -> None:
    assert str(parse_shard(text)) == text
    assert parse_shard(text, 4).level == 4


@pytest.mark.parametrize(
    "text", ["", "/", "1", "0/3", "4/3", "1/0", "-1/3", "+1/3", " 1/3", "1/3/5", "a/b", "1.0/3", f"1/{SHARDS_MAX + 1}",
             "1/" + "9" * 40],
)  # fmt: skip
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"i/n|range"):
        parse_shard(text)
