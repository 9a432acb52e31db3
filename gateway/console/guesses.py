"""Guesses of passwords and tokens: counted by address block before they are judged. No HTTP here; time is passed in.

A guess proving right is taken back. So however many come at once, no more are judged than are allowed.
"""

from __future__ import annotations

from gateway.sockets.door import origin_of

GUESSES_MAX, GUESSES_S = 10, 60.0
"""Wrong passwords or tokens of one address block in GUESSES_S seconds; above it, logins from there are not judged."""
BLOCKS_MAX = 10_000
"""Address blocks whose guesses are remembered; the block that began first is dropped first."""
HERE = "this machine"


class TooManyError(Exception):
    """Refusal of an address that has to wait before its next password or token is judged."""


class Guesses:
    """Guesses at one console. An address block is an IPv4 address, the /64 of IPv6, or this machine."""

    def __init__(self) -> None:
        self._made: dict[str, list[float]] = {}

    def count_guess(self, address: str, now: float) -> str:
        """Counts a guess; returns its block. Raises TooManyError."""
        block = origin_of(address) or HERE
        made = [at for at in self._made.pop(block, ()) if now - at < GUESSES_S]
        is_over = len(made) >= GUESSES_MAX
        if not is_over:
            made.append(now)
        self._made[block] = made
        if len(self._made) > BLOCKS_MAX:
            del self._made[next(iter(self._made))]
        if is_over:
            raise TooManyError
        return block

    def right(self, block: str, now: float) -> None:
        """Takes back the guess counted at `now`: it was right."""
        made = self._made.get(block, [])
        if now in made:
            made.remove(now)
