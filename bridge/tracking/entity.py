"""The traced entity's side: a topic of its own, a session with its broker, fresh tokens in time (B1, B3, B7, B8).

A client library does this for its program, without I/O: the entity asks a discovery node for a trace topic,
registers, answers pings, hands over a token before the former ends, and reports states and load. After a reconnect
the entity knocks, and the session goes on if the broker knows it, also over a restart; else the entity registers
anew. The shell subscribes to `Listen`ed topics and publishes the payloads of `Say`. Not here: MQTT, an entity that
several brokers trace (`witnessed`, which has a `TracedEntity` for each).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from bridge.base import Wall
from bridge.contract import Count, Tick
from bridge.traces.kinds import (
    CREATION_TOPIC,
    DESCRIPTOR,
    REGISTRATION_TOPIC,
    STATES,
    TraceKind,
    answers_to,
    body_of,
    relayed_from,
    relayed_to,
    to_broker,
    to_entity,
)
from bridge.traces.signs import every_of, lived
from bridge.traces.telling import Say
from bridge.tracking.discovery import Request, open_answer
from keys.delegation import Advertisement, Delegated, Seat, Token
from keys.errors import BadContent, KeysError, NotAuthorised
from keys.frames import sized
from keys.identity import Certificate, Identity
from keys.resumption import NONCE_BYTES, Knock, is_resumed, open_resumed
from keys.tracesession import KEY_BYTES, REQUEST_BYTES, Registration, TraceSession, Word, open_registered

ASK_AGAIN_S = 5.0  # an unanswered request is repeated after this time, doubled each time, half more or less ...
ASK_AGAIN_MAX_S = 60.0  # ... up to this
TOKEN_LIFE_S = 600.0
TOPIC_LEFT_S = (
    5.0  # before a topic's end, or a tenth of its life: the time to ask for the next, as trackers ask at its end
)
CLOCK_SET_S = 1.0  # a larger step of a clock means that the clock was set
RENEW_AFTER_S = TOKEN_LIFE_S / 2  # the next token comes at half of a token's life
KNOCKS = 3  # after so many unanswered knocks we register
ALIVE_LEAST_S = 0.1  # the least time between signs of life, whatever our broker asks for


@dataclass(frozen=True, slots=True)
class BrokerConnected:
    """A connection to the broker stands; earlier messages may be lost."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """No connection to any broker stands; nothing is heard until the next `BrokerConnected`."""


@dataclass(frozen=True, slots=True)
class Told:
    """A message on a topic we listen to."""

    topic: str = field(repr=False)
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Listen:
    """An effect: subscribe to a topic."""

    topic: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Leave:
    """An effect: unsubscribe from a topic."""

    topic: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeepEntity:
    """An effect: store our advertisement, so that the trace topic serves after a restart too."""

    advertisement: Advertisement


class Stage(StrEnum):
    """The progress of an entity with its broker."""

    WITHOUT_TOPIC = "without topic"
    UNREGISTERED = "unregistered"
    TRACED = "traced"


TracedEvent: TypeAlias = BrokerConnected | Told | Tick
TracedEffect: TypeAlias = Say | Listen | Leave | KeepEntity | Count


@dataclass(frozen=True, slots=True)
class Wishes:
    """An entity's wishes for its tracing. `signed`: each message is signed instead of sealed, so that the broker can
    show messages to others; `secured`: traces are sealed, and trackers get the key.
    """

    discoverers: tuple[str, ...] = ()
    life_s: int = 24 * 3600
    secured: bool = False
    signed: bool = False


class TracedEntity:
    """A traced entity. `nodes`: discovery nodes' public keys by name; `random`: fresh secret bytes of a length."""

    def __init__(
        self,
        identity: Identity,
        certificate: Certificate,
        nodes: Mapping[str, bytes],
        authority: bytes,
        random: Callable[[int], bytes],
        wishes: Wishes | None = None,
        advertisement: Advertisement | None = None,
        wall: Wall | None = None,
    ) -> None:
        """Takes the `advertisement` kept from before a restart. If its discoverers differ from those in `wishes`, the
        entity forgets it: a discoverer that was struck off does not hear us under another trace topic.
        """
        self._wall = wall or Wall()
        self.seat: Seat | None = None  # our broker's number among several witnesses
        self.asks = True  # for a trace topic, if there is none; False: another machine asks, and `take_topic` then
        self._identity = identity
        self._certificate = certificate
        self._nodes = dict(nodes)
        self._authority = authority
        self._random = random
        self._wishes = wishes or Wishes()
        is_as_wished = wishes is None or advertisement is None or {*advertisement.discoverers} == {*wishes.discoverers}
        self._advertisement = advertisement if is_as_wished else None
        self._session: TraceSession | None = None
        self._former: TraceSession | None = None  # session of the connection that ended
        self._knocked: Knock | None = None  # the knock for that session
        self._knocks = 0
        self._aside: TraceSession | None = None  # our end of the session for pings through other brokers
        self._request = b""
        self._ask_at: float | None = None
        self._asked = 0
        self._renew_at: float | None = None
        self._speaks_at = ""  # the topic for words to our broker in this session
        self._pinged_ms, self._pinged_at = 0, 0.0  # the last ping, by our broker's clock and by ours
        self._alive_s = 0.0  # the period in which our broker wants unasked signs of life
        self._alive_at: float | None = None
        self._token = b""  # the last token with its key, as handed over
        self._token_for: tuple[bytes, Seat | None] | None = None  # topic and seat of that token
        self._token_offset_s = 0.0  # our clock's offset when that token was made
        self._token_made_at = 0.0
        self._state = b""  # the last state reported
        self.clock_off_s: float | None = None
        """The seconds by which our clock is ahead of our broker's; None unless the broker refused a token for that."""
        self._connected = False

    @property
    def stage(self) -> Stage:
        if self._session is not None:
            return Stage.TRACED
        return Stage.WITHOUT_TOPIC if self._advertisement is None else Stage.UNREGISTERED

    @property
    def advertisement(self) -> Advertisement | None:
        return self._advertisement

    @property
    def next_deadline(self) -> float | None:
        return min((at for at in (self._ask_at, self._renew_at, self._alive_at) if at is not None), default=None)

    def handle(self, event: TracedEvent, now: float) -> list[TracedEffect]:
        """Returns the effects of an event in the order in which they must happen. Invalid input is counted and
        dropped.
        """
        match event:
            case BrokerConnected():
                self._connected, self._asked, self._knocks = True, 0, 0
                self._former, self._session = self._session or self._former, None
                self._renew_at = self._alive_at = None
                return [Listen(answers_to(self._certificate.name)), *self._back(now)]
            case Told(topic, payload):
                try:
                    return [*self._take_message(topic, payload, now), *self._set_anew(now)]
                except KeysError as error:
                    return [Count("traces_refused", 1, type(error).__name__)]
            case Tick():
                effects: list[TracedEffect] = []
                if self._alive_at is not None and now >= self._alive_at:
                    self._alive_at = now + self._alive_s
                    effects += self._say_word(Word.ALIVE, lived(self._pinged_ms, now - self._pinged_at))
                if self._ask_at is not None and now >= self._ask_at:
                    effects += self.ask_topic(now) if self._former is None else self._back(now)
                if self._renew_at is not None and now >= self._renew_at:
                    effects += self._authorise(now)
                return effects

    # ----------------------------------------------------------------------------------- what the program says

    @property
    def relayed_at(self) -> str | None:
        """The topic on which our broker asks us through another broker; None while our broker does not know us."""
        if self._session is None or self._advertisement is None:
            return None
        return relayed_to(self._certificate.name, self._advertisement.topic, self._session.session)

    def relayed(self, payload: bytes) -> list[TracedEffect]:
        """Answers a ping of our broker that came through another broker; the answer takes the same way back."""
        if self._session is None or self._advertisement is None:
            return []
        try:
            self._aside = self._aside or self._session.aside()
            word, body = self._aside.hear(payload)
            if word is not Word.PING:
                raise BadContent("a broker pings through another one, and says nothing else")
        except KeysError as error:
            return [Count("traces_refused", 1, type(error).__name__)]
        at = relayed_from(self._certificate.name, self._advertisement.topic, self._session.session)
        return [Say(at, self._aside.say_word(Word.ANSWER, body), 0)]

    def set_state(self, kind: TraceKind, fields: bytes = b"") -> list[TracedEffect]:
        """Sets and reports our state, and repeats the report after each registration. Raises ValueError if `kind` is no
        state.
        """
        if kind not in STATES:
            raise ValueError(f"{kind.name} is not a state that an entity reports")
        self._state = bytes([kind]) + fields
        return self._say_word(Word.STATE, self._state)

    def report_load(self, fields: Mapping[str, object]) -> list[TracedEffect]:
        """Reports CPU, memory, work or other figures to trackers. A report is lost while we are not registered."""
        return self._say_word(Word.LOAD, body_of(fields))

    def silent(self, fields: bytes = b"") -> list[TracedEffect]:
        """Ends our traces. The next `BrokerConnected` begins anew."""
        effects = self._say_word(Word.SILENT, fields)
        self._session = self._former = self._ask_at = self._renew_at = self._alive_at = None
        return effects

    def renounce(self, now: float, fields: bytes = b"") -> list[TracedEffect]:
        """Gives up a trace topic a stranger learned (B9), and asks for a new one."""
        effects = self.silent(fields)
        self._advertisement, self._asked = None, 0
        return effects + self.ask_topic(now)

    def take_topic(self, advertisement: Advertisement, now: float) -> list[TracedEffect]:
        """Takes over a trace topic another machine of this entity asked for."""
        effects = self.silent()
        self._advertisement, self._asked = advertisement, 0
        return effects + self.ask_topic(now) if self._connected else effects

    def ask_topic(self, now: float) -> list[TracedEffect]:
        """Asks for a trace topic while no valid one is known, then for a session."""
        self._former = None
        self._ask_at = self._again_at(now)
        self._request = self._random(REQUEST_BYTES)
        now_ms = self._wall.ms(now)
        known = self._advertisement
        effects: list[TracedEffect] = []
        if known is not None and self._renewed_at(known) <= now:
            at, effects = self._ask_at, self.silent()
            self._ask_at, known, self._advertisement = at, None, None
        if known is None and not self.asks:
            self._ask_at, self._asked = now + ASK_AGAIN_S, 0
            return effects
        if known is None:
            request = Request(
                self._certificate, DESCRIPTOR + self._certificate.name, self._request, now_ms,
                self._wishes.discoverers, self._wishes.life_s,
            )  # fmt: skip
            return [*effects, Say(CREATION_TOPIC, request.signed(self._identity).encode())]
        registration = Registration(known.encode(), self._request, now_ms).signed(self._identity)
        return [Say(REGISTRATION_TOPIC, registration.encode())]

    # -------------------------------------------------------------------------------------------- details

    def _again_at(self, now: float) -> float:
        """Returns the time to ask again if no answer comes."""
        usual_s = min(ASK_AGAIN_S * (1 << min(self._asked, 10)), ASK_AGAIN_MAX_S)
        self._asked += 1
        return now + usual_s * (0.5 + self._random(1)[0] / 256)  # spreads entities that lost their broker together

    def _back(self, now: float) -> list[TracedEffect]:
        """Continues our session after a reconnect, if possible; else registers anew."""
        former, known = self._former, self._advertisement
        has_right = self._token_is_ours and 0 <= now - self._token_made_at < TOKEN_LIFE_S
        if former is None or known is None or not has_right or self._knocks == KNOCKS or self._renewed_at(known) <= now:
            self._asked = 0
            return self.ask_topic(now)
        self._knocks += 1
        self._ask_at = self._again_at(now)
        (session, key), name = former.session_and_key, self._certificate.name
        self._knocked = Knock(session, self._random(NONCE_BYTES), self._wall.ms(now), name).coded(key)
        hears = [Listen(to_entity(name, known.topic, session))] if self._knocks == 1 else []
        return [*hears, Say(self._speaks_at, self._knocked.encode())]

    def _resumed(self, payload: bytes, now: float) -> list[TracedEffect]:
        """Takes the broker's answer to our knock: the broker knows our session or does not. Raises keys errors."""
        if self._former is None or self._knocked is None or self._advertisement is None:
            raise BadContent("an answer to nobody's knock")
        session, key = self._former.session_and_key
        next_key = open_resumed(payload, key, self._knocked)
        if next_key is None:
            self._asked = 0
            return self.ask_topic(now)
        self._former, self._knocked, self._asked = None, None, 0
        self._session, self._aside = TraceSession(session, next_key, 0), None
        self._ask_at, self._renew_at = self._renewed_at(self._advertisement), self._token_made_at + RENEW_AFTER_S
        # The first word shows that we have the key. A new broker could not date our life by a former ping, hence zeros.
        said = self._say_word(Word.STATE, self._state) if self._state else self._say_word(Word.ALIVE, lived(0, 0))
        return [*said, Count("registered")]

    def _take_message(self, topic: str, payload: bytes, now: float) -> list[TracedEffect]:
        """Takes a message on one of our topics. Raises keys errors."""
        if topic != answers_to(self._certificate.name):
            return self._pinged(payload, now)
        if is_resumed(payload):
            return self._resumed(payload, now)
        if self._advertisement is None:
            return self._topic_came(payload, now)
        return self._registered(payload, now)

    def _topic_came(self, payload: bytes, now: float) -> list[TracedEffect]:
        request, advertisement = open_answer(payload, self._identity)
        node = self._nodes.get(advertisement.node)
        if request != self._request or node is None:
            raise BadContent("an answer to nothing that we asked, or of a discovery node that we do not know")
        advertisement.verify(node, self._authority, self._wall.ms(now))
        if advertisement.certificate.party_id != self._identity.party_id:
            raise NotAuthorised("an advertisement of somebody else's trace topic")
        self._advertisement, self._asked = advertisement, 0
        return [KeepEntity(advertisement), *self.ask_topic(now)]

    def _registered(self, payload: bytes, now: float) -> list[TracedEffect]:
        assert self._advertisement is not None
        request, session, key = open_registered(payload, self._identity)
        if request != self._request:
            raise BadContent("an answer to a registration that we did not send")
        self._request, self._ask_at, self._asked = b"", self._renewed_at(self._advertisement), 0
        self._session, self._aside, self._alive_at = TraceSession(session, key, 0), None, None
        self._speaks_at = to_broker(self._advertisement.topic, session)
        effects: list[TracedEffect] = [Listen(to_entity(self._certificate.name, self._advertisement.topic, session))]
        if self._wishes.secured:  # before the token, behind which JOIN is told
            effects += self._say_word(Word.TRACE_KEY, self._random(KEY_BYTES))
        effects += self._authorise_again(now)
        if self._state:
            effects += self._say_word(Word.STATE, self._state)
        return [*effects, Count("registered")]

    def _authorise(self, now: float) -> list[TracedEffect]:
        """Makes a token for a fresh key pair, so that the token does not show where we are connected."""
        assert self._advertisement is not None
        self._token_made_at, self._token_offset_s = now, self._wall.offset_s
        self._token_for = self._advertisement.topic, self.seat
        holder = Identity.generate(self._random(32))
        now_ms = self._wall.ms(now)
        token = Token(
            self._advertisement.topic,
            holder.public_bytes,
            Delegated.PUBLISH,
            now_ms,
            now_ms + int(TOKEN_LIFE_S * 1000),
            self.seat,
        ).signed(self._identity)
        self._renew_at = now + RENEW_AFTER_S
        self._token = sized(token.encode()) + holder.private_bytes()
        return self._say_word(Word.TOKEN, self._token)

    def _authorise_again(self, now: float) -> list[TracedEffect]:
        """Hands over the former token again in a new session at the same broker while the token is young. Making and
        verifying a token costs both sides, and after a restart of the broker all entities come at once.
        """
        assert self._advertisement is not None
        is_young = 0 <= now - self._token_made_at < RENEW_AFTER_S
        if not (is_young and self._token_is_ours) or abs(self._wall.offset_s - self._token_offset_s) > CLOCK_SET_S:
            return self._authorise(now)
        self._renew_at = self._token_made_at + RENEW_AFTER_S
        return self._say_word(Word.TOKEN, self._token)

    @property
    def _token_is_ours(self) -> bool:
        """True if the last token was made for our present trace topic and witness."""
        return self._advertisement is not None and self._token_for == (self._advertisement.topic, self.seat)

    def _pinged(self, payload: bytes, now: float) -> list[TracedEffect]:
        if self._session is None:
            return []
        word, body = self._session.hear(payload)
        if word is Word.CLOCK and len(body) == 8:
            self.clock_off_s = self._wall.ms(now) / 1000 - int.from_bytes(body) / 1000
            return [Count("clock_off")]
        if word is not Word.PING:
            raise BadContent("a broker pings, and says nothing else")
        self._pinged_ms, every_s = every_of(body)
        self._alive_s, self._pinged_at = max(every_s, ALIVE_LEAST_S), now
        self._alive_at = now + self._alive_s if every_s else None
        return self._say_word(Word.ANSWER, body)

    def _set_anew(self, now: float) -> list[TracedEffect]:
        """Makes another token if our clock was set: the times in the former token are wrong by the step."""
        is_set = self._session is not None and abs(self._wall.offset_s - self._token_offset_s) > CLOCK_SET_S
        return self._authorise(now) if is_set else []

    def _say_word(self, word: Word, body: bytes) -> list[TracedEffect]:
        if self._session is None or self._advertisement is None:
            return []
        secret = word in (Word.TOKEN, Word.TRACE_KEY)
        signer = self._identity if self._wishes.signed and not secret else None
        said = self._session.say_word(word, body, signer)
        qos = 0 if word in (Word.ANSWER, Word.ALIVE) else 1
        return [Say(self._speaks_at, said, qos)]

    def _renewed_at(self, advertisement: Advertisement) -> float:
        """Returns the time near the end of a trace topic at which a new topic takes its place."""
        life_s = (advertisement.not_after_ms - advertisement.created_ms) / 1000
        return self._wall.moment_of(advertisement.not_after_ms) - min(TOPIC_LEFT_S, life_s / 10)
