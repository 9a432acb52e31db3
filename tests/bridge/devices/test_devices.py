"""Unchanged devices: what follows from connections, silence, wills and words, in the order of `life_evidence`."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract.machine import Count
from bridge.devices import speaking
from bridge.devices.device_verdicts import CALM_S, FORGET_S, LOOKS_AT_ONCE, LOOKS_PER_S, WELL_EVERY_S
from bridge.devices.devices import WORDS_MAX, Devices
from bridge.devices.events import Published, Removed, Tell
from bridge.devices.life_evidence import LEARNED_S, REJOIN_S, DeviceHealth
from bridge.devices.rules import DeviceRules, Heartbeat
from bridge.traces.availability import EntityConnected, EntityGone
from bridge.traces.kinds import TraceKind
from tests.bridge.devicesite import NOW, Site

JOIN, WELL, SUSPECTED = TraceKind.JOIN, TraceKind.ALLS_WELL, TraceKind.FAILURE_SUSPICION
FAILED, DISCONNECT, READY = TraceKind.FAILED, TraceKind.DISCONNECT, TraceKind.READY


def test_a_client_joins_and_leaves() -> None:
    site = Site()
    site.connect("plug", settled=False)
    site.run(1.9)
    assert site.kinds("plug") == [], "it may yet say that it knows VeilMQ"
    site.run(0.2)
    assert site.kinds("plug") == [JOIN]
    site.lose("plug", clean=True)
    site.run(3_600)
    assert site.kinds("plug") == [JOIN, DISCONNECT]
    assert site.last("plug").fields == {"clean": True, "why": "disconnected"}
    site.connect("plug")
    assert site.kinds("plug") == [JOIN, DISCONNECT, WELL]
    assert site.last("plug").fields == {"after": "gone"}


def test_a_client_whose_id_the_broker_drew_is_no_device_and_vouches_for_devices_all_the_same() -> None:
    """It comes back under another id: the former one was FAILED for ever, though the client lived."""
    site = Site(DeviceRules(grace_s=10))
    site.handle(EntityConnected("veilmq-0123", 0, "10.0.0.1", "", is_named=False))
    site.publish("veilmq-0123", "homie/pump/$state", b"ready")
    site.run(10)
    assert site.kinds("veilmq-0123") == []
    assert JOIN in site.kinds("pump")
    site.lose("veilmq-0123")
    site.run(60)
    assert site.kinds("veilmq-0123") == []
    assert FAILED in site.kinds("pump")


def test_a_lost_connection_is_told_at_once_and_fails_when_it_is_not_back() -> None:
    site = Site(DeviceRules(grace_s=10))
    site.connect("plug")
    site.lose("plug")
    assert site.kinds("plug") == [JOIN, DISCONNECT]
    assert site.last("plug").fields["clean"] is False
    site.run(9.9)
    assert site.kinds("plug") == [JOIN, DISCONNECT]
    site.run(0.2)
    assert site.kinds("plug") == [JOIN, DISCONNECT, FAILED]
    site.connect("plug")
    assert site.kinds("plug")[-1] is WELL


def test_a_published_will_is_the_devices_own_word_that_it_is_dead() -> None:
    site = Site()
    site.connect("plug")
    site.publish("plug", "any/topic", b"bye", will=True)  # the broker publishes it before it reports the end
    site.lose("plug")
    assert site.kinds("plug") == [JOIN, FAILED]
    assert site.last("plug").fields == {"why": "its will was published"}
    site.connect("plug")
    assert site.kinds("plug")[-1] is WELL, "a new connection outweighs the will of the last one"


def test_a_delayed_will_fails_when_it_comes() -> None:
    site = Site(DeviceRules(grace_s=3_600))
    site.connect("plug")
    site.lose("plug")
    site.run(60)
    assert site.kinds("plug") == [JOIN, DISCONNECT]
    site.publish("plug", "any/topic", b"bye", will=True)
    assert site.kinds("plug") == [JOIN, DISCONNECT, FAILED]


def test_silence_beyond_the_keep_alive_is_suspicious_before_the_broker_ends_it() -> None:
    site = Site()
    site.connect("plug", keep_alive_s=30)
    for _ in range(4):
        site.run(27)
        site.seen("plug")
    assert site.kinds("plug") == [JOIN]
    site.run(40)
    assert site.kinds("plug") == [JOIN, SUSPECTED]
    site.seen("plug")
    assert site.kinds("plug") == [JOIN, SUSPECTED, WELL]
    site.run(40)
    site.lose("plug")
    assert site.kinds("plug")[-1] is DISCONNECT


# ---------------------------------------------------------------------------------------------- learned rates


def speak(site: Site, intervals: list[float], client: str = "plug") -> None:
    for interval in intervals:
        site.run(interval)
        site.seen(client)
        site.publish(client, "t")


@pytest.mark.parametrize("every_s", [2.0, 10.0, 300.0])
def test_a_regular_speaker_that_falls_silent_is_suspected_then_failed(every_s: float) -> None:
    site, rng = Site(), random.Random(3)
    site.connect("plug")
    speak(site, [rng.gauss(every_s, every_s / 20) for _ in range(int(LEARNED_S / every_s) + 20)])
    assert site.kinds("plug") == [JOIN]
    for _ in range(int(every_s * 4 + 20)):
        site.run(1)
        site.seen("plug")  # its connection stands, and answers pings
    assert site.kinds("plug") == [JOIN, SUSPECTED, FAILED]
    assert site.last("plug").fields == {"why": "silent against its habit"}
    site.publish("plug", "t")
    assert site.kinds("plug") == [JOIN, SUSPECTED, FAILED, WELL]


def test_what_has_no_rhythm_is_never_suspected() -> None:
    site, rng = Site(), random.Random(5)
    site.connect("motion")
    speak(site, [rng.expovariate(1 / 60) for _ in range(200)], "motion")
    site.run(86_400)
    assert site.kinds("motion") == [JOIN]


def test_a_burst_teaches_nothing() -> None:
    site = Site()
    site.connect("plug")
    speak(site, [0.01] * 500)
    site.run(600)
    speak(site, [0.2] * 200)
    site.run(600)
    assert site.kinds("plug") == [JOIN]


def test_batches_are_one_message_each() -> None:
    site = Site()
    site.connect("plug")
    speak(site, [60.0, 0.01, 0.01, 0.01] * 20)
    site.run(100)
    assert site.kinds("plug")[:2] == [JOIN, SUSPECTED]


def test_a_drifting_rhythm_is_followed() -> None:
    site = Site()
    site.connect("plug")
    speak(site, [10 + place * 0.05 for place in range(400)])  # to three times the interval, over two hours
    assert site.kinds("plug") == [JOIN]
    site.run(200)
    assert site.kinds("plug") == [JOIN, SUSPECTED, FAILED]


def test_a_new_rhythm_costs_one_suspicion_at_most() -> None:
    site = Site()
    site.connect("plug")
    speak(site, [10.0] * 50 + [60.0] * 20)
    assert site.kinds("plug").count(SUSPECTED) == 1


def test_the_time_away_is_no_interval() -> None:
    site = Site()
    site.connect("plug")
    speak(site, [10.0] * 30)
    site.lose("plug", clean=True)
    site.run(7_200)
    site.connect("plug")
    speak(site, [10.0] * 3)
    site.run(60)
    assert site.kinds("plug")[-2:] == [SUSPECTED, FAILED]


def test_the_learned_rate_is_told() -> None:
    site = Site()
    site.connect("plug")
    speak(site, [10.0] * 30)
    metrics = [each for _, each in site.told if each.kind is TraceKind.NETWORK_METRICS]
    assert metrics[-1].fields == {"interval_s": pytest.approx(10.0, rel=0.05), "regular": True}
    assert len(metrics) <= 31


# ----------------------------------------------------------------------------------------- behind a bridge

SENSORS = DeviceRules(clients=(), heartbeats=(Heartbeat("sensors/{device}/+", every_s=60),))


def test_a_configured_heartbeat_names_devices_that_never_connect() -> None:
    site = Site(SENSORS)
    site.connect("bridge")
    for _ in range(5):
        for name in ("a", "b"):
            site.publish("bridge", f"sensors/{name}/state")
        site.run(60)
    assert site.kinds("a") == site.kinds("b") == [JOIN]
    assert site.kinds("bridge") == [], "the configuration wants no clients"
    for _ in range(5):
        site.publish("bridge", "sensors/b/state")
        site.run(60)
    assert site.kinds("a") == [JOIN, SUSPECTED, FAILED]
    assert site.kinds("b") == [JOIN]
    site.publish("bridge", "sensors/a/state")
    assert site.kinds("a")[-1] is WELL


def test_a_device_with_a_heartbeat_may_come_and_go() -> None:
    site = Site(DeviceRules(heartbeats=(Heartbeat("sensors/{device}/state", every_s=600),)))
    for _ in range(5):
        site.connect("soil", settled=False)
        site.publish("soil", "sensors/soil/state")
        site.lose("soil", clean=True)
        site.run(600)
    assert site.kinds("soil") == [JOIN]
    site.run(1_300)
    assert site.kinds("soil") == [JOIN, SUSPECTED, FAILED]


def test_a_bridge_that_is_lost_takes_its_devices_with_it() -> None:
    site = Site(DeviceRules(heartbeats=(Heartbeat("sensors/{device}/state"),)))
    site.connect("bridge")
    site.publish("bridge", "sensors/a/state")
    site.lose("bridge")
    site.run(20)
    assert site.kinds("a") == [JOIN, DISCONNECT, FAILED]
    site.connect("bridge")
    assert site.kinds("a")[-1] is WELL, "without a habit, its bridge is all that is known of it"


def test_what_hangs_on_one_bridge_is_told_in_turn() -> None:
    site = Site(DeviceRules(clients=(), heartbeats=(Heartbeat("sensors/{device}"),), grace_s=60))
    site.connect("bridge")
    for place in range(1_000):
        site.publish("bridge", f"sensors/{place}")
    site.run(5)
    before = len(site.told)
    site.lose("bridge")
    assert len(site.told) - before == LOOKS_AT_ONCE
    site.run(1.1)
    assert len(site.told) - before == 1_000
    assert {tell.kind for _, tell in site.told[before:]} == {DISCONNECT}


@pytest.mark.parametrize(
    ("filter_", "topic", "name"),
    [
        ("sensors/{device}/state", "sensors/a/state", "a"),
        ("sensors/{device}/state", "sensors/a/b/state", None),
        ("{device}/#", "a/b/c", "a"),
        ("{device}/#", "a", "a"),
        ("+/{device}/#", "x/y z", "y%20z"),
        ("spBv1.0/{device}/DDATA/{device}/{device}", "spBv1.0/g/DDATA/n/d", "g:n:d"),
        ("a/{device}/#", "b/c/d", None),
    ],
)
def test_levels_name_devices(filter_: str, topic: str, name: str | None) -> None:
    assert Heartbeat(filter_).device(topic.split("/")) == name


# ------------------------------------------------------------------------------------------------- words


def test_home_assistant_words() -> None:
    site = Site()
    site.connect("esp")
    site.home_assistant("esp", "esp_t", "esp/lwt")
    site.run(5)
    assert site.kinds("esp_t") == [], "that it has a name says nothing of its life"
    site.publish("esp", "esp/lwt", b"online")
    assert site.kinds("esp_t") == [JOIN, READY]
    site.run(5)
    site.publish("esp", "esp/lwt", b"offline", will=True)
    site.lose("esp")
    assert site.kinds("esp_t") == [JOIN, READY, FAILED]
    assert site.kinds("esp") == [JOIN, FAILED]
    site.run(5)
    site.connect("esp")
    assert site.kinds("esp_t") == [JOIN, READY, FAILED], "its own word outweighs the connection of who speaks for it"
    site.publish("esp", "esp/lwt", b"online")
    assert site.kinds("esp_t") == [JOIN, READY, FAILED, READY, WELL]


def test_a_device_that_says_offline_itself_leaves() -> None:
    site = Site()
    site.connect("esp")
    site.home_assistant("esp", "esp_t", "esp/lwt")
    site.publish("esp", "esp/lwt", b"online")
    site.run(5)
    site.publish("esp", "esp/lwt", b"offline")
    site.lose("esp", clean=True)
    assert site.kinds("esp_t") == [JOIN, READY, TraceKind.SHUTDOWN, DISCONNECT]


def test_a_bridges_words_about_its_devices() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("z2m")
    for device in ("lamp", "plug"):
        site.home_assistant("z2m", device, "z2m/state", f"z2m/{device}/availability")
    site.publish("z2m", "z2m/state", b"online")
    for device in ("lamp", "plug"):
        site.publish("z2m", f"z2m/{device}/availability", b"online")
    site.run(5)
    site.publish("z2m", "z2m/lamp/availability", b"offline")
    assert site.kinds("lamp") == [JOIN, READY, FAILED]
    site.run(5)
    site.publish("z2m", "z2m/state", b"online")
    assert site.kinds("lamp") == [JOIN, READY, FAILED], "the bridge's life is not the lamp's"
    site.publish("z2m", "z2m/state", b"offline", will=True)
    site.run(5)
    assert site.kinds("plug") == [JOIN, READY, FAILED]
    site.publish("z2m", "z2m/state", b"online")
    assert site.kinds("plug") == [JOIN, READY, FAILED, READY, WELL]
    assert site.kinds("lamp") == [JOIN, READY, FAILED]


def test_homie_states() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("x")
    for word in ("init", "ready", "sleeping", "ready", "alert", "disconnected"):
        site.publish("x", "homie/pump/$state", word.encode())
        site.run(5)
    shutdown = TraceKind.SHUTDOWN
    states = [JOIN, TraceKind.INITIALIZING, READY, shutdown, READY, TraceKind.RECOVERING, shutdown, DISCONNECT]
    assert site.kinds("pump") == states
    site.publish("x", "homie/pump/$state", b"ready")
    site.publish("x", "homie/pump/$state", b"")
    assert site.removed == ["pump"]


def test_alerts_of_homie_5_are_amiss_until_all_are_over() -> None:
    site = Site()
    site.connect("car")
    site.publish("car", "homie/5/car/$state", b"ready")
    site.run(5)
    for alert in ("battery", "tyre"):
        site.publish("car", f"homie/5/car/$alert/{alert}", b"low")
        site.run(2)
    assert site.kinds("car").count(TraceKind.RECOVERING) == 1
    site.publish("car", "homie/5/car/$alert/battery", b"")
    site.run(2)
    assert site.kinds("car")[-1] is TraceKind.RECOVERING
    site.publish("car", "homie/5/car/$alert/tyre", b"")
    site.run(2)
    assert site.kinds("car")[-1] is TraceKind.READY
    site.publish("car", "homie/5/nobody/$alert/tyre", b"")
    assert site.devices.device("nobody") is None


def test_who_sleeps_is_not_missed() -> None:
    site = Site()
    site.connect("pump")
    speak(site, [10.0] * 30, "pump")
    site.publish("pump", "homie/pump/$state", b"sleeping")
    site.run(600)
    assert FAILED not in site.kinds("pump")


@pytest.mark.parametrize("topic", ["homie/5/pump/$state", "homie/5/behind/$state"])
def test_who_sleeps_may_leave_and_is_asleep_behind_a_restart(topic: str) -> None:
    name, site = topic.split("/")[2], Site()
    site.connect("pump")
    for word in (b"init", b"ready", b"sleeping"):
        site.publish("pump", topic, word)
        site.run(2)
    site.lose("pump", clean=True)
    site.run(600)
    assert site.kinds(name)[-1] is TraceKind.SHUTDOWN
    again = Site()
    again.remember(name)
    again.kept({topic: b"sleeping"})
    again.run(600)
    assert not {FAILED, TraceKind.DISCONNECT} & set(again.kinds(name))
    assert again.kinds(name)[-1] is TraceKind.SHUTDOWN


def test_a_sparkplug_node_that_says_its_death_itself_leaves_with_all_its_devices() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("edge")
    site.publish("edge", "spBv1.0/plant/NBIRTH/edge")
    site.publish("edge", "spBv1.0/plant/DBIRTH/edge/a")
    site.run(5)
    site.publish("edge", "spBv1.0/plant/NDEATH/edge")
    site.lose("edge", clean=True)
    for name in ("plant:edge", "plant:edge:a"):
        assert site.kinds(name) == [JOIN, READY, TraceKind.SHUTDOWN, DISCONNECT]


def test_sparkplug_nodes_and_what_hangs_on_them() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("edge")
    site.publish("edge", "spBv1.0/plant/NBIRTH/edge")
    for device in ("a", "b"):
        site.publish("edge", f"spBv1.0/plant/DBIRTH/edge/{device}")
    assert site.kinds("plant:edge") == site.kinds("plant:edge:a") == [JOIN, READY]
    site.run(5)
    site.publish("edge", "spBv1.0/plant/DDEATH/edge/a")
    assert site.kinds("plant:edge:a") == [JOIN, READY, FAILED]
    site.run(5)
    site.publish("edge", "spBv1.0/plant/NDEATH/edge", will=True)
    site.lose("edge")
    assert site.kinds("plant:edge") == site.kinds("plant:edge:b") == [JOIN, READY, FAILED]
    site.run(5)
    site.connect("edge")
    site.publish("edge", "spBv1.0/plant/NBIRTH/edge")
    assert site.kinds("plant:edge")[-1] is WELL
    assert site.kinds("plant:edge:b")[-1] is FAILED, "a device is born again by itself"
    site.publish("edge", "spBv1.0/plant/DBIRTH/edge/b")
    assert site.kinds("plant:edge:b")[-1] is WELL


# ------------------------------------------------------------------------------------------ life and bounds


def test_a_program_that_knows_veilmq_is_no_unchanged_device() -> None:
    site = Site()
    site.connect("pump-7", settled=False)
    site.knows("pump-7")
    site.run(10)
    assert (site.told, len(site.devices)) == ([], 0)
    site.connect("late")
    site.knows("late")
    assert site.removed == ["late"]


def test_who_comes_and_goes_within_a_moment_is_no_device() -> None:
    site = Site()
    for place in range(100):
        site.connect(f"mosq-{place}", settled=False)
        site.publish(f"mosq-{place}", "t")
        site.lose(f"mosq-{place}", clean=True)
        site.run(1)
    site.run(10)
    assert (site.told, len(site.devices), site.removed) == ([], 0, [])


def test_a_restart_remembers_and_misses() -> None:
    site = Site()
    for name in ("back", "lost"):
        site.remember(name)
    site.run(5)
    site.connect("back")
    site.run(REJOIN_S)
    assert site.kinds("back") == [JOIN]
    assert site.kinds("lost") == [FAILED]


def test_after_a_restart_a_heartbeat_has_its_periods_to_come() -> None:
    """The longest of the rules that may name it; what is named otherwise is missed as before."""
    heartbeats = (
        Heartbeat("sensors/{device}/state", every_s=600),
        Heartbeat("{device}/alive", every_s=900),
        Heartbeat("sites/{device}/{device}", every_s=10),
        Heartbeat("learned/{device}/{device}/{device}"),
    )
    site = Site(DeviceRules(heartbeats=heartbeats))
    names = ("back", "dead", "a:fast", "a:b:c")
    for name in names:
        site.remember(name)
    site.run(REJOIN_S + 1)
    assert [site.kinds(name) for name in names] == [[], [], [FAILED], [FAILED]]
    site.run(500)
    site.connect("gateway", settled=False)
    site.publish("gateway", "sensors/back/state")
    site.run(2_700 - REJOIN_S - 502)
    assert (site.kinds("back"), site.kinds("dead")) == ([JOIN, SUSPECTED, FAILED], [])
    site.run(2)
    assert site.kinds("dead") == [FAILED]
    assert site.last("dead").fields["why"] == "not back after a restart of the gateway"


def test_flapping_costs_a_change_a_second() -> None:
    site = Site()
    site.connect("plug")
    for _ in range(500):
        site.connect("plug", settled=False)
        site.run(0.01)
        site.lose("plug")
        site.run(0.01)
    site.run(30)
    assert len(site.kinds("plug")) <= 10 / CALM_S + 3
    assert site.kinds("plug")[-1] is FAILED


def test_who_is_gone_for_long_is_forgotten() -> None:
    site = Site()
    site.connect("plug")
    site.lose("plug", clean=True)
    site.run(FORGET_S - 10)
    assert len(site.devices) == 1
    site.run(20)
    assert (len(site.devices), site.removed) == (0, ["plug"])
    assert site.devices.next_deadline is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_whatever_happens_what_was_told_last_is_what_holds(seed: int) -> None:
    """Random connections, words and pauses; after a quiet minute the last trace is the health that is held."""
    rng = random.Random(seed)
    site = Site(DeviceRules(heartbeats=(Heartbeat("s/{device}", 30),)))
    for _ in range(80):
        client = rng.choice(["a", "b"])
        match rng.randrange(6):
            case 0:
                site.connect(client, rng.choice([0, 10]), settled=False)
            case 1:
                site.lose(client, rng.random() < 0.5)
            case 2:
                site.publish(client, f"homie/{rng.choice('abc')}/$state", rng.choice([b"ready", b"lost", b"alert"]))
            case 3:
                site.publish(client, f"s/{rng.choice('cd')}")
            case 4:
                site.publish(client, "x", will=True)
            case _:
                site.run(rng.uniform(0, 20))
    site.run(60)
    told = {DeviceHealth.ALIVE: (JOIN, WELL), DeviceHealth.SUSPECTED: (SUSPECTED,), DeviceHealth.FAILED: (FAILED,),
            DeviceHealth.GONE: (DISCONNECT,)}  # fmt: skip
    for name in "abcd":
        device = site.devices.device(name)
        if device is not None and device.told is not None:
            kinds = [kind for kind in site.kinds(name) if kind in (JOIN, WELL, SUSPECTED, FAILED, DISCONNECT)]
            assert kinds[-1] in told[device.told]


# ------------------------------------------------------------------------- Home Assistant's modes, Homie's roots


@pytest.mark.parametrize(
    ("mode", "words", "dead"),
    [
        ("all", ["a online", "b online", "a offline"], True), ("all", ["a offline", "b online"], True),
        ("any", ["a online", "b offline"], False), ("any", ["a offline", "b offline"], True),
        ("any", ["a offline", "b offline", "b online"], False), ("latest", ["a offline", "b online"], False),
        ("latest", ["a online", "b offline"], True),
    ],
)  # fmt: skip
def test_words_on_several_topics_count_by_the_mode(mode: str, words: list[str], dead: bool) -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("bridge")
    topics = [{"topic": "a"}, {"topic": "b"}]
    document = json.dumps({"unique_id": "plug", "availability": topics, "availability_mode": mode})
    site.publish("bridge", "homeassistant/sensor/plug/config", document.encode())
    for word in words:
        topic, said = word.split()
        site.publish("bridge", topic, said.encode())
        site.run(2)
    assert (site.kinds("plug")[-1] in (FAILED, DISCONNECT)) is dead


def test_a_state_that_expires_is_a_heartbeat() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("bridge")
    document = json.dumps({"unique_id": "meter", "state_topic": "meter/w", "expire_after": 60})
    site.publish("bridge", "homeassistant/sensor/meter/config", document.encode())
    for _ in range(3):
        site.publish("bridge", "meter/w", b"17")
        site.run(50)
    assert FAILED not in site.kinds("meter")
    assert site.kinds("meter")[0] is JOIN
    site.run(11)
    assert site.kinds("meter")[-1] is FAILED
    site.publish("bridge", "meter/w", b"18")
    assert site.kinds("meter")[-1] is WELL


def test_a_child_of_homie_is_lost_with_its_root() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("bridge")
    for device in ("bridge", "lamp", "alone"):
        site.publish("bridge", f"homie/5/{device}/$state", b"ready")
    site.publish("bridge", "homie/5/lamp/$description", b'{"homie": "5.0", "root": "bridge"}')
    site.run(5)
    site.publish("bridge", "homie/5/bridge/$state", b"lost", will=True)
    assert site.kinds("lamp")[-1] is FAILED
    assert site.kinds("bridge")[-1] is FAILED


# ------------------------------------------------------------------------------------------- what is told of one


def test_who_heard_nothing_of_a_device_is_told_how_it_stands() -> None:
    site = Site()
    assert site.devices.anew("plug") == []
    site.connect("plug", settled=False)
    assert site.devices.anew("plug") == [], "nothing was told of it yet"
    site.run(4)
    join = Tell("plug", JOIN, {"entity": "plug", "by": "connection"})
    assert site.devices.anew("plug") == [join]
    site.publish("plug", "homie/plug/$state", b"ready")
    ready = Tell("plug", READY, {"state": "READY"})
    assert site.devices.anew("plug") == [join, ready]
    site.run(5)
    site.lose("plug", clean=True)
    assert site.devices.anew("plug") == [join, ready, Tell("plug", DISCONNECT, {"why": "disconnected", "clean": True})]
    site.run(5)
    site.publish("plug", "x", will=True)
    assert site.devices.anew("plug") == [join, ready, Tell("plug", FAILED, {"why": "its will was published"})]


def test_why_a_connection_ended_is_told_in_its_brokers_words() -> None:
    for reason, clean, why in (("kicked", False, "kicked"), ("", False, "connection lost"), ("", True, "disconnected")):
        site = Site()
        site.connect("plug")
        site.handle(EntityGone("plug", clean, reason))
        assert site.last("plug").fields == {"why": why, "clean": clean}


def test_of_who_speaks_it_is_said_that_it_is_well_but_seldom() -> None:
    site = Site()
    site.connect("plug")
    for _ in range(40):
        site.run(WELL_EVERY_S / 10)
        site.publish("plug", "t")
    wells = [(at, tell) for at, tell in site.told if tell.kind is WELL]
    assert [round(b[0] - a[0], 6) for a, b in itertools.pairwise(wells)] == [WELL_EVERY_S] * 3
    assert all(tell.fields == {"heard_ms": int(at * 1000)} for at, tell in wells)
    assert not any(tell.change for _, tell in wells)


def test_by_what_a_device_became_known_is_told() -> None:
    site = Site(SENSORS)
    site.connect("bridge")
    site.publish("bridge", "sensors/a/state")
    site.publish("bridge", "homie/b/$state", b"ready")
    assert [site.told[0][1].fields, site.told[1][1].fields] == [
        {"entity": "a", "by": "heartbeat"}, {"entity": "b", "by": "word"},
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ who may say what


@pytest.mark.parametrize(
    ("topic", "payload", "label"),
    [
        ("homie/lamp/$state", b"lost", "ConventionWord"),
        ("homie/lamp/$state", b"", "Cleared"),
        ("homie/5/lamp/$description", b'{"root": "x"}', "Rooted"),
        ("homeassistant/sensor/lamp/config", b'{"unique_id":"lamp","avty_t":"t"}', "Named"),
        ("sensors/lamp/state", b"1", "Published"),
    ],
)
def test_nobody_speaks_for_another_connections_device(topic: str, payload: bytes, label: str) -> None:
    site = Site(SENSORS)
    site.connect("bridge")
    site.publish("bridge", "homie/lamp/$state", b"ready")
    site.connect("spy", origin="10.6.6.6")
    effects = site.devices.handle(Published("spy", topic, payload), site.now)
    assert effects == [Count("devices_refused", 1, label)]
    assert site.kinds("lamp") == [JOIN, READY]


def test_a_word_that_is_refused_takes_no_other_with_it() -> None:
    """Two devices are named on one topic; one of them is somebody else's."""
    site = Site(DeviceRules(clients=()))
    site.connect("evil", origin="10.6.6.6")
    site.home_assistant("evil", "theirs", "homie/lamp/$state")
    site.connect("bridge")
    site.publish("bridge", "homie/lamp/$state", b"ready")
    assert site.kinds("lamp") == [JOIN, READY]


