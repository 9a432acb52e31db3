"""A gateway that stops or is killed at any moment: everything once to QoS 2 clients, nothing lost, nothing replayed.

Replicas keep for it what it did not acknowledge, its disk what it asked to keep (`lives`). One replica a region lies.
"""

from __future__ import annotations

import random

import pytest

from bridge.document.policy import Refresh, Scope
from bridge.sim.adversary import Behaviour
from bridge.sim.checkers import check_blame, check_liveness, check_safety
from keys.envelope import Mode
from tests.sim.lives import Lives
from tests.sim.world import NOW, Traffic, World, make_world

COUNT = 90
SHAPES = {
    "one region": ({1: 3}, [], 1),
    "two regions": ({1: 3, 2: 3}, [(1, 2)], 2),
}
LIES = [set(), {Behaviour.REPLAY, Behaviour.DUPLICATE}, {Behaviour.DROP}, {Behaviour.SHARES, Behaviour.CONTENT}]


def lives_of(world: World, rng: random.Random, filters: list[str]) -> Lives:
    plain = world.kernel(rng)
    kernel = Lives(plain._makers, plain._peers, rng, NOW, (0.001, 0.020))
    kernel.reader = ""
    kernel.start()
    kernel.begin("control", filters)
    return kernel


@pytest.mark.parametrize("lies", LIES, ids=lambda lies: "+".join(sorted(lie.value for lie in lies)) or "honest")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_every_life_of_a_gateway_goes_on_where_the_last_one_ended(seed: int, shape: str, lies: set[Behaviour]):
    sizes, edges, home = SHAPES[shape]
    rng = random.Random(f"{seed}{shape}{len(lies)}")
    on_topic = seed % 2 == 1
    scopes = [Scope("plant/#", refresh=Refresh(messages=16), keys_on_topic=on_topic), Scope("open/#", Mode.PLAIN)]
    world = make_world(sizes, edges, {"site": 1, "control": home}, scopes, seed=seed)
    liars = [f"r{region}{rng.choice('abc')}" for region in sizes] if lies else []
    world.liars = {name: frozenset(lies) for name in liars}
    kernel = lives_of(world, rng, ["plant/#", "open/#"])
    traffic = Traffic("site")
    when = NOW + 4.0
    for number in range(COUNT):
        when += rng.expovariate(20.0)
        topic = rng.choice(("plant/a", "plant/b", f"plant/new{number // 10}", "open/a"))
        payload = b"%d " % number + rng.randbytes(rng.choice((3, 400, 3000)))
        traffic.publish(kernel, when, topic, payload, qos=2, retain=rng.random() < 0.15)
    at = NOW + 4.0
    while at < when:
        at += rng.uniform(0.05, 1.5)
        kernel.run(at)
        kernel.stop() if rng.random() < 0.4 else kernel.kill()
        at += rng.choice((0.01, 0.3, 2.0, 20.0))
        kernel.run(at)
        kernel.revive()
    kernel.run(at + 120)
    check_safety(traffic.published, kernel.committed)
    check_liveness(traffic.published, kernel.committed)
    assert not kernel.replayed
    check_blame(kernel.trace.named(), liars)
    assert not kernel._kept["r1a"], "everything was acknowledged in the end"
