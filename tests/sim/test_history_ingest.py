"""An ingest job that reads histories back: rows once, whatever it has already (docs/protocol-options.md §12)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from bridge.contract import (
    FAR_TOPIC,
    HISTORY_TOPIC,
    AskHistory,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    PageCame,
    Received,
    Send,
    Subscribed,
    Wire,
)
from bridge.contract.machine import earliest
from bridge.membership import GRANT_TOPIC, OVERLAY_TOPIC, SWAPS_TOPIC, VIEWS_TOPIC
from bridge.node import JobNode
from gateway.overlay import Properties, Publish
from keys.derivation import Derivation
from papers.sim.checkers import check_blame
from papers.sim.kernel import Kernel
from spark_ingest.receiving import Backfill, Seen, SpoolCollector
from spark_ingest.spool.backfilled import BackfillRecord
from tests.seldom import mostly_slow
from tests.sim.test_history import CHANGES, LIES, a_world, change, lying, publish_some
from tests.sim.test_history_far import a_world as a_far_world
from tests.sim.test_history_far import lying_far
from tests.sim.world import NOW, Traffic, World, subscribe

CONTROL = {GRANT_TOPIC, OVERLAY_TOPIC, SWAPS_TOPIC, VIEWS_TOPIC}
SLOW_S = 0.1  # to write a group
LOOK_S = 0.1


class Job:
    """A receiver in the simulator: the reader's node, the live collector and the backfill, as the shell joins them.

    `disk`: rows and memory that outlive it.
    """

    def __init__(self, node: Any, world: World, disk: Disk) -> None:
        self._node, self._world, self._disk = node, world, disk
        seen = Seen.from_json(disk.seen.to_json()) if disk.seen is not None else Seen()
        self._live = SpoolCollector(world.overlay, world.overlay.certificate("late").region, seen=seen)
        self._sent: list[Effect] = []
        self._now = 0.0
        self._backfill: Backfill | None = None
        self._up: set[str] = set()
        disk.seen = self._live.seen
        self._writes_at: float | None = None
        self._looks_at = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    @property
    def next_deadline(self) -> float | None:
        past = self._backfill.next_deadline if self._backfill is not None else None
        looks_at = None if self._backfill is None or self._backfill.is_over else self._looks_at
        return earliest(self._node.next_deadline, self._live.next_deadline, past, self._writes_at, looks_at)

    def _send(self, peer: str, topic: str, payload: bytes) -> None:
        if topic == HISTORY_TOPIC:
            self._sent += self._node.handle(AskHistory(peer, payload), self._now)
        else:
            self._sent.append(Send(peer, Wire(topic, payload)))

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        self._now = now
        if self._backfill is None:
            self._backfill = Backfill(self._disk.record, self._live, None, self._send, lambda names: None, now)
            self._live.learn({name: Derivation(key).check_value for name, key in self._world.keys})
        self._sent, self._looks_at = [], now + LOOK_S
        if isinstance(event, LinkUp):
            self._up.add(event.peer)
        if isinstance(event, LinkDown):
            self._up.discard(event.peer)
        if isinstance(event, Received) and event.wire.topic == HISTORY_TOPIC:
            self._page(event.peer, event.wire.payload, now)
        elif isinstance(event, Received) and event.wire.topic == FAR_TOPIC:
            for effect in self._node.handle(event, now):
                match effect:
                    case PageCame(replica, page):
                        self._page(replica, page, now)
                    case _:
                        self._sent.append(effect)
        elif isinstance(event, Received) and event.wire.topic not in CONTROL:
            self._live.receive(event.peer, event.wire, lambda: None, now)
        else:
            self._sent += self._node.handle(event, now)
        if self._node.overlay is not self._live.overlay:
            self._live.learn({name: Derivation(key).check_value for name, key in self._world.keys})
            self._live.adopt_overlay(self._node.overlay, now)
            self._backfill.keys_changed(now)
        self._live.do_due_work(now)
        self._sent += self._live.take_asks()
        scopes = [secret.scope for secret in self._node.secrets if secret.scope.history is not None]
        if all(self._node.interest.is_accepted(scope.filter) for scope in scopes):
            self._backfill.go_on("late", scopes, sorted(self._up), now)
        if self._writes_at is not None and self._writes_at <= now:
            self._writes_at = None
            self._write(now)
        if self._writes_at is None and (self._live.ready or self._backfill.ready):
            self._writes_at = now + SLOW_S
        return self._sent

    def _page(self, replica: str, page: bytes, now: float) -> None:
        assert self._backfill is not None
        self._backfill.take_page(replica, Publish(HISTORY_TOPIC, page, properties=Properties()), now)

    def _write(self, now: float) -> None:
        assert self._backfill is not None
        if (group := self._live.take_group(50)) is not None:
            self._disk.write(group.records)
            self._live.note_written(group)
        if (group := self._backfill.take_group(50, 1 << 20, now)) is not None:
            self._disk.write(group.records)
            self._backfill.note_written(group)


class Disk:
    def __init__(self, record: BackfillRecord | None = None) -> None:
        self.record, self.seen = record, None
        self.rows: Counter[int] = Counter()
        self.reasons: Counter[str] = Counter()

    seen: Seen | None

    def write(self, records: Sequence[Any]) -> None:
        for record in records:
            if record.reason is None:
                self.rows[record.sequence] += 1
            else:
                self.reasons[record.reason] += 1


def joining(kernel: Kernel, world: World, rng: random.Random, disk: Disk, at: float) -> None:
    """A job joins then, for the first time."""
    told = world.overlay, world.identities["late"], "late", world.secrets, world.keys_of("late"), rng.randbytes
    kernel._makers["late"] = lambda: Job(JobNode(*told), world, disk)
    kernel.crash("late")
    kernel.run(at)
    kernel.restart("late")
    kernel.plan_event(at, "late", Subscribed("plant/#"))


def numbers(kernel: Kernel) -> set[int]:
    return {each.sequence for each in kernel.trace.delivered["desk"]}


def check_rows(kernel: Kernel, traffic: Traffic, disk: Disk) -> None:
    assert disk.record is not None
    assert disk.record.is_over
    assert len(kernel.trace.delivered["desk"]) == len(traffic.published), "the live reader has not all"
    assert set(disk.rows) == numbers(kernel)
    assert set(disk.rows.values()) == {1}, "a row twice"
    assert not disk.reasons


@pytest.mark.parametrize("lie", mostly_slow(LIES, "omit", "alter", "silent", "eras"))
def test_a_first_start_has_what_was_published_before_it_and_what_comes_meanwhile(lie: str) -> None:
    rng = random.Random(lie)
    world = a_world(41)
    kernel = lying(world, rng, {"r2b": lie})
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 620, 75)
    disk = Disk(BackfillRecord(0))
    joining(kernel, world, rng, disk, NOW + 600)
    kernel.run(NOW + 800)
    check_rows(kernel, traffic, disk)
    check_blame(kernel.trace.named_members(), {"r2b"})


def test_without_being_asked_a_job_has_only_what_comes_live() -> None:
    rng = random.Random(1)
    world = a_world(42)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    publish_some(kernel, rng, NOW + 620, 60)
    disk = Disk()
    joining(kernel, world, rng, disk, NOW + 600)
    kernel.run(NOW + 700)
    assert 0 < len(disk.rows) < 30
    assert "history_sent" not in kernel.trace.figures


def test_what_a_job_missed_while_it_was_away_is_filled_and_nothing_is_a_row_again() -> None:
    rng = random.Random(2)
    world = a_world(43)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 2_000, 100)
    disk = Disk()
    joining(kernel, world, rng, disk, NOW + 300)
    kernel.run(NOW + 600)
    had = len(disk.rows)
    assert had
    kernel.crash("late")
    kernel.run(NOW + 1_500)
    disk.record = BackfillRecord(0)
    kernel.restart("late")
    kernel.plan_event(kernel.now, "late", Subscribed("plant/#"))
    kernel.run(NOW + 2_200)
    check_rows(kernel, traffic, disk)


def test_a_job_that_is_killed_while_it_reads_goes_on_and_repeats_nothing() -> None:
    rng = random.Random(3)
    world = a_world(44)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 1_000, 150)
    disk = Disk(BackfillRecord(0))
    joining(kernel, world, rng, disk, NOW + 900)
    partly = 0
    for pause_s in (0.9, 1.0, 1.1, 1.2, 1.3, 1.4):
        kernel.run(kernel.now + pause_s)
        partly += 0 < len(disk.rows) < 200
        kernel.crash("late")
        kernel.run(kernel.now + 1)
        kernel.restart("late")
        kernel.plan_event(kernel.now, "late", Subscribed("plant/#"))
    kernel.run(NOW + 1_200)
    assert partly, "it was never killed in the middle"
    check_rows(kernel, traffic, disk)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_whatever_happens_inside_the_span(seed: int) -> None:
    rng = random.Random(f"job {seed}")
    world = a_world(seed + 60)
    lies = {rng.choice(("r2a", "r2b", "r2c")): rng.choice(LIES)} if seed % 3 else {}
    kernel = lying(world, rng, lies)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 80, 50)
    kernel.run(NOW + 10)
    for _ in range(4):
        change(kernel, world, rng.choice([each for each in CHANGES if each != "tree"]), rng)
    disk = Disk(BackfillRecord(0))
    joining(kernel, world, rng, disk, NOW + 600)
    kernel.run(NOW + 800)
    check_rows(kernel, traffic, disk)
    check_blame(kernel.trace.named_members(), lies)


@pytest.mark.parametrize("lies", [{}, {"r1b": "drop"}, {"r2a": "drop"}, {"r2a": "alter"}, {"r3c": "drop"}])
def test_a_job_reads_what_only_another_region_keeps_each_row_once(lies: dict[str, str]) -> None:
    rng = random.Random(f"far {lies}")
    world = a_far_world(45)
    kernel = lying_far(world, rng, {}, lies)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 620, 75)
    disk = Disk(BackfillRecord(0))
    joining(kernel, world, rng, disk, NOW + 600)
    kernel.run(NOW + 900)
    check_rows(kernel, traffic, disk)
    check_blame(kernel.trace.named_members(), lies)
    assert kernel.trace.figures["far_passed"] > 0, "it read its own region"
