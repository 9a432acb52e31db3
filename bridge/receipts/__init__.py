"""Receipts: signed words of readers on batches of a publisher, and proofs of delivery (docs/protocol-options.md §14).

Start with `receipt` and `hashes`. `acknowledging` is the reader's side, `relay` a replica's, `acknowledged` the
publisher's; `delivery_proof` is the file for a third party. Imports `topology`, `wire`, `contract` and below, never
`publisher`, `replica` or `reader`. Not here: the disk of a publisher (`gateway.receipts`), and topics for local clients
(`gateway.overlay`).
"""

from bridge.receipts.acknowledged import Acknowledged, ReceiptState
from bridge.receipts.acknowledging import Acknowledging, HadBatch, StreamNumbers
from bridge.receipts.delivery_proof import DeliveryProof, ProvenDelivery, ReceiptRow
from bridge.receipts.hashes import PLAIN
from bridge.receipts.receipt import RECEIPTS_TOPIC, ChainId, Receipt, ReceiptBody
from bridge.receipts.relay import ReceiptRelay
from bridge.receipts.sealed import SealedBatch

__all__ = [
    "PLAIN",
    "RECEIPTS_TOPIC",
    "Acknowledged",
    "Acknowledging",
    "ChainId",
    "DeliveryProof",
    "HadBatch",
    "ProvenDelivery",
    "Receipt",
    "ReceiptBody",
    "ReceiptRelay",
    "ReceiptRow",
    "ReceiptState",
    "SealedBatch",
    "StreamNumbers",
]
