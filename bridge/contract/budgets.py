"""Fair bounds: an owner filling a table loses its own entries first.

A bad publisher harms only its own publications (docs/protocol.md §1). `FairTable` holds values of many owners under a
single limit of their number, `FairBytes` of their size; `Repeats` tells publications from repetitions; `Allowance`
limits how often a party may make us work, `FairBudget` how often several together, and `Deferrals` postpone work that
came too often. The flood guard (EventGuard E4, docs/protocol.md §5.7) is two budgets: `LinkGuard` charges the link for
refused wires, `publisher_guard` the publisher for accepted wires, after verification.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from bridge.base import Belongings
from bridge.contract.machine import Count, Effect, Wire
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, SequenceWindow

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Sequences of a publisher whose sealing time is known. A gateway has `residents.LEAD_MAX` and a window under way that
# too few acknowledged, and while one of them waits behind the others as many new ones may pass it.
RESEALED_MAX = 1024

REFUSED_BURST = 1000.0  # forgeries that a link may bring at once; each costs us at most a verification (160 us) ...
REFUSED_PER_S = 50.0  # ... and then so many a second: under 1 % of a core for each bad neighbour
# Refusals that an honest neighbour causes while a policy or epoch spreads: signed, but no longer (or not yet) allowed.
TRANSITION_COST = 0.1
TRANSITIONS = frozenset(
    {"NotAuthorised", "Expired", "WrongEpochKey", "Replayed", "TooOften", "UnknownView", "NotFresh", "Superseded"}
)
AUTHORED_PART = 0.2  # the link's part of an author's charge: five authors together can close the link
ROUNDING = 1e-6  # of an allowance: at the time that `wait_s` gives, a use is allowed
FAIR_STEP_S = 0.02  # between times at which a shared budget grows
_START_CHARS = 28  # base64 of the 21 bytes before and with the publisher's id
_IN_HEADER, _IN_KEY = slice(4, 20), slice(3, 19)


class FairTable(Generic[K, V]):
    """A table of at most `limit` values. On overflow the owner with the most entries loses its oldest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[K, V] = {}
        self._owners: dict[K, bytes] = {}
        self._owned: Belongings[bytes, K] = Belongings()
        self.get: Callable[[K], V | None] = self._values.get
        """Returns the value of a key; None without one. The dictionary's own method: asked with every wire."""
        self.count: Callable[[], int] = self._values.__len__
        """Returns the number of values."""

    def __len__(self) -> int:
        return len(self._values)

    @property
    def is_even(self) -> bool:
        """True if no owner has more than one value."""
        return len(self._owned) == len(self._values)

    def touch(self, key: K) -> None:
        """Marks `key` as used: it becomes its owner's newest entry."""
        self._owned.renew_thing(self._owners[key], key)

    def put(self, key: K, owner: bytes, value: V) -> tuple[K, V] | None:
        """Stores or replaces a value, as its owner's newest. Returns the evicted entry, if any."""
        self.pop(key)
        self._values[key], self._owners[key] = value, owner
        self._owned.add(owner, key)
        if len(self._values) <= self._limit:
            return None
        oldest = self._owned.oldest_of_most()
        gone = self.pop(oldest)
        assert gone is not None
        return oldest, gone

    def pop(self, key: K) -> V | None:
        owner = self._owners.pop(key, None)
        if owner is None:
            return None
        self._owned.drop_thing(owner, key)
        return self._values.pop(key)

    def clear(self) -> None:
        """Forgets all values."""
        for key in list(self._values):
            self.pop(key)

    def values(self) -> Iterator[V]:
        """Iterates over the values in the order of `put`. The table must not change meanwhile."""
        return iter(self._values.values())

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterates over keys and values in the order of `put`. The table must not change meanwhile."""
        return iter(self._values.items())


CHAR_BYTES = 4
"""The most bytes that a character of a text takes in memory."""


def wire_bytes(wire: Wire) -> int:
    """Returns the bytes of content and properties of a waiting wire, without its topic and the tables."""
    return len(wire.payload) + CHAR_BYTES * sum(len(text) for pair in wire.properties for text in pair)


class FairBytes(Generic[K, V]):
    """A table of values of at most `limit` bytes together. On overflow the owner with the most bytes loses its
    oldest.
    """

    def __init__(self, limit: float, overhead: int) -> None:
        """Makes an empty table. `overhead`: bytes added to the size of each value, which bounds their number too."""
        self._limit = limit
        self._overhead = overhead
        self._values: dict[K, V] = {}
        self._about: dict[K, tuple[bytes, int]] = {}  # owner and size
        self._by_owner: dict[bytes, OrderedDict[K, None]] = {}
        self._bytes: dict[bytes, int] = {}
        self._total = 0
        self.get: Callable[[K], V | None] = self._values.get
        """Returns the value of a key; None without one. The dictionary's own method: asked with every wire."""
        self.items: Callable[[], ItemsView[K, V]] = self._values.items
        """Returns keys and values, oldest first. The table must not change meanwhile."""
        self.count: Callable[[], int] = self._values.__len__
        """Returns the number of values."""

    def __len__(self) -> int:
        return len(self._values)

    def usage_of(self, owner: bytes) -> tuple[int, int]:
        """Returns the number and the bytes of an owner's values."""
        return len(self._by_owner.get(owner, ())), self._bytes.get(owner, 0)

    def put(self, key: K, owner: bytes, value: V, size: int) -> list[tuple[K, V]]:
        """Stores or replaces a value, as its owner's newest. Returns the evicted entries: this one too if too
        large.
        """
        if key in self._values:
            self.pop(key)
        size += self._overhead
        self._by_owner.setdefault(owner, OrderedDict())[key] = None
        self._values[key], self._about[key] = value, (owner, size)
        self._bytes[owner] = self._bytes.get(owner, 0) + size
        self._total += size
        return self._evicted() if self._total > self._limit else []

    def grow(self, key: K, size: int) -> None:
        """Adds `size` bytes to a value, if the table still holds it."""
        if key in self._about:
            owner, before = self._about[key]
            self._about[key] = owner, before + size
            self._bytes[owner] += size
            self._total += size
            self._evicted()

    def _evicted(self) -> list[tuple[K, V]]:
        gone: list[tuple[K, V]] = []
        while self._total > self._limit:
            greediest = max(self._bytes, key=self._bytes.__getitem__)
            oldest = next(iter(self._by_owner[greediest]))
            gone.append((oldest, self._values[oldest]))
            self.pop(oldest)
        return gone

    def pop(self, key: K) -> V | None:
        about = self._about.pop(key, None)
        if about is None:
            return None
        owner, size = about
        del self._by_owner[owner][key]
        self._bytes[owner] -= size
        self._total -= size
        if not self._by_owner[owner]:
            del self._by_owner[owner], self._bytes[owner]
        return self._values.pop(key)


