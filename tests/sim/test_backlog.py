"""A backlog beside what is new, through whole overlays: replicas and subscribers take sequences that lie far apart."""

from __future__ import annotations

import random

import pytest

from bridge.contract.machine import Committed, OutboxPage, Publication
from bridge.document.policy import Scope
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from tests.sim.world import NOW, make_world, subscribe

pytestmark = pytest.mark.invariant(40)

BACKLOG = 600
FAR = 1_000_000  # sequences between the backlog and what is new: hours of a busy gateway, or some restarts
TOPICS = 12


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_backlog_far_behind_arrives_once_and_in_order_beside_what_is_new_though_liars_replay_both(seed: int) -> None:
    """Attack: a replica of each region records all and sends it again, at random. With a window of 65,536 sequences an
    honest replica took the backlog for such a replay."""
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, [Scope("plant/#"), Scope("fresh/#")], seed)
    rng = random.Random(seed)
    liars = {f"r{region}{rng.choice('abc')}" for region in (1, 2)}
    world.liars = {name: frozenset({Behaviour.REPLAY, Behaviour.DUPLICATE}) for name in liars}
    kernel = world.kernel(rng)
    subscribe(kernel, "control", "#")
    published: dict[int, Publication] = {}
    last: dict[str, int] = {}

    def entry(sequence: int, topic: str) -> tuple[int, int, Publication]:
        publication = Publication(topic, b"%d" % sequence, 1, time_ms=int(NOW * 1000))
        published[sequence] = publication
        scope = topic.partition("/")[0]
        previous, last[scope] = last.get(scope, 0), sequence
        return sequence, previous, publication

    late = [entry(n, f"plant/late{n % TOPICS}") for n in range(1, BACKLOG + 1)]
    new = [entry(FAR + n, f"{'fresh/new' if n % 2 else 'plant/late'}{n % TOPICS}") for n in range(BACKLOG // 4)]
    for start in range(0, BACKLOG, 50):  # the last of them when all that is new was sent
        kernel.plan_event(NOW + 5 + start / 100, "site", OutboxPage(tuple(late[start : start + 50]), None))
    for number, one in enumerate(one for one in new if one[2].topic.startswith("fresh/")):
        kernel.plan_event(NOW + 5 + number / 100, "site", Committed((one,)))
    # The shell keeps these for the end of the backlog.
    left = [one for one in new if one[2].topic.startswith("plant/late")]
    kernel.plan_event(NOW + 20, "site", OutboxPage(tuple(left), None))
    trace = kernel.run(NOW + 60)
    check_safety(published, trace.delivered["control"])
    check_liveness(published, trace.delivered["control"])
    check_blame(trace.named_members(), liars)
    assert trace.forgotten["site"] == set(published)
    assert not any(delivered.late for delivered in trace.delivered["control"])
