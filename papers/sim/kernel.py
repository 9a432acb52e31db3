"""The simulator's kernel: virtual time, links with latency, crashes and restarts, all drawn from a seed.

It runs `bridge.node` objects, or their wrappers (`adversary`), and acts as the broker's shell does: turns `Send` into
`Received` at the peer and `Acked` back, keeps links first-in-first-out, calls `Tick` at deadlines, and makes and drops
links as nodes adopt overlays: a link exists while both ends want it. It judges nothing: `checkers` does. Randomness is
a `random.Random(seed)` the caller makes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from bridge.contract import (
    Acked,
    Adopt,
    Adoption,
    AskKept,
    Blame,
    Committed,
    Count,
    Delay,
    Deliver,
    DeliverShared,
    Doubted,
    Effect,
    Event,
    Forget,
    GoOn,
    Keep,
    KeepSealed,
    KeysChanged,
    LeaveOnDisk,
    LinkDown,
    LinkUp,
    Machine,
    NotAdopted,
    NotTaken,
    OnDisk,
    Outlived,
    PageCame,
    Pause,
    Prove,
    ReadAgainDone,
    ReadAgainLive,
    ReadPage,
    Recall,
    ReceiptCame,
    Received,
    Record,
    RecordEra,
    Refuse,
    Reread,
    Send,
    Take,
    Tick,
    Wanted,
    Watch,
    Withhold,
)
from bridge.document import Contradiction
from bridge.topology import peers_of
from keys.issuing import KeepArchive, KeepMaterial
from papers.sim.history import SimulatedHistory
from papers.sim.outbox import SimulatedOutbox

TICK_MIN_S = 0.001  # from a tick that came early to the next one: an event loop's timers know milliseconds
STEPS_MAX = 2_000_000  # a run that does not end is a bug of ours: stop it with a message


class RandomSource(Protocol):
    """The part of `random.Random` the simulator uses."""

    def random(self) -> float: ...
    def uniform(self, a: float, b: float, /) -> float: ...
    def randrange(self, stop: int, /) -> int: ...
    def randbytes(self, n: int, /) -> bytes: ...


@dataclass(slots=True)
class EventTrace:
    """The record of a run: deliveries by gateway, blame, figures, forgotten outbox entries."""

    delivered: dict[str, list[Deliver]] = field(default_factory=dict)
    shared: dict[str, list[DeliverShared]] = field(default_factory=dict)
    delivered_at: dict[str, list[float]] = field(default_factory=dict)
    blamed: list[tuple[str, Blame]] = field(default_factory=list)
    proved: list[tuple[str, Contradiction]] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)
    forgotten: dict[str, set[int]] = field(default_factory=dict)
    not_adopted: list[tuple[str, str]] = field(default_factory=list)
    reread: dict[int, list[Deliver]] = field(default_factory=dict)  # by number of the reading
    reread_done: dict[int, float] = field(default_factory=dict)
    receipts: dict[str, list[ReceiptCame]] = field(default_factory=dict)
    sealed: dict[str, list[KeepSealed]] = field(default_factory=dict)
    sent: int = 0
    sent_bytes: int = 0  # payloads, topics and user properties

    def named_members(self) -> set[str]:
        return {blame.member for _, blame in self.blamed if blame.named}

    def suspected(self) -> set[str]:
        return {blame.member for _, blame in self.blamed if not blame.named}


class Kernel:
    """The simulated nodes, links between `peers`, and the queue of coming events."""

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Machine]],
        peers: Mapping[str, Iterable[str]],
        rng: RandomSource,
        now: float,
        latency_s: tuple[float, float] = (0.001, 0.020),
        clocks: Mapping[str, float] | None = None,
        outboxes: Mapping[str, SimulatedOutbox] | None = None,
        jitter: RandomSource | None = None,
        jitter_s: float = 0.001,
    ) -> None:
        """Makes a kernel with no node started.

        `clocks`: seconds by which a node's own clock is ahead of the kernel's; 0 by default. `outboxes`: of gateways,
        the objects that their machines ask as their shelf. `jitter`: draws for each tick by how much it comes before
        or after its deadline, `jitter_s` at most, as timers of event loops do; None: each comes in time.
        """
        self._jitter, self._jitter_s = jitter, jitter_s
        self._outboxes = outboxes or {}
        self.histories: dict[str, SimulatedHistory] = {}
        """What the disks of replicas keep of scopes with a history."""
        self._clocks = dict(clocks or {})
        self._makers = dict(makers)
        self.nodes: dict[str, Machine] = {name: make() for name, make in makers.items()}
        self._peers = {name: frozenset(p) for name, p in peers.items()}
        self._rng = rng
        self._latency_s = latency_s
        self.now = now
        self.trace = EventTrace()
        self._queue: list[tuple[float, int, str, int, Event]] = []
        self._order = 0
        self._incarnation = dict.fromkeys(makers, 0)
        self._alive: set[str] = set()
        self._cut: set[frozenset[str]] = set()
        self._last_arrival: dict[tuple[str, str], float] = {}
        self._ticks: dict[str, tuple[float, Tick]] = {}  # the pending tick of each node, and its deadline
        self._answers: dict[int, Acked] = {}  # wires on their way: identity of the event -> its acknowledgement
        self._answer: Acked | None = None  # of the event at hand
        self._refused: dict[int, NotTaken] = {}  # by identity of the acknowledgement that comes in its place
        self._delays: dict[int, float] = {}  # by identity of the acknowledgement that comes later

    # ------------------------------------------------------------------------------------------- the world

    def start(self) -> None:
        """Starts every node; links come up at random moments within a second."""
        for name in self.nodes:
            self._alive.add(name)
        for name in self.nodes:
            for peer in sorted(self._peers[name]):
                self.plan_event(self.now + self._rng.random(), name, LinkUp(peer))

    def add_node(self, name: str, maker: Callable[[], Machine], peers: Iterable[str]) -> None:
        """Starts a new node; links come up once their other ends want them too."""
        self._makers[name] = maker
        self.nodes[name] = maker()
        self._incarnation.setdefault(name, 0)
        self._peers[name] = frozenset()
        self._alive.add(name)
        self._follow_peers(name, frozenset(peers))
        self._effects(name, ())

    def plan_event(self, when: float, name: str, event: Event) -> None:
        """Plans `event` for `name`; the event is lost if the node crashes before."""
        self._order += 1
        heapq.heappush(self._queue, (when, self._order, name, self._incarnation[name], event))

    def crash(self, name: str) -> None:
        """Crashes a node as kill -9 does: its memory and everything on its links is gone."""
        self._alive.discard(name)
        self._incarnation[name] += 1
        self._ticks.pop(name, None)
        if name in self._outboxes:
            self._outboxes[name].crashed()
        for peer in sorted(self._peers[name]):
            if peer in self._alive and self._linked(name, peer):
                self._apply(peer, LinkDown(name))

    def restart(self, name: str) -> None:
        """Starts a new process under the old identity."""
        self.nodes[name] = self._makers[name]()
        self._alive.add(name)
        for peer in sorted(self._peers[name]):
            if peer in self._alive and self._linked(name, peer):
                self.plan_event(self.now + self._rng.random(), name, LinkUp(peer))
                self.plan_event(self.now + self._rng.random(), peer, LinkUp(name))

    def cut(self, a: str, b: str) -> None:
        """Cuts the link between two nodes until `heal`."""
        self._cut.add(frozenset((a, b)))
        for one, other in ((a, b), (b, a)):
            if one in self._alive:
                self._apply(one, LinkDown(other))

    def heal(self, a: str, b: str) -> None:
        self._cut.discard(frozenset((a, b)))
        for one, other in ((a, b), (b, a)):
            self.plan_event(self.now + self._rng.random(), one, LinkUp(other))

    def call(self, name: str, act: Callable[[Machine, float], Sequence[Effect]]) -> None:
        """Calls a node as the shell does beside events: `act(node, its time)` gives effects."""
        self._effects(name, act(self.nodes[name], self.now + self._clocks.get(name, 0.0)))

    def run(self, until: float) -> EventTrace:
        """Runs all events up to the moment `until`."""
        for _ in range(STEPS_MAX):
            if not self._queue or self._queue[0][0] > until:
                self.now = until
                return self.trace
            when, _, name, incarnation, event = heapq.heappop(self._queue)
            self.now = max(self.now, when)
            self._answer = self._answers.pop(id(event), None)
            if delay_s := self._delays.pop(id(event), 0.0):
                self.plan_event(self.now + delay_s, name, event)
                continue
            event = self._refused.pop(id(event), event)
            if isinstance(event, Tick) and not self._is_pending(name, event):
                continue
            if name in self._alive and incarnation == self._incarnation[name] and self._passes(name, event):
                self._apply(name, event)
        raise AssertionError(f"simulation did not end within {STEPS_MAX} steps")

    # ------------------------------------------------------------------------------------------- mechanics

    def _passes(self, name: str, event: Event) -> bool:
        match event:
            case LinkUp(peer) | Received(peer, _) | Acked(peer, _) | NotTaken(peer, _, _):
                return peer in self._alive and self._linked(name, peer)
            case _:
                return True

    def _linked(self, a: str, b: str) -> bool:
        both = b in self._peers.get(a, ()) and a in self._peers.get(b, ())
        return both and not (self._cut and frozenset((a, b)) in self._cut)

    def _follow_peers(self, name: str, peers: frozenset[str]) -> None:
        """Makes the links of a node those with `peers`."""
        before, self._peers[name] = self._peers[name], peers
        for peer in sorted(before - peers):
            if peer in self._alive and name in self._peers.get(peer, ()):
                self.plan_event(self.now, peer, LinkDown(name))
        for peer in sorted(peers - before):
            if peer in self._alive and self._linked(name, peer):
                self.plan_event(self.now + self._rng.random(), name, LinkUp(peer))
                self.plan_event(self.now + self._rng.random(), peer, LinkUp(name))

    def _apply(self, name: str, event: Event) -> None:
        answer, self._answer = self._answer, None
        ahead_s = self._clocks.get(name, 0.0)
        if isinstance(event, Committed) and name in self._outboxes:
            self._outboxes[name].put_entries(event.entries)
        effects = self.nodes[name].handle(event, self.now + ahead_s)
        self._effects(name, effects)
        for effect in effects if answer is not None else ():
            if isinstance(effect, Refuse) and answer is not None:
                self._refused[id(answer)] = NotTaken(answer.peer, answer.ticket, effect.reason)
            if isinstance(effect, Delay):
                self._delays[id(answer)] = effect.delay_s

    def _effects(self, name: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._effect(name, effect)
        deadline = self.nodes[name].next_deadline
        if deadline is not None:
            deadline -= self._clocks.get(name, 0.0)
        pending = self._ticks.get(name)
        if deadline is not None and (pending is None or deadline < pending[0]):
            tick = Tick()
            self._ticks[name] = deadline, tick
            self.plan_event(self._tick_at(deadline), name, tick)

    def _is_pending(self, name: str, tick: Tick) -> bool:
        """Returns True for the node's pending tick, which is used up; False for a tick that an earlier one replaced."""
        pending = self._ticks.get(name)
        if pending is None or pending[1] is not tick:
            return False
        del self._ticks[name]
        return True

    def _tick_at(self, deadline: float) -> float:
        """Returns when the tick for a deadline comes: another tick follows an early one, as `Alarm` has it."""
        if self._jitter is None:
            return max(deadline, self.now)
        wanted = deadline if deadline <= self.now else max(deadline, self.now + TICK_MIN_S)
        return max(wanted + self._jitter.uniform(-self._jitter_s, self._jitter_s), self.now)

    def _effect(self, name: str, effect: Effect) -> None:
        match effect:
            case Send(peer, wire, ticket):
                self.trace.sent += 1
                properties = sum(len(name) + len(value) + 5 for name, value in wire.properties)
                self.trace.sent_bytes += len(wire.payload) + len(wire.topic) + properties
                if peer not in self._alive or not self._linked(name, peer):
                    return
                arrival = self._arrival(name, peer)
                received = Received(name, wire)
                self.plan_event(arrival, peer, received)
                if ticket:
                    answer = self._answers[id(received)] = Acked(peer, ticket)
                    self.plan_event(max(arrival, self._arrival(peer, name)), name, answer)
            case Adopt():
                if effect.outcome is Adoption.LIVE:
                    self._follow_peers(name, peers_of(effect.overlay, name))
            case Deliver():
                self.trace.delivered.setdefault(name, []).append(effect)
                self.trace.delivered_at.setdefault(name, []).append(self.now)
            case DeliverShared():
                self.trace.shared.setdefault(name, []).append(effect)
            case Blame():
                self.trace.blamed.append((name, effect))
            case Count(figure, amount, label):
                key = f"{figure}{{{label}}}" if label else figure
                self.trace.figures[key] = self.trace.figures.get(key, 0) + amount
            case Forget(sequences):
                self.trace.forgotten.setdefault(name, set()).update(sequences)
                if name in self._outboxes:
                    self._outboxes[name].forget_entries(sequences)
            case LeaveOnDisk(sequences):
                self._outboxes[name].leave_on_disk(sequences)
            case ReadPage(start):
                self.plan_event(self.now, name, self._outboxes[name].page(start))
            case Pause() | Reread() | ReadAgainLive() | ReadAgainDone() | Record() | RecordEra() | Recall():
                self._of_history(name, effect)
            case AskKept() | KeepSealed() | ReceiptCame():
                self._of_receipts(name, effect)
            case NotAdopted(why):
                self.trace.not_adopted.append((name, why))
            case Prove(evidence, _):
                evidence.check_proof()
                self.trace.proved.append((name, evidence))
            case Watch() | KeysChanged() | KeepMaterial() | KeepArchive() | Keep() | Outlived() | Refuse() | Delay():
                pass  # no stock brokers here, and no files
            case Withhold() | Take() | PageCame():
                pass  # nor windows of links, nor receivers
            case Wanted() | Doubted():
                raise AssertionError("what a reader says to its own node")
            case _:
                assert_never(effect)

    def _of_receipts(self, name: str, effect: AskKept | KeepSealed | ReceiptCame) -> None:
        match effect:
            case AskKept(mark):
                self.plan_event(self.now, name, OnDisk(mark))
            case KeepSealed():
                self.trace.sealed.setdefault(name, []).append(effect)
            case ReceiptCame():
                self.trace.receipts.setdefault(name, []).append(effect)

    def _of_history(
        self, name: str, effect: Pause | Reread | ReadAgainLive | ReadAgainDone | Record | RecordEra | Recall
    ) -> None:
        match effect:
            case Pause():
                self.plan_event(self.now, name, GoOn())
            case Reread(readings, delivers):
                for reading in readings:
                    self.trace.reread.setdefault(reading, []).extend(delivers)
            case ReadAgainLive():
                pass
            case ReadAgainDone(reading):
                self.trace.reread_done[reading] = self.now
            case Record():
                self._history(name).append_records(effect)
            case RecordEra():
                self._history(name).record_era(effect)
            case Recall():
                self.plan_event(self.now, name, self._history(name).recall(effect))

    def _history(self, name: str) -> SimulatedHistory:
        return self.histories.setdefault(name, SimulatedHistory())

    def _arrival(self, source: str, target: str) -> float:
        """Returns the time of arrival: a link keeps order, as TCP does, whatever latency is drawn."""
        arrival = self.now + self._rng.uniform(*self._latency_s)
        arrival = max(arrival, self._last_arrival.get((source, target), 0.0))
        self._last_arrival[source, target] = arrival
        return arrival
