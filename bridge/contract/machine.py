"""The contract of every machine in `bridge/`: events and the time go in, effects come out.

    effects = machine.handle(event, now)        # now: seconds since the UNIX epoch, never decreasing by much
    machine.next_deadline                       # when `handle(Tick(), now)` is wanted next, or None

No I/O, no clock, no randomness. `gateway/overlay/driver.py` and the simulator (`papers/sim/kernel.py`) drive the
machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from enum import StrEnum
from math import ceil, inf
from typing import Protocol, TypeAlias

from bridge.contract.history import (
    AskHistory,
    HoldReading,
    PageCame,
    ReadAgain,
    ReadAgainDone,
    ReadAgainLive,
    Recall,
    Recalled,
    Record,
    RecordEra,
    StopReading,
)
from bridge.contract.loads import Beat, Loads, Worked
from bridge.contract.withholding import Take, Withhold
from bridge.document import Contradiction, Overlay, ProvenLie
from bridge.predicates import Predicate
from keys.epochs import KeyName
from keys.identity import Identity
from keys.issuing import KeepArchive, KeepMaterial
from keys.values import value

UserProperties: TypeAlias = tuple[tuple[str, str], ...]


@value
class Wire:
    """A PUBLISH between two parties of the overlay, as MQTT 5 carries it.

    `topic` names a scope by its number; `properties` are `vmq`, `vmq-key` and `vmq-shares` (docs/protocol.md §8:
    unpadded base64url of binary frames). `expiry_s`: seconds a broker which knows no deadlines should keep it.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    properties: UserProperties = ()
    expiry_s: int | None = None


@value
class Publication:
    """An application message in clear: from a device, or for a local client."""

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
    """Number of publications in the payload of a batch (`batches`); 0: no batch."""
    in_clear: bool | None = field(default=None, compare=False)  # True if a plain scope took it; None: unknown
    owner: str = field(default="", compare=False, repr=False)  # the local user or client that caused it; never sent

    def with_expiry_left(self, now: float) -> Publication | None:
        """Returns the publication with the rest of the expiry interval, in seconds (MQTT-3.3.2-6); None if it ended.

        The interval began with the PUBLISH, by the clock of the publisher's gateway.
        """
        if self.expiry_s is None:
            return self
        left_s = self.expiry_s - max(0.0, now - self.time_ms / 1000)
        return replace(self, expiry_s=ceil(left_s)) if left_s > 0 else None


# ---------------------------------------------------------------------------------------------- events


@value
class LinkUp:
    """A mutually authenticated link to member `peer` can carry messages in our direction."""

    peer: str


@value
class LinkDown:
    """The link to member `peer` is gone; unacknowledged wires may be lost."""

    peer: str


@value
class Received:
    """A wire that `peer` (named by its certificate, not by its own word) published to us. `acknowledged`: before
    now.
    """

    peer: str
    wire: Wire
    acknowledged: bool = False


@value
class Acked:
    """The acknowledgement of `peer` (PUBACK or SUBACK, success) for the request with `ticket`."""

    peer: str
    ticket: int


@value
class NotTaken:
    """The refusal by `peer` of the wire sent with `ticket`; `reason`: one of `refusing.Reason`."""

    peer: str
    ticket: int
    reason: str


@value
class Lost:
    """The loss of a wire with key header `key`, as a property's text: it found no room at `peer`, which dialled us."""

    peer: str
    key: str


OutboxEntry: TypeAlias = tuple[int, int, Publication]
"""(sequence, previous, publication). `previous`: sequence of the preceding QoS >= 1 publication in the scope; 0:
none.
"""


@value
class Appending:
    """Publications of QoS 1 or 2 are on their way to the disk; `Committed` or `NotAppended` follows for each."""

    sequences: tuple[int, ...]


@value
class NotAppended:
    """The disk did not take a publication; its client was told."""

    sequence: int


@value
class Committed:
    """Outbox entries that have just been written to disk, in order of sequence. `appending`: as in `Appending`, of
    publications that the machine was not told of before.
    """

    entries: tuple[OutboxEntry, ...]
    appending: tuple[int, ...] = ()


@value
class Unstored:
    """A publication of QoS 0: it has a sequence, and exists in memory only."""

    sequence: int
    publication: Publication


@value
class OutboxPage:
    """The answer to `ReadPage`: entries no machine held, and the sequence to read on from (None: nothing is left).

    `unreadable`: the disk could not be read; the machine asks again.
    """

    entries: tuple[OutboxEntry, ...]
    following: int | None
    unreadable: bool = False


