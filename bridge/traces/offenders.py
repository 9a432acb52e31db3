"""Who makes a tracing broker work for nothing: what each client may cost, and when it is sent away.

Whatever comes signed has to be verified before anybody knows whether it holds, at a third of a millisecond a signature.
So a client has a budget for each kind of request, taken before anything is verified, and pays for whatever did not
hold: `BOGUS_MAX` of these, over all kinds, and it is sent away. Not here: what holds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bridge.contract import Allowance, Count
from keys.errors import KeysError, TooOften

BOGUS_MAX = 20  # messages of one client that do not hold, before it is sent away
CLIENTS_MAX = 4_096  # clients of which something is remembered; who was quiet longest begins anew
BUDGETS: Mapping[str, tuple[int, float]] = {
    # at once, and then one in so many seconds. A tracker of many entities asks for all of them at once
    "discovery": (5_000, 0.005),
    "creation": (20, 1.0),
    "pattern": (20, 5.0),  # each looks at every name that there is
    "interest": (20_000, 0.001),
    "knock": (5_000, 0.005),
}


@dataclass(frozen=True, slots=True)
class SendAway:
    """Disconnect a client that keeps sending what does not hold."""

    client: str
    why: str


@dataclass(frozen=True, slots=True)
class Complain:
    """For the log: the first of what does not hold of a client's."""

    client: str
    why: str


Charged: TypeAlias = SendAway | Complain | Count


class Offenders:
    """Of one broker; its machines share it."""

    def __init__(self) -> None:
        self._bogus: OrderedDict[str, int] = OrderedDict()
        self._budgets: OrderedDict[tuple[str, str], Allowance] = OrderedDict()

    def afford(self, client: str, what: str, now: float) -> None:
        """Take one from a client's budget. Raises TooOften when it is used up."""
        key = (client, what)
        budget = self._budgets.pop(key, None)
        if budget is None:
            budget = Allowance(*BUDGETS[what], now)
        self._budgets[key] = budget
        if len(self._budgets) > CLIENTS_MAX:
            self._budgets.popitem(last=False)
        if not budget.take(now):
            raise TooOften(f"{what} requests come faster than this broker answers them")

    def charge(self, client: str, figure: str, error: KeysError) -> list[Charged]:
        """Something did not hold: counted by its cause, and one time too many it is sent away. "": another broker."""
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
