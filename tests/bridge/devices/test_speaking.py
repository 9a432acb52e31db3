"""Who may speak for a device: its founder, its origin after a while, and nobody else while its connection is open."""

from __future__ import annotations

import pytest

from bridge.devices import speaking
from bridge.devices.life_evidence import DeviceLink, LifeEvidence
from bridge.devices.speaking import HANDOVER_S, NAMES_PER_S, Device, Speaking
from keys.errors import NotAuthorised

NOW, HERE, ELSEWHERE = 1_000.0, "10.0.0.1", "10.0.0.2"


@pytest.fixture
def table() -> Speaking:
    return Speaking()


def connect(table: Speaking, client: str, origin: str = HERE, now: float = NOW) -> DeviceLink:
    return table.take_connection(client, origin, 30, now)


def leave(link: DeviceLink, now: float) -> None:
    link.up, link.left_at = False, now


def test_a_client_is_its_own_device_and_nobody_elses(table: Speaking) -> None:
    pump, spy = connect(table, "pump"), connect(table, "spy", ELSEWHERE)
    with pytest.raises(NotAuthorised, match="another client"):
        table.claim("pump", spy, "topic", NOW)
    device, gone = table.claim("pump", pump, "connection", NOW)
    assert (device.founder, gone) == ("pump", None)
    assert list(table.spoken_for(pump)) == [device.name]
    assert table.is_itself(device, pump)


def test_while_its_connection_is_open_nobody_else_speaks_for_a_device(table: Speaking) -> None:
    bridge, spy = connect(table, "bridge"), connect(table, "spy", ELSEWHERE)
    device, _ = table.claim("meter", bridge, "topic", NOW)
    for now in (NOW, NOW + HANDOVER_S, NOW + 10 * HANDOVER_S):
        with pytest.raises(NotAuthorised, match="another connection"):
            table.claim("meter", spy, "topic", now)
    assert table.claim("meter", bridge, "topic", NOW) == (device, None)


def test_after_it_left_its_origin_may_follow_at_once_and_another_one_after_a_while(table: Speaking) -> None:
    bridge = connect(table, "bridge")
    table.claim("meter", bridge, "topic", NOW)
    leave(bridge, NOW)
    stranger = connect(table, "stranger", ELSEWHERE)
    with pytest.raises(NotAuthorised):
        table.claim("meter", stranger, "topic", NOW + HANDOVER_S - 1)
    neighbour = connect(table, "bridge-2")
    device, _ = table.claim("meter", neighbour, "topic", NOW + 1)
    assert device.evidence.link is neighbour
    leave(neighbour, NOW + 1)
    device, _ = table.claim("meter", stranger, "topic", NOW + 1 + HANDOVER_S)
    assert device.evidence.link is stranger
    assert not table.spoken_for(neighbour)


def test_the_first_one_may_always_come_back(table: Speaking) -> None:
    bridge = connect(table, "bridge")
    table.claim("meter", bridge, "topic", NOW)
    leave(bridge, NOW)
    thief = connect(table, "thief")
    table.claim("meter", thief, "topic", NOW + 1)
    again = connect(table, "bridge", now=NOW + 2)
    assert again.up
    device, _ = table.claim("meter", again, "topic", NOW + 2)
    assert device.evidence.link is again


def test_a_device_with_a_connection_of_its_own_is_never_taken_over(table: Speaking) -> None:
    pump = connect(table, "pump")
    device, _ = table.claim("pump", pump, "connection", NOW)
    device.evidence.own = True
    assert table.own(pump) is device
    leave(pump, NOW)
    with pytest.raises(NotAuthorised):
        table.claim("pump", connect(table, "bridge"), "topic", NOW + 10 * HANDOVER_S)


