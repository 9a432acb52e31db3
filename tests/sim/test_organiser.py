"""An organiser that is not the owner: swaps under load, what stops them, and what a bad one can do."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from bridge.contract import Send, Wire
from bridge.document import OWNER_STEPS, Overlay, SignedSwap, SwapNews
from bridge.document.policy import Scope
from bridge.document.trees import Edge, Phase
from bridge.membership import SWAPS_TOPIC
from papers.sim.checkers import check_liveness
from papers.sim.kernel import Kernel
from tests.seldom import mostly_slow, slow
from tests.sim.changing import changed
from tests.sim.organised_world import (
    BOSS,
    edge_set,
    edges_of,
    endorsements,
    of_regions,
    organised,
    running,
    slowed,
    swap_on,
)
from tests.sim.test_trees import LIES, PLAIN, SEALED, deaf, judge, load, tell
from tests.sim.world import NOW, World

pytestmark = pytest.mark.invariant(66)

ROW, CLOSED = edge_set((1, 2), (2, 3), (3, 4)), edge_set((1, 2), (3, 4), (4, 1))
GOOD = ((1, 4), (2, 3))
ALL = (1, 2, 3, 4)


def overlay_of(kernel: Kernel, name: str) -> Overlay:
    return kernel.nodes[name].overlay  # type: ignore[attr-defined, no-any-return]


def all_have(kernel: Kernel, edges: set[frozenset[int]]) -> bool:
    return all(edges_of(overlay_of(kernel, name)) == edges for name in kernel.nodes)


def says(kernel: Kernel, world: World, news: SwapNews, *peers: str) -> None:
    """The organiser's link carries this to replicas of its region."""
    wire = Wire(SWAPS_TOPIC, news.encode())
    kernel.call(BOSS, lambda node, now: [Send(peer, wire) for peer in peers or of_regions([2], "abc")])


def agreeable(kernel: Kernel, names: Collection[str]) -> None:
    """Liars that endorse whatever they hear of."""
    for name in names:
        kernel.nodes[name].keeper.swaps.objection = lambda overlay, swap, now: ""  # type: ignore[attr-defined]


def owners(world: World, edges: tuple[Edge, ...], now: float, **policy: object) -> Overlay:
    """The next version of an owner that knows of no swaps."""
    old = world.overlay.policy
    tree = old.tree.followed_by(old.edges, int(now * 1000), 2, 5, OWNER_STEPS)
    return world.with_policy(edges=edges, tree=tree, **policy)


@pytest.mark.attack(77)
@pytest.mark.parametrize("scope", [pytest.param(PLAIN, marks=pytest.mark.slow), SEALED], ids=["plain", "sealed"])
def test_what_spares_comes_into_force_everywhere_and_nothing_is_lost(scope: Scope) -> None:
    world = organised(scope)
    kernel = running(world, random.Random(1), (2, 3))
    traffic = load(kernel, world, 20, 3)
    trace = kernel.run(NOW + 35)
    assert all_have(kernel, CLOSED)
    assert all(overlay_of(kernel, name).trees.phase is Phase.ALONE for name in kernel.nodes)
    judge(trace, traffic, world)
    replica = kernel.nodes["r1a"]
    assert "r4b" in replica.peers  # type: ignore[attr-defined]
    assert {peer for peer in replica.peers if peer.startswith("r3")} == set()  # type: ignore[attr-defined]
    assert {header.header.tree for header in kernel.nodes["r2a"].forwarder._keys} <= {1}  # type: ignore[attr-defined]


@pytest.mark.slow
def test_without_an_organiser_nothing_is_swapped_and_nothing_else_changes() -> None:
    world = organised()
    kernel = running(world, random.Random(1), (2, 3))
    kernel.crash(BOSS)
    traffic = load(kernel, world, 10, 2)
    judge(kernel.run(NOW + 40), traffic, world)
    assert all(edges_of(overlay_of(kernel, name)) == ROW for name in kernel.nodes)


