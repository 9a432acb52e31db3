"""The gateway's traces of unchanged devices, heard by the same tracker as everybody else's; dashboards; restarts."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from bridge.contract.budgets import Budget
from bridge.contract.machine import Count, Tick
from bridge.devices import device_tracing
from bridge.devices.conventions import Conventions
from bridge.devices.dashboards import GATEWAY_STATE, Dashboards, Show, entity_id
from bridge.devices.device_tracing import (
    RESTORED_PER_S,
    TOKEN_LIFE_S,
    TOPIC_LEFT_S,
    TOPIC_LIFE_S,
    DeviceTracer,
    ForgetDevice,
    Owner,
)
from bridge.devices.devices import Devices
from bridge.devices.events import DeviceEvent, Knows, Published
from bridge.devices.rules import DeviceRules
from bridge.devices.sparkplug import state
from bridge.document.own_topics import OwnTopics
from bridge.traces.availability import EntityConnected, EntityGone
from bridge.traces.kinds import (
    DISCOVERY_TOPIC,
    GAUGE_IDLE_S,
    INTEREST_LIVES_S,
    Interest,
    TraceKind,
    answer_topic,
    gauge_topic,
    uuid_of,
)
from bridge.traces.tracer import Interested, Say
from bridge.tracking.discovery import Asked, DiscoveryNode, Heard, ShareAdvertisement, owns
from bridge.tracking.entity import BrokerConnected, Listen, Told
from bridge.tracking.tracker import Follow, Leave, Observed, Tracker
from keys.delegation import Advertisement, Delegated, Token, Trace
from keys.errors import KeysError
from tests.bridge.tracebus import NODES, NOW, OTHER_NODE, identity
from tests.keys.test_delegation import AUTHORITY, NODE, certified

SITE = identity("site")
JOIN, READY, FAILED, DISCONNECT = TraceKind.JOIN, TraceKind.READY, TraceKind.FAILED, TraceKind.DISCONNECT


@dataclass
class Gateway:
    """One gateway, its discovery node, and trackers; publications arrive at once."""

    discoverers: tuple[str, ...] = ("desk*",)
    kinds: tuple[str, ...] = ()
    now: float = NOW
    seed: int = 1
    advertisements: dict[bytes, Advertisement] = field(default_factory=dict)  # on disk
    retained: dict[str, bytes] = field(default_factory=dict)
    observed: dict[str, list[Observed]] = field(default_factory=dict)
    said: list[tuple[float, Say]] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.node = DiscoveryNode("node-1", NODE, NODES, AUTHORITY.public_bytes, rng.randbytes)
        self.node.restore(self.advertisements.values())
        owner = Owner(SITE, certified(SITE, "site"), self.discoverers)
        self.devices = Devices(DeviceRules())
        self.tracer = DeviceTracer(
            self.devices, owner, self.node, AUTHORITY.public_bytes, rng.randbytes, Dashboards(self.kinds)
        )
        self.trackers: dict[str, Tracker] = {}
        self.filters: dict[str, set[str]] = {}
        self.perform(self.tracer.restore(self.now))

    def restarted(self, **other: object) -> Gateway:
        kept = {"advertisements": self.advertisements, "retained": self.retained, "kinds": self.kinds}
        return Gateway(**{**kept, "now": self.now + 1, "seed": self.seed + 1, **other})  # type: ignore[arg-type]

    def tracker(self, name: str, *entities: str) -> list[Observed]:
        key = identity(name)
        made = Tracker(key, certified(key, name), NODES, AUTHORITY.public_bytes, random.Random(name).randbytes)
        self.trackers[name], self.filters[name], self.observed[name] = made, set(), []
        self.track(name, made.handle(BrokerConnected(), self.now))
        for entity in entities:
            self.track(name, made.handle(Follow(entity), self.now))
        return self.observed[name]

    def track(self, name: str, effects: Iterable[object]) -> None:
        for effect in effects:
            match effect:
                case Listen(topic):
                    self.filters[name].add(topic)
                case Leave(topic):
                    self.filters[name].discard(topic)
                case Observed():
                    self.observed[name].append(effect)
                case Say(topic, payload) if topic == DISCOVERY_TOPIC:
                    self.perform(self.node.handle(Asked(name, payload), self.now))
                case Say(topic, payload):
                    for known in list(self.advertisements):
                        if topic == answer_topic(known):
                            self.perform(self.tracer.handle(Interested(name, known, payload), self.now))

    def handle(self, event: DeviceEvent | Interested) -> None:
        self.perform(self.tracer.handle(event, self.now))

    def perform(self, effects: Iterable[object]) -> None:
        for effect in list(effects):
            match effect:
                case Say(topic, payload):
                    self.said.append((self.now, effect))
                    for name, listening in self.filters.items():
                        if topic in listening:
                            self.track(name, self.trackers[name].handle(Told(topic, payload), self.now))
                case ShareAdvertisement(advertisement):
                    self.advertisements[advertisement.topic] = advertisement
                case ForgetDevice(topic):
                    self.advertisements.pop(topic, None)
                case Show(topic, payload):
                    self.retained.pop(topic, None)
                    if payload:
                        self.retained[topic] = payload
                case Count(name, amount, _):
                    self.counted[name] = self.counted.get(name, 0) + amount

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            due = [(self.tracer.next_deadline, "")]
            due += [(tracker.next_deadline, name) for name, tracker in self.trackers.items()]
            at, who = min(((at, who) for at, who in due if at is not None), default=(until + 1, ""))
            if at > until:
                break
            self.now = max(self.now, at)
            if who:
                self.track(who, self.trackers[who].handle(Tick(), self.now))
            else:
                self.handle(Tick())
        self.now = until

    def connect(self, client: str, origin: str = "local") -> None:
        self.handle(EntityConnected(client, 0, origin))
        self.run(4)

    def publish(self, client: str, topic: str, payload: bytes = b"1") -> None:
        self.handle(Published(client, topic, payload))

    def lose(self, client: str, clean: bool = False) -> None:
        self.handle(EntityGone(client, clean, ""))


def kinds(observed: list[Observed]) -> list[TraceKind]:
    often = (TraceKind.ALLS_WELL, TraceKind.NETWORK_METRICS)
    return [seen.kind for seen in observed if seen.kind not in often or "after" in seen.fields]


def test_a_tracker_sees_a_device_like_everybody_else() -> None:
    gate = Gateway()
    seen = gate.tracker("desk", "site:plug")
    gate.connect("plug")
    gate.run(20)  # the tracker asks again for what was not there
    assert kinds(seen) == [JOIN]
    assert {each.entity for each in seen} == {"site:plug"}
    for _ in range(8):
        gate.publish("plug", "homie/plug/$state", b"ready")
        gate.run(10)
    assert kinds(seen) == [JOIN, READY]
    assert TraceKind.ALLS_WELL in {each.kind for each in seen}
    assert TraceKind.NETWORK_METRICS in {each.kind for each in seen}
    gate.lose("plug")
    gate.run(30)
    assert kinds(seen) == [JOIN, READY, DISCONNECT, FAILED]
    gate.connect("plug")
    assert kinds(seen)[-1] is TraceKind.ALLS_WELL


def test_who_comes_later_hears_how_it_stands_and_since_when() -> None:
    gate = Gateway()
    gate.connect("plug")
    gate.publish("plug", "homie/plug/$state", b"ready")
    gate.lose("plug", clean=True)
    left_ms = int(gate.now * 1000)
    gate.run(600)
    seen = gate.tracker("desk", "site:plug")
    gate.run(1)
    assert DISCONNECT in kinds(seen)
    (left,) = [each for each in seen if each.kind is DISCONNECT]
    assert left.fields["since_ms"] - left_ms < 2_000


def test_who_may_not_discover_hears_nothing() -> None:
    gate = Gateway(discoverers=("desk",))
    gate.connect("plug")
    stranger = gate.tracker("stranger", "site:plug")
    gate.run(300)
    gate.lose("plug")
    gate.run(60)
    assert stranger == []
    assert gate.counted["discoveries_refused"] >= 1


def test_heartbeats_are_told_only_while_somebody_is_interested() -> None:
    gate = Gateway()
    gate.connect("plug")
    seen = gate.tracker("desk", "site:plug")
    for _ in range(12):
        gate.publish("plug", "t")
        gate.run(10)
    assert [each.kind for each in seen].count(TraceKind.ALLS_WELL) >= 10
    del gate.filters["desk"], gate.trackers["desk"]  # it is gone without a word
    gate.run(INTEREST_LIVES_S)
    before = gate.counted["traces"]
    for _ in range(60):
        gate.publish("plug", "t")
        gate.run(10)
    assert gate.counted["traces"] - before <= 600 / GAUGE_IDLE_S + 4, "questions only, and ever fewer of them"


def test_tokens_and_topics_end_in_time_and_trackers_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gateway()
    gate.connect("plug")
    seen = gate.tracker("desk", "site:plug")
    for _ in range(6):
        gate.run(TOKEN_LIFE_S * 0.9)
        gate.publish("plug", "t")
    assert [each.kind for each in seen].count(TraceKind.ALLS_WELL) >= 6
    monkeypatch.setattr(device_tracing, "TOPIC_LIFE_S", 600)
    gate = Gateway(seed=2)
    gate.connect("plug")
    seen = gate.tracker("desk", "site:plug")
    gate.run(1_500)
    assert (gate.counted["trace_topics"], len(gate.advertisements)) == (3, 1)
    gate.lose("plug")
    gate.run(60)
    assert kinds(seen)[-1] is FAILED


def test_a_restart_goes_on_with_the_same_topics_and_misses_who_does_not_come_back() -> None:
    gate = Gateway(kinds=("homeassistant",))
    for client in ("back", "lost"):
        gate.connect(client)
    again = gate.restarted()
    assert set(again.advertisements) == set(gate.advertisements)
    back, lost = again.tracker("desk", "site:back"), again.tracker("desk2", "site:lost")
    again.connect("back")
    again.run(120)
    assert kinds(back) == [JOIN]
    assert kinds(lost) == [FAILED]
    state = again.retained[f"homeassistant/binary_sensor/{entity_id('site:lost')}/state"]
    assert json.loads(state)["state"] == "offline"
    assert set(again.advertisements) == set(gate.advertisements)


def test_other_restrictions_make_other_topics() -> None:
    gate = Gateway(discoverers=("desk",))
    gate.connect("plug")
    again = gate.restarted(discoverers=("wall",))
    assert again.advertisements == {}
    again.connect("plug")
    (advertisement,) = again.advertisements.values()
    assert advertisement.discoverers == ("wall",)


def test_who_turns_out_to_know_veilmq_is_taken_back() -> None:
    gate = Gateway(kinds=("homeassistant", "homie"))
    gate.connect("late")
    seen = gate.tracker("desk", "site:late")
    assert gate.retained
    gate.handle(Knows("late"))
    assert kinds(seen)[-1] is TraceKind.REVERTING_TO_SILENT_MODE
    assert gate.retained.keys() <= {GATEWAY_STATE}
    assert (gate.advertisements, len(gate.tracer)) == ({}, 0)
    assert gate.restarted().devices.device("late") is None


def test_new_topics_are_made_at_a_bounded_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tracing, "TOPICS_BURST", 10.0)
    monkeypatch.setattr(device_tracing, "TOPICS_PER_S", 2.0)
    gate = Gateway()
    for place in range(40):
        gate.handle(EntityConnected(f"d{place}", 0, "local"))
    gate.run(3)
    assert 10 <= len(gate.tracer) <= 13
    gate.run(30)
    assert len(gate.tracer) == 40
    seen = gate.tracker("desk", "site:d39")
    gate.run(1)
    assert kinds(seen) == [JOIN], "who waited is told of all the same"


# ------------------------------------------------------------------------------------------------- attacks


@pytest.mark.attack(155)
def test_many_new_devices_are_signed_a_few_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: one state on a topic that a thousand devices share: all trace topics were signed in one turn."""
    monkeypatch.setattr(device_tracing, "TOPICS_BURST", 1.0)
    monkeypatch.setattr(device_tracing, "TOPICS_PER_S", 0.001)
    gate = Gateway()
    for place in range(40):
        gate.handle(EntityConnected(f"d{place}", 0, "local"))
    gate.run(3)  # after which they count as there, and wait
    known, since = len(gate.tracer), gate.now
    gate.tracer._budget = Budget(20.0, 2_000.0, since)
    made = [sum(isinstance(each, ShareAdvertisement) for each in gate.tracer.handle(Tick(), gate.now))]
    while (due := gate.tracer.next_deadline) is not None and sum(made) < 40 - known:
        gate.now = max(due, gate.now)
        made.append(sum(isinstance(each, ShareAdvertisement) for each in gate.tracer.handle(Tick(), gate.now)))
    assert sum(made) == 40 - known
    assert max(made) == device_tracing.TOPICS_AT_ONCE < 40 - known
    assert gate.now - since < 1, "they do not wait for the pace of new topics"