def test_a_device_of_before_a_restart_belongs_to_whoever_speaks_first(table: Speaking) -> None:
    device, _ = table.admit("meter", None, "before", NOW)
    assert table.introduces(device, NOW)
    bridge = connect(table, "bridge")
    table.claim("meter", bridge, "topic", NOW)
    assert device.founder == "bridge"
    with pytest.raises(NotAuthorised):
        table.claim("meter", connect(table, "spy"), "topic", NOW)


def test_a_bridge_of_one_device_is_that_device_and_of_two_is_none(table: Speaking) -> None:
    bridge = connect(table, "bridge")
    first, _ = table.claim("meter", bridge, "topic", NOW)
    assert table.is_itself(first, bridge)
    second, _ = table.claim("valve", bridge, "topic", NOW)
    assert not table.is_itself(first, bridge)
    assert not table.is_itself(second, bridge)


def test_a_flood_of_names_costs_its_own_origin(table: Speaking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "DEVICES_MAX", 4)
    table = Speaking()
    good, flooder = connect(table, "good"), connect(table, "flooder", ELSEWHERE)
    table.claim("meter", good, "topic", NOW)
    lost = [gone.name for n in range(20) if (gone := table.claim(f"x{n}", flooder, "topic", NOW)[1])]
    assert lost == [f"x{n}" for n in range(17)]
    assert table.device("meter") is not None
    assert len(table) == 4
    assert len(table.spoken_for(flooder)) == 3


def test_new_names_of_one_origin_are_told_in_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "NAMES_BURST", 2.0)
    table = Speaking()
    flooder, good = connect(table, "flooder", ELSEWHERE), connect(table, "good")
    devices = [table.claim(f"x{n}", flooder, "topic", NOW)[0] for n in range(6)]
    told = [table.introduces(device, NOW) for device in devices]
    assert told[0]
    assert not told[-1]
    assert table.introduces(table.claim("meter", good, "topic", NOW)[0], NOW)
    assert table.introduces(devices[-1], NOW + 10 / NAMES_PER_S)


def test_a_client_that_is_away_and_speaks_for_nothing_is_forgotten(table: Speaking) -> None:
    pump = connect(table, "pump")
    device, _ = table.claim("pump", pump, "connection", NOW)
    leave(pump, NOW)
    table.tidy(pump)
    assert table.link_of("pump") is pump, "it speaks for a device"
    table.remove_device(device)
    assert (table.link_of("pump"), table.device("pump"), len(table)) == (None, None, 0)
    bridge = connect(table, "bridge")
    assert table.claim("pump", bridge, "topic", NOW)[0].founder == "bridge", "its name is free"
    idle = connect(table, "idle")
    table.tidy(idle)
    assert table.link_of("idle") is idle, "it is connected"


def test_a_connection_that_is_back_is_the_same_with_what_it_says_now(table: Speaking) -> None:
    link = connect(table, "pump")
    link.willed = link.knows = True
    table.claim("pump", link, "connection", NOW)
    leave(link, NOW)
    again = table.take_connection("pump", ELSEWHERE, 60, NOW + 5)
    assert again is link
    assert (link.origin, link.keep_alive_s, link.seen_at) == (ELSEWHERE.encode(), 60, NOW + 5)
    assert (link.up, link.willed, link.knows) == (True, False, False)


def test_who_speaks_for_a_device_pays_for_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "DEVICES_MAX", 3)
    table = Speaking()
    bridge, other = connect(table, "bridge"), connect(table, "other", ELSEWHERE)
    for name in ("a", "b"):
        table.claim(name, bridge, "topic", NOW)
    table.claim("c", other, "topic", NOW)
    leave(bridge, NOW)
    table.claim("a", other, "topic", NOW + HANDOVER_S)
    assert set(table.spoken_for(other)) == {"a", "c"}
    device, gone = table.claim("d", connect(table, "third", "10.0.0.3"), "topic", NOW + HANDOVER_S)
    assert gone is not None
    assert (device.name, gone.name) == ("d", "c"), "the oldest of who has two"


