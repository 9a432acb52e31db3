"""Bounds that are fair: whoever fills a table loses its own entries first (docs/protocol.md §1: a bad publisher harms
only its own publications).

`FairTable` holds values of many owners under one limit of their number, `FairBytes` of their size; `Repeats` tells
publications from repetitions; `Allowance` limits how often somebody may make us work, `FairBudget` how often several
may together, and `Deferrals` do later what came too often. The flood guard (EventGuard E4, docs/protocol.md §5.7) is
two budgets: `LinkGuard` charges the link for what does not hold, `publisher_guard` the publisher for what does, after
it was verified.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
# What an honest neighbour brings too, while a new policy or epoch spreads: signed, but no longer (or not yet) allowed.
TRANSITION_COST = 0.1
TRANSITIONS = frozenset(
    {"NotAuthorised", "Expired", "WrongEpochKey", "Replayed", "TooOften", "UnknownView", "NotFresh", "Superseded"}
)
AUTHORED_PART = 0.2  # of that, what the link pays beside the author: five authors together can close it
ROUNDING = 1e-6  # of an allowance: when it says that it gives again, it does
FAIR_STEP_S = 0.02  # between times at which a shared budget grows
_START_CHARS = 28  # base64 of the 21 bytes before and with the publisher's id
_IN_HEADER, _IN_KEY = slice(4, 20), slice(3, 19)


class FairTable(Generic[K, V]):
    """At most `limit` values. When there is one too many, the owner with the most entries loses its oldest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[K, tuple[bytes, V]] = {}
        self._owned: Belongings[bytes, K] = Belongings()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def is_even(self) -> bool:
        """Whether nobody has more than one value."""
        return len(self._owned) == len(self._values)

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[1]

    def touch(self, key: K) -> None:
        """`key` was used: of its owner's entries it is now the newest."""
        self._owned.renew(self._values[key][0], key)

    def put(self, key: K, owner: bytes, value: V) -> tuple[K, V] | None:
        """Store or replace a value, as its owner's newest. Returns what had to go, if anything."""
        self.pop(key)
        self._values[key] = (owner, value)
        self._owned.add(owner, key)
        if len(self._values) <= self._limit:
            return None
        oldest = self._owned.oldest_of_most()
        gone = self.pop(oldest)
        assert gone is not None
        return oldest, gone

    def pop(self, key: K) -> V | None:
        found = self._values.pop(key, None)
        if found is None:
            return None
        self._owned.drop(found[0], key)
        return found[1]

    def values(self) -> Iterator[V]:
        """In the order in which they were put. The table must not change meanwhile."""
        return (value for _, value in self._values.values())

    def items(self) -> Iterator[tuple[K, V]]:
        """The same with keys."""
        return ((key, value) for key, (_, value) in self._values.items())


CHAR_BYTES = 4
"""What a character of a text takes in memory at most."""


def wire_bytes(wire: Wire) -> int:
    """What a wire that waits takes, but for its topic and the tables: content and properties."""
    return len(wire.payload) + CHAR_BYTES * sum(len(text) for pair in wire.properties for text in pair)


