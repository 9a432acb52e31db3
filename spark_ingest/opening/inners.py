"""Sealed content of many rows, once opened, as Arrow columns (the frame: `keys.message.Inner`).

The frames of a batch lie in one buffer. numpy walks all of them field by field and learns where each field begins and
ends; Arrow then copies topics and payloads out of that buffer. No Python object is made for a row. A batch with a
frame that is not well-formed in all its parts is read again frame by frame, by `Inner.decode`, which tells why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Inners:
    """Columns of equal length: text, UNIX milliseconds (uint64), bytes, list of (name, value)."""

    topic: Any
    time_ms: Any
    payload: Any = field(repr=False)
    properties: Any = field(repr=False)

    def take(self, rows: Any) -> Inners:
        """Some rows, by number."""
        return Inners(self.topic.take(rows), self.time_ms[rows], self.payload.take(rows), self.properties.take(rows))

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
    walk = _Walk(b"".join(opened), np.fromiter(map(len, opened), np.int64, len(opened)))
    flags = walk.opening()
    topic = walk.text()
    if pc.any(pc.equal(pc.binary_length(topic), 0)).as_py():
        raise BadFrame("content without a topic")
    time_ms = walk.number(8)
    for name, kind, flag, _ in SEALED:
        some = walk.some(flags & flag)
        if kind is str:
            some.text()
        elif kind is bytes:
            some.span()
        elif np.any(some.number(1) > 1) and name == "payload_format":
            raise BadFrame("an unknown payload format")
    properties = _properties(walk)
    length = walk.number(4)
    if np.any(length > PAYLOAD_LIMIT):
        raise BadFrame("a payload longer than a publication can have")
    payload = walk.take(length.astype(np.int64))
    walk.finish(flags & PADDED != 0)
    return Inners(topic, time_ms, payload, properties)


def _properties(walk: _Walk) -> Any:
    """Application user properties, order and repeats kept (MQTT 5.0 §3.3.2.3.7)."""
    counts = walk.number(2).astype(np.int32)
    most = int(counts.max(initial=0))
    if most > PROPERTIES_LIMIT:
        raise BadFrame(f"{most} user properties")
    spans: list[Any] = []
    owners: list[Any] = []
    for number in range(most):
        having = walk.some(counts > number)
        spans.append(np.stack([*having.span(), *having.span()], axis=1))
        owners.append(having.chosen)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    if not most:
        texts = [pa.array([], pa.string())] * 2
    else:
        # By round, then row: as Arrow wants them, by row, then round.
        order = np.argsort(np.concatenate(owners), kind="stable")
        borders = np.concatenate(spans)[order].ravel()
        texts = [_pieces(walk.data, borders, start, 4).cast(pa.string()) for start in (0, 2)]
    structs = pa.StructArray.from_arrays(texts, fields=list(PROPERTY))
    return pa.ListArray.from_arrays(pa.array(offsets), structs, type=PROPERTIES)


class _Walk:
    """Reads the same field of all frames at a time, of those `chosen`, from front to back. Raises BadFrame."""

    def __init__(self, data: bytes, sizes: Any) -> None:
        self.data = data
        self._bytes = np.frombuffer(data, np.uint8)
        ends = np.cumsum(sizes)
        self._ends = ends
        self._at = ends - sizes
        self.chosen: Any = slice(None)

    def some(self, having: Any) -> _Walk:
        """The same walk, of the frames that have a field."""
        part = object.__new__(_Walk)
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
        for index in range(size):
            value = (value << np.uint64(8)) | self._bytes[start + index]
        return value

    def span(self) -> tuple[Any, Any]:
        """Where byte strings behind their 16-bit lengths begin and end."""
        length = self.number(2).astype(np.int64)
        start = self._forward(length)
        return start, start + length

    def text(self) -> Any:
        """Strings behind their 16-bit lengths. Raises ArrowInvalid for what is not UTF-8."""
        return _pieces(self.data, np.stack(self.span(), axis=1).ravel(), 0, 2).cast(pa.string())

    def take(self, size: Any) -> Any:
        """Byte strings of known sizes."""
        start = self._forward(size)
        return _pieces(self.data, np.stack([start, start + size], axis=1).ravel(), 0, 2)

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


def _pieces(data: bytes, borders: Any, first: int, step: int) -> Any:
    """Of the stretches between ascending `borders` of `data`, every `step`th from `first` on, as binary array."""
    if not len(borders):
        return pa.array([], pa.binary())
    offsets = np.ascontiguousarray(borders, np.int32)
    whole = pa.BinaryArray.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return whole.take(pa.array(np.arange(first, len(offsets) - 1, step)))