def test_one_that_is_heard_goes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "DEVICES_MAX", 2)
    table = Speaking()
    bridge = connect(table, "bridge")
    first, _ = table.claim("a", bridge, "topic", NOW)
    table.claim("b", bridge, "topic", NOW)
    table.renew_device(first)
    _, gone = table.claim("c", bridge, "topic", NOW)
    assert gone is not None
    assert gone.name == "b"


def test_those_of_before_a_restart_are_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "DEVICES_MAX", 4)
    table = Speaking()
    for name in ("a", "b", "c"):
        table.admit(name, None, "before", NOW)
    bridge = connect(table, "bridge")
    for name in ("x", "y"):
        gone = table.claim(name, bridge, "topic", NOW)[1]
    assert gone is not None
    assert gone.name == "x", "who brings two loses one of them"


def test_a_new_device_is_nobodys_word_yet() -> None:
    device = Device("d", "c", "topic", LifeEvidence(NOW, NOW), NOW)
    assert (device.told, device.state, device.due, device.clean, device.well_at) == (None, None, None, False, 0.0)
    assert (device.told_at, device.counted_at) == (float("-inf"), float("-inf"))
    assert (device.why, device.parent, device.said_by, device.named) == ("", "", "", "")


def test_a_claim_says_who_how_and_when(table: Speaking) -> None:
    bridge = connect(table, "bridge")
    device, _ = table.claim("meter", bridge, "topic", NOW + 3)
    assert (device.founder, device.by, device.settles_at) == ("bridge", "topic", NOW + 3)
    assert (device.evidence.known_at, device.evidence.heard_at, device.evidence.link) == (NOW + 3, NOW + 3, bridge)
    assert (table.admit("old", None, "before", NOW)[0].founder, table.own(bridge)) == ("", None)


def test_what_is_another_connections_is_not_ones_own(table: Speaking) -> None:
    pump = connect(table, "pump")
    device, _ = table.claim("pump", pump, "connection", NOW)
    assert table.own(pump) is None, "only spoken for"
    device.evidence.own = True
    assert table.own(pump) is device
    device.evidence.link = connect(table, "other")
    assert table.own(pump) is None


def test_a_connection_that_is_a_device_and_speaks_for_one_more_is_itself_twice(table: Speaking) -> None:
    """A sensor whose document calls it otherwise than its client id."""
    sensor = connect(table, "sensor")
    own, _ = table.claim("sensor", sensor, "connection", NOW)
    other, _ = table.claim("kitchen", sensor, "topic", NOW)
    assert table.is_itself(own, sensor)
    assert table.is_itself(other, sensor)
    table.claim("hall", sensor, "topic", NOW)
    assert table.is_itself(own, sensor)
    assert not table.is_itself(other, sensor)


def test_the_budget_of_names_is_one_each_and_comes_back_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "NAMES_BURST", 2.0)
    monkeypatch.setattr(speaking, "ORIGINS_MAX", 2)
    table = Speaking()
    device, _ = table.claim("x", connect(table, "flooder", ELSEWHERE), "topic", NOW)
    others = [table.claim(f"o{n}", connect(table, f"c{n}", f"10.0.1.{n}"), "topic", NOW)[0] for n in range(2)]
    assert [table.introduces(device, NOW) for _ in range(4)] == [True, True, False, False]
    assert table.introduces(others[0], NOW)
    assert not table.introduces(device, NOW), "one other is remembered beside it"
    assert all(table.introduces(each, NOW) for each in others)
    assert table.introduces(device, NOW), "who introduced something longest ago begins anew"


def test_who_leaves_and_speaks_for_nothing_leaves_nothing(table: Speaking) -> None:
    bridge = connect(table, "bridge")
    device, _ = table.claim("meter", bridge, "topic", NOW)
    table.remove_device(device)
    assert table.link_of("bridge") is bridge, "it is connected"
    leave(bridge, NOW)
    table.tidy(bridge)
    assert (table.link_of("bridge"), table._links, table._levels, table._speaks) == (None, {}, {}, {})
