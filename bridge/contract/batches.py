"""Batches: publications of a scope packed as one by the gateway's outbox, and unpacked by readers.

A batch is a publication whose payload is `keys.records` content: it is committed, sealed, signed, sent, stored and
acknowledged once. Its number is the first record's. The next records count up by one; a record with another number
carries that number with its extras. Not here: choosing the publications of a batch (`gateway.outbox`), the way of
batches (`bridge.document`), the right of a record to be delivered (`bridge.reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from bridge.contract.machine import Publication
from bridge.document import BATCHING
from keys.errors import BadFrame, KeysError
from keys.message import SEALED_PROPERTIES
from keys.records import DROPPED, HAS_EXTRAS, NOTHING, QOS, RETAIN, TOMBSTONE, Extras, Records, encode

RECORDS_MAX = BATCHING.records  # of one batch, unless its scope sets another number
BATCH_BYTES = BATCHING.content_bytes  # of topics, payloads and extras together; a longer record is a batch of its own
RECORD_BYTES = 30  # the most that a record takes beside them: columns, a topic's length, its own number
BATCH_FORM_BYTES = 80  # the most that a batch takes beside its records: the head, and padding of sections

sealed_of: Callable[[Publication], tuple[str | None, str | None, bytes | None, int | None]] = attrgetter(
    *SEALED_PROPERTIES
)
"""Returns the sealed properties of a publication, in the order of `SEALED_PROPERTIES`."""


class Chain(NamedTuple):
    """A chain of ordered publications and the limits of its batches.

    `name`: the scope's clear filter. `records`, `bytes`: the most that one batch holds. `linger_ms`: milliseconds a
    stored publication may wait for others. `in_clear`: the scope is plain.
    """

    name: str
    records: int = RECORDS_MAX
    bytes: int = BATCH_BYTES
    linger_ms: int = BATCHING.linger_ms
    in_clear: bool = False


class Numbered(NamedTuple):
    """A publication and its number among its publisher's publications."""

    number: int
    publication: Publication


def is_bare(p: Publication) -> bool:
    """Returns True for a publication that is no more than topic and payload, as most are. Called twice for each."""
    return p.expiry_s is None and not p.properties and sealed_of(p) == NOTHING


def size_of(publication: Publication) -> int:
    """Returns the most bytes the publication takes in a batch; 0: it fits no batch."""
    p = publication
    if not p.topic or p.time_ms < 0:
        return 0
    try:
        size = RECORD_BYTES + len(p.payload) + len(p.topic if p.topic.isascii() else p.topic.encode())
        return size if is_bare(p) else size + len(_extras(p, None))
    except (KeysError, UnicodeEncodeError):
        return 0


def count_of(publication: Publication) -> int:
    """Returns the number of publications of devices in this publication."""
    return publication.records or 1


def packed(topic: str, records: Sequence[Numbered], in_clear: bool | None = None) -> Publication:
    """Packs the records, in order, as a single publication on `topic`. Raises `OurFault` if one fits no
    record. `in_clear` has the meaning that it has in `Publication`.
    """
    next_number, flags, qos = records[0].number, bytearray(), 0
    times, ends_ms = list[int](), list[int]()
    topics, extras, payloads = list[bytes](), list[bytes](), list[bytes]()
    for number, p in records:
        flags.append(_flags(p) if p.retain else p.qos)
        times.append(p.time_ms)
        topics.append(p.topic.encode())
        extras.append(_extras(p, None if number == next_number else number))
        payloads.append(p.payload)
        qos, next_number = max(qos, p.qos), next_number + 1
        if p.expiry_s is not None:
            ends_ms.append(p.time_ms + p.expiry_s * 1000)
    content = encode(bytes(flags), times, topics, extras, payloads)
    begins_ms = min(times)
    expiry_s = -(-(max(ends_ms) - begins_ms) // 1000) if len(ends_ms) == len(records) else None
    return Publication(
        topic, content, qos, expiry_s=expiry_s, time_ms=begins_ms, records=len(records), in_clear=in_clear
    )


def void(topic: str, record_topic: str, qos: int, time_ms: int) -> Publication:
    """Returns a batch on `topic` with a single dropped record, which only uses its number."""
    content = encode(bytes([qos | DROPPED]), [time_ms], [record_topic.encode()], [b""], [b""])
    return Publication(topic, content, qos, time_ms=time_ms, records=1)


def numbers_of(batch: Publication, first: int) -> tuple[int, ...]:
    """Returns the numbers of the records of our own batch; for a publication that is no batch, its own number."""
    if not batch.records:
        return (first,)
    records = Records.decode(batch.payload)
    if not records.flags.translate(None, _WITHOUT_EXTRAS):
        return tuple(range(first, first + len(records)))
    return tuple([_number(records, at, first) for at in range(len(records))])


def unpacked(content: bytes, first: int) -> Iterator[Numbered | KeysError]:
    """Yields each record of the batch numbered `first`, or its error; leaves out records that only use a number.

    Raises `BadFrame` if the whole batch is invalid.
    """
    records = Records.decode(content)
    flags, times, payloads = records.flags, records.times, records.payloads()
    topics: list[str | None] = [_text(topic) for topic in records.topics]
    for at, index in enumerate(records.indexes):
        topic, flag = topics[index], flags[at]
        if flag & DROPPED:
            continue
        if topic is None:
            yield BadFrame("a topic is not UTF-8")
            continue
        if not flag & HAS_EXTRAS:  # the usual case
            yield Numbered(
                first + at, Publication(topic, payloads[at], flag & QOS, bool(flag & RETAIN), time_ms=times[at])
            )
            continue
        try:
            extras = records.extras(at)
        except KeysError as error:
            yield error
            continue
        yield Numbered(
            first + at if extras.number is None else extras.number,
            Publication(
                topic,
                payloads[at],
                flag & QOS,
                bool(flag & RETAIN),
                properties=extras.properties,
                expiry_s=extras.expiry_s,
                time_ms=times[at],
                **_sealed(extras),
            ),
        )


def _sealed(extras: Extras) -> dict[str, Any]:
    return dict(zip(SEALED_PROPERTIES, extras.sealed, strict=True)) if extras.sealed is not NOTHING else {}


def _number(records: Records, at: int, first: int) -> int:
    number = records.extras(at).number
    return first + at if number is None else number


def _text(topic: bytes) -> str | None:
    try:
        return topic.decode()
    except UnicodeDecodeError:
        return None


def _flags(publication: Publication) -> int:
    retain = RETAIN if publication.retain else 0
    return publication.qos | retain | (TOMBSTONE if retain and not publication.payload else 0)


def _extras(publication: Publication, number: int | None) -> bytes:
    p = publication
    if number is None and is_bare(p):
        return b""
    return Extras(p.expiry_s, sealed_of(p), number, p.properties).encode()


_WITHOUT_EXTRAS = bytes(flag for flag in range(256) if not flag & HAS_EXTRAS)
