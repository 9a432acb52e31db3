"""When the demonstration does what: drawn from a seed, never two faults at once, each due exactly once."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gateway.demo.setup import REPLICAS
from gateway.demo.timeline import Action, Timeline
from tests.gateway.demo.test_report import KEY_SERVERS, REGIONS


@given(st.integers(0, 2**32), st.floats(1, 1000))
def test_the_liar_is_honest_again_before_another_replica_is_killed_and_comes_back(seed: int, seconds: float) -> None:
    timeline = Timeline.draw(seed, seconds, REGIONS, KEY_SERVERS)
    assert timeline == Timeline.draw(seed, seconds, REGIONS, KEY_SERVERS)
    (liars_region,) = (region for region in REGIONS if timeline.liar in region)
    assert timeline.killed not in liars_region
    assert timeline.key_server in KEY_SERVERS
    assert [(step.action, step.replica) for step in timeline.steps] == [
        (Action.KILL, timeline.key_server),
        (Action.LIE, timeline.liar),
        (Action.RECOVER, timeline.liar),
        (Action.KILL, timeline.killed),
        (Action.RESTART, timeline.killed),
        (Action.RESTART, timeline.key_server),
    ]
    times = [step.at_s for step in timeline.steps]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < seconds


def test_over_many_seeds_every_replica_lies_and_every_one_and_every_key_server_is_killed() -> None:
    drawn = [Timeline.draw(seed, 45, REGIONS, KEY_SERVERS) for seed in range(200)]
    assert {each.liar for each in drawn} == {each.killed for each in drawn} == set(REPLICAS)
    assert {each.key_server for each in drawn} == set(KEY_SERVERS)


@given(st.lists(st.floats(0, 60), max_size=30))
def test_every_step_is_due_exactly_once_however_often_one_looks(looks: list[float]) -> None:
    timeline = Timeline.draw(1, 45, REGIONS, KEY_SERVERS)
    moments = [0.0, *sorted(looks), 60.0]
    found = [step for a, b in itertools.pairwise(moments) for step in timeline.due_steps(a, b)]
    assert found == list(timeline.steps)
