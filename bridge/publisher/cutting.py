"""A batch that is larger than what brokers take, which they did not say: cut in two, until its parts fit.

Replicas say how long their packets may be, and batches are made for that (`gateway.overlay`). A hosted broker may have
a bound that it does not announce, or lower one below what is stored. What none of them takes is not sent again as it
is: each half is a batch with the number of its first record, sealed under another key. On disk it stays one row, that
goes when the last of its parts does; after a restart it is cut again. Not here: who refused it (`publisher`), what a
single record comes to that nobody takes: it waits, and is offered again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from bridge.contract import Numbered, packed, unpacked
from bridge.document import RegionView
from bridge.publisher.residents import Residents, Standing
from bridge.publisher.sealing import Entry
from bridge.publisher.windows import Lanes


def may_be_cut(entry: Entry, view: RegionView, up: Collection[str]) -> bool:
    """Whether nobody can have the batch: a reader that has it, from one broker with shares of others, would get its
    records again. One that is away and did not refuse it counts as if it had not got it, but for QoS 2. Where no more
    than f refused it that may be a lie, told while the links of all others are cut."""
    others = set(view.members) - entry.too_large_for
    if len(view.members) - len(others) <= view.faults:
        return False
    may_have_it = others if entry.publication.qos == 2 else others.intersection(up)
    return entry.publication.records > 1 and not entry.acked and not may_have_it


class Cuts:
    """Of one gateway. `entries`: all in memory, by number; `young`: those whose stragglers' bound is to come."""

    def __init__(self, entries: dict[int, Entry], young: dict[int, None], residents: Residents, lanes: Lanes) -> None:
        self._entries, self._young, self._residents, self._lanes = entries, young, residents, lanes
        self._row_of: dict[int, int] = {}  # by part: the number of the row on disk
        self._parts: dict[int, set[int]] = {}  # by row: its parts that are not gone

    def forget_peer(self, peer: str) -> None:
        """Its link is new, and so may be what it takes."""
        for entry in self._entries.values():
            entry.too_large_for.discard(peer)

    def too_large(self, peer: str, entry: Entry, view: RegionView) -> bool:
        """A replica does not take it for that. Whether two stand in place of the batch now."""
        entry.too_large_for.add(peer)
        if entry.key is not None:  # which rode on it
            entry.key.forget_peer(peer)
        if not may_be_cut(entry, view, [peer for peer, _ in self._lanes]):
            return False
        of = unpacked(entry.publication.payload, entry.sequence)
        numbered = [each for each in of if isinstance(each, Numbered)]
        if len(numbered) > 1:
            self._cut(entry, numbered)
        return len(numbered) > 1

    def _cut(self, entry: Entry, numbered: Sequence[Numbered]) -> None:
        middle = len(numbered) // 2
        row = self._row_of.get(entry.sequence, entry.sequence)
        self._lanes.outdate(entry.sequence)
        self._residents.remove(entry)
        topic = entry.publication.topic
        second = Entry(
            numbered[middle].number, packed(topic, numbered[middle:]), entry.secret, entry.topic, entry.sequence,
            entry.born,
        )  # fmt: skip
        for follower in self._entries.values():
            if follower.wire is None and follower.previous == entry.sequence:
                follower.previous = second.sequence
        entry.publication = packed(topic, numbered[:middle])
        entry.wire = entry.name = entry.key = None
        entry.standing = Standing.FRESH
        entry.acked.clear()
        entry.too_large_for.clear()
        self._entries[second.sequence] = second
        self._young[second.sequence] = None
        parts = entry.sequence, second.sequence
        self._row_of.update(dict.fromkeys(parts, row))
        self._parts.setdefault(row, set()).update(parts)
        for each in (entry, second):
            self._residents.add(each)
        self._lanes.requeue([(each.sequence, each.chain) for each in (entry, second)], lambda _peer, _number: True)

    def rows(self, gone: Iterable[int]) -> tuple[int, ...]:
        """The rows that are to be forgotten now that these are gone from memory."""
        found: list[int] = []
        for sequence in gone:
            row = self._row_of.pop(sequence, None)
            if row is None:
                found.append(sequence)
                continue
            self._parts[row].discard(sequence)
            if not self._parts[row]:
                del self._parts[row]
                found.append(row)
        return tuple(found)
