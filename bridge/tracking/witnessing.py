"""The belief about an entity that several witnesses trace: no more than a majority of them says (B9).

Each witness reports one of four *levels*, in this order: alive, suspected, disconnected, failed. A witness reporting a
worse level supports the levels before, except alive; only a sign of life takes a level back. The belief is the
*median*: with n = 2f + 1 witnesses it never lies outside the reports of the honest ones, whatever f liars report. A
witness that has not spoken, is silent for `SILENT_S`, or changes its mind too often counts as if it reported the
present belief, so that its silence changes nothing: a belief changes only when k = f + 1 witnesses want the change.

The tokens the entity signed (`keys.delegation.Seat`) name the witnesses and their number. Tokens of former witnesses,
and older tokens of the same witness, do not count. The entity signs its own word itself (`keys.ownword`: states, load,
going silent): a witness is enough to bring the word, and no witness need be believed. Not here: signatures (`keys`),
an entity with a witness, whose word is believed (`tracker`).
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

SILENT_S = 3 * GAUGE_EVERY_S  # a witness asks for interest every 30 s; after three missed questions it counts no longer
FLAPS_MAX = 4  # times that a witness may take a suspicion back ...
FLAPS_S = 60.0  # ... in this time; above that the witness is not counted until it is steady
AHEAD_MAX = 3  # heartbeats that one witness may be ahead of the others


class Level(IntEnum):
    """A level of health witnessing report, better ones first."""

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
_ROUNDS = (TraceKind.ALLS_WELL, TraceKind.NETWORK_METRICS)  # repeated words: told once for all witnesses


@dataclass(frozen=True, slots=True)
class Belief:
    """The present word of a majority. `fields`: the values the majority agrees on, medians of numbers; `witnesses`:
    those who agree; `of`: the number of witnesses; `after`: the former belief.
    """

    kind: TraceKind
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Opinion:
    """The last word of a witness. `level` None: no word yet. `dissents`: the word differs from the belief. `counts`:
    the word is counted, since the witness is neither silent nor fickle.
    """

    witness: int
    level: Level | None
    said_ms: int
    counts: bool
    dissents: bool


@dataclass(slots=True)
class _Witness:
    """The state of a witness. `said`: the last word of each kind. `ahead`: heartbeats and metrics not yet told."""

    period_ms: int = -1  # the beginning of its token
    order: tuple[int, int] = (-1, 0)  # the last word about health: beginning of its token, its number
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
    """The witnesses of an entity, as a single tracker hears them. Callers hand over verified words only."""

    def __init__(self, wall: Wall | None = None) -> None:
        self._wall = wall or Wall()
        self.believed: Level | None = None
        self._since_ms = -1
        self._until_ms = -1  # the end of the last token of these witnesses
        self._witnesses: list[_Witness] = []
        self._own = {"state": 0, "load": 0}  # the highest number of the entity's own words
        self._silent_ms = -1  # the time at which the entity said that it goes silent

    @property
    def size(self) -> int:
        return len(self._witnesses)

    def seat(self, token: Token, now: float) -> int:
        """Returns the number of the witness that signed a valid trace. Raises Replayed for a replaced witness,
        BadContent.
        """
        if not self._replaces(token, now):
            if token.seat is None and self.size == 1:
                return 0
            raise Replayed("a token of witnesses that the entity has replaced")
        size = 1 if token.seat is None else token.seat.witnesses
        if token.since_ms > self._since_ms or size != self.size:
            if token.since_ms == self._since_ms:
                raise BadContent("an entity that names two numbers of witnesses at once")
            self._replace_witnesses(token.since_ms, size)
        self._until_ms = max(self._until_ms, token.not_after_ms)
        index = 0 if token.seat is None else token.seat.witness
        witness = self._witnesses[index]
        if size > 1 and token.not_before_ms < witness.period_ms:
            raise Replayed("an older token of a witness that has a newer one")
        witness.period_ms = max(witness.period_ms, token.not_before_ms)
        witness.heard_at = now
        return index

    def _replaces(self, token: Token, now: float) -> bool:
        """Returns True if the token names the present witnesses or later ones. Once all tokens of the present witnesses
        have ended, an earlier naming counts too: the entity's clock may have gone back.
        """
        if token.since_ms < self._since_ms and self._wall.ms(now) > self._until_ms:
            self._since_ms = self._until_ms = -1
        return token.since_ms >= self._since_ms

    def _replace_witnesses(self, since_ms: int, size: int) -> None:
        """Replaces the witnesses. The belief stays until a majority of the new witnesses wants another."""
        self._since_ms = since_ms
        if size == self.size == 1:
            return  # the next token of the only witness
        self._until_ms = -1
        self._witnesses = [_Witness() for _ in range(size)]
        self._own = dict.fromkeys(self._own, 0)
        self._silent_ms = -1

    @property
    def silent_at(self) -> float:
        """The time at which a majority of the witnesses was not heard for `SILENT_S`."""
        return sorted(each.heard_at for each in self._witnesses)[self.size // 2] + SILENT_S if self.size else 0.0

    # ----------------------------------------------------------------------------------------------- hearing

    def hear(self, token: Token, kind: TraceKind, counter: int, time_ms: int, fields: Mapping[str, Any], now: float
             ) -> Belief | None:  # fmt: skip
        """Takes a verified trace, and returns the belief if it is new. `counter`: the trace's number, which rises in a
        session; `fields` are JSON. Raises Replayed, BadContent.
        """
        index = self.seat(token, now)
        witness = self._witnesses[index]
        level, order = _LEVEL.get(kind), (token.not_before_ms, counter)
        if level in (Level.SUSPECTED, Level.FAILED) and _is_sick(fields):
            return None  # a sick witness says so itself, and repeats the word when it is well
        if token.not_before_ms <= self._silent_ms or (level is not None and order <= witness.order):
            return None  # older than the entity's silence, or a later word came first by another topic
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
        """Returns True if the entity's own word, whose signature is verified, is news."""
        about = "load" if word.kind == TraceKind.LOAD_INFORMATION else "state"
        if word.since_ms != self._since_ms or word.number <= self._own[about]:
            return False
        if word.kind == TraceKind.REVERTING_TO_SILENT_MODE:
            former = [each for each in self._witnesses if 0 <= each.period_ms <= word.time_ms]
            if len(former) <= self.size // 2:
                return False  # a majority got tokens after that, or may have: the word is an old one
            self._silent_ms, self.believed = word.time_ms, None
            for each in former:
                each.level = None
        self._own[about] = word.number
        return True

    def opinions(self, now: float) -> tuple[Opinion, ...]:
        """Returns the opinion of each witness, in order. A witness that differs from the majority is wrong, cut off, or
        lies.
        """
        return tuple(
            Opinion(index, each.level, each.said_ms, each.counts(now), each.level not in (None, self.believed))
            for index, each in enumerate(self._witnesses)
        )

    # ---------------------------------------------------------------------------------------------- believing

    def _median(self, now: float) -> Level | None:
        """Returns the median level. The belief stands in for witnesses that do not count. Without a belief, "alive"
        needs a majority's own words.
        """
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
        """Returns True once a majority said this kind another time: as often as the slowest of the fastest k, not n
        times as often.
        """
        witness.ahead[kind] = min(witness.ahead[kind] + 1, AHEAD_MAX)
        if sorted(each.ahead[kind] for each in self._witnesses)[self.size // 2] < 1:
            return False
        for each in self._witnesses:
            each.ahead[kind] = max(each.ahead[kind] - 1, -1)
        return True

    def _belief(self, kind: TraceKind, now: float) -> Belief:
        """Returns a belief with the field values a majority agrees on."""
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
        """Returns the median of numbers, or the value a majority says; None if there is neither."""
        values = [one[name] for one in said if name in one]
        numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
        if len(numbers) > self.size // 2:
            return median_low(numbers)
        equal = [each for each in values if isinstance(each, str | bool) and values.count(each) > self.size // 2]
        return equal[0] if equal else None
