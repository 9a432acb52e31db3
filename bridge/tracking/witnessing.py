"""What is believed of an entity that several witnesses trace: no more than a majority of them says (B9).

Each witness says one of four *levels*, in this order: alive, suspected, disconnected, failed. Whoever says a worse one
supports those before it, except alive; only a sign of life takes a level back. Believed is the *median*: with
n = 2f + 1 witnesses it never lies outside what the honest ones say, whatever f others do. A witness that has not
spoken, is silent for `SILENT_S`, or changes its mind too often counts as if it said what is believed already, so that
its silence changes nothing: a belief changes only when k = f + 1 witnesses want it so.

Who the witnesses are, and how many, is in the tokens that the entity signed (`keys.delegation.Seat`). Tokens of
witnesses that were named before, and older tokens of the same one, do not count. What the entity says of itself
(states, load, that it goes silent) it signs itself (`keys.ownword`): one witness is enough, and none need be believed.
Not here: signatures (`keys`), an entity with one witness, whose word is believed (`tracker`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from statistics import median_low
from typing import Any

from bridge.base import Wall
from bridge.traces.kinds import GAUGE_EVERY_S, TraceKind
from bridge.traces.self_health import SICK
from keys.delegation import Token
from keys.errors import BadContent, Replayed
from keys.ownword import OwnWord

SILENT_S = 3 * GAUGE_EVERY_S  # a witness asks for interest every 30 s; one that missed three times counts no longer
FLAPS_MAX = 4  # times that a witness may take a suspicion back ...
FLAPS_S = 60.0  # ... in so long; one that does so more often is not counted until it is steady again
AHEAD_MAX = 3  # heartbeats that one witness may be ahead of the others


class Level(IntEnum):
    """What is said of an entity, better ones first."""

    ALIVE = 0
    SUSPECTED = 1
    DISCONNECTED = 2
    FAILED = 3


_LEVEL = {
    TraceKind.JOIN: Level.ALIVE,
    TraceKind.ALLS_WELL: Level.ALIVE,
    TraceKind.FAILURE_SUSPICION: Level.SUSPECTED,
    TraceKind.DISCONNECT: Level.DISCONNECTED,
    TraceKind.FAILED: Level.FAILED,
}
_TOLD_AS = {
    Level.ALIVE: TraceKind.ALLS_WELL,
    Level.SUSPECTED: TraceKind.FAILURE_SUSPICION,
    Level.DISCONNECTED: TraceKind.DISCONNECT,
    Level.FAILED: TraceKind.FAILED,
}
_ROUNDS = (TraceKind.ALLS_WELL, TraceKind.NETWORK_METRICS)  # said again and again: told once for all witnesses


@dataclass(frozen=True, slots=True)
class Belief:
    """What a majority says now. `fields`: what it agrees on, medians of numbers; in `witnesses` who says so, in `of`
    how many there are, in `after` what was believed before."""

    kind: TraceKind
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one witness says last. `level` None: nothing yet. `dissents`: from what is believed. `counts`: whether its
    word is one of those that are counted, for it is neither silent nor fickle."""

    witness: int
    level: Level | None
    said_ms: int
    counts: bool
    dissents: bool


@dataclass(slots=True)
class _Witness:
    """`said`: the last word of each kind. `ahead`: heartbeats and metrics that were not told yet."""

    period_ms: int = -1  # when its token began
    order: tuple[int, int] = (-1, 0)  # of the last word about health: when its token began, its number
    level: Level | None = None
    said_ms: int = 0
    heard_at: float = float("-inf")
    said: dict[TraceKind, Mapping[str, Any]] = field(default_factory=dict)
    ahead: Counter[TraceKind] = field(default_factory=Counter)
    relented: deque[float] = field(default_factory=lambda: deque(maxlen=FLAPS_MAX))

    def counts(self, now: float) -> bool:
        fickle = len(self.relented) == FLAPS_MAX and now - self.relented[0] < FLAPS_S
        return self.level is not None and now - self.heard_at <= SILENT_S and not fickle


