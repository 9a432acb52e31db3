"""Publications packed as one and unpacked again: nothing is lost or altered, and one bad record is alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import (
    BATCH_FORM_BYTES,
    Numbered,
    Publication,
    is_bare,
    numbers_of,
    packed,
    size_of,
    unpacked,
)
from keys.errors import BadFrame, KeysError
from keys.message import SEALED_PROPERTIES
from keys.records import encode

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
PUBLICATION = st.builds(
    Publication,
    topic=st.sampled_from(["plant/a", "plant/b/c", "plant", "plant/温度"]),
    payload=st.binary(max_size=30),
    qos=st.integers(0, 2),
    content_type=st.none() | TEXT,
    response_topic=st.none() | st.just("plant/answers"),
    correlation_data=st.none() | st.binary(max_size=4),
    payload_format=st.none() | st.integers(0, 1),
    properties=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
    expiry_s=st.none() | st.integers(0, 1000),
    time_ms=st.integers(0, 2_000_000_000_000),
)


@given(st.lists(PUBLICATION, min_size=1, max_size=8), st.lists(st.integers(1, 9), min_size=8, max_size=8))
def test_what_is_packed_is_unpacked(publications: list[Publication], steps: list[int]) -> None:
    numbers = [100 + sum(steps[:at]) for at in range(len(publications))]
    records = [Numbered(n, p) for n, p in zip(numbers, publications, strict=True)]
    batch = packed("plant/#", records)
    assert (batch.records, batch.qos, batch.retain) == (len(records), max(p.qos for p in publications), False)
    assert [*unpacked(batch.payload, numbers[0])] == records
    assert numbers_of(batch, numbers[0]) == tuple(numbers)
    assert len(batch.payload) <= sum(map(size_of, publications)) + BATCH_FORM_BYTES
    assert all(size_of(p) for p in publications)


def test_a_batch_expires_with_the_last_of_its_records_and_never_if_one_does_not() -> None:
    one = Numbered(1, Publication("a", b"", 1, expiry_s=5, time_ms=10_000))
    two = Numbered(2, Publication("a", b"", 1, expiry_s=2, time_ms=20_500))
    batch = packed("a", [one, two])
    assert (batch.time_ms, batch.expiry_s) == (10_000, 13)
    assert packed("a", [one, Numbered(3, Publication("a", b"", 1))]).expiry_s is None


def test_consecutive_numbers_cost_nothing() -> None:
    near = packed("a", [Numbered(n, Publication("a", b"x", 1)) for n in (7, 8, 9)])
    far = packed("a", [Numbered(n, Publication("a", b"x", 1)) for n in (7, 9, 12)])
    assert len(near.payload) < len(far.payload)
    assert numbers_of(far, 7) == (7, 9, 12)


def test_a_bad_record_keeps_none_of_its_neighbours_back() -> None:
    content = encode(b"\1\1\1", [1, 2, 3], [b"a", b"\xff", b"a"], [b"", b"", b"\x80"], [b"one", b"two", b"three"])
    found = [*unpacked(content, 5)]
    assert found[0] == Numbered(5, Publication("a", b"one", 1, time_ms=1))
    assert all(isinstance(error, KeysError) for error in found[1:])
    with pytest.raises(BadFrame):
        [*unpacked(content[:-8], 5)]


def test_what_fits_no_record_goes_alone() -> None:
    assert not size_of(Publication("a", b"", properties=(("\ud800", "x"),)))
    assert not size_of(Publication("\ud800", b""))
    assert not size_of(Publication("a", b"", properties=(("n", "v"),) * 2000))


def test_sizes_are_what_records_take_at_most_each_with_a_topic_and_a_number_of_its_own() -> None:
    many = [Publication(f"plant/{n}", b"x", 1, time_ms=1, response_topic="温" * (n % 9)) for n in range(100)]
    batch = packed("plant/#", [Numbered(2 * n, publication) for n, publication in enumerate(many)])
    bound = sum(map(size_of, many)) + BATCH_FORM_BYTES
    assert 0.8 * bound < len(batch.payload) <= bound


@pytest.mark.parametrize("name", [*SEALED_PROPERTIES, "expiry_s", "properties"])
def test_whatever_a_message_carries_beside_topic_and_payload_is_packed_with_it(name: str) -> None:
    said: dict[str, Any] = {"correlation_data": b"7", "payload_format": 1, "expiry_s": 9, "properties": (("a", "b"),)}
    carried = replace(Publication("a", b"x", 1, time_ms=5), **{name: said.get(name, "t")})
    assert not is_bare(carried)
    (record,) = unpacked(packed("#", [Numbered(3, carried)]).payload, 3)
    assert record == (3, carried)
