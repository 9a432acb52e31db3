"""An entity with several witnesses, on simulated links: what trackers believe while f of 2f + 1 do as they like."""

from __future__ import annotations

import pytest

from bridge.traces.kinds import OWN, Interest, TraceKind, key_topic, trace_topic, uuid_of
from bridge.traces.presets import LAN
from bridge.traces.tracer import Say
from bridge.tracking.discovery import Heard
from bridge.tracking.entity import Stage, Told, Wishes
from bridge.tracking.tracker import ANSWERS_MAX, UNOPENED_MAX
from bridge.tracking.witnessing import Level
from keys.delegation import Trace
from keys.frames import Kind, opening
from keys.identity import Identity
from keys.sealedbox import seal_box
from keys.tracesession import Registration
from tests.bridge.tracebus import NOW, identity
from tests.bridge.traces.detection import detection_s
from tests.bridge.tracking.test_witnessing import PLACEMENTS
from tests.bridge.witnessbus import WitnessBus

pytestmark = pytest.mark.invariant(47)

K = TraceKind
OF_FIVE = {(0, 1), (1, 3), (2, 4), (1, 4)}
"""In the clear and secured, pinged steadily and not: one placement for each of the four."""
BAD_NEWS = {K.FAILURE_SUSPICION, K.FAILED, K.DISCONNECT}


def changes(bus: WitnessBus, tracker: str = "desk") -> list[TraceKind]:
    """What was told of the entity's health, heartbeats apart."""
    return [
        seen.kind for _, seen in bus.observed[tracker]
        if seen.kind in BAD_NEWS or seen.kind is K.JOIN or "after" in seen.fields
    ]  # fmt: skip


def test_from_birth_to_death_and_back_everything_is_told_once() -> None:
    bus = WitnessBus(3)
    bus.tracker()
    bus.run(2)
    assert bus.entity.stages == (Stage.TRACED,) * 3
    assert len({next(iter(tracer._traced.values())).voice.topic for tracer in bus.tracers}) == 1
    bus.run(30)
    bus.entity_does(bus.entity.set_state(K.READY, bus.now))
    bus.entity_does(bus.entity.report_load({"cpu": 0.25}, bus.now))
    bus.run(5)
    kinds = bus.kinds()
    assert (kinds.count(K.READY), kinds.count(K.LOAD_INFORMATION)) == (1, 1)
    assert 25 <= kinds.count(K.ALLS_WELL) <= 50
    assert K.NETWORK_METRICS in kinds
    died = bus.now
    bus.die()
    bus.run(20)
    (failed,) = [at for at, seen in bus.observed["desk"] if seen.kind is K.FAILED]
    assert failed - died <= detection_s(LAN, 0.04) + 0.1
    bus.be_born()
    bus.run(5)
    assert changes(bus)[-3:] in ([K.FAILURE_SUSPICION, K.FAILED, K.JOIN], [K.FAILURE_SUSPICION, K.FAILED, K.ALLS_WELL])
    assert not bus.counted.get("traces_refused")


@pytest.mark.parametrize(
    ("n", "bad"),
    [
        pytest.param(n, bad, marks=() if n == 3 or bad in OF_FIVE else pytest.mark.slow, id=f"{n}-{bad}")
        for n, bad in PLACEMENTS
    ],
)
def test_wherever_f_witnesses_lie_the_living_live_and_the_dead_are_dead(n: int, bad: tuple[int, ...]) -> None:
    secured, steady = sum(bad) % 2 == 0, bad[0] % 2 == 0
    bus = WitnessBus(n, bad, seed=sum(bad), wishes=Wishes(("desk*",), secured=secured), steady=steady)
    bus.tracker("desk")
    bus.tracker("desk2", Interest.CHANGES)
    bus.run(12)
    bus.entity_does(bus.entity.set_state(K.READY, bus.now))
    bus.entity_does(bus.entity.report_load({"cpu": 0.25}, bus.now))
    bus.run(8)
    for tracker in bus.trackers:
        assert not BAD_NEWS & set(bus.kinds(tracker)), "it lives"
    own = [(seen.kind, dict(seen.fields)) for _, seen in bus.observed["desk"] if seen.kind in OWN]
    assert own == [(K.READY, {"state": "READY"}), (K.LOAD_INFORMATION, {"cpu": 0.25})]
    heartbeats = [at for at, seen in bus.observed["desk"] if seen.kind is K.ALLS_WELL and at > NOW + 10]
    assert 8 <= len(heartbeats) <= 20
    bus.die()
    bus.run(12)
    for tracker in bus.trackers:
        *before, last = changes(bus, tracker)
        assert last is K.FAILED
        assert set(before) <= {K.FAILURE_SUSPICION, K.DISCONNECT, K.JOIN}, "what liars tip while the honest differ"
        # Honest ones bring a suspicion, and f who claim a lost connection a DISCONNECT before FAILED. Each has its own
        # phase of pings, so that between the first and the last honest suspicion the median is the liars' to choose:
        # whoever takes it back there adds two words, and no liar gets to do so twice before all are agreed.
        tipped_back = sum(kind is K.JOIN for kind in before)
        assert tipped_back <= len(bad)
        assert len(before) <= 2 + 2 * tipped_back
    count = len(bus.observed["desk"])
    bus.run(10)
    assert bus.kinds()[count:] == [], "nothing revives it"
    assert bus.counted["traces_refused"] > 50


