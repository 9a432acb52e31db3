"""Publications under keys that four servers issue over some epochs: one lies, another is down, nobody else is named."""

from __future__ import annotations

import random

import pytest

from bridge.contract.machine import Subscribed
from keys.epochs import KeyName
from tests.sim.keyservers import CALENDAR, SERVERS, key_world
from tests.sim.world import NOW, Traffic

pytestmark = pytest.mark.invariant(56)


@pytest.mark.parametrize("seed", range(4))
def test_with_f_liars_keys_arrive_epoch_by_epoch_and_only_the_liar_is_named(seed: int):
    rng = random.Random(seed)
    liar = rng.choice(SERVERS)
    service = key_world(seed, frozenset({liar}))
    kernel = service.kernel(rng)
    traffic = Traffic("site")
    kernel.at(NOW + 2, "control", Subscribed("plant/#"))
    for n in range(80):
        traffic.publish(kernel, NOW + 3 + 2 * n, "plant/t", str(n).encode())
    trace = kernel.run(NOW + 200)
    assert [d.publication.payload for d in trace.delivered["control"]] == [str(n).encode() for n in range(80)], seed
    assert trace.named() == {liar}, seed
    for epoch in range(CALENDAR.at(NOW), CALENDAR.at(NOW + 160) + 1):
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
    kernel.at(NOW + 2, "control", Subscribed("plant/#"))
    for n in range(60):
        traffic.publish(kernel, NOW + 3 + 2 * n, "plant/t", str(n).encode())
    kernel.run(NOW + 90)
    kernel.restart(down)
    trace = kernel.run(NOW + 160)
    assert [d.publication.payload for d in trace.delivered["control"]] == [str(n).encode() for n in range(60)], seed
    assert not trace.named()


@pytest.mark.invariant(57)
def test_without_enough_servers_nothing_is_sealed_and_all_comes_after_the_outage():
    """f + 1 are away: no key of the new epoch, hence nothing under it; the outbox waits."""
    service = key_world(9)
    kernel = service.kernel(random.Random(9))
    for name in SERVERS[:2]:
        kernel.crash(name)
    traffic = Traffic("site")
    kernel.at(NOW + 2, "control", Subscribed("plant/#"))
    for n in range(10):
        traffic.publish(kernel, NOW + 3 + n, "plant/t", str(n).encode())
    trace = kernel.run(NOW + 30)
    assert "control" not in trace.delivered
    for name in SERVERS[:2]:
        kernel.restart(name)
    trace = kernel.run(NOW + 120)
    assert [d.publication.payload for d in trace.delivered["control"]] == [str(n).encode() for n in range(10)]
