"""The receipt: a reader's signed word on batches of a publisher in a scope (docs/protocol.md §9.20).

The list of batches stands behind the signature, which covers the list's hash: proofs leave the list out. Not here:
the reader's right, and the content of the hashes (`hashes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from bridge.receipts.hashes import HASH_BYTES, sha256
from bridge.wire import CONTROL_ROOT
from keys.errors import BadFrame
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import PARTY_ID_BYTES, SIGNATURE_BYTES, Identity

RECEIPTS_TOPIC = f"{CONTROL_ROOT}/receipts"
DOMAIN_RECEIPT = "veilmq/1 receipt"
BATCHES_MAX = 1_024
"""Batches in one receipt: 12 KiB, which every replica takes."""
MISSING_MAX = 64
"""Intervals of missing numbers in one receipt."""
TAG_BYTES = 4

Span: TypeAlias = tuple[int, int]
"""First and last number."""


class Listed(NamedTuple):
    """A batch in the list of a receipt: its number, and the beginning of the SHA-256 of header and signature."""

    number: int
    tag: bytes


class ChainId(NamedTuple):
    """The chain of a receipt: publisher's party id, number of the scope."""

    publisher: bytes
    scope: int


@dataclass(frozen=True, slots=True)
class ReceiptBody:
    """The signed part of a receipt. `since`, `through`: numbers of the chain, 0 if unknown; `missing`: between them.
    `latest`: header and signature of the last listed batch that is not retained, or empty. `count`: of batches in the
    list; `listed`: SHA-256 of the list; `root`: of the tree over its batches.
    """

    reader: str
    publisher: bytes
    scope: int
    time_ms: int
    since: int
    through: int
    missing: tuple[Span, ...]
    latest: bytes
    count: int
    listed: bytes
    root: bytes

    @property
    def chain(self) -> ChainId:
        return ChainId(self.publisher, self.scope)

    def encode(self) -> bytes:
        parts = [opening(Kind.RECEIPT), text(self.reader), self.publisher, number(self.scope, 4)]
        parts += [number(value, 8) for value in (self.time_ms, self.since, self.through)]
        parts += [number(len(self.missing), 1), *(number(low, 8) + number(high, 8) for low, high in self.missing)]
        return b"".join([*parts, sized(self.latest), number(self.count, 2), self.listed, self.root])

    @classmethod
    def read(cls, frame: Reader) -> ReceiptBody:
        """Reads the signed part. Raises BadFrame."""
        frame.opening(Kind.RECEIPT)
        body = cls(
            frame.text(),
            frame.take_bytes(PARTY_ID_BYTES),
            frame.number(4),
            frame.number(8),
            frame.number(8),
            frame.number(8),
            tuple((frame.number(8), frame.number(8)) for _ in range(frame.number(1))),
            frame.sized(),
            frame.number(2),
            frame.take_bytes(HASH_BYTES),
            frame.take_bytes(HASH_BYTES),
        )
        if not 1 <= body.count <= BATCHES_MAX or len(body.missing) > MISSING_MAX:
            raise BadFrame(f"a receipt of {body.count} batches and {len(body.missing)} intervals")
        _check_spans(body)
        return body


def _check_spans(body: ReceiptBody) -> None:
    """Raises BadFrame unless the missing intervals are ascending, apart, and inside of what the receipt speaks of."""
    if body.since > body.through or (body.missing and not body.since):
        raise BadFrame("a receipt whose numbers end before they begin")
    before = body.since - 1
    for low, high in body.missing:
        if low <= before or high < low or high > body.through:
            raise BadFrame("intervals of a receipt are not ascending, apart and inside")
        before = high + 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt with its list of batches."""

    body: ReceiptBody
    signature: bytes
    batches: tuple[Listed, ...]

    @classmethod
    def sign(cls, identity: Identity, draft: ReceiptBody, batches: Sequence[Listed]) -> Receipt:
        """Returns the receipt of a reader; count and hash of the list in the draft are not looked at."""
        body = replace(draft, count=len(batches), listed=sha256(_list(batches)))
        return cls(body, identity.sign(DOMAIN_RECEIPT, body.encode()), tuple(batches))

    def encode(self) -> bytes:
        return self.body.encode() + self.signature + _list(self.batches)

    @classmethod
    def decode(cls, data: bytes) -> Receipt:
        """Reads a frame, and compares the list with its hash; the signature is not checked yet. Raises BadFrame."""
        frame = Reader(data)
        body, signature = ReceiptBody.read(frame), frame.take_bytes(SIGNATURE_BYTES)
        batches = tuple(Listed(frame.number(8), frame.take_bytes(TAG_BYTES)) for _ in range(body.count))
        frame.expect_end()
        if sha256(_list(batches)) != body.listed:
            raise BadFrame("the list of a receipt is not the one that was signed")
        if any(after.number <= before.number for before, after in pairwise(batches)):
            raise BadFrame("the batches of a receipt are not in ascending order")
        return cls(body, signature, batches)


def _list(batches: Sequence[Listed]) -> bytes:
    return b"".join([batch.number.to_bytes(8) + batch.tag for batch in batches])