def test_a_flood_of_names_does_not_keep_another_origin_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tracing, "TOPICS_BURST", 10.0)
    monkeypatch.setattr(device_tracing, "TOPICS_PER_S", 2.0)
    gate = Gateway()
    gate.connect("evil", "10.6.6.6")
    for place in range(1_000):
        gate.publish("evil", f"homie/x{place}/$state", b"ready")
    gate.connect("honest", "10.0.0.1")
    seen = gate.tracker("desk", "site:honest")
    gate.run(7)
    assert kinds(seen) == [JOIN]
    assert len(gate.tracer) < 50


@pytest.mark.parametrize(
    ("owner", "entity", "is_owned"),
    [("site", "site", True), ("site", "site:plug", True), ("site", "site:a:b", True), ("site", "siteplug", False),
     ("site", "other:plug", False), ("site", "plug", False), ("site.a", "site:a", False), ("site", "site.a:b", False)],
)  # fmt: skip
def test_who_owns_what(owner: str, entity: str, is_owned: bool) -> None:
    assert owns(owner, entity) is is_owned


def test_nobody_advertises_devices_of_another_owner() -> None:
    evil = identity("evil")
    rng = random.Random(3)
    node = DiscoveryNode("node-1", NODE, NODES, AUTHORITY.public_bytes, rng.randbytes)
    lying = DiscoveryNode("node-2", OTHER_NODE, NODES, AUTHORITY.public_bytes, rng.randbytes)
    forged = lying.make(certified(evil, "evil"), "site:plug", ("*",), 600, int(NOW * 1000))
    assert node.handle(Heard(forged.encode()), NOW) == [Count("discoveries_refused", 1, "NotAuthorised")]
    gate = Gateway()
    key = identity("desk")
    tracker = Tracker(key, certified(key, "desk"), NODES, AUTHORITY.public_bytes, rng.randbytes)
    tracker.handle(BrokerConnected(), NOW)
    (asked,) = tracker.handle(Follow("site:plug"), NOW)
    assert isinstance(asked, Say)
    answers = lying.handle(Asked("desk", asked.payload), NOW)  # a node that lies answers with what it made
    (answer,) = [each for each in answers if isinstance(each, Say)]
    told = tracker.handle(Told(answer.topic, answer.payload), NOW)
    assert told == [Count("traces_refused", 1, "NotAuthorised")]
    assert gate.advertisements == {}


