"""Acknowledgements: each sender gets its own, in order, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_ingest.receiver.acknowledging import acknowledge


class Sender:
    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def acknowledge_all(self, publishes: Sequence[Any]) -> None:
        self.calls.append(list(publishes))

    def __eq__(self, other: object) -> bool:
        return True  # two links to one replica may look alike

    __hash__ = None  # type: ignore[assignment]


def test_each_sender_is_told_once_of_what_it_brought_in_its_order() -> None:
    first, second, idle = Sender(), Sender(), Sender()
    owed: list[Any] = [(first, 1), (second, 2), (first, 3), (second, 4), (first, 3)]
    acknowledge(owed)
    assert (first.calls, second.calls, idle.calls) == ([[1, 3, 3]], [[2, 4]], [])
    acknowledge([])
    assert len(first.calls) == 1