def test_a_majority_of_liars_is_believed() -> None:
    bus = WitnessBus(3, (0, 1), steady=True)
    bus.tracker()
    bus.run(20)
    assert K.FAILED in bus.kinds(), "what keeps f of them from it is their number"


@pytest.mark.parametrize("gone", range(3))
def test_a_witness_that_dies_is_no_failure_and_the_others_see_one(gone: int) -> None:
    bus = WitnessBus(3)
    desk = bus.tracker()
    bus.run(10)
    bus.dead.add(gone)
    bus.run(120)
    assert not BAD_NEWS & set(bus.kinds())
    assert [each.witness for each in desk.opinions("pump", bus.now) if not each.counts] == [gone]
    bus.die(told=True)
    bus.run(20)
    assert changes(bus)[-2:] == [K.DISCONNECT, K.FAILED]


def test_a_witness_that_is_cut_off_from_the_entity_dissents_and_shows() -> None:
    bus = WitnessBus(3)
    desk = bus.tracker()
    bus.run(10)
    bus.cut.add(1)
    bus.run(30)
    assert not BAD_NEWS & set(bus.kinds())
    opinions = desk.opinions("pump", bus.now)
    assert [(each.level, each.dissents) for each in opinions] == [
        (Level.ALIVE, False), (Level.FAILED, True), (Level.ALIVE, False)
    ]  # fmt: skip


def test_a_late_tracker_learns_the_state_and_the_trace_topic_when_its_maker_is_gone() -> None:
    bus = WitnessBus(3)
    bus.run(5)
    bus.entity_does(bus.entity.set_state(K.READY, bus.now))
    bus.run(5)
    bus.dead.add(0)
    bus.tracker()
    bus.run(5)
    assert bus.kinds().count(K.READY) == 1
    assert K.ALLS_WELL in bus.kinds()


@pytest.mark.parametrize("liar", range(3))
def test_a_discovery_node_that_names_a_topic_where_nobody_speaks_hides_the_entity_from_nobody(liar: int) -> None:
    bus = WitnessBus(3, delay_s=(0.001, 0.001))
    bus.run(5)
    assert bus.kept is not None
    certificate = bus.kept.certificate
    for _ in range(3):
        bus.now += 1
        made = bus.nodes[liar].make(certificate, "pump", ("desk*",), 3600, int(bus.now * 1000))
        for node in bus.nodes:
            node.handle(Heard(made.encode()), bus.now)
    forged = Registration(made.encode(), bytes(16), int(bus.now * 1000)).signed(identity(f"node {liar}"))
    bus.nodes[liar]._claims["pump"] = made, forged.request, forged.time_ms, forged.signature
    bus.tracker()
    bus.run(5)
    assert bus.counted["traces_refused"] >= 1, "what the entity did not sign"
    assert K.ALLS_WELL in bus.kinds()
    assert len({topic.split("/")[5] for topic in bus.filters["desk"] if "Answers" not in topic}) == 1, "others are left"
    bus.die()
    bus.run(15)
    assert K.FAILED in bus.kinds()


