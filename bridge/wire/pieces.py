"""Pieces of content: how a publication is cut, and which replica carries which piece (A10, docs/protocol.md §4).

Every publication has as many pieces as its signed header has digests, of which some number suffices: one of one in
modes `copies`, `one` and `plain`; in mode `blocks` any n - f of n Reed-Solomon blocks, n being the size of the
publisher's region. Blocks carry the length of the content before the content.

    copies   each replica carries the whole content, and has it from one of the region before: its own plane
    one      one replica of each region carries it: place (CRC-32 of publisher and sequence mod n) + 1
    blocks   block i is carried by place (i mod n) + 1

Property `vmq-part` says which pieces the payload is: absent for a single piece; `-` for none, an announcement; else
indexes, ascending, of the blocks in turn. Not here: when to send, ask or give up (`content_relay`, `pulling`,
`assembling`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from bridge.contract import UserProperties, Wire
from keys import reedsolomon
from keys.envelope import MessageHeader, Mode, content_digest
from keys.errors import BadContent, BadFrame

PROPERTY_PART = "vmq-part"
NO_PART = "-"
INLINE_BYTES = 512  # such content rides on all cross links: a signed header is nearly as long, and has to anyway
AUTO_COPIES_BYTES = 4096  # `auto` cuts longer content into blocks; measured: docs/explanation/reasons.md
_LENGTH_BYTES = 4

Pieces: TypeAlias = Mapping[int, bytes]


# -------------------------------------------------------------------------------------------------- cutting


def chosen(scope_mode: Mode, size_bytes: int, retain: bool) -> Mode:
    """Returns the mode of a publication. Retained and small sealed publications go as copies."""
    if scope_mode is not Mode.PLAIN and (retain or size_bytes <= INLINE_BYTES):
        return Mode.COPIES
    if scope_mode is Mode.AUTO:
        return Mode.COPIES if size_bytes <= AUTO_COPIES_BYTES else Mode.BLOCKS
    return scope_mode


def check_mode(header: MessageHeader, scope_mode: Mode) -> None:
    """Raises BadFrame for plain content in a sealed scope, the reverse, and retained content in blocks or by one.

    The choice among sealed modes is for publishers: another mode costs nobody else, and a policy changing it reaches
    members at different times.
    """
    if (header.mode is Mode.PLAIN) is not (scope_mode is Mode.PLAIN):
        raise BadFrame(f"content mode {header.mode.name} does not fit the scope's {scope_mode.name}")
    if header.retain and header.mode in (Mode.ONE, Mode.BLOCKS):
        raise BadFrame("what is retained travels as copies, so that each replica holds it")


def needed(total: int) -> int:
    """Returns n - f: the number of a publication's pieces that suffices."""
    return total - (total - 1) // 2


def cut(content: bytes, mode: Mode, count: int) -> tuple[bytes, ...]:
    """Cuts sealed content into pieces; `count`: replicas of the publisher's region."""
    if mode is not Mode.BLOCKS:
        return (content,)
    return reedsolomon.encode(len(content).to_bytes(_LENGTH_BYTES) + content, needed(count), count)


def suffices(header: MessageHeader, pieces: Pieces) -> bool:
    """Returns True if these pieces give the content."""
    return len(pieces) >= needed(len(header.digests))


def enough(header: MessageHeader, indexes: Iterable[int]) -> tuple[int, ...]:
    """Returns just enough of these pieces: more in a single packet could be longer than the content may be."""
    return tuple(sorted(indexes))[: needed(len(header.digests))]


def has_parts(header: MessageHeader, parts: Sequence[int], time_ms: int) -> bool:
    """Returns False for a request of pieces that this publication does not have.

    An earlier sealing may have had more of them, as views change. The asker is not to blame: its publisher may have
    signed two.
    """
    return not parts or parts[-1] < len(header.digests) or time_ms not in (0, header.time_ms)


def join(header: MessageHeader, pieces: Pieces) -> bytes:
    """Returns the content of pieces that suffice and fit their digests.

    Raises BadContent for blocks that are not all of a content: the publisher's fault, which every reader finds,
    whichever blocks it has.
    """
    total = len(header.digests)
    if header.mode is not Mode.BLOCKS:
        return pieces[0]
    size = len(next(iter(pieces.values())))
    if any(len(piece) != size for piece in pieces.values()):
        raise BadContent("blocks of a publication differ in length")
    data = reedsolomon.decode(pieces, needed(total), total, needed(total) * size)
    length = int.from_bytes(data[:_LENGTH_BYTES])
    content = data[_LENGTH_BYTES : _LENGTH_BYTES + length]
    again = cut(content, Mode.BLOCKS, total) if content else ()
    if tuple(map(content_digest, again)) != header.digests:  # they hold the length, too
        raise BadContent("blocks of a publication are not of one content")
    return content


