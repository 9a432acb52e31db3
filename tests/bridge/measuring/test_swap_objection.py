"""Whether a replica agrees to a swap: an organiser that means harm gets nothing from honest ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from bridge.document import Organising, Overlay, SignedSwap, SwapNews
from bridge.measuring import ReplicaSummary, objection
from tests.bridge.measuring.test_swap_proposal import EVERYWHERE, INTERVAL, ROW, interests, said
from tests.sim.organised_world import BOSS, agreed, swap_on
from tests.sim.world import NOW, World
from tests.support.regions import organising, row_of_regions

pytestmark = pytest.mark.attack(71)

GRACE_S = 5
UP = ("r1a", "r1b", "r4a", "r4b")
GOOD = ((1, 4), (2, 3))


def with_organiser(links: Sequence[tuple[int, int]] = ((4, 1),), **changes: object) -> World:
    rules = replace(Organising(tuple(links), organiser=BOSS, grace_s=GRACE_S), **changes)  # type: ignore[arg-type]
    return organising(rules, row_of_regions, 4, {"g1": 1, BOSS: 2}, [EVERYWHERE])


def told(made: World, **changes: object) -> list[ReplicaSummary]:
    return [said(made, name, **changes) for view in made.overlay.views.values() for name in view.members]


def why(
    made: World, swap: SignedSwap, region: int = 2, up: Collection[str] = UP, words: list[ReplicaSummary] | None = None,
    now: float = NOW, overlay: Overlay | None = None,
) -> str:  # fmt: skip
    overlay = (overlay or made.overlay).hears(SwapNews((swap,)), now)
    words = told(made) if words is None else words
    wanted = interests(made, 1, 4, interval=words[0].interval) if words else []
    return objection(overlay, region, swap, [*words, *wanted], up, now)


def test_what_spares_is_agreed_to_by_who_has_the_lanes() -> None:
    made = with_organiser()
    swap = swap_on(made.overlay, made, *GOOD)
    for region in (1, 2, 3, 4):
        assert why(made, swap, region) == ""
    for region, up in ((1, ("r4a",)), (4, ("r1a",)), (1, ("r2a", "r2b", "r4c"))):
        assert "1 replicas of region-" in why(made, swap, region, up)
    assert why(made, swap, 2, ()) == "", "only the ends have lanes of it"


def test_outside_the_owners_links_nothing_is_agreed_to_however_good() -> None:
    made = with_organiser(links=())
    assert why(made, swap_on(made.overlay, made, *GOOD)) == "the link is none of the owner's"


def costing(made: World, direct_us: int) -> list[ReplicaSummary]:
    """Where the new link takes so long there and back; the slow one of the row takes 90 ms."""
    rtt_us = {(1, 2): 2_000, (2, 3): 90_000, (3, 4): 2_000, (1, 4): direct_us}
    return [
        replace(
            word,
            links=tuple(sorted((sum(edge) - word.region, us) for edge, us in rtt_us.items() if word.region in edge)),
        ).signed(made.identities[word.member])
        for word in told(made)
    ]


@pytest.mark.parametrize(("removed", "direct_us"), [((1, 2), 60_000), ((3, 4), 60_000), ((2, 3), 95_000)])
def test_harm_is_not_agreed_to(removed: tuple[int, int], direct_us: int) -> None:
    made = with_organiser()
    found = why(made, swap_on(made.overlay, made, (1, 4), removed), words=costing(made, direct_us))
    assert found.startswith("it spares -")


@pytest.mark.parametrize(("min_gain_percent", "agreed"), [(10, True), (26, True), (27, False), (99, False)])
def test_half_of_the_gain_is_enough_and_less_is_not(min_gain_percent: int, agreed: bool) -> None:
    """By these words it spares 13.3 %."""
    made = with_organiser(min_gain_percent=min_gain_percent)
    found = why(made, swap_on(made.overlay, made, *GOOD), words=costing(made, 80_000))
    assert found == "" if agreed else "are asked for" in found


def test_where_any_gain_is_enough_none_is_not() -> None:
    made = with_organiser(min_gain_percent=0)
    swap = swap_on(made.overlay, made, *GOOD)
    assert why(made, swap, words=costing(made, 90_000)) == ""
    assert why(made, swap, words=costing(made, 95_000)).startswith("it spares -")


def test_of_what_nobody_knows_enough_nothing_is_agreed_to() -> None:
    made = with_organiser()
    swap = swap_on(made.overlay, made, *GOOD)
    assert why(made, swap, words=[]) == "too little is known of what publications cost"
    silent = [word for word in told(made) if word.member not in ("r3a", "r3b")]
    assert why(made, swap, words=silent) == "too little is known of what publications cost"


@pytest.mark.invariant(69)
def test_liars_move_no_verdict() -> None:
    """f of each region say that the link costs nothing, or everything."""
    made = with_organiser()
    for us in (0, 4_000_000_000):
        words = [
            said(made, word.member, links=tuple((r, us) for r in range(1, 5) if r != word.region))
            if word.member[-1] == "c"
            else word
            for word in costing(made, 60_000)
        ]
        assert why(made, swap_on(made.overlay, made, *GOOD), words=words) == ""
        assert "it spares -" in why(made, swap_on(made.overlay, made, (1, 4), (1, 2)), words=words)


def test_who_does_not_organise_is_not_agreed_to() -> None:
    made = with_organiser()
    swap = swap_on(made.overlay, made, *GOOD)
    heard = made.overlay.hears(SwapNews((swap,)), NOW)
    organising = made.overlay.policy.organising
    assert organising is not None
    other = made.with_policy(organising=replace(organising, organiser="g1"))
    for overlay in (other, made.with_policy(organising=None)):
        assert objection(overlay, 2, swap, told(made), UP, NOW) == "boss does not organise"
    late = swap.certificate.not_after_ms / 1000 + 1
    assert objection(heard, 2, swap, told(made), UP, late) == "boss does not organise"


def test_the_former_tree_stays_open_for_as_long_as_the_owner_says() -> None:
    made = with_organiser()
    assert "would stay open for 1 s, not 5" in why(made, swap_on(made.overlay, made, *GOOD, grace_s=1))


def test_a_barred_link_and_a_tree_that_rests() -> None:
    made = with_organiser()
    organising = made.overlay.policy.organising
    assert organising is not None
    barred = with_organiser()
    barred.overlay = barred.with_policy(organising=organising.with_bar((1, 4), NOW - 10))
    assert why(barred, swap_on(barred.overlay, barred, *GOOD)) == "the link is barred"
    resting = with_organiser()
    tree = resting.overlay.policy.tree.followed_by(((1, 2), (2, 4), (3, 4)), int((NOW - 300) * 1000), 2, 60)
    resting.overlay = resting.with_policy(tree=tree)
    assert why(resting, swap_on(resting.overlay, resting, *GOOD)) == "the tree rests"
    later = told(resting, interval=INTERVAL + 6)
    swap = swap_on(resting.overlay, resting, *GOOD, NOW + 301)
    assert why(resting, swap, words=later, now=NOW + 301) == ""


def test_an_edge_that_carries_nothing_is_taken_back_at_once() -> None:
    made = with_organiser(links=((3, 2),))
    tree = made.overlay.policy.tree.followed_by(ROW, int(NOW * 1000), 2, 60)
    made.overlay = made.with_policy(edges=((1, 2), (3, 4), (1, 4)), tree=tree)

    def words(broken: bool) -> list[ReplicaSummary]:
        found = []
        for word in told(made, interval=INTERVAL + 1, tree=1):
            links = tuple((r, us) for r, us in word.links if not broken or {r, word.region} != {1, 4})
            found.append(replace(word, links=links).signed(made.identities[word.member]))
        return found

    back = swap_on(made.overlay, made, (2, 3), (1, 4), NOW + 70)
    up = ("r2a", "r2b", "r3a", "r3b")
    assert why(made, back, 2, up, words(True), NOW + 70) == ""
    assert "linked" in why(made, back, 2, (), words(True), NOW + 70), "what comes back has to carry something"
    assert why(made, back, 2, up, words(False), NOW + 70) == "the tree rests"


@pytest.mark.attack(86)
def test_three_trees_never_come_within_one_grace_whatever_swaps_state() -> None:
    """One that states a time long ago, or that liars held back, has rested at once; its former tree is open here."""
    made = with_organiser(links=((4, 1), (2, 4)), dwell_s=5, interval_s=2)
    first = swap_on(made.overlay, made, *GOOD, NOW - 115)
    overlay = made.overlay.hears(agreed(made, first, (1, 2, 3, 4)), NOW)
    back = swap_on(overlay, made, (2, 3), (1, 4), NOW)
    assert why(made, back, overlay=overlay, now=NOW + 1) == "the tree before is open still"
    closed = overlay.as_of(NOW + 2 + GRACE_S)
    assert why(made, back, overlay=closed, now=NOW + 2 + GRACE_S) != "the tree before is open still"