def test_a_former_witness_does_not_hold_a_tracker_on_a_topic_that_was_renounced() -> None:
    bus = WitnessBus(3)
    bus.run(5)
    assert bus.kept is not None
    former = bus.kept
    tokens = [next(iter(tracer._traced.values())).voice for tracer in bus.tracers]
    bus.entity_does(bus.entity.renounce(bus.now))
    bus.run(5)
    assert bus.kept.topic != former.topic
    bus.nodes[2]._newest["pump"] = former.topic
    del bus.nodes[2]._claims["pump"]
    bus.tracker()
    for _ in range(400):
        for said in tokens[2].tell_trace(K.FAILED, {}, bus.now):
            if isinstance(said, Say):
                bus.publish(2, said.topic, said.payload)
        bus.run(0.005)  # faster than any of the others
    bus.run(3)
    assert K.ALLS_WELL in bus.kinds()
    assert not BAD_NEWS & set(bus.kinds())
    assert not any(uuid_of(former.topic) in topic for topic in bus.filters["desk"])


def test_what_it_said_is_not_passed_on_as_something_else() -> None:
    bus = WitnessBus(3)
    bus.run(2)
    bus.entity_does(bus.entity.set_state(K.READY, bus.now))
    bus.run(1)
    voice = next(iter(bus.tracers[2]._traced.values())).voice
    voice._hold({Interest.STATES: (K.SHUTDOWN, voice.present_states[Interest.STATES][1])})
    bus.dead |= {0, 1}
    bus.tracker()
    bus.run(3)
    assert bus.counted["traces_refused"] == 1
    assert bus.kinds() == []


def test_a_restarted_entitys_former_witnesses_are_not_heard_under_their_former_tokens() -> None:
    bus = WitnessBus(3)
    bus.tracker()
    bus.run(10)
    bus.die()
    bus.run(0.5)
    bus.be_born()
    bus.run(5)
    before = [payload for topic, payload in bus.told if topic.endswith("ChangeNotifications")]
    refused = bus.counted.get("traces_refused", 0)
    for topic, payload in list(bus.told):
        if payload in before:
            bus.publish(0, topic, payload)
    bus.run(1)
    assert bus.counted["traces_refused"] >= refused + len(before)
    assert not BAD_NEWS & set(bus.kinds())


def test_a_witness_that_asks_all_the_time_is_not_always_answered() -> None:
    bus = WitnessBus(3, bad=(2,))
    bus.tracker()
    answers = 0

    def count(witness: int, client: str, say: object) -> None:
        nonlocal answers
        answers += client == "desk" and witness == 0
        original(witness, client, say)  # type: ignore[arg-type]

    original = bus._from
    bus._from = count  # type: ignore[method-assign]
    bus.run(120)
    assert bus.counted["gauges_unanswered"] > 10
    assert answers <= 5 * ANSWERS_MAX + 20


def test_a_key_that_opens_nothing_is_tried_once_on_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lies fills its own queue, and sends keys: each costs a look at the queue, not at all keys for each."""
    bus = WitnessBus(3, wishes=Wishes(("desk*",), secured=True))
    desk = bus.tracker()
    bus.run(5)
    assert bus.kept is not None
    topic, voice = bus.kept.topic, next(iter(bus.tracers[0]._traced.values())).voice
    assert voice.right is not None
    token, secret = voice.right
    holder = Identity.from_private_bytes(secret)
    for place in range(UNOPENED_MAX):
        bare = Trace(token, K.FAILED, (1 << 20) + place, int(bus.now * 1000), b"{}")
        lie = bare.sealed_under(b"k" * 32, bytes(12)).signed(holder).encode()
        desk.handle(Told(trace_topic(topic, Interest.CHANGES), lie), bus.now)
    tried, plain = [0], Trace.opened_body

    def opened(self: Trace, key: bytes) -> bytes:
        tried[0] += 1
        return plain(self, key)

    monkeypatch.setattr(Trace, "opened_body", opened)
    head = opening(Kind.TRACE_KEY) + topic
    for place in range(20):
        box = seal_box(identity("desk").agreement_bytes, bytes([place]) * 32, head, bytes([place]) * 32)
        desk.handle(Told(key_topic("desk", topic), head + box), bus.now)
    assert tried[0] <= 20 * UNOPENED_MAX
