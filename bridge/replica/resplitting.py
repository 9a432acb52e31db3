"""Shares at one replica (A5): taken from the region before ours, split anew for every replica of each next one.

Key headers and shares ride on publications or come alone. A share we hold is split once for each next region, and
sub-share x goes to its replica x alone; readers of our region get the shares as they are. Under a wrapped key a wrap
key is split in their place (`wrapping`). A peer that was sent a key
gets later shares too. Keys go with their epoch, and with the views that they were split for: places and thresholds are
from the views a key's header names, whichever are in force now. Not here: publications (`forwarder`), rights to read
(`statements`), the arithmetic (`keys.sharetree`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, prod

from bridge.base import Row, Transitions
from bridge.contract import (
    ARRIVAL_FACTOR,
    BURST_S,
    Allowance,
    Blame,
    Count,
    EarlyRoom,
    Effect,
    FairTable,
    Send,
    UserProperties,
    Wire,
)
from bridge.document import Overlay
from bridge.replica.outdated_keys import OutdatedKeys
from bridge.replica.retained import DataKeyName
from bridge.replica.untold_keys import UntoldKeys
from bridge.replica.wrapping import WrappedKey
from bridge.topology import Routes
from bridge.wire import (
    AGE_S,
    KEYS,
    KEYS_TOPIC,
    Admission,
    EarlyKeys,
    Generations,
    Use,
    check_key_topic,
    keep_key,
    key_topic,
    refused,
)
from keys.envelope import (
    PROPERTY_KEY,
    PROPERTY_SHARES,
    PROPERTY_WRAPS,
    KeyHeader,
    check_share,
    from_property,
    to_property,
)
from keys.errors import BadShare, Expired, KeysError, TooOften, UnknownView, WrongEpochKey
from keys.identity import Certificate
from keys.sharetree import Hop, Label, Place, Share, encode_shares, resplit
from keys.wrapping import WrapName, label_hops, wraps_of

KEYS_HELD_MAX = 4096  # a flood of keys evicts the oldest of its publisher, or of who replays it
GATHER_S = 0.05  # an entry's further shares wait so long for those of the other replicas before us


class KeyStage(StrEnum):
    """The stage of a data key at a replica: no share of ours, shares from some, or shares from enough."""

    HEADER = "header"
    BROUGHT = "brought"
    VOUCHED = "vouched"


class KeyTurn(StrEnum):
    """An event in the life of a data key at a replica."""

    SHARES = "shares"
    ENOUGH = "enough shares"


DATA_KEY = Transitions(
    "A data key at a replica",
    (KeyStage.HEADER,),
    (
        Row(KeyTurn.SHARES, (KeyStage.HEADER, KeyStage.BROUGHT), KeyStage.BROUGHT,
            "they go on to peers that were sent the key; with too many keys, those of the same bringer go first"),
        Row(KeyTurn.ENOUGH, (KeyStage.HEADER, KeyStage.BROUGHT), KeyStage.VOUCHED,
            "k replicas of the region before gave shares: one is honest, and the key counts to its publisher alone"),
        Row(KeyTurn.SHARES, (KeyStage.VOUCHED,), KeyStage.VOUCHED, "they go on to peers that were sent the key"),
    ),
    "epoch dead, view or tree closed, publisher gone, bumped, pushed out, or needed by nobody: shares are erased",
)  # fmt: skip


@dataclass(slots=True)
class HeldKey:
    """A verified key header and our shares under it, each with its splits for the next regions."""

    header: KeyHeader
    use: Use
    shares: dict[Label, Share] = field(default_factory=dict)
    splits: dict[tuple[int, Label], list[Share]] = field(default_factory=dict, repr=False)
    came: list[Label | WrapName] = field(default_factory=list)
    """The labels of shares and the names of others' wraps, in the order in which they came to count."""
    announced: dict[str, int] = field(default_factory=dict)
    """By peer that got a publication under the key, how much of `came` was sent to it; 0: the key is to be sent as soon
    as possible.
    """
    wrapped: WrappedKey | None = None
    stage: KeyStage = KeyStage.HEADER
    is_recorded: bool = False
    """True if the history has it: then it has further shares, too."""
    kept_until: float = 0.0
    """Time until which the key counts though a bump outdated it: replicas before us took it before the bump."""

    @property
    def name(self) -> DataKeyName:
        return self.header.publisher, self.header.scope, self.header.key_id


