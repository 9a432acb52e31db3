"""A publisher's data keys: one at a time for each scope, and when the next one is due (A9, docs/protocol.md §2.4).

A data key serves as many messages, bytes and seconds as its scope's `Refresh` says, under one epoch key; whatever
ends first ends it. It rides on publications, or is told once, alone (`Scope.keys_on_topic`).
`name` says which epoch key a scope seals under at a moment, or that there is none. Not here: what is sealed when and
for whom (`sealing`), how epoch keys come to us (`keys.fetching`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bridge.contract import UserProperties, Wire
from bridge.document import Overlay, Refresh, Scope
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
    """A data key in use, what it sealed, and to whom it was announced. `alone`: never on a publication."""

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
        """`DataKey.seal`, counted."""
        content = self.data_key.seal(prefix, sequence, topic, inner)
        self.sealed_messages += 1
        self.sealed_bytes += len(content)
        return content

    def carried(self, place: Place) -> UserProperties:
        """`vmq-key` and `vmq-shares` for the replica at `place` of our region. In another view than the key's no place
        is that replica's: it gets no share."""
        shares = [share for share in self.shares if share.label[0] == place]
        return (self.header_property, (PROPERTY_SHARES, to_property(encode_shares(shares)))) if shares else ()

    def wire(self, place: Place) -> Wire:
        """The key alone, for the replica at `place` of our region."""
        return Wire(key_topic(self.header.scope, self.header.publisher), b"", 1, True, self.carried(place))

    def told(self, peer: str) -> bool:
        """Whether the peer has the key, which stands alone."""
        return peer in self.announced

    def tell(self, peer: str) -> None:
        self.announced[peer] = (0, 0.0)

    def announcement_due(self, peer: str, now: float) -> bool:
        """First message of the key, then every 16th or after 5 s (docs/protocol.md §2.9)."""
        count, at = self.announced.get(peer, (ANNOUNCE_EVERY, 0.0))
        due = count + 1 >= ANNOUNCE_EVERY or now - at >= ANNOUNCE_AFTER_S
        self.announced[peer] = (0, now) if due else (count + 1, at)
        return due

    def forget_peer(self, peer: str) -> None:
        """The peer may have lost its memory: announce again."""
        self.announced.pop(peer, None)

    def spent(self, now: float) -> bool:
        full = self.sealed_messages >= self.refresh.messages or self.sealed_bytes >= self.refresh.sealed_bytes
        return full or now - self.born >= self.refresh.age_s


class DataKeys:
    """The present data key of every scope that we publish in."""

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

    def name(self, scope: Scope, now: float) -> KeyName | None:
        """Which epoch key `scope` seals under now; None if we have none that may seal.

        Scopes without an epoch key have a name too: it says in which epoch and after which bump something was sealed.
        """
        calendar = self._overlay.policy.calendar
        if not scope.keyed:
            return KeyName(scope.filter, calendar.at(now), scope.bump)
        found = self._scope_keys.to_seal(scope.filter, scope.bump, calendar, now)
        return None if found is None else found[0]

    @property
    def tree(self) -> int:
        """The tree of regions that is sealed for now: its number."""
        return self._overlay.trees.in_force.number

    def hops(self, scope: Scope) -> tuple[Hop, ...]:
        """The views for which a key of the scope is split now; none where nothing is sealed."""
        return () if scope.mode is Mode.PLAIN else self._topology.key_hops(scope, self._home)

    def key(self, scope: Scope, name: KeyName, sequence: int, now: float) -> LiveKey:
        """The scope's data key under `name`, renewed by count, bytes, age and epoch key, and for what the present one
        sealed before: its nonce is its number, and one nonce has one content."""
        key = self._live.get(scope.filter)
        if key is not None and key.header.order.generation != self._life.generation:
            key = None
        if key is None or key.name != name or key.spent(now) or key.data_key.has_sealed(sequence):
            epoch_key = self._scope_keys.get(name) if scope.keyed else None
            hops, most, order = self.hops(scope), scope.refresh.messages, self._life.next_key()
            header, data_key, shares = make_key(
                self._identity, name, hops, sequence, most, epoch_key, self._random, order, self.tree
            )
            carried = (PROPERTY_KEY, to_property(header.encode()))
            key = LiveKey(name, scope.refresh, scope.keys_on_topic, header, data_key, shares, now, carried)
            self._live[scope.filter] = key
        return key

    def alone(self, now: float) -> Iterator[LiveKey]:
        """Keys in use that stand alone."""
        return (key for key in self._live.values() if key.alone and not key.spent(now))

    def forget_peer(self, peer: str) -> None:
        for key in self._live.values():
            key.forget_peer(peer)

    def clear(self) -> None:
        """Nothing more is sealed under the present keys."""
        self._live.clear()

    def rotate(self, identity: Identity) -> None:
        """Our signing key is another one from now on."""
        self._identity = identity
        self.clear()

    def adopt(self, overlay: Overlay) -> None:
        self._overlay, self._topology = overlay, Topology(overlay)
        self.clear()
