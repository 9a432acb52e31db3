"""Admission: the checks of every honest party before it deduplicates, charges, waits or stores (docs/protocol.md §2).

A publication is *admitted* when its header is signed by a certified publisher that may publish on some topic of the
scope in the epoch of its sealing; its key header likewise; its shares are well-formed and stamped for this link. Each
refusal raises a keys error; the caller charges the link.

Replicas and readers (gateways and ingest jobs) differ in a single thing. A replica refuses wires that cannot be fresh:
an epoch that is dead or has not begun, a certificate that has ended, a key a bump outdated. A reader may have been
away, or its clock be off, so it admits them and asks for vouchers (`Admitted.live`, `reader.intake`); a key needs
none, since k of our replicas must have passed on its shares before it opens anything. Not here: content (`pieces`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from bridge.contract import Blame, Count, Effect
from bridge.document import NUMBERS, REFRESH_MESSAGES_MAX, Overlay, RecordRights, Scope, read_wire_topic
from bridge.wire.pieces import check_mode
from bridge.wire.sealings import Sealings
from keys.envelope import (
    PROPERTY_KEY,
    PROPERTY_SHARES,
    PROPERTY_WRAPS,
    KeyHeader,
    MessageHeader,
    from_property,
    header_of,
    verify_header,
)
from keys.epochs import KeyName
from keys.errors import (
    BadFrame,
    BadShare,
    Expired,
    KeysError,
    NotAuthorised,
    NotFresh,
    Superseded,
    UnknownView,
    WrongEpochKey,
)
from keys.identity import CARRIERS, Certificate
from keys.keyheader import NO_KCV
from keys.records import RECORDS_MAX
from keys.sharetree import Hop, Label, Place, Share, decode_shares
from keys.wrapping import Way, Wrap, check_wraps, decode_wraps, is_long

HEADERS_MAX = 4096  # signed headers that we remember to have verified, for the other replicas' copies of them
VERIFIED_KEYS_MAX = 4096  # key headers whose signature we remember; a flood of keys evicts only memory of work
RIGHTS_MAX = 65_536  # (publisher, scope, epoch) whose right is remembered: no scan over grants for each publication
# The largest signed number of 64 bits, as databases and Spark have them, is the last record's of the longest batch.
SEQUENCE_MAX = (1 << 63) - RECORDS_MAX
TIME_MS_MAX = 253_402_300_799_999  # end of year 9999, the last that calendars and Spark's timestamps can show
BLOCKS_FREE = 32
"""Number of blocks into which content may always be cut; more only where a region has as many replicas: to put together
and compare 255 blocks of 512 KiB takes half a second.
"""
AHEAD_S = 300.0  # difference of members' clocks up to which a future time is accepted
AGE_S = 3_610.0  # replicas keep for absent members, and a repair: an older sealing is refused
GATEWAY_SESSION_S = 3_600  # how long replicas keep for a gateway that is away
LATE_S = AGE_S + 2 * AHEAD_S  # taken by a replica at the last moment, with clocks that differ both ways
KEPT_S = LATE_S + GATEWAY_SESSION_S
"""Age in seconds beyond which no honest replica brings a publication to a gateway, or to a reader without an account of
all arrivals (`goes_back`).
"""
BUMP_GRACE_S = 30.0  # a bump reaches all members within it, whatever the calendar's grace is


def refused(peer: str, error: KeysError) -> list[Effect]:
    """Returns the effects of refusing a wire: a count, and a suspicion of the link unless lateness explains the
    refusal.

    An epoch, a bump, a view or a right may end while an honest neighbour still has something for us (docs/protocol.md
    §3.4: late is never blamed).
    """
    counted = Count("refused", 1, type(error).__name__, error.author)
    return (
        [counted]
        if error.may_be_late or isinstance(error, Expired | WrongEpochKey | UnknownView | NotFresh | Superseded)
        else [counted, Blame(peer, False, str(error))]
    )


class Admitted(NamedTuple):
    """A publication with a valid header.

    `frame`: header and signature as received. `epoch`: of its sealing; `live`: the epoch can be now, and the
    publisher's certificate counts. `rights`: the allowed topics of its records. `tree`: the number of its tree of
    regions; at a replica the tree is open.
    """

    header: MessageHeader
    frame: bytes
    publisher: Certificate
    scope: Scope
    epoch: int
    live: bool
    rights: RecordRights
    tree: int


class Admission:
    """A check of wires against the overlay; verified signatures and rights are its only memory.

    `sealings` remembers the last headers of each publisher, to find those that contradict each other.

    The copies of a publication over several links carry a single signed header, character by character: the header of
    the first copy is read and verified; for the others only time and content are checked.

    `replica`: True if wires that cannot be fresh are refused.
    """

    def __init__(self, overlay: Overlay, *, replica: bool) -> None:
        self._overlay = overlay
        self._calendar = overlay.policy.calendar
        self._replica = replica
        self._admitted: OrderedDict[tuple[str, str], Admitted] = OrderedDict()  # by property and wire topic
        self.verified: Callable[[tuple[str, str]], Admitted | None] = self._admitted.get
        """Returns the publication of a header, by property `vmq` and wire topic, that was verified lately."""
        self._keys: OrderedDict[str, KeyHeader] = OrderedDict()  # by property
        self._rights: dict[tuple[bytes, int, int], tuple[Scope, RecordRights] | None] = {}  # by scope number, not topic
        # By scope: its bumps that newer versions outdate soon, and when each does. Each has its own time, so that a row
        # of bumps keeps none of them in use.
        self._bumped: dict[str, tuple[tuple[range, float], ...]] = {}
        self._left: dict[bytes, float] = {}  # keys that were listed lately: until when who brings theirs may be late
        # By scope that came after others: until when it may have been sealed without it; and the last of these times.
        self._came: dict[str, float] = {}
        self._came_last_ms = 0.0
        self._blocks_max = _blocks_max(overlay)
        self._span = _NO_SPAN  # the epoch asked for last, and its milliseconds
        self._live = _NEVER  # the epoch that was found live last, and from when until when it is
        self._known_from_ms, self._back_s = 0, KEPT_S
        self.sealings = Sealings(overlay)

    def goes_back(self, known_from_ms: int, session_s: float) -> None:
        """Lets a reader admit older publications, because of its record of all arrivals since `known_from_ms`, over
        restarts.

        Replicas keep the reader's session for `session_s`: an older publication, if new to the reader, was kept for
        the reader, whichever replica brings it.
        """
        self._known_from_ms, self._back_s = known_from_ms, LATE_S + session_s

    def adopt_overlay(self, overlay: Overlay, now: float) -> None:
        """Takes another version of the overlay, or other views of it, of unchanged regions."""
        until = now + max(overlay.policy.calendar.grace_s, BUMP_GRACE_S)
        bumps = {scope.filter: scope.bump for scope in self._overlay.policy.scopes}
        waiting = {f: tuple([each for each in ends if each[1] > now]) for f, ends in self._bumped.items()}
        self._bumped = {f: ends for f, ends in waiting.items() if ends}
        left = dict.fromkeys(self._overlay.by_party, now + KEPT_S)
        self._left = {p: at for p, at in (self._left | left).items() if at > now and p not in overlay.by_party}
        for scope in overlay.policy.scopes:
            if outdated := range(bumps.get(scope.filter, scope.bump), scope.bump):
                self._bumped[scope.filter] = (*self._bumped.get(scope.filter, ()), (outdated, until))
        self._scopes_came({s.filter for s in overlay.policy.scopes if s.filter not in bumps}, overlay, now, until)
        self._overlay = overlay
        self._blocks_max = _blocks_max(overlay)
        self._calendar = overlay.policy.calendar
        self._admitted.clear()
        self._span, self._live = _NO_SPAN, _NEVER
        self._keys.clear()
        self._rights.clear()
        self.sealings.adopt_overlay(overlay)

    def began(self, now: float) -> None:
        """Starts a reader from a former process's state: it cannot know which scopes came meanwhile."""
        self._scopes_came({scope.filter for scope in self._overlay.policy.scopes}, self._overlay, now, now)

    def _scopes_came(self, filters: Collection[str], overlay: Overlay, now: float, until: float) -> None:
        """Notes new scopes: waiting publications were sealed without them, and their topics belonged to wider scopes.

        A publisher that dates back gains nothing: its grant has to cover the topic all the same.
        """
        if self._replica:
            return
        there = {scope.filter for scope in overlay.policy.scopes}
        kept = {f: at for f, at in self._came.items() if at > now - KEPT_S and f in there}
        self._came = kept | dict.fromkeys(filters, until)
        self._came_last_ms = 1000 * max(self._came.values(), default=0.0)

    def _sealed_under(self, rights: RecordRights, time_ms: int) -> RecordRights:
        """Returns the rights without the scopes that came after `time_ms`."""
        within = [each for each in rights.within if time_ms >= 1000 * self._came.get(each, 0.0)]
        return rights._replace(within=tuple(within))

    def publication(self, told: str, wire_topic: str, now: float) -> Admitted:
        """Admits a publication. `told`: property `vmq` as it came.

        Raises BadFrame, BadSignature, NotAuthorised, Expired, and at a replica UnknownView for a future tree of
        regions.
        """
        known = self._admitted.get((told, wire_topic))
        if known is not None:
            of, begins_s, ends_s = self._live
            if known.live and of == known.epoch and begins_s <= now < ends_s:
                is_recent = -AHEAD_S <= now - known.header.time_ms / 1000 <= AGE_S
                if is_recent and now * 1000 <= known.publisher.not_after_ms:
                    return known  # the usual case: nothing that is checked below can have ended
            try:
                live = self._check_end(known.publisher, now) and self._check_time(known.header, known.epoch, now)
            except KeysError as error:
                error.author = known.header.publisher
                raise
            return known if live is known.live else known._replace(live=live)
        admitted = self.admit_once(told, wire_topic, now)
        self.sealings.saw(admitted.header, admitted.frame, wire_topic, admitted.publisher)
        self._admitted[told, wire_topic] = admitted
        if len(self._admitted) > HEADERS_MAX:
            self._admitted.popitem(last=False)
        return admitted

    def admit_once(self, told: str, wire_topic: str, now: float) -> Admitted:
        """Admits a publication like `publication`, without keeping its header: for callers keeping publications
        themselves.

        A refusal is never kept, and costs its link again each time.
        """
        frame = from_property(told)
        header = header_of(frame)
        publisher = self._author(header.publisher, now)
        certified = now * 1000 <= publisher.not_after_ms or self._check_end(publisher, now)
        verify_header(header, frame, wire_topic, publisher.public_key)
        try:
            admitted = self._verified(header, frame, publisher, wire_topic, now)
        except KeysError as error:
            error.author = header.publisher
            raise
        return admitted if certified else admitted._replace(live=False)

    def to_come(self, told: str, wire_topic: str) -> MessageHeader | None:
        """Returns the verified header of a publication of a future scope, whose number is beyond all that we know.

        None for any other. Raises BadFrame, BadSignature, NotAuthorised.
        """
        if not self._overlay.is_to_come(read_wire_topic(wire_topic).scope):
            return None
        frame = from_property(told)
        header = header_of(frame)
        verify_header(header, frame, wire_topic, self.publisher(header.publisher).public_key)
        return header

    def _verified(
        self, header: MessageHeader, frame: bytes, publisher: Certificate, wire_topic: str, now: float
    ) -> Admitted:
        """Admits a header whose signature is verified."""
        if header.sequence > SEQUENCE_MAX or header.time_ms > TIME_MS_MAX:
            raise BadFrame(f"sequence {header.sequence} or time {header.time_ms} is beyond what anybody can show")
        if header.previous >= header.sequence:
            raise BadFrame(f"sequence {header.sequence} follows {header.previous}")
        told = read_wire_topic(wire_topic)
        if header.retain is not bool(told.publisher):
            raise BadFrame("what is retained, and nothing else, has a topic of its own")
        epoch = self._span[0] if self._span[1] <= header.time_ms < self._span[2] else self._epoch_of(header.time_ms)
        live = self._check_time(header, epoch, now)
        if told.publisher not in (b"", header.publisher):
            raise BadFrame("a wire topic of another publisher")
        asked = (header.publisher, told.scope, epoch)
        found = self._rights[asked] if asked in self._rights else self._learn_scope(publisher, asked)
        if found is None:
            raise _ended_right(f"{publisher.name} may not publish in this scope in epoch {epoch}")
        scope, rights = found
        if header.time_ms < self._came_last_ms and rights.within:
            rights = self._sealed_under(rights, header.time_ms)
        check_mode(header, scope.mode)
        if len(header.digests) > self._blocks_max:  # or a region grows, and we do not know yet
            raise UnknownView(f"content in {len(header.digests)} blocks; no region here has so many replicas")
        trees = self._overlay.trees
        tree = trees.newest.number
        if header.tree != tree % NUMBERS:
            tree = trees.number_of(header.tree)
            if self._replica:
                trees.tree_numbered(tree)
        return Admitted(header, frame, publisher, scope, epoch, live, rights, tree)

    def _epoch_of(self, time_ms: int) -> int:
        """Returns the epoch of a header's time, and keeps the epoch's milliseconds for the next headers.

        Times count by the middle of their millisecond, so that rounding moves none over the end of an epoch.
        """
        calendar = self._calendar
        epoch = calendar.epoch_at((time_ms + 0.5) / 1000)
        begins_ms = round(calendar.start_s(epoch) * 1000)
        ends_ms = begins_ms + 1000 * calendar.length_s if calendar.length_s else TIME_MS_MAX + 1
        self._span = (epoch, begins_ms, ends_ms) if begins_ms <= time_ms < ends_ms else _NO_SPAN
        return epoch

    def key_header(self, properties: Mapping[str, str], now: float, *, bumped: bool = False) -> KeyHeader | None:
        """Returns the verified key header that rides along; None if there is none.

        Raises the errors of `publication`; WrongEpochKey at a replica for a key a bump outdated, unless it may be
        `bumped`; Expired for closed views and trees, UnknownView for some that are not in force here yet, BadShare for
        others.
        """
        text = properties.get(PROPERTY_KEY)
        if text is None:
            return None
        known = self._keys.get(text)
        key = known or KeyHeader.decode(from_property(text))
        publisher = self._author(key.publisher, now)
        self._check_end(publisher, now)
        if known is None:
            key.verify(publisher.public_key)
        try:
            if known is None:
                self._check_key(key, publisher, now, bumped)
            else:
                self._check_name(key.epoch_key, now, bumped)
        except KeysError as error:
            error.author = key.publisher
            raise
        self._keys[text] = key
        if len(self._keys) > VERIFIED_KEYS_MAX:
            self._keys.popitem(last=False)
        return key

    def _check_key(self, key: KeyHeader, publisher: Certificate, now: float, bumped: bool) -> None:
        """Checks a key by its scope, its publisher's rights and our views."""
        scope = self._overlay.scope_named(key.scope)
        if scope is None:
            raise _ended_right("key for an unknown scope")
        self._check_name(key.epoch_key, now, bumped)
        if not self._overlay.may_publish_in(publisher.name, scope, key.epoch):
            raise _ended_right(f"{publisher.name} may not publish in {scope.filter} in epoch {key.epoch}")
        self._check_rules(key, scope)
        self._check_views(key, scope, publisher.region)

    @staticmethod
    def _check_rules(key: KeyHeader, scope: Scope) -> None:
        """Checks a key by the rules of its scope.

        A key of another bump was made under other rules, since the owner raises the bump when the rules change.
        """
        same = key.bump == scope.bump
        most = scope.refresh.messages if scope.keyed and same else REFRESH_MESSAGES_MAX
        if key.message_limit > most:
            raise NotAuthorised(f"key for {key.message_limit} messages; the scope has {most}")
        if same and (key.kcv == NO_KCV) is scope.keyed:
            raise BadFrame("key without the scope's epoch key where there is one, or with one where there is none")

    def _check_views(self, key: KeyHeader, scope: Scope, home: int) -> None:
        """Checks that a key names an open tree, and one open view of every region of the tree that it may enter.

        Under the former tree regions may be gone, and the scope may have had others.
        """
        trees, hops = self._overlay.trees, key.hops
        tree = trees.tree_numbered(key.tree)
        if tree is trees.newest:
            expected = [home, *sorted((self._overlay.regions_of(scope) & tree.regions) - {home})]
            if [hop.region for hop in hops] != expected:
                raise BadShare("key was split for other regions than those of its scope")
        elif hops[0].region != home:
            raise BadShare("key was split for another region than its publisher's first")
        else:
            hops = tuple([hop for hop in hops if hop.region in self._overlay.latest])
        is_needed = is_long(tree.longest(home, [hop.region for hop in hops]))
        if key.wrapped is not is_needed and (is_needed or tree is trees.newest):
            raise BadShare("key is wrapped where no way is long, or it is not where one is")
        for hop in hops:
            self._overlay.check_view(hop)

    # ---------------------------------------------------------------------------------------- epochs, bumps

    def stale(self, name: KeyName, now: float) -> bool:
        """Returns True if nothing under this epoch key can be fresh any more: its epoch is dead or a bump outdated
        it.
        """
        return self._outdated(name, now) or name.epoch < self.oldest(now)

    def oldest(self, now: float) -> int:
        """Returns the first epoch that is not dead."""
        return self._calendar.epoch_at(now - self._calendar.grace_s - self._calendar.skew_s)

    def next_stale(self, now: float) -> float:
        """Returns the next time, in UNIX seconds, at which a fresh key becomes stale; infinite without epochs and
        bumps.
        """
        dies = self._calendar.end_s(self.oldest(now)) + self._calendar.grace_s + self._calendar.skew_s
        return min([dies, *(at for ends in self._bumped.values() for _, at in ends if at > now)])

    def _outdated(self, name: KeyName, now: float) -> bool:
        scope = self._overlay.scope_named(name.scope)
        if scope is None:
            return True
        ends = self._bumped.get(name.scope, ())
        return name.bump < scope.bump and not any(name.bump in bumps and now < at for bumps, at in ends)

    def _check_name(self, name: KeyName, now: float, bumped: bool) -> None:
        self._check_epoch(name.epoch, now)
        if self._replica and not bumped and self._outdated(name, now):
            raise WrongEpochKey(f"the key of {name.scope} was outdated by a bump")

    def _check_end(self, publisher: Certificate, now: float) -> bool:
        """Returns True if the publisher's certificate counts now. At a replica, raises Expired if not."""
        if now * 1000 <= publisher.not_after_ms:
            return True
        if self._replica:
            raise _ended(publisher)
        return False

    def _check_epoch(self, epoch: int, now: float) -> bool:
        """Returns True if the epoch can be now. At a replica, raises NotAuthorised for a future one, Expired for a dead
        one.
        """
        of, begins_s, ends_s = self._live
        if of == epoch and begins_s <= now < ends_s:
            return True
        begins_s, ends_s = self._calendar.live_span(epoch)
        if begins_s <= now < ends_s:
            self._live = epoch, begins_s, ends_s
            return True
        if not self._replica:
            return False
        if epoch >= self.oldest(now):
            raise NotAuthorised(f"epoch {epoch} has not begun")
        raise Expired(f"epoch {epoch} is over")

    def _check_time(self, header: MessageHeader, epoch: int, now: float) -> bool:
        """Returns True if the publication can be of now, by its epoch and age.

        At a replica, raises the errors of `_check_epoch`, and NotFresh for a sealing too long ago or in the future. A
        retained publication may be old, but not of the future: it would outrank others' publications on its topic for
        ever.
        """
        of, begins_s, ends_s = self._live
        live = (of == epoch and begins_s <= now < ends_s) or self._check_epoch(epoch, now)
        age_s = now - header.time_ms / 1000
        if self._replica and (age_s < -AHEAD_S or (age_s > AGE_S and not header.retain)):
            raise NotFresh(f"sealed {age_s:.0f} s before our time")
        if not live or header.retain or age_s <= KEPT_S:
            return live
        return age_s <= self._back_s and header.time_ms >= self._known_from_ms

    @staticmethod
    def shares(properties: Mapping[str, str], expected: Sequence[Place | Hop]) -> list[Share]:
        """Returns the shares that ride along, each with a label over the regions `expected` and our stamps.

        `expected` is the path as its key's header has it, where a Place pins that coordinate: the sender's own place
        is certain (its certificate says it), earlier coordinates are the sender's claim. Raises BadShare.
        """
        text = properties.get(PROPERTY_SHARES)
        if text is None:
            return []
        shares = decode_shares(from_property(text))
        for share in shares:
            _check_label(share.label, expected)
        return shares

    @staticmethod
    def wraps(properties: Mapping[str, str], key: KeyHeader, way: Way, sender: Place | Hop) -> list[Wrap]:
        """Returns the wraps that ride along beside a verified key header, none if there are none.

        `way`: from the publisher's region to the receiver's. `sender`: the sender's certain place. Raises BadFrame,
        BadShare.
        """
        text = properties.get(PROPERTY_WRAPS)
        if text is None:
            return []
        if not key.wrapped or not isinstance(sender, Place):
            raise BadShare("wraps of a key that is not wrapped")
        key_id, wraps = decode_wraps(from_property(text))
        if key_id != key.key_id:
            raise BadShare("wraps of another key than the one that they came with")
        check_wraps(wraps, way, sender)
        return wraps

    def publisher(self, party_id: bytes, now: float = 0.0) -> Certificate:
        """Returns a publisher's certificate. Raises NotAuthorised, or, with a time, Expired: it may end while we
        run.
        """
        certificate = self._overlay.by_party.get(party_id)
        if certificate is None or certificate.role in CARRIERS:
            raise NotAuthorised("publisher is not a member that may publish")
        if now * 1000 > certificate.not_after_ms:
            raise _ended(certificate)
        return certificate

    def _author(self, party_id: bytes, now: float) -> Certificate:
        """Returns the certificate of a wire's author like `publisher`; the author may be a member that left."""
        certificate = self._overlay.by_party.get(party_id)
        if certificate is not None and certificate.role not in CARRIERS:
            return certificate
        if now < self._left.get(party_id, 0.0):
            raise _ended_right("publisher is no member any more")
        return self.publisher(party_id)

    def _learn_scope(self, publisher: Certificate, asked: tuple[bytes, int, int]) -> tuple[Scope, RecordRights] | None:
        """Returns the scope of this number and the publisher's rights in the scope in the epoch; None without any.

        Asked for verified publishers only.
        """
        _, number, epoch = asked
        if len(self._rights) >= RIGHTS_MAX:
            self._rights.clear()
        scope = self._overlay.scope_numbered(number)
        allowed = scope is not None and self._overlay.may_publish_in(publisher.name, scope, epoch)
        rights = self._overlay.rights_in(publisher.name, scope, epoch) if scope is not None and allowed else None
        found = None if scope is None or rights is None else (scope, rights)
        self._rights[asked] = found
        return found


