"""Sealing of a gateway's publications: the keys and views to seal under, the right time, and the sealing itself.

An entry is sealed under its scope's present data key, and its header is signed (docs/protocol.md §2.6). A *review*
fixes the key, views and tree of each scope from now on: after every epoch, bump, newer overlay, change of views or
trees and arrival of keys. A scope without key or right delays no other: `hindrance` gives the reason why an entry
waits. `publisher` has the entries, `data_keys` the data keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from bridge.base import matches, specificity
from bridge.contract import (
    BATCH_FORM_BYTES,
    Chain,
    Count,
    Effect,
    Numbered,
    Publication,
    packed,
    size_of,
    unpacked,
)
from bridge.document import Overlay, Protection, Scope, ScopeSecret, batch_topic, retained_topic
from bridge.document.trees import NUMBERS
from bridge.predicates import Attributes
from bridge.publisher.data_keys import DataKeys, LiveKey
from bridge.publisher.entry import Entry
from bridge.publisher.former_scopes import OwnRights
from bridge.publisher.sealed_before import SealedBefore
from bridge.wire import PROPERTY_SHOWN, OwnLife, shown_list
from bridge.wire import pieces as content
from bridge.wire.shown_lists import LIST_BYTES
from keys.envelope import (
    NO_KEY,
    PROPERTY_HEADER,
    TAG_BYTES,
    KeyName,
    MessageHeader,
    Mode,
    content_digest,
    signed_frame,
    to_property,
)
from keys.epochs import Calendar, ScopeKeys
from keys.errors import KeysError, OurFault
from keys.identity import Identity
from keys.keyheader import frame_bytes
from keys.records import fill
from keys.sharetree import Hop
from keys.topictokens import retained_id

TOPICS_MAX = 65_536  # topics whose scope is remembered
BESIDE_MAX = 1 << 16  # more than any packet has beside its content: who takes that much more need not be looked at
PACKET_OVERHEAD_BYTES = 1024  # signed header, shares, seal and MQTT beside content, topic and key header
CLOCK_STEP_S = 60.0


class Protected(Protocol):
    """A retained publication as `Sealer.seal_for` needs it. `protected`: it never goes in clear."""

    @property
    def publication(self) -> Publication: ...
    @property
    def protected(self) -> bool: ...


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
        self.rights, self.sealed_before = OwnRights(overlay, name), SealedBefore()
        self.padding = 0
        """Sealed content is filled up to a multiple of so many bytes (`keys.records.fill`); 0: it is not filled."""
        self._last_now = 0.0
        # What each scope seals under, by wire filter, as of the last review; None asks for a review.
        self._names: dict[str, KeyName | None] = {}
        self._hops: dict[str, tuple[Hop, ...]] = {}  # for which views ...
        self._protections: dict[str, Protection] = {}  # ... and how
        self.review_at: float | None = None
        self.changes = 0
        """The number of changes of keys, rights and views so far."""

    # ------------------------------------------------------------------------------------------ questions

    def is_us(self, party_id: bytes) -> bool:
        """Returns True if this is the gateway's present or former key."""
        certificate = self._overlay.by_party.get(party_id)
        return certificate is not None and certificate.name == self._name

    def secret_for(self, topic: str) -> ScopeSecret | None:
        """Returns the most specific scope taking a clear topic; None if the topic stays local."""
        return self._secret_for(topic)

    def secret_of(self, publication: Publication) -> ScopeSecret | None:
        """Returns the scope of a publication; a batch names its scope by the clear filter."""
        if not publication.records:
            return self.secret_for(publication.topic)
        for secret in self._secrets:
            if secret.clear_filter == publication.topic:
                return secret
        return None

    def renewed(self, secret: ScopeSecret) -> ScopeSecret:
        """Returns the scope as it stands in the present policy, under its newest tokens; unchanged if it is gone.
        Protected publications never go in clear.
        """
        scope = self._overlay.scope_named(secret.scope.filter)
        same = [s for s in self._secrets if secret.scope.number and s.scope.stream == secret.scope.stream]
        found = max(same, key=lambda each: each.scope.number, default=None)
        found = replace(secret, scope=scope) if found is None and scope is not None else found
        if found is None or (found.scope.mode is Mode.PLAIN and secret.scope.mode is not Mode.PLAIN):
            return secret
        return found

    def wire_topic_of(self, secret: ScopeSecret, publication: Publication) -> str:
        """Returns the topic on which a publication of the scope travels: its batches', or its own if retained."""
        scope = self._overlay.scope_named(secret.scope.filter) or secret.scope
        if not publication.retain:
            return batch_topic(scope.number)
        return retained_topic(scope.number, retained_id(secret.token_key, publication.topic), self._identity.party_id)

    def packet_bytes(self, publication: Publication) -> int:
        """Bound of the MQTT packet carrying a publication to a replica, in bytes; 0 for what is never sealed."""
        secret = self.secret_for(publication.topic)
        if secret is None:
            return 0
        try:
            inner = clear_of(publication, 0)
            more = 0 if secret.scope.mode is Mode.PLAIN else self._fill(inner)
            return len(inner) + more + self._beside_bytes(secret.scope)
        except KeysError:
            return 0

    def _fill(self, inner: bytes) -> int:
        return -len(inner) % self.padding if self.padding else 0

    def _beside_bytes(self, scope: Scope) -> int:
        """Returns how many bytes a packet of the scope has beside its content, at most. A plain scope has no key."""
        hops = self._data_keys.hops(scope)
        key_chars = frame_bytes(scope.filter, len(hops), hops[0].count) * 4 // 3 if hops else 0
        return key_chars + (LIST_BYTES * 4 // 3 if scope.shown else 0) + PACKET_OVERHEAD_BYTES

    def chain_of(self, topic: str, packet_limit: int | None = None) -> Chain:
        """Returns the chain of a clear topic: its scope's, or its own without a scope. With `packet_limit`, in bytes,
        its batches fit into packets of that size, except single publications.
        """
        secret = self.secret_for(topic)
        if secret is None:
            return Chain(topic)
        chain = Chain(secret.clear_filter, *secret.scope.batch.values, secret.scope.mode is Mode.PLAIN)
        if packet_limit is None or packet_limit >= chain.bytes + BESIDE_MAX:
            return chain
        room = packet_limit - self._beside_bytes(secret.scope) - BATCH_FORM_BYTES - self.padding
        return chain._replace(bytes=max(1, min(chain.bytes, room)))

    def may_publish(self, topic: str, now: float) -> bool:
        """Returns True if a clear topic of a scope may be published now. Otherwise its publications are refused: a
        protected topic neither stays local nor goes out in clear.
        """
        secret = self.secret_for(topic)
        return secret is not None and self.rights.topic(secret, topic, now)

    def seal_for(self, kept: Protected) -> str:
        """Returns the names of certificate, key, views, tree and protection of a new sealing, as of the last review.
        Empty if sealing is impossible, or a protected publication would go in clear.
        """
        secret = self.secret_for(kept.publication.topic)
        name = None if secret is None else self._names.get(secret.scope.filter)
        if secret is None or name is None or (kept.protected and secret.scope.mode is Mode.PLAIN):
            return ""
        wire_filter = secret.scope.filter
        return self._word(name, self._hops[wire_filter], self._data_keys.tree, self._protections[wire_filter])

    @property
    def calendar(self) -> Calendar:
        """The calendar of the policy."""
        return self._overlay.policy.calendar

    def oldest(self, now: float) -> int:
        """Returns the first epoch that is not dead."""
        return self.calendar.epoch_at(now - self.calendar.grace_s - self.calendar.skew_s)

    def seal_of(self, entry: Entry) -> str:
        """Returns the names of an entry's present sealing, in the form of `seal_for`."""
        assert entry.name is not None
        return self._word(entry.name, entry.hops, entry.tree, entry.protection)

    def _word(self, name: KeyName, hops: tuple[Hop, ...], tree: int, protection: Protection) -> str:
        views = [(hop.region, hop.view) for hop in hops]
        of = self._identity.party_id, tuple(name), views, tree, protection.value
        return content_digest(repr(of).encode()).hex()[:32]

    def is_current(self, entry: Entry) -> bool:
        """Returns True if an entry's sealing would be the same now, as of the last review (`seal_for`)."""
        return entry.name == self._names[entry.secret.scope.filter] and self.is_current_but_for_its_epoch(entry)

    def is_current_but_for_its_epoch(self, entry: Entry) -> bool:
        """Returns True if an entry's sealing would be the same in the entry's epoch."""
        assert entry.name is not None
        scope, (named, _, bump) = entry.secret.scope, entry.name
        present = self._hops[scope.filter], self._data_keys.tree, self._protections[scope.filter]
        return (named, bump, entry.hops, entry.tree, entry.protection) == (scope.filter, scope.bump, *present)

    def keys_alone(self, now: float) -> Iterator[LiveKey]:
        """Yields data keys in use standing alone."""
        return self._data_keys.alone(now)

    def hindrance(self, entry: Entry, now: float) -> str | None:
        """Returns the reason why an entry cannot be sealed now, as a figure's name; None if it can."""
        if self._life.outlived_by:
            return "outlived_waits"
        if not self.rights.whole(entry.secret, entry.publication, now, began=entry.was_sealed):
            return "not_authorised"
        return "key_waits" if self._names.get(entry.secret.scope.filter) is None else None

    # -------------------------------------------------------------------------------------------- changes

    def ask_review(self, at: float | None = None) -> None:
        """Requests a look at the keys and rights of each scope at the time `at`, or now for None, unless a look is due
        before.
        """
        self.review_at = None if at is None or self.review_at is None else min(self.review_at, at)

    def keys_changed(self) -> None:
        """Requests a review after new or replaced epoch keys."""
        self.changes += 1
        self._data_keys.end_all_keys()
        self.review_at = None

    def forget_peer(self, peer: str) -> None:
        """Announces data keys again to a peer that may have lost its memory."""
        self._data_keys.forget_peer(peer)

    def adopt_overlay(self, overlay: Overlay, secrets: Sequence[ScopeSecret]) -> None:
        """Adopts another version of the overlay, or other views, with unchanged regions."""
        self.changes += 1
        self._overlay = overlay
        self.rights.adopt_overlay(overlay)
        self._data_keys.adopt_overlay(overlay)
        self._set_secrets(secrets)
        self.review_at = None

    def rotate_identity(self, identity: Identity) -> None:
        """Signs with another key of this gateway from now on."""
        self._identity = identity
        self._data_keys.rotate_identity(identity)
        self.review_at = None

    def _set_secrets(self, secrets: Sequence[ScopeSecret]) -> None:
        usable = [secret for secret in secrets if not secret.scope.retiring]
        self._secrets = ordered = sorted(usable, key=lambda s: specificity(s.clear_filter))
        self._secret_for = lru_cache(TOPICS_MAX)(
            lambda topic: next((s for s in ordered if matches(s.clear_filter, topic)), None)
        )

    def review_due(self, now: float) -> bool:
        """Returns True if the keys or views for sealing may have changed since the last review."""
        if now < self._last_now - CLOCK_STEP_S:  # the clock was set back: the epoch is another one
            self._data_keys.end_all_keys()
            self._last_now, self.review_at = now, None
        return self.review_at is None or now >= self.review_at

    def review(self, scopes: Mapping[str, Scope], now: float) -> None:
        """Reviews keys and views of each scope, the gateway's own and these by wire filter."""
        calendar = self._overlay.policy.calendar
        present = calendar.epoch_at(now)
        all_scopes = {**scopes, **{secret.scope.filter: secret.scope for secret in self._secrets}}
        self._names = {
            wire_filter: self._data_keys.epoch_key_name(scope, now) for wire_filter, scope in all_scopes.items()
        }
        self._hops = {wire_filter: self._data_keys.hops(scope) for wire_filter, scope in all_scopes.items()}
        self._protections = {wire_filter: scope.protection for wire_filter, scope in all_scopes.items()}
        self.rights.forget_answers()
        grace = calendar.start_s(present) + calendar.grace_s
        self.review_at = grace if grace > now else calendar.end_s(present)

    # -------------------------------------------------------------------------------------------- sealing

    def seal_entries(self, entries: Sequence[Entry], now: float) -> tuple[list[int], list[Effect]]:
        """Seals and signs entries that nothing hinders. Returns entries fitting no frame and never will."""
        if not entries:
            return [], []
        if abs(now - self._last_now) > CLOCK_STEP_S:  # a key's age means nothing now
            self._data_keys.end_all_keys()
        self._last_now = now
        unsealable: list[int] = []
        for entry in entries:
            try:
                header, pieces = self._seal_one(entry, now)
                signed = signed_frame(self._identity, header, entry.topic)
            except KeysError:
                # Kept, it would stop the outbox now and after every restart.
                unsealable.append(entry.sequence)
                continue
            entry.signed = ((PROPERTY_HEADER, to_property(signed)),)
            if entry.shown is not None:
                entry.signed += ((PROPERTY_SHOWN, to_property(entry.shown)),)
            entry.header, entry.pieces = header, pieces
            if header.qos == 2:
                self.sealed_before.note_sealed(entry.sequence)
            entry.wire = entry.with_pieces((0,) if header.mode in (Mode.COPIES, Mode.PLAIN) else ())
        counts = Count("sealed", len(entries) - len(unsealable)), Count("unsealable", len(unsealable))
        return unsealable, [count for count in counts if count.amount]

    def _later(self, before_ms: int, now_ms: int) -> int:
        """Returns the time at which an entry sealed at `before_ms` is sealed anew.

        The later sealing wins: an earlier one is a repetition to replicas. So a clock that was set back a little does
        not
        count, unless it crossed the border of an epoch.
        """
        later_ms, calendar = before_ms + 1, self._overlay.policy.calendar
        if not now_ms < later_ms <= now_ms + CLOCK_STEP_S * 1000:  # the usual case
            return now_ms
        return later_ms if calendar.epoch_at(later_ms / 1000) == calendar.epoch_at(now_ms / 1000) else now_ms

    def _seal_one(self, entry: Entry, now: float) -> tuple[MessageHeader, tuple[bytes, ...]]:
        publication, scope = entry.publication, entry.secret.scope
        inner = clear_of(publication, entry.sequence)
        entry.topic = self.wire_topic_of(entry.secret, publication)  # our certificate may be another one
        entry.name, entry.hops = self._names[scope.filter], self._hops[scope.filter]
        assert entry.name is not None
        entry.tree, entry.protection = self._data_keys.tree, self._protections[scope.filter]
        home = self._overlay.views[self._overlay.certificate(self._name).region].members
        wanted = scope.mode
        if wanted is not Mode.PLAIN and not self._overlay.hosted.isdisjoint(home):
            wanted = Mode.COPIES  # stock brokers put nothing together and are asked for nothing
        entry.shown = shown_of(publication, inner, entry.sequence, entry.secret)
        if self.padding and wanted is not Mode.PLAIN:
            inner = fill(inner, self.padding)
        mode = content.chosen(wanted, len(inner) + TAG_BYTES, publication.retain)
        key = None if mode is Mode.PLAIN else self._data_keys.live_key(scope, entry.name, entry.sequence, now)
        deadline_s = publication.expiry_s
        entry.sealed_ms = self._later(entry.sealed_ms, int(now * 1000))
        header = MessageHeader(
            publisher=self._identity.party_id,
            key_id=key.header.key_id if key else NO_KEY,
            sequence=entry.sequence,
            previous=0 if entry.is_snapshot else entry.previous,
            time_ms=entry.sealed_ms,
            deadline_ms=publication.time_ms + deadline_s * 1000 if deadline_s is not None else 0,
            qos=publication.qos,
            retain=publication.retain,
            tombstone=publication.retain and not publication.payload,
            mode=mode,
            digests=(),
            attributes=b"" if entry.shown is None else content_digest(entry.shown),
            generation=self._life.generation,
            counter=key.header.order.counter if key else 0,
            snapshot=entry.is_snapshot,
            tree=entry.tree % NUMBERS,
        )
        sealed = inner if key is None else key.seal(header.prefix(), entry.sequence, entry.topic, inner)
        entry.key = key
        pieces = content.cut(sealed, mode, len(home))
        return replace(header, digests=tuple(map(content_digest, pieces))), pieces


def shown_of(publication: Publication, clear: bytes, sequence: int, secret: ScopeSecret) -> bytes | None:
    """Returns the attributes that replicas see; None if there are none, and it goes to everybody, as if retained."""
    if not secret.scope.shown or publication.retain:
        return None
    records: list[Attributes] = []
    for record in unpacked(clear, sequence):
        if isinstance(record, KeysError):
            return None
        records.append(Attributes(record.publication.properties, record.publication.payload))
    return shown_list(secret, records)


def clear_of(publication: Publication, number: int) -> bytes:
    """Returns the content to seal, a batch of one or more. Raises `OurFault` for a publication fitting no record."""
    if publication.records:
        return publication.payload
    if not size_of(publication):
        raise OurFault("a publication that fits no record")
    return packed(publication.topic, [Numbered(number, publication)]).payload
