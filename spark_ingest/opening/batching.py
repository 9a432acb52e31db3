"""Record batches of the right size: what is done by columns costs as much for a row as for many.

Neighbouring groups are opened `together`, and what comes of them leaves `in_batches` of the asked number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

BATCH_BYTES = 64 << 20
"""A batch of rows holds about this much and one group more: an Arrow column of bytes ends at 2 GiB."""
OPENED_BYTES = 4 << 20
"""Of the spool, rows that are opened together: what is worked on stays in the processor's caches, and Spark has the
first rows to work on while the next are opened."""


def together(groups: Iterable[Any], rows: int) -> Iterator[Any]:
    """Neighbouring groups as one batch, until it has about `rows` rows or OPENED_BYTES."""
    held: list[Any] = []
    count = size = 0
    for group in groups:
        group_bytes = group.get_total_buffer_size()
        if held and size + group_bytes > OPENED_BYTES:
            yield joined(held)
            held, count, size = [], 0, 0
        held.append(group)
        count, size = count + group.num_rows, size + group_bytes
        if count >= rows:
            yield joined(held)
            held, count, size = [], 0, 0
    if held:
        yield joined(held)


def in_batches(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """The same rows in batches of `rows`; one ends earlier at about BATCH_BYTES. What need not be joined is not
    copied."""
    held: list[Any] = []
    count = size = 0
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            held.append(batch.slice(at, rows - count))
            at += held[-1].num_rows
            count, size = count + held[-1].num_rows, size + held[-1].nbytes
            if count >= rows or size >= BATCH_BYTES:
                yield joined(held)
                held, count, size = [], 0, 0
    if held:
        yield joined(held)


def joined(batches: Sequence[Any]) -> Any:
    """One batch of some of one schema."""
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def plain(column: Any) -> Any:
    """A column without a dictionary."""
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
