"""Budgets of members for publishing, a second: the owner sets, gateways keep and replicas enforce them.

Source: docs/protocol.md §5.7. Records are not counted: replicas do not see how many a batch holds, and each takes at
least 19 of its bytes. Not here: keeping a budget (`bridge.publisher.pacing`), charging an excess
(`bridge.contract.publisher_guard`).
"""

from __future__ import annotations

from dataclasses import dataclass

from keys.errors import BadFrame
from keys.frames import Reader, number

BUDGETS_MOST = (1_000_000, 1 << 31, 100_000)
"""The greatest budgets that an owner can give, in the order of the fields."""


@dataclass(frozen=True, slots=True)
class MemberBudgets:
    """Batches, bytes of sealed content and new data keys, each a second.

    The defaults are about the capacity of a replica: they bound the harm that one member can do to others.
    """

    batches: int = 10_000
    sealed_bytes: int = 100_000_000
    keys: int = 1_000

    def encode(self) -> bytes:
        return b"".join([number(value, 4) for value in self.values])

    @classmethod
    def read(cls, frame: Reader) -> MemberBudgets:
        """Reads the budgets. Raises BadFrame for numbers out of range."""
        budgets = cls(frame.number(4), frame.number(4), frame.number(4))
        if not all(1 <= value <= most for value, most in zip(budgets.values, BUDGETS_MOST, strict=True)):
            raise BadFrame(f"budgets of members {budgets.values}; at most {BUDGETS_MOST}, and at least 1 each")
        return budgets

    @property
    def values(self) -> tuple[int, int, int]:
        return self.batches, self.sealed_bytes, self.keys


MEMBER_BUDGETS = MemberBudgets()
