"""Acknowledgements that wait until the machine has room: none before, each once."""

from __future__ import annotations

from collections.abc import Callable

from gateway.overlay.withheld import Withheld


def made() -> tuple[Withheld, list[int], Callable[[int, int], None]]:
    done: list[int] = []
    withheld = Withheld(lambda acknowledge: acknowledge())

    def arrives(which: int, number: int = 0) -> None:
        withheld.begin_handling()
        if number:
            withheld.withhold(number)
        withheld.handled(lambda: done.append(which))

    return withheld, done, arrives


def test_what_is_withheld_is_acknowledged_when_it_is_taken_and_nothing_else_waits() -> None:
    withheld, done, arrives = made()
    arrives(1, 7)
    arrives(2, 0)
    arrives(3, 8)
    assert done == [2]
    withheld.acknowledge_withheld((8,))
    withheld.acknowledge_withheld((8, 7, 99))
    assert done == [2, 3, 1]
    assert not len(withheld)


def test_room_may_come_while_it_is_handled() -> None:
    withheld, done, _ = made()
    withheld.begin_handling()
    withheld.withhold(7)
    withheld.acknowledge_withheld((7,))
    withheld.handled(lambda: done.append(1))
    assert done == [1]
    assert not len(withheld)