def test_a_client_cannot_speak_on_a_devices_topic() -> None:
    """It knows the trace topic, and has no token of the owner's."""
    gate = Gateway()
    gate.connect("plug")
    seen = gate.tracker("desk", "site:plug")
    (topic,) = gate.advertisements
    evil = identity("evil")
    now_ms = int(gate.now * 1000)
    token = Token(topic, evil.public_bytes, Delegated.PUBLISH, now_ms, now_ms + 1_000).signed(evil)
    forged = Trace(token, TraceKind.FAILED, 1, now_ms, b"{}").signed(evil)
    before = list(seen)
    gate.track("desk", gate.trackers["desk"].handle(Told(gauge_topic(topic), forged.encode()), gate.now))
    assert seen == before
    with pytest.raises(KeysError):
        forged.verify(gate.advertisements[topic], now_ms)


def test_interest_that_is_none_is_counted() -> None:
    gate = Gateway()
    gate.connect("plug")
    (topic,) = gate.advertisements
    gate.handle(Interested("evil", topic, b"nonsense"))
    gate.handle(Interested("evil", b"?" * 16, b"nonsense"))
    assert gate.counted["traces_refused"] == 1


# ---------------------------------------------------------------------------------------------- dashboards


def test_dashboards_show_and_are_cleared() -> None:
    gate = Gateway(kinds=("homeassistant", "homie"))
    gate.connect("Küche/1")
    name = entity_id("site:K%C3%BCche%2F1")
    config = json.loads(gate.retained[f"homeassistant/binary_sensor/{name}/config"])
    assert config["device_class"] == "connectivity"
    assert json.loads(gate.retained[config["state_topic"]])["state"] == config["payload_on"] == "online"
    assert gate.retained[f"homie/5/{name}/$state"] == b"ready"
    assert json.loads(gate.retained[f"homie/5/{name}/$description"])["homie"] == "5.0"
    gate.lose("Küche/1")
    assert json.loads(gate.retained[config["state_topic"]])["state"] == "offline"
    assert gate.retained[f"homie/5/{name}/$state"] == b"disconnected"
    gate.run(20)
    assert gate.retained[f"homie/5/{name}/$state"] == b"lost"
    gate.run(TOPIC_LIFE_S + 60)
    assert gate.retained.keys() <= {GATEWAY_STATE}


