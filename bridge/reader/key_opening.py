"""Data keys at a reader: shares in from every replica of the home region, opened keys out, liars to `blame`.

What an opened key is, `Opening` says: to a gateway the key that decrypts, to an ingest job, whose receiver decrypts
nothing, k shares that fit what the publisher committed to.

A search for the combination of honest places is paid for by the key's publisher: after one in vain its next waits,
so that a publisher who commits to garbage costs a bounded part of our time. A key whose epoch key we lack waits until
somebody fetched it (`Wanted`, `keys_changed`). Not here: publications, fetching epoch keys.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Generic, Protocol, TypeVar

from bridge.contract import Blame, Count, Doubted, Effect, FairTable, Wanted
from bridge.document import Overlay, ScopeSecret
from bridge.reader.blame import Evidence
from bridge.reader.kept import KEY, KeptReader, key_of, key_row
from bridge.topology import Topology
from bridge.wire import KEYS_TOPIC, Admission, Admitted, Ahead, refused
from keys.envelope import (
    PROPERTY_KEY,
    PROPERTY_SHARES,
    DataKey,
    KeyHeader,
    Mode,
    check_epoch_key,
    check_share,
    open_key,
    to_property,
)
from keys.epochs import KeyName, ScopeKeys
from keys.errors import BadContent, BadShare, KeysError, NotEnoughShares, SearchExhausted, UnknownView, WrongEpochKey
from keys.identity import Certificate
from keys.sharetree import Combination, Hop, Label, Share, recombine

KEYS_HELD_MAX = 4096  # a flood evicts the oldest of its publisher or, if not opened, of who brought it
AUDIT_AFTER_S = 1.0  # by then slow replicas have sent their shares of a key: judge them all at once
SEARCH_STEP_S = 50e-6  # pause a publisher owes for each step of a search in vain; a step takes about 20 us
DOUBTED_MAX = 256  # epoch keys that we asked about since keys came last; a liar can contradict each of ours once
SEARCH_PAUSE_MIN_S = 0.02  # shorter ones are not worth a timer: regions of up to 5 never pause
REPEATED_CHARS_MAX = 512  # of a peer's shares of one key, which come again as they were with each 16th publication

Opened = TypeVar("Opened")
Opened_co = TypeVar("Opened_co", covariant=True)


class Opening(Protocol[Opened_co]):
    """What becomes of a key whose shares fit their commitments, and what that takes."""

    def may_open(self, header: KeyHeader) -> bool:
        """Whether its scope is for us."""

    def lacks(self, header: KeyHeader) -> bool:
        """Whether it takes an epoch key that is not here."""

    def check(self, header: KeyHeader) -> None:
        """Raises WrongEpochKey if ours is another one than the publisher's."""

    def open(self, header: KeyHeader, level1: Mapping[int, bytes], secret: bytes) -> Opened_co:
        """`level1`: by place, k or more values that fit; `secret` follows from k of them. Raises BadContent."""


class OpeningKeys:
    """A gateway's `Opening`: the keys that decrypt, in the scopes that it may read."""

    def __init__(self, secrets: Sequence[ScopeSecret], keys: ScopeKeys) -> None:
        self.adopt(secrets)
        self._keys = keys

    def adopt(self, secrets: Sequence[ScopeSecret]) -> None:
        self._keyed = {secret.scope.filter: secret.scope.keyed for secret in secrets}

    def may_open(self, header: KeyHeader) -> bool:
        return header.scope in self._keyed

    def lacks(self, header: KeyHeader) -> bool:
        return self._keyed[header.scope] and self._keys.get(header.epoch_key) is None

    def check(self, header: KeyHeader) -> None:
        check_epoch_key(header, self._epoch_key(header))

    def open(self, header: KeyHeader, level1: Mapping[int, bytes], secret: bytes) -> DataKey:
        return open_key(header, secret, self._epoch_key(header))

    def _epoch_key(self, header: KeyHeader) -> bytes | None:
        return self._keys.get(header.epoch_key) if self._keyed[header.scope] else None


