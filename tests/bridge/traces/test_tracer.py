"""The tracing broker: registration, pings, states, tokens, interest, sealed traces; and who tries to cheat it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import cast

import pytest

from bridge.base import Wall
from bridge.contract.machine import Count, Tick
from bridge.document import constrained
from bridge.traces import tracer as tracing
from bridge.traces.events import AskThere, Registered, Relayed
from bridge.traces.kinds import (
    EVERYTHING,
    GAUGE_EVERY_S,
    INTEREST_LIVES_S,
    Interest,
    TraceKind,
    WantedTraces,
    answers_to,
    fields_of,
    gauge_topic,
    key_topic,
    to_entity,
    trace_topic,
)
from bridge.traces.offenders import BUDGETS, Complain, Offenders
from bridge.traces.pings import LOST
from bridge.traces.presets import LAN
from bridge.traces.rejoining import REJOIN_S
from bridge.traces.remembered import RememberedEntity
from bridge.traces.self_health import SICK
from bridge.traces.tracer import (
    BOGUS_MAX,
    METRICS_EVERY_S,
    SPEAKS_S,
    ClientGone,
    Interested,
    Registering,
    Say,
    SendAway,
    Spoke,
    Tracer,
    TracingEffect,
    TracingEvent,
    open_trace_key,
)
from keys.delegation import Advertisement, Delegated, Seat, Token, Trace
from keys.errors import BadFrame
from keys.frames import number, sized
from keys.identity import Identity
from keys.tracesession import Registration, TraceSession, Word, open_registered
from tests.bridge.traces.detection import detection_s
from tests.keys.test_delegation import AUTHORITY, HOLDER, HOUR_MS, NODE, PUMP, SPY, certified

NOW = 1_800_000_000.0
NOW_MS = int(NOW * 1000)
DESK = Identity.generate(b"desk" * 8)


def advertised(name: str = "pump-7", owner: Identity = PUMP, topic: bytes = b"T" * 16) -> Advertisement:
    return Advertisement(
        topic, f"Availability/Traces/{name}", certified(owner, name), ("desk*",), NOW_MS, NOW_MS + 5 * HOUR_MS, "node-1"
    ).signed(NODE)


def check_books(tracer: Tracer) -> None:
    """What is kept of each entity in several places says the same everywhere, and each is looked at in time."""
    traced = tracer._traced
    if len(traced) > 20:
        return  # this is looked at behind each event
    assert tracer._overdue == sum(each.pulse is not None and each.pulse.is_overdue for each in traced.values())
    assert tracer._sessions == {each.voice.topic: session for session, each in traced.items()}
    assert tracer._spoken == {each.speaks_at: session for session, each in traced.items()}
    assert all(tracer._placed[each.place] == session for session, each in traced.items())
    clients = {each.client for each in traced.values()}
    assert len(tracer._clients) == len(clients)
    assert {s: client for client in clients for s in tracer._clients.things_of(client)} == {
        session: each.client for session, each in traced.items()
    }
    assert len(tracer._places) == len(traced)
    assert len(tracer._placed) == tracer._sweep._used
    assert tracer._rejoining.missing == sum(each.is_missing for each in traced.values())
    for each in traced.values():
        assert tracer._sweep._due[each.place] <= each.wants_attention_at


class Entity:
    """An entity that knows VeilMQ, and the broker that traces it; time goes on as the test says."""

    def __init__(self, tracer: Tracer | None = None, name: str = "pump-7", topic: bytes = b"T" * 16) -> None:
        rng = random.Random(name)
        ours = Tracer(LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, rng.randbytes)
        self.tracer = ours if tracer is None else tracer
        self.advertisement = advertised(name, PUMP, topic)
        self.client = name
        self.answers = True
        self.said: list[tuple[float, Say]] = []
        self.counted: dict[str, int] = {}
        self.now = NOW
        self.tracker_key, self.wishes = DESK, 0
        self.session = TraceSession(bytes(16), bytes(32), 0)

    def register(self) -> None:
        request = Registration(self.advertisement.encode(), b"r" * 16, int(self.now * 1000)).signed(PUMP)
        effects = self.tracer.handle(Registering(self.client, request.encode()), self.now)
        check_books(self.tracer)
        (answer,) = [e for e in effects if isinstance(e, Say) and e.topic == answers_to(self.name)]
        repeated, session, key = open_registered(answer.payload, PUMP)
        assert repeated == b"r" * 16
        self.session = TraceSession(session, key, 0)
        self._take(effects)

    @property
    def name(self) -> str:
        return self.advertisement.certificate.name

    def say(self, word: Word, body: bytes = b"", signer: Identity | None = None) -> list[TracingEffect]:
        return self.handle(Spoke(self.client, self.session.session, self.session.say_word(word, body, signer)))

    def authorise(
        self, life_ms: int = HOUR_MS, holder: Identity = HOLDER, seat: Seat | None = None
    ) -> list[TracingEffect]:
        now_ms = int(self.now * 1000)
        token = Token(self.advertisement.topic, holder.public_bytes, Delegated.PUBLISH, now_ms, now_ms + life_ms, seat)
        return self.say(Word.TOKEN, sized(token.signed(PUMP).encode()) + holder.private_bytes())

    def want(
        self, interest: Interest = EVERYTHING, credentials: bytes | None = None, anew: bool = False
    ) -> list[TracingEffect]:
        credentials = certified(DESK, "desk").encode() if credentials is None else credentials
        self.wishes += 1  # each is another one
        wanted = WantedTraces("desk", interest, credentials, anew, int(self.now * 1000) + self.wishes)
        wanted = wanted.signed(self.tracker_key, self.advertisement.topic)
        return self.handle(Interested("client of desk", self.advertisement.topic, wanted.encode()))

    def handle(self, event: TracingEvent) -> list[TracingEffect]:
        effects = self.tracer.handle(event, self.now)
        check_books(self.tracer)
        self._take(effects)
        return effects

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.tracer.next_deadline) is not None and due <= until:
            self.now = max(self.now, due)
            self.handle(Tick())
        self.now = until

    def _take(self, effects: list[TracingEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Count):
                self.counted[effect.name] = self.counted.get(effect.name, 0) + effect.amount
            if not isinstance(effect, Say):
                continue
            self.said.append((self.now, effect))
            if "/SubscribeOnly/" in effect.topic and f"/{self.name}/" in effect.topic and "Answers" not in effect.topic:
                word, body = self.session.hear(effect.payload)
                assert word is Word.PING
                if self.answers:
                    self.now += 0.005
                    self.say(Word.ANSWER, body)

    def traces(self, kind: TraceKind | None = None) -> list[Trace]:
        found = [Trace.decode(say.payload) for _, say in self.said if "/PublishOnly/" in say.topic]
        for trace in found:
            trace.verify(self.advertisement, trace.time_ms)
        return [trace for trace in found if kind in (None, trace.kind)]


@pytest.fixture
def pump() -> Entity:
    entity = Entity()
    entity.register()
    entity.authorise()
    return entity


def test_an_entity_registers_joins_and_is_alive(pump: Entity) -> None:
    pump.want(Interest.ALL_UPDATES)
    pump.run(20)
    assert next(trace.kind for trace in pump.traces()) == TraceKind.JOIN
    assert 19 <= len(pump.traces(TraceKind.ALLS_WELL)) <= 25
    assert not pump.traces(TraceKind.FAILURE_SUSPICION)
    assert len({trace.number for trace in pump.traces()}) == len(pump.traces())
    fields = fields_of(pump.traces(TraceKind.ALLS_WELL)[-1].body)
    assert 0 <= fields["latency_ms"] <= 10


def test_every_topic_that_it_uses_is_canonical(pump: Entity) -> None:
    pump.want()
    pump.run(40)
    for _, say in pump.said:
        assert constrained.canonical(say.topic) == say.topic


def test_silence_is_suspected_then_failed_then_an_answer_says_that_all_is_well_again(pump: Entity) -> None:
    pump.run(30)
    pump.answers = False
    died = pump.now
    pump.run(20)
    (suspected,) = pump.traces(TraceKind.FAILURE_SUSPICION)
    (failed,) = pump.traces(TraceKind.FAILED)
    assert suspected.time_ms < failed.time_ms <= (died + detection_s(LAN, 0.005)) * 1000 + 5
    pump.answers = True
    pump.run(70)
    (again,) = pump.traces(TraceKind.ALLS_WELL)
    assert fields_of(again.body) == {"after": "failed"}
    assert pump.said[-1][1].topic != trace_topic(pump.advertisement.topic, Interest.ALL_UPDATES)


def test_only_what_somebody_wants_is_told(pump: Entity) -> None:
    pump.say(Word.STATE, bytes([TraceKind.READY]))
    pump.say(Word.LOAD, b'{"cpu":0.5}')
    pump.run(15)
    assert {trace.kind for trace in pump.traces()} == {TraceKind.JOIN, TraceKind.GAUGE_INTEREST}
    pump.want(Interest.STATES | Interest.LOAD)
    pump.say(Word.STATE, bytes([TraceKind.RECOVERING]), PUMP)
    pump.say(Word.LOAD, b'{"cpu":0.7}')
    (state,), (load,) = pump.traces(TraceKind.RECOVERING), pump.traces(TraceKind.LOAD_INFORMATION)
    assert fields_of(state.body) == {"state": "RECOVERING"}
    assert fields_of(load.body) == {"cpu": 0.7}
    assert not pump.traces(TraceKind.ALLS_WELL)
    pump.run(INTEREST_LIVES_S)
    pump.say(Word.LOAD, b"{}")
    assert len(pump.traces(TraceKind.LOAD_INFORMATION)) == 1


@pytest.mark.parametrize(
    "load",
    [
        b'{"cpu":"\\ud800"}',  # half a character, which nobody can write
        b'{"\\udfff":1}',
        b'{"cpu":"\xed\xa0\x80"}',
        b'{"cpu":NaN}',
        b'{"cpu":-Infinity}',
        b'{"cpu":1e999}',
        *(b'{"cpu":' + b"[" * deep + b"]" * deep + b"}" for deep in (300, 900, 5_000)),
    ],
)
def test_what_cannot_be_passed_on_is_refused_and_breaks_nothing(pump: Entity, load: bytes) -> None:
    pump.register()
    pump.authorise()
    pump.want(Interest.LOAD | Interest.STATES)
    pump.say(Word.LOAD, load)
    pump.say(Word.STATE, bytes([TraceKind.READY]) + load)
    assert pump.traces(TraceKind.LOAD_INFORMATION) == []
    assert pump.traces(TraceKind.READY) == []
    assert pump.counted["traces_refused"] == 2


def test_a_state_that_grows_beyond_a_trace_is_its_entitys_fault_and_no_trackers(pump: Entity) -> None:
    pump.register()
    pump.authorise()
    pump.say(Word.STATE, bytes([TraceKind.READY]) + b'{"x":[' + b"1e9," * 4_000 + b"1]}")
    assert pump.counted["traces_refused"] == 1
    pump.want(Interest.STATES, anew=True)
    assert pump.counted["traces_refused"] == 1


def test_trackers_are_asked_every_half_minute_and_ever_more_rarely_while_nobody_answers(pump: Entity) -> None:
    def asked_after(begins: float) -> list[float]:
        topic = gauge_topic(pump.advertisement.topic)
        return [pytest.approx(at - begins, abs=1) for at, say in pump.said if say.topic == topic and at > begins]

    pump.run(1_000)
    assert asked_after(NOW + 1) == [29, 89, 209, 449, 689, 929]
    pump.want(Interest.CHANGES)
    begins = pump.now
    pump.run(3 * GAUGE_EVERY_S + 1)
    assert asked_after(begins) == [30, 60, 90]


def test_network_metrics_come_for_those_who_want_them(pump: Entity) -> None:
    pump.want(Interest.NETWORK)
    pump.run(25)
    metrics = pump.traces(TraceKind.NETWORK_METRICS)
    assert 2 <= len(metrics) <= 3
    assert fields_of(metrics[-1].body)["loss_rate"] == 0


def test_without_a_token_nothing_is_told_and_with_an_expired_one_no_longer() -> None:
    entity = Entity()
    entity.register()
    entity.want()
    entity.run(SPEAKS_S + 3)
    assert not entity.traces()
    assert entity.counted["traces_unauthorised"]
    entity.authorise(life_ms=5_000)
    entity.run(20)
    told = entity.traces(TraceKind.ALLS_WELL)
    assert told
    assert told[-1].time_ms <= NOW_MS + 8_000 + 5_000 + 20
    entity.authorise()
    entity.run(3)
    assert len(entity.traces(TraceKind.ALLS_WELL)) > len(told)
    assert len(entity.traces(TraceKind.JOIN)) == 1


def test_disconnecting_is_told_at_once(pump: Entity) -> None:
    pump.handle(ClientGone(pump.client, clean=False))
    (gone,) = pump.traces(TraceKind.DISCONNECT)
    assert fields_of(gone.body) == {"clean": False}
    pump.handle(ClientGone("somebody else", clean=True))
    assert len(pump.traces(TraceKind.DISCONNECT)) == 1


def test_an_entity_may_go_silent_and_is_forgotten(pump: Entity) -> None:
    pump.say(Word.SILENT)
    assert pump.traces(TraceKind.REVERTING_TO_SILENT_MODE)
    assert len(pump.tracer) == 0
    assert pump.tracer.next_deadline is None
    pump.say(Word.ANSWER, bytes(16))
    assert pump.counted["traces_refused"] == 1


def test_registering_again_ends_the_former_session(pump: Entity) -> None:
    former = pump.session
    pump.register()
    assert len(pump.tracer) == 1
    effects = pump.handle(Spoke(pump.client, former.session, former.say_word(Word.STATE, bytes([TraceKind.READY]))))
    assert [e.label for e in effects if isinstance(e, Count)] == ["NotAuthorised"]


def test_it_may_come_back_on_another_connection(pump: Entity) -> None:
    pump.client = "another"
    pump.say(Word.STATE, bytes([TraceKind.READY]))
    pump.handle(ClientGone("client of pump-7", clean=True))
    assert not pump.traces(TraceKind.DISCONNECT)
    pump.handle(ClientGone("another", clean=True))
    assert pump.traces(TraceKind.DISCONNECT)


# ---------------------------------------------------------------------------------------------- sealed traces


def test_sealed_traces_open_for_trackers_that_may_discover_the_topic(pump: Entity) -> None:
    pump.say(Word.TRACE_KEY, b"K" * 32)
    desk = certified(DESK, "desk").encode()
    effects = pump.want(credentials=desk)
    (given,) = [e for e in effects if isinstance(e, Say) and e.topic == key_topic("desk", pump.advertisement.topic)]
    key = open_trace_key(given.payload, pump.advertisement.topic, DESK)
    pump.run(3)
    trace = pump.traces(TraceKind.ALLS_WELL)[-1]
    assert trace.sealed
    assert b"latency" not in trace.encode()
    assert "latency_ms" in fields_of(trace.opened_body(key))
    assert not [e for e in pump.want(credentials=desk) if isinstance(e, Say) and "Keys" in e.topic], "given once"


def test_a_tracker_that_forgot_the_key_gets_it_again(pump: Entity) -> None:
    mine = certified(DESK, "desk").encode()
    pump.say(Word.TRACE_KEY, b"K" * 32)
    for anew, given in ((True, 1), (False, 1), (True, 2), (False, 2)):
        pump.want(credentials=mine, anew=anew)
        assert pump.counted["trace_keys_given"] == given


def test_who_comes_late_is_told_the_last_state_once(pump: Entity) -> None:
    pump.say(Word.STATE, bytes([TraceKind.INITIALIZING]))
    pump.say(Word.STATE, bytes([TraceKind.READY]))
    assert not pump.traces(TraceKind.READY)
    pump.want(Interest.LOAD, anew=True)
    assert not pump.traces(TraceKind.READY)
    pump.want(anew=True)
    pump.want()
    assert len(pump.traces(TraceKind.READY)) == 1
    assert not pump.traces(TraceKind.INITIALIZING)


def test_a_new_trace_key_is_given_to_everybody_anew(pump: Entity) -> None:
    desk = certified(DESK, "desk").encode()
    pump.say(Word.TRACE_KEY, b"K" * 32)
    pump.want(credentials=desk)
    pump.say(Word.TRACE_KEY, b"L" * 32)
    (given,) = [e for e in pump.want(credentials=desk) if isinstance(e, Say) and "Keys" in e.topic]
    assert open_trace_key(given.payload, pump.advertisement.topic, DESK) == b"L" * 32


@pytest.mark.parametrize(
    "credentials",
    [b"", certified(SPY, "spy").encode(), certified(SPY, "desk-2").encode()],
    ids=["none", "not allowed", "another name"],
)
def test_the_trace_key_is_not_for_everybody(pump: Entity, credentials: bytes) -> None:
    pump.say(Word.TRACE_KEY, b"K" * 32)
    effects = pump.want(credentials=credentials)
    assert not [e for e in effects if isinstance(e, Say)]
    assert pump.counted["traces_refused"] == 1


# --------------------------------------------------------------------------------------------------- attacks


def forged(change: Callable[[Registration, Advertisement], bytes]) -> list[TracingEffect]:
    entity = Entity()
    good = Registration(entity.advertisement.encode(), b"r" * 16, NOW_MS).signed(PUMP)
    return entity.handle(Registering("spy", change(good, entity.advertisement)))


FORGERIES: dict[str, Callable[[Registration, Advertisement], bytes]] = {
    "by somebody else": lambda good, own: replace(good, signature=b"").signed(SPY).encode(),
    "replayed": lambda good, own: replace(good, time_ms=NOW_MS - 120_000).signed(PUMP).encode(),
    "of an unknown node": lambda good, own: replace(
        good, advertisement=replace(own, node="node-2").signed(NODE).encode()
    ).signed(PUMP).encode(),
    "of a node's impostor": lambda good, own: replace(
        good, advertisement=replace(own, signature=b"").signed(SPY).encode()
    ).signed(PUMP).encode(),
    "garbage": lambda good, own: b"\x00\x01\x02",
    "empty": lambda good, own: b"",
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_registrations_register_nobody(forgery: str) -> None:
    effects = forged(FORGERIES[forgery])
    assert [e.name for e in effects if isinstance(e, Count)] == ["traces_refused"]
    assert not [e for e in effects if isinstance(e, Say)], "no answer says more than none"


def test_a_stolen_token_is_of_no_use_without_its_key(pump: Entity) -> None:
    stolen = pump.traces(TraceKind.JOIN)[0].token
    body = sized(stolen.encode()) + SPY.private_bytes()
    assert [e.label for e in pump.say(Word.TOKEN, body) if isinstance(e, Count)] == ["NotAuthorised"]


def test_whoever_keeps_sending_what_does_not_hold_is_sent_away(pump: Entity) -> None:
    effects = [pump.handle(Spoke("spy", pump.session.session, b"nonsense")) for _ in range(BOGUS_MAX)]
    assert next(e for e in effects[-1] if isinstance(e, SendAway)).client == "spy"
    assert not [e for each in effects[:-1] for e in each if isinstance(e, SendAway)]
    pump.run(5)
    assert not pump.traces(TraceKind.FAILURE_SUSPICION), "the entity does not pay for it"


def test_forged_answers_keep_no_dead_entity_alive(pump: Entity) -> None:
    pump.run(30)
    pump.answers = False
    for place in range(40):
        forgery = TraceSession(pump.session.session, b"x" * 32, 0).say_word(Word.ANSWER, number(place, 8) + bytes(8))
        pump.handle(Spoke(f"spy {place}", pump.session.session, forgery))
        pump.run(0.5)
    assert pump.traces(TraceKind.FAILED)


def test_registrations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "ENTITIES_MAX", 3)
    first = Entity()
    first.register()
    for place in range(1, 3):
        Entity(first.tracer, f"e{place}", bytes([place]) * 16).register()
    late = Entity(first.tracer, "late", b"L" * 16)
    request = Registration(late.advertisement.encode(), b"r" * 16, NOW_MS).signed(PUMP)
    effects = late.handle(Registering("late", request.encode()))
    assert [e.label for e in effects if isinstance(e, Count)] == ["TooOften"]
    first.register()
    assert len(first.tracer) == 3


def test_an_entity_that_takes_all_places_loses_them_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "ENTITIES_MAX", 8)
    modest = Entity()
    modest.register()
    greedy = [Entity(modest.tracer, "greedy", bytes([place + 1]) * 16) for place in range(20)]
    for entity in greedy:
        entity.register()
    assert len(modest.tracer) == 8
    others = [Entity(modest.tracer, f"other-{place}", bytes([place + 100]) * 16) for place in range(6)]
    for entity in others:
        entity.register()
    assert len(modest.tracer) == 8
    for entity in (modest, *others, greedy[-1]):
        entity.authorise()
        assert entity.counted.get("traces_refused", 0) == 0
    assert sum(entity.counted.get("entities_evicted", 0) for entity in (*greedy, *others)) == 13 + 6
    assert greedy[-2].authorise()[0] == Count("traces_refused", 1, "NotAuthorised")
    late = Entity(modest.tracer, "late", b"L" * 16)
    request = Registration(late.advertisement.encode(), b"r" * 16, NOW_MS).signed(PUMP)
    effects = late.handle(Registering("late", request.encode()))
    assert [e.label for e in effects if isinstance(e, Count)] == ["TooOften"], "everybody has one"


@pytest.mark.long
def test_a_thousand_entities_are_each_pinged_at_their_time() -> None:
    first = Entity()
    entities = [Entity(first.tracer, f"e{place}", place.to_bytes(16)) for place in range(1_000)]
    for entity in entities:
        entity.register()
    sent: dict[str, int] = {}
    now = NOW
    while now < NOW + SPEAKS_S + 3:
        due = first.tracer.next_deadline
        assert due is not None
        now = max(now, due)
        for effect in first.tracer.handle(Tick(), now):
            if not isinstance(effect, Say):
                continue
            parsed = constrained.parse(effect.topic)
            assert parsed is not None
            sent[parsed.constrainer] = sent.get(parsed.constrainer, 0) + 1
    assert len(sent) == 1_000


def test_who_registers_again_costs_no_signature_that_was_verified(
    pump: Entity, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    monkeypatch.setattr(Advertisement, "verify", lambda *arguments: verified.append("advertisement"))
    monkeypatch.setattr(Token, "verify", lambda *arguments: verified.append("token"))
    token = Token(pump.advertisement.topic, HOLDER.public_bytes, Delegated.PUBLISH, NOW_MS, NOW_MS + HOUR_MS)
    handed = sized(token.signed(PUMP).encode()) + HOLDER.private_bytes()
    pump.say(Word.TOKEN, handed)
    assert verified == ["token"]
    pump.register()
    pump.say(Word.TOKEN, handed)
    assert verified == ["token"], "neither is new"
    pump.run(1)
    pump.register()
    pump.say(Word.TOKEN, handed)
    assert verified == ["token"], "nor for the third time"
    assert pump.traces(TraceKind.JOIN)


def test_who_registers_again_with_an_advertisement_that_was_altered_is_taken_at_its_nodes_word(pump: Entity) -> None:
    """What it has stays as it is unless the node signed the new one, and that is the entity's."""
    before, topic = pump.tracer._sessions.copy(), pump.advertisement.topic
    for altered in (
        replace(pump.advertisement, discoverers=("*",)),
        replace(pump.advertisement, not_after_ms=NOW_MS + 9 * HOUR_MS).signed(SPY),
        replace(pump.advertisement, node="node-9").signed(NODE),
        advertised(owner=SPY, topic=topic),
    ):
        assert registering_with(pump, altered)["traces_refused"] == 1
        assert pump.tracer._sessions == before
    longer = replace(pump.advertisement, not_after_ms=NOW_MS + 9 * HOUR_MS).signed(NODE)
    assert registering_with(pump, longer) == {"entities_registered": 1}
    assert pump.tracer._sessions != before
    (traced,) = pump.tracer._traced.values()
    assert traced.advertisement == longer


