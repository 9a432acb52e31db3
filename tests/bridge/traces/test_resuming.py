"""An entity's session goes on over lost connections and restarts; who repeats what was said gains and stops nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from bridge.base import Wall
from bridge.contract import Count, Tick
from bridge.traces.events import ClientGone, Registering, Resumed, Spoke
from bridge.traces.kinds import REGISTRATION_TOPIC, TraceKind, answers_to, to_broker
from bridge.traces.presets import within
from bridge.traces.rejoining import REJOIN_S
from bridge.traces.remembered import RememberedEntity
from bridge.traces.telling import Say
from bridge.traces.tracer import Tracer
from bridge.tracking.entity import (
    ASK_AGAIN_MAX_S,
    KNOCKS,
    RENEW_AFTER_S,
    TOKEN_LIFE_S,
    BrokerConnected,
    Stage,
    Told,
    TracedEntity,
)
from keys.frames import opening
from keys.resumption import KNOCK, Knock, unknown
from keys.tracesession import Word
from tests.bridge.traces.test_tracer import NOW, advertised, check_books, news
from tests.keys.test_delegation import AUTHORITY, NODE, PUMP, certified

NODES = {"node-1": NODE.public_bytes}


class Pair:
    """An entity and its broker, that keeps what it must; what each says reaches the other at once. `counts`: the
    broker's."""

    def __init__(self) -> None:
        self.now, self.rng, self.wall, self.client = NOW, random.Random(3), Wall(), "pump-7"
        self.counts: dict[str, int] = {}
        self.kept: dict[bytes, RememberedEntity | None] = {}
        self.said: list[Say] = []  # by the entity
        self.told: list[TraceKind] = []
        self.tracer = self._tracer()
        self.entity = TracedEntity(
            PUMP, certified(PUMP, "pump-7"), NODES, AUTHORITY.public_bytes, self.rng.randbytes,
            advertisement=advertised(), wall=self.wall,
        )  # fmt: skip
        self.entity.state(TraceKind.READY)

    def _tracer(self) -> Tracer:
        return Tracer(within(10), NODES, AUTHORITY.public_bytes, self.rng.randbytes, wall=self.wall)

    def connect(self) -> None:
        self.from_entity(self.entity.handle(BrokerConnected(), self.now))

    def lose(self) -> None:
        self.from_broker(self.tracer.handle(ClientGone(self.client, False), self.now))

    def keep(self) -> list[RememberedEntity]:
        self.kept |= dict(self.tracer.records())
        return [RememberedEntity.decode(record.encode()) for record in self.kept.values() if record is not None]

    def restart(self, down_s: float = 2.0, *, forgets: bool = False) -> None:
        kept = [] if forgets else self.keep()
        self.tracer = self._tracer()
        self.now += down_s
        self.from_broker(self.tracer.restore(kept, self.now))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            dues = [due for due in (self.tracer.next_deadline, self.entity.next_deadline) if due is not None]
            if not dues or min(dues) > end:
                break
            self.now = max(self.now, min(dues))
            self.from_broker(self.tracer.handle(Tick(), self.now))
            self.from_entity(self.entity.handle(Tick(), self.now))
        self.now = end

    def from_entity(self, effects: Iterable[object]) -> None:
        for each in effects:
            if isinstance(each, Say):
                self.said.append(each)
                self.hear(each.topic, each.payload)

    def hear(self, topic: str, payload: bytes) -> None:
        """At the broker."""
        if topic == REGISTRATION_TOPIC:
            event: Registering | Spoke = Registering(self.client, payload)
        else:
            session = bytes.fromhex(topic.rpartition("/")[2])
            assert topic == to_broker(advertised().topic, session)
            event = Spoke(self.client, session, payload)
        self.from_broker(self.tracer.handle(event, self.now))
        check_books(self.tracer)

    def from_broker(self, effects: list[object]) -> None:  # type: ignore[type-arg]
        self.told += [kind for kind, _ in news(effects, advertised().topic)]  # type: ignore[arg-type]
        for each in effects:
            if isinstance(each, Count):
                self.counts[each.name] = self.counts.get(each.name, 0) + each.amount
            if isinstance(each, Say) and "pump-7" in each.topic:
                self.from_entity(self.entity.handle(Told(each.topic, each.payload), self.now))

    def of(self, name: str) -> int:
        return self.counts.get(name, 0)


