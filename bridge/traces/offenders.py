"""Limits on the work a client can cause a tracing broker: budgets for requests, and the end of patience.

Signed input has to be verified before anybody knows if it is valid, at a third of a millisecond a signature. So a
client has a budget for each kind of request, charged before verification, and pays for invalid messages: after
`BOGUS_MAX` of these, over all kinds, the client is sent away. Not here: the checks themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bridge.contract import Allowance, Count
from keys.errors import KeysError, TooOften

BOGUS_MAX = 20  # invalid messages of one client before it is sent away
CLIENTS_MAX = 4_096  # remembered clients; the client that was quiet longest begins anew
BUDGETS: Mapping[str, tuple[int, float]] = {
    # Requests at once, then seconds for one more. A tracker of many entities asks for all of them at once.
    "discovery": (5_000, 0.005),
    "creation": (20, 1.0),
    "pattern": (20, 5.0),  # each searches all names
    "interest": (20_000, 0.001),
    "knock": (5_000, 0.005),
}


@dataclass(frozen=True, slots=True)
class SendAway:
    """An effect: disconnect a client keeping sending invalid messages."""

    client: str
    why: str


@dataclass(frozen=True, slots=True)
class Complain:
    """A log entry for the first invalid message of a client."""

    client: str
    why: str


Charged: TypeAlias = SendAway | Complain | Count


class Offenders:
    """The budgets and charges of a broker's clients; the broker's machines share this object."""

    def __init__(self) -> None:
        self._bogus: OrderedDict[str, int] = OrderedDict()
        self._budgets: OrderedDict[tuple[str, str], Allowance] = OrderedDict()

    def afford(self, client: str, what: str, now: float) -> None:
        """Takes a single request from a client's budget. Raises TooOften when the budget is used up."""
        key = (client, what)
        budget = self._budgets.pop(key, None)
        if budget is None:
            budget = Allowance(*BUDGETS[what], now)
        self._budgets[key] = budget
        if len(self._budgets) > CLIENTS_MAX:
            self._budgets.popitem(last=False)
        if not budget.spend_one(now):
            raise TooOften(f"{what} requests come faster than this broker answers them")

    def charge(self, client: str, figure: str, error: KeysError) -> list[Charged]:
        """Charges a client for an invalid message, counted by its cause; after `BOGUS_MAX` the client is sent away.
        `client` "": another broker, which is only counted.
        """
        counted: list[Charged] = [Count(figure, 1, type(error).__name__)]
        if not client:
            return counted
        self._bogus[client] = self._bogus.pop(client, 0) + 1
        if len(self._bogus) > CLIENTS_MAX:
            self._bogus.popitem(last=False)
        if self._bogus[client] == 1:
            counted.append(Complain(client, str(error)))
        if self._bogus[client] < BOGUS_MAX:
            return counted
        del self._bogus[client]
        return [*counted, SendAway(client, str(error))]
