"""Entities and trackers on one bus: from the first wish to FAILED and back, and what forgers achieve."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from bridge.base import Wall
from bridge.contract.machine import Count, Tick
from bridge.traces.kinds import (
    DISCOVERY_TOPIC,
    EVERYTHING,
    GAUGE_EVERY_S,
    Interest,
    TraceKind,
    WantedTraces,
    answer_topic,
    answers_to,
    body_of,
    gauge_topic,
    interest_of,
    key_topic,
    own_fields,
    trace_topic,
)
from bridge.traces.presets import LAN
from bridge.traces.telling import Say
from bridge.traces.tracer import Interested
from bridge.tracking import tracker as tracking
from bridge.tracking.discovery import Request
from bridge.tracking.entity import TOKEN_LIFE_S, BrokerConnected, Disconnected, Leave, Listen, Stage, Told, Wishes
from bridge.tracking.following import ANSWERS_MAX, NUMBERS_MAX, UNOPENED_MAX
from bridge.tracking.patterns import names_for
from bridge.tracking.tracker import (
    FOUND_S,
    OFFLINE_S,
    TRACE_FRESH_MS,
    WISH_S,
    Follow,
    Observed,
    Tracker,
    TrackingEffect,
    TrackingEvent,
    Unfollow,
)
from bridge.tracking.witnessing import SILENT_S, Level
from keys.delegation import SKEW_MS, Advertisement, Delegated, Seat, Token, Trace
from keys.frames import Kind, opening
from keys.identity import Identity
from keys.ownword import OwnWord
from keys.sealedbox import seal_box
from keys.tracesession import Registration
from tests.bridge.tracebus import NODES, NOW, OTHER_NODE, Bus, identity
from tests.bridge.traces.detection import detection_s
from tests.keys.test_delegation import AUTHORITY, HOLDER, HOUR_MS, NODE, PUMP, SPY, certified

DESK = identity("desk")
NOW_MS = int(NOW * 1000)
TOPIC, OTHER_TOPIC = b"T" * 16, b"U" * 16
K = TraceKind
NODE_KEYS = {"node-1": NODE, "node-2": OTHER_NODE}


def known(topic: bytes = TOPIC, node: str = "node-1", created_ms: int = NOW_MS, life_ms: int = HOUR_MS,
          name: str = "pump-7", owner: Identity = PUMP, owner_name: str = "pump-7") -> Advertisement:  # fmt: skip
    bare = Advertisement(
        topic, f"Availability/Traces/{name}", certified(owner, owner_name), ("desk*",), created_ms,
        created_ms + life_ms, node,
    )  # fmt: skip
    return bare.signed(NODE_KEYS[node])


def claimed(advertisement: Advertisement, time_ms: int = NOW_MS, by: Identity = PUMP) -> Registration:
    return Registration(advertisement.encode(), b"r" * 16, time_ms).signed(by)


class Desk:
    """A tracker, and what nodes and brokers tell it; time stands still until the test says otherwise."""

    def __init__(self, follows: Interest | None = EVERYTHING, found: Advertisement | None = None) -> None:
        self.tracker = Tracker(DESK, certified(DESK, "desk"), NODES, AUTHORITY.public_bytes, random.Random(1).randbytes)
        self.now, self.number, self.asked = NOW, 0, b""
        self.handle(BrokerConnected())
        if follows is not None:
            self.handle(Follow("pump-7", follows))
        if found is not None:
            self.answer(found)

    def handle(self, event: TrackingEvent) -> list[TrackingEffect]:
        effects = self.tracker.handle(event, self.now)
        for query in queries(effects):
            self.asked = query.request
        return effects

    def tick(self, after_s: float = 0.0) -> list[TrackingEffect]:
        self.now += after_s
        return self.handle(Tick())

    def next(self) -> tuple[float, list[TrackingEffect]]:
        """When something happens next, and what; it may look before."""
        while True:
            due = self.tracker.next_deadline
            assert due is not None
            effects = self.tick(due - self.now)
            if effects:
                return due, effects

    def next_query(self) -> tuple[float, list[TrackingEffect]]:
        """When it asks for topics next."""
        while True:
            due, effects = self.next()
            if queries(effects):
                return due, effects

    def answer(
        self, found: Advertisement, claim: Registration | None = None, request: bytes | None = None
    ) -> list[TrackingEffect]:
        """A discovery node's answer."""
        head = opening(Kind.DISCOVERY, 2 if claim is None else 4)
        inside = (self.asked if request is None else request) + (found if claim is None else claim).encode()
        box = seal_box(DESK.agreement_bytes, inside, head, b"b" * 32)
        return self.handle(Told(answers_to("desk"), head + box))

    def trace(
        self, kind: int, fields: dict[str, object] | None = None, *, at: Advertisement | None = None,
        number: int | None = None, time_ms: int | None = None, holder: Identity = HOLDER, life_ms: int = 2 * HOUR_MS,
        seat: Seat | None = None, key: bytes = b"", body: bytes | None = None,
    ) -> Trace:  # fmt: skip
        self.number += 1
        at = at or known()
        token = Token(
            at.topic, holder.public_bytes, Delegated.PUBLISH, NOW_MS - HOUR_MS, NOW_MS - HOUR_MS + life_ms, seat
        )
        bare = Trace(
            token.signed(PUMP), kind, self.number if number is None else number,
            int(self.now * 1000) if time_ms is None else time_ms, body_of(fields or {}) if body is None else body,
        )  # fmt: skip
        return (bare.sealed_under(key, bytes(12)) if key else bare).signed(holder)

    def hears(self, trace: Trace, topic: str | None = None) -> list[TrackingEffect]:
        at, kind = trace.token.topic, trace.kind
        if topic is None:
            topic = gauge_topic(at) if kind == K.GAUGE_INTEREST else trace_topic(at, interest_of(TraceKind(kind)))
        return self.handle(Told(topic, trace.encode()))

    def says(self, kind: int, fields: dict[str, object] | None = None, **how: object) -> list[TrackingEffect]:
        return self.hears(self.trace(kind, fields, **how))  # type: ignore[arg-type]


def queries(effects: Iterable[object]) -> list[Request]:
    return [Request.decode(each.payload) for each in effects if isinstance(each, Say) and each.topic == DISCOVERY_TOPIC]


def wishes(effects: Iterable[object], topic: bytes = TOPIC) -> list[WantedTraces]:
    at = answer_topic(topic)
    return [WantedTraces.decode(each.payload) for each in effects if isinstance(each, Say) and each.topic == at]


def listened(effects: Iterable[object]) -> list[str]:
    return [each.topic for each in effects if isinstance(each, Listen)]


