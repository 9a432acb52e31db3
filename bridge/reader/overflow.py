"""Publications without room to wait for their turn at a gateway: they stay in hand, unacknowledged (docs/protocol.md
§5.2).

MQTT 5 then holds back the sender, which sends the publication again if this process is killed. A publisher may leave
at most a quarter of a link's window unacknowledged, all publishers together a half: so awaited predecessors still come
through, and no publisher mutes another. When there is room, publications enter their streams, the lowest number first.
A copy from another replica is withheld too, but held once. `waiting` decides on room; `collector` handles publications
finding no room here either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from bridge.contract import Effect, Received, Take
from bridge.reader.kept import Name
from bridge.reader.streams import Held
from bridge.wire import PROPERTY_PART, PROPERTY_SKIP
from keys.envelope import PROPERTY_HEADER

LINK_WINDOW = 1024  # what a replica may have sent a gateway that is not acknowledged: the gateway's Receive Maximum
HOSTED_WINDOW = 20  # of a stock broker, whatever it is offered: the least that is usual, Mosquitto's
PARTS = 4  # of a window, and of the bytes, one publisher has one
OVERFLOW_BYTES_MAX = 32 << 20  # of all that is in hand
_READ = frozenset({PROPERTY_HEADER, PROPERTY_PART, PROPERTY_SKIP})  # keys and shares were taken when it came


@dataclass(slots=True, eq=False)
class InHand:
    """A publication and the wire that completed it. `numbers` holds, by replica, the number of each withheld copy."""

    held: Held
    brought: Received
    numbers: dict[str, int]

    @property
    def size(self) -> int:
        """The size in bytes."""
        wire = self.brought.wire
        content = self.held.content
        own = 0 if content is None or content is wire.payload else len(content)
        return own + len(wire.payload) + sum(len(value) for _, value in wire.properties)


class Overflow:
    """The publications in hand at one gateway. `hosted` are the stock brokers of the region."""

    def __init__(self, hosted: Collection[str]) -> None:
        self.hosted = hosted
        self._in_hand: dict[bytes, dict[Name, InHand]] = {}  # by publisher
        self._links: dict[str, Counter[bytes]] = {}  # by replica: of whom how many copies are withheld
        self._bytes: Counter[bytes] = Counter()
        self._last = 0
        self.to_take: list[int] = []
        """The numbers of withheld copies that may be acknowledged."""

    def __len__(self) -> int:
        """Returns the number of publishers with publications in hand."""
        return len(self._in_hand)

    def get(self, name: Name) -> InHand | None:
        """Returns the publication in hand with this name."""
        return self._in_hand.get(name[0], {}).get(name)

    def put(self, held: Held, brought: Received) -> int:
        """Keeps a publication in hand, in its latest given sealing. Returns the number under which its wire is
        withheld; 0 if there is no room here either.
        """
        before = self.get(held.name)
        read = tuple(each for each in brought.wire.properties if each[0] in _READ)  # nothing else fills memory
        entry = InHand(held, replace(brought, wire=replace(brought.wire, properties=read)), {})
        publisher = held.name[0]
        of_all = self._bytes.total() - (before.size if before else 0) + entry.size
        of_one = self._bytes[publisher] - (before.size if before else 0) + entry.size
        if of_all > OVERFLOW_BYTES_MAX or of_one > OVERFLOW_BYTES_MAX // PARTS:
            return 0
        if not self._has_window(brought.peer, publisher):
            return 0
        if before is not None:
            entry.numbers = before.numbers
            self._bytes[publisher] -= before.size
        self._in_hand.setdefault(publisher, {})[held.name] = entry
        self._bytes[publisher] += entry.size
        return self.join(entry, brought.peer)

    def join(self, entry: InHand, peer: str) -> int:
        """Takes a replica's copy of a publication in hand. Returns the number under which the copy is withheld; 0 if
        too much of the link's window is taken.

        A former copy of that replica is acknowledged; if it came on an earlier connection, it is gone.
        """
        publisher = entry.held.name[0]
        if peer in entry.numbers:
            self.to_take.append(entry.numbers[peer])
        elif not self._has_window(peer, publisher):
            return 0
        else:
            self._links.setdefault(peer, Counter())[publisher] += 1
        self._last += 1
        entry.numbers[peer] = self._last
        return self._last

    def _has_window(self, peer: str, publisher: bytes) -> bool:
        window = HOSTED_WINDOW if peer in self.hosted else LINK_WINDOW
        link = self._links.get(peer)
        return link is None or (link[publisher] < window // PARTS and link.total() < window // 2)

    def first(self, publisher: bytes) -> InHand | None:
        """Returns the publication of this publisher with the lowest number."""
        entries = self._in_hand.get(publisher)
        return None if entries is None else min(entries.values(), key=lambda entry: entry.held.name[2])

    def among(self, publishers: Collection[bytes]) -> list[bytes]:
        """Returns the given publishers that have publications in hand."""
        return sorted(self._in_hand.keys() & publishers)

    def pop(self, entry: InHand) -> None:
        """Removes a publication that goes on or is no longer wanted; its withheld copies may be acknowledged."""
        publisher = entry.held.name[0]
        entries = self._in_hand[publisher]
        del entries[entry.held.name]
        self._bytes[publisher] -= entry.size
        if not entries:
            del self._in_hand[publisher], self._bytes[publisher]
        for peer, number in entry.numbers.items():
            self.to_take.append(number)
            link = self._links[peer]
            link[publisher] -= 1
            if not link[publisher]:
                del link[publisher]
                if not link:
                    del self._links[peer]

    def taken(self) -> list[Effect]:
        """Returns the effect acknowledging withheld copies, if there are any."""
        if not self.to_take:
            return []
        taken, self.to_take = tuple(self.to_take), []
        return [Take(taken)]
