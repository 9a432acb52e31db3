"""The tracker's side: finds entities, says what it wants to hear, believes only traces that hold (B6, B7, B8).

A tracker asks discovery nodes for an entity's trace topic, listens to the topics of its interests, answers every
GAUGE_INTEREST, and verifies each trace: the topic's owner let the signer speak, it is of now, and it did not come
before. Sealed traces wait, a few of them, for their key. Not here: MQTT, history on disk.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from keys.delegation import SKEW_MS, Advertisement, Trace
from keys.errors import BadContent, Expired, KeysError, NotAuthorised, Replayed
from keys.identity import Certificate, Identity
from keys.tracesession import REQUEST_BYTES

from .discovering import Request, entity_of, open_answer, owns
from .machine import Count, Tick
from .traced import ASK_AGAIN_MAX_S, ASK_AGAIN_S, Connected, Listen, Told
from .traces import (
    DESCRIPTOR,
    DISCOVERY_TOPIC,
    EVERYTHING,
    Interest,
    TraceKind,
    Wanted,
    answer_topic,
    answers_to,
    fields_of,
    gauge_topic,
    interest_of,
    key_topic,
    trace_topic,
)
from .tracing import Say, open_trace_key

ENTITIES_MAX = 100_000  # that one tracker follows
NUMBERS_MAX = 64  # (token, topic) of one entity whose highest number is remembered; an honest one uses a dozen
UNOPENED_MAX = 64  # sealed traces of one entity that wait for their key
TRACE_FRESH_MS = 300_000  # a trace that is older, though its token counts, is a replay or too late to matter


@dataclass(frozen=True, slots=True)
class Follow:
    """Track an entity from now on."""

    entity: str
    interest: Interest = EVERYTHING


@dataclass(frozen=True, slots=True)
class Unfollow:
    entity: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Unsubscribe from a topic."""

    topic: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Observed:
    """A trace that holds. `time_ms`: its broker's clock."""

    entity: str
    kind: TraceKind
    time_ms: int
    number: int
    fields: Mapping[str, Any]


TrackingEvent: TypeAlias = Follow | Unfollow | Connected | Told | Tick
TrackingEffect: TypeAlias = Say | Listen | Leave | Observed | Count


@dataclass(slots=True)
class _Followed:
    """One entity that we track."""

    interest: Interest
    advertisement: Advertisement | None = None
    key: bytes = field(default=b"", repr=False)
    heard: bool = False  # a trace that we could open
    request: bytes = b""
    ask_at: float = 0.0
    asked: int = 0
    # The highest number of each token's key on each topic: topics overtake each other.
    numbers: OrderedDict[tuple[bytes, str], int] = field(default_factory=OrderedDict)
    unopened: deque[Trace] = field(default_factory=lambda: deque(maxlen=UNOPENED_MAX))


