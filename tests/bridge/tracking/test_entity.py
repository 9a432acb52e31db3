"""The entity's side of being traced: what it asks for and when, what it believes, what it hands over and to whom."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from bridge.base import Wall
from bridge.contract import Count, Tick
from bridge.traces.kinds import (
    CREATION_TOPIC,
    DESCRIPTOR,
    REGISTRATION_TOPIC,
    TraceKind,
    answers_to,
    relayed_from,
    relayed_to,
    to_broker,
    to_entity,
)
from bridge.traces.tracer import Say
from bridge.tracking.discovery import Request
from bridge.tracking.entity import (
    ALIVE_LEAST_S,
    ASK_AGAIN_MAX_S,
    ASK_AGAIN_S,
    CLOCK_SET_S,
    RENEW_AFTER_S,
    TOKEN_LIFE_S,
    TOPIC_LEFT_S,
    BrokerConnected,
    KeepEntity,
    Leave,
    Listen,
    Stage,
    Told,
    TracedEffect,
    TracedEntity,
    Wishes,
)
from keys.delegation import Advertisement, Delegated, Seat, Token
from keys.frames import Kind, Reader, opening
from keys.identity import Identity
from keys.resumption import KNOCK, Knock, unknown
from keys.sealedbox import seal_box
from keys.tracesession import Registration, TraceSession, Word, registered
from tests.bridge.traces.test_tracer import NOW, NOW_MS, advertised
from tests.keys.test_delegation import AUTHORITY, NODE, PUMP, SPY, certified


def connected(entity: TracedEntity, now: float) -> list[TracedEffect]:
    """To a broker that knows nothing of before."""
    effects = entity.handle(BrokerConnected(), now)
    knocks = [each.payload for each in effects if isinstance(each, Say) and each.payload.startswith(KNOCK)]
    answers = [unknown(Knock.decode(knock).session) for knock in knocks]
    asked = [each for answer in answers for each in entity.handle(Told(answers_to("pump-7"), answer), now)]
    return [effects[0], *asked] if knocks else effects


class Broker:
    """Answers registrations, and keeps the tokens that it is given."""

    def __init__(self) -> None:
        self.wall, self.rng = Wall(), random.Random(1)
        self.entity = TracedEntity(
            PUMP, certified(PUMP, "pump-7"), {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, self.rng.randbytes,
            advertisement=advertised(), wall=self.wall,
        )  # fmt: skip

    def token_at(self, now: float) -> bytes:
        (asked,) = [
            each for each in connected(self.entity, now)
            if isinstance(each, Say) and each.topic == REGISTRATION_TOPIC
        ]  # fmt: skip
        registration = Registration.decode(asked.payload)
        session, key = self.rng.randbytes(16), self.rng.randbytes(32)
        answer = registered(registration.request, session, key, advertised(), self.rng.randbytes(32))
        ours = TraceSession(session, key, 1, PUMP.public_bytes)
        said = [ours.hear(each.payload) for each in self.entity.handle(Told(answers_to("pump-7"), answer), now)
                if isinstance(each, Say)]  # fmt: skip
        (token,) = [body for word, body in said if word is Word.TOKEN]
        return token


def test_a_young_token_is_handed_over_again_and_renewed_when_it_would_have_been() -> None:
    broker = Broker()
    first = broker.token_at(NOW)
    assert broker.token_at(NOW + 100) == first
    assert broker.entity.next_deadline == NOW + RENEW_AFTER_S
    assert broker.token_at(NOW + RENEW_AFTER_S) != first


def _other_topic(broker: Broker) -> None:
    broker.entity._advertisement = advertised(topic=b"U" * 16)


def _other_seat(broker: Broker) -> None:
    broker.entity.seat = Seat(1, 3, int(NOW * 1000))


def _clock_set(broker: Broker) -> None:
    broker.wall.offset_s += 5


@pytest.mark.parametrize("changes", [_other_topic, _other_seat, _clock_set])
def test_for_another_topic_seat_or_time_there_is_another_token(changes: Callable[[Broker], None]) -> None:
    broker = Broker()
    first = broker.token_at(NOW)
    changes(broker)
    assert broker.token_at(NOW + 1) != first


# -------------------------------------------------------------------------------------- from the first question on

HERE, SESSION, SESSION_KEY = answers_to("pump-7"), b"s" * 16, b"k" * 32


class LoneEntity:
    """An entity alone, and what a discovery node and a broker would answer it. `drawn`: the byte that spreads waits;
    128 for what is usual."""

    def __init__(self, wishes: Wishes | None = None, advertisement: Advertisement | None = None) -> None:
        self.wall, self.rng, self.drawn = Wall(), random.Random(1), 128
        self.entity = TracedEntity(
            PUMP, certified(PUMP, "pump-7"), {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, self._random,
            wishes, advertisement, self.wall,
        )  # fmt: skip
        self.request = bytes(16)
        self.broker = TraceSession(SESSION, SESSION_KEY, 1, PUMP.public_bytes)

    def _random(self, size: int) -> bytes:
        return bytes([self.drawn]) if size == 1 else self.rng.randbytes(size)

    def take(self, effects: list[TracedEffect]) -> list[TracedEffect]:
        """Remember what the last question was."""
        for each in effects:
            if isinstance(each, Say) and each.topic == CREATION_TOPIC:
                self.request = Request.decode(each.payload).request
            if isinstance(each, Say) and each.topic == REGISTRATION_TOPIC:
                self.request = Registration.decode(each.payload).request
        return effects

    def connect(self, now: float = NOW) -> list[TracedEffect]:
        return self.take(connected(self.entity, now))

    def tick(self, now: float) -> list[TracedEffect]:
        return self.take(self.entity.handle(Tick(), now))

    def answered(
        self, advertisement: Advertisement, request: bytes | None = None, now: float = NOW
    ) -> list[TracedEffect]:
        """A discovery node answers."""
        head = opening(Kind.DISCOVERY, 2)
        inside = (self.request if request is None else request) + advertisement.encode()
        box = seal_box(PUMP.agreement_bytes, inside, head, bytes(range(32)))
        return self.take(self.entity.handle(Told(HERE, head + box), now))

    def registered(self, request: bytes | None = None, now: float = NOW) -> list[TracedEffect]:
        """A broker answers."""
        asked = self.request if request is None else request
        self.broker = TraceSession(SESSION, SESSION_KEY, 1, PUMP.public_bytes)
        answer = registered(asked, SESSION, SESSION_KEY, advertised(), bytes(range(32)))
        return self.entity.handle(Told(HERE, answer), now)

    def hears(self, word: Word, body: bytes = b"", now: float = NOW) -> list[TracedEffect]:
        """The broker speaks in the session."""
        topic = to_entity("pump-7", advertised().topic, SESSION)
        return self.entity.handle(Told(topic, self.broker.say_word(word, body)), now)

    def words(self, effects: list[TracedEffect]) -> list[tuple[Word, bytes]]:
        """What the broker hears of these."""
        said = [each for each in effects if isinstance(each, Say)]
        assert {each.topic for each in said} <= {to_broker(advertised().topic, SESSION)}
        return [self.broker.hear(each.payload) for each in said]


def traced(wishes: Wishes | None = None) -> LoneEntity:
    """One that is registered already."""
    site = LoneEntity(wishes, advertised())
    site.connect()
    site.words(site.registered())
    return site


def token_of(body: bytes) -> tuple[Token, bytes]:
    """The token and the private key that stand in a word."""
    reader = Reader(body)
    token = Token.decode(reader.sized())
    return token, reader.take_rest()


def test_who_has_no_topic_asks_a_node_and_registers_with_what_it_answers() -> None:
    site = LoneEntity(Wishes(("desk*", "@works"), life_s=7_200))
    assert (site.entity.stage, site.entity.next_deadline) == (Stage.WITHOUT_TOPIC, None)
    listen, say = site.connect()
    assert listen == Listen(HERE)
    assert isinstance(say, Say)
    assert (say.topic, say.qos) == (CREATION_TOPIC, 1)
    request = Request.decode(say.payload)
    request.verify(AUTHORITY.public_bytes, NOW_MS)
    assert request.certificate.name == "pump-7"
    assert (request.descriptor, request.discoverers) == (DESCRIPTOR + "pump-7", ("desk*", "@works"))
    assert (request.life_s, request.time_ms) == (7_200, NOW_MS)
    keep, say = site.answered(advertised())
    assert keep == KeepEntity(advertised())
    assert isinstance(say, Say)
    assert say.topic == REGISTRATION_TOPIC
    registration = Registration.decode(say.payload)
    registration.verify(advertised(), NOW_MS)
    assert registration.advertisement == advertised().encode()
    assert registration.request != request.request
    assert (site.entity.stage, site.entity.advertisement) == (Stage.UNREGISTERED, advertised())
    site.registered()
    assert site.entity.stage is Stage.TRACED


def test_wishes_are_a_day_in_clear_and_sealed_to_the_broker() -> None:
    assert Wishes() == Wishes((), 86_400, secured=False, signed=False)


STALE = replace(advertised(), created_ms=NOW_MS - 9_000_000, not_after_ms=NOW_MS - 1).signed(NODE)
ELSEWHERE = replace(advertised(), node="x").signed(NODE)
WRONG_ANSWERS: dict[str, tuple[Callable[[LoneEntity], list[TracedEffect]], str]] = {
    "to another question": (lambda site: site.answered(advertised(), bytes(16)), "BadContent"),
    "of a node that nobody knows": (lambda site: site.answered(ELSEWHERE), "BadContent"),
    "that no node signed": (lambda site: site.answered(advertised().signed(SPY)), "BadSignature"),
    "of somebody else's topic": (lambda site: site.answered(advertised("fan", SPY)), "NotAuthorised"),
    "that counts no more": (lambda site: site.answered(STALE), "Expired"),
    "that is none": (lambda site: site.entity.handle(Told(HERE, b"junk"), NOW), "BadFrame"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_ANSWERS)
def test_what_a_node_did_not_answer_to_us_is_not_believed(wrong: str) -> None:
    site = LoneEntity()
    site.connect()
    answer, why = WRONG_ANSWERS[wrong]
    assert answer(site) == [Count("traces_refused", 1, why)]
    assert (site.entity.advertisement, site.entity.stage) == (None, Stage.WITHOUT_TOPIC)
    assert site.answered(advertised())[0] == KeepEntity(advertised()), "the right one still counts"


@pytest.mark.parametrize(("drawn", "spread"), [(0, 0.5), (128, 1.0), (255, 1.49609375)])
def test_questions_without_an_answer_come_twice_as_late_each_time_up_to_a_minute(drawn: int, spread: float) -> None:
    """Those who lost their broker together do not ask together."""
    site, now, waits = LoneEntity(), NOW, list[float]()
    site.drawn = drawn
    site.connect()
    for _ in range(8):
        due = site.entity.next_deadline
        assert due is not None
        assert site.tick(due - 0.001) == []
        waits.append((due - now) / spread)
        now = due
        assert len(site.tick(now)) == 1
    assert waits == [ASK_AGAIN_S, 10, 20, 40, *[ASK_AGAIN_MAX_S] * 4]
    site.connect(now)
    assert site.entity.next_deadline == now + ASK_AGAIN_S * spread, "another broker, another try"


@pytest.mark.parametrize("answer", ["of a node", "of a broker"])
def test_after_an_answer_the_next_question_is_patient_no_more(answer: str) -> None:
    site = LoneEntity(advertisement=None if answer == "of a node" else advertised())
    site.connect()
    for _ in range(4):
        site.tick(site.entity.next_deadline or 0)
    if answer == "of a node":
        site.answered(advertised())
        assert site.entity.next_deadline == NOW + ASK_AGAIN_S
    else:
        site.registered()
        site.take(site.entity.ask_topic(NOW))
        assert site.entity._ask_at == NOW + ASK_AGAIN_S


def test_registered_it_listens_hands_over_its_keys_in_order_and_says_its_state_again() -> None:
    site = LoneEntity(Wishes(advertised().discoverers, secured=True), advertised())
    site.connect()
    assert site.entity.set_state(TraceKind.READY, b'{"a":1}') == []
    assert site.entity.report_load({"cpu": 1}) == [], "lost while nobody hears it"
    effects = site.registered()
    assert effects[0] == Listen(to_entity("pump-7", advertised().topic, SESSION))
    assert effects[-1] == Count("registered")
    (key_word, key), (token_word, _), state = site.words(effects)
    assert (key_word, len(key), token_word) == (Word.TRACE_KEY, 32, Word.TOKEN)
    assert state == (Word.STATE, bytes([TraceKind.READY]) + b'{"a":1}')
    assert {each.qos for each in effects if isinstance(each, Say)} == {1}
    assert site.words(site.entity.set_state(TraceKind.SHUTDOWN)) == [(Word.STATE, bytes([TraceKind.SHUTDOWN]))]
    assert site.words(site.entity.report_load({"cpu": 1})) == [(Word.LOAD, b'{"cpu":1}')]
    with pytest.raises(ValueError, match="FAILED is not a state"):
        site.entity.set_state(TraceKind.FAILED)


def test_without_wishes_it_says_its_token_and_nothing_else() -> None:
    site = LoneEntity(advertisement=advertised())
    site.connect()
    assert [word for word, _ in site.words(site.registered())] == [Word.TOKEN]


def test_a_registration_is_answered_once_and_by_who_was_asked() -> None:
    site = LoneEntity(advertisement=advertised())
    site.connect()
    refused = [Count("traces_refused", 1, "BadContent")]
    assert site.registered(bytes(16)) == refused
    assert site.entity.stage is Stage.UNREGISTERED
    site.registered()
    assert site.registered() == refused, "a replay would begin its counters anew"


def test_a_token_lets_a_key_of_its_own_speak_for_ten_minutes_and_is_renewed_at_half() -> None:
    site = LoneEntity(advertisement=advertised())
    site.entity.seat = Seat(2, 3, NOW_MS - 1)
    site.connect()
    ((_, body),) = site.words(site.registered())
    token, private = token_of(body)
    token.verify(advertised(), Delegated.PUBLISH, NOW_MS)
    assert (token.rights, token.seat) == (Delegated.PUBLISH, Seat(2, 3, NOW_MS - 1))
    assert (token.not_before_ms, token.not_after_ms) == (NOW_MS, NOW_MS + int(TOKEN_LIFE_S * 1000))
    assert Identity.from_private_bytes(private).public_bytes == token.public_key != PUMP.public_bytes
    assert site.entity.next_deadline == NOW + RENEW_AFTER_S
    assert site.tick(NOW + RENEW_AFTER_S - 0.001) == []
    ((word, body),) = site.words(site.tick(NOW + RENEW_AFTER_S))
    assert word is Word.TOKEN
    assert token_of(body)[0].not_before_ms == NOW_MS + int(RENEW_AFTER_S * 1000)
    assert token_of(body)[0].public_key != token.public_key
    assert site.entity.next_deadline == NOW + 2 * RENEW_AFTER_S
    connected(site.entity, NOW + 400)
    assert site.tick(NOW + 2 * RENEW_AFTER_S)[0].topic == REGISTRATION_TOPIC, "no token without a session"  # type: ignore[union-attr]


def test_a_clock_that_went_back_makes_another_token() -> None:
    broker = Broker()
    first = broker.token_at(NOW)
    assert broker.token_at(NOW - 1) != first


@pytest.mark.parametrize(("by_s", "is_set"), [(CLOCK_SET_S, False), (1.5, True), (-1.5, True), (0.0, False)])
def test_when_our_clock_is_set_there_is_a_token_of_the_right_time(by_s: float, is_set: bool) -> None:
    site = traced()
    site.wall.offset_s = by_s
    said = site.words(site.hears(Word.PING, b"number78" + bytes(8)))
    assert [word for word, _ in said] == [Word.ANSWER, Word.TOKEN][: 1 + is_set]
    if is_set:
        assert token_of(said[1][1])[0].not_before_ms == NOW_MS + int(by_s * 1000)
    again = Broker()
    first = again.token_at(NOW)
    again.wall.offset_s += by_s
    assert (again.token_at(NOW) != first) is is_set


def test_pings_are_answered_as_they_came_and_a_broker_says_nothing_else() -> None:
    site = LoneEntity(advertisement=advertised())
    site.connect()
    assert site.hears(Word.PING, b"1" * 16) == [], "not before there is a session"
    site = traced()
    (answer,) = site.hears(Word.PING, b"2" * 16)
    assert isinstance(answer, Say)
    assert answer.qos == 0, "a later ping is as good"
    assert site.words([answer]) == [(Word.ANSWER, b"2" * 16)]
    for word, body in ((Word.STATE, b"\3"), (Word.ANSWER, b"1" * 16), (Word.CLOCK, bytes(7)), (Word.CLOCK, bytes(9))):
        assert site.hears(word, body) == [Count("traces_refused", 1, "BadContent")]
    assert site.entity.clock_off_s is None
    assert site.hears(Word.CLOCK, (NOW_MS - 2_500).to_bytes(8)) == [Count("clock_off")]
    assert site.entity.clock_off_s == 2.5


def test_a_ping_through_another_broker_is_answered_there() -> None:
    site = LoneEntity(advertisement=advertised())
    assert (site.entity.relayed_at, site.entity.relayed(b"junk")) == (None, [])
    site.connect()
    assert site.entity.relayed_at is None
    site = traced()
    topic = advertised().topic
    assert site.entity.relayed_at == relayed_to("pump-7", topic, SESSION)
    aside = site.broker.aside()
    for number in (b"1", b"2"):
        (say,) = site.entity.relayed(aside.say_word(Word.PING, number))
        assert isinstance(say, Say)
        assert (say.topic, say.qos) == (relayed_from("pump-7", topic, SESSION), 0)
        assert aside.hear(say.payload) == (Word.ANSWER, number)
    refused = [Count("traces_refused", 1, "BadContent")]
    assert site.entity.relayed(aside.say_word(Word.STATE, b"\3")) == refused
    direct = [site.broker.say_word(Word.PING, b"direct") for _ in range(5)]
    assert site.entity.relayed(direct[-1]) == refused
    assert site.entity.relayed(direct[0]) == [Count("traces_refused", 1, "Replayed")]
    site.connect(NOW + 1)
    site.registered(now=NOW + 1)
    (say,) = site.entity.relayed(site.broker.aside().say_word(Word.PING, b"3"))
    assert isinstance(say, Say), "in a new session the count begins anew"


def test_who_is_silent_says_so_once_and_asks_for_nothing() -> None:
    site = traced()
    assert site.words(site.entity.silent(b"{}")) == [(Word.SILENT, b"{}")]
    assert (site.entity.stage, site.entity.next_deadline, site.entity.silent()) == (Stage.UNREGISTERED, None, [])
    assert site.hears(Word.PING, b"1" * 16) == []
    assert [each.topic for each in site.connect(NOW + 1)[1:] if isinstance(each, Say)] == [REGISTRATION_TOPIC]


def test_who_renounces_its_topic_asks_for_another() -> None:
    site = traced()
    silent, asked = site.take(site.entity.renounce(NOW, b"{}"))
    assert site.words([silent]) == [(Word.SILENT, b"{}")]
    assert isinstance(asked, Say)
    assert asked.topic == CREATION_TOPIC
    assert (site.entity.stage, site.entity.next_deadline) == (Stage.WITHOUT_TOPIC, NOW + ASK_AGAIN_S)
    other = advertised(topic=b"U" * 16)
    assert site.answered(other)[0] == KeepEntity(other)


def test_a_topic_that_was_asked_for_elsewhere_is_taken() -> None:
    other = advertised(topic=b"U" * 16)
    site = LoneEntity()
    assert site.entity.take_topic(other, NOW) == [], "nobody hears it yet"
    assert site.entity.advertisement == other
    site = traced()
    silent, asked = site.entity.take_topic(other, NOW)
    assert site.words([silent]) == [(Word.SILENT, b"")]
    assert isinstance(asked, Say)
    assert Registration.decode(asked.payload).advertisement == other.encode()
    assert site.entity.next_deadline == NOW + ASK_AGAIN_S


@pytest.mark.parametrize("discoverers", [(), ("nosy",), ("desk", "nosy")])
def test_who_starts_again_with_other_discoverers_takes_another_topic(discoverers: tuple[str, ...]) -> None:
    """Else who was struck off would go on discovering it until its topic ends, for up to a day."""
    kept = replace(advertised(), discoverers=("desk", "shop"))
    (_, say) = LoneEntity(Wishes(discoverers), kept).connect()
    assert isinstance(say, Say)
    assert say.topic == CREATION_TOPIC
    assert Request.decode(say.payload).discoverers == discoverers
    (_, say) = LoneEntity(Wishes(("shop", "desk")), kept).connect()
    assert isinstance(say, Say)
    assert say.topic == REGISTRATION_TOPIC, "the same ones, in whatever order"


def test_who_is_told_its_topic_does_not_ask_for_one() -> None:
    site = LoneEntity()
    site.entity.asks = False
    assert site.connect() == [Listen(HERE)]
    assert site.entity.next_deadline == NOW + ASK_AGAIN_S
    for times in (1, 2, 3):
        assert site.tick(NOW + times * ASK_AGAIN_S) == []
        assert site.entity.next_deadline == NOW + (times + 1) * ASK_AGAIN_S


@pytest.mark.parametrize(("life_s", "left_s"), [(5 * 3_600, TOPIC_LEFT_S), (50, 5), (20, 2)])
def test_before_its_topic_ends_there_is_another(life_s: int, left_s: float) -> None:
    """Trackers ask for the next one when it ends; a tenth of a short life is enough."""
    ends = replace(advertised(), not_after_ms=NOW_MS + life_s * 1000).signed(NODE)
    site = LoneEntity(Wishes(ends.discoverers, secured=True), ends)
    site.connect()
    site.words(site.registered())
    due = NOW + life_s - left_s
    assert site.entity._ask_at == due
    silent, asked = site.tick(due)[:2]
    assert site.words([silent]) == [(Word.SILENT, b"")]
    assert isinstance(asked, Say)
    assert asked.topic == CREATION_TOPIC
    assert (site.entity.stage, site.entity.next_deadline) == (Stage.WITHOUT_TOPIC, due + ASK_AGAIN_S)
    early = LoneEntity(advertisement=ends)
    (_, said) = early.connect(due - 0.001)
    assert isinstance(said, Say)
    assert said.topic == REGISTRATION_TOPIC, "it still serves"


def test_who_signs_its_words_seals_its_secrets_all_the_same() -> None:
    site = LoneEntity(Wishes(advertised().discoverers, secured=True, signed=True), advertised())
    site.connect()
    effects = site.registered()
    site.entity.set_state(TraceKind.READY)
    effects += site.entity.report_load({"cpu": 1})
    effects += site.hears(Word.PING, b"1" * 16)
    said = [each.payload for each in effects if isinstance(each, Say)]
    assert [payload[2] for payload in said] == [0, 0, 1, 1]
    site = traced()
    (load,) = site.entity.report_load({})
    assert isinstance(load, Say)
    assert load.payload[2] == 0, "sealed unless it wishes otherwise"


def test_no_topic_shows() -> None:
    assert "secret" not in repr((Told("secret", b"secret"), Listen("secret"), Leave("secret")))


@pytest.mark.parametrize(("every_ms", "every_s"), [(500, 0.5), (10, ALIVE_LEAST_S)])
def test_who_is_asked_to_says_unasked_that_it_lives_but_not_at_any_pace(every_ms: int, every_s: float) -> None:
    site = traced()
    usual = site.entity.next_deadline
    ping = (7).to_bytes(8) + NOW_MS.to_bytes(8) + every_ms.to_bytes(4)
    assert site.words(site.hears(Word.PING, ping)) == [(Word.ANSWER, ping)]
    assert site.entity.next_deadline == pytest.approx(NOW + every_s, rel=0, abs=0.001)
    assert site.tick(NOW + every_s - 0.001) == []
    for times in (1, 2):
        due = site.entity.next_deadline or 0
        (alive,) = site.tick(due)
        assert isinstance(alive, Say)
        assert alive.qos == 0
        ((word, body),) = site.words([alive])
        assert word is Word.ALIVE
        assert abs(int.from_bytes(body) - NOW_MS - times * every_s * 1000) <= 1
    site.hears(Word.PING, ping[:16])
    assert site.entity.next_deadline == usual, "it is asked for no more"
    assert site.hears(Word.PING, ping[:19]) == [Count("traces_refused", 1, "BadFrame")]


def test_stages_are_said_in_these_words() -> None:
    assert [stage.value for stage in Stage] == ["without topic", "unregistered", "traced"]


def test_without_a_wall_it_has_one_of_its_own() -> None:
    entity = TracedEntity(
        PUMP, certified(PUMP, "pump-7"), {}, AUTHORITY.public_bytes, random.Random(1).randbytes,
        advertisement=advertised(),
    )  # fmt: skip
    (_, said) = entity.handle(BrokerConnected(), NOW)
    assert isinstance(said, Say)
    assert Registration.decode(said.payload).time_ms == NOW_MS


def test_where_nothing_is_due_a_tick_does_nothing() -> None:
    site = traced()
    site.entity.silent()
    assert site.tick(NOW + 1_000) == []
    site = traced()
    site.hears(Word.PING, (7).to_bytes(8) + NOW_MS.to_bytes(8) + (500).to_bytes(4))
    site.connect(NOW + 0.1)
    assert site.entity.next_deadline == NOW + 0.1 + ASK_AGAIN_S, "who lost its broker does not say that it lives"


def test_what_is_as_long_as_a_time_is_none_unless_it_is_said_to_be() -> None:
    site = traced()
    assert site.hears(Word.PING, bytes(8)) == [Count("traces_refused", 1, "BadFrame")]
    assert site.entity.clock_off_s is None


def test_before_there_is_a_session_a_clock_that_is_set_makes_no_token() -> None:
    site = LoneEntity(advertisement=advertised())
    site.connect()
    site.wall.offset_s = 5.0
    assert site.hears(Word.PING, bytes(16)) == []


def test_a_clock_that_is_far_off_and_stays_so_changes_nothing() -> None:
    broker = Broker()
    broker.wall.offset_s = 3_600.0
    first = broker.token_at(NOW - 3_600)
    assert broker.token_at(NOW - 3_590) == first


def test_who_is_told_its_topic_registers_with_it_and_asks_as_usual_when_it_may() -> None:
    site = LoneEntity(advertisement=advertised())
    site.entity.asks = False
    assert [each.topic for each in site.connect()[1:] if isinstance(each, Say)] == [REGISTRATION_TOPIC]
    site = LoneEntity()
    site.entity.asks = False
    site.connect()
    site.entity.asks = True
    assert len(site.tick(NOW + ASK_AGAIN_S)) == 1
    assert site.entity.next_deadline == NOW + 2 * ASK_AGAIN_S


def test_renounced_without_a_word_it_is_silent_without_one() -> None:
    site = traced()
    silent, _ = site.entity.renounce(NOW)
    assert site.words([silent]) == [(Word.SILENT, b"")]
