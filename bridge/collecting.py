"""The subscriber side at a gateway: pieces from every replica of the home region in, publications in order out.

A publication goes through three gates: it is *admitted* (signature, right, content digest), *opened* (its data
key has been recombined from shares) and *in order* (its predecessor on the topic was delivered, or has been
given up). State is kept per (publisher, topic): the highest sequence and a few holes. What the shares say about
liars goes to `blame`. Not here: repair, keys from a repository, state that survives a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from keys.envelope import (
    PROPERTY_HEADER,
    DataKey,
    Inner,
    KeyHeader,
    MessageHeader,
    Mode,
    check_epoch_key,
    check_share,
    open_key,
)
from keys.errors import BadContent, BadFrame, KeysError, NotEnoughShares, SearchExhausted, WrongEpochKey
from keys.identity import Certificate
from keys.sharetree import Combination, Hop, Label, Place, Share, recombine

from .arriving import Admission, Admitted
from .blame import Evidence
from .machine import Blame, Count, Deliver, Effect, Publication, Received
from .sealing import ScopeSecret
from .subscriptions import KEYS_TOPIC
from .views import Overlay

KEYS_HELD_MAX = 4096
HELD_MAX = 10_000  # publications that wait for a key or a predecessor, over all streams
HOLES_MAX = 64
STREAMS_MAX = 100_000  # (publisher, topic) pairs remembered; the oldest is forgotten first
REPAIR_S = 10.0
AUDIT_AFTER_S = 1.0  # by then slow replicas have sent their shares of a key: judge them all at once
FRESH_S = 300.0


@dataclass(slots=True)
class _Key:
    """A verified key header, the shares collected for it and, once recombined, the data key."""

    header: KeyHeader
    publisher: Certificate
    hops: tuple[Hop, ...]
    shares: dict[Label, Share] = field(default_factory=dict)
    data_key: DataKey | None = None
    combination: Combination | None = None
    audit_at: float | None = None
    failed_with: int = -1  # number of shares at the last search in vain
    unusable: bool = False
    waiting: set[tuple[bytes, str]] = field(default_factory=set)


@dataclass(slots=True)
class _Held:
    admitted: Admitted
    content: bytes = field(repr=False)
    topic: str
    arrived: float
    replayed: bool


@dataclass(slots=True)
class _Stream:
    """One publisher's publications on one wire topic."""

    highest: int | None = None
    holes: set[int] = field(default_factory=set)
    held: dict[int, _Held] = field(default_factory=dict)


