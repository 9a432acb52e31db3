"""Opening of data keys at a reader: takes shares from every replica of the home region, returns opened keys, and hands
evidence against liars to `blame`.

A choice of honest places is tried once, as soon as its shares are here (`ColumnSearch`). A search in vain is at the
publisher's expense: beyond a burst, the next search waits as long as the former ones took, and a key that nothing can
fit any more doubles the wait. So a publisher that commits to garbage costs a bounded part of the reader's time, and
delays no other publisher. Each turn tries at most `TURN_CHOICES` choices and leaves the rest to the next tick, so that
links are served in between. A key without its epoch key waits until the epoch key is fetched (`Wanted`,
`keys_changed`). Publications, and fetching of epoch keys, belong to other modules.

`SearchDebts` are the debts of publishers for searches in vain. A choice of places that fits nothing is work caused by
the key's publisher, or by replicas lying about its shares. The publisher owes `STEP_S` for each choice, and its next
search waits while the debt exceeds `BURST_S`. A key that nothing can fit any more costs twice as much each time, until
one of the publisher's keys opens. A debt delays, and drops nothing.

`Opening` is a way to open a key whose shares fit their commitments. A gateway obtains the decryption key
(`OpeningKeys`). An ingest job, whose receiver decrypts nothing, obtains k shares fitting the publisher's commitments.
`KeyRing` collects shares and searches.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from bridge.contract import Blame, Count, Doubted, EarlyRoom, Effect, FairTable, Wanted
from bridge.document import Overlay, ScopeSecret
from bridge.document.trees import NUMBERS
from bridge.reader.blame import Evidence, WrappedEvidence
from bridge.reader.kept import KEY, KeptReader, key_of, key_row
from bridge.topology import Topology
from bridge.wire import KEYS, KEYS_TOPIC, Admission, Admitted, EarlyKeys, keep_key, refused
from keys.columnsearch import Column, ColumnSearch, FoundColumns
from keys.envelope import (
    PROPERTY_KEY,
    PROPERTY_SHARES,
    PROPERTY_WRAPS,
    DataKey,
    KeyHeader,
    check_epoch_key,
    check_share,
    open_key,
    to_property,
)
from keys.epochs import KeyName, ScopeKeys
from keys.errors import BadContent, BadShare, KeysError, UnknownView, WrongEpochKey
from keys.identity import Certificate
from keys.sharetree import Combination, Hop, Label, Place, Share, encode_shares
from keys.wrapping import TakenWraps, Wrap, Wraps, carrying, encode_wraps, honest_needed, label_hops, wrapping_hops
from keys.wrapsearch import WrapSearch

STEP_S = 50e-6
"""Seconds owed for a choice; a choice takes about 20 us, so that one publisher gets less than half of a core."""
BURST_S = 0.02
"""Seconds owed before a search waits: below that a timer costs more than the search."""
PAUSE_MAX_S = 60.0
DOUBLINGS_MAX = 24  # of what a publisher owes for a choice in vain; more would overflow no float and wait no longer
KNOWN_MAX = 1024
"""Publishers held before publishers without debt are forgotten; a longer list consists of members."""


class SearchDebts:
    """Debts by publisher id. A debt is stored as the time at which waiting has paid it."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}
        self._refuted: dict[bytes, int] = {}

    def free_at(self, publisher: bytes, now: float) -> float:
        """Returns the time at which the publisher's keys may be searched again: `now`, or later."""
        return max(now, self._until.get(publisher, now) - BURST_S)

    def in_vain(self, publisher: bytes, choices: int, now: float) -> None:
        """Charges that many tried choices for a key that did not open."""
        self._owe(publisher, choices * STEP_S, now)

    def refuted(self, publisher: bytes, choices: int, now: float) -> None:
        """Charges a key that nothing can open any more; its whole search tried `choices`."""
        doublings = self._refuted.get(publisher, 0)
        self._refuted[publisher] = min(doublings + 1, DOUBLINGS_MAX)
        self._owe(publisher, max(choices, 1) * STEP_S * 2**doublings, now)

    def note_opened(self, publisher: bytes) -> None:
        """Resets the doubling after a key of the publisher opened."""
        self._refuted.pop(publisher, None)

    def _owe(self, publisher: bytes, more_s: float, now: float) -> None:
        self._until[publisher] = min(max(now, self._until.get(publisher, now)) + more_s, now + PAUSE_MAX_S)
        if len(self._until) > KNOWN_MAX:
            self._until = {one: until for one, until in self._until.items() if until > now}


