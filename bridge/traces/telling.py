"""The voice of a trace topic: its listeners, the right to speak, and the signed traces leaving (B6, B7, B8).

Every trace a broker makes passes here: a registered entity's (`tracer`) and an unchanged device's
(`devices.device_tracing`). Changes always go to their topic, all other traces only while there is interest. With a
trace key traces are sealed, and each authorised tracker gets the key, sealed to that tracker.

Not here: the truth about an entity, timers, the right to publish (`document.constrained`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from bridge.base import Wall
from bridge.contract import Count
from bridge.traces.fleet import Stood
from bridge.traces.kinds import (
    DESCRIPTOR,
    TRACKERS_MAX,
    WANTED_FRESH_MS,
    Audience,
    Interest,
    TraceKind,
    WantedTraces,
    body_of,
    gauge_topic,
    interest_of,
    key_topic,
    trace_topic,
)
from bridge.traces.remembered import Holding, RememberedEntity
from bridge.traces.reporting import Reporter, TraceReport
from keys.delegation import Advertisement, Delegated, Token, Trace
from keys.errors import BadFrame, Expired, NotAuthorised
from keys.frames import Kind, Reader, opening
from keys.identity import Certificate, Identity
from keys.sealedbox import seal_box
from keys.tracesession import KEY_BYTES

KEYED_MAX = 1_024  # trackers of one entity with its trace key; further ones have to answer again


@dataclass(slots=True)  # not frozen: one for each ping, and freezing doubles the cost
class Say:
    """An effect: publish as the broker, QoS 1 unless a ping."""

    topic: str = field(repr=False)  # contains the trace topic, a secret of those that may discover it
    payload: bytes = field(repr=False)
    qos: int = 1


Told: TypeAlias = Say | TraceReport | Stood | Count


class Voice:
    """The traces on a trace topic. `random`: fresh secret bytes of a length; `reporter`: the reports of an entity that
    consents; `listens`: True if anybody may hear a topic. An unheard trace is not signed: most entities of a large
    fleet have no followers.
    """

    # A broker has tens of thousands of voices: parts that most never need are made on demand.
    __slots__ = (
        "_held",
        "_holder",
        "_keyed",
        "_listens",
        "_number",
        "_random",
        "_reporter",
        "_right",
        "_trace_key",
        "_wall",
        "_wishes",
        "advertisement",
        "audience",
        "former",
    )

    def __init__(
        self,
        advertisement: Advertisement,
        random: Callable[[int], bytes],
        now: float,
        reporter: Reporter | None = None,
        wall: Wall | None = None,
        listens: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self._wall, self._listens = wall or Wall(), listens
        self.advertisement = advertisement
        consents = reporter is not None and reporter.consents(advertisement.discoverers)
        self._reporter = reporter if consents else None
        self.audience = Audience(now)
        # The present state by interest: interest, kind, names and values in turn. A dict takes five times the memory.
        self._held: tuple[tuple[Any, ...], ...] = ()
        self.former: tuple[Token, bytes] | None = None
        """A verified right to speak from a former session."""
        self._random = random
        self._right: tuple[Token, bytes] | None = None
        self._holder: Identity | None = None  # the key pair that the token names, while traces are told
        self._trace_key = b""
        self._keyed: OrderedDict[bytes, None] | None = None
        self._number = 0
        self._wishes: OrderedDict[bytes, tuple[WantedTraces, Certificate]] | None = None  # verified wishes

    def knows_wish(self, wish: bytes) -> bool:
        """Returns True if a tracker's wish was verified before, so that it costs no verification."""
        return self._wishes is not None and wish in self._wishes

    @property
    def topic(self) -> bytes:
        return self.advertisement.topic

    @property
    def token(self) -> Token | None:
        """The token that is our right to speak; None before there is one."""
        return None if self._right is None else self._right[0]

    @property
    def right(self) -> tuple[Token, bytes] | None:
        """The verified token and the 32 secret bytes of its key, of this session or a former one."""
        return self._right or self.former

    def holds_token(self, token: Token, secret: bytes, now_ms: int) -> bool:
        """Returns True if this token and key, bit by bit, were handed over and verified before, and the token counts
        now.
        """
        return self.former == (token, secret) and token.not_before_ms <= now_ms <= token.not_after_ms

    @property
    def is_heard(self) -> bool:
        """True if a tracker or report may want more than changes."""
        return self._reporter is not None or len(self.audience) > 0

    def hand_over(self, body: bytes, now_ms: int) -> None:
        """Takes the right to speak from our entity: a token(2 + n) and the 32 secret bytes of its key. Raises keys
        errors; Expired states the difference of our clocks.
        """
        reader = Reader(body)
        token, secret = Token.decode(reader.sized()), reader.take_bytes(KEY_BYTES)
        reader.expect_end()
        if self.holds_token(token, secret, now_ms):
            self.authorise_again()
            return
        try:
            token.verify(self.advertisement, Delegated.PUBLISH, now_ms)
        except Expired:
            raise _off(token, now_ms) from None
        holder = Identity.from_private_bytes(secret)
        if holder.public_bytes != token.public_key:
            raise NotAuthorised("the secret key is not that of the token")
        self.authorise(token, holder)

    def authorise(self, token: Token, holder: Identity) -> None:
        """Takes the right to speak. `holder`: the key pair the token names; both are verified."""
        self._right, self._holder = (token, holder.private_bytes()), holder

    def authorise_again(self) -> None:
        """Takes up the former right to speak again."""
        self._right, self._holder = self.former, None

    @property
    def present_states(self) -> dict[Interest, tuple[TraceKind, dict[str, object]]]:
        """The present state, by interest; told to trackers coming later."""
        return {each[0]: (each[1], dict(zip(each[2::2], each[3::2], strict=True))) for each in self._held}

    def set_state(self, interest: Interest, kind: TraceKind, fields: Mapping[str, object], now: float) -> None:
        """Sets the present state for an interest, with the time since when; told to trackers coming later."""
        self._hold({interest: (kind, {**fields, "since_ms": self._wall.ms(now)})})

    def inherit(self, before: Voice) -> None:
        """Takes over the state of a former voice, until the entity says otherwise."""
        self._hold(before.present_states)

    def _hold(self, holding: Holding) -> None:
        held = {each[0]: each for each in self._held}
        for interest, (kind, fields) in holding.items():
            held[interest] = (interest, kind, *chain.from_iterable(fields.items()))
        self._held = tuple(held.values())

    def remembered_entity(self, session: bytes, key: bytes) -> RememberedEntity | None:
        """Returns the record that must survive a restart; None while we have no right to speak."""
        if self._right is None:
            return None
        return RememberedEntity(self.advertisement, *self._right, session, key, self._trace_key, self.present_states)

    def restore(self, record: RememberedEntity, now: float) -> None:
        """Takes up a record of `remembered_entity`. Trace numbers continue above the former ones, since they begin at
        the wall's time in ms.
        """
        self._right = record.token, record.holder
        self._trace_key, self._number = record.trace_key, self._wall.ms(now)
        self._hold(record.holds)

    def seal_under(self, trace_key: bytes, now: float) -> None:
        """Seals all further traces under this key. Raises BadFrame for a key of the wrong length."""
        if len(trace_key) != KEY_BYTES:
            raise BadFrame(f"a trace key has {KEY_BYTES} bytes")
        self._trace_key, self._keyed = trace_key, None
        self.audience.gauge_at = now  # trackers need the new key

    # --------------------------------------------------------------------------------------------- telling

    def tell_trace(
        self,
        kind: TraceKind,
        fields: Mapping[str, object],
        now: float,
        to: Interest | None = None,
        is_news: bool = True,
    ) -> list[Told]:
        """Returns a signed trace, if there is interest and we have the right to speak. Changes are told unasked: they
        are few, and a tracker that has just come would miss an important one. News are reported regardless of
        interest.
        """
        interest = interest_of(kind) if to is None else to
        wanted = interest is Interest.CHANGES or interest in self.audience.wants(now)
        reporter = self._reporter if is_news else None
        if not wanted and reporter is None:
            return []
        if self._right is None:
            return [Count("traces_unauthorised")]
        (token, secret), now_ms = self._right, self._wall.ms(now)
        if now_ms > token.not_after_ms:
            return [Count("traces_expired")]
        told, known = list[Told](), self.advertisement
        if is_news and interest is Interest.CHANGES and kind is not TraceKind.GAUGE_INTEREST:
            told.append(Stood(known.descriptor.removeprefix(DESCRIPTOR), kind, known.discoverers))
        if reporter is not None:
            told += reporter.report_trace(known.descriptor.removeprefix(DESCRIPTOR), kind, fields, now, to)
        where = gauge_topic(self.topic) if kind is TraceKind.GAUGE_INTEREST else trace_topic(self.topic, interest)
        if not wanted:
            return told
        counted = Count("traces", 1, kind.name)  # a death counts, even if nobody hears of it
        if not self._listens(where):
            return [*told, counted]
        self._holder = self._holder or Identity.from_private_bytes(secret)
        self._number += 1
        bare = Trace(token, kind, self._number, now_ms, body_of(fields))
        if self._trace_key and kind is not TraceKind.GAUGE_INTEREST:
            bare = bare.sealed_under(self._trace_key, self._random(12))
        return [*told, Say(where, bare.signed(self._holder).encode()), counted]

    def gauge(self, now: float) -> list[Told]:
        """Asks trackers for their interests, if it is time."""
        if self._right is None or now < self.audience.gauge_at:
            return []
        self.audience.gauged(now)
        told = self.tell_trace(TraceKind.GAUGE_INTEREST, {"sealed": bool(self._trace_key)}, now)
        if not self.is_heard:
            self._holder = None  # made again at the next change
        return told

    # -------------------------------------------------------------------------------------------- trackers

    def take_interest(self, data: bytes, authority: bytes, now: float) -> list[Told]:
        """Takes a tracker's answer; a tracker coming anew is told the present state. A byte-by-byte repetition was
        verified before: it only keeps the interest alive. Raises keys errors.
        """
        wishes = self._wishes = self._wishes or OrderedDict()
        known = wishes.get(data)
        if known is not None and abs(self._wall.ms(now) - known[0].time_ms) > WANTED_FRESH_MS:
            known = None
        wanted, tracker = self._verified(data, authority, now) if known is None else known
        if wanted.time_ms < self.audience.asked_ms(wanted.tracker):
            return []  # an older answer: links overtake each other, and a replay changes nothing
        if known is None:
            wishes[data] = wanted, tracker
            if len(wishes) > TRACKERS_MAX:
                wishes.popitem(last=False)
        is_anew = wanted.anew and known is None
        effects: list[Told] = []
        if self._trace_key:
            if is_anew and self._keyed is not None:
                self._keyed.pop(tracker.party_id, None)
            effects = self._give_key(tracker)
        self.audience.take_interest(wanted, now)
        if is_anew:
            for interest, (kind, fields) in self.present_states.items():
                if interest in wanted.interest:
                    effects += self.tell_trace(kind, fields, now, to=interest, is_news=False)
        return effects

    def _verified(self, data: bytes, authority: bytes, now: float) -> tuple[WantedTraces, Certificate]:
        """Verifies a tracker's answer. Raises keys errors."""
        wanted = WantedTraces.decode(data)
        tracker = wanted.verify(self.topic, authority, self._wall.ms(now))
        if not self.advertisement.may_discover(tracker):
            raise NotAuthorised("a tracker that may not discover the trace topic")
        return wanted, tracker

    def _give_key(self, tracker: Certificate) -> list[Told]:
        """Gives the trace key to a tracker lacking it, sealed to the tracker. Raises OurFault for an invalid key."""
        keyed = self._keyed = self._keyed or OrderedDict()
        if tracker.party_id in keyed:
            return []
        head = opening(Kind.TRACE_KEY) + self.topic
        box = seal_box(tracker.agreement_key, self._trace_key, head, self._random(32))
        keyed[tracker.party_id] = None
        if len(keyed) > KEYED_MAX:
            keyed.popitem(last=False)
        return [Say(key_topic(tracker.name, self.topic), head + box), Count("trace_keys_given")]


def open_trace_key(data: bytes, topic: bytes, tracker: Identity) -> bytes:
    """Opens the trace key a broker sealed to us. Raises BadFrame, BadContent."""
    head = opening(Kind.TRACE_KEY) + topic
    if data[: len(head)] != head:
        raise BadFrame("not the trace key of this trace topic")
    key = tracker.open_box(data[len(head) :], head)
    if len(key) != KEY_BYTES:
        raise BadFrame(f"a trace key has {KEY_BYTES} bytes")
    return key


def _off(token: Token, now_ms: int) -> Expired:
    early_ms = token.not_before_ms - now_ms
    how = f"{early_ms / 1000:.1f} s ahead" if early_ms > 0 else f"{(now_ms - token.not_after_ms) / 1000:.1f} s behind"
    return Expired(f"an entity's clock is {how} of ours; set it")
