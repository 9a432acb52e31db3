"""Batches of the right size: no row is lost, repeated or moved, and large ones are not copied."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.opening import batching
from spark_ingest.opening.batching import in_batches, plain, together


def batch(first: int, rows: int) -> Any:
    return pa.record_batch({"n": pa.array(range(first, first + rows), pa.int64())})


def numbers(batches: list[Any]) -> list[int]:
    return [n for each in batches for n in each.column("n").to_pylist()]


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 25))
def test_rows_come_in_batches_of_the_asked_size(sizes: list[int], rows: int) -> None:
    made = [batch(sum(sizes[:at]), size) for at, size in enumerate(sizes)]
    found = list(in_batches(made, rows))
    assert numbers(found) == list(range(sum(sizes)))
    assert all(each.num_rows == rows for each in found[:-1])
    assert all(0 < each.num_rows <= rows for each in found)
    joined = list(together([each for each in made if each.num_rows], rows))
    assert numbers(joined) == list(range(sum(sizes)))
    assert all(each.num_rows >= rows for each in joined[:-1])


def test_a_batch_ends_early_where_its_bytes_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("BATCH_BYTES", "OPENED_BYTES"):
        monkeypatch.setattr(batching, limit, 100)
    made = [batch(8 * at, 8) for at in range(4)]
    assert [each.num_rows for each in in_batches(made, 1_000)] == [16, 16]
    assert [each.num_rows for each in together(made, 1_000)] == [8, 8, 8, 8]


def test_what_is_large_enough_is_not_copied() -> None:
    large = batch(0, 100)
    first, second = in_batches([large], 50)
    whole = large.column("n").buffers()[1].address
    assert [each.column("n").buffers()[1].address for each in (first, second)] == [whole, whole]


def test_a_column_with_a_dictionary_or_without_is_the_same_column() -> None:
    column = pa.array(["a", None, "a"])
    assert plain(column.dictionary_encode()).equals(column)
    assert plain(column) is column
