"""Address and time of the next attempt to reach a peer: its own address, then possible others, then a pause.

Pauses double from RETRY_FIRST_S to RETRY_MOST_S and are spread by half of their length, so that clients that lost a
common peer do not return together. No I/O and no clock: `mqtt_client` connects and sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

RETRY_FIRST_S = 0.25
RETRY_MOST_S = 8.0
"""Less than a replica keeps what passed (`content_relay.RECENT_S`): who comes back finds what it missed."""
REFUSED_S = 30.0
"""The pause where the peer refuses us: nothing changes there before somebody has looked."""
STABLE_S = 10.0
"""Seconds after which a connection counts as good: the pauses after it begin at the shortest again."""
ELSEWHERE_MAX = 4
"""Other addresses tried in a round: invented addresses delay us by so many attempts, no more."""

Address: TypeAlias = tuple[str, int]


def host_port(address: Address) -> str:
    """Returns HOST:PORT as in URLs, with an IPv6 address in brackets (RFC 3986 §3.2.2)."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> Address:
    """Splits HOST:PORT, the reverse of `host_port`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Redial:
    """The plan of attempts: rounds over `own` and the addresses of `elsewhere`, with pauses only between rounds.

    `random`: 0..1. An address on which a connection stood is tried again first.
    """

    def __init__(self, own: Address, elsewhere: Callable[[], Sequence[Address]], random: Callable[[], float]) -> None:
        self._own, self._elsewhere, self._random = own, elsewhere, random
        self._place = self._failures = 0
        self.address = own
        """The address of the next attempt."""

    def record_end(self, up_s: float | None, longest: bool = False) -> float:
        """Records the end of a connection after `up_s` seconds, or a failed attempt (None).

        Returns the seconds until the next attempt. `longest`: the peer refuses us; at the end of the round the
        longest pause follows.
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
        most = min(RETRY_MOST_S, RETRY_FIRST_S * 2 ** min(self._failures - 1, 16))
        return (REFUSED_S if longest else most) * (0.5 + 0.5 * self._random())
