"""After a restart of the gateway: what is retained says where words are and which the last ones were; no more."""

from __future__ import annotations

import json

import pytest

from bridge.devices import devices as module
from bridge.devices import speaking
from bridge.devices.life_evidence import REJOIN_S
from bridge.devices.rules import DeviceRules
from bridge.traces.kinds import TraceKind
from tests.bridge.devicesite import Site

JOIN, READY, FAILED, WELL = TraceKind.JOIN, TraceKind.READY, TraceKind.FAILED, TraceKind.ALLS_WELL
DEVICES = ("lamp", "plug", "door")
STATES = {"lamp": b"online", "plug": b"offline", "door": b"online"}


def retained() -> dict[str, bytes]:
    """What a bridge of Zigbee devices left: it says no more than its own state when it comes back."""
    kept = {"z2m/state": b"offline"}
    for device in DEVICES:
        named = [{"topic": "z2m/state"}, {"topic": f"z2m/{device}/availability"}]
        document = {"unique_id": device, "availability": named, "availability_mode": "all", "stat_t": f"z2m/{device}"}
        kept[f"homeassistant/sensor/{device}/config"] = json.dumps(document).encode()
        kept[f"z2m/{device}/availability"] = STATES[device]
    return kept


def after_restart(kept: dict[str, bytes], *remembered: str) -> Site:
    site = Site(DeviceRules(clients=()))
    for device in remembered:
        site.remember(device)
    site.kept(kept)
    site.run(2)
    site.connect("z2m")
    return site


def test_a_bridge_that_says_its_own_state_brings_its_devices_back() -> None:
    site = after_restart(retained(), *DEVICES)
    site.publish("z2m", "z2m/state", b"online")
    site.run(2 * REJOIN_S)
    assert [site.kinds(device)[-1] for device in DEVICES] == [WELL, FAILED, WELL], "the plug was offline before"
    site.publish("z2m", "z2m/plug/availability", b"online")
    assert site.kinds("plug")[-1] is WELL


def test_a_bridge_that_does_not_come_back_is_missed_with_its_devices() -> None:
    kept = retained() | {"z2m/state": b"online"}
    site = after_restart(kept, *DEVICES)
    site.run(REJOIN_S)
    assert [site.kinds(device) for device in DEVICES] == [[FAILED]] * 3
    assert site.last("lamp").fields["why"] == "not back after a restart of the gateway"


def test_a_device_that_reports_is_alive() -> None:
    """Its bridge says nothing but the value."""
    site = after_restart(retained() | {"z2m/state": b"online"}, *DEVICES)
    site.publish("z2m", "z2m/lamp", b'{"state": "ON"}')
    site.publish("z2m", "z2m/plug", b'{"state": "ON"}')
    site.run(2 * REJOIN_S)
    assert site.kinds("lamp") == [JOIN, READY]
    assert site.kinds("plug") == [FAILED], "a word outweighs values, which bridges repeat"


def test_where_traces_are_switched_on_later_devices_are_seen() -> None:
    site = after_restart(retained())
    site.run(REJOIN_S)
    assert site.told == [], "what is retained may be of years ago"
    site.publish("z2m", "z2m/state", b"online")
    assert [site.kinds(device) for device in DEVICES] == [[JOIN, READY], [FAILED], [JOIN, READY]]


def test_devices_that_only_what_is_retained_names_are_the_first_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that filled the store with documents before a restart takes nobody's place behind it."""
    monkeypatch.setattr(speaking, "DEVICES_MAX", 20)
    site = Site(DeviceRules(clients=()))
    for place in range(5):
        site.remember(f"mine-{place}")
    document = b'{"availability_topic": "t"}'
    site.kept({f"homeassistant/sensor/x{place}/config": document for place in range(100)})
    assert len(site.devices) <= 20
    assert all(site.devices.device(f"mine-{place}") is not None for place in range(5))


def test_so_much_is_read_at_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 10)
    site = Site(DeviceRules(clients=()))
    site.kept({f"homeassistant/sensor/x{place}/config": b'{"avty_t": "t"}' for place in range(100)})
    assert len(site.devices) == 10


def test_a_value_of_another_connection_is_no_attempt_to_speak_for_a_device() -> None:
    site = after_restart(retained(), *DEVICES)
    site.publish("z2m", "z2m/state", b"online")
    site.connect("rules")
    site.publish("rules", "z2m/lamp", b"{}")
    assert site.counted == {}


def test_a_root_that_comes_back_brings_the_children_of_before_with_it() -> None:
    """Homie 5: a bridge says its own `$state` again, and nothing of its children, whose words are retained."""
    for domain, names in (("homie", ("hub", "lamp", "door")), ("ebus", ("ebus:hub", "ebus:lamp", "ebus:door"))):
        states = {"hub": b"lost", "lamp": b"ready", "door": b"lost"}
        kept = {f"{domain}/5/{device}/$state": state for device, state in states.items()}
        kept |= {f"{domain}/5/{device}/$description": b'{"root": "hub"}' for device in ("lamp", "door")}
        site = after_restart(kept, *names)
        assert [site.kinds(name)[-1] for name in names] == [FAILED, FAILED, FAILED]
        site.publish("z2m", f"{domain}/5/hub/$state", b"init")
        site.run(2 * REJOIN_S)
        assert [site.kinds(name)[-1] for name in names] == [WELL, WELL, FAILED], "the door was lost before"
