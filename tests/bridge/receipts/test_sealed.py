"""Sealed batches: what a receipt needs of them, and their rows."""

from __future__ import annotations

from bridge.contract import HadRecord, Numbered, Publication
from bridge.receipts import SealedBatch
from bridge.receipts.hashes import NO_RECORDS, batch_hash, sha256


def test_correlation_data_comes_back_with_the_record_that_it_was_given_with() -> None:
    records = [
        Numbered(7, Publication("plant/t", b"x", 1, time_ms=5, correlation_data=b"order-7")),
        Numbered(8, Publication("plant/u", b"y", 1, time_ms=6)),
    ]
    batch = SealedBatch.from_records(7, 1, "veilmq/batch/1", b"frame", bytes(32), records)
    again = SealedBatch.decode(batch.encode())
    assert again.had() == (HadRecord(7, "plant/t", b"order-7", 5), HadRecord(8, "plant/u", None, 6))
    assert again.hashed == batch.hashed
    assert b"order-7" not in str(batch.hashed).encode()


def test_a_void_has_no_record_to_prove() -> None:
    void = SealedBatch.from_records(7, 1, "veilmq/batch/1", b"frame", bytes(32), [])
    assert void.had() == ()
    assert void.hashed == batch_hash(sha256(b"frame"), NO_RECORDS)
