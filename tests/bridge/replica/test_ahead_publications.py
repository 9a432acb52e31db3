"""Publications of trees that are to come: each once a neighbour, bounded, and fair."""

from __future__ import annotations

from bridge.contract import Count, Effect, Received, Wire
from bridge.replica.ahead_publications import AHEAD_BYTES, AHEAD_OVERHEAD_BYTES, AheadPublications
from keys.envelope import PROPERTY_HEADER

ONE, TWO = b"1" * 16, b"2" * 16


def event(peer: str, header: str, payload: bytes = b"x") -> Received:
    return Received(peer, Wire("t", payload, 1, False, ((PROPERTY_HEADER, header),)))


def dropped(effects: list[Effect]) -> int:
    assert effects[0] == Count("publications_ahead")
    return sum(effect.amount for effect in effects[1:] if isinstance(effect, Count))


def test_each_waits_once_a_neighbour_in_order() -> None:
    ahead = AheadPublications()
    events = [event("a", "1"), event("b", "1"), event("a", "2")]
    for each in (*events, *events):
        assert dropped(ahead.keep(each, ONE)) == 0
    assert len(ahead) == 3
    assert ahead.take() == events
    assert ahead.take() == []


def test_who_fills_it_loses_its_own() -> None:
    ahead = AheadPublications()
    ahead.keep(event("a", "quiet"), TWO)
    size = AHEAD_BYTES // 16 - AHEAD_OVERHEAD_BYTES
    gone = sum(dropped(ahead.keep(event("a", str(number), bytes(size)), ONE)) for number in range(40))
    kept = ahead.take()
    assert kept[0] == event("a", "quiet")
    assert len(kept) == 16
    assert gone == 25
