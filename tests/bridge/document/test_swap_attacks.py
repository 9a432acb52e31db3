"""What a bad organiser, f of every region and an owner that knows of no swap can do to the chain of swaps: nobody goes
another way for ever, no version of the owner's is held up, and nothing that was in force is closed at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

import bridge.document.overlay as overlay_module
import bridge.document.reorganised as reorganised_module
from bridge.document import Overlay, SwapNews
from bridge.document.policy import Scope
from bridge.document.trees import Phase, Trees
from keys.envelope import Mode
from keys.identity import Certificate, Identity
from tests.sim.changing import changed
from tests.sim.organised_world import BOSS, GRACE_S, agreed, edges_of, endorsements, organised, swap_on
from tests.sim.world import NOT_AFTER_MS, NOW, World, make_world
from tests.support.regions import fresh

ALL = (1, 2, 3, 4)
GOOD = ((1, 4), (2, 3))


world = fresh(organised)


def reloaded(overlay: Overlay, now: float) -> Overlay:
    return Overlay.from_document(overlay.to_document(), int(now * 1000), overlay.owner)


def rivals(world: World) -> tuple[SwapNews, SwapNews]:
    """Two swaps of one tree that both got there: f of each region held back what they had to say."""
    one = swap_on(world.overlay, world, *GOOD)
    two = swap_on(world.overlay, world, (2, 4), (2, 3), NOW + 60, number=2, steps=2)
    return agreed(world, one, ALL), agreed(world, two, (2, 3, 4))


@pytest.mark.attack(80)
def test_a_rival_that_gets_there_late_closes_nothing_that_was_in_force(world: World) -> None:
    """What liars held back puts another tree in force at any time: what is on its way in ours arrives."""
    one, two = rivals(world)
    ours = world.overlay.hears(one, NOW).as_of(NOW + 100)
    assert ours.trees.phase is Phase.ALONE
    there = ours.hears(two, NOW + 100)
    assert there.swaps == two.swaps
    assert there.trees.in_force.edges == ours.trees.newest.edges
    assert there.trees.tree_numbered(1).edges == ours.trees.newest.edges
    assert there.as_of(NOW + 102).trees.in_force.number == 2
    assert there.as_of(NOW + 102).trees.tree_numbered(1)
    assert there.as_of(NOW + 102 + GRACE_S).trees.open == (there.trees.newest,)


@pytest.mark.attack(81)
@pytest.mark.parametrize("settled", [False, True])
def test_a_version_that_took_up_one_of_two_rivals_counts_at_who_has_the_other(world: World, settled: bool) -> None:
    """The owner signed before liars let the other one get there: half would have kept that, and the old rights."""
    one, two = rivals(world)
    owners = world.overlay.hears(one, NOW).as_of(NOW + 100)
    ours = owners.hears(two, NOW + 100).as_of(NOW + 200)
    assert ours.swaps == two.swaps
    arrangement = owners.arrangement
    tree = arrangement.change.settled if settled else arrangement.change
    newer = world.with_policy(edges=arrangement.edges, tree=tree, organising=arrangement.organising, grants=())
    assert newer.carrying(ours).may_follow(ours)
    new = newer.carrying(ours).following(ours, NOW + 300)
    assert (new.swaps, new.grants_of("far")) == ((), ())
    assert edges_of(new) == edges_of(owners)
    assert new.trees.in_force.edges == ours.trees.newest.edges, "as with any other change"
    later = new.as_of(NOW + 302)
    assert (later.trees.in_force.number, later.trees.tree_numbered(2).edges) == (1, ours.trees.newest.edges)
    assert later.as_of(NOW + 302 + GRACE_S).trees.open == (new.trees.newest,)
    assert new.hears(two, NOW + 303) is new, "and the other is over"


@pytest.mark.attack(82)
def test_no_version_is_held_up_by_a_tree_that_it_would_not_bear() -> None:
    """The owner knows of no swap, and adds a scope that is sealed: behind a swap one way is too long."""
    world = make_world(dict.fromkeys(range(1, 6), 3), [(1, 2), (1, 3), (1, 4), (4, 5)], {BOSS: 1, "far": 4}, [PLAIN])
    organising = replace(organised().overlay.policy.organising, links=((3, 5),))  # type: ignore[type-var]
    world.overlay = world.with_policy(organising=organising)
    swap = swap_on(world.overlay, world, (3, 5), (1, 4))
    ours = world.overlay.hears(agreed(world, swap, (1, 3, 4, 5)), NOW)
    assert ours.swaps == (swap,)
    sealed = Scope("cash/#", number=77)
    newer = world.with_policy(scopes=(*world.overlay.policy.scopes, sealed), grants=())
    assert newer.carrying(ours).may_follow(ours)
    new = newer.carrying(ours).following(ours, NOW + 10)
    assert (new.swaps, new.grants_of("far")) == ((swap,), ())
    assert reloaded(new, NOW + 20).swaps == (swap,), "the same tree under every version, whoever starts with which"
    assert newer.hears(ours.swap_news, NOW).swaps == (swap,)


PLAIN = Scope("shop/#", Mode.PLAIN)


@pytest.mark.attack(84)
def test_swaps_without_end_cost_no_overlay_and_no_tree_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The organiser's or a thief's, and one liar's endorsement of each."""
    swaps = [swap_on(world.overlay, world, *GOOD, number=each, steps=each) for each in range(1, 60)]
    agreed_to = [one for swap in swaps for one in agreed(world, swap, (1,), "c").endorsements]
    made = []

    class Watched(Overlay):
        def __init__(self, *args: object) -> None:
            made.append(args)
            super().__init__(*args)  # type: ignore[arg-type]

    def of(*args: object) -> Trees:
        made.append(args)
        raise AssertionError("no tree comes into force")

    monkeypatch.setattr(overlay_module, "Overlay", Watched)
    monkeypatch.setattr(reorganised_module.Trees, "at_start", of)
    heard = world.overlay.hears(SwapNews(tuple(swaps), tuple(agreed_to)), NOW)
    assert [swap.number for swap in heard.offered] == [59, 58, 57, 56]
    assert made == []


