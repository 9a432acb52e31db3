"""Views over time as a value: what is open when, what keys may name, and what may follow what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document.overlay import Overlay
from bridge.document.policy import Scope
from bridge.document.region_view import Endorsement
from keys.errors import BadShare, Expired, UnknownView
from keys.sharetree import Hop
from tests.sim.changing import changed, endorsed_by
from tests.sim.world import NOW, World
from tests.support.regions import fresh, row_of_regions

GRACE_S = 60


world = fresh(row_of_regions, 2, {"site": 1}, [Scope("plant/#")])


def attached(world: World, since: float = NOW) -> Overlay:
    return changed(world, world.overlay, 1, ("r1a", "r1b", "r1c", "r1d"), since, GRACE_S)


def numbers(overlay: Overlay, region: int = 1) -> list[int]:
    return [view.number for view in overlay.open_views(region)]


def test_a_first_view_is_in_force_and_never_closes(world: World) -> None:
    overlay = world.overlay
    assert overlay.in_force(1)
    assert numbers(overlay) == [1]
    assert overlay.closes_at(1) is None
    assert overlay.next_closing is None
    assert overlay.as_of(NOW + 1e9) is overlay


def test_the_next_view_waits_for_endorsements_and_nothing_is_changed_in_place(world: World) -> None:
    newer = attached(world)
    assert (newer.in_force(1), numbers(newer), newer.views[1].number) == (False, [1], 1)
    assert newer.replicas(1) == ("r1a", "r1b", "r1c", "r1d"), "links with the newcomer come before its view"
    assert newer.forwarders(1) == ("r1a", "r1b", "r1c")
    one = newer.endorsed(endorsed_by(world, newer, 1, "r1a"), NOW + 5)
    assert (one.endorsers(1), one.in_force(1)) == ({"r1a"}, False)
    assert one.endorsed(endorsed_by(world, newer, 1, "r1a"), NOW + 6) is one, "no news"
    two = one.endorsed(endorsed_by(world, newer, 1, "r1b"), NOW + 7)
    assert (two.in_force(1), numbers(two), two.views[1].number) == (True, [2, 1], 2)
    assert two.forwarders(1) == ("r1a", "r1b", "r1c", "r1d")
    assert (newer.endorsers(1), one.endorsers(1), numbers(newer), numbers(one)) == (frozenset(), {"r1a"}, [1], [1])


def test_the_view_before_stays_open_from_when_we_knew_of_the_new_one(world: World) -> None:
    newer = attached(world)
    late = NOW + 500  # endorsements may take long
    both = newer.endorsed(endorsed_by(world, newer, 1, "r1a", "r1b"), late)
    assert both.closes_at(1) == both.next_closing == late + GRACE_S
    assert both.closes_at(2) is None
    assert both.as_of(late + GRACE_S - 0.001) is both
    after = both.as_of(late + GRACE_S)
    assert (numbers(after), after.next_closing) == ([2], None)
    assert after.as_of(late + 2 * GRACE_S) is after


def test_who_begins_with_a_view_in_force_counts_from_its_signature(world: World) -> None:
    newer = attached(world)
    document = replace_endorsements(world, newer, endorsed_by(world, newer, 1, "r1a", "r1b"))
    assert document.in_force(1)
    assert document.closes_at(1) == NOW + GRACE_S
    assert numbers(document.as_of(NOW + GRACE_S)) == [2]


def replace_endorsements(world: World, overlay: Overlay, endorsements: tuple[Endorsement, ...]) -> Overlay:
    """As it is read from a file that has them."""
    return Overlay(
        overlay.owner, overlay.policy, overlay.latest.values(), overlay.members.values(), endorsements
    )  # fmt: skip


def test_keys_name_open_views_only(world: World) -> None:
    newer = attached(world)
    both = newer.endorsed(endorsed_by(world, newer, 1, "r1a", "r1b"), NOW)
    closed = both.as_of(NOW + GRACE_S)
    before, after = world.overlay.latest[1].hop, newer.latest[1].hop
    with pytest.raises(UnknownView):
        newer.check_view(after)
    both.check_view(before)
    both.check_view(after)
    with pytest.raises(Expired):
        closed.check_view(before)
    with pytest.raises(BadShare, match="not here"):
        both.check_view(Hop(9, 1, 2, 3))
    for wrong in (replace(after, threshold=1), replace(after, count=5), replace(before, threshold=3)):
        with pytest.raises(BadShare, match="other views"):
            both.check_view(wrong)
    assert (both.view(1, 1), both.view(1, 3)) == (newer.latest[1].former, None)


def test_one_of_f_plus_one_of_one_view_is_honest(world: World) -> None:
    """Liars of two views may be more than f together."""
    newer = changed(world, world.overlay, 1, ("r1a", "r1d", "r1e"), NOW, GRACE_S)
    both = newer.endorsed(endorsed_by(world, newer, 1, "r1a", "r1b"), NOW)
    assert not both.honest_among(1, {"r1b", "r1d"})
    assert not both.honest_among(1, {"r1a"})
    assert not both.honest_among(1, {"r1a", "r2a", "site"})
    assert both.honest_among(1, {"r1a", "r1b"})
    assert both.honest_among(1, {"r1d", "r1e"})


def test_endorsements_count_once_and_of_replicas_of_the_region_only(world: World) -> None:
    newer = attached(world)
    view = newer.latest[1]
    strangers = [Endorsement.sign_view(view, name, world.identities[name]) for name in ("site", "r2a")]
    forged = [replace(endorsed_by(world, newer, 1, "r1a")[0], member="r1b")]
    of_another = [Endorsement.sign_view(world.overlay.latest[1], "r1a", world.identities["r1a"])]
    assert newer.endorsed([*strangers, *forged, *of_another], NOW) is newer
    twice = [*endorsed_by(world, newer, 1, "r1a"), *endorsed_by(world, newer, 1, "r1a")]
    assert len(newer.endorsed(twice, NOW).endorsements) == 1
    unknown = Endorsement.sign_view(replace(view, region=7), "r1a", world.identities["r1a"])
    assert newer.endorsed([unknown], NOW) is newer


def test_what_is_in_force_and_closed_stays_so_in_the_next_version(world: World) -> None:
    newer = attached(world)
    both = newer.endorsed(endorsed_by(world, newer, 1, "r1a", "r1b"), NOW + 5)
    plain = Overlay(both.owner, both.policy, both.latest.values(), both.members.values())
    next_one = plain.following(both, NOW + 6)
    assert (numbers(next_one), next_one.closes_at(1)) == ([2, 1], NOW + 5 + GRACE_S)
    over = plain.following(both.as_of(NOW + 5 + GRACE_S), NOW + 70)
    assert numbers(over) == [2], "what is closed does not open again"
    late = plain.following(both, NOW + 5 + GRACE_S)
    assert numbers(late) == [2], "its time ends in the next version as well"


def test_what_follows_from_a_view_is_the_same_the_next_or_endorsed_by_k_of_it(world: World) -> None:
    old = world.overlay
    second = attached(world)
    assert second.unendorsed(old) == []
    forced = second.endorsed(endorsed_by(world, second, 1, "r1a", "r1b"), NOW)
    third = changed(world, forced, 1, ("r1b", "r1c", "r1d"), NOW + 100, GRACE_S)
    assert third.unendorsed(forced) == []
    assert third.unendorsed(old) == ["region-1"], "two steps at once"
    known = third.endorsed(endorsed_by(world, third, 1, "r1b", "r1c"), NOW + 100)
    assert known.unendorsed(old) == []
    assert old.unendorsed(forced) == ["region-1"], "back to what was before"
    rival = changed(world, old, 1, ("r1a", "r1b", "r1e"), NOW + 1, GRACE_S)
    assert rival.unendorsed(second) == ["region-1"], "a second view of one number"
