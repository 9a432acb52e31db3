"""Views from one signed version to the next: how long the former one goes along, and what a description may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.document import RegionView
from gateway.owner.description import RegionEntry
from gateway.owner.views import _described_view, carried, closes_s, leaving, without_strangers
from gateway.trust.errors import TrustError
from gateway.trust.overlay_file import load_overlay
from tests.gateway.owner.test_attaching import GRACE_S, Changing
from tests.support.parties import NOW, on_disk

DESCRIPTION = Path("overlay.yaml")
VIEW = RegionView(1, 3, "north", ("r1", "r2", "r3"), False)


world = on_disk(Changing)


def entry(name: str = "north", trusted: bool = False) -> RegionEntry:
    return RegionEntry.model_validate(
        {"name": name, "trusted": trusted, "members": [{"card": "r1/card.json", "address": "a:1"}]}
    )


def described(names: list[str], previous: RegionView | None = VIEW, **fields: object) -> RegionView:
    return _described_view(DESCRIPTION, entry(**fields), 1, names, previous)  # type: ignore[arg-type]


def test_a_region_that_is_new_begins_with_its_first_view() -> None:
    assert described(["r1", "r2"], None, trusted=True) == RegionView(1, 1, "north", ("r1", "r2"), True)


def test_the_order_of_a_description_changes_no_view() -> None:
    assert described(["r3", "r1", "r2"]) is VIEW


@pytest.mark.parametrize("fields", [{"name": "south"}, {"trusted": True}])
def test_another_name_or_trust_is_a_view_that_takes_a_restart(fields: dict[str, object]) -> None:
    view = described(["r1", "r2", "r3"], **fields)
    assert (view.number, view.members, view.former) == (4, VIEW.members, None)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["r1", "r2"], "r3 is signed and not listed; add its card and address, or let it leave by"),
        (["r1", "r2", "r3", "r4"], "r4 is listed and not signed; let it join by `veilmq overlay attach`"),
        (["r1", "r2", "r4"], "r3 is signed and not listed"),
    ],
)
def test_replicas_come_and_go_by_views_alone(names: list[str], said: str) -> None:
    with pytest.raises(TrustError, match=f"region north: {said}"):
        described(names)


def test_the_former_view_goes_along_until_its_time_is_over_and_the_change_was_seen_in_force(world: Changing) -> None:
    overlay = world.attach()
    assert closes_s(overlay.latest[1]) == pytest.approx(NOW + GRACE_S, abs=1)
    assert [view.former is not None for view in carried(overlay, NOW)] == [True]
    assert carried(overlay, NOW + GRACE_S + 1)[0].former is not None, "no replica endorsed it yet"
    world.endorse("r1", "r2")
    endorsed = load_overlay(world.out, int(NOW * 1000))
    assert carried(endorsed, NOW)[0].former is not None, "its time has not passed"
    assert carried(endorsed, NOW + GRACE_S + 1)[0].former is None


def test_strangers_are_replicas_that_no_view_names_and_who_leaves_stays_listed(world: Changing) -> None:
    overlay = world.attach()
    views = carried(overlay, NOW)
    assert set(without_strangers(overlay, views)) == set(overlay.members)
    assert leaving(overlay, views) == {}
    (before,) = [view.former for view in views if view.former]
    assert "r4" not in before.members
    former_only = [RegionView(1, before.number, "north", before.members, False)]
    assert set(without_strangers(overlay, former_only)) == set(overlay.members) - {"r4"}
    assert "g1" in without_strangers(overlay, []), "only replicas belong to views"
    gone = [RegionView(1, 9, "north", ("r1", "r2", "r3"), False, former=views[0])]
    assert set(leaving(overlay, gone)) == {"r4"}
