"""The one contract of every machine in `bridge/`: events and the time go in, effects come out.

    effects = machine.handle(event, now)        # now: seconds since the UNIX epoch, never decreasing by much
    machine.next_deadline                       # when `handle(Tick(), now)` is wanted next, or None

No I/O, no clock, no randomness. `gateway/overlay/driver.py` and the simulator (`bridge/sim/kernel.py`) drive the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from typing import Protocol, TypeAlias

from bridge.contract.loads import Loads, Worked
from bridge.contract.withholding import Take, Withhold
from bridge.document import Overlay
from bridge.predicates import Predicate
from keys.epochs import KeyName
from keys.identity import Identity
from keys.issuing import KeepArchive, KeepMaterial
from keys.values import value

UserProperties: TypeAlias = tuple[tuple[str, str], ...]


@value
class Wire:
    """One PUBLISH between two parties of the overlay, as MQTT 5 carries it.

    `topic` names a scope by its number; `properties` are `vmq`, `vmq-key` and `vmq-shares` (docs/protocol.md §8:
    unpadded base64url of binary frames). `expiry_s`: how long a broker that knows nothing of deadlines should keep it.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    properties: UserProperties = ()
    expiry_s: int | None = None


@value
class Publication:
    """An application message in clear: what a device sent, or what a local client will get."""

    topic: str
    payload: bytes = field(repr=False)
    qos: int = 0
    retain: bool = False
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    payload_format: int | None = None
    properties: UserProperties = ()
    expiry_s: int | None = None
    time_ms: int = 0
    records: int = 0
    """Of a batch: how many publications its payload holds (`batches`)."""
    in_clear: bool | None = field(default=None, compare=False)  # whether a plain scope took it; None: that is not known
    owner: str = field(default="", compare=False, repr=False)  # who caused it here: a user or a client; goes nowhere


# ---------------------------------------------------------------------------------------------- events


@value
class LinkUp:
    """A mutually authenticated link to member `peer` can carry messages in our direction."""

    peer: str


@value
class LinkDown:
    """The link to member `peer` is gone; what was sent and not acknowledged may be lost."""

    peer: str


@value
class Received:
    """`peer` (named by its certificate, not by what it says) published `wire` to us. `acknowledged`: before now."""

    peer: str
    wire: Wire
    acknowledged: bool = False


@value
class Acked:
    """`peer` acknowledged (PUBACK or SUBACK, success) what was sent with `ticket`."""

    peer: str
    ticket: int


@value
class NotTaken:
    """`peer` did not take what was sent with `ticket`; `reason`: one of `refusing.Reason`."""

    peer: str
    ticket: int
    reason: str


@value
class Lost:
    """What carried the key header `key`, as a property's text, found no room at `peer`, which dialled us."""

    peer: str
    key: str


OutboxEntry: TypeAlias = tuple[int, int, Publication]
"""(sequence, previous, publication). `previous`: of the preceding QoS >= 1 publication in the same scope; 0: none."""


@value
class Appending:
    """Publications of QoS 1 or 2 are on their way to the disk; for each `Committed` or `NotAppended` follows."""

    sequences: tuple[int, ...]


@value
class NotAppended:
    """The disk did not take it; whoever published was told."""

    sequence: int


@value
class Committed:
    """Outbox entries that have just been written to disk, in order of sequence."""

    entries: tuple[OutboxEntry, ...]


@value
class Unstored:
    """A publication of QoS 0: it has a sequence, and is nowhere but in memory."""

    sequence: int
    publication: Publication


@value
class OutboxPage:
    """The answer to `ReadPage`: entries that nobody had in hand, and where to read on (None: nothing is left).
    `unreadable`: the disk could not be read; it is asked again."""

    entries: tuple[OutboxEntry, ...]
    following: int | None
    unreadable: bool = False


@value
class Offered:
    """Somebody put this document, not verified yet, in the place of the overlay file."""

    document: bytes = field(repr=False)


@value
class KeyWanted:
    """A reader outside the node met a key header of an epoch key that it lacks."""

    name: KeyName


@value
class KeyDoubted:
    """A reader outside the node met a publisher's check value that contradicts the epoch key that we hold."""

    name: KeyName


@value
class Subscribed:
    """A local client subscribed to `filter` (clear names), and wants what `predicate` holds for; None: everything. Said
    of the first one, and of others unless all they want is wanted already. `narrows`: now that is all."""

    filter: str
    predicate: Predicate | None = None
    narrows: bool = False


@value
class Unsubscribed:
    """The last local client left `filter`."""

    filter: str


@value
class GroupJoined:
    """`$share/<group>/<filter>` has local clients; `Subscribed` came before, if the filter was new. Told again whenever
    `is_whole` changes: whether one of them may receive all that the filter matches. `owner`: the client for whom the
    group is held."""

    group: str
    filter: str
    is_whole: bool = True
    owner: str = ""


@value
class GroupLeft:
    """The last local client left the group; before `Unsubscribed`."""

    group: str
    filter: str


@value
class Tick:
    """Time passed; sent when `next_deadline` is reached."""


@value
class Rotated:
    """We have another key pair from now on: the one of our certificate in the overlay in force."""

    identity: Identity


@value
class Restored:
    """What a former process of ours asked to `Keep`. Before any other event."""

    rows: tuple[tuple[bytes, bytes], ...] = field(repr=False)