class Tracker:
    """One tracker. `nodes`: discovery nodes' public keys by name; `random`: fresh secret bytes of a length."""

    def __init__(
        self,
        identity: Identity,
        certificate: Certificate,
        nodes: Mapping[str, bytes],
        authority: bytes,
        random: Callable[[int], bytes],
    ) -> None:
        self._identity = identity
        self._certificate = certificate
        self._nodes = dict(nodes)
        self._authority = authority
        self._random = random
        self._followed: dict[str, _Followed] = {}
        self._topics: dict[str, str] = {}  # each topic that we listen to -> its entity
        self._requests: dict[bytes, str] = {}
        self._connected = False

    @property
    def next_deadline(self) -> float | None:
        """When an entity that was not found is asked for again, or a topic of before ends."""
        return min((each.ask_at for each in self._followed.values()), default=None) if self._connected else None

    def handle(self, event: TrackingEvent, now: float) -> list[TrackingEffect]:
        """Effects in the order in which they must happen. What does not hold is counted and dropped."""
        match event:
            case Follow(entity, interest):
                return self._follow(entity, interest, now)
            case Unfollow(entity):
                return self._leave(entity)
            case Connected():
                self._connected = True
                effects: list[TrackingEffect] = [Listen(answers_to(self._certificate.name))]
                effects += [Listen(topic) for topic in self._topics]
                for entity, followed in self._followed.items():
                    followed.asked = 0
                    effects += self._ask(entity, followed, now) if followed.advertisement is None else []
                return effects
            case Told(topic, payload):
                try:
                    return self._told(topic, payload, now)
                except KeysError as error:
                    return [Count("traces_refused", 1, type(error).__name__)]
            case Tick():
                due = [(name, each) for name, each in self._followed.items() if now >= each.ask_at]
                return [effect for name, each in due for effect in self._ask(name, each, now)]

    # --------------------------------------------------------------------------------------------- finding

    def _follow(self, entity: str, interest: Interest, now: float) -> list[TrackingEffect]:
        if entity in self._followed or len(self._followed) >= ENTITIES_MAX:
            return []
        followed = self._followed[entity] = _Followed(interest)
        followed.ask_at = now
        return self._ask(entity, followed, now) if self._connected else []

    def _ask(self, entity: str, followed: _Followed, now: float) -> list[TrackingEffect]:
        """For the entity's topic; again and again, for there is no telling why nobody answers."""
        effects: list[TrackingEffect] = []
        if followed.advertisement is not None:  # it ended
            effects += self._unlisten(followed.advertisement)
            followed.advertisement, followed.asked, followed.key, followed.heard = None, 0, b"", False
        followed.ask_at = now + min(ASK_AGAIN_S * (1 << min(followed.asked, 10)), ASK_AGAIN_MAX_S)
        followed.asked += 1
        self._requests.pop(followed.request, None)
        followed.request = self._random(REQUEST_BYTES)
        self._requests[followed.request] = entity
        request = Request(self._certificate, DESCRIPTOR + entity, followed.request, int(now * 1000))
        return [*effects, Say(DISCOVERY_TOPIC, request.signed(self._identity).encode())]

    def _found(self, payload: bytes, now: float) -> list[TrackingEffect]:
        """A discovery node's answer. Raises keys errors."""
        request, advertisement = open_answer(payload, self._identity)
        entity, node = self._requests.get(request), self._nodes.get(advertisement.node)
        if entity is None:
            return []  # another node was faster
        if node is None:
            raise BadContent("an answer of a discovery node that we do not know")
        advertisement.verify(node, self._authority, int(now * 1000))
        if entity_of(advertisement.descriptor) != entity or not owns(advertisement.certificate.name, entity):
            raise NotAuthorised("an advertisement of another entity")
        del self._requests[request]
        followed = self._followed[entity]
        followed.advertisement, followed.ask_at = advertisement, advertisement.not_after_ms / 1000
        topics = self._topics_of(advertisement, followed.interest)
        self._topics.update(dict.fromkeys(topics, entity))
        return [*(Listen(topic) for topic in topics), self._want(followed, advertisement)]

    def _topics_of(self, advertisement: Advertisement, interest: Interest) -> list[str]:
        topics = [trace_topic(advertisement.topic, each) for each in Interest if each in interest]
        return [*topics, gauge_topic(advertisement.topic), key_topic(self._certificate.name, advertisement.topic)]

    def _unlisten(self, advertisement: Advertisement) -> list[TrackingEffect]:
        gone = [topic for topic in self._topics_of(advertisement, EVERYTHING) if self._topics.pop(topic, None)]
        return [Leave(topic) for topic in gone]

    def _leave(self, entity: str) -> list[TrackingEffect]:
        followed = self._followed.pop(entity, None)
        if followed is None:
            return []
        self._requests.pop(followed.request, None)
        if followed.advertisement is None:
            return []
        nothing = Wanted(self._certificate.name, Interest(0), self._certificate.encode())
        say = Say(answer_topic(followed.advertisement.topic), nothing.encode())
        return [say, *self._unlisten(followed.advertisement)]

    def _want(self, followed: _Followed, advertisement: Advertisement) -> Say:
        anew = bool(followed.unopened) or not (followed.key or followed.heard)
        wanted = Wanted(self._certificate.name, followed.interest, self._certificate.encode(), anew)
        return Say(answer_topic(advertisement.topic), wanted.encode())

    # --------------------------------------------------------------------------------------------- hearing

    def _told(self, topic: str, payload: bytes, now: float) -> list[TrackingEffect]:
        """Raises keys errors."""
        if topic == answers_to(self._certificate.name):
            return self._found(payload, now)
        entity = self._topics.get(topic)
        if entity is None:
            return []
        followed = self._followed[entity]
        advertisement = followed.advertisement
        assert advertisement is not None, "we listen to topics of advertisements only"
        if topic == key_topic(self._certificate.name, advertisement.topic):
            return self._key_came(entity, followed, open_trace_key(payload, advertisement.topic, self._identity))
        trace = Trace.decode(payload)
        self._verify(followed, advertisement, topic, trace, now)
        if trace.kind == TraceKind.GAUGE_INTEREST:
            if topic != gauge_topic(advertisement.topic):
                raise BadContent("a question on another topic")
            return [self._want(followed, advertisement)]
        wellness = trace.kind == TraceKind.ALLS_WELL and topic == trace_topic(advertisement.topic, Interest.CHANGES)
        if not wellness and topic != trace_topic(advertisement.topic, interest_of(TraceKind(trace.kind))):
            raise BadContent("a trace on another topic than that of its kind")
        if trace.sealed and not followed.key:
            followed.unopened.append(trace)
            return [Count("traces_unopened")]
        return [self._observed(entity, followed, trace)]

    def _verify(self, followed: _Followed, advertisement: Advertisement, topic: str, trace: Trace, now: float) -> None:
        """Raises keys errors."""
        now_ms = int(now * 1000)
        trace.verify(advertisement, now_ms)
        if trace.kind not in TraceKind.__members__.values():
            raise BadContent("a trace of an unknown kind")
        if not now_ms - TRACE_FRESH_MS <= trace.time_ms <= now_ms + SKEW_MS:
            raise Expired("the trace is not of now")
        source = (trace.token.public_key, topic)
        if trace.number <= followed.numbers.get(source, 0):
            raise Replayed("a trace came twice, or after a later one")
        followed.numbers[source] = trace.number
        if len(followed.numbers) > NUMBERS_MAX:
            followed.numbers.popitem(last=False)

    def _key_came(self, entity: str, followed: _Followed, key: bytes) -> list[TrackingEffect]:
        followed.key = key
        waiting, followed.unopened = list(followed.unopened), deque(maxlen=UNOPENED_MAX)
        effects: list[TrackingEffect] = []
        for trace in waiting:
            try:
                effects.append(self._observed(entity, followed, trace))
            except KeysError:
                effects.append(Count("traces_refused", 1, "BadContent"))
        return effects

    def _observed(self, entity: str, followed: _Followed, trace: Trace) -> TrackingEffect:
        """Raises BadContent, BadFrame."""
        try:
            fields = fields_of(trace.opened(followed.key))
        except BadContent:
            if not trace.sealed:
                raise
            followed.unopened.append(trace)  # its key is a newer one, and on its way
            return Count("traces_unopened")
        followed.heard = True
        return Observed(entity, TraceKind(trace.kind), trace.time_ms, trace.number, fields)
