"""Retained publications of a replica, and its debts to peers until a key comes (docs/protocol.md §5.3).

Of each member and topic the greatest (number, generation, key counter, sealing time) is kept, whichever came first;
it is dropped (`drop_ended`) with its epoch, since publishers seal retained publications anew in each. Not here: who may
have it (`forwarder`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from bridge.contract import FairBytes, FairTable, Wire
from bridge.wire import Admitted
from keys.envelope import Mode

OWED_MAX = 4096  # awaited keys; a flood of unknown key ids evicts its publisher's own
OWED_TOPICS_MAX = 256  # retained topics that wait for one key; an honest key serves 64 messages
RETAINED_BYTES = 256 << 20  # of retained publications; a flood of topics evicts its publisher's own oldest
RETAINED_OVERHEAD_BYTES = 4096  # of header and tables beside the content: bounds the number too
RETAINED_AHEAD_S = 300.0  # a sealing time further ahead would pin its topic against every other publisher

Key = TypeVar("Key")

# The identity of a data key: any publisher may name a key id alone, in any scope.
DataKeyName: TypeAlias = tuple[bytes, str, bytes]


def data_key_name(admitted: Admitted) -> DataKeyName:
    """Returns the name under which the data key of a publication is kept."""
    return admitted.header.publisher, admitted.scope.filter, admitted.header.key_id


@dataclass(slots=True)
class Kept(Generic[Key]):
    """A retained publication, and its key once that is here."""

    order: tuple[int, int, int, int]
    wire: Wire
    admitted: Admitted
    key: Key | None


class Retained(Generic[Key]):
    """The newest retained publication, by wire topic."""

    def __init__(self) -> None:
        self._kept: FairBytes[str, Kept[Key]] = FairBytes(RETAINED_BYTES, RETAINED_OVERHEAD_BYTES)
        self._named: Counter[DataKeyName] = Counter()  # how many of them are sealed under a key

    def __len__(self) -> int:
        return len(self._kept)

    def values(self) -> Iterator[Kept[Key]]:
        return (kept for _, kept in self._kept.items())

    def keep_value(self, wire: Wire, admitted: Admitted, key: Key | None, now: float) -> bool:
        """Keeps the greatest of a topic; tombstones stay, or an old value returns. Returns True if it is kept."""
        header = admitted.header
        order = header.order
        if header.time_ms > (now + RETAINED_AHEAD_S) * 1000 or self.outranks(wire.topic, order):
            return False
        self._pop(wire.topic)
        self._named[data_key_name(admitted)] += 1
        size = len(wire.payload) + len(wire.topic) + sum(len(text) for _, text in wire.properties)
        for _, gone in self._kept.put(wire.topic, header.publisher, Kept(order, wire, admitted, key), size):
            self._forget_name(gone)
        return True

    def outranks(self, wire_topic: str, order: tuple[int, ...]) -> bool:
        """Returns True if this sealing of a topic, or a newer one, is kept."""
        known = self._kept.get(wire_topic)
        return known is not None and known.order >= order

    def names_key(self, key: DataKeyName) -> bool:
        """Returns True if a retained publication is sealed under this key."""
        return key in self._named

    def key_came(self, wire_topic: str, name: DataKeyName, key: Key) -> None:
        kept = self._kept.get(wire_topic)
        if kept is not None and data_key_name(kept.admitted) == name:
            kept.key = key

    def drop_ended(self, ended: Callable[[Admitted, Key | None], bool]) -> int:
        """Drops all publications that have `ended`; returns their number."""
        gone = [kept.wire.topic for kept in self.values() if ended(kept.admitted, kept.key)]
        for topic in gone:
            self._pop(topic)
        return len(gone)

    def _pop(self, wire_topic: str) -> None:
        gone = self._kept.pop(wire_topic)
        if gone is not None:
            self._forget_name(gone)

    def _forget_name(self, gone: Kept[Key]) -> None:
        name = data_key_name(gone.admitted)
        self._named[name] -= 1
        if not self._named[name]:
            del self._named[name]


@dataclass(slots=True)
class Owed:
    """A debt for a key named before it came: peers that got a publication without it, and retained topics lacking
    it.
    """

    peers: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)


class Owing:
    """The debts to peers and topics for keys that are not here yet."""

    def __init__(self) -> None:
        self._owed: FairTable[DataKeyName, Owed] = FairTable(OWED_MAX)

    def owe_peer(self, admitted: Admitted, peer: str) -> None:
        """Notes that `peer` got the publication without its key."""
        if admitted.header.mode is not Mode.PLAIN:
            self._entry(admitted).peers.add(peer)

    def owe_topic(self, wire_topic: str, admitted: Admitted) -> None:
        """Notes that the publication is retained without its key."""
        if admitted.header.mode is not Mode.PLAIN:
            topics = self._entry(admitted).topics
            if len(topics) < OWED_TOPICS_MAX:
                topics.add(wire_topic)

    def settle_key(self, name: DataKeyName) -> Owed:
        """Returns and forgets the debts for a key that came."""
        return self._owed.pop(name) or Owed()

    def _entry(self, admitted: Admitted) -> Owed:
        name = data_key_name(admitted)
        owed = self._owed.get(name)
        if owed is None:
            owed = Owed()
            self._owed.put(name, admitted.header.publisher, owed)
        return owed
