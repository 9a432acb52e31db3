"""Covers: the part of its clients' predicates a reader shows to replicas, so that they leave out unwanted data.

A cover matches whenever one of the predicates does, by the attributes that publications *show* (`shown_lists`):
comparisons of hidden attributes are dropped, constants become buckets or tokens. So a replica leaves out nothing that
is wanted, and the gateway filters exactly. No cover, None, wants the whole scope; a cover without conjunctions wants
only retained publications.

    count(1) and each conjunction: count(1) and each comparison: name: parts(1), texts; operator(1); value
    (docs/protocol.md §9.15)

Not here: statements, which carry covers (`statements`), predicates themselves (`bridge.predicates`). Paper item C10.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import replace

from bridge.document import Scope, ScopeSecret, ShownAttribute
from bridge.predicates import Comparison, Conjunction, Name, Op, Predicate, PredicateIndex, slots_of, widen
from bridge.predicates.covering import COVER_MAX
from bridge.wire.shown_lists import TEXT_BUCKET, ShownList, read_value, token, value_bytes
from keys.errors import BadFrame
from keys.frames import Reader, number, text

COVER_BYTES = 8 << 10
COMPARISONS_MAX = 32
"""Comparisons of one conjunction of a cover."""
_OPS = tuple(Op)


def cover_of(predicates: Iterable[Predicate | None], secret: ScopeSecret) -> Predicate | None:
    """Returns the cover of clients' predicates in a scope. None: they want all of it."""
    declared = {each.name: each for each in secret.scope.shown}
    shown: list[Predicate] = []
    for predicate in predicates:
        found = None if predicate is None or not declared else _shown(predicate, declared, secret.token_key)
        if found is None:
            return None
        shown.append(found)
    for most in (COVER_MAX, COVER_MAX // 4):
        cover = widen(shown, most)
        if all(cover.conjunctions) and _is_short(cover):
            return cover
    return None


def _is_short(cover: Predicate) -> bool:
    return max(map(len, cover.conjunctions), default=0) <= COMPARISONS_MAX and len(encode_cover(cover)) <= COVER_BYTES


def _shown(predicate: Predicate, declared: dict[Name, ShownAttribute], token_key: bytes | None) -> Predicate | None:
    conjunctions: list[Conjunction] = []
    for conjunction in predicate.conjunctions:
        said = (_shown_comparison(declared.get(one.name), one, token_key) for one in conjunction)
        kept = tuple(one for one in said if one is not None)
        if not kept:
            return None
        conjunctions.append(kept)
    return Predicate(tuple(conjunctions))


def _shown_comparison(declared: ShownAttribute | None, one: Comparison, token_key: bytes | None) -> Comparison | None:
    """Returns the comparison by shown values; None if nothing of it is shown."""
    if declared is None:
        return None
    if declared.borders:
        bucketed = _bucketed(declared.borders, one)
        if bucketed is None:
            return None
        one = bucketed
    if not declared.is_token:
        return replace(one, name=declared.shown_name)
    if one.op is not Op.EQ:
        return None
    return Comparison(declared.shown_name, Op.EQ, token(declared.name, one.value, token_key))


def _bucketed(borders: tuple[float, ...], one: Comparison) -> Comparison | None:
    if one.op is Op.NE:
        return None
    if not isinstance(one.value, float):
        return Comparison(one.name, Op.EQ, TEXT_BUCKET)
    bucket = float(bisect_right(borders, one.value))
    match one.op:
        case Op.EQ:
            return Comparison(one.name, Op.EQ, bucket)
        case Op.GT | Op.GE:
            return Comparison(one.name, Op.GE, bucket)
        case Op.LE:
            return Comparison(one.name, Op.LE, bucket)
    return Comparison(one.name, Op.LE, float(bisect_left(borders, one.value)))  # below a border, its own bucket is not


def encode_cover(cover: Predicate) -> bytes:
    """Encodes the cover in the form the module's head gives."""
    parts = [number(len(cover.conjunctions), 1)]
    for conjunction in cover.conjunctions:
        parts.append(number(len(conjunction), 1))
        for one in conjunction:
            parts += [number(len(one.name), 1), *map(text, one.name), number(_OPS.index(one.op), 1)]
            parts.append(value_bytes(one.value))
    return b"".join(parts)


def decode_cover(data: bytes) -> Predicate:
    """Reads the result of `encode_cover`, within its bounds. Raises BadFrame for anything else."""
    reader = Reader(data)
    count = reader.number(1)
    if len(data) > COVER_BYTES or count > COVER_MAX:
        raise BadFrame(f"a cover of {count} alternatives in {len(data)} bytes")
    conjunctions = tuple(_read_conjunction(reader) for _ in range(count))
    reader.expect_end()
    return Predicate(conjunctions)


def _read_conjunction(reader: Reader) -> Conjunction:
    count = reader.number(1)
    if not 1 <= count <= COMPARISONS_MAX:
        raise BadFrame(f"a cover compares {count} times")
    found = []
    for _ in range(count):
        name = tuple(reader.text() for _ in range(reader.number(1)))
        op, value = reader.number(1), read_value(reader)
        if not name or op >= len(_OPS) or value is None or (_OPS[op].is_range and not isinstance(value, float)):
            raise BadFrame("a cover compares what cannot be compared")
        found.append(Comparison(name, _OPS[op], value))
    return tuple(found)


class ScopeCovers:
    """The covers of members wanting a single scope; a member without cover wants everything."""

    def __init__(self, scope: Scope) -> None:
        self._declared = frozenset(each.shown_name for each in scope.shown)
        self._index = PredicateIndex()
        self._slots: dict[str, tuple[int, ...]] = {}
        self._members: dict[int, str] = {}
        self._all = 0

    def __len__(self) -> int:
        """Returns the number of members with a cover."""
        return len(self._slots)

    def put_cover(self, member: str, cover: Predicate | None) -> None:
        """Sets a member's cover. A cover of names the scope does not show here counts as none."""
        for slot in (slots := self._slots.pop(member, ())):
            del self._members[slot]
            self._all ^= 1 << slot
        self._index.remove(slots)
        if cover is None or not self._index.has_room([cover]):
            return
        names = frozenset(one.name for conjunction in cover.conjunctions for one in conjunction)
        if not names <= self._declared:
            return
        slots = self._slots[member] = self._index.add(cover)
        for slot in slots:
            self._members[slot] = member
            self._all |= 1 << slot

    def left_out(self, shown: ShownList) -> frozenset[str]:
        """Returns the members whose covers fit none of the rows."""
        if not self._slots or not self._declared <= shown.names:  # sealed before the owner declared another
            return _NOBODY
        missing = self._all
        for row in shown.rows:
            missing ^= self._index.match(row, missing)
            if not missing:
                break
        wanted = {self._members[slot] for slot in slots_of(self._all ^ missing)}
        return frozenset(self._slots.keys() - wanted)


_NOBODY: frozenset[str] = frozenset()
