"""Who pays for searches in vain, how long, and that paying ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.reader import key_opening
from bridge.reader.key_opening import BURST_S, PAUSE_MAX_S, STEP_S, SearchDebts

EVIL, SITE = b"evil", b"site"


def test_a_small_debt_delays_nothing_and_a_large_one_until_it_is_paid() -> None:
    debts = SearchDebts()
    debts.in_vain(EVIL, int(BURST_S / STEP_S), 10.0)
    assert debts.free_at(EVIL, 10.0) == 10.0
    debts.in_vain(EVIL, 1000, 10.0)
    assert abs(debts.free_at(EVIL, 10.0) - (10.0 + 1000 * STEP_S)) < 1e-9
    assert debts.free_at(EVIL, 11.0) == 11.0
    assert debts.free_at(SITE, 10.0) == 10.0


def test_each_refuted_key_costs_twice_the_last_until_one_opens() -> None:
    debts, now, waits = SearchDebts(), 0.0, []
    for _ in range(6):
        debts.refuted(EVIL, 1000, now)
        waits.append(debts.free_at(EVIL, now) - now + BURST_S)
        now += 100.0
    assert [round(later / first) for first, later in pairwise(waits)] == [2] * 5
    debts.note_opened(EVIL)
    debts.refuted(EVIL, 1000, now)
    assert round(debts.free_at(EVIL, now) - now + BURST_S, 6) == round(waits[0], 6)


def test_publishers_who_owe_nothing_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_opening, "KNOWN_MAX", 4)
    debts = SearchDebts()
    for number in range(5):
        debts.in_vain(bytes([number]), 1, 0.0)
    debts.in_vain(b"late", 10, 1.0)
    assert list(debts._until) == [b"late"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100_000), st.floats(0, 100)), max_size=50))
def test_nobody_waits_longer_than_the_longest_pause(history: list[tuple[bool, int, float]]) -> None:
    debts, now = SearchDebts(), 0.0
    for refuted, choices, later_s in history:
        now += later_s
        (debts.refuted if refuted else debts.in_vain)(EVIL, choices, now)
        assert now <= debts.free_at(EVIL, now) <= now + PAUSE_MAX_S
