"""What of a reader's state outlives its process, as rows that the shell keeps in the same transaction as deliveries.

    s publisher scope            first delivered, head (`heads`): what is a repetition, and what may still come late
    k key id                     a key header, and the shares that came for it or, once recombined, its secret
    h publisher sequence peer    a publication that waits for content, key or predecessor, as it came: it was let in
    e publisher sequence wire    one of a scope that is to come, as it came: only its signature was looked at
    r topic/member               the newest that the member retained there: time, key and which sealing it is
    w stream                     a scope that was subscribed when we ended, its streams go on: since when all is known
    w stream author              since when all of this author is, where we forgot something of it
    a                            when we were last alive: what was sealed since is no replay
    v                            the version that we stated last: replicas hear nothing older
    o topic                      what we published retained ourselves (`publisher.own_retained`)
    l party                      whose key it succeeded to, and up to which number (`lineages`)
    d sequence chain             what we dropped unsent, or has left a chain, and what was before it
                                 (`publisher.predecessors`)
    p sequence                   a row of the outbox that goes in parts, and what is left of it (`publisher.cutting`)
    c                            the scopes in which we stored something (`publisher.former_scopes`)
    q run                        numbers of QoS 2 of which we sealed some (`publisher.sealed_before`)

Without it a restart would deliver again what replicas repeat, lose what they were told we have, and take every retained
publication for a live one. Rows change as the machines do; `changes` gives those that did. The shell acknowledges a
wire to its replica only when the rows of all that it changed are on disk. Not here: deciding, disks, sealing of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from bridge.contract import Effect, Keep, Wire
from bridge.reader.heads import Head
from bridge.reader.streams import Stream, StreamId
from bridge.wire import PROPERTY_PART, PROPERTY_SKIP
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES
from keys.errors import BadFrame
from keys.frames import Reader, number, sized, text

STREAM, KEY, WAITING, AHEAD, RETAINED, SCOPE = b"s", b"k", b"h", b"e", b"r", b"w"
ALIVE, VERSION, LINEAGE = b"a", b"v", b"l"
ALIVE_EVERY_S = 10.0
_READ = frozenset({PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_PART, PROPERTY_SKIP})

Name: TypeAlias = tuple[bytes, str, int]  # publisher, wire topic, sequence
Rows: TypeAlias = Sequence[tuple[bytes, bytes]]


class KeptReader:
    """Rows that changed since `changes` was asked last, and which publications have rows because they wait."""

    def __init__(self) -> None:
        self._changed: dict[bytes, bytes | None] = {}
        self._streams: dict[StreamId, Stream] = {}
        self._waiting: dict[Name, dict[bytes, None]] = {}
        self._alive_at = 0.0

    def put(self, key: bytes, value: bytes) -> None:
        self._changed[key] = value

    def drop(self, key: bytes) -> None:
        self._changed[key] = None

    def stream(self, stream_id: StreamId, stream: Stream) -> None:
        """Something of it was delivered."""
        self._streams[stream_id] = stream

    def stream_gone(self, stream_id: StreamId) -> None:
        self._streams.pop(stream_id, None)
        self.drop(stream_key(stream_id))

    def waits(self, name: Name, peer: str, wire: Wire, arrived: float) -> None:
        """What a wire brought is needed until the publication is delivered or given up."""
        key = WAITING + name[0] + number(name[2], 8) + peer.encode()
        self._waiting.setdefault(name, {})[key] = None
        self.put(key, wire_row(peer, as_read(wire), arrived))

    def done(self, name: Name) -> None:
        """It waits no more."""
        for key in self._waiting.pop(name, ()):
            self.drop(key)

    @property
    def waiting(self) -> Iterable[Name]:
        """Publications that have rows because they wait."""
        return tuple(self._waiting)

    def changes(self, now: float) -> list[Effect]:
        """What is to be kept now; nothing, if nothing changed."""
        for stream_id, stream in self._streams.items():
            self._changed[stream_key(stream_id)] = stream_row(stream)
        self._streams.clear()
        if not self._changed:
            return []
        if now - self._alive_at >= ALIVE_EVERY_S:
            self._alive_at = now
            self._changed[ALIVE] = number(int(now * 1000), 8)
        changed, self._changed = self._changed, {}
        return [Keep(tuple(changed.items()))]


# ------------------------------------------------------------------------------------------------------ rows


def of_kind(rows: Rows, kind: bytes) -> list[tuple[bytes, bytes]]:
    """Rows of one kind, their keys without it."""
    return [(key[1:], value) for key, value in rows if key[:1] == kind]


def stream_key(stream_id: StreamId) -> bytes:
    """The name under which a stream is kept."""
    return STREAM + stream_id[0] + stream_id[1].encode()


def stream_row(stream: Stream) -> bytes:
    """A stream as a row."""
    return number(stream.first or 0, 8) + stream.head.encode()


def stream_of(key: bytes, row: bytes) -> tuple[StreamId, Stream]:
    """Raises BadFrame. Its generation is that of before the first subscription of this process."""
    try:
        head = Head.decode(row[8:])
    except ValueError:
        head = None
    if head is None or len(key) <= 16:
        raise BadFrame("a stream's row is damaged")
    return (key[:16], key[16:].decode()), Stream(int.from_bytes(row[:8]), head, generation=0)


def as_read(wire: Wire) -> Wire:
    """Without the properties that nobody reads: they fill no disk."""
    told = {property: value for property, value in wire.properties if property in _READ}
    return replace(wire, properties=tuple(told.items()))


def wire_row(peer: str, wire: Wire, arrived: float) -> bytes:
    """A waiting wire as a row."""
    parts = [text(peer), number(int(arrived * 1000), 8), text(wire.topic), number(wire.qos | wire.retain << 7, 1)]
    parts += [number(len(wire.properties), 2), *(text(name) + text(value) for name, value in wire.properties)]
    return b"".join([*parts, wire.payload])


def wire_of(row: bytes) -> tuple[str, Wire, float]:
    """Sender, wire and when it came. Raises BadFrame."""
    reader = Reader(row)
    peer, arrived, topic, flags = reader.text(), reader.number(8) / 1000, reader.text(), reader.number(1)
    properties = tuple((reader.text(), reader.text()) for _ in range(reader.number(2)))
    return peer, Wire(topic, reader.rest(), flags & 0x03, bool(flags & 0x80), properties), arrived


def kept_wires(rows: Rows) -> list[tuple[bytes, bool, str, Wire]]:
    """What waited, by row: its key, whether a former process let it in, sender and wire. Raises BadFrame."""
    found = [(kind, key, wire_of(row)) for kind in (WAITING, AHEAD) for key, row in of_kind(rows, kind)]
    return [(kind + key, kind == WAITING, peer, wire) for kind, key, (peer, wire, _) in found]


def key_row(header: str, secret: bytes, brought: Iterable[tuple[str, str]]) -> bytes:
    """`header`: the property that brought it; `brought`: sender and shares property, if there is no `secret` yet."""
    return b"".join([text(header), sized(secret), *(text(peer) + text(shares) for peer, shares in brought)])


def key_of(row: bytes) -> tuple[str, bytes, list[tuple[str, str]]]:
    """Raises BadFrame."""
    reader = Reader(row)
    header, secret, brought = reader.text(), reader.sized(), []
    while reader.position < len(row):
        brought.append((reader.text(), reader.text()))
    return header, secret, brought
