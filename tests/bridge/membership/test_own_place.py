"""Whether a version has a use for somebody, and whether it can count while we run."""

from __future__ import annotations

from dataclasses import replace

from bridge.membership.own_place import moved, place_of, same_epochs, serves
from keys.epochs import Calendar
from keys.identity import Role
from tests.sim.changing import changed
from tests.sim.world import NOW, make_world

WORLD = make_world({1: 4, 2: 3}, [(1, 2)], {"site": 1})


def test_a_member_serves_and_a_replica_only_in_a_view() -> None:
    assert serves(WORLD.overlay, "site")
    assert serves(WORLD.overlay, "r1a")
    assert not serves(WORLD.overlay, "nobody")
    without = changed(WORLD, WORLD.overlay, 1, ("r1b", "r1c", "r1d"), NOW)
    assert serves(without, "r1a"), "its view is open"
    assert not serves(changed(WORLD, without, 2, without.latest[2].members, NOW + 100), "r1a")


def test_who_is_listed_elsewhere_has_moved() -> None:
    place = place_of(WORLD.overlay, "r1a")
    assert place == (Role.REPLICA, 1)
    assert not moved(WORLD.overlay, "r1a", place)
    assert moved(WORLD.overlay, "r1a", (Role.REPLICA, 2))
    assert not moved(WORLD.overlay, "nobody", place)


def test_another_calendar_takes_a_restart() -> None:
    other = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1}, calendar=Calendar(0, 60, 1, 1, 1)).overlay
    assert same_epochs(WORLD.overlay, WORLD.with_policy())
    assert not same_epochs(WORLD.overlay, other)
    assert same_epochs(
        other, make_world({1: 3}, [], {"s": 1}, calendar=replace(other.policy.calendar, skew_s=2)).overlay
    )
