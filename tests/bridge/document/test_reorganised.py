"""Which swaps are in force: k of every region on the cycle, one after the other, whatever was heard first."""

from __future__ import annotations

import base64
import itertools
import random
from dataclasses import replace

import pytest

from bridge.document import OWNER_STEPS, History, Overlay, OverlayError, SwapNews
from bridge.document.policy import Scope
from bridge.document.reorganised import OFFERED_MOST
from bridge.document.swaps import NUMBERS_MOST, SWAPS_MOST
from bridge.document.trees import Phase
from keys.envelope import Mode
from keys.errors import BadSignature, Expired, UnknownView
from tests.sim.changing import changed, regrown
from tests.sim.organised_world import (
    BOSS,
    GRACE_S,
    agreed,
    edge_set,
    edges_of,
    endorsements,
    of_regions,
    organised,
    swap_on,
)  # fmt: skip
from tests.sim.test_trees import SEALED
from tests.sim.world import NOW, World, make_world
from tests.support.regions import fresh

ALL = (1, 2, 3, 4)
ROUND = [((1, 4), (2, 3)), ((2, 3), (1, 2)), ((1, 2), (3, 4)), ((3, 4), (1, 4))]


world = fresh(organised)


def chained(world: World, count: int) -> tuple[Overlay, list[SwapNews]]:
    """So many swaps one after the other, all endorsed."""
    overlay, news = world.overlay, []
    for at in range(count):
        swap = swap_on(overlay, world, *ROUND[at % 4], NOW + 100 * at)
        news.append(agreed(world, swap, ALL))
        overlay = overlay.hears(news[-1], NOW + 100 * at)
        assert overlay.swaps[-1] == swap
    return overlay, news


def reloaded(overlay: Overlay, now: float = NOW) -> Overlay:
    return Overlay.from_document(overlay.to_document(), int(now * 1000), overlay.owner)


@pytest.mark.invariant(67)
def test_a_swap_waits_for_k_of_every_region_on_its_cycle(world: World) -> None:
    swap = swap_on(world.overlay, world, (1, 4), (2, 3))
    overlay = world.overlay.hears(SwapNews((swap,)), NOW)
    assert (overlay.offered, overlay.swaps, overlay.cycle(swap)) == ((swap,), (), (1, 2, 3, 4))
    for name in of_regions(ALL)[:-1]:
        overlay = overlay.hears(SwapNews((), endorsements(world, swap, name)), NOW + 1)
        assert overlay.swaps == ()
    assert overlay.hears(SwapNews((swap,), endorsements(world, swap, "r1a")), NOW + 1) is overlay, "no news"
    there = overlay.hears(SwapNews((), endorsements(world, swap, "r4b")), NOW + 9)
    assert (there.swaps, there.offered) == ((swap,), ())
    assert edges_of(there) == edge_set((1, 2), (3, 4), (1, 4))
    assert (there.trees.phase, there.trees.in_force.number, there.trees.newest.number) == (Phase.SETTLING, 0, 1)
    assert there.as_of(NOW + 11).trees.in_force.number == 1
    assert there.as_of(NOW + 11 + GRACE_S).trees.phase is Phase.ALONE
    with pytest.raises(Expired):
        there.as_of(NOW + 11 + GRACE_S).trees.tree_numbered(0)
    assert there.arrangement.allows((2, 3)), "what went may come back"
    assert not there.arrangement.allows((1, 4))
    assert world.overlay.swaps == overlay.swaps == (), "nothing is changed in place"


@pytest.mark.invariant(67)
@pytest.mark.parametrize("region", ALL)
def test_liars_of_a_region_are_not_enough_for_it(world: World, region: int) -> None:
    """f of one region, and everybody else: what that region's honest ones did not agree to is not in force."""
    swap = swap_on(world.overlay, world, (1, 4), (2, 3))
    others = [each for each in ALL if each != region]
    names = [*of_regions(others, "abc"), f"r{region}a"]
    forged = replace(endorsements(world, swap, f"r{region}a")[0], member=f"r{region}b")
    stranger = endorsements(world, swap, BOSS, "site")
    twice = endorsements(world, swap, *names) * 2
    news = SwapNews((swap,), (*twice, forged, *stranger))
    overlay = world.overlay.hears(news, NOW)
    assert overlay.swaps == ()
    assert overlay.swap_endorsers(swap) == set(names)


