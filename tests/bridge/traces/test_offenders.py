"""What a client may cost a tracing broker, and when it is sent away."""

from __future__ import annotations

import pytest

from bridge.contract import Count
from bridge.traces.offenders import BOGUS_MAX, BUDGETS, CLIENTS_MAX, Complain, Offenders, SendAway
from keys.errors import BadFrame, BadSignature, TooOften

NOW = 1_000.0


def test_what_does_not_hold_is_counted_by_its_cause_said_once_and_ends_a_client() -> None:
    offenders = Offenders()
    charged = [offenders.charge("spy", "traces_refused", BadSignature("forged")) for _ in range(BOGUS_MAX)]
    assert all(each[0] == Count("traces_refused", 1, "BadSignature") for each in charged)
    assert charged[0][1:] == [Complain("spy", "forged")]
    assert all(len(each) == 1 for each in charged[1:-1])
    assert charged[-1][1:] == [SendAway("spy", "forged")]
    again = offenders.charge("spy", "traces_refused", BadFrame("again"))
    assert again[1:] == [Complain("spy", "again")], "it begins anew if it comes back"


def test_figures_of_different_kinds_are_one_account_and_clients_are_not() -> None:
    offenders = Offenders()
    for place in range(BOGUS_MAX - 1):
        offenders.charge("spy", ("traces_refused", "discoveries_refused")[place % 2], BadFrame("x"))
        assert not any(isinstance(e, SendAway) for e in offenders.charge(f"c{place}", "traces_refused", BadFrame("x")))
    assert isinstance(offenders.charge("spy", "discoveries_refused", BadFrame("x"))[-1], SendAway)


def test_what_other_brokers_bring_ends_nobody() -> None:
    offenders = Offenders()
    for _ in range(3 * BOGUS_MAX):
        assert offenders.charge("", "traces_refused", BadFrame("x")) == [Count("traces_refused", 1, "BadFrame")]


FIGURES = [("discovery", 5_000, 0.005), ("creation", 20, 1.0), ("pattern", 20, 5.0), ("interest", 20_000, 0.001),
           ("knock", 5_000, 0.005)]  # fmt: skip


@pytest.mark.parametrize(("what", "most", "every_s"), FIGURES)
def test_a_budget_is_used_up_and_comes_back_with_time(what: str, most: int, every_s: float) -> None:
    assert len(BUDGETS) == len(FIGURES)
    offenders = Offenders()
    for _ in range(most):
        offenders.afford("desk", what, NOW)
    with pytest.raises(TooOften):
        offenders.afford("desk", what, NOW)
    offenders.afford("other", what, NOW)
    with pytest.raises(TooOften):
        offenders.afford("desk", what, NOW + 0.9 * every_s)
    offenders.afford("desk", what, NOW + 1.1 * every_s)


def test_memory_is_bounded_by_clients() -> None:
    offenders = Offenders()
    for place in range(CLIENTS_MAX + 50):
        offenders.charge(f"c{place}", "traces_refused", BadFrame("x"))
        offenders.afford(f"c{place}", "creation", NOW)
    assert len(offenders._bogus) == len(offenders._budgets) == CLIENTS_MAX


def test_who_was_quiet_longest_is_forgotten_and_who_goes_on_is_not() -> None:
    offenders = Offenders()
    for client in ("quiet", "flooder"):
        for _ in range(20):
            offenders.afford(client, "creation", NOW)
        for _ in range(BOGUS_MAX - 1):
            offenders.charge(client, "traces_refused", BadFrame("x"))
    for place in range(CLIENTS_MAX - 1):
        offenders.afford(f"c{place}", "creation", NOW)
        if place == CLIENTS_MAX // 2:
            with pytest.raises(TooOften):
                offenders.afford("flooder", "creation", NOW)
    with pytest.raises(TooOften):
        offenders.afford("flooder", "creation", NOW)
    offenders.afford("quiet", "creation", NOW)
