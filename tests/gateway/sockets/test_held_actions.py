"""What a connection keeps: in order, counted, and at the same price however much it is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5.packets import Publish
from gateway.mqtt5.session import Action
from gateway.sockets.held_actions import HELD_ACTIONS, HELD_BYTES, HeldActions

ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.binary(max_size=3), st.builds(Publish, st.just("a"), st.binary(max_size=5))
)


def sizes(actions: Iterable[Action]) -> int:
    return sum(len(one.payload) for one in actions if isinstance(one, Publish))


@given(st.lists(ACTIONS, max_size=20), st.integers(0, 20))
def test_what_is_taken_comes_in_order_and_the_rest_stays_counted(actions: list[Action], number: int) -> None:
    held = HeldActions(actions)
    taken = list(islice(held, number))
    rest = actions[number:]
    assert taken == actions[:number]
    assert (len(held), held.payload_bytes) == (len(rest), sizes(rest))
    if taken:
        held.put_back(taken[-1])
        rest = [taken[-1], *rest]
    held.put_action(b"end")
    assert (len(held), held.payload_bytes) == (len(rest) + 1, sizes(rest))
    assert list(held) == [*rest, b"end"]
    assert (len(held), held.payload_bytes) == (0, 0)


@given(st.lists(ACTIONS, max_size=20))
def test_answers_leave_their_places_and_publications_keep_theirs(actions: list[Action]) -> None:
    held = HeldActions(actions)
    assert list(held.take_answers()) == [one for one in actions if isinstance(one, bytes)]
    assert list(held.take_answers()) == []
    assert list(held) == [one for one in actions if isinstance(one, Publish)]


def test_enough_is_one_more_than_the_bound_of_either() -> None:
    assert not HeldActions([b""] * HELD_ACTIONS).is_enough
    assert HeldActions([b""] * (HELD_ACTIONS + 1)).is_enough
    assert not HeldActions([Publish("a", bytes(HELD_BYTES))]).is_enough
    assert HeldActions([Publish("a", bytes(HELD_BYTES)), Publish("a", b"1")]).is_enough
