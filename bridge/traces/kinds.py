"""Traces: their kinds, their topics, and the interests of trackers (B4, B6).

A trace topic is a UUID, known only to the entity's discoverers; the topics below derive from the UUID. Five topics
carry traces, a topic for each kind of *interest*. A broker asks trackers for their interests every 30 s, and an
interest lives 90 s. Without interest there are no traces. Not here: signatures (`keys.delegation`), the occasions of
traces (`tracer`).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag
from math import isfinite
from typing import Any

from bridge.document import BROKER, TRACES, Actions, Constrained, Distribution
from keys.delegation import BODY_MAX_BYTES
from keys.errors import BadFrame, Expired, NotAuthorised
from keys.frames import Kind, Reader, from_property, number, opening, sized, to_property
from keys.identity import SIGNATURE_BYTES, Certificate, Identity, Role, verify
from keys.ownword import OwnWord

GAUGE_EVERY_S = 30.0
GAUGE_IDLE_S = 8 * GAUGE_EVERY_S  # the longest pause, where nobody answered the last questions
INTEREST_LIVES_S = 90.0
WANTED_FRESH_MS = 300_000  # an older wish of a tracker is a replay
DOMAIN_INTEREST = "veilmq/1 trace interest"
TRACKERS_MAX = 1_024  # remembered for one entity; all of them could discover its topic
NESTED_MAX = 256  # objects and arrays in one body: stops a body that exhausts a JSON writer's stack
DIGITS_MAX = 20  # of a whole number in a body
STATE_MAX_BYTES = BODY_MAX_BYTES - 64  # a state's fields, which may be sealed
DESCRIPTOR = "Availability/Traces/"
DISCOVER = ("Availability/Traces", "Liveness")  # beginnings of a query; the second is the source's other spelling


class TraceKind(IntEnum):
    """The kind of a trace. The first four are the entity's own words, the others its broker's."""

    INITIALIZING = 1
    RECOVERING = 2
    READY = 3
    SHUTDOWN = 4
    FAILURE_SUSPICION = 5
    FAILED = 6
    DISCONNECT = 7
    JOIN = 8
    REVERTING_TO_SILENT_MODE = 9
    ALLS_WELL = 10
    LOAD_INFORMATION = 11
    NETWORK_METRICS = 12
    GAUGE_INTEREST = 13
    UNKNOWN = 14
    """A tracker's word to its program when it hears nothing any more; no broker says it."""


SAID = frozenset(TraceKind) - {TraceKind.UNKNOWN}  # kinds of traces that brokers send
STATES = frozenset({TraceKind.INITIALIZING, TraceKind.RECOVERING, TraceKind.READY, TraceKind.SHUTDOWN})
OWN = STATES | {TraceKind.LOAD_INFORMATION, TraceKind.REVERTING_TO_SILENT_MODE}  # an entity's own words


class Interest(IntFlag):
    """The kinds of traces a tracker wants to hear, in any combination."""

    CHANGES = 1
    ALL_UPDATES = 2
    STATES = 4
    LOAD = 8
    NETWORK = 16


EVERYTHING = Interest(31)
_ANEW = 128
_SUFFIX = {
    Interest.CHANGES: "ChangeNotifications",
    Interest.ALL_UPDATES: "AllUpdates",
    Interest.STATES: "StateTransitions",
    Interest.LOAD: "Load",
    Interest.NETWORK: "NetworkMetrics",
}
_OF_KIND = {
    **dict.fromkeys(STATES, Interest.STATES),
    TraceKind.ALLS_WELL: Interest.ALL_UPDATES,
    TraceKind.LOAD_INFORMATION: Interest.LOAD,
    TraceKind.NETWORK_METRICS: Interest.NETWORK,
}


def interest_of(kind: TraceKind) -> Interest:
    """Returns the interest a kind of trace serves. Kinds changing an entity's presence serve the interest in
    changes.
    """
    return _OF_KIND.get(kind, Interest.CHANGES)


# ---------------------------------------------------------------------------------------------- topics


def uuid_of(topic: bytes) -> str:
    """Returns the UUID text of a trace topic's 16 bytes (RFC 9562, section 4)."""
    digits = topic.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _topic(constrainer: str, actions: Actions, *suffixes: str, stays: bool = False) -> str:
    distribution = Distribution.SUPPRESS if stays else Distribution.DISSEMINATE
    return str(Constrained(TRACES, constrainer, actions, distribution, suffixes))


ADVERTISEMENTS = "Advertisements"
RELAYED = "Relayed"
REGISTRATION_TOPIC = _topic(BROKER, Actions.SUBSCRIBE, "Registration", stays=True)
CREATION_TOPIC = _topic(BROKER, Actions.SUBSCRIBE, "TopicCreation", stays=True)
DISCOVERY_TOPIC = _topic(BROKER, Actions.SUBSCRIBE, "Discovery", stays=True)
ADVERTISEMENTS_FILTER = _topic(BROKER, Actions.BOTH, ADVERTISEMENTS, "+")
ANSWERS_FILTER = _topic(BROKER, Actions.SUBSCRIBE, "+", "Interest")  # a broker's own: the interests of all trackers


