"""An entity's session goes on over lost connections and restarts; who repeats what was said gains and stops nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from bridge.base import Wall
from bridge.contract import Count, Tick
from bridge.traces.events import ClientGone, Registering, Resumed, Spoke
from bridge.traces.kinds import REGISTRATION_TOPIC, Interest, TraceKind, answers_to, to_broker
from bridge.traces.offenders import BOGUS_MAX, BUDGETS, SendAway
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
    Wishes,
)
from keys.frames import opening
from keys.identity import Identity
from keys.resumption import KNOCK, Knock, is_resumed, unknown
from keys.tracesession import TraceSession, Word
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
        self.entity.set_state(TraceKind.READY)

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
            if isinstance(each, Say) and is_resumed(each.payload):
                assert each.qos == 0, "an answer is of no use to who comes back later"
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
    before = session.session_and_key
    pair.lose()
    if restarts:
        pair.restart()
    del pair.said[:], pair.told[:]
    pair.connect()
    assert pair.entity.stage is Stage.TRACED
    assert [each.topic == REGISTRATION_TOPIC for each in pair.said] == [False] * 2, "a knock, and how it is"
    assert pair.entity._session is not None
    assert pair.entity._session.session_and_key[0] == before[0]
    assert pair.entity._session.session_and_key[1] != before[1], "under another key"
    assert (pair.of("entities_resumed"), pair.of("entities_registered"), pair.of("traces_refused")) == (1, 1, 0)
    assert pair.told[0] is TraceKind.JOIN
    (traced,) = pair.tracer._traced.values()
    assert traced.voice.present_states[Interest.CHANGES][1]["entity"] == "pump-7"
    check_books(pair.tracer)
    pair.run(RENEW_AFTER_S + 60)
    assert not {TraceKind.FAILED, TraceKind.FAILURE_SUSPICION} & set(pair.told)
    assert pair.told.count(TraceKind.JOIN) == 1, "not again with its next token"


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
    for count, pair.client in enumerate(("liar", "pump-7"), 1):  # or on the very connection
        pair.hear(knock.topic, knock.payload)
        assert (traced.session, traced.coming) == (working, None)
        assert pair.of("traces_refused") == count
    pair.restart()
    for pair.client in ("liar", "pump-7"):
        pair.hear(knock.topic, knock.payload)  # within the minute in which it is fresh; under a key of before
        (traced,) = pair.tracer._traced.values()
        assert traced.pulse is None
    pair.connect()
    assert pair.entity.stage is Stage.TRACED
    assert pair.of("entities_resumed") == 2


def test_a_knock_that_is_caught_and_passed_on_first_wins_nothing(pair: Pair) -> None:
    pair.restart()
    entity_says = pair.entity.handle(BrokerConnected(), pair.now)
    knock = next(each for each in entity_says if isinstance(each, Say))
    (traced,) = pair.tracer._traced.values()
    session = Knock.decode(knock.payload).session
    for client in ("liar", "pump-7"):  # or the network, on its own connection
        answers = pair.tracer.handle(Spoke(client, session, knock.payload), pair.now)
        assert traced.pulse is None, "who only repeats cannot speak"
        assert any(isinstance(each, Say) for each in answers) == (client == "pump-7")
    pair.from_broker(answers)
    assert pair.entity.stage is Stage.TRACED
    assert traced.client == "pump-7"


@pytest.mark.parametrize("name", ["nobody", "pump-8"])
def test_nobody_knocks_in_another_name_or_without_the_key(pair: Pair, name: str) -> None:
    (traced,) = pair.tracer._traced.values()
    (session, key), now_ms = traced.session.session_and_key, pair.wall.ms(pair.now)
    frames = [
        Knock(session, b"n" * 16, now_ms, "pump-7").coded(b"x" * 32),
        Knock(session, b"n" * 16, now_ms + 61_000, "pump-7").coded(key),
    ]
    for count, frame in enumerate(frames, 1):
        pair.tracer.handle(Spoke("pump-7", session, frame.encode()), pair.now)
        effects = pair.tracer.handle(Spoke("pump-7", session, frame.encode()), pair.now)
        assert [each.name for each in effects if isinstance(each, Count)] == ["traces_refused", "sessions_unknown"]
        assert traced.coming is None, count
    strange = Knock(b"o" * 16, b"n" * 16, now_ms, "pump-7").coded(key).encode()
    effects = pair.tracer.handle(Spoke("pump-7", session, strange), pair.now)
    assert effects == [Say(answers_to("pump-7"), unknown(b"o" * 16), 0), Count("sessions_unknown")]
    assert traced.coming is None
    other = Knock(session, b"n" * 16, now_ms, name).coded(key).encode()
    for client in (name, "pump-7", "liar"):  # only who is called so is answered anything, and that it is not known
        effects = pair.tracer.handle(Spoke(client, session, other), pair.now)
        said = [each for each in effects if isinstance(each, Say)]
        assert said == ([Say(answers_to(name), unknown(session), 0)] if client == name else [])
        assert Count("traces_refused", 1, "BadContent" if client == name else "NotAuthorised") in effects
        assert traced.coming is None


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
    (session, key), now_ms = traced.session.session_and_key, pair.wall.ms(pair.now)
    knock = Knock(session, b"n" * 16, now_ms, "pump-7").coded(key)
    pair.tracer.handle(Spoke("pump-7", session, knock.encode()), pair.now)
    assert traced.coming is not None
    assert pair.entity._session is not None
    said = pair.entity._session.say_word(Word.LOAD, b"{}")
    effects = pair.tracer.handle(Spoke("pump-7", session, said), pair.now)
    assert not any(isinstance(each, Resumed) or getattr(each, "name", "") == "traces_refused" for each in effects)


def signing(pair: Pair) -> Pair:
    """The same, its entity signs each word instead of sealing it."""
    pair.entity = TracedEntity(
        PUMP, certified(PUMP, "pump-7"), NODES, AUTHORITY.public_bytes, pair.rng.randbytes,
        Wishes(advertised().discoverers, signed=True), advertised(), pair.wall,
    )  # fmt: skip
    pair.entity.set_state(TraceKind.READY)
    pair.connect()
    pair.run(5)
    return pair


@pytest.mark.attack(46)
@pytest.mark.parametrize("restarts", [False, True])
def test_what_an_entity_signed_before_its_session_went_on_is_nothing_behind_it(pair: Pair, restarts: bool) -> None:
    """A session keeps its name, and counters begin anew: a signature of before would count again, move the counter
    above all that the entity says, so that it is told failed, and say for a dead one that it is back."""
    signing(pair)
    for _ in range(8):
        pair.from_entity(pair.entity.set_state(TraceKind.RECOVERING))
    pair.from_entity(pair.entity.set_state(TraceKind.READY))
    words = [each for each in pair.said if each.topic != REGISTRATION_TOPIC and not each.payload.startswith(KNOCK)]
    pair.lose()
    if restarts:
        pair.restart()
    knock = next(each for each in pair.entity.handle(BrokerConnected(), pair.now) if isinstance(each, Say))
    (session,) = pair.tracer._traced
    answers = pair.tracer.handle(Spoke("pump-7", session, knock.payload), pair.now)
    (traced,) = pair.tracer._traced.values()
    del pair.told[:]
    for each in words:  # before the entity spoke
        pair.hear(each.topic, each.payload)
    assert pair.told == []
    assert (traced.pulse is None) == restarts
    pair.from_broker(answers)
    before = pair.of("traces_refused")
    assert pair.of("entities_resumed") == 1
    for each in words:  # and behind it
        pair.hear(each.topic, each.payload)
    assert pair.of("traces_refused") == before + len(words)
    del pair.told[:]
    pair.from_entity(pair.entity.set_state(TraceKind.SHUTDOWN))
    assert pair.of("traces_refused") == before + len(words), "its own words count"
    assert (pair.tracer._traced[session].voice.present_states[Interest.STATES][0]) is TraceKind.SHUTDOWN


@pytest.mark.attack(48)
def test_whose_token_was_lost_with_its_connection_registers_for_nobody_would_hear_of_its_death(pair: Pair) -> None:
    """The network cuts the connection behind a registration, so that the token does not come."""
    pair.restart(forgets=True)
    said = [each for each in pair.entity.handle(BrokerConnected(), pair.now) if isinstance(each, Say)]
    said = [each for each in pair.entity.handle(Told(answers_to("pump-7"), unknown(Knock.decode(said[0].payload).session)), pair.now) if isinstance(each, Say)]  # fmt: skip  # noqa: E501
    effects = pair.tracer.handle(Registering("pump-7", said[0].payload), pair.now)
    answer = next(each for each in effects if isinstance(each, Say))
    pair.entity.handle(Told(answer.topic, answer.payload), pair.now)  # what it says then is lost
    pair.lose()
    del pair.told[:]
    pair.connect()
    pair.run(5)
    assert pair.told[0] is TraceKind.JOIN
    assert pair.of("traces_refused") == 0
    pair.from_entity = lambda effects: None  # type: ignore[method-assign,assignment]
    pair.run(12)
    assert pair.told[-1] is TraceKind.FAILED


def test_nobody_comes_back_whose_trace_topic_or_token_ended(pair: Pair) -> None:
    (traced,) = pair.tracer._traced.values()
    (session, key), known = traced.session.session_and_key, traced.advertisement
    assert traced.voice.token is not None
    for number, (now_ms, refused) in enumerate(
        [(traced.voice.token.not_after_ms + 1, False), (known.not_after_ms + 1, True)], 1
    ):
        knock = Knock(session, bytes([number]) * 16, now_ms, "pump-7").coded(key).encode()
        effects = pair.tracer.handle(Spoke("pump-7", session, knock), now_ms / 1000)
        assert Say(answers_to("pump-7"), unknown(session), 0) in effects
        assert (Count("traces_refused", 1, "Expired") in effects) == refused
        assert traced.coming is None
    now_ms = traced.voice.token.not_after_ms
    knock = Knock(session, b"3" * 16, now_ms, "pump-7").coded(key).encode()
    pair.tracer.handle(Spoke("pump-7", session, knock), now_ms / 1000)
    assert traced.coming is not None, "to its last millisecond"


@pytest.mark.attack(47)
def test_a_registration_that_somebody_passes_on_ends_nobodys_session(pair: Pair) -> None:
    """A discovery node shows it to every tracker, and another witness hears one like it."""
    registration = next(each for each in pair.said if each.topic == REGISTRATION_TOPIC)
    session = pair.entity._session
    assert session is not None
    for client in ("desk", "witness-2", ""):
        effects = pair.tracer.handle(Registering(client, registration.payload), pair.now)
        assert effects[0] == Count("traces_refused", 1, "NotAuthorised")
        assert list(pair.tracer._traced) == [session.session]
    pair.run(60)
    assert TraceKind.FAILED not in pair.told


@pytest.mark.attack(49)
def test_a_flood_of_knocks_is_dropped_before_it_costs_anything_and_tells_nobody_anything(pair: Pair) -> None:
    """Of a session that is not: whoever knocks need know nothing for it."""
    most, _ = BUDGETS["knock"]
    said = 0
    for number in range(most + 100):
        session = number.to_bytes(16)
        knock = Knock(session, bytes(16), pair.wall.ms(pair.now), "liar").coded(bytes(32)).encode()
        effects = pair.tracer.handle(Spoke("liar", session, knock), pair.now)
        said += sum(isinstance(each, Say) for each in effects)
    assert said == most
    assert effects == [Count("traces_refused", 1, "TooOften")]
    effects = []
    for number in range(BOGUS_MAX):  # in another's name, to tell it things
        knock = Knock(bytes(16), bytes(16), number, "pump-7").coded(bytes(32)).encode()
        effects = pair.tracer.handle(Spoke("other", bytes(16), knock), pair.now)
        assert not any(isinstance(each, Say) for each in effects)
    assert isinstance(effects[-1], SendAway)
    pair.lose()
    pair.connect()
    assert pair.of("entities_resumed") == 1, "others are served"


def test_two_copies_of_one_state_give_two_keys_and_neither_helps_with_the_other(pair: Pair) -> None:
    """A backup of the broker's state that runs beside it hears all that the entity said."""
    kept = pair.keep()
    copy = pair._tracer()
    copy.restore(kept, pair.now)
    said = len(pair.said)
    pair.lose()
    pair.connect()
    assert pair.of("entities_resumed") == 1
    for each in pair.said[said:]:
        copy.handle(Spoke("pump-7", bytes.fromhex(each.topic.rpartition("/")[2]), each.payload), pair.now)
    (theirs,), (ours,) = copy._traced.values(), pair.tracer._traced.values()
    assert theirs.pulse is None, "not back there"
    assert theirs.coming is not None
    assert theirs.coming.session_and_key != ours.session.session_and_key


