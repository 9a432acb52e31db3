"""Receipts of a gateway on disk: what it sealed, and what its readers signed (docs/protocol-options.md §14.4).

`database` is the file, `keeper` writes it behind the traffic, `proving` makes proofs of delivery from it. Rules of the
protocol stand in `bridge.receipts`.
"""

from __future__ import annotations

from gateway.receipts.database import RECEIPTS_PURPOSE, KnownReceipt, ReceiptDatabase, ReceiptsError, receipts_file
from gateway.receipts.keeper import ReceiptKeeper
from gateway.receipts.proving import MessageReceipts, ReaderReceipts, by_reader, messages_of, proofs_of

__all__ = [
    "RECEIPTS_PURPOSE",
    "KnownReceipt",
    "MessageReceipts",
    "ReaderReceipts",
    "ReceiptDatabase",
    "ReceiptKeeper",
    "ReceiptsError",
    "by_reader",
    "messages_of",
    "proofs_of",
    "receipts_file",
]
