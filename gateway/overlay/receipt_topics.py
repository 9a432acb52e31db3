"""Topics of receipts for local clients: a device learns that a message of its topic was received.

    $veilmq/receipts/TOPIC      one message for each reader and publication on TOPIC

Correlation data of the PUBLISH comes back. Who may publish on TOPIC may subscribe there (`plugins.host`); nobody may
publish. Not here: what a receipt is (`bridge.receipts`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from bridge.base import TopicError, check_name, matches
from bridge.contract import Publication, ReceiptCame
from gateway.base import RECEIPTS_ROOT

_FIRST_LEVEL = RECEIPTS_ROOT[: RECEIPTS_ROOT.index("/") + 1]  # wildcards stand for levels behind it (MQTT 5.0 §4.7.2)


def receipts_told(came: ReceiptCame, filters: Iterable[str]) -> Iterator[Publication]:
    """Yields the messages of a receipt for local clients; none where no filter of a client asks for them, or where the
    name would be longer than MQTT allows.
    """
    wanted = [each for each in filters if each.startswith(_FIRST_LEVEL)]
    for record in came.records if wanted else ():
        topic = RECEIPTS_ROOT + record.topic
        if any(matches(each, topic) for each in wanted) and _is_name(topic):
            body = {
                "reader": came.reader,
                "number": record.number,
                "published_ms": record.time_ms,
                "acknowledged_ms": came.time_ms,
            }
            yield Publication(
                topic,
                json.dumps(body).encode(),
                1,
                content_type="application/json",
                correlation_data=record.correlation_data,
                time_ms=came.time_ms,
            )


def _is_name(topic: str) -> bool:
    try:
        check_name(topic)
    except TopicError:
        return False
    return True