def test_no_message_of_the_broker_is_sealed_twice_under_one_key_and_counter(pair: Pair) -> None:
    """It keeps the key over a restart and not its counter."""
    heads: list[tuple[bytes, bytes]] = []
    genuine = TraceSession.say_word

    def noted(self: TraceSession, word: Word, body: bytes = b"", signer: Identity | None = None) -> bytes:
        message = genuine(self, word, body, signer)
        heads.append((self.session_and_key[1] + self._says, message[:27]))
        return message

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TraceSession, "say_word", noted)
        for number in range(6):
            pair.run(20)
            if number % 2:
                pair.restart()
            else:
                pair.lose()
            pair.run(1)
            pair.connect()
            pair.restart()
            pair.run(REJOIN_S + 1)
            pair.connect()
    assert len(heads) > 20
    assert len(set(heads)) == len(heads)


def test_nothing_of_it_shows_a_secret(pair: Pair) -> None:
    (record,) = pair.keep()
    (traced,) = pair.tracer._traced.values()
    pair.lose()
    pair.entity.handle(BrokerConnected(), pair.now)
    assert pair.entity._knocked is not None
    shown = repr((record, traced, pair.entity._knocked, *pair.said))
    for secret in (record.key, record.holder, record.session):
        for spelled in (repr(secret)[2:-1], secret.hex()):
            assert spelled not in shown
