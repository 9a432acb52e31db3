"""Data keys at a subscriber: shares in from every replica of the home region, keys out, liars to `blame`.

A search for the combination of honest places is paid for by the key's publisher: after one in vain its next waits,
so that a publisher who commits to garbage costs a bounded part of our time. A key whose epoch key we lack waits until
somebody fetched it (`Wanted`, `keys_changed`). Not here: publications, fetching epoch keys.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from bridge.contract import Blame, Count, Doubted, Effect, FairTable, Wanted
from bridge.document import Overlay, ScopeSecret
from bridge.reader.blame import Evidence
from bridge.reader.kept import KEY, Kept, key_of, key_row
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


@dataclass(slots=True)
class _Key:
    """A verified key header, the shares collected for it and, once recombined, the data key."""

    header: KeyHeader
    publisher: Certificate
    hops: tuple[Hop, ...]
    shares: dict[Label, Share] = field(default_factory=dict)
    data_key: DataKey | None = None
    combination: Combination | None = None
    secret: bytes = field(default=b"", repr=False)  # recombined by a former process, or by us
    brought: list[tuple[str, str]] = field(default_factory=list, repr=False)  # who brought which shares, as they came
    opened: set[int] = field(default_factory=set)  # sequences; at most the header's message limit
    failed_with: int = -1  # number of shares at the last search in vain
    unusable: bool = False

    @property
    def is_open(self) -> bool:
        return self.data_key is not None


class KeyRing:
    """The keys of all publishers, as far as we may read."""

    def __init__(
        self,
        overlay: Overlay,
        home: int,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        admission: Admission,
        kept: Kept | None = None,
    ) -> None:
        self._kept = kept if kept is not None else Kept()
        self._scope_keys = keys
        self._overlay, self._topology = overlay, Topology(overlay)
        self._home = home
        self._secrets = {secret.scope.filter: secret for secret in secrets}
        self._admission = admission
        self._evidence = Evidence(overlay)
        self._keys: FairTable[bytes, _Key] = FairTable(KEYS_HELD_MAX)
        self._last_combination: dict[tuple[Hop, ...], Combination] = {}  # by path and views
        self._ahead = Ahead()
        self._audits: OrderedDict[bytes, float] = OrderedDict()  # oldest first, all wait equally long
        self._paused: dict[bytes, float] = {}  # publisher -> when it may be searched for again
        self._searches: dict[bytes, float] = {}  # key ids whose search waits for that
        self._lacking: dict[KeyName, set[bytes]] = {}  # epoch key -> ids of the keys that wait for it, or for another
        self._doubted: set[KeyName] = set()

    def adopt(self, overlay: Overlay, secrets: Sequence[ScopeSecret], now: float) -> tuple[list[Effect], list[bytes]]:
        """Another version of the overlay, or other views, of the same regions. Returns what `keys_changed` does."""
        self._overlay, self._topology = overlay, Topology(overlay)
        self._secrets = {secret.scope.filter: secret for secret in secrets}
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
            if key is not None and key.data_key is None:
                key.failed_with, key.unusable = -1, False
                effects += self._recombine(key, now)
                if key.is_open:
                    opened.append(key_id)
        return effects, opened

    def restore(self, row: bytes, now: float) -> list[Effect]:
        """A key that a former process kept: opened, or with the shares that it had. Raises what `take` does."""
        header_text, secret, brought = key_of(row)
        properties = {PROPERTY_KEY: header_text}
        if not secret:
            return [e for peer, s in brought for e in self.take(peer, {**properties, PROPERTY_SHARES: s}, now)[0]]
        header = self._admission.key(properties, now)
        assert header is not None
        publisher = self._admission.publisher(header.publisher)
        hops = self._topology.key_way(header, publisher.region, self._home)
        key = _Key(header, publisher, hops, secret=secret)
        self._keys.put(header.key_id, header.publisher, key)
        return self._recombine(key, now)

    # --------------------------------------------------------------------------------------------- shares

    def take(self, peer: str, properties: dict[str, str], now: float) -> tuple[list[Effect], bytes | None]:
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
        key = self._keys.get(header.key_id)
        if key is None:
            publisher = self._admission.publisher(header.publisher)
            key = _Key(header, publisher, self._topology.key_way(header, publisher.region, self._home))
            # Until it opened, a key counts to who brought it too: any replica has its publishers' old ones by the
            # thousand, and replayed they would push out the one in use.
            gone = self._keys.put(header.key_id, header.publisher + peer.encode(), key)
            if gone is not None:
                self._audits.pop(gone[0], None)
                self._searches.pop(gone[0], None)
                self._no_longer_lacks(gone[1].header)
                self._kept.drop(KEY + gone[0])
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
        if not fresh:
            return effects, None
        effects.append(Count("shares_received", fresh))
        if key.data_key is not None:
            self._audits.setdefault(header.key_id, now + AUDIT_AFTER_S)
            return effects, None
        key.brought.append((peer, properties[PROPERTY_SHARES]))
        effects += self._recombine(key, now)
        if key.data_key is None:
            self._keep(key)
        return effects, header.key_id if key.data_key is not None else None

    def _keep(self, key: _Key) -> None:
        row = key_row(to_property(key.header.encode()), key.secret, () if key.secret else key.brought)
        self._kept.put(KEY + key.header.key_id, row)

    def waits_for(self, admitted: Admitted) -> bool:
        """Whether the data key of a sealed publication is still to come."""
        key = self._keys.get(admitted.header.key_id)
        return key is None or (key.data_key is None and _belongs(key, admitted))

    def data_key(self, admitted: Admitted) -> DataKey:
        """Raises BadContent if the publication names a key that is not for its publisher, scope and time."""
        key = self._keys.get(admitted.header.key_id)
        if key is None or key.data_key is None or not _belongs(key, admitted):
            raise BadContent("publication names the key of another publisher or scope")
        if not self._overlay.policy.calendar.may_seal(key.header.epoch, admitted.header.time_ms / 1000):
            raise BadContent("publication was not sealed in the epoch of its key")
        if admitted.header.sequence not in key.opened and len(key.opened) >= key.header.message_limit:
            raise BadContent(f"publisher sealed more than the {key.header.message_limit} messages that its key allows")
        key.opened.add(admitted.header.sequence)
        return key.data_key

    def seal_of(self, admitted: Admitted) -> tuple[int, int]:
        """Epoch and bump under which an opened publication was sealed."""
        key = self._keys.get(admitted.header.key_id) if admitted.header.mode is not Mode.PLAIN else None
        if key is None:
            return self._overlay.policy.calendar.at(admitted.header.time_ms / 1000), 0
        return key.header.epoch, key.header.bump

    # --------------------------------------------------------------------------------------------- search

    def _recombine(self, key: _Key, now: float) -> list[Effect]:
        """Try to get the data key from the shares that are here; more may come."""
        header, secret = key.header, self._secrets.get(key.header.scope)
        if secret is None or key.unusable or len(key.shares) == key.failed_with:
            return []
        epoch_key = self._scope_keys.get(header.epoch_key) if secret.scope.keyed else None
        if secret.scope.keyed and epoch_key is None:
            return self._lack(header)
        pause = self._paused.get(header.publisher, 0.0)
        if now < pause:
            self._searches[header.key_id] = pause
            return []
        if key.secret:
            return self._reopen(key, epoch_key)
        opened: list[DataKey] = []

        def accept(value: bytes) -> bool:
            try:
                opened.append(open_key(header, value, epoch_key))
            except BadContent:
                return False
            return True

        key.failed_with = len(key.shares)
        try:
            check_epoch_key(header, epoch_key)
            found = recombine(
                key.shares.values(),
                key.hops,
                lambda place, value: check_share(header, place, value),
                accept,
                first=self._last_combination.get(key.hops),
            )
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
        key.data_key, key.combination, key.secret = opened[-1], found.combination, found.secret
        key.brought.clear()
        self._keys.put(header.key_id, header.publisher, key)
        self._keep(key)
        self._last_combination[key.hops] = found.combination
        self._audits.setdefault(header.key_id, now + AUDIT_AFTER_S)
        return [Count("recombined")]

    def _reopen(self, key: _Key, epoch_key: bytes | None) -> list[Effect]:
        """A key that a former process recombined; its shares are not judged again."""
        try:
            key.data_key = open_key(key.header, key.secret, epoch_key)
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
            if key is not None and key.data_key is None:
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


def _belongs(key: _Key, admitted: Admitted) -> bool:
    return key.header.publisher == admitted.header.publisher and key.header.scope == admitted.scope.filter