def test_what_a_client_that_knows_veilmq_or_nobody_knows_publishes_is_not_read() -> None:
    site = Site(SENSORS)
    site.publish("nobody", "sensors/a/state")
    site.connect("pump", settled=False)
    site.knows("pump")
    site.publish("pump", "sensors/a/state")
    site.publish("pump", "homie/b/$state", b"ready")
    site.knows("pump")
    assert (len(site.devices), site.told) == (0, [])


def test_topics_of_brokers_are_no_heartbeats_and_neither_is_what_we_show() -> None:
    site = Site(DeviceRules(clients=(), heartbeats=(Heartbeat("$SYS/{device}"), Heartbeat("homie/5/{device}/$state"))))
    site.connect("bridge")
    for topic in ("$SYS/load", "homie/5/veilmq-pump-1/$state"):
        site.publish("bridge", topic)
    assert len(site.devices) == 0
    site.publish("bridge", "homie/5/pump/$state", b"odd")
    assert site.kinds("pump") == [JOIN]


def test_the_first_rule_that_names_a_device_counts() -> None:
    rules = (Heartbeat("a/{device}/b", 10), Heartbeat("a/{device}/#", 1_000), Heartbeat("a/#", 1))
    site = Site(DeviceRules(clients=(), heartbeats=rules))
    site.connect("bridge")
    for topic in ("a/x/b", "a/y/c"):
        site.publish("bridge", topic)
    site.run(60)
    assert (site.kinds("x"), site.kinds("y")) == ([JOIN, SUSPECTED, FAILED], [JOIN])


