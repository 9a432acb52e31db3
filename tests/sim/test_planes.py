"""A plain scope that goes by planes: each replica of a region carries a part, and whoever is stopped delays others only
as long as its links take to be seen still."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from bridge.document import Scope
from bridge.replica.statement_relay import COMPARE_S
from bridge.topology import Routes
from keys.envelope import Mode
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_liveness, check_safety
from papers.sim.kernel import EventTrace
from tests.sim.plane_shell import Shell
from tests.sim.test_ticks import played
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(17)

PLANES = Scope("plant/#", Mode.PLAIN, planes=True)
READERS = ("near", "far1", "far2", "far3", "far4", "side1", "side2")
EVERY_S = 0.04
BOUND_S = 1.5
"""What a replica that stops may delay a message by: until its links are seen still, and a request for what was lost."""


def slow(given: object) -> object:
    return pytest.param(given, marks=pytest.mark.slow)


def world_of(scope: Scope = PLANES) -> World:
    gateways = {"site": 1, "near": 1, "far1": 3, "far2": 3, "far3": 3, "far4": 3, "side1": 4, "side2": 4}
    return make_world({1: 3, 2: 3, 3: 3, 4: 3}, [(1, 2), (2, 3), (2, 4)], gateways, [scope])


def run(
    world: World, stop: str = "", says_loads: bool = True, count: int = 70, until_s: float = 15
) -> tuple[EventTrace, Traffic]:
    kernel = world.kernel(random.Random(3))
    shell = Shell(kernel, says_loads)
    if stop:
        shell.stopped[stop] = (NOW + 6, NOW + 11)
    traffic = Traffic("site")
    for reader in READERS:
        subscribe(kernel, reader, "plant/#")
    for number in range(count):
        traffic.publish(kernel, NOW + 5 + number * EVERY_S, f"plant/{number % 4}", b"%d" % number * 300)
    return shell.run(NOW + until_s), traffic


def longest_s(trace: EventTrace, reader: str) -> float:
    pairs = zip(trace.delivered_at[reader], trace.delivered[reader], strict=True)
    return max(at - delivery.publication.time_ms / 1000 for at, delivery in pairs)


def check(trace: EventTrace, traffic: Traffic, readers: Sequence[str] = READERS) -> None:
    for reader in readers:
        check_safety(traffic.published, trace.delivered[reader])
        check_liveness(traffic.published, trace.delivered[reader])
        assert not any(delivery.late for delivery in trace.delivered[reader]), reader
    assert not trace.blamed


def test_everybody_gets_everything_once_in_order_and_few_wires_carry_it() -> None:
    trace, traffic = run(world_of())
    check(trace, traffic)
    by_region, _ = run(world_of(Scope("plant/#", Mode.PLAIN)))
    assert trace.sent < by_region.sent / 2
    assert not {"pulls", "holes"} & trace.figures.keys()


@pytest.mark.parametrize("stopped", [slow("r2a"), "r2b", slow("r2c")])
def test_a_stopped_replica_delays_nobody_behind_it_for_long_where_loads_are_known(stopped: str) -> None:
    trace, traffic = run(world_of(), stopped)
    check(trace, traffic)
    assert max(longest_s(trace, reader) for reader in READERS) < BOUND_S


@pytest.mark.slow
def test_without_loads_who_is_behind_the_stopped_replica_waits_until_it_goes_on() -> None:
    trace, _ = run(world_of(), "r2b", says_loads=False)
    assert max(longest_s(trace, reader) for reader in READERS) > 2 * BOUND_S


@pytest.mark.parametrize("stopped", ["r1a", slow("r3b"), slow("r4c")])
def test_who_hangs_on_the_stopped_replica_is_served_by_another(stopped: str) -> None:
    trace, traffic = run(world_of(), stopped)
    check(trace, traffic)
    assert max(longest_s(trace, reader) for reader in READERS) < BOUND_S


def host_of(reader: str, region: int) -> str:
    """The replica of a region in the plane that a gateway hangs on."""
    planes = Routes(world_of().overlay, "r1a").planes
    return planes.replica((region, planes.host(PLANES, reader)))


WAYS = (Behaviour.DUPLICATE, Behaviour.REORDER, Behaviour.REPLAY, Behaviour.CONTENT, Behaviour.HEADER, Behaviour.STRIP)


@pytest.mark.parametrize("way", [Behaviour.DROP, *map(slow, WAYS)])
def test_a_bad_replica_in_a_plane_makes_nobody_take_anything_wrong_twice_or_out_of_order(way: Behaviour) -> None:
    """What it does not pass on is asked for when the next one shows the gap; the last ones it can hide."""
    world = world_of()
    bad = host_of("far1", 2)
    world.liars, world.probability = {bad: frozenset({way})}, 0.3
    trace, traffic = run(world, count=35)
    for reader in READERS:
        check_safety(traffic.published, trace.delivered[reader])
        assert len(trace.delivered[reader]) >= len(traffic.published) - 8, reader
    assert {blame.member for _, blame in trace.blamed} <= {bad}


@pytest.mark.invariant(20)
@pytest.mark.parametrize("way", [Behaviour.SILENT, slow(Behaviour.FLOOD)])
def test_a_host_that_passes_no_statement_on_hides_its_readers_only_until_others_compare(way: Behaviour) -> None:
    world = world_of()
    bad = host_of("far1", 3)
    hidden = [reader for reader in READERS if reader.startswith("far") and host_of(reader, 3) == bad]
    world.liars, world.probability = {bad: frozenset({way})}, 1.0
    kernel = world.kernel(random.Random(3))
    subscribe(kernel, "far1", "plant/#")
    kernel.run(NOW + 3 * COMPARE_S)
    wanting = [name for name, node in kernel.nodes.items() if name.startswith("r") and name != bad
               and "far1" in node.forwarder.routing.wanting(PLANES, kernel.now)]  # type: ignore[attr-defined]  # fmt: skip
    assert hidden
    assert len(wanting) == 11


def crashed_at_the_end(seed: int) -> tuple[EventTrace, Traffic]:
    """A replica that crashes about when the last publication comes, and is back within two seconds."""
    rng = random.Random(f"tail {seed}")
    far = rng.random() < 0.5
    sizes, edges = ({1: 3, 2: 3}, [(1, 2)]) if far else ({1: 3}, [])
    world = make_world(sizes, edges, {"site": 1, "control": 2 if far else 1}, [PLANES], seed=seed)
    kernel = world.kernel(random.Random(seed))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for number in range(12):
        traffic.publish(kernel, NOW + 5 + 0.05 * number, f"plant/{number % 3}", b"%d" % number, 1 + number % 2)
    victim = rng.choice([name for name in kernel.nodes if name.startswith("r")])
    kernel.run(NOW + 5.55 + rng.uniform(-0.1, 0.06))
    kernel.crash(victim)
    kernel.run(kernel.now + 2 * rng.random())
    kernel.restart(victim)
    return kernel.run(NOW + 40), traffic


@pytest.mark.parametrize("seeds", [(31, 43), *map(slow, (range(at, at + 75) for at in range(100, 400, 75)))])
def test_a_replica_that_restarts_around_the_last_publications_hides_none(seeds: Sequence[int]) -> None:
    """What it had taken and not passed on comes again from a neighbour, and goes to all whom it hears of later."""
    for seed in seeds:
        trace, traffic = crashed_at_the_end(seed)
        check_safety(traffic.published, trace.delivered["control"])
        check_liveness(traffic.published, trace.delivered["control"])
        assert not trace.blamed, seed


@pytest.mark.parametrize("seeds", [(34, 69, 174), *map(slow, (range(at, at + 75) for at in range(2000, 2300, 75)))])
def test_a_replica_that_hears_late_who_wants_what_it_took_passes_it_on(seeds: Sequence[int]) -> None:
    for seed in seeds:
        trace, traffic = played(seed, jitter=True, scope=PLANES)
        check_safety(traffic.published, trace.delivered["control"])
        check_liveness(traffic.published, trace.delivered["control"])
