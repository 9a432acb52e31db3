"""An organiser that swaps edges while views change, epochs end and the owner raises bumps: what is acknowledged comes
once and in order.

Keys of an epoch come late to some gateways. Modes, and how many publications a data key protects, are drawn.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.document import Overlay
from bridge.document.policy import Refresh, Scope
from bridge.topology import peers_of
from keys.envelope import Mode
from papers.sim.kernel import Kernel
from tests.seldom import slow
from tests.sim.changing import changed
from tests.sim.organised_world import edges_of, organised, running, slowed
from tests.sim.test_epochs import keys_changed
from tests.sim.test_organiser import overlay_of
from tests.sim.test_stragglers import FIRST, calendar
from tests.sim.test_trees import LIES, judge, load, tell
from tests.sim.world import NOW, World

GATEWAYS = ("site", "second", "third", "far")
EPOCH_S = 16


def learn(kernel: Kernel, world: World, epoch: int, rng: random.Random) -> None:
    """The key service answers, some gateways up to two seconds later."""
    for bump in range(world.overlay.policy.scopes[0].bump + 1):
        world.learn(world.keys, range(FIRST, epoch + 1), bump)
    late = sorted((rng.choice([0.0, 0.0, rng.uniform(0.0, 2.0)]), name) for name in GATEWAYS)
    began = kernel.now
    for after_s, name in late:
        kernel.run(began + after_s)
        kernel.call(name, keys_changed)


def bumped(world: World, old: Overlay) -> Overlay:
    """The version after all others, on top of one that its replicas agreed to: scopes have other keys at once."""
    assert world.owner is not None
    scopes = tuple(replace(scope, bump=scope.bump + 1) for scope in world.overlay.policy.scopes)
    policy = replace(old.policy, version=world.overlay.policy.version + 1, scopes=scopes)
    return Overlay.sign(world.owner, policy, old.latest.values(), old.members.values(), old.endorsements)


@pytest.mark.parametrize("seed", slow(range(2, 40)))
def test_swaps_views_epochs_and_bumps_at_once_lose_nothing(seed: int) -> None:
    rng = random.Random(seed)
    scope = Scope("plant/#", [Mode.COPIES, Mode.ONE, Mode.BLOCKS, Mode.AUTO][seed % 4],
                  refresh=Refresh(messages=rng.choice([1, 3, 9])))  # fmt: skip
    world = organised(scope, seed, epochs=calendar(EPOCH_S, 10), dwell_s=5, interval_s=2, grace_s=6)
    world.learn(world.keys, [FIRST])
    if seed % 3:
        world.liars[f"r{rng.choice([1, 3])}{rng.choice('abc')}"] = frozenset(rng.sample(LIES, 2))
    kernel = running(world, rng, (2, 3))
    traffic = load(kernel, world, 45, 3)
    happens = [(NOW + EPOCH_S * n - 2, "keys", FIRST + n) for n in range(1, 6)]
    happens += [(NOW + 8 + 14 * n, "slow", n) for n in range(3)]
    happens += [(NOW + rng.uniform(15, 40), "view", region) for region in rng.sample([2, 4], 2)]
    happens += [(NOW + rng.uniform(10, 45), "bump", n) for n in range(seed % 5)]
    epoch = FIRST
    for at, what, value in sorted(happens):
        kernel.run(max(at, kernel.now))
        if what == "keys":
            epoch = value
            learn(kernel, world, epoch, rng)
        elif what == "bump":
            first = max(GATEWAYS, key=lambda name: overlay_of(kernel, name).policy.version)
            tell(kernel, world, bumped(world, overlay_of(kernel, first)), first)
            learn(kernel, world, epoch, rng)
        elif what == "slow":
            slowed(kernel, [(2, 3), (1, 4), (1, 2)][value])
        else:
            view, new = overlay_of(kernel, "far").latest[value].members, f"r{value}d"
            tell(kernel, world, changed(world, world.overlay, value, (*view[:2], new), kernel.now, 3), "far")
            kernel.add_node(new, world.maker(new, rng), peers_of(world.overlay, new))
    trace = kernel.run(NOW + 85)
    judge(trace, traffic, world)
    honest = kernel.nodes.keys() - world.liars.keys()
    members = [name for name in honest if not kernel.nodes[name].removed]  # type: ignore[attr-defined]
    assert len({frozenset(edges_of(overlay_of(kernel, name))) for name in members}) == 1, "all have one tree"