def registering_with(pump: Entity, advertisement: Advertisement) -> dict[str, int]:
    request = Registration(advertisement.encode(), b"r" * 16, int(pump.now * 1000)).signed(PUMP)
    effects = pump.tracer.handle(Registering(pump.client, request.encode()), pump.now)
    check_books(pump.tracer)
    return {each.name: each.amount for each in effects if isinstance(each, Count)}


def test_what_the_node_beside_us_verified_costs_one_signature_to_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entity's own, of now. An advertisement that differs in a bit from that is verified."""
    known = advertised()
    tracer = Tracer(
        LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, random.Random(1).randbytes,
        verified={known.topic: known}.get,
    )  # fmt: skip
    pump = Entity(tracer)
    verified: list[bytes] = []
    verify = Advertisement.verify
    monkeypatch.setattr(Advertisement, "verify", lambda ours, *of: (verified.append(ours.topic), verify(ours, *of))[1])
    pump.register()
    assert (verified, len(tracer)) == ([], 1)
    pump.run(1)
    forged = replace(known, discoverers=("*",))
    request = Registration(forged.encode(), b"f" * 16, int(pump.now * 1000)).signed(PUMP)
    pump.handle(Registering(pump.client, request.encode()))
    assert (verified, pump.counted["traces_refused"]) == ([known.topic], 1)
    stolen = Registration(known.encode(), b"s" * 16, int(pump.now * 1000)).signed(SPY)
    pump.handle(Registering(pump.client, stolen.encode()))
    assert pump.counted["traces_refused"] == 2, "who registers signs, whatever is known of the topic"
    pump.now = known.not_after_ms / 1000 + 1
    late = Entity(Tracer(LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, bytes, verified=lambda _: known))
    late.now = pump.now
    request = Registration(known.encode(), b"r" * 16, int(late.now * 1000)).signed(PUMP)
    late.handle(Registering("late", request.encode()))
    assert late.counted == {"traces_refused": 1}, "and its time counts"


