"""The subscriber side at a gateway: pieces from every replica of the home region in, publications in order out.

A publication goes through three gates: it is *admitted* and its data key *opened* (`intake`, which ingest jobs share),
and it is *in order*: its predecessor in the scope was delivered, or has been given up. State is kept per (author,
scope), see `streams`, `lineages`. What must survive a restart is told as rows (`kept`). Not here: a key repository.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from bridge.contract import Blame, Count, Effect, FairTable, Received
from bridge.document import Overlay, ScopeSecret, batch_topic
from bridge.reader.awaiting_keys import Keyless
from bridge.reader.freshness import Away
from bridge.reader.intake import Intake, misfit
from bridge.reader.kept import (
    ALIVE,
    KEY,
    RETAINED,
    SCOPE,
    STREAM,
    WAITING,
    KeptReader,
    Name,
    Rows,
    of_kind,
    stream_of,
    wire_of,
)
from bridge.reader.newest_retained import Joining, Rank
from bridge.reader.opening import OpeningKeys
from bridge.reader.replays import NOT_TAKEN, is_dated
from bridge.reader.room import HeldRoom
from bridge.reader.skipped import Skipped
from bridge.reader.streams import Held, Stream, StreamId, name_of
from bridge.reader.unpacking import Unpacked
from bridge.wire import PROPERTY_PART, Admitted, read_skip, refused
from keys.envelope import DataKey, Mode
from keys.epochs import ScopeKeys
from keys.errors import BadContent, KeysError

STREAMS_MAX = 100_000  # (publisher, scope) pairs, and retained topics that wait; a flooder forgets its own first
REPAIR_S = 10.0
SWEEP_S = 1.0  # after so long it is looked whether what was kept because it waited still does


class Collector:
    """One gateway's subscriptions to the overlay."""

    def __init__(self, overlay: Overlay, name: str, secrets: Sequence[ScopeSecret], keys: ScopeKeys) -> None:
        self._name = name
        self._secrets = {secret.scope.filter: secret for secret in secrets}
        self._opening = OpeningKeys(secrets, keys)
        self.kept = KeptReader()
        home = overlay.certificate(name).region
        self._intake: Intake[DataKey] = Intake(overlay, home, self._opening, self.kept)
        self._keys, self._assembling, self._lineages = self._intake.keys, self._intake.assembling, self._intake.lineages
        self._joining = Joining(overlay, self.kept)
        self._streams: FairTable[StreamId, Stream] = FairTable(STREAMS_MAX)
        self._generations: dict[str, int] = {}  # by scope: how often it was subscribed
        self._since: dict[str, float] = {}  # by scope: when it was subscribed last
        self._goes_on: set[str] = set()  # scopes that our former process had subscribed when it ended
        self._away = Away()
        self._sweep_at = 0.0
        self._room = HeldRoom()
        self._waiting: dict[bytes, set[tuple[bytes, str, int]]] = {}  # key id -> what is held and names it
        self._keyless = Keyless()
        self._skipped = Skipped(overlay, name)
        self._deadlines: dict[StreamId, float] = {}
        self._wakeups: list[tuple[float, StreamId]] = []  # a heap; those that `_deadlines` does not confirm are stale

    # --------------------------------------------------------------------------------------------- events

    def resumed(self, wire_filter: str, now: float) -> None:
        """A scope is subscribed (again): what was published meanwhile is not waited for. It goes on where our former
        process, for which replicas kept what came, had it too."""
        if wire_filter in self._goes_on:
            self._goes_on.discard(wire_filter)
            return
        self._generations[wire_filter] = self._generations.get(wire_filter, 0) + 1
        self._since[wire_filter] = now
        self.kept.put(SCOPE + wire_filter.encode(), b"")

    def paused(self, wire_filter: str) -> None:
        """A scope is not subscribed any more."""
        self._goes_on.discard(wire_filter)
        self.kept.drop(SCOPE + wire_filter.encode())

    def restore(self, rows: Rows, now: float) -> list[Effect]:
        """What a former process kept, before anything else happens."""
        effects: list[Effect] = []
        self._goes_on = {key.decode() for key, _ in of_kind(rows, SCOPE)}
        self._lineages.restore(rows)
        for key, row in of_kind(rows, STREAM):
            stream_id, stream = stream_of(key, row)
            self._streams.put(stream_id, stream_id[0], stream)
        for key, row in of_kind(rows, RETAINED):
            self._joining.restore(key.decode(), row)
        for _, row in of_kind(rows, ALIVE):
            self._away = Away(int.from_bytes(row) / 1000, now)
        for key, row in of_kind(rows, KEY):
            try:
                effects += self._keys.restore(row, now)
            except KeysError:  # its epoch, view or author has ended meanwhile
                self.kept.drop(KEY + key)
        for key, row in of_kind(rows, WAITING):
            peer, wire, _ = wire_of(row)
            self.kept.drop(WAITING + key)  # it comes again below, if it still waits
            self._away.let_in = True
            effects += self.received(Received(peer, wire), now) if peer in self._intake.overlay.members else []
            self._away.let_in = False
        return effects

    def changes(self, now: float) -> list[Effect]:
        """What the shell is to keep of what happened since it was asked last."""
        return self.kept.changes(now)

    def received(self, event: Received, now: float) -> list[Effect]:
        """A wire from a replica of the home region."""
        effects: list[Effect] = []
        try:
            properties = dict(event.wire.properties)
            news, opened = self._intake.keys_of(event.peer, properties, now)
            effects += news
            if opened is not None:
                effects += self._wake(opened, now)
            told = self._intake.told(properties, event.wire.topic)
            if told and self._intake.is_replayed(told, event.wire.topic, self._streams.get, now, self._away):
                effects.append(Count("replays_dropped"))
            elif told is not None:
                admitted = self._intake.admission.publication(told, event.wire.topic, now)
                pieces = self._intake.pieces(admitted, event.wire.payload, properties.get(PROPERTY_PART))
                low = read_skip(properties, admitted.header)
                if low is not None:
                    self._skipped.heard(name_of(event.wire.topic, admitted), event.peer, low)
                news = self._publication(event, admitted, pieces, now)
                effects += news if low is None else news + self._bridged(name_of(event.wire.topic, admitted), now)
                if not any(each in NOT_TAKEN for each in news):
                    self._keep_waiting(event, admitted, now)
        except KeysError as error:
            # What the wire brought before its fault (a verified key may have opened something) stays valid.
            effects += refused(event.peer, error)
        return effects

    def _bridged(self, name: Name, now: float) -> list[Effect]:
        """Another replica said that something was left out before a publication: it may wait for that."""
        for stream_id in self._lineages.streams_of(name):
            stream = self._streams.get(stream_id)
            if stream is not None and name[2] in stream.held:
                return self._advance(stream_id, now)
        if not self._waits(name):
            self._skipped.done(name)
        return []

    def _keep_waiting(self, event: Received, admitted: Admitted, now: float) -> None:
        name = name_of(event.wire.topic, admitted)
        if self._waits(name):
            self.kept.waits(name, event.peer, event.wire, now)
            self._sweep_at = self._sweep_at or now + SWEEP_S

    def _waits(self, name: Name) -> bool:
        publisher, topic, sequence = name
        streams = [self._streams.get(stream_id) for stream_id in self._lineages.streams_of(name)]
        return (
            any(stream is not None and sequence in stream.held for stream in streams)
            or self._keyless.holds(name)
            or self._joining.holds(topic, publisher, sequence)
            or self._assembling.holds_any((publisher, sequence))
        )

    def keys_changed(self, now: float) -> list[Effect]:
        """Epoch keys came: what waited for them goes on."""
        effects, opened = self._keys.keys_changed(now)
        return effects + [effect for key_id in opened for effect in self._wake(key_id, now)]

    def adopt(self, overlay: Overlay, secrets: Sequence[ScopeSecret], now: float) -> list[Effect]:
        """Another version of the overlay, or other views of it, of the same regions."""
        self._skipped.adopt(overlay)
        self._secrets = {secret.scope.filter: secret for secret in secrets}
        self._opening.adopt(secrets)
        self._joining.adopt(overlay)
        effects, opened = self._intake.adopt(overlay, now)
        return effects + [effect for key_id in opened for effect in self._wake(key_id, now)]

    def tick(self, now: float) -> list[Effect]:
        """Give up on what waited too long, search and audit keys, take up what is retained."""
        effects, opened = self._intake.tick(now)
        for key_id in opened:
            effects += self._wake(key_id, now)
        for held in self._joining.due(now):
            effects += self._hold(held, now)
        while self._wakeups and not 0 < self._wakeups[0][0] - now <= REPAIR_S:  # due, or the clock was set back
            at, stream_id = heapq.heappop(self._wakeups)
            effects += self._advance(stream_id, now) if self._deadlines.get(stream_id) == at else []
        if self._sweep_at and self._sweep_at <= now:
            for name in [name for name in self.kept.waiting if not self._waits(name)]:
                self.kept.done(name)
            self._sweep_at = now + SWEEP_S if self.kept.waiting else 0.0
        return effects

    @property
    def next_deadline(self) -> float | None:
        while self._wakeups and self._deadlines.get(self._wakeups[0][1]) != self._wakeups[0][0]:
            heapq.heappop(self._wakeups)
        first = self._wakeups[0][0] if self._wakeups else None
        deadlines = (first, self._intake.next_deadline, self._joining.next_deadline, self._sweep_at or None)
        return min((at for at in deadlines if at is not None), default=None)

    # --------------------------------------------------------------------------------------- publications

    def _publication(
        self, event: Received, admitted: Admitted, pieces: Mapping[int, bytes] | None, now: float
    ) -> list[Effect]:
        header = admitted.header
        if pieces is None:
            return misfit(event.peer)
        if admitted.publisher.name == self._name:
            return []
        is_over = 0 < header.deadline_ms < now * 1000
        if not self._away.let_in and not self._intake.vouched(event.peer, admitted, event.wire.topic):
            return [Count("vouchers_awaited")]
        author = self._lineages.author(header.publisher, header.sequence)
        stream = self._streams.get((author, batch_topic(admitted.scope.number))) or Stream()
        waiting = stream.held.get(header.sequence)
        if stream.delivered(header.sequence) or (waiting is not None and not waiting.gains(admitted)):
            return [Count("duplicates_dropped")]
        new = header.snapshot or not stream.knows(header.sequence, self._generations.get(admitted.scope.filter, 0))
        if new and (is_over or is_dated(header, now, self._away)):
            return [Count("expired" if is_over else "replays_dropped")]
        repaired = [Count("repairs")] if self._assembling.asked_for((header.publisher, header.sequence)) else []
        try:
            content = b"" if is_over else self._intake.content(event.peer, admitted, pieces, now)
        except BadContent as error:
            return [Count("unopened"), Blame(admitted.publisher.name, False, str(error))]
        held = Held(admitted, content, event.wire.topic, now, author, is_over=is_over)
        if content is None:
            # Those behind it wait, too; not for what may be an old header that is replayed.
            young = abs(now * 1000 - header.time_ms) < REPAIR_S * 1000 or self._away.let_in
            return self._hold(held, now) if waiting is None and young and header.sequence > stream.highest else []
        if waiting is not None and waiting.content is None and waiting.admitted.header == header:
            self._room.remove(header.publisher, waiting.size)
            waiting.content, waiting.is_over = content, is_over
            self._room.add(header.publisher, waiting.size)
            return [*repaired, *self._advance(held.stream_id, now)]
        # The signed flag counts, not that of the packet, which any broker may set.
        late = self._away.covers(header.time_ms, now)  # and no newer one makes up for it: it was published for us, too
        if header.snapshot or (new and header.retain and not late and self._joining.may_be_old(held)):
            held.replayed = True
            return [*repaired, *([] if self._joining.offer(held) else [Count("replays_dropped")])]
        # What came before it on other topics is nowhere any more, and not missed before what follows it.
        held.replayed = header.retain and header.time_ms / 1000 < self._since.get(admitted.scope.filter, 0.0)
        return [*repaired, *self._hold(held, now)]

    def _hold(self, held: Held, now: float) -> list[Effect]:
        """Put a publication into its stream unless it was there before, and see what can go on."""
        effects = self._enter(held)
        return effects or self._advance(held.stream_id, now)

    def _enter(self, held: Held, bounded: bool = True) -> list[Effect]:
        """Put a publication into its stream. Returns what is counted if it does not go there."""
        header, stream_id = held.admitted.header, held.stream_id
        stream = self._stream(stream_id)
        if stream.delivered(header.sequence):
            return [Count("duplicates_dropped")]
        before = stream.held.get(header.sequence)
        if before is not None:
            if header.order <= before.admitted.header.order:
                return [Count("duplicates_dropped")]
            # Sealed anew by a gateway that was killed: the key of the first sealing may never come.
            self._drop(stream, header.sequence)
        if bounded and not self._room.has_for(header.publisher, held.size):
            return [Count("held_overflow"), *(self._set_aside(held) if self._lacks_key(held) else [])]
        stream.held[header.sequence] = held
        self._room.add(header.publisher, held.size)
        if header.mode is not Mode.PLAIN:
            self._waiting.setdefault(header.key_id, set()).add((*stream_id, header.sequence))
        return []

    def _stream(self, stream_id: StreamId) -> Stream:
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._streams.touch(stream_id)
            return stream
        stream = Stream()
        gone = self._streams.put(stream_id, stream_id[0], stream)
        if gone is not None:
            self.kept.stream_gone(gone[0])
            self._deadlines.pop(gone[0], None)
            for sequence in list(gone[1].held):
                self._drop(gone[1], sequence)
        return stream

    def _drop(self, stream: Stream, sequence: int) -> None:
        held = stream.held.pop(sequence)
        header = held.admitted.header
        self._skipped.done(held.name)
        self._room.remove(header.publisher, held.size)
        waiting = self._waiting.get(header.key_id)
        if waiting is not None:
            waiting.discard((*held.stream_id, sequence))
            if not waiting:
                del self._waiting[header.key_id]

    def _wake(self, key_id: bytes, now: float) -> list[Effect]:
        """A key is there: what waited for it goes on."""
        effects: list[Effect] = []
        for held in self._keyless.take(key_id):
            held.arrived = now  # its predecessor's key may be as late
            effects += self._enter(held, bounded=False)  # by far the most go on at once
        streams: Iterable[StreamId] = sorted({(p, topic) for p, topic, _ in self._waiting.get(key_id, ())})
        return effects + [effect for stream_id in streams for effect in self._advance(stream_id, now)]

    def _advance(self, stream_id: StreamId, now: float) -> list[Effect]:
        """Deliver what can be delivered, lowest sequence first; set the deadline of what cannot. What lacks its key
        stops only what follows it in its chain: of QoS 0 the key may be lost with a publisher that is killed."""
        stream = self._streams.get(stream_id)
        effects: list[Effect] = []
        wake_at = None
        keyless: dict[int, float] = {}  # when each is given up
        stop = 0  # the first of them that is not of QoS 0
        while stream is not None and len(stream.held) > len(keyless):
            sequence = min(stream.held.keys() - keyless.keys()) if keyless else min(stream.held)
            held = stream.held[sequence]
            held.arrived = min(held.arrived, now)
            wake_at = held.arrived + REPAIR_S
            if stop and held.may_follow(stop):
                break
            if held.content is None:
                # Nothing that is whole waits for longer than that for what is not.
                whole = (other.arrived + REPAIR_S for other in stream.held.values() if other.content is not None)
                wake_at = min([wake_at, *whole])
                if now < wake_at:
                    break
                self._drop(stream, sequence)
                effects.append(Count("incomplete"))
                continue
            if self._lacks_key(held):
                if now < wake_at:
                    keyless[sequence] = wake_at
                    stop = stop or (sequence if held.admitted.header.qos else 0)
                    continue
                self._drop(stream, sequence)
                effects += [Count("unopened"), *self._set_aside(held)]
                continue
            before = self._stream_before(stream, held)
            bridged = self._is_bridged(before, held)
            if not bridged and before is not None and held.admitted.header.previous > before.highest:
                if now < wake_at:
                    names = self._lineages.before(held)
                    is_news = [self._assembling.miss(name, before.highest, now) for name in names]
                    effects += [Count("reorder_waits")] if any(is_news) else []
                    break
                effects.append(Count("holes"))
            self._drop(stream, sequence)
            self.kept.done(held.name)
            effects += self._deliver(held, stream, bridged)
        else:
            wake_at = None
        wake_at = min((at for at in (wake_at, *keyless.values()) if at is not None), default=None)
        if stream is None or not stream.held:
            self._deadlines.pop(stream_id, None)
        elif wake_at is not None and self._deadlines.get(stream_id) != wake_at:
            self._deadlines[stream_id] = wake_at
            heapq.heappush(self._wakeups, (wake_at, stream_id))
        for after in self._lineages.streams_after(stream_id) if effects else ():
            effects += self._advance(after, now)
        return effects

    def _lacks_key(self, held: Held) -> bool:
        is_sealed = held.admitted.header.mode is not Mode.PLAIN and not held.is_over
        return is_sealed and self._keys.waits_for(held.admitted)

    def _set_aside(self, held: Held) -> list[Effect]:
        return [] if self._keyless.put(held) else [Count("keyless_overflow")]

    def _stream_before(self, stream: Stream, held: Held) -> Stream | None:
        """Where what precedes it is missing, unless it was delivered. None for the first that a subscription brings."""
        generation = self._generations.get(held.admitted.scope.filter, 0)
        return None if held.replayed else self._lineages.stream_before(held, stream, self._streams.get, generation)

    def _is_bridged(self, before: Stream | None, held: Held) -> bool:
        """Whether enough replicas say that what lacks before it was left out, since nobody here wants it."""
        if not self._skipped or before is None or held.admitted.header.previous <= before.highest:
            return False
        if not self._skipped.bridges(held.name, before.highest, held.admitted.scope):
            return False
        for name in self._lineages.before(held):
            self._assembling.forget(name)
        return True

    def _deliver(self, held: Held, stream: Stream, bridged: bool) -> list[Effect]:
        """It has left its stream, in its turn."""
        header = held.admitted.header
        if not held.replayed:
            previous = 0 if bridged else header.previous
            late = stream.deliver(header.sequence, previous, self._generations.get(held.admitted.scope.filter, 0))
            late = late or self._lineages.is_overtaken(held.stream_id, self._streams.get)
            self.kept.stream(held.stream_id, stream)
            return self._open(held, late)
        if not stream.held:
            self._streams.pop(held.stream_id)
        stream = self._stream(held.scope_stream)
        if stream.delivered(header.sequence):
            return [Count("duplicates_dropped")]
        late = header.sequence < stream.highest
        stream.head.mark(header.sequence)  # live, it comes no more; without room for that `_joining` knows it
        self.kept.stream(held.scope_stream, stream)
        return self._open(held, late)

    # -------------------------------------------------------------------------------------------- opening

    def _open(self, held: Held, late: bool) -> list[Effect]:
        """Decrypt and hand out; a publisher's own mistakes are charged to the publisher."""
        admitted = held.admitted
        if held.is_over:
            return [Count("expired")]
        secret = self._secrets.get(admitted.scope.filter)
        try:
            clear = self._clear(held)
            if secret is None:
                raise BadContent("a scope that we do not read any more")
            found = Unpacked(secret, admitted, clear, held.arrived)
            if admitted.header.retain:
                found.check_retained(admitted, held.topic)
        except KeysError as error:
            return [Count("unopened"), Blame(admitted.publisher.name, False, str(error))]
        if admitted.header.retain and found.records:
            sent_ms, is_to_come = found.records[0].publication.time_ms, self._joining.is_to_come(held)
            told = Rank.OVERTAKEN if is_to_come else self._joining.opened(held, sent_ms)
            if told is Rank.KNOWN:
                return [Count("duplicates_dropped")]
            if told is Rank.OVERTAKEN and held.replayed and self._joining.may_be_old(held):
                return [Count("replays_dropped")]
            if told is Rank.OVERTAKEN:  # to retain it now would bring back an old value
                found.as_live()
                late = late or self._joining.is_behind(held)
        return found.delivered(admitted.publisher.name, admitted.header.time_ms, late)

    def _clear(self, held: Held) -> bytes:
        """Raises BadContent."""
        header = held.admitted.header
        assert held.content is not None
        if header.mode is Mode.PLAIN:
            return held.content
        key = self._keys.opened(held.admitted)
        if key is None:
            raise BadContent("publication names a key that is not here any more")
        return key.open(header.prefix(), header.sequence, held.topic, held.content)
