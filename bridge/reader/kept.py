"""State of a reader that outlives its process, as rows the shell stores in a single transaction with deliveries.

    s publisher scope            first delivered number and head (`streams`): tells repetitions from late publications
    k key id                     a key header with its shares or, once recombined, its secret
    h publisher sequence peer    an accepted wire, unchanged: its publication waits for content, key or predecessor
    e publisher sequence wire    a wire of a future scope, unchanged: only its signature was verified
    r topic/member               the member's newest retained publication there: time, key and order of sealing
    w stream                     a scope subscribed at the end of the process, with the time since which all is known
    w stream author              the time since which all of this author is known, after something was forgotten
    a                            the last life sign: a publication sealed since then is no replay
    v                            the last version stated: replicas ignore older ones
    o topic                      a retained publication of this gateway (`publisher.own_retained`)
    l party                      its predecessor's key, with the end of the predecessor's numbers (`intake`)
    d sequence chain             a publication dropped unsent or gone from a chain, and its predecessor
                                 (`publisher.cutting`)
    p sequence                   an outbox row that is sent in parts, and its rest (`publisher.cutting`)
    c                            the scopes in which this gateway stored something (`publisher.former_scopes`)
    q run                        which numbers of QoS 2 were sealed, of a run of numbers (`publisher.sealed_before`)

Without these rows a restarted reader would deliver repetitions of replicas again, lose acknowledged publications, and
take every retained publication for a live one. The machines change rows; `changed_rows` returns the changed ones. The
shell acknowledges a wire to its replica only after all its changed rows are on disk. This module decides nothing,
writes no disk and seals no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from bridge.contract import Effect, Keep, Wire
from bridge.reader.streams import Head, Stream, StreamId
from bridge.wire import PROPERTY_PART, PROPERTY_SKIP
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS
from keys.errors import BadFrame
from keys.frames import Reader, number, sized, text

STREAM, KEY, WAITING, AHEAD, RETAINED, SCOPE = b"s", b"k", b"h", b"e", b"r", b"w"
ALIVE, VERSION, LINEAGE = b"a", b"v", b"l"
ALIVE_EVERY_S = 10.0
_READ = frozenset({PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS, PROPERTY_PART, PROPERTY_SKIP})

Name: TypeAlias = tuple[bytes, str, int]  # publisher, wire topic, sequence
Rows: TypeAlias = Sequence[tuple[bytes, bytes]]


class KeptReader:
    """Rows changed since the last call of `changed_rows`, and the names of publications that have rows because they
    wait.
    """

    def __init__(self) -> None:
        self.changed: dict[bytes, bytes | None] = {}
        self.streams: dict[StreamId, Stream] = {}
        """Streams whose rows changed, like those in `changed`; `changed_rows` is asked if there are any."""
        self._waiting: dict[Name, dict[bytes, None]] = {}
        self._alive_at = 0.0

    def put_row(self, key: bytes, value: bytes) -> None:
        self.changed[key] = value

    def drop_row(self, key: bytes) -> None:
        self.changed[key] = None

    def stream(self, stream_id: StreamId, stream: Stream) -> None:
        """Notes a stream in which a publication was delivered."""
        self.streams[stream_id] = stream

    def stream_gone(self, stream_id: StreamId) -> None:
        self.streams.pop(stream_id, None)
        self.drop_row(stream_key(stream_id))

    def waits(self, name: Name, peer: str, wire: Wire, arrived: float) -> None:
        """Keeps a wire until its publication is delivered or given up."""
        key = WAITING + name[0] + number(name[2], 8) + peer.encode()
        self._waiting.setdefault(name, {})[key] = None
        self.put_row(key, wire_row(peer, as_read(wire), arrived))

    def drop_publication(self, name: Name) -> None:
        """Drops the rows of a publication waiting no more."""
        for key in self._waiting.pop(name, ()):
            self.drop_row(key)

    @property
    def waiting(self) -> Iterable[Name]:
        """The names of publications that have rows because they wait."""
        return tuple(self._waiting)

    def changed_rows(self, now: float) -> list[Effect]:
        """Returns the rows to store now; an empty list if nothing changed."""
        for stream_id, stream in self.streams.items():
            self.changed[stream_key(stream_id)] = stream_row(stream)
        self.streams.clear()
        if not self.changed:
            return []
        if now - self._alive_at >= ALIVE_EVERY_S:
            self._alive_at = now
            self.changed[ALIVE] = number(int(now * 1000), 8)
        changed, self.changed = self.changed, {}
        return [Keep(tuple(changed.items()))]


# ------------------------------------------------------------------------------------------------------ rows


def of_kind(rows: Rows, kind: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the rows of one kind, without the kind in their keys."""
    return [(key[1:], value) for key, value in rows if key[:1] == kind]


