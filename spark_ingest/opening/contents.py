"""The contents of records as Arrow columns, read from the fields of many small frames.

The frames lie in a single buffer. numpy walks all of them field by field and learns the ends of each field; Arrow then
copies texts out of that buffer. No Python object is made for a record. Not here: the places of frames (`unpacking`,
`extras`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keys.errors import BadFrame
from keys.message import SEALED

PROPERTY = pa.struct([("name", pa.string()), ("value", pa.string())])
PROPERTIES = pa.list_(pa.field("element", PROPERTY))


_KINDS = {str: pa.string(), bytes: pa.binary(), int: pa.int32()}
SEALED_TYPES = {each.name: _KINDS[each.kind] for each in SEALED}
"""Types of the sealed properties as columns; null where a message has none."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Columns of equal length: text, UNIX milliseconds (uint64), bytes, list of (name, value); `sealed`: by the names
    of `keys.message.SEALED`.
    """

    topic: Any
    time_ms: Any
    payload: Any = field(repr=False)
    properties: Any = field(repr=False)
    sealed: Mapping[str, Any] = field(repr=False)

    def take_rows(self, rows: Any) -> Contents:
        """Returns some rows, by number."""
        sealed = {name: values.take(rows) for name, values in self.sealed.items()}
        columns = (self.topic.take(rows), self.time_ms[rows], self.payload.take(rows), self.properties.take(rows))
        return Contents(*columns, sealed)


def read_sealed(walk: Walk, flags: Sequence[Any], places: Any, count: int) -> dict[str, Any]:
    """Returns the sealed properties of `count` rows; the frames of the walk are those of the rows at `places`.

    `flags`: for each of `SEALED`, not 0 where a frame has the property. Raises BadFrame, ArrowInvalid.
    """
    columns = {}
    for (name, kind, _), having in zip(SEALED, flags, strict=True):
        some = walk.some(having)
        if kind is int:
            values = pa.array(some.number(1).astype(np.int32))
            if name == "payload_format" and pc.any(pc.greater(values, 1)).as_py():
                raise BadFrame("an unknown payload format")
        else:
            values = some.text() if kind is str else pieces(walk.data, *some.span())
        if not len(some.chosen):
            columns[name] = pa.nulls(count, SEALED_TYPES[name])
            continue
        rows = np.full(count, -1, np.int64)
        rows[places[some.chosen]] = np.arange(len(some.chosen))
        columns[name] = values.take(pa.array(rows, mask=rows < 0))
    return columns


def property_lists(walk: Walk, counts: Any, places: Any, count: int) -> Any:
    """Returns application user properties of `count` rows, order and repeats kept (MQTT 5.0 §3.3.2.3.7).

    `counts`: the number in each frame of the walk, `places`: the rows of these frames. Raises BadFrame, ArrowInvalid.
    """
    most = int(counts.max(initial=0))
    borders: list[Any] = []
    owners: list[Any] = []
    for number in range(most):
        having = walk.some(counts > number)
        borders.append(np.stack([*having.span(), *having.span()], axis=1))
        owners.append(having.chosen)
    of_row = np.zeros(count, np.int32)
    of_row[places] = counts
    offsets = np.concatenate(([0], np.cumsum(of_row))).astype(np.int32)
    if not most:
        texts = [pa.array([], pa.string())] * 2
    else:
        # By round, then row: as Arrow wants them, by row, then round.
        order = np.argsort(np.concatenate(owners), kind="stable")
        each = np.concatenate(borders)[order]
        texts = [pieces(walk.data, each[:, at], each[:, at + 1]).cast(pa.string()) for at in (0, 2)]
    structs = pa.StructArray.from_arrays(texts, fields=list(PROPERTY))
    return pa.ListArray.from_arrays(pa.array(offsets), structs, type=PROPERTIES)


class Walk:
    """A walk reading a single field of all `chosen` frames at a time, from front to back. Raises BadFrame.

    The frames lie between `begins` and `ends` of `data`, in turn; integers are little-endian.
    """

    def __init__(self, data: bytes, begins: Any, ends: Any) -> None:
        self.data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._ends = ends
        self._at = np.array(begins)
        self.chosen: Any = np.arange(len(ends))

    def some(self, having: Any) -> Walk:
        """Returns this walk restricted to the frames that have a field."""
        part = object.__new__(Walk)
        part.__dict__.update(self.__dict__)
        part.chosen = np.flatnonzero(having)
        return part

    def number(self, size: int) -> Any:
        """Returns unsigned integers of `size` bytes."""
        start = self._forward(size)
        value = np.zeros(len(start), np.uint64)
        for index in reversed(range(size)):
            value = (value << np.uint64(8)) | self._bytes[start + index]
        return value

    def span(self) -> tuple[Any, Any]:
        """Returns begins and ends of byte strings behind their 16-bit lengths."""
        length = self.number(2).astype(np.int64)
        start = self._forward(length)
        return start, start + length

    def text(self) -> Any:
        """Returns strings behind their 16-bit lengths. Raises ArrowInvalid for invalid UTF-8."""
        return pieces(self.data, *self.span()).cast(pa.string())

    def finish(self) -> None:
        """Raises BadFrame if bytes are left."""
        if np.any(self._ends - self._at):
            raise BadFrame("trailing bytes")

    def _forward(self, size: Any) -> Any:
        """Moves on by `size` bytes; returns the former places."""
        start = np.array(self._at[self.chosen])
        after = start + size
        if np.any(after > self._ends[self.chosen]):
            raise BadFrame("a frame ends too soon")
        self._at[self.chosen] = after
        return start


def pieces(data: bytes, begins: Any, ends: Any) -> Any:
    """Returns the stretches of `data` between `begins` and `ends`, which ascend and do not overlap, as binary
    array.
    """
    if not len(begins):
        return pa.array([], pa.binary())
    offsets = np.stack([begins, ends], axis=1).ravel().astype(np.int32)
    whole = pa.BinaryArray.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return whole.take(pa.array(np.arange(0, len(offsets) - 1, 2)))
