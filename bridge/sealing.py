"""The publisher side at a gateway: outbox entries in, sealed publications for every replica of the home region out.

An entry is sealed when it is first sent (PROTOCOL §5), under its scope's current data key; headers are signed
in batches. Each replica has its own window and its own place in the outbox, so that one that is away neither
slows nor evicts what the others need. Not here: the disk (the shell keeps the outbox and says `Committed`),
repair, coded blocks, epochs beyond the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from keys.envelope import (
    NO_KEY,
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    DataKey,
    Inner,
    KeyHeader,
    MessageHeader,
    Mode,
    SignedHeader,
    content_digest,
    leaf,
    make_key,
    sign_batch,
    to_property,
)
from keys.errors import KeysError
from keys.identity import Identity
from keys.sharetree import Share, encode_shares
from keys.topictokens import tokenise_topic

from .machine import Acked, Committed, Count, Effect, Forget, Publication, Send, UserProperties, Wire
from .topics import matches, specificity
from .views import Overlay, Scope

BATCH_MAX = 16  # headers under one signature (PROTOCOL §2)
WINDOW_MAX = 256  # publications in flight to one replica
STRAGGLER_ENTRIES_MAX = 20_000  # what a replica that is away may make us keep once n - f others have it
STRAGGLER_S = 3600.0
QOS0_ENTRIES_MAX = 10_000  # they are in memory only; without an uplink the oldest go first
KEY_MESSAGES_MAX = 64
KEY_BYTES_MAX = 1 << 20
KEY_AGE_S = 60.0
CLOCK_STEP_S = 60.0
ANNOUNCE_EVERY = 16  # messages of one topic after which the key rides along again
ANNOUNCE_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class ScopeSecret:
    """What an authorised party knows of a scope: its clear filter, epoch key and token key.

    `key` is None in a shares-only or plain scope, `token_key` where names are not hidden.
    """

    scope: Scope
    clear_filter: str
    key: bytes | None = field(default=None, repr=False)
    token_key: bytes | None = field(default=None, repr=False)

    def wire_topic(self, topic: str) -> str:
        return tokenise_topic(topic, self.token_key) if self.token_key else topic


@dataclass(slots=True)
class _LiveKey:
    header: KeyHeader
    data_key: DataKey
    shares: Sequence[Share]
    born: float
    header_property: tuple[str, str]
    sealed_messages: int = 0
    sealed_bytes: int = 0
    announced: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)


@dataclass(slots=True)
class _Entry:
    """An outbox entry; `wire` is None until it is sealed."""

    sequence: int
    publication: Publication
    secret: ScopeSecret
    previous: int
    born: float
    wire: Wire | None = None
    key: _LiveKey | None = None
    acked: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Lane:
    """One replica's way through the outbox."""

    waiting: deque[int] = field(default_factory=deque)
    in_flight: set[int] = field(default_factory=set)