def test_a_will_is_no_heartbeat() -> None:
    site = Site(SENSORS)
    site.connect("bridge")
    site.publish("bridge", "sensors/a/state", will=True)
    assert len(site.devices) == 0


def test_clients_are_devices_by_the_patterns_of_the_configuration() -> None:
    site = Site(DeviceRules(clients=("esp-*", "plug")))
    for client in ("esp-1", "plug", "plug2"):
        site.connect(client)
    assert [site.kinds(client) for client in ("esp-1", "plug", "plug2")] == [[JOIN], [JOIN], []]


def test_who_clears_its_own_connections_name_stays_and_a_bridges_device_goes() -> None:
    site = Site()
    site.connect("pump")
    site.publish("pump", "homie/pump/$state", b"ready")
    site.publish("pump", "homie/lamp/$state", b"ready")
    for device in ("pump", "lamp", "nobody"):
        site.publish("pump", f"homie/{device}/$state", b"")
    assert site.removed == ["lamp"]
    assert "devices_refused" not in site.counted


def test_a_device_of_a_node_is_its_connections() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("edge")
    site.publish("edge", "spBv1.0/plant/NBIRTH/edge")
    site.connect("spy", origin="10.6.6.6")
    site.publish("spy", "spBv1.0/plant/DBIRTH/edge/new")
    assert site.counted["devices_refused"] == 1
    assert site.kinds("plant:edge:new") == []


