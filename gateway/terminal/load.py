"""A load on a broker, measured: publishers and subscribers of one process, whose clock times each message.

Each message carries the run, its publisher, its number and its time, so that losses, repetitions, wrong order and
delays are seen at the subscribers. Before the load, probes wait until all subscribers hear all publishers: across an
overlay that takes a moment.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gateway.mqtt5.packets import Publish
from gateway.terminal.server import Server, TerminalClient, TerminalError

_HEAD = struct.Struct(">8sIIQ")
"""Run, publisher, number, nanoseconds of `time.perf_counter`."""
SIZE_MIN = _HEAD.size  # bytes of the smallest payload
PROBE = 0xFFFF_FFFF  # number of a probe
HEARD_S = 20.0
"""Seconds in which all subscribers must hear a probe of each publisher."""
PROBE_EVERY_S = 0.2
TURN = 32
"""Messages after which a publisher of QoS 0 lets the others have their turn."""
PERCENTILES = (50, 90, 99, 99.9)
CLIENTS_MAX = 10_000
"""Clients of a run: more need more than one process."""
SAMPLES_MAX = 20_000_000
"""Messages of a run, all subscribers together: times are kept, 8 bytes each."""


@dataclass(frozen=True)
class BenchLoad:
    """A load. `rate`: messages a second of all publishers together, or None for as many as go.

    `in_flight`: unacknowledged messages of each publisher at QoS 1 and 2. `quiet_s`: seconds without a message after
    which missing messages are lost.
    """

    topic: str = "bench"
    publishers: int = 1
    subscribers: int = 1
    messages: int = 10_000
    size: int = 64
    qos: int = 1
    in_flight: int = 100
    rate: float | None = None
    quiet_s: float = 5.0


@dataclass
class BenchFigures:
    """The figures of a run. Times in seconds; `acknowledged` and `delivered`: percentiles in ms by name."""

    sent: int = 0
    sent_s: float = 0.0
    expected: int = 0
    received: int = 0
    received_s: float = 0.0
    lost: int = 0
    repeated: int = 0
    disordered: int = 0
    reconnects: int = 0
    acknowledged: dict[str, float] = field(default_factory=dict)
    delivered: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "sent": self.sent, "sent_s": round(self.sent_s, 3), "sent_per_s": _rate(self.sent, self.sent_s),
            "acknowledged_ms": self.acknowledged, "expected": self.expected, "received": self.received,
            "received_s": round(self.received_s, 3), "received_per_s": _rate(self.received, self.received_s),
            "delivered_ms": self.delivered, "lost": self.lost, "repeated": self.repeated,
            "disordered": self.disordered, "reconnects": self.reconnects,
        }  # fmt: skip


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0


def percentiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Returns percentiles and the maximum in ms, by the nearest rank; nothing of an empty sample."""
    ordered = sorted(nanoseconds)
    if not ordered:
        return {}
    ranks = {f"p{each:g}": max(0, -(-len(ordered) * int(each * 10) // 1000) - 1) for each in PERCENTILES}
    return {**{name: round(ordered[rank] / 1e6, 3) for name, rank in ranks.items()}, "max": round(ordered[-1] / 1e6, 3)}


async def measure(source: Server, target: Server, load: BenchLoad) -> BenchFigures:
    """Runs a load: publishers at `source`, subscribers at `target`. Raises TerminalError."""
    if load.publishers + load.subscribers > CLIENTS_MAX:
        raise TerminalError(f"more than {CLIENTS_MAX} clients; start several commands")
    if load.messages * max(1, load.subscribers) > SAMPLES_MAX:
        raise TerminalError(f"more than {SAMPLES_MAX} messages to receive; take fewer")
    if load.size < SIZE_MIN:
        raise TerminalError(f"--size {load.size}: the smallest is {SIZE_MIN}, for number and time")
    run = _Run(load, source, target)
    try:
        return await run.measured()
    finally:
        await run.end_run()


class _Publisher:
    """A publisher of a run, with a number and a window."""

    def __init__(self, client: TerminalClient, number: int, load: BenchLoad) -> None:
        self.client, self.number = client, number
        self.topic = f"{load.topic}/{number}"
        self.share = load.messages // load.publishers + (number < load.messages % load.publishers)
        self.window = asyncio.Semaphore(load.in_flight)
        self.room = asyncio.Event()
        client.on_up = client.on_room = self.room.set


class _Subscriber:
    """A subscriber of a run: next number and missing messages of each publisher, and delays in nanoseconds."""

    def __init__(self, client: TerminalClient, publishers: int) -> None:
        self.client = client
        self.heard: set[int] = set()
        self.delays = array("q")
        self.highest = [-1] * publishers
        self.seen = [bytearray() for _ in range(publishers)]
        self.received = self.repeated = self.disordered = 0
        self.last = 0

    def take_message(self, publisher: int, number: int, sent: int, now: int) -> None:
        seen = self.seen[publisher]
        if number >= len(seen):
            seen.extend(bytes(max(1024, number + 1 - len(seen))))
        if seen[number]:
            self.repeated += 1
            return
        seen[number] = 1
        self.disordered += number < self.highest[publisher]
        self.highest[publisher] = max(self.highest[publisher], number)
        self.received += 1
        self.delays.append(now - sent)
        self.last = now


class _Run:
    def __init__(self, load: BenchLoad, source: Server, target: Server) -> None:
        self._load, self._id = load, os.urandom(8)
        self._publishers = [_Publisher(source.client(), number, load) for number in range(load.publishers)]
        self._subscribers = [_Subscriber(target.client(), load.publishers) for _ in range(load.subscribers)]
        self._clients = [*(each.client for each in self._publishers), *(each.client for each in self._subscribers)]
        self._acknowledged = array("q")
        self._answers = self._granted = 0
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._filler = bytes(load.size - SIZE_MIN)

    async def end_run(self) -> None:
        await asyncio.gather(*(client.end_session() for client in self._clients))
        if self._failed.done():
            self._failed.exception()  # said already

    async def measured(self) -> BenchFigures:
        for client in self._clients:
            await client.begin_session()
        await self._subscribe()
        begun = time.perf_counter_ns()
        await self._guarded(asyncio.gather(*(self._publish_numbered(each) for each in self._publishers)))
        sent_ns = time.perf_counter_ns() - begun
        await self._guarded(self._drain())
        return self._figures(begun, sent_ns)

    async def _guarded(self, work: Any) -> None:
        """Waits for work, or raises the refusal that ends the run."""
        task = asyncio.ensure_future(work)
        await asyncio.wait([task, self._failed], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            self._failed.result()
        await task

    # ------------------------------------------------------------------------------------- before the load

    async def _subscribe(self) -> None:
        for subscriber in self._subscribers:
            subscriber.client.on_publish = partial(self._take_publish, subscriber)
            subscriber.client.subscribe(
                f"{self._load.topic}/+", self._load.qos, on_answer=partial(self._answered, subscriber.client)
            )
        await self._guarded(self._hear())

    def _answered(self, client: TerminalClient, code: int) -> None:
        self._granted += 1
        if code >= 0x80:
            self._fail_run(client.refusal_error(f"the subscription to {self._load.topic}/+", code))

    async def _hear(self) -> None:
        """Sends probes until each subscriber heard each publisher. Raises TerminalError after HEARD_S."""
        end = time.monotonic() + HEARD_S
        while missing := [s for s in self._subscribers if len(s.heard) < len(self._publishers)]:
            if time.monotonic() > end:
                raise TerminalError(
                    f"{len(missing)} of {len(self._subscribers)} subscribers hear not all publishers after "
                    f"{HEARD_S:g} s; see `veilmq status`, and that both sides may use {self._load.topic}/#"
                )
            silent = [p for p in self._publishers if any(p.number not in s.heard for s in missing)]
            for publisher in silent:
                await self._send_number(publisher, PROBE)
            await asyncio.sleep(PROBE_EVERY_S)

    # -------------------------------------------------------------------------------------------- the load

    async def _publish_numbered(self, publisher: _Publisher) -> None:
        load, begun = self._load, time.perf_counter()
        pause_s = 0.0 if load.rate is None else load.publishers / load.rate
        for number in range(publisher.share):
            if pause_s:
                due = begun + (number + publisher.number / load.publishers) * pause_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            elif not load.qos and not number % TURN:
                await asyncio.sleep(0)
            await self._send_number(publisher, number)
        for _ in range(load.in_flight if load.qos else 0):
            await publisher.window.acquire()  # all are acknowledged

    async def _send_number(self, publisher: _Publisher, number: int) -> None:
        if self._load.qos:
            await publisher.window.acquire()
        while True:
            sent = time.perf_counter_ns()
            payload = _HEAD.pack(self._id, publisher.number, number, sent) + self._filler
            if publisher.client.publish(
                publisher.topic, payload, self._load.qos,
                on_ack=partial(self._acked, publisher, sent, number),
                on_refused=partial(self._take_refusal, publisher),
            ):  # fmt: skip
                return
            publisher.room.clear()
            await publisher.room.wait()

    def _acked(self, publisher: _Publisher, sent: int, number: int) -> None:
        if number != PROBE:
            self._acknowledged.append(time.perf_counter_ns() - sent)
        publisher.window.release()

    def _take_refusal(self, publisher: _Publisher, code: int) -> None:
        self._fail_run(publisher.client.refusal_error(f"the publication on {publisher.topic}", code))

    def _fail_run(self, error: TerminalError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    def _take_publish(self, subscriber: _Subscriber, publish: Publish) -> None:
        now = time.perf_counter_ns()
        if len(publish.payload) < SIZE_MIN:
            return
        run, publisher, number, sent = _HEAD.unpack_from(publish.payload)
        if run != self._id or publisher >= len(self._publishers):
            return
        if number == PROBE:
            subscriber.heard.add(publisher)
        elif number < self._publishers[publisher].share:
            subscriber.take_message(publisher, number, sent, now)

    # ------------------------------------------------------------------------------------------- after the load

    async def _drain(self) -> None:
        """Waits until all came, or nothing did for `quiet_s` seconds."""
        before, since = -1, time.monotonic()
        while (received := self._count_missing()) < self._load.messages * len(self._subscribers):
            if received != before:
                before, since = received, time.monotonic()
            if time.monotonic() - since > self._load.quiet_s:
                return
            await asyncio.sleep(0.02)

    def _count_missing(self) -> int:
        return sum(each.received for each in self._subscribers)

    def _figures(self, begun: int, sent_ns: int) -> BenchFigures:
        delays: list[int] = []
        for each in self._subscribers:
            delays.extend(each.delays)
        expected = self._load.messages * len(self._subscribers)
        return BenchFigures(
            sent=self._load.messages,
            sent_s=sent_ns / 1e9,
            expected=expected,
            received=self._count_missing(),
            received_s=max((each.last - begun for each in self._subscribers if each.last), default=0) / 1e9,
            lost=expected - self._count_missing(),
            repeated=sum(each.repeated for each in self._subscribers),
            disordered=sum(each.disordered for each in self._subscribers),
            reconnects=sum(client.losses for client in self._clients),
            acknowledged=percentiles(self._acknowledged),
            delivered=percentiles(delays),
        )
