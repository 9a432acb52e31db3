"""Publications under keys that four servers issue over some epochs: one lies, another is down, nobody else is named."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract.machine import Subscribed
from keys.epochs import KeyName
from tests.seldom import slow
from tests.sim.keyservers import CALENDAR, SERVERS, key_world
from tests.sim.test_trees import tell
from tests.sim.world import NOW, Traffic

pytestmark = pytest.mark.invariant(56)


@pytest.mark.parametrize("seed", range(4))
def test_with_f_liars_keys_arrive_epoch_by_epoch_and_only_the_liar_is_named(seed: int):
    rng = random.Random(seed)
    liar = rng.choice(SERVERS)
    service = key_world(seed, frozenset({liar}))
    kernel = service.kernel(rng)
    traffic = Traffic("site")
    kernel.plan_event(NOW + 2, "control", Subscribed("plant/#"))
    for n in range(80):
        traffic.publish(kernel, NOW + 3 + 2 * n, "plant/t", str(n).encode())
    trace = kernel.run(NOW + 200)
    assert [d.publication.payload for d in trace.delivered["control"]] == [str(n).encode() for n in range(80)], seed
    assert trace.named_members() == {liar}, seed
    for epoch in range(CALENDAR.epoch_at(NOW), CALENDAR.epoch_at(NOW + 160) + 1):
        name = KeyName("plant/#", epoch, 0)
        assert service.held("site", name) == service.held("control", name) == service.right(name)


@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_is_down_and_comes_back_costs_nothing(seed: int):
    """Every set of n - f has f + 1 servers up, so keys come on time; nobody is named."""
    rng = random.Random(seed)
    down = rng.choice(SERVERS)
    service = key_world(seed)
    kernel = service.kernel(rng)
    kernel.crash(down)
    traffic = Traffic("site")
    kernel.plan_event(NOW + 2, "control", Subscribed("plant/#"))
    for n in range(60):
        traffic.publish(kernel, NOW + 3 + 2 * n, "plant/t", str(n).encode())
    kernel.run(NOW + 90)
    kernel.restart(down)
    trace = kernel.run(NOW + 160)
    assert [d.publication.payload for d in trace.delivered["control"]] == [str(n).encode() for n in range(60)], seed
    assert not trace.named_members()


@pytest.mark.invariant(57)
def test_without_enough_servers_nothing_is_sealed_and_all_comes_after_the_outage():
    """f + 1 are away: no key of the new epoch, hence nothing under it; the outbox waits."""
    service = key_world(9)
    kernel = service.kernel(random.Random(9))
    for name in SERVERS[:2]:
        kernel.crash(name)
    traffic = Traffic("site")
    kernel.plan_event(NOW + 2, "control", Subscribed("plant/#"))
    for n in range(10):
        traffic.publish(kernel, NOW + 3 + n, "plant/t", str(n).encode())
    trace = kernel.run(NOW + 30)
    assert "control" not in trace.delivered
    for name in SERVERS[:2]:
        kernel.restart(name)
    trace = kernel.run(NOW + 120)
    assert [d.publication.payload for d in trace.delivered["control"]] == [str(n).encode() for n in range(10)]


@pytest.mark.invariant(57, 58)
@pytest.mark.parametrize("seed", [0, *slow(range(1, 30))])
def test_bumps_in_a_row_around_ends_of_epochs_lose_nothing_while_members_miss_servers(seed: int):
    """Versions come anywhere, a server may lie, and site and reader each lose two servers for a while."""
    rng = random.Random(seed)
    liars = frozenset(rng.sample(SERVERS, seed % 2))
    service = key_world(seed, liars)
    world, kernel = service.world, service.kernel(rng)
    traffic = Traffic("site")
    kernel.plan_event(NOW + 2, "control", Subscribed("plant/#"))
    for n in range(200):
        traffic.publish(kernel, NOW + 3 + n / 2, "plant/t", b"%d" % n, qos=1 + n % 2)
    first = rng.uniform(20, 70)
    happens = [(first + n * rng.uniform(0.1, 1.5), "bump", "") for n in range(8)]
    happens += [(rng.uniform(15, 100), "bump", "") for _ in range(3)]
    for name in ("site", "control"):
        away = rng.uniform(15, 60)
        missed = " ".join(rng.sample(SERVERS, 2))
        happens += [(away, "cut", f"{name} {missed}"), (away + rng.uniform(5, 40), "heal", f"{name} {missed}")]
    for at, what, value in sorted(happens):
        kernel.run(max(NOW + at, kernel.now))
        if what == "bump":
            scopes = tuple(replace(scope, bump=scope.bump + 1) for scope in world.overlay.policy.scopes)
            tell(kernel, world, world.with_policy(scopes=scopes), rng.choice(sorted(world.overlay.members)))
        else:
            name, *servers = value.split()
            for server in servers:
                getattr(kernel, what)(name, server)
    trace = kernel.run(NOW + 240)
    assert [d.publication.payload for d in trace.delivered["control"]] == [b"%d" % n for n in range(200)], seed
    assert trace.named_members() <= liars, seed
