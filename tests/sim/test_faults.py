"""Partitions, restarts, late joiners and long mixed runs: nothing wrong, nothing lost within the bounds."""

from __future__ import annotations

import random
from itertools import product

import pytest

from bridge.contract.budgets import RESEALED_MAX
from bridge.contract.machine import Subscribed, Unsubscribed
from bridge.document.policy import Scope
from bridge.replica.content_relay import Carrying
from keys.envelope import Mode
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import EventTrace, Kernel
from tests.seldom import in_turn, slow
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(12)

REGION_1, REGION_2 = ("r1a", "r1b", "r1c"), ("r2a", "r2b", "r2c")


def two_regions(seed: int) -> tuple[World, Kernel, Traffic]:
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2})
    kernel = world.kernel(random.Random(seed))
    subscribe(kernel, "control", "plant/#")
    return world, kernel, Traffic("site")


# ----------------------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize("seed", [0, *slow([1, 2])])
def test_an_outbox_rides_out_days_without_uplink(seed: int):
    _, kernel, traffic = two_regions(seed)
    kernel.run(NOW + 4)
    for replica in REGION_1:
        kernel.cut("site", replica)
    for n in range(150):
        traffic.publish(kernel, NOW + 5 + n * 1200, f"plant/{n % 3}", b"%d" % n, qos=n % 2 + 1)
    kernel.run(NOW + 200_000)
    for replica in REGION_1:
        kernel.heal("site", replica)
    trace = kernel.run(NOW + 200_060)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    assert not any(delivery.late for delivery in trace.delivered["control"])
    assert trace.forgotten["site"] == set(traffic.published)


@pytest.mark.parametrize("seed", [0, *slow([1, 2])])
def test_one_replica_of_each_region_may_be_cut_off(seed: int):
    """The same majority stays connected on every link of the path, so that nothing may be lost."""
    _, kernel, traffic = two_regions(seed)
    for n in range(100):
        traffic.publish(kernel, NOW + 5 + n * 0.2, f"plant/{n % 3}", b"%d" % n)
    links = [*(("r1b", r) for r in (*REGION_2, "site")), *((r, "r2c") for r in (*REGION_1, "control"))]
    kernel.run(NOW + 8)
    for a, b in links:
        kernel.cut(a, b)
    kernel.run(NOW + 16)
    for a, b in links:
        kernel.heal(a, b)
    trace = kernel.run(NOW + 80)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), ())
    assert trace.forgotten["site"] == set(traffic.published)


def partitioned(mode: Mode, extra_bytes: int, away_s: float) -> tuple[Traffic, EventTrace]:
    """100 publications, of which the second half meets a cut between all of region 1 and region 2, and then 20 more."""
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, [Scope("plant/#", mode)])
    kernel = world.kernel(random.Random(5))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    for n in range(100):
        traffic.publish(kernel, NOW + 5 + n * 0.2, f"plant/{n % 2}", b"%d" % n + bytes(extra_bytes))
    kernel.run(NOW + 14.9)
    for a, b in product(REGION_1, REGION_2):
        kernel.cut(a, b)
    kernel.run(NOW + 14.9 + away_s)
    for a, b in product(REGION_1, REGION_2):
        kernel.heal(a, b)
    for n in range(20):
        traffic.publish(kernel, NOW + 20 + away_s + n, f"plant/{n % 2}", b"after")
    return traffic, kernel.run(NOW + 80 + away_s)


@pytest.mark.invariant(21)
@pytest.mark.parametrize(("mode", "extra_bytes"), in_turn([Mode.COPIES, Mode.ONE, Mode.BLOCKS], [3000, 0]))
def test_nothing_is_lost_in_a_short_partition_of_regions(mode: Mode, extra_bytes: int):
    """What replicas of region 1 forwarded to nobody, they tell again when the links are back."""
    traffic, trace = partitioned(mode, extra_bytes, away_s=12.0)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    assert not trace.named_members()


