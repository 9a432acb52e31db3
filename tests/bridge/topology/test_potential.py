"""Who measures links that could be: pairs by place, both ways, and every replica has one."""

from __future__ import annotations

import pytest

from bridge.document import OverlayError
from bridge.document.organise import Organising
from bridge.topology import peers_of, potential_peers
from tests.sim.world import World, make_world


def regions_by(links: tuple[tuple[int, int], ...] | None, sizes: dict[int, int] | None = None) -> World:
    made = make_world(sizes or {1: 3, 2: 3, 3: 5}, [(1, 2), (2, 3)], {"g1": 1})
    if links is not None:
        made.overlay = made.with_policy(organising=Organising(links))
    return made


def test_pairs_are_the_same_from_both_ends_and_nobody_is_left_out() -> None:
    overlay = regions_by(((1, 3),)).overlay
    pairs = {(a, b) for a in overlay.members for b in potential_peers(overlay, a)}
    assert pairs == {(b, a) for a, b in pairs}
    ours, theirs = overlay.views[1].members, overlay.views[3].members
    assert {a for a, _ in pairs} == {*ours, *theirs}
    assert potential_peers(overlay, theirs[0]) == {ours[0]}
    assert potential_peers(overlay, theirs[3]) == {ours[0]}
    for name in (*ours, *theirs):
        assert potential_peers(overlay, name) < peers_of(overlay, name)


def test_what_is_joined_already_is_measured_anyway() -> None:
    overlay = regions_by(((1, 2), (2, 3))).overlay
    assert not any(potential_peers(overlay, name) for name in overlay.members)
    assert not any(potential_peers(regions_by(None).overlay, name) for name in overlay.members)


@pytest.mark.parametrize("links", [((1, 9),), ((2, 2),)])
def test_links_join_two_regions_that_there_are(links: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(OverlayError, match="does not join two regions"):
        regions_by(links)
