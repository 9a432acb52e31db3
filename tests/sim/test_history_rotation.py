"""A publisher whose key was exchanged inside the span that is read, or inside a gap (docs/protocol.md §2.6, §12)."""

from __future__ import annotations

import random

import pytest

from bridge.contract import Rotated
from keys.envelope import Mode
from papers.sim.checkers import check_liveness, check_safety
from papers.sim.kernel import Kernel
from tests.seldom import in_turn, mostly_slow
from tests.sim.test_history import LIES, a_world, check_alike, come_back, living, lying, reread
from tests.sim.test_history_far import a_world as a_far_world
from tests.sim.test_history_far import lying_far
from tests.sim.test_transitions import until_adopted, with_next_key
from tests.sim.test_trees import tell
from tests.sim.world import NOW, Traffic, World, subscribe

REPLICAS = ("r2a", "r2b", "r2c")


def rotate(kernel: Kernel, world: World, at: float, restarts: bool = False) -> None:
    """The publisher signs with its next key from some seconds after this time on."""
    kernel.run(at)
    overlay, identity = with_next_key(world, "site")
    tell(kernel, world, overlay, "site")
    world.overlay = overlay
    adopted = until_adopted(kernel, "site", overlay.policy.version, at)
    world.identities["site"] = identity
    kernel.plan_event(adopted, "site", Rotated(identity))


def publish(traffic: Traffic, kernel: Kernel, since: float, until: float, count: int, rng: random.Random) -> None:
    for at in sorted(rng.uniform(since, until) for _ in range(count)):
        traffic.publish(
            kernel, at, f"plant/{rng.randrange(3)}", rng.randbytes(rng.choice((3, 600))), qos=rng.choice((1, 2))
        )


@pytest.mark.parametrize(("mode", "lie"), in_turn([Mode.COPIES, Mode.PLAIN, Mode.BLOCKS], ["honest", "omit", "shares"]))
def test_a_late_reader_reads_over_an_exchange_of_keys(mode: Mode, lie: str) -> None:
    rng = random.Random(f"{mode}{lie}")
    world = a_world(41, mode)
    kernel, traffic = lying(world, rng, {"r2b": lie}), Traffic("site")
    subscribe(kernel, "desk", "plant/#")
    publish(traffic, kernel, NOW + 4, NOW + 60, 60, rng)
    rotate(kernel, world, NOW + 20)
    reread(kernel, world, NOW + 3_000)
    kernel.run(NOW + 3_060)
    check_alike(kernel, traffic)
    publishers = {position.publisher for position in kernel.histories["r2a"]._records[1]}
    assert len(publishers) == 2, "one key signed all, so that this shows nothing"
    assert not kernel.trace.named_members() - {"r2b"}


def test_the_former_key_counts_in_its_time_once_its_certificate_has_ended() -> None:
    rng = random.Random(8)
    world = a_world(45)
    kernel, traffic = lying(world, rng, {"r2a": "alter"}), Traffic("site")
    subscribe(kernel, "desk", "plant/#")
    publish(traffic, kernel, NOW + 4, NOW + 60, 60, rng)
    rotate(kernel, world, NOW + 20)
    reread(kernel, world, NOW + 90_000)
    kernel.run(NOW + 90_060)
    check_alike(kernel, traffic)


def test_a_reader_of_another_region_reads_over_an_exchange_of_keys() -> None:
    rng = random.Random(5)
    world = a_far_world(42)
    kernel, traffic = lying_far(world, rng, {"r1b": "omit"}, {"r2a": "drop", "r3c": "alter"}), Traffic("site")
    subscribe(kernel, "desk", "plant/#")
    publish(traffic, kernel, NOW + 4, NOW + 60, 60, rng)
    rotate(kernel, world, NOW + 20)
    reread(kernel, world, NOW + 3_000)
    kernel.run(NOW + 3_100)
    check_alike(kernel, traffic)
    assert len({position.publisher for position in kernel.histories["r1a"]._records[1]}) == 2


@pytest.mark.parametrize("lie", mostly_slow(LIES, "omit", "alter", "silent", "eras"))
def test_a_gap_with_an_exchange_of_keys_inside_is_filled_in_order(lie: str) -> None:
    rng = random.Random(lie)
    world = a_world(43)
    kernel, traffic = lying(world, rng, {"r2b": lie}), Traffic("site")
    subscribe(kernel, "desk", "plant/#")
    publish(traffic, kernel, NOW + 4, NOW + 14, 15, rng)
    kernel.run(NOW + 20)
    for replica in REPLICAS:
        kernel.cut("desk", replica)
    publish(traffic, kernel, NOW + 21, NOW + 60, 60, rng)
    rotate(kernel, world, NOW + 35)
    kernel.run(NOW + 200)
    for replica in REPLICAS:
        kernel.heal("desk", replica)
    publish(traffic, kernel, NOW + 210, NOW + 220, 15, rng)
    kernel.run(NOW + 330)
    delivered = kernel.trace.delivered["desk"]
    check_safety(traffic.published, delivered)
    check_liveness(traffic.published, delivered)
    assert not any(each.late for each in delivered)
    assert kernel.trace.figures["gaps_read"]
    assert not kernel.trace.named_members() - {"r2b"}


def test_a_gateway_that_was_away_goes_on_over_an_exchange_of_keys() -> None:
    rng = random.Random(7)
    world = a_world(44)
    kernel, rows = living(world, rng, {"r2c": "shares"})
    subscribe(kernel, "desk", "plant/#")
    traffic = Traffic("site")
    publish(traffic, kernel, NOW + 4, NOW + 9_000, 150, rng)
    kernel.run(NOW + 1_000)
    kernel.crash("desk")
    rotate(kernel, world, NOW + 4_000)
    kernel.run(NOW + 8_000)
    come_back(kernel, rows)
    kernel.run(NOW + 9_060)
    delivered = kernel.trace.delivered["desk"]
    check_safety(traffic.published, delivered)
    check_liveness(traffic.published, delivered)
    assert not any(each.late for each in delivered)
    assert kernel.trace.figures["read_on"] == 1