def left(effects: Iterable[object]) -> list[str]:
    return [each.topic for each in effects if isinstance(each, Leave)]


def topics_of(topic: bytes, interest: Interest = EVERYTHING) -> list[str]:
    traces = [trace_topic(topic, each) for each in Interest if each in interest]
    return [*traces, gauge_topic(topic), key_topic("desk", topic)]


def refused(why: str) -> list[Count]:
    return [Count("traces_refused", 1, why)]


@pytest.fixture
def desk() -> Desk:
    """It has found an entity with one witness, of which it heard nothing yet."""
    return Desk(found=known())


# ---------------------------------------------------------------------------------------------------- finding


def test_what_is_followed_before_there_is_a_connection_is_asked_for_behind_it() -> None:
    tracker = Tracker(
        DESK, certified(DESK, "desk"), NODES, AUTHORITY.public_bytes, random.Random(1).randbytes, Wall(NOW)
    )  # fmt: skip
    assert tracker.next_deadline is None
    assert tracker.handle(Follow("pump-7"), 1.0) == []
    assert tracker.handle(Follow("press*"), 1.0) == []
    assert tracker.next_deadline is None
    assert tracker.handle(Tick(), 2.0) == []
    listen, *asked = tracker.handle(BrokerConnected(), 3.0)
    assert listen == Listen(answers_to("desk"))
    pattern, query = queries(asked)
    assert (pattern.descriptor, query.descriptor) == ("Availability/Traces/press*", "Availability/Traces/pump-7")
    assert (query.time_ms, query.life_s, query.certificate) == (NOW_MS + 3_000, 0, certified(DESK, "desk"))
    query.verify(AUTHORITY.public_bytes, NOW_MS)
    assert query.request != pattern.request
    assert tracker.handle(Tick(), 3.0) == []
    assert tracker.next_deadline == 3.0 + 5.0


def test_who_is_not_found_is_asked_for_ever_more_rarely_and_anew_behind_a_connection() -> None:
    desk = Desk()
    pauses = []
    for _ in range(6):
        due = desk.tracker.next_deadline
        assert due is not None
        pauses.append(due - desk.now)
        former = desk.asked
        assert queries(desk.tick(pauses[-1] - 0.001)) == []
        assert len(queries(desk.tick(0.001))) == 1
        assert desk.answer(known(), request=former) == [], "the answer to a question of before"
    assert pauses == pytest.approx([5, 10, 20, 40, 60, 60], abs=1e-3)
    assert len(desk.tracker._requests) == 1
    assert len(queries(desk.handle(BrokerConnected()))) == 1
    assert desk.tracker.next_deadline == desk.now + 5


def test_a_topic_that_is_found_is_listened_to_and_told_what_is_wanted() -> None:
    for interest in (EVERYTHING, Interest.CHANGES | Interest.LOAD):
        desk = Desk(interest)
        *listens, said = desk.answer(known())
        assert [each.topic for each in listens if isinstance(each, Listen)] == topics_of(TOPIC, interest)
        assert len(listens) == len(topics_of(TOPIC, interest))
        (wish,) = wishes([said])
        assert (wish.tracker, wish.interest, wish.anew, wish.time_ms) == ("desk", interest, True, NOW_MS)
        assert wish.verify(TOPIC, AUTHORITY.public_bytes, NOW_MS) == certified(DESK, "desk")
        at, effects = desk.next()
        assert (at, [wish.anew for wish in wishes(effects)]) == (NOW + 5, [True]), "said again where nothing is heard"
        assert desk.next_query()[0] == NOW + 60, "as long as nobody speaks there"
    assert Desk(found=known(life_ms=20_000)).next_query()[0] == NOW + 20


