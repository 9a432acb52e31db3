"""Schedules of the simulator take every transition that a table of states declares: no row is there for nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from bridge.base import Transitions
from bridge.contract import Subscribed, Unsubscribed
from bridge.document.succession import VIEW
from bridge.document.trees import TREE, Phase, TreeChange, Trees
from bridge.publisher import residents
from bridge.publisher.entry import ENTRY, EntryTurn, Standing
from bridge.reader.interest import SUBSCRIPTION
from bridge.reader.streams import HELD
from bridge.replica.resplitting import DATA_KEY
from bridge.traces.pings import ENTITY, Health, Ping, Pulse
from bridge.traces.presets import LAN
from bridge.wire.admission import GATEWAY_SESSION_S
from bridge.wire.pieces import NO_PART, PROPERTY_PART
from keys.envelope import Mode
from tests.bridge.helpers import with_properties
from tests.sim import scope_schedules
from tests.sim.schedules import RETAINING, TEMPLATES, Schedule, drawn, run
from tests.sim.stage import LIARS, READER
from tests.sim.test_schedules import options
from tests.sim.world import NOW, Traffic, make_world
from tests.sim.world import subscribe as wants


def subscribe_and_leave() -> None:
    """Clients subscribe and leave; the subscriber dies and goes on, and dies again for longer than it may go on."""
    schedule = Schedule()
    schedule.handle(READER, Unsubscribed("plant/#"))
    schedule.handle(READER, Subscribed("plant/#"))
    schedule.act("reborn", 1)
    schedule.act("flow", 0)
    schedule.clear(READER)
    schedule.start(READER)
    schedule.tick(schedule.now + GATEWAY_SESSION_S + 2)
    schedule.handle(READER, Subscribed("plant/#"))


def carry_keys() -> None:
    """Keys go from one region to the next: from many replicas, and from a single one."""
    for replicas in (5, 1):
        world = make_world({1: replicas, 2: 3}, [(1, 2)], {"site": 1, "control": 2})
        kernel = world.kernel(random.Random(1), (0.001, 0.002))
        wants(kernel, "control", "plant/#")
        Traffic("site").publish(kernel, NOW + 5, "plant/a", b"21.5")
        kernel.run(NOW + 8)


def publish_and_hinder() -> None:
    """Scopes and rights change while batches wait; one replica is slow in a region of five."""
    for seed in (1, 2, 27):
        assert scope_schedules.run(scope_schedules.drawn(seed), far=seed % 3 == 2, seed=seed) is None
    assert run(drawn(35), mode=Mode.ONE, far=True) is None
    carry_keys()


def read_and_wait() -> None:
    """Keys and predecessors come late, and of one publication nothing but its header comes."""
    for seed, more in ((9, ()), (55, RETAINING)):
        assert run(drawn(seed, more), **options(seed), seed=seed, all_restart=bool(more)) is None
    schedule = Schedule(mode=Mode.ONE)
    schedule.act("pub", 0)
    schedule.act("go", 0)
    announced = replace(schedule.carried[-1], payload=b"")
    schedule.sessions[LIARS[0]].unsent.clear()
    schedule.offer(LIARS[0], READER, with_properties(announced, (PROPERTY_PART, NO_PART)))
    schedule.reads(LIARS[0])
    schedule.tick(schedule.now + 12.0)


def change_the_tree() -> None:
    """A member is asked for the phase in each step of a change, and long after it: it slept through all of it."""
    change = TreeChange(7, 1_000, 2, 60, ((1, 2), (2, 3)))
    trees = Trees.at_start(change, ((1, 3), (2, 3)), {1, 2, 3})
    while (at := trees.next_change()) is not None:
        trees = replace(trees, phase=trees.phase_at(at))
        assert trees.phase_at(at - 10) is trees.phase
    assert Trees.at_start(change, ((1, 3), (2, 3)), {1, 2, 3}).phase_at(3_600.0) is Phase.ALONE
    assert trees.phase_at(3_600.0) is Phase.ALONE


def live_and_die() -> None:
    """An entity answers, falls silent, is heard elsewhere and answers again, once suspected and once failed."""
    pulse = Pulse(LAN, NOW)

    def silent_until(health: Health) -> tuple[Ping, float]:
        """Lets time pass without an answer; returns the last ping and the time of the verdict."""
        last = None
        while True:
            at = pulse.next_deadline
            ping, found = pulse.tick(at)
            last = ping or last
            if found is health:
                assert last is not None
                return last, at

    for until in (Health.SUSPECTED, Health.FAILED):
        ping, at = silent_until(until)
        pulse.vouched(ping.number, ping.sent_ms, at)
        assert pulse.health is Health.SUSPECTED
        ping, at = silent_until(Health.FAILED) if until is Health.FAILED else (ping, at)
        pulse.take_echo(ping.number, ping.sent_ms, at)
        assert pulse.health is Health.ALIVE
        pulse.lives(at + 0.1)


NEVER: dict[str, set[tuple[Enum, Enum]]] = {
    # An acknowledgement counts for a sealing alone, but whatever comes must not make a publisher raise.
    "entry": {(EntryTurn.HAD, Standing.FRESH), (EntryTurn.HAD, Standing.WAITING)},
}
"""Transitions that are declared for safety, and that no schedule takes."""
WALKS: dict[str, tuple[Transitions[Any, Any], Callable[[], object]]] = {
    "view": (VIEW, lambda: run(TEMPLATES["retained when the next view begins"])),
    "entry": (ENTRY, publish_and_hinder),
    "publication": (HELD, read_and_wait),
    "data key": (DATA_KEY, carry_keys),
    "subscription": (SUBSCRIPTION, subscribe_and_leave),
    "tree": (TREE, change_the_tree),
    "entity": (ENTITY, live_and_die),
}


@pytest.mark.parametrize("walk", WALKS)
def test_every_transition_is_taken(walk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    life, run_all = WALKS[walk]
    taken, after = set[tuple[Enum, Enum]](), life.after

    def noted(turn: tuple[Any, Any]) -> Any:
        taken.add(turn)
        return after(turn)

    monkeypatch.setattr(life, "after", noted)
    monkeypatch.setattr(residents, "RESIDENT_MAX", 8)  # so that most of it waits on disk
    run_all()
    assert {(row.event, state) for row in life.rows for state in row.before} == taken | NEVER.get(walk, set())