# --------------------------------------------------------------------------------------------------- words, more


def test_words_of_one_device_are_bounded_and_the_oldest_go() -> None:
    site = Site()
    site.connect("car")
    for alert in range(WORDS_MAX + 3):
        site.publish("car", f"homie/5/car/$alert/{alert}", b"low")
    device = site.devices.device("car")
    assert device is not None
    assert [source.rpartition(" ")[2] for source in device.evidence.words] == [str(n) for n in range(3, WORDS_MAX + 3)]
    site.publish("car", "homie/5/car/$alert/3", b"low")
    assert list(device.evidence.words)[-1].endswith(" 3"), "said again it is the newest"


def homie_tree(domain: str = "homie", client: str = "bridge") -> Site:
    """A root with two children, and a device without a root, on one connection."""
    site = Site(DeviceRules(clients=()))
    site.connect(client)
    for device in ("hub", "lamp", "plug", "alone"):
        described = "{}" if device in ("hub", "alone") else '{"root": "hub"}'
        site.publish(client, f"{domain}/5/{device}/$description", described.encode())
        site.publish(client, f"{domain}/5/{device}/$state", b"ready")
    site.run(5)
    return site


def ends(site: Site, *devices: str) -> list[TraceKind]:
    return [site.kinds(device)[-1] for device in devices]


