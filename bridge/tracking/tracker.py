"""The tracker's side: finds entities, tells brokers its interests, believes only valid traces (B6, B7, B8).

A tracker asks discovery nodes for an entity's trace topic, listens to the topics of its interests, and answers every
GAUGE_INTEREST. Each trace is verified: the topic's owner let the signer speak, the time is now, and no equal or later
trace came before. A few sealed traces wait for their key. Each trace of an entity with a witness is observed; with
several witnesses, only the word of a majority and the entity's own signed word. Not here: MQTT, history on disk, the
rule of a majority (`witnessing`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from bridge.base import Wall
from bridge.contract import Count, Tick
from bridge.traces.kinds import (
    DESCRIPTOR,
    DISCOVERY_TOPIC,
    EVERYTHING,
    GAUGE_EVERY_S,
    OWN,
    SAID,
    Interest,
    TraceKind,
    WantedTraces,
    answer_topic,
    answers_to,
    fields_of,
    gauge_topic,
    interest_of,
    key_topic,
    own_word,
    trace_topic,
)
from bridge.traces.tracer import Say, open_trace_key
from bridge.tracking.discovery import Request, entity_of, open_found, owns
from bridge.tracking.entity import ASK_AGAIN_MAX_S, ASK_AGAIN_S, BrokerConnected, Disconnected, Leave, Listen, Told
from bridge.tracking.following import (
    ANSWERS_MAX,
    UNOPENED_MAX,
    Follow,
    Followed,
    Looks,
    Observed,
    Source,
    Unfollow,
    opened,
    topics_of,
    try_key,
)
from bridge.tracking.patterns import Patterns, is_pattern, matches
from bridge.tracking.witnessing import SILENT_S, Opinion, Panel
from keys.delegation import SKEW_MS, Advertisement, Trace
from keys.errors import BadContent, Expired, KeysError, NotAuthorised, Replayed
from keys.identity import Certificate, Identity
from keys.ownword import OwnWord
from keys.tracesession import REQUEST_BYTES

ENTITIES_MAX = 100_000  # that one tracker follows
CLAIMED = ""  # the slot of the entity's own registration, beside the nodes' names
OFFLINE_S = 5.0  # without any connection; after it all entities count as unknown
WISH_S = 120.0  # a wish is repeated byte by byte, which costs brokers nothing, up to this age
FOUND_S = 3.0  # a discovery node that answers at all answers sooner
TRACE_FRESH_MS = 300_000  # an older trace, though its token counts, is a replay or too late to matter


TrackingEvent: TypeAlias = Follow | Unfollow | BrokerConnected | Disconnected | Told | Tick
TrackingEffect: TypeAlias = Say | Listen | Leave | Observed | Count


class Tracker:
    """A tracker. `nodes`: discovery nodes' public keys by name; `random`: fresh secret bytes of a length."""

    def __init__(
        self,
        identity: Identity,
        certificate: Certificate,
        nodes: Mapping[str, bytes],
        authority: bytes,
        random: Callable[[int], bytes],
        wall: Wall | None = None,
    ) -> None:
        self._wall = wall or Wall()
        self._identity = identity
        self._certificate = certificate
        self._nodes = dict(nodes)
        self._authority = authority
        self._random = random
        self._followed: dict[str, Followed] = {}
        self._topics: dict[str, tuple[str, Advertisement]] = {}  # each topic that we listen to -> its entity
        self._requests: dict[bytes, str] = {}
        self._connected = False
        self._offline_at: float | None = None
        self._looks = Looks()
        self._patterns = Patterns(identity, random, self._wall, self._query)
        self.clock_off_s: float | None = None
        """The seconds by which the last trace's clock was ahead of ours; None unless that is why it was refused."""

    @property
    def next_deadline(self) -> float | None:
        """The time at which an entity without an answer is asked for again, a former topic ends, or an entity was
        silent for too long.
        """
        if not self._connected:
            return self._offline_at
        first = self._looks.first_check(self._followed)
        dues = (None if first is None else first[0], self._patterns.next_deadline)
        return min((due for due in dues if due is not None), default=None)

    def trouble_with(self, entity: str, now: float) -> str | None:
        """Returns the reason, in a few words, why nothing is observed of an entity; None while all may be well."""
        followed = self._followed.get(entity)
        if self._patterns.found(entity) is False and self._connected:
            return "nobody of such a name, or none who lets us discover it"
        if followed is None or not self._connected or now < followed.since + FOUND_S:
            return None
        if self.clock_off_s is not None and not followed.heard:
            return f"its broker's clock is {self.clock_off_s:+.1f} s from ours; set one of them"
        if not followed.candidates:
            return "no entity of that name, or it does not let us discover it"
        return None

    def opinions(self, entity: str, now: float) -> tuple[Opinion, ...]:
        """Returns the last word of each witness of an entity; a witness that dissents is wrong, cut off, or lies. Empty
        before any witness spoke.
        """
        followed = self._followed.get(entity)
        return () if followed is None else followed.panel.opinions(now)

    def handle(self, event: TrackingEvent, now: float) -> list[TrackingEffect]:
        """Returns the effects of an event in the order in which they must happen. Invalid input is counted and
        dropped.
        """
        match event:
            case Disconnected():
                self._connected, self._offline_at = False, now + OFFLINE_S
                return []
            case Follow(entity, interest):
                return self._follow_entity(entity, interest, now)
            case Unfollow(entity):
                return self._leave(entity, now)
            case BrokerConnected():
                self._connected, self._offline_at = True, None
                effects: list[TrackingEffect] = [Listen(answers_to(self._certificate.name))]
                effects += [
                    *(Listen(topic) for topic in self._topics),
                    *self._patterns.due_queries(now, all_of_them=True),
                ]
                for entity, followed in self._followed.items():
                    followed.asked = 0
                    if not followed.proven:
                        effects += self._ask_topic(entity, followed, now)
                        self._schedule_check(entity, followed, now)
                    # This broker may not know yet what we want.
                    effects += [self._want(followed, each, now) for each in followed.candidates.values()]
                return effects
            case Told(topic, payload):
                try:
                    return self._take_message(topic, payload, now)
                except KeysError as error:
                    return [Count("traces_refused", 1, type(error).__name__)]
            case Tick():
                return self._run_due(now)

    # ------------------------------------------------------------------------------------------------ time

    def _run_due(self, now: float) -> list[TrackingEffect]:
        if not self._connected:
            if self._offline_at is None or now < self._offline_at:
                return []
            self._offline_at = None
            return [effect for name, each in self._followed.items() for effect in self._report_lost(name, each, now)]
        effects: list[TrackingEffect] = [*self._patterns.due_queries(now)]
        while (entity := self._looks.take_entity(self._followed, now)) is not None:
            followed = self._followed[entity]
            is_lost = now >= followed.panel.silent_at and followed.known
            if now >= followed.ask_at:
                effects += self._ask_topic(entity, followed, now)
            if is_lost:
                effects += self._report_lost(entity, followed, now)
            if is_lost or not followed.heard:  # a broker that does not hear our wish will not soon ask for it
                effects += [self._want(followed, each, now) for each in followed.candidates.values()]
            self._schedule_check(entity, followed, now)
        return effects

    def _schedule_check(self, entity: str, followed: Followed, now: float) -> None:
        """Plans the next check of an entity: the time to ask again, or the time at which its silence counts."""
        missed_at = followed.panel.silent_at if followed.known else float("inf")
        self._looks.plan_check(entity, followed, min(followed.ask_at, missed_at), self._followed)

    def _report_lost(self, entity: str, followed: Followed, now: float) -> list[TrackingEffect]:
        """Reports an entity as unknown, since its witnesses were silent too long: our knowledge is out of date."""
        if not followed.known:
            return []
        followed.known, followed.lost = False, True
        return [Observed(entity, TraceKind.UNKNOWN, self._wall.ms(now), 0, {"silent_s": round(SILENT_S)})]

    # --------------------------------------------------------------------------------------------- finding

    def _follow_entity(self, entity: str, interest: Interest, now: float, by_name: bool = True) -> list[TrackingEffect]:
        known = self._followed.get(entity)
        if is_pattern(entity):
            changes: list[TrackingEffect] = []
            if self._patterns.follow_pattern(entity, interest, now):
                named = [name for name, each in self._followed.items() if not each.by_name and matches(entity, name)]
                changes = [effect for name in named for effect in self._change(name, interest, now)]
            return [*changes, *self._patterns.due_queries(now)] if self._connected else changes
        if known is not None:
            known.by_name |= by_name
            return self._change(entity, interest, now) if by_name and interest != known.interest else []
        if len(self._followed) >= ENTITIES_MAX:
            return []
        followed = self._followed[entity] = Followed(interest, by_name, panel=Panel(self._wall))
        followed.ask_at = followed.since = now
        effects = self._ask_topic(entity, followed, now) if self._connected else []
        self._schedule_check(entity, followed, now)
        return effects

    def _change(self, entity: str, interest: Interest, now: float) -> list[TrackingEffect]:
        """Changes our interest in a followed entity: tells the brokers, and asks anew for added kinds of traces."""
        followed = self._followed[entity]
        followed.lost |= bool(interest & ~followed.interest)
        followed.interest = interest
        followed.wishes.clear()
        effects: list[TrackingEffect] = []
        for each in {each.topic: each for each in followed.candidates.values()}.values():
            wanted = topics_of(self._certificate.name, each, interest)
            effects += self._unlisten(each, but=wanted)
            effects += [Listen(topic) for topic in wanted if topic not in self._topics]
            self._topics.update(dict.fromkeys(wanted, (entity, each)))
            effects.append(self._want(followed, each, now))
        return effects

    def _ask_topic(self, entity: str, followed: Followed, now: float) -> list[TrackingEffect]:
        """Asks for an entity's topic, and plans to ask again: no answer has many possible reasons. Drops topics that
        ended.
        """
        effects: list[TrackingEffect] = []
        for slot, ended in list(followed.candidates.items()):
            if now < self._wall.moment_of(ended.not_after_ms):
                continue
            effects += self._drop_candidate(followed, slot)
            followed.claimed_ms = -1
            followed.heard_on.clear()
            followed.asked, followed.proven, followed.heard = 0, False, False
            followed.keys.clear()
            followed.sources.clear()
        followed.ask_at = now + min(ASK_AGAIN_S * (1 << min(followed.asked, 10)), ASK_AGAIN_MAX_S)
        followed.asked += 1
        self._requests.pop(followed.request, None)
        followed.request = self._random(REQUEST_BYTES)
        self._requests[followed.request] = entity
        query = self._query(DESCRIPTOR + entity, followed.request, self._wall.ms(now))
        return [*effects, Say(DISCOVERY_TOPIC, query)]

    def _query(self, descriptor: str, request: bytes, now_ms: int) -> bytes:
        return Request(self._certificate, descriptor, request, now_ms).signed(self._identity).encode()

    def _found(self, payload: bytes, now: float) -> list[TrackingEffect]:
        """Takes a discovery node's answer. Raises keys errors."""
        named = self._patterns.named_entities(payload)
        if named is not None:
            return [
                effect for name, interest in named for effect in self._follow_entity(name, interest, now, by_name=False)
            ]
        request, advertisement, claim = open_found(payload, self._identity)
        entity, node = self._requests.get(request), self._nodes.get(advertisement.node)
        if entity is None:
            return []  # an answer to an earlier request, or a trace topic is proven
        if node is None:
            raise BadContent("an answer of a discovery node that we do not know")
        advertisement.verify(node, self._authority, self._wall.ms(now))
        if entity_of(advertisement.descriptor) != entity or not owns(advertisement.certificate.name, entity):
            raise NotAuthorised("an advertisement of another entity")
        followed = self._followed[entity]
        slot = advertisement.node
        if claim is not None:
            claim.verify(advertisement, claim.time_ms)  # at any age: the latest counts
            slot = CLAIMED
        former = followed.candidates.get(slot)
        if claim is not None and claim.time_ms <= followed.claimed_ms:
            return []
        if claim is None and former is not None and former.created_ms >= advertisement.created_ms:
            return []  # another node was faster
        effects = self._drop_candidate(followed, slot)
        followed.candidates[slot] = advertisement
        followed.claimed_ms = followed.claimed_ms if claim is None else claim.time_ms
        followed.ask_at = min(self._wall.moment_of(advertisement.not_after_ms), now + ASK_AGAIN_MAX_S)
        self._schedule_check(entity, followed, now)
        topics = topics_of(self._certificate.name, advertisement, followed.interest)
        self._topics.update(dict.fromkeys(topics, (entity, advertisement)))
        return [*effects, *(Listen(topic) for topic in topics), self._want(followed, advertisement, now)]

    def _prove(self, followed: Followed, advertisement: Advertisement, trace: Trace) -> list[TrackingEffect]:
        """Takes note of a valid trace on a candidate topic: the entity let the signer speak there. Once a majority of
        the witnesses was heard, the other candidates are dropped.
        """
        if followed.proven:
            return []
        heard = followed.heard_on.setdefault(advertisement.topic, set())
        heard.add(0 if trace.token.seat is None else trace.token.seat.witness)
        if len(heard) <= followed.panel.size // 2:
            return []
        others = [each for each in followed.candidates.values() if each.topic != advertisement.topic]
        followed.proven, followed.candidates = True, {advertisement.node: advertisement}
        followed.heard_on.clear()
        followed.ask_at = self._wall.moment_of(advertisement.not_after_ms)
        self._requests.pop(followed.request, None)
        return [effect for other in others for effect in self._unlisten(other)]

    def _drop_candidate(self, followed: Followed, slot: str) -> list[TrackingEffect]:
        """Drops a candidate, and leaves its topics unless another candidate has them too."""
        gone = followed.candidates.pop(slot, None)
        if gone is None or any(each.topic == gone.topic for each in followed.candidates.values()):
            return []
        followed.heard_on.pop(gone.topic, None)
        return self._unlisten(gone)

    def _unlisten(self, advertisement: Advertisement, but: Collection[str] = ()) -> list[TrackingEffect]:
        heard = topics_of(self._certificate.name, advertisement, EVERYTHING)
        return [Leave(topic) for topic in heard if topic not in but and self._topics.pop(topic, None) is not None]

    def _leave(self, entity: str, now: float) -> list[TrackingEffect]:
        if self._patterns.leave_pattern(entity):
            named = [name for name, each in self._followed.items() if not each.by_name and matches(entity, name)]
            return [effect for name in named if not self._patterns.mean(name) for effect in self._leave(name, now)]
        followed = self._followed.pop(entity, None)
        if followed is None:
            return []
        self._requests.pop(followed.request, None)
        effects: list[TrackingEffect] = []
        for each in followed.candidates.values():
            nothing = self._wish(Interest(0), each.topic, False, now).encode()
            effects += [Say(answer_topic(each.topic), nothing), *self._unlisten(each)]
        return effects

    def _want(self, followed: Followed, advertisement: Advertisement, now: float) -> Say:
        unopened = any(each.unopened for each in followed.sources.values())
        anew = unopened or followed.lost or not (followed.keys or followed.heard)
        topic = advertisement.topic
        if anew:  # never said twice, or it would be told twice
            return Say(answer_topic(topic), self._wish(followed.interest, topic, anew, now).encode())
        said = followed.wishes.get(topic)
        if said is None or now > said[0] + WISH_S:
            said = followed.wishes[topic] = now, self._wish(followed.interest, topic, anew, now).encode()
        return Say(answer_topic(topic), said[1])

    def _wish(self, interest: Interest, topic: bytes, anew: bool, now: float) -> WantedTraces:
        name, credentials = self._certificate.name, self._certificate.encode()
        return WantedTraces(name, interest, credentials, anew, self._wall.ms(now)).signed(self._identity, topic)

    # --------------------------------------------------------------------------------------------- hearing

    def _take_message(self, topic: str, payload: bytes, now: float) -> list[TrackingEffect]:
        """Takes a message on a topic we listen to. Raises keys errors."""
        if topic == answers_to(self._certificate.name):
            return self._found(payload, now)
        entity, advertisement = self._topics.get(topic, ("", None))
        if advertisement is None:
            return []
        followed = self._followed[entity]
        if topic == key_topic(self._certificate.name, advertisement.topic):
            return self._key_came(entity, followed, open_trace_key(payload, advertisement.topic, self._identity), now)
        trace = Trace.decode(payload)
        source = self._verify(followed, advertisement, topic, trace, now)
        if trace.kind == TraceKind.GAUGE_INTEREST:
            if topic != gauge_topic(advertisement.topic):
                raise BadContent("a question on another topic")
            effects = self._answer_gauge(followed, source, advertisement, now)
            return effects + self._prove(followed, advertisement, trace)
        wellness = trace.kind == TraceKind.ALLS_WELL and topic == trace_topic(advertisement.topic, Interest.CHANGES)
        if not wellness and topic != trace_topic(advertisement.topic, interest_of(TraceKind(trace.kind))):
            raise BadContent("a trace on another topic than that of its kind")
        effects = self._observed(entity, followed, source, trace, now)
        return effects + self._prove(followed, advertisement, trace)

    def _verify(self, followed: Followed, advertisement: Advertisement, topic: str, trace: Trace, now: float) -> Source:
        """Verifies a trace and returns its witness. Raises keys errors."""
        now_ms, heard_by = self._wall.ms(now), (trace.token.public_key, topic)
        claimed = followed.sources.get(0 if trace.token.seat is None else trace.token.seat.witness)
        if claimed is not None and not claimed.is_news(heard_by, trace):  # before it is verified, since
            raise Replayed("a trace came twice, or after a later one")  # several brokers bring one trace
        try:
            trace.verify(advertisement, now_ms)
        except Expired:
            self.clock_off_s = (trace.time_ms - now_ms) / 1000
            raise
        if trace.kind not in SAID:
            raise BadContent("a trace of an unknown kind")
        # For a key heard here before, a later number is news, whatever its broker's clock says; under a new key an
        # old trace may be a replay.
        is_known = claimed is not None and heard_by in claimed.numbers
        if not is_known and not now_ms - TRACE_FRESH_MS <= trace.time_ms <= now_ms + SKEW_MS:
            self.clock_off_s = (trace.time_ms - now_ms) / 1000
            raise Expired("the trace is not of now")
        self.clock_off_s = None
        source = followed.sources.setdefault(followed.panel.seat(trace.token, now), Source())
        source.note_trace(heard_by, trace)
        return source

    def _answer_gauge(
        self, followed: Followed, source: Source, advertisement: Advertisement, now: float
    ) -> list[TrackingEffect]:
        """Answers a broker's question with our interest, at most `ANSWERS_MAX` times in `GAUGE_EVERY_S` for a witness:
        endless questions would keep other brokers busy with our answers.
        """
        if len(source.answered) == ANSWERS_MAX and now - source.answered[0] < GAUGE_EVERY_S:
            return [Count("gauges_unanswered")]
        source.answered.append(now)
        return [self._want(followed, advertisement, now)]

    def _key_came(self, entity: str, followed: Followed, key: bytes, now: float) -> list[TrackingEffect]:
        followed.keys.appendleft(key)
        effects: list[TrackingEffect] = []
        for source in followed.sources.values():
            waiting, source.unopened = list(source.unopened), deque(maxlen=UNOPENED_MAX)
            for trace in waiting:
                if try_key(trace, key) is None:  # each other key was tried when the trace or the key came
                    source.unopened.append(trace)
                    continue
                try:
                    effects += self._observed(entity, followed, source, trace, now)
                except KeysError as error:
                    effects.append(Count("traces_refused", 1, type(error).__name__))
        return effects

    def _observed(
        self, entity: str, followed: Followed, source: Source, trace: Trace, now: float
    ) -> list[TrackingEffect]:
        """Opens and observes a verified trace. Raises keys errors."""
        body = opened(followed, source, trace)
        if body is None:
            source.unopened.append(trace)  # its newer key is on the way
            return [Count("traces_unopened")]
        fields, kind = fields_of(body), TraceKind(trace.kind)
        followed.heard = True
        if now < followed.panel.silent_at:
            followed.known, followed.lost = True, False
        self._schedule_check(entity, followed, now)
        if followed.panel.size == 1:
            return [Observed(entity, kind, trace.time_ms, trace.number, fields)]
        if kind in OWN:
            word = own_word(fields)
            for owner in [each for each in followed.candidates.values() if each.topic == trace.token.topic]:
                word.verify(owner.certificate.public_key)
                return self._take_own_word(entity, followed, word, kind, now)
            return []  # on a topic that we have left
        belief = followed.panel.hear(trace.token, kind, trace.number, trace.time_ms, fields, now)
        return (
            [] if belief is None else [Observed(entity, belief.kind, self._wall.ms(now), trace.number, belief.fields)]
        )

    def _take_own_word(
        self, entity: str, followed: Followed, word: OwnWord, kind: TraceKind, now: float
    ) -> list[TrackingEffect]:
        """Takes the entity's own word, which any witness may bring; its signature is verified. Raises keys errors."""
        if word.kind != kind:
            raise BadContent("a witness that passes something on as something else")
        if word.time_ms > self._wall.ms(now) + SKEW_MS:
            raise Expired("a word of later than now")
        if kind is TraceKind.LOAD_INFORMATION and abs(self._wall.ms(now) - word.time_ms) > TRACE_FRESH_MS:
            raise Expired("a load that is not of now")
        if not followed.panel.own(word):
            return []  # another witness was faster
        return [Observed(entity, kind, word.time_ms, word.number, fields_of(word.body))]
