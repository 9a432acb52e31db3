"""Data keys as a receiver knows them: verified key headers and the shares that fit them, never a scope key.

A key is *usable* with k level-1 shares that fit the publisher's commitments; exactly those k go to the spool.
On a path of one region the replicas deliver level-1 shares, and a liar shows at once. On longer paths the
level-1 values are recombined from shares of shares. Either way the secret alone opens nothing: executors add
the scope's epoch key. Of that the keyring knows only *whether* executors have it (`learn`): until then what is
sealed under it waits, so that no row is shown which they cannot open yet.
"""

from __future__ import annotations

import base64
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from keys.envelope import KeyHeader, KeyName, MessageHeader, check_share, from_property
from keys.errors import BadFrame, BadShare, KeysError, NotAuthorised, NotEnoughShares, SearchExhausted, UnknownView
from keys.keyheader import NO_KCV
from keys.sharetree import Combination, Hop, Label, Place, Share, check_label, decode_shares, encode_shares, recombine
from spark_ingest.receiving.admission import member_of, path_from
from spark_ingest.receiving.directory import Directory, Scope
from spark_ingest.receiving.early_keys import Ahead, Piece
from spark_ingest.spool import KeyMaterial

KEYS_MAX = 4_096
"""Keys in memory over all publishers; the one that was used longest ago goes first."""
KEYS_PER_PUBLISHER_MAX = 1_024
"""Stops one publisher from pushing out everybody else's keys; beyond it, it pushes out its own. So many more may each
replica have brought that are not usable yet. Where each message has a key of its own, replicas may be so many messages
apart."""
MESSAGES_MAX = 65_536
"""Messages that a key may be for, as for every reader: the sequences that it served are remembered."""
WANTED_MAX = 64
"""Epoch keys that are asked for at a time, as many as a request holds; what is still missing is wanted again."""
KEYS_KEPT = 1_024
"""Keys that a roll writes into the spool's state for the next process."""


@dataclass(slots=True)
class _Key:
    header: KeyHeader
    shares: dict[Label, Share] = field(default_factory=dict, repr=False)
    level1: dict[int, bytes] = field(default_factory=dict, repr=False)
    material: KeyMaterial | None = None
    searched_with: int = 0
    owner: tuple[bytes, str] = (b"", "")
    seals_ms: tuple[int, int] | None = None  # in which time its publisher may have sealed under it, as far as asked
    name: KeyName = field(init=False)
    key_id: bytes = field(init=False)
    opens: set[int] = field(default_factory=set)  # sequences that it serves; at most the header's message limit

    def __post_init__(self) -> None:
        self.name, self.key_id = self.header.epoch_key, self.header.key_id

    def serves(self, sequence: int) -> bool:
        """Whether its publisher may have sealed this too under it."""
        if sequence not in self.opens and len(self.opens) >= self.header.message_limit:
            return False
        self.opens.add(sequence)
        return True


