"""Record batches of the right size: work by columns costs as much for a single row as for many.

Neighbouring groups are opened `together`, and the results leave `in_batches` of the asked number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

BATCH_BYTES = 64 << 20
"""The content of a batch, exceeded by one group at most: an Arrow column of bytes ends at 2 GiB."""
OPENED_BYTES = 4 << 20
"""Bytes of the spool that are opened together: they stay in the processor's caches, and Spark has the
first rows to work on while the next are opened.
"""


def together(groups: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yields neighbouring groups as batches of about `rows` rows or OPENED_BYTES."""
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
    """Yields the rows in batches of `rows`; a batch ends earlier at about BATCH_BYTES. Copies only batches that it
    joins.
    """
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
    """Returns a single batch of several with an equal schema."""
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def plain(column: Any) -> Any:
    """Returns a column without a dictionary."""
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
