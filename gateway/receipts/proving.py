"""Questions to a database of receipts: who has which message, and the proof of it for a third party."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from bridge.base import TopicError, check_filter, matches
from bridge.document import NotProvedError, Overlay
from bridge.receipts import DeliveryProof, ReceiptRow, SealedBatch
from gateway.receipts.database import KnownReceipt, ReceiptDatabase, ReceiptsError
from keys.envelope import header_of
from keys.identity import Identity
from keys.records import RECORDS_MAX

T = TypeVar("T")
LAST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ReaderReceipts:
    """The receipts of one reader: how many, when it signed the newest, the last number that is in one."""

    reader: str
    receipts: int
    time_ms: int
    last: int


@dataclass(frozen=True, slots=True)
class MessageReceipts:
    """A message and its readers. `readers`: by name, when each signed that it has the message, in ms."""

    number: int
    topic: str
    time_ms: int
    payload_sha256: str
    readers: dict[str, int] = field(default_factory=dict)


def by_reader(database: ReceiptDatabase) -> list[ReaderReceipts]:
    """Returns the receipts of each reader. Raises ReceiptsError."""
    return [ReaderReceipts(*row) for row in _asked(database.readers)]


def messages_of(database: ReceiptDatabase, topic_filter: str, limit: int) -> list[MessageReceipts]:
    """Returns the newest messages on topics that a filter matches, the newest first. Raises ReceiptsError."""
    try:
        check_filter(topic_filter)
    except TopicError as error:
        raise ReceiptsError(f"{topic_filter!r}: {error}; name a topic, or a filter as of MQTT") from None
    found: list[MessageReceipts] = []
    upto = LAST
    while len(found) < limit:
        batches = _batches(database, 0, upto, limit)
        if not batches:
            break
        upto = min(batch.number for batch in batches) - 1
        for batch in batches:
            wanted = [record for record in reversed(batch.records) if matches(topic_filter, record.topic)]
            readers = _readers(database, batch) if wanted else {}
            found += [MessageReceipts(r.number, r.topic, r.time_ms, r.payload_hash.hex(), readers) for r in wanted]
    return found[:limit]


def _readers(database: ReceiptDatabase, batch: SealedBatch) -> dict[str, int]:
    found: dict[str, int] = {}
    for known in _receipts(database, batch):
        if ReceiptRow.decode(known.row).place_of(batch) is not None:
            found.setdefault(known.reader, known.time_ms)
    return found


def proofs_of(
    database: ReceiptDatabase, wanted: int, reader: str | None, overlay: Overlay, name: str, identity: Identity
) -> dict[str, DeliveryProof]:
    """Returns a proof for each reader that has the message of this number. `reader`: that one alone; `name`,
    `identity`: of this gateway. Raises ReceiptsError if there is no such message, or nobody signed that it has it.
    """
    batches = _batches(database, max(0, min(wanted, LAST) - RECORDS_MAX), min(wanted, LAST), RECORDS_MAX)
    holding = [batch for batch in batches if any(record.number == wanted for record in batch.records)]
    if not holding:
        raise ReceiptsError(f"message {wanted} is not kept here; `veilmq receipts TOPIC` lists those that are")
    proofs: dict[str, DeliveryProof] = {}
    for batch in holding:
        signer = overlay.by_party.get(header_of(batch.frame).publisher)
        if signer is None:  # the key is a member's no more
            continue
        for known in _receipts(database, batch):
            row, member = ReceiptRow.decode(known.row), overlay.members.get(known.reader)
            if reader not in (None, known.reader) or known.reader in proofs or row.place_of(batch) is None:
                continue
            for certificate in () if member is None else member.certificates:
                certificates = overlay.certificate(name), signer, certificate
                proof = DeliveryProof.make(identity, overlay.owner, certificates, batch, wanted, row)
                if _holds(proof):
                    proofs[known.reader] = proof
                    break
    if not proofs:
        raise ReceiptsError(f"message {wanted}: no receipt of {reader or 'any reader'}; wait, or see `veilmq receipts`")
    return proofs


def _holds(proof: DeliveryProof) -> bool:
    """Returns True if the proof convinces: the reader's certificate is the one of the key that signed."""
    try:
        proof.check_proof()
    except NotProvedError:
        return False
    return True


def _batches(database: ReceiptDatabase, first: int, last: int, limit: int) -> list[SealedBatch]:
    return [SealedBatch.decode(row) for row in _asked(lambda: database.batches(first, last, limit))]


def _receipts(database: ReceiptDatabase, batch: SealedBatch) -> list[KnownReceipt]:
    return _asked(lambda: list(database.receipts(batch.number)))


def _asked(question: Callable[[], T]) -> T:
    try:
        return question()
    except sqlite3.Error as error:
        raise ReceiptsError(f"receipts cannot be read ({error}); try again, or restore the file") from None