@pytest.fixture
def pair() -> Pair:
    """Traced, and at rest."""
    pair = Pair()
    pair.connect()
    pair.run(30)
    assert pair.entity.stage is Stage.TRACED
    assert (pair.of("entities_registered"), pair.of("traces_refused")) == (1, 0)
    return pair


@pytest.mark.parametrize("restarts", [False, True])
def test_who_comes_back_goes_on_without_a_signature(pair: Pair, restarts: bool) -> None:
    session = pair.entity._session
    assert session is not None
    before = session.kept
    pair.lose()
    if restarts:
        pair.restart()
    del pair.said[:], pair.told[:]
    pair.connect()
    assert pair.entity.stage is Stage.TRACED
    assert [each.topic == REGISTRATION_TOPIC for each in pair.said] == [False] * 2, "a knock, and how it is"
    assert pair.entity._session is not None
    assert pair.entity._session.kept[0] == before[0]
    assert pair.entity._session.kept[1] != before[1], "under another key"
    assert (pair.of("entities_resumed"), pair.of("entities_registered"), pair.of("traces_refused")) == (1, 1, 0)
    assert pair.told[0] is TraceKind.JOIN
    pair.run(REJOIN_S + 30)
    assert not {TraceKind.FAILED, TraceKind.FAILURE_SUSPICION} & set(pair.told)


def test_whoever_dies_behind_it_is_told_as_soon_as_ever(pair: Pair) -> None:
    pair.restart()
    pair.connect()
    pair.run(20)
    pair.from_entity = lambda effects: None  # type: ignore[method-assign,assignment]
    del pair.told[:]
    pair.run(12)
    assert pair.told[-1] is TraceKind.FAILED


def test_the_new_key_is_kept_over_the_next_restart_and_the_old_one_is_no_use(pair: Pair) -> None:
    for _ in range(3):
        pair.run(5)
        pair.restart()
        pair.connect()
    assert (pair.of("entities_resumed"), pair.of("entities_registered")) == (3, 1)
    pair.restart()
    pair.connect()
    pair.tracer.records()  # and it is killed before these are on disk
    pair.now += 1
    pair.restart()
    pair.connect()
    assert pair.entity.stage is Stage.TRACED
    assert pair.of("entities_registered") == 2


def test_a_broker_that_forgot_says_so_and_the_entity_registers_at_once(pair: Pair) -> None:
    pair.restart(forgets=True)
    pair.connect()
    assert pair.entity.stage is Stage.TRACED
    assert (pair.of("sessions_unknown"), pair.of("entities_registered"), pair.of("traces_refused")) == (1, 2, 0)


def test_without_an_answer_it_knocks_again_and_then_registers(pair: Pair) -> None:
    pair.restart(forgets=True)
    entity, said = pair.entity, list[Say]()
    said += [each for each in entity.handle(BrokerConnected(), pair.now) if isinstance(each, Say)]
    for _ in range(KNOCKS):
        due = entity.next_deadline
        assert due is not None
        assert due - pair.now < 1.5 * ASK_AGAIN_MAX_S
        pair.now = due
        said += [each for each in entity.handle(Tick(), due) if isinstance(each, Say)]
    assert [each.topic == REGISTRATION_TOPIC for each in said] == [False] * KNOCKS + [True]
    assert all(each.payload.startswith(KNOCK) for each in said[:-1])


@pytest.mark.parametrize("age_s", [RENEW_AFTER_S + 10, TOKEN_LIFE_S + 1])
def test_who_was_away_until_its_token_is_old_hands_over_another_one(pair: Pair, age_s: float) -> None:
    pair.lose()
    pair.now += age_s
    pair.connect()
    pair.run(1)
    assert pair.entity.stage is Stage.TRACED
    assert pair.of("entities_resumed") == (age_s < TOKEN_LIFE_S)
    (traced,) = pair.tracer._traced.values()
    assert traced.voice.token is not None
    assert traced.voice.token.not_after_ms / 1000 == pytest.approx(pair.now + TOKEN_LIFE_S, abs=60)


# ------------------------------------------------------------------------------------------------ attacks


def test_what_was_said_before_a_restart_is_no_sign_of_life_behind_it(pair: Pair) -> None:
    """The network repeats all that an entity said, that died with its broker."""
    pair.restart()
    for each in list(pair.said):
        if each.topic != REGISTRATION_TOPIC:
            pair.hear(each.topic, each.payload)
    (traced,) = pair.tracer._traced.values()
    assert traced.pulse is None, "it is not back"
    assert pair.of("entities_resumed") == 0


