"""An entity with several witnesses: one trace topic asked for at one of them, its own word said to all."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from bridge.base import Wall
from bridge.traces.kinds import (
    CREATION_TOPIC,
    REGISTRATION_TOPIC,
    TraceKind,
    answers_to,
    body_of,
    fields_of,
    own_word,
    relayed_from,
    relayed_to,
    state_of,
    to_broker,
)
from bridge.traces.tracer import Say
from bridge.tracking.discovery import Asked, DiscoveryNode
from bridge.tracking.entity import TOKEN_LIFE_S, BrokerConnected, KeepEntity, Leave, Listen, Stage, Told, Wishes
from bridge.tracking.witnessed import WitnessedEntity
from keys.delegation import WITNESSES_MAX, Advertisement, Seat, Token
from keys.errors import OurFault
from keys.frames import Reader
from keys.ownword import OwnWord
from keys.resumption import KNOCK, Knock, unknown
from keys.tracesession import Registration, TraceSession, Word, registered
from tests.bridge.test_witnesses import BAD_NEWS, K, changes
from tests.bridge.tracebus import NOW, identity
from tests.bridge.witnessbus import WitnessBus
from tests.keys.test_delegation import AUTHORITY, certified

PUMP, NODE = identity("pump"), identity("node-1")
NODES = {"node-1": NODE.public_bytes}
NOW_MS = int(NOW * 1000)
KNOWN = Advertisement(
    b"T" * 16, "Availability/Traces/pump", certified(PUMP, "pump"), ("desk*",), NOW_MS, NOW_MS + 3_600_000, "node-1"
).signed(NODE)


def entity(n: int = 3, known: Advertisement | None = None, wall: Wall | None = None) -> WitnessedEntity:
    owner, draw = certified(PUMP, "pump"), random.Random(1).randbytes
    return WitnessedEntity(PUMP, owner, NODES, AUTHORITY.public_bytes, draw, None, known, n, wall)


def asked_at(effects: list[tuple[int, object]]) -> list[int]:
    return [witness for witness, effect in effects if isinstance(effect, Say) and effect.topic == CREATION_TOPIC]


Effects = list[tuple[int, object]]


class Broker:
    """One witness, at the other end of its session with an entity."""

    def __init__(self, of: WitnessedEntity, witness: int) -> None:
        self.of, self.witness, self.lives = of, witness, 0
        self.session = TraceSession(bytes(16), bytes(32), 1)

    def register(self, now: float = NOW) -> Effects:
        """The connection to it stands, and it answers the registration."""
        effects: Effects = list(self.of.handle(BrokerConnected(), self.witness, now))
        for _, each in [*effects]:
            if isinstance(each, Say) and each.payload.startswith(KNOCK):  # it knows nothing of before
                answer = unknown(Knock.decode(each.payload).session)
                effects += self.of.handle(Told(answers_to("pump"), answer), self.witness, now)
        return effects + self.answer(effects, now)

    def answer(self, asked: Iterable[tuple[int, object]], now: float = NOW) -> Effects:
        (say,) = [
            each for witness, each in asked
            if witness == self.witness and isinstance(each, Say) and each.topic == REGISTRATION_TOPIC
        ]  # fmt: skip
        request = Registration.decode(say.payload)
        self.known = Advertisement.decode(request.advertisement)
        self.lives += 1
        session, key = bytes([self.lives, self.witness]) * 8, b"k" * 32
        self.session = TraceSession(session, key, 1, PUMP.public_bytes)
        answer = registered(request.request, session, key, self.known, b"r" * 32)
        return list(self.of.handle(Told(answers_to("pump"), answer), self.witness, now))

    def heard(self, effects: Iterable[tuple[int, object]]) -> list[tuple[Word, bytes]]:
        at = to_broker(self.known.topic, self.session.session)
        said = [each for witness, each in effects if witness == self.witness and isinstance(each, Say)]
        return [self.session.hear(each.payload) for each in said if each.topic == at]

    @property
    def relayed_to(self) -> str:
        return relayed_to("pump", self.known.topic, self.session.session)


def registered_at(of: WitnessedEntity, *witnesses: int, now: float = NOW) -> list[Broker]:
    brokers = [Broker(of, witness) for witness in witnesses]
    for broker in brokers:
        broker.register(now)
    return brokers


def own_of(kind: Word, body: bytes) -> OwnWord:
    return own_word(state_of(body)[1] if kind is Word.STATE else fields_of(body))


def test_as_many_witnesses_as_the_bound_may_be_named() -> None:
    for n in (1, 3, WITNESSES_MAX):
        assert len(entity(n).stages) == n
    one = WitnessedEntity(PUMP, certified(PUMP, "pump"), NODES, AUTHORITY.public_bytes, random.Random(1).randbytes)
    assert len(one.stages) == 1


def test_tokens_name_their_witness_and_since_when_by_the_wall_clock() -> None:
    one = entity(known=KNOWN, wall=Wall(NOW))
    for witness in range(3):
        broker = Broker(one, witness)
        ((word, body),) = broker.heard(broker.register(now=0.25 * witness))
        token = Token.decode(Reader(body).sized())
        assert (word, token.seat) == (Word.TOKEN, Seat(witness, 3, NOW_MS))
        assert token.not_before_ms == NOW_MS + 250 * witness
    alone = Broker(entity(1, KNOWN), 0)
    ((_, body),) = alone.heard(alone.register())
    assert Token.decode(Reader(body).sized()).seat is None


def test_it_is_as_far_as_a_majority_of_its_witnesses_is() -> None:
    one = entity(known=KNOWN)
    assert one.stage is Stage.UNREGISTERED
    for witness, stage in ((2, Stage.UNREGISTERED), (0, Stage.TRACED), (1, Stage.TRACED)):
        registered_at(one, witness)
        assert one.stage is stage
    fresh = entity()
    assert fresh.stage is Stage.WITHOUT_TOPIC
    five = entity(5, known=KNOWN)
    registered_at(five, 0, 1)
    assert five.stage is Stage.UNREGISTERED
    registered_at(five, 4)
    assert five.stage is Stage.TRACED


def test_what_it_says_of_itself_is_signed_once_numbered_and_said_to_all() -> None:
    one = entity(known=KNOWN)
    brokers = registered_at(one, 0, 1, 2)
    said = [
        (one.set_state(K.READY, NOW + 1), K.READY, {"state": "READY"}, 1),
        (one.report_load({"cpu": 0.5}, NOW + 1), K.LOAD_INFORMATION, {"cpu": 0.5}, 2),
        (one.set_state(K.SHUTDOWN, NOW + 1), K.SHUTDOWN, {"state": "SHUTDOWN"}, 3),
        (one.silent(NOW + 2), K.REVERTING_TO_SILENT_MODE, {}, 4),
    ]
    for effects, kind, fields, number in said:
        words = [own_of(*heard) for broker in brokers for heard in broker.heard(effects)]
        assert len(words) == 3
        for word in words:
            word.verify(PUMP.public_bytes)
            assert word == words[0]
        assert (words[0].since_ms, words[0].number, words[0].kind) == (NOW_MS, number, kind)
        assert words[0].time_ms == NOW_MS + (2_000 if number == 4 else 1_000)
        assert fields_of(words[0].body) == fields
    assert one.stages == (Stage.UNREGISTERED,) * 3


def test_with_one_witness_nothing_is_signed_beside_its_session() -> None:
    one = entity(1, KNOWN)
    (broker,) = registered_at(one, 0)
    assert broker.heard(one.set_state(K.READY, NOW)) == [(Word.STATE, bytes([K.READY]))]
    assert broker.heard(one.report_load({"cpu": 0.5}, NOW)) == [(Word.LOAD, body_of({"cpu": 0.5}))]
    assert broker.heard(one.silent(NOW)) == [(Word.SILENT, b"")]


def test_when_its_clock_went_back_it_names_its_witnesses_anew_and_says_its_state_again() -> None:
    one = entity(known=KNOWN)
    (broker, *_) = registered_at(one, 0, 1, 2)
    assert broker.heard(one.tick(NOW - 5)) == [], "it said nothing of itself so far"
    one.set_state(K.READY, NOW)
    ((kind, body),) = broker.heard(one.tick(NOW - 10))
    word = own_of(kind, body)
    assert (word.since_ms, word.number, word.kind, word.time_ms) == (NOW_MS - 10_000, 1, K.READY, NOW_MS - 10_000)
    assert broker.heard(one.tick(NOW - 10)) == [], "it is named now"
    ((kind, body),) = broker.heard(one.report_load({}, NOW - 10))
    assert own_of(kind, body).number == 2
    token = next(body for kind, body in broker.heard(broker.register(NOW - 9)) if kind is Word.TOKEN)
    assert Token.decode(Reader(token).sized()).seat == Seat(0, 3, NOW_MS - 10_000)


def test_witnesses_may_be_named_at_nought() -> None:
    one = entity(known=KNOWN, wall=Wall(-NOW))
    one.tick(NOW)
    words = [one._signed_word(K.READY, {}, NOW + 1) for _ in range(2)]
    assert [(word.since_ms, word.number) for word in words] == [(0, 1), (0, 2)]


def test_what_a_witness_asks_through_another_is_answered_there() -> None:
    one = entity(known=KNOWN)
    asking, other = registered_at(one, 0, 1)
    aside = asking.session.aside()
    effects = one.handle(Told(asking.relayed_to, aside.say_word(Word.PING, b"12345678" * 2)), other.witness, NOW)
    ((witness, say),) = effects
    assert witness == other.witness
    assert isinstance(say, Say)
    assert say.topic == relayed_from("pump", KNOWN.topic, asking.session.session)
    assert aside.hear(say.payload) == (Word.ANSWER, b"12345678" * 2)
    directly = [each for _, each in one.handle(Told("elsewhere", b"x"), 0, NOW) if isinstance(each, Say)]
    assert directly == []


def test_it_listens_at_all_others_for_what_each_witness_asks_through_them() -> None:
    one = entity(known=KNOWN)
    first, second, third = (Broker(one, witness) for witness in (1, 0, 2))
    assert heard_of(first.register()) == {}, "there is nobody else"
    assert heard_of(second.register()) == {0: [Listen(first.relayed_to)], 1: [Listen(second.relayed_to)]}
    assert heard_of(third.register()) == {
        2: [Listen(second.relayed_to), Listen(first.relayed_to)],
        0: [Listen(third.relayed_to)], 1: [Listen(third.relayed_to)],
    }  # fmt: skip
    former = second.relayed_to
    again = heard_of(second.register(NOW + 1))
    moved = [Leave(former), Listen(second.relayed_to)]
    assert (again[1], again[2]) == (moved, moved)
    assert again[0] == [Listen(former), Listen(first.relayed_to), Listen(third.relayed_to)]
    assert former != second.relayed_to
    assert heard_of(one.set_state(K.READY, NOW + 1)) == {}
    assert heard_of(one.handle(Told("elsewhere", b"x"), 0, NOW + 1)) == {}, "the same session"


def heard_of(effects: Iterable[tuple[int, object]]) -> dict[int, list[object]]:
    """Where it begins and ends to listen for what other witnesses ask."""
    found: dict[int, list[object]] = {}
    for witness, each in effects:
        if isinstance(each, Listen | Leave) and each.topic.endswith("/Relayed"):
            found.setdefault(witness, []).append(each)
    return found


def test_the_topic_that_one_witness_brought_is_taken_to_all_that_are_there() -> None:
    one = entity()
    node = DiscoveryNode("node-1", NODE, NODES, AUTHORITY.public_bytes, random.Random(2).randbytes)
    ((_, asked),) = [pair for pair in one.handle(BrokerConnected(), 0, NOW) if isinstance(pair[1], Say)]
    assert isinstance(asked, Say)
    assert asked_at(one.handle(BrokerConnected(), 1, NOW)) == []
    (answer, *_) = node.handle(Asked("pump", asked.payload), NOW)
    assert isinstance(answer, Say)
    effects = one.handle(Told(answer.topic, answer.payload), 0, NOW)
    assert [witness for witness, each in effects if isinstance(each, KeepEntity)] == [0]
    assert [w for w, each in effects if isinstance(each, Say) and each.topic == REGISTRATION_TOPIC] == [0, 1]
    assert one.stages == (Stage.UNREGISTERED,) * 3
    brokers = [Broker(one, witness) for witness in (0, 1)]
    for broker in brokers:
        told = broker.answer(effects)
        assert [w for w, each in told if isinstance(each, Say) and each.topic == REGISTRATION_TOPIC] == [], "no news"
    assert one.stages == (Stage.TRACED, Stage.TRACED, Stage.UNREGISTERED)


def test_who_does_not_answer_is_followed_by_the_next_round_and_round() -> None:
    one = entity()
    asked = [asked_at(one.handle(BrokerConnected(), witness, NOW)) for witness in range(3)]
    assert asked == [[0], [], []]
    rounds: list[int] = []
    while len(rounds) < 7:
        due = one.next_deadline
        assert due is not None
        assert one.tick(due - 0.001) == [], "not before its time"
        rounds += asked_at(one.tick(due))
    assert rounds == [1, 2, 0, 1, 2, 0, 1]


def test_only_who_was_asked_for_a_topic_is_passed_over_for_not_answering() -> None:
    one = entity(known=KNOWN)
    for witness in range(3):
        one.handle(BrokerConnected(), witness, NOW)
    for _ in range(5):
        due = one.next_deadline
        assert due is not None
        assert asked_at(one.tick(due)) == []
    assert asked_at(one.renounce(NOW + 60)) == [0], "registrations that nobody answered are no reason"


def test_the_next_deadline_is_that_of_the_first_witness() -> None:
    one = entity(known=KNOWN)
    (broker,) = registered_at(one, 0)
    assert broker.session
    renewed_at = one.next_deadline
    one.handle(BrokerConnected(), 1, NOW)
    assert renewed_at is not None
    assert one.next_deadline is not None
    assert one.next_deadline < renewed_at


# --------------------------------------------------------------------------------------------------- on a bus


@pytest.mark.long
def test_tokens_of_all_witnesses_are_renewed_and_a_topic_that_ends_is_followed_by_one_new_one() -> None:
    bus = WitnessBus(3, wishes=Wishes(("desk*",), life_s=400))
    bus.tracker()
    bus.run(TOKEN_LIFE_S + 100)
    late = [at for at, seen in bus.observed["desk"] if seen.kind is K.ALLS_WELL and at > NOW + 650]
    assert len(late) >= 20
    assert not BAD_NEWS & set(bus.kinds())
    assert [len(tracer) for tracer in bus.tracers] == [1, 1, 1]
    assert not bus.counted.get("traces_expired")


@pytest.mark.parametrize("mute", range(3))
def test_a_broker_that_gives_no_topic_is_passed_over(mute: int) -> None:
    bus = WitnessBus(3)
    bus.tracker()
    bus.dead.add(mute)
    bus.run(60)
    assert bus.entity.stage is Stage.TRACED
    assert K.ALLS_WELL in bus.kinds()


@pytest.mark.long
def test_going_silent_is_its_own_word_and_a_restart_brings_it_back() -> None:
    bus = WitnessBus(3, bad=(1,))
    bus.tracker()
    bus.run(10)
    assert K.REVERTING_TO_SILENT_MODE not in bus.kinds(), "a witness alone says nothing in its name"
    bus.entity_does(bus.entity.silent(bus.now))
    bus.run(0.1)
    bus.alive = False
    bus.run(20)
    assert bus.kinds().count(K.REVERTING_TO_SILENT_MODE) == 1
    assert bus.kinds()[-1] is K.REVERTING_TO_SILENT_MODE
    bus.be_born()
    bus.run(5)
    assert bus.kinds()[-1] in (K.ALLS_WELL, K.NETWORK_METRICS)


@pytest.mark.parametrize("witnesses", [0, 2, 4, 14, 16, 17, -1])
def test_numbers_of_witnesses_without_a_majority_are_refused(witnesses: int) -> None:
    with pytest.raises(OurFault, match="majority"):
        WitnessBus(witnesses)


def test_no_word_of_the_entitys_is_of_later_than_now() -> None:
    """A tracker's history is cut by such times: one entity's must not cut away everybody's."""
    bus = WitnessBus(3)
    bus.tracker()
    bus.run(5)
    bus.entity_does(bus.entity.set_state(K.READY, bus.now + 1e9))
    bus.run(1)
    assert K.READY not in bus.kinds()
    bus.entity_does(bus.entity.set_state(K.RECOVERING, bus.now))
    bus.run(1)
    assert K.RECOVERING in bus.kinds()