# ------------------------------------------------------------------------------------------------- keys that change


def rekeyed(world: World, name: str, old: Overlay, seed: int) -> Overlay:
    """The owner's next version, in which a member has another key, and the one before beside it."""
    assert world.owner is not None
    member = old.members[name]
    identity = Identity.generate(bytes([seed]) * 32)
    certificate = Certificate.issue(
        world.owner, name=name, role=member.certificate.role, public_key=identity.public_bytes,
        agreement_key=identity.agreement_bytes, domain=member.certificate.domain, region=member.certificate.region,
        not_after_ms=NOT_AFTER_MS,
    )  # fmt: skip
    world.identities[name] = identity
    members = {**old.members, name: replace(member, certificate=certificate, before=member.certificate)}
    policy = replace(old.policy, version=old.policy.version + 1)
    return Overlay.sign(world.owner, policy, old.latest.values(), members.values(), old.endorsements)


@pytest.mark.attack(85)
def test_who_stole_the_organisers_former_key_neither_organises_nor_stops_the_present_one(world: World) -> None:
    thief = world.identities[BOSS]
    stolen = [swap_on(world.overlay, world, added, (2, 3)).signed(thief) for added in ((1, 4), (2, 4))]
    stopped = world.overlay.hears(SwapNews(tuple(stolen)), NOW)
    assert stopped.proof
    newer = rekeyed(world, BOSS, world.overlay, 7)
    new = newer.carrying(stopped).following(stopped, NOW)
    assert new.proof == ()
    assert new.hears(SwapNews(tuple(stolen)), NOW).offered == ()
    mine = swap_on(new, world, *GOOD, NOW)
    assert new.hears(SwapNews((*stolen, mine)), NOW).offered == (mine,)


@pytest.mark.attack(83)
def test_what_is_in_force_is_proven_anew_when_those_who_endorsed_it_left_or_have_other_keys(world: World) -> None:
    """The owner knew of no swap: who started with its version went by another tree than who ran, for ever."""
    swap = swap_on(world.overlay, world, *GOOD)
    ours = world.overlay.hears(agreed(world, swap, ALL), NOW).as_of(NOW + 40)
    assert ours.unproven(2) == ()
    for at, members in enumerate((("r2b", "r2c", "r2d"), ("r2c", "r2d", "r2e"))):
        version = changed(world, ours, 2, members, NOW + 50 + 200 * at)
        ours = version.carrying(ours).following(ours, NOW + 50 + 200 * at)
    assert ours.swaps == (swap,)
    assert ours.unproven(2) == (swap,)
    assert reloaded(ours, NOW + 260).swaps == ()
    proven = ours.hears(SwapNews((), endorsements(world, swap, "r2c", "r2d")), NOW + 260)
    assert proven.unproven(2) == ()
    assert reloaded(proven, NOW + 260).swaps == (swap,)
    for at, name in enumerate(("r1a", "r1b", "r1a", "r1b")):
        version = rekeyed(world, name, proven, 10 + at)
        proven = version.carrying(proven).following(proven, NOW + 300 + at)
        assert proven.swaps == (swap,)
    assert proven.unproven(1) == (swap,)
    assert reloaded(proven, NOW + 310).swaps == ()
    again = proven.hears(SwapNews((), endorsements(world, swap, "r1a", "r1b")), NOW + 310)
    assert reloaded(again, NOW + 310).swaps == (swap,)


@pytest.mark.attack(91)
def test_an_owners_tree_with_the_number_of_a_swap_settles_as_any_other(world: World) -> None:
    """Nobody organises any more, and the owner, who knows of no swap, counts on by one."""
    swap = swap_on(world.overlay, world, *GOOD)
    ours = world.overlay.hears(agreed(world, swap, ALL), NOW).as_of(NOW + 40)
    tree = world.overlay.policy.tree.followed_by(world.overlay.policy.edges, int((NOW + 50) * 1000), 2, GRACE_S)
    newer = world.with_policy(edges=((1, 2), (1, 3), (1, 4)), tree=tree, organising=None, grants=())
    assert newer.carrying(ours).may_follow(ours)
    new = newer.carrying(ours).following(ours, NOW + 50)
    assert (new.trees.newest.number, new.trees.phase, new.grants_of("far")) == (1, Phase.SETTLING, ())
    assert new.as_of(NOW + 52).trees.in_force.edges == {frozenset(edge) for edge in ((1, 2), (1, 3), (1, 4))}