class Repeats:
    """A replica's record of the sequences of a publisher that it has seen.

    A gateway that was killed seals its outbox again under unchanged sequences; the first sealing may have reached a
    single replica only. Hence a later sealing of a recent sequence is no repetition; of an older sequence it is. A
    sealing is later by its time, or by its life or key, since a clock may be set back between two lives. The greatest
    of either is kept, so that two sealings cannot take turns as news.
    """

    __slots__ = ("_sealed", "_window")

    def __init__(self) -> None:
        self._window = SequenceWindow()
        self._sealed: OrderedDict[int, tuple[int, tuple[int, int]]] = OrderedDict()

    def knows_sealing(self, sequence: int, sealed_ms: int, life: tuple[int, int] = (0, 0)) -> bool:
        """Returns True if this sealing, or a later one, came before; marks nothing. `life`: generation, and key of
        it.
        """
        if sequence > self._window.highest:
            return False
        before_ms, before = self._sealed.get(sequence, (sealed_ms, life))
        return sequence in self._window and sealed_ms <= before_ms and life <= before

    def seen(self, sequence: int, sealed_ms: int, life: tuple[int, int] = (0, 0)) -> bool:
        """Marks the sealing. Returns True if this sealing, or a later one, came before."""
        if self._window.seen(sequence):
            known = self._sealed.get(sequence)
            if known is None or (sealed_ms <= known[0] and life <= known[1]):
                return True
            sealed_ms, life = max(sealed_ms, known[0]), max(life, known[1])
        self._sealed[sequence] = sealed_ms, life
        if len(self._sealed) > RESEALED_MAX:
            self._sealed.popitem(last=False)
        return False


class Allowance:
    """An allowance of `burst` uses at once, and of another every `every_s` seconds."""

    __slots__ = ("_at", "_burst", "_every_s", "_left")

    def __init__(self, burst: int, every_s: float, now: float) -> None:
        self._burst = self._left = float(burst)
        self._every_s = every_s
        self._at = now

    def spend_one(self, now: float) -> bool:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) / self._every_s)
        self._at = now
        if self._left < 1 - ROUNDING:
            return False
        self._left = max(0.0, self._left - 1)
        return True

    @property
    def wait_s(self) -> float:
        """Seconds from the last question until the next use is allowed."""
        return max(0.0, 1 - self._left) * self._every_s