class Collector:
    """One gateway's subscriptions to the overlay."""

    def __init__(self, overlay: Overlay, name: str, secrets: Sequence[ScopeSecret]) -> None:
        self._overlay = overlay
        self._name = name
        self._home = overlay.certificate(name).region
        self._view = overlay.views[self._home]
        self._secrets = {secret.scope.filter: secret for secret in secrets}
        self._admission = Admission(overlay)
        self._evidence = Evidence(overlay)
        self._keys: OrderedDict[bytes, _Key] = OrderedDict()
        self._streams: OrderedDict[tuple[bytes, str], _Stream] = OrderedDict()
        self._last_combination: dict[int, Combination] = {}  # by publisher's home region
        self._waiting_for_key: dict[bytes, set[tuple[bytes, str]]] = {}
        self._held_count = 0
        self._deadlines: OrderedDict[tuple[bytes, str], float] = OrderedDict()
        self._audits: OrderedDict[bytes, float] = OrderedDict()

    # --------------------------------------------------------------------------------------------- events

    def received(self, event: Received, now: float) -> list[Effect]:
        """A wire from a replica of the home region."""
        effects: list[Effect] = []
        try:
            properties = dict(event.wire.properties)
            effects += self._take_key(event.peer, properties, now)
            if event.wire.topic != KEYS_TOPIC:
                if PROPERTY_HEADER not in properties:
                    raise BadFrame("publication without a signed header")
                effects += self._publication(event, self._admission.publication(event.wire, properties), now)
        except KeysError as error:
            # What the wire brought before its fault (a verified key may have opened something) stays valid.
            effects += [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]
        return effects

    def tick(self, now: float) -> list[Effect]:
        """Give up on what waited too long, and audit keys whose shares are in."""
        effects: list[Effect] = []
        for stream_id in [s for s, at in self._deadlines.items() if at <= now]:
            effects += self._advance(stream_id, now)
        for key_id in [k for k, at in self._audits.items() if at <= now]:
            effects += self._audit(key_id)
        return effects

    @property
    def next_deadline(self) -> float | None:
        firsts = [min(d.values()) for d in (self._deadlines, self._audits) if d]
        return min(firsts, default=None)

    # ----------------------------------------------------------------------------------------------- keys

    def _take_key(self, peer: str, properties: dict[str, str], now: float) -> list[Effect]:
        header = self._admission.key(properties)
        if header is None:
            return []
        key = self._keys.get(header.key_id)
        if key is None:
            publisher = self._admission.publisher(header.publisher)
            hops = self._overlay.hops_between(publisher.region, self._home)
            key = self._keys[header.key_id] = _Key(header, publisher, hops)
            key.waiting = self._waiting_for_key.pop(header.key_id, set())
            if len(self._keys) > KEYS_HELD_MAX:
                self._audits.pop(self._keys.popitem(last=False)[0], None)
        path = self._overlay.path(key.publisher.region, self._home)
        sender = Place(self._home, self._view.number, self._view.place_of(peer))
        effects: list[Effect] = []
        fresh = 0
        for share in self._admission.shares(properties, [*path[:-1], sender]):
            known = key.shares.setdefault(share.label, share)
            if known is share:
                fresh += 1
            elif known != share:
                effects.append(Blame(peer, False, "a second, different share for one label"))
        if fresh:
            effects.append(Count("shares_received", fresh))
            if key.data_key is None:
                effects += self._recombine(key, now)
            elif key.audit_at is None:
                effects += self._schedule_audit(key, now)
        return effects

    def _recombine(self, key: _Key, now: float) -> list[Effect]:
        """Try to get the data key from the shares that are here; more may come."""
        header, secret = key.header, self._secrets.get(key.header.scope)
        if secret is None or key.unusable or len(key.shares) == key.failed_with:
            return []
        opened: list[DataKey] = []

        def accept(value: bytes) -> bool:
            try:
                opened.append(open_key(header, value, None if secret.scope.shares_only else secret.key))
            except BadContent:
                return False
            return True

        key.failed_with = len(key.shares)
        try:
            check_epoch_key(header, None if secret.scope.shares_only else secret.key)
            found = recombine(
                key.shares.values(),
                key.hops,
                lambda place, value: check_share(header, place, value),
                accept,
                first=self._last_combination.get(key.publisher.region),
            )
        except NotEnoughShares:
            return []
        except SearchExhausted:
            return [Count("recombine_retries")]
        except WrongEpochKey:
            key.unusable = True
            return [Count("wrong_epoch_key")]
        key.data_key, key.combination = opened[-1], found.combination
        self._last_combination[key.publisher.region] = found.combination
        effects: list[Effect] = [Count("recombined")]
        effects += self._schedule_audit(key, now)
        for stream_id in sorted(key.waiting):
            effects += self._advance(stream_id, now)
        key.waiting.clear()
        return effects

    def _schedule_audit(self, key: _Key, now: float) -> list[Effect]:
        key.audit_at = now + AUDIT_AFTER_S
        self._audits[key.header.key_id] = key.audit_at
        return []

    def _audit(self, key_id: bytes) -> list[Effect]:
        """Compare all shares of an opened key with its commitments; late and absent ones prove nothing."""
        self._audits.pop(key_id, None)
        key = self._keys.get(key_id)
        if key is None or key.combination is None:
            return []
        key.audit_at = None
        return list(self._evidence.judge(key.header, key.hops, key.shares, key.combination))

    # --------------------------------------------------------------------------------------- publications

    def _publication(self, event: Received, admitted: Admitted, now: float) -> list[Effect]:
        header = admitted.header
        if not admitted.intact:
            why = "content does not match the signed header"
            return [Count("refused", 1, "content"), Blame(event.peer, False, why)]
        if admitted.publisher.name == self._name:
            return []
        if header.deadline_ms and header.deadline_ms < now * 1000:
            return [Count("expired")]
        stream_id = (header.publisher, event.wire.topic)
        stream = self._stream(stream_id)
        seen = stream.highest is not None and header.sequence <= stream.highest
        if header.sequence in stream.held or (seen and header.sequence not in stream.holes):
            return [Count("duplicates_dropped")]
        replayed = event.wire.retain and header.retain
        if stream.highest is None and not replayed and abs(now * 1000 - header.time_ms) > FRESH_S * 1000:
            return [Count("replays_dropped")]
        if self._held_count >= HELD_MAX:
            return [Count("held_overflow")]
        stream.held[header.sequence] = _Held(admitted, event.wire.payload, event.wire.topic, now, replayed)
        self._held_count += 1
        return self._advance(stream_id, now)

    def _stream(self, stream_id: tuple[bytes, str]) -> _Stream:
        stream = self._streams.get(stream_id)
        if stream is None:
            stream = self._streams[stream_id] = _Stream()
            if len(self._streams) > STREAMS_MAX:
                _, old = self._streams.popitem(last=False)
                self._held_count -= len(old.held)
        return stream

    def _advance(self, stream_id: tuple[bytes, str], now: float) -> list[Effect]:
        """Deliver what can be delivered, lowest sequence first; set the deadline of what cannot."""
        stream = self._streams.get(stream_id)
        self._deadlines.pop(stream_id, None)
        effects: list[Effect] = []
        while stream is not None and stream.held:
            sequence = min(stream.held)
            held = stream.held[sequence]
            header = held.admitted.header
            deadline = held.arrived + REPAIR_S
            if not self._ready(header, stream_id):
                if now < deadline:
                    self._deadlines[stream_id] = deadline
                    break
                self._drop(stream, sequence)
                effects.append(Count("unopened"))
                continue
            late = stream.highest is not None and sequence < stream.highest
            if not late and stream.highest is not None and header.previous > stream.highest:
                if now < deadline:
                    self._deadlines[stream_id] = deadline
                    effects.append(Count("reorder_waits"))
                    break
                _note_hole(stream, header.previous)
                effects.append(Count("holes"))
            self._drop(stream, sequence)
            stream.holes.discard(sequence)
            stream.highest = max(sequence, stream.highest or 0)
            effects += self._open(held, late)
        return effects

    def _ready(self, header: MessageHeader, stream_id: tuple[bytes, str]) -> bool:
        """Whether the publication can be opened now; if not, its stream is woken when the key is there."""
        if header.mode is Mode.PLAIN:
            return True
        key = self._keys.get(header.key_id)
        if key is not None and key.data_key is not None:
            return True
        waiting = key.waiting if key is not None else self._waiting_for_key.setdefault(header.key_id, set())
        waiting.add(stream_id)
        if len(self._waiting_for_key) > KEYS_HELD_MAX:
            self._waiting_for_key.pop(next(iter(self._waiting_for_key)))
        return False

    def _drop(self, stream: _Stream, sequence: int) -> None:
        del stream.held[sequence]
        self._held_count -= 1

    def _open(self, held: _Held, late: bool) -> list[Effect]:
        """Decrypt and hand out; a publisher's own mistakes are charged to the publisher."""
        header = held.admitted.header
        try:
            if header.mode is Mode.PLAIN:
                clear = held.content
            else:
                data_key = self._keys[header.key_id].data_key
                assert data_key is not None
                clear = data_key.open(header.prefix(), header.sequence, held.topic, held.content)
            inner = Inner.decode(clear)
            secret = self._secrets.get(held.admitted.scope.filter)
            if secret is None or secret.wire_topic(inner.topic) != held.topic:
                raise BadContent("sealed topic is not the one on the wire")
        except KeysError as error:
            return [Count("unopened"), Blame(held.admitted.publisher.name, False, str(error))]
        publication = Publication(
            topic=inner.topic,
            payload=inner.payload,
            qos=header.qos,
            retain=header.retain,
            content_type=inner.content_type,
            response_topic=inner.response_topic,
            correlation_data=inner.correlation_data,
            payload_format=inner.payload_format,
            properties=inner.properties,
            expiry_s=None if not header.deadline_ms else max(0, (header.deadline_ms - inner.time_ms) // 1000),
            time_ms=inner.time_ms,
        )
        deliver = Deliver(held.admitted.publisher.name, header.sequence, publication, late)
        return [deliver, Count("delivered")]


def _note_hole(stream: _Stream, missing: int) -> None:
    if len(stream.holes) >= HOLES_MAX:
        stream.holes.discard(min(stream.holes))
    stream.holes.add(missing)