def test_a_root_that_is_lost_takes_its_children_with_it_and_brings_them_back() -> None:
    """The Homie Convention 5.0, `Device hierarchy`: a child's own `$state` counts while its root is not lost."""
    site = homie_tree()
    site.publish("bridge", "homie/5/plug/$state", b"sleeping")
    site.run(5)
    site.publish("bridge", "homie/5/hub/$state", b"lost")
    assert ends(site, "hub", "lamp", "plug", "alone") == [FAILED, FAILED, FAILED, READY]
    assert site.last("lamp").fields["why"] == "homie root says so"
    site.run(5)
    site.publish("bridge", "homie/5/hub/$state", b"init")
    assert ends(site, "hub", "lamp", "plug") == [WELL, WELL, WELL], "the children said nothing"
    lamp = site.devices.device("lamp")
    plug = site.devices.device("plug")
    assert lamp is not None
    assert plug is not None
    assert (lamp.state, plug.state) == (TraceKind.READY, TraceKind.SHUTDOWN)


def test_a_root_that_says_disconnected_ends_no_child_but_the_end_of_its_connection_does() -> None:
    site = homie_tree()
    site.publish("bridge", "homie/5/hub/$state", b"disconnected")
    assert ends(site, "hub", "lamp", "alone") == [DISCONNECT, READY, READY]
    site.run(5)
    site.lose("bridge", clean=True)
    assert ends(site, "hub", "lamp", "alone") == [DISCONNECT, DISCONNECT, DISCONNECT]
    site.run(5)
    site.connect("bridge")
    site.publish("bridge", "homie/5/hub/$state", b"ready")
    assert ends(site, "hub", "lamp") == [WELL, WELL]


