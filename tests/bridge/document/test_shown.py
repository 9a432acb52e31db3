"""What the owner lets replicas see: its form in the policy, and names that tell declarations apart."""

from __future__ import annotations

import pytest

from bridge.document import Scope, ShownAttribute, are_borders
from bridge.document.shown import SHOWN_MAX
from keys.errors import BadFrame
from keys.frames import Reader, number

ROOM, HEAT = ShownAttribute(("room",)), ShownAttribute(("payload", "t"), False, (-1.5, 0.0, 20.0))
SECRET = ShownAttribute(("room",), True)


def test_a_scope_says_what_it_shows_and_one_that_shows_nothing_is_as_before() -> None:
    scope = Scope("plant/#", number=3, shown=(ROOM, HEAT, ShownAttribute(("who",), True)))
    assert Scope.decode(scope.encode()) == scope
    assert Scope("plant/#", number=3).encode() == scope.encode()[:2] + b"\0" + scope.encode()[3 : -len(tail(scope))]


def tail(scope: Scope) -> bytes:
    return number(len(scope.shown), 1) + b"".join(each.encode() for each in scope.shown)


@pytest.mark.parametrize(
    "shown",
    [
        b"\0",
        number(SHOWN_MAX + 1, 1) + b"".join(ShownAttribute((str(n),)).encode() for n in range(SHOWN_MAX + 1)),
        b"\2" + ROOM.encode() + SECRET.encode(),
        b"\1" + b"\2" + ROOM.encode()[1:],
        b"\1" + ShownAttribute(()).encode(),
        b"\1" + ShownAttribute(tuple("abcdefghi")).encode(),
        b"\1" + ShownAttribute(("a",), False, (2.0, 1.0)).encode(),
        b"\1" + ROOM.encode() + b"\0",
    ],
)
def test_what_no_owner_declares_is_refused(shown: bytes) -> None:
    frame = Scope("plant/#", number=3, shown=(ROOM,)).encode()
    with pytest.raises(BadFrame):
        Scope.decode(frame[: -len(ROOM.encode()) - 1] + shown)


def test_borders_are_finite_and_rise() -> None:
    assert are_borders(())
    assert are_borders((1.0, 2.0))
    assert not are_borders((1.0, 1.0))
    assert not are_borders((1.0, float("inf")))
    assert not are_borders(tuple(map(float, range(256))))


def test_another_declaration_has_another_name_in_lists() -> None:
    names = {each.shown_name for each in (ROOM, SECRET, ShownAttribute(("room",), False, (1.0,)), HEAT)}
    assert len(names) == 4
    assert ROOM.shown_name == ("room",)
    assert SECRET.shown_name[0] == "room"
    assert ShownAttribute.read(Reader(HEAT.encode())) == HEAT