ANSWERS = {
    "of a node's impostor": (replace(known(), node="node-2"), None, "BadSignature"),
    "of an unknown node": (replace(known(), node="node-9").signed(NODE), None, "BadContent"),
    "of a topic that ended": (known(created_ms=NOW_MS - 2 * HOUR_MS), None, "Expired"),
    "of another entity": (known(name="pump-8", owner_name="pump-8"), None, "NotAuthorised"),
    "of something that the entity names": (known(name="pump-7:arm"), None, "NotAuthorised"),
    "of an entity that is not its own": (known(owner=SPY, owner_name="spy"), None, "NotAuthorised"),
    "claimed by another": (known(), claimed(known(), by=SPY), "BadSignature"),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_answers_that_do_not_hold_name_no_topic(what: str) -> None:
    found, claim, error = ANSWERS[what]
    desk = Desk()
    assert desk.answer(found, claim) == refused(error)
    assert desk.answer(known(), request=b"?" * 16) == []
    assert desk.tracker._topics == {}


def test_each_node_is_believed_its_latest_topic_until_one_of_them_speaks(desk: Desk) -> None:
    for same in (known(OTHER_TOPIC), known(OTHER_TOPIC, created_ms=NOW_MS - 1)):
        assert desk.answer(same) == [], "another one was faster"
    effects = desk.answer(known(OTHER_TOPIC, "node-2", NOW_MS - 5))
    assert (listened(effects), left(effects)) == (topics_of(OTHER_TOPIC), [])
    third = b"V" * 16
    effects = desk.answer(known(third, created_ms=NOW_MS + 1))
    assert (left(effects), listened(effects)) == (topics_of(TOPIC), topics_of(third))
    effects = desk.says(K.ALLS_WELL, at=known(OTHER_TOPIC, "node-2"))
    assert left(effects) == topics_of(third)
    assert isinstance(effects[0], Observed)
    assert desk.answer(known(TOPIC, created_ms=NOW_MS + 9)) == [], "it is proven"
    assert desk.tracker._requests == {}


def test_two_that_name_the_same_topic_keep_it_until_both_name_another(desk: Desk) -> None:
    assert left(desk.answer(known(node="node-2"))) == []
    assert left(desk.answer(known(OTHER_TOPIC, created_ms=NOW_MS + 1))) == [], "the other node names it still"
    assert left(desk.answer(known(b"V" * 16, "node-2", NOW_MS + 1))) == topics_of(TOPIC)


def test_of_what_the_entity_claims_the_latest_counts_however_old(desk: Desk) -> None:
    old_ms = NOW_MS - 400_000
    assert listened(desk.answer(known(OTHER_TOPIC), claimed(known(OTHER_TOPIC), old_ms))) == topics_of(OTHER_TOPIC)
    for before_ms in (old_ms, old_ms - 1):
        assert desk.answer(known(b"V" * 16), claimed(known(b"V" * 16), before_ms)) == []
    effects = desk.answer(known(b"V" * 16), claimed(known(b"V" * 16), old_ms + 1))
    assert (left(effects), listened(effects)) == (topics_of(OTHER_TOPIC), topics_of(b"V" * 16))
    assert listened(desk.answer(known(OTHER_TOPIC, created_ms=NOW_MS + 1))) == topics_of(OTHER_TOPIC), "a node's word"
    assert desk.answer(known(b"V" * 16), claimed(known(b"V" * 16), old_ms + 1)) == []


def test_of_several_witnesses_a_majority_proves_a_topic() -> None:
    desk = Desk(found=known())
    desk.answer(known(OTHER_TOPIC, "node-2"))
    liar = known(OTHER_TOPIC, "node-2")
    assert left(desk.says(K.ALLS_WELL, seat=Seat(0, 5, NOW_MS - HOUR_MS))) == []
    for witness in (3, 4):
        assert left(desk.says(K.ALLS_WELL, at=liar, seat=Seat(witness, 5, NOW_MS - HOUR_MS))) == []
    assert left(desk.says(K.ALLS_WELL, seat=Seat(0, 5, NOW_MS - HOUR_MS), number=50)) == [], "the same one"
    assert left(desk.says(K.GAUGE_INTEREST, seat=Seat(1, 5, NOW_MS - HOUR_MS))) == []
    assert left(desk.says(K.ALLS_WELL, seat=Seat(2, 5, NOW_MS - HOUR_MS))) == topics_of(OTHER_TOPIC)
    assert left(desk.says(K.ALLS_WELL, seat=Seat(3, 5, NOW_MS - HOUR_MS))) == []


def test_when_its_topic_ends_all_that_was_known_of_it_is_of_before() -> None:
    desk = Desk(found=known(life_ms=20_000))
    desk.says(K.ALLS_WELL)
    desk.says(K.FAILED, key=b"Q" * 32)
    desk.handle(Told(key_topic("desk", TOPIC), key_for(DESK, b"K" * 32)))
    at, effects = desk.next()
    assert at == NOW + 20
    assert left(effects) == topics_of(TOPIC)
    assert len(queries(effects)) == 1
    assert desk.tracker.next_deadline == desk.now + 5
    assert len(queries(desk.handle(BrokerConnected()))) == 1, "nothing is proven any more"
    new = known(OTHER_TOPIC, created_ms=NOW_MS + 20_000)
    (wish,) = wishes(desk.answer(new), OTHER_TOPIC)
    assert wish.anew
    assert desk.says(K.ALLS_WELL, at=new, number=1, time_ms=NOW_MS + 20_000) != refused("Replayed"), "a new source"
    assert desk.tracker._followed["pump-7"].proven
    (wish,) = wishes(desk.says(K.GAUGE_INTEREST, at=new, time_ms=NOW_MS + 20_000), OTHER_TOPIC)
    assert not wish.anew, "what waited for its key was of before"


def test_a_topic_that_ends_before_it_would_be_asked_for_is_asked_for_then() -> None:
    desk = Desk()
    for _ in range(6):
        desk.next_query()
    desk.answer(known(created_ms=int(desk.now * 1000), life_ms=5_000))
    ends = desk.now + 5
    assert desk.next_query()[0] == ends


def test_of_two_topics_the_one_that_ends_is_left() -> None:
    desk = Desk(found=known())
    desk.answer(known(OTHER_TOPIC, "node-2", life_ms=20_000))
    at, effects = desk.next_query()
    assert (at, left(effects)) == (NOW + 20, topics_of(OTHER_TOPIC))


def test_who_spoke_at_a_topic_that_was_taken_back_counts_for_nothing_when_it_is_named_again() -> None:
    desk = Desk(found=known())
    named = [known(OTHER_TOPIC, "node-2", created_ms=NOW_MS + at_ms) for at_ms in (1, 3)]
    desk.answer(named[0])
    for witness in (3, 4):
        desk.says(K.ALLS_WELL, at=named[0], seat=Seat(witness, 5, NOW_MS - HOUR_MS))
    assert left(desk.answer(known(b"Z" * 16, "node-2", created_ms=NOW_MS + 2))) == topics_of(OTHER_TOPIC)
    desk.answer(named[1])
    assert left(desk.says(K.ALLS_WELL, at=named[1], seat=Seat(2, 5, NOW_MS - HOUR_MS))) == [], "one, not three"


def test_a_claim_of_a_topic_that_ended_gives_way_to_one_of_before_it() -> None:
    desk = Desk()
    brief = known(life_ms=20_000)
    desk.answer(brief, claimed(brief, NOW_MS + 60))
    desk.tick(20)
    assert listened(desk.answer(known(OTHER_TOPIC), claimed(known(OTHER_TOPIC), NOW_MS))) == topics_of(OTHER_TOPIC)


def test_so_many_are_followed_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "ENTITIES_MAX", 2)
    desk = Desk()
    assert desk.handle(Follow("pump-7")) == []
    assert len(queries(desk.handle(Follow("press-1")))) == 1
    assert desk.handle(Follow("press-2")) == []
    assert desk.handle(Unfollow("press-2")) == []
    assert desk.handle(Unfollow("press-1")) == []
    assert len(queries(desk.handle(Follow("press-2")))) == 1


def test_who_is_left_is_told_and_its_answers_mean_nothing(desk: Desk) -> None:
    desk.answer(known(OTHER_TOPIC, "node-2"))
    request = desk.asked
    effects = desk.handle(Unfollow("pump-7"))
    for topic in (TOPIC, OTHER_TOPIC):
        (wish,) = wishes(effects, topic)
        assert (wish.interest, wish.anew) == (Interest(0), False)
        wish.verify(topic, AUTHORITY.public_bytes, NOW_MS)
    assert left(effects) == [*topics_of(TOPIC), *topics_of(OTHER_TOPIC)]
    assert desk.answer(known(), request=request) == []
    assert desk.says(K.ALLS_WELL) == []
    assert desk.tracker.next_deadline is None
    assert desk.tick(100) == []


def test_entities_of_a_pattern_are_followed_as_if_their_names_were_known() -> None:
    desk = Desk(None)
    (query,) = queries(desk.handle(Follow("pump*", Interest.LOAD)))
    assert desk.tracker.next_deadline == NOW + 60
    assert desk.tick() == []
    (names,) = names_for(certified(DESK, "desk"), query.request, ["pump-7", "press-1"], random.Random(3).randbytes)
    (found,) = queries(desk.handle(Told(answers_to("desk"), names)))
    assert found.descriptor == "Availability/Traces/pump-7"
    desk.asked = found.request
    (wish,) = wishes(desk.answer(known()))
    assert wish.interest == Interest.LOAD
    at, effects = desk.next_query()
    assert at == NOW + 60
    again = [query.descriptor for query in queries(effects)]
    assert again == ["Availability/Traces/pump*", "Availability/Traces/pump-7"]
    effects = desk.handle(Unfollow("pump*"))
    assert left(effects) == topics_of(TOPIC, Interest.LOAD), "who was named by nothing else is left"
    assert desk.tracker.next_deadline is None


