"""Readings of histories at one gateway: after a long absence, and for clients (docs/protocol-options.md §12).

After an absence a gateway reads on with the streams of the former process; live publications of the scope are dropped
meanwhile, but for keys, and come by the reading. A client's reading begins with nothing known, for the client alone.
Readings of one scope and time are shared. A gap (`gaps`) is read for its stream alone. One reading stands in `replay`,
live publications in `collector`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bridge.contract import (
    Count,
    Deliver,
    Effect,
    Pause,
    ReadAgain,
    ReadAgainDone,
    ReadAgainLive,
    Received,
    Reread,
    Wire,
    earliest,
    number_of,
)
from bridge.document import Overlay, Scope, ScopeSecret, read_wire_topic
from bridge.reader.collector import Collector
from bridge.reader.gaps import Gap
from bridge.reader.kept import ALIVE, LINEAGE, RETAINED, SCOPE, STREAM, WAITING, Rows, of_kind, wire_of
from bridge.reader.past import PastCollector
from bridge.reader.replay import Replay
from bridge.topology import FarWays, asked_of, keeping
from bridge.wire import AGE_S, AHEAD_S, KEYS_TOPIC
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES
from keys.epochs import ScopeKeys
from keys.errors import KeysError
from keys.frames import number

BEHIND = b"t"  # rows: a scope that is read on, and up to when that is done
AWAY_S = 2_400.0  # beyond that replicas may have sent less than all, or ended our session
OVERLAP_S = AGE_S + AHEAD_S  # by so much later than it was sealed a replica may have got something
READINGS_MAX = 8
"""Readings at once, without those whose clients have no room. One owner has as many as it leaves free for others."""
KEPT_WIRES_MAX = 4_096  # that come live in the last lap; beyond that one more lap is run


@dataclass(slots=True, eq=False)
class _Reading:
    """A reading under way. `ids`: numbers of clients' readings; none after an absence. `gap`: the gap it fills."""

    replay: Replay
    past: PastCollector
    ids: list[int] = field(default_factory=list)
    owner: str = ""
    held: set[int] = field(default_factory=set)
    kept: list[Received] = field(default_factory=list)
    parked: list[tuple[bytes, Received]] = field(default_factory=list)  # of a former process, with their rows
    is_told: bool = False
    gap: Gap | None = None