class FairBytes(Generic[K, V]):
    """Values of at most `limit` bytes together. When there is too much, the owner with most loses its oldest."""

    def __init__(self, limit: int, overhead: int) -> None:
        """`overhead`: what each value costs beside its size, so that their number is bounded too."""
        self._limit = limit
        self._overhead = overhead
        self._values: OrderedDict[K, tuple[bytes, V, int]] = OrderedDict()
        self._by_owner: dict[bytes, OrderedDict[K, None]] = {}
        self._bytes: dict[bytes, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[1]

    def put(self, key: K, owner: bytes, value: V, size: int) -> list[tuple[K, V]]:
        """Store or replace a value, as its owner's newest. Returns what had to go: itself too, if it is too large."""
        if key in self._values:
            self.pop(key)
        self._by_owner.setdefault(owner, OrderedDict())[key] = None
        return self._add(key, owner, value, 0, size + self._overhead)

    def grow(self, key: K, size: int) -> None:
        """A value that may still be there became larger."""
        found = self._values.get(key)
        if found is None:
            return
        self._add(key, *found, size)

    def _add(self, key: K, owner: bytes, value: V, before: int, size: int) -> list[tuple[K, V]]:
        self._values[key] = (owner, value, before + size)
        self._bytes[owner] = self._bytes.get(owner, 0) + size
        self._total += size
        gone: list[tuple[K, V]] = []
        while self._total > self._limit:
            greediest = max(self._bytes, key=self._bytes.__getitem__)
            oldest = next(iter(self._by_owner[greediest]))
            gone.append((oldest, self._values[oldest][1]))
            self.pop(oldest)
        return gone

    def pop(self, key: K) -> V | None:
        found = self._values.pop(key, None)
        if found is None:
            return None
        owner, value, size = found
        del self._by_owner[owner][key]
        self._bytes[owner] -= size
        self._total -= size
        if not self._by_owner[owner]:
            del self._by_owner[owner], self._bytes[owner]
        return value

    def items(self) -> Iterator[tuple[K, V]]:
        """Oldest first. The table must not change meanwhile."""
        return ((key, value) for key, (_, value, _) in self._values.items())


class Repeats:
    """What one publisher's sequences were seen before, at a replica.

    A gateway that was killed seals its outbox anew under the same sequences; the first sealing may have reached one
    replica only. Hence a later sealing of a recent sequence is no repetition; of an older one it is. Later is what was
    sealed later, or in a later life or under a later key of it, since a clock may be set back between two lives. The
    greatest of either is remembered, so that no two sealings make each other news.
    """

    __slots__ = ("_sealed", "_window")

    def __init__(self) -> None:
        self._window = SequenceWindow()
        self._sealed: OrderedDict[int, tuple[int, tuple[int, int]]] = OrderedDict()

    def knows(self, sequence: int, sealed_ms: int, life: tuple[int, int] = (0, 0)) -> bool:
        """Whether this sealing, or a later one, came before; marks nothing. `life`: generation, and key of it."""
        before_ms, before = self._sealed.get(sequence, (sealed_ms, life))
        return sequence in self._window and sealed_ms <= before_ms and life <= before

    def seen(self, sequence: int, sealed_ms: int, life: tuple[int, int] = (0, 0)) -> bool:
        """Mark; True if this sealing, or a later one, came before."""
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
    """`burst` times at once, and once more every `every_s`."""

    __slots__ = ("_at", "_burst", "_every_s", "_left")

    def __init__(self, burst: int, every_s: float, now: float) -> None:
        self._burst = self._left = float(burst)
        self._every_s = every_s
        self._at = now

    def take(self, now: float) -> bool:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) / self._every_s)
        self._at = now
        if self._left < 1 - ROUNDING:
            return False
        self._left = max(0.0, self._left - 1)
        return True

    @property
    def wait_s(self) -> float:
        """Seconds from the last question until it gives once more."""
        return max(0.0, 1 - self._left) * self._every_s


class Deferrals(Generic[K]):
    """Allowances by name that postpone and never forget: what comes too often is due later, and then once.

    Bounded by the names, which the caller `keep`s to members and scopes of the signed overlay.
    """

    def __init__(self, burst: int, every_s: float) -> None:
        self._burst, self._every_s = burst, every_s
        self._allowances: dict[K, Allowance] = {}
        self._due_at: dict[K, float] = {}

    def __len__(self) -> int:
        """Names that are known."""
        return len(self._allowances)

    def take(self, key: K, now: float) -> bool:
        """Spends one; False: there is none, and `due` names the key as soon as there is."""
        allowance = self._allowances.get(key)
        if allowance is None:
            allowance = self._allowances[key] = Allowance(self._burst, self._every_s, now)
        if allowance.take(now):
            self._due_at.pop(key, None)
            return True
        self._due_at[key] = now + allowance.wait_s
        return False

    def due(self, now: float) -> list[K]:
        """Returns what was postponed and may be done now; who does so takes again. A clock that was set back delays
        nothing for longer than one interval."""
        due = [key for key, at in self._due_at.items() if not now < at <= now + self._every_s]
        for key in due:
            del self._due_at[key]
        return due

    def drop(self, key: K) -> None:
        """Nobody waits for it any more. What was spent stays spent."""
        self._due_at.pop(key, None)

    def keep(self, keeps: Callable[[K], bool]) -> None:
        """Forgets all names but these."""
        self._allowances = {key: left for key, left in self._allowances.items() if keeps(key)}
        self._due_at = {key: at for key, at in self._due_at.items() if keeps(key)}

    @property
    def next_deadline(self) -> float | None:
        return min(self._due_at.values(), default=None)


class Budget:
    """A token bucket that may go into debt: who exceeds it waits until it is paid back. The debt is at most
    `debt_max`, one burst if that is not said. `signed`: time is what others sign, who could go back and forth in it."""

    __slots__ = ("_at", "_burst", "_debt_max", "_left", "_per_s", "_signed")

    def __init__(
        self, per_s: float, burst: float, now: float, debt_max: float | None = None, signed: bool = False
    ) -> None:
        self._signed = signed
        self._per_s = per_s
        self._burst = self._left = burst
        self._debt_max = burst if debt_max is None else debt_max
        self._at = now

    def open(self, now: float) -> bool:
        """Whether something is left. A clock that goes back gives nothing, and goes on from there."""
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = max(self._at, now) if self._signed else now
        return self._left > 0

    def spend(self, cost: float, now: float) -> bool:
        """Pay; False if that empties it."""
        self.open(now)
        self._left = max(-self._debt_max, self._left - cost)
        return self._left > 0

    def would_open(self, at: float) -> bool:
        """Whether something would be left then; changes nothing."""
        return self._left + max(0.0, at - self._at) * self._per_s > 0

    @property
    def left(self) -> float:
        """As of the last question; below 0 it is a debt."""
        return self._left

    @property
    def owed_s(self) -> float:
        """How long it takes to pay the debt back."""
        return max(0.0, -self._left) / self._per_s


