"""The tracing broker: registration, pings, states, tokens, interest, sealed traces; and who tries to cheat it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from bridge.contract.machine import Count, Tick
from bridge.document import constrained
from bridge.traces import tracer as tracing
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
    trace_topic,
)
from bridge.traces.pings import LAN
from bridge.traces.tracer import (
    BOGUS_MAX,
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
from keys.delegation import Advertisement, Delegated, Token, Trace
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


class Entity:
    """An entity that knows VeilMQ, and the broker that traces it; time goes on as the test says."""

    def __init__(self, tracer: Tracer | None = None, name: str = "pump-7", topic: bytes = b"T" * 16) -> None:
        rng = random.Random(name)
        ours = Tracer(LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, rng.randbytes)
        self.tracer = ours if tracer is None else tracer
        self.advertisement = advertised(name, PUMP, topic)
        self.client = f"client of {name}"
        self.answers = True
        self.said: list[tuple[float, Say]] = []
        self.counted: dict[str, int] = {}
        self.now = NOW
        self.tracker_key, self.wishes = DESK, 0
        self.session = TraceSession(bytes(16), bytes(32), 0)

    def register(self) -> None:
        request = Registration(self.advertisement.encode(), b"r" * 16, int(self.now * 1000)).signed(PUMP)
        effects = self.tracer.handle(Registering(self.client, request.encode()), self.now)
        (answer,) = [e for e in effects if isinstance(e, Say) and e.topic == answers_to(self.name)]
        repeated, session, key = open_registered(answer.payload, PUMP)
        assert repeated == b"r" * 16
        self.session = TraceSession(session, key, 0)
        self._take(effects)

    @property
    def name(self) -> str:
        return self.advertisement.certificate.name

    def say(self, word: Word, body: bytes = b"", signer: Identity | None = None) -> list[TracingEffect]:
        return self.handle(Spoke(self.client, self.session.session, self.session.say(word, body, signer)))

    def authorise(self, life_ms: int = HOUR_MS, holder: Identity = HOLDER) -> list[TracingEffect]:
        now_ms = int(self.now * 1000)
        token = Token(self.advertisement.topic, holder.public_bytes, Delegated.PUBLISH, now_ms, now_ms + life_ms)
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
    effects = pump.handle(Spoke(pump.client, former.session, former.say(Word.STATE, bytes([TraceKind.READY]))))
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
    assert "latency_ms" in fields_of(trace.opened(key))
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
        forgery = TraceSession(pump.session.session, b"x" * 32, 0).say(Word.ANSWER, number(place, 8) + bytes(8))
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
    """Under whichever client ids: an entity is who its certificate says."""
    monkeypatch.setattr(tracing, "ENTITIES_MAX", 8)
    modest = Entity()
    modest.register()
    greedy = [Entity(modest.tracer, "greedy", bytes([place + 1]) * 16) for place in range(20)]
    for place, entity in enumerate(greedy):
        entity.client = f"client-{place}"
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
        said = pump.session.say(Word.TOKEN, sized(signed.encode()) + (SPY if what == "key" else HOLDER).private_bytes())
        effects = pump.tracer.handle(Spoke(pump.client, pump.session.session, said), pump.now)
        pump.counted["traces_refused"] = refused + sum(
            each.amount for each in effects if isinstance(each, Count) and each.name == "traces_refused"
        )
    assert pump.counted["traces_refused"] == refused + 1