def test_a_root_that_is_its_client_brings_its_children_back_when_it_connects() -> None:
    site = Site()
    site.connect("hub")
    site.publish("hub", "homie/5/hub/$state", b"ready")
    site.publish("hub", "homie/5/lamp/$description", b'{"root": "hub"}')
    site.publish("hub", "homie/5/lamp/$state", b"ready")
    site.run(5)
    site.publish("hub", "homie/5/hub/$state", b"lost", will=True)
    site.lose("hub")
    assert ends(site, "hub", "lamp") == [FAILED, FAILED]
    site.run(5)
    site.connect("hub")
    assert ends(site, "hub", "lamp") == [WELL, WELL]


def test_a_root_that_comes_back_as_another_client_brings_its_children_with_it() -> None:
    site = homie_tree(client="bridge-17")
    site.publish("bridge-17", "homie/5/hub/$state", b"lost", will=True)
    site.lose("bridge-17")
    assert ends(site, "hub", "lamp") == [FAILED, FAILED]
    site.run(5)
    site.connect("bridge-18")
    site.publish("bridge-18", "homie/5/hub/$state", b"ready")
    assert ends(site, "hub", "lamp") == [WELL, WELL]


def test_a_child_that_is_lost_itself_stays_so_when_its_root_comes_back() -> None:
    site = homie_tree()
    site.publish("bridge", "homie/5/lamp/$state", b"lost")
    for word in (b"lost", b"ready"):
        site.publish("bridge", "homie/5/hub/$state", word)
        site.run(5)
    assert ends(site, "hub", "lamp", "plug") == [WELL, FAILED, WELL]


