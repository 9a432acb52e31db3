"""The owner's policy: scopes, grants, the calendar of epochs, the issuer of keys, and the edges between regions.

A signed, versioned document (docs/protocol.md §2.3, §6). A topic belongs to its most specific scope; grants and
revocations name scopes. The policy carries a digest over all views and members of its version, so that a party
delivering the overlay cannot mix old parts with new ones. Not here: members, regions and the questions that machines
ask (`overlay`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from itertools import count

from bridge.document.batching import BATCHING, Batching
from bridge.document.history import History
from bridge.document.member_budgets import MEMBER_BUDGETS, MemberBudgets
from bridge.document.organise import Organising
from bridge.document.shown import SHOWN_MAX, ShownAttribute
from bridge.document.trees import FIRST_TREE, TreeChange, encode_edges, read_edges
from keys.envelope import Mode
from keys.epochs import Calendar
from keys.errors import BadFrame
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.grants import Grant
from keys.identity import Identity

FLAG_TOKENS = 0x01
FLAG_SHARES_ONLY = 0x02
FLAG_RETIRING = 0x04
FLAG_KEYS_ON_TOPIC = 0x08
FLAG_SHOWN = 0x10
FLAG_PLANES = 0x20
FLAG_BATCHES = 0x40  # it says how many records go together
FLAG_ORIGIN = 0x80  # it goes on with the streams of another number
SCOPE_FLAGS = (
    FLAG_TOKENS
    | FLAG_SHARES_ONLY
    | FLAG_RETIRING
    | FLAG_KEYS_ON_TOPIC
    | FLAG_SHOWN
    | FLAG_PLANES
    | FLAG_BATCHES
    | FLAG_ORIGIN
)
REFRESH_MESSAGES_MAX = 65_536  # a reader remembers which sequences a key served
REFRESH_BYTES_MAX = 1 << 31
REFRESH_SECONDS_MAX = 86_400
KEY_SERVERS_MAX = 16  # of a chain; a threshold service has at most `keys.material.THRESHOLD_SERVERS_MAX`
ENDLESS_EPOCH = Calendar()
DOMAIN_POLICY = "veilmq/1 policy"
FLAG_TREE = 0x01  # of a policy: it holds the number of its tree, and the tree before
FLAG_ORGANISING = 0x02  # replicas measure
FLAG_BARS = 0x04  # some links are barred
FLAG_ORGANISER = 0x08  # a member changes trees in the owner's place
FLAG_WEIGHT = 0x10  # processing and links count differently in costs
FLAG_QUANTUM_SAFE = 0x20  # boxes to members withstand the break of X25519
FLAG_HISTORY = 0x40  # replicas keep publications of some scopes
FLAG_MORE = 0x80  # more flags follow
POLICY_FLAGS = (
    FLAG_TREE
    | FLAG_ORGANISING
    | FLAG_BARS
    | FLAG_ORGANISER
    | FLAG_WEIGHT
    | FLAG_QUANTUM_SAFE
    | FLAG_HISTORY
    | FLAG_MORE
)
MORE_RECEIPTS = 0x01  # of these: readers of some scopes sign receipts


class Issuer(IntEnum):
    """The issuer of the scopes' epoch keys (docs/protocol.md §6.3)."""

    OWNER = 0
    """The owner itself, in the overlay file: one endless epoch, a new key by a bump."""
    CHAIN = 1
    """Stateless key servers of one trust domain with one root, walked forward."""
    THRESHOLD = 2
    """n >= 3f + 1 key servers, of which no f can derive a key."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Limits of a data key: messages, bytes and seconds, whichever comes first (A9). Then the publisher takes the
    next.
    """

    messages: int = 64
    sealed_bytes: int = 1 << 20
    age_s: int = 60

    def encode(self) -> bytes:
        return number(self.messages, 4) + number(self.sealed_bytes, 4) + number(self.age_s, 4)

    @classmethod
    def read(cls, frame: Reader) -> Refresh:
        """Reads the limits. Raises BadFrame for numbers out of range."""
        refresh = cls(frame.number(4), frame.number(4), frame.number(4))
        most = (REFRESH_MESSAGES_MAX, REFRESH_BYTES_MAX, REFRESH_SECONDS_MAX)
        if not all(1 <= value <= limit for value, limit in zip(refresh.values, most, strict=True)):
            raise BadFrame(f"data keys renewed after {refresh.values}; at most {most}, and at least 1 each")
        return refresh

    @property
    def values(self) -> tuple[int, int, int]:
        return self.messages, self.sealed_bytes, self.age_s


