"""Voids in place of sealed entries that are too old to be sent: a replica may have the entry, and its follower names
it.

A *void* goes to all replicas under the entry's number, with one record that only counts (docs/protocol.md §2.6). So no
reader waits for an entry that nobody sends, nor holds a copy that nothing opens. A void that grew as old itself is
dropped without a void. `ages` finds old entries, `predecessors` handles entries that were never sealed.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.contract import Publication, void
from bridge.publisher.residents import Residents, Standing
from bridge.publisher.sealing import Entry
from bridge.publisher.windows import Lanes
from keys.records import Records


def voided(entries: dict[int, Entry], old: Iterable[int], residents: Residents, lanes: Lanes, now: float) -> list[int]:
    """Replaces these entries by voids where needed; returns the others, which are to be dropped."""
    others: list[int] = []
    back: list[tuple[int, str]] = []
    for sequence in old:
        entry = entries[sequence]
        of = entry.publication
        if entry.is_void or not (entry.sealed_ms and of.qos) or of.retain or entry.standing is Standing.SETTLED:
            others.append(sequence)
            continue
        entries[sequence] = entries.pop(sequence)  # it is young again
        if entry.wire is not None:  # else it waits for its turn to be sealed anyway
            lanes.outdate(sequence)
            back.append((sequence, entry.chain))
        residents.remove(entry)
        entry.publication, entry.is_void = _void_of(entry, now), True
        entry.wire = entry.name = entry.key = None
        entry.standing = Standing.FRESH
        entry.acked.clear()
        residents.add(entry)
    lanes.requeue(back, lambda _peer, _sequence: True)
    return others


def _void_of(entry: Entry, now: float) -> Publication:
    """Returns the void of an entry, on the topic of its first record, to which this member had the right."""
    of = entry.publication
    first = Records.decode(of.payload).topics[0].decode() if of.records else of.topic
    return void(entry.secret.clear_filter, first, of.qos, int(now * 1000))