@pytest.mark.parametrize(
    ("added", "removed", "changes"),
    [
        ((1, 4), (1, 4), {}),  # which is no edge
        ((1, 2), (2, 3), {}),  # which is one already
        ((1, 4), (2, 4), {}),
        ((1, 1), (2, 3), {}),
        ((1, 9), (2, 3), {}),
        ((1, 3), (3, 4), {}),  # which is not on the cycle: 4 would fall off
        ((1, 4), (2, 3), {"former": bytes(32)}),
        ((1, 4), (2, 3), {"number": 3, "steps": 1}),
        ((1, 4), (2, 3), {"number": NUMBERS_MOST + 1, "steps": NUMBERS_MOST + 1}),
    ],
)
def test_what_is_no_swap_of_this_tree_counts_for_nobody_whoever_endorsed_it(
    world: World, added: tuple[int, int], removed: tuple[int, int], changes: dict[str, object]
) -> None:
    swap = swap_on(world.overlay, world, added, removed, **changes)
    assert world.overlay.hears(agreed(world, swap, ALL, "abc"), NOW) is world.overlay


@pytest.mark.attack(72)
def test_an_inadmissible_tree_is_borne_by_nobody_who_endorses() -> None:
    """A scope of regions 2 and 3 alone would fall apart; and no history is kept on a way of five regions."""
    apart = organised(Scope("shop/#", Mode.PLAIN, regions=(2, 3)))
    swap = swap_on(apart.overlay, apart, (1, 4), (2, 3))
    assert not apart.overlay.hears(SwapNews((swap,)), NOW).bears(swap)
    star = make_world(
        dict.fromkeys(range(1, 6), 3),
        [(1, 2), (1, 3), (1, 4), (4, 5)],
        {BOSS: 1},
        [replace(SEALED, history=History(1, 16))],
    )
    star.overlay = star.with_policy(organising=replace(organised().overlay.policy.organising, links=((3, 5),)))  # type: ignore[type-var]
    long = swap_on(star.overlay, star, (3, 5), (1, 4))
    assert not star.overlay.bears(long)
    fine = swap_on(star.overlay, star, (2, 5), (4, 5))
    assert star.overlay.bears(fine)
    assert star.overlay.hears(agreed(star, fine, (1, 2, 4, 5)), NOW).swaps == (fine,)


def test_a_forged_swap_is_refused_and_one_in_a_document_is_left_out(world: World) -> None:
    swap = swap_on(world.overlay, world, (1, 4), (2, 3))
    forged = replace(swap, signature=bytes(64))
    with pytest.raises(BadSignature):
        world.overlay.hears(agreed(world, forged, ALL), NOW)
    document = world.overlay.hears(agreed(world, swap, ALL), NOW).to_document()
    for wrong in (["no base64!"], [None], "AAAA", None, ["AAAA"], 7):
        assert Overlay.from_document({**document, "swaps": wrong}, int(NOW * 1000)).swaps == ()
        assert Overlay.from_document({**document, "swap_endorsements": wrong}, int(NOW * 1000)).swaps == ()
    del document["swaps"], document["swap_endorsements"]
    assert Overlay.from_document(document, int(NOW * 1000)).swaps == ()


@pytest.mark.attack(73)
def test_a_replayed_old_swap_changes_nothing(world: World) -> None:
    overlay, news = chained(world, 5)
    for old in news:
        assert overlay.hears(old, NOW + 900) is overlay
    again = overlay.as_of(NOW + 1000)
    assert edges_of(again) == edge_set((1, 2), (2, 3), (3, 4)) ^ edge_set((2, 3), (1, 4))


@pytest.mark.attack(74)
def test_a_newcomer_goes_by_the_whole_chain_and_by_a_truncated_one_only_as_far_as_it_reaches(world: World) -> None:
    overlay, news = chained(world, 6)
    document = overlay.to_document()
    newcomer = reloaded(overlay, NOW + 505)
    assert newcomer.swaps == overlay.swaps
    assert newcomer.arrangement == overlay.arrangement
    assert newcomer.trees.newest.edges == overlay.trees.newest.edges
    for missing in range(6):
        swaps = document["swaps"]
        cut = {**document, "swaps": swaps[:missing] + swaps[missing + 1 :]}
        behind = Overlay.from_document(cut, int((NOW + 505) * 1000))
        assert len(behind.swaps) == missing, "what stands on a swap that is missing does not count"
        assert behind.hears(overlay.swap_news, NOW + 506).arrangement == overlay.arrangement
        few = [e for e in document["swap_endorsements"] if e not in _of(news[missing])]
        thin = Overlay.from_document({**document, "swap_endorsements": few}, int((NOW + 505) * 1000))
        assert len(thin.swaps) == missing


def _of(news: SwapNews) -> list[str]:
    """One endorsement of it, as a document has it."""
    return [base64.b64encode(each.encode()).decode() for each in news.endorsements[:1]]


