"""What subscriptions to content cost: `bridge.predicates` and the router above it, in this process.

10,000 clients on one topic, each with a predicate over one to three of ten attributes that 2 % of the messages fulfil:
a lower and an upper bound each, which is the dear kind. At a replica: gateways with the longest covers there may be, of
a scope that shows these attributes.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from bridge.document import Scope, ShownAttribute
from bridge.predicates import Comparison, Op, Predicate, PredicateIndex, bits_of
from bridge.predicates.covering import COVER_MAX
from bridge.wire.covers import ScopeCovers
from bridge.wire.shown_lists import ShownList
from gateway.clients.routing import Router
from gateway.mqtt5.packets import Properties, Publish, Subscription
from keys.envelope import Mode

PREDICATES, ATTRIBUTES, SELECTIVITY = 10_000, 10, 0.02
GATEWAYS = 100
MESSAGES, CHANGES = 300, 500
GOALS_US = {"match": 100.0, "route": 300.0, "change": 1_000.0, "replica": 300.0}


class Receiver:
    """Stands for a client."""


def drawn(rng: random.Random) -> list[tuple[str, float, float]]:
    """Attribute, lower and upper bound; together as selective as is wanted."""
    count = rng.choice((1, 2, 3))
    width = SELECTIVITY ** (1 / count)
    lows = [(name, rng.random() * (1 - width)) for name in rng.sample(range(ATTRIBUTES), count)]
    return [(f"a{name}", low, low + width) for name, low in lows]


def predicate(bounds: list[tuple[str, float, float]]) -> Predicate:
    """As it stands in the index."""
    pairs = [(Comparison((name,), Op.GE, low), Comparison((name,), Op.LE, high)) for name, low, high in bounds]
    return Predicate((tuple(one for pair in pairs for one in pair),))


def median_us(work: Callable[[int], object], times: int) -> float:
    """Of single calls, so that what else runs on the machine disturbs few."""
    spent = []
    for number in range(times):
        start = time.perf_counter()
        work(number)
        spent.append(time.perf_counter() - start)
    return statistics.median(spent) * 1e6


def measured_us() -> dict[str, float]:
    """A match, the plan of a message with its receivers, a subscription that comes and goes, a match at a replica."""
    rng = random.Random(1)
    index, router = PredicateIndex(), Router[Receiver]()
    held = []
    for _ in range(PREDICATES):
        bounds = drawn(rng)
        held.append(index.add(predicate(bounds)))
        text = "&".join(f"{name}>={low!r}&{name}<={high!r}" for name, low, high in bounds)
        router.subscribe(Receiver(), Subscription(f"t?{text}", predicate=f"?{text}"))
    among = bits_of(slot for slots in held for slot in slots)
    values = [{(f"a{name}",): rng.random() for name in range(ATTRIBUTES)} for _ in range(MESSAGES)]
    messages = [
        Publish("t", b"", properties=Properties(user=tuple((name, repr(value)) for (name,), value in one.items())))
        for one in values
    ]
    found = sum(index.match(one, among).bit_count() for one in values) / MESSAGES / PREDICATES
    assert SELECTIVITY / 2 < found < SELECTIVITY * 2, f"{found:.1%} of the predicates hold"
    router.plan("t")
    fresh = [predicate(drawn(rng)) for _ in range(CHANGES)]
    covers = replica_covers(rng)
    lists = [ShownList(frozenset(one), (one,)) for one in values]
    return {
        "match": median_us(lambda at: index.match(values[at], among), MESSAGES),
        "route": median_us(lambda at: router.plan_for("t", messages[at]), MESSAGES),
        "change": median_us(lambda at: index.remove(index.add(fresh[at])), CHANGES) / 2,
        "replica": median_us(lambda at: covers.left_out(lists[at]), MESSAGES),
    }


def replica_covers(rng: random.Random) -> ScopeCovers:
    """Of gateways that want a scope in which every attribute is shown."""
    shown = tuple(ShownAttribute((f"a{name}",)) for name in range(ATTRIBUTES))
    covers = ScopeCovers(Scope("t", Mode.PLAIN, shown=shown))
    for gateway in range(GATEWAYS):
        wanted = [predicate(drawn(rng)).conjunctions[0] for _ in range(COVER_MAX)]
        covers.put_cover(f"gateway-{gateway}", Predicate(tuple(wanted)))
    assert len(covers) == GATEWAYS
    return covers


if __name__ == "__main__":
    for what, us in measured_us().items():
        print(f"{what:<8}{us:9.1f} µs, goal {GOALS_US[what]:,.0f}")