def test_with_one_witness_every_trace_is_observed_as_ever() -> None:
    bus = WitnessBus(1)
    bus.tracker()
    bus.run(20)
    bus.entity_does(bus.entity.report_load({"cpu": 0.25, "word": "of the program's"}, bus.now))
    bus.run(1)
    bus.die()
    bus.run(20)
    observed = [dict(seen.fields) for _, seen in bus.observed["desk"] if seen.kind is K.LOAD_INFORMATION]
    assert observed == [{"cpu": 0.25, "word": "of the program's"}]
    assert changes(bus)[-2:] == [K.FAILURE_SUSPICION, K.FAILED]
    assert not any("witnesses" in seen.fields for _, seen in bus.observed["desk"])


def test_a_trace_topic_is_asked_for_at_the_first_witness_that_is_there() -> None:
    one = entity()
    assert asked_at(one.handle(BrokerConnected(), 2, NOW)) == [2]
    assert asked_at(one.handle(BrokerConnected(), 0, NOW)) == [], "somebody is asked already"
    assert one.stages == (Stage.WITHOUT_TOPIC,) * 3
    assert one.stage is Stage.WITHOUT_TOPIC


def test_one_that_does_not_answer_is_followed_by_the_next_that_was_met() -> None:
    one = entity()
    for witness in (0, 2):
        one.handle(BrokerConnected(), witness, NOW)
    assert one.next_deadline is not None
    first = asked_at(one.tick(one.next_deadline + 10))
    assert 2 in first, "witness 1 was never connected"
    alone = entity()
    alone.handle(BrokerConnected(), 1, NOW)
    assert alone.next_deadline is not None
    assert asked_at(alone.tick(alone.next_deadline)) == [1], "there is nobody else, who is asked once"


def test_nothing_is_due_before_a_witness_is_there() -> None:
    assert entity().next_deadline is None
    assert entity().tick(NOW) == []


def test_only_states_are_states() -> None:
    with pytest.raises(ValueError, match="not a state"):
        entity().set_state(TraceKind.FAILED, NOW)


def test_one_whose_topic_ended_asks_for_another_and_the_rest_go_on() -> None:
    one = entity(known=KNOWN)
    registered_at(one, 0, 1, 2)
    one.handle(BrokerConnected(), 0, NOW + 3_600)
    assert one.stages == (Stage.WITHOUT_TOPIC, Stage.TRACED, Stage.TRACED)


def test_who_goes_silent_with_a_clock_that_went_back_says_so_by_that_clock() -> None:
    one = entity(known=KNOWN)
    (broker, *_) = registered_at(one, 0, 1, 2)
    one.report_load({}, NOW)
    ((kind, body),) = broker.heard(one.silent(NOW - 10))
    word = own_of(kind, body)
    assert (word.since_ms, word.number, word.time_ms) == (NOW_MS - 10_000, 1, NOW_MS - 10_000)
