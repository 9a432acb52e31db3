"""The publisher hears first of its next key, or of a new right, under load: nothing is lost, nobody is suspected."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract import Rotated
from bridge.document.overlay import Member, Overlay
from bridge.document.policy import Scope
from keys.envelope import Mode
from keys.grants import Grant, Right
from keys.identity import Certificate, Identity
from papers.sim.checkers import check_safety
from papers.sim.kernel import Kernel
from tests.seldom import in_turn, slow
from tests.sim.test_trees import tell
from tests.sim.world import NOT_AFTER_MS, NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.attack(105)

READERS = ("near", "far")
SLOW, FAST = (0.05, 0.3), (0.001, 0.02)


def with_next_key(world: World, name: str) -> tuple[Overlay, Identity]:
    """A version that lists another key of a member, and the former beside it for a day."""
    identity, certificate = Identity.generate(b"%-32s" % b"next key"), world.overlay.certificate(name)

    def issued(public_key: bytes, agreement_key: bytes, not_after_ms: int) -> Certificate:
        return Certificate.issue(
            world.owner, name=name, role=certificate.role, public_key=public_key, agreement_key=agreement_key,
            domain=certificate.domain, region=certificate.region, not_after_ms=not_after_ms,
        )  # fmt: skip

    before = issued(certificate.public_key, certificate.agreement_key, int((NOW + 86_400) * 1000))
    member = Member(issued(identity.public_bytes, identity.agreement_bytes, NOT_AFTER_MS), before=before)
    members = {**world.overlay.members, name: member}
    policy = replace(world.overlay.policy, version=world.overlay.policy.version + 1)
    return Overlay.sign(world.owner, policy, world.overlay.latest.values(), members.values()), identity


def until_adopted(kernel: Kernel, name: str, version: int, now: float) -> float:
    """When the member has the version."""
    while kernel.nodes[name].overlay.policy.version < version:
        now += 0.01
        kernel.run(now)
    return now


def check_nothing_lost(kernel: Kernel, traffic: Traffic) -> None:
    trace = kernel.run(NOW + 400)
    for reader in READERS:
        check_safety(traffic.published, trace.delivered[reader])
        assert {d.sequence for d in trace.delivered[reader]} == set(range(1, len(traffic.published) + 1))
    assert not trace.suspected()


@pytest.mark.parametrize("latency_s", [*slow([FAST]), SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.PLAIN], ids=["sealed", "plain"])
def test_a_publisher_that_hears_first_of_its_next_key_loses_nothing(mode: Mode, latency_s: tuple[float, float]) -> None:
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "near": 1, "far": 2}, [Scope("plant/#", mode)])
    kernel, traffic = world.kernel(random.Random(f"site{latency_s}"), latency_s=latency_s), Traffic("site")
    for reader in READERS:
        subscribe(kernel, reader, "plant/#")
    for n in range(120):
        traffic.publish(kernel, NOW + 5 + n / 30, f"plant/{n % 2}", b"%d" % n, qos=1 + n % 2)
    kernel.run(NOW + 6.02)
    overlay, identity = with_next_key(world, "site")
    tell(kernel, world, overlay, "site")
    at = until_adopted(kernel, "site", overlay.policy.version, NOW + 6.02)
    kernel.plan_event(at, "site", Rotated(identity))
    for n in range(20):  # when the next key signs
        traffic.publish(kernel, NOW + 30 + n, "plant/0", b"later", qos=1)
    check_nothing_lost(kernel, traffic)


@pytest.mark.parametrize(("first", "latency_s"), in_turn(["site", "far"], [FAST, SLOW]))
def test_who_hears_first_of_a_new_right_loses_nothing(first: str, latency_s: tuple[float, float]) -> None:
    """The owner's file is given to the publisher first. Its devices begin as soon as it may."""
    scopes, rights = [Scope("plant/#"), Scope("open/#")], {"site": (("open/#",), ("#",))}
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "near": 1, "far": 2}, scopes, rights=rights)
    kernel, traffic = world.kernel(random.Random(f"{first}{latency_s}"), latency_s=latency_s), Traffic("site")
    for reader in READERS:
        subscribe(kernel, reader, "plant/#")
    kernel.run(NOW + 8)
    newer = world.with_policy(grants=(*world.overlay.policy.grants, Grant("site", "plant/#", Right.PUBLISH)))
    tell(kernel, world, newer, first)
    at = until_adopted(kernel, "site", newer.policy.version, NOW + 8)
    for n in range(120):
        traffic.publish(kernel, at + 0.001 + n / 30, f"plant/{n % 2}", b"%d" % n, qos=1 + n % 2)
    check_nothing_lost(kernel, traffic)