class Deferrals(Generic[K]):
    """Allowances by name that postpone work: a name coming too often falls due later, once.

    Bounded by the names, which the caller `keep`s to members and scopes of the signed overlay.
    """

    def __init__(self, burst: int, every_s: float) -> None:
        self._burst, self._every_s = burst, every_s
        self._allowances: dict[K, Allowance] = {}
        self._due_at: dict[K, float] = {}
        self.next_deadline: float | None = None
        """When the next postponed key is due; None if none waits. Kept, since nodes are asked after every event."""

    def __len__(self) -> int:
        """Returns the number of known names."""
        return len(self._allowances)

    def spend_one(self, key: K, now: float) -> bool:
        """Spends a single use; False if none is left: then `due_keys` returns the key as soon as there is one."""
        allowance = self._allowances.get(key)
        if allowance is None:
            allowance = self._allowances[key] = Allowance(self._burst, self._every_s, now)
        if allowance.spend_one(now):
            self.drop_key(key)
            return True
        self._due_at[key] = now + allowance.wait_s
        self._set_deadline()
        return False

    def due_keys(self, now: float) -> list[K]:
        """Returns the postponed keys that may be done now; the caller takes again for each.

        A clock that was set back delays nothing for longer than one interval.
        """
        if not self._due_at:
            return []
        due = [key for key, at in self._due_at.items() if not now < at <= now + self._every_s]
        for key in due:
            del self._due_at[key]
        self._set_deadline()
        return due

    def drop_key(self, key: K) -> None:
        """Forgets the postponed work of a key. Spent uses stay spent."""
        if self._due_at.pop(key, None) is not None:
            self._set_deadline()

    def forget_unless(self, keeps: Callable[[K], bool]) -> None:
        """Forgets every name for which `keeps` is False."""
        self._allowances = {key: left for key, left in self._allowances.items() if keeps(key)}
        self._due_at = {key: at for key, at in self._due_at.items() if keeps(key)}
        self._set_deadline()

    def _set_deadline(self) -> None:
        self.next_deadline = min(self._due_at.values(), default=None)