@pytest.mark.parametrize("what", ["advertisement", "token", "key", "late"])
def test_what_differs_by_a_bit_from_what_was_verified_is_verified(pump: Entity, what: str) -> None:
    """Who saw a registration and a token go by, or held them once, gains nothing by their likeness."""
    token = Token(pump.advertisement.topic, HOLDER.public_bytes, Delegated.PUBLISH, NOW_MS, NOW_MS + 1_000)
    signed = token.signed(PUMP)
    pump.say(Word.TOKEN, sized(signed.encode()) + HOLDER.private_bytes())
    refused = pump.counted.get("traces_refused", 0)
    if what == "advertisement":
        known = pump.advertisement
        pump.advertisement = replace(known, discoverers=("*",))
        request = Registration(pump.advertisement.encode(), b"r" * 16, NOW_MS).signed(PUMP)
        pump.handle(Registering(pump.client, request.encode()))
        assert len(pump.tracer) == 1
    else:
        pump.register()
        if what == "token":
            signed = replace(signed, not_after_ms=signed.not_after_ms + HOUR_MS)
        pump.now += 20 * (what == "late")
        said = pump.session.say_word(
            Word.TOKEN, sized(signed.encode()) + (SPY if what == "key" else HOLDER).private_bytes()
        )
        effects = pump.tracer.handle(Spoke(pump.client, pump.session.session, said), pump.now)
        pump.counted["traces_refused"] = refused + sum(
            each.amount for each in effects if isinstance(each, Count) and each.name == "traces_refused"
        )
    assert pump.counted["traces_refused"] == refused + 1


