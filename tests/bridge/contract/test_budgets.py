"""Fair bounds: a flooder pays itself, repetitions are told from new sealings, allowances refill."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract.budgets import (
    REFUSED_BURST,
    RESEALED_MAX,
    Allowance,
    Budget,
    Deferrals,
    FairBudget,
    FairTable,
    LinkGuard,
    Repeats,
)
from bridge.contract.machine import Count
from tests.sim.world import NOW


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "pop", "touch"]), st.integers(0, 12), st.sampled_from([b"a", b"b", b"c"]))
    )
)
def test_a_table_keeps_its_bound_and_takes_only_from_the_greediest(steps: list[tuple[str, int, bytes]]):
    table: FairTable[int, bytes] = FairTable(5)
    model: dict[int, bytes] = {}
    for what, key, owner in steps:
        if what == "pop":
            assert table.pop(key) == model.pop(key, None)
        elif what == "touch":
            if key in model:
                table.touch(key)
        else:
            gone = table.put(key, owner, owner)
            model[key] = owner
            if gone is not None:
                sizes = [list(model.values()).count(o) for o in (b"a", b"b", b"c")]
                assert list(model.values()).count(gone[1]) == max(sizes)
                assert model.pop(gone[0]) == gone[1]
        assert len(table) == len(model) <= 5
        assert all(table.get(k) == v for k, v in model.items())
        assert sorted(table.values()) == sorted(model.values())


def test_the_oldest_of_the_greediest_goes_and_use_makes_new():
    table: FairTable[str, int] = FairTable(4)
    for key in ("a1", "a2", "a3", "b1"):
        table.put(key, key[:1].encode(), 0)
    table.touch("a1")
    assert table.put("b2", b"b", 0) == ("a2", 0)


def test_a_repetition_and_a_new_sealing():
    repeats = Repeats()
    assert not repeats.seen(5, 100)
    assert repeats.seen(5, 100)
    assert not repeats.seen(5, 101)
    assert repeats.seen(5, 100)
    assert repeats.seen(5, 101)


@pytest.mark.attack(58)
def test_what_a_later_life_sealed_is_new_whatever_its_clock_says():
    repeats = Repeats()
    sealings = [(200, (1, 1)), (100, (2, 1)), (100, (2, 2))]
    for sealing in sealings:
        assert not repeats.knows_sealing(5, *sealing)
        assert not repeats.seen(5, *sealing)
    for sealing in (*sealings, *sealings[::-1]):
        assert repeats.knows_sealing(5, *sealing)
        assert repeats.seen(5, *sealing), "nobody makes one news by the other"


def test_only_recent_sequences_may_be_sealed_anew():
    repeats = Repeats()
    for sequence in range(1, RESEALED_MAX + 2):
        repeats.seen(sequence, 100)
    assert repeats.seen(1, 101)
    assert not repeats.seen(2, 101)


def test_an_allowance_refills_with_time_up_to_its_burst():
    allowance = Allowance(2, 10.0, 0.0)
    assert [allowance.spend_one(0.0) for _ in range(3)] == [True, True, False]
    assert [allowance.spend_one(10.0), allowance.spend_one(10.0)] == [True, False]
    assert [allowance.spend_one(1000.0) for _ in range(3)] == [True, True, False]
    assert not allowance.spend_one(500.0), "a clock that goes back gives nothing"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 30)), max_size=40))
def test_a_budget_gives_no_more_than_its_burst_and_rate(steps: list[tuple[float, float]]):
    """Whoever spends while it is open gets burst + rate * time, the one spending that emptied it, and what each
    spending took beyond the debt that is remembered: one burst."""
    budget, now, spent, most = Budget(2.0, 10.0, 0.0), 0.0, 0.0, 0.0
    for wait_s, cost in steps:
        now += wait_s
        if budget.has_tokens(now):
            budget.spend(cost, now)
            spent += cost
            most = max(most, cost)
    assert spent <= 10.0 + 2.0 * now + most + max(0.0, most - 10.0) * len(steps) + 1e-6


def test_debt_is_bounded_so_that_a_link_recovers():
    budget = Budget(1.0, 10.0, 0.0)
    assert not budget.spend(1e9, 0.0)
    assert not budget.has_tokens(9.9)
    assert budget.has_tokens(10.1)
    assert budget.has_tokens(5.0), "a clock that goes back takes nothing"


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.floats(0, 3)), max_size=200))
def test_what_owners_share_gives_together_no_more_than_its_burst_and_rate(steps: list[tuple[bytes, float]]):
    budget, now, given_out = FairBudget(2.0, 10.0, 0.0), 0.0, 0
    for owner, passed in steps:
        now += passed
        given_out += budget.spend_one(owner, now)
        assert given_out <= 10 + 2 * now


def test_whoever_spends_most_of_what_is_shared_waits_and_who_spent_nothing_does_not():
    budget = FairBudget(30.0, 90.0, 0.0)
    greedy = (b"a", b"b", b"c", b"d")
    for second in range(20):
        while sum(budget.spend_one(owner, float(second)) for owner in greedy):
            pass
        assert sum(budget.spend_one(b"late", float(second)) for _ in range(5)) == 5
    taken = [0, 0, 0, 0]
    for _ in range(100):
        taken = [before + budget.spend_one(owner, 30.0) for before, owner in zip(taken, greedy, strict=True)]
    assert max(taken) - min(taken) <= 1
    assert sum(taken) == 72, "and a fifth is left for others"


def test_a_neighbour_that_left_is_forgotten():
    guard = LinkGuard()
    for _ in range(int(REFUSED_BURST) + 1):
        guard.charge("liar", [Count("refused", 1, "BadFrame")], 0.0)
    assert guard.closed("liar", (), 0.0)
    assert not guard.closed("other", (), 0.0)
    guard.forget_all_but(["other"])
    assert not guard.closed("liar", (), 0.0)


@pytest.mark.attack(118)
def test_a_budget_of_a_clock_that_is_set_back_goes_on_from_there():
    for back_s in (1.0, 7200.0):
        budget, shared = Budget(10, 10, 10_000.0), FairBudget(10, 10, 10_000.0)
        assert not budget.spend(10, 10_000.0)
        while shared.spend_one(b"one", 10_000.0):
            pass
        now = 10_000.0 - back_s
        assert not budget.has_tokens(now), "it gives nothing"
        assert not shared.spend_one(b"one", now)
        assert budget.has_tokens(now + 0.5)
        assert shared.spend_one(b"one", now + 0.5)


@pytest.mark.attack(118)
def test_who_goes_back_and_forth_in_signed_times_gains_nothing():
    budget = Budget(10, 10, 0.0, signed=True)
    for _ in range(5):
        budget.spend(10, 0.0)
        budget.spend(10, 1.0)
    assert budget.tokens_left <= -10


@pytest.mark.attack(138)
def test_what_comes_too_often_is_due_later_once_and_by_name():
    deferrals: Deferrals[str] = Deferrals(2, 10.0)
    assert [deferrals.spend_one("a", NOW) for _ in range(4)] == [True, True, False, False]
    assert deferrals.spend_one("b", NOW)
    assert deferrals.next_deadline == NOW + 10
    assert deferrals.due_keys(NOW + 9) == []
    assert deferrals.due_keys(NOW + 10) == ["a"]
    assert deferrals.next_deadline is None
    assert deferrals.spend_one("a", NOW + 10), "who is due may"
    assert not deferrals.spend_one("a", NOW + 11)
    deferrals.drop_key("a")
    assert deferrals.due_keys(NOW + 99) == []
    deferrals.forget_unless(lambda name: name == "b")
    assert len(deferrals) == 1


@given(st.lists(st.floats(0, 30), min_size=1, max_size=60), st.floats(0.1, 100))
def test_who_is_due_is_never_postponed_again(steps: list[float], every_s: float):
    deferrals: Deferrals[str] = Deferrals(2, every_s)
    now = 1.8e9
    for step in steps:
        now += step
        if not deferrals.spend_one("a", now):
            at = deferrals.next_deadline
            assert at is not None
            assert now <= at <= now + every_s
            assert deferrals.due_keys(at) == ["a"]
            assert deferrals.spend_one("a", at), "else its deadline would come again at once, for ever"
            now = at


def test_a_clock_that_was_set_back_postpones_for_no_longer_than_one_interval():
    deferrals: Deferrals[str] = Deferrals(1, 10.0)
    deferrals.spend_one("a", NOW)
    deferrals.spend_one("a", NOW)
    assert deferrals.due_keys(NOW - 3600) == ["a"]
