"""The flow of each publisher through a replica, limited by the owner's budgets (EventGuard E4, docs/protocol.md §5.7).

A publisher is charged after verification, so that no party can spend another's budget. A replica of the publisher's
own region drops nothing: it delays the acknowledgement of any excess, which slows the publisher. Behind that region
others decide on the time of arrival, so two clocks count there: the signed time of sealing by the budget, and arrival
by four times as much, after an outage or against a liar keeping wires back. Any excess over either is dropped unread
and not remembered; it may be pulled later. Publications sealed before we first heard of a publisher have an account of
their own: after a restart a bad neighbour could replay them all, and use up the publisher's budget. Not here: charges
to links (`budgets`), new data keys behind the first region (`bridge.replica.resplitting`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bridge.contract.budgets import Budget
from bridge.contract.claims import claim_of
from bridge.contract.machine import Count, Delay, Effect, Wire
from bridge.document import MemberBudgets
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY

BURST_S = 4.0
"""Seconds of a budget that may be used at once."""
ARRIVAL_FACTOR = 4
"""Multiple of the budget that may arrive behind the first region."""
_KEY_AT_PUBLISHER = slice(3, 19)
_Whose: TypeAlias = tuple[bytes, bool, bool]  # publisher, sealed before we heard of it, who brought it


@dataclass(slots=True)
class _Account:
    """Budgets of batches, bytes and new keys: `sealed` by the time of sealing (at home there is none), `came` by our
    time.
    """

    came: tuple[Budget, ...]
    sealed: tuple[Budget, ...] = ()


class PublisherGuard:
    """A replica's guard of the budgets of all publishers."""

    def __init__(self, budgets: MemberBudgets) -> None:
        self._budgets = budgets
        self._accounts: dict[_Whose, _Account] = {}  # of certified publishers
        self.in_debt: set[_Whose] = set()
        """The accounts that are overdrawn: of no other is a wire ever dropped."""
        self._since: dict[bytes, float] = {}  # when we first heard of each

    def closed(self, wire: Wire, now: float) -> bool:
        """Returns True if a wire from another region is to be dropped unread."""
        publisher, sealed_s = _named(wire)
        whose = publisher, sealed_s < self._since.get(publisher, 0.0), True
        if whose not in self.in_debt:
            return False
        account = self._accounts[whose]
        if not all(budget.has_tokens(now) for budget in account.came):
            return True
        return not all(budget.would_open(min(sealed_s, now)) for budget in account.sealed)

    def charge(self, wire: Wire, effects: Sequence[Effect], now: float, *, across: bool) -> list[Effect]:
        """Charges a publication that was passed on, and so was verified and new. Returns the effects.

        `across`: another replica brought it, not the publisher itself; by planes, a replica of its own region may do
        so.
        """
        costs = _costs(wire, effects)
        if across:
            if costs[0] or costs[1]:  # else it is a repetition, or a key alone, which another budget limits
                self._charge(wire, costs[:2], now)
            return []
        delay_s = self._delay_s(wire, effects, costs, now)
        return [Count("publisher_delayed"), Delay(delay_s)] if delay_s > 0 else []

    def _charge(self, wire: Wire, costs: tuple[int, ...], now: float) -> None:
        publisher, sealed_s = _named(wire)
        whose = publisher, sealed_s < self._since.setdefault(publisher, now), True
        sealed_s = min(sealed_s, now)  # a publisher ahead of time gains nothing
        account = self._accounts.get(whose)
        if account is None:
            rates = self._budgets.values[:2]
            came = tuple([Budget(ARRIVAL_FACTOR * r, ARRIVAL_FACTOR * r * BURST_S, now) for r in rates])
            sealed = tuple([Budget(rate, rate * BURST_S, sealed_s, signed=True) for rate in rates])
            account = self._accounts[whose] = _Account(came, sealed)
        has_left = True
        for budget, cost in zip(account.came, costs, strict=True):
            has_left &= budget.spend(cost, now)
        for budget, cost in zip(account.sealed, costs, strict=True):
            has_left &= budget.spend(cost, sealed_s)
        (self.in_debt.discard if has_left else self.in_debt.add)(whose)

    def _delay_s(self, wire: Wire, effects: Sequence[Effect], costs: tuple[int, int, int], now: float) -> float:
        """Returns the seconds by which to delay the publisher's acknowledgement."""
        if (
            not costs[0] and Count("expired") in effects
        ):  # verified, passed on or not; only its publisher brings it here
            costs = (1, *costs[1:])
        if not any(costs):
            return 0.0
        # Only headers passed on were verified. Any other may stand beside a key, to charge an innocent publisher.
        publisher = _named(wire)[0] if costs[0] or costs[1] else _key_of(wire)
        account = self._accounts.get((publisher, False, False))
        if account is None:
            # All its wires are passed on, and its window bounds the wires until then: so it owes all of them.
            came = tuple([Budget(r, r * BURST_S, now, float("inf")) for r in self._budgets.values])
            account = self._accounts[publisher, False, False] = _Account(came)
        delay_s = 0.0
        for budget, cost in zip(account.came, costs, strict=True):
            if not budget.spend(cost, now):
                delay_s = max(delay_s, budget.owed_s)
        return delay_s

    def adopt_budgets(self, budgets: MemberBudgets, publishers: Iterable[bytes]) -> None:
        """Forgets former members, and all accounts if the budgets changed."""
        kept = set(publishers) if budgets == self._budgets else set()
        self._budgets = budgets
        self._accounts = {whose: account for whose, account in self._accounts.items() if whose[0] in kept}
        self.in_debt.intersection_update(self._accounts)
        self._since = {party: at for party, at in self._since.items() if party in kept}


def _costs(wire: Wire, effects: Sequence[Effect]) -> tuple[int, int, int]:
    """Returns batches, bytes and new keys a wire brought. Content may follow a header that was passed on."""
    batches = sealed_bytes = keys = 0
    for effect in effects:
        if isinstance(effect, Count):
            if effect.name in ("forwarded", "content_after"):
                batches, sealed_bytes = int(effect.name == "forwarded") or batches, len(wire.payload)
            elif effect.name == "data_keys":
                keys += effect.amount
    return batches, sealed_bytes, keys


def _named(wire: Wire) -> tuple[bytes, float]:
    """Returns the party the header names, or without one the key, and the header's time of sealing in seconds.

    Both are unverified. The last of repeated properties counts, as everywhere.
    """
    told = dict(wire.properties).get(PROPERTY_HEADER)
    if told is not None:
        claim = claim_of(told)
        return claim.publisher, claim.sealed_ms / 1000
    return _key_of(wire), 0.0


def _key_of(wire: Wire) -> bytes:
    """Returns the party the key names; unverified."""
    try:
        return base64.urlsafe_b64decode(dict(wire.properties).get(PROPERTY_KEY, "")[:28])[_KEY_AT_PUBLISHER]
    except (binascii.Error, ValueError):
        return b""