# ------------------------------------------------------------------------------------- figures and exact edges


def news(effects: list[TracingEffect], topic: bytes = b"T" * 16) -> list[tuple[TraceKind, dict[str, object]]]:
    """What is told of changes, in clear."""
    at = trace_topic(topic, Interest.CHANGES)
    found = [Trace.decode(each.payload) for each in effects if isinstance(each, Say) and each.topic == at]
    return [(TraceKind(trace.kind), fields_of(trace.body)) for trace in found]


def counts(effects: list[TracingEffect]) -> list[Count]:
    return [each for each in effects if isinstance(each, Count)]


def registering(now: float = NOW, known: Advertisement | None = None) -> Registering:
    known = known or advertised()
    request = Registration(known.encode(), b"r" * 16, int(now * 1000)).signed(PUMP)
    return Registering(known.certificate.name, request.encode())


def test_a_tracer_has_the_wall_clock_and_the_offenders_that_it_was_given() -> None:
    offenders = Offenders()
    nodes, draw = {"node-1": NODE.public_bytes}, random.Random(1).randbytes
    tracer = Tracer(LAN, nodes, AUTHORITY.public_bytes, draw, None, Wall(NOW), offenders)
    event = registering()
    said, registered, count = tracer.handle(event, 0.0)
    assert isinstance(said, Say)
    assert count == Count("entities_registered")
    assert registered == Registered(Registration.decode(event.data), advertised(), "pump-7")
    (refused, *_) = tracer.handle(Registering("liar", b""), 0.0)
    assert refused == Count("traces_refused", 1, "BadFrame")
    assert not [e for e in offenders.charge("liar", "x", BadFrame("x")) if isinstance(e, Complain)], "charged before"


