"""Any cutting, re-cutting, crash and reordering of any history delivers each record once, in order, and uses no nonce
twice.

`python -m tests.bridge.test_batch_world MUTANT` looks for a schedule that shows what a rule is for.
"""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.publisher.cutting import Cut, ScopeChain
from bridge.reader.heads import Head
from bridge.reader.retained_values import RetainedValues
from tests.bridge.batchworld import BrokenPromiseError, World

Step = tuple[str, int]
COMMON = (
    "pub", "many", "qos0", "burn", "cut", "send", "rr", "ack", "recv", "go", "flow", "pcrash", "rcrash", "rekey",
    "down", "up", "wait", "lie", "pull", "drop", "refresh", "resub",
)  # fmt: skip
OF_NEWCOMERS = ("sub", "snapshot", "newcomer")


def run(schedule: list[Step], joins: bool) -> None:
    world = World(joins)
    for name, number in schedule:
        world.act(name, number)
    world.drain()


def draw_schedule(rnd: random.Random) -> tuple[list[Step], bool]:
    joins = rnd.random() < 0.5
    names = [*COMMON, *(OF_NEWCOMERS if joins else ())]
    some = [*rnd.sample(names, rnd.randint(5, len(names))), "pub", "cut", "go"]
    return [(rnd.choice(some), rnd.randrange(6)) for _ in range(rnd.randint(5, 45))], joins


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_each_record_once_in_order_and_no_nonce_twice(seed: int) -> None:
    run(*draw_schedule(random.Random(seed)))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(max_examples=20_000, deadline=None)
@given(st.integers(0, 2**64))
def test_the_same_for_many_more_schedules(seed: int) -> None:
    run(*draw_schedule(random.Random(seed)))


# ------------------------------------------------------------------------- each rule is there for a reason

Patch = tuple[type, str, object]


def _recut_all(self: ScopeChain) -> list[Cut]:
    return []


def _take_without_gap(self: Head, first: int, last: int, previous: int) -> None:
    self._missed.remove(first, last)
    self.number = max(self.number, last)


def _unseen_by_head(self: Head, first: int, last: int) -> list[tuple[int, int]]:
    return [(max(first, self.number + 1), last)] if last > self.number else []


def _seen_as_a_whole(self: Head, first: int, last: int) -> list[tuple[int, int]]:
    return [(first, last)] if last > self.number or self._missed.within(first, last) else []


LATE: list[Step] = [
    ("pub", 0), ("cut", 0), ("refresh", 0), ("pub", 1), ("cut", 0), ("send", 0), ("send", 0), ("rr", 0), ("rr", 0),
    ("lie", 1), ("recv", 0), ("send", 1), ("rr", 1), ("send", 1), ("rr", 1), ("recv", 1), ("recv", 1), ("wait", 1),
    ("recv", 0), ("go", 2),
]  # fmt: skip
"""The liar brings a later key first, the reader gives up what is before it, and that comes late."""
JOINED: list[Step] = [
    ("pub", 2), ("cut", 0), ("go", 3), ("go", 4), ("go", 5), ("sub", 0), ("sub", 1), ("sub", 2), ("recv", 0),
    ("recv", 1), ("recv", 2), ("wait", 0), ("rcrash", 0), ("lie", 3), ("recv", 0), ("recv", 0),
]  # fmt: skip
"""A liar sends what a newcomer got as retained once more, as if it were live, after a restart."""

MUTANTS: dict[str, tuple[list[Patch], list[Step], bool]] = {
    "a new key cuts nothing anew": (
        [(ScopeChain, "recut", _recut_all)],
        [("pub", 2), ("cut", 3), ("wait", 3)],
        False,
    ),
    "what was given up counts as seen": ([(Head, "take", _take_without_gap)], LATE, False),
    "behind the head all is seen": ([(Head, "unseen", _unseen_by_head)], LATE, False),
    "a batch is seen or not": (
        [(Head, "unseen", _seen_as_a_whole)],
        [("qos0", 2), ("cut", 4), ("qos0", 3), ("go", 2), ("go", 4), ("rekey", 3)],
        False,
    ),
    "flagged copies leave no mark": ([(Head, "mark", lambda self, number: True)], JOINED, True),
    "floors say nothing to readers": (
        [(RetainedValues, "floor", lambda self, header: None)],
        [("pub", 3), ("pub", 2), ("wait", 3), ("pub", 5), ("snapshot", 2)],
        True,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_without_a_rule_a_schedule_breaks_a_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patches, schedule, joins = MUTANTS[name]
    run(schedule, joins)  # with all rules it holds
    for owner, attribute, value in patches:
        monkeypatch.setattr(owner, attribute, value)
    with pytest.raises(BrokenPromiseError):
        run(schedule, joins)


def _look_for(name: str, examples: int) -> None:
    for owner, attribute, value in MUTANTS[name][0] if name in MUTANTS else ():
        setattr(owner, attribute, value)
    rnd = random.Random(name)
    for _ in range(examples):
        schedule, joins = draw_schedule(rnd)
        if (why := _fails(schedule, joins)) is not None:
            print(name, "|", why, "\n   ", _shrunk(schedule, joins), joins)
            return
    print(name, "| nothing found")


def _fails(schedule: list[Step], joins: bool) -> str | None:
    try:
        run(schedule, joins)
    except BrokenPromiseError as violation:
        return str(violation)
    return None


def _shrunk(schedule: list[Step], joins: bool) -> list[Step]:
    again = True
    while again:
        again = False
        for size in (8, 4, 2, 1):
            at = 0
            while at < len(schedule):
                less = schedule[:at] + schedule[at + size :]
                if _fails(less, joins) is not None:
                    schedule, again = less, True
                else:
                    at += 1
    return schedule


if __name__ == "__main__":
    _look_for(sys.argv[1], int(sys.argv[2]))