@pytest.mark.parametrize("seed", slow(range(8)))
def test_swaps_under_load_with_liars_crashes_and_a_view_that_changes(seed: int) -> None:
    rng = random.Random(seed)
    world = organised(PLAIN if seed % 2 else SEALED, seed, dwell_s=5, interval_s=2, grace_s=6)
    for region in (1, 3):
        world.liars[f"r{region}{rng.choice('abc')}"] = frozenset(rng.sample(LIES, 2))
    kernel = running(world, rng, (2, 3))
    traffic = load(kernel, world, 45, 2)
    for n, edge in enumerate([(2, 3), (1, 4), (1, 2)]):
        slowed(kernel, edge)
        kernel.run(NOW + 8 + 14 * n)
        if n == 1:
            view = overlay_of(kernel, "far").latest[4].members
            version = changed(world, world.overlay, 4, (*view[:2], "r4d"), kernel.now, 3)
            tell(kernel, world, version, "far")
            kernel.add_node("r4d", world.maker("r4d", rng), ["r3a", "r3b", "r3c", "r1a", "r1b", "r1c", "far"])
        victim = f"r2{rng.choice('abc')}"
        kernel.run(kernel.now + rng.choice([0.0, 0.7, 1.9, 2.1, 4.0]))
        kernel.crash(victim)
        kernel.run(kernel.now + 1)
        kernel.restart(victim)
    trace = kernel.run(NOW + 85)
    judge(trace, traffic, world)
    honest = kernel.nodes.keys() - world.liars.keys()
    members = [name for name in honest if not kernel.nodes[name].removed]  # type: ignore[attr-defined]
    assert len({frozenset(edges_of(overlay_of(kernel, name))) for name in members}) == 1, "all have one tree"
    print("swaps in force:", overlay_of(kernel, "far").arrangement.change.number)


STEPS_S = {
    "offered": 0.02,
    "lanes": 0.9,
    "settling": 2.0,
    "in force": 3.1,
    "grace": 5.0,
    "closing": 8.02,
    "closed": 9.0,
}


@pytest.mark.parametrize("step", slow(STEPS_S))
def test_an_end_of_the_removed_edge_is_killed_in_any_step(step: str) -> None:
    world = organised(SEALED)
    kernel = running(world, random.Random(4), (2, 3))
    traffic = load(kernel, world, 16, 2)
    while not overlay_of(kernel, BOSS).offered:
        kernel.run(kernel.now + 0.01)
    kernel.run(kernel.now + STEPS_S[step])
    kernel.crash("r2b")
    kernel.run(kernel.now + 1.5)
    kernel.restart("r2b")
    trace = kernel.run(NOW + 60)
    judge(trace, traffic, world)
    assert all_have(kernel, CLOSED), "the one that was killed heard of it from the others"


@pytest.mark.slow
def test_who_hears_late_loses_nothing_and_makes_nobody_suspect() -> None:
    """Neither by document nor by news: one region is a while behind."""
    world = organised()
    kernel = running(world, random.Random(2), (2, 3))
    traffic = load(kernel, world, 16, 2)
    kernel.run(NOW + 8)
    late = [name for name in kernel.nodes if name in ("third", "second")]
    deaf(kernel, late, NOW + 14)
    trace = kernel.run(NOW + 40)
    judge(trace, traffic, world)


# ------------------------------------------------------------------------------------------------- a bad organiser


@pytest.mark.attack(70)
@pytest.mark.parametrize("seed", slow(range(3)))
def test_two_swaps_of_one_number_name_the_organiser_and_part_nobody(seed: int) -> None:
    """Each half of its region hears another one, and f of each region endorse both."""
    world = organised()
    kernel = running(world, random.Random(seed), (2, 3), signs=False)
    traffic = load(kernel, world, 20, 2)
    world.liars = dict.fromkeys([BOSS, *of_regions(ALL, "c")], frozenset())
    agreeable(kernel, of_regions(ALL, "c"))
    kernel.run(NOW + 14)
    one = swap_on(world.overlay, world, *GOOD, kernel.now)
    other = swap_on(world.overlay, world, (2, 4), (2, 3), kernel.now)
    liars = of_regions(ALL, "c")
    says(kernel, world, SwapNews((one,), endorsements(world, one, *liars)), "r2a")
    says(kernel, world, SwapNews((other,), endorsements(world, other, *liars)), "r2b", "r2c")
    trace = kernel.run(NOW + 60)
    judge(trace, traffic, world)
    assert trace.named_members() == {BOSS}
    assert {who for who, blame in trace.blamed if blame.named} == kernel.nodes.keys()
    assert len({frozenset(edges_of(overlay_of(kernel, name))) for name in kernel.nodes}) == 1
    before = edges_of(overlay_of(kernel, "far"))
    more = swap_on(overlay_of(kernel, "far"), world, (2, 3), (1, 2), kernel.now)
    says(kernel, world, SwapNews((more,)))
    kernel.run(kernel.now + 20)
    assert edges_of(overlay_of(kernel, "far")) == before, "it is stopped"