@pytest.mark.attack(73)
@pytest.mark.parametrize("seed", range(6))
def test_all_come_to_the_same_tree_whatever_they_hear_first(world: World, seed: int) -> None:
    """Also where two swaps of one tree get there, as liars that hold back their word can bring about."""
    rng = random.Random(seed)
    first = swap_on(world.overlay, world, (1, 4), (2, 3))
    later = swap_on(world.overlay, world, (2, 4), (2, 3), NOW + 60, number=2, steps=2)
    behind = world.overlay.hears(agreed(world, first, ALL), NOW)
    third = swap_on(behind, world, (2, 3), (1, 2), NOW + 70, number=3, steps=2)
    there = behind.hears(agreed(world, third, ALL), NOW + 71)
    single = [
        SwapNews((swap,), (one,))
        for swap, names in ((first, ALL), (later, (2, 3, 4)), (third, ALL))
        for one in endorsements(world, swap, *of_regions(names))
    ]
    ends = []
    for _ in range(4):
        rng.shuffle(single)
        overlay = world.overlay
        for news in itertools.chain(single, [there.swap_news], single):
            overlay = overlay.hears(news, NOW + 80)  # in between all that somebody has who got there
        ends.append(edges_of(overlay))
    assert all(end == edge_set((1, 4), (2, 3), (3, 4)) for end in ends), "the highest number counts"


@pytest.mark.attack(70)
def test_of_two_of_one_number_all_take_the_same_and_nothing_more_of_the_organiser(world: World) -> None:
    one = swap_on(world.overlay, world, (1, 4), (2, 3))
    other = swap_on(world.overlay, world, (2, 4), (2, 3))
    wins = max(one, other, key=lambda swap: swap.digest)
    for first, second in ((one, other), (other, one)):
        overlay = world.overlay.hears(agreed(world, first, world.overlay.trees.newest.path(*first.added)), NOW)
        assert overlay.proof == ()
        overlay = overlay.hears(agreed(world, second, world.overlay.trees.newest.path(*second.added), "bc"), NOW + 1)
        assert overlay.swaps == (wins,)
        assert {swap.digest for swap in overlay.proof} == {one.digest, other.digest}
        more = swap_on(overlay, world, (2, 3), wins.added, NOW + 2)
        assert overlay.hears(SwapNews((more,)), NOW + 2) is overlay
        assert reloaded(overlay).proof, "a newcomer knows it, too"
    assert world.overlay.hears(SwapNews((one, one)), NOW).proof == (), "one twice is no proof"


def test_one_of_another_certificate_proves_nothing(world: World) -> None:
    """The owner named somebody else, who may use the numbers that were never in force."""
    one = swap_on(world.overlay, world, (1, 4), (2, 3))
    other = swap_on(world.overlay, world, (2, 4), (2, 3), by="far")
    assert world.overlay.hears(SwapNews((one, other)), NOW).proof == ()
    assert world.overlay.hears(SwapNews((other,)), NOW).offered == (), "who does not organise offers nothing"


@pytest.mark.long
def test_a_few_are_kept_that_wait_and_64_may_be_in_force(world: World) -> None:
    overlay = world.overlay
    for number in range(1, OFFERED_MOST + 3):
        swap = swap_on(world.overlay, world, (1, 4), (2, 3), number=number, steps=number)
        overlay = overlay.hears(SwapNews((swap,)), NOW)
    assert [swap.number for swap in overlay.offered] == [6, 5, 4, 3]
    assert overlay.swap_numbers_left() == NUMBERS_MOST - 6
    full, _ = chained(world, SWAPS_MOST)
    assert full.swap_numbers_left() == 0
    more = swap_on(full, world, *ROUND[0], NOW + 9000)
    assert full.hears(agreed(world, more, ALL), NOW + 9000) is full
    assert len(reloaded(full).swaps) == SWAPS_MOST


# ----------------------------------------------------------------------------------------- the owner's versions


def test_the_owners_next_version_takes_them_up(world: World) -> None:
    overlay, _ = chained(world, 3)
    newer = world.with_policy(
        edges=overlay.arrangement.edges, tree=overlay.arrangement.change, organising=overlay.arrangement.organising
    )
    taken = newer.carrying(overlay).following(overlay, NOW + 201)
    assert taken.swaps == ()
    assert taken.trees == overlay.trees, "the same tree, as far as it was"
    more = swap_on(taken, world, *ROUND[3], NOW + 300)
    assert taken.hears(agreed(world, more, ALL), NOW + 300).swaps == (more,)