@value
class Offered:
    """A document found in the place of the overlay file, not verified yet."""

    document: bytes = field(repr=False)


@value
class KeyWanted:
    """A reader outside the node met a key header of an epoch key the node lacks."""

    name: KeyName


@value
class KeyDoubted:
    """A reader outside the node met a publisher's check value that contradicts our epoch key."""

    name: KeyName


@value
class Subscribed:
    """A local client subscribed to `filter` (clear names) for publications matching `predicate`; None: all of them.

    Sent for the first subscriber, and for others whose wish is not covered yet. `narrows`: `predicate` covers all
    subscribers of the filter now.
    """

    filter: str
    predicate: Predicate | None = None
    narrows: bool = False


@value
class Unsubscribed:
    """The last local client left `filter`."""

    filter: str


@value
class GroupJoined:
    """`$share/<group>/<filter>` has local clients; `Subscribed` came before, if the filter was new.

    Sent again whenever `is_whole` changes: True if one of them may receive all that the filter matches. `owner`: the
    client for whom the group is held.
    """

    group: str
    filter: str
    is_whole: bool = True
    owner: str = ""


@value
class GroupLeft:
    """The last local client left the group; sent before `Unsubscribed`."""

    group: str
    filter: str


@value
class Tick:
    """Time passed; sent when `next_deadline` is reached."""


@value
class GoOn:
    """The answer to `Pause`: everything else that was ready is done."""


@value
class Rotated:
    """Our key pair changed to the pair of our certificate in the overlay in force."""

    identity: Identity


@value
class Restored:
    """The rows our former process asked to `Keep`. Sent before any other event."""

    rows: tuple[tuple[bytes, bytes], ...] = field(repr=False)


@value
class OnDisk:
    """The deliveries and rows before `AskKept` with this mark are on disk."""

    mark: int


