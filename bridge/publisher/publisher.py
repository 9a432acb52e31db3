"""The publisher side at a gateway: what the outbox holds goes to every replica of the home region, in order.

Each replica has its own window and its own place in the outbox, so that one that is away neither slows nor evicts what
the others need. An entry is sealed when it is first sent (docs/protocol.md §5.1), and anew under the same sequence when
its scope seals otherwise (`resealing`). What cannot be sealed now waits without holding up the others. What is too old,
by the outbox's own bound or by the message's expiry, is dropped and counted. Not here: sealing (`sealing`), what comes
from the disk when (`intake`), windows (`windows`), bounds of memory (`residents`), how content is cut (`content`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import attrgetter

from bridge.contract import (
    Acked,
    Count,
    Effect,
    Forget,
    OutboxEntry,
    Publication,
    Received,
    Send,
    Wire,
    count_of,
    earliest,
)
from bridge.contract.machine import NotTaken
from bridge.contract.refusing import Reason
from bridge.document import Overlay, RegionView, ScopeSecret
from bridge.publisher.cutting import Cuts, OwnRows, Predecessors
from bridge.publisher.data_keys import LiveKey, key_alone, sends
from bridge.publisher.entry import Entry, EntryTurn, Standing, has_enough
from bridge.publisher.former_scopes import FormerScopes
from bridge.publisher.own_retained import OwnRetained, snapshots
from bridge.publisher.pacing import Hindered, Pacing
from bridge.publisher.resealing import hand_over, outdated, unseal, voided
from bridge.publisher.residents import (
    QOS0_BYTES_MAX,
    QOS0_ENTRIES_MAX,
    Ages,
    Fleeting,
    Repairable,
    Residents,
    check_ours,
    first_lacking,
)
from bridge.publisher.scope_placement import home_of, homeless, parts_of
from bridge.publisher.sealing import Sealer
from bridge.publisher.windows import Lane, Lanes, Refusals, StandIns
from bridge.wire import OwnLife, PullRequest
from keys.envelope import Mode
from keys.epochs import ScopeKeys
from keys.identity import Identity

STRAGGLER_ENTRIES_MAX = 20_000  # what a replica that is away may make us keep once n - f others have it
STRAGGLER_BYTES_MAX = 64 << 20  # the same in topics and payloads
STRAGGLER_S = 3600.0
UNAUTHORISED_S = 24 * 3600.0  # an entry that we may not publish (any more) waits for the right for so long


class Publisher:
    """The machine that sends what the outbox of a gateway holds, one a gateway. `sealer`: seals, under the present keys
    and rights of our scopes.
    """

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        random: Callable[[int], bytes],
        life: OwnLife,
        max_age_s: float | None = None,
    ) -> None:
        """`max_age_s`: what was published longer ago is dropped instead of sent; None: no bound."""
        self._home = overlay.certificate(name).region
        self.view = overlay.views[self._home]
        self._hosted = overlay.hosted  # while we run
        self.sealer = Sealer(overlay, identity, name, secrets, keys, random, life)
        self._ages, self.retained = Ages(max_age_s), OwnRetained()
        self._residents = Residents()
        self._entries: dict[int, Entry] = {}
        self._young: dict[int, None] = {}  # entries whose stragglers' bound is still to come, oldest first
        self._fleeting = Fleeting(QOS0_ENTRIES_MAX, QOS0_BYTES_MAX)
        self.predecessors, self._pacing = Predecessors(), Pacing(overlay.policy.budgets, life)
        self._repairable, self.refusals = Repairable(), Refusals()
        self._lanes, self._stand_ins = Lanes(), StandIns(overlay, self._home)
        self.cuts = Cuts(self._entries, self._young, self._residents, self._lanes, self.predecessors, self._fleeting)
        self.scopes, self._placed = FormerScopes(secrets), -1
        kept = self.retained, self.predecessors, self.cuts, self.scopes, self.sealer.sealed_before
        self.rows = OwnRows(self._entries.keys(), *kept)
        self._up: set[str] = set()  # of whom those in the view in force have lanes
        self._waiting = Hindered(self._entries, self._residents, UNAUTHORISED_S)
        self.told_sealed: Callable[[Entry], list[Effect]] = lambda entry: []
        """Called with each entry of a scope with receipts that was sealed, but for snapshots."""

    @property
    def depth(self) -> int:
        """The number of entries in memory that some replica lacks."""
        return len(self._entries) - len(self._repairable)

    @property
    def unstored(self) -> int:
        """The number of entries that are in memory only."""
        return len(self._fleeting)

    @property
    def room(self) -> tuple[int, int]:
        """New entries, and bytes of topics and payloads, that may come; what exceeds that is better left on disk."""
        return self._residents.room(is_draining=len(self._lanes) >= len(self.view.members) - self.view.faults)

    @property
    def lacking_from(self) -> int:
        """The first number in the outbox that too few replicas have; earlier entries in memory have enough."""
        return first_lacking(entry for entry in self._entries.values() if not entry.is_snapshot)

    def is_stuck(self, publication: Publication, now: float) -> bool:
        """Returns True if a new entry with this publication would wait, and too many wait already."""
        return self._residents.waiting_full and not self.could_go(publication, now, late=False)

    @property
    def waiting_full(self) -> bool:
        """True if so many entries of the outbox wait in memory for a key or a right that others stay on disk."""
        return self._residents.waiting_full

    def could_go(self, publication: Publication, now: float, late: bool = True) -> bool:
        """Returns True if nothing hinders the sealing of a publication. `late`: it was left on disk."""
        secret = home_of(self.sealer, self.scopes.was_plain, late, publication)
        return self.sealer.hindrance(Entry(0, publication, secret, 0, now), now) is None

    def changes_at(self, now: float) -> tuple[int, int]:
        """Returns the number of changes of keys and rights, and the epoch; waiting entries may go after a change."""
        return self.sealer.changes, self.sealer.calendar.epoch_at(now)

    @property
    def wants_late(self) -> bool:
        """True if entries left on disk may come now."""
        return len(self._lanes) > 0 and self._residents.wants_backlog

    # --------------------------------------------------------------------------------------------- events

    def take_entries(self, entries: Sequence[OutboxEntry], now: float, late: bool = False) -> list[Effect]:
        """Takes entries to seal, in order. `late` entries were left on disk, and new ones go beside them."""
        effects: list[Effect] = []
        taken: list[Entry] = []
        home = partial(home_of, self.sealer, self.scopes.was_plain, late)
        for sequence, previous, publication in entries:
            if sequence in self._entries:
                continue
            stored = Entry(sequence, publication, home(publication), previous, now)
            for each in self.cuts.stored(stored, home):
                each.may_be_had = publication.qos == 2 and self.sealer.sealed_before.may_be(each.sequence)
                parts = parts_of(each, self.sealer, now)
                taken += [each] if parts[0][1] == () else self.cuts.split(each, parts)
        taken.sort(key=attrgetter("sequence"))
        for entry in taken:
            publication = entry.publication
            self.cuts.placed(entry)
            self.predecessors.join_chain(entry)
            self._add_entry(entry, late)
            if publication.retain:
                effects += self.retained.take_published(
                    entry.sequence, publication, entry.secret.scope.mode is not Mode.PLAIN
                )
            if publication.qos == 0:
                self._fleeting.add_entry(entry.sequence, entry.size, publication.owner)
        effects += self._drop_expired([entry.sequence for entry in taken], now) if late else []
        return effects + self._drop_qos0() + self._pump(now)

    def _add_entry(self, entry: Entry, late: bool) -> None:
        self._entries[entry.sequence] = entry
        self._residents.add_entry(entry)
        self._young[entry.sequence] = None
        self._lanes.append(entry.sequence, entry.chain, late)

    def _drop_qos0(self) -> list[Effect]:
        """Drops QoS 0 entries beyond the bounds of memory: the oldest of the client with most."""
        gone = self._fleeting.excess()
        if not gone:
            return []
        dropped = sum(count_of(self._entries[sequence].publication) for sequence in gone)
        self._forget_entries(gone)
        return [Count("qos0_dropped", dropped)]

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """A replica of the home region is reachable: it gets all that it has not acknowledged, in order. One that is
        not in the view in force gets nothing of ours yet, or no more."""
        self._up.add(peer)
        if peer not in self.view.members:
            return self._pump(now)
        self._open_lane(peer)
        return self._retell(peer, now) + self._pump(now)

    def _open_lane(self, peer: str) -> None:
        self.cuts.forget_peer(peer)
        lacking = ((s, e.chain) for s, e in self._entries.items() if peer not in e.acked)
        self._lanes.open_lane(peer, lacking)
        for key in {id(e.key): e.key for e in self._entries.values() if e.key}.values():
            key.forget_peer(peer)
        self.sealer.forget_peer(peer)
        self.sealer.ask_review()  # what it lacks may be sealed under what has ended

    def _retell(self, peer: str, now: float) -> list[Effect]:
        """Repeats to a replica that may have lost its memory, beside the outbox's entries: keys in use that stand
        alone, and retained publications sealed for the present views.
        """
        if peer in self._hosted or peer not in self._up:  # a stock broker keeps what is retained, and keys ride there
            return []
        retained = self.retained.to_retell(peer, self.sealer.seal_for, self._entries, now)
        for key in {id(kept.key): kept.key for kept in retained if kept.key}.values():
            key.forget_peer(peer)
        effects: list[Effect] = [key_alone(peer, self.view, key) for key in self.sealer.keys_alone(now)]
        for kept in retained:
            assert kept.wire is not None
            effects += self._sends(peer, kept.wire, kept.key, kept.publication, 0, now)
        return effects

    def link_down(self, peer: str) -> list[Effect]:
        self._up.discard(peer)
        self._lanes.close_lane(peer)
        return []

    def acked(self, event: Acked, now: float, is_ahead: bool = False) -> list[Effect]:
        """A replica has it: open its window, and forget what every replica has.

        One that `is_ahead` of our overlay may have closed the view that it was sealed for, and refused it: its
        acknowledgement does not count, and it gets the entry again once we have caught up.
        """
        if not self._lanes.note_acknowledged(event.peer, event.ticket, now):
            return self._pump(now)
        self.refusals.note_acknowledged(event.peer)
        entry = self._entries.get(event.ticket)
        if entry is not None and is_ahead:
            entry.goes_again, entry = True, None
        return [*(self._has(event.peer, entry, now) if entry is not None else ()), *self._pump(now)]

    def _has(self, peer: str, entry: Entry, now: float) -> list[Effect]:
        self._residents.note_acknowledged(entry, peer)
        overdue = entry.publication.qos == 0 or now - entry.born >= STRAGGLER_S
        if has_enough(entry, self.view) if overdue else entry.acked.issuperset(self.view.members):
            return self._done(entry, now)
        if not has_enough(entry, self.view):
            return []
        self._residents.move(entry, EntryTurn.HAD)
        return self._sweep()

    def take_refusal(self, event: NotTaken, now: float) -> list[Effect]:
        """A replica did not take it: that is no acknowledgement, and it is offered again. What is too large for a
        passes it by once n - f others have it, and goes in parts if so many cannot.
        """
        effects: list[Effect] = [Count("refused_by_replica", 1, event.reason)]
        entry = self._entries.get(event.ticket)
        if not self._lanes.note_refused(event.peer, event.ticket) or entry is None:
            return effects + self._pump(now)
        if event.reason == Reason.SIZE:
            if self.cuts.too_large(event.peer, entry, self.view):
                return [*effects, Count("batches_cut"), *self._pump(now)]
            if entry.publication.qos == 0 or has_enough(entry, self.view):
                return effects + self._has(event.peer, entry, now) + self._pump(now)
        self.refusals.note_refused(event.peer, event.ticket, event.reason, now)
        return effects + self._pump(now)

    def tick(self, now: float) -> list[Effect]:
        """Drops what only stragglers lack once their bound is passed; what too few have stays until enough have it."""
        gone = []
        while self._young and now - self._entries[next(iter(self._young))].born >= STRAGGLER_S:
            sequence = next(iter(self._young))
            del self._young[sequence]
            if has_enough(self._entries[sequence], self.view):
                gone.append(sequence)
        gone += self._repairable.due_entries(now)
        if due := {refused for refused in self.refusals.due_offers(now) if refused[1] in self._entries}:
            back = {(sequence, self._entries[sequence].chain) for _, sequence in due}
            self._lanes.requeue(back, lambda peer, s: (peer, s) in due and peer not in self._entries[s].acked)
            self.sealer.ask_review()
        effects = self._forget_entries(gone)
        effects += [sent for peer in self.retained.retold.due_keys(now) for sent in self._retell(peer, now)]
        self._lanes.keep_waiting(self._entries.__contains__, len(self._entries))
        return [*effects, *self._drop_aged([], self._ages.too_long(self._entries, now), now), *self._pump(now)]

    def answer_request(self, event: Received, now: float) -> list[Effect]:
        """A replica of our region lacks pieces of ours. Raises BadFrame, NotAuthorised."""
        request = PullRequest.decode(event.wire.payload)
        if not self._repairable.answers.may_ask(event.peer, request.publisher, now):
            return [Count("pulls_refused")]
        check_ours(self.sealer.is_us(request.publisher))
        return self._repairable.answer_request(event, request, self._entries.get(request.sequence), now)

    @property
    def next_deadline(self) -> float | None:
        first = next(iter(self._young), None)
        straggler = None if first is None else self._entries[first].born + STRAGGLER_S
        review = min(self.sealer.review_at or 0.0, self._waiting.give_up_at)
        old_at = self._ages.first_at(self._entries) if self._ages.max_age_s is not None else None
        again_at = self.refusals.next_deadline if self.refusals.rounds else None
        paced_at = self._pacing.next_deadline if self._pacing.held or self._pacing.opens_at else None
        repair_at = self._repairable.next_deadline if self._repairable.kept else None
        silent_at = self._stand_ins.next_deadline(self._lanes) if self._stand_ins.is_used else None
        retold_at = self.retained.retold.next_deadline
        return earliest(straggler, review, old_at, again_at, silent_at, paced_at, repair_at, retold_at)

    def keys_changed(self, now: float) -> list[Effect]:
        """Continues after new or replaced epoch keys."""
        self.sealer.keys_changed()
        return self._pump(now)

    def overtaken(self, topic: str, time_ms: int) -> None:
        """Somebody else published on a clear topic, retained, at `time_ms`: an older one of ours is not sealed anew."""
        self.retained.overtaken(topic, time_ms)

    def adopt_overlay(self, overlay: Overlay, secrets: Sequence[ScopeSecret], now: float) -> list[Effect]:
        """Another version of the overlay, or other views, of the same regions: what is not sent yet follows it."""
        self.sealer.adopt_overlay(overlay, secrets)
        self._pacing.adopt_budgets(overlay.policy.budgets)
        self._stand_ins.adopt_overlay(overlay)
        self._repairable.answers.forget_all_but(overlay.members)
        effects = self._follow_view(overlay.views[self._home], now)
        self.scopes.adopt_scopes(secrets)
        self._placed = -1
        for entry in self._entries.values():  # each keeps its scope as long as that is there
            entry.secret = self.sealer.renewed(entry.secret)
            self.cuts.placed(entry)
        return effects + self._pump(now)

    def _follow_view(self, view: RegionView, now: float) -> list[Effect]:
        """Opens and closes lanes for the replicas of another view."""
        before, self.view = self.view, view
        lanes = {peer for peer, _ in self._lanes}
        hand_over(self._entries.values(), self._residents, before, view, lanes, now)
        for peer in lanes - set(view.members):
            self._lanes.close_lane(peer)
        for peer in [peer for peer in view.members if peer in self._up - lanes]:
            self._open_lane(peer)
        done = [s for s, entry in self._entries.items() if entry.acked.issuperset(view.members)]
        return self._done_without(done, now)

    def rotate_identity(self, identity: Identity) -> None:
        """Sign with another key of ours from now on. What is sealed stays: its certificate counts to its end."""
        self.sealer.rotate_identity(identity)

    def _sweep(self) -> list[Effect]:
        """Drops the oldest entries that only stragglers lack, beyond their bounds."""
        effects: list[Effect] = []
        residents = self._residents
        while residents.settled_count > STRAGGLER_ENTRIES_MAX or residents.settled_bytes > STRAGGLER_BYTES_MAX:
            effects += self._forget_entries([residents.longest_settled])
        if effects:
            self._lanes.keep_waiting(self._entries.__contains__, len(self._entries))
        return effects

    def _done(self, entry: Entry, now: float) -> list[Effect]:
        """Ends an entry that all have, or that is overdue; keeps its pieces for a while for replicas lacking some."""
        gone = self._repairable.keep_entry(entry, now)
        if gone is None:
            return self._forget_entries([entry.sequence])
        self._young.pop(entry.sequence, None)
        self._fleeting.remove_entry(entry.sequence)
        self._residents.move(entry, EntryTurn.HAD)
        return self._forget_entries(gone)

    def _done_without(self, sequences: Collection[int], now: float) -> list[Effect]:
        """Counts these entries as acknowledged by all: replicas lacking them get them no more."""
        self._lanes.withdraw(set(sequences))
        for sequence in sequences:
            self._residents.need_not(self._entries[sequence], self.view.members)
        return [e for s in sequences if s in self._entries for e in self._done(self._entries[s], now)]

    def _forget_entries(self, sequences: Iterable[int]) -> list[Effect]:
        gone = tuple(sequences)
        if not gone:
            return []
        for sequence in gone:
            self._residents.remove_entry(self._entries.pop(sequence))
            self._young.pop(sequence, None)
            self._fleeting.remove_entry(sequence)
            self._repairable.forget_entry(sequence)
        rows = self.cuts.rows_of_gone(gone)
        return [Forget(rows)] if rows else []

    def _drop_unsent(self, sequences: Sequence[int]) -> list[Effect]:
        """Forgets entries that were not sent."""
        if not sequences:
            return []
        self.predecessors.drop_entries(self._entries[sequence] for sequence in sequences)
        return self._forget_entries(sequences)

    def _drop_expired(self, sequences: Iterable[int], now: float) -> list[Effect]:
        """Drops the unsent entries among these that are too old by either bound."""
        return self._drop_aged(*self._ages.expired((self._entries[sequence] for sequence in sequences), now), now)

    def _drop_aged(self, message: list[int], age: list[int], now: float) -> list[Effect]:
        """Drops entries that are too old; a void replaces an entry that was sealed, since its follower may name it."""
        if not (message or age):
            return []
        lost = sum(not self._entries[s].is_void and self._entries[s].standing is not Standing.SETTLED for s in age)
        effects = self._drop_unsent(sorted(voided(self._entries, [*message, *age], self._residents, self._lanes, now)))
        counts = (("message", len(message)), ("age", lost))
        return [*effects, *(Count("outbox_expired", count, bound) for bound, count in counts if count)]

    def _review_entries(self, now: float) -> list[Effect]:
        """Reviews sealed, waiting and retained entries after a change of epoch keys or rights."""
        scopes = {e.secret.scope.filter: e.secret.scope for e in self._entries.values()}
        self.sealer.review(scopes, now)
        due = self.retained.due_retained(self.sealer.seal_for, self.sealer.oldest(now), now) if len(self._lanes) else []
        made, again, counted = snapshots(due, self._entries, self.sealer, self.view, now)
        for entry in made:
            self._add_entry(entry, late=False)
        unseal(again, self._entries, self._residents, self._lanes)
        lacking, over = outdated(self._entries, self.sealer, self.view, self._lanes, now)
        before, self._placed = self._placed, self.sealer.calendar.epoch_at(now)
        is_other = before != self._placed  # scopes or rights may have changed
        lacking += homeless(self._entries, self.sealer, self.view, now) if is_other else []
        unseal(lacking, self._entries, self._residents, self._lanes)
        again += lacking
        uncounted = [s for s, entry in self._entries.items() if entry.goes_again]
        back = [(s, self._entries[s].chain) for s in (*again, *self._waiting, *uncounted)]
        for sequence in uncounted:
            self._entries[sequence].goes_again = False
        self._lanes.requeue(back, lambda peer, s: peer not in self._entries[s].acked)
        self._place(self._entries if is_other else again, now)
        gone, lost = self._waiting.given_up(now)
        lost += self._done_without(over, now)
        return [*lost, *self._drop_unsent(gone), *counted]

    def _place(self, sequences: Iterable[int], now: float) -> None:
        """Places the records of these entries, as far as unsealed, into scopes."""
        entries = [self._entries[s] for s in sequences if self._entries[s].wire is None]
        placed = [(entry, parts_of(entry, self.sealer, now)) for entry in entries]
        self.cuts.divide([(entry, parts) for entry, parts in placed if parts[0][1]])

    def _pump(self, now: float) -> list[Effect]:
        """Fills every open window, in order; seals entries that are sent for the first time."""
        effects = self._review_entries(now) if self.sealer.review_due(now) or now >= self._waiting.give_up_at else []
        if self._pacing.held and (paced := self._pacing.release_waiting(self._entries, now)):
            self._lanes.requeue(paced, lambda peer, s: peer not in self._entries[s].acked)
        sendable: list[tuple[str, int]] = []
        lanes = deque[tuple[str, Lane]]()  # none, after most acknowledgements
        for peer, lane in self._lanes.lanes.items():
            if lane.new or lane.late:
                lanes.append((peer, lane))
        stands = bool(lanes) and not self._pacing.is_open(now)
        while lanes:
            peer, lane = lanes.popleft()
            sealed_only = stands or self._residents.leads(peer)
            taken = (
                lane.take_into_flight(now, self._is_sealed, self._residents.lacked_by(peer))
                if sealed_only
                else lane.take_into_flight(now)
            )
            if not taken:
                continue
            sealed, waits = self._seal_taken(taken, now)
            effects += waits
            for sequence in taken:
                if sequence in sealed:
                    sendable.append((peer, sequence))
                else:
                    lane.put_back(sequence)
            if len(sealed) < len(taken):  # the window has room again, for what is behind those that wait
                lanes.append((peer, lane))
        for peer, sequence in sendable:
            entry = self._entries[sequence]
            wire = entry.wire_for(peer, self.view)
            effects += self._sends(peer, wire, entry.key, entry.publication, sequence, now)
        if self._stand_ins.is_used:
            effects += self._stand_ins.sends(self._entries, self._lanes, now)
        return effects

    def _is_sealed(self, sequence: int) -> bool:
        """Returns True if an entry is sealed or gone: a replica leading gets no other."""
        entry = self._entries.get(sequence)
        return entry is None or entry.wire is not None

    def _seal_taken(self, taken: Sequence[int], now: float) -> tuple[set[int], list[Effect]]:
        """Seals entries a lane took, and returns the sealed ones."""
        entries, unsealed, sealed = self._entries, list[int](), set[int]()
        for sequence in taken:
            entry = entries.get(sequence)
            if entry is not None and entry.wire is None:
                unsealed.append(sequence)
        effects = self._seal(unsealed, now) if unsealed else []
        for sequence in taken:
            entry = entries.get(sequence)
            if entry is not None and entry.wire is not None:
                sealed.add(sequence)
        return sealed, effects

    def _seal(self, unsealed: Sequence[int], now: float) -> list[Effect]:
        """Seals those of these entries that are not too old, and that nothing hinders."""
        effects = self._drop_expired(unsealed, now)
        able, waits = self._waiting.set_aside([s for s in unsealed if s in self._entries], self.sealer, now)
        ready = self._pacing.admitted([self._entries[s] for s in able], now)
        for entry in ready:
            entry.previous = self.predecessors.predecessor_of(entry)
        unsealable, counted = self.sealer.seal_entries(ready, now)
        self._pacing.charge_sealed(ready, now)
        effects += [*waits, *self._drop_unsent(unsealable), *counted]
        for entry in [each for each in ready if each.sequence in self._entries]:
            self._residents.move(entry, EntryTurn.SEALED)
            if entry.secret.scope.receipts and not entry.is_snapshot:
                effects += self.told_sealed(entry)
            if entry.publication.retain:
                effects += self.retained.note_sealing(entry, self.sealer, now)
        return effects

    def _sends(self, peer: str, wire: Wire, key: LiveKey | None, of: Publication, ticket: int, at: float) -> list[Send]:
        return sends(peer, self.view, wire, key, of, ticket, at, hosted=peer in self._hosted)