def test_a_child_whose_root_is_removed_or_that_becomes_a_root_stands_alone() -> None:
    site = homie_tree()
    site.publish("bridge", "homie/5/lamp/$description", b"{}")
    site.publish("bridge", "homie/5/hub/$state", b"lost")
    assert ends(site, "lamp", "plug") == [READY, FAILED]
    site.run(5)
    site.publish("bridge", "homie/5/hub/$state", b"")
    assert ends(site, "plug") == [WELL]


def test_a_description_alone_is_no_device() -> None:
    """The Homie Convention 5.0, `Device Lifecycle`: a device exists once its `$state` is set."""
    site = Site(DeviceRules(clients=()))
    site.connect("bridge")
    site.publish("bridge", "homie/5/lamp/$description", b'{"root": "hub"}')
    site.publish("bridge", "homie/5/hub/$description", b"{}")
    site.run(60)
    assert site.told == []
    site.publish("bridge", "homie/5/lamp/$state", b"ready")
    assert site.kinds("lamp") == [JOIN, READY]


def test_trees_of_two_domains_are_two_trees() -> None:
    site = homie_tree("home-a")
    site.connect("other")
    site.publish("other", "home-b/5/hub/$state", b"ready")
    site.run(5)
    site.publish("other", "home-b/5/hub/$state", b"lost")
    assert ends(site, "home-a:hub", "home-a:lamp", "home-b:hub") == [READY, READY, FAILED]
    site.publish("bridge", "home-a/5/hub/$state", b"lost")
    assert ends(site, "home-a:lamp") == [FAILED]


def test_nobody_makes_anothers_device_its_child() -> None:
    site = homie_tree()
    site.connect("spy", origin="10.6.6.6")
    site.publish("spy", "homie/5/evil/$state", b"ready")
    site.publish("spy", "homie/5/lamp/$description", b'{"root": "evil"}')
    site.publish("spy", "homie/5/mine/$description", b'{"root": "hub"}')
    site.publish("spy", "homie/5/mine/$state", b"ready")
    site.publish("spy", "homie/5/evil/$state", b"lost")
    assert ends(site, "lamp") == [READY]
    assert site.counted["devices_refused"] == 1
    site.publish("bridge", "homie/5/hub/$state", b"lost")
    assert ends(site, "mine") == [READY], "of another connection"


def test_a_state_that_expires_does_so_after_its_time_and_not_before() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("bridge")
    site.publish("bridge", "homeassistant/sensor/m/config", b'{"unique_id":"m","stat_t":"m/w","exp_aft":60}')
    site.run(600)
    assert site.kinds("m") == [], "that it has a name says nothing of its life"
    site.publish("bridge", "m/w")
    assert site.kinds("m") == [JOIN]
    site.run(59.9)
    assert FAILED not in site.kinds("m")
    site.run(0.2)
    assert site.kinds("m")[-1] is FAILED


def test_a_name_that_comes_later_silences_nobody() -> None:
    site = Site()
    site.connect("plug")
    site.home_assistant("plug", "plug", "plug/lwt")
    site.lose("plug")
    assert site.kinds("plug") == [JOIN, DISCONNECT]
    site = Site(SENSORS)
    site.connect("bridge")
    site.publish("bridge", "homie/a/$state", b"ready")
    site.home_assistant("bridge", "a", "a/lwt")
    site.run(5)
    site.publish("bridge", "homie/a/$state", b"lost", will=True)
    assert site.kinds("a")[-1] is FAILED


def test_the_latest_word_replaces_topics_and_leaves_what_other_conventions_say() -> None:
    site = Site()
    site.connect("car")
    document = {"unique_id": "car", "availability": [{"topic": "a"}, {"topic": "b"}], "availability_mode": "latest"}
    site.publish("car", "homeassistant/sensor/car/config", json.dumps(document).encode())
    site.publish("car", "homie/car/$state", b"ready")
    site.publish("car", "homie/5/car/$alert/x", b"low")
    for topic in ("a", "b"):
        site.publish("car", topic, b"online")
    device = site.devices.device("car")
    assert device is not None
    assert set(device.evidence.words) == {"homie", "homie $alert x", "b"}


# ----------------------------------------------------------------------------------------------- pace and places


def test_behind_the_first_hundred_each_has_its_moment() -> None:
    site = Site(DeviceRules(clients=(), heartbeats=(Heartbeat("s/{device}"),), grace_s=60))
    site.connect("bridge")
    for place in range(LOOKS_AT_ONCE + 3):
        site.publish("bridge", f"s/{place:03}")
    site.run(5)
    site.lose("bridge")
    lost_at, before = site.now, len(site.told)
    site.run(1)
    late = [round((at - lost_at) * LOOKS_PER_S) for at, _ in site.told[before:]]
    assert late == [1, 2, 3]