def test_dashboards_that_the_configuration_wants_no_more_are_cleared() -> None:
    gate = Gateway(kinds=("homeassistant", "homie"))
    gate.connect("plug")
    again = gate.restarted(kinds=("homie",))
    assert {topic.split("/")[0] for topic in again.retained} == {"homie"}


def test_dashboards_of_what_is_taken_up_no_more_do_not_stay_online() -> None:
    gate = Gateway(discoverers=("desk",), kinds=("homeassistant", "homie"))
    for device in ("plug", "pump"):
        gate.connect(device)
    again = gate.restarted(discoverers=("wall",))
    assert again.retained.keys() <= {GATEWAY_STATE}
    again.connect("plug")
    again.run(120)
    assert {topic.split("/")[0] for topic in again.retained} == {"homeassistant", "homie"}
    once_more = again.restarted(discoverers=("wall",))
    assert once_more.retained == again.retained


def test_what_is_shown_is_never_read_back_not_even_through_a_bridge() -> None:
    gate = Gateway(kinds=("homeassistant", "homie"))
    gate.connect("plug")
    gate.connect("mosquitto-bridge")
    shown = dict(gate.retained)
    for topic, payload in shown.items():
        assert Conventions().read_publication(topic, payload) == ()
        gate.publish("mosquitto-bridge", topic, payload)
        gate.publish("mosquitto-bridge", topic, b"lost")
    gate.run(5)
    assert gate.retained == shown
    assert len(gate.devices) == 2


