"""What a gateway's publications are sealed under, whether they may be sealed now, and the sealing itself.

An entry is sealed under its scope's present data key, and its header is signed (docs/protocol.md §2.6). A
*review* says what each scope seals under, and for which views, from now on: after every epoch, bump, newer overlay,
change of views and arrival of keys. A scope that has no key, or whose right we lost, holds nothing up: `hindrance` says
why an entry waits. Not here: which entries there are and who has them (`publisher`), data keys (`data_keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bridge.base import matches, specificity
from bridge.contract import Count, Effect, Publication, UserProperties, Wire
from bridge.document import Overlay, RecordRights, Scope, ScopeSecret, batch_topic
from bridge.publisher.data_keys import DataKeys, LiveKey
from bridge.publisher.residents import Standing
from bridge.wire import OwnLife
from bridge.wire import pieces as content
from keys.envelope import (
    NO_KEY,
    PROPERTY_HEADER,
    TAG_BYTES,
    Inner,
    KeyName,
    MessageHeader,
    Mode,
    content_digest,
    sign_header,
    to_property,
)
from keys.epochs import ScopeKeys
from keys.errors import KeysError
from keys.identity import Identity
from keys.keyheader import frame_bytes
from keys.message import SEALED_PROPERTIES
from keys.records import Records
from keys.sharetree import Hop

RIGHTS_MAX = 65_536  # topics whose right is remembered between two reviews
PACKET_OVERHEAD_BYTES = 1024  # signed header, shares, seal and MQTT beside content, topic and key header
CLOCK_STEP_S = 60.0

Seal: TypeAlias = tuple[KeyName, tuple[Hop, ...]]


@dataclass(slots=True)
class Entry:
    """An outbox entry; `wire` is None until it is sealed, under `name` and, if a key is used, for the views `hops`. The
    wire has all of the content that travels as copies; of `pieces`, into which other content is cut, it has none."""

    sequence: int
    publication: Publication
    secret: ScopeSecret
    topic: str
    previous: int
    born: float
    wire: Wire | None = None
    header: MessageHeader | None = None
    signed: UserProperties = ()
    pieces: tuple[bytes, ...] = field(default=(), repr=False)
    name: KeyName | None = None
    hops: tuple[Hop, ...] = ()
    sealed_ms: int = 0
    key: LiveKey | None = None
    acked: set[str] = field(default_factory=set)
    standing: Standing = Standing.FRESH

    @property
    def size(self) -> int:
        """Bytes that it is counted for while it is in memory."""
        return len(self.publication.payload) + len(self.publication.topic)

    def wire_for(self, place: int, count: int) -> Wire:
        """What the replica at `place` of our region, which has `count`, gets."""
        assert self.wire is not None
        if self.header is None or self.header.mode not in (Mode.ONE, Mode.BLOCKS):
            return self.wire
        return self.with_pieces(content.carried(self.header, place, count))

    def with_pieces(self, parts: Iterable[int]) -> Wire:
        """The publication with these of its pieces."""
        assert self.header is not None
        return content.wire(self.topic, self.header, self.signed, {index: self.pieces[index] for index in parts})


class Sealer:
    """Our scopes, their keys and rights. `review_at`: when what they seal under may change next; None: now."""

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        random: Callable[[int], bytes],
        life: OwnLife,
    ) -> None:
        self._overlay = overlay
        self._identity = identity
        self._name, self._life = name, life
        self._data_keys = DataKeys(overlay, identity, overlay.certificate(name).region, keys, random, life)
        self._set_secrets(secrets)
        self._last_now = 0.0
        # What each scope seals under, by wire filter, as of the last review; None asks for a review.
        self._names: dict[str, KeyName | None] = {}
        self._hops: dict[str, tuple[Hop, ...]] = {}  # and for which views
        self._last_seals: dict[str, Seal] = {}  # both without gaps, to tell when what is retained must follow
        self.review_at: float | None = None
        self._batches: dict[str, str | None] = {}  # by clear topic: where its batches go, as of the last review
        self._rights: dict[str, bool] = {}  # by wire topic, in the epoch of the last review
        self._record_rights: dict[str, RecordRights] = {}  # by wire filter, the same

    # ------------------------------------------------------------------------------------------ questions

    def is_us(self, party_id: bytes) -> bool:
        """Whether this is our present or former key."""
        certificate = self._overlay.by_party.get(party_id)
        return certificate is not None and certificate.name == self._name

    def secret_for(self, topic: str) -> ScopeSecret | None:
        """The most specific scope that takes a clear topic across the overlay; None: it stays local."""
        if topic not in self._secret_for:
            if len(self._secret_for) >= RIGHTS_MAX:
                self._secret_for.clear()
            self._secret_for[topic] = next((s for s in self._secrets if matches(s.clear_filter, topic)), None)
        return self._secret_for[topic]

    def secret_of(self, publication: Publication) -> ScopeSecret | None:
        """The same for a publication; a batch names its scope by the clear filter."""
        if not publication.records:
            return self.secret_for(publication.topic)
        return next((s for s in self._secrets if s.clear_filter == publication.topic), None)

    def wire_topic_of(self, secret: ScopeSecret, publication: Publication) -> str:
        """Where a publication of the scope travels; a batch on the scope's own topic."""
        if not publication.records:
            return secret.wire_topic(publication.topic)
        scope = self._overlay.scope_named(secret.scope.filter) or secret.scope
        return batch_topic(scope.number)

    def packet_bytes(self, publication: Publication) -> int:
        """Bound of the MQTT packet that carries a publication to a replica, in bytes; 0 for what is never sealed."""
        secret = self.secret_for(publication.topic)
        if secret is None:
            return 0
        hops = self._data_keys.hops(secret.scope)
        key_chars = frame_bytes(secret.scope.filter, len(hops), hops[0].count) * 4 // 3
        try:
            inner = len(clear_of(publication))
        except KeysError:
            return 0
        return inner + len(secret.wire_topic(publication.topic).encode()) + key_chars + PACKET_OVERHEAD_BYTES

    def batch_of(self, topic: str, now: float) -> str | None:
        """The clear filter of the scope whose batches publications on a clear topic are part of; None: they travel
        alone, since they may not travel now."""
        if topic not in self._batches:
            if len(self._batches) >= RIGHTS_MAX:
                self._batches.clear()
            self._batches[topic] = self._batch_of(topic, now)
        return self._batches[topic]

    def _batch_of(self, topic: str, now: float) -> str | None:
        secret = self.secret_for(topic)
        return secret.clear_filter if secret is not None and self.may_publish(topic, now) else None

    def may_publish(self, topic: str, now: float) -> bool:
        """Whether a clear topic that a scope takes may be published now. If not, its publications are refused: a
        protected topic neither stays local nor goes out in clear."""
        secret = self.secret_for(topic)
        return secret is not None and self._authorised(secret, secret.wire_topic(topic), now)

    def is_current(self, entry: Entry) -> bool:
        """Whether an entry would be sealed under the same name and for the same views now, as of the last review."""
        wire_filter = entry.secret.scope.filter
        return (entry.name, entry.hops) == (self._names[wire_filter], self._hops[wire_filter])

    def present(self, wire_filter: str) -> KeyName | None:
        """What a scope seals under now, as of the last review."""
        return self._names.get(wire_filter)

    def keys_alone(self, now: float) -> Iterator[LiveKey]:
        """Data keys in use that stand alone."""
        return self._data_keys.alone(now)

    def hindrance(self, entry: Entry, now: float) -> str | None:
        """Why an entry cannot be sealed now: a figure's name; None if it can."""
        if self._life.outlived_by:
            return "outlived_waits"
        allowed = self._rights.get(entry.topic)
        if allowed is None:
            if len(self._rights) >= RIGHTS_MAX:
                self._rights.clear()
            topic = None if entry.publication.records else entry.topic
            allowed = self._rights[entry.topic] = self._authorised(entry.secret, topic, now)
        if not allowed or (entry.publication.records and not self._may_all_go(entry, now)):
            return "not_authorised"
        return "key_waits" if self._names.get(entry.secret.scope.filter) is None else None

    def _may_all_go(self, entry: Entry, now: float) -> bool:
        """Whether we have the right to every record of a batch: readers would refuse the others, and suspect us. Rights
        may have ended since it was committed, or a scope have come that takes some of its topics."""
        secret = entry.secret
        wire_filter = secret.scope.filter
        rights = self._record_rights.get(wire_filter)
        if rights is None:
            scope = self._overlay.scope_named(wire_filter) or secret.scope
            rights = self._overlay.rights_in(self._name, scope, self._overlay.policy.calendar.at(now))
            self._record_rights[wire_filter] = rights
        if rights.is_all:
            return True
        topics = Records.decode(entry.publication.payload).topics
        return all(rights.allow(secret.wire_topic(topic.decode())) for topic in topics)

    def is_hindered(self, publication: Publication) -> bool:
        """Whether an entry with this publication is known to wait, as of the last review."""
        secret = self.secret_of(publication)
        if secret is None:
            return False
        if self._life.outlived_by:
            return True
        no_key = self._names.get(secret.scope.filter, self) is None
        return no_key or self._rights.get(self.wire_topic_of(secret, publication)) is False

    # -------------------------------------------------------------------------------------------- changes

    def ask_review(self) -> None:
        self.review_at = None

    def keys_changed(self) -> None:
        """Epoch keys came, or one that was wrong was replaced."""
        self._data_keys.clear()
        self.review_at = None

    def forget_peer(self, peer: str) -> None:
        """The peer may have lost its memory: data keys are announced to it again."""
        self._data_keys.forget_peer(peer)

    def adopt(self, overlay: Overlay, secrets: Sequence[ScopeSecret]) -> None:
        """Another version of the overlay, or other views, of the same regions."""
        self._overlay = overlay
        self._data_keys.adopt(overlay)
        self._set_secrets(secrets)
        self._batches.clear()
        self.review_at = None

    def rotate(self, identity: Identity) -> None:
        """Sign with another key of ours from now on."""
        self._identity = identity
        self._data_keys.rotate(identity)

    def _set_secrets(self, secrets: Sequence[ScopeSecret]) -> None:
        usable = [secret for secret in secrets if not secret.scope.retiring]
        self._secret_for: dict[str, ScopeSecret | None] = {}  # by clear topic
        self._secrets = sorted(usable, key=lambda s: specificity(s.clear_filter))

    def _authorised(self, secret: ScopeSecret, wire_topic: str | None, now: float) -> bool:
        """Whether the policy lets us publish on a topic, or on some topic of the scope, in the present epoch."""
        scope = self._overlay.scope_named(secret.scope.filter)
        if scope is None or scope.retiring or (scope.mode is Mode.PLAIN and secret.scope.mode is not Mode.PLAIN):
            return False
        epoch = self._overlay.policy.calendar.at(now)
        if wire_topic is None:
            return self._overlay.may_publish_in(self._name, scope, epoch)
        return self._overlay.may_publish(self._name, wire_topic, epoch)

    def review_due(self, now: float) -> bool:
        """Whether what scopes seal under may have changed since the last review."""
        if now < self._last_now - CLOCK_STEP_S:  # the clock was set back: the epoch is another one
            self._data_keys.clear()
            self._last_now, self.review_at = now, None
        return self.review_at is None or now >= self.review_at

    def review(self, scopes: Mapping[str, Scope], now: float) -> set[str]:
        """What each scope, ours and these by wire filter, seals under from now on; those that seal under another key
        than before."""
        calendar = self._overlay.policy.calendar
        present = calendar.at(now)
        all_scopes = {**scopes, **{secret.scope.filter: secret.scope for secret in self._secrets}}
        self._names = {wire_filter: self._data_keys.name(scope, now) for wire_filter, scope in all_scopes.items()}
        self._hops = {wire_filter: self._data_keys.hops(scope) for wire_filter, scope in all_scopes.items()}
        self._rights.clear()
        self._record_rights.clear()
        self._batches.clear()
        grace = calendar.start_s(present) + calendar.grace_s if calendar.length_s else 0.0
        self.review_at = grace if grace > now else calendar.end_s(present)
        seals = {f: (name, self._hops[f]) for f, name in self._names.items() if name}
        changed = {f for f, seal in seals.items() if self._last_seals.get(f, seal) != seal}
        self._last_seals |= seals
        return changed

    # -------------------------------------------------------------------------------------------- sealing

    def seal(self, entries: Sequence[Entry], now: float) -> tuple[list[int], list[Effect]]:
        """Seal and sign entries that nothing hinders. Returns those that fit no frame and never will."""
        stepped = abs(now - self._last_now) > CLOCK_STEP_S and self._last_now > 0
        if entries:
            self._last_now = now
        if entries and stepped:  # a key's age means nothing now
            self._data_keys.clear()
        unsealable: list[int] = []
        for entry in entries:
            try:
                header, pieces = self._seal_one(entry, now)
                signed = sign_header(self._identity, header, entry.topic).encode()
            except KeysError:
                # Kept, it would stop the outbox now and after every restart.
                unsealable.append(entry.sequence)
                continue
            entry.signed = ((PROPERTY_HEADER, to_property(signed)),)
            entry.header, entry.pieces = header, pieces
            entry.wire = entry.with_pieces((0,) if header.mode in (Mode.COPIES, Mode.PLAIN) else ())
        sealed = len(entries) - len(unsealable)
        counted: list[Effect] = [Count("sealed", sealed)] if sealed else []
        return unsealable, counted + ([Count("unsealable", len(unsealable))] if unsealable else [])

    def _later(self, before_ms: int, now_ms: int) -> int:
        """When what was sealed `before_ms` is sealed anew. The later sealing wins: an earlier one is a repetition to
        replicas. So a clock that was set back a little does not count, unless it was over the border of an epoch."""
        later_ms, calendar = before_ms + 1, self._overlay.policy.calendar
        if not now_ms < later_ms <= now_ms + CLOCK_STEP_S * 1000:  # the usual case
            return now_ms
        return later_ms if calendar.at(later_ms / 1000) == calendar.at(now_ms / 1000) else now_ms

    def _seal_one(self, entry: Entry, now: float) -> tuple[MessageHeader, tuple[bytes, ...]]:
        publication, scope = entry.publication, entry.secret.scope
        inner = clear_of(publication)
        entry.name, entry.hops = self._names[scope.filter], self._hops[scope.filter]
        assert entry.name is not None
        home = self._overlay.views[self._overlay.certificate(self._name).region].members
        wanted = scope.mode
        if wanted is not Mode.PLAIN and not self._overlay.hosted.isdisjoint(home):
            wanted = Mode.COPIES  # stock brokers put nothing together and are asked for nothing
        mode = content.chosen(wanted, len(inner) + TAG_BYTES, publication.retain)
        key = None if mode is Mode.PLAIN else self._data_keys.key(scope, entry.name, entry.sequence, now)
        deadline_s = publication.expiry_s
        entry.sealed_ms = self._later(entry.sealed_ms, int(now * 1000))
        header = MessageHeader(
            publisher=self._identity.party_id,
            key_id=key.header.key_id if key else NO_KEY,
            sequence=entry.sequence,
            previous=entry.previous,
            time_ms=entry.sealed_ms,
            deadline_ms=publication.time_ms + deadline_s * 1000 if deadline_s is not None else 0,
            qos=publication.qos,
            retain=publication.retain,
            tombstone=publication.retain and not publication.payload,
            mode=mode,
            digests=(),
        )
        sealed = inner if key is None else key.seal(header.prefix(), entry.sequence, entry.topic, inner)
        entry.key = key
        pieces = content.cut(sealed, mode, len(home))
        return replace(header, digests=tuple(map(content_digest, pieces))), pieces


def clear_of(publication: Publication) -> bytes:
    """What is sealed. Raises `OurFault` for what fits no frame."""
    return publication.payload if publication.records else inner_of(publication).encode()


def inner_of(publication: Publication) -> Inner:
    """What is sealed: payload, clear topic, original time and application properties."""
    return Inner(
        topic=publication.topic,
        time_ms=publication.time_ms,
        payload=publication.payload,
        properties=publication.properties,
        **{name: getattr(publication, name) for name in SEALED_PROPERTIES},
    )
