"""Publications of trees that are to come: each once a neighbour, bounded, and fair."""

from __future__ import annotations

from sys import getsizeof

import pytest

from bridge.contract import PUBLICATIONS, Count, EarlyRoom, Effect, Received, Wire
from bridge.contract.early_room import EARLY_BYTES, EARLY_OVERHEAD_BYTES
from bridge.wire import PROPERTY_PART, EarlyPublications, keep_publication
from keys.envelope import PROPERTY_HEADER

ONE, TWO = b"1" * 16, b"2" * 16


def event(peer: str, header: str, payload: bytes = b"x") -> Received:
    return Received(peer, Wire("t", payload, 1, False, ((PROPERTY_HEADER, header),)))


def dropped(effects: list[Effect]) -> int:
    assert effects[0] == Count("publications_ahead")
    return sum(effect.amount for effect in effects[1:] if isinstance(effect, Count))


def test_each_waits_once_a_neighbour_in_order() -> None:
    ahead: EarlyPublications = EarlyRoom(PUBLICATIONS)
    events = [event("a", "1"), event("b", "1"), event("a", "2")]
    for each in (*events, *events):
        assert dropped(keep_publication(ahead, each, ONE)) == 0
    assert len(ahead) == 3
    assert ahead.take_all() == events
    assert ahead.take_all() == []


def test_who_fills_it_loses_its_own() -> None:
    ahead: EarlyPublications = EarlyRoom(PUBLICATIONS)
    keep_publication(ahead, event("a", "quiet"), TWO)
    size = EARLY_BYTES // 16 - EARLY_OVERHEAD_BYTES
    gone = sum(dropped(keep_publication(ahead, event("a", str(number), bytes(size)), ONE)) for number in range(40))
    kept = ahead.take_all()
    assert kept[0] == event("a", "quiet")
    assert len(kept) == 16
    assert gone == 25


@pytest.mark.attack(56)
@pytest.mark.parametrize("text", ["x" * 60_000, "\U0001f40d" * 15_000])
def test_what_a_neighbour_hangs_on_a_wire_that_waits_counts(text: str) -> None:
    """Attack: a header that its publisher signed for a tree to come, without end, each time beside another list of
    pieces and other long properties, which nobody signed. Their memory is bounded as that of content is."""
    ahead: EarlyPublications = EarlyRoom(PUBLICATIONS)
    keep_publication(ahead, event("a", "quiet"), TWO)
    for number in range(800):
        hung = (PROPERTY_HEADER, "1"), (PROPERTY_PART, f"{number}{text}"), ("x", text + str(number))
        keep_publication(ahead, Received("liar", Wire("t", b"", 1, False, hung)), ONE)
    kept = ahead.take_all()
    held = sum(getsizeof(value) for each in kept for _, value in each.wire.properties)
    assert held <= EARLY_BYTES
    assert kept[0] == event("a", "quiet"), "its own goes"
