"""What follows an entry that was dropped names the one before it."""

from __future__ import annotations

import pytest

from bridge.contract.machine import Publication
from bridge.document import Scope, ScopeSecret
from bridge.publisher import predecessors
from bridge.publisher.predecessors import Predecessors
from bridge.publisher.sealing import Entry


def entry(sequence: int, previous: int, qos: int = 1) -> Entry:
    secret = ScopeSecret(Scope("plant/#"), "plant/#")
    return Entry(sequence, Publication("plant/t", b"", qos), secret, "t", previous, 0.0)


def test_a_run_of_dropped_entries_is_passed_over() -> None:
    before = Predecessors()
    before.drop([entry(2, 1), entry(3, 2), entry(4, 3, qos=0)])
    assert [before[number] for number in (1, 2, 3, 4)] == [1, 1, 1, 4]


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessors, "DROPPED_MAX", 2)
    before = Predecessors()
    before.drop([entry(2, 1), entry(4, 3), entry(6, 5)])
    assert [before[number] for number in (2, 4, 6)] == [2, 3, 5]
