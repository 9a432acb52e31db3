"""What is known of an entity outlives those who did not listen: late trackers, brokers that restart, clocks."""

from __future__ import annotations

import pytest

from bridge.base import Wall
from bridge.contract.machine import Tick
from bridge.traces.kinds import TraceKind
from bridge.traces.presets import LAN
from bridge.traces.rejoining import REJOIN_S
from bridge.traces.remembered import RememberedEntity
from bridge.traces.tracer import Tracer
from bridge.tracking.entity import Disconnected, Wishes
from bridge.tracking.tracker import FOUND_S, OFFLINE_S, Follow, Tracker
from bridge.tracking.witnessing import SILENT_S
from tests.bridge.tracebus import AUTHORITY, NODES, Bus

K = TraceKind


@pytest.fixture
def bus() -> Bus:
    return Bus()


def follow(bus: Bus, tracker: str = "desk", entity: str = "pump") -> None:
    bus.perform(tracker, bus.clients[tracker].handle(Follow(entity), bus.now))  # type: ignore[arg-type]


@pytest.mark.parametrize("secured", [False, True])
def test_who_starts_to_watch_after_a_death_hears_of_it_and_since_when(bus: Bus, secured: bool) -> None:
    pump = bus.entity("pump", Wishes(("desk*",), secured=secured))
    bus.run(10)
    bus.perform("pump", pump.set_state(K.READY))
    bus.perform("pump", pump.report_load({"cpu": 0.5}))
    bus.run(5)
    died = bus.now
    bus.die("pump")
    bus.run(20)
    bus.tracker("desk")
    follow(bus)
    bus.run(2)
    heard = {seen.kind: dict(seen.fields) for _, seen in bus.observed["desk"]}
    assert set(heard) == {K.READY, K.LOAD_INFORMATION, K.FAILED}
    since_s = {kind: int(fields["since_ms"]) / 1000 for kind, fields in heard.items()}
    assert died < since_s[K.FAILED] < died + 8
    assert since_s[K.READY] < died
    assert heard[K.LOAD_INFORMATION]["cpu"] == 0.5


def restarted(bus: Bus, down_s: float) -> None:
    """The broker's process ends and comes back with what it kept."""
    kept = [record for _, record in bus.tracer.records() if record is not None]
    kept = [RememberedEntity.decode(record.encode()) for record in kept]
    bus.tracer = Tracer(LAN, NODES, AUTHORITY.public_bytes, bus.rng.randbytes)
    bus.now += down_s
    bus._broker(bus.tracer.restore(kept, bus.now))


def test_a_broker_and_an_entity_that_die_together_and_only_the_broker_comes_back(bus: Bus) -> None:
    bus.tracker("desk")
    pump = bus.entity("pump")
    follow(bus)
    bus.perform("pump", pump.set_state(K.READY))
    bus.run(30)
    bus.die("pump")
    restarted(bus, 10)
    count = len(bus.observed["desk"])
    bus.run(REJOIN_S + 5)
    told = [seen for _, seen in bus.observed["desk"][count:]]
    assert [seen.kind for seen in told if seen.kind is not K.READY] == [K.FAILED]
    assert "restart" in told[-1].fields["why"]
    bus.tracker("desk2")
    follow(bus, "desk2")
    bus.run(2)
    assert {K.READY, K.FAILED} <= set(bus.kinds("desk2")), "who comes later is told, too"


