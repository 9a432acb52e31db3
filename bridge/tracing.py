"""The broker that traces entities: registers them, pings them, and tells those who asked (B3, B5, B6, B8, B9).

An entity registers with its advertisement and gets a session; in it answers pings, says its states and load, and hands
over a token, without which nothing can be told of it. From then on there are traces: changes always find their topic,
everything else only while somebody wants it. Traces are sealed once the entity gave a trace key, which then goes to
each authorised tracker, sealed to it. Whoever sends what does not hold pays for it: after `BOGUS_MAX` of them the
client is sent away. Events and the time in, effects out, as in `machine`.

Not here: discovery (`discovering`), trackers (`tracking`), who may publish where (`constrained`), unchanged devices
(`availability`), several witnesses of one entity.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from keys.delegation import Advertisement, Delegated, Token, Trace
from keys.errors import BadFrame, KeysError, NotAuthorised, TooOften
from keys.frames import Kind, Reader, number, opening
from keys.identity import Certificate, Identity, Role
from keys.sealedbox import seal_box
from keys.tracesession import KEY_BYTES, SESSION_BYTES, Registration, TraceSession, Word, registered

from .machine import Count, Tick
from .pings import Health, Ping, Preset, Pulse
from .traces import (
    STATES,
    Audience,
    Interest,
    TraceKind,
    Wanted,
    answers_to,
    body_of,
    fields_of,
    gauge_topic,
    interest_of,
    key_topic,
    to_entity,
    trace_topic,
)

ENTITIES_MAX = 20_000  # registered at one broker; the next are refused
BOGUS_MAX = 20  # messages of one client that do not hold, before it is sent away
CLIENTS_MAX = 4_096  # clients whose bogus messages are counted
METRICS_EVERY_S = 10.0
KEYED_MAX = 1_024  # trackers of one entity that were given its trace key; more are asked to answer again


# --------------------------------------------------------------------------------------- events, effects


@dataclass(frozen=True, slots=True)
class Registering:
    """A client published on `REGISTRATION_TOPIC`."""

    client: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Spoke:
    """A client published where the entity of `session` speaks to us."""

    client: str
    session: bytes = field(repr=False)
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Interested:
    """Somebody published on the interest topic of `topic`."""

    client: str
    topic: bytes = field(repr=False)
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client's connection ended. `clean`: by DISCONNECT with code 0."""

    client: str
    clean: bool


TracingEvent: TypeAlias = Registering | Spoke | Interested | ClientGone | Tick


@dataclass(frozen=True, slots=True)
class Say:
    """Publish as the broker, QoS 1 unless it is a ping."""

    topic: str = field(repr=False)  # it holds the trace topic, which those who may know it know
    payload: bytes = field(repr=False)
    qos: int = 1


@dataclass(frozen=True, slots=True)
class SendAway:
    """Disconnect a client that keeps sending what does not hold."""

    client: str
    why: str


TracingEffect: TypeAlias = Say | SendAway | Count


# ------------------------------------------------------------------------------------------------ machine


@dataclass(slots=True)
class _Traced:
    """One registered entity."""

    advertisement: Advertisement
    client: str
    session: TraceSession
    pulse: Pulse
    audience: Audience
    token: Token | None = None
    holder: Identity | None = field(default=None, repr=False)
    trace_key: bytes = field(default=b"", repr=False)
    keyed: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    number: int = 0
    joined: bool = False
    state: TraceKind | None = None  # what it said last; who comes later is told
    metrics_at: float = 0.0
    due: float = 0.0

    @property
    def topic(self) -> bytes:
        return self.advertisement.topic