Opened = TypeVar("Opened")
Opened_co = TypeVar("Opened_co", covariant=True)


class Opening(Protocol[Opened_co]):
    """A way to open a key whose shares fit their commitments, with its preconditions."""

    def may_open(self, header: KeyHeader) -> bool:
        """Returns True if this reader may read the scope of the key."""

    def lacks_epoch_key(self, header: KeyHeader) -> bool:
        """Returns True if opening needs an epoch key that is not here."""

    def check_epoch_key(self, header: KeyHeader) -> None:
        """Raises WrongEpochKey if the epoch key here differs from the publisher's."""

    def open_key(self, header: KeyHeader, level1: Mapping[int, bytes], secret: bytes) -> Opened_co:
        """Opens the key. `level1` holds k or more fitting values by place; `secret` follows from k of them. Raises
        BadContent.
        """


class OpeningKeys:
    """A gateway's `Opening`: the decryption keys of the scopes that it may read."""

    def __init__(self, secrets: Sequence[ScopeSecret], keys: ScopeKeys) -> None:
        self.adopt_scopes(secrets)
        self._keys = keys

    def adopt_scopes(self, secrets: Sequence[ScopeSecret]) -> None:
        self._keyed = {secret.scope.filter: secret.scope.keyed for secret in secrets}

    def may_open(self, header: KeyHeader) -> bool:
        return header.scope in self._keyed

    def lacks_epoch_key(self, header: KeyHeader) -> bool:
        return self._keyed[header.scope] and self._keys.get(header.epoch_key) is None

    def check_epoch_key(self, header: KeyHeader) -> None:
        check_epoch_key(header, self._epoch_key(header))

    def open_key(self, header: KeyHeader, level1: Mapping[int, bytes], secret: bytes) -> DataKey:
        return open_key(header, secret, self._epoch_key(header))

    def _epoch_key(self, header: KeyHeader) -> bytes | None:
        return self._keys.get(header.epoch_key) if self._keyed[header.scope] else None


KEYS_HELD_MAX = 4096  # a flood evicts the oldest of its publisher or, if not opened, of who brought it
AUDIT_AFTER_S = 1.0  # by then slow replicas have sent their shares of a key: judge them all at once
TURN_CHOICES = 200  # about 4 ms: the longest that a search keeps the links waiting; honest keys take 1 to 4
WRAP_CHOICES = 3  # choices that a step along wraps counts as: it takes so much longer
DOUBTED_MAX = 256  # epoch keys that we asked about since keys came last; a liar can contradict each of ours once
REPEATED_CHARS_MAX = 512  # of a peer's shares of one key, which come again as they were with each 16th publication
_NO_WRAPS = TakenWraps([], [], False)


@dataclass(slots=True)
class _Key(Generic[Opened]):
    """A verified key header, its collected shares and, once recombined, the opened key.

    `seals_ms` is the time in which its publisher may have sealed under the key. `wraps` are those of a key whose way
    wraps. `told` is the last property `vmq-shares` of each peer.
    """

    header: KeyHeader
    publisher: Certificate
    hops: tuple[Hop, ...]
    seals_ms: tuple[int, int]
    shares: dict[Label, Share] = field(default_factory=dict, repr=False)
    wraps: Wraps | None = None
    opened: Opened | None = field(default=None, repr=False)
    combination: Combination | None = None
    secret: bytes = field(default=b"", repr=False)  # recombined by a former process, or by us; only where it is kept
    brought: list[tuple[str, str]] = field(default_factory=list, repr=False)  # who brought which shares, each once
    served: set[int] = field(default_factory=set)  # sequences; at most the header's message limit
    search: ColumnSearch | WrapSearch | None = field(default=None, repr=False)  # until it opened
    unusable: bool = False
    told: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_open(self) -> bool:
        return self.opened is not None


