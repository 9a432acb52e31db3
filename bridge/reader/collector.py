"""The subscriber side of a gateway: takes pieces from every replica of the home region, delivers publications in
order.

A publication passes three gates: *admitted* and *opened* (`intake`, shared with ingest jobs, checks the header and
opens the data key), and *in order* (its predecessor in the scope was delivered or given up). State is held by author
and scope, see `streams` and `intake`. State that must survive a restart is returned as rows (`kept`). Key
repositories are elsewhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from bridge.contract import COPY, Blame, Count, Effect, FairTable, Received, Withhold, earliest
from bridge.document import Overlay, ScopeSecret, batch_topic
from bridge.reader.assembling import Skipped
from bridge.reader.gaps import GAP_S, Gap, Gaps
from bridge.reader.handing_out import Had, HandingOut
from bridge.reader.intake import NOT_TAKEN, NUMBERS_PER_MS, Intake, misfit
from bridge.reader.interest import Subscriptions
from bridge.reader.kept import (
    KEY,
    RETAINED,
    SCOPE,
    STREAM,
    KeptReader,
    Name,
    Rows,
    kept_wires,
    of_kind,
    stream_key,
    stream_of,
    stream_row,
)
from bridge.reader.key_opening import OpeningKeys
from bridge.reader.newest_retained import Joining
from bridge.reader.overflow import AheadScopes, InHand, Overflow
from bridge.reader.streams import COUNTED, HELD, Held, HeldStage, HeldTurn, Stream, StreamId, name_of, scope_stream
from bridge.reader.waiting import REPAIR_S, Keyless, Waiting
from bridge.wire import AHEAD_S, PROPERTY_PART, Admitted
from keys.envelope import PROPERTY_HEADER, DataKey, Mode, content_digest
from keys.epochs import ScopeKeys
from keys.errors import BadContent, KeysError
from keys.frames import number

STREAMS_MAX = 100_000  # (publisher, scope) pairs, and retained topics that wait; a flooder forgets its own first
SWEEP_S = 1.0  # after so long it is looked whether what was kept because it waited still does

WORDS_AFTER = 16
"""Waiting publications beside which replicas' words on a gap before an earlier one are looked up."""


