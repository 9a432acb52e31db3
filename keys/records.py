"""The content of a batch: many application messages side by side, column by column.

    head, 16 bytes: version(1, 2) zero(1) records(2) topics(2) zero(2) extras(4) payloads(4), the last two in bytes
    flags(1 each): bits 0-1 QoS, 2 retain, 3 has extras, 4 tombstone, 5 dropped (it counts, nobody gets it)
    time of the record, ms(8 each, signed)    index of its topic(2 each)
    length of its extras(4 each)    length of its payload(4 each)
    length of each distinct topic(2 each)    the topics    the extras    the payloads

All integers are little-endian, and every one of these sections begins at a multiple of 8 bytes and is filled with
zeros up to the next: numpy and Arrow read them in place (`layout` gives the offsets). The sizes add up to the last
byte, but for zeros at the end, up to a multiple that the publisher chose (`fill`). Extras of a record: flags(1: 1
expiry, 2 content type, 4 response topic, 8 correlation data, 16 payload format, 32 original number, 64 user
properties), then those fields in this order: expiry in seconds(4), text, text, bytes, format(1), number(8), count(2)
and pairs of texts; texts and bytes behind their 16-bit length.

A fault of the structure fails the whole content. A fault of a record (a topic that is no UTF-8, unreadable extras)
fails that record alone: `topic` and `extras` raise when they are asked for. Not here: sealing and signatures
(`envelope`), which topics are allowed (`bridge`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from keys.errors import BadFrame, OurFault
from keys.message import PAYLOAD_LIMIT, PROPERTIES_LIMIT, SEALED, SEALED_PROPERTIES, Sealed

VERSION = 2
RECORDS_MAX = 1024  # publications in one batch
FILL_MAX = 4096  # a content has fewer zeros than this at its end; bounds the bytes that say nothing
QOS, RETAIN, HAS_EXTRAS, TOMBSTONE, DROPPED = 3, 4, 8, 16, 32
NUMBER_MAX = (1 << 63) - 1  # databases and Spark have signed numbers of 64 bits
EXPIRY, NUMBER, PROPERTIES = 1, 32, 64  # beside them the flags of `SEALED`, in one byte: 128 is the last that is free
_HEAD = struct.Struct("<BBHHHII")
HEAD_BYTES = _HEAD.size
RECORD_FLAGS = bytes(f for f in range(64) if f & QOS != 3 and (f & RETAIN or not f & TOMBSTONE))
_BARE_FLAGS = bytes(f for f in RECORD_FLAGS if not f & ~QOS)
_PLAIN_FLAGS = bytes(f for f in RECORD_FLAGS if not f & HAS_EXTRAS)
_HAS_EXTRAS = bytes(bool(f & HAS_EXTRAS) for f in range(256))
_TEXT_MAX = 65_535


class Layout(NamedTuple):
    """The offset of each section of a content, and of its end."""

    flags: int
    times: int
    indexes: int
    extras_lengths: int
    payload_lengths: int
    topic_lengths: int
    topics: int
    extras: int
    payloads: int
    end: int


def layout(records: int, topics: int, topics_bytes: int, extras_bytes: int, payloads_bytes: int) -> Layout:
    """Returns the layout of a content with so many records and distinct topics, and so many bytes of each kind."""
    return Layout(
        *_fixed(records, topics), *_rest(_fixed_end(records, topics), topics_bytes, extras_bytes, payloads_bytes)
    )


def _padded(size: int) -> int:
    return -(-size // 8) * 8


@lru_cache(maxsize=4096)
def _fixed(records: int, topics: int) -> tuple[int, int, int, int, int, int]:
    flags = HEAD_BYTES
    times = flags + _padded(records)
    indexes = times + 8 * records
    extras_lengths = indexes + _padded(2 * records)
    payload_lengths = extras_lengths + _padded(4 * records)
    return flags, times, indexes, extras_lengths, payload_lengths, payload_lengths + _padded(4 * records)


def _fixed_end(records: int, topics: int) -> int:
    return _fixed(records, topics)[-1] + (2 * topics + 7 & -8)


def _rest(start: int, topics_bytes: int, extras_bytes: int, payloads_bytes: int) -> tuple[int, int, int, int]:
    extras = start + (topics_bytes + 7 & -8)
    payloads = extras + (extras_bytes + 7 & -8)
    return start, extras, payloads, payloads + (payloads_bytes + 7 & -8)


@lru_cache(maxsize=RECORDS_MAX + 1)
def _columns(records: int) -> struct.Struct:
    """Returns the struct of the head and the columns of so many records, with their padding."""
    pads = (-records % 8, -2 * records % 8, -4 * records % 8)
    return struct.Struct(
        f"<BBHHHII{records}s{pads[0]}x{records}q{records}H{pads[1]}x{records}I{pads[2]}x{records}I{pads[2]}x"
    )


@lru_cache(maxsize=RECORDS_MAX + 1)
def _shorts(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}H{-2 * count % 8}x")


NOTHING: tuple[Sealed, ...] = (None,) * len(SEALED)
_FORMAT = SEALED_PROPERTIES.index("payload_format")
_SEALED_FLAGS = sum(each.flag for each in SEALED)
_FLAGS = EXPIRY | NUMBER | PROPERTIES | _SEALED_FLAGS


class Extras(NamedTuple):
    """The fields of a record beside topic, payload and time.

    `sealed`: a value or None for each of `keys.message.SEALED`. `number`: the original number, in snapshots.
    """

    expiry_s: int | None = None
    sealed: tuple[Sealed, ...] = NOTHING
    number: int | None = None
    properties: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        """Returns the encoded extras, empty if there are none. Raises `OurFault` for values that do not fit."""
        if self == NO_EXTRAS:
            return b""
        flags, parts = 0, list[bytes]()
        try:
            if self.expiry_s is not None:
                flags |= EXPIRY
                parts.append(self.expiry_s.to_bytes(4, "little"))
            for (_, _, flag), value in zip(SEALED, self.sealed, strict=True):
                if value is not None:
                    flags |= flag
                    if isinstance(value, int):
                        parts.append(bytes((value,)))
                    else:
                        parts += _sized(value.encode() if isinstance(value, str) else value)
            if self.number is not None:
                flags |= NUMBER
                parts.append(self.number.to_bytes(8, "little"))
            if self.properties:
                flags |= PROPERTIES
                parts.append(len(self.properties).to_bytes(2, "little"))
                for name, value in self.properties:
                    parts += _sized(name.encode())
                    parts += _sized(value.encode())
        except (OverflowError, UnicodeEncodeError, ValueError):
            raise OurFault("a message property fits no record") from None
        if len(self.properties) > PROPERTIES_LIMIT or self.sealed[_FORMAT] not in (None, 0, 1):
            raise OurFault("more user properties than a record can have, or an unknown payload format")
        return bytes((flags,)) + b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Extras:
        """Reads encoded extras; one value has a single encoding. Raises `BadFrame`."""
        if not data:
            return NO_EXTRAS
        flags, at = data[0], 1
        if not flags or flags & ~_FLAGS:
            raise BadFrame(f"extras with flags {flags:#04x}")
        expiry = number = None
        if flags & EXPIRY:
            expiry, at = _integer(data, at, 4)
        sealed = NOTHING
        if flags & _SEALED_FLAGS:
            values: list[Sealed] = [*NOTHING]
            for place, (_, kind, flag) in enumerate(SEALED):
                if flags & flag:
                    values[place], at = _READERS[kind](data, at)
            sealed = tuple(values)
            if sealed[_FORMAT] not in (None, 0, 1):
                raise BadFrame(f"payload format {sealed[_FORMAT]!r}; 0 and 1 are defined (MQTT 5.0 §3.3.2.3.2)")
        if flags & NUMBER:
            number, at = _integer(data, at, 8)
            if number > NUMBER_MAX:
                raise BadFrame("a number that no record has")
        pairs = []
        if flags & PROPERTIES:
            count, at = _integer(data, at, 2)
            if not 1 <= count <= PROPERTIES_LIMIT:
                raise BadFrame(f"{count} user properties")
            for _ in range(count):
                name, at = _text(data, at)
                value, at = _text(data, at)
                pairs.append((name, value))
        if at != len(data):
            raise BadFrame(f"{len(data) - at} bytes behind the extras of a record")
        return cls(expiry, sealed, number, tuple(pairs))


NO_EXTRAS = Extras()


def _sized(data: bytes) -> tuple[bytes, bytes]:
    return len(data).to_bytes(2, "little"), data


def _integer(data: bytes, at: int, size: int) -> tuple[int, int]:
    if at + size > len(data):
        raise BadFrame("extras of a record are cut short")
    return int.from_bytes(data[at : at + size], "little"), at + size


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _integer(data, at, 2)
    if at + size > len(data):
        raise BadFrame("extras of a record are cut short")
    return data[at : at + size], at + size


def _text(data: bytes, at: int) -> tuple[str, int]:
    value, at = _bytes(data, at)
    try:
        return value.decode(), at
    except UnicodeDecodeError:
        raise BadFrame("a text of a record is not UTF-8") from None


def _byte(data: bytes, at: int) -> tuple[int, int]:
    return _integer(data, at, 1)


_READERS: Mapping[type, Callable[[bytes, int], tuple[Sealed, int]]] = {str: _text, bytes: _bytes, int: _byte}


class Records:
    """The columns of a content. Records are numbered from 0.

    `flags`: a byte each. `times`: ms. `indexes`: into `topics`, which are distinct and undecoded bytes.
    `data`: the content itself.
    """

    __slots__ = (
        "_extras_ends",
        "_extras_lengths",
        "_payload_ends",
        "_payload_lengths",
        "_starts",
        "data",
        "flags",
        "indexes",
        "times",
        "topics",
    )

    def __init__(
        self,
        data: bytes,
        flags: bytes,
        times: Sequence[int],
        indexes: Sequence[int],
        topics: tuple[bytes, ...],
        lengths: tuple[Sequence[int], Sequence[int]],
        starts: tuple[int, int],
    ) -> None:
        self.data = data
        self.flags, self.times, self.indexes, self.topics = flags, times, indexes, topics
        self._extras_lengths, self._payload_lengths = lengths
        self._starts = starts
        self._extras_ends: list[int] = []
        self._payload_ends: list[int] = []

    def __len__(self) -> int:
        return len(self.flags)

    @classmethod
    def decode(cls, data: bytes) -> Records:
        """Reads a content; no loop over records runs in Python. Raises `BadFrame` unless the structure holds."""
        if len(data) < HEAD_BYTES:
            raise BadFrame(f"a content of {len(data)} bytes")
        version, zero, count, topic_count, zeros, extras_bytes, payloads_bytes = _HEAD.unpack_from(data)
        if version != VERSION or zero or zeros:
            raise BadFrame(f"content of version {version}")
        if not 1 <= count <= RECORDS_MAX or not 1 <= topic_count <= count:
            raise BadFrame(f"a content of {count} records on {topic_count} topics")
        fixed, lengths_at = _columns(count), _fixed(count, topic_count)[-1]
        topics_at = _fixed_end(count, topic_count)
        if len(data) < topics_at:
            raise BadFrame(f"a content of {count} records in {len(data)} bytes")
        fields = fixed.unpack_from(data)
        flags, times, indexes = fields[7], fields[8 : 8 + count], fields[8 + count : 8 + 2 * count]
        extras, payloads = fields[8 + 2 * count : 8 + 3 * count], fields[8 + 3 * count :]
        topic_lengths = _shorts(topic_count).unpack_from(data, lengths_at)
        rest = _rest(topics_at, sum(topic_lengths), extras_bytes, payloads_bytes)
        if sum(extras) != extras_bytes or sum(payloads) != payloads_bytes or _misfits(data, rest[-1]):
            raise BadFrame("lengths of a content do not add up")
        if max(indexes) >= topic_count or min(times) < 0:
            raise BadFrame("a record without a topic, or before 1970")
        if flags.translate(None, _PLAIN_FLAGS) and (
            flags.translate(None, RECORD_FLAGS) or flags.translate(_HAS_EXTRAS) != bytes(map(bool, extras))
        ):
            raise BadFrame("flags of records that cannot be")
        if extras_bytes and not flags.translate(_HAS_EXTRAS).strip(b"\0"):
            raise BadFrame("extras of records that have none")
        ends = [*accumulate(topic_lengths, initial=topics_at)]
        topics = tuple([data[start:end] for start, end in pairwise(ends)])
        if len(set(topics)) != topic_count:
            raise BadFrame("a topic twice")
        _check_padding(data, count, topic_count, (ends[-1], rest[1] + extras_bytes, rest[2] + payloads_bytes))
        return cls(data, flags, times, indexes, topics, (extras, payloads), (rest[1], rest[2]))

    @property
    def are_bare(self) -> bool:
        """True if each record is no more than time, topic, QoS and payload, and counts."""
        return not self.flags.translate(None, _BARE_FLAGS)

    # ------------------------------------------------------------------------------------------- records

    def payload(self, at: int) -> bytes:
        end = self._payload_end(at)
        return self.data[end - self._payload_lengths[at] : end]

    def payloads(self) -> list[bytes]:
        """Returns all payloads, in order."""
        self._payload_end(0)
        ends, lengths, data = self._payload_ends, self._payload_lengths, self.data
        return [data[end - size : end] for end, size in zip(ends, lengths, strict=True)]

    def _payload_end(self, at: int) -> int:
        if not self._payload_ends:
            self._payload_ends = [*accumulate(self._payload_lengths, initial=self._starts[1])][1:]
        return self._payload_ends[at]

    def extras_bytes(self, at: int) -> bytes:
        """Returns the encoded extras of a record."""
        if not self._extras_ends:
            self._extras_ends = [*accumulate(self._extras_lengths, initial=self._starts[0])][1:]
        end = self._extras_ends[at]
        return self.data[end - self._extras_lengths[at] : end]

    def extras(self, at: int) -> Extras:
        """Returns the extras of a record. Raises `BadFrame` if they cannot be read."""
        return Extras.decode(self.extras_bytes(at)) if self.flags[at] & HAS_EXTRAS else NO_EXTRAS

    def topic(self, at: int) -> str:
        """Returns the topic of a record. Raises `BadFrame` if it is no text."""
        try:
            return self.topics[self.indexes[at]].decode()
        except UnicodeDecodeError:
            raise BadFrame("a topic is not UTF-8") from None

    def qos(self, at: int) -> int:
        return self.flags[at] & QOS


def fill(content: bytes, multiple: int) -> bytes:
    """Returns the content with zeros at its end, up to a multiple of `multiple` bytes, which is a multiple of 8 and at
    most `FILL_MAX`.
    """
    return content + bytes(-len(content) % multiple)


def _misfits(data: bytes, end: int) -> bool:
    """Returns True unless the content ends here, or zeros follow as `fill` adds them."""
    more = len(data) - end
    return more != 0 and (not 0 < more < FILL_MAX or more % 8 != 0 or data.count(0, end) != more)


def _check_padding(data: bytes, count: int, topics: int, ends: Iterable[int]) -> None:
    at = _fixed(count, topics)
    used = (at[0] + count, at[2] + 2 * count, at[3] + 4 * count, at[4] + 4 * count, at[5] + 2 * topics, *ends)
    for end in used:
        if end & 7 and data[end : end + 7 & -8].strip(b"\0"):
            raise BadFrame("padding is not zeros")


def encode(
    flags: bytes, times: Sequence[int], topics: Sequence[bytes], extras: Sequence[bytes], payloads: Sequence[bytes]
) -> bytes:
    """Returns the content of records given column by column, a topic each; sets `HAS_EXTRAS`. Raises `OurFault`."""
    places: dict[bytes, int] = {}
    indexes = [places.setdefault(topic, len(places)) for topic in topics]
    if any(extras) or flags.translate(None, _PLAIN_FLAGS):
        marks = zip(flags, extras, strict=True)
        flags = bytes([flag | HAS_EXTRAS if extra else flag & ~HAS_EXTRAS for flag, extra in marks])
    topics = tuple(places)
    count = len(flags)
    if not 1 <= count <= RECORDS_MAX:
        raise OurFault(f"a batch has 1 to {RECORDS_MAX} records, not {count}")
    if flags.translate(None, RECORD_FLAGS) or not all(topics) or max(map(len, topics)) > _TEXT_MAX:
        raise OurFault("a record has flags that cannot be, or a topic that is empty or too long")
    extras_data, payload_data, topic_data = b"".join(extras), b"".join(payloads), b"".join(topics)
    if len(payload_data) > PAYLOAD_LIMIT:
        raise OurFault("payloads of a batch are longer than a packet can be")
    head = (VERSION, 0, count, len(topics), 0, len(extras_data), len(payload_data), flags)
    try:
        columns = _columns(count).pack(*head, *times, *indexes, *map(len, extras), *map(len, payloads))
    except struct.error:
        raise OurFault("a record's time or length fits no batch, or columns differ in length") from None
    lengths = _shorts(len(topics)).pack(*map(len, topics))
    parts = [columns, lengths]
    for section in (topic_data, extras_data, payload_data):
        parts.append(section)
        if len(section) & 7:
            parts.append(bytes(-len(section) % 8))
    return b"".join(parts)