def test_who_follows_again_wants_what_it_says_last() -> None:
    desk = Desk(Interest.CHANGES, known())
    assert len(desk.hears(desk.trace(K.ALLS_WELL), trace_topic(TOPIC, Interest.CHANGES))) == 1
    effects = desk.handle(Follow("pump-7", Interest.CHANGES | Interest.LOAD))
    assert (listened(effects), left(effects)) == ([trace_topic(TOPIC, Interest.LOAD)], [])
    (wish,) = wishes(effects)
    assert (wish.interest, wish.anew) == (Interest.CHANGES | Interest.LOAD, True), "told what holds of what is new"
    assert len(desk.says(K.LOAD_INFORMATION)) == 1
    effects = desk.handle(Follow("pump-7", Interest.CHANGES))
    assert (listened(effects), left(effects)) == ([], [trace_topic(TOPIC, Interest.LOAD)])
    (wish,) = wishes(effects)
    assert (wish.interest, wish.anew) == (Interest.CHANGES, False)
    assert desk.says(K.LOAD_INFORMATION) == [], "what is still on its way"
    assert [wish.interest for wish in wishes(desk.says(K.GAUGE_INTEREST))] == [Interest.CHANGES]
    assert desk.handle(Follow("pump-7", Interest.CHANGES)) == []


def test_a_pattern_changes_what_it_named_and_nothing_that_was_asked_for_by_name() -> None:
    desk = Desk(Interest.CHANGES, known())
    (query,) = queries(desk.handle(Follow("p*", Interest.LOAD)))
    (names,) = names_for(certified(DESK, "desk"), query.request, ["pump-7", "press-1"], random.Random(3).randbytes)
    desk.handle(Told(answers_to("desk"), names))
    interests = {name: each.interest for name, each in desk.tracker._followed.items()}
    assert interests == {"pump-7": Interest.CHANGES, "press-1": Interest.LOAD}
    desk.handle(Follow("p*", Interest.NETWORK))
    assert desk.tracker._followed["press-1"].interest == Interest.NETWORK
    assert desk.tracker._followed["pump-7"].interest == Interest.CHANGES
    desk.handle(Follow("pr*", Interest.STATES))
    desk.handle(Unfollow("p*"))
    assert {*desk.tracker._followed} == {"pump-7", "press-1"}, "another pattern means it"
    desk.handle(Unfollow("pr*"))
    assert {*desk.tracker._followed} == {"pump-7"}


# --------------------------------------------------------------------------------------------------- trouble


def test_trouble_is_said_in_a_few_words_once_there_was_time_to_find_it() -> None:
    desk = Desk(None)
    tracker = desk.tracker
    assert tracker.trouble_with("pump-7", NOW) is None, "it is not followed"
    desk.handle(Follow("pump-7"))
    assert tracker.trouble_with("pump-7", NOW + FOUND_S - 0.001) is None
    nobody = "no entity of that name, or it does not let us discover it"
    assert tracker.trouble_with("pump-7", NOW + FOUND_S) == nobody
    desk.handle(Disconnected())
    assert tracker.trouble_with("pump-7", NOW + 60) is None, "nobody can be asked"
    desk.handle(BrokerConnected())
    desk.answer(known())
    assert tracker.trouble_with("pump-7", NOW + 60) is None
    desk.says(K.ALLS_WELL, time_ms=NOW_MS - TRACE_FRESH_MS - 1_500)
    assert tracker.trouble_with("pump-7", NOW + 60) == "its broker's clock is -301.5 s from ours; set one of them"
    desk.says(K.ALLS_WELL)
    assert tracker.trouble_with("pump-7", NOW + 60) is None
    desk.says(K.ALLS_WELL, holder=identity("another"), time_ms=NOW_MS + SKEW_MS + 1)
    assert tracker.clock_off_s is not None
    assert tracker.trouble_with("pump-7", NOW + 60) is None, "it was heard"


def test_trouble_with_a_pattern_is_that_nobody_has_such_a_name() -> None:
    desk = Desk(None)
    (query,) = queries(desk.handle(Follow("pump*")))
    assert desk.tracker.trouble_with("pump*", NOW) == "nobody of such a name, or none who lets us discover it"
    desk.handle(Disconnected())
    assert desk.tracker.trouble_with("pump*", NOW) is None
    (again,) = queries(desk.handle(BrokerConnected()))
    assert again.request != query.request
    (names,) = names_for(certified(DESK, "desk"), again.request, ["pump-7"], random.Random(3).randbytes)
    desk.handle(Told(answers_to("desk"), names))
    assert desk.tracker.trouble_with("pump*", NOW) is None


def test_opinions_are_of_who_is_followed(desk: Desk) -> None:
    assert desk.tracker.opinions("press-1", NOW) == ()
    desk.says(K.FAILED, seat=Seat(1, 3, NOW_MS - HOUR_MS))
    assert [each.level for each in desk.tracker.opinions("pump-7", NOW)] == [None, Level.FAILED, None]


# ----------------------------------------------------------------------------------------------- what is wanted


def test_a_wish_is_said_again_as_it_is_until_it_is_two_minutes_old(desk: Desk) -> None:
    desk.says(K.ALLS_WELL)
    (first,) = wishes(desk.says(K.GAUGE_INTEREST))
    assert (first.anew, first.time_ms) == (False, NOW_MS)
    desk.now += WISH_S
    desk.says(K.ALLS_WELL)
    assert wishes(desk.says(K.GAUGE_INTEREST)) == [first]
    desk.now += 0.001
    (later,) = wishes(desk.says(K.GAUGE_INTEREST))
    assert later.time_ms == NOW_MS + WISH_S * 1000 + 1
    assert wishes(desk.handle(BrokerConnected())) == [later], "this broker may not know it"


def test_who_heard_nothing_wants_it_anew_with_each_answer(desk: Desk) -> None:
    first, second = (wishes(desk.says(K.GAUGE_INTEREST)) for _ in range(2))
    assert [wish.anew for wish in first + second] == [True, True]
    desk.now += 1
    assert wishes(desk.says(K.GAUGE_INTEREST))[0].time_ms == NOW_MS + 1_000


def test_behind_a_connection_what_is_not_proven_is_asked_for_and_the_rest_listened_to(desk: Desk) -> None:
    effects = desk.handle(BrokerConnected())
    assert listened(effects) == [answers_to("desk"), *topics_of(TOPIC)]
    assert (len(queries(effects)), len(wishes(effects))) == (1, 1)
    desk.says(K.ALLS_WELL)
    effects = desk.handle(BrokerConnected())
    assert listened(effects) == [answers_to("desk"), *topics_of(TOPIC)]
    assert (len(queries(effects)), len(wishes(effects))) == (0, 1)


