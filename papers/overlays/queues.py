"""Notifications through brokers with queues: matching, sending and links take time, and waiting copies are counted.

Every broker matches one notification after the other, its processor sends one copy after the other, and each link
carries in turn. All three are first in, first out, so a single event of the heap is a single copy arriving somewhere:
its time of leaving is known as soon as it comes. The routing that brokers use (`bridge.topology`) decides which copies
are made. Deliveries to subscribers are counted, not queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush

from bridge.topology import LinkLoad, LinkStatus, PlanePlace, dynamic, static
from papers.overlays.planes import SYMBOLS, Flooded, Market


class Algorithm(Enum):
    """The algorithm by which notifications are routed."""

    SNR = "SNR"
    DNR = "DNR"
    BID = "BID"


@dataclass(frozen=True, slots=True)
class Service:
    """The service times, in milliseconds."""

    match_ms: float = 0.4
    match_each_us: float = 0.2
    """Time of matching for every subscription in the table, beside `match_ms`."""
    send_ms: float = 1.7
    """Time of the sender's processor for a copy."""
    link_ms: float = 6.0
    """Time of the link for a copy. Fitted together with `send_ms`, as the figure of the burst explains."""
    latency_ms: float = 0.3
    identifier_us: float = 220.0
    """Handling one broker's identification on a notification, at every broker, and carrying it (BID only)."""

    def matching_ms(self, subscriptions: int) -> float:
        """Returns the milliseconds of matching a single notification at one broker."""
        return self.match_ms + self.match_each_us * subscriptions / 1000


@dataclass(frozen=True, slots=True)
class QueuedNotification:
    """A notification: its time (seconds), broker and symbol."""

    at_s: float
    broker: int
    symbol: int


@dataclass(slots=True)
class QueueOutcome:
    """The outcome of a run; delays in seconds. `fast`: of the fast publisher's notifications (time of delivery,
    delay).
    """

    messages: int = 0
    matching_ms: float = 0.0
    matched: int = 0
    delays_s: list[float] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    fast: list[tuple[float, float]] = field(default_factory=list)
    waited_s: float = 0.0
    fast_links: int = 0
    lasted_s: float = 0.0

    @property
    def mean_delay_s(self) -> float:
        """The mean delay over all deliveries."""
        return sum(map(float.__mul__, self.delays_s, map(float, self.weights))) / sum(self.weights)

    @property
    def mean_queue(self) -> float:
        """The fast publisher's notifications waiting for a link, as a mean over time and the links that they take."""
        return self.waited_s / max(self.lasted_s, 1e-9) / max(1, self.fast_links)

    @property
    def matching_each_ms(self) -> float:
        """The matching of a notification, over all brokers matching it."""
        return self.matching_ms / max(1, self.matched)


class _Link:
    __slots__ = ("free_s", "leaving", "status")

    def __init__(self) -> None:
        self.status, self.leaving, self.free_s = LinkStatus(), deque[float](), 0.0

    def settle_departures(self, now: float) -> None:
        while self.leaving and self.leaving[0] <= now:
            self.status.count_left(self.leaving.popleft())


