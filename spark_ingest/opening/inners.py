"""Sealed content of many rows, once opened, as Arrow columns (the frame: `keys.message.Inner`).

The frames of a batch lie in one buffer. numpy walks all of them field by field and learns where each field begins and
ends; Arrow then copies topics and payloads out of that buffer. No Python object is made for a row. A batch with a
frame that is not well-formed in all its parts is read again frame by frame, by `Inner.decode`, which tells why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keys import frames
from keys.errors import BadFrame, KeysError
from keys.message import (
    INNER_FLAGS,
    PADDED,
    PAYLOAD_LIMIT,
    PROPERTIES_LIMIT,
    SEALED,
    Inner,
)

PROPERTY = pa.struct([("name", pa.string()), ("value", pa.string())])
PROPERTIES = pa.list_(pa.field("element", PROPERTY))


_KINDS = {str: pa.string(), bytes: pa.binary(), int: pa.int32()}
SEALED_TYPES = {each.name: _KINDS[each.kind] for each in SEALED}
"""What is sealed beside a payload, as columns; null where a message has none."""


@dataclass(frozen=True, slots=True)
class Inners:
    """Columns of equal length: text, UNIX milliseconds (uint64), bytes, list of (name, value); `sealed`: by the names
    of `keys.message.SEALED`."""

    topic: Any
    time_ms: Any
    payload: Any = field(repr=False)
    properties: Any = field(repr=False)
    sealed: Mapping[str, Any] = field(repr=False)

    def take(self, rows: Any) -> Inners:
        """Some rows, by number."""
        sealed = {name: values.take(rows) for name, values in self.sealed.items()}
        columns = (self.topic.take(rows), self.time_ms[rows], self.payload.take(rows), self.properties.take(rows))
        return Inners(*columns, sealed)

    def followed_by(self, other: Inners) -> Inners:
        """These rows, then those of the other."""
        return Inners(
            pa.concat_arrays([self.topic, other.topic]),
            np.concatenate((self.time_ms, other.time_ms)),
            pa.concat_arrays([self.payload, other.payload]),
            pa.concat_arrays([self.properties, other.properties]),
            {name: pa.concat_arrays([values, other.sealed[name]]) for name, values in self.sealed.items()},
        )

    def rows(self) -> list[Inner]:
        """As objects, for streams of few rows; what the columns leave out is absent."""
        return [
            Inner(topic, int(time_ms), payload)
            for topic, time_ms, payload in zip(
                self.topic.to_pylist(), self.time_ms, self.payload.to_pylist(), strict=True
            )
        ]


def read_inners(opened: Sequence[bytes]) -> tuple[Inners, dict[int, KeysError]]:
    """The columns of all frames that are well-formed, in order, and what is wrong with the others by their number."""
    try:
        return _columns(opened), {}
    except (BadFrame, pa.ArrowInvalid):
        pass
    good: list[bytes] = []
    bad: dict[int, KeysError] = {}
    for number, frame in enumerate(opened):
        try:
            Inner.decode(frame)
        except KeysError as error:
            bad[number] = error
        else:
            good.append(frame)
    return _columns(good), bad


def _columns(opened: Sequence[bytes]) -> Inners:
    """Raises BadFrame, or ArrowInvalid for what is not UTF-8."""
    sizes = np.fromiter(map(len, opened), np.int64, len(opened))
    ends = np.cumsum(sizes)
    walk = Walk(b"".join(opened), ends - sizes, ends, "big")
    flags = walk.opening()
    topic = walk.text()
    if pc.any(pc.equal(pc.binary_length(topic), 0)).as_py():
        raise BadFrame("content without a topic")
    time_ms = walk.number(8)
    everywhere = np.arange(len(opened))
    sealed = read_sealed(walk, [flags & each.inner_flag for each in SEALED], everywhere, len(opened))
    counts = walk.number(2).astype(np.int64)
    if np.any(counts > PROPERTIES_LIMIT):
        raise BadFrame("more user properties than a message can have")
    properties = property_lists(walk, counts, everywhere, len(opened))
    length = walk.number(4)
    if np.any(length > PAYLOAD_LIMIT):
        raise BadFrame("a payload longer than a publication can have")
    payload = walk.take(length.astype(np.int64))
    walk.finish(flags & PADDED != 0)
    return Inners(topic, time_ms, payload, properties, sealed)


def read_sealed(walk: Walk, flags: Sequence[Any], places: Any, count: int) -> dict[str, Any]:
    """What is sealed beside payloads, of `count` rows; the frames of the walk are those of the rows at `places`.

    `flags`: for each of `SEALED`, not 0 where a frame has it. Raises BadFrame, ArrowInvalid.
    """
    columns = {}
    for (name, kind, _, _), having in zip(SEALED, flags, strict=True):
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
    """Application user properties of `count` rows, order and repeats kept (MQTT 5.0 §3.3.2.3.7); `counts`: how many
    each frame of the walk has, `places` as above. Raises BadFrame, ArrowInvalid."""
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
    """Reads the same field of all frames at a time, of those `chosen`, from front to back. Raises BadFrame.

    The frames lie between `begins` and `ends` of `data`, one after the other; integers are of byte order `order`.
    """

    def __init__(self, data: bytes, begins: Any, ends: Any, order: Literal["big", "little"]) -> None:
        self.data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._ends = ends
        self._at = np.array(begins)
        self._order = order
        self.chosen: Any = np.arange(len(ends))

    def some(self, having: Any) -> Walk:
        """The same walk, of the frames that have a field."""
        part = object.__new__(Walk)
        part.__dict__.update(self.__dict__)
        part.chosen = np.flatnonzero(having)
        return part

    def opening(self) -> Any:
        """Flags."""
        start = self._forward(3)
        expected = frames.opening(frames.Kind.INNER)
        flags = self._bytes[start + 2]
        if (
            np.any(self._bytes[start] != expected[0])
            or np.any(self._bytes[start + 1] != expected[1])
            or np.any(flags & ~np.uint8(INNER_FLAGS))
        ):
            raise BadFrame("no content of this version, or unknown flags")
        return flags

    def number(self, size: int) -> Any:
        """Unsigned integers of `size` bytes."""
        start = self._forward(size)
        value = np.zeros(len(start), np.uint64)
        for index in range(size) if self._order == "big" else reversed(range(size)):
            value = (value << np.uint64(8)) | self._bytes[start + index]
        return value

    def span(self) -> tuple[Any, Any]:
        """Where byte strings behind their 16-bit lengths begin and end."""
        length = self.number(2).astype(np.int64)
        start = self._forward(length)
        return start, start + length

    def text(self) -> Any:
        """Strings behind their 16-bit lengths. Raises ArrowInvalid for what is not UTF-8."""
        return pieces(self.data, *self.span()).cast(pa.string())

    def take(self, size: Any) -> Any:
        """Byte strings of known sizes."""
        start = self._forward(size)
        return pieces(self.data, start, start + size)

    def finish(self, padded: Any) -> None:
        """Nothing may be left, but zeros of those that are padded."""
        left = self._ends - self._at
        if np.any(left[~padded]):
            raise BadFrame("trailing bytes")
        for row in np.flatnonzero(left):
            if self.data[self._at[row] : self._ends[row]].strip(b"\0"):
                raise BadFrame("padding is not zeros")

    def _forward(self, size: Any) -> Any:
        """Where we were; moves on by `size` bytes."""
        start = np.array(self._at[self.chosen])
        after = start + size
        if np.any(after > self._ends[self.chosen]):
            raise BadFrame("a frame ends too soon")
        self._at[self.chosen] = after
        return start


def pieces(data: bytes, begins: Any, ends: Any) -> Any:
    """The stretches of `data` between `begins` and `ends`, which ascend and do not overlap, as binary array."""
    if not len(begins):
        return pa.array([], pa.binary())
    offsets = np.stack([begins, ends], axis=1).ravel().astype(np.int32)
    whole = pa.BinaryArray.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return whole.take(pa.array(np.arange(0, len(offsets) - 1, 2)))