class Keyring:
    """Key headers and shares by key id. `attach` a directory before `take`."""

    def __init__(self) -> None:
        self._directory: Directory | None = None
        self._keys: OrderedDict[bytes, _Key] = OrderedDict()
        self._texts: OrderedDict[str, bytes] = OrderedDict()  # property as received, verified: key id
        # By publisher, and by who brought those that are not usable yet: key ids, oldest first. Any replica has its
        # publishers' old keys by the thousand, and replayed they would push out those in use.
        self._owned: dict[tuple[bytes, str], OrderedDict[bytes, None]] = {}
        self._combinations: dict[tuple[Hop, ...], Combination] = {}  # what worked last, by path and views
        self._ahead = Ahead()
        self._edition: object = None
        self._names: frozenset[KeyName] = frozenset()
        self._wanted: dict[KeyName, None] = {}

    def attach(self, directory: Directory) -> None:
        self._directory = directory

    def take(self, replica: str, told: str, told_shares: str | None, figures: Counter[tuple[str, str]]) -> bytes | None:
        """Key header and shares of one piece, as properties; the key's id if it became usable just now.

        Wrong shares are counted for the replica and dropped. A key that was split for a view which is not in force here
        yet waits for it (`follow`). Raises KeysError for a key header that is not signed, split for views that are
        closed, or of nobody who may publish, and for malformed shares.
        """
        assert self._directory is not None
        try:
            key = self._verified(told, replica)
        except UnknownView:
            publisher = KeyHeader.decode(from_property(told)).publisher
            self._ahead.keep(publisher, Piece(replica, told, told_shares))
            figures["keys_ahead", ""] += 1
            return None
        if key.material is not None or told_shares is None:
            return None
        path = self._path(key.header)
        place = self._directory.place(path[-1], replica)
        if place is None:
            raise BadShare("shares from a replica that the key gives no place")
        stamp = Place(path[-1].region, path[-1].view, place)
        fresh = 0
        for share in decode_shares(from_property(told_shares)):
            check_label(share, path)
            if share.label[-1] != stamp:
                raise BadShare("a share that is stamped for another replica than its sender")
            known = key.shares.setdefault(share.label, share)
            if known is share:
                fresh += 1
                figures["shares_received", ""] += 1
            elif known != share:
                figures["wrong_share", replica] += 1
        if not fresh:
            return None
        self._solve(key, path, replica, figures)
        return key.header.key_id if key.material is not None else None

    def _verified(self, told: str, replica: str) -> _Key:
        assert self._directory is not None
        key_id = self._texts.get(told)
        if key_id is not None and key_id in self._keys:
            self._keys.move_to_end(key_id)
            return self._keys[key_id]
        header = KeyHeader.decode(from_property(told))
        certificate = member_of(self._directory, header.publisher)
        header.verify(certificate.public_key)
        scope = self._directory.scope_named(header.scope)
        if scope is None or not self._directory.may_publish_in(certificate.name, scope.filter, header.epoch):
            raise NotAuthorised(f"{certificate.name} may not publish in this scope in epoch {header.epoch}")
        if (header.kcv == NO_KCV) is scope.keyed:
            raise BadFrame("a key without the scope's epoch key where there is one, or with one where there is none")
        if header.message_limit > MESSAGES_MAX:
            raise NotAuthorised(f"a key for {header.message_limit} messages, more than any scope may have")
        path = header.along(path_from(self._directory, certificate))
        if header.hops[0] != path[0]:
            raise BadShare("a key that was split for another first region than its publisher's")
        for hop in path:
            self._directory.check_view(hop)
        key = self._keys.get(header.key_id) or self._add(header, replica)
        self._texts[told] = header.key_id
        if len(self._texts) > KEYS_MAX:
            self._texts.popitem(last=False)
        return key

    def _path(self, header: KeyHeader) -> tuple[Hop, ...]:
        assert self._directory is not None
        return header.along(path_from(self._directory, member_of(self._directory, header.publisher)))

    def follow(self, figures: Counter[tuple[str, str]]) -> list[bytes]:
        """Look again at keys that came before their views, if the overlay changed; ids of those that became usable."""
        assert self._directory is not None
        if self._directory.edition is self._edition:
            return []
        self._edition = self._directory.edition
        self._combinations.clear()
        for key in self._keys.values():
            key.seals_ms = None
        usable = []
        for piece in self._ahead.take():
            try:
                key_id = self.take(*piece, figures)
            except KeysError as error:
                figures[f"refused_{type(error).__name__}", piece.replica] += 1
                continue
            usable += [key_id] if key_id is not None else []
        return usable

    def _add(self, header: KeyHeader, replica: str) -> _Key:
        key = self._keys[header.key_id] = _Key(header)
        self._own(key, replica)
        return key

    def _own(self, key: _Key, replica: str) -> None:
        """Count a key to its publisher; with a `replica`, to who brought it too."""
        key.owner = key.header.publisher, replica
        owned = self._owned.setdefault(key.owner, OrderedDict())
        owned[key.header.key_id] = None
        if len(owned) > KEYS_PER_PUBLISHER_MAX:
            self._drop(next(iter(owned)))
        elif len(self._keys) > KEYS_MAX:
            greediest = max(self._owned.values(), key=len)
            self._drop(next(iter(greediest)))

    def _disown(self, key: _Key) -> None:
        owned = self._owned[key.owner]
        del owned[key.header.key_id]
        if not owned:
            del self._owned[key.owner]

    def _drop(self, key_id: bytes) -> None:
        self._disown(self._keys.pop(key_id))

    def _solve(self, key: _Key, path: Sequence[Hop], replica: str, figures: Counter[tuple[str, str]]) -> None:
        """Find k level-1 shares that fit the commitments, from what is here."""
        header = key.header

        def fits(place: int, value: bytes) -> bool:
            if check_share(header, place, value):
                key.level1[place] = value
                return True
            return False

        if len(path) == 1:
            for label, share in list(key.shares.items()):
                if label[0].place not in key.level1 and not fits(label[0].place, share.value):
                    figures["wrong_share", replica] += 1
                    del key.shares[label]
        elif len(key.shares) > key.searched_with:
            key.searched_with = len(key.shares)
            try:
                found = recombine(
                    key.shares.values(), path, fits, lambda _: True, first=self._combinations.get(tuple(path))
                )
            except NotEnoughShares:
                return
            except SearchExhausted:
                figures["recombine_retries", ""] += 1
                return
            self._combinations[tuple(path)] = found.combination
        hop = path[0]
        if len(key.level1) >= hop.threshold:
            places = sorted(key.level1)[: hop.threshold]
            key.material = _material(header, hop, {place: key.level1[place] for place in places})
            self._disown(key)
            self._own(key, "")
            key.shares.clear()
            figures["recombined", ""] += 1

    # -------------------------------------------------------------------------------------------- asking

    def learn(self, names: Collection[KeyName]) -> None:
        """Executors have these epoch keys, and no others."""
        self._names = frozenset(names)
        self._wanted.clear()

    def missing(self, header: MessageHeader, scope: Scope) -> str | None:
        """Why a publication cannot be opened with what is here, in the words of column `reason`; None if it can."""
        assert self._directory is not None
        key = self._keys.get(header.key_id)
        if key is None:
            return "key: no key header came"
        if key.header.publisher != header.publisher or key.header.scope != scope.filter:
            return "key: it belongs to another publisher or scope"
        if key.seals_ms is None:
            key.seals_ms = self._directory.calendar.sealing_ms(key.header.epoch)
        if not key.seals_ms[0] <= header.time_ms < key.seals_ms[1]:
            return f"key: it is of epoch {key.header.epoch}, in which this was not sealed"
        if key.material is None:
            return "shares: fewer than k fit the commitments"
        name = key.name
        if scope.keyed and name not in self._names:
            if len(self._wanted) < WANTED_MAX:
                self._wanted[name] = None
            return f"grant: no epoch key came for {told_name(name)}"
        if not key.serves(header.sequence):
            return f"key: more was sealed under it than the {key.header.message_limit} messages that it is for"
        return None

    def take_wanted(self) -> list[KeyName]:
        """Epoch keys that publications wait for, since the last call."""
        names, self._wanted = list(self._wanted), {}
        return names

    def material(self, key_id: bytes) -> KeyMaterial | None:
        """What the spool keeps about a key; with fewer than k shares when there are no more."""
        key = self._keys.get(key_id)
        if key is None:
            return None
        self._keys.move_to_end(key_id)
        return key.material or _material(key.header, key.header.hops[0], key.level1)

    # ------------------------------------------------------------------------------------ over a restart

    def recent(self) -> list[KeyMaterial]:
        """The keys that were used last, for the spool's state."""
        found = [self.material(key_id) for key_id in list(self._keys)[-KEYS_KEPT:]]
        return [each for each in found if each is not None]

    def restore(self, materials: Iterable[KeyMaterial]) -> None:
        """Take over what an earlier process wrote: it was verified then."""
        for each in materials:
            try:
                header = KeyHeader.decode(each.header)
                shares = decode_shares(each.shares) if each.shares else []
            except KeysError:
                continue  # of another version of the frames: the publisher sends it again
            key = self._keys.get(header.key_id) or self._add(header, "")
            for share in shares:
                key.level1[share.label[0].place] = share.value
            if len(key.level1) >= header.hops[0].threshold:
                key.material = each


def materials_to_json(materials: Iterable[KeyMaterial]) -> list[list[str]]:
    """For the spool's state."""
    return [[_b64(each.header), _b64(each.shares)] for each in materials]


def materials_from_json(entries: Iterable[Sequence[str]]) -> list[KeyMaterial]:
    """The inverse of `materials_to_json`. Raises ValueError for anything else."""
    return [KeyMaterial(base64.b64decode(header), base64.b64decode(shares)) for header, shares in entries]


def _material(header: KeyHeader, hop: Hop, level1: dict[int, bytes]) -> KeyMaterial:
    shares = [Share((Place(hop.region, hop.view, place),), (), value) for place, value in sorted(level1.items())]
    return KeyMaterial(header.encode(), encode_shares(shares) if shares else b"")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def told_name(name: KeyName) -> str:
    """A name of an epoch key, in the words of column `reason`."""
    return f"scope {name.scope}, epoch {name.epoch}, bump {name.bump}"