def test_after_a_long_partition_of_regions_delivery_goes_on():
    """What passed more than RECENT_S before the links came back is lost; what follows is not."""
    traffic, trace = partitioned(Mode.COPIES, 0, away_s=60.0)
    check_safety(traffic.published, trace.delivered["control"])
    got = {delivery.sequence for delivery in trace.delivered["control"]}
    lost = set(traffic.published) - got
    assert lost <= set(range(50, 101))
    assert len(lost) > 20


@pytest.mark.invariant(21)
def test_a_hole_that_no_replica_of_the_last_region_heard_of_is_filled(monkeypatch: pytest.MonkeyPatch):
    """Links that come back tell nothing again: the reader asks for predecessors, one after another, through the region
    before."""
    monkeypatch.setattr(Carrying, "link_up", lambda self, peer, now: [])
    traffic, trace = partitioned(Mode.COPIES, 3000, away_s=5.0)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    assert trace.figures["pulls_passed_on"] > 20


# ------------------------------------------------------------------------------------------- killed gateways


@pytest.mark.invariant(31)
@pytest.mark.parametrize("only", REGION_1)
@pytest.mark.parametrize("liar", [None, *REGION_1])
def test_a_gateway_killed_after_one_replica_had_its_publications_loses_none(only: str, liar: str | None):
    """They are sealed again under their sequences; the first sealing, of which k shares never come, is in the way."""
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2})
    if liar is not None:
        world.liars = {liar: frozenset({Behaviour.REPLAY, Behaviour.STRIP})}
    kernel = world.kernel(random.Random(6))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    kernel.run(NOW + 4)
    others = [replica for replica in REGION_1 if replica != only]
    for replica in others:
        kernel.cut("site", replica)
    for n in range(20):
        traffic.publish(kernel, NOW + 5 + n * 0.05, f"plant/{n % 2}", b"%d" % n)
    kernel.run(NOW + 7)
    kernel.crash("site")
    for replica in others:
        kernel.heal("site", replica)
    kernel.run(NOW + 8)
    kernel.restart("site")
    trace = kernel.run(NOW + 60)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])


@pytest.mark.invariant(41)
@pytest.mark.parametrize("liar", ["r1b", pytest.param("r1c", marks=pytest.mark.slow)])
def test_a_gateway_killed_far_ahead_with_one_replica_loses_none_though_another_withholds(liar: str):
    """Attack: one honest replica has seen so much that it took new sealings for repetitions; with a bad one beside it,
    the other honest one alone could not pass on enough shares."""
    world = make_world({1: 3}, [], {"site": 1, "control": 1})
    world.liars = {liar: frozenset({Behaviour.DROP})}
    kernel = world.kernel(random.Random(7))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    kernel.run(NOW + 4)
    for replica in ("r1b", "r1c"):
        kernel.cut("site", replica)
    for n in range(2 * RESEALED_MAX):
        traffic.publish(kernel, NOW + 5 + n * 0.001, f"plant/{n % 7}", b"%d" % n)
    kernel.run(NOW + 9)
    kernel.crash("site")
    for replica in ("r1b", "r1c"):
        kernel.heal("site", replica)
    kernel.run(NOW + 10)
    kernel.restart("site")
    trace = kernel.run(NOW + 60)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])


# ------------------------------------------------------------------------------------------------- joiners


@pytest.mark.parametrize("liar", [None, "r1b", "r2a"])
@pytest.mark.parametrize("region", [1, 2])
def test_late_joiners_get_what_is_retained_in_its_last_state_and_then_live_ones(region: int, liar: str | None):
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2, "late": region})
    if liar is not None:
        world.liars = {liar: frozenset({Behaviour.REPLAY, Behaviour.DUPLICATE, Behaviour.RETAIN})}
    kernel = world.kernel(random.Random(8))
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    last: dict[str, int] = {}
    for n in range(20):
        topic = f"plant/{n % 4}"
        last[topic] = traffic.publish(kernel, NOW + 5 + n, topic, b"%d" % n, retain=True)
    subscribe(kernel, "late", "plant/#", NOW + 4000)
    live = {traffic.publish(kernel, NOW + 4010 + n, f"plant/{n % 4}", b"live") for n in range(8)}
    trace = kernel.run(NOW + 4040)
    got = [d.sequence for d in trace.delivered["late"]]
    assert sorted(got[:4]) == sorted(last.values())
    assert set(got[4:]) == live
    assert all(d.publication.retain for d in trace.delivered["late"][:4])
    check_safety(traffic.published, trace.delivered["late"])
    check_safety(traffic.published, trace.delivered["control"])