def test_one_that_asks_all_the_time_is_answered_so_often_in_half_a_minute(desk: Desk) -> None:
    desk.says(K.ALLS_WELL)
    for place in range(ANSWERS_MAX):
        assert len(wishes(desk.says(K.GAUGE_INTEREST, time_ms=NOW_MS + place))) == 1
    assert desk.says(K.GAUGE_INTEREST) == [Count("gauges_unanswered")]
    desk.now += GAUGE_EVERY_S - 0.001
    assert desk.says(K.GAUGE_INTEREST) == [Count("gauges_unanswered")]
    desk.now += 0.001
    assert len(wishes(desk.says(K.GAUGE_INTEREST))) == 1


def test_the_oldest_answer_of_half_a_minute_makes_room_for_one(desk: Desk) -> None:
    desk.says(K.ALLS_WELL)
    for place in range(ANSWERS_MAX):
        desk.now = NOW + (10 if place else 0)
        assert wishes(desk.says(K.GAUGE_INTEREST))
    desk.now = NOW + GAUGE_EVERY_S
    assert wishes(desk.says(K.GAUGE_INTEREST))
    assert desk.says(K.GAUGE_INTEREST) == [Count("gauges_unanswered")]


# --------------------------------------------------------------------------------------------------- hearing


def test_a_trace_that_holds_is_observed_as_it_is(desk: Desk) -> None:
    seen = desk.says(K.FAILED, {"ping": 5}, time_ms=NOW_MS - 250)
    assert seen == [Observed("pump-7", K.FAILED, NOW_MS - 250, 1, {"ping": 5})]
    assert desk.says(K.READY, {"state": "READY"}) == [Observed("pump-7", K.READY, NOW_MS, 2, {"state": "READY"})]


def test_each_kind_is_believed_on_its_topic_and_wellness_as_a_change_too(desk: Desk) -> None:
    changes = trace_topic(TOPIC, Interest.CHANGES)
    (wellness,) = desk.hears(desk.trace(K.ALLS_WELL), changes)
    assert isinstance(wellness, Observed)
    for kind, where in (
        (K.ALLS_WELL, Interest.STATES), (K.FAILED, Interest.ALL_UPDATES), (K.READY, Interest.CHANGES),
        (K.LOAD_INFORMATION, Interest.CHANGES),
    ):  # fmt: skip
        assert desk.hears(desk.trace(kind), trace_topic(TOPIC, where)) == refused("BadContent")
    assert desk.hears(desk.trace(K.GAUGE_INTEREST), changes) == refused("BadContent")
    assert desk.hears(desk.trace(K.FAILED), gauge_topic(TOPIC)) == refused("BadContent")
    assert desk.hears(desk.trace(K.FAILED), "elsewhere") == []
    for unknown in (K.UNKNOWN, 15, 0):
        assert desk.hears(desk.trace(unknown), changes) == refused("BadContent")


def test_a_trace_counts_once_and_not_behind_a_later_one(desk: Desk) -> None:
    trace = desk.trace(K.FAILED, number=7)
    assert len(desk.hears(trace)) == 1
    assert desk.hears(trace) == refused("Replayed")
    assert desk.says(K.FAILED, number=6) == refused("Replayed")
    assert desk.says(K.ALLS_WELL, number=6) != refused("Replayed"), "topics overtake each other"
    assert len(desk.says(K.FAILED, number=8)) == 1


