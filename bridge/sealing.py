"""The publisher side at a gateway: outbox entries in, sealed publications for every replica of the home region out.

An entry is sealed when it is first sent (PROTOCOL §5), under its scope's current data key; headers are signed
in batches. Each replica has its own window and its own place in the outbox, so that one that is away neither
slows nor evicts what the others need. Whenever a scope seals under another epoch key (a new epoch, a bump), what some
replica still lacks is sealed anew under the same sequence. A scope that has no key, or whose right we lost, waits
without holding up the others. Not here: the disk (the shell keeps the outbox and says `Committed`), data keys
(`datakeys`), repair, coded blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from keys.envelope import (
    NO_KEY,
    PROPERTY_HEADER,
    Inner,
    KeyName,
    MessageHeader,
    Mode,
    SignedHeader,
    content_digest,
    leaf,
    sign_batch,
    to_property,
)
from keys.epochs import ScopeKeys
from keys.errors import KeysError
from keys.identity import Identity
from keys.topictokens import tokenise_topic

from .datakeys import DataKeys, LiveKey
from .lanes import Lanes
from .machine import Acked, Committed, Count, Effect, Forget, Publication, Send, UserProperties, Wire
from .ownretained import OwnRetained
from .policy import Scope
from .topics import matches, specificity
from .views import Overlay

BATCH_MAX = 16  # headers under one signature (PROTOCOL §2)
STRAGGLER_ENTRIES_MAX = 20_000  # what a replica that is away may make us keep once n - f others have it
STRAGGLER_S = 3600.0
QOS0_ENTRIES_MAX = 10_000  # they are in memory only; without an uplink the oldest go first
UNAUTHORISED_S = 24 * 3600.0  # an entry that we may not publish (any more) waits for the right for so long
RIGHTS_MAX = 65_536  # topics whose right is remembered between two reviews
CLOCK_STEP_S = 60.0


@dataclass(frozen=True, slots=True)
class ScopeSecret:
    """What an authorised party knows of a scope beside its epoch keys: its clear filter, and the token key where names
    are hidden."""

    scope: Scope
    clear_filter: str
    token_key: bytes | None = field(default=None, repr=False)

    def wire_topic(self, topic: str) -> str:
        return tokenise_topic(topic, self.token_key) if self.token_key else topic


@dataclass(slots=True)
class _Entry:
    """An outbox entry; `wire` is None until it is sealed, under `name`."""

    sequence: int
    publication: Publication
    secret: ScopeSecret
    topic: str
    previous: int
    born: float
    wire: Wire | None = None
    name: KeyName | None = None
    key: LiveKey | None = None
    acked: set[str] = field(default_factory=set)


class Publisher:
    """Seals and sends what the outbox holds. One a gateway."""

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        random: Callable[[int], bytes],
    ) -> None:
        self._overlay = overlay
        self._identity = identity
        self._name = name
        self._home = overlay.certificate(name).region
        self._view = overlay.views[self._home]
        self._enough = len(self._view.members) - (len(self._view.members) - 1) // 2  # n - f
        self._data_keys = DataKeys(overlay, identity, self._home, keys, random)
        self._set_secrets(secrets)
        self._retained = OwnRetained()
        self._entries: dict[int, _Entry] = {}
        self._young: dict[int, None] = {}  # entries whose stragglers' bound is still to come, oldest first
        self._qos0: dict[int, None] = {}
        self._sweep_at = _sweep_at(0)
        self._lanes = Lanes()
        self._last_now = 0.0
        # What each scope seals under, by wire filter, as of the last review; None asks for a review.
        self._names: dict[str, KeyName | None] = {}
        self._last_names: dict[str, KeyName] = {}  # the same without gaps, to tell when what is retained must follow
        self._review_at: float | None = None
        self._rights: dict[str, bool] = {}  # by wire topic, in the epoch of the last review
        self._waiting: dict[int, bool] = {}  # entries that cannot be sealed now -> whether for want of the right

    # ------------------------------------------------------------------------------------------ questions

    def secret_for(self, topic: str) -> ScopeSecret | None:
        """The most specific scope that takes a clear topic across the overlay; None: it stays local."""
        return next((s for s in self._secrets if matches(s.clear_filter, topic)), None)

    def may_publish(self, topic: str, now: float) -> bool:
        """Whether a clear topic that a scope takes may be published now. If not, its publications are refused: a
        protected topic neither stays local nor goes out in clear."""
        secret = self.secret_for(topic)
        return secret is not None and self._authorised(secret, secret.wire_topic(topic), now)

    @property
    def depth(self) -> int:
        """Entries that some replica still lacks (figure `outbox_depth`)."""
        return len(self._entries)

    # --------------------------------------------------------------------------------------------- events

    def committed(self, event: Committed, now: float) -> list[Effect]:
        """Take entries that are on disk, in order of sequence."""
        refused: list[int] = []
        effects: list[Effect] = []
        for sequence, previous, publication in event.entries:
            if sequence in self._entries:
                continue
            secret = self.secret_for(publication.topic)
            if secret is None:  # the configuration changed while the entry lay on disk
                refused.append(sequence)
                continue
            topic = secret.wire_topic(publication.topic)
            self._entries[sequence] = _Entry(sequence, publication, secret, topic, previous, now)
            if publication.retain:
                effects += self._retained.published(sequence, secret.scope.filter, publication)
            self._young[sequence] = None
            if publication.qos == 0:
                self._qos0[sequence] = None
            self._lanes.append(sequence)
        effects += [Forget(tuple(refused))] if refused else []
        if len(self._qos0) > QOS0_ENTRIES_MAX:
            excess = list(self._qos0)[: len(self._qos0) - QOS0_ENTRIES_MAX]
            effects += [Count("qos0_dropped", len(excess)), *self._forget(excess)]
        if len(self._entries) >= self._sweep_at:
            effects += self._sweep()
        return effects + self._pump(now)

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """A replica of the home region is reachable: it gets all that it has not acknowledged, in order."""
        self._lanes.up(peer, (s for s, entry in self._entries.items() if peer not in entry.acked))
        for key in {id(e.key): e.key for e in self._entries.values() if e.key}.values():
            key.forget_peer(peer)
        self._data_keys.forget_peer(peer)
        self._review_at = None  # what it lacks may be sealed under what has ended
        return self._pump(now)

    def link_down(self, peer: str) -> list[Effect]:
        self._lanes.down(peer)
        return []

    def acked(self, event: Acked, now: float) -> list[Effect]:
        """A replica has it: open its window, and forget what every replica has."""
        if not self._lanes.acknowledged(event.peer, event.ticket):
            return self._pump(now)
        entry = self._entries.get(event.ticket)
        effects: list[Effect] = []
        if entry is not None:
            entry.acked.add(event.peer)
            overdue = entry.publication.qos == 0 or now - entry.born >= STRAGGLER_S
            if len(entry.acked) >= (self._enough if overdue else len(self._view.members)):
                effects += self._forget([event.ticket])
        return effects + self._pump(now)

    def tick(self, now: float) -> list[Effect]:
        """Drop what only stragglers lack once their bound is passed. What too few have stays, and goes when
        enough of them acknowledge it."""
        gone = []
        while self._young and now - self._entries[next(iter(self._young))].born >= STRAGGLER_S:
            sequence = next(iter(self._young))
            del self._young[sequence]
            if len(self._entries[sequence].acked) >= self._enough:
                gone.append(sequence)
        return self._forget(gone) + self._pump(now)

    @property
    def next_deadline(self) -> float | None:
        first = next(iter(self._young), None)
        straggler = None if first is None else self._entries[first].born + STRAGGLER_S
        review = None if self._review_at == float("inf") else self._review_at
        return min((at for at in (straggler, review) if at is not None), default=None)

    def keys_changed(self, now: float) -> list[Effect]:
        """Epoch keys came, or one that was wrong was replaced: what waited goes on."""
        self._data_keys.clear()
        self._review_at = None
        return self._pump(now)

    def overtaken(self, topic: str, time_ms: int) -> None:
        """Somebody else published on a clear topic, retained, at `time_ms`: an older one of ours is not sealed anew."""
        self._retained.overtaken(topic, time_ms)

    def adopt(self, overlay: Overlay, secrets: Sequence[ScopeSecret], now: float) -> list[Effect]:
        """Another version of the overlay, of the same regions and views: what is not sent yet follows it."""
        self._overlay = overlay
        self._data_keys.adopt(overlay)
        self._set_secrets(secrets)
        for entry in self._entries.values():
            secret = self.secret_for(entry.publication.topic)
            # What was protected does not go in clear, whatever the owner says now. It waits, as without any scope,
            # under what it was committed for.
            if secret is not None and (secret.scope.mode is not Mode.PLAIN or entry.secret.scope.mode is Mode.PLAIN):
                entry.secret, entry.topic = secret, secret.wire_topic(entry.publication.topic)
        self._review_at = None
        return self._pump(now)

    def rotate(self, identity: Identity) -> None:
        """Sign with another key of ours from now on. What is sealed stays: its certificate counts to its end."""
        self._identity = identity
        self._data_keys.rotate(identity)

    def _sweep(self) -> list[Effect]:
        """Too many entries: the oldest go that only stragglers lack, and stragglers' lanes forget what is gone."""
        gone = [s for s, entry in self._entries.items() if len(entry.acked) >= self._enough]
        effects = self._forget(gone[: max(0, len(self._entries) - STRAGGLER_ENTRIES_MAX)])
        self._lanes.keep(self._entries.__contains__)
        self._sweep_at = _sweep_at(len(self._entries))
        return effects

    def _forget(self, sequences: Iterable[int]) -> list[Effect]:
        gone = tuple(sequences)
        for sequence in gone:
            del self._entries[sequence]
            self._young.pop(sequence, None)
            self._qos0.pop(sequence, None)
            self._waiting.pop(sequence, None)
        return [Forget(gone)] if gone else []

    # -------------------------------------------------------------------------------- epochs, keys, rights

    def _set_secrets(self, secrets: Sequence[ScopeSecret]) -> None:
        usable = [secret for secret in secrets if not secret.scope.retiring]
        self._secrets = sorted(usable, key=lambda s: specificity(s.clear_filter))

    def _authorised(self, secret: ScopeSecret, wire_topic: str, now: float) -> bool:
        """Whether the policy lets us publish in the present epoch."""
        scope = self._overlay.scope_named(secret.scope.filter)
        if scope is None or scope.retiring or (scope.mode is Mode.PLAIN and secret.scope.mode is not Mode.PLAIN):
            return False
        return self._overlay.may_publish(self._name, wire_topic, self._overlay.policy.calendar.at(now))

    def _review(self, now: float) -> list[Effect]:
        """What each scope seals under from now on, and what that means for what is sealed, waits or is retained."""
        calendar = self._overlay.policy.calendar
        present = calendar.at(now)
        scopes = {e.secret.scope.filter: e.secret.scope for e in self._entries.values()}
        scopes |= {secret.scope.filter: secret.scope for secret in self._secrets}
        self._names = {wire_filter: self._data_keys.name(scope, now) for wire_filter, scope in scopes.items()}
        self._rights.clear()
        grace = calendar.start_s(present) + calendar.grace_s if calendar.length_s else 0.0
        self._review_at = grace if grace > now else calendar.end_s(present)
        again = []
        for sequence, entry in self._entries.items():
            if entry.wire is None or entry.name == self._names[entry.secret.scope.filter]:
                continue
            if any(peer not in entry.acked for peer, _ in self._lanes):
                again.append(sequence)
        for sequence in again:
            entry = self._entries[sequence]
            self._lanes.outdate(sequence)
            entry.wire = entry.name = entry.key = None
            entry.acked.clear()
        self._lanes.requeue([*again, *self._waiting], lambda peer, s: peer not in self._entries[s].acked)
        effects = self._give_up(now)
        unsealed = {sequence for sequence, entry in self._entries.items() if entry.wire is None}
        names = {f: name for f, name in self._names.items() if name}
        changed = {f for f, name in names.items() if self._last_names.get(f, name) != name}
        self._last_names |= names
        return effects + self._retained.due(changed, unsealed, now)

    def _give_up(self, now: float) -> list[Effect]:
        """Entries that waited too long for a right to publish them."""
        old = [s for s, unauthorised in self._waiting.items() if unauthorised]
        gone = [s for s in old if now - self._entries[s].born >= UNAUTHORISED_S]
        rest = [self._entries[s].born + UNAUTHORISED_S for s in old if now - self._entries[s].born < UNAUTHORISED_S]
        assert self._review_at is not None
        self._review_at = min([self._review_at, *rest])
        return [Count("not_authorised_dropped", len(gone)), *self._forget(gone)] if gone else []

    def _hindrance(self, entry: _Entry, now: float) -> str | None:
        """Why an entry cannot be sealed now: a figure's name; None if it can."""
        allowed = self._rights.get(entry.topic)
        if allowed is None:
            if len(self._rights) >= RIGHTS_MAX:
                self._rights.clear()
            allowed = self._rights[entry.topic] = self._authorised(entry.secret, entry.topic, now)
        if not allowed:
            return "not_authorised"
        return "key_waits" if self._names.get(entry.secret.scope.filter) is None else None

    def _set_aside(self, sequences: Sequence[int], now: float) -> tuple[list[int], list[Effect]]:
        """Entries that can be sealed now; the others wait for a review, counted once."""
        ready, effects = [], list[Effect]()
        for sequence in sequences:
            entry = self._entries[sequence]
            why = self._hindrance(entry, now)
            if why is None:
                self._waiting.pop(sequence, None)
                ready.append(sequence)
                continue
            unauthorised = why == "not_authorised"
            if self._waiting.get(sequence) is not unauthorised:
                effects.append(Count(why))
            self._waiting[sequence] = unauthorised
            if unauthorised and self._review_at is not None:
                self._review_at = min(self._review_at, entry.born + UNAUTHORISED_S)
        return ready, effects

    # -------------------------------------------------------------------------------------------- sending

    def _pump(self, now: float) -> list[Effect]:
        """Fill every open window, in order; seal what is sent for the first time, a batch a signature."""
        effects: list[Effect] = []
        if now < self._last_now - CLOCK_STEP_S:  # it was set back: the epoch is another one
            self._data_keys.clear()
            self._last_now, self._review_at = now, None
        if self._review_at is None or now >= self._review_at:
            effects += self._review(now)
        sendable: list[tuple[str, int]] = []
        lanes = deque(named for named in self._lanes if named[1].waiting)  # none, after most acknowledgements
        while lanes:
            peer, lane = lanes.popleft()
            taken = lane.take()
            if not taken:
                continue
            sealed, waits = self._sealed(taken, now)
            effects += waits
            lane.in_flight.difference_update(set(taken) - sealed)
            sendable += [(peer, sequence) for sequence in taken if sequence in sealed]
            if len(sealed) < len(taken):  # the window has room again, for what is behind those that wait
                lanes.append((peer, lane))
        effects += [self._send(peer, self._entries[sequence], now) for peer, sequence in sendable]
        return effects

    def _sealed(self, sequences: Sequence[int], now: float) -> tuple[set[int], list[Effect]]:
        """Which of these entries are sealed, after trying."""
        there = [self._entries[s] for s in sequences if s in self._entries]
        unsealed, effects = self._set_aside([entry.sequence for entry in there if entry.wire is None], now)
        for start in range(0, len(unsealed), BATCH_MAX):
            effects += self._seal([self._entries[s] for s in unsealed[start : start + BATCH_MAX]], now)
        return {entry.sequence for entry in there if entry.wire is not None}, effects

    def _send(self, peer: str, entry: _Entry, now: float) -> Send:
        wire, key = entry.wire, entry.key
        assert wire is not None
        if key is not None and (wire.retain or key.announcement_due(peer, wire.topic, now)):
            carried = key.carried(self._view.place_of(peer))
            wire = Wire(wire.topic, wire.payload, wire.qos, wire.retain, wire.properties + carried)
        return Send(peer, wire, entry.sequence)

    def _seal(self, entries: Sequence[_Entry], now: float) -> list[Effect]:
        stepped = abs(now - self._last_now) > CLOCK_STEP_S and self._last_now > 0
        self._last_now = now
        if stepped:  # a key's age means nothing now
            self._data_keys.clear()
        ready: list[tuple[_Entry, MessageHeader, str, bytes]] = []
        leaves: list[bytes] = []
        unsealable: list[int] = []
        for entry in entries:
            try:
                header, topic, content = self._seal_one(entry, now)
                leaves.append(leaf(header.encode(), topic))
                ready.append((entry, header, topic, content))
            except KeysError:
                # It fits no frame and never will: kept, it would stop the outbox now and after every restart.
                unsealable.append(entry.sequence)
        effects: list[Effect] = self._forget(unsealable)
        if unsealable:
            effects.append(Count("unsealable", len(unsealable)))
        if not ready:
            return effects
        proofs = sign_batch(self._identity, leaves)
        for (entry, header, topic, content), proof in zip(ready, proofs, strict=True):
            signed = to_property(SignedHeader(header, proof).encode())
            properties: UserProperties = ((PROPERTY_HEADER, signed),)
            entry.wire = Wire(topic, content, 1, entry.publication.retain, properties)
        return [*effects, Count("sealed", len(ready))]

    def _seal_one(self, entry: _Entry, now: float) -> tuple[MessageHeader, str, bytes]:
        publication, scope = entry.publication, entry.secret.scope
        inner = inner_of(publication).encode()
        entry.name = self._names[scope.filter]
        assert entry.name is not None
        plain = scope.mode is Mode.PLAIN
        key = None if plain else self._data_keys.key(scope, entry.name, entry.sequence, now)
        deadline_s = publication.expiry_s
        header = MessageHeader(
            publisher=self._identity.party_id,
            key_id=key.header.key_id if key else NO_KEY,
            sequence=entry.sequence,
            previous=entry.previous,
            time_ms=int(now * 1000),
            deadline_ms=publication.time_ms + deadline_s * 1000 if deadline_s is not None else 0,
            qos=publication.qos,
            retain=publication.retain,
            tombstone=publication.retain and not publication.payload,
            mode=scope.mode,
            digests=(),
        )
        content = inner if key is None else key.seal(header.prefix(), entry.sequence, entry.topic, inner)
        entry.key = key
        return replace(header, digests=(content_digest(content),)), entry.topic, content


def _sweep_at(left: int) -> int:
    """The number of entries at which the next sweep pays off when `left` remained after the last."""
    return max(left, STRAGGLER_ENTRIES_MAX) + max(1, STRAGGLER_ENTRIES_MAX // 8)


def inner_of(publication: Publication) -> Inner:
    """What is sealed: payload, clear topic, original time and application properties."""
    return Inner(
        topic=publication.topic,
        time_ms=publication.time_ms,
        payload=publication.payload,
        content_type=publication.content_type,
        response_topic=publication.response_topic,
        correlation_data=publication.correlation_data,
        payload_format=publication.payload_format,
        properties=publication.properties,
    )
