"""Where and when the next attempt to reach a peer goes: its own address, then others that may be its, then a pause.

Pauses double from RETRY_FIRST_S to RETRY_MOST_S, and are spread by half of themselves, so that those who lost the same
peer do not come back together. No I/O and no clock: `mqtt_client` connects and sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

RETRY_FIRST_S = 0.25
RETRY_MOST_S = 30.0
STABLE_S = 10.0
"""A connection that lasted so long was a good one: the next attempt after it does not wait."""
ELSEWHERE_MAX = 4
"""Other addresses tried in a round: whoever makes some up delays us by so many attempts, no more."""

Address: TypeAlias = tuple[str, int]


def host_port(address: Address) -> str:
    """HOST:PORT as in URLs, an IPv6 address in brackets (RFC 3986 §3.2.2)."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> Address:
    """The reverse of `host_port`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Redial:
    """Attempts go in rounds over `own` and what `elsewhere` says then; only between rounds is there a pause.

    `random`: 0..1. An address on which a connection stood is tried again first.
    """

    def __init__(self, own: Address, elsewhere: Callable[[], Sequence[Address]], random: Callable[[], float]) -> None:
        self._own, self._elsewhere, self._random = own, elsewhere, random
        self._place = self._failures = 0
        self.address = own
        """Where the next attempt goes."""

    def ended(self, up_s: float | None, longest: bool = False) -> float:
        """The connection ended that stood for `up_s` seconds, or (None) the attempt failed: seconds until the next.

        `longest`: the peer would not have us; if that was the last address of the round, wait as long as ever.
        """
        if up_s is None:
            others = [address for address in dict.fromkeys(self._elsewhere()) if address != self._own]
            places = [self._own, *others[:ELSEWHERE_MAX]]
            self._place += 1
            if self._place < len(places):
                self.address = places[self._place]
                return 0.0
            self._place, self.address = 0, self._own
        self._failures = 1 if (up_s or 0.0) >= STABLE_S else self._failures + 1
        most = RETRY_MOST_S if longest else RETRY_FIRST_S * 2 ** min(self._failures - 1, 16)
        return min(most, RETRY_MOST_S) * (0.5 + 0.5 * self._random())
