"""Entities and trackers on one bus: from the first wish to FAILED and back, and what forgers achieve."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from bridge.traces.entity import TOKEN_LIFE_S, Stage, Told, Wishes
from bridge.traces.following import NUMBERS_MAX, UNOPENED_MAX
from bridge.traces.kinds import Interest, TraceKind, gauge_topic, trace_topic
from bridge.traces.pings import LAN
from bridge.traces.tracer import Interested
from bridge.traces.tracker import TRACE_FRESH_MS, Follow, Observed, Unfollow
from keys.delegation import Trace
from keys.frames import Kind
from tests.bridge.tracebus import NOW, Bus, identity
from tests.bridge.traces.detection import detection_s


@pytest.fixture
def bus() -> Bus:
    return Bus()


def follow(bus: Bus, entity: str, interest: Interest | None = None, tracker: str = "desk") -> None:
    wish = Follow(entity) if interest is None else Follow(entity, interest)
    bus.perform(tracker, bus.clients[tracker].handle(wish, bus.now))  # type: ignore[arg-type]


def test_a_tracker_hears_of_an_entity_from_birth_to_death_and_back(bus: Bus) -> None:
    bus.tracker("desk")
    pump = bus.entity("pump")
    bus.run(1)
    assert pump.stage is Stage.TRACED
    follow(bus, "pump")
    bus.run(30)
    bus.perform("pump", pump.state(TraceKind.READY))
    bus.perform("pump", pump.load({"cpu": 0.25}))
    bus.run(5)
    kinds = bus.kinds("desk")
    assert {TraceKind.ALLS_WELL, TraceKind.READY, TraceKind.LOAD_INFORMATION, TraceKind.NETWORK_METRICS} <= set(kinds)
    assert not {TraceKind.FAILURE_SUSPICION, TraceKind.FAILED} & set(kinds)
    died = bus.now
    bus.die("pump")
    bus.run(20)
    failed = next(at for at, seen in bus.observed["desk"] if seen.kind is TraceKind.FAILED)
    assert failed - died <= detection_s(LAN, 0.02) + 0.02
    count = len(bus.observed["desk"])
    bus.entity("pump")
    bus.run(5)
    again = [seen.kind for _, seen in bus.observed["desk"][count:]]
    assert again[0] is TraceKind.JOIN
    assert TraceKind.ALLS_WELL in again
    assert bus.refused == []


def test_a_disconnect_that_the_broker_sees_is_told_at_once(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump", Interest.CHANGES)
    bus.run(10)
    at = bus.now
    bus.die("pump", told=True)
    bus.run(0.1)
    assert bus.kinds("desk")[-1] is TraceKind.DISCONNECT
    assert bus.observed["desk"][-1][0] - at < 0.05


def test_only_what_was_asked_for_comes(bus: Bus) -> None:
    bus.tracker("desk")
    pump = bus.entity("pump")
    follow(bus, "pump", Interest.STATES)
    bus.run(40)
    bus.perform("pump", pump.state(TraceKind.READY))
    bus.run(1)
    assert bus.kinds("desk") == [TraceKind.READY]


def test_a_tracker_that_leaves_ends_the_traces(bus: Bus) -> None:
    desk = bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump")
    bus.run(10)
    bus.perform("desk", desk.handle(Unfollow("pump"), bus.now))
    bus.run(1)
    count = len(bus.on_topic)
    bus.run(20)
    heartbeats = [topic for topic, _ in bus.on_topic[count:] if topic.endswith("AllUpdates")]
    assert heartbeats == []
    assert bus.filters["desk"] == {next(iter(bus.filters["desk"]))}


def test_a_wish_that_was_lost_is_said_again_before_it_is_asked_for(bus: Bus) -> None:
    bus.entity("pump")
    bus.run(95)  # the next question comes at 210 s
    bus.tracker("desk")
    hears, bus.tracer.handle = (
        bus.tracer.handle,
        lambda event, now: (  # type: ignore[method-assign]
            [] if isinstance(event, Interested) else hears(event, now)
        ),
    )
    follow(bus, "pump", Interest.ALL_UPDATES)
    bus.run(2)
    bus.tracer.handle = hears  # type: ignore[method-assign]
    bus.run(61)
    assert bus.observed["desk"], "long before the next question"


def test_an_entity_that_comes_late_is_found(bus: Bus) -> None:
    bus.tracker("desk")
    follow(bus, "pump")
    bus.run(20)
    assert bus.kinds("desk") == []
    bus.entity("pump")
    bus.run(60)
    assert TraceKind.ALLS_WELL in bus.kinds("desk")


def test_tokens_are_renewed_in_time(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump", Interest.ALL_UPDATES)
    bus.run(3 * TOKEN_LIFE_S)
    times = [at for at, _ in bus.observed["desk"]]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) < 2
    assert not bus.counted.get("traces_expired")
    assert not bus.counted.get("traces_refused")


def test_an_entity_whose_discovery_node_is_away_is_found_by_the_other(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    bus.run(1)
    bus.away.add("node-1")
    follow(bus, "pump")
    bus.run(5)
    assert TraceKind.ALLS_WELL in bus.kinds("desk")


def test_a_restarted_entity_keeps_its_trace_topic(bus: Bus) -> None:
    bus.entity("pump")
    bus.run(1)
    topic = bus.kept["pump"].topic
    bus.entity("pump")
    bus.run(1)
    assert bus.kept["pump"].topic == topic
    assert len(bus.tracer) == 1


def test_after_renouncing_a_topic_the_new_one_serves(bus: Bus) -> None:
    bus.tracker("desk")
    pump = bus.entity("pump")
    bus.run(1)
    former = bus.kept["pump"].topic
    bus.perform("pump", pump.renounce(bus.now))
    bus.run(1)
    assert bus.kept["pump"].topic != former
    follow(bus, "pump")
    bus.run(5)
    assert TraceKind.ALLS_WELL in bus.kinds("desk")


@pytest.mark.parametrize("signed", [False, True], ids=["symmetric", "signed"])
def test_secured_traces_are_read_by_trackers_and_by_nobody_else(bus: Bus, signed: bool) -> None:
    bus.tracker("desk")
    bus.entity("pump", Wishes(("desk*",), secured=True, signed=signed))
    bus.run(1)
    follow(bus, "pump")
    bus.run(40)
    heartbeats = [seen for _, seen in bus.observed["desk"] if seen.kind is TraceKind.ALLS_WELL]
    assert len(heartbeats) > 30
    assert {"latency_ms" in seen.fields for seen in heartbeats} == {True, False}, "answers, and what is said unasked"
    told = [payload for topic, payload in bus.on_topic if topic.endswith("AllUpdates")]
    assert told
    assert not [payload for payload in told if b"latency_ms" in payload]


def test_who_may_not_discover_it_hears_nothing(bus: Bus) -> None:
    bus.tracker("spy")
    bus.entity("pump")
    follow(bus, "pump", tracker="spy")
    bus.run(60)
    assert bus.observed["spy"] == []
    assert len(bus.filters["spy"]) == 1


# --------------------------------------------------------------------------------------------------- forgers


def test_an_entity_that_restarts_again_and_again_makes_no_room_for_replays(bus: Bus) -> None:
    """Each time it has another token: more than the tracker remembers numbers of while their traces are fresh."""
    desk = bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump")
    bus.run(1)
    for _ in range(60):
        bus.die("pump", told=True)
        bus.run(1)
        bus.entity("pump")
        bus.run(3)
    traces = [(topic, payload) for topic, payload in bus.on_topic if payload[1] == Kind.TRACE]
    assert len({(topic, Trace.decode(payload).token.public_key) for topic, payload in traces}) > NUMBERS_MAX
    (source,) = desk._followed["pump"].sources.values()
    assert len(source.numbers) <= NUMBERS_MAX
    heard = len(bus.observed["desk"])
    for topic, payload in traces:
        if Trace.decode(payload).time_ms > bus.now * 1000 - 50:
            continue  # on its way
        for effect in desk.handle(Told(topic, payload), bus.now):
            assert not isinstance(effect, Observed), effect
    bus.run(5)
    assert len(bus.observed["desk"]) > heard, "what is new is heard"
    assert bus.kinds("desk")[-1] is not TraceKind.DISCONNECT


def test_forged_replayed_and_misplaced_traces_tell_a_tracker_nothing(bus: Bus) -> None:
    desk = bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump")
    bus.run(10)
    topic = bus.kept["pump"].topic
    changes, updates = trace_topic(topic, Interest.CHANGES), trace_topic(topic, Interest.ALL_UPDATES)
    heartbeat = Trace.decode([payload for t, payload in bus.on_topic if t == updates][-1])
    spy = identity("spy")
    forgeries = [
        (changes, replace(heartbeat, kind=TraceKind.FAILED).signed(spy)),
        (
            changes,
            replace(heartbeat, kind=TraceKind.FAILED, token=replace(heartbeat.token, public_key=spy.public_bytes)),
        ),
        (updates, heartbeat),
        (trace_topic(topic, Interest.LOAD), heartbeat),
        (gauge_topic(topic), heartbeat),
    ]
    count = len(bus.observed["desk"])
    before = bus.counted.get("traces_refused", 0)
    for where, forgery in forgeries:
        bus.deliver(where, forgery.encode())
    for where in (changes, updates, gauge_topic(topic), next(t for t in bus.filters["desk"] if "Answers" in t)):
        bus.deliver(where, b"\x00garbage")
    bus.run(0.05)
    assert [seen.kind for _, seen in bus.observed["desk"][count:] if seen.kind is not TraceKind.ALLS_WELL] == []
    assert bus.counted["traces_refused"] - before == len(forgeries) + 4
    assert desk.next_deadline is not None


def test_an_old_trace_of_a_token_that_counts_is_no_news(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    bus.run(5)
    bus.die("pump")
    bus.run(10)
    changes = trace_topic(bus.kept["pump"].topic, Interest.CHANGES)
    (failed,) = [p for t, p in bus.on_topic if t == changes and Trace.decode(p).kind == TraceKind.FAILED]
    bus.run(TRACE_FRESH_MS / 1000 - 10)
    bus.entity("pump")
    follow(bus, "pump")
    bus.run(15)
    bus.deliver(changes, failed)
    bus.run(1)
    assert TraceKind.FAILED not in bus.kinds("desk")


def test_lost_and_late_answers_of_the_network_are_no_failures(bus: Bus) -> None:
    bus.delay_s = (0.001, 0.3)
    bus.alter = lambda client, topic, payload: None if bus.rng.random() < 0.1 and client == "pump" else payload
    bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump", Interest.CHANGES)
    bus.run(600)
    assert TraceKind.FAILED not in bus.kinds("desk")


def test_traces_that_wait_for_a_key_are_few(bus: Bus) -> None:
    bus.alter = lambda client, topic, payload: None if topic.endswith("/Keys") else payload
    desk = bus.tracker("desk")
    bus.entity("pump", Wishes(("desk*",), secured=True))
    follow(bus, "pump")
    bus.run(200)
    assert bus.observed["desk"] == []
    assert len(desk._followed["pump"].sources[0].unopened) == UNOPENED_MAX


def test_a_trace_topic_that_ends_is_followed_by_a_new_one(bus: Bus) -> None:
    bus.entity("pump", Wishes(("desk*",), life_s=100))
    bus.tracker("desk")
    follow(bus, "pump")
    bus.run(350)
    late = [seen for at, seen in bus.observed["desk"] if at > NOW + 320 and seen.kind is TraceKind.ALLS_WELL]
    assert len(late) >= 20
    assert len(bus.tracer) == 1, "what ended is forgotten"
    assert TraceKind.FAILED not in bus.kinds("desk")
    bus.die("pump")
    bus.run(200)
    assert len(bus.tracer) == 0