class Run:
    """A run of an algorithm on a market."""

    def __init__(self, market: Market, algorithm: Algorithm, service: Service, flooded: Flooded | None = None) -> None:
        self._market, self._algorithm, self._service, self._flooded = market, algorithm, service, flooded
        count = len(market.brokers)
        self._matcher_s, self._sender_s = [0.0] * count, [0.0] * count
        self._links: dict[tuple[int, int], _Link] = {}
        self._match_s = service.matching_ms(market.subscribers) / 1000
        self._fast_links: set[tuple[int, int]] = set()
        self.outcome = QueueOutcome()

    def play(self, published: Sequence[QueuedNotification]) -> QueueOutcome:
        """Plays all notifications, to the last delivery."""
        origins = self._algorithm is Algorithm.BID
        # (when, order, broker, region it came from or -1, number of the notification, vector or identifiers)
        events: list[tuple[float, int, int, int, int, int]] = []
        for number, one in enumerate(published):
            tag = self._market.interest[one.symbol] if origins else -1
            heappush(events, (one.at_s, number, one.broker, -1, number, tag))
        order = len(published)
        step = self._by_identifiers if origins else self._by_rows
        while events:
            now, _, at, before, number, tag = heappop(events)
            for copy in step(now, at, before, published[number], tag):
                order += 1
                heappush(events, (copy[0], order, copy[1], copy[2], number, copy[3]))
        outcome = self.outcome
        outcome.matched, outcome.fast_links = len(published), len(self._fast_links)
        fast = [one.at_s for one in published if one.symbol == SYMBOLS]
        outcome.lasted_s = max((done for done, _ in outcome.fast), default=0.0) - min(fast, default=0.0)
        return outcome

    def _matched(self, now: float, at: int, cost_s: float) -> float:
        self._matcher_s[at] = done = max(now, self._matcher_s[at]) + cost_s
        return done

    def _deliver(self, done: float, at: int, one: QueuedNotification) -> None:
        count = self._market.local[one.symbol].get(at)
        if not count:
            return
        self.outcome.delays_s.append(done - one.at_s)
        self.outcome.weights.append(count)
        if one.symbol == SYMBOLS:
            self.outcome.fast.append((done, done - one.at_s))

    def _by_rows(
        self, now: float, at: int, before: int, one: QueuedNotification, tag: int
    ) -> list[tuple[float, int, int, int]]:
        """Returns the next copies of SNR and DNR. `tag`: the vector; -1 at the publisher's host broker."""
        market = self._market
        done = self._matched(now, at, self._match_s)
        self.outcome.matching_ms += self._match_s * 1000
        self._deliver(done, at, one)
        here = market.brokers[at]
        planes = market.planes(one.symbol, here[1]) if tag == -1 else tag
        regions = market.regions(one.symbol, at, before)
        if not planes or self._algorithm is Algorithm.SNR:
            copies = static(here, regions, planes)
        else:
            copies = dynamic(here, regions, planes, lambda to: self._load(done, at, to))
        sent = []
        for copy in copies:
            to = market.number(copy.to)
            came_from = here[0] if copy.to[1] == here[1] else -1
            arrival = self._queue_copy(done, at, to, one.symbol == SYMBOLS, 0.0)
            sent.append((arrival, to, came_from, copy.vector))
        return sent

    def _by_identifiers(
        self, now: float, at: int, before: int, one: QueuedNotification, tag: int
    ) -> list[tuple[float, int, int, int]]:
        """Returns the next copies of BID: `tag` are the brokers that still have to get it."""
        assert self._flooded is not None
        is_host, is_wanted = before == -1, tag >> at & 1
        handling_s = tag.bit_count() * self._service.identifier_us / 1e6
        matching_s = self._match_s if is_host or is_wanted else 0.0
        self.outcome.matching_ms += matching_s * 1000
        done = self._matched(now, at, matching_s + handling_s)
        if is_wanted:
            self._deliver(done, at, one)
        sent = []
        for to, rest in self._flooded.next_hops(at, tag & ~(1 << at)).items():
            carrying_s = rest.bit_count() * self._service.identifier_us / 1e6
            sent.append((self._queue_copy(done, at, to, one.symbol == SYMBOLS, carrying_s), to, 0, rest))
        return sent

    def _link(self, at: int, to: int) -> _Link:
        link = self._links.get((at, to))
        if link is None:
            link = self._links[at, to] = _Link()
        return link

    def _load(self, now: float, at: int, to: PlanePlace) -> LinkLoad:
        link = self._link(at, self._market.number(to))
        link.settle_departures(now)
        return link.status.load_at(now)

    def _queue_copy(self, now: float, at: int, to: int, is_fast: bool, carrying_s: float) -> float:
        """Puts a copy into the queue of a link; returns its time of arrival."""
        link, service = self._link(at, to), self._service
        link.settle_departures(now)
        link.status.count_entered(now)
        self.outcome.messages += 1
        self._sender_s[at] = written = max(now, self._sender_s[at]) + service.send_ms / 1000
        link.free_s = gone = max(written, link.free_s) + service.link_ms / 1000 + carrying_s
        link.leaving.append(gone)
        if is_fast:
            self.outcome.waited_s += gone - now
            self._fast_links.add((at, to))
        return gone + service.latency_ms / 1000
