"""The broker that traces entities: registers them, pings them, and tells those who asked (B3, B5, B6, B8, B9).

An entity registers with its advertisement and gets a session; in it answers pings, says its states and load, and hands
over a token, without which nothing can be told of it. From then on there are traces (`telling`). Whoever sends what
does not hold pays for it: after `BOGUS_MAX` of them the client is sent away. Events and the time in, effects out, as
in `machine`.

Not here: discovery (`discovery`), trackers (`tracker`), who may publish where (`constrained`), unchanged devices
(`device_tracing`), what is believed of several such brokers (`witnessing`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import TypeAlias

from bridge.base import Agenda
from bridge.contract import Count, FairTable, Tick
from bridge.traces.kinds import Interest, TraceKind, answers_to, fields_of, state_of, to_broker, to_entity
from bridge.traces.pings import Health, Preset, Pulse
from bridge.traces.reporting import Report, Reporter
from bridge.traces.telling import KEYED_MAX, Say, Voice, open_trace_key
from keys.delegation import Advertisement, Delegated, Token
from keys.errors import BadFrame, KeysError, NotAuthorised, TooOften
from keys.frames import Reader
from keys.identity import Identity
from keys.tracesession import KEY_BYTES, SESSION_BYTES, Registration, TraceSession, Word, registered

__all__ = [
    "BOGUS_MAX",
    "CLIENTS_MAX",
    "ENTITIES_MAX",
    "KEYED_MAX",
    "METRICS_EVERY_S",
    "ClientGone",
    "Interested",
    "Registered",
    "Registering",
    "Say",
    "SendAway",
    "Spoke",
    "Tracer",
    "TracingEffect",
    "TracingEvent",
    "open_trace_key",
]

ENTITIES_MAX = 20_000  # trace topics registered at one broker; who has most loses its oldest, if that is more than one
BOGUS_MAX = 20  # messages of one client that do not hold, before it is sent away
DUE_AT_ONCE = 256  # entities looked at in one turn: what they answer must be read between turns
DUE_BESIDE = 2  # ... and with each message: an entity comes up twice for each ping, to send it and to miss it
CLIENTS_MAX = 4_096  # clients whose bogus messages are counted
METRICS_EVERY_S = 10.0
_ECHO = Struct(">QQ")  # a ping's body and its answer's: number, sent_ms


# --------------------------------------------------------------------------------------- events, effects


@dataclass(frozen=True, slots=True)
class Registering:
    """A client published on `REGISTRATION_TOPIC`."""

    client: str
    data: bytes = field(repr=False)


@dataclass(slots=True)  # not frozen: there is one for each answer, and freezing doubles what it costs
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
class SendAway:
    """Disconnect a client that keeps sending what does not hold."""

    client: str
    why: str


@dataclass(frozen=True, slots=True)
class Registered:
    """An entity is traced from now on; what it brought is verified."""

    registration: Registration
    advertisement: Advertisement


TracingEffect: TypeAlias = Say | SendAway | Registered | Report | Count


# ------------------------------------------------------------------------------------------------ machine


@dataclass(slots=True)
class _Traced:
    """One registered entity."""

    voice: Voice
    client: str
    session: TraceSession
    pulse: Pulse
    speaks_at: str
    listens_at: str
    joined: bool = False
    metrics_at: float = 0.0
    due: float = float("inf")
    """When it is looked at, if not before its time."""

    @property
    def advertisement(self) -> Advertisement:
        return self.voice.advertisement

    @property
    def wants_attention_at(self) -> float:
        due, voice = self.pulse.next_deadline, self.voice
        return due if voice.token is None else min(due, voice.audience.gauge_at)


class Tracer:
    """One broker. `nodes`: discovery nodes' public keys by name; `authority`: who certifies entities; `random`: fresh
    secret bytes of a length; `reporter`: who is told beside trackers."""

    def __init__(
        self,
        preset: Preset,
        nodes: Mapping[str, bytes],
        authority: bytes,
        random: Callable[[int], bytes],
        reporter: Reporter | None = None,
    ) -> None:
        self._preset = preset
        self._reporter = reporter
        self._nodes = dict(nodes)
        self._authority = authority
        self._random = random
        self._traced: dict[bytes, _Traced] = {}  # by session
        self._sessions: dict[bytes, bytes] = {}  # by trace topic
        self._places: FairTable[bytes, bytes] = FairTable(ENTITIES_MAX)  # sessions, by entity; a value is its topic
        self._spoken: dict[str, bytes] = {}  # by where its entity speaks to us
        self._clients: dict[str, set[bytes]] = {}
        self._bogus: OrderedDict[str, int] = OrderedDict()
        # An answer puts off what its entity is looked at for, so many times a second. So an entry stays where it is
        # when its time moves on, and finds a new place when it comes up. Those that `due` does not confirm are stale.
        self._agenda = Agenda()  # of sessions

    def __len__(self) -> int:
        return len(self._traced)

    def session_at(self, topic: str) -> bytes | None:
        """The session in which is spoken by whoever publishes on this topic; None for every other topic."""
        return self._spoken.get(topic)

    @property
    def next_deadline(self) -> float | None:
        """When something may be due; not later than it is."""
        while (entry := self._agenda.first()) is not None:
            traced = self._traced.get(entry[1])
            if traced is not None and traced.due == entry[0]:
                return entry[0]
            self._agenda.take()
        return None

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
        effects += self._run_due(now, DUE_BESIDE)
        return effects

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
        if former is None and len(self._traced) >= ENTITIES_MAX and self._places.is_even:
            raise TooOften(f"{ENTITIES_MAX} entities are registered; raise the bound or use another broker")
        if former is not None:
            self._forget(former)
        session, key = self._random(SESSION_BYTES), self._random(KEY_BYTES)
        ours = TraceSession(session, key, 1, advertisement.certificate.public_key)
        voice = Voice(advertisement, self._random, now, self._reporter)
        pulse = Pulse(self._preset, now, self._random(1)[0] / 256)
        speaks_at = to_broker(advertisement.topic, session)
        listens_at = to_entity(advertisement.certificate.name, advertisement.topic, session)
        traced = _Traced(voice, event.client, ours, pulse, speaks_at, listens_at)
        self._traced[session] = traced
        self._sessions[advertisement.topic] = self._spoken[speaks_at] = session
        self._clients.setdefault(event.client, set()).add(session)
        self._schedule(session, traced)
        answer = registered(registration.request, session, key, advertisement, self._random(32))
        evicted = self._places.put(session, advertisement.certificate.name.encode(), advertisement.topic)
        if evicted is not None:
            self._forget(evicted[0])
        said = Say(answers_to(advertisement.certificate.name), answer)
        effects: list[TracingEffect] = [said, Registered(registration, advertisement), Count("entities_registered")]
        return [*effects, *([Count("entities_evicted")] if evicted else [])]

    def _forget(self, session: bytes) -> None:
        traced = self._traced.pop(session)
        self._places.pop(session)
        del self._sessions[traced.voice.topic], self._spoken[traced.speaks_at]
        of_client = self._clients[traced.client]
        of_client.discard(session)
        if not of_client:
            del self._clients[traced.client]

    def _gone(self, event: ClientGone, now: float) -> list[TracingEffect]:
        """The entity's connection ended: told at once. Pings go on, in case it comes back on another one."""
        effects: list[TracingEffect] = []
        for session in sorted(self._clients.get(event.client, ())):
            traced = self._traced[session]
            effects += traced.voice.tell(TraceKind.DISCONNECT, {"clean": event.clean}, now)
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
        effects: list[TracingEffect] = []
        match word:
            case Word.ANSWER:
                effects = self._answered(traced, body, now)
            case Word.STATE:
                kind, said = state_of(body)
                traced.voice.again[Interest.STATES] = kind, said
                effects += traced.voice.tell(kind, said, now)
            case Word.LOAD:
                effects += traced.voice.tell(TraceKind.LOAD_INFORMATION, fields_of(body), now)
            case Word.TOKEN:
                effects += self._authorise(traced, body, now)
            case Word.TRACE_KEY:
                traced.voice.seal(body, now)
            case Word.SILENT:
                said = fields_of(body) if body else {}
                effects += traced.voice.tell(TraceKind.REVERTING_TO_SILENT_MODE, said, now)
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
        if len(body) != _ECHO.size:
            raise BadFrame("an answer echoes a ping's number and time")
        counter, sent_ms = _ECHO.unpack(body)
        before = traced.pulse.health
        changed = traced.pulse.answered(counter, sent_ms, now)
        if changed is None and now < traced.metrics_at and not traced.voice.is_heard:
            return []  # the usual case: it is as well as before, and nobody asks
        fields = {"ping": counter, "latency_ms": int(now * 1000) - sent_ms}
        effects: list[TracingEffect] = [*traced.voice.tell(TraceKind.ALLS_WELL, fields, now)]
        if changed is not None:
            # Those who heard that it was suspected or failed want changes, not heartbeats.
            again = {"after": before.value}
            effects += traced.voice.tell(TraceKind.ALLS_WELL, again, now, to=Interest.CHANGES)
        if now >= traced.metrics_at:
            traced.metrics_at = now + METRICS_EVERY_S
            metrics = traced.pulse.metrics
            measured = {
                "loss_rate": round(metrics.loss_rate, 4), "reordered_rate": round(metrics.reordered_rate, 4),
                "latency_ms": _ms(metrics.latency_s), "jitter_ms": _ms(metrics.jitter_s),
            }  # fmt: skip
            effects += traced.voice.tell(TraceKind.NETWORK_METRICS, measured, now)
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
        traced.voice.authorise(token, holder)
        if traced.joined:
            return []
        traced.joined = True
        return [*traced.voice.tell(TraceKind.JOIN, {"entity": traced.advertisement.certificate.name}, now)]

    def _interested(self, event: Interested, now: float) -> list[TracingEffect]:
        """A tracker's answer. Raises keys errors."""
        session = self._sessions.get(event.topic)
        if session is None:
            return []  # it is traced by another broker, or no registered entity's
        return [*self._traced[session].voice.answered(event.data, self._authority, now)]

    # ------------------------------------------------------------------------------------------------ time

    def _run_due(self, now: float, most: int = DUE_AT_ONCE) -> list[TracingEffect]:
        effects: list[TracingEffect] = []
        for _ in range(most):
            entry = self._agenda.first()
            if entry is None or entry[0] > now:
                break
            self._agenda.take()
            session = entry[1]
            traced = self._traced.get(session)
            if traced is None or traced.due != entry[0]:
                continue
            due = traced.wants_attention_at
            if due <= now:
                effects += self._look(session, traced, now)
                if session not in self._traced:
                    continue
                due = traced.wants_attention_at
            traced.due = due
            self._agenda.put(due, session)
        return effects

    def _look(self, session: bytes, traced: _Traced, now: float) -> list[TracingEffect]:
        if int(now * 1000) > traced.advertisement.not_after_ms:
            self._forget(session)  # nobody may believe what is said of it
            return [Count("entities_ended")]
        effects: list[TracingEffect] = []
        ping, changed = traced.pulse.tick(now)
        if ping is not None:
            effects.append(Say(traced.listens_at, traced.session.say(Word.PING, _ECHO.pack(*ping)), 0))
        if changed is Health.SUSPECTED:
            effects += traced.voice.tell(TraceKind.FAILURE_SUSPICION, {"ping": traced.pulse.sent}, now)
        elif changed is Health.FAILED:
            effects += traced.voice.tell(TraceKind.FAILED, {"ping": traced.pulse.sent}, now)
        effects += traced.voice.gauge(now)
        return effects

    def _schedule(self, session: bytes, traced: _Traced) -> None:
        """It may want attention sooner than it did."""
        due = traced.wants_attention_at
        if due < traced.due:
            traced.due = due
            self._agenda.put(due, session)
            if len(self._agenda) > 4 * len(self._traced) + 64:  # stale entries do not pile up
                self._agenda = Agenda()
                for name, each in self._traced.items():
                    self._agenda.put(each.due, name)

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


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