class Publisher:
    """Seals and sends what the outbox holds. One a gateway."""

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        random: Callable[[int], bytes],
    ) -> None:
        self._overlay = overlay
        self._identity = identity
        self._random = random
        self._secrets = sorted(secrets, key=lambda s: specificity(s.clear_filter))
        self._home = overlay.certificate(name).region
        self._view = overlay.views[self._home]
        self._enough = len(self._view.members) - (len(self._view.members) - 1) // 2  # n - f
        self._keys: dict[str, _LiveKey] = {}
        self._entries: dict[int, _Entry] = {}
        self._young: dict[int, None] = {}  # entries whose stragglers' bound is still to come, oldest first
        self._qos0: dict[int, None] = {}
        self._sweep_at = _sweep_at(0)
        self._lanes: dict[str, _Lane] = {}
        self._last_now = 0.0

    def secret_for(self, topic: str) -> ScopeSecret | None:
        """The most specific scope that takes a clear topic across the overlay; None: it stays local."""
        return next((s for s in self._secrets if matches(s.clear_filter, topic)), None)

    @property
    def depth(self) -> int:
        """Entries that some replica still lacks (figure `outbox_depth`)."""
        return len(self._entries)

    # --------------------------------------------------------------------------------------------- events

    def committed(self, event: Committed, now: float) -> list[Effect]:
        """Take entries that are on disk, in order of sequence."""
        refused: list[int] = []
        for sequence, previous, publication in event.entries:
            if sequence in self._entries:
                continue
            secret = self.secret_for(publication.topic)
            if secret is None:  # the configuration changed while the entry lay on disk
                refused.append(sequence)
                continue
            self._entries[sequence] = _Entry(sequence, publication, secret, previous, now)
            self._young[sequence] = None
            if publication.qos == 0:
                self._qos0[sequence] = None
            for lane in self._lanes.values():
                lane.waiting.append(sequence)
        effects: list[Effect] = [Forget(tuple(refused))] if refused else []
        if len(self._qos0) > QOS0_ENTRIES_MAX:
            excess = list(self._qos0)[: len(self._qos0) - QOS0_ENTRIES_MAX]
            effects += [Count("qos0_dropped", len(excess)), *self._forget(excess)]
        if len(self._entries) >= self._sweep_at:
            effects += self._sweep()
        return effects + self._pump(now)

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """A replica of the home region is reachable: it gets all that it has not acknowledged, in order."""
        lane = _Lane(deque(s for s, entry in self._entries.items() if peer not in entry.acked))
        self._lanes[peer] = lane
        for key in {id(e.key): e.key for e in self._entries.values() if e.key}.values():
            _forget_peer(key, peer)
        for key in self._keys.values():
            _forget_peer(key, peer)
        return self._pump(now)

    def link_down(self, peer: str) -> list[Effect]:
        self._lanes.pop(peer, None)
        return []

    def acked(self, event: Acked, now: float) -> list[Effect]:
        """A replica has it: open its window, and forget what every replica has."""
        lane = self._lanes.get(event.peer)
        if lane is not None:
            lane.in_flight.discard(event.ticket)
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
        return None if first is None else self._entries[first].born + STRAGGLER_S

    def _sweep(self) -> list[Effect]:
        """Too many entries: the oldest go that only stragglers lack, and stragglers' lanes forget what is gone."""
        gone = [s for s, entry in self._entries.items() if len(entry.acked) >= self._enough]
        effects = self._forget(gone[: max(0, len(self._entries) - STRAGGLER_ENTRIES_MAX)])
        for lane in self._lanes.values():
            lane.waiting = deque(sequence for sequence in lane.waiting if sequence in self._entries)
        self._sweep_at = _sweep_at(len(self._entries))
        return effects

    def _forget(self, sequences: Iterable[int]) -> list[Effect]:
        gone = tuple(sequences)
        for sequence in gone:
            del self._entries[sequence]
            self._young.pop(sequence, None)
            self._qos0.pop(sequence, None)
        return [Forget(gone)] if gone else []

    # -------------------------------------------------------------------------------------------- sending

    def _pump(self, now: float) -> list[Effect]:
        """Fill every open window, in order; seal what is sent for the first time, a batch a signature."""
        effects: list[Effect] = []
        sendable: list[tuple[str, int]] = []
        for peer, lane in self._lanes.items():
            while lane.waiting and len(lane.in_flight) < WINDOW_MAX:
                sequence = lane.waiting.popleft()
                if sequence in self._entries:
                    lane.in_flight.add(sequence)
                    sendable.append((peer, sequence))
        unsealed = sorted({s for _, s in sendable if self._entries[s].wire is None})
        for start in range(0, len(unsealed), BATCH_MAX):
            effects += self._seal([self._entries[s] for s in unsealed[start : start + BATCH_MAX]], now)
        for peer, sequence in sendable:
            entry = self._entries.get(sequence)
            if entry is None:  # it could not be sealed
                self._lanes[peer].in_flight.discard(sequence)
            else:
                effects.append(self._send(peer, entry, now))
        return effects

    def _send(self, peer: str, entry: _Entry, now: float) -> Send:
        wire, key = entry.wire, entry.key
        assert wire is not None
        if key is not None and (wire.retain or _announcement_due(key, peer, wire.topic, now)):
            place = self._view.place_of(peer)
            shares = [share for share in key.shares if share.label[0].place == place]
            carried = (key.header_property, (PROPERTY_SHARES, to_property(encode_shares(shares))))
            wire = Wire(wire.topic, wire.payload, wire.qos, wire.retain, wire.properties + carried)
        return Send(peer, wire, entry.sequence)

    def _seal(self, entries: Sequence[_Entry], now: float) -> list[Effect]:
        stepped = abs(now - self._last_now) > CLOCK_STEP_S and self._last_now > 0
        self._last_now = now
        if stepped:  # a key's age means nothing now
            self._keys.clear()
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
        publication, secret = entry.publication, entry.secret
        topic = secret.wire_topic(publication.topic)
        inner = inner_of(publication).encode()
        plain = secret.scope.mode is Mode.PLAIN
        key = None if plain else self._key(secret, entry.sequence, now)
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
            mode=secret.scope.mode,
            digests=(),
        )
        content = inner
        if key is not None:
            content = key.data_key.seal(header.prefix(), entry.sequence, topic, inner)
            key.sealed_messages += 1
            key.sealed_bytes += len(content)
        entry.key = key
        return replace(header, digests=(content_digest(content),)), topic, content

    def _key(self, secret: ScopeSecret, sequence: int, now: float) -> _LiveKey:
        """The scope's data key, renewed by count, bytes and age (A9)."""
        key = self._keys.get(secret.scope.filter)
        if (
            key is None
            or key.sealed_messages >= KEY_MESSAGES_MAX
            or key.sealed_bytes >= KEY_BYTES_MAX
            or now - key.born >= KEY_AGE_S
        ):
            header, data_key, shares = make_key(
                self._identity,
                secret.scope.filter,
                0,
                self._overlay.key_hops(secret.scope, self._home),
                sequence,
                KEY_MESSAGES_MAX,
                None if secret.scope.shares_only else secret.key,
                self._random,
            )
            carried = (PROPERTY_KEY, to_property(header.encode()))
            key = self._keys[secret.scope.filter] = _LiveKey(header, data_key, shares, now, carried)
        return key


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


def _announcement_due(key: _LiveKey, peer: str, topic: str, now: float) -> bool:
    """First message of the key on each topic, then every 16th or after 5 s on it (PROTOCOL §2)."""
    count, at = key.announced.get((peer, topic), (ANNOUNCE_EVERY, 0.0))
    due = count + 1 >= ANNOUNCE_EVERY or now - at >= ANNOUNCE_AFTER_S
    key.announced[peer, topic] = (0, now) if due else (count + 1, at)
    return due


def _forget_peer(key: _LiveKey, peer: str) -> None:
    for known in [k for k in key.announced if k[0] == peer]:
        del key.announced[known]