HARMS = {
    "outside the links": lambda world, now: swap_on(world.overlay, world, (1, 3), (2, 3), now),
    "no gain": lambda world, now: swap_on(world.overlay, world, (1, 4), (1, 2), now),
    "falls apart": lambda world, now: swap_on(world.overlay, world, (2, 4), (1, 2), now),
    "a grace of its own": lambda world, now: swap_on(world.overlay, world, *GOOD, now, grace_s=1),
    "beyond its numbers": lambda world, now: swap_on(world.overlay, world, (1, 4), (1, 2), now, number=101, steps=101),
    "not its own": lambda world, now: swap_on(world.overlay, world, *GOOD, now, by="far"),
    "of long ago": lambda world, now: swap_on(world.overlay, world, *GOOD, now - 1000),
}


@pytest.mark.attack(71)
@pytest.mark.parametrize("harm", slow(HARMS))
def test_harm_is_endorsed_by_liars_alone_and_never_in_force(harm: str) -> None:
    world = organised()
    slow = [(2, 3), (1, 4)] if harm == "no gain" else [(2, 3)]
    kernel = running(world, random.Random(1), *slow, signs=False)
    traffic = load(kernel, world, 16, 2)
    liars = of_regions(ALL, "c")
    agreeable(kernel, liars)
    kernel.run(NOW + 14)
    swap: SignedSwap = HARMS[harm](world, kernel.now)
    says(kernel, world, SwapNews((swap,), endorsements(world, swap, *liars)))
    trace = kernel.run(NOW + 90)
    judge(trace, traffic, world)
    assert all_have(kernel, ROW)


def test_a_good_one_needs_no_liar_and_liars_hold_nothing_up() -> None:
    """f of each region never endorse."""
    world = organised()
    kernel = running(world, random.Random(1), (2, 3))
    for name in of_regions(ALL, "c"):
        kernel.nodes[name].keeper.swaps.objection = lambda overlay, swap, now: "no"  # type: ignore[attr-defined]
    traffic = load(kernel, world, 16, 2)
    judge(kernel.run(NOW + 40), traffic, world)
    assert all_have(kernel, CLOSED)


@pytest.mark.slow
def test_what_was_in_force_once_is_not_in_force_again_when_it_is_replayed() -> None:
    world = organised(PLAIN, dwell_s=5, interval_s=2, grace_s=3)
    kernel = running(world, random.Random(1), (2, 3))
    traffic = load(kernel, world, 40, 1)
    kernel.run(NOW + 20)
    old = overlay_of(kernel, "far").swap_news
    assert old.swaps
    slowed(kernel, (1, 4))
    kernel.run(NOW + 50)
    newest = edges_of(overlay_of(kernel, "far"))
    assert newest != CLOSED
    says(kernel, world, old)
    trace = kernel.run(NOW + 60)
    assert all_have(kernel, newest)
    judge(trace, traffic, world)


# --------------------------------------------------------------------------------------------------- the owner


@pytest.mark.attack(75)
@pytest.mark.parametrize("moment", mostly_slow(["offered", "settling", "in force", "closed"], "settling"))
def test_edges_and_a_revocation_of_an_owner_that_knows_of_no_swap_count_at_once(moment: str) -> None:
    world = organised()
    kernel = running(world, random.Random(2), (2, 3))
    traffic = load(kernel, world, 24, 2)
    while not overlay_of(kernel, BOSS).offered:
        kernel.run(kernel.now + 0.01)
    kernel.run(kernel.now + {"offered": 0.3, "settling": 2.0, "in force": 4.0, "closed": 12.0}[moment])
    grants = tuple(grant for grant in world.overlay.policy.grants if grant.member != "far")
    newer = owners(world, ((1, 2), (2, 3), (2, 4)), kernel.now, grants=grants)
    tell(kernel, world, newer, "site")
    kernel.run(kernel.now + 1)
    assert all(overlay_of(kernel, name).policy.version == newer.policy.version for name in kernel.nodes)
    before = len(kernel.trace.delivered["far"])
    trace = kernel.run(NOW + 60)
    assert len(trace.delivered["far"]) == before, "who was shut out gets nothing more"
    assert all_have(kernel, edge_set((1, 2), (2, 3), (2, 4))) or all(
        overlay_of(kernel, name).arrangement.change.number > OWNER_STEPS for name in kernel.nodes
    )
    for name, each in traffic.items():
        check_liveness(each.published, [got for got in trace.delivered["second"] if got.publisher == name])
    assert trace.named_members() == trace.suspected() == set()


