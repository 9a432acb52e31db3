"""QoS 0 in memory is bounded by number and by bytes, and the oldest goes."""

from __future__ import annotations

import pytest

from bridge.publisher import residents as fleeting
from bridge.publisher.residents import Fleeting


@pytest.mark.parametrize(("name", "most"), [("QOS0_ENTRIES_MAX", 2), ("QOS0_BYTES_MAX", 20)])
def test_the_oldest_goes_by_either_bound(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    monkeypatch.setattr(fleeting, name, most)
    held = Fleeting()
    for number in range(1, 5):
        held.add(number, 10)
    assert held.excess() == [1, 2]
    assert (len(held), held.excess()) == (2, [])


def test_what_is_gone_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleeting, "QOS0_ENTRIES_MAX", 1)
    held = Fleeting()
    held.add(1, 10)
    held.add(2, 10)
    held.remove(1)
    held.remove(7)
    assert held.excess() == []