class Budget:
    """A token bucket that may go into debt: its owner waits until the debt is paid back.

    The debt is at most `debt_max`, by default a single burst. `signed`: time comes from signatures of others, which
    could go back and forth in time.
    """

    __slots__ = ("_at", "_burst", "_debt_max", "_left", "_per_s", "_signed")

    def __init__(
        self, per_s: float, burst: float, now: float, debt_max: float | None = None, signed: bool = False
    ) -> None:
        self._signed = signed
        self._per_s = per_s
        self._burst = self._left = burst
        self._debt_max = burst if debt_max is None else debt_max
        self._at = now

    def has_tokens(self, now: float) -> bool:
        """Returns True if tokens are left. A clock that goes back gives nothing, and counts on from there."""
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = max(self._at, now) if self._signed else now
        return self._left > 0

    def spend(self, cost: float, now: float) -> bool:
        """Pays `cost`; returns False if that empties the bucket. Grows as `has_tokens` does."""
        left = min(self._burst, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = max(self._at, now) if self._signed else now
        self._left = max(-self._debt_max, left - cost)
        return self._left > 0

    def would_open(self, at: float) -> bool:
        """Returns True if tokens would be left at time `at`; changes nothing."""
        return self._left + max(0.0, at - self._at) * self._per_s > 0

    @property
    def tokens_left(self) -> float:
        """Tokens left at the last question; below 0: a debt."""
        return self._left

    @property
    def owed_s(self) -> float:
        """Seconds until the debt is paid back."""
        return max(0.0, -self._left) / self._per_s


class FairBudget:
    """A token bucket that several owners share: the owner spending most runs dry first.

    An owner may spend while it owes less than is left (dynamic thresholds, Choudhury and Hahne 1998), so that some is
    always left for owners without debt; a single owner has half of the burst. All debtors share the refill equally.
    """

    __slots__ = ("_at", "_burst", "_owed", "_per_s", "_total")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._owed: dict[bytes, float] = {}
        self._total = 0.0
        self._at = now

    def spend_one(self, owner: bytes, now: float) -> bool:
        """Spends one; returns False if this owner has to wait."""
        self._pay_back(now)
        owed = self._owed.get(owner, 0.0)
        if owed + 1 > self._burst - self._total:
            return False
        self._owed[owner] = owed + 1
        self._total += 1
        return True

    def _pay_back(self, now: float) -> None:
        """Shares the refill since the last call among debtors, in steps of `FAIR_STEP_S`: each step visits every
        owner.
        """
        self._at = min(self._at, now)  # a clock that was set back gives nothing, and counts on from there
        if now < self._at + FAIR_STEP_S:
            return
        back, self._at = (now - self._at) * self._per_s, now
        least_first = sorted(self._owed, key=self._owed.__getitem__)
        for left, owner in zip(range(len(least_first), 0, -1), least_first, strict=True):
            paid = min(self._owed[owner], back / left)
            back -= paid
            self._owed[owner] -= paid
        self._owed = {owner: owed for owner, owed in self._owed.items() if owed > 0}
        self._total = sum(self._owed.values())


class LinkGuard:
    """Budgets of neighbours for useless wires. A neighbour with an empty budget has its wires dropped unread.

    A link is charged for faults that the sender should have found. Wires an honest neighbour may bring while a policy
    or an epoch changes are charged little; repetitions of accepted wires are free, since copies are how delivery
    survives. Two honest parties may judge a signed wire differently, by their clocks or by earlier wires. Such a wire
    is charged to its author at this neighbour, since the author could make all our neighbours bring the wire. With
    that budget empty, only wires of that author are dropped there. The link pays a part too, against a neighbour
    replaying such wires of many authors.
    """

    def __init__(self) -> None:
        self.charged: set[str] = set()
        """Neighbours that brought something bad: of no other is a link ever `closed`."""
        self._budgets: dict[str, Budget] = {}
        self._authors: dict[tuple[str, bytes], Budget] = {}  # of neighbours, and certified authors
        self._in_debt: dict[str, set[bytes]] = {}  # authors in debt, by neighbour

    def closed(self, peer: str, properties: Sequence[tuple[str, str]], now: float) -> bool:
        """Returns True if a wire with these properties is to be dropped unread."""
        budget = self._budgets.get(peer)
        if budget is not None and not budget.has_tokens(now):
            return True
        authors = self._in_debt.get(peer)
        if not authors:
            return False
        author = _author_of(properties)
        if author not in authors:
            return False
        if self._authors[peer, author].has_tokens(now):
            authors.discard(author)
            return False
        return True

    def charge(self, peer: str, effects: Iterable[Effect], now: float) -> None:
        """Charges the link, or the author, for the refusals of a wire."""
        for effect in effects:
            if isinstance(effect, Count) and effect.name == "refused":
                self.charged.add(peer)
                cost = TRANSITION_COST if effect.label in TRANSITIONS else 1.0
                if effect.of and effect.label in TRANSITIONS:
                    if not _spend(self._authors, (peer, effect.of), cost, now):
                        self._in_debt.setdefault(peer, set()).add(effect.of)
                    cost *= AUTHORED_PART
                _spend(self._budgets, peer, cost, now)

    def forget_all_but(self, peers: Iterable[str]) -> None:
        """Forgets former neighbours, and the accounts of authors at them."""
        kept = set(peers)
        self.charged &= kept
        self._budgets = {peer: budget for peer, budget in self._budgets.items() if peer in kept}
        self._authors = {pair: budget for pair, budget in self._authors.items() if pair[0] in kept}
        self._in_debt = {peer: authors for peer, authors in self._in_debt.items() if peer in kept}


def _spend(budgets: dict[K, Budget], whose: K, cost: float, now: float) -> bool:
    budget = budgets.get(whose)
    if budget is None:
        budget = budgets[whose] = Budget(REFUSED_PER_S, REFUSED_BURST, now)
    return budget.spend(cost, now)


def _publisher_of(properties: Sequence[tuple[str, str]]) -> bytes:
    """Returns the publisher the header names, unverified; empty for none."""
    return _named_in(properties, PROPERTY_HEADER, _IN_HEADER)


def _author_of(properties: Sequence[tuple[str, str]]) -> bytes:
    """Returns the party the header names, or without a header the key; unverified, empty for none."""
    return _publisher_of(properties) or _named_in(properties, PROPERTY_KEY, _IN_KEY)


def _named_in(properties: Sequence[tuple[str, str]], name: str, at: slice) -> bytes:
    """Returns the party id in a property; the last of repeated properties counts, as everywhere."""
    value = next((value for each, value in reversed(properties) if each == name), "")
    try:
        return base64.urlsafe_b64decode(value[:_START_CHARS])[at]
    except (binascii.Error, ValueError):
        return b""
