"""The broker that traces entities: registers them, pings them, and tells trackers (B3, B5, B6, B8, B9).

An entity registers with its advertisement and gets a session. In the session the entity answers pings, reports states
and load, and hands over a token, without which nothing can be told of it. From then on there are traces (`telling`).
A client pays for invalid messages: after `BOGUS_MAX` of them the client is sent away. Events and the time in, effects
out, as in `contract.machine`.

Not here: discovery (`tracking.discovery`), trackers (`tracking.tracker`), the right to publish
(`document.constrained`), unchanged devices (`devices.device_tracing`), the belief in several such brokers
(`tracking.witnessing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bridge.base import Belongings, Wall
from bridge.contract import Count, FairTable, Tick
from bridge.traces import resuming
from bridge.traces.elsewhere import Elsewhere
from bridge.traces.events import (
    ClientGone,
    Interested,
    Registered,
    Registering,
    Relayed,
    Resumed,
    Spoke,
    TracingEffect,
    TracingEvent,
)
from bridge.traces.kinds import Interest, TraceKind, answers_to, fields_of, state_of, to_broker
from bridge.traces.offenders import BOGUS_MAX, CLIENTS_MAX, Offenders, SendAway
from bridge.traces.pings import Health, Pulse
from bridge.traces.presets import Preset
from bridge.traces.registered import Traced
from bridge.traces.rejoining import Rejoining
from bridge.traces.remembered import RememberedEntity
from bridge.traces.reporting import Reporter
from bridge.traces.self_health import SICK, SelfHealth
from bridge.traces.signs import METRICS_EVERY_S, SPEAKS_S, metrics, ping_of, sign
from bridge.traces.sweep import NEVER, Sweep
from bridge.traces.telling import KEYED_MAX, Say, Voice, open_trace_key
from keys.delegation import Advertisement, topic_of
from keys.errors import BadFrame, Expired, KeysError, NotAuthorised, TooOften
from keys.resumption import KNOCK
from keys.tracesession import KEY_BYTES, SESSION_BYTES, Registration, TraceSession, Word, registered

__all__ = [
    "BOGUS_MAX", "CLIENTS_MAX", "ENTITIES_MAX", "KEYED_MAX", "METRICS_EVERY_S", "SPEAKS_S", "ClientGone",
    "Interested", "Registered", "Registering", "Say", "SendAway", "Spoke", "Tracer", "TracingEffect", "TracingEvent",
    "open_trace_key",
]  # fmt: skip

ENTITIES_MAX = 100_000  # trace topics at one broker; the entity with most loses its oldest, if it has several
DUE_AT_ONCE = 256  # entities checked in one turn: their answers must be read between turns


class Tracer:
    """A tracing broker. `nodes`: discovery nodes' public keys by name; `authority`: the certifier of entities;
    `random`: fresh secret bytes of a length; `reporter`: reports beside trackers; `verified`: the advertisement of a
    trace topic the discovery node beside us verified or made.
    """

    def __init__(
        self,
        preset: Preset,
        nodes: Mapping[str, bytes],
        authority: bytes,
        random: Callable[[int], bytes],
        reporter: Reporter | None = None,
        wall: Wall | None = None,
        offenders: Offenders | None = None,
        verified: Callable[[bytes], Advertisement | None] = lambda topic: None,
    ) -> None:
        self.listens: Callable[[str], bool] = lambda topic: True
        """Returns True if anybody may hear a topic."""
        self._verified = verified
        self._wall = wall or Wall()
        self._offenders = offenders or Offenders()
        self.self_health = SelfHealth()
        self._elsewhere = Elsewhere(self.self_health)
        self._rejoining = Rejoining()
        self._overdue = 0  # entities that owe an answer
        self._doubted: set[bytes] = set()  # trace topics with verdicts of ours from while we were not well
        self._changed: set[bytes] = set()  # trace topics whose record differs from the kept one
        self._preset = preset
        self._reporter = reporter
        self._nodes = dict(nodes)
        self._authority = authority
        self._random = random
        self._traced: dict[bytes, Traced] = {}  # by session
        self._sessions: dict[bytes, bytes] = {}  # by trace topic
        self._places: FairTable[bytes, bytes] = FairTable(ENTITIES_MAX)  # sessions, by entity; a value is its topic
        self._spoken: dict[str, bytes] = {}  # by the topic on which the entity speaks to us
        self._clients: Belongings[str, bytes] = Belongings()  # sessions, by client
        self._sweep = Sweep()
        self._placed: list[bytes] = []  # sessions, by place in the sweep; stays when the place is given back

    def __len__(self) -> int:
        return len(self._traced)

    def session_at(self, topic: str) -> bytes | None:
        """Returns the session whose entity speaks on this topic; None for every other topic."""
        return self._spoken.get(topic)

    @property
    def next_deadline(self) -> float | None:
        """The time at which something may be due; never too late."""
        first = self._sweep.first_due
        return None if first == NEVER else first

    def handle(self, event: TracingEvent, now: float) -> list[TracingEffect]:
        """Returns effects in the order in which they must happen. Invalid messages are counted against their client.
        `Tick` promises that all readable input at `now` was read: nobody is judged while an answer lies unread.
        """
        if isinstance(event, Tick):
            return self._run_due(now)
        if isinstance(event, ClientGone):
            return self._gone(event, now)
        if isinstance(event, Relayed):
            return self._relayed(event, now)
        try:
            match event:
                case Registering():
                    return self._register(event, now)
                case Spoke():
                    return self._spoke(event, now)
                case Interested():
                    return self._interested(event, now)
        except TooOften as error:
            return [Count("traces_refused", 1, type(error).__name__)]
        except KeysError as error:
            return [*self._offenders.charge(event.client, "traces_refused", error)]

    # ----------------------------------------------------------------------------------------- registration

    def _register(self, event: Registering, now: float) -> list[TracingEffect]:
        """Registers an entity. Raises keys errors."""
        registration, now_ms = Registration.decode(event.data), self._wall.ms(now)
        former = self._sessions.get(topic := topic_of(registration.advertisement))
        known = self._verified(topic) if former is None else self._traced[former].advertisement
        if known is not None and known.encode() == registration.advertisement:
            advertisement = known
            advertisement.check_time(now_ms)  # verified when it came first, byte by byte
        else:
            advertisement = Advertisement.decode(registration.advertisement)
            node = self._nodes.get(advertisement.node)
            if node is None:
                raise NotAuthorised("the advertisement is of a discovery node that we do not know")
            advertisement.verify(node, self._authority, now_ms)
        resuming.only_own(advertisement.certificate.name, event.client)
        registration.verify(advertisement, now_ms)
        if former is None and len(self._traced) >= ENTITIES_MAX and self._places.is_even:
            raise TooOften(f"{ENTITIES_MAX} entities are registered; raise the bound or use another broker")
        before = None if former is None else self._forget_session(former)
        session, key = self._random(SESSION_BYTES), self._random(KEY_BYTES)
        ours = TraceSession(session, key, 1, advertisement.certificate.public_key)
        voice = Voice(advertisement, self._random, now, self._reporter, self._wall, self.listens)
        if before is not None:
            if before.is_missing:
                self._rejoining.count_return(now)
            voice.inherit(before.voice)
            voice.former = before.voice.right
        speaks_at = to_broker(advertisement.topic, session)
        traced = Traced(voice, event.client, ours, self._new_pulse(now), speaks_at, self._place(session))
        self._traced[session] = traced
        self._sessions[advertisement.topic] = self._spoken[speaks_at] = session
        self._clients.add(event.client, session)
        self._schedule_session(traced)
        answer = registered(registration.request, session, key, advertisement, self._random(32))
        evicted = self._places.put(session, advertisement.certificate.name.encode(), advertisement.topic)
        if evicted is not None:
            self._forget_session(evicted[0])
        news = Say(answers_to(event.client), answer), Registered(registration, advertisement, event.client)
        return [*news, Count("entities_registered"), *([Count("entities_evicted")] if evicted else [])]

    def _place(self, session: bytes) -> int:
        place = self._sweep.take_place()
        if place == len(self._placed):
            self._placed.append(session)
        self._placed[place] = session
        return place

    def _forget_session(self, session: bytes) -> Traced:
        traced = self._traced.pop(session)
        self._sweep.give_back(traced.place)
        self._overdue -= traced.pulse is not None and traced.pulse.is_overdue
        if traced.is_missing:
            self._rejoining.gone()
        self._changed.add(traced.voice.topic)
        self._places.pop(session)
        del self._sessions[traced.voice.topic], self._spoken[traced.speaks_at]
        self._clients.drop_thing(traced.client, session)
        return traced

    def _gone(self, event: ClientGone, now: float) -> list[TracingEffect]:
        """Tells at once that an entity's connection ended. Pings go on, in case the entity comes back on another
        connection.
        """
        effects: list[TracingEffect] = []
        for session in sorted(self._clients.things_of(event.client)):
            traced = self._traced[session]
            effects += self._stands(traced, TraceKind.DISCONNECT, {"clean": event.clean}, now)
            if traced.pulse is not None:
                before = traced.pulse.is_overdue
                traced.pulse.connection_ended(now)
                self._overdue += traced.pulse.is_overdue - before
                self._schedule_session(traced)
        return effects

    def _stands(self, traced: Traced, kind: TraceKind, fields: Mapping[str, object], now: float) -> list[TracingEffect]:
        """Tells the new state of an entity, also to trackers coming later."""
        sick = {"sick": round(self.self_health.score, 2)} if self.self_health.score >= 0.05 else {}
        said = {**fields, **sick}
        traced.voice.set_state(Interest.CHANGES, kind, said, now)
        self._changed.add(traced.voice.topic)
        if self.self_health.score >= SICK:
            self._doubted.add(traced.voice.topic)
        return [*traced.voice.tell_trace(kind, said, now, to=Interest.CHANGES)]

    def _say_again(self, now: float) -> list[TracingEffect]:
        """Repeats the traces we told while we were not well: trackers with several witnesses ignored them."""
        effects: list[TracingEffect] = []
        for topic in [self._doubted.pop() for _ in range(min(len(self._doubted), DUE_AT_ONCE))]:
            session = self._sessions.get(topic)
            held = None if session is None else self._traced[session].voice.present_states.get(Interest.CHANGES)
            if session is not None and held is not None:
                kind, fields = held[0], {name: held[1][name] for name in held[1] if name not in ("sick", "since_ms")}
                effects += self._stands(self._traced[session], kind, fields, now)
        return effects

    # --------------------------------------------------------------------------------------- what it says

    def _spoke(self, event: Spoke, now: float) -> list[TracingEffect]:
        """Takes a message in an entity's session. Raises keys errors."""
        traced, effects = self._traced.get(event.session), list[TracingEffect]()
        if event.data.startswith(KNOCK):
            return self._knocked(traced, event, now)
        if traced is None:
            raise NotAuthorised("a message of a session that is not")
        word, body, is_back = resuming.hear(traced, event.data)
        if traced.client != event.client:  # the same entity on another connection
            self._move(event.session, traced, event.client)
        if is_back:
            effects += self._resumed(traced, now)
        effects += self._lives(traced, word, body, now)
        try:
            effects += self._said(traced, word, body, now)
        except KeysError as error:  # the entity lives, even if its word is invalid
            effects += self._offenders.charge(event.client, "traces_refused", error)
        if event.session in self._traced:
            self._schedule_session(traced)
        return effects

    def _knocked(self, traced: Traced | None, event: Spoke, now: float) -> list[TracingEffect]:
        """Answers a knock. Raises BadFrame, NotAuthorised, TooOften."""
        knock = resuming.knock_of(event)
        self._offenders.afford(event.client, "knock", now)
        if traced is None or knock.session != event.session:
            return [*resuming.not_known(knock)]
        try:
            return [*resuming.answer(traced, knock, self._random, self._wall.ms(now))]
        except KeysError as error:
            return [*self._offenders.charge(event.client, "traces_refused", error), *resuming.not_known(knock)]

    def _resumed(self, traced: Traced, now: float) -> list[TracingEffect]:
        """Takes back an entity that resumed its former session."""
        if traced.is_missing:
            self._rejoining.gone()
            self._rejoining.count_return(now)
        traced.pulse = traced.pulse or self._new_pulse(now)
        traced.joined = True
        told = self._stands(traced, TraceKind.JOIN, {"entity": traced.advertisement.certificate.name}, now)
        return [Resumed(traced.client), Count("entities_resumed"), *told]

    def _new_pulse(self, now: float) -> Pulse:
        return Pulse(self._preset, now + SPEAKS_S, self._random(1)[0] / 256, self.self_health)

    def _said(self, traced: Traced, word: Word, body: bytes, now: float) -> list[TracingEffect]:
        """Acts on a word of an entity. Raises keys errors."""
        voice = traced.voice
        match word:
            case Word.ALIVE | Word.ANSWER:
                return []
            case Word.STATE:
                kind, said = state_of(body)
                voice.set_state(Interest.STATES, kind, said, now)
                self._changed.add(voice.topic)
                return [*voice.tell_trace(kind, said, now)]
            case Word.LOAD:
                load = fields_of(body)
                voice.set_state(Interest.LOAD, TraceKind.LOAD_INFORMATION, load, now)
                return [*voice.tell_trace(TraceKind.LOAD_INFORMATION, load, now)]
            case Word.TOKEN:
                return self._authorise(traced, body, now)
            case Word.TRACE_KEY:
                voice.seal_under(body, now)
                self._changed.add(voice.topic)
                return []
            case Word.SILENT:
                told = voice.tell_trace(TraceKind.REVERTING_TO_SILENT_MODE, fields_of(body) if body else {}, now)
                self._forget_session(traced.session.session)
                return [*told]
        raise BadFrame("an entity does not ping")

    def _lives(self, traced: Traced, word: Word, body: bytes, now: float) -> list[TracingEffect]:
        """Takes a message as a sign of life: only the entity has the session's key. Raises BadFrame."""
        pulse, voice = traced.pulse, traced.voice
        assert pulse is not None, "nobody speaks in a session of before"
        before, owed = pulse.health, pulse.is_overdue
        changed, wellness = sign(traced, word, body, now)
        self._overdue += pulse.is_overdue - owed
        if changed is None and not voice.is_heard:
            return []  # the usual case: no change, and nobody asks
        effects: list[TracingEffect] = []
        if word in (Word.ANSWER, Word.ALIVE):
            effects += voice.tell_trace(TraceKind.ALLS_WELL, wellness, now)
        if changed is not None:
            # Trackers that heard of the suspicion or failure want changes, not heartbeats.
            effects += self._stands(traced, TraceKind.ALLS_WELL, {"after": before.value}, now)
        return [*effects, *(metrics(traced, now) if word is Word.ANSWER else ())]

    def _move(self, session: bytes, traced: Traced, client: str) -> None:
        self._clients.drop_thing(traced.client, session)
        traced.client = client
        self._clients.add(client, session)

    def _relayed(self, event: Relayed, now: float) -> list[TracingEffect]:
        """Takes an entity's answer through another witness. An invalid answer is counted, but charged to nobody."""
        traced = self._traced.get(event.session)
        if traced is None or traced.pulse is None:
            return []
        owed = traced.pulse.is_overdue
        try:
            news = self._elsewhere.take_other_answer(traced, event.data, now)
        except KeysError as error:
            return [Count("traces_refused", 1, type(error).__name__)]
        self._overdue += traced.pulse.is_overdue - owed
        self._schedule_session(traced)
        if news is None:
            return []
        told = {"ping": traced.pulse.sent, "answers": "elsewhere"}
        return [Count("entities_vouched"), *self._stands(traced, TraceKind.FAILURE_SUSPICION, told, now)]

    def _authorise(self, traced: Traced, body: bytes, now: float) -> list[TracingEffect]:
        """Takes a token and its secret key: our right to speak. Raises keys errors."""
        try:
            traced.voice.hand_over(body, self._wall.ms(now))
        except Expired as error:
            clock = traced.session.say_word(Word.CLOCK, self._wall.ms(now).to_bytes(8))
            charged = self._offenders.charge(traced.client, "traces_refused", error)
            return [*charged, Say(traced.listens_at, clock)]
        self._changed.add(traced.voice.topic)
        if traced.joined:
            return []
        traced.joined = True
        return self._stands(traced, TraceKind.JOIN, {"entity": traced.advertisement.certificate.name}, now)

    def _interested(self, event: Interested, now: float) -> list[TracingEffect]:
        """Takes a tracker's answer. Raises keys errors."""
        session = self._sessions.get(event.topic)
        if session is None:
            return []  # another broker traces the entity, or the topic is unregistered
        voice = self._traced[session].voice
        if not voice.knows_wish(event.data):
            self._offenders.afford(event.client, "interest", now)
        effects = voice.take_interest(event.data, self._authority, now)
        self._schedule_session(self._traced[session])
        return [*effects]

    # ------------------------------------------------------------------------------------------------ time

    def _run_due(self, now: float) -> list[TracingEffect]:
        effects: list[TracingEffect] = []
        first, places = self._sweep.due_places(now, DUE_AT_ONCE)
        self.self_health.turn(now - first, self._overdue, len(self._traced) - self._rejoining.missing, now)
        if self._doubted and self.self_health.score < SICK:
            effects += self._say_again(now)
        for place in places:
            session = self._placed[place]
            traced = self._traced[session]
            effects += self._look_at_session(session, traced, now)
            if session in self._traced:
                self._schedule_session(traced)
        return effects

    def _look_at_session(self, session: bytes, traced: Traced, now: float) -> list[TracingEffect]:
        if self._wall.ms(now) > traced.advertisement.not_after_ms:
            self._forget_session(session)  # nobody may believe traces of an ended topic
            return [Count("entities_ended")]
        effects, pulse = list[TracingEffect](), traced.pulse
        if pulse is None:
            if now >= traced.rejoin_by:
                traced.rejoin_by = self._rejoining.until(now, self.self_health.score)
            if now >= traced.rejoin_by:
                traced.rejoin_by = NEVER
                self._rejoining.gone()
                why = {"why": "not back after a restart of its broker"}
                effects += self._stands(traced, TraceKind.FAILED, why, now)
            return [*effects, *traced.voice.gauge(now)]
        owed = pulse.is_overdue
        ping, changed = pulse.tick(now)
        self._overdue += pulse.is_overdue - owed
        if ping is not None:
            asks = traced.session.say_word(Word.PING, ping_of(ping, pulse.every_s))
            effects.append(Say(traced.listens_at, asks, 0))
            if pulse.health is not Health.ALIVE:
                effects += self._elsewhere.ask_others(traced, ping, now)
        if changed is Health.SUSPECTED:
            effects += self._stands(traced, TraceKind.FAILURE_SUSPICION, {"ping": pulse.sent}, now)
        elif changed is Health.FAILED:
            effects += self._stands(traced, TraceKind.FAILED, {"ping": pulse.sent}, now)
        effects += traced.voice.gauge(now)
        return effects

    def _schedule_session(self, traced: Traced) -> None:
        self._sweep.set_time(traced.place, traced.wants_attention_at)

    # ------------------------------------------------------------------------------------------ over a restart

    def records(self) -> list[tuple[bytes, RememberedEntity | None]]:
        """Returns the trace topics whose record changed; None: keep no record any more."""
        changed, self._changed = self._changed, set()
        return [(topic, self._record(topic)) for topic in changed]

    def _record(self, topic: bytes) -> RememberedEntity | None:
        session = self._sessions.get(topic)
        return (
            None
            if session is None
            else self._traced[session].voice.remembered_entity(*self._traced[session].session.session_and_key)
        )

    def restore(self, records: Iterable[RememberedEntity], now: float) -> list[TracingEffect]:
        """Takes up entities of before a restart: their trackers are asked anew, and told if an entity does not come
        back.
        """
        effects: list[TracingEffect] = []
        for record in records:
            known, held = record.advertisement, record.holds.get(Interest.CHANGES)
            ends_ms = min(known.not_after_ms, record.token.not_after_ms)
            is_known = known.topic in self._sessions or record.session in self._traced
            if ends_ms < self._wall.ms(now) or is_known or len(self._traced) >= ENTITIES_MAX:
                self._changed.add(known.topic)
                continue
            session = record.session
            voice = Voice(known, self._random, now, self._reporter, self._wall, self.listens)
            voice.restore(record, now)
            ours = TraceSession(session, record.key, 1, known.certificate.public_key)
            is_over = held is not None and held[0] is TraceKind.FAILED
            traced = Traced(voice, "", ours, None, to_broker(known.topic, session), self._place(session))
            traced.rejoin_by = NEVER if is_over else self._rejoining.waits(now)
            self._traced[session], self._sessions[known.topic] = traced, session
            self._spoken[traced.speaks_at] = session
            self._clients.add("", session)
            self._places.put(session, known.certificate.name.encode(), known.topic)
            self._schedule_session(traced)
            effects.append(Count("entities_restored"))
        return effects