Event: TypeAlias = (
    LinkUp | LinkDown | Received | Acked | NotTaken | Lost | Appending | NotAppended | Committed | Unstored
    | OutboxPage | Subscribed | Unsubscribed | GroupJoined | GroupLeft | Offered | KeyWanted | KeyDoubted | Tick
    | Rotated | Restored | Loads | Worked
)  # fmt: skip


# --------------------------------------------------------------------------------------------- effects


@value
class Send:
    """Publish `wire` to `peer` at QoS 1; answer with `Acked(peer, ticket)` if `ticket` is not 0."""

    peer: str
    wire: Wire
    ticket: int = 0


@value
class Refuse:
    """Do not acknowledge what was received just now: say to its sender that it was refused, and why."""

    reason: str


@value
class Delay:
    """Acknowledge what was received just now, so many seconds later."""

    delay_s: float


@value
class Watch:
    """Subscribe (`on`) to the wire filter at `peer`, or unsubscribe, as an ordinary MQTT client would; answer with
    `Acked(peer, ticket)` once it stands if `ticket` is not 0."""

    peer: str
    filter: str
    on: bool = True
    ticket: int = 0


@value
class Deliver:
    """A verified, opened publication for local subscribers. `late`: it came after its successor. `scope`: its wire
    filter. `sealed_ms`: the signed time at which it was sent. `groups_lost`: local shared groups, as (name, filter),
    that another gateway serves with it. `stored`: replicas had retained it when they told us, so that it may be older
    than subscriptions here."""

    publisher: str
    sequence: int
    publication: Publication
    late: bool = False
    scope: str = ""
    sealed_ms: int = 0
    groups_lost: frozenset[tuple[str, str]] = frozenset()
    stored: bool = False


@value
class DeliverShared:
    """A publication for one local shared group only, which was another gateway's to serve until now."""

    group: str
    filter: str
    publication: Publication


@value
class Forget:
    """Outbox entries that every party has: delete them."""

    sequences: tuple[int, ...]


@value
class Keep:
    """Rows of ours that outlive this process, by key; None: gone. They are written with what the effects beside them
    deliver; the wire that brought these may be acknowledged once they are on disk."""

    rows: tuple[tuple[bytes, bytes | None], ...] = field(repr=False)


@value
class LeaveOnDisk:
    """Nobody has room for these outbox entries, which are on disk: a `OutboxPage` will bring them again."""

    sequences: tuple[int, ...]


@value
class ReadPage:
    """Read what is left in the outbox from sequence `start` on, and answer with `OutboxPage`."""

    start: int


@value
class NotAdopted:
    """The document that was offered is none that we may go by: one line why."""

    why: str


@value
class Count:
    """Add `amount` to the figure `name` (one of `figures.Figure`), with at most one label value. `of`: the party id of
    whose verified word was refused, which no figure shows."""

    name: str
    amount: int = 1
    label: str = ""
    of: bytes = field(default=b"", compare=False, repr=False)


@value
class Blame:
    """`named` False: the link between us and `member`, or between `member` and its sender, is suspected. True: the
    evidence allows no innocent explanation."""

    member: str
    named: bool
    why: str


@value
class Wanted:
    """A reader met a key header of an epoch key that it lacks: fetch it."""

    name: KeyName


@value
class Doubted:
    """A publisher's check value contradicts the epoch key that we hold: one of the two is wrong."""

    name: KeyName


class Adoption(StrEnum):
    """What became of a newer version of the overlay."""

    LIVE = "live"
    """It is in force."""
    RESTART = "restart"
    """It changes our role or region, the issuer or the numbering of epochs: it counts after a restart, but for what it
    takes away, which is gone."""
    REMOVED = "removed"
    """It does not list us any more, or no open view of our region does: this node stops. A replica erases its seeds."""


@value
class Adopt:
    """A newer version that the owner signed, or the same with other views in force or open: endorsements came, or the
    view before is over. Whatever the outcome: write `document` (canonical JSON) to the overlay file, also over one of
    the same version, and raise the pin. If it is in force, drop links to whom `topology.peers_of` does not name any
    more, and dial those that came."""

    overlay: Overlay = field(repr=False)
    document: bytes = field(repr=False)
    outcome: Adoption


@value
class Outlived:
    """A later life of our identity, of this generation, was proven to run: we seal nothing any more."""

    generation: int


@value
class KeysChanged:
    """The node's `ScopeKeys` changed: store them, sealed."""


Effect: TypeAlias = (
    Send | Refuse | Delay | Withhold | Take | Watch | Deliver | DeliverShared | Forget | LeaveOnDisk | ReadPage | Count
    | Blame | Wanted | Doubted | Adopt | NotAdopted | KeysChanged | KeepMaterial | KeepArchive | Keep | Outlived
)  # fmt: skip


class Machine(Protocol):
    """What the broker's driver and the simulator drive."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]: ...

    @property
    def next_deadline(self) -> float | None: ...


class OverlayNode(Machine, Protocol):
    """A machine that is a party of the overlay, and what its driver asks of it. Questions change nothing."""

    @property
    def overlay(self) -> Overlay:
        """The version in force."""

    @property
    def peers(self) -> frozenset[str]:
        """Whom we have links with."""

    @property
    def removed(self) -> bool:
        """Whether the overlay in force has no use for us."""

    @property
    def versions(self) -> dict[str, int]:
        """The version of the overlay that each neighbour named last."""