def test_what_is_drawn_for_a_session_and_who_came_together_is_pinged_apart() -> None:
    drawn: list[int] = []

    def draw(size: int) -> bytes:
        drawn.append(size)
        return bytes([64]) * size

    entity = Entity(Tracer(LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, draw))
    entity.register()
    assert drawn == [16, 32, 1, 32]
    assert entity.tracer.next_deadline == NOW + SPEAKS_S, "it may not listen yet"
    entity.authorise()
    entity.run(3)
    at = [at for at, say in entity.said if say.qos == 0]
    assert at[0] == NOW
    assert at[1] - at[0] == pytest.approx(0.5 + 64 / 256, abs=0.01)
    assert at[2] - at[1] == pytest.approx(0.5, abs=0.01)


def test_who_registers_again_once_its_topic_ended_is_refused(pump: Entity) -> None:
    late = pump.advertisement.not_after_ms / 1000
    assert counts(pump.tracer.handle(registering(late, pump.advertisement), late))[-1] == Count("entities_registered")
    effects = pump.tracer.handle(registering(late + 0.001, pump.advertisement), late + 0.001)
    assert counts(effects) == [Count("traces_refused", 1, "Expired")]


def test_what_it_said_before_holds_in_a_new_session_until_it_says_otherwise(pump: Entity) -> None:
    pump.say(Word.STATE, bytes([TraceKind.READY]))
    pump.run(2)
    pump.register()
    pump.authorise()
    pump.want(Interest.STATES, anew=True)
    (told,) = pump.traces(TraceKind.READY)
    assert fields_of(told.body) == {"state": "READY", "since_ms": NOW_MS}


def test_a_place_that_is_full_refuses_with_its_own_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "ENTITIES_MAX", 1)
    first = Entity()
    first.register()
    effects = first.tracer.handle(registering(NOW, advertised("other", topic=b"O" * 16)), NOW)
    assert effects == [Count("traces_refused", 1, "TooOften")]


def test_all_entities_of_a_connection_that_ended_are_told_in_a_fixed_order_and_asked_at_once() -> None:
    first = Entity()
    others = [Entity(first.tracer, f"e{place}", bytes([place]) * 16) for place in range(1, 12)]
    for entity in (first, *others):
        entity.register()
        entity.client = "gateway"
        entity.authorise()
        entity.answers = False
    effects = first.tracer.handle(ClientGone("gateway", clean=True), NOW + 1)
    check_books(first.tracer)
    told = [Trace.decode(each.payload) for each in effects if isinstance(each, Say)]
    assert [trace.kind for trace in told] == [TraceKind.DISCONNECT] * 12
    assert [trace.token.topic for trace in told] == [
        first.tracer._traced[session].voice.topic for session in sorted(first.tracer._traced)
    ]
    assert first.tracer.next_deadline == NOW


