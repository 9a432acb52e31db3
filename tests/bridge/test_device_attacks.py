"""Who may say what about whom, and what a flood of names costs honest devices: attacks on `speaking`'s rules."""

from __future__ import annotations

import pytest

from bridge.devices import devices as devices_module
from bridge.devices import speaking
from bridge.devices.conventions import ENTITIES_MAX, TOPICS_OF_DEVICE_MAX
from bridge.devices.life_evidence import DeviceHealth
from bridge.devices.rules import DeviceRules, Heartbeat
from bridge.devices.speaking import HANDOVER_S
from bridge.traces.kinds import TraceKind
from tests.bridge.devicesite import Site

JOIN, READY, FAILED = TraceKind.JOIN, TraceKind.READY, TraceKind.FAILED
HONEST, EVIL = "10.0.0.1", "10.6.6.6"


def site_with_everything() -> Site:
    """A plug of Home Assistant's, a Homie pump, a Sparkplug node with a device, and a sensor behind a bridge."""
    site = Site(DeviceRules(heartbeats=(Heartbeat("sensors/{device}/state", 60),)))
    for client in ("esp", "homie-pump", "edge", "bridge"):
        site.connect(client, origin=HONEST)
    site.home_assistant("esp", "plug", "esp/lwt")
    site.publish("esp", "esp/lwt", b"online")
    site.publish("homie-pump", "homie/pump/$state", b"ready")
    site.publish("edge", "spBv1.0/plant/NBIRTH/edge")
    site.publish("edge", "spBv1.0/plant/DBIRTH/edge/a")
    site.publish("bridge", "sensors/s1/state")
    site.run(5)
    return site


ALIVE = ("plug", "pump", "plant:edge", "plant:edge:a", "s1", "esp", "bridge")


def health(site: Site) -> dict[str, DeviceHealth | None]:
    found = {name: site.devices.device(name) for name in ALIVE}
    return {name: device.told if device else None for name, device in found.items()}


ATTACKS = [
    ("esp/lwt", b"offline"),
    ("homie/pump/$state", b"lost"),
    ("homie/pump/$state", b"disconnected"),
    ("homie/pump/$state", b""),
    ("homie/esp/$state", b"lost"),  # another client's own name
    ("spBv1.0/plant/NDEATH/edge", b""),
    ("spBv1.0/plant/DDEATH/edge/a", b""),
]


@pytest.mark.parametrize("will", [False, True])
@pytest.mark.parametrize(("topic", "payload"), ATTACKS)
def test_nobody_kills_what_another_open_connection_speaks_for(topic: str, payload: bytes, will: bool) -> None:
    site = site_with_everything()
    before = health(site)
    assert set(before.values()) == {DeviceHealth.ALIVE}
    site.connect("evil", origin=EVIL)
    site.publish("evil", topic, payload, will=will)
    if will:
        site.lose("evil")
    site.run(5)
    assert health(site) == before
    assert site.counted["devices_refused"] == 1
    assert site.removed == []


def test_nobody_keeps_alive_what_another_connection_speaks_for() -> None:
    site = site_with_everything()
    site.connect("evil", origin=EVIL)
    site.publish("esp", "esp/lwt", b"offline", will=True)
    site.lose("esp")
    for _ in range(20):
        site.publish("evil", "esp/lwt", b"online")
        site.publish("evil", "sensors/s1/state")
        site.run(20)
    assert health(site)["plug"] is DeviceHealth.FAILED
    assert health(site)["s1"] is DeviceHealth.FAILED
    assert site.counted["devices_refused"] == 40


def test_a_discovery_message_of_another_does_not_turn_words_around() -> None:
    site = site_with_everything()
    site.connect("evil", origin=EVIL)
    swapped = b'{"unique_id": "plug", "availability_topic": "esp/lwt", "pl_avail": "offline", "pl_not_avail": "online"}'
    site.publish("evil", "homeassistant/sensor/x/config", swapped)
    elsewhere = b'{"unique_id": "plug", "availability_topic": "evil/lwt"}'
    site.publish("evil", "homeassistant/sensor/x/config", elsewhere)
    site.publish("evil", "evil/lwt", b"offline")
    site.publish("esp", "esp/lwt", b"online")
    site.run(5)
    assert health(site)["plug"] is DeviceHealth.ALIVE


def test_nothing_is_hung_on_anothers_sparkplug_node() -> None:
    site = site_with_everything()
    site.connect("evil", origin=EVIL)
    site.publish("evil", "spBv1.0/plant/DBIRTH/edge/ghost")
    assert site.devices.device("plant:edge:ghost") is None


def test_a_connection_that_is_gone_is_replaced_by_its_neighbour_at_once_and_by_others_later() -> None:
    site = site_with_everything()
    site.lose("homie-pump")
    site.run(20)
    site.connect("evil", origin=EVIL)
    site.publish("evil", "homie/pump/$state", b"ready")
    assert health(site)["pump"] is DeviceHealth.FAILED
    site.connect("homie-pump-2", origin=HONEST)  # libraries that draw a client id at each start
    site.publish("homie-pump-2", "homie/pump/$state", b"ready")
    assert health(site)["pump"] is DeviceHealth.ALIVE
    site.lose("homie-pump-2")
    site.run(HANDOVER_S)
    site.publish("evil", "homie/pump/$state", b"ready")
    assert health(site)["pump"] is DeviceHealth.ALIVE
    site.run(5)
    site.connect("homie-pump", origin=HONEST)
    site.publish("homie-pump", "homie/pump/$state", b"alert")
    site.publish("evil", "homie/pump/$state", b"lost")
    site.run(5)
    assert health(site)["pump"] is DeviceHealth.ALIVE, "who spoke first may always come back"