def advertisement_topic(topic: bytes) -> str:
    """Returns the topic on which discovery nodes tell each other a trace topic; retained, for nodes coming later."""
    return ADVERTISEMENTS_FILTER.replace("+", uuid_of(topic))


def trace_topic(topic: bytes, interest: Interest) -> str:
    """Returns the topic of traces for one kind of interest. `topic`: 16 bytes."""
    return _topic(BROKER, Actions.PUBLISH, uuid_of(topic), _SUFFIX[interest])


def gauge_topic(topic: bytes) -> str:
    """Returns the topic on which a broker asks trackers for their interests."""
    return _topic(BROKER, Actions.PUBLISH, uuid_of(topic), "Interest")


def answer_topic(topic: bytes) -> str:
    """Returns the topic on which trackers state their interests."""
    return _topic(BROKER, Actions.SUBSCRIBE, uuid_of(topic), "Interest")


def to_broker(topic: bytes, session: bytes) -> str:
    """Returns the topic on which an entity speaks to the broker that traces it."""
    return _topic(BROKER, Actions.SUBSCRIBE, uuid_of(topic), session.hex(), stays=True)


def to_entity(entity: str, topic: bytes, session: bytes) -> str:
    """Returns the topic on which the tracing broker speaks to the entity."""
    return _topic(entity, Actions.SUBSCRIBE, uuid_of(topic), session.hex(), stays=True)


def relayed_to(entity: str, topic: bytes, session: bytes) -> str:
    """Returns the topic at another witness on which the broker of this session asks the entity; only the entity hears
    it.
    """
    return _topic(entity, Actions.SUBSCRIBE, uuid_of(topic), session.hex(), RELAYED, stays=True)


def relayed_from(entity: str, topic: bytes, session: bytes) -> str:
    """Returns the topic at another witness on which the entity answers; only the entity publishes there."""
    return _topic(entity, Actions.PUBLISH, uuid_of(topic), session.hex(), RELAYED, stays=True)


def key_topic(tracker: str, topic: bytes) -> str:
    """Returns the topic on which a tracker gets the key of sealed traces, sealed to the tracker."""
    return _topic(tracker, Actions.SUBSCRIBE, uuid_of(topic), "Keys")


def answers_to(client: str) -> str:
    """Returns the topic on which a client hears answers to its registration, creation or discovery requests."""
    return _topic(client, Actions.SUBSCRIBE, "Answers", stays=True)


# ---------------------------------------------------------------------------------------------- bodies


def body_of(fields: Mapping[str, object]) -> bytes:
    """Returns a trace's body: a JSON object, so that every dashboard reads unsealed traces. Raises ValueError for
    values that JSON cannot write: not-a-number, infinity, half a surrogate pair.
    """
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()


def fields_of(body: bytes) -> dict[str, Any]:
    """Returns the fields of a body made by `body_of`: `body_of` can write every result again. Raises BadFrame."""
    try:
        if body.count(b"[") + body.count(b"{") > NESTED_MAX:
            raise ValueError
        text = body.decode()
        fields = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
        if "\\u" in text:
            json.dumps(fields, ensure_ascii=False).encode()
    except ValueError:
        raise BadFrame("the body of a trace is not JSON") from None
    if not isinstance(fields, dict):
        raise BadFrame("the body of a trace is not a JSON object")
    return fields


def _whole(written: str) -> int:
    """Parses a whole number. Raises ValueError if it is longer than databases and floats take."""
    if len(written) > DIGITS_MAX:
        raise ValueError(written)
    return int(written)


def _finite(written: str) -> float:
    """Parses a finite number. Raises ValueError otherwise: with not-a-number a liar would decide a median."""
    found = float(written)
    if not isfinite(found):
        raise ValueError(written)
    return found


def state_of(body: bytes) -> tuple[TraceKind, dict[str, Any]]:
    """Returns an entity's state from a word: a byte of `STATES`, and fields if it has several witnesses. Raises
    BadFrame.
    """
    if not body or body[0] not in STATES:
        raise BadFrame("an entity's state is one of four")
    kind = TraceKind(body[0])
    fields = {**(fields_of(body[1:]) if len(body) > 1 else {}), "state": kind.name}
    if len(body_of(fields)) > STATE_MAX_BYTES:
        raise BadFrame("a state that does not fit a trace")  # a tracker that comes later is told the state again
    return kind, fields


def own_fields(word: OwnWord) -> dict[str, object]:
    """Returns the fields by which a witness passes on the entity's own word."""
    return {"word": to_property(word.encode())}


def own_word(fields: Mapping[str, Any]) -> OwnWord:
    """Returns the entity's own word from fields made by `own_fields`, with or without the witness's other fields.
    Raises BadFrame.
    """
    word = fields.get("word")
    if not isinstance(word, str):
        raise BadFrame("what an entity says of itself is not signed by it")
    return OwnWord.decode(from_property(word))