def test_a_connection_that_ends_is_asked_about_at_once(pump: Entity) -> None:
    pump.run(20.25)
    pump.answers = False
    pump.handle(ClientGone(pump.client, clean=True))
    assert pump.tracer.next_deadline == pump.now


def test_a_broker_that_does_badly_says_so_and_says_again_what_holds_once_it_is_well(pump: Entity) -> None:
    health = pump.tracer.self_health
    for score, sick in (
        (0.0, {}),
        (0.04, {}),
        (0.05, {"sick": 0.05}),
        (0.249, {"sick": 0.25}),
        (0.257, {"sick": 0.26}),
    ):
        health.score = score
        ((kind, fields),) = news(pump.handle(ClientGone(pump.client, clean=False)))
        assert (kind, fields) == (TraceKind.DISCONNECT, {"clean": False, **sick})
    pump.want(Interest.CHANGES, anew=True)
    held = fields_of(pump.traces(TraceKind.DISCONNECT)[-1].body)
    assert held == {"clean": False, "sick": 0.26, "since_ms": NOW_MS}, "and so to whoever comes later"
    pump.run(0)
    assert health.score == 0.0
    (again,) = pump.traces(TraceKind.DISCONNECT)[6:]
    assert fields_of(again.body) == {"clean": False}
    assert pump.tracer._doubted == set()


@pytest.mark.parametrize(("score", "times"), [(0.249, 0), (0.25, 1)])
def test_what_was_said_while_it_was_sick_is_said_again_and_nothing_else(pump: Entity, score: float, times: int) -> None:
    pump.tracer.self_health.score = score
    pump.handle(ClientGone(pump.client, clean=False))
    pump.run(0)
    assert len(pump.traces(TraceKind.DISCONNECT)) == 1 + times
    pump.run(5)
    assert len(pump.traces(TraceKind.DISCONNECT)) == 1 + times


def test_at_the_edge_of_sickness_nothing_is_said_again(pump: Entity) -> None:
    pump.tracer.self_health.score = SICK
    pump.handle(ClientGone(pump.client, clean=False))
    pump.tracer.self_health._late = SICK
    pump.tracer.handle(Tick(), pump.now)
    assert pump.tracer.self_health.score == SICK
    assert pump.tracer._doubted == {pump.advertisement.topic}


def test_while_it_is_sick_nothing_is_said_again(pump: Entity) -> None:
    pump.tracer.self_health.score = pump.tracer.self_health._late = 0.5
    assert len(news(pump.handle(ClientGone(pump.client, clean=False)))) == 1
    assert news(pump.tracer.handle(Tick(), pump.now)) == []


def test_what_was_said_of_who_is_traced_no_more_is_not_said_again(pump: Entity) -> None:
    pump.tracer.self_health.score = 0.5
    pump.handle(ClientGone(pump.client, clean=False))
    pump.say(Word.SILENT)
    other = Entity(pump.tracer, "other", b"O" * 16)
    other.register()
    assert news(other.tracer.handle(Tick(), NOW + 9)) == []


def test_turns_that_come_late_make_it_sick_and_those_in_time_do_not(pump: Entity) -> None:
    pump.run(10)
    assert pump.tracer.self_health.score == 0.0
    for _ in range(5):
        due = pump.tracer.next_deadline
        assert due is not None
        pump.now = due + 2
        pump.handle(Tick())
    assert pump.tracer.self_health.score > SICK


def test_many_that_owe_an_answer_together_make_it_sick() -> None:
    first = Entity()
    entities = [first, *(Entity(first.tracer, f"e{place}", bytes([place]) * 16) for place in range(1, 9))]
    for entity in entities:
        entity.register()
        entity.authorise()
        entity.answers = False
    first.run(3)
    assert first.tracer.self_health.score >= 0.5


# ------------------------------------------------------------------------------------------------ what it says


def test_a_word_of_its_own_is_as_good_as_an_answer(pump: Entity) -> None:
    pump.run(30)
    pump.answers = False
    pump.run(3.9)
    assert pump.traces(TraceKind.FAILURE_SUSPICION)
    effects = pump.say(Word.LOAD, b"{}")
    assert news(effects) == [(TraceKind.ALLS_WELL, {"after": "suspected"})]
    assert pump.tracer._overdue == 0


def test_only_the_first_word_brings_a_ping(pump: Entity) -> None:
    pump.run(30)
    due = pump.tracer.next_deadline
    pump.now += 0.125
    pump.say(Word.LOAD, b"{}")
    assert pump.tracer.next_deadline == due


def test_whoever_goes_silent_says_what_it_likes_and_nobody_pings_for_it(pump: Entity) -> None:
    assert news(pump.say(Word.SILENT, b'{"why":"night"}')) == [(TraceKind.REVERTING_TO_SILENT_MODE, {"why": "night"})]
    other = Entity()
    other.register()
    other.authorise()
    assert news(other.say(Word.SILENT)) == [(TraceKind.REVERTING_TO_SILENT_MODE, {})]
    third = Entity()
    third.register()
    assert counts(third.say(Word.PING, bytes(16))) == [Count("traces_refused", 1, "BadFrame")]
    for body in (b"", bytes(15), bytes(17)):
        assert counts(third.say(Word.ANSWER, body)) == [Count("traces_refused", 1, "BadFrame")]


def test_what_holds_of_load_and_state_is_told_to_who_comes_anew(pump: Entity) -> None:
    pump.say(Word.LOAD, b'{"cpu":0.25}')
    pump.say(Word.STATE, bytes([TraceKind.READY]))
    pump.run(2)
    pump.want(Interest.LOAD | Interest.STATES, anew=True)
    (load,), (state,) = pump.traces(TraceKind.LOAD_INFORMATION), pump.traces(TraceKind.READY)
    assert fields_of(load.body) == {"cpu": 0.25, "since_ms": NOW_MS}
    assert fields_of(state.body) == {"state": "READY", "since_ms": NOW_MS}


