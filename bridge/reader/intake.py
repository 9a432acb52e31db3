"""START HERE for readers: checks that gateways and ingest jobs share, made on every wire before their own work.

    keys_of    takes the data key on a wire: admission, collection, search, suspects and named liars (`key_opening`)
    admission  checks the header: signature, signer and right (`wire.admission`)
    vouched    True if enough replicas brought a publication of no live epoch (`Vouchers`)
    pieces     checks content against the signed digests; content(...) returns it when whole, and requests missing
    pieces
    opened     the opened data key, as `Opening` defines it
    lineages   finds the publisher's key under which a number was given

Each reader has a single object, driven like every machine here: events with the time in, effects out, `next_deadline`.
Known publications, order and acknowledgements belong to `collector` in a gateway, and to the receiver in a job.

**Freshness.** A liar may replay any publication that its author ever signed. The state of a stream, if there is one,
shows delivered publications. Elsewhere a publication must be fresh; or sealed while this reader was away, since
replicas kept the publications of that time; or sealed after this reader subscribed to the scope and forgot nothing of
it (`interest`).

**Lineages.** A publication the next key signs anew stays a single publication. Numbers belong to a publisher, and
publishers are named by their signing keys (docs/protocol.md §2.1). After a rotation a gateway seals earlier numbered
publications anew under its next key: after a restart the whole outbox. A number below 1,024 times the former key's end
(in ms) belongs to the former key's *lineage*, whichever of the two keys signs. So a delivered publication is not
delivered again, and the chain of a scope goes on. Higher numbers are the next key's own, which a holder of the former
key cannot use up: a gateway starting after that end gives only such numbers (docs/protocol.md §2.6). All readers decide
alike, from the owner's signed documents. The owner lists a former key only while the key counts, so this module
remembers former keys, on disk too. Without the former key's word (a lost key, replaced) there is no lineage. Delivered
publications are recorded elsewhere.

**Replays.** Replicas let through only live epochs, so an older publication is honest only if a replica kept it while
this reader was away. A publisher that was shut out could date back a new publication and hand it to a bad replica. So a
publication that is not live counts when f + 1 different replicas of the region brought it: one of them is honest and
took it when it was fresh. This rule also covers a clock of the reader differing by more than the calendar allows.

A publisher with a known stream may have been offline and bring old news. The first publication of an unknown stream
must be young, or sealed within the time of which this reader remembers the whole scope (`interest`), or retained by the
signed header: any broker may set the flag of a packet. A header whose own claims make the publication long past is
dropped unverified: a false claim gains nothing. The state of streams is elsewhere.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic

from bridge.contract import Blame, Count, Effect, claim_of
from bridge.document import Overlay, is_retained_topic, read_wire_topic
from bridge.reader.assembling import Assembling
from bridge.reader.kept import LINEAGE, KeptReader, Name, Rows, of_kind
from bridge.reader.key_opening import KeyRing, Opened, Opening
from bridge.reader.streams import Held, Stream, StreamId, scope_stream
from bridge.topology import Topology
from bridge.wire import Admission, Admitted, carries_key_alone, read
from bridge.wire.admission import GATEWAY_SESSION_S
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, MessageHeader, Mode
from keys.errors import BadFrame
from keys.frames import number

FRESH_S = 300.0


@dataclass(slots=True)
class Away:
    """The time in which this reader was away: from the last life sign of its former process to the start of this one;
    UNIX seconds. `let_in` is True for publications the former process had already accepted.
    """

    since: float = 0.0
    until: float = 0.0
    let_in: bool = False

    def is_fresh(self, time_ms: int, now: float) -> bool:
        """Returns True if a publication sealed at that time may be new."""
        return self.let_in or abs(now - time_ms / 1000) <= FRESH_S or self.covers_sealing(time_ms, now)

    def covers_sealing(self, time_ms: int, now: float) -> bool:
        """Returns True if a publication sealed at that time was sealed during the absence: replicas kept it for this
        reader.
        """
        sealed = time_ms / 1000
        meanwhile = self.since - FRESH_S <= sealed <= self.until + FRESH_S
        return meanwhile and sealed <= now <= sealed + GATEWAY_SESSION_S + FRESH_S


NUMBERS_PER_MS = 1024  # those of a start begin at so many times its milliseconds
FORMER_MAX = 8
"""Remembered rotations of one member; older numbers count as given under the last of these keys."""


class Lineages:
    """Predecessors of the members' keys. `kept` takes the rows for a next process; None if no rows are stored."""

    def __init__(self, overlay: Overlay, kept: KeptReader | None = None) -> None:
        self._kept = kept
        self._former: dict[bytes, tuple[bytes, int]] = {}  # party -> the one before it, and the end of its numbers
        self._next: dict[bytes, list[bytes]] = {}  # the same backwards
        self.adopt_overlay(overlay)

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay, in which members may have other keys."""
        self._overlay = overlay
        for member in overlay.members.values():
            if member.before is not None:
                former = member.before.party_id, member.before.not_after_ms * NUMBERS_PER_MS
                self._learn_former(member.certificate.party_id, *former)
        for party in self._former.keys() - self._in_use():
            self._forget_party(party)

    def parties(self, publisher: bytes, number: int) -> list[bytes]:
        """Returns the publisher and its predecessors down to the key under which that number was given, the oldest
        last.
        """
        found = [publisher]
        while (former := self._former.get(found[-1])) is not None and number < former[1]:
            found.append(former[0])
        return found

    def author(self, publisher: bytes, number: int) -> bytes:
        """Returns the party under whose key a number was given that this publisher signed."""
        return self.parties(publisher, number)[-1] if publisher in self._former else publisher

    def streams_of(self, name: Name) -> list[StreamId]:
        """Returns the streams in which a publication of this name may wait for its turn."""
        publisher, topic, number = name
        scope = self.scope_stream(publisher, number, topic)
        return [scope, (scope[0], topic)] if is_retained_topic(topic) else [scope]

    def scope_stream(self, publisher: bytes, number: int, topic: str) -> StreamId:
        """Returns the stream of the number's author in the scope a wire topic names. Raises BadFrame for an invalid
        wire topic.
        """
        return scope_stream(self.author(publisher, number), self.stream_of(topic))

    def stream_of(self, topic: str) -> int:
        """Returns the first number of the scope a wire topic names. Raises BadFrame for an invalid wire topic."""
        return self._overlay.stream_of(read_wire_topic(topic).scope)

    def is_to_come(self, topic: str) -> bool:
        """Returns True if a wire topic names a scope of a later version, whose stream is not known yet. Raises
        BadFrame for an invalid wire topic.
        """
        return self._overlay.is_to_come(read_wire_topic(topic).scope)

    def before(self, held: Held) -> list[tuple[bytes, int]]:
        """Returns the possible names, as publisher and number, of the predecessor: a former key may have signed it."""
        header = held.admitted.header
        return [(party, header.previous) for party in self.parties(header.publisher, header.previous)]

    def stream_before(
        self, held: Held, own: Stream, streams: Callable[[StreamId], Stream | None], generation: int
    ) -> Stream | None:
        """Returns the stream that holds the predecessor's state, or None if nothing of the chain was delivered under
        this subscription. `own` is the stream in which the publication waits. A next key's own numbers continue the
        chain of the former key.
        """
        if held.author not in self._former:
            return own if own.is_known(generation) else None
        topic, author = held.scope_stream[1], self.author(held.author, held.admitted.header.previous)
        found = own if author == held.author else streams((author, topic))
        if found is not None and found.is_known(generation):
            return found
        former = [streams((party, topic)) for party in self._before(held.author)[1:]]
        goes_on = any(stream is not None and stream.is_known(generation) for stream in former)
        return own if author == held.author and goes_on else None

    def streams_after(self, stream_id: StreamId) -> list[StreamId]:
        """Returns the streams of the successors of this stream's author in the scope: publications there may have
        waited for this stream.
        """
        return [(party, stream_id[1]) for party in self._next.get(stream_id[0], ())]

    def is_overtaken(self, stream_id: StreamId, streams: Callable[[StreamId], Stream | None]) -> bool:
        """Returns True if a publication of a succeeding key was delivered."""
        after = map(streams, self.streams_after(stream_id))
        return any(stream is not None and stream.first is not None for stream in after)

    def _learn_former(self, party: bytes, former: bytes, end: int) -> None:
        if party in self._former or party in self._before(former):  # what was decided once stays
            return
        self._succeeds(party, former, end)
        if self._kept is not None:
            self._kept.put_row(*_row(party, former, end))

    def _succeeds(self, party: bytes, former: bytes, end: int) -> None:
        if party in self._former:
            self._unlink(party)
        self._former[party] = former, end
        self._next.setdefault(former, []).append(party)

    def _unlink(self, party: bytes) -> None:
        former, _ = self._former.pop(party)
        self._next[former].remove(party)
        if not self._next[former]:
            del self._next[former]

    def _before(self, party: bytes) -> list[bytes]:
        found = [party]
        while (former := self._former.get(found[-1])) is not None:
            found.append(former[0])
        return found

    def _in_use(self) -> set[bytes]:
        """Returns the parties whose predecessors matter: present keys of members, and their predecessors."""
        return {party for present in self._overlay.by_party for party in self._before(present)[:FORMER_MAX]}

    def _forget_party(self, party: bytes) -> None:
        self._unlink(party)
        if self._kept is not None:
            self._kept.drop_row(LINEAGE + party)

    # ------------------------------------------------------------------------------------------- over restarts

    def all_rows(self) -> list[tuple[bytes, bytes]]:
        """Returns all rows for a next process, for readers without `kept`."""
        return [_row(party, *known) for party, known in self._former.items()]

    def restore(self, rows: Rows) -> None:
        """Restores lineages from rows of a former process; skips damaged rows."""
        for party, row in of_kind(rows, LINEAGE):
            if len(party) == 16 and len(row) == 24 and party not in self._before(row[:16]):
                self._succeeds(party, row[:16], int.from_bytes(row[16:]))
        for party in self._former.keys() - self._in_use():
            self._forget_party(party)


def _row(party: bytes, former: bytes, end: int) -> tuple[bytes, bytes]:
    return LINEAGE + party, former + number(min(end, (1 << 64) - 1), 8)


VOUCHED_MAX = 16_384  # publications of dead epochs, of each replica that brought them the last ones


NOT_TAKEN = frozenset(("duplicates_dropped", "vouchers_awaited", "replays_dropped"))
"""Figures of a wire that is not let in: such a wire is not kept over a restart for its waiting publication."""
RECALLED_S = 30.0  # what says that it is older, and came, is not verified again; younger forgeries are charged

NEVER_AWAY = Away()


def is_dated(header: MessageHeader, now: float) -> bool:
    """Returns True if a publication is too old, or too far in the future, to be the first of a stream by its age
    alone.
    """
    return not header.retain and not NEVER_AWAY.is_fresh(header.time_ms, now)


def is_replayed(
    told: str,
    wire_topic: str,
    streams: Callable[[StreamId], Stream | None],
    lineages: Lineages,
    now: float,
    may_be_new: Callable[[bytes, int, int, float], bool],
) -> bool:
    """Returns True if an unverified header claims a publication that was seen long ago, or is dated.

    `told` is property `vmq` as it came. `may_be_new` decides on the first publication of a stream, from author, first
    number of its scope, time in ms and present time. Raises BadFrame for an invalid wire topic.
    """
    claim = claim_of(told)
    if not claim.publisher or claim.order or now - claim.sealed_ms / 1000 < RECALLED_S:
        return False
    stream_id = lineages.scope_stream(claim.publisher, claim.sequence, wire_topic)
    stream = streams(stream_id)
    if stream is not None:
        return stream.delivered(claim.sequence)
    number = lineages.stream_of(wire_topic)
    if is_retained_topic(wire_topic) or may_be_new(stream_id[0], number, claim.sealed_ms, now):
        return False
    return not lineages.is_to_come(wire_topic)  # that is judged when its scope is known


class Vouchers:
    """The replicas of region `home` that brought each publication of no live epoch."""

    def __init__(self, overlay: Overlay, home: int) -> None:
        self.overlay = overlay
        self._home = home
        self._hosted = overlay.hosted  # while we run
        # Of each replica for itself: whoever brings without end forgets what it vouched for, and nothing of others.
        self._brought: defaultdict[str, OrderedDict[bytes, None]] = defaultdict(OrderedDict)

    def vouched(self, peer: str, admitted: Admitted, wire_topic: str) -> bool:
        """Counts the replica as a voucher and returns True if the publication is believed now."""
        if admitted.live:
            return True
        name = _name(admitted.header, wire_topic)
        if peer not in self._hosted:  # a stock broker lets in whatever it is given, however old
            brought = self._brought[peer]
            brought[name] = None
            if len(brought) > VOUCHED_MAX:
                brought.popitem(last=False)
        return self.overlay.honest_among(self._home, [peer for peer, what in self._brought.items() if name in what])


def _name(header: MessageHeader, wire_topic: str) -> bytes:
    return hashlib.sha256(header.encode() + wire_topic.encode()).digest()


class Intake(Generic[Opened]):
    """The shared checks of a reader in region `home`. `opening` opens a key whose shares fit."""

    def __init__(self, overlay: Overlay, home: int, opening: Opening[Opened], kept: KeptReader | None = None) -> None:
        """Takes in `kept` the store of rows for a next process; None if no rows are stored."""
        self.overlay, self._topology = overlay, Topology(overlay)
        self.home = home
        self.admission = Admission(overlay, replica=False)
        self.keys: KeyRing[Opened] = KeyRing(overlay, home, opening, self.admission, kept)
        self.assembling = Assembling(asked(overlay, home))
        self._vouchers = Vouchers(overlay, home)
        self.lineages = Lineages(overlay, kept)

    def adopt_overlay(self, overlay: Overlay, now: float) -> tuple[list[Effect], list[bytes]]:
        """Adopts another version of the overlay, or other views, with unchanged regions. Returns effects and the ids
        of keys that were opened.
        """
        self.overlay = self._vouchers.overlay = overlay
        self._topology = Topology(overlay)
        self.assembling.replicas = asked(overlay, self.home)
        self.admission.adopt_overlay(overlay, now)
        self.lineages.adopt_overlay(overlay)
        return self.keys.adopt_overlay(overlay, now)

    # --------------------------------------------------------------------------------------------- a wire

    def keys_of(self, peer: str, properties: Mapping[str, str], now: float) -> tuple[list[Effect], bytes | None]:
        """Takes the data key on a wire. Returns effects and the id of the key if this wire opened it. Raises keys
        errors.
        """
        if PROPERTY_KEY not in properties:
            return [], None
        return self.keys.take_key_wire(peer, properties, now)

    def told_property(self, properties: Mapping[str, str], wire_topic: str) -> str | None:
        """Returns property `vmq` of a publication; None for a key standing alone. Raises BadFrame if a publication has
        no such property.
        """
        if carries_key_alone(wire_topic):
            return None
        told = properties.get(PROPERTY_HEADER)
        if told is None:
            raise BadFrame("publication without a signed header")
        return told

    def is_replayed(
        self,
        told: str,
        wire_topic: str,
        streams: Callable[[StreamId], Stream | None],
        now: float,
        may_be_new: Callable[[bytes, int, int, float], bool],
    ) -> bool:
        """Returns True if a publication should be dropped unread because of its header's unverified claims. Raises
        BadFrame.
        """
        if self.admission.verified((told, wire_topic)) is not None:
            return False  # to be looked at costs nothing
        return is_replayed(told, wire_topic, streams, self.lineages, now, may_be_new)

    def vouched(self, peer: str, admitted: Admitted, wire_topic: str) -> bool:
        """Counts the replica as a voucher and returns True if the publication is believed now."""
        return admitted.live or self._vouchers.vouched(peer, admitted, wire_topic)

    def pieces(self, admitted: Admitted, payload: bytes, part: str | None) -> dict[int, bytes] | None:
        """Returns the pieces of content on a wire; None if they do not fit the signed digests. `part` is property
        `vmq-part`. Raises BadFrame.
        """
        return read(admitted.header, payload, part)

    def content(self, peer: str, admitted: Admitted, pieces: Mapping[int, bytes], now: float) -> bytes | None:
        """Returns the content of a wanted publication once it is whole. Raises BadContent if it can never be whole."""
        if pieces and admitted.header.mode is not Mode.BLOCKS and not self.assembling:
            return pieces[0]  # the usual case: whole, and nothing was asked for
        hops = self._topology.regions_between(admitted.publisher.region, self.home, admitted.tree)
        return self.assembling.take_pieces(peer, admitted.header, pieces, hops, now)

    # ----------------------------------------------------------------------------------------------- time

    def tick(self, now: float) -> tuple[list[Effect], list[bytes]]:
        """Searches and audits keys, and requests content. Returns effects and the ids of keys that were opened."""
        effects, opened = self.keys.tick(now)
        return effects + self.assembling.tick(now), opened

    @property
    def deadlines(self) -> tuple[float | None, float | None]:
        """The next times at which a key is searched or audited, and at which content is asked for."""
        return self.keys.next_deadline, self.assembling.next_deadline


def misfit(peer: str) -> list[Effect]:
    """Returns the effects for content that does not fit the signed header: the sender altered it or did not check
    it.
    """
    return [Count("refused", 1, "content"), Blame(peer, False, "content does not match the signed header")]


def asked(overlay: Overlay, region: int) -> tuple[str, ...]:
    """Returns the replicas to ask for missing content: never stock brokers, which answer nothing."""
    return tuple(name for name in overlay.views[region].members if name not in overlay.hosted)