# ---------------------------------------------------------------------------------------------- interest


@dataclass(frozen=True, slots=True)
class WantedTraces:
    """A tracker's answer to GAUGE_INTEREST: its interests, and the certificate for a sealed trace key.

    `credentials`: the encoded certificate, to which the trace key is sealed. `anew`: the tracker could open nothing
    yet, whatever it got before a restart. `signature`: the tracker's, over this answer and the topic.
    """

    tracker: str
    interest: Interest
    credentials: bytes = b""
    anew: bool = False
    time_ms: int = 0
    signature: bytes = field(default=bytes(SIGNATURE_BYTES), repr=False)

    def signed_bytes(self) -> bytes:
        wants = self.interest | _ANEW * self.anew
        parts = (opening(Kind.INTEREST), sized(self.tracker.encode()), number(wants, 1), number(self.time_ms, 8))
        return b"".join((*parts, sized(self.credentials)))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    def signed(self, tracker: Identity, topic: bytes) -> WantedTraces:
        return replace(self, signature=tracker.sign(DOMAIN_INTEREST, topic + self.signed_bytes()))

    def verify(self, topic: bytes, authority: bytes, now_ms: int) -> Certificate:
        """Returns the certificate of the tracker: a certified entity's or tracker's, which signed for this topic within
        `WANTED_FRESH_MS`. Raises keys errors. The right to discover the topic is not checked here.
        """
        tracker = Certificate.decode(self.credentials)
        tracker.verify(authority, now_ms)
        if tracker.role is not Role.ENTITY or tracker.name != self.tracker:
            raise NotAuthorised("a tracker that is somebody else")
        verify(tracker.public_key, DOMAIN_INTEREST, topic + self.signed_bytes(), self.signature)
        if abs(now_ms - self.time_ms) > WANTED_FRESH_MS:
            raise Expired("a tracker's wish is not of now; set its clock")
        return tracker

    @classmethod
    def decode(cls, data: bytes) -> WantedTraces:
        """Decodes an answer. Raises BadFrame."""
        reader = Reader(data)
        reader.opening(Kind.INTEREST)
        try:
            tracker = reader.sized().decode()
        except UnicodeDecodeError:
            raise BadFrame("a tracker's name is not UTF-8") from None
        wants, time_ms, credentials = reader.number(1), reader.number(8), reader.sized()
        signature = reader.take_bytes(SIGNATURE_BYTES)
        reader.expect_end()
        interest = wants & ~_ANEW
        if interest > EVERYTHING:
            raise BadFrame(f"interest {interest} is of no known kind")
        return cls(tracker, Interest(interest), credentials, bool(wants & _ANEW), time_ms, signature)


class Audience:
    """The trackers that want to hear of an entity, and the end of each interest."""

    __slots__ = ("_pause_s", "_trackers", "gauge_at")

    def __init__(self, now: float) -> None:
        """Plans the first question to trackers at once."""
        self.gauge_at = now
        self._pause_s = GAUGE_EVERY_S
        # The next to be forgotten first: interest, its end, the time of the answer by the tracker's clock.
        self._trackers: OrderedDict[str, tuple[Interest, float, int]] | None = None

    def gauged(self, now: float) -> None:
        """Takes note of a question to trackers. While nobody answers, questions get ever rarer: a tracker coming
        states its interest unasked.
        """
        self._pause_s = GAUGE_EVERY_S if self.wants(now) else self._pause_s
        self.gauge_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, GAUGE_IDLE_S)

    def take_interest(self, wanted: WantedTraces, now: float) -> None:
        """Takes a tracker's answer; forgets a tracker wanting nothing any more."""
        trackers = self._trackers = self._trackers or OrderedDict()
        trackers.pop(wanted.tracker, None)
        if wanted.interest:
            trackers[wanted.tracker] = (wanted.interest, now + INTEREST_LIVES_S, wanted.time_ms)
            self.gauge_at = min(self.gauge_at, now + GAUGE_EVERY_S)
            if len(trackers) > TRACKERS_MAX:
                trackers.popitem(last=False)

    def asked_ms(self, tracker: str) -> int:
        """Returns the time of the last answer of a tracker whose interest is remembered, by the tracker's clock; else
        -1.
        """
        known = self._trackers.get(tracker) if self._trackers else None
        return -1 if known is None else known[2]

    def wants(self, now: float) -> Interest:
        """Returns the interests of all trackers together now."""
        if not self._trackers:
            return Interest(0)
        while self._trackers and next(iter(self._trackers.values()))[1] <= now:
            self._trackers.popitem(last=False)
        found = Interest(0)
        for interest, _, _ in self._trackers.values():
            found |= interest
        return found

    def __len__(self) -> int:
        """Returns the number of trackers whose interest is remembered."""
        return len(self._trackers or ())
