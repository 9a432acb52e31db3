"""Scopes and rights that change while batches wait in memory and on disk: nothing twice, nothing lost in silence."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract import Effect, Forget
from bridge.publisher import residents
from bridge.publisher.cutting import Cuts
from bridge.publisher.publisher import Publisher
from bridge.publisher.sealed_before import RUN_NUMBERS, SealedBefore
from bridge.reader.handing_out import Unpacked
from tests.seldom import slow
from tests.sim import scope_schedules
from tests.sim.scope_schedules import drawn, run

pytestmark = pytest.mark.attack(99)

RESIDENT_MAX = 8  # so that most of it waits on disk


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residents, "RESIDENT_MAX", RESIDENT_MAX)


def options(seed: int) -> dict[str, Any]:
    return {"far": seed % 3 == 2, "seed": seed}


@pytest.mark.parametrize("seed", [*range(8), *slow(range(8, 24))])
def test_each_record_comes_once_or_is_counted_whatever_the_owner_changes(seed: int) -> None:
    assert run(drawn(seed), **options(seed)) is None, scope_schedules.shrunk(drawn(seed), **options(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", range(100, 900, 100))
def test_each_record_comes_once_or_is_counted_in_many_schedules(seeds: int) -> None:
    for seed in range(seeds, seeds + 100):
        found = run(drawn(seed), **options(seed))
        assert found is None, (seed, found, scope_schedules.shrunk(drawn(seed), **options(seed)))


DIVIDED = [("dark", 0), ("batch", 4), ("batch", 4), ("scopes", 2), ("die", 0), ("heal", 0), ("flow", 0)]
SENT = [("batch", 4), ("dark", 0), ("scopes", 2), ("heal", 0), ("flow", 0)]
KEPT = [
    ("dark", 0), ("qos2", 5), ("rights", 2), ("heal", 0), ("flow", 0), ("dark", 0), ("rights", 0), ("die", 0),
    ("heal", 0), ("flow", 0),
]  # fmt: skip
PARTLY_SEALED = [
    ("dark", 0), ("qos2", 3), ("rights", 2), ("scopes", 2), ("die", 2), ("die", 2), ("scopes", 0), ("rights", 0),
]  # fmt: skip
READ = [
    ("qos2", 0), ("go", 0), ("go", 1), ("read", 0), ("read", 1), ("store", 0), ("dark", 0), ("rights", 3), ("die", 0),
    ("scopes", 2), ("rights", 0),
]  # fmt: skip


def test_what_is_divided_comes_once_over_restarts() -> None:
    assert run(DIVIDED) is None
    assert run(KEPT) is None


@pytest.mark.attack(120)
def test_what_waits_beside_sealed_parts_may_change_its_scope_over_restarts() -> None:
    """At QoS 2 a part goes, and others wait for a right while the gateway is killed: these were never sealed."""
    assert run(PARTLY_SEALED) is None


def test_what_a_reader_has_at_qos_2_does_not_come_again_by_another_scope_over_restarts() -> None:
    assert run(READ) is None


@pytest.mark.attack(120)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_goes_whole_into_another_scope_comes_once_over_restarts(seed: int) -> None:
    moved = [("dark", 0), ("scopes", 2), ("pub", 1), ("scopes", 0), ("heal", 0), ("die", 0)]
    assert run(moved, **options(seed)) is None


def test_order_counts_by_the_scope_that_brought_a_record() -> None:
    """One of QoS 2 waits for its scope, which then takes again what went by another, and before it."""
    back = [("pub", 1), ("dark", 0), ("scopes", 4), ("batch", 3), ("heal", 0), ("cut", 1), ("scopes", 5), ("die", 0)]
    assert run(back, seed=5241) is None


def forget_the_homeless(self: Publisher, entries: Any, now: float, late: bool = False) -> list[Effect]:
    there = [entry for entry in entries if self.sealer.secret_of(entry[2]) is not None]
    gone = [entry[0] for entry in entries if entry not in there]
    return [*([Forget(tuple(gone))] if gone else []), *TAKE(self, there, now, late)]


def backwards(self: Unpacked, publisher: str, sealed_ms: int, late: bool, replayed: bool) -> list[Effect]:
    return DELIVERED(self, publisher, sealed_ms, late, replayed)[::-1]


def forget_at_a_change(self: Publisher, overlay: Any, secrets: Any, now: float) -> list[Effect]:
    return [*ADOPT(self, overlay, secrets, now), *self._forget_entries(list(self._entries))]


def whole_runs(self: SealedBefore, sequence: int) -> bool:
    return sequence // RUN_NUMBERS in self._former


TAKE, ADOPT, DELIVERED = Publisher.take_entries, Publisher.adopt_overlay, Unpacked.delivered
MUTANTS: dict[str, tuple[type, str, Any, list[tuple[str, int]]]] = {
    "what no scope takes is forgotten": (Publisher, "take_entries", forget_the_homeless, DIVIDED),
    "what was sent is forgotten at a change": (Publisher, "adopt_overlay", forget_at_a_change, SENT),
    "the same with QoS 2": (Publisher, "adopt_overlay", forget_at_a_change, [("qos2", 4), *SENT[1:]]),
    "parts are not on disk": (Cuts, "changed_rows", lambda *_: [], KEPT),
    "what was not sealed at QoS 2 counts as sealed": (SealedBefore, "may_be", whole_runs, PARTLY_SEALED),
    "what was sealed at QoS 2 is not remembered": (SealedBefore, "may_be", lambda *_: False, READ),
    "records of a batch come in another order": (Unpacked, "delivered", backwards, DIVIDED),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_publisher_that_breaks_a_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, faulty, steps = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, faulty)
    assert run(steps)