def remade(header: MessageHeader, pieces: Pieces, index: int) -> bytes | None:
    """Returns a piece, remade of others if they suffice; None if impossible, or if it misfits its digest (the publisher
    lies).
    """
    if index in pieces:
        return pieces[index]
    if not suffices(header, pieces) or len({len(piece) for piece in pieces.values()}) != 1:
        return None
    total = len(header.digests)
    piece = reedsolomon.rebuild(pieces, index, needed(total), total)
    return piece if content_digest(piece) == header.digests[index] else None


# --------------------------------------------------------------------------------------------- who has what


def alone(header: MessageHeader, count: int) -> int:
    """Returns the place of the one replica of `count` carrying the publication in mode `one`.

    The sequence alone would not spread batches: numbers of full batches differ by a multiple of their records.
    """
    return zlib.crc32(header.sequence.to_bytes(8), zlib.crc32(header.publisher)) % count + 1


def carried(header: MessageHeader, place: int, count: int) -> tuple[int, ...]:
    """Returns the pieces passing through the replica at `place` of a region of `count`: never more than suffice."""
    total = len(header.digests)
    if header.mode is Mode.ONE:
        return (0,) if alone(header, count) == place else ()
    if header.mode is Mode.BLOCKS:
        return tuple(range(place - 1, total, count))[: needed(total)]
    return (0,)


def passed(header: MessageHeader, place: int, count: int, next_place: int, next_count: int) -> tuple[int, ...]:
    """Returns the pieces the replica at `place` of `count` sends to the one at `next_place` of the next region."""
    pieces = carried(header, next_place, next_count)
    if header.mode in (Mode.ONE, Mode.BLOCKS):
        mine = carried(header, place, count)
        return tuple(index for index in pieces if index in mine)
    return pieces if (next_place - 1) % count == place - 1 else ()


# --------------------------------------------------------------------------------------------------- wires


def rides_along(header: MessageHeader, pieces: Pieces) -> bool:
    """Returns True if the whole content is here and small enough for all cross links."""
    return header.mode not in (Mode.ONE, Mode.BLOCKS) and len(pieces) == 1 and len(pieces[0]) <= INLINE_BYTES


def wire(topic: str, header: MessageHeader, properties: UserProperties, pieces: Pieces) -> Wire:
    """Returns the wire of a publication with these pieces. `properties`: the signed header's, and others that ride
    along.
    """
    if header.mode is not Mode.BLOCKS and pieces:
        return Wire(topic, pieces[0], 1, header.retain, properties)
    part = ",".join(map(str, sorted(pieces))) or NO_PART
    payload = b"".join(pieces[index] for index in sorted(pieces))
    return Wire(topic, payload, 1, header.retain, (*properties, (PROPERTY_PART, part)))


def read(header: MessageHeader, payload: bytes, part: str | None) -> dict[int, bytes] | None:
    """Returns the pieces a wire brings; None if one misfits its signed digest. Raises BadFrame for a bad form."""
    if part is None and header.mode is not Mode.BLOCKS:  # the usual case
        return {0: payload} if content_digest(payload) == header.digests[0] else None
    if part == NO_PART:
        if payload:
            raise BadFrame("an announcement with content")
        return {}
    if part is None or header.mode is not Mode.BLOCKS:
        raise BadFrame(f"part {part} of a publication in mode {header.mode.name}")
    indexes = _indexes(part, len(header.digests))
    size, rest = divmod(len(payload), len(indexes))
    if rest:
        raise BadFrame("blocks of different length")
    pieces = {index: payload[size * at : size * (at + 1)] for at, index in enumerate(indexes)}
    # Empty blocks fit no content: their signer is found out here, not where they are joined.
    fit = size > 0 and all(content_digest(piece) == header.digests[index] for index, piece in pieces.items())
    return pieces if fit else None


def _indexes(part: str, total: int) -> list[int]:
    """Parses the list of pieces strictly: one set of pieces has a single spelling. Raises BadFrame."""
    words = part.split(",", total)
    if not all(word.isascii() and word.isdigit() and len(word) <= 3 for word in words):
        raise BadFrame("property vmq-part is no list of pieces")
    indexes = [int(word) for word in words]
    if indexes != sorted(set(indexes)) or indexes[-1] >= total or ",".join(map(str, indexes)) != part:
        raise BadFrame("property vmq-part lists no pieces of this publication")
    return indexes
