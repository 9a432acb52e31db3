"""History of a scope: records of replicas, requests of readers, and pages (docs/protocol-options.md §12).

A *record* is a publication at a replica. A *position* follows from signed bytes, so all replicas agree on the order of
records. A *key* is a data key's header with the replica's own shares. An *era* is a version of the overlay with the
time of its adoption at a replica. Recording stands in `replica.recording`, reading in `reader.replay`; files are the
shell's.

A *way* names a replica of each region along the tree; the last one is asked, the others pass on. A reader signs a *far
request*, the asked replica a *far page*, in a box for the reader alone (`replica.far_passing`, `reader.far_asking`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from bridge.document import Overlay
from keys.errors import BadFrame, OurFault
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import SIGNATURE_BYTES, Identity
from keys.sealedbox import check_receiver
from keys.values import value

HISTORY_TOPIC = "$veil/history"
PAGE_BYTES_MOST = 1 << 18
TAG_BYTES = 8
ERAS_MOST = 1_024
DOMAIN_ERA = b"veilmq/1 era\0"
FLAG_ERAS, FLAG_DOCUMENT, FLAG_PUBLISHERS = 0x01, 0x02, 0x04  # of a request
PUBLISHERS_MOST = 16  # that a request names; a lineage has at most nine keys
FAR_TOPIC = "$veil/history/far"
FAR_PAGE_BYTES = 1 << 16
"""The most bytes of a page for a reader of another region, but for a single longer record."""
WAY_MOST = 16
DOMAIN_FAR_REQUEST = "veilmq/1 far request"
DOMAIN_FAR_PAGE = "veilmq/1 far page"
_INFO = b"veilmq/1 far page"
PAGE_END, PAGE_ERAS, PAGE_DOCUMENT, PAGE_REFUSED = 0x01, 0x02, 0x04, 0x08


class HistoryPosition(NamedTuple):
    """The place of a record in the order of its scope. `tag`: of wire topic, header and signature."""

    time_ms: int
    publisher: bytes
    sequence: int
    tag: bytes

    def encode(self) -> bytes:
        return number(self.time_ms, 8) + self.publisher + number(self.sequence, 8) + self.tag

    @classmethod
    def read(cls, frame: Reader) -> HistoryPosition:
        return cls(frame.number(8), frame.take_bytes(16), frame.number(8), frame.take_bytes(TAG_BYTES))


START = HistoryPosition(0, bytes(16), 0, bytes(TAG_BYTES))
"""The position before all records."""


def before(time_ms: int) -> HistoryPosition:
    """Returns the position before all records that were sealed then."""
    return START._replace(time_ms=max(0, time_ms))


def tag_of(topic: str, header: bytes) -> bytes:
    """Returns the tag of a record. `header`: the frame of property `vmq`."""
    return sha256(text(topic) + header).digest()[:TAG_BYTES]


@value
class HistoryRecord:
    """A publication kept by a replica. `scope`: the number of the scope; `body`: the bytes of a page."""

    scope: int
    position: HistoryPosition
    key_id: bytes
    body: bytes = field(repr=False)


@value
class HistoryKey:
    """A data key of a scope. `header` and `shares`: frames of the key header and of the replica's own shares."""

    scope: int
    key_id: bytes
    header: bytes = field(repr=False)
    shares: bytes = field(repr=False)


Pieces: TypeAlias = Mapping[int, bytes]


def encode_body(topic: str, header: bytes, attributes: bytes, pieces: Pieces) -> bytes:
    """Returns a record as a page has it."""
    parts = [text(topic), sized(header), sized(attributes), number(len(pieces), 1)]
    for index in sorted(pieces):
        parts += [number(index, 1), number(len(pieces[index]), 4), pieces[index]]
    return b"".join(parts)


class Body(NamedTuple):
    """The parts of a record in a page. `header`, `attributes`: frames, the latter empty for none."""

    topic: str
    header: bytes
    attributes: bytes
    pieces: dict[int, bytes]


def read_body(frame: Reader) -> Body:
    """Reads a record. Raises BadFrame."""
    topic, header, attributes = frame.text(), frame.sized(), frame.sized()
    pieces: dict[int, bytes] = {}
    for _ in range(frame.number(1)):
        index = frame.number(1)
        if pieces and index <= max(pieces):
            raise BadFrame("pieces of a record are not in order")
        pieces[index] = frame.take_bytes(frame.number(4))
    return Body(topic, header, attributes, pieces)


