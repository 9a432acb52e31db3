"""One bad client of a gateway, whose others are at other gateways: with and without a key service, in one region and
across two. What a single broker does about such a client is in `tests/gateway/test_one_bad_client.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from bridge.contract.machine import GroupJoined, Subscribed, Unsubscribed
from bridge.document.policy import ENDLESS_EPOCH, Scope
from bridge.publisher import own_retained
from papers.sim.kernel import EventTrace, Kernel
from tests.sim.test_epochs import keys_changed
from tests.sim.test_groups import GROUP, Members, joins, missing_and_repeated, publish
from tests.sim.test_stragglers import FIRST, calendar
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

EPOCH_S = 30
VARIANTS = pytest.mark.parametrize(
    ("regions", "has_service"), [(1, False), (2, False), (1, True), (2, True)],
    ids=["one region", "two regions", "one region, key service", "two regions, key service"],
)  # fmt: skip


class RunningWorld:
    """A world in which time goes on; with a key service gateways get an epoch's key two seconds before it begins."""

    def __init__(self, regions: int, has_service: bool, gateways: Sequence[str]) -> None:
        times = calendar(EPOCH_S, 10) if has_service else ENDLESS_EPOCH
        sizes, edges = dict.fromkeys(range(1, regions + 1), 3), [(1, 2)] * (regions - 1)
        homes = {name: 1 if name == "site" else regions for name in gateways}
        self.world: World = make_world(sizes, edges, homes, [Scope("plant/#", tokens=True)], calendar=times)
        self.replicas = [f"r{region}{letter}" for region in sizes for letter in "abc"]
        self.gateways = gateways
        self.epoch = FIRST if has_service else None
        if has_service:
            self.world.learn(self.world.keys, [FIRST])
        self.kernel: Kernel = self.world.kernel(random.Random(7))

    def run(self, until: float) -> EventTrace:
        while self.epoch is not None and (at := NOW + (self.epoch + 1 - FIRST) * EPOCH_S - 2) <= until:
            self.kernel.run(max(at, self.kernel.now))
            self.epoch += 1
            self._learn(self.epoch)
        return self.kernel.run(until)

    def _learn(self, epoch: int) -> None:
        self.world.learn(self.world.keys, [epoch])
        for name in self.gateways:
            self.kernel.call(name, lambda machine, now: keys_changed(getattr(machine, "machine", machine), now))

    def restart_replicas(self) -> None:
        """One after the other."""
        for name in self.replicas:
            at = self.kernel.now
            self.kernel.crash(name)
            self.run(at + 2)
            self.kernel.restart(name)
            self.run(at + 10)


@pytest.mark.attack(140)
@VARIANTS
def test_a_client_that_may_read_one_topic_takes_nothing_from_a_group_elsewhere(regions: int, has_service: bool) -> None:
    """Attack: it joins the group at its gateway, which served what it may not have to nobody."""
    site = RunningWorld(regions, has_service, ("site", "one", "two"))
    members = {}
    for name in site.gateways:
        members[name] = site.kernel.nodes[name] = Members(name, site.kernel.nodes[name])  # type: ignore[assignment]
    joins(site.kernel, NOW + 2, "two")
    site.kernel.plan_event(NOW + 2, "one", Subscribed("plant/#"))
    site.kernel.plan_event(NOW + 2, "one", GroupJoined(*GROUP, is_whole=False, owner="user evil"))
    traffic = publish(site.kernel, "site", NOW + 10, NOW + 45, every=0.2)
    site.run(NOW + 80)
    del members["one"]  # whose only member may not have it
    assert missing_and_repeated(members, [traffic]) == ([], [])


@pytest.mark.attack(138)
@VARIANTS
def test_a_client_that_subscribes_and_unsubscribes_without_end_leaves_others_what_is_retained(
    regions: int, has_service: bool
) -> None:
    """Attack: its gateway used up what replicas tell newcomers, and the next subscriber had a stale value."""
    site, traffic = RunningWorld(regions, has_service, ("site", "control")), Traffic("site")
    traffic.publish(site.kernel, NOW + 3, "plant/valve", b"open", retain=True)
    at = NOW + 20
    for _ in range(20):
        site.kernel.plan_event(at, "control", Subscribed("plant/#"))
        site.kernel.plan_event(at + 0.2, "control", Unsubscribed("plant/#"))
        at += 0.6
    site.run(at + 8)
    traffic.publish(site.kernel, at + 8, "plant/valve", b"CLOSED", retain=True)
    traffic.publish(site.kernel, at + 8, "plant/alarm", b"first", retain=True)
    site.run(at + 12)
    subscribe(site.kernel, "control", "plant/#", at + 12)
    trace = site.run(at + 20)
    last = {each.publication.topic: each.publication.payload for each in trace.delivered["control"]}
    assert last == {"plant/valve": b"CLOSED", "plant/alarm": b"first"}


@pytest.mark.attack(144)
@VARIANTS
def test_a_client_that_retains_without_end_leaves_what_others_retain_over_restarts_and_epochs(
    regions: int, has_service: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: 40 topics of one client filled its gateway's list of what to tell and seal anew, and newcomers got
    nothing of others once the replicas had restarted, or the epoch was over."""
    monkeypatch.setattr(own_retained, "RETAINED_OWN_MAX", 20)
    site, traffic = RunningWorld(regions, has_service, ("site", "control")), Traffic("site")
    expect = site.kernel.nodes["site"].publisher.retained.expect  # type: ignore[attr-defined]
    for number in range(10):
        expect(f"plant/valve/{number}", "user good", "pub")
        traffic.publish(site.kernel, NOW + 3 + 0.1 * number, f"plant/valve/{number}", b"closed", retain=True)
    site.run(NOW + 5)
    for number in range(40):
        name = f"plant/evil/{number}"
        expect(name, "user evil", f"evil{number}")
        traffic.publish(site.kernel, NOW + 6 + 0.1 * number, name, b"x", retain=True)
    site.run(NOW + 70)  # two epochs later
    site.restart_replicas()
    subscribe(site.kernel, "control", "plant/#", site.kernel.now + 1)
    trace = site.run(site.kernel.now + 60)
    topics = {each.publication.topic for each in trace.delivered["control"]}
    assert {f"plant/valve/{number}" for number in range(10)} <= topics
    assert len(topics) == 20, "of the bad client the newest"
