"""Runs of the experiments with planes, a single cell each: input is a `Cell`, output are plain numbers.

A cell follows from its fields alone, so cells may run anywhere and in any order, and a result may be kept and read
again (`papers.simulating.sweeping`). `share` is the part of the paper's notifications that is played: rates,
subscribers and brokers stay at full size. A steady state does not depend on it; the queues of a burst do, and shrink
with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

from bridge.topology import PlaneStep, RowTable
from papers.experiments.draws import Draws
from papers.overlays.planes import SYMBOLS, Flooded, Market, caterpillar
from papers.overlays.queues import Algorithm, QueuedNotification, QueueOutcome, Run, Service

Numbers: TypeAlias = dict[str, float | list[float]]

STARTS_S = 5.0
"""Seconds within which all publishers begin."""
FAST_SUBSCRIBERS = 0.002
FAST_MESSAGES = 100_000
STEP = 37
"""Symbols by which a publisher goes on each time."""
FLOOD_PER_S, FLOODS = 80.0, 400
"""Subscriptions a second while their delay is measured, and how many are; fitted: the paper does not say its rate."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A run. `kind`: `steady`, `burst` (`per_minute` is the fast publisher's) or `subscribing`."""

    kind: str
    algorithm: str
    seed: int
    subscribers: int
    publishers: int = 100
    notifications: int = 1_000
    per_minute: float = 60.0
    share: float = 0.01
    service: Service = field(default_factory=Service)


def measure(cell: Cell) -> Numbers:
    """Runs the cell."""
    return KINDS[cell.kind](cell)


def _market(cell: Cell) -> tuple[Market, list[QueuedNotification], Draws]:
    """Returns the overlay, its subscribers, and the notifications of ordinary publishers; equal for every
    algorithm.
    """
    draws = Draws("planes", cell.seed, cell.subscribers, cell.publishers)
    market = Market(caterpillar(), cell.subscribers, draws)
    every_s = 60.0 / (cell.per_minute if cell.kind == "steady" else 60.0)
    said = []
    for _ in range(cell.publishers):
        broker, symbol = draws.randrange(len(market.brokers)), draws.randrange(SYMBOLS)
        start_s = draws.uniform(0, STARTS_S)
        count = max(1, round(cell.notifications * cell.share))
        said += [
            QueuedNotification(start_s + at * every_s, broker, (symbol + STEP * at) % SYMBOLS) for at in range(count)
        ]
    return market, said, draws


def _play(cell: Cell, market: Market, said: list[QueuedNotification]) -> QueueOutcome:
    flooded = Flooded(market.scot, Draws("floods", cell.seed)) if cell.algorithm == Algorithm.BID.name else None
    said.sort(key=lambda one: one.at_s)
    return Run(market, Algorithm[cell.algorithm], cell.service, flooded).play(said)


def _steady(cell: Cell) -> Numbers:
    market, said, _ = _market(cell)
    outcome = _play(cell, market, said)
    return {
        "delay_s": outcome.mean_delay_s,
        "messages": outcome.messages / len(said),
        "matching_ms": outcome.matching_each_ms,
    }


def _burst(cell: Cell) -> Numbers:
    market, said, draws = _market(cell)
    fast_host = draws.randrange(len(market.brokers))
    others = [broker for broker in range(len(market.brokers)) if broker != fast_host]
    draws.shuffle(others)
    wanted = round(cell.subscribers * FAST_SUBSCRIBERS)
    planes = market.scot.planes  # two subscribers in each of five planes, at the paper's size
    hosts = [next(b for b in others[at * 7 :] + others if b % planes == at % planes) for at in range(wanted)]
    market.hire(hosts)
    count = round(FAST_MESSAGES * cell.share)
    said += [QueuedNotification(STARTS_S + at * 60.0 / cell.per_minute, fast_host, SYMBOLS) for at in range(count)]
    outcome = _play(cell, market, said)
    fast = sorted(outcome.fast)
    group = max(1, len(fast) // 100)
    late = [done for done, delay in fast if delay > 1]
    weight = sum(outcome.weights)
    return {
        "delay_s": sum(delay for _, delay in fast) / len(fast),
        "all_delay_s": outcome.mean_delay_s,
        "queue": outcome.mean_queue,
        "messages": float(outcome.messages),
        "stable_s": max(late, default=STARTS_S) - STARTS_S,
        "under_1_s": sum(w for delay, w in zip(outcome.delays_s, outcome.weights, strict=True) if delay < 1) / weight,
        "maxima_s": [max(delay for _, delay in fast[at : at + group]) for at in range(0, len(fast), group)],
    }


def _subscribing(cell: Cell) -> Numbers:
    """Plays subscriptions in turn through queues of brokers.

    Returns the delay to the last broker, and the messages.
    """
    draws, scot, service = Draws("subscribing", cell.seed), caterpillar(), cell.service
    flooded = Flooded(scot, Draws("floods", cell.seed))
    brokers = scot.brokers
    number = {place: at for at, place in enumerate(brokers)}
    tables = {place: RowTable(scot, place) for place in brokers}
    is_flood = cell.algorithm == Algorithm.BID.name
    handler_s, sender_s = [0.0] * len(brokers), [0.0] * len(brokers)
    events: list[tuple[float, int, int, int, int]] = []  # when, order, subscription, broker, sender
    started_s, seen, ended_s = list[float](), set[tuple[int, int]](), dict[int, float]()
    order, messages = 0, 0
    for name in range(FLOODS):
        started_s.append(name / FLOOD_PER_S + draws.uniform(0, 1 / FLOOD_PER_S))
        host = draws.randrange(len(brokers))
        heappush(events, (started_s[-1], (order := order + 1), name, host, -1))
    hosts: dict[int, int] = {}
    while events:
        now, _, name, at, sender = heappop(events)
        handler_s[at] = done = max(now, handler_s[at]) + service.match_ms / 1000
        if (name, at) in seen:
            continue  # a duplicate, found by its identification
        seen.add((name, at))
        ended_s[name] = done
        host = hosts.setdefault(name, at)
        if is_flood:
            following = [other for other in flooded.neighbours[at] if other != sender]
        else:
            table, hop = tables[brokers[at]], None if sender < 0 else brokers[sender]
            step = _step(hop, brokers[at])
            following = [number[to] for to, _ in table.enter_subscription(name, hop, step, 1 << brokers[host][1])]
        for to in following:
            messages += 1
            sender_s[at] = written = max(done, sender_s[at]) + service.send_ms / 1000
            heappush(events, (written + service.latency_ms / 1000, (order := order + 1), name, to, at))
    delays = [ended_s[name] - started_s[name] for name in range(FLOODS)]
    return {"delay_s": sum(delays) / len(delays), "messages": messages / FLOODS}


def _step(hop: tuple[int, int] | None, here: tuple[int, int]) -> PlaneStep:
    return PlaneStep.PRIMARY if hop is None or hop[1] == here[1] else PlaneStep.SECONDARY


KINDS: Mapping[str, Callable[[Cell], Numbers]] = {"steady": _steady, "burst": _burst, "subscribing": _subscribing}