@value
class HistoryRequest:
    """A request for records of a scope, behind a position and a row, sealed in a span; or for eras, or a document.

    `number`: the reader's own name for it. `digest`: of the era whose document is wanted. `publishers`: the only ones
    whose records are wanted; none: all.
    """

    number: int
    scope: int = 0
    from_ms: int = 0
    until_ms: int = 0
    after: HistoryPosition = START
    row: int = 0
    most_bytes: int = PAGE_BYTES_MOST
    eras: bool = False
    digest: bytes = b""
    publishers: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        if self.digest:
            return opening(Kind.HISTORY_REQUEST, FLAG_DOCUMENT) + number(self.number, 8) + self.digest
        if self.eras:
            return opening(Kind.HISTORY_REQUEST, FLAG_ERAS) + number(self.number, 8) + number(self.from_ms, 8)
        span = number(self.from_ms, 8) + number(self.until_ms, 8)
        rest = span + self.after.encode() + number(self.row, 8) + number(self.most_bytes, 4)
        only = number(len(self.publishers), 1) + b"".join(self.publishers) if self.publishers else b""
        flags = FLAG_PUBLISHERS if only else 0
        return opening(Kind.HISTORY_REQUEST, flags) + number(self.number, 8) + number(self.scope, 4) + rest + only

    @classmethod
    def decode(cls, data: bytes) -> HistoryRequest:
        """Reads a frame. Raises BadFrame."""
        frame = Reader(data)
        known = FLAG_ERAS | FLAG_DOCUMENT | FLAG_PUBLISHERS
        flags, asked = frame.opening(Kind.HISTORY_REQUEST, known), frame.number(8)
        if flags == FLAG_DOCUMENT:
            made = cls(asked, digest=frame.take_bytes(32))
        elif flags == FLAG_ERAS:
            made = cls(asked, from_ms=frame.number(8), eras=True)
        elif flags & ~FLAG_PUBLISHERS:
            raise BadFrame("a request for two things at once")
        else:
            scope, from_ms, until_ms = frame.number(4), frame.number(8), frame.number(8)
            after, row, most = HistoryPosition.read(frame), frame.number(8), frame.number(4)
            publishers = tuple([frame.take_bytes(16) for _ in range(frame.number(1))]) if flags else ()
            made = cls(asked, scope, from_ms, until_ms, after, row, most, publishers=publishers)
            if flags and not 0 < len(set(publishers)) == len(publishers) <= PUBLISHERS_MOST:
                raise BadFrame(f"a request for {len(publishers)} publishers; 1 to {PUBLISHERS_MOST} different ones")
        frame.expect_end()
        if made.most_bytes > PAGE_BYTES_MOST:
            raise BadFrame(f"a request for a page of {made.most_bytes} bytes; at most {PAGE_BYTES_MOST}")
        return made


@value
class HistoryPage:
    """The answer to a request. `started_ms`: start of the replica's process; `row`: the latest row.

    `since_ms`: the oldest record of the scope. `upto`: the position up to which nothing is left. `is_end`: no record
    is left behind the page.
    """

    number: int
    started_ms: int = 0
    row: int = 0
    since_ms: int = 0
    upto: HistoryPosition = START
    keys: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    bodies: tuple[bytes, ...] = field(default=(), repr=False)
    is_end: bool = False
    is_refused: bool = False
    eras: tuple[tuple[int, bytes], ...] | None = None
    document: bytes | None = field(default=None, repr=False)

    def encode(self) -> bytes:
        head = number(self.number, 8) + number(self.started_ms, 8)
        if self.is_refused:
            return opening(Kind.HISTORY_PAGE, PAGE_REFUSED) + head
        if self.document is not None:
            return opening(Kind.HISTORY_PAGE, PAGE_DOCUMENT) + head + self.document
        if self.eras is not None:
            found = self.eras[-ERAS_MOST:]
            marks = b"".join(number(time_ms, 8) + digest for time_ms, digest in found)
            return opening(Kind.HISTORY_PAGE, PAGE_ERAS) + head + number(len(found), 2) + marks
        parts = [opening(Kind.HISTORY_PAGE, PAGE_END * self.is_end), head, number(self.row, 8)]
        parts += [number(self.since_ms, 8), self.upto.encode(), number(len(self.keys), 2)]
        for header, shares in self.keys:
            parts += [sized(header), number(len(shares), 4), shares]
        return b"".join([*parts, number(len(self.bodies), 2), *self.bodies])