def test_a_client_that_comes_and_goes_is_not_held_up():
    _, kernel, traffic = two_regions(9)
    sequences = [traffic.publish(kernel, NOW + 5 + n, "plant/t", b"%d" % n) for n in range(60)]
    kernel.plan_event(NOW + 20.5, "control", Unsubscribed("plant/#"))
    kernel.plan_event(NOW + 40.5, "control", Subscribed("plant/#"))
    trace = kernel.run(NOW + 44)
    assert [d.sequence for d in trace.delivered["control"]] == sequences[:16] + sequences[36:39]


@pytest.mark.parametrize("late_s", [0.2, 8.0])
@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.BLOCKS, Mode.PLAIN], ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("regions", [1, 2])
def test_after_all_replicas_were_killed_a_reader_whose_links_come_up_later_lacks_nothing(
    regions: int, mode: Mode, late_s: float
):
    """The replicas know no statement when the outbox is sent to them, and nothing is published afterwards."""
    sizes, edges = ({1: 3}, []) if regions == 1 else ({1: 3, 2: 3}, [(1, 2)])
    world = make_world(sizes, edges, {"site": 1, "control": regions}, [Scope("plant/#", mode)])
    kernel, traffic = world.kernel(random.Random(late_s)), Traffic("site")
    subscribe(kernel, "control", "plant/#")
    for number in range(5):
        traffic.publish(kernel, NOW + 3 + number * 0.2, "plant/a", b"before", qos=1)
    kernel.run(NOW + 10)
    replicas = [f"r{region}{letter}" for region in sizes for letter in "abc"]
    for replica in replicas:
        kernel.crash(replica)
    for number in range(20):
        traffic.publish(kernel, NOW + 11 + number * 0.5, f"plant/{number % 3}", b"meanwhile", qos=1 + number % 2)
    kernel.run(NOW + 40)
    near = [replica for replica in replicas if replica.startswith(f"r{regions}")]
    for replica in near:
        kernel.cut("control", replica)
    for replica in replicas:
        kernel.restart(replica)
    kernel.run(NOW + 40 + late_s)
    for replica in near:
        kernel.heal("control", replica)
    trace = kernel.run(NOW + 90)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])


# ---------------------------------------------------------------------------------------------------- soak


@pytest.mark.parametrize("seed", [0, *slow([1, 2, 3])])
def test_five_replicas_two_of_them_bad_in_each_region_anything_mixed(seed: int):
    rng = random.Random(seed)
    world = make_world({1: 5, 2: 5}, [(1, 2)], {"site": 1, "control": 2, "near": 1}, seed=seed)
    for region in (1, 2):
        for name in rng.sample(world.overlay.views[region].members, 2):
            world.liars[name] = frozenset(rng.sample(list(Behaviour), rng.randrange(1, 5)))
    world.probability = rng.choice([0.3, 0.7, 1.0])
    kernel = world.kernel(rng, (0.001, rng.choice([0.02, 0.2])))
    for reader in ("control", "near"):
        subscribe(kernel, reader, "#")
    traffic = Traffic("site")
    for n in range(75):
        traffic.publish(kernel, NOW + 5 + n * 0.2, f"plant/{n % 5}", b"%d" % n, qos=n % 3, retain=rng.random() < 0.2)
    honest = [m for m in world.overlay.members if m not in world.liars and m not in ("site", "control", "near")]
    for n in range(3):  # a restart of an honest one loses what it held, so one more must be spared by the liars
        kernel.run(NOW + 60 + n)
        victim = rng.choice(honest)
        kernel.crash(victim)
        kernel.restart(victim)
    trace = kernel.run(NOW + 90)
    for reader in ("control", "near"):
        check_safety(traffic.published, trace.delivered[reader])
        check_liveness(traffic.published, trace.delivered[reader])
    check_blame(trace.named_members(), world.liars)