def test_a_revocation_that_knows_nothing_of_swaps_counts_at_once_and_leaves_them(world: World) -> None:
    overlay, _ = chained(world, 3)
    offered = swap_on(overlay, world, *ROUND[3], NOW + 300)
    overlay = overlay.hears(SwapNews((offered,), endorsements(world, offered, "r1a")), NOW + 300)
    revoked = world.revoked("far", -1)
    new = revoked.carrying(overlay)
    assert new.trees.follows(overlay.trees)
    new = new.following(overlay, NOW + 301)
    assert (new.swaps, new.offered, new.trees) == (overlay.swaps, overlay.offered, overlay.trees)
    assert new.swap_endorsers(offered) == {"r1a"}
    assert new.grants_of("far") == ()
    assert reloaded(new).swaps == new.swaps


@pytest.mark.parametrize("swaps", [1, 3])
def test_the_owners_next_tree_comes_after_whatever_the_organiser_signed(world: World, swaps: int) -> None:
    """Though the owner knew nothing of it: what stays open is what was in force here."""
    overlay = chained(world, swaps)[0].as_of(NOW + 290)
    pending = swap_on(overlay, world, *ROUND[swaps], NOW + 300)
    overlay = overlay.hears(SwapNews((pending,)), NOW + 300)
    tree = world.overlay.policy.tree.followed_by(
        world.overlay.policy.edges, int((NOW + 300) * 1000), 2, 60, OWNER_STEPS
    )
    newer = world.with_policy(edges=((1, 2), (1, 3), (1, 4)), tree=tree, grants=())
    assert newer.carrying(overlay).trees.follows(overlay.trees)
    new = newer.carrying(overlay).following(overlay, NOW + 301)
    assert (new.swaps, new.offered, new.grants_of("far")) == ((), (), ())
    assert new.trees.newest.number == OWNER_STEPS
    assert new.trees.in_force.edges == overlay.trees.newest.edges
    assert new.trees.tree_numbered(swaps).edges == overlay.trees.newest.edges
    assert new.hears(agreed(world, pending, ALL), NOW + 302) is new, "of a tree that is over"
    with pytest.raises(UnknownView):
        new.trees.tree_numbered(OWNER_STEPS + 1)


def test_a_revoked_organiser_offers_nothing_and_what_is_in_force_stays(world: World) -> None:
    overlay, _ = chained(world, 2)
    pending = swap_on(overlay, world, *ROUND[2], NOW + 200)
    overlay = overlay.hears(SwapNews((pending,)), NOW + 200)
    organising = world.overlay.policy.organising
    assert organising is not None
    for changes in ({"organising": replace(organising, organiser="site")}, {"organising": None}):
        new = world.with_policy(**changes).carrying(overlay).following(overlay, NOW + 201)
        assert new.swaps == overlay.swaps
        assert new.offered == ()
        assert new.hears(SwapNews((pending,)), NOW + 202) is new
        assert reloaded(new).swaps == overlay.swaps, "a newcomer goes by what was endorsed when it was signed"
    fresh = world.with_policy(organising=replace(organising, organiser="site"))
    mine = swap_on(fresh, world, (1, 4), (2, 3), by="site")
    assert fresh.hears(SwapNews((mine,)), NOW).offered == (mine,)


def test_a_proof_is_over_when_another_organises(world: World) -> None:
    one, other = (swap_on(world.overlay, world, added, (2, 3)) for added in ((1, 4), (2, 4)))
    stopped = world.overlay.hears(SwapNews((one, other)), NOW)
    assert stopped.proof
    assert world.revoked("far", -1).carrying(stopped).proof
    organising = world.overlay.policy.organising
    assert organising is not None
    assert world.with_policy(organising=replace(organising, organiser="site")).carrying(stopped).proof == ()


def test_views_change_beside_and_who_left_is_not_missed(world: World) -> None:
    overlay, _ = chained(world, 1)
    newer = changed(world, world.overlay, 2, ("r2b", "r2c", "r2d"), NOW + 50)
    new = newer.carrying(overlay).following(overlay, NOW + 50)
    assert new.swaps == overlay.swaps
    dropped = regrown_members(world, new)
    assert dropped.carrying(new).following(new, NOW + 200).swaps == overlay.swaps


def regrown_members(world: World, overlay: Overlay) -> Overlay:
    """A further version, in which the replica that left is listed no more."""
    return changed(world, overlay, 1, overlay.latest[1].members, NOW + 190)


def test_the_owner_names_a_member_that_carries_nothing(world: World) -> None:
    organising = world.overlay.policy.organising
    assert organising is not None
    for name in ("r1a", "nobody"):
        with pytest.raises(OverlayError, match=f"{name} is to organise"):
            world.with_policy(organising=replace(organising, organiser=name))


def test_a_further_tree_of_an_owner_without_organiser_is_the_next_number(world: World) -> None:
    assert regrown(world, world.overlay, ((1, 2), (1, 3), (1, 4)), NOW).trees.newest.number == 1