def test_names_stay_apart_and_fit_both_conventions() -> None:
    names = ["site:a", "site:A", "site:a-", "site-a", "site:" + "x" * 200, "site:" + "x" * 201, "site:%"]
    ids = [entity_id(name) for name in names]
    assert len(set(ids)) == len(ids)
    assert all(len(each) < 80 and set(each) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for each in ids)


def test_interest_of_all_kinds_reaches_its_topic() -> None:
    gate = Gateway()
    gate.connect("plug")
    key = identity("desk")
    tracker = Tracker(key, certified(key, "desk"), NODES, AUTHORITY.public_bytes, random.Random(1).randbytes)
    gate.trackers["desk"], gate.filters["desk"], gate.observed["desk"] = tracker, set(), []
    gate.track("desk", tracker.handle(BrokerConnected(), gate.now))
    gate.track("desk", tracker.handle(Follow("site:plug", Interest.CHANGES), gate.now))
    gate.publish("plug", "homie/plug/$state", b"alert")
    gate.run(5)
    assert kinds(gate.observed["desk"]) == [JOIN], "states go to those who want states"


# ------------------------------------------------------------------------------------------- pace, tokens, restarts


def asked_at(gate: Gateway) -> list[float]:
    """When trackers were asked who is interested."""
    gauges = {gauge_topic(topic) for topic in gate.advertisements}
    return [at for at, say in gate.said if say.topic in gauges]


