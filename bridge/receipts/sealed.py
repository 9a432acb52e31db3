"""A batch of this gateway in a scope with receipts: header, and facts on the records for hashes.

The payloads are not kept, only their hashes. A row is the batch on disk, for proofs of delivery. Not here: the table of
recent batches (`acknowledged`), the disk (`gateway.receipts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from bridge.contract import HadRecord, Numbered
from bridge.receipts.hashes import RecordFacts, batch_hash, records_root, sha256
from keys.errors import BadFrame
from keys.frames import Reader, number, sized, text

_ROW = 1  # the version of rows
RECORD_BYTES = 250
"""Bytes of memory for each record beside its topic."""


@dataclass(frozen=True)
class SealedBatch:
    """A sealed batch. `frame`: header and signature; `topic`: the wire topic; `blinding`: see `keys.envelope.DataKey`.
    `correlations`: correlation data by number of the record.
    """

    number: int
    scope: int
    topic: str
    frame: bytes = field(repr=False)
    blinding: bytes = field(repr=False)
    records: tuple[RecordFacts, ...]
    correlations: tuple[tuple[int, bytes], ...] = ()

    @classmethod
    def from_records(
        cls, sequence: int, scope: int, topic: str, frame: bytes, blinding: bytes, records: Iterable[Numbered]
    ) -> SealedBatch:
        """Returns the batch with these records, without those that are dropped."""
        found = tuple(records)
        correlations = [(each.number, each.publication.correlation_data) for each in found]
        given = tuple((each, data) for each, data in correlations if data is not None)
        return cls(sequence, scope, topic, frame, blinding, tuple(map(RecordFacts.from_record, found)), given)

    @cached_property
    def frame_hash(self) -> bytes:
        """SHA-256 of header and signature."""
        return sha256(self.frame)

    @cached_property
    def hashed(self) -> bytes:
        """The hash of the batch, as readers work out."""
        return batch_hash(self.frame_hash, records_root(self.blinding, self.records))

    @property
    def size(self) -> int:
        """The size in bytes for which the batch is counted in memory."""
        topics = sum(len(record.topic) for record in self.records) + sum(len(data) for _, data in self.correlations)
        return len(self.frame) + len(self.records) * RECORD_BYTES + topics

    def had(self) -> tuple[HadRecord, ...]:
        """Returns the records as local clients are told of them."""
        given = dict(self.correlations)
        return tuple(HadRecord(r.number, r.topic, given.get(r.number), r.time_ms) for r in self.records)

    def encode(self) -> bytes:
        """Returns the row of the batch."""
        parts = [number(_ROW, 1), number(self.number, 8), number(self.scope, 4), text(self.topic), sized(self.frame)]
        parts += [self.blinding, number(len(self.records), 2)]
        for record in self.records:
            parts += [number(record.number, 8), number(record.time_ms, 8), record.payload_hash, text(record.topic)]
        parts.append(number(len(self.correlations), 2))
        return b"".join([*parts, *(number(each, 8) + sized(data) for each, data in self.correlations)])

    @classmethod
    def decode(cls, row: bytes) -> SealedBatch:
        """Reads a row. Raises BadFrame."""
        frame = Reader(row)
        if frame.number(1) != _ROW:
            raise BadFrame("a sealed batch of another version")
        head = frame.number(8), frame.number(4), frame.text(), frame.sized(), frame.take_bytes(32)
        records = tuple(_record(frame) for _ in range(frame.number(2)))
        correlations = tuple((frame.number(8), frame.sized()) for _ in range(frame.number(2)))
        frame.expect_end()
        return cls(*head, records, correlations)


def _record(frame: Reader) -> RecordFacts:
    sequence, time_ms, payload_hash, topic = frame.number(8), frame.number(8), frame.take_bytes(32), frame.text()
    return RecordFacts(sequence, time_ms, topic, payload_hash)
