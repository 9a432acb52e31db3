"""Lists of attributes: what they show, and what is refused."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.document import Scope, ScopeSecret, ShownAttribute
from bridge.predicates import Attributes
from bridge.wire import read_list, shown_list
from bridge.wire.shown_lists import LIST_BYTES, ROWS_MAX, SHOWN_TEXT_BYTES, TEXT_BUCKET, shown_value, token
from keys.errors import BadFrame
from keys.frames import Kind

ROOM, HEAT = ShownAttribute(("room",)), ShownAttribute(("payload", "t"), False, (0.0, 20.0))
WHO = ShownAttribute(("who",), True)
KEY = bytes(range(32))
SECRET = ScopeSecret(Scope("plant/#", shown=(ROOM, HEAT, WHO)), "plant/#", KEY)


def digest(frame: bytes) -> bytes:
    return hashlib.sha256(frame).digest()


def record(room: str | None = None, heat: str | None = None, who: str | None = None) -> Attributes:
    user = [(name, value) for name, value in (("room", room), ("who", who)) if value is not None]
    return Attributes((*user, ("owner", "unseen")), b"{}" if heat is None else b'{"t": %s, "u": 7}' % heat.encode())


def test_a_list_has_each_combination_once_and_nothing_that_is_not_declared() -> None:
    frame = shown_list(SECRET, [record("hall", "21"), record("hall", "35"), record(who="me"), record("3")])
    assert frame is not None
    shown = read_list(frame, digest(frame))
    assert shown.names == {each.shown_name for each in SECRET.scope.shown}
    room, heat, who = (each.shown_name for each in SECRET.scope.shown)
    mine = token(("who",), "me", KEY)
    assert list(shown.rows) == [{room: "hall", heat: 2.0}, {who: mine}, {room: 3.0}], "21 and 35 are in one bucket"
    assert b"unseen" not in frame
    assert b"me" not in frame


def test_tokens_tell_only_what_is_equal() -> None:
    assert token(("a",), 0.0, KEY) == token(("a",), -0.0, KEY)
    others = [token(("a",), 1.0, KEY), token(("b",), 1.0, KEY), token(("a",), "1", KEY), token(("a",), 1.0, bytes(32))]
    assert len(set(others)) == 4


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_bucket_is_how_many_borders_a_number_has_reached(value: float) -> None:
    assert shown_value(HEAT, value, None) == (value >= 0) + (value >= 20)
    assert shown_value(HEAT, "warm", None) == TEXT_BUCKET
    assert shown_value(HEAT, None, None) is None


def test_what_is_too_much_shows_nothing() -> None:
    rooms = [record(f"r{n}") for n in range(ROWS_MAX + 1)]
    assert shown_list(SECRET, rooms[:ROWS_MAX]) is not None
    assert shown_list(SECRET, rooms) is None
    assert shown_list(SECRET, []) is None
    assert shown_list(SECRET, [record("x" * SHOWN_TEXT_BYTES)]) is not None
    assert shown_list(SECRET, [record("x" * (SHOWN_TEXT_BYTES + 1))]) is None
    assert shown_list(SECRET, [record(f"{n}" * 200) for n in range(10, 60)]) is None, f"over {LIST_BYTES} bytes"


def frame_of(names: bytes, rows: bytes) -> bytes:
    return bytes((1, Kind.SHOWN, 0)) + names + rows


NAMES = b"\1\1\0\1a"


@pytest.mark.parametrize(
    "frame",
    [
        frame_of(NAMES, b"\0"),
        frame_of(NAMES, b"\x41" + b"\0" * 65),
        frame_of(b"\2\1\0\1a\1\0\1a", b"\1\0\0"),
        frame_of(NAMES, b"\1\1" + struct.pack(">d", float("nan"))),
        frame_of(NAMES, b"\1\1" + struct.pack(">d", float("inf"))),
        frame_of(NAMES, b"\1\4"),
        frame_of(NAMES, b"\1\0\0"),
        frame_of(NAMES, b"\1\2\0\2\xff\xff"),
        frame_of(NAMES, b"\1\2\xff\xff" + b"x" * 65_535),
        bytes((1, 10, 0)) + NAMES + b"\1\0",
        b"",
    ],
)
def test_what_is_no_list_is_refused(frame: bytes) -> None:
    with pytest.raises(BadFrame):
        read_list(frame, digest(frame))


def test_a_list_that_its_publisher_did_not_sign_is_refused() -> None:
    frame = frame_of(NAMES, b"\1\0")
    assert read_list(frame, digest(frame)).rows == ({},)
    with pytest.raises(BadFrame, match="not signed"):
        read_list(frame, digest(frame + b"\0"))
