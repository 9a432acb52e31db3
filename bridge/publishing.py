"""The publisher side at a gateway: what the outbox holds goes to every replica of the home region, in order.

Each replica has its own window and its own place in the outbox, so that one that is away neither slows nor evicts
what the others need. An entry is sealed when it is first sent (PROTOCOL §5); whenever its scope seals under another
epoch key, what some replica still lacks is sealed anew under the same sequence. What cannot be sealed now waits
without holding up the others. Not here: sealing (`sealing`), the disk (the shell keeps the outbox and says
`Committed`), windows (`lanes`), repair, coded blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from keys.envelope import Mode
from keys.epochs import ScopeKeys
from keys.identity import Identity

from .lanes import Lanes
from .machine import Acked, Committed, Count, Effect, Forget, Send, Wire
from .ownretained import OwnRetained
from .sealing import Entry, ScopeSecret, Sealer
from .views import Overlay

STRAGGLER_ENTRIES_MAX = 20_000  # what a replica that is away may make us keep once n - f others have it
STRAGGLER_S = 3600.0
QOS0_ENTRIES_MAX = 10_000  # they are in memory only; without an uplink the oldest go first
UNAUTHORISED_S = 24 * 3600.0  # an entry that we may not publish (any more) waits for the right for so long


class Publisher:
    """Sends what the outbox holds. One a gateway. `sealer`: what our scopes seal under."""

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        random: Callable[[int], bytes],
    ) -> None:
        home = overlay.certificate(name).region
        self._view = overlay.views[home]
        self._enough = len(self._view.members) - (len(self._view.members) - 1) // 2  # n - f
        self.sealer = Sealer(overlay, identity, name, secrets, keys, random)
        self._retained = OwnRetained()
        self._entries: dict[int, Entry] = {}
        self._young: dict[int, None] = {}  # entries whose stragglers' bound is still to come, oldest first
        self._qos0: dict[int, None] = {}
        self._sweep_at = _sweep_at(0)
        self._lanes = Lanes()
        self._waiting: dict[int, bool] = {}  # entries that cannot be sealed now -> whether for want of the right
        self._give_up_at = float("inf")  # when the first of those for want of the right goes

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
            secret = self.sealer.secret_for(publication.topic)
            if secret is None:  # the configuration changed while the entry lay on disk
                refused.append(sequence)
                continue
            topic = secret.wire_topic(publication.topic)
            self._entries[sequence] = Entry(sequence, publication, secret, topic, previous, now)
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
        self.sealer.forget_peer(peer)
        self.sealer.ask_review()  # what it lacks may be sealed under what has ended
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
        review = min(self.sealer.review_at or 0.0, self._give_up_at)
        return min((at for at in (straggler, review) if at is not None and at < float("inf")), default=None)

    def keys_changed(self, now: float) -> list[Effect]:
        """Epoch keys came, or one that was wrong was replaced: what waited goes on."""
        self.sealer.keys_changed()
        return self._pump(now)

    def overtaken(self, topic: str, time_ms: int) -> None:
        """Somebody else published on a clear topic, retained, at `time_ms`: an older one of ours is not sealed anew."""
        self._retained.overtaken(topic, time_ms)

    def adopt(self, overlay: Overlay, secrets: Sequence[ScopeSecret], now: float) -> list[Effect]:
        """Another version of the overlay, of the same regions and views: what is not sent yet follows it."""
        self.sealer.adopt(overlay, secrets)
        for entry in self._entries.values():
            secret = self.sealer.secret_for(entry.publication.topic)
            # What was protected does not go in clear, whatever the owner says now. It waits, as without any scope,
            # under what it was committed for.
            if secret is not None and (secret.scope.mode is not Mode.PLAIN or entry.secret.scope.mode is Mode.PLAIN):
                entry.secret, entry.topic = secret, secret.wire_topic(entry.publication.topic)
        return self._pump(now)

    def rotate(self, identity: Identity) -> None:
        """Sign with another key of ours from now on. What is sealed stays: its certificate counts to its end."""
        self.sealer.rotate(identity)

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

    def _review(self, now: float) -> list[Effect]:
        """What a change of epoch keys or rights means for what is sealed, waits or is retained."""
        scopes = {e.secret.scope.filter: e.secret.scope for e in self._entries.values()}
        changed = self.sealer.review(scopes, now)
        again = []
        for sequence, entry in self._entries.items():
            if entry.wire is None or entry.name == self.sealer.name_of(entry):
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
        return effects + self._retained.due(changed, unsealed, now)

    def _give_up(self, now: float) -> list[Effect]:
        """Entries that waited too long for a right to publish them."""
        old = [s for s, unauthorised in self._waiting.items() if unauthorised]
        gone = [s for s in old if now - self._entries[s].born >= UNAUTHORISED_S]
        rest = [self._entries[s].born + UNAUTHORISED_S for s in old if now - self._entries[s].born < UNAUTHORISED_S]
        self._give_up_at = min(rest, default=float("inf"))
        return [Count("not_authorised_dropped", len(gone)), *self._forget(gone)] if gone else []

    def _set_aside(self, sequences: Sequence[int], now: float) -> tuple[list[int], list[Effect]]:
        """Entries that can be sealed now; the others wait for a review, counted once."""
        ready, effects = [], list[Effect]()
        for sequence in sequences:
            entry = self._entries[sequence]
            why = self.sealer.hindrance(entry, now)
            if why is None:
                self._waiting.pop(sequence, None)
                ready.append(sequence)
                continue
            unauthorised = why == "not_authorised"
            if self._waiting.get(sequence) is not unauthorised:
                effects.append(Count(why))
            self._waiting[sequence] = unauthorised
            if unauthorised:
                self._give_up_at = min(self._give_up_at, entry.born + UNAUTHORISED_S)
        return ready, effects

    # -------------------------------------------------------------------------------------------- sending

    def _pump(self, now: float) -> list[Effect]:
        """Fill every open window, in order; seal what is sent for the first time, a batch a signature."""
        effects: list[Effect] = []
        if self.sealer.review_due(now) or now >= self._give_up_at:
            effects += self._review(now)
        sendable: list[tuple[str, int]] = []
        lanes = deque(self._lanes.within_lead(self._enough, len(self._entries)))
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
        unsealable, counted = self.sealer.seal([self._entries[s] for s in unsealed], now)
        effects += [*self._forget(unsealable), *counted]
        return {entry.sequence for entry in there if entry.wire is not None}, effects

    def _send(self, peer: str, entry: Entry, now: float) -> Send:
        wire, key = entry.wire, entry.key
        assert wire is not None
        if key is not None and (wire.retain or key.announcement_due(peer, wire.topic, now)):
            carried = key.carried(self._view.place_of(peer))
            wire = Wire(wire.topic, wire.payload, wire.qos, wire.retain, wire.properties + carried)
        return Send(peer, wire, entry.sequence)


def _sweep_at(left: int) -> int:
    """The number of entries at which the next sweep pays off when `left` remained after the last."""
    return max(left, STRAGGLER_ENTRIES_MAX) + max(1, STRAGGLER_ENTRIES_MAX // 8)
