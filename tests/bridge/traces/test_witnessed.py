"""An entity with several witnesses: one trace topic asked for at one of them, its own word said to all."""

from __future__ import annotations

import random

import pytest

from bridge.traces.entity import TOKEN_LIFE_S, BrokerConnected, Stage, Wishes
from bridge.traces.kinds import CREATION_TOPIC, TraceKind
from bridge.traces.tracer import Say
from bridge.traces.witnessed import WitnessedEntity
from keys.errors import OurFault
from tests.bridge.test_witnesses import BAD_NEWS, K, changes
from tests.bridge.tracebus import NOW, identity
from tests.bridge.witnessbus import WitnessBus
from tests.keys.test_delegation import AUTHORITY, certified


def test_tokens_of_all_witnesses_are_renewed_and_a_topic_that_ends_is_followed_by_one_new_one() -> None:
    bus = WitnessBus(3, wishes=Wishes(("desk*",), life_s=400))
    bus.tracker()
    bus.run(TOKEN_LIFE_S + 100)
    late = [at for at, seen in bus.observed["desk"] if seen.kind is K.ALLS_WELL and at > NOW + 650]
    assert len(late) >= 20
    assert not BAD_NEWS & set(bus.kinds())
    assert [len(tracer) for tracer in bus.tracers] == [1, 1, 1]
    assert not bus.counted.get("traces_expired")


@pytest.mark.parametrize("mute", range(3))
def test_a_broker_that_gives_no_topic_is_passed_over(mute: int) -> None:
    bus = WitnessBus(3)
    bus.tracker()
    bus.dead.add(mute)
    bus.run(60)
    assert bus.entity.stage is Stage.TRACED
    assert K.ALLS_WELL in bus.kinds()


def test_going_silent_is_its_own_word_and_a_restart_brings_it_back() -> None:
    bus = WitnessBus(3, bad=(1,))
    bus.tracker()
    bus.run(10)
    assert K.REVERTING_TO_SILENT_MODE not in bus.kinds(), "a witness alone says nothing in its name"
    bus.entity_does(bus.entity.silent(bus.now))
    bus.run(0.1)
    bus.alive = False
    bus.run(20)
    assert bus.kinds().count(K.REVERTING_TO_SILENT_MODE) == 1
    assert bus.kinds()[-1] is K.REVERTING_TO_SILENT_MODE
    bus.be_born()
    bus.run(5)
    assert bus.kinds()[-1] in (K.ALLS_WELL, K.NETWORK_METRICS)


@pytest.mark.parametrize("witnesses", [0, 2, 4, 17, -1])
def test_numbers_of_witnesses_without_a_majority_are_refused(witnesses: int) -> None:
    with pytest.raises(OurFault, match="majority"):
        WitnessBus(witnesses)


def test_no_word_of_the_entitys_is_of_later_than_now() -> None:
    """A tracker's history is cut by such times: one entity's must not cut away everybody's."""
    bus = WitnessBus(3)
    bus.tracker()
    bus.run(5)
    bus.entity_does(bus.entity.state(K.READY, bus.now + 1e9))
    bus.run(1)
    assert K.READY not in bus.kinds()
    bus.entity_does(bus.entity.state(K.RECOVERING, bus.now))
    bus.run(1)
    assert K.RECOVERING in bus.kinds()


def test_with_one_witness_every_trace_is_observed_as_ever() -> None:
    bus = WitnessBus(1)
    bus.tracker()
    bus.run(20)
    bus.entity_does(bus.entity.load({"cpu": 0.25, "word": "of the program's"}, bus.now))
    bus.run(1)
    bus.die()
    bus.run(20)
    observed = [dict(seen.fields) for _, seen in bus.observed["desk"] if seen.kind is K.LOAD_INFORMATION]
    assert observed == [{"cpu": 0.25, "word": "of the program's"}]
    assert changes(bus)[-2:] == [K.FAILURE_SUSPICION, K.FAILED]
    assert not any("witnesses" in seen.fields for _, seen in bus.observed["desk"])


def entity(n: int = 3) -> WitnessedEntity:
    key = identity("pump")
    nodes, draw = {"node-1": identity("node-1").public_bytes}, random.Random(1).randbytes
    return WitnessedEntity(key, certified(key, "pump"), nodes, AUTHORITY.public_bytes, draw, witnesses=n)


def asked_at(effects: list[tuple[int, object]]) -> list[int]:
    return [witness for witness, effect in effects if isinstance(effect, Say) and effect.topic == CREATION_TOPIC]


def test_a_trace_topic_is_asked_for_at_the_first_witness_that_is_there() -> None:
    one = entity()
    assert asked_at(one.handle(BrokerConnected(), 2, NOW)) == [2]
    assert asked_at(one.handle(BrokerConnected(), 0, NOW)) == [], "somebody is asked already"
    assert one.stages == (Stage.WITHOUT_TOPIC,) * 3
    assert one.stage is Stage.WITHOUT_TOPIC


def test_one_that_does_not_answer_is_followed_by_the_next_that_was_met() -> None:
    one = entity()
    for witness in (0, 2):
        one.handle(BrokerConnected(), witness, NOW)
    assert one.next_deadline is not None
    first = asked_at(one.tick(one.next_deadline + 10))
    assert 2 in first, "witness 1 was never connected"
    alone = entity()
    alone.handle(BrokerConnected(), 1, NOW)
    assert alone.next_deadline is not None
    assert set(asked_at(alone.tick(alone.next_deadline))) == {1}, "there is nobody else"


def test_nothing_is_due_before_a_witness_is_there() -> None:
    assert entity().next_deadline is None
    assert entity().tick(NOW) == []


def test_only_states_are_states() -> None:
    with pytest.raises(ValueError, match="not a state"):
        entity().state(TraceKind.FAILED, NOW)