def test_heartbeats_tell_the_ping_and_the_latency_and_metrics_come_every_ten_seconds(pump: Entity) -> None:
    pump.want(Interest.ALL_UPDATES | Interest.NETWORK)
    pump.run(30)
    numbers = [fields_of(trace.body)["ping"] for trace in pump.traces(TraceKind.ALLS_WELL)]
    assert numbers == list(range(1, len(numbers) + 1))
    latencies = {fields_of(trace.body)["latency_ms"] for trace in pump.traces(TraceKind.ALLS_WELL)}
    assert latencies <= {5, 6}
    metrics = pump.traces(TraceKind.NETWORK_METRICS)
    gaps = [later.time_ms - earlier.time_ms for earlier, later in pairwise(metrics)]
    assert len(gaps) == 2
    assert all(METRICS_EVERY_S * 1000 <= gap <= METRICS_EVERY_S * 1000 + 1_010 for gap in gaps)
    assert [fields_of(trace.body) for trace in metrics] == [
        {"loss_rate": 0, "reordered_rate": 0, "latency_ms": 5, "jitter_ms": jitter} for jitter in (None, 0, 0)
    ]


def test_metrics_are_rounded_to_four_places_and_whole_milliseconds(pump: Entity) -> None:
    pump.want(Interest.NETWORK)
    (traced,) = pump.tracer._traced.values()
    assert traced.pulse is not None
    ping, _ = traced.pulse.tick(pump.now)
    assert ping is not None
    pump.now += 0.0625
    traced.pulse._trips[2], traced.pulse._trips[3] = LOST, LOST
    traced.pulse._reordered = 0b1010
    pump.say(Word.ANSWER, number(ping.number, 8) + number(ping.sent_ms, 8))
    (metrics,) = pump.traces(TraceKind.NETWORK_METRICS)
    assert fields_of(metrics.body) == {"loss_rate": 0.6667, "reordered_rate": 0.25, "latency_ms": 62, "jitter_ms": None}


def test_a_token_with_something_behind_it_is_none_and_says_nothing(pump: Entity) -> None:
    entity = Entity()
    entity.register()
    token = Token(entity.advertisement.topic, HOLDER.public_bytes, Delegated.PUBLISH, NOW_MS, NOW_MS + HOUR_MS)
    body = sized(token.signed(PUMP).encode()) + HOLDER.private_bytes()
    assert counts(entity.say(Word.TOKEN, body + b"x")) == [Count("traces_refused", 1, "BadFrame")]
    unsigned = sized(replace(token, signature=bytes(64)).encode()) + HOLDER.private_bytes()
    assert counts(entity.say(Word.TOKEN, unsigned)) == [Count("traces_refused", 1, "BadSignature")]
    assert not entity.traces()
    assert news(entity.say(Word.TOKEN, body)) == [(TraceKind.JOIN, {"entity": "pump-7"})]
    assert news(entity.say(Word.TOKEN, body)) == [], "it joins once"


@pytest.mark.parametrize(
    ("begins_ms", "ends_ms", "how"), [(11_000, 20_000, "11.0 s ahead"), (-60_000, -12_500, "12.5 s behind")]
)
def test_an_entity_whose_clock_is_off_is_told_the_time(begins_ms: int, ends_ms: int, how: str) -> None:
    entity = Entity()
    entity.register()
    token = Token(
        entity.advertisement.topic, HOLDER.public_bytes, Delegated.PUBLISH, NOW_MS + begins_ms, NOW_MS + ends_ms
    )
    said = entity.session.say_word(Word.TOKEN, sized(token.signed(PUMP).encode()) + HOLDER.private_bytes())
    effects = entity.tracer.handle(Spoke("pump", entity.session.session, said), NOW)
    count, complaint, clock = effects
    assert count == Count("traces_refused", 1, "Expired")
    assert complaint == Complain("pump", f"an entity's clock is {how} of ours; set it")
    assert isinstance(clock, Say)
    assert entity.session.hear(clock.payload) == (Word.CLOCK, NOW_MS.to_bytes(8))


def test_wishes_have_a_budget_and_one_that_was_verified_costs_none_of_it(
    pump: Entity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cast(dict[str, tuple[int, float]], BUDGETS), "interest", (2, 100.0))
    wanted = [
        WantedTraces("desk", EVERYTHING, certified(DESK, "desk").encode(), False, NOW_MS + place)
        .signed(DESK, pump.advertisement.topic).encode()
        for place in range(3)
    ]  # fmt: skip
    asked = [
        counts(pump.handle(Interested("desk", pump.advertisement.topic, wish))) for wish in (*wanted[:2], wanted[1])
    ]
    assert asked == [[], [], []]
    effects = pump.handle(Interested("desk", pump.advertisement.topic, wanted[2]))
    assert effects == [Count("traces_refused", 1, "TooOften")]
    assert pump.handle(Interested("desk", b"?" * 16, wanted[2])) == [], "it may be traced elsewhere"


# ---------------------------------------------------------------------------------------------------- elsewhere


def test_who_answers_through_another_witness_is_suspected_and_not_dead() -> None:
    pump = Entity()
    pump.register()
    pump.authorise(seat=Seat(0, 3, NOW_MS))
    pump.tracer.self_health.others = 2
    pump.run(30)
    pump.answers = False
    asked: list[AskThere] = []
    while not asked:
        due = pump.tracer.next_deadline
        assert due is not None
        pump.now = due
        asked += [each for each in pump.handle(Tick()) if isinstance(each, AskThere)]
    aside = pump.session.aside()
    word, body = aside.hear(asked[0].payload)
    assert word is Word.PING
    assert pump.tracer._overdue == 1
    assert pump.handle(Relayed(b"?" * 16, b"")) == []
    assert pump.handle(Relayed(pump.session.session, b"x")) == [Count("traces_refused", 1, "BadFrame")]
    effects = pump.handle(Relayed(pump.session.session, aside.say_word(Word.ANSWER, body)))
    assert effects[0] == Count("entities_vouched")
    sent = int.from_bytes(body[:8])
    assert news(effects) == [(TraceKind.FAILURE_SUSPICION, {"ping": sent, "answers": "elsewhere"})]
    assert pump.handle(Relayed(pump.session.session, aside.say_word(Word.ANSWER, body))) == [], "no news"
    pump.run(30)
    assert len(pump.traces(TraceKind.FAILED)) == 1, "for nothing came any more"
    assert pump.tracer._overdue == 0