REFRESH = Refresh()


class Protection(StrEnum):
    """The protection of a scope's publications from reading; its names are shown to people."""

    PLAIN = "plain"
    """No protection."""
    SHARES = "shares_only"
    """Shares: only a bad majority of a region could read."""
    KEYED = "sealed"
    """Shares and the epoch key."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Topics sharing a single epoch key. `filter` is the filter on the wire: tokens where names are hidden.

    `regions` are the regions that publications of the scope may enter; empty means all of them. `bump` rises when a
    member is shut out at once: keys of lower bumps seal nothing from then on. A `retiring` scope is still read, but
    no longer published in: its topics have new tokens. `keys_on_topic`: data keys do not ride on publications but
    come once each, on a topic of their own (`key_repository`). `number`: names the scope on the wire, for good,
    whatever its filter; the owner counts numbers up and uses none again. 0: no number yet (`numbered`). `origin`: the
    first number that this scope had, under other tokens; 0: its own. `shown`: attributes by which replicas may filter
    its publications. `planes`: publications may take detours over other replicas (`topology.planes`). `batch`: limits
    of its batches. `history`: how replicas keep it; None: they do not. `receipts`: its readers sign what they have.
    Both stand in the policy beside the scope.
    """

    filter: str
    mode: Mode = Mode.COPIES
    regions: tuple[int, ...] = ()
    tokens: bool = False
    shares_only: bool = False
    bump: int = 0
    retiring: bool = False
    keys_on_topic: bool = False
    refresh: Refresh = REFRESH
    number: int = 0
    shown: tuple[ShownAttribute, ...] = ()
    planes: bool = False
    batch: Batching = BATCHING
    origin: int = 0
    history: History | None = None
    receipts: bool = False

    @property
    def stream(self) -> int:
        """The number staying when tokens change: under it readers remember publications, and chains go on."""
        return self.origin or self.number

    @property
    def keyed(self) -> bool:
        """True if reading takes an epoch key."""
        return self.mode is not Mode.PLAIN and not self.shares_only

    @property
    def protection(self) -> Protection:
        """The protection of the scope, which stays for good, unless nothing of the scope waits.

        Members take a publication only under this protection.
        """
        if self.mode is Mode.PLAIN:
            return Protection.PLAIN
        return Protection.SHARES if self.shares_only else Protection.KEYED

    @property
    def by_planes(self) -> bool:
        """True if each copy of a publication goes by one plane; content of a sealed scope takes detours only."""
        return self.planes and self.mode is Mode.PLAIN

    def encode(self) -> bytes:
        flags = (FLAG_TOKENS if self.tokens else 0) | (FLAG_SHARES_ONLY if self.shares_only else 0)
        flags |= (FLAG_RETIRING if self.retiring else 0) | (FLAG_KEYS_ON_TOPIC if self.keys_on_topic else 0)
        flags |= (FLAG_SHOWN if self.shown else 0) | (FLAG_PLANES if self.planes else 0)
        flags |= (FLAG_BATCHES if self.batch != BATCHING else 0) | (FLAG_ORIGIN if self.origin else 0)
        parts = [opening(Kind.SCOPE, flags), text(self.filter), number(self.mode, 1), number(self.bump, 2)]
        parts += [number(len(self.regions), 1), *(number(r, 4) for r in self.regions)]
        shown = [number(len(self.shown), 1), *(each.encode() for each in self.shown)] if self.shown else []
        batch = self.batch.encode() if self.batch != BATCHING else b""
        origin = number(self.origin, 4) if self.origin else b""
        return b"".join([*parts, self.refresh.encode(), number(self.number, 4), *shown, batch, origin])

    @classmethod
    def decode(cls, data: bytes) -> Scope:
        frame = Reader(data)
        flags = frame.opening(Kind.SCOPE, SCOPE_FLAGS)
        wire_filter, mode, bump = frame.text(), frame.number(1), frame.number(2)
        if mode not in Mode.__members__.values():
            raise BadFrame(f"unknown content mode {mode}")
        regions = tuple(frame.number(4) for _ in range(frame.number(1)))
        refresh, scope_number = Refresh.read(frame), frame.number(4)
        shown = _read_shown(frame) if flags & FLAG_SHOWN else ()
        batch = Batching.read(frame) if flags & FLAG_BATCHES else BATCHING
        origin = frame.number(4) if flags & FLAG_ORIGIN else 0
        if flags & FLAG_ORIGIN and not 1 <= origin < scope_number:
            raise BadFrame(f"scope {scope_number} goes on with {origin}, which was not before it")
        frame.expect_end()
        tokens, shares_only, retiring, on_topic = (
            bool(flags & f) for f in (FLAG_TOKENS, FLAG_SHARES_ONLY, FLAG_RETIRING, FLAG_KEYS_ON_TOPIC)
        )
        return cls(
            wire_filter,
            Mode(mode),
            regions,
            tokens,
            shares_only,
            bump,
            retiring,
            on_topic,
            refresh,
            scope_number,
            shown,
            bool(flags & FLAG_PLANES),
            batch,
            origin,
        )