def test_a_repeated_knock_brings_nobody_back_and_stops_nobody(pair: Pair) -> None:
    pair.lose()
    pair.connect()
    knock = next(each for each in reversed(pair.said) if each.payload.startswith(KNOCK))
    (traced,) = pair.tracer._traced.values()
    working = traced.session
    pair.client = "liar"
    pair.hear(knock.topic, knock.payload)
    assert (traced.session, traced.coming) == (working, None)
    assert pair.of("traces_refused") == 1
    pair.client = "pump-7"
    pair.restart()
    pair.client = "liar"
    pair.hear(knock.topic, knock.payload)  # within the minute in which it is fresh; under a key of before
    (traced,) = pair.tracer._traced.values()
    assert traced.pulse is None
    pair.client = "pump-7"
    pair.connect()
    assert pair.entity.stage is Stage.TRACED
    assert pair.of("entities_resumed") == 2


def test_a_knock_that_is_caught_and_passed_on_first_wins_nothing(pair: Pair) -> None:
    pair.restart()
    entity_says = pair.entity.handle(BrokerConnected(), pair.now)
    knock = next(each for each in entity_says if isinstance(each, Say))
    pair.client = "liar"
    answers = pair.tracer.handle(Spoke("liar", Knock.decode(knock.payload).session, knock.payload), pair.now)
    (traced,) = pair.tracer._traced.values()
    assert traced.pulse is None, "who only repeats cannot speak"
    pair.client = "pump-7"
    pair.from_broker(answers)
    assert pair.entity.stage is Stage.TRACED
    assert traced.client == "pump-7"


@pytest.mark.parametrize("name", ["nobody", "pump-8"])
def test_nobody_knocks_in_another_name_or_without_the_key(pair: Pair, name: str) -> None:
    (traced,) = pair.tracer._traced.values()
    (session, key), now_ms = traced.session.kept, pair.wall.ms(pair.now)
    frames = [
        Knock(session, b"n" * 16, now_ms, name).coded(key),
        Knock(session, b"n" * 16, now_ms, "pump-7").coded(b"x" * 32),
        Knock(session, b"n" * 16, now_ms + 61_000, "pump-7").coded(key),
    ]
    for count, frame in enumerate(frames, 1):
        pair.tracer.handle(Spoke("liar", session, frame.encode()), pair.now)
        effects = pair.tracer.handle(Spoke("liar", session, frame.encode()), pair.now)
        assert [each.name for each in effects if isinstance(each, Count)] == ["traces_refused", "sessions_unknown"]
        assert traced.coming is None, count


def test_a_forged_answer_moves_an_entity_nowhere_but_to_a_registration(pair: Pair) -> None:
    session = pair.entity._session
    assert session is not None
    at = answers_to("pump-7")
    refused = [Count("traces_refused", 1, "BadContent")]
    assert pair.entity.handle(Told(at, unknown(session.session)), pair.now) == refused, "nobody knocked"
    pair.entity.handle(BrokerConnected(), pair.now)
    assert pair.entity.handle(Told(at, unknown(b"x" * 16)), pair.now) == refused
    forged = opening(unknown(b"")[1]) + session.session + bytes(32)  # type: ignore[arg-type]
    assert pair.entity.handle(Told(at, forged), pair.now) == refused
    (asked,) = pair.entity.handle(Told(at, unknown(session.session)), pair.now)
    assert isinstance(asked, Say)
    assert asked.topic == REGISTRATION_TOPIC


def test_whose_knock_is_answered_and_not_used_is_as_before(pair: Pair) -> None:
    (traced,) = pair.tracer._traced.values()
    (session, key), now_ms = traced.session.kept, pair.wall.ms(pair.now)
    knock = Knock(session, b"n" * 16, now_ms, "pump-7").coded(key)
    pair.tracer.handle(Spoke("pump-7", session, knock.encode()), pair.now)
    assert traced.coming is not None
    assert pair.entity._session is not None
    said = pair.entity._session.say(Word.LOAD, b"{}")
    effects = pair.tracer.handle(Spoke("pump-7", session, said), pair.now)
    assert not any(isinstance(each, Resumed) or getattr(each, "name", "") == "traces_refused" for each in effects)