def _is_sick(fields: Mapping[str, Any]) -> bool:
    score = fields.get("sick")
    return isinstance(score, int | float) and score >= SICK


class Panel:
    """The witnesses of one entity, as one tracker hears them. Whatever is handed over here was verified."""

    def __init__(self, wall: Wall | None = None) -> None:
        self._wall = wall or Wall()
        self.believed: Level | None = None
        self._since_ms = -1
        self._until_ms = -1  # when the last token of these witnesses ends
        self._witnesses: list[_Witness] = []
        self._own = {"state": 0, "load": 0}  # the highest number of what the entity said of itself
        self._silent_ms = -1  # when it said that it goes silent

    @property
    def size(self) -> int:
        return len(self._witnesses)

    def seat(self, token: Token, now: float) -> int:
        """Which witness speaks, in a trace that holds. Raises Replayed for one that was replaced, BadContent."""
        if not self._replaces(token, now):
            if token.seat is None and self.size == 1:
                return 0
            raise Replayed("a token of witnesses that the entity has replaced")
        size = 1 if token.seat is None else token.seat.witnesses
        if token.since_ms > self._since_ms or size != self.size:
            if token.since_ms == self._since_ms:
                raise BadContent("an entity that names two numbers of witnesses at once")
            self._name(token.since_ms, size)
        self._until_ms = max(self._until_ms, token.not_after_ms)
        index = 0 if token.seat is None else token.seat.witness
        witness = self._witnesses[index]
        if size > 1 and token.not_before_ms < witness.period_ms:
            raise Replayed("an older token of a witness that has a newer one")
        witness.period_ms = max(witness.period_ms, token.not_before_ms)
        witness.heard_at = now
        return index

    def _replaces(self, token: Token, now: float) -> bool:
        """Whether the token is of the witnesses that we know, or of later ones. Once all their tokens have ended, a
        clock of the entity's that went back is no reason to refuse it for ever."""
        if token.since_ms < self._since_ms and self._wall.ms(now) > self._until_ms:
            self._since_ms = self._until_ms = -1
        return token.since_ms >= self._since_ms

    def _name(self, since_ms: int, size: int) -> None:
        """Others are witnesses from now on. What is believed stays until a majority of them wants it otherwise."""
        self._since_ms = since_ms
        if size == self.size == 1:
            return  # the next token of the only one
        self._until_ms = -1
        self._witnesses = [_Witness() for _ in range(size)]
        self._own = dict.fromkeys(self._own, 0)
        self._silent_ms = -1

    @property
    def silent_at(self) -> float:
        """When too little was heard for too long: of a majority of the witnesses anything at all."""
        return sorted(each.heard_at for each in self._witnesses)[self.size // 2] + SILENT_S if self.size else 0.0

    # ----------------------------------------------------------------------------------------------- hearing

    def hear(self, token: Token, kind: TraceKind, counter: int, time_ms: int, fields: Mapping[str, Any], now: float
             ) -> Belief | None:  # fmt: skip
        """What is believed now and was not told before. `counter`: the trace's number, which rises in a session; fields
        are JSON. Raises Replayed, BadContent."""
        index = self.seat(token, now)
        witness = self._witnesses[index]
        level, order = _LEVEL.get(kind), (token.not_before_ms, counter)
        if level in (Level.SUSPECTED, Level.FAILED) and _is_sick(fields):
            return None  # it says itself that it does badly, and says this again when it is well
        if token.not_before_ms <= self._silent_ms or (level is not None and order <= witness.order):
            return None  # of before the entity went silent; or a later word came first, by another topic
        witness.said[kind] = fields
        if level is not None:
            witness.order, witness.said_ms = order, time_ms
            if level is Level.ALIVE and witness.level not in (None, Level.ALIVE):
                witness.relented.append(now)
            witness.level = level if level is Level.ALIVE else max(witness.level or level, level)
        before, self.believed = self.believed, self._median(now)
        if self.believed is not before:
            return self._changed(kind, before, now)
        if kind in _ROUNDS and "after" not in fields and self._round(witness, kind):
            return self._belief(kind, now)
        return None

    def own(self, word: OwnWord) -> bool:
        """Whether what the entity says of itself is news. Its signature holds."""
        about = "load" if word.kind == TraceKind.LOAD_INFORMATION else "state"
        if word.since_ms != self._since_ms or word.number <= self._own[about]:
            return False
        if word.kind == TraceKind.REVERTING_TO_SILENT_MODE:
            former = [each for each in self._witnesses if 0 <= each.period_ms <= word.time_ms]
            if len(former) <= self.size // 2:
                return False  # a majority was let speak after that, or may have been: somebody brings an old word
            self._silent_ms, self.believed = word.time_ms, None
            for each in former:
                each.level = None
        self._own[about] = word.number
        return True

    def opinions(self, now: float) -> tuple[Opinion, ...]:
        """Of each witness, in order: who differs from the majority is wrong, cut off, or lies."""
        return tuple(
            Opinion(index, each.level, each.said_ms, each.counts(now), each.level not in (None, self.believed))
            for index, each in enumerate(self._witnesses)
        )

    # ---------------------------------------------------------------------------------------------- believing

    def _median(self, now: float) -> Level | None:
        """What is believed of those who do not count stands in for their word. Of nothing, nobody says "alive"."""
        filler = self.believed or Level.ALIVE
        counted = [each.level for each in self._witnesses if each.level is not None and each.counts(now)]
        levels = sorted(counted + [filler] * (self.size - len(counted)))
        found = levels[self.size // 2]
        if self.believed is None and found is Level.ALIVE and counted.count(Level.ALIVE) <= self.size // 2:
            return None
        return found

    def _changed(self, kind: TraceKind, before: Level | None, now: float) -> Belief:
        assert self.believed is not None
        for each in self._witnesses:
            each.ahead.clear()
        told = _TOLD_AS[self.believed]
        if self.believed is Level.ALIVE and kind is TraceKind.JOIN:
            told = kind
        belief = self._belief(told, now)
        return belief if before is None else replace(belief, fields={**belief.fields, "after": before.name.lower()})

    def _round(self, witness: _Witness, kind: TraceKind) -> bool:
        """Whether a majority said it once more: as often as the slowest of the fastest k, not n times as often."""
        witness.ahead[kind] = min(witness.ahead[kind] + 1, AHEAD_MAX)
        if sorted(each.ahead[kind] for each in self._witnesses)[self.size // 2] < 1:
            return False
        for each in self._witnesses:
            each.ahead[kind] = max(each.ahead[kind] - 1, -1)
        return True

    def _belief(self, kind: TraceKind, now: float) -> Belief:
        """With what a majority agrees on of what was said of it."""
        level = _LEVEL.get(kind)
        counted = [(index, each) for index, each in enumerate(self._witnesses) if each.counts(now)]
        if level is None:
            saying = [(index, each) for index, each in counted if kind in each.said]
        else:
            saying = [(i, e) for i, e in counted if e.level is level or (e.level or level) > level > Level.ALIVE]
        said = [each.said[kind] for _, each in saying if kind in each.said]
        fields = {
            name: found
            for name in sorted({n for one in said for n in one})
            if (found := self._agreed(name, said)) is not None
        }
        return Belief(kind, {**fields, "witnesses": [index for index, _ in saying], "of": self.size})

    def _agreed(self, name: str, said: Sequence[Mapping[str, Any]]) -> Any:
        """The median of numbers, or what a majority says; None for neither."""
        values = [one[name] for one in said if name in one]
        numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
        if len(numbers) > self.size // 2:
            return median_low(numbers)
        equal = [each for each in values if isinstance(each, str | bool) and values.count(each) > self.size // 2]
        return equal[0] if equal else None