def _read_shown(frame: Reader) -> tuple[ShownAttribute, ...]:
    count = frame.number(1)
    if not 1 <= count <= SHOWN_MAX:
        raise BadFrame(f"a scope that shows {count} attributes")
    shown = tuple(ShownAttribute.read(frame) for _ in range(count))
    if len({each.name for each in shown}) != count:
        raise BadFrame("a scope shows an attribute twice")
    return shown


def misrouted(scope: Scope, hosted: Collection[str]) -> str:
    """Returns why a scope cannot go by planes or have receipts, or nothing; `hosted`: hosted brokers of its
    regions.
    """
    if scope.receipts and hosted:
        return (
            f"scope {scope.filter:.40} has receipts, and the hosted broker {min(hosted)} carries none; "
            "leave its region out, or set receipts: false"
        )
    if scope.planes and hosted:
        return (
            f"scope {scope.filter:.40} goes by planes, and the hosted broker {min(hosted)} knows none; "
            "route it by regions, or leave its region out"
        )
    return ""


def _histories(scopes: Iterable[Scope]) -> list[bytes]:
    """Returns the parts of a policy's body that say which scopes have a history; none if none has."""
    kept = sorted((scope.number, scope.history) for scope in scopes if scope.history is not None)
    found = [number(scope, 4) + history.encode() for scope, history in kept]
    return [number(len(found), 2), *found] if found else []


def _with_histories(frame: Reader, scopes: tuple[Scope, ...]) -> tuple[Scope, ...]:
    """Reads histories, and returns the scopes with them. Raises BadFrame for other scopes, or another order."""
    kept: dict[int, History] = {}
    for _ in range(frame.number(2)):
        of = frame.number(4)
        if kept and of <= max(kept):
            raise BadFrame("histories are not in order of their scopes")
        kept[of] = History.read(frame)
    if not kept or not kept.keys() <= {scope.number for scope in scopes}:
        raise BadFrame("a history of a scope that is not listed, or none where one is announced")
    return tuple([replace(scope, history=kept.get(scope.number)) for scope in scopes])


def _receipts(scopes: Iterable[Scope]) -> list[bytes]:
    """Returns the parts of a policy's body that say which scopes have receipts; none if none has."""
    found = sorted(scope.number for scope in scopes if scope.receipts)
    if not found:
        return []
    return [number(MORE_RECEIPTS, 1), number(len(found), 2), *(number(scope, 4) for scope in found)]


def _with_more(frame: Reader, scopes: tuple[Scope, ...]) -> tuple[Scope, ...]:
    """Reads the further flags and the scopes with receipts, and returns the scopes with them. Raises BadFrame."""
    if (more := frame.number(1)) != MORE_RECEIPTS:
        raise BadFrame(f"a policy with unknown further flags {more:#04x}")
    found = [frame.number(4) for _ in range(frame.number(2))]
    if not found or found != sorted(set(found)) or not set(found) <= {scope.number for scope in scopes}:
        raise BadFrame("receipts of scopes that are not listed, not in order, or of none where some are announced")
    return tuple([replace(scope, receipts=scope.number in found) for scope in scopes])