def test_who_is_interested_is_asked_less_and_less_often_where_nobody_answers() -> None:
    gate = Gateway()
    gate.connect("plug")
    gate.run(1_000)
    times = asked_at(gate)
    assert [round(b - a, 3) for a, b in itertools.pairwise(times)] == [30, 60, 120, 240, 240, 240]
    gate.tracker("desk", "site:plug")
    came_at = gate.now
    gate.run(100)
    later = [at for at in asked_at(gate) if at > came_at]
    assert later[0] - came_at == pytest.approx(30, abs=0.1)
    assert [round(b - a, 3) for a, b in itertools.pairwise(later)] == [30, 30]


def test_no_trace_is_told_under_a_token_that_is_half_over() -> None:
    gate = Gateway()
    gate.connect("plug")
    gate.tracker("desk", "site:plug")
    gate.said.clear()
    for _ in range(150):
        gate.publish("plug", "t")
        gate.run(10)
    (topic,) = gate.advertisements
    traces = [Trace.decode(say.payload) for _, say in gate.said if uuid_of(topic) in say.topic]
    tokens = dict.fromkeys(trace.token for trace in traces)
    assert len({token.public_key for token in tokens}) == 1
    assert {token.not_after_ms - token.not_before_ms for token in tokens} == {int(TOKEN_LIFE_S * 1000)}
    assert all(0 <= trace.time_ms - trace.token.not_before_ms < TOKEN_LIFE_S * 500 for trace in traces)
    assert 5 <= len(tokens) <= 7
    assert {token.rights for token in tokens} == {Delegated.PUBLISH}


def test_a_topic_is_replaced_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tracing, "TOPIC_LIFE_S", 600)
    gate = Gateway()
    gate.connect("plug")
    (first,) = gate.advertisements.values()
    ends_at = first.not_after_ms / 1000 - TOPIC_LEFT_S
    gate.run(ends_at - gate.now - 0.5)
    assert list(gate.advertisements) == [first.topic]
    gate.run(1)
    (second,) = gate.advertisements.values()
    assert second.topic != first.topic
    assert abs(second.created_ms - ends_at * 1000) <= 1_000
    assert (second.descriptor, second.discoverers) == (first.descriptor, first.discoverers)


def test_topics_that_ended_while_we_were_away_are_not_taken_up() -> None:
    gate = Gateway(kinds=("homeassistant",))
    gate.connect("plug")
    (topic,) = gate.advertisements.values()
    there = gate.restarted(now=topic.not_after_ms / 1000 - 1)
    assert list(there.advertisements) == [topic.topic]
    gone = gate.restarted(now=topic.not_after_ms / 1000)
    assert (gone.advertisements, len(gone.tracer)) == ({}, 0)
    assert gone.retained.keys() <= {GATEWAY_STATE}


def test_after_a_restart_trackers_are_asked_in_turn() -> None:
    gate = Gateway()
    for place in range(3):
        gate.connect(f"d{place}")
    again = gate.restarted()
    began = again.now
    again.run(1)
    assert [round((at - began) * RESTORED_PER_S) for at in asked_at(again)] == [0, 1, 2]