class Tracer:
    """One broker. `nodes`: discovery nodes' public keys by name; `authority`: who certifies entities; `random`: fresh
    secret bytes of a length."""

    def __init__(
        self, preset: Preset, nodes: Mapping[str, bytes], authority: bytes, random: Callable[[int], bytes]
    ) -> None:
        self._preset = preset
        self._nodes = dict(nodes)
        self._authority = authority
        self._random = random
        self._traced: dict[bytes, _Traced] = {}  # by session
        self._sessions: dict[bytes, bytes] = {}  # by trace topic
        self._clients: dict[str, set[bytes]] = {}
        self._bogus: OrderedDict[str, int] = OrderedDict()
        self._heap: list[tuple[float, bytes]] = []  # entries that `due` of their session does not confirm are stale

    def __len__(self) -> int:
        return len(self._traced)

    @property
    def next_deadline(self) -> float | None:
        while self._heap and not self._current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def handle(self, event: TracingEvent, now: float) -> list[TracingEffect]:
        """Effects in the order in which they must happen. What does not hold is counted against its client."""
        if isinstance(event, Tick):
            return self._run_due(now)
        if isinstance(event, ClientGone):
            return self._gone(event, now)
        try:
            match event:
                case Registering():
                    effects = self._register(event, now)
                case Spoke():
                    effects = self._spoke(event, now)
                case Interested():
                    effects = self._interested(event, now)
        except KeysError as error:
            return self._charge(event.client, error)
        return effects + self._run_due(now)

    # ----------------------------------------------------------------------------------------- registration

    def _register(self, event: Registering, now: float) -> list[TracingEffect]:
        """Raises keys errors."""
        registration = Registration.decode(event.data)
        advertisement = Advertisement.decode(registration.advertisement)
        node = self._nodes.get(advertisement.node)
        if node is None:
            raise NotAuthorised("the advertisement is of a discovery node that we do not know")
        now_ms = int(now * 1000)
        advertisement.verify(node, self._authority, now_ms)
        registration.verify(advertisement, now_ms)
        former = self._sessions.get(advertisement.topic)
        if former is None and len(self._traced) >= ENTITIES_MAX:
            raise TooOften(f"{ENTITIES_MAX} entities are registered; raise the bound or use another broker")
        if former is not None:
            self._forget(former)
        session, key = self._random(SESSION_BYTES), self._random(KEY_BYTES)
        ours = TraceSession(session, key, 1, advertisement.certificate.public_key)
        traced = _Traced(advertisement, event.client, ours, Pulse(self._preset, now), Audience(now))
        self._traced[session] = traced
        self._sessions[advertisement.topic] = session
        self._clients.setdefault(event.client, set()).add(session)
        self._schedule(session, traced)
        answer = registered(registration.request, session, key, advertisement, self._random(32))
        return [Say(answers_to(advertisement.certificate.name), answer), Count("entities_registered")]

    def _forget(self, session: bytes) -> None:
        traced = self._traced.pop(session)
        del self._sessions[traced.topic]
        of_client = self._clients[traced.client]
        of_client.discard(session)
        if not of_client:
            del self._clients[traced.client]

    def _gone(self, event: ClientGone, now: float) -> list[TracingEffect]:
        """The entity's connection ended: told at once. Pings go on, in case it comes back on another one."""
        effects: list[TracingEffect] = []
        for session in sorted(self._clients.get(event.client, ())):
            traced = self._traced[session]
            effects += self._trace(traced, TraceKind.DISCONNECT, {"clean": event.clean}, now)
        return effects

    # --------------------------------------------------------------------------------------- what it says

    def _spoke(self, event: Spoke, now: float) -> list[TracingEffect]:
        """Raises keys errors."""
        traced = self._traced.get(event.session)
        if traced is None:
            raise NotAuthorised("a message of a session that is not")
        word, body = traced.session.hear(event.data)
        if traced.client != event.client:  # the same entity on another connection
            self._move(event.session, traced, event.client)
        match word:
            case Word.ANSWER:
                effects = self._answered(traced, body, now)
            case Word.STATE:
                kind = TraceKind(body[0]) if len(body) == 1 and body[0] in STATES else None
                if kind is None:
                    raise BadFrame("an entity's state is one of four")
                traced.state = kind
                effects = self._trace(traced, kind, {"state": kind.name}, now)
            case Word.LOAD:
                effects = self._trace(traced, TraceKind.LOAD_INFORMATION, fields_of(body), now)
            case Word.TOKEN:
                effects = self._authorise(traced, body, now)
            case Word.TRACE_KEY:
                if len(body) != KEY_BYTES:
                    raise BadFrame(f"a trace key has {KEY_BYTES} bytes")
                traced.trace_key, effects = body, []
                traced.keyed.clear()
                traced.audience.gauge_at = now  # trackers need the new key
            case Word.SILENT:
                effects = self._trace(traced, TraceKind.REVERTING_TO_SILENT_MODE, {}, now)
                self._forget(event.session)
                return effects
            case _:
                raise BadFrame("an entity does not ping")
        self._schedule(event.session, traced)
        return effects

    def _move(self, session: bytes, traced: _Traced, client: str) -> None:
        before = self._clients[traced.client]
        before.discard(session)
        if not before:
            del self._clients[traced.client]
        traced.client = client
        self._clients.setdefault(client, set()).add(session)

    def _answered(self, traced: _Traced, body: bytes, now: float) -> list[TracingEffect]:
        reader = Reader(body)
        counter, sent_ms = reader.number(8), reader.number(8)
        reader.end()
        before = traced.pulse.health
        changed = traced.pulse.answered(counter, sent_ms, now)
        fields = {"ping": counter, "latency_ms": int(now * 1000) - sent_ms}
        effects = self._trace(traced, TraceKind.ALLS_WELL, fields, now)
        if changed is not None:
            # Those who heard that it was suspected or failed want changes, not heartbeats.
            again = {"after": before.value}
            effects += self._trace(traced, TraceKind.ALLS_WELL, again, now, to=Interest.CHANGES)
        if now >= traced.metrics_at:
            traced.metrics_at = now + METRICS_EVERY_S
            metrics = traced.pulse.metrics
            measured = {
                "loss_rate": round(metrics.loss_rate, 4), "reordered_rate": round(metrics.reordered_rate, 4),
                "latency_ms": _ms(metrics.latency_s), "jitter_ms": _ms(metrics.jitter_s),
            }  # fmt: skip
            effects += self._trace(traced, TraceKind.NETWORK_METRICS, measured, now)
        return effects

    def _authorise(self, traced: _Traced, body: bytes, now: float) -> list[TracingEffect]:
        """A token and its secret key: from now on we may tell. Raises keys errors."""
        reader = Reader(body)
        token, secret = Token.decode(reader.sized()), reader.take(KEY_BYTES)
        reader.end()
        token.verify(traced.advertisement, Delegated.PUBLISH, int(now * 1000))
        holder = Identity.from_private_bytes(secret)
        if holder.public_bytes != token.public_key:
            raise NotAuthorised("the secret key is not that of the token")
        traced.token, traced.holder = token, holder
        if traced.joined:
            return []
        traced.joined = True
        return self._trace(traced, TraceKind.JOIN, {"entity": traced.advertisement.certificate.name}, now)

    # --------------------------------------------------------------------------------------------- telling

    def _trace(
        self, traced: _Traced, kind: TraceKind, fields: Mapping[str, object], now: float, to: Interest | None = None
    ) -> list[TracingEffect]:
        """A signed trace, if somebody wants it and we may tell. Changes are told unasked: they are few, and a tracker
        that has just come would miss the one that matters."""
        interest = interest_of(kind) if to is None else to
        unasked = kind is TraceKind.GAUGE_INTEREST or interest is Interest.CHANGES
        if not unasked and interest not in traced.audience.wants(now):
            return []
        if traced.token is None or traced.holder is None:
            return [Count("traces_unauthorised")]
        now_ms = int(now * 1000)
        if now_ms > traced.token.not_after_ms:
            return [Count("traces_expired")]
        traced.number += 1
        bare = Trace(traced.token, kind, traced.number, now_ms, body_of(fields))
        if traced.trace_key and kind is not TraceKind.GAUGE_INTEREST:
            bare = bare.sealed_under(traced.trace_key, self._random(12))
        where = gauge_topic(traced.topic) if kind is TraceKind.GAUGE_INTEREST else trace_topic(traced.topic, interest)
        return [Say(where, bare.signed(traced.holder).encode()), Count("traces", 1, kind.name)]

    def _interested(self, event: Interested, now: float) -> list[TracingEffect]:
        """A tracker's answer. Raises keys errors."""
        session = self._sessions.get(event.topic)
        if session is None:
            return []  # it is traced by another broker
        traced = self._traced[session]
        wanted = Wanted.decode(event.data)
        effects: list[TracingEffect] = []
        if traced.trace_key:
            tracker = Certificate.decode(wanted.credentials)
            tracker.verify(self._authority, int(now * 1000))
            if tracker.role is not Role.ENTITY or tracker.name != wanted.tracker:
                raise NotAuthorised("a tracker that is somebody else")
            if not traced.advertisement.may_discover(tracker):
                raise NotAuthorised("a tracker that may not discover the trace topic")
            if wanted.anew:
                traced.keyed.pop(tracker.party_id, None)
            effects = self._give_key(traced, tracker)
        traced.audience.answered(wanted, now)
        if wanted.anew and traced.state is not None and Interest.STATES in wanted.interest:
            effects += self._trace(traced, traced.state, {"state": traced.state.name}, now)
        return effects

    def _give_key(self, traced: _Traced, tracker: Certificate) -> list[TracingEffect]:
        """The trace key, sealed to a tracker that has not got it. Raises OurFault for a key that is none."""
        if tracker.party_id in traced.keyed:
            return []
        head = opening(Kind.TRACE_KEY) + traced.topic
        box = seal_box(tracker.agreement_key, traced.trace_key, head, self._random(32))
        traced.keyed[tracker.party_id] = None
        if len(traced.keyed) > KEYED_MAX:
            traced.keyed.popitem(last=False)
        return [Say(key_topic(tracker.name, traced.topic), head + box), Count("trace_keys_given")]

    # ------------------------------------------------------------------------------------------------ time

    def _run_due(self, now: float) -> list[TracingEffect]:
        effects: list[TracingEffect] = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._current(entry):
                traced = self._traced[entry[1]]
                traced.due = float("-inf")  # it is in the heap no longer
                effects += self._look(entry[1], traced, now)
                self._schedule(entry[1], traced)
        return effects

    def _look(self, session: bytes, traced: _Traced, now: float) -> list[TracingEffect]:
        if int(now * 1000) > traced.advertisement.not_after_ms:
            self._forget(session)  # nobody may believe what is said of it
            return [Count("entities_ended")]
        effects: list[TracingEffect] = []
        ping, changed = traced.pulse.tick(now)
        if ping is not None:
            effects.append(self._pinged(session, traced, ping))
        if changed is Health.SUSPECTED:
            effects += self._trace(traced, TraceKind.FAILURE_SUSPICION, {"ping": traced.pulse.sent}, now)
        elif changed is Health.FAILED:
            effects += self._trace(traced, TraceKind.FAILED, {"ping": traced.pulse.sent}, now)
        if traced.token is not None and now >= traced.audience.gauge_at:
            traced.audience.gauged(now)
            effects += self._trace(traced, TraceKind.GAUGE_INTEREST, {"sealed": bool(traced.trace_key)}, now)
        return effects

    @staticmethod
    def _pinged(session: bytes, traced: _Traced, ping: Ping) -> Say:
        said = traced.session.say(Word.PING, number(ping.number, 8) + number(ping.sent_ms, 8))
        return Say(to_entity(traced.advertisement.certificate.name, traced.topic, session), said, qos=0)

    def _schedule(self, session: bytes, traced: _Traced) -> None:
        due = traced.pulse.next_deadline
        if traced.token is not None:
            due = min(due, traced.audience.gauge_at)
        if due != traced.due:
            traced.due = due
            heapq.heappush(self._heap, (due, session))
            if len(self._heap) > 4 * len(self._traced) + 64:  # stale entries do not pile up
                self._heap = [(each.due, name) for name, each in self._traced.items()]
                heapq.heapify(self._heap)

    def _current(self, entry: tuple[float, bytes]) -> bool:
        traced = self._traced.get(entry[1])
        return traced is not None and traced.due == entry[0]

    def _charge(self, client: str, error: KeysError) -> list[TracingEffect]:
        """What does not hold is dropped; a client that goes on with it is sent away."""
        counted: list[TracingEffect] = [Count("traces_refused", 1, type(error).__name__)]
        self._bogus[client] = self._bogus.pop(client, 0) + 1
        if len(self._bogus) > CLIENTS_MAX:
            self._bogus.popitem(last=False)
        if self._bogus[client] < BOGUS_MAX:
            return counted
        del self._bogus[client]
        return [*counted, SendAway(client, str(error))]


def open_trace_key(data: bytes, topic: bytes, tracker: Identity) -> bytes:
    """The trace key that a broker sealed to us. Raises BadFrame, BadContent."""
    head = opening(Kind.TRACE_KEY) + topic
    if data[: len(head)] != head:
        raise BadFrame("not the trace key of this trace topic")
    key = tracker.open_box(data[len(head) :], head)
    if len(key) != KEY_BYTES:
        raise BadFrame(f"a trace key has {KEY_BYTES} bytes")
    return key


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
