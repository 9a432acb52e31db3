"""What a member may publish, at a replica: by two clocks behind its region, never dropped in it."""

from __future__ import annotations

import base64

import pytest

from bridge.contract import Count, Delay, Effect, PublisherGuard, Wire
from bridge.contract.publisher_guard import ARRIVAL_FACTOR, BURST_S
from bridge.document import MEMBER_BUDGETS, MemberBudgets
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY
from tests.bridge.helpers import NOW

SITE, OTHER = b"s" * 16, b"o" * 16
FORWARDED: list[Effect] = [Count("forwarded")]


def wire(publisher: bytes = SITE, sealed_s: float = NOW, content: bytes = b"") -> Wire:
    """What a replica reads of a header: whose, and when it was sealed."""
    header = bytes(4) + publisher + bytes(32) + int(sealed_s * 1000).to_bytes(8) + bytes(21)
    return Wire("t", content, properties=((PROPERTY_HEADER, base64.urlsafe_b64encode(header).decode()),))


def passed(guard: PublisherGuard, told: Wire, now: float) -> bool:
    if guard.closed(told, now):
        return False
    assert guard.charge(told, FORWARDED, now, across=True) == []
    return True


@pytest.mark.long
@pytest.mark.attack(9)
def test_a_flood_at_default_budgets_ends_at_what_a_replica_carries_and_costs_nobody_else() -> None:
    """Attack: a stolen key signs 12,000 batches a second for ten seconds, and so many more at once."""
    guard, through = PublisherGuard(MEMBER_BUDGETS), 0
    burst = MEMBER_BUDGETS.batches * int(BURST_S)
    for _ in range(burst + 5_000):
        through += passed(guard, wire(), NOW)
    assert through == burst
    through = 0
    for number in range(30_000):
        at = NOW + number / 12_000
        through += passed(guard, wire(sealed_s=at), at)
    assert through == pytest.approx(2.5 * MEMBER_BUDGETS.batches, rel=0.01)
    assert passed(guard, wire(OTHER), NOW)


def test_a_time_to_come_brings_nothing_forward_and_one_that_is_past_no_more_than_arrival_allows() -> None:
    guard = PublisherGuard(MemberBudgets(batches=10))
    ahead = [passed(guard, wire(sealed_s=NOW + number), NOW) for number in range(100)]
    assert sum(ahead) == 10 * BURST_S
    guard = PublisherGuard(MemberBudgets(batches=10))
    past = [passed(guard, wire(sealed_s=NOW - 1000 + number), NOW) for number in range(500)]
    assert sum(past) == 10 * BURST_S * ARRIVAL_FACTOR
    assert passed(guard, wire(sealed_s=NOW - 400), NOW + 1)


@pytest.mark.attack(37)
def test_what_a_bad_neighbour_replays_after_a_restart_uses_up_nothing_of_what_is_published_now() -> None:
    """Attack: all that the publisher sealed in the hour before, verified and new to a replica that forgot it."""
    guard, through = PublisherGuard(MemberBudgets(batches=10)), []
    for number in range(1_000):
        at = NOW + number / 100
        passed(guard, wire(sealed_s=NOW - 3600 + number), at)
        if number % 10 == 0:
            through.append(passed(guard, wire(sealed_s=at), at))
    assert all(through)


def test_who_forges_a_time_of_somebody_in_debt_pays_none_of_it_back() -> None:
    guard = PublisherGuard(MemberBudgets(batches=1))
    while passed(guard, wire(), NOW):
        pass
    for _ in range(10):
        assert not guard.closed(wire(sealed_s=NOW + 9), NOW + 9)  # it is read, and found forged: nothing is charged
    assert guard.closed(wire(), NOW + 9)


def test_at_home_everything_is_passed_on_and_acknowledged_when_it_is_paid() -> None:
    guard = PublisherGuard(MemberBudgets(batches=10, sealed_bytes=1_000))
    found = [guard.charge(wire(), FORWARDED, NOW, across=False) for _ in range(60)]
    assert found[:40] == [[]] * 40
    assert found[40] == [Count("publisher_delayed"), Delay(0.1)]
    assert found[-1] == [Count("publisher_delayed"), Delay(2.0)]
    (_, later) = guard.charge(wire(content=bytes(5_000)), FORWARDED, NOW + 3, across=False)
    assert later == Delay(1.0), "four seconds' worth of bytes at once, and a thousand more"
    assert guard.charge(wire(), [Count("duplicates_dropped")], NOW + 3, across=False) == []


@pytest.mark.parametrize("first_across", [True, False])
def test_at_home_a_neighbour_may_bring_what_the_publisher_sends_as_well(first_across: bool) -> None:
    """By planes, replicas of one region pass on to each other: these have an account of their own."""
    guard = PublisherGuard(MemberBudgets(batches=10))
    for number in range(60):
        guard.charge(wire(), FORWARDED, NOW, across=first_across is (number < 30))
    assert guard.charge(wire(), FORWARDED, NOW, across=False) == [], "half of it was the neighbour's"
    while passed(guard, wire(), NOW):
        pass
    assert guard.charge(wire(), FORWARDED, NOW, across=False) == [], "and drops nothing of the publisher's"


def test_new_keys_are_paid_for_too() -> None:
    guard = PublisherGuard(MemberBudgets(keys=2))
    key = base64.urlsafe_b64encode(bytes(3) + SITE + bytes(9)).decode()
    alone = Wire("k", b"", properties=((PROPERTY_KEY, key),))
    found = [guard.charge(alone, [Count("data_keys")], NOW, across=False) for _ in range(9)]
    assert [bool(effects) for effects in found] == [False] * 8 + [True]


def test_a_wire_that_names_nobody_costs_nobody_anything() -> None:
    guard = PublisherGuard(MEMBER_BUDGETS)
    for told in ("", "!", "AAAA"):
        assert not guard.closed(Wire("t", b"", properties=((PROPERTY_HEADER, told),)), NOW)


def test_other_budgets_and_members_that_left_begin_anew() -> None:
    guard = PublisherGuard(MemberBudgets(batches=1))
    while passed(guard, wire(), NOW):
        pass
    guard.adopt_budgets(MemberBudgets(batches=1), [SITE])
    assert guard.closed(wire(), NOW)
    guard.adopt_budgets(MemberBudgets(batches=1), [OTHER])
    assert not guard.closed(wire(), NOW)
    while passed(guard, wire(), NOW):
        pass
    guard.adopt_budgets(MemberBudgets(batches=2), [SITE])
    assert not guard.closed(wire(), NOW)