@dataclass(slots=True)
class _Key(Generic[Opened]):
    """A verified key header, the shares collected for it and, once recombined, what it was opened to.

    `seals_ms`: in which times its publisher may have sealed under it. `told`: by peer, its last property `vmq-shares`.
    """

    header: KeyHeader
    publisher: Certificate
    hops: tuple[Hop, ...]
    seals_ms: tuple[int, int]
    shares: dict[Label, Share] = field(default_factory=dict, repr=False)
    opened: Opened | None = field(default=None, repr=False)
    combination: Combination | None = None
    secret: bytes = field(default=b"", repr=False)  # recombined by a former process, or by us; only where it is kept
    brought: list[tuple[str, str]] = field(default_factory=list, repr=False)  # who brought which shares, as they came
    served: set[int] = field(default_factory=set)  # sequences; at most the header's message limit
    failed_with: int = -1  # number of shares at the last search in vain
    unusable: bool = False
    told: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_open(self) -> bool:
        return self.opened is not None


class KeyRing(Generic[Opened]):
    """The keys of all publishers, as far as we may read."""

    def __init__(
        self,
        overlay: Overlay,
        home: int,
        opening: Opening[Opened],
        admission: Admission,
        kept: KeptReader | None = None,
    ) -> None:
        """`kept`: where rows for a next process go; None: nobody takes them."""
        self._kept = kept
        self._overlay, self._topology = overlay, Topology(overlay)
        self._home = home
        self._opening = opening
        self._admission = admission
        self._evidence = Evidence(overlay)
        self._keys: FairTable[bytes, _Key[Opened]] = FairTable(KEYS_HELD_MAX)
        self._last_combination: dict[tuple[Hop, ...], Combination] = {}  # by path and views
        self._ahead = Ahead()
        self._audits: OrderedDict[bytes, float] = OrderedDict()  # oldest first, all wait equally long
        self._paused: dict[bytes, float] = {}  # publisher -> when it may be searched for again
        self._searches: dict[bytes, float] = {}  # key ids whose search waits for that
        self._lacking: dict[KeyName, set[bytes]] = {}  # epoch key -> ids of the keys that wait for it, or for another
        self._doubted: set[KeyName] = set()

    def adopt(self, overlay: Overlay, now: float) -> tuple[list[Effect], list[bytes]]:
        """Another version of the overlay, or other views, of the same regions. Returns what `keys_changed` does."""
        self._overlay, self._topology = overlay, Topology(overlay)
        for held in self._keys.values():
            held.seals_ms = overlay.policy.calendar.sealing_ms(held.header.epoch)
        self._evidence.adopt(overlay)
        self._last_combination = {
            hops: combination
            for hops, combination in self._last_combination.items()
            if all(overlay.view(hop.region, hop.view) for hop in hops)
        }
        effects, opened = self.keys_changed(now)
        for peer, _, properties in self._ahead.take():
            if peer not in overlay.members:
                continue
            try:
                news, key_id = self.take(peer, properties, now)
            except KeysError as error:
                news, key_id = refused(peer, error), None
            effects += news
            opened += [key_id] if key_id is not None else []
        return effects, opened

    def keys_changed(self, now: float) -> tuple[list[Effect], list[bytes]]:
        """Epoch keys came: the keys that waited for them are tried; with the effects, the ids of those that opened."""
        lacking, self._lacking = self._lacking, {}
        self._doubted.clear()
        effects: list[Effect] = []
        opened = []
        for key_id in [key_id for ids in lacking.values() for key_id in sorted(ids)]:
            key = self._keys.get(key_id)
            if key is not None and key.opened is None:
                key.failed_with, key.unusable = -1, False
                effects += self._recombine(key, now)
                if key.is_open:
                    opened.append(key_id)
        return effects, opened

    # --------------------------------------------------------------------------------------------- shares

    def take(self, peer: str, properties: Mapping[str, str], now: float) -> tuple[list[Effect], bytes | None]:
        """Key header and shares that ride on a wire; with the effects, the id of the key if that opened it.

        Raises what `Admission.key` and `Admission.shares` raise.
        """
        try:
            header = self._admission.key(properties, now)
        except UnknownView:
            self._ahead.keep(peer, properties, KEYS_TOPIC)
            return [Count("keys_ahead")], None
        if header is None:
            return [], None
        key = self._keys.get(header.key_id) or self._add(header, peer)
        told = properties.get(PROPERTY_SHARES)
        if told is not None and key.told.get(peer) == told:
            return [], None
        sender = self._topology.place_in(key.hops, peer)
        if sender is None:
            raise BadShare("shares from a replica that the key gives no place")
        effects: list[Effect] = []
        fresh = 0
        for share in self._admission.shares(properties, [*key.hops[:-1], sender]):
            if peer in self._overlay.hosted and not check_share(header, sender.place, share.value):
                # Nobody checked it on the way, and whoever may publish there can have made it: it takes no label from
                # the true one, and proves nothing against the broker.
                effects += [Count("refused", 1, "share"), Blame(peer, False, "share contradicts the commitment")]
                continue
            known = key.shares.setdefault(share.label, share)
            if known is share:
                fresh += 1
            elif known != share:
                effects.append(Blame(peer, False, "a second, different share for one label"))
        if told is not None and len(told) <= REPEATED_CHARS_MAX and not effects:
            key.told[peer] = told
        if not fresh:
            return effects, None
        effects.append(Count("shares_received", fresh))
        if key.opened is not None:
            self._audits.setdefault(header.key_id, now + AUDIT_AFTER_S)
            return effects, None
        if self._kept is not None and told is not None:
            key.brought.append((peer, told))
        effects += self._recombine(key, now)
        if key.opened is None:
            self._keep(key)
        return effects, header.key_id if key.opened is not None else None

    def _keep(self, key: _Key[Opened]) -> None:
        if self._kept is not None:
            row = key_row(to_property(key.header.encode()), key.secret, () if key.secret else key.brought)
            self._kept.put(KEY + key.header.key_id, row)

    def _add(self, header: KeyHeader, peer: str) -> _Key[Opened]:
        """Until it opened, a key counts to who brought it too: any replica has its publishers' old ones by the
        thousand, and replayed they would push out the one in use."""
        publisher = self._admission.publisher(header.publisher)
        hops = self._topology.key_way(header, publisher.region, self._home)
        key: _Key[Opened] = _Key(header, publisher, hops, self._overlay.policy.calendar.sealing_ms(header.epoch))
        self._put(key, header.publisher + peer.encode())
        return key

    def _put(self, key: _Key[Opened], owner: bytes) -> None:
        gone = self._keys.put(key.header.key_id, owner, key)
        if gone is not None:
            self._audits.pop(gone[0], None)
            self._searches.pop(gone[0], None)
            self._no_longer_lacks(gone[1].header)
            if self._kept is not None:
                self._kept.drop(KEY + gone[0])

    # ------------------------------------------------------------------------------------------ using them

    def knows(self, key_id: bytes) -> bool:
        """Whether its header came."""
        return self._keys.get(key_id) is not None

    def waits_for(self, admitted: Admitted) -> bool:
        """Whether the data key of a sealed publication is still to come."""
        key = self._keys.get(admitted.header.key_id)
        return key is None or (key.opened is None and _belongs(key, admitted))

    def opened(self, admitted: Admitted) -> Opened | None:
        """What the key of a sealed publication was opened to, None if that is still to come. Raises BadContent if it
        names a key that is not for its publisher, scope and time."""
        header = admitted.header
        key = self._keys.get(header.key_id)
        if key is None:
            return None
        if not _belongs(key, admitted):
            raise BadContent("it belongs to another publisher or scope")
        if not key.seals_ms[0] <= header.time_ms < key.seals_ms[1]:
            raise BadContent(f"it is of epoch {key.header.epoch}, in which this was not sealed")
        if key.opened is not None and header.sequence not in key.served:
            if len(key.served) >= key.header.message_limit:
                most = key.header.message_limit
                raise BadContent(f"more was sealed under it than the {most} messages that it is for")
            key.served.add(header.sequence)
        return key.opened

    def seal_of(self, admitted: Admitted) -> tuple[int, int]:
        """Epoch and bump under which an opened publication was sealed."""
        key = self._keys.get(admitted.header.key_id) if admitted.header.mode is not Mode.PLAIN else None
        return (admitted.epoch, 0) if key is None else (key.header.epoch, key.header.bump)

    def held(self, key_id: bytes) -> tuple[KeyHeader, Opened | None, list[Share]] | None:
        """What there is of a key: its header, what it was opened to, and the shares that came."""
        key = self._keys.get(key_id)
        return None if key is None else (key.header, key.opened, list(key.shares.values()))

    def __iter__(self) -> Iterator[bytes]:
        """Ids, those that were opened last at the end."""
        return (key.header.key_id for key in self._keys.values())

    def restore(self, row: bytes, now: float) -> list[Effect]:
        """A key that a former process kept: opened, or with the shares that it had. Raises what `take` does."""
        header_text, secret, brought = key_of(row)
        properties = {PROPERTY_KEY: header_text}
        if not secret:
            return [e for peer, s in brought for e in self.take(peer, {**properties, PROPERTY_SHARES: s}, now)[0]]
        header = self._admission.key(properties, now)
        assert header is not None
        key = self._add(header, "")
        key.secret = secret
        self._put(key, header.publisher)
        return self._recombine(key, now)

    def resume(self, header: KeyHeader, opened: Opened | None, shares: Iterable[Share]) -> None:
        """What an earlier process of ours held, and had verified; nothing if the overlay does not know of it now."""
        try:
            key = self._keys.get(header.key_id) or self._add(header, "")
        except KeysError:
            return
        key.shares.update((share.label, share) for share in shares)
        if opened is not None:
            key.opened = opened
            self._put(key, header.publisher)

    # --------------------------------------------------------------------------------------------- search

    def _recombine(self, key: _Key[Opened], now: float) -> list[Effect]:
        """Try to open the key with the shares that are here; more may come."""
        header, opening = key.header, self._opening
        if key.unusable or len(key.shares) == key.failed_with or not opening.may_open(header):
            return []
        if opening.lacks(header):
            return self._lack(header)
        if key.secret:
            return self._reopen(key)
        if len(key.shares) < prod(hop.threshold for hop in key.hops):
            return []  # too few for any combination
        pause = self._paused.get(header.publisher, 0.0)
        if now < pause:
            self._searches[header.key_id] = pause
            return []
        level1: dict[int, bytes] = {}  # whatever fits its commitment is true, whichever combination gave it
        opened: list[Opened] = []

        def fits(place: int, value: bytes) -> bool:
            if not check_share(header, place, value):
                return False
            level1[place] = value
            return True

        def accept(secret: bytes) -> bool:
            try:
                opened.append(opening.open(header, level1, secret))
            except BadContent:
                return False
            return True

        key.failed_with = len(key.shares)
        try:
            opening.check(header)
            found = recombine(key.shares.values(), key.hops, fits, accept, first=self._last_combination.get(key.hops))
        except NotEnoughShares:
            return []
        except SearchExhausted as error:
            key.unusable = error.complete
            if error.steps * SEARCH_STEP_S >= SEARCH_PAUSE_MIN_S:
                self._paused[header.publisher] = now + error.steps * SEARCH_STEP_S
            return [Count("recombine_retries")]
        except WrongEpochKey:
            key.unusable = True  # until keys come
            return [Count("wrong_epoch_key"), *self._doubt(header)]
        key.opened, key.combination = opened[-1], found.combination
        self._put(key, header.publisher)
        if self._kept is not None:
            key.secret = found.secret
            key.brought.clear()
            self._keep(key)
        self._last_combination[key.hops] = found.combination
        self._audits.setdefault(header.key_id, now + AUDIT_AFTER_S)
        return [Count("recombined")]

    def _reopen(self, key: _Key[Opened]) -> list[Effect]:
        """A key that a former process recombined; its shares are not judged again."""
        try:
            self._opening.check(key.header)
            key.opened = self._opening.open(key.header, {}, key.secret)
        except WrongEpochKey:
            key.unusable = True  # until keys come
            return [Count("wrong_epoch_key"), *self._doubt(key.header)]
        except BadContent:
            key.unusable = True
        return []

    def _lack(self, header: KeyHeader) -> list[Effect]:
        """The epoch key is not here: ask for it once for all keys that need it."""
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
        """Ours or the publisher's epoch key is wrong, which nobody can tell here: no blame, one question for each."""
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
        """Searches that had to wait, and audits of keys whose shares are in; the ids of keys that were opened."""
        effects: list[Effect] = []
        opened = []
        for key_id in [k for k, at in self._searches.items() if at <= now]:
            del self._searches[key_id]
            key = self._keys.get(key_id)
            if key is not None and key.opened is None:
                effects += self._recombine(key, now)
                if key.is_open:
                    opened.append(key_id)
        while self._audits and next(iter(self._audits.values())) <= now:
            key_id, _ = self._audits.popitem(last=False)
            key = self._keys.get(key_id)
            if key is not None and key.combination is not None:
                effects += self._evidence.judge(key.header, key.hops, key.shares, key.combination)
        return effects, opened

    @property
    def next_deadline(self) -> float | None:
        firsts = [*list(self._audits.values())[:1], *self._searches.values()]
        return min(firsts, default=None)


def _belongs(key: _Key[Opened], admitted: Admitted) -> bool:
    return key.header.publisher == admitted.header.publisher and key.header.scope == admitted.scope.filter
