"""Whatever members hear first of swaps that liars hold back, of an owner's versions and of each other, and whoever
starts again in between: in the end all have the owner's last version and one tree, and so has who starts then."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from bridge.document import OWNER_STEPS, Overlay, Policy, SwapNews
from tests.bridge.document.test_swap_attacks import rekeyed, reloaded
from tests.sim.organised_world import agreed, edges_of, endorsements, of_regions, organised, swap_on
from tests.sim.world import NOW

pytestmark = pytest.mark.attack(83)

REGIONS = (1, 2, 3, 4)
NUMBERS = 60  # that the organiser goes on by, behind what any member takes for the owner's tree


class Crossing:
    """Replicas that run, all that was signed so far, and a random schedule of who hears what."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world, self.now, self.highest = organised(), NOW, 0
        self.members = dict.fromkeys(of_regions(REGIONS), self.world.overlay)
        self.newest = self.world.overlay
        self.swaps: list[SwapNews] = []

    def run(self, steps: int) -> None:
        doings = [self.organises, self.hears, self.owner_signs, self.one_meets_another, self.starts_again]
        for doing in self.rng.choices(doings, (6, 6, 3, 3, 2), k=steps):
            self.passes(self.rng.choice([0.1, 1, 3, 10, 70]))
            doing(self.rng.choice(list(self.members)))

    def passes(self, time_s: float) -> None:
        self.now += time_s
        self.members = {name: overlay.as_of(self.now) for name, overlay in self.members.items()}

    def organises(self, name: str) -> None:
        """A swap of the tree at this member; it may count once anybody hears it."""
        overlay = self.members[name]
        ring = overlay.arrangement.way(*self.rng.sample(REGIONS, 2))
        change = overlay.arrangement.change
        number = max(self.highest, change.number) + 1
        if len(ring) < 3 or number > overlay.policy.tree.number + NUMBERS:
            return
        self.highest = number
        gone = self.rng.choice(list(itertools.pairwise(ring)))
        swap = swap_on(
            overlay, self.world, (ring[0], ring[-1]), gone, self.now, number=number, steps=number - change.number
        )
        self.swaps.append(agreed(self.world, swap, ring))

    def hears(self, name: str) -> None:
        if self.swaps:
            self.members[name] = self.members[name].hears(self.rng.choice(self.swaps), self.now)

    def owner_signs(self, name: str) -> None:
        """On top of what was signed last, or of that with the swaps which this member has in force."""
        assert self.world.owner is not None
        last, heard = self.newest, self.members[name]
        base = heard if heard.policy.version == last.policy.version and self.rng.random() < 0.6 else last
        policy: Policy = base.arrangement.in_policy(last.policy)
        kind = self.rng.choice(["rights", "edges", "key"])
        if kind == "edges":
            order = self.rng.sample(REGIONS, 4)
            edges = tuple((order[at], self.rng.choice(order[:at])) for at in (1, 2, 3))
            tree = policy.tree.followed_by(policy.edges, int(self.now * 1000), 2, 5, OWNER_STEPS)
            policy = replace(policy, edges=edges, tree=tree)
        policy = replace(policy, version=last.policy.version + (kind != "key"))
        made = Overlay.sign(self.world.owner, policy, last.latest.values(), last.members.values())
        seed = 20 + last.policy.version  # of a key that nobody had
        self.newest = rekeyed(self.world, self.rng.choice(of_regions((1, 2))), made, seed) if kind == "key" else made
        self.adopts(name, self.newest)

    def one_meets_another(self, name: str) -> None:
        self.adopts(name, self.members[self.rng.choice(list(self.members))])
        self.prove()

    def starts_again(self, name: str) -> None:
        self.members[name] = reloaded(self.members[name], self.now)
        self.prove()

    def adopts(self, name: str, theirs: Overlay) -> None:
        ours = self.members[name]
        if theirs.policy.version == ours.policy.version:
            self.members[name] = ours.hears(theirs.swap_news, self.now)
        elif theirs.policy.version > ours.policy.version:
            newer = reloaded(theirs, self.now).carrying(ours)
            assert newer.may_follow(ours)
            self.members[name] = newer.following(ours, self.now)

    def prove(self) -> None:
        """Each endorses anew what is in force at it, where that is asked for."""
        for name, overlay in self.members.items():
            asked = overlay.unproven(overlay.certificate(name).region)
            mine = [swap for swap in asked if name not in overlay.swap_endorsers(swap)]
            said = [one for swap in mine for one in endorsements(self.world, swap, name)]
            self.members[name] = overlay.hears(SwapNews((), tuple(said)), self.now)

    def all_meet(self) -> None:
        self.passes(100)
        for name, other in itertools.permutations(self.members, 2):
            self.adopts(name, self.members[other])
        self.prove()
        for name, news in itertools.product(self.members, self.swaps):
            self.members[name] = self.members[name].hears(news, self.now)


TELLING = (0, 1, 2, 200, 213, 237)  # the last three part members if versions are held up, or nothing is proven anew


@pytest.mark.long
@pytest.mark.parametrize("seed", [*TELLING, *(pytest.param(each, marks=pytest.mark.slow) for each in range(3, 200))])
def test_all_come_to_the_owners_version_and_one_tree(seed: int) -> None:
    crossing = Crossing(seed)
    crossing.run(35)
    for _ in range(4):
        crossing.all_meet()
    overlays = [*crossing.members.values(), *(reloaded(one, crossing.now) for one in crossing.members.values())]
    assert {each.policy.version for each in overlays} == {crossing.newest.policy.version}
    assert len({(each.arrangement.change.number, frozenset(edges_of(each)), each.swaps) for each in overlays}) == 1
    assert len({frozenset(edges_of(each)) for each in overlays}) == 1