def numbered(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """Returns the scopes with the next free numbers for scopes without number."""
    known = tuple(scopes)
    following = count(max((scope.number for scope in known), default=0) + 1)
    return tuple([scope if scope.number else replace(scope, number=next(following)) for scope in known])


@dataclass(frozen=True, slots=True)
class Policy:
    """The owner's versioned rules.

    `edges`: edges between regions, a tree; `tree`: its number, and the tree before. `organising`: rules for measuring
    replicas, and other edges that may join regions. `key_servers`: names, in the order that numbers them. `budgets`:
    of each member.

    `contents`: SHA-256 over all views and members going with this version, so that a party that delivers the file
    cannot mix old parts with new ones, or exchange an address. `quantum_safe`: every gateway and ingest job has a
    hybrid key for boxes (`keys.sealedbox`).
    """

    overlay: str
    version: int
    edges: tuple[tuple[int, int], ...]
    scopes: tuple[Scope, ...]
    grants: tuple[Grant, ...] = ()
    calendar: Calendar = ENDLESS_EPOCH
    issuer: Issuer = Issuer.OWNER
    key_servers: tuple[str, ...] = ()
    contents: bytes = bytes(32)
    signature: bytes = b""
    budgets: MemberBudgets = MEMBER_BUDGETS
    tree: TreeChange = FIRST_TREE
    organising: Organising | None = None
    quantum_safe: bool = False

    def signed_bytes(self) -> bytes:
        parts = [
            opening(Kind.POLICY, self._flags),
            text(self.overlay),
            number(self.version, 8),
            self.contents,
            encode_edges(self.edges),
            self.tree.encode() if self.tree.number else b"",
            self.organising.encode() if self.organising else b"",
            self.organising.encode_bars() if self.organising and self.organising.bars else b"",
            self.organising.encode_organiser() if self.organising and self.organising.organiser else b"",
            self.organising.encode_weight() if self.organising and self.organising.is_weighed else b"",
        ]
        parts += [number(len(self.scopes), 2), *(sized(s.encode()) for s in self.scopes)]
        parts += [number(len(self.grants), 2), *(sized(g.encode()) for g in self.grants)]
        parts += _histories(self.scopes) + _receipts(self.scopes)
        parts += [
            self.budgets.encode(),
            self.calendar.encode(),
            number(self.issuer, 1),
            number(len(self.key_servers), 1),
        ]
        return b"".join([*parts, *map(text, self.key_servers)])

    @property
    def _flags(self) -> int:
        flags = FLAG_TREE * bool(self.tree.number) | FLAG_QUANTUM_SAFE * self.quantum_safe
        flags |= FLAG_HISTORY * any(scope.history is not None for scope in self.scopes)
        flags |= FLAG_MORE * any(scope.receipts for scope in self.scopes)
        if self.organising is not None:
            flags |= FLAG_ORGANISING | FLAG_BARS * bool(self.organising.bars)
            flags |= FLAG_ORGANISER * bool(self.organising.organiser) | FLAG_WEIGHT * self.organising.is_weighed
        return flags

    def signed(self, owner: Identity) -> Policy:
        return replace(self, signature=owner.sign(DOMAIN_POLICY, self.signed_bytes()))

    @classmethod
    def decode(cls, body: bytes, signature: bytes) -> Policy:
        frame = Reader(body)
        flags = frame.opening(Kind.POLICY, POLICY_FLAGS)
        overlay, version, contents = frame.text(), frame.number(8), frame.take_bytes(32)
        edges = read_edges(frame)
        tree = TreeChange.read(frame) if flags & FLAG_TREE else FIRST_TREE
        organising = Organising.read(frame) if flags & FLAG_ORGANISING else None
        if flags & (FLAG_BARS | FLAG_ORGANISER | FLAG_WEIGHT) and organising is None:
            raise BadFrame("links are barred, somebody organises, or costs are weighed, where nobody measures")
        if organising is not None and flags & FLAG_BARS:
            organising = organising.read_bars(frame)
        if organising is not None and flags & FLAG_ORGANISER:
            organising = organising.read_organiser(frame)
        if organising is not None and flags & FLAG_WEIGHT:
            organising = organising.read_weight(frame)
        scopes = tuple(Scope.decode(frame.sized()) for _ in range(frame.number(2)))
        grants = tuple(Grant.decode(frame.sized()) for _ in range(frame.number(2)))
        if flags & FLAG_HISTORY:
            scopes = _with_histories(frame, scopes)
        if flags & FLAG_MORE:
            scopes = _with_more(frame, scopes)
        budgets = MemberBudgets.read(frame)
        calendar, issuer = Calendar.read(frame), frame.number(1)
        if issuer not in Issuer.__members__.values():
            raise BadFrame(f"unknown issuer of keys {issuer}")
        servers = tuple(frame.text() for _ in range(frame.number(1)))
        frame.expect_end()
        return cls(
            overlay,
            version,
            edges,
            scopes,
            grants,
            calendar,
            Issuer(issuer),
            servers,
            contents,
            signature,
            budgets,
            tree,
            organising,
            bool(flags & FLAG_QUANTUM_SAFE),
        )

    @property
    def server_faults(self) -> int:
        """f: key servers that may lie or be away. A chain is a single trust domain: its servers are believed."""
        return (len(self.key_servers) - 1) // 3 if self.issuer is Issuer.THRESHOLD else 0