Event: TypeAlias = (
    LinkUp | LinkDown | Received | Acked | NotTaken | Lost | Appending | NotAppended | Committed | Unstored
    | OutboxPage | Subscribed | Unsubscribed | GroupJoined | GroupLeft | Offered | KeyWanted | KeyDoubted | Tick
    | Rotated | Restored | Loads | Worked | Beat | Recalled
    | ReadAgain | StopReading | HoldReading | OnDisk | GoOn | AskHistory
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
    """Do not acknowledge the wire just received: send its sender a refusal with this reason."""

    reason: str


@value
class Delay:
    """Acknowledge the wire just received after so many seconds."""

    delay_s: float


@value
class Watch:
    """Subscribe (`on`) to the wire filter at `peer`, or unsubscribe, as an ordinary MQTT client would.

    Answer with `Acked(peer, ticket)` once the subscription stands, if `ticket` is not 0.
    """

    peer: str
    filter: str
    on: bool = True
    ticket: int = 0


@value
class Deliver:
    """A verified, opened publication for local subscribers.

    `late`: it came after its successor. `scope`: its wire filter. `sealed_ms`: the signed time of sealing.
    `groups_lost`: local shared groups, as (name, filter), that another gateway serves with it. `stored`: replicas had
    retained it when they sent it, so that it may be older than subscriptions here.
    """

    publisher: str
    sequence: int
    publication: Publication
    late: bool = False
    scope: str = ""
    sealed_ms: int = 0
    groups_lost: frozenset[tuple[str, str]] = frozenset()
    stored: bool = False


@value
class Reread:
    """Publications of the past, in order, for the local clients of these readings alone."""

    readings: tuple[int, ...]
    delivers: tuple[Deliver, ...]


@value
class DeliverShared:
    """A publication for a local shared group only, which another gateway had to serve until now."""

    group: str
    filter: str
    publication: Publication


@value
class Forget:
    """Delete outbox entries that every party has."""

    sequences: tuple[int, ...]


@value
class Keep:
    """Rows of ours that outlive this process, by key; None deletes a row.

    They are written together with the deliveries beside them; the wire that caused them may be acknowledged once they
    are on disk.
    """

    rows: tuple[tuple[bytes, bytes | None], ...] = field(repr=False)


@value
class AskKept:
    """Answer with `OnDisk(mark)` once the deliveries and rows before this effect are on disk."""

    mark: int


@value
class KeepSealed:
    """A batch of ours in a scope with receipts, for proofs of delivery. `row`: see `bridge.receipts.sealed`."""

    number: int
    row: bytes = field(repr=False)


@value
class HadRecord:
    """A record of ours that a reader has: its number, topic, correlation data and time of publication in ms."""

    number: int
    topic: str
    correlation_data: bytes | None
    time_ms: int


@value
class ReceiptCame:
    """A receipt of `reader` that fits the batches of ours from number `first` to `last`. `records`: those in them.

    `row`: the receipt, for proofs of delivery, see `bridge.receipts.delivery_proof`. `time_ms`: by the reader's clock.
    """

    reader: str
    time_ms: int
    first: int
    last: int
    row: bytes = field(repr=False)
    records: tuple[HadRecord, ...] = field(repr=False)


@value
class LeaveOnDisk:
    """Drop these outbox entries from memory for lack of room: an `OutboxPage` will bring them again from disk."""

    sequences: tuple[int, ...]


@value
class ReadPage:
    """Read the rest of the outbox from sequence `start` on, and answer with `OutboxPage`."""

    start: int


@value
class Pause:
    """A long task has more to do: answer with `GoOn` behind everything else that is ready."""


@value
class NotAdopted:
    """The refusal of the offered document, with the reason in a line."""

    why: str


@value
class Count:
    """Add `amount` to the figure `name` (one of `figures.Figure`), with at most a single label value.

    `of`: the party id of the author whose verified word was refused, which no figure shows.
    """

    name: str
    amount: int = 1
    label: str = ""
    of: bytes = field(default=b"", compare=False, repr=False)


COPY = Count("duplicates_dropped")
"""The only effect of a repetition that changed nothing, not even a deadline. Compared by identity."""


@value
class Blame:
    """An accusation. `named` False: the link between us and `member`, or between `member` and its sender, is suspected.

    True: the evidence allows no innocent explanation.
    """

    member: str
    named: bool
    why: str


@value
class Prove:
    """Keep evidence that was checked: two signed statements of one author, for anybody to check without a secret."""

    evidence: Contradiction
    proven: ProvenLie


@value
class Wanted:
    """Fetch an epoch key a reader lacks: it met a key header of it."""

    name: KeyName


@value
class Doubted:
    """A publisher's check value contradicts our epoch key: one of the two is wrong."""

    name: KeyName


class Adoption(StrEnum):
    """The result of adopting a newer version of the overlay."""

    LIVE = "live"
    """It is in force."""
    RESTART = "restart"
    """It changes our role or region, the issuer or the numbering of epochs: it takes effect after a restart, but rights
    that it takes away are gone at once.
    """
    REMOVED = "removed"
    """No member entry or open view of our region lists us any more: this node stops. A replica erases its seeds."""


@value
class Adopt:
    """A newer version the owner signed, or an equal version with other views in force or open.

    Views change when endorsements come, or the view before is over. Whatever the outcome: write `document` (canonical
    JSON) to the overlay file, also over an equal version, and raise the pin. If the outcome is `LIVE`, drop links to
    members that `topology.peers_of` names no longer, and dial new ones.
    """

    overlay: Overlay = field(repr=False)
    document: bytes = field(repr=False)
    outcome: Adoption


@value
class Outlived:
    """A later life of our identity, of this generation, is proven to run: we seal nothing any more."""

    generation: int


@value
class KeysChanged:
    """The node's `ScopeKeys` changed: store them, sealed."""


Effect: TypeAlias = (
    Send | Refuse | Delay | Withhold | Take | Watch | Deliver | DeliverShared | Forget | LeaveOnDisk | ReadPage | Count
    | Blame | Prove | Wanted | Doubted | Adopt | NotAdopted | KeysChanged | KeepMaterial | KeepArchive | Keep | Outlived
    | Record | RecordEra | Recall | Reread | ReadAgainLive | ReadAgainDone | AskKept | KeepSealed | ReceiptCame
    | Pause | PageCame
)  # fmt: skip


def earliest(*deadlines: float | None) -> float | None:
    """Returns the earliest of some deadlines, in UNIX seconds; None if there is none, or only infinite ones."""
    found = inf
    for at in deadlines:
        if at is not None and at < found:
            found = at
    return None if found == inf else found


class Machine(Protocol):
    """A machine as the broker's driver and the simulator drive it."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]: ...

    @property
    def next_deadline(self) -> float | None: ...


class OverlayNode(Machine, Protocol):
    """A machine that is a party of the overlay, with the properties that its driver reads. They change nothing."""

    @property
    def overlay(self) -> Overlay:
        """The version in force."""

    @property
    def peers(self) -> frozenset[str]:
        """The members with which we have links."""

    @property
    def removed(self) -> bool:
        """True if the overlay in force does not need us any more."""

    @property
    def versions(self) -> dict[str, int]:
        """The version of the overlay each neighbour named last."""
