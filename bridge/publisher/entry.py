"""An outbox entry and its standing: the ground floor of this room, beside data keys.

`residents` owns the numbers and bytes of entries, `sealing` seals them, `publisher` moves them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from bridge.base import Row, Transitions
from bridge.contract import (
    Publication,
    UserProperties,
    Wire,
)
from bridge.document import Protection, RegionView, ScopeSecret
from bridge.publisher.data_keys import LiveKey
from bridge.wire import pieces as content
from keys.envelope import (
    KeyName,
    MessageHeader,
    Mode,
)
from keys.sharetree import Hop


class Standing(IntEnum):
    """Standing of an outbox entry: still to be sealed, waiting, sealed, or kept for stragglers only. The values are
    places in lists, since each entry is moved some five times.
    """

    FRESH = 0
    WAITING = 1
    SEALED = 2
    SETTLED = 3


class EntryTurn(StrEnum):
    """An event in the life of an outbox entry."""

    HINDERED = "hindered"
    FREED = "freed"
    SEALED = "sealed"
    HAD = "had by enough"
    UNSEALED = "unsealed"


_ANY = tuple(Standing)
ENTRY = Transitions(
    "An outbox entry",
    (Standing.FRESH,),
    (
        Row(EntryTurn.HINDERED, (Standing.FRESH, Standing.WAITING), Standing.WAITING,
            "no right, no epoch key, or a later life of the gateway: others go past it, and a review looks again"),
        Row(EntryTurn.FREED, (Standing.FRESH, Standing.WAITING), Standing.FRESH, "its turn in the lanes comes"),
        Row(EntryTurn.SEALED, (Standing.FRESH,), Standing.SEALED, "one copy goes to each replica of the home region"),
        Row(EntryTurn.HAD, _ANY, Standing.SETTLED,
            "n - f replicas acknowledged it: it is kept for stragglers, within their bounds"),
        Row(EntryTurn.UNSEALED, _ANY, Standing.FRESH,
            "its key, view, tree or scope ended before enough had it, or it became a void: acknowledgements are void"),
    ),
    "all replicas have it, it is too old, or bounds of stragglers drop it",
)  # fmt: skip


@dataclass(slots=True)
class Entry:
    """An outbox entry; `wire` is None until it is sealed, under `name`, for a `tree` and, if a key is used, for the
    views `hops`. The wire has all of the content traveling as copies; of `pieces`, into which other content is cut, it
    has none.
    """

    sequence: int
    publication: Publication
    secret: ScopeSecret
    previous: int
    born: float
    wire: Wire | None = None
    header: MessageHeader | None = None
    topic: str = ""
    """The topic on which the entry was last sealed."""
    signed: UserProperties = ()
    pieces: tuple[bytes, ...] = field(default=(), repr=False)
    name: KeyName | None = None
    hops: tuple[Hop, ...] = ()
    tree: int = 0
    protection: Protection = Protection.KEYED
    sealed_ms: int = 0
    may_be_had: bool = False
    """True if a former process may have sealed the entry."""
    key: LiveKey | None = None
    acked: set[str] = field(default_factory=set)
    too_large_for: set[str] = field(default_factory=set)
    standing: Standing = Standing.FRESH
    lacks_right: bool = False
    """True if the entry waits for the right to publish, not for a key."""
    goes_again: bool = False
    """True if an acknowledgement did not count: the next review sends the entry again to who lacks it."""
    shown: bytes | None = None
    had_enough: bool = False
    """n - f replicas had a former sealing, and may take another one, behind much else, for a repetition."""
    is_void: bool = False
    """True if the entry replaces a dropped one."""
    is_snapshot: bool = False
    """True for a snapshot of a retained publication: it follows nothing, and nothing follows it."""

    @property
    def was_sealed(self) -> bool:
        """True if replicas and readers may have the entry."""
        return self.may_be_had or self.sealed_ms > 0

    @property
    def since_s(self) -> float:
        """The start of its age: time of publication; for a snapshot, the time at which it was due."""
        return self.born if self.is_snapshot else self.publication.time_ms / 1000

    @property
    def chain(self) -> str:
        """The chain: entries of a chain are ordered by number."""
        return self.secret.clear_filter

    @property
    def size(self) -> int:
        """Bytes that it is counted for while it is in memory."""
        return len(self.publication.payload) + len(self.publication.topic)

    def wire_for(self, peer: str, view: RegionView) -> Wire:
        """Returns the wire for a replica in the home region's view."""
        assert self.wire is not None
        assert self.header is not None
        if self.header.mode not in (Mode.ONE, Mode.BLOCKS):
            return self.wire
        return self.with_pieces(content.carried(self.header, view.place_of(peer), len(view.members)))

    def with_pieces(self, parts: Iterable[int]) -> Wire:
        """Returns the publication with these of its pieces."""
        assert self.header is not None
        return content.wire(self.topic, self.header, self.signed, {index: self.pieces[index] for index in parts})


def has_enough(entry: Entry, view: RegionView) -> bool:
    """Returns True if n - f replicas of the view acknowledged the entry."""
    enough = len(view.members) - view.faults
    return len(entry.acked) >= enough and len(view.members_among(entry.acked)) >= enough


def sealed_ago_s(entry: Entry, now: float) -> float:
    """Returns the seconds since the entry was sealed, positive also if the clock was set back since."""
    return abs(now - entry.sealed_ms / 1000)