class KeyRing(Generic[Opened]):
    """The keys of all publishers in the scopes that this reader may read."""

    def __init__(
        self,
        overlay: Overlay,
        home: int,
        opening: Opening[Opened],
        admission: Admission,
        kept: KeptReader | None = None,
    ) -> None:
        """Takes in `kept` the store of rows for a next process; None if no rows are stored."""
        self._kept = kept
        self._overlay, self._topology = overlay, Topology(overlay)
        self._home = home
        self._opening = opening
        self._admission = admission
        self._evidence, self._wrapped_evidence = Evidence(overlay), WrappedEvidence(overlay)
        self._keys: FairTable[bytes, _Key[Opened]] = FairTable(KEYS_HELD_MAX)
        self._contradicted: dict[tuple[Hop, ...], Counter[Column]] = {}  # by path and views
        self._early: EarlyKeys = EarlyRoom(KEYS)
        self._audits: OrderedDict[bytes, float] = OrderedDict()  # oldest first, all wait equally long
        self._debts = SearchDebts()
        self._searches: dict[bytes, float] = {}  # key ids whose search waits, and until when
        self._lacking: dict[KeyName, set[bytes]] = {}  # epoch key -> ids of the keys that wait for it, or for another
        self._doubted: set[KeyName] = set()

    def adopt_overlay(self, overlay: Overlay, now: float) -> tuple[list[Effect], list[bytes]]:
        """Adopts another version of the overlay, or other views, with unchanged regions. Returns the results of
        `keys_changed`.
        """
        self._overlay, self._topology = overlay, Topology(overlay)
        for held in self._keys.values():
            held.seals_ms = overlay.policy.calendar.sealing_ms(held.header.epoch)
        self._evidence.adopt_overlay(overlay)
        self._wrapped_evidence.adopt_overlay(overlay)
        self._contradicted = {
            hops: columns
            for hops, columns in self._contradicted.items()
            if all(overlay.view(hop.region, hop.view) for hop in hops)
        }
        effects, opened = self.keys_changed(now)
        for peer, _, properties in self._early.take_all():
            if peer not in overlay.members:
                continue
            try:
                news, key_id = self.take_key_wire(peer, properties, now)
            except KeysError as error:
                news, key_id = refused(peer, error), None
            effects += news
            opened += [key_id] if key_id is not None else []
        return effects, opened

    def keys_changed(self, now: float) -> tuple[list[Effect], list[bytes]]:
        """Tries the keys that waited for new epoch keys. Returns effects and the ids of keys that were opened."""
        lacking, self._lacking = self._lacking, {}
        self._doubted.clear()
        effects: list[Effect] = []
        opened = []
        for key_id in [key_id for ids in lacking.values() for key_id in sorted(ids)]:
            key = self._keys.get(key_id)
            if key is not None and key.opened is None:
                key.unusable = False
                effects += self._recombine(key, now)
                if key.is_open:
                    opened.append(key_id)
        return effects, opened

    # --------------------------------------------------------------------------------------------- shares

    def take_key_wire(self, peer: str, properties: Mapping[str, str], now: float) -> tuple[list[Effect], bytes | None]:
        """Takes key header and shares from a wire. Returns effects and the id of the key if this wire opened it.

        Raises the errors of `Admission.key_header` and `Admission.shares`.
        """
        try:
            header = self._admission.key_header(properties, now)
        except UnknownView:
            keep_key(self._early, peer, properties, KEYS_TOPIC)
            return [Count("keys_ahead")], None
        if header is None:
            return [], None
        key = self._keys.get(header.key_id) or self._add_key(header, peer)
        told = properties.get(PROPERTY_SHARES)
        if told is not None and key.told.get(peer) == told and PROPERTY_WRAPS not in properties:
            return [], None
        sender = self._topology.place_in(key.hops, peer)
        if sender is None:
            raise BadShare("shares from a replica that the key gives no place")
        effects: list[Effect] = []
        fresh: list[Share] = []
        wraps = self._admission.wraps(properties, header, key.hops, sender)
        expected: list[Place | Hop] = [*label_hops(key.hops, wrapped=header.wrapped)[:-1], sender]
        for share in self._admission.shares(properties, expected):
            if peer in self._overlay.hosted and not check_share(header, sender.place, share.value):
                # Nobody checked it on the way, and whoever may publish there can have made it: it takes no label from
                # the true one, and proves nothing against the broker.
                effects += [Count("refused", 1, "share"), Blame(peer, False, "share contradicts the commitment")]
                continue
            known = key.shares.setdefault(share.label, share)
            if known is share:
                fresh.append(share)
            elif known != share:
                effects.append(Blame(peer, False, "a second, different share for one label"))
        if told is not None and len(told) <= REPEATED_CHARS_MAX and not effects:
            key.told[peer] = told
        of_wraps = _NO_WRAPS if key.wraps is None else key.wraps.take_wraps(wraps, sender)
        effects += [Blame(peer, False, "a second, different wrap of one name")] if of_wraps.contradicts else []
        effects += [Count("wraps_received", len(of_wraps.believed))] if of_wraps.believed else []
        if not (fresh or of_wraps.counted):
            return effects, None
        effects += [Count("shares_received", len(fresh))] if fresh else []
        if key.opened is not None:
            if fresh or of_wraps.believed:  # a vote that decides nothing is no evidence
                self._audits.setdefault(header.key_id, now + AUDIT_AFTER_S)
            return effects, None
        if self._kept is not None:
            # Not as it was told: each further share may come with all that came before.
            key.brought += [(peer, to_property(encode_shares(fresh)))] if fresh else []
            counted = of_wraps.counted
            key.brought += [(peer, to_property(encode_wraps(header.key_id, key.hops, counted)))] if counted else []
        if key.search is not None:
            key.search.add_shares(fresh)
            if isinstance(key.search, WrapSearch):
                key.search.add_wraps(of_wraps.believed)
        if fresh or of_wraps.believed:
            effects += self._recombine(key, now)
        if key.opened is None:
            self._keep_row(key)
        return effects, header.key_id if key.opened is not None else None

    def _keep_row(self, key: _Key[Opened]) -> None:
        if self._kept is not None:
            row = key_row(to_property(key.header.encode()), key.secret, () if key.secret else key.brought)
            self._kept.put_row(KEY + key.header.key_id, row)

    def _add_key(self, header: KeyHeader, peer: str) -> _Key[Opened]:
        """Adds an unopened key, counted to its publisher together with the sender: any replica has thousands of old
        keys of its publishers, and replayed they would push out the key in use.
        """
        publisher = self._admission.publisher(header.publisher)
        hops = self._topology.key_way(header, publisher.region, self._home)
        key: _Key[Opened] = _Key(header, publisher, hops, self._overlay.policy.calendar.sealing_ms(header.epoch))
        if header.wrapped and wrapping_hops(hops):
            key.wraps = Wraps(honest_needed(hops[-1]))
        self._put_key(key, header.publisher + peer.encode())
        return key

    def _put_key(self, key: _Key[Opened], owner: bytes) -> None:
        gone = self._keys.put(key.header.key_id, owner, key)
        if gone is not None:
            self._audits.pop(gone[0], None)
            self._searches.pop(gone[0], None)
            self._no_longer_lacks(gone[1].header)
            if self._kept is not None:
                self._kept.drop_row(KEY + gone[0])

    # ------------------------------------------------------------------------------------------ using them

    def knows_key(self, key_id: bytes) -> bool:
        """Returns True if the header of the key came."""
        return self._keys.get(key_id) is not None

    def waits_for(self, admitted: Admitted) -> bool:
        """Returns True if the data key of a sealed publication has not been opened yet."""
        key = self._keys.get(admitted.header.key_id)
        return key is None or (key.opened is None and _belongs(key, admitted))

    def opened_key(self, admitted: Admitted) -> Opened | None:
        """Returns the opened key of a sealed publication, or None if the key is not opened yet. Raises BadContent if
        the key is for another publisher, scope or time.
        """
        header = admitted.header
        key = self._keys.get(header.key_id)
        if key is None:
            return None
        if not _belongs(key, admitted):
            raise BadContent("it belongs to another publisher, scope or tree of regions")
        if key.header.order != (header.generation, header.counter):
            raise BadContent("it says another generation, or another key of it, than its key does")
        if not key.seals_ms[0] <= header.time_ms < key.seals_ms[1]:
            raise BadContent(f"it is of epoch {key.header.epoch}, in which this was not sealed")
        if key.opened is not None and header.sequence not in key.served:
            if len(key.served) >= key.header.message_limit:
                most = key.header.message_limit
                raise BadContent(f"more was sealed under it than the {most} messages that it is for")
            key.served.add(header.sequence)
        return key.opened

    def held_key(self, key_id: bytes) -> tuple[KeyHeader, Opened | None, list[Share]] | None:
        """Returns the header of a key, the opened key if there is one, and the shares that came."""
        key = self._keys.get(key_id)
        return None if key is None else (key.header, key.opened, list(key.shares.values()))

    def __iter__(self) -> Iterator[bytes]:
        """Yields key ids, the last opened ones at the end."""
        return (key.header.key_id for key in self._keys.values())

    def restore(self, row: bytes, now: float) -> list[Effect]:
        """Restores a key of a former process, opened or with its shares. Raises the errors of `take_key_wire`."""
        header_text, secret, brought = key_of(row)
        properties = {PROPERTY_KEY: header_text}
        if not secret:
            return [e for peer, s in brought for e in self.take_key_wire(peer, {**properties, carrying(s): s}, now)[0]]
        header = self._admission.key_header(properties, now)
        assert header is not None
        key = self._add_key(header, "")
        key.secret = secret
        self._put_key(key, header.publisher)
        return self._recombine(key, now)

    def resume(self, header: KeyHeader, opened: Opened | None, shares: Iterable[Share]) -> None:
        """Takes a key an earlier process held and verified; ignores a key unknown to the present overlay."""
        try:
            key = self._keys.get(header.key_id) or self._add_key(header, "")
        except KeysError:
            return
        key.shares.update((share.label, share) for share in shares)
        if opened is not None:
            key.opened = opened
            self._put_key(key, header.publisher)

    # --------------------------------------------------------------------------------------------- search

    def _recombine(self, key: _Key[Opened], now: float) -> list[Effect]:
        """Tries to open the key with the present shares; more shares may come."""
        header, opening = key.header, self._opening
        if key.unusable or not opening.may_open(header):
            return []
        if opening.lacks_epoch_key(header):
            return self._lack(header)
        if key.secret:
            return self._reopen(key)
        due = self._debts.free_at(header.publisher, now)
        if due > now:
            self._searches[header.key_id] = due
            return []
        search = key.search = key.search or self._search_of(key)
        before, weight = search.steps, 1 if key.wraps is None else WRAP_CHOICES
        try:
            opening.check_epoch_key(header)
            found = search.search(TURN_CHOICES // weight, self._contradicted.get(key.hops, {}))
        except WrongEpochKey:
            key.unusable = True  # until keys come
            return [Count("wrong_epoch_key"), *self._doubt(header)]
        tried = (search.steps - before) * weight
        if found is not None:
            return self._found(key, search, found, now)
        if search.is_refuted or (search.is_complete and not search.is_pending()):
            key.unusable, key.search = True, None
            self._debts.refuted(header.publisher, search.steps * weight, now)
            return [Count("keys_refuted")]
        self._debts.in_vain(header.publisher, tried, now)
        if tried > TURN_CHOICES - weight:
            self._searches[header.key_id] = self._debts.free_at(header.publisher, now)
        return []

    def _search_of(self, key: _Key[Opened]) -> ColumnSearch | WrapSearch:
        def fits(place: int, value: bytes) -> bool:
            return check_share(key.header, place, value)

        def accept(secret: bytes) -> bool:
            try:
                key.opened = self._opening.open_key(key.header, search.rows, secret)
            except BadContent:
                return False
            return True

        if key.wraps is None:
            search: ColumnSearch | WrapSearch = ColumnSearch(key.hops, fits, accept)
        else:
            search = WrapSearch(key.hops, key.header.digest, fits, accept)
            search.add_wraps(map(Wrap._make, key.wraps.believed.items()))
        search.add_shares(key.shares.values())
        return search

    def _found(
        self, key: _Key[Opened], search: ColumnSearch | WrapSearch, found: FoundColumns, now: float
    ) -> list[Effect]:
        header = key.header
        key.combination, key.search = found.combination, None
        self._put_key(key, header.publisher)
        if self._kept is not None:
            key.secret = found.secret
            key.brought.clear()
            self._keep_row(key)
        self._debts.note_opened(header.publisher)
        self._audits.setdefault(header.key_id, now + AUDIT_AFTER_S)
        effects: list[Effect] = [Count("recombined")]
        if contradicted := search.contradictions(found):
            self._contradicted.setdefault(key.hops, Counter()).update(contradicted)
            effects.append(Count("recombine_retries"))
        return effects

    def _reopen(self, key: _Key[Opened]) -> list[Effect]:
        """Opens a key a former process recombined, without a second audit of its shares."""
        try:
            self._opening.check_epoch_key(key.header)
            key.opened = self._opening.open_key(key.header, {}, key.secret)
        except WrongEpochKey:
            key.unusable = True  # until keys come
            return [Count("wrong_epoch_key"), *self._doubt(key.header)]
        except BadContent:
            key.unusable = True
        return []

    def _lack(self, header: KeyHeader) -> list[Effect]:
        """Requests a missing epoch key, once for all keys needing it."""
        waiting = self._lacking.get(header.epoch_key)
        if waiting is not None:
            waiting.add(header.key_id)
            return []
        self._lacking[header.epoch_key] = {header.key_id}
        scope = self._overlay.scope_named(header.scope)
        if scope is None or header.bump > scope.bump:  # a newer policy has to come first, and keys with it
            return [Count("epoch_key_waits")]
        return [Count("epoch_key_waits"), Wanted(header.epoch_key)]

    def _doubt(self, header: KeyHeader) -> list[Effect]:
        """Reports a wrong epoch key once: the reader's or the publisher's, indistinguishable here, so nobody is
        blamed.
        """
        name = header.epoch_key
        self._lacking.setdefault(name, set()).add(header.key_id)
        if name in self._doubted or len(self._doubted) >= DOUBTED_MAX:
            return []
        self._doubted.add(name)
        return [Doubted(name)]

    def _no_longer_lacks(self, header: KeyHeader) -> None:
        waiting = self._lacking.get(header.epoch_key)
        if waiting is not None:
            waiting.discard(header.key_id)
            if not waiting:
                del self._lacking[header.epoch_key]

    # ----------------------------------------------------------------------------------------------- time

    def tick(self, now: float) -> tuple[list[Effect], list[bytes]]:
        """Continues a single postponed search, and audits keys whose shares have come. Returns effects and the ids of
        keys that were opened.
        """
        effects: list[Effect] = []
        opened = []
        due = [key_id for key_id, at in self._searches.items() if at <= now]
        if due:  # one a turn: each takes its publisher's time, and puts itself at the end if it is not through
            del self._searches[due[0]]
            key = self._keys.get(due[0])
            if key is not None and key.opened is None:
                effects += self._recombine(key, now)
                if key.is_open:
                    opened.append(due[0])
        while self._audits and next(iter(self._audits.values())) <= now:
            key_id, _ = self._audits.popitem(last=False)
            key = self._keys.get(key_id)
            if key is not None and key.combination is not None:
                if key.wraps is not None:
                    effects += self._wrapped_evidence.judge(key.header, key.hops, key.shares, key.wraps.believed)
                else:
                    effects += self._evidence.judge(key.header, key.hops, key.shares, key.combination)
        return effects, opened

    @property
    def next_deadline(self) -> float | None:
        if not (self._audits or self._searches):
            return None
        firsts = [*list(self._audits.values())[:1], *self._searches.values()]
        return min(firsts, default=None)


def _belongs(key: _Key[Opened], admitted: Admitted) -> bool:
    header = key.header
    same = header.publisher == admitted.header.publisher and header.scope == admitted.scope.filter
    return same and header.tree % NUMBERS == admitted.header.tree