def number_of(data: bytes) -> int:
    """Returns the number of the request that a page answers. Raises BadFrame."""
    frame = Reader(data)
    frame.opening(Kind.HISTORY_PAGE, PAGE_END | PAGE_ERAS | PAGE_DOCUMENT | PAGE_REFUSED)
    return frame.number(8)


def read_page(data: bytes) -> tuple[HistoryPage, tuple[Body, ...]]:
    """Returns a page, without its bodies, and the bodies taken apart. Raises BadFrame."""
    frame = Reader(data)
    flags = frame.opening(Kind.HISTORY_PAGE, PAGE_END | PAGE_ERAS | PAGE_DOCUMENT | PAGE_REFUSED)
    asked, started_ms = frame.number(8), frame.number(8)
    if flags == PAGE_REFUSED:
        frame.expect_end()
        return HistoryPage(asked, started_ms, is_refused=True), ()
    if flags == PAGE_DOCUMENT:
        return HistoryPage(asked, started_ms, document=frame.take_rest()), ()
    if flags == PAGE_ERAS:
        count = frame.number(2)
        eras = tuple([(frame.number(8), frame.take_bytes(32)) for _ in range(count)])
        frame.expect_end()
        if count > ERAS_MOST or list(eras) != sorted(eras):
            raise BadFrame("eras that are too many, or not in order")
        return HistoryPage(asked, started_ms, eras=eras), ()
    if flags & ~PAGE_END:
        raise BadFrame("a page of two kinds")
    row, since_ms, upto = frame.number(8), frame.number(8), HistoryPosition.read(frame)
    keys = tuple([(frame.sized(), frame.take_bytes(frame.number(4))) for _ in range(frame.number(2))])
    bodies = tuple([read_body(frame) for _ in range(frame.number(2))])
    frame.expect_end()
    return HistoryPage(asked, started_ms, row, since_ms, upto, keys, (), bool(flags & PAGE_END)), bodies


def era_of(overlay: Overlay) -> bytes:
    """Returns the digest of an era: the policy, the views in force and the newest tree."""
    views = sorted((region, view.number) for region, view in overlay.views.items())
    body = overlay.policy.signed_bytes()
    parts = [DOMAIN_ERA, number(len(body), 4), body, number(len(views), 2)]
    parts += [number(region, 4) + number(view, 4) for region, view in views]
    return sha256(b"".join([*parts, number(overlay.trees.newest.number, 4)])).digest()


@value
class FarRequest:
    """A request of `reader` for a page of `asked`, the last replica of the way.

    `number`: above all former ones of the reader; `box_key`: to which the page is sealed; `request`: as within a
    region.
    """

    reader: str
    asked: str
    number: int
    box_key: bytes
    request: bytes
    way: tuple[str, ...] = ()
    signature: bytes = field(default=b"", repr=False)

    def signed_bytes(self) -> bytes:
        return b"".join(
            [text(self.reader), text(self.asked), number(self.number, 8), sized(self.box_key), sized(self.request)]
        )

    @property
    def digest(self) -> bytes:
        return sha256(self.signed_bytes()).digest()

    def signed(self, identity: Identity) -> FarRequest:
        return replace(self, signature=identity.sign(DOMAIN_FAR_REQUEST, self.signed_bytes()))

    def encode(self) -> bytes:
        names = b"".join(map(text, self.way))
        return opening(Kind.FAR_REQUEST) + number(len(self.way), 1) + names + self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> FarRequest:
        """Reads a frame. Raises BadFrame."""
        frame = Reader(data)
        frame.opening(Kind.FAR_REQUEST)
        way = tuple([frame.text() for _ in range(frame.number(1))])
        reader, asked, given = frame.text(), frame.text(), frame.number(8)
        made = cls(reader, asked, given, frame.sized(), frame.sized(), way, frame.take_bytes(SIGNATURE_BYTES))
        frame.expect_end()
        if not 2 <= len(set(way)) == len(way) <= WAY_MOST or way[-1] != asked:
            raise BadFrame("a way that is too short, too long, goes in a circle, or does not end at the asked replica")
        try:
            check_receiver(made.box_key)
        except OurFault as error:
            raise BadFrame(str(error)) from None
        return made

    def around(self, name: str) -> tuple[str, str]:
        """Returns the names before and behind a replica in the way; the one behind the last is empty. Raises
        BadFrame.
        """
        if name not in self.way:
            raise BadFrame("a far request whose way leads elsewhere")
        at = self.way.index(name)
        return (self.way[at - 1] if at else self.reader), (*self.way, "")[at + 1]