class Resplitter:
    """The keys of a replica.

    `seeds` gives its 32 random bytes for the splits of an epoch: durable before use, equal at every call, erased once
    the epoch is dead (docs/protocol.md §3.1). While the disk keeps none (None), nothing is split: after a restart
    other splits of the same shares would speak against us.

    `came(held)` is called for every new key before anything is sent; `may_get(peer, scope's filter, now)` says
    whether a peer may have shares, `over(held, now)` whether nobody needs a key any more: it may come anew, as if it
    were new.
    """

    def __init__(
        self,
        routes: Routes,
        admission: Admission,
        seeds: Callable[[int], bytes | None],
        came: Callable[[HeldKey], None],
        may_get: Callable[[str, str, float], bool],
        over: Callable[[HeldKey, float], bool],
    ) -> None:
        self._routes = routes
        self._admission = admission
        self._seeds = seeds
        self._came = came
        self._may_get = may_get
        self._over = over
        self._known_seeds: dict[int, bytes] = {}  # of live epochs: the provider reads a disk
        self._held: FairTable[DataKeyName, HeldKey] = FairTable(KEYS_HELD_MAX)
        self.get = self._held.get
        self._new_keys: dict[tuple[bytes, str], Allowance] = {}  # by publisher and who brought them
        self.gathering: dict[DataKeyName, float] = {}  # when to pass on new shares; oldest first, of keys in `_held`
        self.untold = UntoldKeys()
        self._early: EarlyKeys = EarlyRoom(KEYS)
        self._outdated = OutdatedKeys()
        self.generations = Generations(routes.overlay)
        """The lives of publishers, as their keys show them."""
        self.grown: Callable[[HeldKey], list[Effect]] = lambda held: []
        """Called for a key that the history has and that got further shares."""

    def __iter__(self) -> Iterator[HeldKey]:
        return iter(self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    # ------------------------------------------------------------------------------------------- changes

    def link_up(self, peer: str, now: float) -> None:
        """Marks every key to be sent again to the peer, with the next publication or share: it may have lost its
        memory.
        """
        self.untold.link_up(peer, now)
        for held in self._held.values():
            if peer in held.announced:
                held.announced[peer] = 0

    def link_down(self, peer: str) -> None:
        """Stops sending to the peer."""
        self.untold.link_down(peer)

    def note_lost_key(self, peer: str, key: str, now: float) -> None:
        """Notes that a key header found no room at a peer: it goes with the next publication, or alone after a
        while.
        """
        header = KeyHeader.decode(from_property(key))  # our own words
        held = self._held.get((header.publisher, header.scope, header.key_id))
        if held is not None and peer in held.announced:
            held.announced[peer] = 0
            self.untold.note_lost_key(peer, held.name, now)

    def adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        """Takes another version of the overlay, or other views. `Routes` and `Admission` have taken it before."""
        self.generations.adopt_overlay(overlay)
        self.untold.forget_all_but(overlay.members)
        of_members = (pair for pair in self._new_keys if pair[0] in overlay.by_party and pair[1] in overlay.members)
        self._new_keys = {pair: self._new_keys[pair] for pair in of_members}
        for held in self._held.values():
            for peer in [peer for peer in held.announced if peer not in overlay.members]:
                del held.announced[peer]
        effects: list[Effect] = []
        for sender, topic, properties in self._early.take_all():
            if sender in overlay.members:
                try:
                    effects += self.take_key(sender, properties, now, topic)
                except KeysError as error:
                    effects += refused(sender, error)
        return effects

    def erase_all(self) -> None:
        """Erases all keys, shares and seeds, since we are no replica any more."""
        self._held.clear()
        self._early.take_all()
        self._outdated = OutdatedKeys()
        self.gathering.clear()
        self.untold = UntoldKeys()
        self._known_seeds.clear()

    def erase_ended(self, now: float) -> None:
        """Erases keys and shares that ended, and seeds of dead epochs.

        A key ends when its epoch is dead, a bump outdated it, its publisher is gone, one of its views is closed, or
        nobody needs it. A seed says nothing of a split whose share is erased: coefficients are derived from the
        share's value too.
        """
        members, oldest = self._routes.overlay.by_party, self._admission.oldest(now)
        ended = [
            held.name
            for held in self._held.values()
            if held.header.publisher not in members or self.has_ended(held, now) or self._over(held, now)
        ]
        for name in ended:
            self._held.pop(name)
            self.gathering.pop(name, None)
        self._known_seeds = {epoch: seed for epoch, seed in self._known_seeds.items() if epoch >= oldest}

    def has_ended(self, held: HeldKey, now: float) -> bool:
        """Returns True if nothing under this key can be fresh any more. Regions of a former tree may be gone."""
        overlay, header = self._routes.overlay, held.header
        known = [hop for hop in header.hops if hop.region in overlay.latest]
        publisher = overlay.by_party.get(header.publisher)
        kept = now < held.kept_until and header.epoch >= self._admission.oldest(now)
        moved = publisher is not None and publisher.region != header.hops[0].region
        views = (overlay.view(hop.region, hop.view) for hop in known)
        closed = not self._routes.topology.is_open(header.tree) or None in views
        return moved or closed or (not kept and self._admission.stale(header.epoch_key, now))

    def next_ended(self, now: float) -> float:
        """Returns when the first key a bump outdated stops to count; infinite without any."""
        return min((held.kept_until for held in self._held.values() if held.kept_until > now), default=inf)

    @property
    def holds_secrets(self) -> bool:
        """True if there is anything to erase a day."""
        return bool(self._known_seeds or self._held.count())

    # --------------------------------------------------------------------------------------------- taking

    def take_key(self, sender: str, properties: dict[str, str], now: float, topic: str = KEYS_TOPIC) -> list[Effect]:
        """Takes a key header and shares; peers that already have the header get the new shares at once.

        `topic`: the topic of the wire. Raises keys errors.
        """
        is_outdated = False
        try:
            header = self._admission.key_header(properties, now)
        except UnknownView:
            keep_key(self._early, sender, properties, topic)
            return [Count("keys_ahead")]
        except WrongEpochKey:
            if not self._routes.is_replica(sender):
                raise
            is_outdated, header = True, self._admission.key_header(properties, now, bumped=True)
        if header is None:
            return []
        check_key_topic(topic, header)
        publisher = self._admission.publisher(header.publisher)
        self._routes.topology.check_sender(sender, publisher, self._routes.region, header.tree)
        held = self._held.get((header.publisher, header.scope, header.key_id))
        if not is_outdated or (held is not None and not self._over(held, now)):
            return self._take_verified(sender, header, publisher, properties, now)
        way = self._routes.topology.key_way(header, publisher.region, self._routes.region)
        if self._outdated.keep_wire(header, sender, properties) < way[-2].threshold:
            return [Count("keys_unvouched")]
        effects: list[Effect] = []
        for teller, told in self._outdated.take_wires(header):
            try:
                effects += self._take_verified(teller, header, publisher, told, now, now + AGE_S)
            except KeysError as error:
                effects += refused(teller, error)
        return effects

    def _take_verified(
        self,
        sender: str,
        header: KeyHeader,
        publisher: Certificate,
        properties: Mapping[str, str],
        now: float,
        kept_until: float = 0.0,
    ) -> list[Effect]:
        """Takes a verified key header and its shares. `kept_until`: as in `HeldKey`."""
        try:
            self.generations.learn(publisher.name, header, now)
            own = self._routes.topology.place_in(header.hops, self._routes.name)
            if own is None:
                raise Expired("a key of a view in which we have no place")
            held, is_new = self._hold(header, sender, now, kept_until, of_itself=sender == publisher.name)
        except KeysError as error:
            error.author = header.publisher
            raise
        effects: list[Effect] = [Count("data_keys")] if is_new else []
        before = len(held.came)
        way = self._routes.topology.key_way(header, publisher.region, self._routes.region)
        if held.wrapped is None and header.wrapped:
            held.wrapped = WrappedKey(header, way, own)
        expected = self._expected(header, sender, way, own)
        wraps = self._admission.wraps(properties, header, way, expected[0])
        for share in self._admission.shares(properties, expected):
            known = held.shares.get(share.label)
            if known is None:
                if len(share.label) == 1 and not check_share(header, own.place, share.value):
                    # Passing it on would make us the liar; withheld and complained about (docs/protocol.md §3.2).
                    effects += [Count("complaints"), Blame(sender, False, "share misfits its commitment")]
                    continue
                held.shares[share.label] = share
                held.came.append(share.label)
                effects.append(Count("shares_received"))
            elif known != share:
                effects.append(Blame(sender, False, "a second, different share for one label"))
        if held.wrapped is not None and wraps:
            assert isinstance(expected[0], Place), "wraps come from a replica alone"
            told = held.wrapped.others.take_wraps(wraps, expected[0])
            held.came += [wrap.name for wrap in told.believed]
            effects += [Count("wraps_received", len(told.believed))] if told.believed else []
            effects += [Blame(sender, False, "a second, different wrap of one name")] if told.contradicts else []
        return effects + self._came_more(held, before, way, now)

    def _came_more(self, held: HeldKey, before: int, way: tuple[Hop, ...], now: float) -> list[Effect]:
        """Passes on what came of a key, if anything did since `came` was so long."""
        if len(held.came) == before:
            return []
        effects: list[Effect] = []
        turn = KeyTurn.SHARES
        if held.stage is not KeyStage.VOUCHED and self._is_vouched_for(held, way):
            turn = KeyTurn.ENOUGH
            self._held.put(held.name, held.header.publisher, held)
        if held.shares:
            held.stage = DATA_KEY.after((turn, held.stage))
        if held.is_recorded:
            effects += self.grown(held)
        if self._gathered(held, way, now):
            effects += self._pass_on(held, now)
        return effects

    def _is_vouched_for(self, held: HeldKey, way: tuple[Hop, ...]) -> bool:
        """Returns True if enough replicas before us gave shares that one of them is honest: it replays nothing."""
        before = way[:-1]
        return bool(before) and len({label[-2].place for label in held.shares}) >= before[-1].threshold

    def _gathered(self, held: HeldKey, way: tuple[Hop, ...], now: float) -> bool:
        """Returns True if shares not passed on yet go now. With a publication they do.

        An entry standing alone waits for as many shares as its receivers need of us at least, then for all or, since
        some may never come, a moment.
        """
        if not self.alone(held):
            return True
        before = label_hops(way, wrapped=held.header.wrapped)[:-1]
        fewest, most = prod(hop.threshold for hop in before), prod(hop.count for hop in before)
        if held.header.wrapped:
            most += wraps_of(way)
        if len(held.shares) < fewest:
            return False
        if len(held.came) == most or not any(held.announced.values()):
            self.gathering.pop(held.name, None)
            return True
        self.gathering.setdefault(held.name, now + GATHER_S)
        return False

    def _pass_on(self, held: HeldKey, now: float) -> list[Effect]:
        """Returns the new shares for every peer that was sent the key."""
        return [self._news(peer, held) for peer in held.announced if self._lacks(peer, held, now)]

    def _news(self, peer: str, held: HeldKey) -> Send:
        return self._wire(peer, held, held.came[held.announced[peer] :])

    def _lacks(self, peer: str, held: HeldKey, now: float) -> bool:
        """Returns True if the peer should have more shares of the key and can be sent them."""
        given = held.announced.get(peer, len(held.came))
        return peer in self._routes.up and given < len(held.came) and self._may_get(peer, held.header.scope, now)

    def tick(self, now: float) -> list[Effect]:
        """Returns shares of entries that waited for others long enough, and keys that found no room some time ago."""
        effects: list[Effect] = []
        while self.gathering and next(iter(self.gathering.values())) <= now:
            name = next(iter(self.gathering))
            del self.gathering[name]
            held = self._held.get(name)
            effects += self._pass_on(held, now) if held is not None else []
        for peer in self.untold.due_peers(now) if self.untold.peers else ():
            lacking = {
                h.name: h for h in map(self._held.get, self.untold.keys_for(peer)) if h and self._lacks(peer, h, now)
            }
            effects += [self._news(peer, lacking[name]) for name in self.untold.next_of(peer, lacking, now)]
        return effects

    @property
    def next_deadline(self) -> float:
        """The next time at which something waits no longer; infinite if nothing waits."""
        if not (self.gathering or self.untold.peers):
            return inf
        return min(next(iter(self.gathering.values()), inf), self.untold.next_deadline)

    def _hold(
        self, header: KeyHeader, sender: str, now: float, kept_until: float, *, of_itself: bool
    ) -> tuple[HeldKey, bool]:
        """Returns our entry for a verified key, made if it is new, and True if it is new.

        Raises TooOften for a publisher that makes too many keys, or for a sender replaying old ones: they count to
        both until others bring them too. A key the publisher brings `of_itself` is only acknowledged later.
        """
        name = (header.publisher, header.scope, header.key_id)
        held = self._held.get(name)
        is_new = held is None or self._over(held, now)
        if held is None or is_new:
            if not of_itself and not self._allowance(header.publisher, sender, now).spend_one(now):
                raise TooOften("a publisher makes more data keys than its publications can need")
            held = HeldKey(header, Use(now), kept_until=kept_until)
            gone = self._held.put(name, header.publisher + sender.encode(), held)
            if gone is not None:
                self.gathering.pop(gone[0], None)
            self._came(held)
        return held, is_new

    def _allowance(self, publisher: bytes, sender: str, now: float) -> Allowance:
        found = self._new_keys.get((publisher, sender))
        if found is None:
            per_s = ARRIVAL_FACTOR * self._routes.overlay.policy.budgets.keys
            found = self._new_keys[publisher, sender] = Allowance(int(per_s * BURST_S), 1 / per_s, now)
        return found

    def _expected(self, header: KeyHeader, sender: str, way: tuple[Hop, ...], own: Place) -> list[Place | Hop]:
        """Returns the path of labels from this sender: its own place last-but-one, ours last (docs/protocol.md
        §3.2).
        """
        expected: list[Place | Hop] = [*label_hops(way, wrapped=header.wrapped)[:-1], own]
        if len(way) > 1:
            place = self._routes.topology.place_in(header.hops, sender)
            if place is None:
                raise BadShare("shares from a replica that the key gives no place")
            expected[-2] = place
        return expected

    # -------------------------------------------------------------------------------------------- giving

    def riding(self, peer: str, held: HeldKey, again: bool) -> UserProperties:
        """Returns the properties of a publication under this key for `peer`: none if it was sent before, unless
        `again`.
        """
        if (held.announced.get(peer) and not again) or not self.concerns(peer, held):
            return ()
        if held.stage is KeyStage.HEADER:
            held.announced.setdefault(peer, 0)
            return ()
        held.announced[peer] = len(held.came)
        return self._carried(peer, held, held.came)

    def wire(self, peer: str, held: HeldKey) -> Send:
        """Returns key header and all shares alone, for a peer that has a place in the key."""
        return self._wire(peer, held, held.came)

    def _wire(self, peer: str, held: HeldKey, came: Sequence[Label | WrapName]) -> Send:
        held.announced[peer] = len(held.came)
        carried = self._carried(peer, held, came)
        if self.alone(held):
            return Send(peer, Wire(key_topic(held.header.scope, held.header.publisher), b"", 1, True, carried))
        return Send(peer, Wire(KEYS_TOPIC, b"", 1, False, carried))

    def alone(self, held: HeldKey) -> bool:
        """Returns True if the key never rides on a publication."""
        scope = self._routes.overlay.scope_named(held.header.scope)
        return scope is not None and scope.keys_on_topic

    def concerns(self, peer: str, held: HeldKey) -> bool:
        """Returns True if the key has a place for the peer, and we have something to give it.

        A replica that is only in another view of its region has no place, and without a seed we split for nobody.
        """
        if not self._routes.is_replica(peer):
            return True
        has_place = self._routes.topology.place_in(held.header.hops, peer) is not None
        return has_place and self._seed(held.header.epoch) is not None

    def _seed(self, epoch: int) -> bytes | None:
        seed = self._known_seeds.get(epoch)
        if seed is None:
            seed = self._seeds(epoch)
            if seed is not None:
                self._known_seeds[epoch] = seed
        return seed

    def _carried(self, peer: str, held: HeldKey, came: Sequence[Label | WrapName]) -> UserProperties:
        """Returns the properties `vmq-key`, `vmq-shares` and, under a wrapped key, `vmq-wraps`, of what came."""
        carried: UserProperties = ((PROPERTY_KEY, to_property(held.header.encode())),)
        shares = self._shares_for(
            peer, held, {label: held.shares[label] for label in came if not isinstance(label, WrapName)}
        )
        if shares:
            carried += ((PROPERTY_SHARES, to_property(encode_shares(shares))),)
        if held.wrapped is not None:
            seed = self._seed(held.header.epoch) if self._routes.is_replica(peer) else None
            frame = held.wrapped.frame(came, held.shares, seed)
            carried += ((PROPERTY_WRAPS, to_property(frame)),) if frame is not None else ()
        return carried

    def _shares_for(self, peer: str, held: HeldKey, shares: dict[Label, Share]) -> list[Share]:
        """Returns our shares unchanged for a reader, and the sub-share of each for a replica of the next region; of a
        wrapped key that of our wrap key, once.
        """
        if not self._routes.is_replica(peer):
            return list(shares.values())
        place = self._routes.topology.place_in(held.header.hops, peer)
        assert place is not None, "asked before"
        if held.wrapped is not None and held.wrapped.wraps_itself:
            seed = self._seed(held.header.epoch)
            assert seed is not None, "asked before"
            return (
                [self._split(held, held.wrapped.wrap_key_share(seed), place.region)[place.place - 1]] if shares else []
            )
        return [self._split(held, share, place.region)[place.place - 1] for share in shares.values()]

    def _split(self, held: HeldKey, share: Share, region: int) -> list[Share]:
        split = held.splits.get((region, share.label))
        if split is None:
            seed = self._seed(held.header.epoch)
            assert seed is not None, "asked before"
            (hop,) = held.header.along([region])
            split = resplit(share, held.header.digest, hop, seed)
            held.splits[region, share.label] = split
        return split