def test_a_replay_costs_no_verification(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = desk.trace(K.FAILED)
    desk.hears(trace)
    monkeypatch.setattr(Trace, "verify", None)
    assert desk.hears(trace) == refused("Replayed")


@pytest.mark.parametrize(
    ("off_ms", "holds"), [(-TRACE_FRESH_MS, True), (-TRACE_FRESH_MS - 1, False), (SKEW_MS, True), (SKEW_MS + 1, False)]
)
def test_the_first_trace_of_a_key_is_of_now(desk: Desk, off_ms: int, holds: bool) -> None:
    effects = desk.says(K.FAILED, time_ms=NOW_MS + off_ms)
    assert len(effects) == 1
    assert (effects == refused("Expired")) is not holds
    assert desk.tracker.clock_off_s == (None if holds else off_ms / 1000)


def test_of_a_key_that_spoke_here_a_later_number_is_news_whatever_its_clock_says(desk: Desk) -> None:
    desk.says(K.FAILED)
    (seen,) = desk.says(K.FAILED, time_ms=NOW_MS - TRACE_FRESH_MS - 1)
    assert isinstance(seen, Observed)
    assert desk.says(K.FAILED, time_ms=NOW_MS - TRACE_FRESH_MS - 1, holder=identity("another")) == refused("Expired")
    assert desk.says(K.ALLS_WELL, time_ms=NOW_MS - TRACE_FRESH_MS - 1) == refused("Expired"), "not on this topic"
    assert desk.says(K.ALLS_WELL) != refused("Expired")
    assert desk.tracker.clock_off_s is None


def test_a_token_that_ended_tells_how_far_clocks_are_apart(desk: Desk) -> None:
    assert desk.says(K.FAILED, life_ms=1_000, time_ms=NOW_MS - HOUR_MS) == refused("Expired")
    assert desk.tracker.clock_off_s == -HOUR_MS / 1000
    assert desk.says(K.FAILED, life_ms=1_000) == refused("Expired"), "whatever time the trace names"


def test_who_is_heard_no_more_is_unknown_once_and_told_anew(desk: Desk) -> None:
    desk.says(K.ALLS_WELL)
    unknown = Observed("pump-7", K.UNKNOWN, NOW_MS + 90_000, 0, {"silent_s": 90})
    at, (seen, *said) = desk.next()
    assert (at, seen) == (NOW + SILENT_S, unknown)
    assert [wish.anew for wish in wishes(said)] == [True]
    assert desk.tick() == []
    assert desk.tracker.next_deadline == NOW + HOUR_MS / 1000, "its topic ends"
    assert wishes(desk.says(K.GAUGE_INTEREST))[0].anew
    desk.says(K.ALLS_WELL)
    assert not wishes(desk.says(K.GAUGE_INTEREST))[0].anew
    assert len([each for each in desk.tick(SILENT_S) if isinstance(each, Observed)]) == 1


def test_without_any_connection_nothing_is_known_after_five_seconds(desk: Desk) -> None:
    desk.says(K.ALLS_WELL)
    assert desk.handle(Disconnected()) == []
    assert desk.tracker.next_deadline == NOW + OFFLINE_S
    assert desk.tick(OFFLINE_S - 0.001) == []
    assert desk.tick(0.001) == [Observed("pump-7", K.UNKNOWN, NOW_MS + 5_000, 0, {"silent_s": 90})]
    assert desk.tracker.next_deadline is None
    assert desk.tick(0.001) == []
    desk.handle(BrokerConnected())
    desk.says(K.ALLS_WELL)
    desk.handle(Disconnected())
    desk.handle(BrokerConnected())
    assert desk.tick(OFFLINE_S) == [], "it came back in time"
    deaf = Desk(found=known())
    deaf.handle(Disconnected())
    assert deaf.tick(OFFLINE_S) == [], "nothing was known"


# ---------------------------------------------------------------------------------------------- sealed traces


def key_for(tracker: Identity, key: bytes, topic: bytes = TOPIC) -> bytes:
    head = opening(Kind.TRACE_KEY) + topic
    return head + seal_box(tracker.agreement_bytes, key, head, b"r" * 32)


def test_sealed_traces_wait_for_their_key_and_are_wanted_anew(desk: Desk) -> None:
    first, second = b"K" * 32, b"L" * 32
    assert desk.says(K.FAILED, {"ping": 5}, key=first) == [Count("traces_unopened")]
    assert desk.says(K.ALLS_WELL, key=second) == [Count("traces_unopened")]
    at = key_topic("desk", TOPIC)
    assert desk.handle(Told(at, key_for(SPY, first))) == refused("BadContent")
    assert desk.handle(Told(at, key_for(DESK, b"M" * 32))) == []
    assert wishes(desk.says(K.GAUGE_INTEREST))[0].anew
    assert desk.handle(Told(at, key_for(DESK, first))) == [Observed("pump-7", K.FAILED, NOW_MS, 1, {"ping": 5})]
    assert wishes(desk.says(K.GAUGE_INTEREST))[0].anew, "one waits still"
    assert [type(each) for each in desk.handle(Told(at, key_for(DESK, second)))] == [Observed]
    assert not wishes(desk.says(K.GAUGE_INTEREST))[0].anew
    assert desk.handle(Told(at, key_for(DESK, second))) == [], "they are told once"
    assert desk.says(K.FAILED, {"ping": 9}, key=first) == [
        Observed("pump-7", K.FAILED, NOW_MS, desk.number, {"ping": 9})
    ]


def test_who_has_the_key_and_heard_nothing_yet_wants_nothing_anew(desk: Desk) -> None:
    desk.handle(Told(key_topic("desk", TOPIC), key_for(DESK, b"K" * 32)))
    assert not wishes(desk.says(K.GAUGE_INTEREST))[0].anew


def test_what_waits_is_told_in_order_and_what_does_not_hold_is_counted(desk: Desk) -> None:
    key = b"K" * 32
    desk.says(K.FAILED, key=key)
    desk.says(K.FAILED, key=key, body=b"no JSON")
    desk.says(K.DISCONNECT, key=key)
    told = desk.handle(Told(key_topic("desk", TOPIC), key_for(DESK, key)))
    assert [each.kind if isinstance(each, Observed) else each for each in told] == [
        K.FAILED, Count("traces_refused", 1, "BadFrame"), K.DISCONNECT,
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------- several witnesses


def seated(witness: int) -> Seat:
    return Seat(witness, 3, NOW_MS - HOUR_MS)


def word(kind: TraceKind, time_ms: int = NOW_MS, number: int = 1, by: Identity = PUMP) -> dict[str, object]:
    made = OwnWord(NOW_MS - HOUR_MS, number, time_ms, kind, body_of({"own": number})).signed(by)
    return own_fields(made)


@pytest.fixture
def panel(desk: Desk) -> Desk:
    """Of an entity with three witnesses, each of which said that it lives, under a key of its own."""
    for witness in range(3):
        desk.says(K.ALLS_WELL, seat=seated(witness), holder=identity(f"holder {witness}"))
    return desk


def by(witness: int) -> dict[str, object]:
    return {"seat": seated(witness), "holder": identity(f"holder {witness}")}


def test_of_several_witnesses_what_a_majority_says_is_observed_by_our_clock(panel: Desk) -> None:
    panel.now += 2
    assert panel.says(K.FAILED, {"ping": 4}, time_ms=NOW_MS, **by(0)) == []
    (seen,) = panel.says(K.FAILED, {"ping": 6}, time_ms=NOW_MS, **by(1))
    assert isinstance(seen, Observed)
    assert (seen.kind, seen.time_ms, seen.number) == (K.FAILED, NOW_MS + 2_000, panel.number)
    assert seen.fields == {"ping": 4, "after": "alive", "witnesses": [0, 1], "of": 3}


def test_what_the_entity_signed_is_observed_from_whichever_witness_brings_it(panel: Desk) -> None:
    seen = panel.says(K.READY, word(K.READY, NOW_MS - 5), **by(2))
    assert seen == [Observed("pump-7", K.READY, NOW_MS - 5, 1, {"own": 1})]
    assert panel.says(K.READY, word(K.READY, NOW_MS - 5), **by(0)) == [], "another witness was faster"


OWN_WORDS = {
    "by the witness itself": (K.READY, word(K.READY, by=SPY), "BadSignature"),
    "as something else": (K.READY, word(K.SHUTDOWN), "BadContent"),
    "of later": (K.READY, word(K.READY, NOW_MS + SKEW_MS + 1), "Expired"),
    "a load of long ago": (K.LOAD_INFORMATION, word(K.LOAD_INFORMATION, NOW_MS - TRACE_FRESH_MS - 1), "Expired"),
    "not signed": (K.READY, {"state": "READY"}, "BadFrame"),
}


@pytest.mark.parametrize("what", OWN_WORDS)
def test_a_witness_cannot_say_in_the_entitys_name(panel: Desk, what: str) -> None:
    kind, fields, error = OWN_WORDS[what]
    assert panel.says(kind, fields, **by(1)) == refused(error)


def test_an_entity_is_who_owns_the_topic_on_which_it_speaks() -> None:
    """Another key was certified in its name, and a topic of that one is found first."""
    desk, its = Desk(found=known(owner=SPY)), known(OTHER_TOPIC, "node-2")
    desk.answer(its)
    desk.says(K.ALLS_WELL, at=its, **by(0))
    assert desk.says(K.READY, word(K.READY), at=its, **by(0)) == [Observed("pump-7", K.READY, NOW_MS, 1, {"own": 1})]


def test_own_words_hold_up_to_their_bounds(panel: Desk) -> None:
    bounds = [(K.LOAD_INFORMATION, -TRACE_FRESH_MS), (K.LOAD_INFORMATION, SKEW_MS), (K.READY, -HOUR_MS + 1)]
    for number, (kind, off_ms) in enumerate([*bounds, (K.SHUTDOWN, SKEW_MS)], 1):
        (seen,) = panel.says(kind, word(kind, NOW_MS + off_ms, number), **by(0))
        assert isinstance(seen, Observed)
        assert (seen.kind, seen.time_ms) == (kind, NOW_MS + off_ms)


def test_what_one_of_several_sealed_under_a_key_that_is_missing_is_wanted_anew_of_all(panel: Desk) -> None:
    assert not wishes(panel.says(K.GAUGE_INTEREST, **by(1)))[0].anew
    assert panel.says(K.FAILED, key=b"K" * 32, **by(0)) == [Count("traces_unopened")]
    assert wishes(panel.says(K.GAUGE_INTEREST, **by(1)))[0].anew


def test_one_of_several_that_speaks_makes_nothing_known() -> None:
    desk = Desk(found=known())
    desk.says(K.ALLS_WELL, **by(0))
    assert desk.tick(SILENT_S) != []
    assert not [each for each in desk.tick(100) if isinstance(each, Observed)], "there was nothing to lose"


def test_who_heard_one_of_several_says_no_more_what_it_wants_when_it_asks() -> None:
    desk = Desk(found=known())
    assert wishes(desk.next_query()[1]) != [], "nobody spoke"
    desk.says(K.ALLS_WELL, **by(0))
    assert wishes(desk.next_query()[1]) == []


def test_a_majority_that_is_silent_at_this_moment_makes_nothing_known() -> None:
    desk = Desk(found=known())
    desk.says(K.ALLS_WELL, **by(0))
    desk.now += SILENT_S
    desk.says(K.ALLS_WELL, **by(1))
    assert not [each for each in desk.tick() if isinstance(each, Observed)]


# --------------------------------------------------------------------------------------------------- on a bus


@pytest.fixture
def bus() -> Bus:
    return Bus()


def follow(bus: Bus, entity: str, interest: Interest | None = None, tracker: str = "desk") -> None:
    wish = Follow(entity) if interest is None else Follow(entity, interest)
    bus.perform(tracker, bus.clients[tracker].handle(wish, bus.now))  # type: ignore[arg-type]


def test_a_tracker_hears_of_an_entity_from_birth_to_death_and_back(bus: Bus) -> None:
    bus.tracker("desk")
    pump = bus.entity("pump")
    bus.run(1)
    assert pump.stage is Stage.TRACED
    follow(bus, "pump")
    bus.run(30)
    bus.perform("pump", pump.set_state(TraceKind.READY))
    bus.perform("pump", pump.report_load({"cpu": 0.25}))
    bus.run(5)
    kinds = bus.kinds("desk")
    assert {TraceKind.ALLS_WELL, TraceKind.READY, TraceKind.LOAD_INFORMATION, TraceKind.NETWORK_METRICS} <= set(kinds)
    assert not {TraceKind.FAILURE_SUSPICION, TraceKind.FAILED} & set(kinds)
    died = bus.now
    bus.die("pump")
    bus.run(20)
    failed = next(at for at, seen in bus.observed["desk"] if seen.kind is TraceKind.FAILED)
    assert failed - died <= detection_s(LAN, 0.02) + 0.02
    count = len(bus.observed["desk"])
    bus.entity("pump")
    bus.run(5)
    again = [seen.kind for _, seen in bus.observed["desk"][count:]]
    assert again[0] is TraceKind.JOIN
    assert TraceKind.ALLS_WELL in again
    assert bus.refused == []


def test_a_disconnect_that_the_broker_sees_is_told_at_once(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump", Interest.CHANGES)
    bus.run(10)
    at = bus.now
    bus.die("pump", told=True)
    bus.run(0.1)
    assert bus.kinds("desk")[-1] is TraceKind.DISCONNECT
    assert bus.observed["desk"][-1][0] - at < 0.05


def test_only_what_was_asked_for_comes(bus: Bus) -> None:
    bus.tracker("desk")
    pump = bus.entity("pump")
    follow(bus, "pump", Interest.STATES)
    bus.run(40)
    bus.perform("pump", pump.set_state(TraceKind.READY))
    bus.run(1)
    assert bus.kinds("desk") == [TraceKind.READY]


def test_a_tracker_that_leaves_ends_the_traces(bus: Bus) -> None:
    desk = bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump")
    bus.run(10)
    bus.perform("desk", desk.handle(Unfollow("pump"), bus.now))
    bus.run(1)
    count = len(bus.on_topic)
    bus.run(20)
    heartbeats = [topic for topic, _ in bus.on_topic[count:] if topic.endswith("AllUpdates")]
    assert heartbeats == []
    assert bus.filters["desk"] == {next(iter(bus.filters["desk"]))}


def test_a_wish_that_was_lost_is_said_again_before_it_is_asked_for(bus: Bus) -> None:
    bus.entity("pump")
    bus.run(95)  # the next question comes at 210 s
    bus.tracker("desk")
    hears, bus.tracer.handle = (
        bus.tracer.handle,
        lambda event, now: (  # type: ignore[method-assign]
            [] if isinstance(event, Interested) else hears(event, now)
        ),
    )
    follow(bus, "pump", Interest.ALL_UPDATES)
    bus.run(2)
    bus.tracer.handle = hears  # type: ignore[method-assign]
    bus.run(61)
    assert bus.observed["desk"], "long before the next question"


def test_an_entity_that_comes_late_is_found(bus: Bus) -> None:
    bus.tracker("desk")
    follow(bus, "pump")
    bus.run(20)
    assert bus.kinds("desk") == []
    bus.entity("pump")
    bus.run(60)
    assert TraceKind.ALLS_WELL in bus.kinds("desk")


@pytest.mark.long
def test_tokens_are_renewed_in_time(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump", Interest.ALL_UPDATES)
    bus.run(3 * TOKEN_LIFE_S)
    times = [at for at, _ in bus.observed["desk"]]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) < 2
    assert not bus.counted.get("traces_expired")
    assert not bus.counted.get("traces_refused")


def test_an_entity_whose_discovery_node_is_away_is_found_by_the_other(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    bus.run(1)
    bus.away.add("node-1")
    follow(bus, "pump")
    bus.run(5)
    assert TraceKind.ALLS_WELL in bus.kinds("desk")


def test_a_restarted_entity_keeps_its_trace_topic(bus: Bus) -> None:
    bus.entity("pump")
    bus.run(1)
    topic = bus.kept["pump"].topic
    bus.entity("pump")
    bus.run(1)
    assert bus.kept["pump"].topic == topic
    assert len(bus.tracer) == 1


def test_after_renouncing_a_topic_the_new_one_serves(bus: Bus) -> None:
    bus.tracker("desk")
    pump = bus.entity("pump")
    bus.run(1)
    former = bus.kept["pump"].topic
    bus.perform("pump", pump.renounce(bus.now))
    bus.run(1)
    assert bus.kept["pump"].topic != former
    follow(bus, "pump")
    bus.run(5)
    assert TraceKind.ALLS_WELL in bus.kinds("desk")


@pytest.mark.parametrize("signed", [False, True], ids=["symmetric", "signed"])
def test_secured_traces_are_read_by_trackers_and_by_nobody_else(bus: Bus, signed: bool) -> None:
    bus.tracker("desk")
    bus.entity("pump", Wishes(("desk*",), secured=True, signed=signed))
    bus.run(1)
    follow(bus, "pump")
    bus.run(40)
    heartbeats = [seen for _, seen in bus.observed["desk"] if seen.kind is TraceKind.ALLS_WELL]
    assert len(heartbeats) > 30
    assert {"latency_ms" in seen.fields for seen in heartbeats} == {True, False}, "answers, and what is said unasked"
    told = [payload for topic, payload in bus.on_topic if topic.endswith("AllUpdates")]
    assert told
    assert not [payload for payload in told if b"latency_ms" in payload]


def test_who_may_not_discover_it_hears_nothing(bus: Bus) -> None:
    bus.tracker("spy")
    bus.entity("pump")
    follow(bus, "pump", tracker="spy")
    bus.run(60)
    assert bus.observed["spy"] == []
    assert len(bus.filters["spy"]) == 1


# --------------------------------------------------------------------------------------------------- forgers


@pytest.mark.long
def test_an_entity_that_restarts_again_and_again_makes_no_room_for_replays(bus: Bus) -> None:
    """Each time it has another token: more than the tracker remembers numbers of while their traces are fresh."""
    desk = bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump")
    bus.run(1)
    for _ in range(60):
        bus.die("pump", told=True)
        bus.run(1)
        bus.entity("pump")
        bus.run(3)
    traces = [(topic, payload) for topic, payload in bus.on_topic if payload[1] == Kind.TRACE]
    assert len({(topic, Trace.decode(payload).token.public_key) for topic, payload in traces}) > NUMBERS_MAX
    (source,) = desk._followed["pump"].sources.values()
    assert len(source.numbers) <= NUMBERS_MAX
    heard = len(bus.observed["desk"])
    for topic, payload in traces:
        if Trace.decode(payload).time_ms > bus.now * 1000 - 50:
            continue  # on its way
        for effect in desk.handle(Told(topic, payload), bus.now):
            assert not isinstance(effect, Observed), effect
    bus.run(5)
    assert len(bus.observed["desk"]) > heard, "what is new is heard"
    assert bus.kinds("desk")[-1] is not TraceKind.DISCONNECT


def test_forged_replayed_and_misplaced_traces_tell_a_tracker_nothing(bus: Bus) -> None:
    desk = bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump")
    bus.run(10)
    topic = bus.kept["pump"].topic
    changes, updates = trace_topic(topic, Interest.CHANGES), trace_topic(topic, Interest.ALL_UPDATES)
    heartbeat = Trace.decode([payload for t, payload in bus.on_topic if t == updates][-1])
    spy = identity("spy")
    forgeries = [
        (changes, replace(heartbeat, kind=TraceKind.FAILED).signed(spy)),
        (
            changes,
            replace(heartbeat, kind=TraceKind.FAILED, token=replace(heartbeat.token, public_key=spy.public_bytes)),
        ),
        (updates, heartbeat),
        (trace_topic(topic, Interest.LOAD), heartbeat),
        (gauge_topic(topic), heartbeat),
    ]
    count = len(bus.observed["desk"])
    before = bus.counted.get("traces_refused", 0)
    for where, forgery in forgeries:
        bus.deliver(where, forgery.encode())
    for where in (changes, updates, gauge_topic(topic), next(t for t in bus.filters["desk"] if "Answers" in t)):
        bus.deliver(where, b"\x00garbage")
    bus.run(0.05)
    assert [seen.kind for _, seen in bus.observed["desk"][count:] if seen.kind is not TraceKind.ALLS_WELL] == []
    assert bus.counted["traces_refused"] - before == len(forgeries) + 4
    assert desk.next_deadline is not None


def test_an_old_trace_of_a_token_that_counts_is_no_news(bus: Bus) -> None:
    bus.tracker("desk")
    bus.entity("pump")
    bus.run(5)
    bus.die("pump")
    bus.run(10)
    changes = trace_topic(bus.kept["pump"].topic, Interest.CHANGES)
    (failed,) = [p for t, p in bus.on_topic if t == changes and Trace.decode(p).kind == TraceKind.FAILED]
    bus.run(TRACE_FRESH_MS / 1000 - 10)
    bus.entity("pump")
    follow(bus, "pump")
    bus.run(15)
    bus.deliver(changes, failed)
    bus.run(1)
    assert TraceKind.FAILED not in bus.kinds("desk")


@pytest.mark.long
def test_lost_and_late_answers_of_the_network_are_no_failures(bus: Bus) -> None:
    bus.delay_s = (0.001, 0.3)
    bus.alter = lambda client, topic, payload: None if bus.rng.random() < 0.1 and client == "pump" else payload
    bus.tracker("desk")
    bus.entity("pump")
    follow(bus, "pump", Interest.CHANGES)
    bus.run(600)
    assert TraceKind.FAILED not in bus.kinds("desk")


@pytest.mark.long
def test_traces_that_wait_for_a_key_are_few(bus: Bus) -> None:
    bus.alter = lambda client, topic, payload: None if topic.endswith("/Keys") else payload
    desk = bus.tracker("desk")
    bus.entity("pump", Wishes(("desk*",), secured=True))
    follow(bus, "pump")
    bus.run(200)
    assert bus.observed["desk"] == []
    assert len(desk._followed["pump"].sources[0].unopened) == UNOPENED_MAX


@pytest.mark.long
def test_a_trace_topic_that_ends_is_followed_by_a_new_one(bus: Bus) -> None:
    bus.entity("pump", Wishes(("desk*",), life_s=100))
    bus.tracker("desk")
    follow(bus, "pump")
    bus.run(350)
    late = [seen for at, seen in bus.observed["desk"] if at > NOW + 320 and seen.kind is TraceKind.ALLS_WELL]
    assert len(late) >= 20
    assert len(bus.tracer) == 1, "what ended is forgotten"
    assert TraceKind.FAILED not in bus.kinds("desk")
    bus.die("pump")
    bus.run(200)
    assert len(bus.tracer) == 0
