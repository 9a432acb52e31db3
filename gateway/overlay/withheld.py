"""Acknowledgements a reader's machine holds back until it has room for what came (`bridge.contract.withholding`).

Bounded by the machine, which takes or replaces what it withheld. Not here: what is on disk (`broker_overlay`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

Acknowledge: TypeAlias = Callable[[], None]


class Withheld:
    """The acknowledgements withheld by the machine: `begin_handling`, let the machine handle the publication, then
    `handled`.

    `when_kept`: calls its argument once all rows the machine asked to keep are on disk.
    """

    def __init__(self, when_kept: Callable[[Acknowledge], None]) -> None:
        self._when_kept = when_kept
        self._acknowledges: dict[int, Acknowledge] = {}
        self._number = 0  # of what is handled at this moment

    def __len__(self) -> int:
        return len(self._acknowledges)

    def begin_handling(self) -> None:
        """Something came, and is about to be handled."""
        self._number = 0

    def withhold(self, number: int) -> None:
        """The machine withholds it under this number."""
        self._number = number

    def handled(self, acknowledge: Acknowledge) -> None:
        """Notes that the publication was handled; `acknowledge` sends its acknowledgement."""
        number, self._number = self._number, 0
        if number:
            self._acknowledges[number] = acknowledge
        else:
            self._when_kept(acknowledge)

    def acknowledge_withheld(self, numbers: Sequence[int]) -> None:
        """Acknowledges the publications the machine withheld under these numbers."""
        for number in numbers:
            if number == self._number:  # room came while it was handled
                self._number = 0
            acknowledge = self._acknowledges.pop(number, None)
            if acknowledge is not None:
                self._when_kept(acknowledge)
