"""What routing a publication costs with many filters: `gateway.clients.routing`, in this process.

The same topic names and the same filters that match them, alone and among 99,900 others that share their levels.
More names than are remembered, so that every one is looked up anew.
"""

from __future__ import annotations

import random
import time

from bridge.base.topics import MEMO_TOPICS
from gateway.clients.routing import Router
from gateway.mqtt5.packets import Subscription

NAMES = 2 * MEMO_TOPICS
MATCHING = 100
LINES = 50


class Receiver:
    """Stands for a client."""


def _router(filters: list[str]) -> Router[Receiver]:
    router: Router[Receiver] = Router()
    receivers = [Receiver() for _ in range(100)]
    for place, topic_filter in enumerate(filters):
        router.subscribe(receivers[place % 100], Subscription(topic_filter, 0))
    return router


def filters_of(number: int) -> list[str]:
    """`number` filters, half with wildcards: the first 100 match the names, the others do not."""
    found = [f"plant/line{line}/+/state" for line in range(LINES)]
    found += [f"plant/line{line}/cell{line}/state" for line in range(LINES)]
    for place in range((number - len(found)) // 4):
        found += [
            f"plant/line{place % LINES}/+/sensor{place}",
            f"plant/line{place % LINES}/machine{place}/#",
            f"plant/line{place % LINES}/machine{place}/state",
            f"store/shelf{place}/state",
        ]
    return found


def names() -> list[str]:
    """Distinct topic names, each matched by one wildcard filter, some by an exact one as well."""
    found = [f"plant/line{place % LINES}/cell{place}/state" for place in range(NAMES)]
    random.Random(1).shuffle(found)
    return found


def plan_us(number: int) -> float:
    """Microseconds to route one publication among `number` filters, the best of three passes over all names."""
    router, topics = _router(filters_of(number)), names()
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for topic in topics:
            router.plan(topic)
        best = min(best, time.perf_counter() - start)
    assert len(router.plan(topics[0]).targets) >= 1, "nobody gets the names"
    return best / len(topics) * 1e6