class FairBudget:
    """A token bucket that several owners share: who spends most of it runs dry first. An owner may spend while it owes
    less than is left (dynamic thresholds, Choudhury and Hahne 1998), so that something is always left for who owes
    nothing; alone it has half of the burst. What comes back is shared equally by all who owe.
    """

    __slots__ = ("_at", "_burst", "_owed", "_per_s", "_total")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._owed: dict[bytes, float] = {}
        self._total = 0.0
        self._at = now

    def take(self, owner: bytes, now: float) -> bool:
        """Spend one; False if this owner has to wait."""
        self._pay_back(now)
        owed = self._owed.get(owner, 0.0)
        if owed + 1 > self._burst - self._total:
            return False
        self._owed[owner] = owed + 1
        self._total += 1
        return True

    def _pay_back(self, now: float) -> None:
        """What came back since the last time, in steps: it costs a look at each owner."""
        self._at = min(self._at, now)  # a clock that was set back gives nothing, and goes on from there
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
    """What each neighbour's wires cost us for nothing. When its budget is gone its wires are dropped unread.

    A link is charged for what its sender should have checked itself. What an honest neighbour may bring while a policy
    or an epoch changes is charged little; repetitions of what holds are free, since copies are how delivery survives.
    What somebody signed and two honest parties may judge differently, by their clocks or by what they heard before, is
    charged to the author at this neighbour: its author could choose it so that all our neighbours bring it. Then what
    names that author is dropped there, and nothing else. The link itself pays a part, for who replays such things of
    many authors.
    """

    def __init__(self) -> None:
        self._budgets: dict[str, Budget] = {}  # of neighbours that brought something bad
        self._authors: dict[tuple[str, bytes], Budget] = {}  # of neighbours, and certified authors
        self._in_debt: dict[str, set[bytes]] = {}  # those of them that are, by neighbour

    def closed(self, peer: str, properties: Sequence[tuple[str, str]], now: float) -> bool:
        """Whether to drop a wire with these properties unread."""
        budget = self._budgets.get(peer)
        if budget is not None and not budget.open(now):
            return True
        authors = self._in_debt.get(peer)
        if not authors:
            return False
        author = _author_of(properties)
        if author not in authors:
            return False
        if self._authors[peer, author].open(now):
            authors.discard(author)
            return False
        return True

    def charge(self, peer: str, effects: Iterable[Effect], now: float) -> None:
        """Pay for what a machine refused of one wire."""
        for effect in effects:
            if isinstance(effect, Count) and effect.name == "refused":
                cost = TRANSITION_COST if effect.label in TRANSITIONS else 1.0
                if effect.of and effect.label in TRANSITIONS:
                    if not _spend(self._authors, (peer, effect.of), cost, now):
                        self._in_debt.setdefault(peer, set()).add(effect.of)
                    cost *= AUTHORED_PART
                _spend(self._budgets, peer, cost, now)

    def keep(self, peers: Iterable[str]) -> None:
        """Forget whoever is no neighbour any more, and in whose name the others brought something."""
        kept = set(peers)
        self._budgets = {peer: budget for peer, budget in self._budgets.items() if peer in kept}
        self._authors = {pair: budget for pair, budget in self._authors.items() if pair[0] in kept}
        self._in_debt = {peer: authors for peer, authors in self._in_debt.items() if peer in kept}


def _spend(budgets: dict[K, Budget], whose: K, cost: float, now: float) -> bool:
    budget = budgets.get(whose)
    if budget is None:
        budget = budgets[whose] = Budget(REFUSED_PER_S, REFUSED_BURST, now)
    return budget.spend(cost, now)


def _publisher_of(properties: Sequence[tuple[str, str]]) -> bytes:
    """Whom the header names, unverified; empty for none."""
    return _named_in(properties, PROPERTY_HEADER, _IN_HEADER)


def _author_of(properties: Sequence[tuple[str, str]]) -> bytes:
    """The same, and without a header whom the key names."""
    return _publisher_of(properties) or _named_in(properties, PROPERTY_KEY, _IN_KEY)


def _named_in(properties: Sequence[tuple[str, str]], name: str, at: slice) -> bytes:
    """Of a repeated property the last counts, as everywhere."""
    value = next((value for each, value in reversed(properties) if each == name), "")
    try:
        return base64.urlsafe_b64decode(value[:_START_CHARS])[at]
    except (binascii.Error, ValueError):
        return b""
