"""What local clients hear of receipts."""

from __future__ import annotations

import json

from bridge.contract import HadRecord, ReceiptCame
from gateway.overlay.receipt_topics import receipts_told

CAME = ReceiptCame(
    "lab", 9, 1, 2, b"", (HadRecord(1, "plant/valve", b"order-7", 5), HadRecord(2, "plant/t", None, 6))
)  # fmt: skip


def test_a_device_hears_of_its_own_topic_with_its_correlation_data() -> None:
    (told,) = receipts_told(CAME, ["plant/#", "$veilmq/receipts/plant/valve"])
    assert (told.topic, told.correlation_data, told.qos, told.retain) == (
        "$veilmq/receipts/plant/valve",
        b"order-7",
        1,
        False,
    )
    assert json.loads(told.payload) == {"reader": "lab", "number": 1, "published_ms": 5, "acknowledged_ms": 9}


def test_nothing_is_made_where_nobody_asks() -> None:
    assert list(receipts_told(CAME, ["#", "plant/#", "$SYS/#", "$veilmq/receipts/other/+"])) == []
    assert len(list(receipts_told(CAME, ["$veilmq/receipts/#"]))) == 2