@pytest.mark.slow
def test_a_revocation_alone_leaves_the_swap_and_the_organiser_goes_with_its_certificate() -> None:
    world = organised()
    kernel = running(world, random.Random(2), (2, 3))
    load(kernel, world, 24, 2)
    kernel.run(NOW + 20)
    assert all_have(kernel, CLOSED)
    organising = world.overlay.policy.organising
    newer = world.with_policy(organising=None)
    assert organising is not None
    tell(kernel, world, newer, "site")
    kernel.run(NOW + 22)
    swap = swap_on(overlay_of(kernel, "far"), world, (2, 3), (1, 4), kernel.now)
    agreeable(kernel, of_regions(ALL, "c"))
    says(kernel, world, SwapNews((swap,), endorsements(world, swap, *of_regions(ALL, "c"))))
    trace = kernel.run(NOW + 50)
    assert all_have(kernel, CLOSED)
    assert trace.named_members() == set()


# ------------------------------------------------------------------------------------------------ going back


@pytest.mark.invariant(68)
def test_an_edge_that_carries_nothing_is_taken_back_and_barred() -> None:
    world = organised(PLAIN, dwell_s=40, grace_s=20)
    kernel = running(world, random.Random(1), (2, 3))
    traffic = load(kernel, world, 45, 1)
    while not overlay_of(kernel, BOSS).swaps:
        kernel.run(kernel.now + 0.1)
    cut_at = kernel.now + 9
    kernel.run(cut_at)
    lanes = [(f"r1{one}", f"r4{other}") for one in "abc" for other in "abc"]
    for lane in lanes:
        kernel.cut(*lane)
    while edges_of(overlay_of(kernel, "far")) != ROW:
        kernel.run(kernel.now + 0.1)
    for lane in lanes:  # what waits for them has as long as the former tree is open
        kernel.heal(*lane)
    trace = kernel.run(NOW + 90)
    assert all_have(kernel, ROW)
    arrangement = overlay_of(kernel, "far").arrangement
    assert arrangement.organising is not None
    assert [set(bar.link) for bar in arrangement.organising.bars] == [{1, 4}]
    assert arrangement.change.since_ms / 1000 < cut_at + 25, "without waiting for the tree to rest"
    judge(trace, traffic, world)


@pytest.mark.slow
@pytest.mark.invariant(68)
def test_what_made_it_worse_is_taken_back_before_the_tree_has_rested() -> None:
    world = organised(PLAIN, dwell_s=300, links=((4, 1),))
    kernel = running(world, random.Random(1), (2, 3))
    traffic = load(kernel, world, 60, 2)
    while not overlay_of(kernel, BOSS).swaps:
        kernel.run(kernel.now + 0.1)
    slowed(kernel, (1, 4))
    trace = kernel.run(NOW + 80)
    assert all_have(kernel, ROW)
    arrangement = overlay_of(kernel, "far").arrangement
    assert arrangement.organising is not None
    assert [set(bar.link) for bar in arrangement.organising.bars] == [{1, 4}]
    judge(trace, traffic, world)


# ------------------------------------------------------------------------------------------------ crossing


@pytest.mark.slow
@pytest.mark.attack(81)
def test_who_has_the_other_of_two_rivals_takes_the_owners_version() -> None:
    """f of each region held back what they say of the second, until the owner had taken up the first: some hear of the
    second before they hear of the owner's version, some the other way round."""
    world = organised(PLAIN, grace_s=6)
    kernel = running(world, random.Random(3), signs=False)
    traffic = load(kernel, world, 60, 2)
    kernel.run(NOW + 5)
    base = world.overlay
    one = swap_on(base, world, *GOOD, kernel.now, grace_s=6)
    two = swap_on(base, world, (2, 4), (2, 3), kernel.now, number=2, steps=2, grace_s=6)
    says(kernel, world, SwapNews((one,), endorsements(world, one, *of_regions(ALL))))
    kernel.run(NOW + 25)
    others = [
        overlay_of(kernel, name) for name in kernel.nodes if name != BOSS
    ]  # which says it, and hears it from none
    assert all(edges_of(each) == CLOSED for each in others)
    arrangement = overlay_of(kernel, "far").arrangement
    newer = world.with_policy(edges=arrangement.edges, tree=arrangement.change, organising=arrangement.organising)
    tell(kernel, world, newer, "third")
    says(kernel, world, SwapNews((two,), endorsements(world, two, *of_regions((2, 3, 4)))))
    kernel.run(kernel.now + 0.012)
    others = [overlay_of(kernel, name) for name in kernel.nodes if name != BOSS]
    found = {(each.policy.version - newer.policy.version, each.arrangement.change.number) for each in others}
    assert {(0, 1), (-1, 2)} <= found, "some have the owner's version, some the other swap"
    trace = kernel.run(NOW + 90)
    assert {overlay_of(kernel, name).policy.version for name in kernel.nodes} == {newer.policy.version}
    assert all_have(kernel, CLOSED)
    judge(trace, traffic, world)