def test_an_entity_that_comes_back_with_its_broker_is_told_alive_and_never_dead(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    follow(bus)
    bus.run(30)
    restarted(bus, 10)
    bus.entity("pump")  # its library connects anew
    bus.run(REJOIN_S + 10)
    assert not {K.FAILED, K.FAILURE_SUSPICION} & set(bus.kinds("desk"))
    assert bus.kinds("desk").count(K.JOIN) == 2


def test_what_ended_while_the_broker_was_away_is_not_spoken_of(bus: Bus) -> None:
    bus.entity("pump")
    bus.run(10)
    restarted(bus, 3_600)  # longer than any token
    assert len(bus.tracer) == 0
    assert [record for _, record in bus.tracer.records()] == [None], "nor kept"


def test_a_tracker_that_hears_nothing_any_more_says_so_and_asks_anew(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    follow(bus)
    bus.run(40)
    assert K.UNKNOWN not in bus.kinds("desk")
    silenced, bus.alter = bus.now, lambda client, topic, payload: None
    bus.run(SILENT_S + 35)
    at = [at for at, seen in bus.observed["desk"] if seen.kind is K.UNKNOWN]
    assert len(at) == 1, "once"
    assert SILENT_S - 35 < at[0] - silenced <= SILENT_S + 31
    bus.alter = lambda client, topic, payload: payload
    count = len(bus.observed["desk"])
    bus.run(65)
    again = [seen.kind for _, seen in bus.observed["desk"][count:]]
    assert K.ALLS_WELL in again, "what holds is told again"
    assert K.UNKNOWN not in again


def test_without_a_connection_nothing_is_known_after_seconds(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    follow(bus)
    bus.run(10)
    desk = bus.clients["desk"]
    assert isinstance(desk, Tracker)
    assert desk.handle(Disconnected(), bus.now) == []
    assert desk.next_deadline == bus.now + OFFLINE_S
    (lost,) = desk.handle(Tick(), bus.now + OFFLINE_S)
    assert getattr(lost, "kind", None) is K.UNKNOWN
    assert desk.next_deadline is None


def test_who_is_not_found_is_said_within_seconds(bus: Bus) -> None:
    desk = bus.tracker("desk")
    bus.tracker("stranger")
    bus.entity("pump")
    follow(bus)
    follow(bus, "desk", "nobody")
    follow(bus, "stranger")
    bus.run(FOUND_S + 0.1)
    assert desk.trouble_with("pump", bus.now) is None
    assert "no entity of that name" in str(desk.trouble_with("nobody", bus.now))
    stranger = bus.clients["stranger"]
    assert isinstance(stranger, Tracker)
    assert stranger.trouble_with("pump", bus.now) == desk.trouble_with("nobody", bus.now), "nobody learns who exists"


# ------------------------------------------------------------------------------------------------------ clocks


@pytest.mark.parametrize("off_s", [-5.0, -0.3, 0.3, 5.0])
def test_a_clock_that_is_seconds_off_silences_neither_entity_nor_tracker(bus: Bus, off_s: float) -> None:
    bus.tracker("desk")
    pump = bus.entity("pump")
    pump._wall = Wall(off_s)
    desk = bus.clients["desk"]
    desk._wall = Wall(-off_s / 2)  # type: ignore[union-attr]
    follow(bus)
    bus.run(20)
    assert K.ALLS_WELL in bus.kinds("desk")
    assert not bus.counted.get("traces_refused")


def test_a_clock_that_is_further_off_is_said_at_both_ends(bus: Bus) -> None:
    bus.tracker("desk")
    pump = bus.entity("pump")
    pump._wall = Wall(30.0)
    follow(bus)
    bus.run(10)
    assert pump.clock_off_s == pytest.approx(30, abs=0.1)
    assert bus.counted["traces_refused"] > 0
    desk = bus.tracker("late")
    desk._wall = Wall(-900.0)
    bus.entity("fan")
    follow(bus, "late", "fan")
    bus.run(10)
    assert bus.kinds("late") == []


@pytest.mark.long
@pytest.mark.parametrize("step_s", [-3_600.0, 3_600.0])
def test_a_broker_whose_clock_is_set_tells_every_death_and_no_other(bus: Bus, step_s: float) -> None:
    wall = Wall()
    bus.tracer._wall = wall
    bus.tracker("desk")
    names = [f"pump-{place}" for place in range(10)]
    for name in names:
        bus.entity(name)
        bus.run(0.5)
        bus.clients[name]._wall = wall  # type: ignore[union-attr]
    bus.clients["desk"]._wall = wall  # type: ignore[union-attr]
    for name in names:
        follow(bus, entity=name)
    bus.run(10)
    wall.offset_s += step_s
    bus.run(30)
    assert not {K.FAILED, K.FAILURE_SUSPICION} & set(bus.kinds("desk"))
    for name in names[:5]:
        bus.die(name)
    bus.run(15)
    failed = {seen.entity for _, seen in bus.observed["desk"] if seen.kind is K.FAILED}
    assert failed == set(names[:5])