def test_a_client_id_of_a_device_behind_a_bridge_wins_nothing() -> None:
    site = site_with_everything()
    site.connect("pump", origin=EVIL)
    site.publish("pump", "homie/pump/$state", b"lost")
    site.lose("pump")
    site.run(30)
    assert health(site)["pump"] is DeviceHealth.ALIVE


def test_who_speaks_veilmq_is_believed_about_nobody() -> None:
    site = Site()
    site.connect("desk", settled=False)
    site.knows("desk")
    site.publish("desk", "homie/ghost/$state", b"ready")
    assert len(site.devices) == 0


@pytest.mark.parametrize("how", ["clients", "homie", "home assistant", "heartbeats", "sparkplug"])
def test_a_flood_of_names_evicts_the_flooder(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "DEVICES_MAX", 60)
    site = site_with_everything()
    before = health(site)
    site.connect("evil", origin=EVIL)
    for place in range(1_000):
        match how:
            case "clients":
                site.connect(f"evil-{place}", origin=EVIL, settled=False)
            case "homie":
                site.publish("evil", f"homie/x{place}/$state", b"ready")
            case "home assistant":
                site.home_assistant("evil", f"x{place}", f"x{place}/lwt")
            case "heartbeats":
                site.publish("evil", f"sensors/x{place}/state")
            case _:
                site.publish("evil", f"spBv1.0/g/NBIRTH/x{place}")
    site.publish("bridge", "sensors/s1/state")
    site.run(5)
    assert health(site) == before
    assert len(site.devices) <= 60
    assert site.counted["devices_evicted"] >= 900
    for place in range(1_000):
        site.lose(f"evil-{place}")
    assert len(site.devices._heap) <= 4 * 60 + 64, "stale entries do not pile up"
    speaks = site.devices._speaking
    assert len(speaks._links) <= 60 + 5
    assert sum(map(len, speaks._speaks.values())) <= 60


def test_names_that_are_none_break_nothing() -> None:
    site = Site()
    site.connect("evil", origin=EVIL)
    payload = b'{"unique_id":"\\ud800","availability_topic":"t"}'
    site.publish("evil", "homeassistant/sensor/x/config", payload)
    site.publish("evil", "t", b"online")
    assert {tell.device for _, tell in site.told} == {"evil"}


@pytest.mark.parametrize("back", [0, 20, 40])
def test_after_a_restart_a_flood_of_names_still_evicts_the_flooder(back: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "DEVICES_MAX", 60)
    site = Site()
    honest = [f"pump-{place}" for place in range(40)]
    for device in honest:
        site.remember(device)
    for place, device in enumerate(honest[:back]):
        site.connect(device, origin=f"10.0.0.{place}", settled=False)
    site.connect("evil", origin=EVIL)
    for place in range(1_000):
        site.publish("evil", f"homie/x{place}/$state", b"ready")
    assert [device for device in honest if site.devices.device(device) is None] == []


def test_ever_new_names_of_one_origin_come_to_an_end_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a trace topic that other gateways keep for a week."""
    monkeypatch.setattr(speaking, "DEVICES_MAX", 50)
    monkeypatch.setattr(speaking, "NAMES_BURST", 100.0)
    site = Site()
    site.connect("evil", origin=EVIL)
    for place in range(500):
        site.publish("evil", f"homie/x{place}/$state", b"ready")
    assert 100 <= len({tell.device for _, tell in site.told}) <= 101
    site.connect("honest", origin=HONEST)
    assert site.kinds("honest") == [JOIN]
    site.run(900)
    site.publish("evil", "homie/late/$state", b"ready")
    assert site.kinds("late") == [JOIN, READY]


def test_what_dashboards_are_shown_is_no_heartbeat_when_a_bridge_brings_it_back() -> None:
    site = Site(DeviceRules(heartbeats=(Heartbeat("homie/5/{device}/#"), Heartbeat("+/binary_sensor/{device}/state"))))
    site.connect("bridge")
    for slug in ("veilmq-site-bridge-12345678", "pump"):
        site.publish("bridge", f"homie/5/{slug}/$state", b"ready")
        site.publish("bridge", f"homeassistant/binary_sensor/{slug}/state")
    assert {tell.device for _, tell in site.told} == {"bridge", "pump"}


def test_words_about_one_device_are_bounded() -> None:
    site = Site()
    site.connect("evil")
    for place in range(200):
        document = b'{"dev": {"ids": "one"}, "avty_t": "t/%d"}' % place
        site.publish("evil", f"homeassistant/sensor/{place}/config", document)
        site.publish("evil", f"t/{place}", b"online")
        site.publish("evil", f"homie/5/one/$alert/{place}", b"hot")
    device = site.devices.device("one")
    assert device is not None
    assert len(device.evidence.words) == devices_module.WORDS_MAX
    assert len(device.said.words) == TOPICS_OF_DEVICE_MAX
    assert len(site.devices._conventions.entities("one")) == ENTITIES_MAX


def test_the_name_of_a_connected_client_is_its_own_even_where_clients_are_no_devices() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("esp", origin=HONEST)
    site.connect("evil", origin=EVIL)
    site.publish("evil", "homie/esp/$state", b"lost")
    assert site.devices.device("esp") is None
    site.publish("esp", "homie/esp/$state", b"ready")
    assert site.kinds("esp") == [JOIN, READY]