class Collector:
    """The subscriptions of a gateway to the overlay."""

    def __init__(
        self,
        overlay: Overlay,
        name: str,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        own_too: bool = False,
        region: int | None = None,
    ) -> None:
        """Takes `own_too`: True to deliver also publications of this gateway, which its clients had at once. `region`:
        whose replicas bring everything; None: our own.
        """
        self._name, self._own = name, "" if own_too else name
        self._opening = OpeningKeys(secrets, keys)
        self.kept = KeptReader()
        home = overlay.certificate(name).region if region is None else region
        self._intake: Intake[DataKey] = Intake(overlay, home, self._opening, self.kept)
        self.sealings = self._intake.admission.sealings
        self._keys, self._assembling, self._lineages = self._intake.keys, self._intake.assembling, self._intake.lineages
        self._joining = Joining(overlay, self.kept)
        self._handing_out = HandingOut(secrets, self._keys, self._joining)
        self._streams: FairTable[StreamId, Stream] = FairTable(STREAMS_MAX)
        self.subscriptions = Subscriptions(self.kept)
        self._sweep_at = 0.0
        self._waiting, self._overflow = Waiting(), Overflow(overlay.hosted)
        self._keyless, self._ahead = Keyless(), AheadScopes(self._intake.admission, self.kept)
        self.skipped = Skipped(overlay, name)
        self.gaps = Gaps()

    # --------------------------------------------------------------------------------------------- events

    def restore(self, rows: Rows, now: float) -> list[Effect]:
        """Restores the rows of a former process; called before any other event."""
        effects: list[Effect] = []
        self.subscriptions.restore(rows, now)
        if rows:
            self._intake.admission.began(now)
        self._lineages.restore(rows)
        for key, row in of_kind(rows, STREAM):
            stream_id, stream = stream_of(key, row)
            self._streams.put(stream_id, stream_id[0], stream)
        for key, row in of_kind(rows, RETAINED):
            self._joining.restore(key.decode(), row)
        for key, row in of_kind(rows, KEY):
            try:
                effects += self._keys.restore(row, now)
            except KeysError:  # its epoch, view or author has ended meanwhile
                self.kept.drop_row(KEY + key)
        for key, let_in, peer, wire in kept_wires(rows):
            self.kept.drop_row(key)  # it comes again below, if it still waits
            self.subscriptions.away.let_in = let_in
            effects += self.take_wire(Received(peer, wire, True), now) if peer in self._intake.overlay.members else []
            self.subscriptions.away.let_in = False
        return effects

    def changed_rows(self, now: float) -> list[Effect]:
        """Returns the rows to store since the last call, and the wires to acknowledge after that."""
        if not (self.kept.changed or self.kept.streams or self._overflow.to_take):
            return []  # asked after every event
        return self.kept.changed_rows(now) + self._overflow.taken()

    def take_wire(self, event: Received, now: float) -> list[Effect]:
        """Takes a wire from a replica of the home region."""
        effects: list[Effect] = []
        try:
            properties = dict(event.wire.properties)
            if len(properties) == 1 and self._is_copy(event, properties):
                return [COPY]
            news, opened = self._intake.keys_of(event.peer, properties, now)
            effects += news if opened is None else news + self._wake(opened, now)
            told = self._intake.told_property(properties, event.wire.topic)
            may_be_new = self.subscriptions.may_be_new
            if told and self._intake.is_replayed(told, event.wire.topic, self._streams.get, now, may_be_new):
                effects.append(Count("replays_dropped"))
            elif told is not None:
                admitted = self._intake.admission.publication(told, event.wire.topic, now)
                pieces = self._intake.pieces(admitted, event.wire.payload, properties.get(PROPERTY_PART))
                low = self.skipped.word(admitted, event.peer, properties)
                if low is not None:
                    self.skipped.note_statement(name_of(event.wire.topic, admitted), event.peer, low)
                news = self._publication(event, admitted, pieces, now)
                effects += news if low is None else news + self._bridged(name_of(event.wire.topic, admitted), now)
                if _is_let_in(news):
                    self._keep_waiting(event, admitted, now)
        except KeysError as error:
            # What the wire brought before its fault (a verified key may have opened something) stays valid.
            effects += self._ahead.instead(event, error, now)
        return effects + self._freed(now) if self._overflow else effects

    def _is_copy(self, event: Received, properties: Mapping[str, str]) -> bool:
        """Returns True for a further copy, whole and in a single piece, of a publication that was delivered."""
        told, topic, payload = properties.get(PROPERTY_HEADER, ""), event.wire.topic, event.wire.payload
        admitted = self._intake.admission.verified((told, topic))
        if admitted is None or self._overflow.to_take or admitted.header.mode is Mode.BLOCKS:
            return False
        header = admitted.header
        author = self._lineages.author(header.publisher, header.sequence)
        stream = self._streams.get((author, batch_topic(admitted.scope.stream)))
        delivered = stream is not None and stream.head.has_seen(header.sequence)
        return delivered and content_digest(payload) == header.digests[0]

    def _bridged(self, name: Name, now: float) -> list[Effect]:
        """Continues a stream: a replica said that publications before `name` were left out."""
        for stream_id in self._lineages.streams_of(name):
            stream = self._streams.get(stream_id)
            if stream is not None and name[2] in stream.held:
                return self._advance(stream_id, now)
        if not self._waits(name):
            self.skipped.forget_statements(name)
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
            or self._keyless.holds_name(name)
            or self._joining.holds_waiting(topic, publisher, sequence)
            or self._assembling.holds_any((publisher, sequence))
            or self._overflow.get(name) is not None
        )

    def keys_changed(self, now: float) -> list[Effect]:
        """Continues publications that waited for new epoch keys."""
        effects, opened = self._keys.keys_changed(now)
        effects += [effect for key_id in opened for effect in self._wake(key_id, now)]
        return effects + self._freed(now)

    def adopt_overlay(self, overlay: Overlay, secrets: Sequence[ScopeSecret], now: float) -> list[Effect]:
        """Adopts another version of the overlay, or other views, with unchanged regions."""
        self.skipped.adopt_overlay(overlay)
        self._overflow.hosted = overlay.hosted
        self._opening.adopt_scopes(secrets)
        self._handing_out.adopt_scopes(secrets)
        self._joining.adopt_overlay(overlay)
        effects, opened = self._intake.adopt_overlay(overlay, now)
        effects += [effect for key_id in opened for effect in self._wake(key_id, now)]
        for event in self._ahead.take_all():
            effects += self.take_wire(event, now) if event.peer in overlay.members else []
        return effects + self._freed(now)

    def tick(self, now: float) -> list[Effect]:
        """Gives up publications that waited too long, searches and audits keys, takes up retained publications."""
        effects, opened = self._intake.tick(now)
        for key_id in opened:
            effects += self._wake(key_id, now)
        for held in self._joining.take_due(now):
            effects += self._hold(held, now)
        while (stream_id := self._waiting.due_stream(now)) is not None:
            effects += self._advance(stream_id, now)
        if self._sweep_at and self._sweep_at <= now:
            for name in [name for name in self.kept.waiting if not self._waits(name)]:
                self.kept.drop_publication(name)
            self._sweep_at = now + SWEEP_S if self.kept.waiting else 0.0
        return effects + self._freed(now)

    @property
    def next_deadline(self) -> float | None:
        waits, sweep_at = self._waiting.next_deadline, self._sweep_at or None
        return earliest(waits, *self._intake.deadlines, self._joining.next_deadline, sweep_at)

    def tells_had(self, had: Had) -> None:
        """Calls `had` with each batch of a scope with receipts that is handed out whole and live."""
        self._handing_out.had = had

    def stream(self, author: bytes, scope: int) -> Stream | None:
        """Returns the stream of an author in a scope, which its first number names; None if nothing of it came."""
        return self._streams.get(scope_stream(author, scope))

    def streams_of(self, scope: int) -> list[tuple[StreamId, Stream]]:
        """Returns the streams of a scope, which its first number names, of which something was delivered."""
        return [
            (stream_id, stream)
            for stream_id, stream in self._streams.items()
            if stream.remembers and self._lineages.stream_of(stream_id[1]) == scope
        ]

    def rows_of(self, scope: int, only: Sequence[StreamId] = ()) -> Rows:
        """Returns the rows that a collector of the scope alone, or of these streams of it, needs to go on."""
        found = [(stream_id, stream) for stream_id, stream in self.streams_of(scope) if not only or stream_id in only]
        streams = [(stream_key(stream_id), stream_row(stream)) for stream_id, stream in found]
        return [*self._lineages.all_rows(), (SCOPE + number(scope, 4), b""), *streams]

    def goes_on(self, streams: Sequence[tuple[StreamId, Stream]]) -> None:
        """Takes streams of another collector, in which nothing waits, in the place of ours."""
        for stream_id, stream in streams:
            generation = self.subscriptions.generation(self._lineages.stream_of(stream_id[1]))
            self._streams.put(stream_id, stream_id[0], Stream(stream.first, stream.head, {}, generation))
            self.kept.stream(stream_id, stream)

    # ----------------------------------------------------------------------------------------------- gaps

    def fills(self, gap: Gap, streams: Sequence[tuple[StreamId, Stream]]) -> None:
        """Takes deliveries of a reading of a gap: its numbers are delivered here, too."""
        for stream_id, stream in streams:
            mine = self._streams.get(stream_id)
            if mine is None or stream_id not in gap.streams:
                continue
            if mine.head is not stream.head:
                stream.head.mark_also(mine.head)
                mine.head = stream.head
            mine.time_ms = max(mine.time_ms, stream.time_ms)
            self.kept.stream(stream_id, mine)

    def filled(self, gap: Gap, now: float) -> list[Effect]:
        """Goes on behind a gap of which all that replicas have was read."""
        self.gaps.end_gap(gap)
        effects: list[Effect] = []
        for stream_id in reversed(gap.streams):  # of the former keys first
            stream = self._streams.get(stream_id) or Stream()
            for sequence in [each for each in stream.held if stream.delivered(each)]:
                self.kept.drop_publication(stream.held[sequence].name)
                self._drop_waiting(stream, sequence)
            effects += self._advance(stream_id, now)
        return effects

    def _awaits_history(self, stream_id: StreamId, now: float, is_patient: bool) -> bool:
        """Returns True while a gap of the stream is read; without patience, or in the end, the wait is over."""
        gap = self.gaps.get(stream_id)
        if gap is None:
            return False
        if is_patient and now < gap.gives_up:
            self._waiting.wakes(stream_id, min(gap.gives_up, now + REPAIR_S))
            return True
        self.gaps.end_gap(gap)
        return False

    def _opens_gap(self, held: Held, stream: Stream, before: Stream, now: float) -> bool:
        """Returns True if what is missing before a publication is read in the history from now on."""
        header, scope = held.admitted.header, held.admitted.scope
        if scope.history is None or header.previous <= stream.searched:
            return False
        stream.searched = header.previous
        since = before.time_ms / 1000 - AHEAD_S if before.time_ms else before.highest / NUMBERS_PER_MS / 1000
        parties = tuple(self._lineages.parties(header.publisher, before.highest + 1))
        streams = tuple((party, held.scope_stream[1]) for party in parties)
        span = max(since, now - scope.history.seconds), header.time_ms + 1
        return self.gaps.open_gap(Gap(streams, scope, parties, *span, now + GAP_S), now)

    # --------------------------------------------------------------------------------------- publications

    def _publication(
        self, event: Received, admitted: Admitted, pieces: Mapping[int, bytes] | None, now: float
    ) -> list[Effect]:
        header, subscriptions, number = admitted.header, self.subscriptions, admitted.scope.stream
        away = subscriptions.away
        if pieces is None:
            return misfit(event.peer)
        if admitted.publisher.name == self._own:
            return []
        is_over = 0 < header.deadline_ms < now * 1000
        if not away.let_in and not self._intake.vouched(event.peer, admitted, event.wire.topic):
            return [Count("vouchers_awaited")]
        author = self._lineages.author(header.publisher, header.sequence)
        stream = self._streams.get((author, batch_topic(number))) or Stream()
        waiting = stream.held.get(header.sequence)
        if stream.delivered(header.sequence) or (waiting is not None and not waiting.gains(admitted)):
            return [Count("duplicates_dropped")]
        in_hand = self._overflow.get(name_of(event.wire.topic, admitted)) if self._overflow else None
        if in_hand is not None and not in_hand.held.gains(admitted):
            return self._withhold_too(in_hand, event, now)
        new = header.snapshot or not stream.knows_number(header.sequence, subscriptions.generation(number))
        if new and (is_over or not (header.retain or subscriptions.may_be_new(author, number, header.time_ms, now))):
            return [Count("expired" if is_over else "replays_dropped")]
        repaired = [Count("repairs")] if self._assembling.asked_for((header.publisher, header.sequence)) else []
        try:
            content = b"" if is_over else self._intake.content(event.peer, admitted, pieces, now)
        except BadContent as error:
            return [Count("unopened"), Blame(admitted.publisher.name, False, str(error))]
        held = Held(admitted, content, event.wire.topic, now, author, is_over=is_over)
        brought = None if event.acknowledged else event
        if content is None:
            # Those behind it wait, too; not for what may be an old header that is replayed.
            young = abs(now * 1000 - header.time_ms) < REPAIR_S * 1000 or away.let_in
            is_wanted = waiting is None and young and header.sequence > stream.highest
            return self._hold(held, now, brought) if is_wanted else []
        same = waiting is not None and (waiting.topic, waiting.admitted.header) == (event.wire.topic, header)
        if waiting is not None and waiting.content is None and same:
            self._waiting.take_held(stream, header.sequence)
            held.arrived = waiting.arrived
            return [*repaired, *self._hold(held, now, brought)]
        # The signed flag counts, not that of the packet, which any broker may set.
        late = away.covers_sealing(header.time_ms, now)  # no newer one makes up for it: it was published for us, too
        if header.snapshot or (new and header.retain and not late and self._joining.may_be_old(held)):
            held.replayed = True
            return [*repaired, *([] if self._joining.offer(held) else [Count("replays_dropped")])]
        # What came before it on other topics is nowhere any more, and not missed before what follows it.
        held.replayed = header.retain and subscriptions.is_before(number, header.time_ms)
        return [*repaired, *self._hold(held, now, brought)]

    def _hold(self, held: Held, now: float, brought: Received | None = None) -> list[Effect]:
        """Puts a new publication into its stream and continues the stream. `brought` is the wire that just came, if
        any.
        """
        effects: list[Effect] = []
        stream = self._streams.get(held.stream_id) or Stream()
        if not self._is_news(stream, held):
            return [Count("duplicates_dropped")]
        if not self._waiting.has_room(held) and not self._is_next(stream, held):
            effects.append(Count("held_overflow"))
            if held.content is None:
                return effects  # it is asked for all the same
            if self._lacks_key(held):
                return effects + self._set_aside(held)
            if brought is not None and (number := self._overflow.put_in_hand(held, brought)):
                return [*effects, Withhold(number)]
            effects += self._make_room_for(held, now)
        self._waiting.put_held(self._stream(held.stream_id, now), held)
        return effects + self._advance(held.stream_id, now)

    def _is_news(self, stream: Stream, held: Held) -> bool:
        """Returns True if the publication is neither delivered nor waiting so sealed; removes a former sealing."""
        header = held.admitted.header
        if stream.delivered(header.sequence):
            return False
        before = stream.held.get(header.sequence)
        if before is not None:
            if header.order <= before.admitted.header.order:
                return False
            # Sealed anew by a gateway that was killed: the key of the first sealing may never come.
            self._drop_waiting(stream, header.sequence)
        return True

    def _is_next(self, stream: Stream, held: Held) -> bool:
        """Returns True if the publication could leave its stream at once: all others may wait for it."""
        if held.content is None or self._lacks_key(held):
            return False
        if stream.held and min(stream.held) < held.admitted.header.sequence:
            return False
        before = self._stream_before(stream, held)
        return before is None or held.admitted.header.previous <= before.highest or self._is_bridged(before, held)

    def _make_room_for(self, held: Held, now: float) -> list[Effect]:
        """Ends the publisher's waits until `held`, which must be taken, has room; a skipped predecessor comes late,
        not lost.
        """
        effects: list[Effect] = [Count("waits_cut_short")]
        publisher = held.admitted.header.publisher
        while not self._waiting.has_room(held) and (stream_id := self._waiting.longest_waiting(publisher)) is not None:
            effects += self._advance(stream_id, now, is_patient=False)
        return effects

    def _withhold_too(self, in_hand: InHand, event: Received, now: float) -> list[Effect]:
        """Takes a further replica's copy of a publication in hand."""
        if not event.acknowledged and (number := self._overflow.join(in_hand, event.peer)):
            return [Count("duplicates_dropped"), Withhold(number)]
        return [Count("duplicates_dropped"), *self._make_room_for(in_hand.held, now), *self._admit(in_hand, now)]

    def _admit(self, in_hand: InHand, now: float) -> list[Effect]:
        """Moves a publication from hand into its stream, with the present time as its arrival."""
        self._overflow.pop(in_hand)
        in_hand.held.arrived = now
        effects = self._hold(in_hand.held, now)
        self._keep_waiting(in_hand.brought, in_hand.held.admitted, now)
        return effects

    def _freed(self, now: float) -> list[Effect]:
        """Moves publications from hand into their streams, in order, as far as there is room."""
        effects: list[Effect] = []
        for publisher in self._overflow.among(self._waiting.take_left_publishers()) if self._overflow else ():
            while (first := self._overflow.first_of(publisher)) is not None and self._may_enter(first.held):
                effects += self._admit(first, now)
        return effects

    def _may_enter(self, held: Held) -> bool:
        stream = self._streams.get(held.stream_id) or Stream()
        is_known = stream.delivered(held.admitted.header.sequence)  # to be dropped
        return is_known or self._waiting.has_room(held) or self._is_next(stream, held)

    def _stream(self, stream_id: StreamId, now: float) -> Stream:
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._streams.touch(stream_id)
            return stream
        stream = Stream()
        gone = self._streams.put(stream_id, stream_id[0], stream)
        if gone is not None:
            self.kept.stream_gone(gone[0])
            if (gap := self.gaps.get(gone[0])) is not None:
                self.gaps.end_gap(gap)
            self._waiting.wakes(gone[0], None)
            if gone[1].remembers:
                self.subscriptions.forgot(gone[0][0], self._lineages.stream_of(gone[0][1]), now)
            for sequence in list(gone[1].held):
                self._drop_waiting(gone[1], sequence)
        return stream

    def _drop_waiting(self, stream: Stream, sequence: int) -> None:
        self.skipped.forget_statements(self._waiting.take_held(stream, sequence).name)

    def _wake(self, key_id: bytes, now: float) -> list[Effect]:
        """Continues the publications that waited for a key which has been opened."""
        effects: list[Effect] = []
        for held in self._keyless.take_held(key_id):
            held.arrived = now  # its predecessor's key may be as late
            stream = self._stream(held.stream_id, now)
            if self._is_news(stream, held):
                self._waiting.put_held(stream, held)  # whether there is room or not: by far the most go on at once
            else:
                effects.append(Count("duplicates_dropped"))
        return effects + [e for stream_id in self._waiting.naming(key_id) for e in self._advance(stream_id, now)]

    def _advance(self, stream_id: StreamId, now: float, is_patient: bool = True) -> list[Effect]:
        """Delivers a stream's deliverable publications, lowest sequence first, and sets the deadline of the next one.
        A publication without its key stops only its successors in the chain: of QoS 0 the key may be lost with a
        killed publisher. With `is_patient` False the first undeliverable publication has waited long enough.
        """
        if self._awaits_history(stream_id, now, is_patient):
            return []
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
                wake_at = None  # of those that lack their keys the first says when
                break
            stage, bridged = self._stage(stream, held, now)
            if stage is HeldStage.CONTENT:
                # Nothing that is whole waits for longer than that for what is not.
                whole = (other.arrived + REPAIR_S for other in stream.held.values() if other.content is not None)
                wake_at = min([wake_at, *whole])
            missing_at = None
            if stage is HeldStage.PREDECESSOR and is_patient:
                missing_at = self._predecessor_at(held, stream, effects, now)
            if missing_at is not None:
                wake_at = missing_at
                break
            if stage is not HeldStage.READY and is_patient and now < wake_at:
                if stage is HeldStage.KEY:
                    keyless[sequence] = wake_at
                    stop = stop or (sequence if held.admitted.header.qos else 0)
                    continue
                break
            turn = HeldTurn.NEXT if stage is HeldStage.READY else HeldTurn.OVER
            if turn is HeldTurn.OVER:
                is_patient = True
                effects.append(Count(COUNTED[stage]))
            self._drop_waiting(stream, sequence)
            match HELD.after((turn, stage)):
                case HeldStage.DELIVERED:
                    self.kept.drop_publication(held.name)
                    effects += self._deliver(held, stream, bridged, now)
                case HeldStage.SET_ASIDE:
                    effects += self._set_aside(held)
        else:
            wake_at = None
        wake_at = min((at for at in (wake_at, *keyless.values()) if at is not None), default=None)
        self._rest(stream_id, stream, wake_at)
        for after in self._lineages.streams_after(stream_id) if effects else ():
            effects += self._advance(after, now)
        return effects

    def _stage(self, stream: Stream, held: Held, now: float) -> tuple[HeldStage, bool]:
        """Returns what a publication lacks, and True if replicas say that its missing predecessors are wanted by nobody
        here.
        """
        if held.content is None:
            return HeldStage.CONTENT, False
        if self._lacks_key(held):
            return HeldStage.KEY, False
        before = self._stream_before(stream, held)
        if self._is_bridged(before, held, now):
            return HeldStage.READY, True
        waits = before is not None and held.admitted.header.previous > before.highest
        return HeldStage.PREDECESSOR if waits else HeldStage.READY, False

    def _predecessor_at(self, held: Held, stream: Stream, effects: list[Effect], now: float) -> float | None:
        """Returns when to look again for a missing predecessor, which is asked for; None if it was waited for."""
        before = self._stream_before(stream, held)
        assert before is not None, "it waits for a predecessor there"
        until, scope = held.arrived + REPAIR_S, held.admitted.scope
        if now < until:
            is_news = [self._assembling.miss(name, before.highest, now) for name in self._lineages.before(held)]
            effects += [Count("reorder_waits")] if any(is_news) else []
            return self.skipped.wakes(held.name, scope, held.arrived, now) or until
        if not self._opens_gap(held, stream, before, now):
            return None
        effects.append(Count("gaps_read"))
        return now + REPAIR_S

    def _rest(self, stream_id: StreamId, stream: Stream | None, wake_at: float | None) -> None:
        if wake_at is not None or stream is None or not stream.held:
            self._waiting.wakes(stream_id, wake_at)
        if stream is not None and not stream.held and not stream.remembers:
            self._streams.pop(stream_id)  # or who names keys that never come would fill the table

    def _lacks_key(self, held: Held) -> bool:
        is_sealed = held.admitted.header.mode is not Mode.PLAIN and not held.is_over
        return is_sealed and self._keys.waits_for(held.admitted)

    def _set_aside(self, held: Held) -> list[Effect]:
        return [] if self._keyless.put_held(held) else [Count("keyless_overflow")]

    def _stream_before(self, stream: Stream, held: Held) -> Stream | None:
        """Returns the stream in which a predecessor is missing unless it was delivered. Returns None for the first
        publication a subscription brings.
        """
        generation = self.subscriptions.generation(held.admitted.scope.stream)
        return None if held.replayed else self._lineages.stream_before(held, stream, self._streams.get, generation)

    def _is_bridged(self, before: Stream | None, held: Held, now: float = 0.0) -> bool:
        """Returns True if enough replicas say that nobody here wants the missing predecessors.

        They may have said so beside a later publication that waits, too: one that was asked for comes without a word.
        """
        if not self.skipped or before is None or held.admitted.header.previous <= before.highest:
            return False
        sequence, held_there = held.admitted.header.sequence, before.held
        after = heapq.nsmallest(WORDS_AFTER, (number for number in held_there if number > sequence))
        words = (held, *(held_there[number] for number in after))
        if not any(self.skipped.bridges(x.name, before.highest, x.admitted.scope, now - x.arrived) for x in words):
            return False
        for name in self._lineages.before(held):
            self._assembling.forget_pieces(name)
        return True

    def _deliver(self, held: Held, stream: Stream, bridged: bool, now: float) -> list[Effect]:
        """Delivers a publication that left its stream in its turn."""
        header = held.admitted.header
        if not held.replayed:
            previous = 0 if bridged else header.previous
            late = stream.mark_delivered(
                header.sequence, previous, self.subscriptions.generation(held.admitted.scope.stream)
            )
            late = late or self._lineages.is_overtaken(held.stream_id, self._streams.get)
            stream.time_ms = header.time_ms if header.sequence == stream.highest else stream.time_ms
            self.kept.stream(held.stream_id, stream)
            return self._handing_out.hand_out(held, late)
        stream = self._stream(held.scope_stream, now)
        if stream.delivered(header.sequence):
            return [Count("duplicates_dropped")]
        late = header.sequence < stream.highest
        stream.head.mark_number(header.sequence)  # live, it comes no more; without room for that `_joining` knows it
        self.kept.stream(held.scope_stream, stream)
        return self._handing_out.hand_out(held, late)


def _is_let_in(news: Sequence[Effect]) -> bool:
    """Returns True unless the wire with these effects was not taken, or stays in hand."""
    not_in = [each for each in news if type(each) is Withhold or (type(each) is Count and each.name in NOT_TAKEN)]
    return not not_in