def test_a_change_waits_for_the_end_of_a_second() -> None:
    site = Site()
    site.connect("plug")
    site.publish("plug", "homie/plug/$state", b"ready")
    told_at = site.told[-1][0]
    site.publish("plug", "homie/plug/$state", b"alert")
    assert site.kinds("plug") == [JOIN, READY]
    site.run(CALM_S - 0.01)
    assert site.kinds("plug") == [JOIN, READY]
    site.run(0.02)
    assert site.kinds("plug") == [JOIN, READY, TraceKind.RECOVERING]
    assert site.told[-1][0] == told_at + CALM_S


def test_new_devices_of_an_origin_without_a_budget_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "NAMES_BURST", 2.0)
    site = Site(DeviceRules(clients=()))
    site.connect("bridge")
    for place in range(4):
        site.publish("bridge", f"homie/{place}/$state", b"ready")
    assert len(site.told) == 2 * 2
    site.run(60)
    assert {tell.device for _, tell in site.told} == {"0", "1", "2", "3"}


def test_who_has_to_go_is_taken_back_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "DEVICES_MAX", 2)
    devices = Devices(DeviceRules(clients=()))
    devices.handle(EntityConnected("bridge", 0, "x"), NOW)
    for place in range(2):
        devices.handle(Published("bridge", f"homie/{place}/$state", b"ready"), NOW)
    effects = devices.handle(Published("bridge", "homie/2/$state", b"ready"), NOW)
    assert effects[:2] == [Count("devices_evicted"), Removed("0")]
    assert (devices.device("0"), len(devices)) == (None, 2)


def test_what_was_named_by_who_had_to_go_is_watched_no_more() -> None:
    site = Site(DeviceRules(clients=()))
    site.connect("bridge")
    site.home_assistant("bridge", "lamp", "lamp/lwt")
    site.publish("bridge", "lamp/lwt", b"online")
    site.publish("bridge", "homie/lamp/$state", b"")
    assert site.removed == ["lamp"]
    site.publish("bridge", "lamp/lwt", b"online")
    assert len(site.devices) == 0


def test_deadlines_that_are_stale_do_not_pile_up() -> None:
    site = Site()
    site.connect("plug")
    for _ in range(400):
        site.publish("plug", "homie/plug/$state", b"alert")
        site.publish("plug", "homie/plug/$state", b"ready")
        site.lose("plug")
        site.run(1.5)
        site.connect("plug", settled=False)
        site.run(1.5)
    assert len(site.devices._heap) <= 4 + 64


def test_remembered_twice_is_remembered_once() -> None:
    site = Site()
    site.connect("plug")
    site.remember("plug")
    site.run(REJOIN_S + 5)
    assert site.kinds("plug") == [JOIN]
    assert Site(DeviceRules(sparkplug_host="gate")).devices.sparkplug_host == "gate"


ROAMING = DeviceRules(clients=(), heartbeats=(Heartbeat("home/+/BT/{device}", every_s=10),))


def test_a_sensor_that_is_carried_from_one_bridge_to_another_lives() -> None:
    site = Site(ROAMING)
    for bridge in ("cellar", "attic"):
        site.connect(bridge, origin=bridge)
    for bridge in ("cellar", "attic", "attic", "attic", "attic"):
        site.publish(bridge, f"home/{bridge}/BT/tag")
        site.run(9)
    assert site.kinds("tag") == [JOIN]
    assert site.counted == {}
    site.handle(Published("cellar", "home/cellar/LWT", b"offline", True))
    site.lose("cellar")
    site.run(1)
    assert site.kinds("tag") == [JOIN], "the other one hears it"
    site.publish("attic", "home/attic/BT/tag")
    site.run(31)
    assert site.kinds("tag") == [JOIN, SUSPECTED, FAILED], "nobody hears it"


def test_who_hears_a_sensor_says_nothing_else_about_it() -> None:
    """A second bridge may hear a device and not end it, while the first one is there."""
    site = Site(ROAMING)
    for bridge in ("cellar", "evil"):
        site.connect(bridge, origin=bridge)
        site.publish(bridge, f"home/{bridge}/BT/tag")
    site.publish("evil", "homie/tag/$state", b"lost")
    assert site.counted == {"devices_refused": 1}
    site.handle(Published("evil", "home/evil/LWT", b"offline", True))
    site.lose("evil")
    site.run(5)
    assert site.kinds("tag") == [JOIN]


def described(device: str, topic: str) -> bytes:
    body = {"unique_id": "x", "device": {"identifiers": [device]}, "availability_topic": topic, "state_topic": "s"}
    return json.dumps(body).encode()


def test_a_document_that_names_another_device_is_taken_from_the_one_before() -> None:
    """Firmware that changes its identifier writes the same document: the name before is no dead device for ever."""
    site = Site(DeviceRules(clients=()))
    site.connect("bridge")
    config = "homeassistant/sensor/x/config"
    for device in ("old", "new"):
        site.publish("bridge", config, described(device, f"{device}/there"))
        site.publish("bridge", f"{device}/there", b"online")
        site.run(3)
        site.publish("bridge", f"{device}/there", b"offline" if device == "old" else b"online")
        site.run(3)
    assert site.removed == ["old"]
    assert site.kinds("new")[-1] is READY
    site.publish("bridge", config, b"")
    assert site.removed == ["old", "new"]


def test_nobody_takes_a_document_from_the_device_of_another_connection() -> None:
    site = Site(DeviceRules(clients=()))
    for client, device in (("bridge", "pump"), ("thief", "other")):
        site.connect(client)
        site.publish(client, "homeassistant/sensor/x/config", described(device, f"{device}/there"))
        site.publish(client, f"{device}/there", b"online")
        site.run(3)
    assert site.removed == []
    site.publish("bridge", "pump/there", b"offline")
    site.run(3)
    assert site.kinds("pump")[-1] is FAILED