class Readings:
    """The readings of one gateway. `collector`: the live one. `first`: a number above all of former processes."""

    def __init__(
        self,
        overlay: Overlay,
        name: str,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        collector: Collector,
        first: int,
    ) -> None:
        self._overlay, self._name, self._secrets, self._keys = overlay, name, list(secrets), keys
        self._collector, self._number = collector, first
        self._own: dict[int, _Reading] = {}  # by the scope's first number
        self._asked: list[_Reading] = []
        self._gaps: list[_Reading] = []
        self._queue: OrderedDict[int, ReadAgain] = OrderedDict()
        self.up: set[str] = set()
        """The connected replicas of our region."""
        self._turns: OrderedDict[_Reading, None] = OrderedDict()  # those with more to take, the next one first
        self._is_paused = False
        self._cut_since: float | None = None  # since when fewer than k replicas of our region have a link

    def __bool__(self) -> bool:
        return bool(self._own or self._asked or self._queue or self._gaps or self._collector.gaps.fresh)

    @property
    def is_behind(self) -> bool:
        """True after an absence, while live publications of some scope are not taken."""
        return bool(self._own)

    def next_number(self) -> int:
        """Returns a number above all former ones."""
        self._number += 1
        return self._number

    # ---------------------------------------------------------------------------------------- reading on

    def restore(self, rows: Rows, now: float) -> tuple[Rows, list[Effect]]:
        """Begins to read on after a long absence. Returns the rows for the collector."""
        alive = max((int.from_bytes(row) / 1000 for _, row in of_kind(rows, ALIVE)), default=now)
        behind = {int.from_bytes(key): int.from_bytes(row) / 1000 for key, row in of_kind(rows, BEHIND)}
        wanted = {int.from_bytes(key) for key, _ in of_kind(rows, SCOPE) if len(key) == 4}
        effects: list[Effect] = []
        for secret in self._secrets:
            scope = secret.scope
            since = behind.get(scope.stream, alive if scope.stream in wanted else now)
            is_away = scope.stream in behind or now - since > AWAY_S
            if scope.history is None or scope.retiring or not is_away or scope.stream in self._own:
                continue
            effects += self._read_on(scope, since, self._rows_of(scope, rows), now)
            self._own[scope.stream].parked = self._parked(scope, rows)
        parked = {key for reading in self._own.values() for key, _ in reading.parked}
        return [row for row in rows if row[0] not in parked], effects

    def _read_on(self, scope: Scope, since: float, rows: Rows, now: float) -> list[Effect]:
        assert scope.history is not None
        self._collector.gaps.end_of(scope.stream)
        since = max(since - OVERLAP_S, now - scope.history.seconds)
        reading = self._own[scope.stream] = self._reading(scope, since, rows)
        self._collector.kept.put_row(BEHIND + number(scope.stream, 4), number(int((since + OVERLAP_S) * 1000), 8))
        return [*self._begin_reading(reading, now), Count("read_on")]

    def _rows_of(self, scope: Scope, rows: Rows) -> Rows:
        kinds = (LINEAGE, RETAINED, SCOPE)
        streams = [(key, row) for key, row in rows if key[:1] == STREAM and self._is_of(scope, key[17:].decode())]
        return [*((key, row) for key, row in rows if key[:1] in kinds), *streams]

    def _parked(self, scope: Scope, rows: Rows) -> list[tuple[bytes, Received]]:
        found: list[tuple[bytes, Received]] = []
        for key, row in of_kind(rows, WAITING):
            peer, wire, _ = wire_of(row)
            if self._is_of(scope, wire.topic):
                found.append((WAITING + key, Received(peer, wire, True)))
        return found

    def _is_of(self, scope: Scope, topic: str) -> bool:
        try:
            return self._overlay.stream_of(read_wire_topic(topic).scope) == scope.stream
        except KeysError:
            return False

    def instead(self, event: Received, now: float) -> list[Effect] | None:
        """Returns the effects of a wire in a scope being read on; None for wires of the collector."""
        try:
            reading = self._own.get(self._overlay.stream_of(read_wire_topic(event.wire.topic).scope))
        except KeysError:
            return None
        if reading is None:
            return None
        if reading.replay.is_last:
            reading.kept.append(event)
            if len(reading.kept) > KEPT_WIRES_MAX:
                reading.kept.clear()
                reading.replay.is_last = False
        told = tuple([pair for pair in event.wire.properties if pair[0] in (PROPERTY_KEY, PROPERTY_SHARES)])
        return self._collector.take_wire(Received(event.peer, Wire(KEYS_TOPIC, b"", 1, False, told)), now)

    def _fill(self, gap: Gap, now: float) -> list[Effect]:
        """Begins to read a gap, unless its scope is being read on, or not ours any more."""
        self._collector.gaps.fresh.remove(gap)
        is_ours = any(secret.scope.number == gap.scope.number for secret in self._secrets)
        if not is_ours or gap.scope.stream in self._own:
            return self._collector.filled(gap, now)
        rows = self._collector.rows_of(gap.scope.stream, gap.streams)
        reading = self._reading(gap.scope, gap.since, rows, gap)
        self._gaps.append(reading)
        return self._begin_reading(reading, now)

    # ----------------------------------------------------------------------------------- clients' readings

    def read_again(self, asked: ReadAgain, now: float) -> list[Effect]:
        """Begins a reading for a client, or joins an equal reading without deliveries."""
        self._queue[asked.reading] = asked
        return self._from_queue(now)

    def stop(self, reading: int, now: float) -> list[Effect]:
        """Ends an unwanted reading; another one may begin in its place."""
        self._queue.pop(reading, None)
        for each in self._asked:
            if reading in each.ids:
                each.ids.remove(reading)
                each.held.discard(reading)
        self._asked = [each for each in self._asked if each.ids]
        return self._from_queue(now)

    def hold_reading(self, reading: int, is_held: bool, now: float) -> list[Effect]:
        """Stops a reading while the client has no room, or goes on."""
        for each in self._asked:
            if reading in each.ids:
                (each.held.add if is_held else each.held.discard)(reading)
                effects = self._followed(each, each.replay.hold_reading(bool(each.held), now), now)
                return effects + self._from_queue(now)
        return []

    def _from_queue(self, now: float) -> list[Effect]:
        """Begins what need not wait, the owners with fewest readings first."""
        effects: list[Effect] = []
        goes_on = True
        while goes_on:
            active = Counter(each.owner for each in self._asked if not each.held)
            goes_on = False
            for asked in sorted(self._queue.values(), key=lambda each: active[each.owner]):
                begun = self._begun(asked, active, now)
                if begun is not None:
                    del self._queue[asked.reading]
                    effects += begun
                    goes_on = True
                    break
        return effects

    def _begun(self, asked: ReadAgain, active: Counter[str], now: float) -> list[Effect] | None:
        """Returns the effects of a beginning; None if it has to wait. `active`: readings that go on, by owner."""
        scope = self._overlay.scope_numbered(asked.scope)
        if scope is None or scope.history is None or not any(s.scope.number == scope.number for s in self._secrets):
            return [ReadAgainDone(asked.reading, False)]
        since = max(asked.since_ms / 1000, now - scope.history.seconds)
        alike = [each for each in self._asked if each.replay.is_alike(scope, since)]
        if alike:
            alike[0].ids.append(asked.reading)
            return []
        if active[asked.owner] >= READINGS_MAX - active.total():
            return None
        reading = self._reading(scope, since)
        reading.ids, reading.owner = [asked.reading], asked.owner
        self._asked.append(reading)
        return self._begin_reading(reading, now)

    def _reading(self, scope: Scope, since: float, rows: Rows = (), gap: Gap | None = None) -> _Reading:
        home, region = self._overlay.certificate(self._name).region, keeping(self._overlay, self._name, scope)
        past = PastCollector(self._name, scope, self._secrets, self._keys, rows, region)
        only = ((), 0) if gap is None else (gap.publishers, gap.until_ms)
        ways = FarWays(self._overlay, home, region).count
        replay = Replay(self._overlay, self._name, past, scope, since, self.next_number, *only, region, ways)
        return _Reading(replay, past, gap=gap)

    def _begin_reading(self, reading: _Reading, now: float) -> list[Effect]:
        """Begins to ask."""
        home = self._overlay.certificate(self._name).region
        return reading.replay.ask_eras(asked_of(self._overlay, home, reading.replay.home, self.up), now)

    # --------------------------------------------------------------------------------------------- events

    def take_page(self, event: Received, now: float) -> list[Effect]:
        """Takes a page. Raises BadFrame for something else."""
        asked = number_of(event.wire.payload)
        for reading in self._all():
            if reading.replay.answers(event.peer, asked):
                return self._followed(reading, reading.replay.take_page(event, now), now)
        return []  # of a reading that ended, or of a former process

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """Takes a link; after a long time without enough of them this gateway reads on."""
        self.up.add(peer)
        effects = self._each(lambda replay: replay.link_up(peer, now), now)
        if self._cut_since is None or self._is_cut_off:
            return effects
        since, self._cut_since = self._cut_since, None
        for secret in self._secrets if now - since > AWAY_S else ():
            scope = secret.scope
            if scope.history is None or scope.retiring or scope.stream in self._own:
                continue
            if self._collector.subscriptions.is_wanted(scope.stream):
                rows = self._collector.rows_of(scope.stream)
                effects += self._read_on(scope, since, rows, now)
        return effects

    @property
    def _is_cut_off(self) -> bool:
        view = self._overlay.views[self._overlay.certificate(self._name).region]
        return len(self.up.intersection(view.members)) < view.threshold

    def link_down(self, peer: str, now: float) -> None:
        self.up.discard(peer)
        if self._cut_since is None and self._is_cut_off:
            self._cut_since = now
        for reading in self._all():
            reading.replay.link_down(peer)

    def keys_changed(self, now: float) -> list[Effect]:
        return self._each(lambda replay: replay.keys_changed(now), now)

    def adopt_overlay(self, overlay: Overlay, secrets: Sequence[ScopeSecret], now: float) -> list[Effect]:
        """Takes another version of the overlay in force."""
        self._overlay, self._secrets = overlay, list(secrets)
        for reading in self._all():
            reading.past.secrets = self._secrets
        return self._each(lambda replay: replay.adopt_overlay(overlay, now), now)

    def tick(self, now: float) -> list[Effect]:
        begun = [effect for gap in tuple(self._collector.gaps.fresh) for effect in self._fill(gap, now)]
        return begun + self._each(lambda replay: replay.tick(now), now)

    def go_on(self, now: float) -> list[Effect]:
        """Gives one reading with more to take a turn, which is one publication."""
        self._is_paused = False
        if not self._turns:
            return []
        reading, _ = self._turns.popitem(last=False)
        if reading not in self._all():
            return self._more()
        return self._followed(reading, reading.replay.go_on(now), now)

    def _more(self) -> list[Effect]:
        """Returns the wish for a turn, once until it comes."""
        if not self._turns or self._is_paused:
            return []
        self._is_paused = True
        return [Pause()]

    @property
    def next_deadline(self) -> float | None:
        if not self:
            return None
        if self._collector.gaps.fresh:
            return 0.0
        return earliest(*(reading.replay.next_deadline for reading in self._all()))

    def _all(self) -> list[_Reading]:
        if self._gaps:
            self._gaps = [each for each in self._gaps if each.gap is not None and not each.gap.is_over]
        return [*self._own.values(), *self._asked, *self._gaps]

    def _each(self, act: Callable[[Replay], list[Effect]], now: float) -> list[Effect]:
        return [effect for reading in self._all() for effect in self._followed(reading, act(reading.replay), now)]

    def _followed(self, reading: _Reading, effects: list[Effect], now: float) -> list[Effect]:
        """Returns what follows from effects of a reading, and the wish for its next turn."""
        effects = self._settled(reading, effects, now)
        if reading.replay.has_more:
            self._turns.setdefault(reading)
        return effects + self._more()

    def _settled(self, reading: _Reading, effects: list[Effect], now: float) -> list[Effect]:
        """Returns the effects of a reading for the right receivers, and the effects of an end."""
        replay = reading.replay
        if reading.gap is not None:
            self._collector.fills(reading.gap, reading.past.changed_streams())
            return effects + self._collector.filled(reading.gap, now) if replay.is_done else effects
        if reading.ids:
            ids = tuple(reading.ids)
            if delivers := tuple([each for each in effects if isinstance(each, Deliver)]):
                effects = [*(each for each in effects if not isinstance(each, Deliver)), Reread(ids, delivers)]
            reading.past.changed_streams()
            if replay.is_last and not reading.is_told:
                reading.is_told = True
                effects += [ReadAgainLive(each) for each in ids]
            if replay.is_done and reading in self._asked:
                self._asked.remove(reading)
                effects += [ReadAgainDone(each, not replay.is_denied) for each in ids]
                effects += self._from_queue(now)
            return effects
        stream, kept = replay.scope.stream, self._collector.kept
        if stream not in self._own:
            return effects
        changed = reading.past.changed_streams()
        if changed and not replay.laps:
            kept.put_row(BEHIND + number(stream, 4), number(int(replay.clock * 1000), 8))
        kept.streams.update(changed)
        if replay.is_done:
            del self._own[stream]
            self._collector.goes_on(reading.past.streams())
            kept.drop_row(BEHIND + number(stream, 4))
            for key, event in reading.parked:
                kept.drop_row(key)
                effects += self._collector.take_wire(event, now)
            for event in reading.kept:
                effects += self._collector.take_wire(event, now)
        return effects