def test_what_is_told_of_a_silence_names_the_ping(pump: Entity) -> None:
    pump.run(30)
    pump.answers = False
    told = {trace.kind: fields_of(trace.body) for trace in pump.traces()}
    pump.run(10)
    sent = [at for at, say in pump.said if say.qos == 0]
    told = {trace.kind: (trace.time_ms, fields_of(trace.body)) for trace in pump.traces()}
    for kind in (TraceKind.FAILURE_SUSPICION, TraceKind.FAILED):
        time_ms, fields = told[kind]
        assert fields == {"ping": sum(int(at * 1000) <= time_ms for at in sent)}
    assert {say.qos for _, say in pump.said} == {0, 1}
    assert all(
        say.qos == 0 for _, say in pump.said if say.topic == to_entity("pump-7", b"T" * 16, pump.session.session)
    )


def test_a_topic_ends_behind_its_last_millisecond() -> None:
    pump = Entity()
    known = replace(pump.advertisement, not_after_ms=NOW_MS + 8_000).signed(NODE)
    pump.advertisement = known
    pump.register()
    pump.authorise()
    pump.run(5)
    assert pump.tracer.handle(Tick(), NOW + 8) is not None
    assert len(pump.tracer) == 1
    effects = pump.tracer.handle(Tick(), NOW + 10)
    assert counts(effects) == [Count("entities_ended")]
    assert len(pump.tracer) == 0
    check_books(pump.tracer)


# --------------------------------------------------------------------------------------------- over a restart


def remembered(pump: Entity) -> RememberedEntity:
    (record,) = [record for _, record in pump.tracer.records() if record is not None]
    return record


def restarted(*records: RememberedEntity, at: float = NOW + 1) -> tuple[Tracer, list[TracingEffect]]:
    tracer = Tracer(LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, random.Random(9).randbytes)
    effects = tracer.restore(records, at)
    check_books(tracer)
    return tracer, effects


def test_what_changed_is_to_be_kept_and_once(pump: Entity) -> None:
    topic = pump.advertisement.topic
    assert remembered(pump).trace_key == b""
    assert pump.tracer.records() == []
    pump.say(Word.LOAD, b"{}")
    pump.run(1)
    assert pump.tracer.records() == [], "a load is of the moment"
    for word, body in (
        (Word.STATE, bytes([TraceKind.READY])),
        (Word.TRACE_KEY, b"K" * 32),
    ):
        pump.say(word, body)
        assert [at for at, _ in pump.tracer.records()] == [topic]
    pump.authorise()
    record = remembered(pump)
    assert (record.trace_key, record.holds[Interest.STATES][0]) == (b"K" * 32, TraceKind.READY)
    pump.handle(ClientGone(pump.client, clean=False))
    assert remembered(pump).holds[Interest.CHANGES][0] is TraceKind.DISCONNECT
    pump.say(Word.SILENT)
    assert pump.tracer.records() == [(topic, None)]


def test_an_entity_of_before_is_asked_about_and_failed_if_it_does_not_come_back(pump: Entity) -> None:
    tracer, effects = restarted(remembered(pump))
    assert effects == [Count("entities_restored")]
    assert len(tracer) == 1
    assert tracer.records() == []
    assert tracer.next_deadline == NOW + 1, "trackers are asked"
    asked = tracer.handle(Tick(), NOW + 1)
    assert [each.topic for each in asked if isinstance(each, Say)] == [gauge_topic(pump.advertisement.topic)]
    told: dict[float, list[tuple[TraceKind, dict[str, object]]]] = {}
    while (due := tracer.next_deadline) is not None and due < NOW + 200:
        effects = tracer.handle(Tick(), due)
        check_books(tracer)
        told |= {due: news(effects)} if news(effects) else {}
    failed = (TraceKind.FAILED, {"why": "not back after a restart of its broker"})
    assert told == {NOW + 1 + REJOIN_S: [failed]}
    ((session, traced),) = tracer._traced.items()
    assert tracer.session_at(traced.speaks_at) == session
    assert tracer.handle(Relayed(session, b"x"), NOW + 200) == []
    assert counts(tracer.handle(Spoke("liar", session, b"x"), NOW + 200)) == [Count("traces_refused", 1, "BadContent")]


def test_who_failed_before_the_restart_is_not_failed_again_and_who_comes_back_is_traced(pump: Entity) -> None:
    pump.run(10)
    pump.answers = False
    pump.run(20)
    tracer, _ = restarted(remembered(pump), at=pump.now)
    assert tracer._rejoining.missing == 0, "nobody waits for it"
    tracer.handle(Tick(), pump.now)
    assert news(tracer.handle(Tick(), pump.now + REJOIN_S + 1)) == []
    pump.tracer, pump.answers = tracer, True
    pump.register()
    pump.authorise()
    assert len(tracer) == 1
    pump.run(5)
    check_books(tracer)


def test_what_ended_or_is_traced_already_or_finds_no_place_is_not_restored(
    pump: Entity, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = remembered(pump)
    token_ends = record.token.not_after_ms / 1000
    other = replace(record, advertisement=advertised("other", topic=b"O" * 16), session=b"o" * 16)
    third = replace(record, advertisement=advertised("third", topic=b"P" * 16), session=b"p" * 16)
    assert len(restarted(record, at=token_ends)[0]) == 1
    tracer, effects = restarted(record, at=token_ends + 0.001)
    assert (len(tracer), effects, tracer.records()) == (0, [], [(record.advertisement.topic, None)])
    long = replace(record.token, not_after_ms=record.advertisement.not_after_ms + 10)
    ends = record.advertisement.not_after_ms / 1000
    assert len(restarted(replace(record, token=long), at=ends + 0.001)[0]) == 0
    tracer, effects = restarted(record, record, other)
    assert effects == [Count("entities_restored")] * 2
    assert [at for at, _ in tracer.records()] == [record.advertisement.topic]
    for alike in (replace(other, session=record.session), replace(record, session=other.session)):
        assert restarted(record, alike)[1] == [Count("entities_restored")], "one session, or one topic, is one entity"
    monkeypatch.setattr(tracing, "ENTITIES_MAX", 2)
    tracer, effects = restarted(record, other, third)
    assert len(effects) == 2
    assert tracer.records() == [(third.advertisement.topic, None)]


def test_a_record_of_what_never_changed_is_waited_for(pump: Entity) -> None:
    record = replace(remembered(pump), holds={})
    tracer, _ = restarted(record)
    tracer.handle(Tick(), NOW + 1)
    tracer.handle(Tick(), NOW + 31)
    assert tracer.next_deadline == NOW + 1 + 60
    assert news(tracer.handle(Tick(), NOW + 1 + REJOIN_S)) != []