def stream_key(stream_id: StreamId) -> bytes:
    """Returns the row key of a stream."""
    return STREAM + stream_id[0] + stream_id[1].encode()


def stream_row(stream: Stream) -> bytes:
    """Encodes a stream as a row."""
    return number(stream.first or 0, 8) + stream.head.encode()


def stream_of(key: bytes, row: bytes) -> tuple[StreamId, Stream]:
    """Decodes a stream from its row, with the generation before the first subscription of this process. Raises
    BadFrame.
    """
    try:
        head = Head.decode(row[8:])
    except ValueError:
        head = None
    if head is None or len(key) <= 16:
        raise BadFrame("a stream's row is damaged")
    return (key[:16], key[16:].decode()), Stream(int.from_bytes(row[:8]), head, generation=0)


def as_read(wire: Wire) -> Wire:
    """Returns a wire without properties no reader uses: they must not fill the disk."""
    told = {property: value for property, value in wire.properties if property in _READ}
    return replace(wire, properties=tuple(told.items()))


def wire_row(peer: str, wire: Wire, arrived: float) -> bytes:
    """Encodes a waiting wire as a row."""
    parts = [text(peer), number(int(arrived * 1000), 8), text(wire.topic), number(wire.qos | wire.retain << 7, 1)]
    parts += [number(len(wire.properties), 2), *(text(name) + text(value) for name, value in wire.properties)]
    return b"".join([*parts, wire.payload])


def wire_of(row: bytes) -> tuple[str, Wire, float]:
    """Decodes a row into sender, wire and time of arrival. Raises BadFrame."""
    reader = Reader(row)
    peer, arrived, topic, flags = reader.text(), reader.number(8) / 1000, reader.text(), reader.number(1)
    properties = tuple((reader.text(), reader.text()) for _ in range(reader.number(2)))
    return peer, Wire(topic, reader.take_rest(), flags & 0x03, bool(flags & 0x80), properties), arrived


def kept_wires(rows: Rows) -> list[tuple[bytes, bool, str, Wire]]:
    """Returns the waiting wires: row key, True if a former process accepted the wire, sender, wire. Raises
    BadFrame.
    """
    found = [(kind, key, wire_of(row)) for kind in (WAITING, AHEAD) for key, row in of_kind(rows, kind)]
    return [(kind + key, kind == WAITING, peer, wire) for kind, key, (peer, wire, _) in found]


def key_row(header: str, secret: bytes, brought: Iterable[tuple[str, str]]) -> bytes:
    """Encodes a key. `header` is the property with the key header; `brought` holds sender and shares property, used
    while there is no `secret`.
    """
    return b"".join([text(header), sized(secret), *(text(peer) + text(shares) for peer, shares in brought)])


def key_of(row: bytes) -> tuple[str, bytes, list[tuple[str, str]]]:
    """Decodes a key's row into header, secret, and pairs of sender and shares property. Raises BadFrame."""
    reader = Reader(row)
    header, secret, brought = reader.text(), reader.sized(), []
    while reader.position < len(row):
        brought.append((reader.text(), reader.text()))
    return header, secret, brought
