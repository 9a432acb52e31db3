"""Data keys of a publisher: one at a time for each scope, the time of the next one, and their announcement to replicas
(A9, docs/protocol.md §2.4).

A data key serves as many messages, bytes and seconds as its scope's `Refresh` says, under a single epoch key; the
first limit reached ends it. `epoch_key_name` gives the epoch key under which a scope seals at a moment, if there is
one. `sealing` decides on time and receivers, `keys.fetching` obtains epoch keys.

A key rides on publications, or is sent once, alone, on its own topic (`Scope.keys_on_topic`). A late subscriber at a
replica gets the live keys from the replica; a stock broker gives only later messages, so there every publication
carries its key. `sends` returns the messages of a publication for a replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from bridge.contract import Publication, Send, UserProperties, Wire
from bridge.document import Overlay, Refresh, Scope
from bridge.document.region_view import RegionView
from bridge.topology import Topology
from bridge.wire import OwnLife, key_topic
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, DataKey, KeyHeader, KeyName, Mode, make_key, to_property
from keys.epochs import ScopeKeys
from keys.identity import Identity
from keys.sharetree import Hop, Place, Share, encode_shares

ANNOUNCE_EVERY = 16  # messages after which the key rides along again
ANNOUNCE_AFTER_S = 5.0


@dataclass(slots=True)
class LiveKey:
    """A data key in use, with its use counts and its announcements by peer. `alone` keys never ride on a
    publication.
    """

    name: KeyName
    refresh: Refresh
    alone: bool
    header: KeyHeader
    data_key: DataKey
    shares: Sequence[Share]
    born: float
    header_property: tuple[str, str]
    sealed_messages: int = 0
    sealed_bytes: int = 0
    announced: dict[str, tuple[int, float]] = field(default_factory=dict)

    def seal(self, prefix: bytes, sequence: int, topic: str, inner: bytes) -> bytes:
        """Seals with `DataKey.seal` and counts messages and bytes."""
        content = self.data_key.seal(prefix, sequence, topic, inner)
        self.sealed_messages += 1
        self.sealed_bytes += len(content)
        return content

    def carried(self, place: Place) -> UserProperties:
        """Returns `vmq-key` and `vmq-shares` for the replica at `place` of the home region. In a view other than the
        key's the replica has no place, and gets no share.
        """
        shares = [share for share in self.shares if share.label[0] == place]
        return (self.header_property, (PROPERTY_SHARES, to_property(encode_shares(shares)))) if shares else ()

    def wire(self, place: Place) -> Wire:
        """Returns the key alone, for the replica at `place` of the home region."""
        return Wire(key_topic(self.header.scope, self.header.publisher), b"", 1, True, self.carried(place))

    def was_told_to(self, peer: str) -> bool:
        """Returns True if the peer has this key, which stands alone."""
        return peer in self.announced

    def note_told(self, peer: str) -> None:
        self.announced[peer] = (0, 0.0)

    def announcement_due(self, peer: str, now: float) -> bool:
        """Returns True for the first message of the key, then for every 16th or after 5 s (docs/protocol.md §2.9)."""
        count, at = self.announced.get(peer, (ANNOUNCE_EVERY, 0.0))
        due = count + 1 >= ANNOUNCE_EVERY or now - at >= ANNOUNCE_AFTER_S
        self.announced[peer] = (0, now) if due else (count + 1, at)
        return due

    def forget_peer(self, peer: str) -> None:
        """Announces the key again to a peer that may have lost its memory."""
        self.announced.pop(peer, None)

    def spent(self, now: float) -> bool:
        full = self.sealed_messages >= self.refresh.messages or self.sealed_bytes >= self.refresh.sealed_bytes
        return full or now - self.born >= self.refresh.age_s


class DataKeys:
    """The present data key of every scope in which this gateway publishes."""

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        home: int,
        keys: ScopeKeys,
        random: Callable[[int], bytes],
        life: OwnLife,
    ) -> None:
        self._overlay, self._topology = overlay, Topology(overlay)
        self._identity = identity
        self._home = home
        self._scope_keys = keys
        self._random, self._life = random, life
        self._live: dict[str, LiveKey] = {}

    def epoch_key_name(self, scope: Scope, now: float) -> KeyName | None:
        """Returns the epoch key under which `scope` seals now; None if no key here may seal.

        Scopes without an epoch key have a name too: it holds the epoch and the bump of sealing.
        """
        calendar = self._overlay.policy.calendar
        if not scope.keyed:
            return KeyName(scope.filter, calendar.epoch_at(now), scope.bump)
        found = self._scope_keys.to_seal(scope.filter, scope.bump, calendar, now)
        return None if found is None else found[0]

    @property
    def tree(self) -> int:
        """The number of the tree of regions that is used for sealing now."""
        return self._overlay.trees.in_force.number

    def hops(self, scope: Scope) -> tuple[Hop, ...]:
        """Returns the views for which a key of the scope is split now; none for plain scopes."""
        return () if scope.mode is Mode.PLAIN else self._topology.key_hops(scope, self._home)

    def live_key(self, scope: Scope, name: KeyName, sequence: int, now: float) -> LiveKey:
        """Returns the scope's data key under `name`, renewed by count, bytes, age and epoch key, and for a number the
        present key sealed before: the number is the nonce, and a single nonce has a single content.
        """
        key = self._live.get(scope.filter)
        if key is not None and key.header.order.generation != self._life.generation:
            key = None
        if key is None or key.name != name or key.spent(now) or key.data_key.has_sealed(sequence):
            epoch_key = self._scope_keys.get(name) if scope.keyed else None
            hops, most, order = self.hops(scope), scope.refresh.messages, self._life.next_key()
            wrapped = self._topology.needs_wrapping(hops, self.tree)
            header, data_key, shares = make_key(
                self._identity, name, hops, sequence, most, epoch_key, self._random, order, self.tree, wrapped=wrapped
            )
            carried = (PROPERTY_KEY, to_property(header.encode()))
            key = LiveKey(name, scope.refresh, scope.keys_on_topic, header, data_key, shares, now, carried)
            self._live[scope.filter] = key
        return key

    def alone(self, now: float) -> Iterator[LiveKey]:
        """Yields the keys in use standing alone."""
        return (key for key in self._live.values() if key.alone and not key.spent(now))

    def forget_peer(self, peer: str) -> None:
        for key in self._live.values():
            key.forget_peer(peer)

    def end_all_keys(self) -> None:
        """Ends the use of all present keys."""
        self._live.clear()

    def rotate_identity(self, identity: Identity) -> None:
        """Takes another signing key, and ends the use of all present data keys."""
        self._identity = identity
        self.end_all_keys()

    def adopt_overlay(self, overlay: Overlay) -> None:
        self._overlay, self._topology = overlay, Topology(overlay)
        self.end_all_keys()


def sends(
    peer: str,
    view: RegionView,
    wire: Wire,
    key: LiveKey | None,
    publication: Publication,
    ticket: int,
    now: float,
    *,
    hosted: bool,
) -> list[Send]:
    """Returns the messages of a publication for the member `peer` of the home region's `view`."""
    if hosted and publication.expiry_s is not None:
        ends_s = publication.time_ms / 1000 + publication.expiry_s
        wire = replace(wire, expiry_s=max(1, ceil(ends_s - now)))
    if key is None:
        return [Send(peer, wire, ticket)]
    if key.alone and not hosted:
        before = [] if key.was_told_to(peer) else [key_alone(peer, view, key)]
        return [*before, Send(peer, wire, ticket)]
    if hosted or wire.retain or key.announcement_due(peer, now):
        carried = key.carried(_place(peer, view))
        wire = replace(wire, properties=wire.properties + carried)
    return [Send(peer, wire, ticket)]


def key_alone(peer: str, view: RegionView, key: LiveKey) -> Send:
    """Returns a key on its own topic, with the share of that replica."""
    key.note_told(peer)
    return Send(peer, key.wire(_place(peer, view)))


def _place(peer: str, view: RegionView) -> Place:
    return Place(view.region, view.number, view.place_of(peer))
