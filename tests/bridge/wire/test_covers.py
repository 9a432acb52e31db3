"""Covers: whatever somebody wants, they hold for; replicas leave out what they do not hold for, and no more."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.document import Scope, ScopeSecret, ShownAttribute
from bridge.predicates import Comparison, Op, Predicate, Value, parse_where
from bridge.wire import ShownList, cover_of, read_list, shown_list
from bridge.wire.covers import COVER_BYTES, ScopeCovers, decode_cover, encode_cover
from keys.errors import BadFrame
from tests.bridge.predicates import drawn

pytestmark = pytest.mark.invariant(37)

KEY = bytes(range(32))
DECLARED = st.sampled_from(
    [
        (ShownAttribute(("a",)), ShownAttribute(("payload", "c"))),
        (ShownAttribute(("a",), True), ShownAttribute(("b",))),
        (ShownAttribute(("a",), False, (0.0, 1.0, 1.5, 3.0)), ShownAttribute(("payload", "d", "e"), True, (1.0,))),
    ]
)


def secret_of(declared: tuple[ShownAttribute, ...]) -> ScopeSecret:
    return ScopeSecret(Scope("plant/#", shown=declared), "plant/#", KEY)


NEVER = Predicate(((Comparison(("a",), Op.EQ, 1.0), Comparison(("a",), Op.EQ, 2.0)),))


@settings(max_examples=100)
@example((ShownAttribute(("a",)),), [NEVER], [{("a",): 1.0}])
@given(DECLARED, st.lists(drawn.predicates, min_size=1, max_size=5), st.lists(drawn.attributes, min_size=1, max_size=4))
def test_nothing_that_somebody_wants_is_left_out(
    declared: tuple[ShownAttribute, ...], predicates: list[Predicate], records: list[dict[tuple[str, ...], Value]]
) -> None:
    secret = secret_of(declared)
    cover = cover_of(predicates, secret)
    frame = shown_list(secret, records)  # type: ignore[arg-type]
    assert frame is not None
    shown = read_list(frame, hashlib.sha256(frame).digest())
    covers = ScopeCovers(secret.scope)
    if cover is not None:
        cover = decode_cover(encode_cover(cover))
    covers.put_cover("reader", cover)
    is_wanted = any(predicate.holds_for(record) for predicate in predicates for record in records)
    left_out = covers.left_out(shown)
    assert not (is_wanted and "reader" in left_out)
    fits = cover is None or any(cover.holds_for(row) for row in shown.rows)
    assert ("reader" in left_out) is not fits, "the index says what the cover says"


ROOM = secret_of((ShownAttribute(("room",)),))


def rows(*rooms: str) -> ShownList:
    return ShownList(frozenset({("room",)}), tuple({("room",): room} for room in rooms))


def test_members_come_and_go_and_change_their_minds() -> None:
    covers = ScopeCovers(ROOM.scope)
    covers.put_cover("one", parse_where("room = 'attic' OR room = 'hall'"))
    covers.put_cover("two", parse_where("room = 'attic'"))
    assert covers.left_out(rows("hall", "cellar")) == {"two"}
    assert covers.left_out(rows("cellar")) == {"one", "two"}
    covers.put_cover("one", None)
    assert covers.left_out(rows("cellar")) == {"two"}
    covers.put_cover("two", parse_where("room = 'cellar'"))
    assert covers.left_out(rows("cellar")) == frozenset()
    assert len(covers) == 1


def test_what_is_of_another_declaration_leaves_nobody_out() -> None:
    covers = ScopeCovers(ROOM.scope)
    covers.put_cover("one", parse_where("door = 'attic'"))
    assert covers.left_out(rows("cellar")) == frozenset(), "the scope shows no such name here"
    covers.put_cover("one", parse_where("room = 'attic'"))
    assert covers.left_out(ShownList(frozenset(), ({},))) == frozenset(), "the publisher shows another"


def test_who_wants_everything_or_what_nobody_shows_has_no_cover() -> None:
    attic = parse_where("room = 'attic'")
    assert cover_of([attic, None], ROOM) is None
    assert cover_of([attic, parse_where("owner = 'me'")], ROOM) is None
    assert cover_of([attic], secret_of(())) is None
    assert cover_of([attic, parse_where("room = 'attic' AND owner = 'me'")], ROOM) == attic


def test_many_predicates_become_few_that_fit_a_statement() -> None:
    long = [parse_where(f"room = '{n}{'x' * 900}'") for n in range(60)]
    assert cover_of(long, ROOM) is None
    heat = secret_of((ShownAttribute(("t",)),))
    many = cover_of([parse_where(f"t > {n} AND t < {n + 0.5}") for n in range(200)], heat)
    assert many is not None
    assert len(many.conjunctions) <= 64
    assert len(encode_cover(many)) <= COVER_BYTES


@pytest.mark.parametrize(
    "cover",
    [
        Predicate(((),)),
        Predicate(((Comparison((), Op.EQ, "x"),),)),
        Predicate(((Comparison(("a",), Op.GT, "x"),),)),
        Predicate(((Comparison(("a",), Op.EQ, float("nan")),),)),
        Predicate(tuple((Comparison(("a",), Op.EQ, float(n)),) for n in range(65))),
        Predicate((tuple(Comparison(("a",), Op.NE, float(n)) for n in range(33)),)),
        Predicate(tuple((Comparison(("a",), Op.EQ, "x" * 200 + str(n)),) for n in range(60))),
    ],
)
def test_what_no_reader_states_is_refused(cover: Predicate) -> None:
    with pytest.raises(BadFrame):
        decode_cover(encode_cover(cover))


def test_a_cover_has_no_other_form() -> None:
    frame = encode_cover(parse_where("room = 'attic'"))
    for bad in (frame + b"\0", frame[:-1], frame.replace(b"room\0", b"room\6"), frame.replace(b"\0\2\0", b"\0\0\0")):
        with pytest.raises(BadFrame):
            decode_cover(bad)