def test_a_dashboard_says_since_when_and_why_and_says_it_again_in_time() -> None:
    gate = Gateway(kinds=("homeassistant",))
    gate.connect("plug")
    topic = f"homeassistant/binary_sensor/{entity_id('site:plug')}/state"
    gate.lose("plug")
    lost_ms = int(gate.now * 1000)
    expected = {
        "state": "offline",
        "health": "gone",
        "since": lost_ms,
        "reason": "connection lost",
        "entity": "site:plug",
    }
    assert json.loads(gate.retained[topic]) == expected
    gate.run(20)
    shown = json.loads(gate.retained[topic])
    assert (shown["health"], shown["since"] > lost_ms) == ("failed", True)
    gate.retained.clear()
    gate.run(GAUGE_IDLE_S)
    assert json.loads(gate.retained[topic]) == shown, "what is not said anew expires"


def tracer_of(rules: DeviceRules) -> DeviceTracer:
    rng = random.Random(1)
    node = DiscoveryNode("node-1", NODE, NODES, AUTHORITY.public_bytes, rng.randbytes)
    owner = Owner(SITE, certified(SITE, "site"))
    return DeviceTracer(Devices(rules), owner, node, AUTHORITY.public_bytes, rng.randbytes)


def test_a_host_of_sparkplugs_says_that_it_is_there_and_that_it_goes_and_nobody_else_does() -> None:
    host, listener = tracer_of(DeviceRules(sparkplug_host="gate")), tracer_of(DeviceRules())
    assert host.restore(NOW)[0] == Show(*state("gate", True, int(NOW * 1000)))
    assert host.ending(NOW) == [Show(*state("gate", False, int(NOW * 1000)))]
    assert (listener.restore(NOW), listener.ending(NOW)) == ([Show(GATEWAY_STATE, b"")], [])
    ours, none = OwnTopics(), OwnTopics()
    host.reserve_topics(ours)
    listener.reserve_topics(none)
    for topic in ("spBv1.0/STATE/gate", "$sparkplug/certificates/spBv1.0/plant/NBIRTH/edge"):
        assert topic in ours
        assert topic not in none
    assert "spBv1.0/STATE/other" not in ours


def test_before_anything_happens_nothing_is_due() -> None:
    tracer = tracer_of(DeviceRules())
    assert (tracer.next_deadline, len(tracer), tracer.handle(Tick(), NOW)) == (None, 0, [])


def test_neither_keys_nor_topics_show() -> None:
    assert "private" not in repr(Owner(SITE, certified(SITE, "site")))
    assert repr(SITE) not in repr(Owner(SITE, certified(SITE, "site")))
    assert "secret" not in repr(ForgetDevice(b"secret"))


def test_what_a_tracker_says_wrongly_is_counted_by_what_is_wrong_with_it() -> None:
    gate = Gateway()
    gate.connect("plug")
    (topic,) = gate.advertisements
    effects = gate.tracer.handle(Interested("evil", topic, b"nonsense"), gate.now)
    assert Count("traces_refused", 1, "BadFrame") in effects
    assert gate.tracer.handle(Interested("evil", bytes(16), b"nonsense"), gate.now) == []


def test_a_device_that_goes_takes_its_topic_and_is_forgotten_where_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tracing, "TOPICS_BURST", 1.0)
    monkeypatch.setattr(device_tracing, "TOPICS_PER_S", 0.001)
    gate = Gateway()
    for name in ("first", "second", "waits"):
        gate.connect(name)
    assert len(gate.tracer) == 2
    gate.handle(Knows("waits"))
    gate.run(5_000)
    told_of = {each.descriptor for each in gate.advertisements.values()}
    assert told_of == {"Availability/Traces/site:first", "Availability/Traces/site:second"}
    for name in ("first", "second"):
        gate.handle(Knows(name))
    assert (len(gate.tracer), gate.advertisements) == (0, {})
