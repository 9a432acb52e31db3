"""Which swap is proposed of summaries: what the owner allows, what harms nobody, what no liar moves, and when."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from bridge.document import JUDGED_INTERVALS, History, Organising, Scope
from bridge.measuring import InterestSummary, ReplicaSummary, SwapProposal, proposal, swapped
from bridge.organising import InterestFilter
from keys.envelope import Mode
from tests.sim.world import NOW, World, make_world
from tests.support.regions import organising, row_of_regions

ROW = ((1, 2), (2, 3), (3, 4))
RTT_US = {(1, 2): 2_000, (2, 3): 90_000, (3, 4): 2_000, (1, 4): 2_000, (1, 3): 2_000}
INTERVAL_S = 60
INTERVAL = int(NOW) // INTERVAL_S
EVERYWHERE = Scope("plant/#", Mode.PLAIN)


@cache
def wanted(own: int) -> bytes:
    """200 publications that all want, and 300 of a kind."""
    told = InterestFilter()
    told.add_ids(b"all %d" % number for number in range(200))
    told.add_ids(b"%d %d" % (own, number) for number in range(300))
    return told.encode()


def interests(
    world: World, *ends: int, interval: int = INTERVAL, interval_s: int = INTERVAL_S
) -> list[InterestSummary]:  # fmt: skip
    """Of each replica: these ends want the same 500 publications, of which all want 200; others 300 of their own."""
    found = []
    for view in world.overlay.views.values():
        told = wanted(0 if view.region in ends else view.region)
        for name in view.members:
            made = InterestSummary(name, view.region, interval, interval_s, 4, told)
            found.append(made.signed(world.identities[name]))
    return found


def row_of_four(
    links: tuple[tuple[int, int], ...] = ((4, 1),), scopes: tuple[Scope, ...] = (EVERYWHERE,), **changes: object
) -> World:
    rules = replace(Organising(links), **changes)  # type: ignore[arg-type]
    return organising(rules, row_of_regions, 4, {"g1": 1}, scopes)


def said(world: World, name: str, **changes: object) -> ReplicaSummary:
    region = world.overlay.certificate(name).region
    links = sorted((b if a == region else a, us) for (a, b), us in RTT_US.items() if region in (a, b))
    made = ReplicaSummary(
        name, region, INTERVAL, INTERVAL_S, 0, 16, processing_us=100, links=tuple(links)
    )  # fmt: skip
    made = replace(made, **changes)  # type: ignore[arg-type]
    return made.signed(world.identities[name])


def told(world: World) -> list[ReplicaSummary]:
    return [said(world, name) for view in world.overlay.views.values() for name in view.members]


def of(
    world: World, words: list[ReplicaSummary] | None = None, now: float = NOW, ends: tuple[int, ...] = (1, 4)
) -> SwapProposal:  # fmt: skip
    """Of these words, and of interests of the interval in which the first of them was said."""
    words = told(world) if words is None else words
    at = {"interval": words[0].interval, "interval_s": words[0].interval_s} if words else {}
    found = proposal(world.overlay, [*words, *interests(world, *ends, **at)], now)
    assert found is not None
    return found


def test_the_slow_link_is_to_go_for_the_one_that_the_owner_allows() -> None:
    found = of(row_of_four())
    assert found.swap is not None
    assert (set(found.swap.added), set(found.swap.removed)) == ({1, 4}, {2, 3})
    shown = found.to_json()["swap"]
    assert shown["cost_after_us"] < shown["cost_before_us"]
    assert shown["gain_percent"] > 10


def test_outside_the_owners_links_nothing_is_proposed() -> None:
    """Everybody measured 1-4 as the cheapest; the owner does not list it."""
    assert of(row_of_four(links=())).swap is None
    assert of(row_of_four(links=((2, 4),))).swap is None, "nobody measured that one"


def test_what_would_harm_is_not_proposed() -> None:
    """A scope of regions 2 and 3 alone would fall apart: nothing of it may enter 1 or 4."""
    apart = Scope("shop/#", Mode.PLAIN, regions=(2, 3))
    other = of(row_of_four(scopes=(EVERYWHERE, apart))).swap
    assert other is not None, "another link of the cycle may go, which spares less"
    assert set(other.removed) == {3, 4}
    best = of(row_of_four()).swap
    assert best is not None
    assert best.after < other.after
    whole = replace(apart, regions=(1, 2, 3, 4))
    assert of(row_of_four(scopes=(EVERYWHERE, whole))).swap is not None


def test_a_path_that_becomes_too_long_is_not_proposed() -> None:
    """Five regions in a row are more than a scope with a history may cross."""
    made = make_world(
        dict.fromkeys(range(1, 6), 3),
        [(1, 2), (1, 3), (1, 4), (4, 5)],
        {"g1": 1},
        [Scope("plant/#", history=History(1, 16))],
    )
    made.overlay = made.with_policy(organising=Organising(((3, 5),)))
    costs = {(1, 2): 10, (1, 3): 10, (1, 4): 900_000, (4, 5): 10, (3, 5): 10}
    words = []
    for region, view in made.overlay.views.items():
        links = tuple(sorted((b if a == region else a, us) for (a, b), us in costs.items() if region in (a, b)))
        for name in view.members:
            one = ReplicaSummary(name, region, INTERVAL, 60, 0, 16, processing_us=1, links=links)
            words.append(one.signed(made.identities[name]))
    other = of(made, words, ends=(3, 5)).swap
    assert other is not None
    assert set(other.removed) == {4, 5}, "with 1-4 removed 2 and 4 were five regions apart"
    made.overlay = made.with_policy(scopes=tuple(replace(s, history=None) for s in made.overlay.policy.scopes))
    best = of(made, words, ends=(3, 5)).swap
    assert best is not None
    assert set(best.removed) == {1, 4}, "without a history keys may go any way"


def test_a_liar_in_each_region_changes_nothing_and_of_two_nobody_is_believed() -> None:
    made = row_of_four()
    truth = of(made).swap
    lies = []
    for view in made.overlay.views.values():
        liar, *honest = view.members
        lies += [
            said(made, liar, links=tuple((r, 1) for r in range(1, 5) if r != view.region), processing_us=9_999_999)
        ]
        lies += [said(made, name) for name in honest]
    assert of(made, lies).swap == truth
    silent = [word for word in told(made) if word != said(made, made.overlay.views[2].members[0])]
    found = of(made, silent)
    assert found.swap is None
    assert found.silent == (made.overlay.views[2].name,)
    assert "too few replicas" in found.why


def test_the_tree_rests_after_a_change() -> None:
    made = row_of_four(dwell_s=900)
    policy = made.overlay.policy
    tree = policy.tree.followed_by(policy.edges, int((NOW - 600) * 1000), 2, 60)
    made.overlay = made.with_policy(tree=tree)
    found = of(made)
    assert found.swap is None
    assert (found.why, found.rests_until) == (
        "the tree was changed, is not worse than before, and rests",
        NOW + 300,
    )
    assert of(made, now=NOW + 300 - 1e-3).swap is None
    later = [said(made, name, interval=INTERVAL + 5) for view in made.overlay.views.values() for name in view.members]
    assert of(made, later, now=NOW + 301).swap is not None


def test_a_change_that_made_it_worse_is_taken_back_before_the_tree_has_rested() -> None:
    made = row_of_four(links=((1, 3), (3, 2)), dwell_s=3600)
    policy = made.overlay.policy
    tree = policy.tree.followed_by(policy.edges, int(NOW * 1000), 2, 60)
    made.overlay = made.with_policy(edges=((1, 2), (3, 4), (1, 4)), tree=tree)
    slow = dict(RTT_US)
    slow[1, 4], slow[2, 3] = 90_000, 2_000  # what was thought of both was wrong

    def words(interval: int) -> list[ReplicaSummary]:
        def links(region: int) -> tuple[tuple[int, int], ...]:
            return tuple(sorted((b if a == region else a, us) for (a, b), us in slow.items() if region in (a, b)))

        return [
            said(made, name, interval=interval, links=links(view.region))
            for view in made.overlay.views.values()
            for name in view.members
        ]

    judged_at = NOW + 62 + JUDGED_INTERVALS * INTERVAL_S
    assert of(made, words(INTERVAL + 2), now=judged_at - 1).why == "the tree was changed, and rests"
    found = of(made, words(INTERVAL + 3), now=judged_at, ends=(2, 3))
    assert found.swap is not None
    assert (set(found.swap.added), set(found.swap.removed)) == ({2, 3}, {1, 4})
    back = swapped(made.overlay, found.swap, judged_at)
    assert back.organising is not None
    assert [(bar.link, bar.times) for bar in back.organising.bars] == [((1, 4), 1)]
    only = replace(back.organising, links=((1, 4),))
    made.overlay = made.with_policy(edges=back.edges, tree=back.tree, organising=only)
    slow[1, 4], slow[2, 3] = 2_000, 90_000  # it looks good again, as it did before it came
    for after_s in (62 + JUDGED_INTERVALS * INTERVAL_S, 3600, 2 * 3600 - 1):
        found = of(made, words(int(judged_at + after_s) // INTERVAL_S - 1), now=judged_at + after_s)
        assert found.swap is None, "barred, also as the way back of the way back"
    assert "barred, since they made it worse: " in found.why
    assert found.why.endswith(found.edge_names((1, 4)))
    found = of(made, words(int(judged_at + 7200) // INTERVAL_S - 1), now=judged_at + 7200)
    assert found.swap is not None
    again = swapped(made.overlay, found.swap, judged_at + 7200)
    assert again.organising is not None
    assert [bar.times for bar in again.organising.bars] == [1], "a swap that is no way back bars nothing"


def test_a_change_that_made_nothing_worse_is_not_taken_back_before_the_tree_has_rested() -> None:
    made = row_of_four(links=((1, 3), (3, 2)), dwell_s=3600)
    policy = made.overlay.policy
    tree = policy.tree.followed_by(policy.edges, int(NOW * 1000), 2, 60)
    made.overlay = made.with_policy(edges=((1, 2), (3, 4), (1, 4)), tree=tree)
    words = [said(made, name, interval=INTERVAL + 3) for view in made.overlay.views.values() for name in view.members]
    found = of(made, words, now=NOW + 62 + JUDGED_INTERVALS * INTERVAL_S, ends=(2, 3))
    assert found.swap is None
    assert "not worse than before" in found.why


def broken(liars: int = 0, deny: int = 0, told_s: float = 12.0, went: int | None = 90_000) -> SwapProposal:
    """1-4 came for 2-3, and no replica reaches over it but `liars` of each end who say so; with `deny` all reach but
    these. `told_s` after the change, when 2-3 takes `went`, and none of its ends knows more if that is None."""
    made = row_of_four(links=((2, 3),), dwell_s=3600, interval_s=1)
    policy = made.overlay.policy
    tree = policy.tree.followed_by(policy.edges, int(NOW * 1000), 2, 60)
    made.overlay = made.with_policy(edges=((1, 2), (3, 4), (1, 4)), tree=tree)
    words = []
    for view in made.overlay.views.values():
        for place, name in enumerate(view.members):
            reaches = place >= deny if deny else place < liars
            known = {(1, 2): 2_000, (3, 4): 2_000} | ({(2, 3): went} if went else {}) | ({(1, 4): 1} if reaches else {})
            links = ((b if a == view.region else a, us) for (a, b), us in known.items() if view.region in (a, b))
            words.append(said(made, name, tree=1, interval=int(NOW + told_s), interval_s=1, links=tuple(sorted(links))))  # type: ignore[arg-type]
    return of(made, words, now=NOW + told_s + 0.5)


def test_an_edge_that_came_and_carries_nothing_is_taken_back_before_the_tree_has_rested() -> None:
    found = broken()
    assert found.swap is not None
    assert (set(found.swap.added), set(found.swap.removed)) == ({2, 3}, {1, 4})
    shown = found.to_json()
    assert shown["why"] == "the edge that came carries nothing"
    assert shown["swap"]["gain_percent"] is shown["swap"]["cost_after_us"] is None
    made = row_of_four(links=((2, 3),))
    change = made.overlay.policy.tree.followed_by(ROW, int(NOW * 1000), 2, 60)
    made.overlay = made.with_policy(edges=((1, 2), (3, 4), (1, 4)), tree=change)
    back = swapped(made.overlay, found.swap, NOW + 12)
    assert back.organising is not None
    assert [set(link) for link in back.organising.barred(NOW + 13)] == [{1, 4}]


def test_an_edge_is_not_said_to_be_broken_too_soon_nor_where_nothing_better_is_known() -> None:
    assert broken(told_s=11.0).swap is None, "its links have 10 s to come up"
    assert broken(went=None).swap is None, "what went is away as well"


def test_one_liar_an_end_neither_breaks_an_edge_nor_hides_that_it_is_broken() -> None:
    assert broken(deny=1).swap is None
    assert broken(liars=1).swap is not None
    assert broken(liars=2).swap is None, "k of them reach it"


def test_what_goes_may_come_back_and_what_came_is_no_potential_link() -> None:
    made = row_of_four()
    swap = of(made).swap
    assert swap is not None
    policy = swapped(made.overlay, swap, NOW)
    assert policy.organising is not None
    assert [{*link} for link in policy.organising.links] == [{2, 3}]
    assert {frozenset(edge) for edge in policy.edges} == {frozenset(e) for e in ((1, 2), (3, 4), (1, 4))}
    assert (policy.tree.number, policy.tree.former) == (made.overlay.policy.tree.number + 1, made.overlay.policy.edges)


def test_without_the_owners_word_nobody_proposes() -> None:
    made = make_world({1: 3, 2: 3}, [(1, 2)], {"g1": 1})
    assert proposal(made.overlay, [], NOW) is None