def _check_label(label: Label, expected: Sequence[Place | Hop]) -> None:
    if len(label) != len(expected):
        raise BadShare(f"label has depth {len(label)}, the path {len(expected)}")
    for place, wanted in zip(label, expected, strict=True):
        if isinstance(wanted, Place):
            if place != wanted:
                raise BadShare(f"label says {place}, the link says {wanted}")
        elif (place.region, place.view) != (wanted.region, wanted.view) or not 1 <= place.place <= wanted.count:
            raise BadShare(f"label {place} is not of view {wanted.view} of region {wanted.region}")


def _blocks_max(overlay: Overlay) -> int:
    """Returns the most blocks into which content may sensibly be cut: one a replica of its region, in an open view."""
    views = [view for latest in overlay.latest.values() for view in (latest, latest.former) if view is not None]
    return max(BLOCKS_FREE, *(len(view.members) for view in views))


_NO_SPAN = (0, 0, 0)
_NEVER = (-1, 0.0, 0.0)


def _ended(certificate: Certificate) -> Expired:
    return Expired(f"the certificate of {certificate.name} ended")


def _ended_right(text: str) -> NotAuthorised:
    """Returns the error for a verified author or a recent member: at the time of forwarding there may have been a
    right.
    """
    error = NotAuthorised(text)
    error.may_be_late = True
    return error