@value
class FarPage:
    """A page for a far request, in a box for its reader. `digest`: of the request."""

    digest: bytes
    box: bytes = field(repr=False)
    signature: bytes = field(default=b"", repr=False)

    def signed_bytes(self) -> bytes:
        return self.digest + self.box

    def encode(self) -> bytes:
        return opening(Kind.FAR_PAGE) + self.digest + number(len(self.box), 4) + self.box + self.signature

    @classmethod
    def decode(cls, data: bytes) -> FarPage:
        """Reads a frame. Raises BadFrame."""
        frame = Reader(data)
        frame.opening(Kind.FAR_PAGE)
        made = cls(frame.take_bytes(32), frame.take_bytes(frame.number(4)), frame.take_bytes(SIGNATURE_BYTES))
        frame.expect_end()
        return made

    @classmethod
    def for_request(cls, request: FarRequest, page: bytes, identity: Identity) -> FarPage:
        """Returns a page for the reader of a request, signed by `identity`."""
        made = cls(request.digest, identity.seal_box(request.box_key, page, _INFO + request.digest))
        return replace(made, signature=identity.sign(DOMAIN_FAR_PAGE, made.signed_bytes()))

    @property
    def info(self) -> bytes:
        """The purpose of the box."""
        return _INFO + self.digest


def is_far_request(data: bytes) -> bool:
    """Returns True for the beginning of a far request, False for anything else."""
    return data[1:2] == bytes((Kind.FAR_REQUEST,))


# ---------------------------------------------------------------------------------------- effects and events


@value
class Record:
    """Effect: append records and keys to the history. Of two records of a position, or two keys of an id, the longer
    stays.
    """

    records: tuple[HistoryRecord, ...] = field(repr=False)
    keys: tuple[HistoryKey, ...] = field(repr=False)


@value
class RecordEra:
    """Effect: keep, in the history, that a version of the overlay was adopted. `document`: compressed, as on
    `$veil/overlay`.
    """

    time_ms: int
    digest: bytes
    document: bytes = field(repr=False)


@value
class Recall:
    """Effect: read a page of the history for `peer`, and answer with `Recalled`. `oldest_ms`: older records are not
    handed out.
    """

    peer: str
    request: HistoryRequest
    oldest_ms: int = 0


@value
class Recalled:
    """The answer to `Recall`: records in order with their keys; or eras, or a document.

    `upto`: the position of the last record read; None at the end. `row`: the latest row; `since_ms`: the oldest record.
    """

    peer: str
    request: HistoryRequest
    records: tuple[HistoryRecord, ...] = field(default=(), repr=False)
    keys: tuple[HistoryKey, ...] = field(default=(), repr=False)
    upto: HistoryPosition | None = None
    row: int = 0
    since_ms: int = 0
    eras: Sequence[tuple[int, bytes]] = ()
    document: bytes | None = field(default=None, repr=False)


@value
class ReadAgain:
    """A local client wants the publications of a scope since a time. `scope`: the number of the scope.

    `reading`: a number chosen by the shell. `owner`: whose client it is; the readings of owners take turns.
    """

    reading: int
    scope: int
    since_ms: int
    owner: str = ""


@value
class StopReading:
    """Nobody wants that reading any more."""

    reading: int


@value
class HoldReading:
    """The client of that reading has enough for now, or has room again."""

    reading: int
    is_held: bool


@value
class AskHistory:
    """A receiver, which reads by itself, asks a replica of any region for a page. `request`: as within a region."""

    replica: str
    request: bytes = field(repr=False)


@value
class PageCame:
    """Hand the receiver the page of a replica of another region, for which it asked."""

    replica: str
    page: bytes = field(repr=False)


@value
class ReadAgainLive:
    """Keep live publications for the client of a reading from now on: the rest of the reading comes first."""

    reading: int


@value
class ReadAgainDone:
    """The reading is over: kept live publications follow. `is_whole`: False if replicas denied the reading."""

    reading: int
    is_whole: bool
